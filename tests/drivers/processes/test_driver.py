"""The driver ``processes`` gives the results of the driver ``inline``, in all settings."""

from __future__ import annotations

import gc
import os
import random
import re
import time
import warnings
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judge import LOSSES, Problem, confirm, kmer_matrix
from rows import acceptors, pyrimidines

import fcl
from fcl.drivers import plan
from fcl.drivers.events import Event, PassDone, Prepared, Started
from fcl.drivers.processes import faults, shared, supervisor
from fcl.drivers.processes.logic.protocol import Decided
from fcl.drivers.processes.outer_loop import OuterLoopState
from fcl.drivers.result import StopReason
from fcl.model.checkpoint import CheckpointFolder
from tests.stops import After

STRENGTHS = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}
N, LENGTH, D, BLOCK_ROWS = 500, 14, 3, 64
TOL = 1e-7
#: The figures of a priced pass that must agree to the last bit.
PRICED = ("objective", "bound", "gap", "max_violation", "priced", "active")
#: Relative differences below this are ignored.
ROUNDING = 1e-12


@cache
def rows(loss: str = "logistic") -> tuple[np.ndarray, np.ndarray]:
    codes, labels = acceptors(LENGTH, N)
    return codes, pyrimidines(N) if loss == "squared" else labels


def in_memory(loss: str = "logistic") -> fcl.DataSet:
    codes, y = rows(loss)
    return fcl.open_data(codes, y=y)


@pytest.fixture
def on_disk(tmp_path: Path) -> fcl.DataSet:
    return write(tmp_path / "data", *rows())


def write(folder: Path, codes: np.ndarray, y: np.ndarray) -> fcl.DataSet:
    folder.mkdir()
    np.save(folder / "X.npy", codes)
    np.save(folder / "y.npy", y)
    return fcl.open_data(folder)


def train(data: fcl.DataSet | None = None, **options: Any) -> fcl.TrainResult:
    loss = options.get("loss", "logistic")
    defaults = {"C": STRENGTHS[loss], "tol": TOL, "block_rows": BLOCK_ROWS, "memory": "1GiB"}
    defaults |= {"driver": "processes"}
    if options.get("driver") != "inline":
        defaults["writers"] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        return fcl.train(data or in_memory(loss), fcl.Kmers(D), **(defaults | options))


@cache
def inline(loss: str = "logistic", intercept: bool = True) -> fcl.TrainResult:
    return train(loss=loss, intercept=intercept, driver="inline")


@cache
def problem(loss: str = "logistic", intercept: bool = True) -> Problem:
    codes, y = rows(loss)
    return Problem(kmer_matrix(codes, D), y, np.ones(N), loss, STRENGTHS[loss], intercept)


def check(result: fcl.TrainResult, loss: str = "logistic", intercept: bool = True) -> None:
    """Compare the optimum and the null model's bits with the inline driver; judge the certificate."""
    assert result.converged and result.reason == "tolerance", result.message
    assert {type(step) for step in result.seconds} == {str}
    model, claimed = result.model, result.certificate
    assert claimed.gap <= TOL and claimed.passes == len(model.history) == result.passes
    same_optimum(result, inline(loss, intercept))
    same_first_pass(result, inline(loss, intercept))
    judged = problem(loss, intercept)
    w = np.zeros(judged.phi.shape[1])
    w[model.ids] = model.weights
    confirm(judged, w, model.intercept, claimed)
    np.testing.assert_array_equal(model.support, judged.phi[:, model.ids].sum(axis=0))
    objectives = [h["objective"] for h in model.history]
    assert all(b <= a for a, b in pairwise(objectives))


def same_optimum(a: fcl.TrainResult, b: fcl.TrainResult) -> None:
    """Check that each bound is below the other's objective."""
    slack = ROUNDING * a.certificate.objective
    assert a.certificate.bound <= b.certificate.objective + slack
    assert b.certificate.bound <= a.certificate.objective + slack


def same_first_pass(a: fcl.TrainResult, b: fcl.TrainResult) -> None:
    first, other = a.model.history[0], b.model.history[0]
    assert [first[name] for name in PRICED] == [other[name] for name in PRICED]


# -- the same optimum ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no-intercept"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(loss: str, intercept: bool) -> None:
    check(train(loss=loss, intercept=intercept, writers=2), loss, intercept)


@pytest.mark.slow
@pytest.mark.parametrize("writers", [1, 4])
def test_writers(on_disk: fcl.DataSet, writers: int) -> None:
    """Each writer reads a part of the file; the parts of a pass depend on the number of writers."""
    check(train(on_disk, writers=writers))


@pytest.mark.slow
def test_cores_that_are_not_shared() -> None:
    check(train(share_cores=False, writers=2))


def test_weights_that_are_not_equal(tmp_path: Path) -> None:
    codes, y = rows()
    s = np.random.default_rng(1).uniform(0.0, 3.0, N)
    s[::7] = 0.0  # such rows are left out
    data = fcl.open_data(codes, y=y, weights=s)
    results = [train(data, driver=driver) for driver in ("processes", "inline")]
    same_optimum(*results)
    same_first_pass(*results)


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


