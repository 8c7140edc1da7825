"""The minimum over intercept and covariates, and balanced residuals, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from judge import ALL_LOSSES
from rows import targets
from scipy.optimize import minimize
from scipy.special import softmax

from fcl.objective import Covariates, SingleOutput, find_loss, make_objective
from fcl.objective.balance import balanced, slack

N, Q = 150, 3


def problem(loss: str, intercept: bool) -> tuple[SingleOutput, np.ndarray]:
    """An objective on several blocks, and margins far from the best ones."""
    random = np.random.default_rng(5)
    z = np.column_stack([np.ones(N)] * intercept + [random.normal(size=(N, Q))])
    s, y = random.uniform(0.2, 2.0, N), targets(loss, N)
    covariates = Covariates(z, constant=intercept)
    objective = SingleOutput(
        find_loss(loss), y, s, 0.7, False, block_rows=64, covariates=covariates
    )
    return objective, 2.0 * random.normal(size=N)


def residuals(objective: SingleOutput, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r, q = np.empty((2, len(m)))
    objective.residuals_curvatures(m, r, q)
    return r, q


def truncate(r: np.ndarray) -> np.ndarray:
    """The grid on which features are priced."""
    return np.trunc(r * 2.0**50) / 2.0**50


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_settle_finds_the_minimum(loss: str, intercept: bool) -> None:
    objective, m = problem(loss, intercept)
    assert objective.covariates is not None
    z, k = objective.covariates.values, objective.n_free
    random = np.random.default_rng(6)
    for slope, floor in ((np.zeros(k), np.zeros(k)), (random.normal(size=k), np.full(k, 2.0))):
        at = m.copy()
        found = objective.fit_unpenalised(at, slope, floor)
        np.testing.assert_allclose(at, m + z @ found.x, rtol=1e-12, atol=1e-12)

        def value(x: np.ndarray, slope: np.ndarray = slope, floor: np.ndarray = floor) -> float:
            return objective.loss_sum(m + z @ x, 0.0) + float(slope @ x + 0.5 * floor @ x**2)

        other = minimize(value, np.zeros(k), options={"gtol": 1e-9}, method="BFGS")
        assert value(found.x) <= other.fun * (1.0 + 1e-9)
        assert found.decrease == pytest.approx(value(np.zeros(k)) - value(found.x), rel=1e-12)
        for step in 1e-4 * np.eye(k):  # finite differences: no step is downhill
            least = min(value(found.x + step), value(found.x - step))
            assert least >= value(found.x) * (1.0 - 1e-14)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_balanced_residuals_are_a_point_of_the_dual(loss: str, intercept: bool) -> None:
    objective, m = problem(loss, intercept)
    assert objective.covariates is not None
    z = objective.covariates.values
    objective.fit_unpenalised(m)
    for error in (0.0, 1e-7, 1e-3):  # of the coefficients
        moved = m + error * z[:, -1]
        r, q = residuals(objective, moved)
        own = truncate(balanced(objective, r, q, truncate))
        assert np.abs(own - r).sum() <= max(error * 2.0 * (q @ np.abs(z[:, -1])), 1e-11)
        # truncation leaves about one step of the grid in each row
        assert (np.abs(z.T @ own) <= 2.0**-50 * N + 1e-13 * (np.abs(z.T) @ np.abs(r))).all()
        assert 0.0 <= slack(objective, own, moved) < 1e-8
        low, high = objective.loss.domain(objective.y)
        inside = 1e-15 * np.abs(own)
        assert (own >= objective.s * low - inside).all()
        assert (own <= objective.s * high + inside).all()


def test_the_bound_holds_far_from_balance() -> None:
    """Residuals at the ends of their domain cannot be balanced; what is left lowers the bound."""
    objective, m = problem("logistic", True)
    fall = objective.fit_unpenalised(m.copy()).decrease
    best = objective.C * (objective.loss_sum(m, 0.0) - fall)
    for error in (1e-6, 1e-2, 3.0):
        moved = m + error
        own = balanced(objective, *residuals(objective, moved), truncate)
        u = -own * objective.y / objective.s
        assert (u >= -1e-15).all() and (u <= 1.0 + 1e-15).all()
        offset = SingleOutput(**vars(objective) | {"offset": m})
        assert offset.dual_bound(own, 0.0, slack=slack(objective, own, moved)) <= best


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_hessian_of_the_covariates_of_classes(share: float) -> None:
    """Of probabilities that are mixed with equal ones: sum_i s_i (diag p - p p') times z z'."""
    random, K = np.random.default_rng(5), 3
    z, s = random.normal(size=(N, Q)), random.uniform(0.2, 2.0, N)
    y, m = np.arange(float(N)) % K, random.normal(size=(K, N))
    objective = make_objective(
        find_loss("softmax"), y, s, 0.7, K, intercept=False, covariates=Covariates(z, False)
    )
    p = (softmax(m, axis=0) + share / K) / (1.0 + share)
    expected = np.zeros((K, Q, K, Q))
    for i in range(N):
        classes = s[i] * (np.diag(p[:, i]) - np.outer(p[:, i], p[:, i]))
        expected += np.einsum("kl,a,b->kalb", classes, z[i], z[i])
    found = objective.free_hessian(m, np.empty((K, N)), share)
    np.testing.assert_allclose(found, expected.reshape(K * Q, K * Q), rtol=1e-9, atol=1e-9)
