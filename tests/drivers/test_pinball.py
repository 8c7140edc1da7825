"""Quantile regression, held against the linear program of scikit-learn."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from judge import Problem, confirm
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import mean_pinball_loss

import fcl
from fcl.objective import SingleOutput, find_loss
from tests import by_name
from tests.drivers.conftest import dense

N, P = 240, 20
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, P))
#: Heavy tails, wider where the third column is large.
Y = 2.0 * X[:, 0] - X[:, 1] + RANDOM.standard_t(3, N) * (1.0 + np.abs(X[:, 2]))
S = RANDOM.uniform(0.2, 3.0, N)


def unsmoothed(tau: float, C: float, w: np.ndarray, b: float) -> float:
    """The objective with the pinball loss itself."""
    u = Y - X @ w - b
    return float(np.abs(w).sum() + C * (S @ np.maximum(tau * u, (tau - 1.0) * u)))


@cache
def program(tau: float, C: float) -> float:
    """The optimum without smoothing, by linear programming."""
    alpha = 1.0 / (C * S.sum())
    found = QuantileRegressor(quantile=tau, alpha=alpha, solver="highs").fit(X, Y, sample_weight=S)
    return unsmoothed(tau, C, found.coef_, float(found.intercept_))


def train(loss: str, y: np.ndarray = Y, **options: Any) -> fcl.TrainResult:
    given = {"C": 0.5, "tol": 1e-8, "warn": False, "memory": "1GiB"} | options
    return by_name.train(fcl.open_data(X, y=y, weights=S), "columns", loss=loss, **given)


@pytest.mark.thin(4)
@pytest.mark.parametrize("width", [1.0, 0.1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("C", [0.1, 1.0])
@pytest.mark.parametrize("tau", [0.02, 0.5, 0.9])
def test_the_optimum_is_that_of_linear_programming_up_to_the_smoothing(
    tau: float, C: float, width: float
) -> None:
    """The bound is below its optimum, and the model above it by no more than gap and smoothing."""
    loss = f"pinball:tau={tau},width={width}"
    result = train(loss, C=C)
    claimed, w, b = result.certificate, dense(result.model, P), result.model.intercept
    assert result.converged and claimed.gap <= 1e-8
    if width >= 1e-6:  # else rows are on the curved interval only up to rounding
        confirm(Problem(X, Y, S, loss, C), w, b, claimed)
    best, rounding = program(tau, C), 1e-9 * program(tau, C)
    smoothing = C * float(S.sum()) * max(tau, 1.0 - tau) ** 2 * width / 2.0
    own = unsmoothed(tau, C, w, b)
    assert claimed.bound <= best + rounding
    assert claimed.objective <= own + rounding
    assert (
        best - rounding <= own <= best + (claimed.objective - claimed.bound) + smoothing + rounding
    )
    # about a share tau of the weight is below the prediction; the interpolated rows are on it
    slack = 2.0 * (np.abs(Y - X @ w - b) <= width) @ S / S.sum()
    assert (X @ w + b >= Y) @ S / S.sum() == pytest.approx(tau, abs=slack + 1e-6)


@pytest.mark.parametrize("exponent", [-300, -100, -6, 6, 20, 100, 145])
def test_units_of_the_target_do_not_matter(exponent: int) -> None:
    """The weights of a scaled target are scaled; also where slopes are flat far around the start."""
    unit = 10.0**exponent
    one, other = (
        train("pinball:tau=0.9,width=0.1"),
        train(f"pinball:tau=0.9,width={0.1 * unit!r}", Y * unit, tol=1e-6),
    )
    assert other.converged
    expected = one.certificate.objective * unit
    assert other.certificate.objective == pytest.approx(expected, rel=2e-6)
    np.testing.assert_allclose(dense(other.model, P) / unit, dense(one.model, P), atol=1e-3)


@pytest.mark.parametrize("exponent", [0, 20, 149])
def test_the_best_intercept_where_all_rows_are_flat(exponent: int) -> None:
    """From 0, which no row is near, over an expansion and a bisection of hundreds of steps."""
    y = (Y - Y.mean()) * 10.0**exponent
    loss = find_loss(f"pinball:tau=0.9,width=1e{exponent - 9}")
    objective = SingleOutput(loss, y, S, 1.0, True)
    b = objective.best_intercept(np.zeros(N))
    below, above = (y < b) @ S, (y <= b + 2e-9 * 10.0**exponent) @ S
    assert below - S.max() <= 0.9 * S.sum() <= above + S.max()


def test_targets_of_1e6_and_outliers() -> None:
    """Far targets cost no digits, and the size of outliers does not matter to the weights."""
    loss = "pinball:tau=0.7,width=0.1"
    one, far = train(loss), train(loss, Y + 1e6)
    assert far.certificate.objective == pytest.approx(one.certificate.objective, rel=1e-7)
    out = np.where(np.arange(N) % 40 == 0, 1e3, Y), np.where(np.arange(N) % 40 == 0, 1e6, Y)
    less, more = (train(loss, y).model for y in out)
    np.testing.assert_allclose(dense(less, P), dense(more, P), atol=1e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (f"pinball:tau={x}", "tau must be strictly between 0 and 1")
            for x in ("0", "1", "nan", "-1")
        ),
        *(
            (f"pinball:width={x}", "width must be a finite number above 0")
            for x in ("0", "inf", "a")
        ),
        ("pinball:delta=1", "expected tau=NUMBER, width=NUMBER, each once, got 'delta=1'"),
        ("pinball:tau=0.2,tau=0.2", "expected tau=NUMBER, width=NUMBER, each once, got 'tau=0.2'"),
        ("pinball:width=1e-100", "expected a width of at least the rounding of y, .*, got 1e-100"),
        ("pinball:width=1e-320", "expected a width of at least the rounding of y"),
    ],
)
def test_refused_options(text: str, message: str) -> None:
    with pytest.raises(fcl.InputError, match=message):
        train(text)


def test_refused_targets() -> None:
    with pytest.raises(
        fcl.InputError, match=r"y: .* at most 1e\+150 in size, .*; scale the target"
    ):
        train("pinball:width=1e159", Y * 1e160)


def test_text() -> None:
    """Options have the shortest digits that read as the same number, as do those of other losses."""
    for text in (
        "pinball:tau=0.1,width=0.3",
        "huber:delta=2",
        "huber:delta=0.7",
        "huber:delta=1e-05",
    ):
        assert find_loss(text).text == text
    assert find_loss("pinball").text == "pinball:tau=0.5,width=0.1"
    assert find_loss("huber:delta=0.69999999999999996") == find_loss("huber:delta=0.7")


@pytest.mark.slow
def test_the_report_says_how_many_targets_are_below(tmp_path: Any) -> None:
    """And shows no calibration of means, which predicted quantiles need not have."""
    from fcl.report.make import make_report

    data = fcl.open_data(X, y=Y, weights=S)
    model = train("pinball:tau=0.8,width=0.1").model
    path = tmp_path / "model.fcl"
    model.save(path)
    (scores,) = [s for s in make_report(path, data).sections if s.key == "scores"]
    facts = dict(scores.facts)
    margins = model.margins(data)
    assert float(facts["mean pinball loss"]) == pytest.approx(
        mean_pinball_loss(Y, margins, sample_weight=S, alpha=0.8), rel=1e-5
    )
    share, _, words = facts["share of targets up to the prediction"].partition(", ")
    assert float(share) == pytest.approx((margins >= Y) @ S / S.sum(), abs=1e-4)
    assert words == "0.8 is perfect"
    assert "calibration" not in [getattr(block, "name", "") for block in scores.blocks]
