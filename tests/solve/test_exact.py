"""The inner model with its whole Hessian: optimality conditions, dependent columns, wild scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from explicit import explicit_family, make_solver, run
from hypothesis import given, settings
from hypothesis import strategies as st
from judge import LOSSES, Problem

import fcl
from fcl.solve import exact
from fcl.solve.quadratic import minimise_in_box, minimise_quadratic


def violation(hessian: np.ndarray, g: np.ndarray, a: np.ndarray, start: np.ndarray, w: np.ndarray):
    """The largest violation of the optimality conditions, as a share of ``a``."""
    slope = g + hessian @ (w - start)
    return float(
        (np.where(w != 0.0, np.abs(slope + a * np.sign(w)), np.abs(slope) - a) / a).max(initial=0.0)
    )


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 25),
    rank=st.integers(1, 30),
    copies=st.integers(0, 5),
    size=st.floats(1e-3, 10.0),
    begun=st.booleans(),
)
def test_optimal_whatever_the_rank(
    seed: int, k: int, rank: int, copies: int, size: float, begun: bool
) -> None:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(rank, k))
    phi[:, :copies] = phi[:, -1:]  # equal columns
    hessian, a = phi.T @ phi, size * rng.uniform(0.1, 1.0, k)
    g = phi.T @ rng.normal(size=rank)
    start = rng.normal(size=k) * (rng.random(k) < 0.5) * begun
    w, _ = minimise_quadratic(hessian.copy(), g, a, start, 1e-9)
    assert violation(hessian, g, a, start, w) < 1e-7


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    k=st.integers(1, 25),
    rank=st.integers(1, 30),
    copies=st.integers(0, 5),
    size=st.floats(1e-3, 10.0),
)
def test_optimal_within_limits(seed: int, k: int, rank: int, copies: int, size: float) -> None:
    """No weight is outside of its limits, and no direction within them lowers the objective."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(rank, k))
    phi[:, :copies] = phi[:, -1:]
    hessian, a = phi.T @ phi, size * rng.uniform(0.1, 1.0, k)
    g = phi.T @ rng.normal(size=rank)
    low, high = np.array([[-1.0], [1.0]]) * rng.choice([0.0, 0.05, 0.5, np.inf], (2, k))
    start = np.clip(rng.normal(size=k) * (rng.random(k) < 0.5), low, high)
    w, _ = minimise_in_box(hessian.copy(), g, a, low, high, start, 1e-9)
    assert ((w >= low) & (w <= high)).all()
    slope = (g + hessian @ (w - start)) / a
    assert (slope >= np.where(w < 0.0, 1.0, -1.0) - 1e-7)[w < high].all()
    assert (slope <= np.where(w > 0.0, -1.0, 1.0) + 1e-7)[w > low].all()


def test_units_of_the_columns_do_not_matter() -> None:
    rng = np.random.default_rng(1)
    phi, a = rng.normal(size=(40, 12)), np.full(12, 3.0)
    hessian, g = phi.T @ phi, phi.T @ rng.normal(size=40) * 5.0
    units = 10.0 ** rng.uniform(-8, 8, 12)
    plain, _ = minimise_quadratic(hessian.copy(), g, a, np.zeros(12), 1e-9)
    scaled, _ = minimise_quadratic(
        hessian * units * units[:, None], g * units, a * units, np.zeros(12), 1e-9
    )
    assert 0 < np.count_nonzero(plain) < 12
    assert scaled * units == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_columns_of_all_scales_in_a_few_passes(loss: str, intercept: bool) -> None:
    """Scales from 1e-5 to 1e5 and nearly equal columns, against the judge."""
    rng = np.random.default_rng(7)
    phi = rng.normal(size=(60, 15))
    phi[:, 8:11] = phi[:, :3] + 1e-4 * rng.normal(size=(60, 3))
    phi = (phi * 10.0 ** np.linspace(-5, 5, 15)).astype(np.float32).astype(np.float64)
    score = phi[:, 7] + phi[:, 12] / 10.0**3.5 + rng.normal(size=60)
    y = score if loss == "squared" else np.where(score > 0.0, 1.0, -1.0)
    problem = Problem(phi, y, rng.uniform(0.5, 2.0, 60), loss, 300.0, intercept)
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-8)
    passes = run(solver, 40)
    assert passes[-1].gap <= 1e-8, f"{len(passes)} passes"
    w = np.zeros(15)
    w[solver.outer.point.ids] = solver.outer.point.weights
    objective = problem.objective(w, solver.outer.point.intercept)
    assert solver.outer.objective == pytest.approx(objective, rel=1e-12)
    assert problem.violations(w, solver.outer.point.intercept).max() < 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_more_columns_than_rows(loss: str) -> None:
    """40 rows, 1,000 columns, a weak penalty: no more weights enter the model than there are rows."""
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(40, 1000)).astype(np.float32).astype(np.float64)
    score = phi[:, 0] + rng.normal(size=40)
    y = score if loss == "squared" else np.where(score > 0.0, 1.0, -1.0)
    problem = Problem(phi, y, np.ones(40), loss, 1e4, True)
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-4)
    passes = run(solver, 20)
    assert passes[-1].gap <= 1e-4, f"{len(passes)} passes"


def test_near_copies() -> None:
    """A curvature of 1e-12, along the difference of columns that differ by 1e-6, is not rounding."""
    rng = np.random.default_rng(3)
    phi = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 6)) + 1e-6 * rng.normal(size=(200, 6))
    phi = phi.astype(np.float32).astype(np.float64)
    problem = Problem(phi, phi @ rng.normal(size=6), np.ones(200), "squared", 1e7, True)
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-4)
    passes = run(solver, 20)
    assert passes[-1].gap <= 1e-4, f"{len(passes)} passes"


def test_the_lowest_point_is_returned_when_stopped() -> None:
    rng = np.random.default_rng(5)
    phi = rng.normal(size=(20, 30))
    hessian, g, a = phi.T @ phi, phi.T @ rng.normal(size=20), np.full(30, 1e-3)
    start = np.zeros(30)

    def value(w: np.ndarray) -> float:
        return float(g @ w + 0.5 * w @ hessian @ w + a @ np.abs(w))

    whole, sets = minimise_quadratic(hessian.copy(), g, a, start, 1e-9, rank=20)
    ceased, none = minimise_quadratic(
        hessian.copy(), g, a, start, 1e-9, rank=20, cease=lambda: True
    )
    assert np.count_nonzero(whole) <= 20
    assert none == 0 and sets > 1
    assert value(whole) < value(start) and value(ceased) < value(start)


@pytest.mark.parametrize("covariates", [None, np.random.default_rng(1).normal(size=(400, 3))])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_hessian_of_sparse_columns(
    covariates: np.ndarray | None, intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    X = scipy.sparse.random_array((400, 60), density=0.08, random_state=random, format="csr")
    y = np.where(X @ random.normal(size=60) > random.normal(size=400) / 2, 1, -1)
    sparse, differences = exact._sparse_hessian, []

    def both(at: Any, q: Any, sums: Any, coefs: Any) -> Any:
        hessian = sparse(at, q, sums, coefs)
        if hessian is not None:
            dense = exact._hessian(at, q, coefs)
            differences.append(np.abs(hessian - dense).max() / dense.max())
        return hessian

    monkeypatch.setattr(exact, "_sparse_hessian", both)
    data = fcl.open_data(X, y=y, covariates=covariates)
    assert fcl.train(data, "columns", C=10.0, tol=1e-9, intercept=intercept).converged
    assert differences
    assert max(differences) < 1e-12
