"""Objectives of several outputs, against the judge, plain numpy, scikit-learn and one-output problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from judge import Problem
from judge_outputs import ClassProblem
from scipy.special import logsumexp, softmax

from fcl.features.prices import RowVector
from fcl.objective import (
    COUPLED_LOSSES,
    LOSSES,
    GroupPenalty,
    Objective,
    Penalty,
    SeparateOutputs,
    SingleOutput,
    SoftmaxOutputs,
    find_loss,
    make_objective,
)

SOFTMAX = find_loss("softmax")


def class_problem(seed: int, n: int = 40, p: int = 6, **fixed: Any) -> ClassProblem:
    """A random problem with 2 to 5 classes, one of them perhaps of a single row."""
    random = np.random.default_rng(seed)
    K = int(random.integers(2, 6))
    y = random.integers(0, K, n)
    y[:K] = np.arange(K)
    if seed % 3 == 0:
        y[K:][y[K:] == 0] = 1
    chosen = {
        "rho": float(random.choice([1.0, 1.0, 0.6])),
        "group": bool(random.integers(2)),
        "intercept": bool(random.integers(4)),
        "offset": random.normal(size=(n, K)) if random.integers(3) == 0 else 0.0,
    }
    return ClassProblem(
        phi=random.normal(size=(n, p)) * (random.random((n, p)) < 0.7),
        y=y.astype(float),
        s=random.uniform(0.1, 3.0, n),
        K=K,
        C=float(10.0 ** random.uniform(-1.5, 0.5)),
        f=random.uniform(0.5, 2.0, p),
        **(chosen | fixed),
    )


def outputs_of(problem: ClassProblem, **rest: Any) -> SoftmaxOutputs:
    """fcl's objective of the judge's problem."""
    offset = None
    if isinstance(problem.offset, np.ndarray):
        offset = np.ascontiguousarray(problem.offset.T)
    kind = GroupPenalty if problem.group else Penalty
    common: Any = {"intercept": problem.intercept, "penalty": kind(problem.rho), "offset": offset}
    made = make_objective(SOFTMAX, problem.y, problem.s, problem.C, problem.K, **common | rest)
    assert isinstance(made, SoftmaxOutputs)
    return made


def margins_of(problem: ClassProblem, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(problem.margins(W, b).T)


def curvatures_of(objective: Objective, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r, q = np.empty((2, *m.shape))
    objective.residuals_curvatures(m, r, q)
    return r, q


def residuals_of(objective: Objective, m: np.ndarray) -> np.ndarray:
    return curvatures_of(objective, m)[0]


def bound_of(objective: SoftmaxOutputs, problem: ClassProblem, r: np.ndarray, raw: bool) -> float:
    """fcl's bound with prices of raw residuals and an allowance, or of balanced residuals."""
    priced = r
    if not raw:
        A = problem.balanced(problem.hot + r.T / problem.s[:, None])
        priced = (problem.s[:, None] * (A - problem.hot)).T
    sizes = problem.size(problem.phi.T @ priced.T)
    each = np.abs(problem.phi.T @ priced.T)
    if raw:
        delta, reach = objective.imbalance(r), np.abs(problem.phi).max(axis=0)
        sizes = sizes + problem.size(np.outer(reach, delta))
        each = each + np.outer(reach, delta)
    if problem.group:
        each = sizes[:, None]
    f = problem.f[:, None]
    excess = np.sum(f * np.maximum(each / f - objective.penalty.limit(problem.C), 0.0) ** 2)
    return objective.dual_bound(r, float((sizes / problem.f).max()), float(excess))


# -- values, residuals, lines ----------------------------------------------------------------------


