"""Gradient rules beyond the contract: exact streams, theorems, implicit steps, numbers at the edge."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite
from hypothesis import given
from hypothesis import strategies as st
from online_eager import (
    LOSSES,
    Truncated,
    chunk_of,
    dense_point,
    implicit_slope,
    loss_of,
    stream,
)
from windows import examples

import fcl
from fcl.kernels import averaged, online
from fcl.online import OnlineOptions, make_learner
from tests.online.conftest import LABELS, ROWS, feed


def dyadic_stream(seed: int, n: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels and weights of few bits, for which every operation of the hinge is exact."""
    random = np.random.default_rng(seed)
    X = random.integers(-3, 4, (n, p)) * 0.5 * (random.random((n, p)) < 0.5)
    return X, random.choice([-1.0, 1.0], n), random.choice([0.0, 1.0, 2.0], n, p=[0.1, 0.7, 0.2])


@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 4]),
    st.sampled_from([math.inf, 0.25]),
    st.sampled_from(["soft", "round"]),
    st.sampled_from(["float64", "float32", "q8.16"]),
)
@examples(90)
def test_dyadic_streams_give_the_same_bits(
    seed: int, period: int, theta: float, truncation: str, weights: str
) -> None:
    theta = 0.25 if truncation == "round" else theta
    options = OnlineOptions(
        1 / 64, "hinge", 0.125, 0.0, step="explicit", period=period, theta=theta,
        truncation=truncation, weights=weights,
    )  # fmt: skip
    X, y, s = dyadic_stream(seed, 200, 6)
    learner = make_learner("truncated-gradient", 6, options)
    eager = Truncated(options, np.ones(6))
    margins = feed(learner, X, y, s, [70])
    expected = np.array([eager.learn(*row) for row in zip(X, y, s, strict=True)])
    assert np.array_equal(margins[s > 0], expected[s > 0])
    for _ in range(2):  # the second time after the flush
        w, b = dense_point(learner)
        assert np.array_equal(w, eager.w) and b == eager.b
        learner.flush()


@given(st.integers(0, 2**31), st.sampled_from(LOSSES))
@examples(60)
def test_implicit_slopes_solve_their_equation(seed: int, loss: str) -> None:
    random = np.random.default_rng(seed)
    code = OnlineOptions(0.0, loss=loss).kernel_loss
    for _ in range(50):
        m, q = random.normal() * 10 ** random.uniform(-2, 3), 10 ** random.uniform(-12, 12)
        y = float(random.choice([-1, 1]))
        r = online.implicit_slope(code, y, m, q)
        expected = implicit_slope(loss, y, m, q)
        assert r == pytest.approx(expected, rel=1e-11, abs=1e-200), (m, q)


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


@pytest.mark.parametrize("theta", [math.inf, 0.3])
@pytest.mark.parametrize("loss", LOSSES)
def test_regret_is_bounded(loss: str, theta: float) -> None:
    """Theorem 3.1 of Langford, Li and Zhang, on a stream whose labels contradict every prediction."""
    random = np.random.default_rng(7)
    n, p, alpha = 300, 6, 0.05
    X = random.normal(size=(n, p))
    radius2 = float((X**2).sum(axis=1).max()) + 1.0
    A, B = (0.0, radius2) if loss in ("logistic", "hinge") else (4.0 * radius2, 0.0)
    eta = 0.02 if A == 0.0 else 0.2 / radius2
    options = OnlineOptions(alpha, loss, eta, 0.0, step="explicit", period=1, theta=theta)
    learner = make_learner("truncated-gradient", p, options)
    left, seen = 0.0, []
    for t in range(n):
        w, b = dense_point(learner)
        m = float(X[t] @ w + b)
        y = -1.0 if m >= 0 else 1.0
        y = y * (t % 3 != 0) or float(random.choice([-1, 1]))
        feed(learner, X[t : t + 1], np.array([y]), np.ones(1))
        w, _ = dense_point(learner)
        small = np.abs(w) <= theta
        left += (1 - A * eta / 2) * loss_of(loss, y, m) + alpha * np.abs(w[small]).sum()
        seen.append((y, small))
    tightest = math.inf
    ends = [(np.zeros(p), 0.0), dense_point(learner)]
    ends += [(random.normal(size=p), random.normal()) for _ in range(3)]
    for w, b in ends:
        right = n * eta * B / 2 + (w @ w + b * b) / (2 * eta)
        for x, (y, small) in zip(X, seen, strict=True):
            right += loss_of(loss, y, float(x @ w + b)) + alpha * np.abs(w[small]).sum()
        tightest = min(tightest, right / left)
    assert 1.0 <= tightest < 50.0


def test_theorem_3_2_holds_for_the_mean() -> None:
    """E (1 - A eta/2) R(w^, g/(1 - A eta/2)) <= eta B/2 + |w*|^2/(2 eta T) + R(w*, g), over 40 draws."""
    random = np.random.default_rng(1)
    n, p, g, T = 50, 4, 0.02, 400
    X = random.normal(size=(n, p))
    y = np.where(X[:, 0] + random.normal(size=n) > 0.0, 1.0, -1.0)
    radius2 = float((X**2).sum(axis=1).max())
    for loss in ("hinge", "squared"):
        A, B = (4.0 * radius2, 0.0) if loss == "squared" else (0.0, radius2)
        eta = 0.1 / radius2 if loss == "squared" else 0.02
        shrink = 1.0 - 0.5 * A * eta

        def objective(w: np.ndarray, gravity: float, loss: str = loss) -> float:
            mean = np.mean([loss_of(loss, *pair) for pair in zip(y, X @ w, strict=True)])
            return float(mean + gravity * np.abs(w).sum())

        found, last = [], []
        for _ in range(40):
            draws = random.integers(0, n, T)
            options = OnlineOptions(
                g, loss, eta, 0.0, step="explicit", period=1, average=True, intercept=False
            )
            learner = make_learner("truncated-gradient", p, options)
            feed(learner, X[draws], y[draws], np.ones(T))
            w, _ = dense_point(learner)
            found.append(shrink * objective(w, g / shrink))
            last.append(w)
        candidates = [np.zeros(p), np.mean(last, axis=0)]
        for w in candidates:
            right = eta * B / 2 + w @ w / (2 * eta * T) + objective(w, g)
            assert np.mean(found) + 4.0 * np.std(found) / math.sqrt(40) <= right
            assert right < 3.0 * np.mean(found)


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


@pytest.mark.parametrize("method", ["ftrl", "truncated-gradient"])
def test_a_row_that_diverges_changes_nothing(method: str) -> None:
    options = OnlineOptions(0.0, "squared", 1e70, 0.0, step="explicit", period=1)
    learner = make_learner(method, 2, options)
    X = np.array([[1e38, 0.0], [1e38, 1.0], [1e38, 1.0], [1.0, 1.0]])
    y, s, margins = np.ones(4), np.ones(4), np.zeros(4)
    done = learner.learn(chunk_of(X), y, s, margins)
    assert 0 < done < 4 and learner.rows == done
    assert np.isfinite(learner.table).all()


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
