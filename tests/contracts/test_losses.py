"""Every loss: values, derivatives, conjugates, sums over rows, intercepts, and bounds of the optimum.

Against extended precision, finite differences, and the judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from explicit import objective_of
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ALL_LOSSES, Problem, Solution, kmer_matrix
from judge_outputs import ClassProblem
from rows import STRENGTHS, acceptors, targets
from scipy.special import softmax

from fcl.kernels import losses
from fcl.objective import LOSSES, SoftmaxOutputs, find_loss
from tests.windows import INTERPRETED, examples

Long = np.longdouble
MARGINS = [0.0, 1e-300, 1e-9, 0.3, 1.0, 1.0 + 1e-9, 2.5, 20.0, 37.0, 300.0, 710.0, 745.2, 1e4]
#: On machines without extended precision, the exponents of the reference have rounding errors.
RELATIVE = 4e-15 if np.finfo(np.longdouble).eps < 1e-18 else 1e-12
SIGNED = sorted({sign * m for m in MARGINS for sign in (-1.0, 1.0)})


@dataclass(frozen=True)
class Reference:
    """A loss from its definition, in extended precision."""

    targets: tuple[float, ...]
    #: value and two derivatives at (y, m)
    exact: Callable[[np.longdouble, np.longdouble], tuple[object, object, object]]
    #: conjugate at (y, u), u inside the domain
    conjugate: Callable[[float, float], float]
    #: margin up to which the quadratic with the curvature of the majorant at m lies above, at (y, m)
    above: Callable[[float, float], float] = lambda y, m: math.inf
    #: margin from which on the loss is not as it is defined, which keeps sums finite
    most: float = math.inf


def _logistic(y: np.longdouble, m: np.longdouble) -> tuple[object, object, object]:
    zero, z = Long(0.0), y * m
    wrong, right = np.exp(-np.logaddexp(zero, z)), np.exp(-np.logaddexp(zero, -z))
    return np.logaddexp(zero, -z), -y * wrong, wrong * right


def _hinge(y: np.longdouble, m: np.longdouble) -> tuple[object, object, object]:
    h = Long(1.0) - y * m
    return (h**2, -2 * y * h, 2.0) if h > 0 else (0.0, 0.0, 0.0)


def _huber(y: np.longdouble, m: np.longdouble) -> tuple[object, object, object]:
    away, delta = m - y, Long(0.7)
    if abs(away) <= delta:
        return away**2, 2 * away, 2.0
    return delta * (2 * abs(away) - delta), 2 * delta * np.sign(away), 0.0


def _pinball(y: np.longdouble, m: np.longdouble) -> tuple[object, object, object]:
    u, tau, width = y - m, Long(0.9), Long(0.25)
    if u > tau * width:
        return tau * u - tau**2 * width / 2, -tau, 0.0
    if u < -(1 - tau) * width:
        return (tau - 1) * u - (1 - tau) ** 2 * width / 2, 1 - tau, 0.0
    return u**2 / (2 * width), -u / width, 1 / width


def _poisson(y: np.longdouble, m: np.longdouble) -> tuple[object, object, object]:
    e = np.exp(m)
    return e - y * m + (y * np.log(y) if y else 0) - y, e - y, e


def _xlogx(v: float) -> float:
    return v * np.log(v) if v > 0.0 else 0.0


def _entropy(y: float, u: float) -> float:
    a = min(max(-y * u, 0.0), 1.0)
    return sum(x * np.log(x) for x in (a, 1.0 - a) if x > 0.0)


#: The test table, with one entry for each loss.
TABLE = {
    "logistic": Reference((-1.0, 1.0), _logistic, _entropy),
    "squared": Reference(
        (-3.25, 0.0, 1e3),
        lambda y, m: ((y - m) ** 2, 2 * (m - y), 2.0),
        lambda y, u: u * u / 4 + u * y,
    ),
    "huber:delta=0.7": Reference((-3.25, 0.45, 1e3), _huber, lambda y, u: u * u / 4 + u * y),
    "pinball:tau=0.9,width=0.25": Reference(
        (-3.25, 0.0, 1e3), _pinball, lambda y, u: u * u / 8 + u * y
    ),
    "poisson": Reference(
        (0.0, 3.0, 0.25),
        _poisson,
        lambda y, u: _xlogx(y + u) - _xlogx(y) - u,
        above=lambda y, m: max(m, math.log(y)) if y else m,
        most=300.0,
    ),
    "squared_hinge": Reference(
        (-1.0, 1.0), _hinge, lambda y, u: max(-y * u, 0.0) ** 2 / 4 - max(-y * u, 0.0)
    ),
}

each_loss = pytest.mark.parametrize("name", TABLE)


def exact(name: str, y: float, m: float) -> tuple[float, float, float]:
    value, slope, curvature = TABLE[name].exact(Long(y), Long(m))
    return float(value), float(slope), float(curvature)  # type: ignore[arg-type]


def test_every_loss_is_in_the_table_with_a_code_of_its_own() -> None:
    assert {find_loss(name).name for name in TABLE} == set(LOSSES)
    assert len({kind.code for kind in LOSSES.values()}) == len(LOSSES)


def test_a_code_without_a_branch_is_an_error() -> None:
    nobody = (-1, 0.0, 0.0)
    for function in (losses.loss_value, losses.loss_slope_curvature, losses.conjugate):
        with pytest.raises(ValueError, match=r"no branch"):
            function(nobody, 1.0, 0.5)
    with pytest.raises(ValueError, match=r"no branch"):
        losses.majorant(nobody, 1.0, 0.5, 1.0)
    with pytest.raises(ValueError, match=r"no branch"):
        losses.losses(nobody, np.ones(1), np.ones(1), np.ones(1))


@each_loss
@pytest.mark.parametrize("m", SIGNED)
def test_value_and_derivatives(name: str, m: float) -> None:
    loss = find_loss(name).kernel
    for y in TABLE[name].targets:
        value, slope, curvature = exact(name, y, min(m, TABLE[name].most))
        found = (losses.loss_value(loss, y, m), *losses.loss_slope_curvature(loss, y, m))
        assert all(math.isfinite(x) for x in found)
        if m > TABLE[name].most:
            assert all(
                x >= least for x, least in zip(found, (value, slope, curvature), strict=True)
            )
            continue
        # the hinge is a difference first, and that is rounded
        absolute = 1e-15 * (1.0 + abs(m)) ** 2 if name == "squared_hinge" else 1e-300
        assert found == pytest.approx((value, slope, curvature), rel=RELATIVE, abs=absolute)


@each_loss
@given(m=st.floats(-12.0, 12.0), away=st.floats(-12.0, 12.0))
@examples(60)
def test_a_quadratic_of_the_majorant_lies_above(name: str, m: float, away: float) -> None:
    kind = find_loss(name)
    for y in TABLE[name].targets[:2]:
        slope, curvature = losses.loss_slope_curvature(kind.kernel, y, m)
        most = max(curvature, losses.majorant(kind.kernel, y, m, 1.0))
        value = losses.loss_value(kind.kernel, y, m)
        away = min(away, TABLE[name].above(y, m) - m)
        above = value + slope * away + 0.5 * most * away**2
        assert losses.loss_value(kind.kernel, y, m + away) <= above + 1e-12 * (1.0 + abs(above))
        for share in (1e-3, 0.1):  # it grows with the share
            less = losses.majorant(kind.kernel, y, m, share)
            assert 0.0 <= less <= most


@each_loss
@given(m=st.floats(-30.0, 30.0), s=st.floats(1e-3, 1e3))
@examples(60)
def test_conjugate_at_the_slope_is_fenchels_equality(name: str, m: float, s: float) -> None:
    # loss(m) + loss*(u) = u m at u = loss'(m); elsewhere it is more
    loss, balance, work = find_loss(name).kernel, (0.0, 1.0, 1.0), losses.workspace()
    for y in TABLE[name].targets:
        slope, _ = losses.loss_slope_curvature(loss, y, m)
        Y, S, R = np.array([y]), np.array([s]), np.array([s * slope])
        found = losses.conjugate_sum(loss, Y, S, np.empty(0), R, balance, 1.0, work) / s
        value = losses.loss_value(loss, y, m)
        scale = 1e-13 * (1.0 + abs(value) + abs(slope * m) + slope**2)
        assert found == pytest.approx(slope * m - value, abs=scale)
        for t in (0.0, 0.5, 0.9):
            half = losses.conjugate_sum(loss, Y, S, np.empty(0), R, balance, t, work) / s
            assert half == pytest.approx(TABLE[name].conjugate(y, t * slope), abs=scale)
            assert half >= t * slope * m - value - scale


@each_loss
def test_domains(name: str) -> None:
    """Slopes lie in the domain, which holds 0, where the conjugate is 0; its edge takes rounding."""
    loss = find_loss(name)
    y = np.array(TABLE[name].targets)
    low, high = (np.broadcast_to(end, y.shape) for end in loss.domain(y))
    assert (low <= 0.0).all() and (high >= 0.0).all()
    for yi, a, b in zip(y, low, high, strict=True):
        assert losses.conjugate(loss.kernel, yi, 0.0) == 0.0
        slopes = [losses.loss_slope_curvature(loss.kernel, yi, m)[0] for m in SIGNED]
        assert all(a <= u <= b for u in slopes) and slopes == sorted(slopes)  # convex
        # the domain is no wider than the slopes: residuals beyond them would give false bounds
        assert not math.isfinite(a) or min(slopes) == pytest.approx(a, abs=1e-12)
        assert not math.isfinite(b) or max(slopes) == pytest.approx(b, abs=1e-12)
        for u in (-1e-3, 1e-3):  # where a formula that cancels would lose half of its digits
            if a <= u <= b:
                expected = float(TABLE[name].conjugate(Long(yi), Long(u)))
                assert losses.conjugate(loss.kernel, yi, u) == pytest.approx(expected, rel=1e-12)
        for edge, out in ((a, -1.0), (b, 1.0)):
            if math.isfinite(edge):
                at = losses.conjugate(loss.kernel, yi, edge)
                beyond = losses.conjugate(loss.kernel, yi, edge + out * 1e-15 * (1.0 + abs(edge)))
                assert math.isfinite(at) and beyond == pytest.approx(at, abs=1e-12)
            else:
                assert math.isfinite(losses.conjugate(loss.kernel, yi, out * 1e3))
    kernel = loss.kernel
    moved = [
        losses.loss_value(kernel, yi, 0.4) - losses.loss_value(kernel, yi - 0.125, 0.275)
        for yi in y
    ]
    assert loss.translates == (np.abs(moved).max() < 1e-9)
    assert loss.unbounded == bool((np.isinf(low) & np.isinf(high)).all())
    assert loss.conic == bool(
        ((low == 0.0) | np.isinf(low)).all() and ((high == 0.0) | np.isinf(high)).all()
    )


@each_loss
@given(m=st.floats(-12.0, 12.0))
@examples(40)
def test_jumps_of_the_curvature(name: str, m: float) -> None:
    """The slope of a clipped loss is linear in the margin, clipped to the domain of the dual."""
    loss = find_loss(name)
    if not loss.clipped:
        return
    y = np.array(TABLE[name].targets)
    low, high = np.broadcast_arrays(*loss.domain(y), y)[:2]
    for yi, least, most in zip(y, low, high, strict=True):
        slope, curvature = losses.loss_slope_curvature(loss.kernel, yi, m)
        curvature_inside = loss.most_curvature
        wanted = curvature_inside * (m - yi)
        inside = curvature_inside if least <= wanted <= most else 0.0
        expected = min(max(wanted, least), most), inside
        if wanted not in (least, most):  # where the curvature jumps either will do
            assert (slope, curvature) == pytest.approx(expected, abs=1e-14 * (1.0 + abs(m)))


#: Sums go over tiles of 256 rows.
sizes = st.integers(1, 70) | st.sampled_from([255, 256, 257, 512, 600])


@given(sizes, st.integers(0, 2**31), st.sampled_from(list(TABLE)))
@examples(60)
def test_sums_of_the_dual(n: int, seed: int, name: str) -> None:
    rng = np.random.default_rng(seed)
    loss = find_loss(name)
    y, s, m = rng.choice(TABLE[name].targets, n), rng.exponential(size=n) + 1e-3, rng.normal(size=n)
    r, q = np.empty(n), np.empty(n)
    losses.residuals_curvatures(loss.kernel, y, s, m, 0.0, r, q)
    low, high, t = rng.uniform(0.1, 1, 3)
    sides = np.empty(2)
    losses.side_sums(r, sides)
    np.testing.assert_allclose(sides, [r[r < 0].sum(), r[r > 0].sum()], rtol=1e-13, atol=1e-13)

    balance = (0.3, 1.0, 1.0) if loss.unbounded else (0.0, low, high)
    balanced = np.where(r < 0, balance[1] * r, balance[2] * r) - balance[0] * s
    offset = rng.normal(size=n)
    size = 1.0 + np.abs(balanced).sum() * (1.0 + np.abs(y).max() + np.abs(offset).max())
    for o in (np.empty(0), offset):
        own = o if len(o) else np.zeros(n)
        two = np.empty(2)
        losses.ray_sums(y, s, o, r, balance, two)
        expected = [balanced @ (y - own), (balanced**2 / s).sum()]
        np.testing.assert_allclose(two, expected, rtol=1e-12, atol=1e-14 * size)
        found = losses.conjugate_sum(loss.kernel, y, s, o, r, balance, t, losses.workspace())
        terms = [
            si * (TABLE[name].conjugate(yi, t * bi / si) - t * bi / si * oi)
            for yi, si, bi, oi in zip(y, s, balanced, own, strict=True)
        ]
        assert found == pytest.approx(sum(terms), abs=1e-12 * (np.abs(terms).sum() + size))


# -- objectives ------------------------------------------------------------------------------------

all_losses = pytest.mark.parametrize("loss", ALL_LOSSES)
N = 300  #: sums go over tiles of 256 rows


@cache
def solved(loss: str, intercept: bool, rho: float, C: float) -> tuple[Problem, Solution]:
    """A problem with its optimum; two columns are nearly constant, so that balancing changes prices."""
    y, random = targets(loss, N), np.random.default_rng(3)
    narrow = np.stack([np.arange(N) >= 4, y <= np.median(y)], axis=1)
    phi = np.hstack([kmer_matrix(acceptors(10, N)[0], 2), narrow])
    s = random.uniform(0.1, 3.0, N)
    problem = Problem(phi, y, s, loss, C * STRENGTHS[loss], intercept, rho)
    if rho < 1.0:
        problem = replace(problem, factors=random.uniform(0.5, 2.0, phi.shape[1]))
    return problem, problem.solve(1e-9)


def bound_of(problem: Problem, r: np.ndarray, more: float = 1.0) -> float:
    """fcl's bound from residuals and the prices of the features; more : how far those are above."""
    objective = objective_of(problem)
    sizes = (np.abs(r @ problem.phi) * more + objective.imbalance(r)) / problem.f
    above = np.maximum(sizes - objective.penalty.limit(problem.C), 0.0)
    excess = float(problem.f @ above**2)
    plain = objective.dual_bound(r, float(sizes.max()))
    both = objective.dual_bound(r, float(sizes.max()), excess)
    assert plain <= both
    return both


