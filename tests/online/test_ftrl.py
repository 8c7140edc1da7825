"""The regularised leader: the minimiser of its definition, and AdaGrad without penalty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import chunk_of, dense_point, slope, stream
from windows import examples

from fcl.online import OnlineOptions, make_learner

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


@pytest.mark.slow
@given(st.integers(0, 2**31), st.sampled_from(LOSSES), st.sampled_from([1.0, 0.4]))
@examples(30)
def test_it_minimises_its_definition(seed: int, loss: str, rho: float) -> None:
    n, p, rate, alpha = 25, 4, 0.2, 0.03
    X, y, s = stream(seed, n, p, loss)
    factors = np.array([1.0, 0.5, 2.0, np.inf])
    learner = make_learner("ftrl", p, OnlineOptions(alpha, loss, rate, l1_ratio=rho), factors)
    slopes, shifts, sigmas = np.zeros((3, p))
    squares, total = np.zeros(p), 0.0
    for x, label, weight in zip(X, y, s, strict=True):
        before, b = dense_point(learner)
        margins = np.zeros(1)
        learner.learn(chunk_of(x[None]), np.array([label]), np.array([weight]), margins)
        if weight == 0.0:
            continue
        m = float(x @ before + b)
        assert margins[0] == pytest.approx(m, rel=1e-12, abs=1e-12)
        d = weight * slope(loss, label, m) * x
        new = (np.sqrt(squares + d * d) - np.sqrt(squares)) / rate
        squares = squares + d * d
        slopes, shifts, sigmas = slopes + d, shifts + new * before, sigmas + new
        total += weight
        w, _ = dense_point(learner)
        assert w[3] == 0.0
        for j in range(3):
            if sigmas[j] == 0.0:
                assert w[j] == 0.0
                continue

            # the optimality condition, which is sharper than a search
            ridge = total * alpha * factors[j] * (1 - rho)
            soft = total * alpha * factors[j] * rho
            gradient = slopes[j] - shifts[j] + (sigmas[j] + ridge) * w[j]
            scale = 1e-12 * (1.0 + abs(slopes[j] - shifts[j]) + soft)
            if w[j]:
                assert gradient == pytest.approx(-soft * np.sign(w[j]), abs=scale)
            else:
                assert abs(gradient) <= soft + scale
            grid = w[j] + np.linspace(-1, 1, 41) * (1.0 + abs(w[j]))
            values = (slopes[j] - shifts[j]) * grid + (sigmas[j] + ridge) * grid**2 / 2
            values += soft * np.abs(grid)
            assert values[20] <= values.min() + scale * (1.0 + np.abs(grid).max())


@pytest.mark.parametrize("loss", LOSSES)
def test_without_penalty_it_is_adagrad(loss: str) -> None:
    X, y, s = stream(4, 200, 6, loss)
    leader = make_learner("ftrl", 6, OnlineOptions(0.0, loss, 0.3))
    adagrad = make_learner("truncated-gradient", 6, OnlineOptions(0.0, loss, 0.3, step="adagrad"))
    margins = np.zeros((2, 200))
    for learner, out in zip((leader, adagrad), margins, strict=True):
        learner.learn(chunk_of(X), y, s, out)
    np.testing.assert_allclose(margins[0], margins[1], rtol=1e-10, atol=1e-11)
    (w, b), (other, c) = dense_point(leader), dense_point(adagrad)
    np.testing.assert_allclose(w, other, rtol=1e-12, atol=1e-12)
    assert b == pytest.approx(c, rel=1e-12)


def test_tiny_slopes_do_not_divide_by_zero() -> None:
    """Squares of slopes below 1e-154 underflow to 0."""
    X = np.array([[1e-200, 1.0], [1e-200, -1.0], [1e-180, 0.5]])
    for method, step in (("ftrl", "implicit"), ("truncated-gradient", "adagrad")):
        learner = make_learner(method, 2, OnlineOptions(1e-3, step=step, period=1))
        learner.learn(chunk_of(X), np.array([1.0, -1.0, 1.0]), np.ones(3), np.zeros(3))
        w, b = dense_point(learner)
        assert w[0] == 0.0 and w[1] != 0.0 and np.isfinite(b)


def test_the_start_of_the_intercept_is_kept() -> None:
    X, y, s = stream(2, 50, 3, "logistic")
    learner = make_learner("ftrl", 3, OnlineOptions(0.01))
    learner.start_at(-2.0)
    margins = np.zeros(50)
    learner.learn(chunk_of(X), y, s, margins)
    first = int(np.flatnonzero(s)[0])
    assert margins[first] == -2.0 and learner.intercept != -2.0


def test_long_rows_fit() -> None:
    p = 70_000
    X = np.ones((2, p))
    learner = make_learner("ftrl", p, OnlineOptions(1e-6))
    learner.learn(chunk_of(X), np.array([1.0, -1.0]), np.ones(2), np.zeros(2))
    assert len(learner.point()[0]) == p
