"""The penalty against its definition, by values and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fcl
from fcl.objective import Penalty

RHOS = (1.0, 0.7, 0.05)


def weights(k: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, some of them 0, a direction, and factors."""
    random = np.random.default_rng(3)
    w = random.normal(size=k) * (random.random(k) < 0.6)
    return w, random.normal(size=k) * (random.random(k) < 0.8), random.uniform(0.3, 3.0, k)


def definition(rho: float, w: np.ndarray, f: np.ndarray) -> float:
    return sum(fj * (rho * abs(wj) + (1 - rho) * wj**2 / 2) for wj, fj in zip(w, f, strict=True))


@pytest.mark.parametrize("rho", RHOS)
def test_value_and_derivatives(rho: float) -> None:
    w, dw, f = weights()
    penalty = Penalty(rho)
    value = penalty.value(w, f)
    assert value == pytest.approx(definition(rho, w, f), rel=1e-13)
    left, right, curve = penalty.along(w, dw, f)
    assert left < right  # some weights are 0, and move
    h = 1e-6
    up, down = (definition(rho, w + step * dw, f) for step in (h, -h))
    assert (up - value) / h == pytest.approx(right, abs=1e-4)
    assert (value - down) / h == pytest.approx(left, abs=1e-4)
    h = 1e-2  # no weight changes its sign: the rest is a parabola
    up, down = (definition(rho, w + step * dw, f) for step in (h, -h))
    assert up + down - 2 * value - h * (right - left) == pytest.approx(h * h * curve, abs=1e-12)


@pytest.mark.parametrize("rho", RHOS)
def test_one_variable_at_its_optimum(rho: float) -> None:
    """min_w penalty(w) + price * w + h (w - w0)^2 / 2, by its conditions and by a grid."""
    penalty = Penalty(rho)
    f = np.array([0.7])
    for slope in (-5.0, -0.6, 0.0, 0.3, 2.0):
        grid = np.linspace(-8.0, 8.0, 160_001)
        values = 0.7 * (rho * np.abs(grid) + (1 - rho) * grid**2 / 2)
        values += slope * grid + 0.5 * grid**2
        w = grid[[np.argmin(values)]]
        w[np.abs(w) < 1e-4] = 0.0
        # violations are in units of rho f
        assert 0.7 * rho * penalty.violations(slope + w, w, f)[0] <= 1e-3
        assert 0.7 * rho * penalty.violations(slope + w + 0.3, w + 0.3, f)[0] > 0.1


def test_conditions_of_features_at_zero() -> None:
    penalty, C = Penalty(0.4), 2.0
    f = np.array([0.5, 1.0, 4.0])
    g = penalty.limit(C) * f  # on the edge of violating
    np.testing.assert_allclose(penalty.slopes(C * g, np.zeros(3), f), 1.0, rtol=1e-15)
    assert penalty.violations(1.5 * C * g, np.zeros(3), f) == pytest.approx([0.5] * 3)
    assert penalty.least_C(float((g / f).max())) == pytest.approx(C)
    assert penalty.least_C(0.0) == math.inf


@pytest.mark.parametrize("rho", RHOS[1:])
def test_conjugate(rho: float) -> None:
    """sup_w v w - penalty(w), feature by feature on a grid."""
    w, C = np.linspace(-60.0, 60.0, 240_001), 0.8
    f = np.array([0.5, 1.0, 3.0])
    g = np.array([1.7, -2.5, 0.01])
    expected = sum(
        (C * gj * w - fj * (rho * np.abs(w) + (1 - rho) * w**2 / 2)).max()
        for gj, fj in zip(g, f, strict=True)
    )
    penalty = Penalty(rho)
    above = np.maximum(np.abs(g) / f - penalty.limit(C), 0.0)
    assert penalty.conjugate(C, float(np.sum(f * above**2))) == pytest.approx(expected, rel=1e-6)


def test_in_words() -> None:
    assert Penalty().formula == "sum_j |w_j|"
    assert Penalty(0.25).formula == "sum_j (0.25 |w_j| + 0.375 w_j^2)"


@pytest.mark.parametrize("rho", [0.0, -1.0, 1.5, float("nan")])
def test_invalid_ratios(rho: float) -> None:
    with pytest.raises(fcl.InputError, match="l1_ratio must be above 0 and at most 1"):
        Penalty(rho)
