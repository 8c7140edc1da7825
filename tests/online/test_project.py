"""Projections onto the simplex and the L1 ball, against exact rational arithmetic and sorting."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcl.online import project_l1_ball, project_simplex

EPS = np.finfo(float).eps


def exact(sizes: list[Fraction], squares: list[Fraction], z: Fraction) -> Fraction:
    """The theta with sum_j q_j max(0, u_j - theta) = z, by sorting (Figure 1 of the paper)."""
    total = count = theta = Fraction(0)
    for u, q in sorted(zip(sizes, squares, strict=True), reverse=True):
        if count and u <= theta:
            break
        total, count = total + q * u, count + q
        theta = (total - z) / count
    return theta


def exact_simplex(v: np.ndarray, z: float) -> np.ndarray:
    """The projection onto the simplex, rounded once at the end."""
    sizes = [Fraction(x) for x in v.tolist()]
    theta = exact(sizes, [Fraction(1)] * len(v), Fraction(z))
    return np.array([float(max(x - theta, Fraction(0))) for x in sizes])


def exact_ball(v: np.ndarray, z: float, a: np.ndarray) -> np.ndarray:
    """The projection onto the weighted ball, rounded once at the end."""
    sizes = [abs(Fraction(x)) for x in v.tolist()]
    weights = [Fraction(x) for x in a.tolist()]
    if sum(x * b for x, b in zip(sizes, weights, strict=True)) <= Fraction(z):
        return v.copy()
    held = [(x / b, b * b) for x, b in zip(sizes, weights, strict=True) if b]
    theta = exact([u for u, _ in held], [q for _, q in held], Fraction(z))
    found = [float(max(x - theta * b, Fraction(0))) for x, b in zip(sizes, weights, strict=True)]
    return np.copysign(found, v)


def by_sorting(v: np.ndarray, z: float) -> np.ndarray:
    """Figure 1 of the paper in float64."""
    down = np.sort(v)[::-1]
    thetas = (np.cumsum(down) - z) / np.arange(1, len(v) + 1)
    return np.maximum(v - thetas[np.flatnonzero(down > thetas)[-1]], 0.0)


def vectors(most: int = 40) -> st.SearchStrategy[np.ndarray]:
    """Vectors with ties, zeros, common offsets, and numbers of very different size."""
    plain = st.floats(-10.0, 10.0, allow_subnormal=False)
    ties = st.integers(-3, 3).map(float)
    wide = st.builds(lambda m, e: m * 10.0**e, plain, st.integers(-12, 12))
    offset = st.sampled_from([0.0, 0.0, 1e8, -1e8])
    numbers = st.one_of(
        *(st.lists(kind, min_size=1, max_size=most) for kind in (plain, ties, wide))
    )
    return st.builds(lambda values, add: np.array(values) + add, numbers, offset)


radii = st.one_of(
    st.floats(1e-3, 1e3), st.sampled_from([1e-300, 1e-12, 1.0, 1e12, 1e300]), st.integers(1, 9)
)


@given(vectors(), radii)
@settings(max_examples=100)
def test_simplex_equals_exact_arithmetic(v: np.ndarray, z: float) -> None:
    w = project_simplex(v, z)
    assert (w >= 0.0).all() and w.sum() == pytest.approx(z, rel=1e-13)
    assert np.abs(w - exact_simplex(v, z)).max() <= 4 * len(v) * EPS * z  # whatever the offset


@given(vectors(), radii)
@settings(max_examples=100)
def test_ball_equals_exact_arithmetic(v: np.ndarray, z: float) -> None:
    w = project_l1_ball(v, z)
    assert np.abs(w).sum() <= z * (1.0 + 1e-13)
    assert np.abs(w - exact_ball(v, z, np.ones(len(v)))).max() <= 4 * len(v) * EPS * z
    positive = project_l1_ball(v, z, nonnegative=True)
    both = exact_ball(np.maximum(v, 0.0), z, np.ones(len(v)))
    assert np.abs(positive - both).max() <= 4 * len(v) * EPS * z


@given(vectors(), radii, st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_weighted_ball_meets_its_conditions(v: np.ndarray, z: float, random: Any) -> None:
    """The conditions of Karush, Kuhn and Tucker, and exact arithmetic; weight 0 leaves a number free."""
    a = np.array([random.choice([0.0, 1.0, 1.0, 0.5, 3.0, random.uniform(0.01, 100.0)]) for _ in v])
    w = project_l1_ball(v, z, a)
    free, held = a == 0.0, a > 0.0
    assert (w[free] == v[free]).all() and (w * v >= 0.0).all()
    spent = float(a @ np.abs(w))
    assert spent <= z * (1.0 + 1e-12)
    size = max(float(np.abs(v).max()), 1.0)
    assert np.abs(w - exact_ball(v, z, a)).max() <= 1e-12 * size
    if a @ np.abs(v) > z * (1.0 + 1e-12):
        assert spent == pytest.approx(z, rel=1e-12)
        active = held & (w != 0.0)
        thetas = ((np.abs(v) - np.abs(w)) / np.where(held, a, 1.0))[active]
        theta = float(np.median(thetas))
        assert theta >= 0.0 and np.abs(thetas - theta).max() <= 1e-11 * size / a[active].min()
        inactive = held & (w == 0.0)
        assert (np.abs(v)[inactive] <= theta * a[inactive] + 1e-9 * size).all()


@given(vectors(), vectors(), radii)
def test_projections_do_not_expand_and_change_nothing_again(
    u: np.ndarray, v: np.ndarray, z: float
) -> None:
    n = min(len(u), len(v))
    u, v, a = u[:n], v[:n], 1.0 + np.arange(n) % 3
    rounding = 8 * n * EPS * max(np.abs(u).max(), np.abs(v).max(), min(z, 1e12))
    for project in (
        lambda x: project_simplex(x, z),
        lambda x: project_l1_ball(x, z),
        lambda x: project_l1_ball(x, z, a),
    ):
        p, q = project(u), project(v)
        if z < 1e100:
            assert np.linalg.norm(p - q) <= np.linalg.norm(u - v) + rounding
        assert np.abs(project(p) - p).max() <= 4 * n * EPS * z


def long_vectors() -> dict[str, np.ndarray]:
    """Vectors of more than one block, by kind."""
    rng = np.random.default_rng(3)
    n = 5000
    normal = rng.normal(size=n)
    return {
        "normal": normal,
        "sorted": np.sort(normal),
        "reversed": np.sort(normal)[::-1].copy(),
        "constant": np.full(n, 0.5),
        "zeros": np.where(rng.random(n) < 0.01, normal, 0.0),
        "all zeros": np.zeros(n),
        "ties": np.round(4.0 * normal) / 4.0,
        "offset": 1e8 + rng.random(n),
        "geometric": np.exp(-np.arange(n) / 100.0),
        "one": np.eye(1, n)[0] * 7.0,
        "tails": rng.standard_cauchy(n),
    }


@pytest.mark.parametrize("kind", long_vectors())
@pytest.mark.parametrize("z", [1e-3, 1.0, 100.0, 1e4])
def test_long_vectors_equal_sorting(kind: str, z: float) -> None:
    v = long_vectors()[kind]
    least = max(float(np.abs(v).max()), z)
    w = project_simplex(v, z)
    assert w.sum() == pytest.approx(z, rel=1e-12)
    assert np.abs(w - by_sorting(v - v.max(), z)).max() <= 1e-12 * z + 4 * EPS * np.ptp(v)
    p = project_l1_ball(v, z)
    if np.abs(v).sum() <= z:
        assert (p == v).all()
    else:
        assert np.abs(p).sum() == pytest.approx(z, rel=1e-12)
        top = np.abs(v) - np.abs(v).max()
        assert np.abs(np.abs(p) - by_sorting(top, z)).max() <= 1e-12 * least
        assert np.abs(
            project_l1_ball(v, z, np.full(len(v), 2.0)) - project_l1_ball(v, z / 2)
        ).max() <= (1e-12 * least)


def test_a_bound_that_rounding_puts_too_high_is_found_out() -> None:
    """Equal numbers, whose mean rounds up: all are active though they lie below the bound."""
    rng = np.random.default_rng(0)
    for n in (3, 7, 1000, 4097):
        v = np.full(n, rng.random()) + 1e6
        assert np.abs(project_simplex(v, 1.0) - 1.0 / n).max() <= 1e-15
        assert np.abs(project_l1_ball(v, 1.0) - 1.0 / n).max() <= 1e-15


def test_dtypes_and_layouts() -> None:
    v = np.array([3.0, -2.0, 0.5, 1.0])
    expected = project_l1_ball(v, 2.0)
    assert expected.tolist() == [1.5, -0.5, 0.0, 0.0]
    for given_ in (v.astype(np.float32), v.tolist(), np.repeat(v, 3)[::3], v.astype(">f8")):
        found = project_l1_ball(given_, 2.0)
        assert found.dtype == np.float64 and (found == expected).all()
    fixed = v.copy()
    fixed.flags.writeable = False
    assert (project_l1_ball(fixed, 2.0) == expected).all() and (fixed == v).all()
    assert project_simplex(np.array([3, 1], np.int32), 1).tolist() == [1.0, 0.0]
    assert project_simplex([5.0], 2.0).tolist() == [2.0]
    assert project_l1_ball([-5.0], 2.0).tolist() == [-2.0]
    assert project_l1_ball([], 2.0).shape == project_l1_ball([], 2.0, []).shape == (0,)
    inside = project_l1_ball(v, 100.0)
    assert (inside == v).all() and inside is not v and not np.shares_memory(inside, v)
    assert project_l1_ball(v, 1.0, np.zeros(4)).tolist() == v.tolist()


def test_numbers_near_the_largest_float() -> None:
    v = np.array([1.5e308, 1.5e308, -1e308])
    assert np.allclose(project_l1_ball(v, 1.0), [0.5, 0.5, 0.0])
    assert np.allclose(project_l1_ball(v, 2e307) / 1e307, [1.0, 1.0, 0.0])
    assert np.allclose(project_simplex(v, 1.7e308) / 1.7e308, [0.5, 0.5, 0.0])
    assert np.allclose(project_l1_ball(v, 3.0, [1.0, 2.0, 1.0]), [3.0, 0.0, 0.0])
    assert np.allclose(project_l1_ball([1e300, 1.0], 1e-300, [1.0, 0.0]), [0.0, 1.0])