@pytest.mark.parametrize("block_rows", [64, N, 65536])
@all_losses
def test_values_residuals_and_lines(loss: str, block_rows: int) -> None:
    problem, _ = solved(loss, True, 1.0, 0.7)
    objective = objective_of(problem, block_rows)
    m, dm = np.random.default_rng(0).normal(size=(2, N)) * 3.0
    at = m + 0.7 * dm - 0.4
    total = problem.s @ problem.losses(at)
    assert objective.value(2.5, at, 0.0) == pytest.approx(2.5 + problem.C * total, rel=1e-14)
    r, q = np.empty((2, N))
    objective.residuals_curvatures(m, r, q, 0.3)
    assert r == pytest.approx(problem.s * problem.slopes(m + 0.3), rel=1e-13, abs=1e-300)
    assert q == pytest.approx(problem.s * problem.bends(m + 0.3), rel=1e-13, abs=1e-300)
    sums = objective.line_sums(m, dm, 0.7, -0.4)
    r, q = problem.s * problem.slopes(at), problem.s * problem.bends(at)
    expected = [total, r.sum(), q.sum(), r @ dm, q @ dm**2, q @ dm]
    found = [sums.value, sums.slope_b, sums.curve_b, sums.slope_beta, sums.curve_beta, sums.cross]
    assert found == pytest.approx(expected, rel=1e-12)


