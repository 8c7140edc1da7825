"""Projected stochastic gradient on the ball: its heap, its regret, and how near the optimum it comes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from online_eager import LOSSES, Ball, dense_point

import fcl
from fcl.features.rows import RowChunk
from fcl.kernels import ball_heap
from fcl.online import OnlineOptions, make_learner
from fcl.online.ball import BallLearner
from tests import by_name


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

    def matrix(self) -> np.ndarray:
        X = np.zeros((self.n, self.p))
        np.add.at(X, (np.repeat(np.arange(self.n), np.diff(self.indptr)), self.ids), self.values)
        return X


def learner_for(rows: Rows, factors: np.ndarray | None = None, **options: Any) -> BallLearner:
    """A learner on the ball, by the name of its method."""
    given_ = OnlineOptions(**{"alpha": 0.0, "radius": 1.0, **options})
    learner = make_learner("ball", rows.p, given_, factors)
    assert isinstance(learner, BallLearner)
    return learner


def dense(learner: BallLearner) -> np.ndarray:
    return dense_point(learner)[0]


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
    batch=st.sampled_from([0, 1, 2, 3, 10, 45, 200]),
)
@settings(max_examples=15)
def test_sparse_rows_give_the_projections_of_whole_vectors(
    seed: int, loss: str, weighted: bool, radius: float, rate: float, batch: int
) -> None:
    """Two passes of rows with offsets, rebased on the way; batch 0 stands for implicit steps."""
    rows = Rows(seed, 100, 1 + seed % 40)
    a = rows.rng.choice([0.0, 0.5, 1.0, 2.0, 3.3, np.inf], rows.p) if weighted else np.ones(rows.p)
    own: dict[str, Any] = {"step": "explicit", "batch": batch} if batch else {}
    own |= {"loss": loss, "radius": radius, "rate": rate / (10.0 if loss == "squared" else 1.0)}
    learner = learner_for(rows, a if weighted else None, decay=0.5, **own)
    eager, X, size = Ball(learner.options, a), rows.matrix(), 1.0
    for _ in range(2):
        for i in range(rows.n):
            eager.b += rows.offset[i]
            m = eager.learn(X[i], rows.y[i], rows.s[i])
            eager.b -= rows.offset[i]
            size = max(size, abs(m), float(np.abs(eager.w).max()))
            margin = float(rows.learn(learner, i, i + 1)[0])
            assert margin == pytest.approx(m if rows.s[i] else rows.offset[i], abs=1e-8 * size)
            if i % 10 == 9:
                assert np.abs(dense(learner) - eager.w).max() <= 1e-9 * size
                check_heap(learner)
                ball_heap.rebase(learner.ball)
        learner.end_pass()
        eager.end_pass()
        assert np.abs(dense(learner) - eager.w).max() <= 1e-9 * size
    assert learner.intercept == pytest.approx(eager.b, abs=1e-8 * size)
    assert learner.rows == eager.rows and learner.weight == pytest.approx(eager.weight)


def test_rebases_change_nothing_over_many_rows() -> None:
    rows = Rows(1, 6_000, 400, most=20)
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


@pytest.mark.parametrize("batch", [1, 2500])
def test_the_heap_and_batches_grow(batch: int) -> None:
    rows = Rows(3, 3000, 5000, most=40)
    learner = learner_for(rows, radius=1e6, rate=0.1, step="explicit", batch=batch)
    rows.learn(learner, 0, 2400)
    assert (len(learner.point()[0]) == 0) == (batch > 1) and len(learner.saved()["ids"]) > 2048
    rows.learn(learner, 2400, rows.n)
    assert len(learner.point()[0]) > 2048
    check_heap(learner)


def test_a_radius_below_the_last_digit_leaves_nothing() -> None:
    rows = Rows(5, 50, 10)
    learner = learner_for(rows, radius=1e-30, rate=1.0)
    rows.learn(learner, 0, rows.n)
    check_heap(learner)
    assert np.abs(dense(learner)).sum() <= 1e-30 * (1.0 + 1e-12)


# -- jobs ------------------------------------------------------------------------------------------

_RNG = np.random.default_rng(7)
X = _RNG.normal(size=(2500, 40))
Y = (X[:, :5] @ [1.0, -1.0, 0.5, 2.0, -0.7] + _RNG.logistic(size=2500) > 0.0).astype(np.int8)
S = _RNG.choice([0.0, 1.0, 2.0], 2500)


def learn(features: str = "columns", **options: Any) -> fcl.OnlineResult:
    given_ = {"C": 0.05, "method": "ball", "rate": 0.5, "block_rows": 640, **options}
    return by_name.train_online(fcl.open_data(X, y=Y, weights=S), features, **given_)


def mean_loss(model: fcl.Model) -> float:
    """The mean logistic loss of a model, recomputed."""
    w = np.zeros(X.shape[1])
    w[model.ids] = model.weights
    margins = X @ w + model.intercept
    return float(np.average(np.logaddexp(0.0, -(2.0 * Y - 1.0) * margins), weights=S))


@pytest.fixture(scope="module")
def optimum() -> fcl.Model:
    return fcl.train(fcl.open_data(X, y=Y, weights=S), "columns", C=0.05, tol=1e-7).model


@pytest.mark.parametrize(("step", "batch"), [("implicit", 1), ("explicit", 1), ("explicit", 100)])
def test_the_loss_approaches_that_of_the_optimum_of_the_same_norm(
    optimum: fcl.Model, step: str, batch: int
) -> None:
    radius = float(np.abs(optimum.weights).sum())
    least, found = mean_loss(optimum), []
    for passes in (1, 20):
        own: dict[str, Any] = {"step": step, "batch": batch, "rate": "auto", "decay": 0.8}
        result = learn(radius=radius, passes=passes, certify=False, **own)
        assert np.abs(result.model.weights).sum() <= radius * (1.0 + 1e-12)
        assert result.progress[-1].norm <= radius * (1.0 + 1e-12)
        found.append(mean_loss(result.model) / least - 1.0)
    # the optimum of the penalised problem is that of the ball, too, to its gap
    assert -1e-6 <= found[1] < 0.005 and found[1] < found[0] < 0.2


def test_the_certificate_is_that_of_the_radius(optimum: fcl.Model, tmp_path: Any) -> None:
    """Also where the weights are inside of it, and from the file."""
    radius = float(np.abs(optimum.weights).sum())
    # at a rate this small one pass ends inside of the ball
    result = learn(radius=radius, rate=0.01)
    found = result.optimality
    assert found is not None and found.radius == radius and found.penalty < 0.9 * radius
    above = (mean_loss(result.model) - mean_loss(optimum)) * result.model.sum_weights
    assert 0.0 < above <= found.ball_gap
    result.save(tmp_path / "m.fcl")
    data = fcl.open_data(X, y=Y, weights=S)
    again = fcl.certify(tmp_path / "m.fcl", data)
    assert again.radius == radius and again.ball_gap == pytest.approx(found.ball_gap, rel=1e-9)
    # an option still overrides it
    assert fcl.certify(tmp_path / "m.fcl", data, radius=2.0 * radius).radius == 2.0 * radius


def test_penalty_factors_weigh_the_norm() -> None:
    own: dict[str, Any] = {"radius": 2.0, "passes": 3, "certify": False}
    model, weighted = learn(**own).model, learn("columns * 2", **own).model
    assert np.abs(model.weights).sum() == pytest.approx(2.0)
    assert 2.0 * np.abs(weighted.weights).sum() == pytest.approx(2.0)
