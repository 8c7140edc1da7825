"""The penalty against its definition, by values and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fcl.objective import GroupPenalty, Penalty

RHOS = (1.0, 0.7, 0.05)


def weights(k: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, some of them 0, a direction, and factors."""
    random = np.random.default_rng(3)
    w = random.normal(size=k) * (random.random(k) < 0.6)
    return w, random.normal(size=k) * (random.random(k) < 0.8), random.uniform(0.3, 3.0, k)


def norms(penalty: Penalty, w: np.ndarray) -> np.ndarray:
    """The norm of each row that the penalty takes."""
    group = isinstance(penalty, GroupPenalty)
    return np.array([math.hypot(*row) if group else sum(map(abs, row)) for row in w])


def definition(penalty: Penalty, w: np.ndarray, f: np.ndarray) -> float:
    w, rho = w.reshape(len(w), -1), penalty.rho
    return float(f @ (rho * norms(penalty, w) + (1 - rho) / 2 * (w**2).sum(axis=1)))


KINDS = [kind(rho) for kind in (Penalty, GroupPenalty) for rho in (1.0, 0.4)]


def matrix(k: int = 12, K: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (k, K), of which some rows and some further entries are 0, a direction, and factors."""
    random = np.random.default_rng(4)
    w = random.normal(size=(k, K)) * (random.random((k, 1)) < 0.6) * (random.random((k, K)) < 0.7)
    return w, random.normal(size=(k, K)), random.uniform(0.3, 3.0, k)


@pytest.mark.parametrize(
    ("penalty", "point"),
    [*((Penalty(rho), weights()) for rho in RHOS), *((kind, matrix()) for kind in KINDS)],
    ids=[*(f"one output {rho}" for rho in RHOS), *map(str, KINDS)],
)
def test_value_and_derivatives(penalty: Penalty, point: tuple[np.ndarray, ...]) -> None:
    w, dw, f = point

    def moved(step: float) -> float:
        return definition(penalty, w + step * dw, f)

    value = penalty.value(w, f)
    assert value == pytest.approx(moved(0.0), rel=1e-13)
    left, right, curve = penalty.along(w, dw, f)
    assert left < right  # some weights are 0, and move
    h = 1e-6
    assert (moved(h) - value) / h == pytest.approx(right, abs=1e-4)
    assert (value - moved(-h)) / h == pytest.approx(left, abs=1e-4)
    # no weight of one output changes its sign: the rest is a parabola
    h, rel, small = (1e-2, 1e-6, 1e-8) if w.ndim == 1 else (1e-4, 1e-3, 1e-5)
    found = (moved(h) + moved(-h) - 2 * value - h * (right - left)) / h**2
    assert found == pytest.approx(curve, rel=rel, abs=small)


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
    assert Penalty().formula() == "sum_j |w_j|"
    assert Penalty(0.25).formula() == "sum_j (0.25 |w_j| + 0.375 w_j^2)"
    assert Penalty().formula(3) == "sum_jk |W_jk|"
    assert Penalty(0.25).formula(3) == "sum_jk (0.25 |W_jk| + 0.375 W_jk^2)"


# -- several outputs -------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", KINDS, ids=str)
def test_conditions_of_several_outputs(penalty: Penalty) -> None:
    """No violation at the proximal point of any prices; elsewhere a violation in the right feature."""
    random = np.random.default_rng(5)
    v, f, rho = random.normal(size=(20, 3)) * 3.0, random.uniform(0.5, 2.0, 20), penalty.rho
    v[:8] *= 0.05  # the weights of these features are 0
    cut = rho * f[:, None]
    size = norms(penalty, v)[:, None] if penalty.grouped else np.abs(v)
    w = np.maximum(1.0 - cut / size, 0.0) * v / (1.0 + (1.0 - rho) * f[:, None])
    prices = w - v  # the gradient of |w - v|^2 / 2
    assert 0 < (w == 0.0).all(axis=1).sum() < 20
    violations = penalty.violations(prices, w, f)
    assert violations.shape == (20,) and violations.max() <= 1e-14
    prices[19, 1] += 0.3 * rho * f[19]
    assert penalty.violations(prices, w, f).argmax() == 19
    zero = np.zeros((1, 3))
    expected = 5.0 / (0.5 * rho) - 1.0 if penalty.grouped else 4.0 / (0.5 * rho) - 1.0
    found = penalty.violations(np.array([[0.0, -4.0, 3.0]]), zero, np.array([0.5]))
    assert found == pytest.approx([expected])


def test_sizes_of_prices() -> None:
    g = np.array([[3.0, -4.0], [0.0, 0.0], [1e-200, 1e-200], [1e200, -1e200]])
    assert Penalty().sizes(g).tolist() == [4.0, 0.0, 1e-200, 1e200]
    assert GroupPenalty().sizes(g) == pytest.approx([5.0, 0.0, 2**0.5 * 1e-200, 2**0.5 * 1e200])
    assert Penalty().sizes(g[:, 1]).tolist() == [4.0, 0.0, 1e-200, 1e200]
    assert GroupPenalty().sizes(g[:0]).shape == Penalty().sizes(g[:0]).shape == (0,)
    assert GroupPenalty().grouped and not Penalty().grouped
    assert GroupPenalty().formula(3) == "sum_j |W_j|_2"
    assert GroupPenalty(0.25).formula(3) == "sum_j (0.25 |W_j|_2 + 0.375 |W_j|_2^2)"


@pytest.mark.thin(2)
@pytest.mark.parametrize("penalty", KINDS, ids=str)
@pytest.mark.parametrize("K", [2, 3, 4, 7])
def test_centre_is_the_best_constant(penalty: Penalty, K: int) -> None:
    random = np.random.default_rng(K)
    w = random.normal(size=(8, K)) * (random.random((8, K)) < 0.7)
    f = np.ones(1)
    for row, c in zip(w, penalty.centre(w), strict=True):
        values = [definition(penalty, row[None] - t, f) for t in np.linspace(-3.0, 3.0, 601)]
        assert definition(penalty, row[None] - c, f) <= min(values) + 1e-12
    centred = w - penalty.centre(w)[:, None]
    assert penalty.centre(centred) == pytest.approx(np.zeros(8), abs=1e-15)
    if penalty.pure_l1 and not penalty.grouped:  # weights of 0 stay 0 if they can
        assert (penalty.centre(np.array([[0.0, 0.0, 5.0], [-2.0, 0.0, 3.0]])) == 0.0).all()


@pytest.mark.parametrize("kind", [Penalty, GroupPenalty])
def test_conjugate_of_several_outputs(kind: type[Penalty]) -> None:
    """sup_W <C g, W> - penalty(W) of one feature with two outputs, on a grid."""
    penalty, C, f = kind(0.6), 0.8, 0.7
    g = np.array([[2.5, -1.5]])
    axis = np.linspace(-15.0, 15.0, 1201)
    w = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    norm = np.linalg.norm(w, axis=1) if penalty.grouped else np.abs(w).sum(axis=1)
    values = C * (w @ g[0]) - f * (0.6 * norm + 0.2 * (w**2).sum(axis=1))
    size = penalty.sizes(g)[:, None] if penalty.grouped else np.abs(g)
    excess = f * float((np.maximum(size / f - penalty.limit(C), 0.0) ** 2).sum())
    assert penalty.conjugate(C, excess) == pytest.approx(values.max(), rel=1e-3)
