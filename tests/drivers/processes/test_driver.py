"""What only the driver ``processes`` has: shared memory, children, and a trainer that runs ahead.

tests/contracts/test_drivers.py compares its results with those of the other drivers.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import letters

import fcl
from fcl.drivers import plan
from fcl.drivers.processes import faults, shared, supervisor
from fcl.drivers.processes.logic.protocol import Decided
from fcl.drivers.processes.outer_loop import OuterLoopState
from fcl.files.folder import CheckpointFolder
from fcl.run.events import Event, PassDone, Prepared, Started
from fcl.run.reasons import StopReason
from tests import by_name
from tests.same_optimum import same_optimum
from tests.stops import After

JOB: dict[str, Any] = {"C": 1.0, "tol": 1e-6, "block_rows": 64, "memory": "1GiB", "warn": False}


@pytest.fixture
def on_disk(tmp_path: Path) -> fcl.DataSet:
    return write(tmp_path / "data", *letters())


def write(folder: Path, codes: np.ndarray, y: np.ndarray) -> fcl.DataSet:
    folder.mkdir()
    np.save(folder / "X.npy", codes)
    np.save(folder / "y.npy", y)
    return fcl.open_data(folder)


def in_memory() -> fcl.DataSet:
    codes, y = letters()
    return fcl.open_data(codes, y=y)


def train(data: fcl.DataSet | None = None, **options: Any) -> fcl.TrainResult:
    driver = {} if "driver" in options else {"driver": "processes", "writers": 1}
    return by_name.train(data or in_memory(), "kmers:d=3", **(JOB | driver | options))


@cache
def inline() -> fcl.TrainResult:
    return train(driver="inline")


def check(result: fcl.TrainResult) -> None:
    same_optimum(result, inline())


def failing_save(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def save(self: CheckpointFolder, checkpoint: object) -> Path:
        raise error

    monkeypatch.setattr(CheckpointFolder, "save", save)


# -- where rows and shared memory are --------------------------------------------------------------


@pytest.mark.slow
def test_rows_in_a_scratch_file(
    on_disk: fcl.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide = plan._divide
    monkeypatch.setattr(
        plan, "_divide", lambda job, budget, _, *more: divide(job, budget, True, *more)
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    plans = []
    check(train(on_disk, scratch=scratch, writers=2, progress=plans.append))
    assert next(e.plan for e in plans if isinstance(e, Started)).scratch
    assert not list(scratch.iterdir())


def test_shared_memory_in_files(tmp_path: Path) -> None:
    check(train(shared_files=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_validation(on_disk: fcl.DataSet) -> None:
    codes, y = letters()
    valid = fcl.open_data(codes[::3], y=y[::3])
    result = train(valid=valid)
    check(result)
    last = result.model.history[-1]["validation"]
    assert last["n_rows"] == 200
    margins = result.model.margins(valid)
    assert last["auprc"] == pytest.approx(fcl.average_precision(y[::3], margins), rel=1e-12)
    # and a part of the rows, which are read from the same file
    mine, theirs = (train(on_disk, driver=d, valid_fraction=0.3) for d in ("processes", "inline"))
    same_optimum(mine, theirs)
    ends = [found.model.history[-1]["validation"] for found in (mine, theirs)]
    assert ends[0]["n_rows"] == ends[1]["n_rows"]
    assert ends[0]["auprc"] == pytest.approx(ends[1]["auprc"], abs=0.02)


# -- stopping and going on -------------------------------------------------------------------------


def save_untried(folder: CheckpointFolder, scale: float) -> Any:
    """Train one pass, and put a point into its checkpoint that no pass has judged yet."""
    train(checkpoint=folder.path, max_passes=1)
    before, best = folder.load(), inline().model
    untried = {"untried_ids": best.ids, "untried_weights": scale * best.weights}
    changed = replace(
        before,
        state={**before.state, "untried_intercept": scale * best.intercept},
        arrays={**before.arrays, **untried},
    )
    with folder:
        folder.begin(before)
        folder.save(changed)
    return changed


@pytest.mark.parametrize("better", [True, False])
def test_a_checkpoint_knows_how_far_the_trainer_was(tmp_path: Path, better: bool) -> None:
    """The point that no pass has judged yet is tried first; a worse one makes way for the anchor."""
    folder = CheckpointFolder(tmp_path / "checkpoints")
    saved = save_untried(folder, 1.0 if better else 10.0)
    result = train(resume=folder.path, max_passes=None)
    check(result)
    first = result.model.history[len(saved.history)]["objective"]
    expected = inline().certificate.objective if better else saved.state["objective"]
    assert first == pytest.approx(expected, rel=1e-12)


def test_a_resumed_run_that_is_stopped_at_once_loses_nothing(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    saved = save_untried(folder, 1.0)
    number, read = folder.load().number, []

    def progress(event: Event) -> None:
        read.extend([event] if isinstance(event, Prepared) else [])

    again = {"resume": folder.path, "checkpoint": folder.path, "progress": progress}
    with pytest.raises(KeyboardInterrupt):
        train(**again, should_stop=lambda: bool(read))
    after = folder.load()
    assert after.number > number
    assert after.state == saved.state and len(after.arrays["cached"])
    assert after.arrays.keys() == saved.arrays.keys()
    for name, values in saved.arrays.items():
        assert np.array_equal(after.arrays[name], values)


@pytest.mark.parametrize("driver", ["inline", "processes"])
@pytest.mark.parametrize("polls", [20, 1 << 30])
def test_a_failure_to_save_does_not_discard_the_model(
    tmp_path: Path, driver: str, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a finished one, nor that of an interrupted run; nor does it end a run that goes on."""
    failing_save(monkeypatch, ValueError("cannot be read again"))
    options: dict[str, Any] = {"checkpoint": tmp_path / "c", "checkpoint_every": 1e-3}
    seen: list[Event] = []
    stop = After(polls)
    result = train(
        driver=driver,
        **options,
        progress=lambda event: seen.append(event) if isinstance(event, PassDone) else None,
        should_stop=lambda: bool(seen) and stop(),
    )
    assert result.checkpoint_failed
    assert result.converged or (result.reason == "interrupted" and polls == 20)


