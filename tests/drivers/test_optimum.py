"""Training ends at the judge's optimum, with a certificate that the judge confirms."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from judge import ALL_LOSSES, LOSSES, Problem, confirm, kmer_matrix
from rows import STRENGTHS, acceptors, splice, targets

import fcl

#: Window for each d, so that the explicit matrix stays small: 80, 300, 1,200 and 4,500 columns.
LENGTHS = {1: 20, 2: 16, 3: 14, 4: 12}


def train_and_judge(
    codes: np.ndarray, y: np.ndarray, s: np.ndarray | None, d: int, **options: Any
) -> tuple[fcl.TrainResult, Problem, np.ndarray]:
    """Train in 256-row blocks; returns the result, the explicit problem and the dense weights."""
    options = {"tol": 1e-9, "block_rows": 256, "memory": "1GiB"} | options
    data = fcl.open_data(codes, y=y, weights=s)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fcl.ConvergenceWarning)
        result = fcl.train(data, fcl.Kmers(d), **options)
    phi = kmer_matrix(codes, d)
    problem = Problem(
        phi,
        y,
        np.ones(len(y)) if s is None else s,
        options.get("loss", "logistic"),
        result.model.C,
        options.get("intercept", True),
        options.get("l1_ratio", 1.0),
    )
    w = np.zeros(phi.shape[1])
    w[result.model.ids] = result.model.weights
    return result, problem, w


def check_optimum(
    result: fcl.TrainResult, problem: Problem, w: np.ndarray, gap: float = 1e-10
) -> None:
    """Check all claims of a converged run with the judge, which solves to a relative ``gap``."""
    claimed, b = result.certificate, result.model.intercept
    best = problem.solve(gap)
    assert result.converged and result.reason == "tolerance", result.message
    assert claimed.n_priced == problem.phi.shape[1]
    assert claimed.objective == pytest.approx(best.objective, rel=1e-8)
    confirm(problem, w, b, claimed, best)
    # where the penalty has squares the gap falls with the square of the violations
    slack = math.sqrt(2.0 * (1.0 - problem.rho) * gap * best.objective) / problem.rho
    assert problem.violations(w, b).max() <= max(1e-6, 10.0 * slack)
    # it has an allowance for rounding, which a slope has over rho
    largest = np.abs(problem.pulls(w, b)).max()
    assert claimed.max_violation == pytest.approx(largest, rel=1e-9 / problem.rho)
    # the last pass has the best bound: the judge finds it again from the model alone, but for what
    # residuals that meet the conditions of the weights to more digits prove beyond it
    assert claimed.bound > max([h["bound"] for h in result.model.history[:-1]], default=-np.inf)
    found = problem.bound(problem.residuals(w, b))
    assert found >= claimed.bound - 1e-8 * claimed.objective
    if not problem.intercept:
        assert b == 0.0


@pytest.mark.parametrize(
    ("d", "weighted", "intercept"),
    [(1, True, True), (2, False, True), (2, True, False), (3, True, True), (4, False, False)],
)
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_acceptors(loss: str, d: int, weighted: bool, intercept: bool) -> None:
    n = 300 if d == 4 else 400  # two blocks, the second one ragged
    codes, _ = acceptors(LENGTHS[d], n)
    y = targets(loss, n)
    s = np.random.default_rng(d).uniform(0.1, 3.0, n) if weighted else None
    options = {"loss": loss, "C": STRENGTHS[loss], "intercept": intercept}
    result, problem, w = train_and_judge(codes, y, s, d, **options)
    check_optimum(result, problem, w)
    assert 10 < len(result.model.ids) < 250


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("d", [2, 4])
def test_splice_junctions_with_unknown_letters(loss: str, d: int) -> None:
    codes, labels = splice(LENGTHS[d])
    unknown = np.flatnonzero((codes == 4).any(axis=1))
    keep = np.union1d(unknown, np.arange(0, len(codes), 6 if d == 2 else 12))
    codes, y = codes[keep].copy(), labels[keep]
    codes[:8, 2:9] = 4  # runs of them, and a window of nothing else
    codes[8] = 4
    result, problem, w = train_and_judge(codes, y, None, d, loss=loss, C=STRENGTHS[loss])
    check_optimum(result, problem, w)


@pytest.mark.parametrize("intercept", [True, False], ids=["intercept", "no-intercept"])
@pytest.mark.parametrize("rho", [0.5, 0.05])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_elastic_net(loss: str, rho: float, intercept: bool) -> None:
    codes, y = acceptors(16, 400)[0], targets(loss, 400)
    s = np.random.default_rng(2).uniform(0.1, 3.0, 400)
    options = {"loss": loss, "C": STRENGTHS[loss], "intercept": intercept, "l1_ratio": rho}
    result, problem, w = train_and_judge(codes, y, s, 2, **options)
    check_optimum(result, problem, w)
    assert result.model.options["C_min"] == pytest.approx(problem.null()[1], rel=1e-9)
    # equal columns share a weight where it is squared
    columns, group = np.unique(problem.phi, axis=1, return_inverse=True)
    group = group.reshape(-1)  # of shape (1, n) in NumPy 2.0.0
    assert columns.shape[1] < len(w)
    far = math.sqrt(2.0 * 1e-9 * result.certificate.objective / (1.0 - rho))
    for g in np.unique(group[w != 0.0]):
        assert np.ptp(w[group == g]) <= 2.0 * far


@pytest.mark.parametrize("rho", [1.0, 0.3])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_the_model_is_empty_up_to_C_min(loss: str, rho: float) -> None:
    codes, y = acceptors(16, 400)[0], targets(loss, 400)
    first, problem, _ = train_and_judge(codes, y, None, 2, loss=loss, C=1e-3, l1_ratio=rho)
    least = problem.null()[1]
    assert first.model.options["C_min"] == pytest.approx(least, rel=1e-9)
    for C, empty in ((0.999 * least, True), (1.01 * least, False)):
        result, _, w = train_and_judge(codes, y, None, 2, loss=loss, C=C, l1_ratio=rho)
        assert result.converged and (w == 0.0).all() == empty


@pytest.mark.slow
@pytest.mark.parametrize(("tol", "rho"), [(1e-2, 1.0), (1e-5, 1.0), (1e-2, 0.2)])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_no_certificate_says_more_than_is_true(loss: str, rho: float, tol: float) -> None:
    codes, y = acceptors(14, 400)[0], targets(loss, 400)
    options = {"loss": loss, "C": STRENGTHS[loss], "tol": tol, "l1_ratio": rho}
    result, problem, w = train_and_judge(codes, y, None, 3 if rho == 1.0 else 2, **options)
    best = problem.solve()
    assert result.converged and result.certificate.gap <= tol
    confirm(problem, w, result.model.intercept, result.certificate, best)
    for entry in result.model.history:  # of every pass on the way
        assert entry["bound"] <= best.objective * (1.0 + 1e-12)
        assert best.bound <= entry["objective"] * (1.0 + 1e-12)


def test_strong_fit() -> None:
    """A large C, where nearly all residuals are small and weights are many."""
    codes, labels = acceptors(14, 400)
    result, problem, w = train_and_judge(codes, labels, None, 3, C=30.0)
    check_optimum(result, problem, w, gap=1e-8)  # hard for the judge, too


def test_far_below_rounding_is_reached_or_said() -> None:
    """A tolerance below rounding ends the run at the optimum, with a reason."""
    codes, labels = acceptors(14, 400)
    result, problem, w = train_and_judge(codes, labels, None, 3, C=1.0, tol=1e-16)
    assert result.reason in ("stalled", "tolerance")
    assert result.certificate.gap < 1e-11
    confirm(problem, w, result.model.intercept, result.certificate, problem.solve())