@all_losses
def test_no_overflow_at_huge_margins(loss: str) -> None:
    problem, _ = solved(loss, True, 1.0, 0.7)
    objective = objective_of(problem)
    for size in (40.0, 250.0, 700.0, 1e4, 1e8):
        m = np.where(np.arange(N) % 2 == 0, size, -size)
        r, q = np.empty((2, N))
        objective.residuals_curvatures(m, r, q)
        assert np.isfinite([r, q]).all() and (q >= 0.0).all()
        if loss != "poisson" or size < 300.0:  # beyond, neither is as it is defined
            expected = problem.s @ problem.losses(m)
            assert objective.loss_sum(m, 0.0) == pytest.approx(expected, rel=1e-12)
        assert np.isfinite(objective.dual_bound(r, 1.0 + objective.imbalance(r)))


@all_losses
@pytest.mark.parametrize("far", [1e4, -1e4])
def test_the_best_intercept_from_far_and_at_huge_margins(loss: str, far: float) -> None:
    problem, _ = solved(loss, True, 1.0, 0.7)
    m = np.random.default_rng(0).normal(size=N)
    near = check_intercept(problem, m)
    assert check_intercept(problem, m, far) == pytest.approx(near, rel=1e-9)
    assert check_intercept(problem, far + m) == pytest.approx(near - far, rel=1e-9)
    # both signs at once: each side is flat at 0
    check_intercept(problem, np.where(np.arange(N) % 2 == 0, far, -far) + m)


