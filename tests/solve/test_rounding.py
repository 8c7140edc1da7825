"""Weights are rounded to multiples of a step, as far as the gap allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import dense_weights, make_solver, run
from judge import ALL_LOSSES, Problem, confirm, kmer_matrix
from rows import STRENGTHS, acceptors, targets

import fcl
import fcl.features.kmers.margins as module
from fcl.drivers.job import make_job
from fcl.features import KmerFamily
from fcl.features.steps import common_step
from fcl.options import TrainOptions
from fcl.solve import local
from fcl.solve.solver import Solver

#: Steps of weights of float64 are at most this share of them, unless they were rounded.
UNROUNDED = 2.0**-45


def make(loss: str, tol: float, n: int = 400, rho: float = 1.0) -> tuple[Solver, Problem]:
    codes = acceptors(14, n)[0]
    problem = Problem(
        kmer_matrix(codes, 3), targets(loss, n), np.ones(n), loss, STRENGTHS[loss], True, rho
    )
    return make_solver(KmerFamily(3, 14), codes, problem, tol=tol), problem


@pytest.fixture
def every_table_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARED_ROWS", 1)


def coarse(weights: np.ndarray) -> bool:
    return common_step(weights) > UNROUNDED * float(np.abs(weights).max())


@pytest.mark.usefixtures("every_table_is_shared")
@pytest.mark.parametrize("rho", [1.0, 0.01])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_rounding_changes_slopes_by_a_small_share_of_the_target(loss: str, rho: float) -> None:
    solver, problem = make(loss, 1e-3, rho=rho)
    run(solver, 1)
    for _ in range(3):
        solver.admit()
        solved = solver.train()
        exact, rounded = np.zeros((2, solver.family.n_features))
        exact[solver.cache.ids] = solver.local.working.weights[: solver.cache.n]
        point = solver.proposal()
        rounded[point.ids] = point.weights
        assert coarse(point.weights) and (exact != rounded).any()
        b = float(solved.free.sum())
        change = np.abs(problem.prices(exact, b) - problem.prices(rounded, b)).max() / rho
        assert change <= local.ROUNDED_SHARE * solver.outer.target()
        solver.propose(point)
        solver.price()


@pytest.mark.thin(2)
@pytest.mark.usefixtures("every_table_is_shared")
@pytest.mark.parametrize("tol", [1e-3, 1e-9])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_a_run_with_rounded_weights_is_certified(loss: str, tol: float) -> None:
    solver, problem = make(loss, tol)
    certified = run(solver)[-1]
    assert certified.gap <= tol
    optimum = problem.solve()
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, certified, optimum)


@pytest.mark.usefixtures("every_table_is_shared")
def test_only_features_of_small_values_are_rounded() -> None:
    codes, y = acceptors(14, 200)
    data = fcl.open_data(codes, y=y)
    binary = make_job(
        data, "kmers:d=3 + bag:d=3,value=presence", TrainOptions.checked(C=1.0)
    ).family
    counts = make_job(data, "kmers:d=3 + bag:d=3", TrainOptions.checked(C=1.0)).family
    assert binary.rounds_weights(200) and not counts.rounds_weights(200)


@pytest.mark.usefixtures("every_table_is_shared")
def test_a_resumed_run_rounds_in_the_same_way(tmp_path: Path) -> None:
    codes, y = acceptors(14, 2000)
    data = fcl.open_data(codes, y=y)
    options: dict[str, Any] = {"C": 0.3, "tol": 1e-6, "driver": "inline"}
    whole = fcl.train(data, "kmers:d=3", **options)
    assert coarse(whole.model.weights)
    checkpoint = tmp_path / "run.fcl"
    with pytest.warns(fcl.ConvergenceWarning):
        fcl.train(data, "kmers:d=3", **options, max_passes=3, checkpoint=checkpoint)
    resumed = fcl.train(data, "kmers:d=3", **options, resume=checkpoint)
    assert resumed.model.ids.tobytes() == whole.model.ids.tobytes()
    assert resumed.model.weights.tobytes() == whole.model.weights.tobytes()
    assert resumed.certificate == whole.certificate


def test_few_rows_leave_weights_as_they_are() -> None:
    solver, _ = make("logistic", 1e-3)
    run(solver, 2)
    solver.admit()
    solver.train()
    assert not coarse(solver.proposal().weights)
