"""The same job by every driver: inline, in processes, and on a Dask cluster.

The driver of processes takes other steps than inline and reaches the same optimum; the null model has
the same bits. The Dask driver has the same bits throughout. Whatever kills, stops or interrupts a job,
it or its successor ends at the same optimum.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dask_cluster import client, cluster, cluster_of_threads  # noqa: F401
from generators import Later
from jobs import JOBS, OPTIONS, Job

import fcl
from fcl.drivers.processes import faults
from fcl.files.folder import CheckpointFolder
from fcl.run.events import Event, PassDone, Prepared
from tests import by_name
from tests.drivers.cluster.runs import bits
from tests.same_optimum import ROUNDING, same_optimum
from tools.fuzz import certify
from tools.fuzz.general import General

#: Jobs of every family, loss, number of outputs and kind of option.
PROCESSES = (
    "kmers-squared_hinge", "kmers-huber", "kmers-pinball", "kmers-poisson", "kmers-unknown",
    "kmers-sample", "kmers-elastic", "kmers-no-intercept", "kmers-balanced", "kmers-softmax",
    "kmers-labels-group", "bag-search", "columns-targets", "columns-standardize", "columns-covariates",
    "columns-offset", "kmers-softmax-covariates", "columns-targets-covariates", "sparse", "products",
    "fourier-steps", "union-numbers", "kmers-limits", "columns-limits",
)  # fmt: skip
#: Of one output, with rows in arrays and without standardisation, which the Dask driver refuses.
DASK = (
    "kmers-pinball", "kmers-poisson", "kmers-unknown", "kmers-sample-hinge", "kmers-elastic",
    "kmers-balanced", "kmers-no-intercept", "bag-search", "columns-squared", "columns-offset", "products",
    "kmers-positive", "kmers-limits", "columns-limits-named",
)  # fmt: skip
#: The job that is killed, stopped and resumed.
JOB = JOBS["kmers-logistic"]
TWO: dict[str, Any] = {"driver": "processes", "writers": 2}


@cache
def inline(name: str) -> fcl.TrainResult:
    return JOBS[name].train(driver="inline")


def check(result: fcl.TrainResult, job: Job = JOB) -> None:
    """The certificate is true, and that of the inline driver is about the same optimum."""
    same_optimum(result, inline(job.name))
    claimed, history = result.certificate, result.model.history
    assert claimed.gap <= job.arguments()["tol"]
    assert claimed.passes == len(history) == result.passes
    objectives = [entry["objective"] for entry in history]
    assert all(after <= before * (1.0 + ROUNDING) for before, after in pairwise(objectives))
    X, y = job.rows()
    data = fcl.open_data(X, y=y, offset=job.arguments().get("offset"))
    assert certify.wrong(result.model, data, {}) == []
    if result.model.n_outputs > 1 or result.model.covariates:
        judge_outputs(result.model, job)


def judge_outputs(model: fcl.Model, job: Job) -> None:
    """Judge a model of several outputs or with covariates."""
    (X, y), options = job.rows(), job.arguments()
    n, K = len(y), model.n_outputs
    phi = certify._matrix(model, fcl.open_data(X, y=None), np.ones(n, bool))
    assert phi is not None
    free = np.column_stack([np.ones(n), options.get("covariates", np.ones((n, 0)))])
    target = y if model.loss == "squared" else np.where(y > 0, 1.0, -1.0)
    target = np.eye(K)[y] if model.loss == "softmax" else target.reshape(n, K)
    judged = General(
        *(phi, free, target, np.ones(n), np.zeros((n, K)), np.ones(phi.shape[1]), model.loss),
        *(model.C, 1.0, bool(options.get("group"))),
    )
    W, B = judged.point(model)
    claimed = model.certificate
    assert claimed.objective == pytest.approx(float(judged.objective(W, B)), rel=1e-12)
    assert claimed.max_violation >= float(judged.pulls(W, B).max()) * (1.0 - 1e-9)


@pytest.fixture(autouse=True)
def large_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge these jobs, though they are larger than the problems of fuzzing."""
    monkeypatch.setattr(certify, "MOST_FEATURES", 2000)
    monkeypatch.setattr(certify, "MOST_ROWS", 1000)


