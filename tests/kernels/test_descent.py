"""Coordinate descent on the quadratic model, against dense numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.kernels import descent
from fcl.kernels.gather import GatheredColumns
from fcl.objective.limits import violations
from tests.windows import examples


@dataclass
class Model:
    """The model of the module's description on a dense phi (k, rows)."""

    phi: np.ndarray
    q: np.ndarray
    lin: np.ndarray
    extra: np.ndarray
    lin_b: float
    extra_b: float
    absolute: np.ndarray
    free: bool
    w: np.ndarray
    shared_rows: int  #: so many rows, the first ones, have one q
    low: np.ndarray
    high: np.ndarray

    @property
    def curve_b(self) -> float:
        return float(self.q.sum()) + self.extra_b

    def value(self, d: np.ndarray, d_b: float) -> float:
        dm = d @ self.phi + d_b
        smooth = self.lin @ d + self.lin_b * d_b + 0.5 * (self.q @ dm**2)
        smooth += 0.5 * (self.extra @ d**2) + 0.5 * self.extra_b * d_b**2
        return float(self.absolute @ np.abs(self.w + d) + smooth)

    def slopes(self, d: np.ndarray, d_b: float) -> np.ndarray:
        return self.lin + self.extra * d + self.phi @ (self.q * (d @ self.phi + d_b))


class State:
    """What a sweep reads and writes, gathered from a model."""

    def __init__(self, model: Model, valued: bool) -> None:
        self.model = model
        entries = [np.flatnonzero(column) for column in model.phi]
        found = [column[e] for column, e in zip(model.phi, entries, strict=True)]
        values = np.concatenate(found).astype(np.float32) if valued else np.empty(0, np.float32)
        rows = np.concatenate(entries)
        firsts = np.array([0, model.shared_rows, len(model.q)])
        columns = np.repeat(np.arange(len(entries)), [len(e) for e in entries])
        sizes = np.zeros((len(entries), 2), np.int64)
        np.add.at(sizes, (columns, (rows >= firsts[1]).astype(int)), 1)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        cuts = np.column_stack([ends[:-1].reshape(-1, 2), ends[2::2]])
        rows = np.where(rows < firsts[1], rows, rows - firsts[1]).astype(np.uint16)
        self.columns = GatheredColumns(cuts, rows, values, firsts)
        cross_sums = model.phi @ model.q / np.sqrt(model.curve_b)
        self.cross = cross_sums[:, None] if model.free else np.empty((len(model.w), 0))
        curve = model.phi**2 @ model.q + model.extra
        self.curve = np.maximum(curve - (self.cross**2).sum(axis=1), 1e-9 * curve)
        # in double precision, where sums can be compared to the last digits; the unit must not matter
        self.unit = 4.0 if valued else 1.0
        self.q = model.q / self.unit
        self.shared = np.array([self.q[0] if model.shared_rows else 0.0, 0.0])
        self.u, self.w, self.met = np.zeros(len(model.q)), model.w.copy(), np.zeros(len(model.w))
        self.b = np.full(int(model.free), -model.lin_b / np.sqrt(model.curve_b))

    @property
    def d_b(self) -> float:
        """The step of the intercept."""
        return float(self.b.sum() / np.sqrt(self.model.curve_b))

    @property
    def d(self) -> np.ndarray:
        return self.w - self.model.w

    def sweep(self, order: np.ndarray) -> float:
        m = self.model
        return descent.descent_sweep(
            m.absolute,
            order,
            self.columns,
            self.unit,
            self.shared,
            self.q,
            self.u,
            m.lin,
            m.extra,
            self.curve,
            self.cross,
            m.w,
            m.low,
            m.high,
            self.w,
            self.b,
            self.met,
        )


