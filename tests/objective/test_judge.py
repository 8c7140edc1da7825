"""The judge is consistent: slopes are derivatives, and no bound is above an objective.

Tests that compare fcl with other solvers show that it has the right formulas.
"""

from __future__ import annotations

import numpy as np
import pytest
from judge import ALL_LOSSES, Problem, kmer_matrix
from rows import STRENGTHS, acceptors, targets
from scipy.optimize import check_grad


def problem_of(loss: str, C: float, intercept: bool = False, weighted: bool = True) -> Problem:
    codes, y = acceptors(12, 300)[0], targets(loss, 300)
    s = np.random.default_rng(3).uniform(0.2, 3.0, 300) if weighted else np.ones(300)
    return Problem(kmer_matrix(codes, 2), y, s, loss, C, intercept)


def test_kmer_matrix_by_hand() -> None:
    phi = kmer_matrix(np.array([[0, 1, 4], [3, 3, 2]], np.uint8), 2)
    assert phi.shape == (2, 2 * 20)
    # at 0: AC, A. in the first row, TT, T. in the second; at 1: C. and TG, T.
    assert np.flatnonzero(phi[0]).tolist() == [1, 4, 20 + 9]
    assert np.flatnonzero(phi[1]).tolist() == [18, 19, 20 + 17, 20 + 19]


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_slopes_are_derivatives(loss: str) -> None:
    problem = problem_of(loss, 0.5, intercept=True)
    w = np.random.default_rng(0).normal(size=problem.phi.shape[1])
    slopes = problem.prices(w, 0.3) + np.sign(w)
    error = check_grad(lambda w: problem.objective(w, 0.3), lambda w: slopes, w)
    assert error < 1e-5 * np.abs(slopes).max()


@pytest.mark.thin(2)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_weak_duality_and_optimum(loss: str, intercept: bool) -> None:
    problem = problem_of(loss, 0.5 * STRENGTHS[loss], intercept)
    best = problem.solve()
    assert problem.violations(best.w, best.b).max() < 1e-8
    assert abs(problem.residuals(best.w, best.b).sum()) < 1e-9 * problem.s.sum() or not intercept
    random = np.random.default_rng(1)
    for _ in range(20):
        w, b = best.w + random.normal(size=len(best.w)) * 0.01, best.b + intercept * 0.1
        assert problem.objective(w, b) > best.objective
        assert problem.bound(problem.residuals(w, b)) <= best.objective * (1.0 + 1e-12)
