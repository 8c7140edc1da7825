"""A cache smaller than the active set: slower, but as exact; one too small for a column is refused."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, reach_the_optimum, run
from judge import Problem, confirm, kmer_matrix
from rows import acceptors, targets

import fcl
from fcl.cache import ColumnCache
from fcl.features import KmerFamily

LARGEST = ColumnCache.largest_column(400, 256)


def _problem(loss: str, intercept: bool = True) -> tuple[np.ndarray, Problem]:
    codes, _ = acceptors(14, 400)
    s = np.random.default_rng(2).uniform(0.3, 2.0, 400)
    C = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}[loss]
    return codes, Problem(kmer_matrix(codes, 3), targets(loss, 400), s, loss, C, intercept)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [1.0, 0.5])
def test_columns_of_real_values_with_frozen_weights(rho: float) -> None:
    """More active features than fit, ranked by their slopes."""
    random = np.random.default_rng(5)
    phi = random.normal(size=(500, 60)).astype(np.float32).astype(np.float64)
    y = phi @ random.normal(size=60) + random.normal(size=500)
    f = random.uniform(0.2, 5.0, 60)
    problem = Problem(phi, y, np.ones(500), "squared", 0.05, True, rho, f)
    solver = make_solver(explicit_family(phi, f), phi, problem, tol=1e-6, capacity=15 * 2000)
    reach_the_optimum(solver, problem, 300)
    assert solver.cache.n <= 15 < len(solver.outer.point.ids)


@pytest.mark.slow
def test_the_least_cache_descends() -> None:
    """Room for one column of the largest size at a time: progress is erratic, but never upwards."""
    codes, problem = _problem("squared")
    best = problem.solve()
    solver = make_solver(KmerFamily(3, 14), codes, problem, tol=1e-6, capacity=LARGEST)
    passes = run(solver, 150)
    objectives = [p.objective for p in passes]
    assert objectives == sorted(objectives, reverse=True)
    lost = (objectives[-1] - best.objective) / (objectives[0] - best.objective)
    assert lost < 0.02
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, passes[-1], best)


def test_too_small_for_a_column_is_refused() -> None:
    codes, problem = _problem("logistic")
    with pytest.raises(fcl.BudgetError, match=rf"400 rows \({LARGEST} bytes\), got {LARGEST - 1}"):
        make_solver(KmerFamily(3, 14), codes, problem, capacity=LARGEST - 1)
    with pytest.raises(fcl.BudgetError, match="memory budget"):
        make_solver(KmerFamily(3, 14), codes, problem, max_columns=0)
