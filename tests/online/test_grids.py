"""Truncated gradient and the regularised leader over rounded numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import dense_point, stream
from windows import examples

from fcl.kernels.tables import decoded_square, encoded_square
from fcl.online import OnlineOptions, make_learner
from fcl.online.methods import kind_of
from tests.online.conftest import feed

METHODS = ("ftrl", "truncated-gradient")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_fine_grids_approach_float64(method: str) -> None:
    X, y, s = stream(3, 400, 8, "logistic")
    given = {"alpha": 0.003, "rate": 0.2, "period": 3}
    exact = make_learner(method, 8, OnlineOptions(**given))
    margins = feed(exact, X, y, s)
    w, _ = dense_point(exact)
    scale, last = float(np.abs(w).max()), math.inf
    # the sums of squared slopes of ftrl keep 8 bits behind the first, whatever the grid
    floor = 0.01 * scale if method == "ftrl" else 1e-6
    for m in (7, 11, 15, 23):
        fine = make_learner(method, 8, OnlineOptions(**given, weights=f"q3.{m}"))
        found = feed(fine, X, y, s)
        away = float(np.abs(dense_point(fine)[0] - w).max())
        assert away <= 2.0**-m * 60.0 + floor and away <= max(last, floor)
        last = away
    assert np.abs(found - margins)[s > 0].max() <= 60.0 * floor


@pytest.mark.parametrize("method", METHODS)
def test_roundings_are_unbiased_and_cost_little(method: str) -> None:
    random = np.random.default_rng(5)
    X = (random.random((1500, 20)) < 0.3).astype(float)
    y = np.where(random.random(1500) < 1 / (1 + np.exp(-X @ random.normal(size=20))), 1.0, -1.0)
    given = {"alpha": 1e-3, "rate": 0.3, "period": 5, "step": "explicit"}
    exact = make_learner(method, 20, OnlineOptions(**given))
    plain = np.logaddexp(0.0, -y * feed(exact, X, y)).mean()
    extra, weights = [], []
    for seed in range(12):
        learner = make_learner(method, 20, OnlineOptions(**given, weights="q2.9", seed=seed))
        extra.append(np.logaddexp(0.0, -y * feed(learner, X, y)).mean() / plain - 1.0)
        weights.append(dense_point(learner)[0])
    assert abs(np.mean(extra)) <= 2e-3, extra
    assert len({w.tobytes() for w in weights}) == 12
    w, away = dense_point(exact)[0], np.mean(weights, axis=0)
    noise = np.std(weights, axis=0) / math.sqrt(12)
    assert (np.abs(away - w) <= 5.0 * noise + 0.01).all()


@pytest.mark.parametrize("method", METHODS)
def test_bytes_and_first_weights(method: str) -> None:
    sizes = {"ftrl": (3, 4, 6), "truncated-gradient": (5, 6, 8)}[method]
    for weights, size in zip(("q2.5", "q2.13", "q2.29"), sizes, strict=True):
        options = OnlineOptions(0.1, weights=weights)
        assert kind_of(method, options).bytes_for(1000, options) == 1000 * size
    learner = make_learner(method, 4, OnlineOptions(1e-9, weights="q2.13"))
    learner.start_from(np.array([0, 2]), np.array([0.5, -2.0]), 0.25)
    w, b = dense_point(learner)
    assert w.tolist() == [0.5, 0.0, -2.0, 0.0] and b == 0.25


@given(st.floats(-90.0, 90.0), st.integers(0, 2**31))
@examples(60)
def test_sums_of_squares_in_16_bits_are_unbiased(power: float, seed: int) -> None:
    x = 2.0**power
    words = np.random.default_rng(seed).integers(0, 2**32, 400, dtype=np.uint64)
    found = np.array([decoded_square(encoded_square(x, word)) for word in words])
    assert len(set(found)) <= 2 and np.abs(found / x - 1.0).max() <= 2.0**-8
    error = found.mean() / x - 1.0
    assert abs(error) <= 5.0 * 2.0**-9 / math.sqrt(400) + 1e-12
    exact = decoded_square(encoded_square(x, np.uint64(0)))
    for word in words[:5]:  # a number of 16 bits stays
        assert decoded_square(encoded_square(exact, word)) == exact


def test_ends_of_the_range_of_squares() -> None:
    zero, last = np.uint64(0), np.uint64(2**32 - 1)
    assert encoded_square(0.0, zero) == encoded_square(1e-60, last) == 0
    assert encoded_square(1e60, zero) == 65535 and decoded_square(0) == 0.0
    codes = [decoded_square(code) for code in range(256, 65536)]
    assert (np.diff(codes) > 0.0).all() and codes[0] == 2.0**-128