def test_no_digit_is_lost_where_a_class_has_nearly_all_probability() -> None:
    """Against extended precision: 1 - p is 1e-20 and less, beside p = 1."""
    m = np.array([[50.0, 900.0, -3.0, 1e5], [0.0, 0.0, 44.0, 1e5], [-2.0, 0.0, 3.0, -1e5]])
    y, s = np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 2.0, 0.5, 1.0])
    objective = SoftmaxOutputs(SOFTMAX, y, s, 1.0, n_classes=3)
    exact = m.astype(np.longdouble)
    e = np.exp(exact - exact.max(axis=0))
    e /= e.sum(axis=0)
    hot = np.eye(3)[y.astype(int)].T
    others = np.stack([np.delete(e, k, axis=0).sum(axis=0) for k in range(3)])
    r, q = curvatures_of(objective, m)
    np.testing.assert_allclose(r, (s * np.where(hot == 1, -others, e)).astype(float), rtol=1e-15)
    np.testing.assert_allclose(q, (s * e * others).astype(float), rtol=1e-15)
    alone = SoftmaxOutputs(SOFTMAX, y[:1], s[:1], 1.0, n_classes=3)
    expected = np.log1p(np.exp(np.longdouble(-50)) + np.exp(np.longdouble(-52)))
    assert alone.loss_sum(np.ascontiguousarray(m[:, :1])) == pytest.approx(
        float(expected), rel=1e-15
    )


# -- intercepts ------------------------------------------------------------------------------------


def check_fit(objective: Objective, m: np.ndarray, limit: float = 1e-13) -> np.ndarray:
    fitted = m.copy()
    found = objective.fit_unpenalised(fitted)
    np.testing.assert_array_equal(fitted, m + found.x[:, None])
    balance = objective.free_sums(residuals_of(objective, fitted))
    assert np.abs(balance).max() <= limit * objective.s.sum()
    fall = objective.loss_sum(m) - objective.loss_sum(fitted)
    assert found.decrease == pytest.approx(fall, rel=1e-9, abs=1e-9 * objective.loss_sum(m))
    return found.x


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1e3])
@pytest.mark.parametrize("rare", [False, True])
def test_intercepts_from_any_distance(scale: float, rare: bool) -> None:
    problem = class_problem(6 if rare else 7, n=300)
    objective = outputs_of(problem, intercept=True)
    m = np.random.default_rng(1).normal(size=(problem.K, 300)) * scale
    x = check_fit(objective, m, 1e-13 * max(1.0, scale))
    assert abs(x.sum()) <= 1e-13 * max(1.0, np.abs(x).max())
    if scale == 0.0:
        share = problem.s @ problem.hot / problem.s.sum()
        assert softmax(x) == pytest.approx(share, rel=1e-12)


