"""Grids of any width, adaptive precision, one rate for all weights, and the regret bounds of the paper.

Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via randomization", ICML 2013.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import dense_point, slope, stream
from windows import examples

from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions
from fcl.online.ogd import Ogd
from fcl.online.table import BASE, Grid
from tests.online.conftest import feed, ogd


@pytest.mark.parametrize(
    ("text", "size"),
    [("q0.3", 1), ("q2.5", 1), ("q2.6", 2), ("q2.13", 2), ("q3.0", 1), ("q2.14", 4), ("q2.29", 4)],
)
def test_a_weight_takes_the_smallest_integer_of_its_bits(text: str, size: int) -> None:
    X, y, _ = stream(2, 400, 10, "logistic")
    learner, grid = ogd(10, weights=text, rate=1.0), Grid.parse(text)
    feed(learner, X, y)
    assert learner.weights.itemsize == size and learner.others.itemsize == 1
    assert Ogd.bytes_for(1000, learner.options) == 1000 * (size + 1)
    steps = dense_point(learner)[0] * 2.0**grid.m
    assert (steps == np.rint(steps)).all() and steps.any()
    assert np.abs(steps).max() < 2 ** (grid.n + grid.m)
    other = ogd(10, weights=text, rate=1.0)
    other.restore(learner.saved())
    assert other.weights.tobytes() == learner.weights.tobytes()


def test_fine_grids_approach_float64() -> None:
    """With exact counts the weights differ by what roundings add up to, which halves with each bit."""
    X, y, _ = stream(3, 500, 8, "logistic")
    exact = ogd(8)
    feed(exact, X, y)
    last = math.inf
    for m in (9, 13, 17, 21, 25):
        fine = ogd(8, weights=f"q3.{m}")
        fine._up, fine._events = exact._up, exact._events  # exact counts
        fine.others = np.zeros(8, np.uint32)
        feed(fine, X, y)
        away = np.abs(dense_point(fine)[0] - dense_point(exact)[0]).max()
        assert away <= 2.0**-m * math.sqrt(0.5 * 500 * math.log(2 * 8 * 1e6)) and away < last / 4
        last = away


@given(st.integers(0, 2**31), st.sampled_from(["float64", "q2.13", "q4.4"]), st.booleans())
@examples(30)
def test_weights_stay_in_the_given_range(seed: int, weights: str, single: bool) -> None:
    X, y, _ = stream(seed, 80, 5, "logistic")
    R = 0.75
    rates = "global" if single else "feature"
    learner = ogd(5, weights=weights, rate=4.0, max_weight=R, rates=rates, seed=seed)
    for i in range(len(y)):
        feed(learner, X[i : i + 1], y[i : i + 1])
        assert np.abs(dense_point(learner)[0]).max() <= R
    clipped = (np.abs(dense_point(learner)[0]) == R).sum()
    assert learner.clipped == clipped


@given(st.integers(0, 2**31), st.sampled_from(["logistic", "squared", "hinge"]))
@examples(20)
def test_one_rate_for_all_is_plain_descent(seed: int, loss: str) -> None:
    X, y, _ = stream(seed, 50, 4, loss)
    learner = ogd(4, loss=loss, rate=0.1, rates="global", max_weight=0.5)
    margins = feed(learner, X, y)
    w, b = np.zeros(4), 0.0
    for t, (x, label) in enumerate(zip(X, y, strict=True), start=1):
        m = float(x @ w + b)
        assert margins[t - 1] == pytest.approx(m, rel=1e-10, abs=1e-10)
        step = 0.1 / math.sqrt(t) * slope(loss, label, m)
        w, b = np.clip(w - step * x, -0.5, 0.5), b - step
    np.testing.assert_allclose(dense_point(learner)[0], w, rtol=1e-10, atol=1e-12)
    assert len(learner.others) == 0
    assert Ogd.bytes_for(100, OnlineOptions(0.0, rates="global", weights="q2.13")) == 200


# -- adaptive precision --------------------------------------------------------------------------


def largest_step(gamma: float, rate: float, grid: Grid) -> float:
    """The largest power of 2 up to gamma * rate and the range, but at least the step of the grid."""
    size = grid.step
    while 2.0 * size <= min(gamma * rate, grid.largest):
        size *= 2.0
    return size


@given(st.integers(0, 2**31), st.sampled_from([0.01, 0.3, 1.0, 4.0, 1e4]))
@examples(25)
def test_weights_are_on_the_grid_of_their_rates(seed: int, gamma: float) -> None:
    X, y, _ = stream(seed, 120, 6, "logistic")
    X = np.sign(X)
    grid, rate = Grid.parse("q3.12"), 0.5
    learner = ogd(6, weights="q3.12", gamma=gamma, rate=rate, seed=seed)
    events = [(BASE**c - 1.0) / (BASE - 1.0) for c in range(256)]
    for i in range(len(y)):
        feed(learner, X[i : i + 1], y[i : i + 1])
        sizes = np.array(
            [largest_step(gamma, rate / math.sqrt(max(events[c], 1)), grid) for c in learner.others]
        )
        steps = dense_point(learner)[0] / sizes
        assert (steps == np.rint(steps)).all()
    most = np.floor(grid.largest / sizes)
    bits = 1 + np.array([int(k).bit_length() for k in most])
    assert learner.mean_bits == pytest.approx(bits.mean(), rel=1e-12)
    assert bits.min() >= 2 and bits.max() <= 16


def test_a_small_gamma_is_the_fixed_grid() -> None:
    X, y, _ = stream(5, 300, 6, "logistic")
    fixed, fine = (ogd(6, weights="q2.13", gamma=gamma) for gamma in (None, 1e-9))
    assert feed(fixed, X, y).tobytes() == feed(fine, X, y).tobytes()
    assert fixed.weights.tobytes() == fine.weights.tobytes() and fixed.mean_bits == 16.0


def test_coarse_rounding_is_unbiased() -> None:
    """The mean of a weight over many seeds, after one row whose gradient is known."""
    chunk = RowChunk(np.array([0, 1]), np.zeros(1, np.int32), np.full(1, 0.3))
    found = []
    for seed in range(4000):
        learner = ogd(1, weights="q2.13", gamma=1.0, rate=0.5, intercept=False, seed=seed)
        learner.learn(chunk, np.ones(1), np.ones(1), np.zeros(1))
        found.append(float(learner.weights[0]) * 2.0**-13)
    # w = 0.5 * 0.3 / 2 between multiples of 0.5
    assert set(found) == {0.0, 0.5}
    assert np.mean(found) == pytest.approx(0.075, abs=4.5 * np.std(found) / math.sqrt(4000))


# -- regret --------------------------------------------------------------------------------------


def play(T: int, seed: int, **options: Any) -> tuple[float, np.ndarray, float]:
    """Regret over T rows with a gradient, the rates of these rows, and the largest step of rounding.

    One weight, hinge loss at x = 1, so |g| <= 1; the label contradicts each prediction, or is random.
    """
    R = 0.9375
    learner = ogd(1, loss="hinge", intercept=False, max_weight=R, seed=seed, **options)
    random = np.random.default_rng(seed)
    chunk = RowChunk(np.array([0, 1]), np.zeros(1, np.int32), np.ones(1))
    rate, grid = learner.options.rate, learner.grid
    assert grid is not None
    paid, labels, rates = 0.0, [], []
    for _ in range(T):
        w = float(learner.weights[0]) * grid.step
        y = -1.0 if w > 0.0 else 1.0
        if random.random() < 0.3:
            y = 1.0
        learner.learn(chunk, np.array([y]), np.ones(1), np.zeros(1))
        paid += max(0.0, 1.0 - y * w)  # > 0, since |w| <= R < 1: every row has a gradient
        labels.append(y)
        rates.append(rate / math.sqrt((BASE ** int(learner.others[0]) - 1.0) / (BASE - 1.0)))
    total = sum(labels)  # the loss of a fixed b is T - b total
    return paid - (T - R * abs(total)), np.array(rates), grid.step


@pytest.mark.parametrize("options", [{"gamma": 1.0}, {"gamma": 0.25}, {"gamma": None}])
def test_theorem_3_1(options: dict[str, Any]) -> None:
    """E Regret <= (2R)^2/(2 eta_T) + (G^2 + gamma^2)/2 eta_{1:T} + gamma R sqrt(T), path by path."""
    R, T = 0.9375, 400
    regrets, bounds, sharper = [], [], []
    for seed in range(25):
        regret, rates, step = play(T, seed, weights="q0.9", rate=0.5, **options)
        assert (np.diff(rates) <= 0.0).all()
        gamma = options["gamma"] or step / rates[-1]
        regrets.append(regret)
        for found, g in ((bounds, gamma), (sharper, gamma / 2.0)):
            found.append(2 * R * R / rates[-1] + 0.5 * (1 + g * g) * rates.sum() + g * R * T**0.5)
    noise = 4.0 * np.std(np.array(regrets) - bounds) / 5.0
    assert np.mean(regrets) + noise <= np.mean(bounds)
    # the variance of a rounding is at most a quarter of its squared step
    assert np.mean(regrets) + noise <= np.mean(sharper) < 40.0 * abs(np.mean(regrets)) + 40.0


def test_theorem_3_3() -> None:
    """Equation 5 of the appendix, and the sharper bound of order sqrt(T), with Morris counters."""
    R, G, b, c, gamma = 0.9375, 1.0, BASE, 2.5, 1.0
    alpha = R / math.sqrt(G * G + gamma * gamma)
    for T in (100, 400, 1600):
        regrets = [play(T, seed, weights="q0.9", rate=alpha, gamma=gamma)[0] for seed in range(12)]
        k1 = 1.0 / (b * c * math.log(T))
        k2 = math.e * b ** (math.sqrt(2 * c * math.log(T, b)) + 2) / (b - 1)
        bound = 2 * R * R * math.sqrt(k2 * T + 1) / alpha
        bound += (G * G + gamma * gamma) * alpha * math.sqrt(T / k1)
        bound += gamma * R * math.sqrt(T) + 4 * R * G * math.sqrt(T)
        sharper = 2 * R * R * math.sqrt(T + 1) / alpha + gamma * R * math.sqrt(T) / 2
        sharper += (G * G + gamma * gamma / 4) * alpha * math.sqrt((b + 1) * T)
        noise = 4.0 * np.std(regrets) / math.sqrt(12)
        assert np.mean(regrets) + noise <= sharper <= bound


# -- runs ----------------------------------------------------------------------------------------
