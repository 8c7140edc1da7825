"""Offsets: added to every margin, in training, validation and prediction, by both drivers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from judge import ALL_LOSSES, Problem
from rows import STRENGTHS, targets

import fcl
from fcl.drivers.job import make_job
from fcl.options import TrainOptions
from tests import by_name

N, P = 300, 25


def table(loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Columns, targets, weights and offsets, these of a mean of 3."""
    random = np.random.default_rng(4)
    X = random.normal(size=(N, P)).astype(np.float32).astype(np.float64)
    X[:, 0] = np.linspace(-1.0, 1.0, N, dtype=np.float32)
    return X, targets(loss, N), random.uniform(0.2, 2.0, N), random.normal(size=N) + 3.0


def train(loss: str, offset: Any = "own", **options: Any) -> fcl.TrainResult:
    X, y, s, o = table(loss)
    given = {"C": STRENGTHS[loss], "tol": 1e-9, "loss": loss, "block_rows": 64, "memory": "1GiB"}
    data = fcl.open_data(X, y=y, weights=s, offset=o if isinstance(offset, str) else offset)
    return fcl.train(data, "columns", **(given | options))


def problem_of(loss: str, intercept: bool = True, rho: float = 1.0) -> Problem:
    X, y, s, o = table(loss)
    return Problem(X, y, s, loss, STRENGTHS[loss], intercept, rho, offset=o)


@pytest.mark.thin(6)
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_scores_of_validation_rows(loss: str) -> None:
    X, y, s, o = table(loss)
    data = fcl.open_data(X, y=y, weights=s, offset=o)
    model = train(loss, valid=data, tol=1e-3).model
    margins = model.margins(X, offset=o)
    name, scores = model.history.validation()
    expected = {
        "auprc": lambda: fcl.average_precision(y, margins, s),
        "mae": lambda: np.average(np.abs(y - margins), weights=s),
        "mse": lambda: np.average((y - margins) ** 2, weights=s),
        "pinball": lambda: np.average(
            np.maximum(0.7 * (y - margins), 0.3 * (margins - y)), weights=s
        ),
        "deviance": lambda: 2.0 * np.average(problem_of(loss).losses(margins), weights=s),
    }[name]()
    assert scores[-1] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_a_constant_offset_is_an_intercept(loss: str) -> None:
    X, *_ = table(loss)
    without = train(loss, offset=None)
    for size in (2.0, 1e6):
        found = train(loss, offset=np.full(N, size))
        assert found.certificate.objective == pytest.approx(without.certificate.objective, rel=1e-8)
        assert found.model.intercept + size == pytest.approx(without.model.intercept, abs=1e-4)
        given = found.model.margins(X, offset=np.full(N, size))
        np.testing.assert_allclose(given, without.model.margins(X), atol=1e-3)


def test_counts_over_exposures_are_rates_with_weights() -> None:
    """log exposure as an offset, or y / exposure with the exposure as the weight: one optimum."""
    random = np.random.default_rng(2)
    X = random.normal(size=(N, 10)).astype(np.float32)
    exposure = random.uniform(0.5, 20.0, N)
    y = random.poisson(exposure * np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1]))
    options = {"C": 0.05, "tol": 1e-10, "loss": "poisson", "memory": "1GiB"}
    counts = by_name.train(fcl.open_data(X, y=y), "columns", offset=np.log(exposure), **options)
    rates = fcl.train(fcl.open_data(X, y=y / exposure, weights=exposure), "columns", **options)
    assert counts.certificate.objective == pytest.approx(rates.certificate.objective, rel=1e-9)
    np.testing.assert_allclose(
        counts.model.margins(X, offset=np.zeros(N)), rates.model.margins(X), atol=1e-4
    )
    expected = exposure * rates.model.predict(X)
    np.testing.assert_allclose(
        counts.model.predict(X, offset=np.log(exposure)), expected, rtol=1e-4
    )


def test_other_offsets_change_the_fingerprint() -> None:
    X, y, *_ = table("logistic")
    data = [fcl.open_data(X, y=y, offset=o) for o in (None, np.zeros(N), np.ones(N))]
    assert len({d.fingerprint() for d in data}) == 3


def test_memory_of_the_offset_is_planned() -> None:
    X, y, _, o = table("logistic")
    plans = [
        make_job(fcl.open_data(X, y=y, offset=offset), "columns", TrainOptions.checked(C=1.0)).plan
        for offset in (None, o)
    ]
    uses = [plan.of("targets and weights") for plan in plans]
    assert uses[1] == uses[0] * 3 // 2
