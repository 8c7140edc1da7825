"""Truncated gradient: lazy and eager, exact streams, regret, and what must change nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import Eager, chunk_of, dense_point, implicit_slope, loss_of, stream
from windows import examples

from fcl.errors import InputError
from fcl.kernels.elementary import exp_of_negative
from fcl.online import OnlineOptions, make_learner
from tests.online.conftest import feed

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


@st.composite
def some_options(draw: st.DrawFn) -> OnlineOptions:
    elastic = draw(st.sampled_from([1.0, 1.0, 0.5]))
    step = draw(st.sampled_from(["implicit", "explicit", "adagrad"]))
    rounding = elastic == 1.0 and draw(st.booleans())
    return OnlineOptions(
        alpha=draw(st.sampled_from([0.0, 0.01, 0.3])),
        loss=draw(st.sampled_from(LOSSES)),
        rate=draw(st.sampled_from([0.01, 0.1])),
        power=draw(st.sampled_from([0.0, 0.5, 0.7, 1.0])),
        decay=draw(st.sampled_from([1.0, 0.5])),
        step=step if elastic == 1.0 or step != "adagrad" else "implicit",
        period=draw(st.sampled_from([1, 3, 10])),
        theta=draw(st.sampled_from([0.02, 0.1])) if rounding else math.inf,
        truncation="round" if rounding else "soft",
        l1_ratio=elastic,
        intercept=draw(st.booleans()),
    )


@given(some_options(), st.integers(0, 2**31), st.data())
@examples(150)
def test_lazy_is_eager(options: OnlineOptions, seed: int, data: st.DataObject) -> None:
    n, p = 60, 7
    X, y, s = stream(seed, n, p, options.loss)
    if options.l1_ratio == 1.0:
        factors = np.random.default_rng(seed).choice([0.5, 1.0, 2.0, np.inf], p)
        options = replace(
            options, theta=data.draw(st.sampled_from([options.theta, 0.05, math.inf]))
        )
    else:
        factors = np.random.default_rng(seed).choice([2.0, np.inf], p)
    if options.truncation == "round":
        options = replace(options, theta=min(options.theta, 0.1))
    cuts = data.draw(st.lists(st.integers(0, n), max_size=3))
    learner = make_learner("truncated-gradient", p, options, factors)
    eager = Eager(options, factors, np.zeros(p))
    for _ in range(2):
        margins = feed(learner, X, y, s, cuts)
        learner.end_pass()
        expected = [eager.learn(*row) for row in zip(X, y, s, strict=True)]
        eager.passes += 1
        np.testing.assert_allclose(
            margins[s > 0], np.array(expected)[s > 0], rtol=1e-11, atol=1e-11
        )
    w, b = dense_point(learner)
    scale = 1.0 + np.abs(eager.w).max()
    near = np.abs(np.abs(eager.w) - options.theta) < 1e-9  # may go either way
    np.testing.assert_allclose(w[~near], eager.w[~near], rtol=0, atol=1e-12 * scale)
    assert b == pytest.approx(eager.b, rel=1e-12, abs=1e-12)
    assert learner.rows == eager.rows and not w[np.isinf(factors)].any()


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
    eager = Eager(options, np.ones(6), np.zeros(6))
    margins = feed(learner, X, y, s, [70])
    expected = np.array([eager.learn(*row) for row in zip(X, y, s, strict=True)])
    assert np.array_equal(margins[s > 0], expected[s > 0])
    for _ in range(2):  # the second time after the flush
        w, b = dense_point(learner)
        assert np.array_equal(w, eager.w) and b == eager.b
        learner.flush()


@pytest.mark.parametrize("loss", LOSSES)
def test_without_penalty_it_is_plain_gradient_descent(loss: str) -> None:
    X, y, s = stream(3, 80, 5, loss)
    options = OnlineOptions(alpha=0.0, loss=loss, rate=0.05, step="explicit")
    learner = make_learner("truncated-gradient", 5, options)
    feed(learner, X, y, s)
    w, b, t = [0.0] * 5, 0.0, 0
    for x, label, weight in zip(X.tolist(), y, s, strict=True):
        if weight == 0.0:
            continue
        t += 1
        m = 0.0
        for j in range(5):
            m += w[j] * x[j] if x[j] else 0.0
        m = m + b
        if loss == "logistic":  # as the kernel computes it, without overflow
            e = exp_of_negative(-abs(m))
            r = -label * (e / (1.0 + e) if label * m > 0 else 1.0 / (1.0 + e))
        elif loss == "squared":
            r = 2.0 * (m - label)
        elif loss == "squared_hinge":
            r = -2.0 * label * max(0.0, 1.0 - label * m)
        else:
            r = -label if label * m < 1.0 else 0.0
        step = 0.05 / math.sqrt(t) * weight * r
        w = [w[j] - step * x[j] for j in range(5)]
        b -= step
    found, intercept = dense_point(learner)
    assert found.tolist() == w and intercept == b


def test_one_feature_by_hand() -> None:
    options = OnlineOptions(
        alpha=0.1, loss="squared", rate=0.25, power=0.0, step="explicit", period=1, intercept=False
    )
    learner = make_learner("truncated-gradient", 1, options)
    feed(learner, np.ones((3, 1)), np.array([1.0, 1.0, -1.0]), np.ones(3))
    # u = w + 0.5 (y - w), then shrunk by 0.025
    w = 0.5 - 0.025
    w = w + 0.5 * (1.0 - w) - 0.025
    w = w + 0.5 * (-1.0 - w)
    assert learner.point()[1] == pytest.approx([w + 0.025], abs=1e-15)


@given(st.integers(0, 2**31), st.sampled_from(LOSSES))
@examples(60)
def test_implicit_slopes_solve_their_equation(seed: int, loss: str) -> None:
    from fcl.kernels import online

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
    from fcl.kernels import online

    random = np.random.default_rng(0)
    cases = [(-1.0, 7.382432668971314, 134.71564791776535)]
    for _ in range(20_000):
        m = random.normal() * 10 ** random.uniform(-2, 2)
        cases.append((random.choice([-1.0, 1.0]), m, 10 ** random.uniform(-6, 6)))
    for y, m, q in cases:
        p = -y * online.implicit_slope((0, 0.0), y, m, q)
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


@pytest.mark.parametrize("method", ["ftrl", "truncated-gradient"])
@pytest.mark.parametrize("step", ["implicit", "adagrad"])
def test_rows_of_weight_0_change_nothing(method: str, step: str) -> None:
    X, y, s = stream(0, 60, 5, "logistic")
    with_zeros, without = (
        make_learner(method, 5, OnlineOptions(0.01, step=step, period=3)) for _ in range(2)
    )
    feed(with_zeros, X, y, s)
    feed(without, X[s > 0], y[s > 0], s[s > 0])
    assert np.array_equal(with_zeros.table, without.table)
    assert np.array_equal(with_zeros.state, without.state)


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


def test_a_state_of_another_learner_is_refused() -> None:
    other = make_learner("ftrl", 3, OnlineOptions(0.1))
    feed(other, *stream(0, 5, 3, "logistic"))
    adagrad = make_learner("truncated-gradient", 3, OnlineOptions(0.1, step="adagrad"))
    with pytest.raises(InputError, match="not one of truncated-gradient over 3 features"):
        adagrad.restore(other.saved())
    with pytest.raises(InputError, match="not one of ftrl over 2 features"):
        make_learner("ftrl", 2, OnlineOptions(0.1)).restore(other.saved())
    assert adagrad.rows == 0
