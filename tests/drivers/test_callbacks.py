"""Callbacks that end a run: by False, by StopTraining, or by an exception, which keeps the model."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import acceptors
from waves import Problem, Waves

import fcl
from fcl.files.folder import CheckpointFolder
from fcl.run import (
    BlockVisited,
    Event,
    Measured,
    OnlineProgress,
    PassDone,
    PointDone,
    RunResult,
    Started,
    Stopped,
    StopReason,
)
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise
from tests import by_name


class Fault(Exception):
    """What a user's callback raises."""


@pytest.fixture(scope="module")
def data() -> fcl.DataSet:
    codes, y = acceptors(12, 420)
    return fcl.open_data(codes, y=y)


Door = Callable[[fcl.DataSet, Path, Any], Any]
TRAIN: dict[str, Any] = {"C": 0.5, "tol": 1e-9, "memory": "1GiB", "warn": False}


def train(data: fcl.DataSet, tmp_path: Path, progress: Any, **more: Any) -> Any:
    given = TRAIN | {"checkpoint": tmp_path / "state"} | more
    return by_name.train(data, "kmers:d=2", progress=progress, **given)


def processes(data: fcl.DataSet, tmp_path: Path, progress: Any) -> Any:
    return train(data, tmp_path, progress, driver="processes", writers=1)


def path(data: fcl.DataSet, tmp_path: Path, progress: Any) -> Any:
    given: dict[str, Any] = {"points": 4, "memory": "1GiB", "warn": False}
    folder = tmp_path / "path"
    return by_name.train_path(data, "kmers:d=2", folder=folder, progress=progress, **given)


def online(data: fcl.DataSet, tmp_path: Path, progress: Any) -> Any:
    given: dict[str, Any] = {"alpha": 0.01, "passes": 9, "rate": 0.1, "save": tmp_path / "o.fcl"}
    return fcl.train_online(data, "kmers:d=2", progress=progress, **given)


def stagewise(data: fcl.DataSet, tmp_path: Path, progress: Any) -> Any:
    problem = Problem()
    folder = StateFolder(tmp_path / "state")
    running = StagewiseRunOptions(progress=progress, checkpoint=folder, cores=1)
    rows = fcl.open_data(problem.x, y=problem.y)
    return train_stagewise(rows, Waves(), Settings(block=8), running=running)


#: door -> the event after which its callback ends it, and how many of them a whole run has at least
DOORS: dict[str, tuple[Door, type, int]] = {
    "inline": (train, PassDone, 4),
    "processes": (processes, PassDone, 4),
    "path": (path, PointDone, 4),
    "online": (online, OnlineProgress, 5),
    "stagewise": (stagewise, BlockVisited, 8),
}


class Ending:
    """A callback that ends the run at the second event of a kind, and counts its calls."""

    def __init__(self, kind: type, how: str) -> None:
        self.kind, self.how = kind, how
        self.seen = self.later = 0

    def __call__(self, event: Any) -> Any:
        if self.seen >= 2:
            self.later += 1
        if not isinstance(event, self.kind):
            return None
        self.seen += 1
        if self.seen != 2:
            return None
        if self.how == "error":
            raise Fault("in a callback")
        if self.how == "stop":
            raise fcl.StopTraining
        return {"false": False, "numpy": np.False_}[self.how]


def kept_there(name: str, tmp_path: Path) -> bool:
    """Whether the checkpoint or its like is on disk."""
    if name == "online":
        return (tmp_path / "o.fcl").is_file()
    if name == "path":
        return (tmp_path / "path" / "path.json").is_file()
    if name == "stagewise":
        return bool(StateFolder(tmp_path / "state").load().state.history)
    return bool(CheckpointFolder(tmp_path / "state").numbers())


@pytest.mark.parametrize(
    ("name", "how"),
    [*itertools.product(DOORS, ["false", "error"]), ("inline", "numpy"), ("inline", "stop")],
)
def test_a_callback_ends_the_run(data: fcl.DataSet, tmp_path: Path, name: str, how: str) -> None:
    door, kind, whole = DOORS[name]
    callback = Ending(kind, how)
    if how == "error":
        with pytest.raises(Fault, match="in a callback") as caught:
            door(data, tmp_path, callback)
        result = caught.value.result  # type: ignore[attr-defined]
        assert callback.later == 0, "a callback that has failed is called no more"
    else:
        result = door(data, tmp_path, callback)
    assert callback.seen in (2, 3) and whole > 3
    assert result.reason == "callback" and StopReason.CALLBACK.sentence in result.message
    model = result.chosen.model if name == "path" else result.model
    x = Problem().x if name == "stagewise" else acceptors(12, 420)[0]
    assert np.isfinite(model.margins(fcl.open_data(x, y=None))).all()
    if name == "path":
        assert len(result.points) == 2
    if name in ("inline", "processes"):
        assert not result.converged and result.model.n_active > 0
    if name != "online" or how == "error":
        assert kept_there(name, tmp_path)


