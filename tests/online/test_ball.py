"""Projected stochastic gradient on the ball: the heap against projections of the whole vector."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fcl.features.rows import RowChunk
from fcl.kernels import ball_heap
from fcl.online import OnlineOptions, make_learner, project_l1_ball
from fcl.online.ball import BallLearner

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


def slope(loss: str, y: float, m: float) -> float:
    """The derivative of a loss, from its definition."""
    if loss == "logistic":
        return -y / (1.0 + math.exp(min(y * m, 700.0)))
    if loss == "squared":
        return 2.0 * (m - y)
    h = 1.0 - y * m
    return (-2.0 * y * h if loss == "squared_hinge" else -y) if h > 0.0 else 0.0


def implicit(loss: str, y: float, m: float, q: float) -> float:
    """The r with r = loss'(y, m - q r), by bisection: it lies between 0 and the slope at m."""
    low, high = sorted([0.0, slope(loss, y, m)])
    for _ in range(100):
        r = 0.5 * (low + high)
        if r > slope(loss, y, m - q * r):
            high = r
        else:
            low = r
    return 0.5 * (low + high)


class Rows:
    """Random sparse rows, with labels and weights; some weights are 0."""

    def __init__(self, seed: int, n: int, p: int, most: int = 8) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.n, self.p = n, p
        counts = rng.integers(0, min(most, p) + 1, n)
        self.indptr = np.concatenate([[0], np.cumsum(counts)])
        self.ids = np.concatenate([np.empty(0, int), *(rng.choice(p, k, False) for k in counts)])
        self.values = rng.choice([1.0, -1.0, 0.5, 0.0, rng.normal()], len(self.ids))
        self.y = rng.choice([-1.0, 1.0], n)
        self.s = rng.choice([0.0, 1.0, 2.5], n, p=[0.1, 0.6, 0.3])
        self.offset = rng.normal(size=n)

    def learn(self, learner: BallLearner, first: int, last: int) -> np.ndarray:
        """Learn a range of rows; returns their margins."""
        lo, hi = self.indptr[first], self.indptr[last]
        indptr = self.indptr[first : last + 1] - lo
        chunk = RowChunk(indptr, self.ids[lo:hi].astype(np.int32), self.values[lo:hi].copy())
        margins = self.offset[first:last].copy()
        assert learner.learn(chunk, self.y[first:last], self.s[first:last], margins) == last - first
        return margins


def learner_for(rows: Rows, factors: np.ndarray | None = None, **options: Any) -> BallLearner:
    """A learner on the ball, by the name of its method."""
    given_ = OnlineOptions(**{"alpha": 0.0, "radius": 1.0, **options})
    learner = make_learner("ball", rows.p, given_, factors)
    assert isinstance(learner, BallLearner)
    return learner


def dense(learner: BallLearner) -> np.ndarray:
    ids, weights, _ = learner.point()
    w = np.zeros(learner.n_features)
    w[ids] = weights
    return w


def check_heap(learner: BallLearner) -> None:
    """The invariants of the heap: order, positions, sums and the radius."""
    ball = learner.ball
    count = int(ball.state[ball_heap.COUNT])
    ids, keys = ball.ids[:count], np.abs(ball.keys[:count])
    nodes = np.arange(1, count)
    assert (keys[(nodes - 1) // 4] <= keys[nodes]).all()
    assert (ball.place[ids] == np.arange(count)).all() and (ball.place >= 0).sum() == count
    assert (keys >= ball.state[ball_heap.SHIFT]).all()
    a = ball.factors[ids] if len(ball.factors) else np.ones(count)
    total = ball.state[ball_heap.SUM] + ball.state[ball_heap.SUM_CARRY]
    assert total == pytest.approx(math.fsum(a * a * keys), rel=1e-13, abs=1e-300)
    squares = ball.state[ball_heap.SQUARES] + ball.state[ball_heap.SQUARES_CARRY]
    assert squares == pytest.approx(math.fsum(a * a), rel=1e-13)
    w = np.abs(dense(learner)[ids])
    assert math.fsum(a * w) <= learner.rule.radius * (1.0 + 1e-12)


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from(LOSSES),
    weighted=st.booleans(),
    radius=st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3]),
    rate=st.sampled_from([0.01, 0.1, 1.0]),
    rebased=st.booleans(),
    explicit=st.booleans(),
)
@settings(max_examples=40)
def test_every_row_equals_the_projection_of_the_whole_vector(
    seed: int, loss: str, weighted: bool, radius: float, rate: float, rebased: bool, explicit: bool
) -> None:
    rows = Rows(seed, 100, 1 + seed % 40)
    factors = rows.rng.choice([0.0, 0.5, 1.0, 2.0, 3.3, np.inf], rows.p) if weighted else None
    if loss == "squared":
        rate /= 10.0
    step = "explicit" if explicit else "implicit"
    learner = learner_for(rows, factors, loss=loss, radius=radius, rate=rate, step=step)
    a = np.ones(rows.p) if factors is None else factors
    w, b, t = np.zeros(rows.p), 0.0, 0
    held = np.isfinite(a)
    size = 1.0
    for i in range(rows.n):
        if rebased and i % 50 == 49:
            ball_heap.rebase(learner.ball)
        some = slice(rows.indptr[i], rows.indptr[i + 1])
        ids, x = rows.ids[some], rows.values[some]
        margin = float(rows.learn(learner, i, i + 1)[0])
        if rows.s[i] == 0.0:
            assert margin == rows.offset[i]
            continue
        m = rows.offset[i] + b + float(w[ids] @ x)
        assert margin == pytest.approx(m, rel=1e-9, abs=1e-9 * size)
        t += 1
        eta = rate / math.sqrt(t) * rows.s[i]
        if explicit:
            r = slope(loss, rows.y[i], m)
        else:
            r = implicit(loss, rows.y[i], m, eta * (x @ x + 1.0))
        b -= eta * r
        w[ids] -= eta * r * x
        w[~held] = 0.0
        size = max(size, float(np.abs(w).max()))
        w[held] = project_l1_ball(w[held], radius, a[held])
        assert np.abs(dense(learner) - w).max() <= 1e-10 * size
        if i % 5 == 0:
            check_heap(learner)
    assert learner.rows == t and learner.weight == pytest.approx(rows.s.sum())
    assert learner.intercept == pytest.approx(b, rel=1e-9, abs=1e-9 * size)