def check_intercept(problem: Problem, m: np.ndarray, guess: float = 0.0) -> float:
    """The slope in b is 0 at the b found, within rounding of the sum, the margins and b."""
    b = objective_of(problem).best_intercept(m, guess)
    slopes = problem.s * problem.slopes(m + b)
    digits = 1e-15 * (abs(b) + np.abs(m).max()) * (problem.s @ problem.bends(m + b))
    assert abs(slopes.sum()) <= 1e-13 * np.abs(slopes).sum() + digits, (b, slopes.sum())
    return b


@pytest.mark.skipif(INTERPRETED, reason="too many rows, one by one")
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_best_intercept_of_one_positive_in_a_hundred_thousand(loss: str) -> None:
    n = 100_000
    y = np.full(n, -1.0)
    y[777] = 1.0
    problem = Problem(np.zeros((n, 1)), y, np.ones(n), loss, 1.0)
    expected = -np.log(n - 1.0) if loss == "logistic" else 2.0 / n - 1.0
    assert check_intercept(problem, np.zeros(n)) == pytest.approx(expected, rel=1e-12)
    check_intercept(problem, np.where(y > 0, -50.0, 30.0))


def test_the_best_intercept_of_a_flat_squared_hinge() -> None:
    """All rows beyond the hinge: any b of an interval is best, and a finite one is found."""
    y = np.repeat([1.0, -1.0], 50)
    problem = Problem(np.zeros((100, 1)), y, np.ones(100), "squared_hinge", 1.0)
    objective = objective_of(problem)
    b = objective.best_intercept(10.0 * y)
    assert abs(b) <= 9.0 and objective.loss_sum(10.0 * y, b) == 0.0
    # far outside of that interval, where only one side has residuals
    assert -9.0 - 1e-9 <= objective.best_intercept(10.0 * y, 500.0) <= 9.0 + 1e-9
    assert objective_of(replace(problem, intercept=False)).best_intercept(10.0 * y, 3.0) == 0.0


