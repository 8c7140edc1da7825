"""Whole jobs on a cluster give the bits of the same jobs in this process, one after the other."""

from __future__ import annotations

import itertools
import os
import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest
from click.testing import CliRunner
from dask_cluster import own_cluster, scale
from rows import acceptors

import fcl
from fcl.cli.train import command
from fcl.drivers.cluster import client as connections
from fcl.drivers.cluster import jobs
from fcl.errors import BudgetError, ClusterLost, InputError
from fcl.run.events import Jobs, PointDone
from tests import by_name

from .test_cluster_failures import arm

#: A path of a few seconds.
PATH: dict[str, Any] = {
    "points": 4,
    "C_max": 0.5,
    "tol": 1e-3,
    "block_rows": 128,
    "memory": "1GiB",
    "warn": False,
}
FIT: dict[str, Any] = {"features": "kmers:d=2", "tol": 1e-3, "memory": "1GiB"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 12 letters with labels, groups, weights and three classes."""
    place = tmp_path_factory.mktemp("jobs") / "rows"
    place.mkdir()
    codes, y = acceptors(12, 420)
    arrays = {
        "X": codes,
        "y": y,
        "groups": np.arange(420) % 7,
        "weights": np.random.default_rng(0).choice([0.0, 0.5, 1.0], 420),
        "classes": np.minimum(codes[:, 3], 2),
        "numbers": np.random.default_rng(1).normal(size=(420, 5)) + np.arange(5) * y[:, None],
        "offset": np.random.default_rng(2).normal(size=420),
        "ages": np.random.default_rng(3).normal(size=420),
    }
    for name, values in arrays.items():
        np.save(place / f"{name}.npy", values)
    return place


def of_point(point: Any) -> Any:
    model = point.model
    return (
        model.ids.tobytes(),
        model.weights.tobytes(),
        model.support.tobytes(),
        np.asarray(model.intercept).tobytes(),
        [(entry["objective"], entry["bound"], entry["gap"]) for entry in model.history],
        model.certificate,
        point.reason,
        point.passes,
        repr(point.score),
        repr(point.se),
    )


def of_path(path: fcl.PathResult) -> Any:
    """All numbers of a path but times."""
    return (
        [of_point(point) for point in path.points],
        [[of_point(point) for point in points] for points in path.fold_points],
        path.scores.folds.tobytes(),
        path.chosen.number,
        path.reason,
        None if path.oof is None else path.oof.tobytes(),
        None if path.refit is None else of_point(path.refit),
        None if path.outer is None else (path.outer.rows(), path.outer.mean, path.outer.se),
    )


def train_path(rows: Path, **options: Any) -> fcl.PathResult:
    data = fcl.open_data(rows, groups="groups", weights="weights")
    return by_name.train_path(data, "kmers:d=2", **(PATH | options))


class Killer:
    """Kills a worker at the first point of a fold, and keeps the events."""

    def __init__(self, client: Any) -> None:
        self.victim: int | None = next(iter(client.run(os.getpid).values()))
        self.events: list[Any] = []

    def __call__(self, event: Any) -> None:
        self.events.append(event)
        if isinstance(event, PointDone) and "fold" in event.part and self.victim is not None:
            os.kill(self.victim, signal.SIGKILL)
            self.victim = None


@pytest.mark.slow
def test_nested_cross_validation_and_a_killed_worker(rows: Path, client: Any) -> None:
    job = {"cv": 2, "outer": 2, "refit": True, "patience": 1}
    expected: list[Any] = []
    one = train_path(rows, progress=expected.append, **job)
    killer = Killer(client)
    other = train_path(rows, client=client, progress=killer, **job)
    assert killer.victim is None
    assert of_path(other) == of_path(one)
    points = [Counter((e.part, e.number) for e in events if isinstance(e, PointDone))
              for events in (expected, killer.events)]  # fmt: skip
    assert points[0] == points[1]  # also of jobs that ran twice
    last = [event for event in killer.events if isinstance(event, Jobs)][-1]
    assert last.done == last.sent and last.running == 0


@pytest.mark.slow
def test_path_with_standard_errors(
    rows: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each point is a task, as those of long paths are."""
    monkeypatch.setattr(jobs, "PAUSE_AFTER", 0.0)
    job, events = {"valid_fraction": 0.3, "select": "1se", "refit": True}, list[Any]()
    found = train_path(rows, client=client, progress=events.append, **job)
    assert of_path(found) == of_path(train_path(rows, **job))
    assert [event for event in events if isinstance(event, Jobs)][-1].sent > PATH["points"]


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "covariates and offsets": ({"covariates": "ages", "offset": "offset"}, {"cv": 2}),
    "standardised columns": ({"x": "numbers"}, {"cv": 2, "standardize": True}),
    "softmax": ({"y": "classes"}, {"valid_fraction": 0.3, "loss": "softmax"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_what_the_inline_driver_takes(case: str, rows: Path, client: Any) -> None:
    opened, job = OTHERS[case]
    features = "columns" if "x" in opened else "kmers:d=2"
    paths = [
        by_name.train_path(fcl.open_data(rows, **opened), features, client=place, **PATH, **job)
        for place in (None, client)
    ]
    assert of_path(paths[0]) == of_path(paths[1])


@pytest.mark.slow
def test_a_job_that_always_kills(
    rows: Path, cluster: Any, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done before is in the folder, and the path continues."""
    folder, faults = tmp_path / "path", tmp_path / "faults"
    done = Counter[str]()

    def count(event: Any) -> None:
        done[type(event).__name__] += 1

    # interrupted first, because all jobs may have begun when the first event of a cluster comes
    with pytest.raises(KeyboardInterrupt):
        train_path(
            rows, cv=2, folder=folder, progress=count, should_stop=lambda: done["PointDone"] >= 2
        )
    arm(client, faults, "run_job", 50)
    # new workers are spared for a while, and could do all jobs meanwhile
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    with pytest.raises(ClusterLost, match="died in the task fcl_run_job"):
        train_path(rows, cv=2, client=client, folder=folder)
    for token in faults.iterdir():
        token.unlink(missing_ok=True)  # a worker takes it, too
    monkeypatch.undo()
    scale(cluster, client, 3)
    assert (folder / "point-01.fcl").exists()
    found = train_path(rows, cv=2, client=client, folder=folder)
    assert of_path(found)[2:] == of_path(train_path(rows, cv=2))[2:]


@pytest.mark.slow
def test_folders_are_those_of_one_process(rows: Path, client: Any, tmp_path: Path) -> None:
    """A path that was interrupted here continues on a cluster, and the other way round."""
    whole = of_path(train_path(rows, cv=2))
    for number, places in enumerate(([None, client], [client, None])):
        folder, done = tmp_path / str(number), Counter[str]()

        def count(event: Any, done: Counter[str] = done) -> None:
            done[type(event).__name__] += isinstance(event, PointDone)

        with pytest.raises(KeyboardInterrupt):
            train_path(
                rows, cv=2, client=places[0], folder=folder, progress=count,
                should_stop=lambda done=done: done["PointDone"] >= 3,
            )  # fmt: skip
        found = train_path(rows, cv=2, client=places[1], folder=folder)
        assert of_path(found)[0] == whole[0]
        assert of_path(found)[2:] == whole[2:]
        again = train_path(rows, cv=2, client=places[0], folder=folder, progress=count)
        assert of_path(again)[2:] == whole[2:]


@pytest.mark.slow
@pytest.mark.parametrize("in_memory", [False, True])
def test_one_against_the_rest(rows: Path, client: Any, in_memory: bool) -> None:
    X: Any = np.load(rows / "X.npy") if in_memory else str(rows)
    y: Any = np.load(rows / "classes.npy") if in_memory else "classes"
    fits = [fcl.FCLClassifier(dask=dask, **FIT).fit(X, y) for dask in (None, client)]
    check_same(fits)
    assert len(fits[0].models_) == 3


def test_search_of_several_classes(rows: Path, client: Any) -> None:
    fits = [
        fcl.FCLClassifierCV(alphas=3, cv=2, dask=dask, **FIT).fit(str(rows), "classes")
        for dask in (None, client)
    ]
    check_same(fits)
    for one, other in zip(fits[0].paths_, fits[1].paths_, strict=True):
        assert of_path(one) == of_path(other)


def check_same(fits: list[Any]) -> None:
    one, other = fits
    assert one.coef_.tobytes() == other.coef_.tobytes()
    assert one.intercept_.tobytes() == other.intercept_.tobytes()
    assert one.dual_gap_ == other.dual_gap_ and one.n_iter_ == other.n_iter_


@pytest.mark.slow
def test_an_interrupt_ends_running_jobs(rows: Path, client: Any) -> None:
    """The fixture waits until no task is left; a job of an hour would stay too long."""
    begun: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        train_path(
            rows, cv=2, client=client, tol=1e-14, points=60, C_max=1e3,
            progress=begun.append, should_stop=lambda: any(isinstance(e, PointDone) for e in begun),
        )  # fmt: skip


@pytest.mark.slow
def test_errors_of_jobs_name_the_fold(rows: Path, client: Any) -> None:
    target = np.load(rows / "y.npy")
    target[np.arange(420) % 2 == 0] = -1.0  # without fold 1, rows of one label are left
    data = fcl.open_data(rows, y=None).with_target(target, None)
    with pytest.raises(InputError, match="fold 2 of 2"):
        by_name.train_path(data, "kmers:d=2", cv=np.arange(420) % 2, client=client, **PATH)


def test_refusals(rows: Path, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="leave driver out"):
        train_path(rows, client=client, driver="processes")
    with pytest.raises(InputError, match="leave driver out"):
        fcl.FCLClassifier(dask=client, driver="processes", **FIT).fit(str(rows), "classes")
    with pytest.raises(InputError, match="address"):
        train_path(rows, driver="dask")
    monkeypatch.setattr(jobs, "MOST_SENT", 1000)
    data = fcl.open_data(np.load(rows / "X.npy"), y=np.load(rows / "y.npy"))
    with pytest.raises(InputError, match="save them as Zarr"):
        by_name.train_path(data, "kmers:d=2", client=client, **PATH)


def test_workers_need_the_memory_of_a_job(
    rows: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.1)
    monkeypatch.setattr(connections, "MEMORY_SHARE", 1e-3)
    with pytest.raises(BudgetError, match="memory"):
        train_path(rows, client=client)


def test_jobs_on_threads_of_a_worker_share_its_memory() -> None:
    room, seen = jobs._Room(), []
    with room.take(6, 10.0, lambda: False):
        with room.take(4, 10.0, lambda: False):
            seen.append(room._taken)
        with room.take(5, 10.0, lambda: True):  # withdrawn jobs do not wait
            seen.append(room._taken)
    assert seen == [10, 11] and room._taken == 0


@pytest.mark.slow
def test_threads_of_one_worker(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run side by side; each waits until the client has seen two, however fast they are."""
    one = train_path(rows, cv=3)
    take, begun, side_by_side = jobs._Room.take, itertools.count(), threading.Event()

    def wait(*args: Any) -> Any:
        if next(begun):  # the first job runs alone: it makes the path of all rows
            assert side_by_side.wait(60)
        return take(*args)

    def see(event: Any) -> None:
        if isinstance(event, Jobs) and event.running > 1:
            side_by_side.set()

    monkeypatch.setattr(jobs._Room, "take", wait)
    with (
        own_cluster(1, 3, processes=False) as threads,
        distributed.Client(threads, set_as_default=False) as client,
    ):
        assert of_path(train_path(rows, cv=3, client=client, progress=see)) == of_path(one)


@pytest.mark.slow
def test_command(rows: Path, client: Any, tmp_path: Path) -> None:
    """The driver dask with ``--path`` writes the same models, and says which jobs are done."""
    options = [str(rows), "--features", "kmers:d=2", "--path", "3", "--cv", "2", "--memory", "1GiB"]
    found = []
    for number, more in enumerate(([], ["--driver", f"dask:address={client.scheduler.address}"])):
        out = tmp_path / f"{number}.fcl"
        result = CliRunner().invoke(command, [*options, "--out", str(out), *more])
        assert result.exit_code == 0, result.output
        found.append((result.output, fcl.load_model(out)))
    assert found[0][1].weights.tobytes() == found[1][1].weights.tobytes()
    assert "jobs done" not in found[0][0]
    assert re.search(r"(\d+) of \1 jobs done; running: 0 jobs", found[1][0])