# -- one job by all drivers ------------------------------------------------------------------------


@pytest.mark.thin(8)
@pytest.mark.parametrize("name", PROCESSES)
def test_processes(name: str) -> None:
    check(JOBS[name].train(**TWO), JOBS[name])


@pytest.mark.parametrize(
    "name", ["union", *(pytest.param(n, marks=pytest.mark.slow) for n in DASK)]
)
def test_dask(name: str, client: Any, tmp_path: Path) -> None:  # noqa: F811
    job, (X, y) = JOBS[name], JOBS[name].rows()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    data, options = fcl.open_data(tmp_path), job.arguments() | {"max_passes": 3, "block_rows": 64}
    drivers: tuple[dict[str, Any], ...] = ({"driver": "inline"}, {"client": client})
    one, other = (by_name.train(data, job.features, **options, **driver) for driver in drivers)
    assert bits(one) == bits(other)


# -- killed, stopped and resumed -------------------------------------------------------------------


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "point",
    [
        "writer:0:prepare-begin:1", "writer:1:price-done:1", "writer:0:columns-piece:2",
        "writer:0:columns-commit:1", "trainer:0:order-commit:2", "trainer:0:publish:1",
    ],
)  # fmt: skip
def test_a_killed_child_is_replaced(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(faults.VARIABLE, f"{point}:kill")
    check(JOB.train(**TWO))


def at(kind: type[Event], number: int, act: Callable[[], object]) -> Callable[[Event], None]:
    """A callback that acts at an event, and at that of a pass."""

    def progress(event: Event) -> None:
        if isinstance(event, kind) and getattr(event, "number", number) == number:
            act()

    return progress


def fail() -> None:
    raise ZeroDivisionError("of the caller")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.thin(3)
@pytest.mark.parametrize("first", [{}, TWO], ids=["inline", "processes"])
@pytest.mark.parametrize("act", [fail, interrupt])
@pytest.mark.parametrize(("kind", "number"), [(Prepared, 0), (PassDone, 0), (PassDone, 2)])
def test_resumed_by_any_driver(
    first: dict[str, Any], act: Callable[[], None], kind: type[Event], number: int, tmp_path: Path
) -> None:
    """After an error of the caller or a signal: nothing that was certified is lost."""
    folder = tmp_path / "checkpoints"
    job: dict[str, Any] = {"checkpoint": folder, "checkpoint_every": 1e-3}
    progress = at(kind, number, act)
    if act is interrupt and kind is PassDone:  # there is a model
        assert JOB.train(**first, **job, progress=progress).reason == "interrupted"
    else:
        with pytest.raises(ZeroDivisionError if act is fail else KeyboardInterrupt):
            JOB.train(**first, **job, progress=progress)
    if kind is Prepared:
        assert not folder.exists()
        return
    saved = CheckpointFolder(folder).load()
    assert len(saved.history) >= number
    for second in ({}, TWO):
        result = JOB.train(**second, resume=saved)
        check(result)
        history, before = result.model.history, len(saved.history)
        assert history[:before] == saved.history
        worst = float(saved.state["objective"]) * (1.0 + ROUNDING)
        assert all(entry["objective"] <= worst for entry in history[before:])
        assert all(entry["bound"] >= float(saved.state["bound"]) for entry in history[before:])


@pytest.mark.parametrize("driver", [{}, TWO])
def test_an_error_of_a_generator(driver: dict[str, Any]) -> None:
    """The user reads the same message, whoever called the class."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(300, 8)), random.normal(size=300)
    X[::64, 0] = 5.0
    data = fcl.open_data(X, y=y)
    with pytest.raises(fcl.InputError, match="the table is gone"):
        by_name.train(data, Later("raise", mark=5.0), C=0.1, loss="squared", **OPTIONS, **driver)
