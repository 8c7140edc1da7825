"""The judge is checked against other solvers, and by weak duality, before it judges fcl."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sklearn
from judge import ALL_LOSSES, Problem, kmer_matrix
from rows import STRENGTHS, acceptors, targets
from scipy.optimize import check_grad
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits


def problem_of(loss: str, C: float, intercept: bool = False, weighted: bool = True) -> Problem:
    codes, y = acceptors(12, 300)[0], targets(loss, 300)
    s = np.random.default_rng(3).uniform(0.2, 3.0, 300) if weighted else np.ones(300)
    return Problem(kmer_matrix(codes, 2), y, s, loss, C, intercept)


def check(problem: Problem, w: np.ndarray, b: float = 0.0, rel: float = 1e-7) -> None:
    """The judge's optimum is that of another solver, and not worse."""
    ours, value = problem.solve().objective, problem.objective(w, b)
    assert ours == pytest.approx(value, rel=rel)
    assert ours <= value * (1.0 + 1e-12)


def test_kmer_matrix_by_hand() -> None:
    phi = kmer_matrix(np.array([[0, 1, 4], [3, 3, 2]], np.uint8), 2)
    assert phi.shape == (2, 2 * 20)
    # at 0: AC, A. in the first row, TT, T. in the second; at 1: C. and TG, T.
    assert np.flatnonzero(phi[0]).tolist() == [1, 4, 20 + 9]
    assert np.flatnonzero(phi[1]).tolist() == [18, 19, 20 + 17, 20 + 19]


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_slopes_are_derivatives(loss: str) -> None:
    problem = problem_of(loss, 0.5, intercept=True)
    w = np.random.default_rng(0).normal(size=problem.phi.shape[1])
    slopes = problem.prices(w, 0.3) + np.sign(w)
    error = check_grad(lambda w: problem.objective(w, 0.3), lambda w: slopes, w)
    assert error < 1e-5 * np.abs(slopes).max()


@pytest.mark.parametrize("rho", [1.0, 0.5, 0.05])
@pytest.mark.parametrize("intercept", [False, True])
def test_elastic_net(intercept: bool, rho: float) -> None:
    problem = replace(problem_of("squared", 0.02, intercept), rho=rho)
    alpha = 1.0 / (2.0 * problem.C * problem.s.sum())
    options = {"fit_intercept": intercept, "tol": 1e-14, "max_iter": 100_000}
    theirs = Lasso(alpha, **options) if rho == 1.0 else ElasticNet(alpha, l1_ratio=rho, **options)
    theirs.fit(problem.phi, problem.y, sample_weight=problem.s)
    check(problem, theirs.coef_, float(theirs.intercept_), 1e-9)


def fista(problem: Problem, steps: int) -> tuple[np.ndarray, float]:
    """Proximal gradient steps with momentum, restarted when the objective rises.

    The step is halved until a quadratic lies above the smooth part at its end.
    """
    a = np.column_stack([problem.phi, np.full(len(problem.y), float(problem.intercept))])
    kink = np.append(problem.rho * problem.f, 0.0)
    ridge = np.append((1.0 - problem.rho) * problem.f, 0.0)

    def smooth(x: np.ndarray) -> float:
        losses = problem.losses(a @ x + problem.offset)
        return problem.C * float(problem.s @ losses) + 0.5 * float(ridge @ x**2)

    size, t = 1.0, 1.0
    x = z = np.append(np.zeros(len(kink) - 1), problem.null()[0])
    for _ in range(steps):
        slope = problem.slopes(a @ z + problem.offset)
        downhill = problem.C * (problem.s * slope) @ a + ridge * z
        here = smooth(z)
        while True:
            forward = z - downhill / size
            new = np.sign(forward) * np.maximum(np.abs(forward) - kink / size, 0.0)
            above = here + downhill @ (new - z) + 0.5 * size * np.sum((new - z) ** 2)
            if smooth(new) <= above + 1e-13 * abs(here):
                break
            size *= 2.0
        if (z - new) @ (new - x) > 0.0:
            t = 1.0
        after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        z, x, t = new + (t - 1.0) / after * (new - x), new, after
    return x[:-1], float(x[-1]) * problem.intercept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rho", "intercept", "factors"),
    [(1.0, False, True), (1.0, True, False), (0.5, True, True), (0.05, False, False)],
)
@pytest.mark.parametrize("loss", [loss for loss in ALL_LOSSES if loss != "squared"])
def test_proximal_gradient(loss: str, intercept: bool, rho: float, factors: bool) -> None:
    problem = replace(problem_of(loss, 0.3 * STRENGTHS[loss], intercept), rho=rho)
    if loss == "poisson":
        problem = replace(problem, offset=np.linspace(-1.0, 1.0, len(problem.y)))
    if factors:
        f = np.random.default_rng(5).uniform(0.5, 2.0, problem.phi.shape[1])
        problem = replace(problem, factors=f)
    with threadpool_limits(1):
        check(problem, *fista(problem, 6000))


@pytest.mark.thorough  # skglm compiles its solvers
@pytest.mark.parametrize("loss", ["poisson", "huber:delta=2"])
def test_skglm(loss: str) -> None:
    """Mean loss + alpha L1; its Huber loss has 1/2."""
    skglm = pytest.importorskip("skglm")
    problem = problem_of(loss, 0.3 * STRENGTHS[loss], weighted=False)
    poisson = loss == "poisson"
    data = skglm.datafits.Poisson() if poisson else skglm.datafits.Huber(2.0)
    alpha = 1.0 / ((1.0 if poisson else 2.0) * problem.C * len(problem.y))
    kinds = skglm.solvers
    solver = kinds.ProxNewton(tol=1e-10, fit_intercept=False, max_iter=100)
    if not poisson:
        solver = kinds.AndersonCD(tol=1e-10, fit_intercept=False, max_iter=1000)
    theirs = skglm.GeneralizedLinearEstimator(data, skglm.penalties.L1(alpha), solver)
    theirs.fit(np.asfortranarray(problem.phi), problem.y)
    check(problem, theirs.coef_)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_liblinear(loss: str) -> None:
    C = {"logistic": 0.7, "squared_hinge": 0.3}[loss]
    problem = problem_of(loss, C, weighted=loss == "logistic")
    options: dict[str, Any] = {"C": C, "fit_intercept": False, "tol": 1e-8, "random_state": 0}
    options["max_iter"] = 100_000
    theirs = LinearSVC(penalty="l1", dual=False, **options)
    if loss == "logistic":
        # the option changed its name, and either warns where it is not the one
        version = tuple(map(int, sklearn.__version__.split(".")[:2]))
        l1: dict[str, Any] = {"l1_ratio": 1.0} if version >= (1, 8) else {"penalty": "l1"}
        theirs = LogisticRegression(solver="liblinear", **options, **l1)
    theirs.fit(problem.phi, problem.y, sample_weight=problem.s)
    check(problem, theirs.coef_[0])


@pytest.mark.thin(2)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_weak_duality_and_optimum(loss: str, intercept: bool) -> None:
    problem = problem_of(loss, 0.5 * STRENGTHS[loss], intercept)
    best = problem.solve()
    assert problem.violations(best.w, best.b).max() < 1e-8
    assert abs(problem.residuals(best.w, best.b).sum()) < 1e-9 * problem.s.sum() or not intercept
    random = np.random.default_rng(1)
    for _ in range(20):
        w, b = best.w + random.normal(size=len(best.w)) * 0.01, best.b + intercept * 0.1
        assert problem.objective(w, b) > best.objective
        assert problem.bound(problem.residuals(w, b)) <= best.objective * (1.0 + 1e-12)