def test_rebases_change_nothing_over_many_rows() -> None:
    rows = Rows(1, 20_000, 400, most=20)
    options = {"radius": 2.0, "rate": 0.5}
    plain, rebased = learner_for(rows, **options), learner_for(rows, **options)
    rows.learn(plain, 0, rows.n)
    shifted = False
    for first in range(0, rows.n, 50):
        rows.learn(rebased, first, first + 50)
        shifted |= rebased.state[ball_heap.SHIFT] > 0.0
        ball_heap.rebase(rebased.ball)
    assert shifted and 10 < np.count_nonzero(dense(plain)) < 390
    assert np.abs(dense(plain) - dense(rebased)).max() <= 1e-12
    check_heap(plain)


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from(LOSSES),
    weighted=st.booleans(),
    radius=st.sampled_from([1e-3, 0.1, 1.0, 10.0, 1e3]),
    rate=st.sampled_from([0.01, 0.1, 1.0]),
    batch=st.sampled_from([2, 3, 10, 45, 200]),
    cut=st.integers(0, 100),
)
@settings(max_examples=40)
def test_every_batch_equals_the_projection_of_the_whole_vector(
    seed: int, loss: str, weighted: bool, radius: float, rate: float, batch: int, cut: int
) -> None:
    """Two passes, whose last batches are smaller; the first pass is cut in two calls."""
    rows = Rows(seed, 100, 1 + seed % 40)
    a = rows.rng.choice([0.0, 0.5, 1.0, 2.0, 3.3, np.inf], rows.p) if weighted else np.ones(rows.p)
    held = np.isfinite(a)
    if loss == "squared":
        rate /= 10.0
    given = {"loss": loss, "radius": radius, "rate": rate, "step": "explicit", "batch": batch}
    learner = learner_for(rows, a if weighted else None, decay=0.5, **given)
    X = np.zeros((rows.n, rows.p))
    np.add.at(X, (np.repeat(np.arange(rows.n), np.diff(rows.indptr)), rows.ids), rows.values)
    w, b, taken, size = np.zeros(rows.p), 0.0, 0, 1.0
    counted = np.flatnonzero(rows.s)
    for number in range(2):
        margins = [rows.learn(learner, 0, cut), rows.learn(learner, cut, rows.n)]
        found = np.concatenate(margins)
        learner.end_pass()
        for first in range(0, len(counted), batch):
            some = counted[first : first + batch]
            m = rows.offset[some] + b + X[some] @ w
            assert found[some] == pytest.approx(m, rel=1e-8, abs=1e-8 * size)
            r = rows.s[some] * [slope(loss, y, t) for y, t in zip(rows.y[some], m, strict=True)]
            taken += len(some)
            eta = rate * 0.5**number / math.sqrt(taken / batch) / len(some)
            b -= eta * r.sum()
            w -= eta * (r @ X[some])
            w[~held] = 0.0
            size = max(size, float(np.abs(w).max()))
            w[held] = project_l1_ball(w[held], radius, a[held])
        assert np.abs(dense(learner) - w).max() <= 1e-9 * size
        assert learner.intercept == pytest.approx(b, rel=1e-8, abs=1e-8 * size)
        check_heap(learner)
    assert learner.rows == taken and learner.weight == pytest.approx(2.0 * rows.s.sum())


