"""Columns of any values: signed, unscaled, shifted, empty, equal; a family other than k-mers."""

from __future__ import annotations

import numpy as np
import pytest
from explicit import dense_weights, explicit_family, make_solver, reach_the_optimum, run
from judge import LOSSES, Problem

from fcl.solve import passes as passes_module
from fcl.solve.search import Found
from fcl.solve.state import Point

STRENGTHS = {"logistic": 0.3, "squared": 0.02, "squared_hinge": 0.1}


def _hard_matrix(n: int = 600) -> np.ndarray:
    """(n, 66): plain, x 100, + 100, / 1000, empty, duplicates and negatives, mostly zero, constant."""
    random = np.random.default_rng(7)
    plain = random.normal(size=(n, 24))
    sparse = random.normal(size=(n, 10)) * (random.random((n, 10)) < 0.03)
    phi = np.column_stack(
        [
            plain,
            100.0 * random.normal(size=(n, 8)),
            100.0 + random.normal(size=(n, 8)),
            0.001 * random.normal(size=(n, 4)),
            np.zeros((n, 2)),
            plain[:, :5],
            -plain[:, 5:8],
            sparse,
            np.ones(n),
            np.where(np.arange(n) == 3, 50.0, 0.0),
        ]
    )
    return phi.astype(np.float32).astype(np.float64)


def _target(phi: np.ndarray, loss: str) -> np.ndarray:
    random = np.random.default_rng(8)
    m = phi[:, 0] - 2.0 * phi[:, 5] + 0.02 * phi[:, 25] + 0.5 * (phi[:, 33] - 100.0)
    m += random.normal(size=len(m))
    return m if loss == "squared" else np.where(m > 0.3, 1.0, -1.0)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_against_the_judge(loss: str, intercept: bool) -> None:
    phi = _hard_matrix()
    s = np.random.default_rng(9).uniform(0.1, 4.0, len(phi))
    problem = Problem(phi, _target(phi, loss), s, loss, STRENGTHS[loss], intercept)
    best = problem.solve(1e-8)
    # columns of 100 +- 1 are one direction to coordinate descent, unless an intercept takes it away
    tol = 1e-9 if intercept else 2e-6
    solver = make_solver(explicit_family(phi), phi, problem, tol=tol)
    passes = reach_the_optimum(solver, problem, 20 if intercept else 40, best)
    assert passes[-1].objective == pytest.approx(best.objective, rel=1e-7)
    w, b = dense_weights(solver), solver.outer.point.intercept
    assert problem.violations(w, b).max() < 100 * tol


def test_zero_columns_never_enter_and_duplicates_once() -> None:
    phi = _hard_matrix()
    problem = Problem(phi, _target(phi, "squared"), np.ones(len(phi)), "squared", 0.02)
    solver = make_solver(explicit_family(phi), phi, problem, tol=1e-8)
    run(solver)
    cached = set(solver.cache.ids.tolist())
    assert not cached & {44, 45}  # the empty ones
    for first in range(5):  # columns 46-50 repeat 0-4
        assert not {first, 46 + first} <= cached


def test_of_equal_columns_the_one_penalised_least_has_the_weight() -> None:
    """Also if another one has come into the cache before it."""
    phi = _hard_matrix()
    f = np.ones(phi.shape[1])
    f[46:51] = 0.5  # columns 46-50 repeat 0-4
    problem = Problem(phi, _target(phi, "squared"), np.ones(len(phi)), "squared", 0.02, factors=f)
    solver = make_solver(explicit_family(phi, f), phi, problem, tol=1e-8)
    assert run(solver)[-1].gap <= 1e-8
    w = dense_weights(solver)
    assert (w[:5] == 0.0).all() and (w[46:51] != 0.0).any()

    cheap = 46 + int(np.flatnonzero(w[46:51])[0])
    cache, local = solver.cache, solver.local
    cache.evict(cache.ids != cheap - 46)  # should it be there
    j = int(np.flatnonzero(cache.ids == cheap)[0])
    slot = cache.slots[j]
    equal = int(cache.store.nonzeros[slot]), int(cache.store.hashes[slot])
    equal = (*equal, float(local.working.gradients[j]))
    assert local.has_equal(cheap - 46, *equal)
    local.factors = lambda ids: np.where(ids == cheap, 2.0, 1.0)
    assert not local.has_equal(cheap - 46, *equal)


def test_a_worse_point_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of the point itself decides, whatever the search reports."""
    phi = _hard_matrix()
    problem = Problem(phi, _target(phi, "squared"), np.ones(len(phi)), "squared", 0.02)
    solver = make_solver(explicit_family(phi), phi, problem)
    run(solver, 4)
    before = solver.outer.point
    worse = Point(before.ids, 1.1 * before.weights, before.intercept)
    monkeypatch.setattr(passes_module, "search", lambda *args: Found(1.0, 0.0, 0.0))
    assert solver.propose(worse) == 0.0
    assert solver.outer.point is before
    monkeypatch.setattr(passes_module, "search", lambda *args: Found(0.5, 0.0, 0.0))
    assert solver.propose(worse) == 0.0
    assert solver.outer.point is before