@pytest.mark.parametrize("name", [*DOORS, "certify"])
def test_every_run_starts_measures_and_stops(data: fcl.DataSet, tmp_path: Path, name: str) -> None:
    """The same events in the same order, and one result of the same shape, for all learners."""
    events: list[Event] = []
    if name == "certify":
        fcl.certify(train(data, tmp_path, None).model, data, progress=events.append)
        result = None
    else:
        result = DOORS[name][0](data, tmp_path, events.append)
    begin, *between, end = events
    assert isinstance(begin, Started) and isinstance(end, Stopped)
    assert not any(isinstance(event, Started | Stopped) for event in between)
    learner = "train" if name in ("inline", "processes") else name
    assert begin.learner == learner and begin.n_rows > 0 and begin.n_features > 0
    units = {"certify": PassDone}.get(name) or DOORS[name][1]
    done = [event for event in between if isinstance(event, units)]
    assert done and all(isinstance(event, Measured) and event.numbers for event in done)
    assert [event.step for event in done] == sorted(event.step for event in done)
    if result is not None:
        assert isinstance(result, RunResult) and end.reason is result.reason
        assert end.message == result.message and result.stopped_fact() in result.facts()
        assert len(result.history) and end.peak_memory == result.peak_memory > 0
        assert result.seconds and all(spent >= 0.0 for spent in result.seconds.values())
    for event in events:
        json.dumps(event.to_dict(), allow_nan=False)


def test_the_model_is_that_of_the_pass(data: fcl.DataSet, tmp_path: Path) -> None:
    """A run of as many passes gives the same model; the checkpoint continues with the same bits."""
    with pytest.raises(Fault) as caught:
        train(data, tmp_path, Ending(PassDone, "error"))
    result = caught.value.result  # type: ignore[attr-defined]
    alike = train(data, tmp_path / "other", None, max_passes=result.passes - 1, checkpoint=None)
    np.testing.assert_array_equal(result.model.weights, alike.model.weights)
    whole = train(data, tmp_path, None, checkpoint=None)
    rest = train(data, tmp_path, None, resume=tmp_path / "state")
    np.testing.assert_array_equal(rest.model.weights, whole.model.weights)
    assert rest.passes == whole.passes


def test_should_stop_and_should_checkpoint_may_fail_too(data: fcl.DataSet, tmp_path: Path) -> None:
    for name in ("should_stop", "should_checkpoint"):
        passes: list[PassDone] = []

        def poll(passes: list[PassDone] = passes) -> bool:
            if len(passes) > 1:
                raise Fault
            return False

        def progress(event: Any, passes: list[PassDone] = passes) -> None:
            if isinstance(event, PassDone):
                passes.append(event)

        with pytest.raises(Fault) as caught:
            train(data, tmp_path, progress, **{name: poll})
        assert caught.value.result.model.n_active > 0  # type: ignore[attr-defined]


def test_before_the_first_pass(data: fcl.DataSet, tmp_path: Path) -> None:
    """There is nothing to keep: an exception comes at once; a request is honoured after the pass."""

    def fail(event: Event) -> None:
        raise Fault

    with pytest.raises(Fault):
        train(data, tmp_path, fail)
    assert not (tmp_path / "state").exists()
    result = train(data, tmp_path, lambda event: not isinstance(event, Started))
    assert result.passes >= 1 and not result.converged


@pytest.mark.parametrize("how", ["false", "error"])
def test_within_the_folds_of_a_path(data: fcl.DataSet, tmp_path: Path, how: str) -> None:
    """The only model over all rows is the empty one; the folder keeps the points."""
    callback, folder = Ending(PointDone, how), tmp_path / "path"
    given: dict[str, Any] = {"points": 3, "cv": 2, "memory": "1GiB", "warn": False}
    if how == "error":
        with pytest.raises(Fault) as caught:
            by_name.train_path(data, "kmers:d=2", folder=folder, progress=callback, **given)
        result = caught.value.result  # type: ignore[attr-defined]
    else:
        result = by_name.train_path(data, "kmers:d=2", folder=folder, progress=callback, **given)
    assert result.reason == "callback" and len(result.points) == 1 and not result.scores.known
    assert result.model.n_active == 0 and result.oof is None
    assert list(folder.rglob("point-*.fcl"))
    assert by_name.train_path(data, "kmers:d=2", folder=folder, **given).oof is not None


def test_a_stop_by_the_callback_needs_no_warning(data: fcl.DataSet) -> None:
    given = {name: TRAIN[name] for name in ("C", "memory")} | {"tol": 1e-12}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = fcl.train(
            data, "kmers:d=2", progress=lambda event: not isinstance(event, PassDone), **given
        )
    assert result.reason is StopReason.CALLBACK and not result.converged