@pytest.mark.parametrize("rho", [1.0, 0.5, 0.01])
@pytest.mark.parametrize("intercept", [True, False])
@all_losses
def test_the_bound_is_tight_at_the_optimum(loss: str, intercept: bool, rho: float) -> None:
    problem, best = solved(loss, intercept, rho, 0.7)
    objective = objective_of(problem)
    assert objective.dual_bound(np.zeros(N), 0.0) == 0.0
    for share in (1.0, 0.5, 0.0):
        b = objective.best_intercept(problem.margins(share * best.w, 0.0))
        r = problem.residuals(share * best.w, b)
        bound = bound_of(problem, r)
        assert bound <= best.objective * (1.0 + 1e-12)
        if share == 1.0:
            assert bound == pytest.approx(best.objective, rel=1e-8)
        if rho == 1.0:
            assert bound == pytest.approx(problem.bound(r), rel=1e-9, abs=1e-9)


@settings(max_examples=90)
@given(data=st.data())
def test_no_residuals_give_too_high_a_bound(data: st.DataObject) -> None:
    """Also far from any optimum, unbalanced, with residuals on one side only, and of another problem."""
    loss, intercept = data.draw(st.sampled_from(ALL_LOSSES)), data.draw(st.booleans())
    rho = data.draw(st.sampled_from([1.0, 0.9, 0.01]))
    C = data.draw(st.sampled_from([0.7, 0.7, 1e-5]))  # with the last, only the balance bounds
    problem, best = solved(loss, intercept, rho, C)
    at = solved(loss, data.draw(st.booleans()), rho, C)[1]
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    w = at.w * data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    w = w + random.normal(size=len(w)) * data.draw(st.sampled_from([0.0, 1e-6, 0.1, 5.0]))
    b = at.b + data.draw(st.sampled_from([0.0, 1e-9, -0.3, 4.0, -200.0, 1e4]))
    m = problem.margins(w, b)
    m = m + random.normal(size=N) * data.draw(st.sampled_from([0.0, 0.0, 1.0, 20.0]))
    r = problem.s * problem.slopes(m)
    one_sided = data.draw(st.sampled_from([None, 1.0, -1.0])) if loss != "squared" else None
    if one_sided is not None:
        r[np.sign(r) == one_sided] = 0.0
    bound = bound_of(problem, r, data.draw(st.sampled_from([1.0, 1.0, 2.0])))
    assert np.isfinite(bound) and bound <= best.objective * (1.0 + 1e-12)
    if one_sided is not None and intercept:
        assert bound == 0.0


