"""Properties that users expect: the null model, weights, conversions, hard targets, the intercept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judge import LOSSES, Problem, confirm, kmer_matrix
from rows import acceptors, pyrimidines

import fcl
from fcl.drivers.job import make_job
from fcl.options import TrainOptions
from tests import by_name
from tests.drivers.conftest import check, dense

STRENGTHS = {"logistic": 1.0, "squared": 0.05, "squared_hinge": 0.3}


def train(codes: np.ndarray, y: np.ndarray, s: Any = None, d: int = 3, **options: Any) -> Any:
    options = {"tol": 1e-9, "block_rows": 256, "memory": "1GiB"} | options
    return fcl.train(fcl.open_data(codes, y=y, weights=s), fcl.Kmers(d), **options)


def case(loss: str, length: int = 14, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    codes, labels = acceptors(length, n)
    return codes, pyrimidines(n) if loss == "squared" else labels


@pytest.mark.parametrize("loss", LOSSES)
def test_repeated_rows_equal_weights(loss: str) -> None:
    codes, y = case(loss)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    options = {"loss": loss, "C": STRENGTHS[loss]}
    weighted = train(codes, y, times.astype(float), **options)
    repeated = train(np.repeat(codes, times, axis=0), np.repeat(y, times), **options)
    kept = times > 0
    removed = train(codes[kept], y[kept], times[kept].astype(float), **options)
    for other in (repeated, removed):
        assert other.certificate.objective == pytest.approx(
            weighted.certificate.objective, rel=2e-9
        )
        assert other.model.alpha == pytest.approx(weighted.model.alpha, rel=1e-12)
    # rows of weight 0 are dropped before anything else
    assert removed.model.weights.tobytes() == weighted.model.weights.tobytes()
    assert weighted.model.n_rows == kept.sum() and weighted.model.sum_weights == times.sum()


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_constant_and_equal_features_do_no_harm(loss: str) -> None:
    """Every window has AG in the middle, and columns beside it that repeat each other."""
    codes, y = case(loss, 12)
    assert (codes[:, 6:8] == [0, 2]).all()
    codes = codes.copy()
    codes[:, 3] = codes[:, 9]  # every feature of one position at the other, too
    codes[:, 4] = 3 - codes[:, 9]
    problem = Problem(kmer_matrix(codes, 4), y, np.ones(len(y)), loss, STRENGTHS[loss])
    assert (problem.phi.min(axis=0) == 1.0).sum() > 1
    result = train(codes, y, d=4, loss=loss, C=STRENGTHS[loss])
    w = check(result, problem, problem.solve())
    # a constant column does what the unpenalised intercept does for nothing
    assert not w[problem.phi.min(axis=0) == 1.0].any()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_one_positive_in_a_thousand(loss: str) -> None:
    codes, labels = acceptors(10, 8000)
    y = np.where(np.cumsum(labels == 1) <= 8, labels, -1.0)
    assert (y == 1).sum() == 8
    result = train(codes, y, d=2, loss=loss, C=2.0, block_rows=4096)
    problem = Problem(kmer_matrix(codes, 2), y, np.ones(len(y)), loss, 2.0)
    assert np.count_nonzero(check(result, problem, problem.solve())) > 3


@pytest.mark.parametrize(("scale", "offset"), [(1e6, 1e5), (1e-6, -50.0)])
def test_unscaled_targets(scale: float, offset: float) -> None:
    codes, y = case("squared")
    y = scale * y + offset
    # the judge has no free intercept to centre targets by
    problem = Problem(kmer_matrix(codes, 3), y - offset, np.ones(len(y)), "squared", 1.0)
    C = 20.0 * problem.null()[1]
    problem = Problem(problem.phi, problem.y, problem.s, "squared", C)
    result = train(codes, y, loss="squared", C=C, tol=1e-10)
    w = dense(result.model, problem.phi.shape[1])
    assert result.converged and np.count_nonzero(w) > 5
    intercept = result.model.intercept - offset
    confirm(problem, w, intercept, result.certificate, problem.solve(1e-9))


@pytest.mark.parametrize(("C", "largest"), [(1e300, 1.0), (1e-300, 1.0), (1.0, 1e-200)])
def test_numbers_at_the_ends_of_float64(C: float, largest: float) -> None:
    """The certificate is true, or the reason names rounding; no error blames the features."""
    random = np.random.default_rng(0)
    X = largest * random.normal(size=(50, 3))
    y = np.where(X[:, 0] / largest + random.normal(size=50) > 0, 1.0, -1.0)
    result = by_name.train(fcl.open_data(X, y=y), "columns", C=C, warn=False)
    if C == 1e300:
        assert result.reason == "no-progress" and "can cause a gap of 1.0e+00" in result.message
    else:
        assert result.reason == "tolerance"
    problem = Problem(X, y, np.ones(50), "logistic", C)
    objective = problem.objective(dense(result.model, 3), result.model.intercept)
    assert result.certificate.objective == pytest.approx(objective, rel=1e-12)
    assert result.certificate.bound <= objective * (1.0 + 1e-12)


def test_what_rounding_may_hide_is_little_of_the_largest_violation() -> None:
    """The worst case of rounding is 1e15 times the slopes here, and would hide them."""
    random = np.random.default_rng(6)
    X = np.column_stack([1.7e18 + random.uniform(0, 1e15, 200), random.normal(size=200)])
    y = np.where(X[:, 1] + random.normal(size=200) > 0, 1.0, -1.0)
    result = by_name.train(
        fcl.open_data(X, y=y), "columns", C=1.0, tol=0.5, max_passes=1, warn=False
    )
    of_passes = [h["max_violation"] for h in result.model.history]
    assert of_passes[-1] <= result.certificate.max_violation <= 1.001 * of_passes[-1]


def strong(loss: str, n: int = 2000) -> fcl.DataSet:
    """Many rows, few letters: an overdetermined problem with noise."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (n, 10)).astype(np.uint8)
    signal = (codes[:, 2] == 1) * 2.0 - (codes[:, 6] == 3) + rng.normal(size=n)
    y = signal if loss == "squared" else np.where(signal > 0.4, 1, -1)
    return fcl.open_data(codes, y=y)


@pytest.mark.parametrize("C", [10.0, 1000.0])
@pytest.mark.parametrize("loss", LOSSES)
def test_strong_losses(loss: str, C: float) -> None:
    for tol in (1e-2, 1e-3):
        result = fcl.train(strong(loss), "kmers:d=2", C=C, loss=loss, tol=tol)
        assert result.converged and result.certificate.gap <= tol
        assert result.passes <= 100


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"C": np.float32(0.5), "tol": np.float64(0.01), "seed": np.int64(3)}
    codes, y = acceptors(10, 300)
    job = make_job(
        fcl.open_data(codes, y=y),
        "kmers:d=2",
        TrainOptions.checked(**given, max_passes=np.int32(4)),
    )
    found = [job.options.C, job.options.tol, job.options.seed, job.options.max_passes]
    assert found == [0.5, 0.01, 3, 4] and [type(v) for v in found] == [float, float, int, int]