def make(seed: int, valued: bool, free: bool) -> State:
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(1, 7)), int(rng.integers(8, 40))
    phi = (rng.random((k, n)) < rng.choice([0.2, 0.5, 1.0])).astype(np.float64)
    phi[:, 0] = 1.0  # no column without an entry
    if valued:
        phi *= rng.normal(size=phi.shape).astype(np.float32)
    extra = rng.choice([1e-12, 0.5], k)
    q = rng.exponential(size=n)
    shared_rows = int(rng.choice([0, n // 2, n]))
    q[:shared_rows] = 0.7
    r = rng.normal(size=n) * 3  # residuals: a column like the intercept has its slope too
    w = rng.normal(size=k) * (rng.random(k) < 0.5)
    ends = np.where(rng.random((2, k)) < 0.5, np.inf, rng.choice([0.0, 0.1, 1.0], (2, k)))
    model = Model(
        phi,
        q,
        phi @ r,
        extra,
        float(r.sum()),
        1e-12,
        rng.uniform(0.5, 2.0, k) / rng.choice([0.3, 2.0, 50.0]),
        free,
        w,
        shared_rows,
        np.minimum(-ends[0], w),
        np.maximum(ends[1], w),
    )
    return State(model, valued)


states = st.builds(make, st.integers(0, 2**31), st.booleans(), st.booleans())


@pytest.mark.slow
@given(states)
@examples(60)
def test_sweeps_descend_to_the_minimum_of_the_model(state: State) -> None:
    model = state.model
    order = np.random.default_rng(0).permutation(len(model.w))
    value = model.value(state.d, state.d_b)
    for number in range(3000):
        largest = state.sweep(order)
        before, value = value, model.value(state.d, state.d_b)
        assert value <= before + 1e-12 * abs(before)
        if number < 3:
            u = model.q * (state.d @ model.phi)
            np.testing.assert_allclose(
                state.unit * state.u, u, rtol=0, atol=1e-10 * (1 + np.abs(u).max())
            )
            if model.free:
                b = -(model.lin_b + u.sum()) / model.curve_b
                assert state.d_b == pytest.approx(b, rel=1e-9, abs=1e-9)
        if largest < 1e-9:
            break
    hessian = (model.phi * model.q) @ model.phi.T + np.diag(model.extra)
    if largest >= 1e-3 and np.linalg.cond(hessian) > 1e9:
        return  # dependent columns crawl
    assert largest < 1e-3
    slopes = model.slopes(state.d, state.d_b) / model.absolute
    slack, w = 1e-6 + 10 * largest, state.w
    assert ((w >= model.low) & (w <= model.high)).all()
    at_zero, inner = w == 0.0, (w > model.low) & (w < model.high)
    # the penalised objective rises, or is level, in both directions, unless a limit is in the way
    assert (slopes >= np.where(w < 0.0, 1.0, -1.0) - slack)[w < model.high].all()
    assert (slopes <= np.where(w > 0.0, -1.0, 1.0) + slack)[w > model.low].all()
    assert (np.abs(slopes[at_zero & inner]) <= 1.0 + slack).all()
    np.testing.assert_allclose(slopes[~at_zero & inner], -np.sign(w[~at_zero & inner]), atol=slack)


@given(states)
@examples(40)
def test_a_step_on_one_column_is_exact(state: State) -> None:
    model = state.model
    t = len(model.w) - 1
    state.sweep(np.array([t]))
    best = model.value(state.d, state.d_b)
    for change in (-1e-2, -1e-5, 1e-5, 1e-2):
        d = state.d.copy()
        d[t] = np.clip(model.w[t] + d[t] + change, model.low[t], model.high[t]) - model.w[t]
        d_b = 0.0
        if model.free:  # the intercept follows
            d_b = -(model.lin_b + model.q @ (d @ model.phi)) / model.curve_b
        assert model.value(d, d_b) >= best - 1e-12 * (1 + abs(best))
    assert (np.delete(state.d, t) == 0.0).all()


def test_violations_are_distances_from_the_conditions() -> None:
    g = np.array([0.5, -0.5, 2.0, -2.0, 0.0, -1.0, 1.0, 3.0])
    w = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, -1.0, -1.0])
    expected = [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 2.0]
    assert violations(g, w).tolist() == expected
    assert [descent.violation(*both) for both in zip(g, w, strict=True)] == expected
    assert [descent.soft_threshold(x, 1.0) for x in (3.0, 0.5, -0.5, -3.0)] == [2.0, 0.0, 0.0, -2.0]


def test_eliminated_covariates_follow_every_step() -> None:
    """Without a penalty, sweeps with cross terms reach the least squares over columns and covariates."""
    random = np.random.default_rng(8)
    state = make(3, valued=True, free=True)
    model, k, n = state.model, len(state.w), len(state.q)
    z = np.column_stack([np.ones(n), random.normal(size=(n, 2))])
    w = z @ np.linalg.inv(np.linalg.cholesky((z.T * model.q) @ z)).T  # orthonormal in the weights q
    state.cross = model.phi @ (w * model.q[:, None])
    model.absolute[:], model.low[:], model.high[:] = 1e-12, -np.inf, np.inf
    state.b = np.zeros(3)
    state.curve = model.phi**2 @ model.q + model.extra - (state.cross**2).sum(axis=1)
    for _ in range(3000):
        state.sweep(np.arange(k))
    # the gradients of the columns and covariates at the final margins
    dm = state.d @ model.phi + w @ state.b
    slopes = model.lin + model.extra * state.d + model.phi @ (model.q * dm)
    scale = np.abs(model.lin).max()
    assert np.abs(slopes).max() < 1e-6 * scale
    assert np.abs(w.T @ (model.q * dm)).max() < 1e-6 * scale