# -- softmax ---------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), K=st.integers(2, 5))
@examples(60)
def test_softmax(seed: int, K: int) -> None:
    """Values, residuals, curvatures and lines by definition; convex; its bound is a lower one."""
    random = np.random.default_rng(seed)
    y, s = random.permutation(np.arange(40.0) % K), random.uniform(0.1, 3.0, 40)
    phi = random.normal(size=(40, 3))
    problem = ClassProblem(phi=phi, y=y, s=s, K=K, C=0.3, f=np.ones(3))
    objective = SoftmaxOutputs(find_loss("softmax"), y, s, 0.3, n_classes=K, block_rows=64)
    m, dm = random.normal(size=(2, K, 40)) * 3.0
    r, q = np.empty((2, K, 40))
    objective.residuals_curvatures(m, r, q)
    p = softmax(m, axis=0)
    np.testing.assert_allclose(r, s * (p - problem.hot.T), rtol=0, atol=1e-14)
    np.testing.assert_allclose(q, s * p * (1.0 - p), rtol=0, atol=1e-14)
    low, middle, high = (objective.loss_sum(m + beta * dm) for beta in (-1.0, 0.0, 1.0))
    assert middle == pytest.approx(s @ problem.general.losses(m.T), rel=1e-13)
    assert low + high >= 2.0 * middle  # convex
    assert low >= middle - (r * dm).sum() and high >= middle + (r * dm).sum()
    for beta in (0.0, 0.4):
        sums, up, down = (objective.line_sums(m, dm, beta + h) for h in (0.0, 1e-4, -1e-4))
        assert sums.value == pytest.approx(objective.loss_sum(m + beta * dm), rel=1e-13)
        slope, curve = (up.value - down.value) / 2e-4, (up.slope_beta - down.slope_beta) / 2e-4
        assert sums.slope_beta == pytest.approx(slope, rel=1e-5, abs=1e-5)
        assert sums.curve_beta == pytest.approx(curve, rel=1e-5, abs=1e-5)
    # any dual point is below any primal one
    objective.fit_unpenalised(m)
    objective.residuals_curvatures(m, r, q)
    bound = objective.dual_bound(r, float(np.abs(r @ phi).max()))
    for scale in (0.0, 0.1, 1.0):
        W = scale * random.normal(size=(3, K))
        assert bound <= problem.objective(W, random.normal(size=K))
