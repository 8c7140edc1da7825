"""Several classes on tiny, badly scaled problems: few rows of very different weights and columns."""

from __future__ import annotations

import numpy as np
import pytest
from judge_outputs import ClassProblem

import fcl
from fcl.solve.coupled_groups import minimise_groups
from tests import by_name

TOL = 1e-3


def drawn(seed: int, group: bool) -> ClassProblem:
    """5 to 100 rows of 1 to 6 columns and 3 to 5 classes; weights over 8, scales over 5 decades."""
    rng = np.random.default_rng(seed)
    n, p, K = int(rng.integers(5, 101)), int(rng.integers(1, 7)), int(rng.integers(3, 6))
    n = max(n, 2 * K)
    normal = rng.random() < 0.7
    X = rng.standard_normal((n, p)) if normal else rng.standard_t(2, (n, p))
    X = X * 10 ** rng.uniform(-1, 4, p)
    y = np.arange(n) % K
    if rng.random() < 0.5:
        W = rng.standard_normal((p, K))
        y = np.argmax((X / np.abs(X).max(0)) @ W * 5 + rng.gumbel(size=(n, K)), 1)
        y[:K] = y[K : 2 * K] = np.arange(K)
    s = 10 ** rng.uniform(-4, 4, n)
    if rng.random() < 0.3:
        s = np.ones(n)
    rng.random()
    C = 10 ** rng.uniform(-3, 3)
    rho = 1.0 if rng.random() < 0.7 else float(rng.uniform(0.1, 1))
    return ClassProblem(X, y, s, K, C, np.ones(p), rho, group)


def one_column() -> ClassProblem:
    """Ten rows of three classes."""
    X = [182.30430063, 379.18507173, 377.81501306, -77.73926029, 17165.24038159]
    X += [-27.28012284, -159.75524788, 15800.1046701, -512.35822629, 444.1658866]
    s = [21.3579875, 0.026796449, 765.658438, 7130.44579, 7866.75791]
    s += [8.07262154e-4, 24.1965407, 17.4782777, 0.515231680, 6.72911332e-4]
    y = np.arange(10) % 3
    return ClassProblem(
        np.array(X)[:, None], y, np.array(s), 3, 962.8431681569451, np.ones(1), 1.0, False
    )


def bound_of(problem: ClassProblem, R: np.ndarray) -> float:
    """The judge's bound, scaled down a little more: its prices have rounding errors of their own."""
    A = problem.balanced(problem.hot + R / problem.s[:, None])
    most = problem.C * problem.largest(problem.s[:, None] * (A - problem.hot)) / problem.rho
    scaled = problem.dual(problem.hot + min(1.0, 1.0 / most) * (1.0 - 1e-7) * (A - problem.hot))
    return scaled if problem.rho == 1.0 else max(scaled, problem.dual(A))


PROBLEMS = {
    "one column": one_column(),
    **{f"group {seed}": drawn(seed, True) for seed in (14, 57, 82, 348)},
    **{f"{seed}": drawn(seed, False) for seed in (22, 72, 79, 3)},
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_tiny_problems_are_solved(problem: ClassProblem) -> None:
    """By objective and bound that are computed from the weights alone."""
    data = fcl.open_data(problem.phi, y=problem.y, weights=problem.s)
    options = {"C": problem.C, "l1_ratio": problem.rho, "group": problem.group, "tol": TOL}
    result = by_name.train(data, "columns", loss="softmax", max_passes=60, warn=False, **options)
    assert result.converged and result.passes < 40
    W = np.zeros((problem.phi.shape[1], problem.K))
    W[result.model.ids] = result.model.weights
    objective = problem.objective(W, result.model.intercepts)
    assert result.certificate.objective == pytest.approx(objective, rel=1e-9)
    bound = bound_of(problem, problem.residuals(W, result.model.intercepts))
    assert objective - bound <= 1.1 * TOL * objective
    assert result.certificate.bound <= objective


@pytest.mark.parametrize("seed", range(12))
def test_a_group_model_is_minimised(seed: int) -> None:
    """The result meets the optimality conditions; columns have scales over ten decades."""
    rng = np.random.default_rng(seed)
    k, K = int(rng.integers(1, 7)), int(rng.integers(2, 5))
    rows = rng.standard_normal((int(rng.integers(3, 60)), k * K))
    rows *= np.repeat(10 ** rng.uniform(-5, 5, k), K)
    if seed % 3 == 0:  # as for softmax, a constant in the weights of a feature moves nothing
        rows = (rows.reshape(-1, k, K) - rows.reshape(-1, k, K).mean(axis=2)[:, :, None]).reshape(
            rows.shape
        )
    hessian, g = rows.T @ rows, rows.T @ rng.standard_normal(len(rows)) * 3.0
    scale = np.sqrt(hessian.diagonal().reshape(k, K).mean(axis=1))
    a = scale * rng.uniform(0.1, 5.0, k)
    start = rng.standard_normal((k, K)) / scale[:, None] * (rng.random((k, 1)) < 0.5)
    w, _ = minimise_groups(hessian.copy(), g.copy(), a, start, 1e-9)
    slope = (g + hessian @ (w - start).ravel()).reshape(k, K)
    sizes = np.linalg.norm(w, axis=1)
    for j in range(k):
        if sizes[j]:
            assert np.abs(slope[j] + a[j] * w[j] / sizes[j]).max() <= 1e-5 * a[j]
        else:
            assert np.linalg.norm(slope[j]) <= a[j] * (1.0 + 1e-5)
