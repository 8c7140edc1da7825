"""Values, derivatives, the best intercept and the dual bound, against plain numpy and the judge."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from explicit import objective_of
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import ALL_LOSSES, Problem, Solution, kmer_matrix
from rows import STRENGTHS, acceptors, targets

from fcl.objective import Objective, find_loss, relative_gap, resolve_C


def problem_of(loss: str, intercept: bool = True, n: int = 150) -> Problem:
    codes, _ = acceptors(10, n)
    y = targets(loss, n)
    s = np.random.default_rng(3).uniform(0.1, 3.0, n)
    return Problem(kmer_matrix(codes, 2), y, s, loss, 0.7 * STRENGTHS[loss], intercept)


@cache
def solved(loss: str, intercept: bool) -> tuple[Problem, Solution]:
    """A problem with its optimum."""
    problem = problem_of(loss, intercept)
    return problem, problem.solve()


losses = pytest.mark.parametrize("loss", ALL_LOSSES)
intercepts = pytest.mark.parametrize("intercept", [True, False])


# -- primal ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", [64, 150, 65536])
@losses
def test_values_residuals_and_lines(loss: str, block_rows: int) -> None:
    problem = problem_of(loss)
    objective = objective_of(problem, block_rows)
    random = np.random.default_rng(0)
    m, dm = random.normal(size=(2, 150)) * 3.0
    at = m + 0.7 * dm - 0.4
    assert objective.value(2.5, at, 0.0) == pytest.approx(
        2.5 + problem.C * (problem.s @ problem.losses(at)), rel=1e-14
    )
    r, q = np.empty((2, 150))
    objective.residuals_curvatures(m, 0.3, r, q)
    assert r == pytest.approx(problem.s * problem.slopes(m + 0.3), rel=1e-13, abs=1e-300)
    assert q == pytest.approx(problem.s * problem.bends(m + 0.3), rel=1e-13, abs=1e-300)

    sums = objective.line_sums(m, dm, 0.7, -0.4)
    r, q = problem.s * problem.slopes(at), problem.s * problem.bends(at)
    expected = [problem.s @ problem.losses(at), r.sum(), q.sum(), r @ dm, q @ dm**2, q @ dm]
    found = [sums.value, sums.slope_b, sums.curve_b, sums.slope_beta, sums.curve_beta, sums.cross]
    assert found[0] == pytest.approx(expected[0], rel=1e-13)
    assert found == pytest.approx(expected, rel=1e-12)


def bound_of(objective: Objective, r: np.ndarray, largest: float) -> float:
    """The dual bound of binary features, given the largest price of the raw residuals."""
    return objective.dual_bound(r, largest + objective.imbalance(r))


@losses
def test_no_overflow_at_huge_margins(loss: str) -> None:
    problem = problem_of(loss)
    objective = objective_of(problem)
    for size in (40.0, 250.0, 700.0, 1e4, 1e8):
        m = np.where(np.arange(150) % 2 == 0, size, -size)
        r, q = np.empty((2, 150))
        objective.residuals_curvatures(m, 0.0, r, q)
        assert np.isfinite([r, q]).all() and (q >= 0.0).all()
        if loss != "poisson" or size < 300.0:  # beyond, neither is as it is defined
            expected = problem.s @ problem.losses(m)
            assert objective.loss_sum(m, 0.0) == pytest.approx(expected, rel=1e-12)
        assert np.isfinite(bound_of(objective, r, 1.0))


# -- the best intercept ----------------------------------------------------------------------------


def check_intercept(problem: Problem, m: np.ndarray, guess: float = 0.0) -> float:
    """The slope in b is 0 at the b found, within rounding of the sum, the margins and b."""
    b = objective_of(problem).best_intercept(m, guess)
    slopes = problem.s * problem.slopes(m + b)
    digits = 1e-15 * (abs(b) + np.abs(m).max()) * (problem.s @ problem.bends(m + b))
    assert abs(slopes.sum()) <= 1e-13 * np.abs(slopes).sum() + digits, (b, slopes.sum())
    return b


@losses
@pytest.mark.parametrize("far", [1e4, -1e4])
def test_intercept_of_a_far_guess_or_huge_margins(loss: str, far: float) -> None:
    problem, m = problem_of(loss), np.random.default_rng(0).normal(size=150)
    near = check_intercept(problem, m)
    assert check_intercept(problem, m, far) == pytest.approx(near, rel=1e-9)
    assert check_intercept(problem, far + m) == pytest.approx(near - far, rel=1e-9)
    # both signs at once: each side is flat at 0
    check_intercept(problem, np.where(np.arange(150) % 2 == 0, far, -far) + m)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_intercept_of_one_positive_in_a_hundred_thousand(loss: str) -> None:
    n = 100_000
    y = np.full(n, -1.0)
    y[777] = 1.0
    problem = Problem(np.zeros((n, 1)), y, np.ones(n), loss, 1.0)
    expected = -np.log(n - 1.0) if loss == "logistic" else 2.0 / n - 1.0
    assert check_intercept(problem, np.zeros(n)) == pytest.approx(expected, rel=1e-12)
    check_intercept(problem, np.where(y > 0, -50.0, 30.0))


def test_intercept_of_a_flat_squared_hinge() -> None:
    """All rows beyond the hinge: any b of an interval is best, and a finite one is found."""
    y = np.repeat([1.0, -1.0], 50)
    problem = Problem(np.zeros((100, 1)), y, np.ones(100), "squared_hinge", 1.0)
    objective = objective_of(problem)
    b = objective.best_intercept(10.0 * y)
    assert abs(b) <= 9.0 and objective.loss_sum(10.0 * y, b) == 0.0
    # far outside of that interval, where only one side has residuals
    assert -9.0 - 1e-9 <= objective.best_intercept(10.0 * y, 500.0) <= 9.0 + 1e-9


def test_no_intercept() -> None:
    objective = objective_of(problem_of("logistic", intercept=False))
    assert objective.best_intercept(np.full(150, 5.0), 3.0) == 0.0


# -- the dual bound --------------------------------------------------------------------------------


@intercepts
@losses
def test_bound_at_the_optimum_is_the_judges(loss: str, intercept: bool) -> None:
    problem, best = solved(loss, intercept)
    objective = objective_of(problem)
    for w in (best.w, 0.5 * best.w, 0.0 * best.w):
        b = objective.best_intercept(problem.margins(w, 0.0))
        r = problem.residuals(w, b)
        bound = bound_of(objective, r, float(np.abs(r @ problem.phi).max()))
        assert bound == pytest.approx(problem.bound(r), rel=1e-9, abs=1e-9)
        assert bound <= best.objective * (1.0 + 1e-12)


@settings(max_examples=60)
@given(data=st.data())
def test_no_residuals_give_too_high_a_bound(data: st.DataObject) -> None:
    """Also far from any optimum, unbalanced, or with residuals on one side only."""
    loss = data.draw(st.sampled_from(ALL_LOSSES))
    problem, best = solved(loss, data.draw(st.booleans()))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    w = best.w * data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    w = w + random.normal(size=len(w)) * data.draw(st.sampled_from([0.0, 1e-6, 0.1, 5.0]))
    b = best.b + data.draw(st.sampled_from([0.0, 1e-9, -0.3, 4.0, -200.0, 1e4]))
    m = problem.margins(w, b)
    m = m + random.normal(size=len(m)) * data.draw(st.sampled_from([0.0, 0.0, 1.0, 20.0]))
    r = problem.s * problem.slopes(m)
    one_sided = data.draw(st.sampled_from([None, 1.0, -1.0])) if loss != "squared" else None
    if one_sided is not None:
        r[np.sign(r) == one_sided] = 0.0
    exact = float(np.abs(r @ problem.phi).max())
    largest = exact * data.draw(st.sampled_from([1.0, 1.0, 2.0]))  # an upper bound will do
    bound = bound_of(objective_of(problem), r, largest)
    assert np.isfinite(bound)
    assert bound <= best.objective * (1.0 + 1e-12)
    if one_sided is not None and problem.intercept:
        assert bound == 0.0


@pytest.mark.parametrize("rho", [0.9, 0.5, 0.01])
@intercepts
@losses
def test_bound_of_the_elastic_net(loss: str, intercept: bool, rho: float) -> None:
    """Not above the optimum anywhere, and tight there, without any scaling."""
    problem = replace(problem_of(loss, intercept), rho=rho)
    f = np.random.default_rng(6).uniform(0.5, 2.0, problem.phi.shape[1])
    problem = replace(problem, factors=f)
    best, objective = problem.solve(1e-9), objective_of(problem)
    random = np.random.default_rng(7)

    def bounds(w: np.ndarray, b: float) -> tuple[float, float]:
        """The bounds without and with the excess."""
        r = problem.residuals(w, b)
        g = np.abs(r @ problem.phi)
        slack = objective.imbalance(r)
        assert slack == pytest.approx(abs(r.sum()) if intercept else 0.0, abs=1e-9)
        above = np.maximum((g + slack) / f - objective.penalty.limit(problem.C), 0.0)
        largest = float(((g + slack) / f).max())
        plain = objective.dual_bound(r, largest)
        return plain, objective.dual_bound(r, largest, float(np.sum(f * above**2)))

    for size in (0.0, 1e-4, 0.01, 0.3):
        w = best.w + size * random.normal(size=len(f))
        b = objective.best_intercept(problem.margins(w, 0.0)) + size * random.normal() * intercept
        plain, both = bounds(w, b)
        assert plain <= both <= best.objective * (1.0 + 1e-12)
        if size == 0.0:
            assert both == pytest.approx(best.objective, rel=1e-8)


@losses
def test_residuals_that_do_not_balance(loss: str) -> None:
    """The optimum without an intercept is a tight dual point of the wrong problem: too high here."""
    (fixed, at_zero), (free, best) = solved(loss, False), solved(loss, True)
    assert at_zero.objective > best.objective * (1.0 + 1e-3)
    r = fixed.residuals(at_zero.w, 0.0)
    exact = float(np.abs(r @ free.phi).max())
    bound = bound_of(objective_of(free), r, exact)
    assert bound <= best.objective * (1.0 + 1e-12)
    assert bound_of(objective_of(fixed), r, exact) == pytest.approx(at_zero.objective, rel=1e-8)


@losses
def test_residuals_of_a_bad_intercept(loss: str) -> None:
    """With a C this small nothing violates, and only the balance keeps the bound below the optimum."""
    problem = replace(problem_of(loss), C=1e-5)
    w = np.zeros(problem.phi.shape[1])
    best = problem.objective(w, problem.null()[0])
    for b in (-2.0, 0.0, 1.0, 40.0):
        r = problem.residuals(w, b)
        bound = bound_of(objective_of(problem), r, float(np.abs(r @ problem.phi).max()))
        assert problem.objective(w, b) > best * (1.0 + 1e-3)
        assert bound <= best * (1.0 + 1e-12)


@losses
def test_balancing_changes_prices(loss: str) -> None:
    """A column that is nearly constant: balanced residuals violate it more than the raw ones."""
    problem, _ = solved(loss, True)
    phi = np.ones((len(problem.y), 2))
    phi[:4, 0] = 0.0
    phi[problem.y > np.median(problem.y), 1] = 0.0
    narrow = Problem(phi, problem.y, problem.s, loss, 3.0)
    best = narrow.solve()
    tightest = -np.inf
    for b in np.linspace(best.b - 1.0, best.b + 1.0, 41):
        r = narrow.residuals(best.w, b)
        bound = bound_of(objective_of(narrow), r, float(np.abs(r @ phi).max()))
        assert bound <= best.objective * (1.0 + 1e-12)
        tightest = max(tightest, bound)
    assert tightest >= best.objective * (1.0 - 1e-9)


@losses
@intercepts
def test_bound_of_residuals_that_are_all_zero(loss: str, intercept: bool) -> None:
    assert objective_of(problem_of(loss, intercept)).dual_bound(np.zeros(150), 0.0) == 0.0


# -- small pieces ----------------------------------------------------------------------------------


def test_relative_gap() -> None:
    assert relative_gap(10.0, 9.0) == pytest.approx(0.1)
    assert relative_gap(10.0, 11.0) == relative_gap(0.0, 0.0) == relative_gap(0.0, -1.0) == 0.0
    for objective in (1.0, math.nan, math.inf):  # an unknown gap is infinite
        for bound in (math.nan, -math.inf, *([1.0, math.inf] if objective != 1.0 else [])):
            assert relative_gap(objective, bound) == math.inf


def test_options_in_two_forms() -> None:
    assert resolve_C(0.5, None, 20.0) == resolve_C(None, 0.1, 20.0) == (0.5, 0.1)
    assert find_loss("squared-hinge") == find_loss("squared_hinge")