def test_intercepts_of_one_row_in_a_million_and_of_many_classes() -> None:
    n = 100_000
    y = np.zeros(n)
    y[17], y[50:90] = 2.0, 1.0
    s = np.ones(n)
    s[17] = 0.1
    objective = SoftmaxOutputs(SOFTMAX, y, s, 1.0, n_classes=3)
    m = np.random.default_rng(0).normal(size=(3, n))
    check_fit(objective, m)
    K = 300  # the Hessian of a share of the rows
    y = np.arange(6000.0) % K
    many = SoftmaxOutputs(SOFTMAX, y, np.ones(6000), 1.0, n_classes=K)
    m = np.random.default_rng(0).normal(size=(K, 6000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fcl.objective.class_intercepts.MOST_PRODUCTS", 0.0)
        check_fit(many, m)


def test_intercepts_with_further_terms() -> None:
    problem = class_problem(8, n=200)
    objective, random = outputs_of(problem, intercept=True), np.random.default_rng(0)
    m = random.normal(size=(problem.K, 200))
    slope, floor = random.normal(size=problem.K), random.uniform(0.1, 5.0, problem.K)
    fitted = m.copy()
    found = objective.fit_unpenalised(fitted, slope, floor)
    left = objective.free_sums(residuals_of(objective, fitted)) + slope + floor * found.x
    assert np.abs(left).max() <= 1e-12 * problem.s.sum()
    assert not outputs_of(problem, intercept=False).fit_unpenalised(m).x.size


def test_samples_of_rows() -> None:
    problem = class_problem(4, n=100)
    objective = outputs_of(problem, offset=np.ones((problem.K, 100)))
    rows, s = np.array([3, 50, 99]), np.array([1.0, 2.0, 3.0])
    part = objective.take(rows, s)
    m = np.random.default_rng(0).normal(size=(problem.K, 100))
    all_rows = replace(objective, s=np.ones(100))
    expected = residuals_of(all_rows, m)[:, rows] * s
    assert residuals_of(part, np.ascontiguousarray(m[:, rows])) == pytest.approx(expected)
    assert part.n_outputs == problem.K and part.offset is None and part.n_rows == 3


# -- the certificate -------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_bound_is_above_the_optimum() -> None:
    """300 random problems: at the optimum, at a point near it, or at any point."""
    gaps = []
    for seed in range(300):
        problem, random = class_problem(seed, 24, 4), np.random.default_rng(seed)
        objective = outputs_of(problem, block_rows=64)
        W, b = problem.solve()
        best = problem.objective(W, b)
        noise = (0.0, 0.01, 1.0)[seed // 2 % 3]
        own = W + noise * random.normal(size=W.shape)
        m = margins_of(problem, own, b)
        if noise < 1.0:
            objective.fit_unpenalised(m)
        r = residuals_of(objective, m)
        exact = problem.bound(r.T)
        bound = bound_of(objective, problem, r, False)
        assert bound == pytest.approx(exact, rel=1e-9, abs=1e-10)
        assert max(exact, bound, bound_of(objective, problem, r, True)) <= best * (1.0 + 1e-12)
        if noise == 0.0:
            gaps.append((best - bound) / best)
    # the bounds are worth something
    assert np.median(gaps) < 1e-6 and np.quantile(gaps, 0.9) < 0.01


@pytest.mark.parametrize("step", [0.0, 2.0**-20, 2.0**-60])
def test_closed_residuals_are_a_dual_point_on_the_grid(step: float) -> None:
    for seed in range(5):
        problem = class_problem(seed)
        objective = outputs_of(problem)
        m = np.random.default_rng(seed).normal(size=(problem.K, 40)) * 10.0
        r = residuals_of(objective, m)
        closed = r.copy()
        used = max(step, objective.least_step)
        for rows in objective.blocks():
            objective.close(rows, closed, used)
        once = closed.copy()
        objective.close(slice(0, 40), closed, used)
        assert np.array_equal(closed, once)
        largest = max(np.abs(own).sum() for own in r)
        assert largest <= objective.residual_sum(r, objective.loss_sum(m))
        assert largest <= objective.residual_sum(r, np.inf)
        exact = [sum(map(int, column * 2.0**900)) for column in closed.T.astype(object)]
        assert not any(exact)
        others = np.where(problem.hot.T == 1, 0.0, closed)
        assert (others >= 0.0).all() and (np.abs(closed) <= np.abs(r) * (1 + 1e-15)).all()
        assert np.abs(closed - r).max() <= problem.K * max(used, 1e-15)
        for own in closed:
            assert (RowVector(own, used)[:] == own).all()
        rows = [RowVector(own, used) for own in closed]
        own = problem.bound(closed.T)
        assert bound_of(objective, problem, closed, False) == pytest.approx(own, rel=1e-9)
        bound = objective.dual_bound(rows, 1.0)
        assert bound == objective.dual_bound(closed, 1.0)


# -- separate losses -------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
@pytest.mark.parametrize("rho", [1.0, 0.5])
def test_separate_outputs_are_their_parts(loss: str, rho: float) -> None:
    random = np.random.default_rng(0)
    n, K = 150, 3
    kind = find_loss(loss)
    y = np.sign(random.normal(size=(K, n))) if kind.classifies else random.normal(size=(K, n))
    s, offset = random.uniform(0.3, 2.0, n), random.normal(size=(K, n))
    phi, f = random.normal(size=(n, 8)), random.uniform(0.5, 2.0, 8)
    objective = make_objective(
        kind, y, s, 0.05, K, penalty=Penalty(rho), offset=offset, block_rows=64
    )
    assert isinstance(objective, SeparateOutputs) and objective.n_outputs == objective.n_free == K
    judges = [Problem(phi, y[k], s, loss, 0.05, True, rho, f, offset[k]) for k in range(K)]
    m, dm = random.normal(size=(2, K, n))
    m += offset
    expected = sum(float(s @ judge.losses(m[k])) for k, judge in enumerate(judges))
    assert objective.loss_sum(m) == pytest.approx(expected, rel=1e-13)
    r, _ = curvatures_of(objective, m)
    assert r == pytest.approx(np.stack([s * j.slopes(m[k]) for k, j in enumerate(judges)]))
    h = 1e-6
    sums, up, down = (objective.line_sums(m, dm, beta) for beta in (0.0, h, -h))
    assert sums.slope_beta == pytest.approx((up.value - down.value) / (2 * h), abs=1e-4)
    check_fit(objective, m)
    objective.fit_unpenalised(m)
    r = residuals_of(objective, m)
    assert objective.least_step == 0.0
    assert objective.residual_sum(r, np.inf) == pytest.approx(np.abs(r).sum(axis=1).max())
    assert objective.parts[1].loss_sum(m[1], 0.0) == pytest.approx(s @ judges[1].losses(m[1]))
    v = np.abs(r @ phi) / f
    limit = objective.penalty.limit(0.05)
    excess = (f * np.maximum(v - limit, 0.0) ** 2).sum(axis=1)
    bound = objective.dual_bound(r, v.max(axis=1), excess)
    optima = [judge.solve() for judge in judges]
    best = sum(solution.objective for solution in optima)
    assert bound <= best * (1.0 + 1e-12)
    single = [p.dual_bound(r[k], v[k].max(), excess[k]) for k, p in enumerate(objective.parts)]
    assert bound == pytest.approx(sum(single), rel=1e-13)
    total = objective.dual_bound(r, v.max(axis=1), float(excess.sum()))
    assert total <= bound * (1.0 + 1e-13)
    grouped = replace(objective, penalty=GroupPenalty(rho))
    norms = np.linalg.norm(r @ phi, axis=0) / f
    excess_of_norms = float((f * np.maximum(norms - limit, 0.0) ** 2).sum())
    assert grouped.dual_bound(r, norms.max(), excess_of_norms) <= best * (1.0 + 1e-12)


# -- the loss --------------------------------------------------------------------------------------


def test_the_loss_by_name() -> None:
    assert SOFTMAX.couples and not any(kind.couples for kind in LOSSES.values())
    assert SOFTMAX.text == "softmax" and "softmax" in COUPLED_LOSSES and "softmax" not in LOSSES
    m = np.random.default_rng(0).normal(size=(3, 7)) * 300.0
    assert SOFTMAX.mean(m) == pytest.approx(softmax(m, axis=0), abs=1e-15)
    y, s = np.arange(7.0) % 3, np.arange(1.0, 8.0)
    expected = np.average(logsumexp(m, axis=0) - m[y.astype(int), np.arange(7)], weights=s)
    assert SOFTMAX.score(y, s, m) == pytest.approx(expected, rel=1e-13)
    assert not SOFTMAX.higher_is_better and np.isnan(SOFTMAX.score(y[:0], s[:0], m[:, :0]))
    SOFTMAX.check_targets(y, "y")
    for name in LOSSES:  # a bound of the second derivative
        q, r = np.empty((2, 100))
        y = np.sign(np.random.default_rng(0).normal(size=100))
        loss = find_loss(name)
        y = y if loss.classifies else np.abs(y)
        one = SingleOutput(loss, y, np.ones(100), 1.0)
        one.residuals_curvatures(np.linspace(-5.0, 5.0, 100), r, q)
        assert q.max() <= loss.most_curvature
        assert name == "poisson" or q.max() > 0.99 * loss.most_curvature