@pytest.mark.parametrize("batch", [1, 7, 400])
@pytest.mark.parametrize("weighted", [False, True])
def test_cuts_and_saved_states_give_the_same_bits(weighted: bool, batch: int) -> None:
    rows = Rows(2, 600, 50)
    factors = rows.rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], rows.p) if weighted else None
    options: dict[str, Any] = {"radius": 2.0, "rate": 0.7, "decay": 0.9}
    if batch > 1:
        options |= {"step": "explicit", "batch": batch}
    whole = learner_for(rows, factors, **options)
    margins = [rows.learn(whole, 0, rows.n)]
    whole.end_pass()
    margins.append(rows.learn(whole, 0, rows.n))
    for cut in (0, 1, 17, 300, 599, 600):
        cut_up = learner_for(rows, factors, **options)
        found = [rows.learn(cut_up, 0, cut)]
        later = learner_for(rows, factors, **options)
        rows.learn(later, 0, 100)  # a state that must be forgotten
        later.restore(cut_up.saved())
        found.append(rows.learn(later, cut, rows.n))
        later.end_pass()
        assert np.array_equal(np.concatenate(found), margins[0])
        assert np.array_equal(rows.learn(later, 0, rows.n), margins[1])
        assert np.array_equal(dense(later), dense(whole))
        assert later.intercept == whole.intercept and later.rows == whole.rows
        check_heap(later)


def test_the_heap_grows() -> None:
    rows = Rows(3, 3000, 5000, most=40)
    learner = learner_for(rows, radius=1e6, rate=0.1)
    rows.learn(learner, 0, rows.n)
    assert len(learner.point()[0]) > 2048
    check_heap(learner)


@pytest.mark.slow
def test_regret_is_within_the_bound() -> None:
    """Zinkevich 2003 for logistic loss: slopes are at most 1, and rows have at most R^2 = |x|^2 + 1."""
    rows = Rows(4, 2000, 30)
    rows.s[:] = 1.0
    rows.offset[:] = 0.0
    radius, rate = 3.0, 0.3
    learner = learner_for(rows, radius=radius, rate=rate, step="explicit")
    X = np.zeros((rows.n, rows.p))
    np.add.at(X, (np.repeat(np.arange(rows.n), np.diff(rows.indptr)), rows.ids), rows.values)
    truth = project_l1_ball(rows.rng.normal(size=rows.p), radius)
    rows.y = np.where(rows.rng.random(rows.n) < 1.0 / (1.0 + np.exp(-X @ truth)), 1.0, -1.0)
    intercepts, margins = [], []
    for i in range(rows.n):
        margins.append(rows.learn(learner, i, i + 1)[0])
        intercepts.append(learner.intercept)
    paid = np.logaddexp(0.0, -rows.y * np.array(margins)).sum()
    square = (X**2).sum(axis=1).max() + 1.0
    for w in (truth, np.zeros(rows.p), dense(learner)):
        diameter = (2.0 * radius) ** 2 + np.max(np.square(intercepts))
        bound = (diameter / (2.0 * rate) + square * rate) * math.sqrt(rows.n)
        assert paid - np.logaddexp(0.0, -rows.y * (X @ w)).sum() <= bound
    assert paid < np.logaddexp(0.0, np.zeros(rows.n)).sum()


def test_a_radius_below_the_last_digit_leaves_nothing() -> None:
    rows = Rows(5, 50, 10)
    learner = learner_for(rows, radius=1e-30, rate=1.0)
    rows.learn(learner, 0, rows.n)
    check_heap(learner)
    assert np.abs(dense(learner)).sum() <= 1e-30 * (1.0 + 1e-12)


def test_batches_grow() -> None:
    rows = Rows(3, 3000, 5000, most=40)
    learner = learner_for(rows, radius=1e6, rate=0.1, step="explicit", batch=2500)
    rows.learn(learner, 0, 2400)
    assert not len(learner.point()[0]) and len(learner.saved()["ids"]) > 2048
    rows.learn(learner, 2400, rows.n)
    assert len(learner.point()[0]) > 2048
    check_heap(learner)


def test_a_margin_that_is_not_finite_ends_learning() -> None:
    rows = Rows(8, 30, 5)
    learner = learner_for(rows)
    before = rows.learn(learner, 0, 10)
    assert np.isfinite(before).all()
    state = learner.saved()
    chunk = RowChunk(np.array([0, 1]), np.zeros(1, np.int32), np.array([np.inf]))
    learner.learn(RowChunk(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1)), *np.ones((3, 1)))
    at = learner.rows
    assert learner.learn(chunk, np.ones(1), np.ones(1), np.zeros(1)) == 0
    assert learner.rows == at and at == int(state["state"][0]) + 1
