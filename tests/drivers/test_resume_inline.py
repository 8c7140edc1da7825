"""A run that was stopped and resumed equals one that was not, bit for bit."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import acceptors
from scipy import sparse

import fcl
from fcl.cache import ColumnCache
from fcl.drivers.train import TrainResult
from fcl.files.folder import CheckpointFolder
from fcl.run.events import Event, PassDone
from fcl.solve.solver import Solver
from tests.drivers.conftest import INEXACT, bits, fit
from tests.stops import After
from tests.windows import examples


def rows(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    return acceptors(14, n)


def train(data: fcl.DataSet | None = None, **options: Any) -> TrainResult:
    if data is None:
        codes, y = rows()
        data = fcl.open_data(codes, y=y)
    return fit(data, "kmers:d=3", **({"C": 1.0, "tol": 1e-7} | options))


@cache
def whole_bits() -> tuple[Any, ...]:
    """Of the run without a stop."""
    return bits(train())


def stopped(folder: Path, k: int, **options: Any) -> TrainResult | None:
    """A run that is stopped at its k-th poll; None if it had no result by then."""
    try:
        return train(should_stop=After(k), checkpoint=folder, **options)
    except KeyboardInterrupt:
        return None


@pytest.mark.slow
def test_single_steps_over_sparse_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While more features violate than may enter, a pass takes one step; also in a resumed job."""
    rng = np.random.default_rng(0)
    X = sparse.random(500, 3000, 0.03, format="csr", random_state=0)
    y = np.where(X @ rng.normal(size=3000) + 0.3 * rng.normal(size=500) > 0.0, 1.0, -1.0)
    data = fcl.open_data(X, y=y)
    steps: list[int] = []
    take = Solver.train

    def counted(solver: Solver) -> Any:
        solved = take(solver)
        steps.append(solved.steps)
        return solved

    monkeypatch.setattr(Solver, "train", counted)
    options: dict[str, Any] = {"C": 30.0, "tol": 1e-4, "driver": "inline"}
    whole = fcl.train(data, "columns", **options)
    assert steps[0] == 1 < max(steps[1:]) and whole.history[1]["cached"] == 512
    for k in (8, 12, 20):
        folder = tmp_path / str(k)
        with pytest.warns(fcl.ConvergenceWarning, match="interrupted"):
            fcl.train(data, "columns", should_stop=After(k), checkpoint=folder, **options)
        assert bits(fcl.train(data, "columns", resume=folder, **options)) == bits(whole)


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), max_size=6), st.integers(0, 40))
@examples(20)
def test_stopped_again_and_again(stops: list[int], wish: int) -> None:
    """Several stops of one job, some of them before it made progress; checkpoints at any time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "c"
        elapsed = 0.0
        for k in stops:
            found = folder.exists()
            wishes = iter([*[False] * wish, True])
            with suppress(KeyboardInterrupt):
                train(
                    should_stop=After(k),
                    should_checkpoint=lambda wishes=wishes: next(wishes, False),
                    checkpoint=folder,
                    resume=folder if found else None,
                )
            if folder.exists():
                now = CheckpointFolder(folder).load().elapsed
                assert now >= elapsed
                elapsed = now
            assert folder.exists() >= found
        again = train(resume=folder if folder.exists() else None, checkpoint=folder)
        assert bits(again) == whole_bits()


def interrupt_at(line: int, run: Callable[[], Any]) -> int:
    """Run with a KeyboardInterrupt at the n-th line of driver, solver or cache; returns the lines left.

    As a signal handler of Python's own would raise it: anywhere.
    """
    left = line
    places = ("fcl/drivers/inline.py", "fcl/drivers/session.py", "fcl/solve/", "fcl/cache/")

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal left
        if not any(place in frame.f_code.co_filename for place in places):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return left


@pytest.mark.slow
def test_interrupted_at_any_line(tmp_path: Path) -> None:
    many = 1 << 30
    n_lines = many - interrupt_at(many, train)
    assert n_lines > 5000
    resumed = 0
    for i in range(1, 50, 3):
        folder = tmp_path / str(i)
        interrupt_at(n_lines * i // 50, lambda folder=folder: train(checkpoint=folder))
        if folder.exists():
            assert bits(train(resume=folder)) == whole_bits()
            resumed += 1
    assert resumed > 13


def test_a_checkpoint_requested_before_there_is_anything_to_save(tmp_path: Path) -> None:
    """The request is kept until there is something to save."""
    wishes = iter([True])
    found: list[int] = []

    def progress(event: Event) -> None:
        if isinstance(event, PassDone):
            found.extend(CheckpointFolder(tmp_path / "c").numbers())

    train(
        checkpoint=tmp_path / "c",
        should_checkpoint=lambda: next(wishes, False),
        progress=progress,
        max_passes=1,
    )
    assert found == [1, 1]


# -- limits ------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"max_passes": 1}, {"max_passes": 4}, {"max_time": 1e-9}])
def test_a_limit_reached_and_then_raised(tmp_path: Path, limit: dict[str, Any]) -> None:
    first = train(checkpoint=tmp_path / "c", **limit)
    assert first.reason == f"max-{next(iter(limit))[4:]}"
    same = train(checkpoint=tmp_path / "c", resume=tmp_path / "c", **limit)
    if "max_passes" in limit:  # which are those of the job
        assert bits(same) == bits(first)
    else:  # which is that of each call: a pass more is made at least
        assert first.passes <= same.passes <= first.passes + 1
    again = train(resume=tmp_path / "c", checkpoint=tmp_path / "c", max_passes=100, max_time=600.0)
    assert bits(again) == whole_bits()


def test_a_smaller_tolerance_after_the_first_was_reached(tmp_path: Path) -> None:
    first = train(tol=1e-2, checkpoint=tmp_path / "c")
    assert first.converged
    again = [train(tol=1e-7, resume=tmp_path / "c") for _ in range(2)]
    assert again[0].converged and again[0].certificate.gap <= 1e-7 < first.certificate.gap
    assert bits(again[0]) == bits(again[1])
    # the passes so far are those of before; the last one is made again, and comes out the same
    assert again[0].passes > first.passes
    before, after = first.model.history, again[0].model.history[: first.passes]
    for a, b in zip(before, after, strict=True):
        assert a.keys() == b.keys() - {"resumed"}
        assert {k: a[k] for k in a.keys() - INEXACT} == {k: b[k] for k in b.keys() - INEXACT}
    runs = [entry.get("resumed", False) for entry in again[0].model.history]
    assert sum(runs) == 1 and again[0].model.history.restarts().tolist() == [runs.index(True)]
    assert again[0].certificate.objective == pytest.approx(train().certificate.objective, rel=2e-7)
    # one that is reached already: the same model
    assert bits(train(tol=1e-1, resume=tmp_path / "c"))[:4] == bits(first)[:4]


def test_stopped_at_once_after_resuming(tmp_path: Path) -> None:
    """The model is that of the checkpoint; its violation is unknown until it is priced."""
    stopped(tmp_path / "c", 20)
    checkpoint = CheckpointFolder(tmp_path / "c").load()
    polls = After()
    result = train(resume=checkpoint, should_stop=lambda: polls() or polls.calls > 5)
    assert result.reason == "interrupted" and result.passes == len(checkpoint.history) > 0
    assert (result.model.ids == checkpoint.arrays["ids"]).all()
    assert (result.model.weights == checkpoint.arrays["weights"]).all()
    assert result.certificate.bound == checkpoint.state["bound"]
    assert result.certificate.max_violation == np.inf
    with pytest.raises(KeyboardInterrupt):  # no rows yet to count support on
        train(resume=checkpoint, should_stop=lambda: True)


# -- what may change ---------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with the checkpoint of a job that was stopped."""
    stopped(tmp_path / "c", 15)
    return tmp_path / "c"