@pytest.mark.slow
def test_shared_memory_in_files(tmp_path: Path) -> None:
    check(train(shared_files=tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer columns fit than are needed: they are evicted, and return."""
    monkeypatch.setattr(plan, "MAX_COLUMNS", 120)
    result = train(writers=2)
    assert sum(h["evicted"] for h in result.model.history) > 50
    assert max(h["cached"] for h in result.model.history) <= 120
    check(result)


@pytest.mark.slow
def test_sampled_rows(monkeypatch: pytest.MonkeyPatch, on_disk: fcl.DataSet) -> None:
    """The trainer begins with some of the rows; the optimum is that of all."""
    monkeypatch.setattr(plan, "ALL_ROWS", 100)
    monkeypatch.setattr(plan, "LEAST_SAMPLE", 128)
    check(train(on_disk, writers=2))


@pytest.mark.slow
def test_validation(on_disk: fcl.DataSet) -> None:
    codes, y = acceptors(LENGTH, 2 * N)
    codes, y = codes[1::5], y[1::5]
    valid = fcl.open_data(codes, y=y)
    result = train(valid=valid)
    check(result)
    last = result.model.history[-1]["validation"]
    assert last["n_rows"] == 200
    margins = result.model.margins(valid)
    assert last["auprc"] == pytest.approx(fcl.average_precision(y, margins), rel=1e-12)
    # and a part of the rows, which are read from the same file
    some = {"valid_fraction": 0.3, "tol": 1e-4}
    results = [train(on_disk, driver=driver, **some) for driver in ("processes", "inline")]
    same_optimum(*results)
    same_first_pass(*results)
    mine, theirs = (r.model.history[-1]["validation"] for r in results)
    assert mine["n_rows"] == theirs["n_rows"]
    assert mine["auprc"] == pytest.approx(theirs["auprc"], abs=0.02)


# -- stopping and going on -------------------------------------------------------------------------


def go_on(folder: Path, **options: Any) -> fcl.TrainResult:
    """Resume to the end, and check that no pass is worse than the checkpoint."""
    checkpoint = CheckpointFolder(folder).load()
    result = train(resume=folder, checkpoint=folder, **options)
    history = result.model.history
    before = len(checkpoint.history)
    assert history[:before] == checkpoint.history
    worst = float(checkpoint.state["objective"]) * (1.0 + ROUNDING)
    least = float(checkpoint.state["bound"])
    assert all(h["objective"] <= worst and h["bound"] >= least for h in history[before:])
    same_optimum(result, inline())
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_stopped_at_a_random_moment(tmp_path: Path, on_disk: fcl.DataSet, seed: int) -> None:
    rng = random.Random(seed)
    folder = tmp_path / "checkpoints"
    begun: list[float] = []
    delay = rng.uniform(0.0, 0.05)

    def progress(event: Event) -> None:
        if isinstance(event, Prepared):
            begun.append(time.monotonic())

    def should_stop() -> bool:
        return bool(begun) and time.monotonic() >= begun[0] + delay

    try:
        result = train(
            on_disk, checkpoint=folder, progress=progress, should_stop=should_stop, tol=1e-12
        )
    except KeyboardInterrupt:
        result = None
    checkpoint = CheckpointFolder(folder).load()
    if result is not None:
        # a run may end before it is stopped where children start at once
        assert result.reason == ("tolerance" if result.converged else "interrupted")
        assert checkpoint.history == result.model.history
        assert checkpoint.state["objective"] == result.certificate.objective
    go_on(folder, driver=rng.choice(("inline", "processes")))


@pytest.mark.slow
@pytest.mark.parametrize("better", [True, False])
def test_a_checkpoint_knows_how_far_the_trainer_was(
    tmp_path: Path, on_disk: fcl.DataSet, better: bool
) -> None:
    """The point that no pass has judged yet is tried first; a worse one makes way for the anchor."""
    folder = CheckpointFolder(tmp_path / "checkpoints")
    train(on_disk, checkpoint=folder.path, max_passes=1)
    checkpoint = folder.load()
    model = inline().model
    scale = 1.0 if better else 10.0
    untried = {"untried_ids": model.ids, "untried_weights": scale * model.weights}
    changed = replace(
        checkpoint,
        state={**checkpoint.state, "untried_intercept": scale * model.intercept},
        arrays={**checkpoint.arrays, **untried},
    )
    with folder:
        folder.begin(checkpoint)
        folder.save(changed)
    result = go_on(folder.path, data=on_disk, max_passes=None)
    first = result.model.history[len(checkpoint.history)]["objective"]
    expected = inline().certificate.objective if better else checkpoint.state["objective"]
    assert first == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_a_resumed_run_that_is_stopped_at_once_loses_nothing(
    tmp_path: Path, on_disk: fcl.DataSet
) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints")
    train(on_disk, checkpoint=folder.path, max_passes=1)
    before = folder.load()
    best = inline().model
    untried = {"untried_ids": best.ids, "untried_weights": best.weights}
    saved = replace(
        before,
        state={**before.state, "untried_intercept": best.intercept},
        arrays={**before.arrays, **untried},
    )
    with folder:
        folder.begin(before)
        folder.save(saved)
    read: list[Event] = []

    def progress(event: Event) -> None:
        if isinstance(event, Prepared):
            read.append(event)

    with pytest.raises(KeyboardInterrupt):
        train(
            on_disk,
            resume=folder.path,
            checkpoint=folder.path,
            progress=progress,
            should_stop=lambda: bool(read),
        )
    after = folder.load()
    assert after.number > before.number + 1
    assert after.state == saved.state and len(after.arrays["cached"])
    assert after.arrays.keys() == saved.arrays.keys()
    for name, values in saved.arrays.items():
        assert np.array_equal(after.arrays[name], values)


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["inline", "processes"])
def test_a_failure_to_save_does_not_hide_the_error_of_the_run(
    tmp_path: Path, driver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def save(self: CheckpointFolder, checkpoint: object) -> Path:
        raise MemoryError("no room")

    def progress(event: Event) -> None:
        if isinstance(event, PassDone):
            raise ZeroDivisionError("of the caller")

    monkeypatch.setattr(CheckpointFolder, "save", save)
    with pytest.raises(ZeroDivisionError, match="of the caller"):
        train(in_memory(), driver=driver, progress=progress, checkpoint=tmp_path / "checkpoints")
    assert "could not be saved: MemoryError('no room')" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["inline", "processes"])
@pytest.mark.parametrize("polls", [20, 1 << 30])
def test_a_failure_to_save_does_not_discard_the_model(
    tmp_path: Path, driver: str, polls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a finished one, nor that of an interrupted run; nor does it end a run that goes on."""

    def save(self: CheckpointFolder, checkpoint: object) -> Path:
        raise ValueError("cannot be read again")

    monkeypatch.setattr(CheckpointFolder, "save", save)
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


@pytest.mark.slow
def test_a_failure_to_save_does_not_hide_the_error_of_a_child(
    tmp_path: Path, on_disk: fcl.DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: CheckpointFolder, checkpoint: object) -> Path:
        raise MemoryError("no room")

    monkeypatch.setattr(CheckpointFolder, "save", save)
    monkeypatch.setenv(faults.VARIABLE, "writer:0:columns-begin:1:raise")
    with pytest.raises(fcl.FclError, match="fault injected at 'columns-begin'"):
        train(on_disk, checkpoint=tmp_path / "c")


@pytest.mark.slow
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
@pytest.mark.parametrize("first", ["inline", "processes"])
def test_the_other_driver_resumes(tmp_path: Path, on_disk: fcl.DataSet, first: str) -> None:
    folder = tmp_path / "checkpoints"
    result = train(on_disk, driver=first, checkpoint=folder, max_passes=3)
    assert result.reason == "max-passes" and result.passes == 4
    second = "processes" if first == "inline" else "inline"
    saved = CheckpointFolder(folder).load().history
    assert saved == result.model.history[: len(saved)] and len(saved) >= 3
    with pytest.raises(KeyboardInterrupt):  # not a loss: the checkpoint is there
        train(on_disk, driver=second, resume=folder, checkpoint=folder, should_stop=After(0))
    assert CheckpointFolder(folder).load().history == saved
    final = go_on(folder, data=on_disk, driver=second, max_passes=None)
    assert final.converged and final.passes > 4


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


@pytest.mark.slow
def test_limits(on_disk: fcl.DataSet) -> None:
    """The limit of time ends no run before there is a certificate."""
    late = train(on_disk, max_time=1e-3)
    assert late.reason == "max-time" and late.passes == 1
    same_first_pass(late, inline())
    violation = inline().model.history[0]["max_violation"]
    assert late.certificate.max_violation >= violation  # with an allowance for rounding
    assert late.certificate.max_violation == pytest.approx(violation, rel=1e-9)
    few = train(on_disk, max_passes=2)
    assert few.reason == "max-passes" and few.passes == 3


# -- errors, and what is left ----------------------------------------------------------------------


@pytest.mark.parametrize("memory", [False, True], ids=["file", "memory"])
def test_bad_letters(tmp_path: Path, memory: bool) -> None:
    """A child finds them, and the user gets the same message as with one process."""
    codes, y = rows()
    codes = codes.copy()
    codes[433, 5] = 99
    data = fcl.open_data(codes, y=y) if memory else write(tmp_path / "bad", codes, y)
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


@pytest.mark.slow
def test_an_error_of_the_caller(on_disk: fcl.DataSet) -> None:
    """An exception in the caller's function is raised unchanged."""

    def progress(event: Event) -> None:
        if isinstance(event, PassDone) and event.number == 1:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        train(on_disk, progress=progress)


@pytest.mark.slow
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
    assert _descriptors() == before
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
