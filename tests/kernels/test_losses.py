"""Losses of one margin and sums over rows: against extended precision and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import losses
from fcl.objective.losses import LOSSES
from tests.windows import examples

CODES = [losses.LOGISTIC, losses.SQUARED, losses.SQUARED_HINGE]
MARGINS = [0.0, 1e-300, 1e-9, 0.3, 1.0, 1.0 + 1e-9, 2.5, 20.0, 37.0, 300.0, 710.0, 745.2, 1e4]
#: Where extended precision is none, the reference is off by the rounding of its exponents.
RELATIVE = 4e-15 if np.finfo(np.longdouble).eps < 1e-18 else 1e-12
SIGNED = sorted({sign * m for m in MARGINS for sign in (-1.0, 1.0)})

numbers = st.floats(-40.0, 40.0)


def targets(code: int) -> list[float]:
    return [-3.25, 0.0, 1e3] if code == losses.SQUARED else [-1.0, 1.0]


def exact(code: int, y: float, m: float) -> tuple[float, float, float]:
    """Value and two derivatives, from the definitions in extended precision."""
    one = np.longdouble(1.0)
    z, h = np.longdouble(y) * np.longdouble(m), one - np.longdouble(y) * np.longdouble(m)
    if code == losses.LOGISTIC:
        value = np.logaddexp(np.longdouble(0.0), -z)
        wrong = np.exp(-np.logaddexp(np.longdouble(0.0), z))  # sigma(-z)
        right = np.exp(-np.logaddexp(np.longdouble(0.0), -z))
        return float(value), float(-np.longdouble(y) * wrong), float(wrong * right)
    if code == losses.SQUARED:
        difference = np.longdouble(y) - np.longdouble(m)
        return float(difference**2), float(-2 * difference), 2.0
    if h > 0:
        return float(h**2), float(-2 * np.longdouble(y) * h), 2.0
    return 0.0, 0.0, 0.0


def conjugate(code: int, y: float, u: float) -> float:
    """loss*(u) by the closed forms, u inside the domain."""
    if code == losses.SQUARED:
        return u * u / 4 + u * y
    a = -y * u
    if code == losses.LOGISTIC:
        a = min(max(a, 0.0), 1.0)
        return sum(x * math.log(x) for x in (a, 1.0 - a) if x > 0.0)
    return a * a / 4 - a


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("m", SIGNED)
def test_value_and_derivatives(code: int, m: float) -> None:
    for y in targets(code):
        value, slope, curvature = exact(code, y, m)
        found = (losses.loss_value(code, y, m), *losses.loss_slope_curvature(code, y, m))
        assert all(math.isfinite(x) for x in found)
        # the hinge is a difference first, and that is rounded
        absolute = 1e-15 * (1.0 + abs(m)) ** 2 if code == losses.SQUARED_HINGE else 1e-300
        assert found == pytest.approx((value, slope, curvature), rel=RELATIVE, abs=absolute)


@pytest.mark.parametrize("code", CODES)
@given(m=st.floats(-12.0, 12.0))
@examples(40)
def test_derivatives_by_differences(code: int, m: float) -> None:
    step = 1e-5
    for y in targets(code)[:2]:
        if code == losses.SQUARED_HINGE and abs(1.0 - y * m) < 2 * step:
            continue  # its second derivative jumps there
        slope, curvature = losses.loss_slope_curvature(code, y, m)
        low, high = losses.loss_value(code, y, m - step), losses.loss_value(code, y, m + step)
        scale = 1.0 + abs(high)
        assert slope == pytest.approx((high - low) / (2 * step), abs=1e-8 * scale)
        below, _ = losses.loss_slope_curvature(code, y, m - step)
        above, _ = losses.loss_slope_curvature(code, y, m + step)
        assert curvature == pytest.approx((above - below) / (2 * step), abs=1e-8 * scale)


@pytest.mark.parametrize("code", CODES)
@given(m=st.floats(-30.0, 30.0), s=st.floats(1e-3, 1e3))
@examples(60)
def test_conjugate_at_the_slope_is_fenchels_equality(code: int, m: float, s: float) -> None:
    # loss(m) + loss*(u) = u m at u = loss'(m); elsewhere it is more
    for y in targets(code):
        slope, _ = losses.loss_slope_curvature(code, y, m)
        Y, S, R = np.array([y]), np.array([s]), np.array([s * slope])
        found = losses.conjugate_sum(code, Y, S, R, 0.0, 1.0, 1.0, 1.0) / s
        value = losses.loss_value(code, y, m)
        scale = 1e-13 * (1.0 + abs(value) + abs(slope * m) + slope**2)
        assert found == pytest.approx(slope * m - value, abs=scale)
        for t in (0.0, 0.5, 0.9):
            half = losses.conjugate_sum(code, Y, S, R, 0.0, 1.0, 1.0, t) / s
            assert half == pytest.approx(conjugate(code, y, t * slope), abs=scale)
            assert half >= t * slope * m - value - scale


@pytest.mark.parametrize("code", CODES)
def test_the_conjugate_takes_arguments_on_its_edge(code: int) -> None:
    edge = np.array([0.0, 1.0 + 1e-16, -1e-18]) if code != losses.SQUARED else np.array([0.0, 1, 2])
    y = np.ones(3)
    found = losses.conjugate_sum(code, y, np.ones(3), -y * edge, 0.0, 1.0, 1.0, 1.0)
    expected = sum(conjugate(code, 1.0, -max(e, 0.0)) for e in edge)
    assert found == pytest.approx(expected, abs=1e-15)


rows = st.integers(1, 70).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, 2**31), st.sampled_from(CODES), numbers)
)


@given(rows)
@examples(60)
def test_sums_over_rows(drawn: tuple[int, int, int, float]) -> None:
    n, seed, code, b = drawn
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n) if code != losses.SQUARED else rng.normal(size=n) * 10
    s, m, dm = rng.exponential(size=n), rng.normal(size=n) * 8, rng.normal(size=n)
    beta = rng.uniform(0, 2)
    one = [exact(code, *pair) for pair in zip(y, m + b, strict=True)]
    value, slope, curve = (s * np.array(part) for part in zip(*one, strict=True))

    r, q = np.empty(n), np.empty(n)
    losses.residuals_curvatures(code, y, s, m, b, r, q)
    np.testing.assert_allclose(r, slope, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(q, curve, rtol=1e-13, atol=1e-300)
    assert losses.weighted_loss(code, y, s, m, b) == pytest.approx(value.sum(), rel=1e-12)

    out = np.full(3, np.nan)
    losses.slope_sums(code, y, s, m, b, out)
    np.testing.assert_allclose(
        out, [slope.sum(), curve.sum(), np.abs(slope).sum()], rtol=1e-12, atol=1e-11
    )

    moved = [exact(code, *pair) for pair in zip(y, m + beta * dm + b, strict=True)]
    value, slope, curve = (s * np.array(part) for part in zip(*moved, strict=True))
    expected = [value, slope, curve, slope * dm, curve * dm * dm, curve * dm]
    out = np.full(6, np.nan)
    losses.line_sums(code, y, s, m, dm, beta, b, out)
    for found, terms in zip(out, expected, strict=True):
        assert found == pytest.approx(terms.sum(), abs=1e-12 * (1e-3 + np.abs(terms).sum()))

    combined = np.empty(n)
    losses.combine(m, dm, beta, combined)
    np.testing.assert_allclose(combined, m + beta * dm, rtol=1e-15)
    losses.difference(m, dm, combined)
    assert (combined == m - dm).all()


@given(st.integers(1, 60), st.integers(0, 2**31))
@examples(30)
def test_sums_of_the_dual(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, s, r = rng.normal(size=n), rng.exponential(size=n) + 1e-3, rng.normal(size=n)
    low, high, t = rng.uniform(0.1, 1, 3)
    sides = np.empty(2)
    losses.side_sums(r, sides)
    np.testing.assert_allclose(sides, [r[r < 0].sum(), r[r > 0].sum()], rtol=1e-13, atol=1e-13)

    two = np.empty(2)
    balanced = r - 0.3 * s
    losses.squared_dual_sums(y, s, r, 0.3, two)
    np.testing.assert_allclose(two, [balanced @ y, (balanced**2 / s).sum()], rtol=1e-12, atol=1e-12)
    found = losses.conjugate_sum(losses.SQUARED, y, s, r, 0.3, 1.0, 1.0, t)
    expected = sum(
        si * conjugate(losses.SQUARED, yi, t * bi / si)
        for yi, si, bi in zip(y, s, balanced, strict=True)
    )
    assert found == pytest.approx(expected, abs=1e-12 * (1 + np.abs(balanced**2 / s).sum()))

    scaled = np.where(r < 0, low * r, high * r)
    losses.hinge_dual_sums(s, r, low, high, two)
    np.testing.assert_allclose(two, [np.abs(scaled).sum(), (scaled**2 / s).sum()], rtol=1e-12)
    label = -np.sign(r)  # residuals have the sign of -y
    hinge = losses.conjugate_sum(losses.SQUARED_HINGE, label, s, r, 0.0, low, high, t)
    expected = sum(
        si * conjugate(losses.SQUARED_HINGE, yi, t * ri / si)
        for yi, si, ri in zip(label, s, scaled, strict=True)
    )
    assert hinge == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_the_names_stand_for_the_codes_of_the_kernels() -> None:
    assert {name: loss.code for name, loss in LOSSES.items()} == {
        "logistic": losses.LOGISTIC,
        "squared": losses.SQUARED,
        "squared_hinge": losses.SQUARED_HINGE,
    }
