"""Time limits count from the first pass, without compilation; the tests move the clocks themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fcl
from fcl.cli.online import command
from fcl.clock import Clock, parts_of
from fcl.drivers import executor
from fcl.drivers.online import train as online_train
from fcl.estimators import FCLClassifier
from fcl.kernels.compilation import Compilation
from fcl.path.train import train_path
from fcl.run.events import BlockVisited, Event, PassDone, Prepared, Started
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise

LIMIT = 10.0


class Time:
    """A time in seconds that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The time of all clocks that are made from now on."""
    now = Time()
    monkeypatch.setattr(Clock.__init__, "__defaults__", (now,))
    return now


def test_compilation_does_not_count(time: Time) -> None:
    clock = Clock()
    compilation = Compilation(lambda: None, clock)
    time.seconds += 100.0
    assert clock.seconds == 0.0
    compilation.begin()  # before the start
    time.seconds += 100.0
    clock.start()
    compilation.begin()  # of a kernel that the first one calls
    time.seconds += 100.0
    compilation.end()
    assert clock.seconds == 0.0
    compilation.end()
    time.seconds += 3.0
    clock.start(50.0)  # it was started already
    assert clock.seconds == 3.0
    compilation.begin()
    time.seconds += 100.0
    compilation.end()
    time.seconds += 4.0
    assert clock.seconds == 7.0


def test_a_clock_may_start_with_seconds_that_count_already(time: Time) -> None:
    clock = Clock()
    clock.start(50.0)
    time.seconds += 2.0
    assert clock.seconds == 52.0


def rows() -> fcl.DataSet:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 6))
    return fcl.open_data(X, y=X[:, 0] - X[:, 1] + rng.standard_normal(300))


def trained(progress: Callable[[Event], None], **options: Any) -> str:
    return fcl.train(rows(), "columns", C=1.0, loss="squared", progress=progress, **options).reason


def path(progress: Callable[[Event], None], **options: Any) -> str:
    found = train_path(rows(), "columns", loss="squared", points=3, progress=progress, **options)
    return found.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fcl.ConvergenceWarning")
@pytest.mark.parametrize(
    ("learn", "options", "ended"),
    [
        (trained, {"driver": "inline"}, "tolerance"),
        (trained, {"driver": "processes"}, "tolerance"),
        (path, {}, "done"),
    ],
    ids=["inline", "processes", "path"],
)
def test_a_limit_counts_from_the_first_pass(
    time: Time, learn: Any, options: dict[str, Any], ended: str
) -> None:
    """What comes before takes longer than the limit; the run ends once the passes do."""
    late = False

    def progress(event: Event) -> None:
        time.seconds += 100.0 if isinstance(event, Prepared) else 0.0
        time.seconds += 100.0 if late and isinstance(event, PassDone) else 0.0

    options = options | {"max_time": LIMIT, "tol": 1e-9, "progress": progress}
    assert learn(**options) == ended
    late = True
    assert learn(**options) == "max-time"


@pytest.mark.parametrize("late", [False, True])
def test_stages_count_from_the_first_block(time: Time, late: bool) -> None:
    def report(event: Event) -> None:
        moves = isinstance(event, BlockVisited if late else Started)
        time.seconds += 100.0 if moves else 0.0

    running = StagewiseRunOptions(progress=report, max_time=LIMIT, certify=False)
    found = train_stagewise(rows(), "columns", running=running, numbers=True)
    assert found.reason == ("max-time" if late else "done")


def test_online_learning_counts_from_its_first_question(
    time: Time, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = []

    def learn(*_: Any, should_stop: Callable[[], bool], **__: Any) -> None:
        for _ in range(2):
            time.seconds += 100.0
            answers.append(should_stop())
        raise fcl.InputError("enough")

    monkeypatch.setattr(online_train, "run_online", learn)
    np.save(tmp_path / "X.npy", np.eye(4))
    np.save(tmp_path / "y.npy", np.arange(4) % 2)
    arguments = [tmp_path, "--features", "columns", "--C", 1, "--out", tmp_path / "m.fcl"]
    found = CliRunner().invoke(command, [*map(str, arguments), "--max-time", "10s"])
    assert "enough" in f"{found.output}{found.exception}"
    assert answers == [False, True]


def test_the_problems_of_an_estimator_share_what_counts(
    time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    train = executor.run_training

    def timed(data: fcl.DataSet, **options: Any) -> Any:
        limits.append(options["max_time"])
        time.seconds += 100.0  # before the first pass
        return train(data=data, **{**options, "progress": progress})

    def progress(event: Event) -> None:
        time.seconds += 3.0 if isinstance(event, PassDone) and event.number == 0 else 0.0

    monkeypatch.setattr(executor, "run_training", timed)
    X = np.random.default_rng(0).standard_normal((90, 3))
    FCLClassifier(C=1.0, max_time=27.0).fit(X, np.arange(90) % 3)
    assert limits == [9.0, 12.0, 21.0]


@pytest.mark.parametrize(
    ("wall", "other"), [(10.0, 4.0), (6.0, 0.0), (3.0, 0.0)], ids=["rest", "none", "side by side"]
)
def test_the_parts_of_a_run_add_up_to_its_wall_time(wall: float, other: float) -> None:
    parts = parts_of(wall, {"read": 1.0, "pricing": 5.0})
    assert sum(parts.values()) == pytest.approx(wall) and parts["other"] == other
    assert parts["pricing"] == pytest.approx(5.0 * parts["read"])
    assert parts_of(wall, {}) == {"other": wall}
