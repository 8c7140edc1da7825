"""The search along a step, against a fine grid of beta with the intercept at its best."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import objective_of
from judge import LOSSES, Problem, kmer_matrix
from rows import acceptors, pyrimidines

from fcl.objective import SingleOutput
from fcl.solve.search import MAX_BETA, Found, search
from fcl.solve.state import Anchor, Point

N = 200


def problem_of(loss: str, intercept: bool, rho: float = 1.0) -> Problem:
    codes, labels = acceptors(10, N)
    y = pyrimidines(N) if loss == "squared" else labels
    s = np.random.default_rng(1).uniform(0.2, 2.0, N)
    C = {"logistic": 0.5, "squared": 0.03, "squared_hinge": 0.2}[loss]
    phi = kmer_matrix(codes, 2)
    f = None if rho == 1.0 else np.random.default_rng(2).uniform(0.5, 2.0, phi.shape[1])
    return Problem(phi, y, s, loss, C, intercept, rho, f)


def sparse_point(random: np.random.Generator, p: int, size: float) -> Point:
    ids = np.sort(random.choice(p, 12, replace=False))
    return Point(ids, size * random.normal(size=12), 0.0)


def dense(point: Point, p: int) -> np.ndarray:
    w = np.zeros(p)
    w[point.ids] = point.weights
    return w


def search_line(problem: Problem, start: Point, end: Point) -> tuple[Found, float]:
    """The result of the search, and the value at the start."""
    objective = objective_of(problem, 64)
    p = problem.phi.shape[1]
    m, m_end = problem.phi @ dense(start, p), problem.phi @ dense(end, p)
    b = objective.best_intercept(m)

    def factors(ids: np.ndarray) -> np.ndarray:
        return problem.f[ids]

    penalty = objective.penalty.value(start.weights, factors(start.ids))
    value = objective.value(penalty, m, b)
    anchor = Anchor(Point(start.ids, start.weights, b), m, value)
    proposed = Point(end.ids, end.weights, b)
    found = search(objective, anchor, proposed, m_end - m, factors)
    return found, value


def value_at(problem: Problem, start: Point, end: Point, beta: float) -> float:
    p = problem.phi.shape[1]
    w = dense(start, p) + beta * (dense(end, p) - dense(start, p))
    b = objective_of(problem, 64).best_intercept(problem.phi @ w)
    return problem.objective(w, b)


@pytest.mark.thin(18)
@pytest.mark.parametrize(("intercept", "rho"), [(True, 1.0), (False, 1.0), (True, 0.05)])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(4))
def test_random_lines(loss: str, seed: int, intercept: bool, rho: float) -> None:
    """With an L1 penalty, and with squares and penalty factors."""
    problem = problem_of(loss, intercept, rho)
    random = np.random.default_rng(seed)
    p = problem.phi.shape[1]
    start = sparse_point(random, p, 0.3)
    if seed % 2:  # a direction of descent, much too long or too short
        g = problem.prices(dense(start, p), 0.0)
        ids = np.argsort(-np.abs(g))[:5]
        away = Point.make(ids, -np.sign(g[ids]) * [0.01, 30.0][seed % 4 // 2], 0.0)
        end = Point.make(
            np.union1d(start.ids, away.ids),
            start.weights_of(np.union1d(start.ids, away.ids))
            + away.weights_of(np.union1d(start.ids, away.ids)),
            0.0,
        )
    else:
        end = sparse_point(random, p, 0.3)
    found, value = search_line(problem, start, end)
    grid = np.linspace(0.0, MAX_BETA, 401)
    values = [value_at(problem, start, end, beta) for beta in grid]
    lowest = min(values)
    assert value == pytest.approx(values[0], rel=1e-12)
    assert 0.0 <= found.beta <= MAX_BETA
    assert found.objective <= value
    if found.beta > 0.0:
        assert found.objective == pytest.approx(
            value_at(problem, start, end, found.beta), rel=1e-12
        )
    # GOOD_ENOUGH of the decrease may be left on the line
    assert value - found.objective >= 0.9 * (value - lowest) - 1e-12 * value
    if lowest >= value:
        assert found.beta == 0.0 and found.objective == value


def test_no_improvement_is_no_step() -> None:
    problem = problem_of("logistic", True)
    best = problem.solve()
    optimum = Point.make(np.arange(len(best.w)), best.w, best.b)
    worse = Point.make(np.arange(len(best.w)), best.w * 1.5, best.b)
    found, value = search_line(problem, optimum, worse)
    # rounding may leave a trace of a decrease next to the optimum
    assert found.beta < 1e-3
    assert value * (1.0 - 1e-9) <= found.objective <= value


def test_values_that_agree_by_chance_are_not_rounding() -> None:
    """P(0) = P(1) of a parabola: its minimum lies between."""
    y = np.array([1.0, -1.0] * (N // 2))
    phi = y[:, None].copy()
    problem = Problem(phi, y, np.ones(N), "squared", 1.0, False)
    # |w| + 200 (1 - w)^2 is least at w = 1 - 1/400
    ids = np.zeros(1, np.int64)
    start, end = Point(ids, np.array([0.5]), 0.0), Point(ids, np.array([1.495]), 0.0)
    assert value_at(problem, start, end, 0.0) == pytest.approx(
        value_at(problem, start, end, 1.0), rel=1e-12
    )
    found, _ = search_line(problem, start, end)
    assert found.beta == pytest.approx(0.5, abs=1e-6)


def test_the_proposed_point_is_taken_where_values_show_rounding_alone() -> None:
    problem = problem_of("logistic", True)
    best = problem.solve()
    p = np.arange(len(best.w))
    near = best.w * (1.0 + 1e-11 * np.random.default_rng(0).normal(size=len(best.w)))
    found, value = search_line(problem, Point.make(p, best.w, 0.0), Point.make(p, near, 0.0))
    assert found.beta == 1.0
    assert value * (1.0 - 1e-13) <= found.objective <= value


def test_a_minimum_at_a_kink_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposed point sets a weight to 0, and the slope changes its sign there."""
    y = np.array([1.0, -1.0] * (N // 2))
    problem = Problem(y[:, None].copy(), y, np.ones(N), "squared", 0.001, False)
    calls = []
    sums = SingleOutput.line_sums
    monkeypatch.setattr(
        SingleOutput, "line_sums", lambda *args: calls.append(args[3]) or sums(*args)
    )
    ids = np.zeros(1, np.int64)
    # |w| + 0.2 (1 - w)^2 is least at 0, where its slopes are -1.4 and 0.6
    found, _ = search_line(
        problem, Point(ids, np.array([0.5]), 0.0), Point(ids[:0], np.empty(0), 0.0)
    )
    assert found.beta == 1.0 and found.objective == pytest.approx(0.2, rel=1e-12)
    assert calls == [1.0]


def test_the_longest_step() -> None:
    """A step of the right direction and a thousandth of the length is doubled, not more."""
    problem = problem_of("squared", True)
    best = problem.solve()
    p = np.arange(len(best.w))
    start = Point.make(p, 0.0 * best.w, 0.0)
    found, _ = search_line(problem, start, Point.make(p, 1e-3 * best.w, 0.0))
    assert found.beta == MAX_BETA
