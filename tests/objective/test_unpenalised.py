"""The minimum over intercept and covariates, and balanced residuals, by their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from judge import ALL_LOSSES
from rows import targets
from scipy.optimize import minimize

from fcl.objective import Covariates, Objective, find_loss
from fcl.objective.balance import balanced, slack
from fcl.objective.unpenalised import settle

N, Q = 150, 3


def problem(loss: str, intercept: bool) -> tuple[Objective, np.ndarray]:
    """An objective on several blocks, and margins far from the best ones."""
    random = np.random.default_rng(5)
    z = random.normal(size=(N, Q))
    s, y = random.uniform(0.2, 2.0, N), targets(loss, N)
    objective = Objective(
        find_loss(loss), y, s, 0.7, intercept, block_rows=64, covariates=Covariates(z)
    )
    return objective, 2.0 * random.normal(size=N)


def residuals(objective: Objective, m: np.ndarray, b: float) -> tuple[np.ndarray, np.ndarray]:
    r, q = np.empty((2, len(m)))
    objective.residuals_curvatures(m, b, r, q)
    return r, q


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_settle_finds_the_minimum(loss: str, intercept: bool) -> None:
    objective, m = problem(loss, intercept)
    assert objective.covariates is not None
    z = objective.covariates.values
    random = np.random.default_rng(6)
    for slope, floor in ((np.zeros(4), np.zeros(4)), (random.normal(size=4), np.full(4, 2.0))):
        at = m.copy()
        found = settle(objective, at, 0.0, slope, floor)
        np.testing.assert_allclose(at, m + z @ found.dv, rtol=1e-12, atol=1e-12)

        def value(x: np.ndarray, slope: np.ndarray = slope, floor: np.ndarray = floor) -> float:
            more = slope @ x + 0.5 * floor @ x**2
            return objective.loss_sum(m + z @ x[1:], float(x[0])) + float(more)

        bounds = [(None, None) if intercept else (0.0, 0.0), *[(None, None)] * Q]
        other = minimize(value, np.zeros(4), bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-9})
        x = np.append(found.b, found.dv)
        assert value(x) <= other.fun * (1.0 + 1e-9)
        assert found.decrease == pytest.approx(value(np.zeros(4)) - value(x), rel=1e-12)
        for k in range(0 if intercept else 1, 4):  # finite differences: no step is downhill
            step = 1e-4 * np.eye(4)[k]
            assert min(value(x + step), value(x - step)) >= value(x) * (1.0 - 1e-14)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_balanced_residuals_are_a_point_of_the_dual(loss: str, intercept: bool) -> None:
    objective, m = problem(loss, intercept)
    assert objective.covariates is not None
    a = np.column_stack([np.ones(N)] * intercept + [objective.covariates.values])
    b = settle(objective, m, 0.0).b
    for error in (0.0, 1e-7, 1e-3):  # of the coefficients
        moved = m + error * objective.covariates.values[:, 0]
        r, q = residuals(objective, moved, b)
        r = np.trunc(r * 2.0**40) / 2.0**40
        found, imbalance = balanced(objective, r, q)
        own = np.concatenate([found[rows] for rows in objective.blocks()])
        assert imbalance == pytest.approx(np.abs(own - r).sum(), rel=1e-3, abs=1e-13)
        assert (np.abs(a.T @ own) <= 1e-13 * (np.abs(a.T) @ np.abs(r))).all()
        assert 0.0 <= slack(objective, found, moved) < 1e-8
        low, high = objective.loss.domain(objective.y)
        inside = 1e-15 * np.abs(own)
        assert (own >= objective.s * low - inside).all()
        assert (own <= objective.s * high + inside).all()


def test_the_bound_holds_far_from_balance() -> None:
    """Residuals at the ends of their domain cannot be balanced; what is left lowers the bound."""
    objective, m = problem("logistic", True)
    best = objective.C * (objective.loss_sum(m, 0.0) - settle(objective, m.copy(), 0.0).decrease)
    for error in (1e-6, 1e-2, 3.0):
        moved = m + error
        r, q = residuals(objective, moved, 0.0)
        found, _ = balanced(objective, r, q)
        own = np.concatenate([found[rows] for rows in objective.blocks()])
        u = -own * objective.y / objective.s
        assert (u >= -1e-15).all() and (u <= 1.0 + 1e-15).all()
        offset = Objective(**vars(objective) | {"offset": m})
        assert offset.dual_bound(found, 0.0, slack=slack(objective, found, moved)) <= best
