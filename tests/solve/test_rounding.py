"""Weights are rounded to multiples of a step, as far as the gap allows."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, make_solver, run
from judge import ALL_LOSSES, Problem, confirm, kmer_matrix
from rows import STRENGTHS, acceptors, targets

import fcl.features.kmers.margins as module
from fcl.features import KmerFamily
from fcl.features.steps import common_step
from fcl.solve import local
from fcl.solve.solver import Solver

#: Steps of weights of float64 are at most this share of them, unless they were rounded.
UNROUNDED = 2.0**-45


def make(loss: str, tol: float, n: int = 400) -> tuple[Solver, Problem]:
    codes = acceptors(14, n)[0]
    problem = Problem(
        kmer_matrix(codes, 3), targets(loss, n), np.ones(n), loss, STRENGTHS[loss], True
    )
    return make_solver(KmerFamily(3, 14), codes, problem, tol=tol), problem


@pytest.fixture
def every_table_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHARED_ROWS", 1)


def coarse(weights: np.ndarray) -> bool:
    return common_step(weights) > UNROUNDED * float(np.abs(weights).max())


@pytest.mark.usefixtures("every_table_is_shared")
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_rounding_changes_slopes_by_a_small_share_of_the_target(loss: str) -> None:
    solver, problem = make(loss, 1e-3)
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
        change = np.abs(problem.prices(exact, b) - problem.prices(rounded, b)).max()
        assert change <= local.ROUNDED_SHARE * solver.outer.target()
        solver.propose(point)
        solver.price()


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
def test_a_point_between_two_is_rounded_too() -> None:
    """The search stops short of a step that is much too long."""
    solver, _ = make("logistic", 1e-3)
    run(solver, 1)
    solver.admit()
    solver.train()
    n = solver.cache.n
    solver.local.working.weights[:n] *= 40.0
    beta = solver.propose(solver.proposal())
    assert 0.0 < beta < 1.0
    assert coarse(solver.outer.point.weights)
    assert solver.price().objective == solver.outer.objective


def test_few_rows_leave_weights_as_they_are() -> None:
    solver, _ = make("logistic", 1e-3)
    run(solver, 2)
    solver.admit()
    solver.train()
    assert not coarse(solver.proposal().weights)
