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
    phi = common[rng.integers(4, size=k)] ^ (rng.random((k, n)) < 0.3)
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
        empty - np.inf,
        empty + np.inf,
        0.0,
        np.empty(0),
    )
    extra = np.full(k, 1.0)
    curve = x**2 @ q + extra
    cross = np.empty((k, 0))
    return QuadraticModel(columns, 1.0, shared, q, point, extra, curve, cross, np.arange(k)), x


def descend(
    model: QuadraticModel,
    x: np.ndarray,
    tolerance: float,
    team: Team = SERIAL,
    plain: bool = False,
) -> Descent:
    """Minimise a model, and check the state at the end."""
    u = np.empty(x.shape[1], np.float32)
    never = lambda: False  # noqa: E731
    order = np.arange(len(x))
    descent = Descent(model, u, np.empty(0), order, team, never, never, plain=plain)
    descent.run(tolerance)
    d = descent.w - model.at.weights
    np.testing.assert_allclose(u, model.q * (d @ x), rtol=0, atol=1e-3 * np.abs(u).max())
    return descent


@given(st.integers(0, 2**31), st.booleans())
@examples(20)
def test_sweeps_end_at_the_minimum_with_and_without_momentum(seed: int, momentum: bool) -> None:
    model, x = make_model(seed)
    gained = []
    gain = Descent._gain_momentum

    def watched(self: Descent, begin: inner_descent.State) -> None:
        before, weights = self._value(), self.w.copy()
        gain(self, begin)
        assert self._value() <= before
        moved = self.w != weights
        gained.append(bool(moved.any()))
        # a weight may end at 0, but not change its sign, and one of 0 stays 0
        assert (self.w[moved] * weights[moved] >= 0.0).all()
        assert (self.w[weights == 0.0] == 0.0).all()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inner_descent, "LONG_SWEEP", 1 if momentum else 1 << 40)
        patch.setattr(Descent, "_gain_momentum", watched)
        descent = descend(model, x, 3e-3)
    assert any(gained) == momentum
    # the optimality conditions, with a dense matrix in float64
    d = descent.w - model.at.weights
    slopes = model.at.gradients + model.extra * d + x @ (model.q.astype(float) * (d @ x))
    slopes /= model.at.absolute
    still = descent.w == 0.0
    assert (np.abs(slopes[still]) <= 1.0 + 0.05).all()
    assert (np.abs(slopes[~still] + np.sign(descent.w[~still])) <= 0.05).all()


@given(st.integers(0, 2**31), st.sampled_from([0.0, 0.5, 0.75]), st.booleans())
@examples(20)
def test_plain_sweeps_lower_the_model_and_leave_the_rest_to_nested_ones(
    seed: int, fast: float, rough: bool
) -> None:
    model, x = make_model(seed)
    exact = descend(model, x, 3e-3)._value()
    sufficed = []
    plainly = Descent._plainly

    def watched(self: Descent, order: inner_descent.SweepOrder, tolerance: float) -> bool:
        sufficed.append(plainly(self, order, tolerance))
        return sufficed[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inner_descent, "LEAST_PLAIN", 0)
        patch.setattr(inner_descent, "FAST", fast)
        patch.setattr(inner_descent, "ROUGH", 0.1 if rough else 0.0)
        patch.setattr(Descent, "_plainly", watched)
        descent = descend(model, x, 3e-3, plain=True)
    start = model.value(model.at.weights, np.zeros(x.shape[1], np.float32), np.empty(0))
    left = (descent._value() - exact) / (start - exact)
    assert left <= (0.2 if rough else 1e-3)
    assert descent.rough == (rough and sufficed[0])
    if not fast:  # any second sweep gains more than nothing
        assert not sufficed[0] or rough


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


def test_two_threads_reach_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = make_model(1)
    one = descend(model, x, 3e-3)
    monkeypatch.setattr(inner_descent, "LONG_SWEEP", 1)
    two = descend(model, x, 3e-3, Team(2))
    assert two._value() == pytest.approx(one._value(), rel=1e-4)
