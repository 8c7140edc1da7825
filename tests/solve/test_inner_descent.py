"""Sweeps over the columns of an inner model, and their momentum, against a dense model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels.gather import GatheredColumns
from fcl.parallel import SERIAL, Team
from fcl.solve import inner_descent
from fcl.solve.inner_descent import Descent, QuadraticModel
from fcl.solve.state import LocalPoint
from tests.windows import examples


def make_model(seed: int, k: int = 40, n: int = 300) -> tuple[QuadraticModel, np.ndarray]:
    """A model of columns that nearly depend on each other, and its matrix (k, n)."""
    rng = np.random.default_rng(seed)
    common = rng.random((4, n)) < 0.4
    phi = common[rng.integers(4, size=k)] ^ (rng.random((k, n)) < 0.1)
    phi[:, 0] = True
    firsts = np.array([0, n // 2, n])
    shared = np.array([0.5, 0.0], np.float32)
    q = rng.uniform(0.2, 1.0, n).astype(np.float32)
    q[: n // 2] = shared[0]
    cuts = np.empty((k, 3), np.int64)
    rows, at = [], 0
    for t in range(k):
        for s in range(2):
            inside = np.flatnonzero(phi[t, firsts[s] : firsts[s + 1]])
            cuts[t, s] = at
            at += len(inside)
            rows.append(inside)
        cuts[t, 2] = at
    columns = GatheredColumns(
        cuts, np.concatenate(rows).astype(np.uint16), np.empty(0, np.float32), firsts
    )
    x = phi.astype(float)
    weights = rng.normal(size=k) * (rng.random(k) < 0.5)
    empty = np.zeros(k)
    point = LocalPoint(
        np.arange(k),
        weights,
        x @ rng.normal(size=n) * 2.0,
        empty,
        empty,
        rng.uniform(1.0, 3.0, k),
        empty,
        0.0,
        np.empty(0),
    )
    extra = np.full(k, 1e-3)
    curve = x**2 @ q + extra
    leans = np.empty((k, 0))
    return QuadraticModel(columns, 1.0, shared, q, point, extra, curve, leans, np.arange(k)), x


def descend(model: QuadraticModel, x: np.ndarray, tolerance: float, team: Team = SERIAL) -> Descent:
    """Minimise a model, and check the state at the end."""
    u = np.empty(x.shape[1], np.float32)
    never = lambda: False  # noqa: E731
    descent = Descent(model, u, np.empty(0), np.arange(len(x)), team, never, never)
    descent.run(tolerance)
    d = descent.w - model.at.weights
    np.testing.assert_allclose(u, model.q * (d @ x), rtol=0, atol=1e-3 * np.abs(u).max())
    return descent


@given(st.integers(0, 2**31))
@examples(20)
def test_momentum_saves_sweeps_and_ends_at_the_same_minimum(seed: int) -> None:
    model, x = make_model(seed)
    with pytest.MonkeyPatch.context() as patch:
        ends = []
        for rows in (0, 1 << 20):
            patch.setattr(inner_descent, "MOMENTUM_ROWS", rows)
            ends.append(descend(model, x, 1e-3))
    plain, fast = ends
    assert fast.sweeps <= plain.sweeps + inner_descent.HOT_SWEEPS
    before, after = plain._value(), fast._value()
    assert after == pytest.approx(before, abs=1e-4 * (1.0 + abs(before)))
    # the optimality conditions, with a dense matrix in float64
    d = fast.w - model.at.weights
    slopes = model.at.gradients + model.extra * d + x @ (model.q.astype(float) * (d @ x))
    slopes /= model.at.absolute
    still = fast.w == 0.0
    assert (np.abs(slopes[still]) <= 1.0 + 0.02).all()
    assert (np.abs(slopes[~still] + np.sign(fast.w[~still])) <= 0.02).all()


def test_momentum_saves_many_sweeps_on_the_whole() -> None:
    models = [make_model(seed, 120, 600) for seed in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        sweeps = []
        for rows in (0, 1 << 20):
            patch.setattr(inner_descent, "MOMENTUM_ROWS", rows)
            sweeps.append(sum(descend(*model, 1e-3).sweeps for model in models))
    assert sweeps[1] < 0.7 * sweeps[0]


@given(st.integers(0, 2**31), st.integers(1, 3))
@examples(20)
def test_shares_of_steps_are_the_best(seed: int, n_steps: int) -> None:
    """No other combination of the steps, with the same signs, has a lower value."""
    model, x = make_model(seed)
    model = replace(model, q=model.q.astype(float))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    w = model.at.weights.copy()
    signs = np.sign(w)
    moves = [1e-3 * rng.normal(size=len(w)) * (w != 0.0) for _ in range(n_steps)]
    steps = [(dw, model.q * (dw @ x), np.empty(0)) for dw in moves]
    state = w, np.zeros(x.shape[1]), np.empty(0)
    shares = model.shares(state, steps, signs)  # type: ignore[arg-type]

    def value(shares: np.ndarray) -> float:
        d = shares @ moves
        rows = d @ x
        smooth = model.at.gradients @ d + 0.5 * model.extra @ d**2 + 0.5 * model.q @ rows**2
        return float(smooth + (model.at.absolute * signs) @ d)

    best = value(shares)
    for _ in range(20):
        other = shares * (1.0 + 0.1 * rng.normal(size=n_steps))
        assert value(other) >= best - 1e-9 * abs(best)


def test_two_threads_and_momentum_reach_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inner_descent, "LONG_SWEEP", 1)
    model, x = make_model(1)
    one, two = descend(model, x, 1e-3), descend(model, x, 1e-3, Team(2))
    assert two._value() == pytest.approx(one._value(), abs=1e-4 * abs(one._value()))