@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_failure_to_save_does_not_hide_the_error_of_the_run(
    tmp_path: Path, driver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def progress(event: Event) -> None:
        if isinstance(event, PassDone):
            raise ZeroDivisionError("of the caller")

    failing_save(monkeypatch, MemoryError("no room"))
    with pytest.raises(ZeroDivisionError, match="of the caller"):
        train(driver=driver, progress=progress, checkpoint=tmp_path / "checkpoints")
    assert "could not be saved: MemoryError('no room')" in caplog.text
    if driver == "processes":  # nor that of a child
        monkeypatch.setenv(faults.VARIABLE, "writer:0:columns-begin:1:raise")
        with pytest.raises(fcl.FclError, match="fault injected at 'columns-begin'"):
            train(checkpoint=tmp_path / "c")


def test_a_new_trainer_waits_for_no_column_that_is_there(
    on_disk: fcl.DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies as it takes the last columns of the first pass, and its successor begins at once."""
    stalls: list[int] = []
    stalled = OuterLoopState.stalled

    def spied(self: OuterLoopState) -> Decided:
        stalls.append(len(self.session.history))
        return stalled(self)

    monkeypatch.setattr(OuterLoopState, "stalled", spied)
    monkeypatch.setenv(faults.VARIABLE, "trainer:0:order-commit:2:kill")
    result = train(on_disk, writers=1)
    check(result)
    assert 1 not in stalls


@pytest.mark.fresh_interpreters
def test_stopped_before_there_is_anything(tmp_path: Path, on_disk: fcl.DataSet) -> None:
    for k in (0, 3):
        with pytest.raises(KeyboardInterrupt):
            train(on_disk, checkpoint=tmp_path / "c", should_stop=After(k))
        assert not (tmp_path / "c").exists()


@pytest.mark.slow
@pytest.mark.parametrize("second", ["inline", "processes"])
def test_a_checkpoint_keeps_the_size_of_the_sample(
    tmp_path: Path, on_disk: fcl.DataSet, monkeypatch: pytest.MonkeyPatch, second: str
) -> None:
    monkeypatch.setattr(plan, "ALL_ROWS", 100)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 128)
    folder = tmp_path / "checkpoints"
    train(on_disk, checkpoint=folder, max_passes=4)
    before = CheckpointFolder(folder).load().state["sample"]
    assert before["wanted"] > 128 and before["pending"]
    train(on_disk, driver=second, resume=folder, checkpoint=folder, max_passes=8)
    after = CheckpointFolder(folder).load().state["sample"]
    assert after["wanted"] >= before["wanted"] and after["draws"] > before["draws"]


def test_limits(on_disk: fcl.DataSet) -> None:
    """The limit of time ends no run before there is a certificate."""
    late = train(on_disk, max_time=1e-3)
    assert late.reason == "max-time" and late.passes == 1
    violation = inline().model.history[0]["max_violation"]
    assert late.certificate.max_violation >= violation  # with an allowance for rounding
    assert late.certificate.max_violation == pytest.approx(violation, rel=1e-9)
    few = train(on_disk, max_passes=2)
    assert few.reason == "max-passes" and few.passes == 3


# -- errors, and what is left ----------------------------------------------------------------------


def test_bad_letters(tmp_path: Path) -> None:
    """A child finds them, and the user gets the same message as with one process."""
    codes, y = letters()
    codes = codes.copy()
    codes[433, 5] = 99
    data = write(tmp_path / "bad", codes, y)
    with pytest.raises(fcl.InputError) as inline_says:
        train(data, driver="inline")
    with pytest.raises(fcl.InputError) as found:
        train(data, writers=2)
    assert str(found.value) == str(inline_says.value)
    assert type(found.value) is type(inline_says.value)
    assert "433" in str(found.value)


def test_data_that_change_while_they_are_read(tmp_path: Path, on_disk: fcl.DataSet) -> None:
    def progress(event: Event) -> None:
        if isinstance(event, Started):
            with (tmp_path / "data" / "X.npy").open("r+b") as file:
                file.seek(-1, os.SEEK_END)
                last = file.read()
                file.seek(-1, os.SEEK_END)
                file.write(b"\1" if last == b"\0" else b"\0")  # a letter, but another
            os.utime(tmp_path / "data" / "X.npy", (1, 1))

    with pytest.raises(fcl.InputError, match=r"X\.npy.*changed"):
        train(on_disk, progress=progress)


@pytest.mark.slow
def test_memory_that_others_take_meanwhile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, on_disk: fcl.DataSet
) -> None:
    """The run ends with its best model when the cache can grow no more, and can be resumed."""
    folder = tmp_path / "checkpoints"

    def progress(event: Event) -> None:
        if isinstance(event, PassDone) and event.number == 1:
            monkeypatch.setattr(shared, "available_memory", lambda: 1)
            monkeypatch.setattr(supervisor, "BACK_BYTES", 1 << 30)

    monkeypatch.setattr(supervisor, "BACK_BYTES", 0)
    monkeypatch.setattr(supervisor, "SAMPLE_EVERY", 0.0)
    result = train(on_disk, checkpoint=folder, progress=progress)
    assert result.reason == StopReason.MEMORY and not result.converged
    assert re.search(r"'cache': expected room for .*got: 1 byte", result.message)
    monkeypatch.undo()
    check(train(on_disk, resume=folder))


def test_nothing_is_left(tmp_path: Path, on_disk: fcl.DataSet) -> None:
    """The fixture of all tests finds processes and segments; this test checks descriptors."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    train(on_disk, max_passes=1, scratch=folder)
    gc.collect()
    before = _descriptors()
    train(on_disk, max_passes=1, scratch=folder, checkpoint=tmp_path / "c")
    with pytest.raises(KeyboardInterrupt):
        train(on_disk, should_stop=After(3), scratch=folder)
    gc.collect()
    assert not Counter(_descriptors()) - Counter(before)  # garbage of earlier tests may have gone
    assert not list(folder.iterdir())


def _descriptors() -> list[str]:
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("needs /proc")
    found = []
    for name in folder.iterdir():
        try:
            found.append(os.readlink(name))
        except FileNotFoundError:
            continue  # of this listing itself
    return sorted(found)
