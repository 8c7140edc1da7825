"""Gradient rules beyond the contract: exact streams, theorems, implicit steps, numbers at the edge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite
from online_eager import Truncated, chunk_of, dense_point, stream

import fcl
from fcl.kernels import averaged, online
from fcl.online import OnlineOptions, make_learner
from tests.online.conftest import LABELS, ROWS, feed


def test_an_implicit_step_ends_at_its_solution() -> None:
    """Where a step is small far from the solution, and over the range of margins and rates."""
    random = np.random.default_rng(0)
    cases = [(-1.0, 7.382432668971314, 134.71564791776535)]
    for _ in range(20_000):
        m = random.normal() * 10 ** random.uniform(-2, 2)
        cases.append((random.choice([-1.0, 1.0]), m, 10 ** random.uniform(-6, 6)))
    for y, m, q in cases:
        p = -y * online.implicit_slope((0, 0.0, 0.0), y, m, q)
        # p - 1 / (1 + exp(y m + q p)) rises with p at a rate of at least 1
        low, high = (p * (1.0 + side) for side in (-1e-12, 1e-12))
        assert low < 1.0 / (1.0 + math.exp(y * m + q * low)), (y, m, q)
        assert high > 1.0 / (1.0 + math.exp(y * m + q * high)), (y, m, q)


def test_many_truncations_between_two_rows_of_a_feature() -> None:
    """More than the list holds, and a weight that reaches 0 on the way."""
    n = 3 * averaged.MOST_HISTORY + 5
    X = np.zeros((n, 3))
    X[0], X[-1] = [1.0, 100.0, 0.0], [1.0, 1.0, 1.0]
    X[:, 2] = np.arange(n) % 2
    y, s = np.where(np.arange(n) % 3, 1.0, -1.0), np.ones(n)
    options = OnlineOptions(
        1e-3, "logistic", 0.5, 0.0, step="explicit", period=1, average=True, intercept=False
    )
    learner = make_learner("truncated-gradient", 3, options)
    eager = Truncated(options, np.ones(3))
    feed(learner, X, y, s)
    for row in zip(X, y, s, strict=True):
        eager.learn(*row)
    np.testing.assert_allclose(dense_point(learner)[0], eager.point()[0], rtol=1e-9)


def test_float32_is_flushed_before_sums_grow() -> None:
    """The weights stay close to those of float64, though truncations add up to thousands of weights."""
    X, y, s = stream(5, 60_000, 6, "squared")
    found, taken = [], []
    for weights in ("float64", "float32"):
        options = OnlineOptions(5e-7, "squared", 0.1, 0.0, weights=weights, period=1)
        learner = make_learner("truncated-gradient", 6, options)
        feed(learner, X, 1e-6 * y, s)
        found.append(dense_point(learner)[0])
        taken.append(learner.state[3])
    assert np.abs(found[0]).max() < 1e-5 and taken[0] > 2e-3 > taken[1]
    np.testing.assert_allclose(found[1], found[0], rtol=0, atol=1e-3 * np.abs(found[0]).max())


def test_tiny_slopes_do_not_divide_by_zero() -> None:
    """Squares of slopes below 1e-154 underflow to 0."""
    X = np.array([[1e-200, 1.0], [1e-200, -1.0], [1e-180, 0.5]])
    for method, step in (("ftrl", "implicit"), ("truncated-gradient", "adagrad")):
        learner = make_learner(method, 2, OnlineOptions(1e-3, step=step, period=1))
        learner.learn(chunk_of(X), np.array([1.0, -1.0, 1.0]), np.ones(3), np.zeros(3))
        w, b = dense_point(learner)
        assert w[0] == 0.0 and w[1] != 0.0 and np.isfinite(b)


def test_long_rows_fit() -> None:
    p = 70_000
    X = np.ones((2, p))
    learner = make_learner("ftrl", p, OnlineOptions(1e-6))
    learner.learn(chunk_of(X), np.array([1.0, -1.0]), np.ones(2), np.zeros(2))
    assert len(learner.point()[0]) == p


@pytest.mark.parametrize("weights", ["float64", "float32", "q3.12"])
def test_a_flush_leaves_the_weights(weights: str) -> None:
    learner = make_learner("truncated-gradient", 6, OnlineOptions(1e-3, weights=weights, period=3))
    for seed in (0, 1):
        feed(learner, *stream(seed, 50, 6, "logistic"))
        before = dense_point(learner)[0]
        learner.flush()
        np.testing.assert_allclose(dense_point(learner)[0], before, rtol=1e-6, atol=2.0**-12)
        assert before.any()


def test_states_of_earlier_versions_have_no_new_options(tmp_path: Path) -> None:
    data = fcl.open_data(ROWS, y=LABELS)
    own: dict[str, Any] = {"alpha": 1e-3, "rate": 0.2, "certify": False}
    own["method"] = "truncated-gradient"
    whole = fcl.train_online(data, "columns", passes=2, **own)
    first = fcl.train_online(data, "columns", passes=1, **own)
    first.save(tmp_path / "m.fcl")

    def change(members: dict[str, bytes]) -> None:
        run = json.loads(members["online.json"])
        for name in ("average", "gamma", "max_weight", "rates", "most_nonzero"):
            del run["options"][name]
        members["online.json"] = json.dumps(run).encode()

    rewrite(tmp_path / "m.fcl", change)
    more = fcl.train_online(data, resume=tmp_path / "m.fcl", passes=2, certify=False)
    assert more.model.weights.tobytes() == whole.model.weights.tobytes()