def test_what_may_change(saved: Path) -> None:
    again = train(
        resume=saved,
        checkpoint=saved.parent / "elsewhere",
        memory="2GiB",
        checkpoint_every=0.001,
        scratch=saved.parent,
        command={"data": "there"},
    )
    # 2 GiB hold all columns, as 1 GiB does; every pass reports the capacity, which differs
    assert bits(again)[:4] == whole_bits()[:4]
    kept = CheckpointFolder(saved.parent / "elsewhere").load()
    assert kept.options["command"] == {"data": "there"} and kept.number > 1
    assert CheckpointFolder(saved).numbers() == [1]
    assert bits(train(resume=kept, memory="2GiB")) == bits(again)


def test_data_that_moved(tmp_path: Path) -> None:
    codes, y = rows()
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    np.save(here / "X.npy", codes)
    np.save(here / "y.npy", y)
    whole = bits(train(data=fcl.open_data(here)))
    stopped(tmp_path / "c", 15, data=fcl.open_data(here))
    here.rename(there)
    assert bits(train(data=fcl.open_data(there), resume=tmp_path / "c")) == whole
    # in another container, too: it is what is read that counts
    assert bits(train(resume=tmp_path / "c"))[:4] == whole[:4]


# -- a small cache -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("features", ["kmers:d=3", "columns"])
def test_a_cache_with_evictions(
    features: str, tmp_path: Path, few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    few(12)
    monkeypatch.setattr(ColumnCache, "grow", lambda self, slots: False)
    codes, y = rows()
    if features == "columns":
        codes = np.random.default_rng(5).normal(size=(300, 30))
        y = np.sign(codes @ np.random.default_rng(6).normal(size=30))
    data = fcl.open_data(codes, y=y)
    options: dict[str, Any] = {"C": 0.5, "tol": 1e-3, "max_passes": 24}
    whole = fit(data, features, **options)
    assert len(whole.model.ids) > 12 and sum(entry["evicted"] for entry in whole.history) > 20
    for passes in (1, 2, whole.passes // 2):
        folder = tmp_path / str(passes)
        fit(data, features, **options | {"max_passes": passes}, checkpoint=folder)
        assert bits(fit(data, features, **options, resume=folder)) == bits(whole), f"pass {passes}"


def test_less_room_than_before(
    tmp_path: Path, few: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns that no longer fit are frozen; the path is different, the optimum is the same."""
    best = train(tol=1e-5).certificate.objective
    first = train(max_passes=3, checkpoint=tmp_path)
    few(12)
    monkeypatch.setattr(ColumnCache, "grow", lambda self, slots: False)
    result = train(resume=tmp_path, tol=1e-3, max_passes=300)
    after = result.history[first.passes :]
    assert max(entry["cached"] for entry in after) < len(result.model.ids)
    assert result.converged and result.certificate.objective == pytest.approx(best, rel=1e-3)
