"""Each loss ends at the judge's optimum, with weights of rows, with and without intercept and squares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from judge import ALL_LOSSES, Problem, confirm, kmer_matrix
from rows import STRENGTHS, acceptors, targets

import fcl
from tests.drivers.conftest import dense, fit

N = 400  # two blocks, the second one ragged


def train_and_judge(
    loss: str, d: int, weighted: bool = False, **options: Any
) -> tuple[fcl.TrainResult, Problem, np.ndarray]:
    """The result, the explicit problem and the weights of all features."""
    codes, y = acceptors(16 if d == 2 else 14, N)[0], targets(loss, N)
    s = np.random.default_rng(d).uniform(0.1, 3.0, N) if weighted else np.ones(N)
    given = {"C": STRENGTHS[loss], "tol": 1e-9, "block_rows": 256} | options
    result = fit(fcl.open_data(codes, y=y, weights=s), fcl.Kmers(d), loss=loss, **given)
    how = options.get("intercept", True), options.get("l1_ratio", 1.0)
    problem = Problem(kmer_matrix(codes, d), y, s, loss, result.model.C, *how)
    return result, problem, dense(result.model, problem.phi.shape[1])


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("rho", "intercept", "weighted"),
    [(1.0, True, False), (1.0, False, True), (0.5, True, True), (0.05, False, True)],
)
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_optimum(loss: str, rho: float, intercept: bool, weighted: bool) -> None:
    result, problem, w = train_and_judge(loss, 2, weighted, intercept=intercept, l1_ratio=rho)
    claimed, b = result.certificate, result.model.intercept
    best = problem.solve()
    assert result.converged and result.reason == "tolerance", result.message
    assert 10 < len(result.model.ids) < 250
    assert claimed.objective == pytest.approx(best.objective, rel=1e-8)
    confirm(problem, w, b, claimed, best)
    # where the penalty has squares the gap falls with the square of the violations
    slack = math.sqrt(2.0 * (1.0 - rho) * 1e-10 * best.objective) / rho
    assert problem.violations(w, b).max() <= max(1e-6, 10.0 * slack)
    # it has an allowance for rounding, which a slope has over rho
    largest = np.abs(problem.pulls(w, b)).max()
    assert claimed.max_violation == pytest.approx(largest, rel=1e-9 / rho)
    # the last pass has the best bound: the judge finds it again from the model alone, but for what
    # residuals that meet the conditions of the weights to more digits prove beyond it
    assert claimed.bound > max([h["bound"] for h in result.history[:-1]], default=-np.inf)
    assert problem.bound(problem.residuals(w, b)) >= claimed.bound - 1e-8 * claimed.objective
    assert intercept or b == 0.0
    if rho == 1.0:
        return
    # equal columns share a weight where it is squared
    columns, group = np.unique(problem.phi, axis=1, return_inverse=True)
    group = group.reshape(-1)  # of shape (1, n) in NumPy 2.0.0
    assert columns.shape[1] < len(w)
    far = math.sqrt(2.0 * 1e-9 * claimed.objective / (1.0 - rho))
    for g in np.unique(group[w != 0.0]):
        assert np.ptp(w[group == g]) <= 2.0 * far


def test_far_below_rounding_is_reached_or_said() -> None:
    """A tolerance below rounding ends the run at the optimum, with a reason."""
    result, problem, w = train_and_judge("logistic", 3, tol=1e-16)
    assert result.reason in ("stalled", "tolerance")
    assert result.certificate.gap < 1e-11
    confirm(problem, w, result.model.intercept, result.certificate, problem.solve())
