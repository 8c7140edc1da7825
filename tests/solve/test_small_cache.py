"""A cache smaller than the active set: slower, but as exact; one too small for a column is refused."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, run
from judge import Problem, confirm, kmer_matrix
from rows import acceptors, pyrimidines

import fcl
from fcl.cache import ColumnCache
from fcl.features import KmerFamily
from fcl.solve.solver import Certified, Solver

STRENGTHS = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}


def _problem(loss: str, intercept: bool = True) -> tuple[np.ndarray, Problem]:
    codes, labels = acceptors(14, 400)
    y = pyrimidines(400) if loss == "squared" else labels
    s = np.random.default_rng(2).uniform(0.3, 2.0, 400)
    return codes, Problem(kmer_matrix(codes, 3), y, s, loss, STRENGTHS[loss], intercept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "intercept"), [("logistic", True), ("squared", False), ("squared_hinge", True)]
)
def test_gap_is_reached_with_frozen_weights(loss: str, intercept: bool) -> None:
    codes, problem = _problem(loss, intercept)
    best = problem.solve()
    largest = ColumnCache.largest_column(400, 256)
    solver = make_solver(KmerFamily(3, 14), codes, problem, tol=1e-5, capacity=20 * largest)
    most_cached = 0

    def watch(solver: Solver, certified: Certified) -> None:
        nonlocal most_cached
        most_cached = max(most_cached, solver.cache.n)
        assert solver.cache.used <= 20 * largest

    passes = run(solver, 400, watch)
    assert passes[-1].gap <= 1e-5, f"{len(passes)} passes"
    assert most_cached < len(solver.outer.point.ids)
    assert passes[-1].objective == pytest.approx(best.objective, rel=1.1e-5)
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)
    objectives = [p.objective for p in passes]
    assert objectives == sorted(objectives, reverse=True)


def test_squares_and_factors_with_frozen_weights() -> None:
    """More active features than fit, ranked by their slopes."""
    random = np.random.default_rng(5)
    phi = random.normal(size=(500, 60)).astype(np.float32).astype(np.float64)
    y = phi @ random.normal(size=60) + random.normal(size=500)
    f = random.uniform(0.2, 5.0, 60)
    problem = Problem(phi, y, np.ones(500), "squared", 0.05, True, 0.5, f)
    best = problem.solve(1e-9)
    solver = make_solver(explicit_family(phi, f), phi, problem, tol=1e-6, capacity=15 * 2000)
    passes = run(solver, 300)
    assert passes[-1].gap <= 1e-6, f"{len(passes)} passes"
    assert solver.cache.n <= 15 < len(solver.outer.point.ids)
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


@pytest.mark.slow
def test_few_places_in_the_directory() -> None:
    """The limit is the number of columns, not their bytes."""
    codes, problem = _problem("logistic")
    best = problem.solve()
    solver = make_solver(KmerFamily(3, 14), codes, problem, tol=1e-3, max_columns=12)
    passes = run(solver, 400)
    assert passes[-1].gap <= 1e-3, f"{len(passes)} passes"
    assert solver.cache.n <= 12 < len(solver.outer.point.ids)
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


@pytest.mark.slow
def test_the_least_cache_descends() -> None:
    """Room for one column of the largest size at a time: progress is erratic, but never upwards."""
    codes, problem = _problem("squared")
    best = problem.solve()
    largest = ColumnCache.largest_column(400, 256)
    solver = make_solver(KmerFamily(3, 14), codes, problem, tol=1e-6, capacity=largest)
    passes = run(solver, 150)
    objectives = [p.objective for p in passes]
    assert objectives == sorted(objectives, reverse=True)
    lost = (objectives[-1] - best.objective) / (objectives[0] - best.objective)
    assert lost < 0.02
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


def test_small_cache_of_real_values() -> None:
    random = np.random.default_rng(5)
    phi = random.normal(size=(500, 60)).astype(np.float32).astype(np.float64)
    y = phi @ random.normal(size=60) + random.normal(size=500)
    problem = Problem(phi, y, np.ones(500), "squared", 0.05)
    best = problem.solve()
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-6, capacity=15 * 2000)
    passes = run(solver, 300)
    assert passes[-1].gap <= 1e-6, f"{len(passes)} passes"
    assert solver.cache.n <= 15 < len(solver.outer.point.ids)
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


def test_too_small_for_a_column_is_refused() -> None:
    codes, problem = _problem("logistic")
    largest = ColumnCache.largest_column(400, 256)
    with pytest.raises(fcl.BudgetError, match=rf"400 rows \({largest} bytes\), got {largest - 1}"):
        make_solver(KmerFamily(3, 14), codes, problem, capacity=largest - 1)
    with pytest.raises(fcl.BudgetError, match="memory budget"):
        make_solver(KmerFamily(3, 14), codes, problem, max_columns=0)
