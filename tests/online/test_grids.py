"""Truncated gradient and the regularised leader over rounded numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from online_eager import Eager, chunk_of, dense_point, stream
from stops import After
from windows import examples

import fcl
from fcl.errors import InputError
from fcl.kernels.tables import decoded_square, encoded_square
from fcl.online import OnlineOptions, make_learner
from fcl.online.methods import kind_of

METHODS = ("ftrl", "truncated-gradient")


def feed(learner: Any, X: np.ndarray, y: np.ndarray, s: Any = None, cuts: Any = ()) -> np.ndarray:
    s = np.ones(len(y)) if s is None else s
    margins = np.zeros(len(y))
    for some in np.split(np.arange(len(y)), sorted(cuts)):
        part = slice(some[0], some[-1] + 1) if len(some) else slice(0, 0)
        assert learner.learn(chunk_of(X[part]), y[part], s[part], margins[part]) == len(some)
    return margins


@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 4]),
    st.sampled_from([("soft", math.inf), ("soft", 0.25), ("round", 0.25)]),
)
@examples(40)
def test_weights_that_the_grid_holds_are_never_rounded(
    seed: int, period: int, rule: tuple[str, float]
) -> None:
    """Rows, labels and rates of few bits: all weights are numbers of the grid, and those of the paper."""
    random = np.random.default_rng(seed)
    X = random.integers(-3, 4, (150, 6)) * 0.5 * (random.random((150, 6)) < 0.5)
    y, s = random.choice([-1.0, 1.0], 150), random.choice([0.0, 1.0, 2.0], 150)
    options = OnlineOptions(
        1 / 64, "hinge", 0.125, 0.0, step="explicit", period=period, truncation=rule[0],
        theta=rule[1], weights="q8.16",
    )  # fmt: skip
    learner = make_learner("truncated-gradient", 6, options)
    eager = Eager(options, np.ones(6), np.zeros(6))
    margins = feed(learner, X, y, s, [70])
    expected = np.array([eager.learn(*row) for row in zip(X, y, s, strict=True)])
    assert np.array_equal(margins[s > 0], expected[s > 0])
    for _ in range(2):  # the second time after the flush
        w, b = dense_point(learner)
        assert np.array_equal(w, eager.w) and b == eager.b
        learner.flush()


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
@given(st.integers(0, 2**31), st.lists(st.integers(1, 59), max_size=4, unique=True))
@examples(15)
def test_the_same_bits_for_any_cut_and_resume(method: str, seed: int, cuts: list[int]) -> None:
    X, y, s = stream(seed, 60, 5, "logistic")
    factors = np.array([1.0, 0.5, 2.0, 1.0, np.inf])
    options = OnlineOptions(0.01, weights="q2.6", period=3, seed=seed)
    whole, cut = (make_learner(method, 5, options, factors) for _ in range(2))
    for _ in range(2):
        for learner, places in ((whole, ()), (cut, cuts)):
            feed(learner, X, y, s, places)
        assert np.array_equal(whole.saved()["table"], cut.saved()["table"])
        whole.end_pass()
        other = make_learner(method, 5, options, factors)
        other.restore(cut.saved())
        other.end_pass()
        cut = other
        assert np.array_equal(whole.saved()["table"], cut.saved()["table"])
    assert not dense_point(whole)[0][4]
    saved = whole.saved()
    for change in ({"table": saved["table"] + 1e6}, {"table": saved["table"] - 1e6}):
        if len(saved["ids"]):
            with pytest.raises(InputError, match=f"saved state is not one of {method}"):
                make_learner(method, 5, options).restore(saved | change)


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
    with pytest.raises(InputError, match=r"choose q3\.12 or float32"):
        make_learner(method, 4, OnlineOptions(0.1, weights="q2.13")).start_from(
            np.array([0]), np.array([5.0])
        )


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


N, P = 1200, 15
RANDOM = np.random.default_rng(0)
ROWS = np.where(RANDOM.random((N, P)) < 0.4, 1.0, 0.0)
LABELS = np.where(RANDOM.random(N) < 1 / (1 + np.exp(-ROWS @ RANDOM.normal(size=P))), 1, -1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weights", ["q", "q2.4", "q2.27"])
def test_resumed_runs_and_estimators(tmp_path: Path, method: str, weights: str) -> None:
    data = fcl.open_data(ROWS, y=LABELS)
    own: dict[str, Any] = {
        "method": method, "alpha": 1e-3, "rate": 0.3, "passes": 2, "weights": weights,
    }  # fmt: skip
    given = {"features": "columns", "block_rows": 256, "certify": False} | own
    whole = fcl.train_online(data, **given)
    part = fcl.train_online(data, **given, should_stop=After(11))
    part.save(tmp_path / "m.fcl")
    more = fcl.train_online(data, resume=tmp_path / "m.fcl", passes=2, certify=False)
    assert more.model.weights.tobytes() == whole.model.weights.tobytes()
    assert more.state.table.tobytes() == whole.state.table.tobytes()
    if weights != "q":
        found = fcl.FCLOnlineClassifier(**own, random_state=0).fit(ROWS, LABELS)
        plain = fcl.train_online(data, **(given | {"block_rows": 65_536}))
        assert np.array_equal(found.models_[0].weights, plain.model.weights)
    else:
        assert whole.model.options["weights"] == "q2.13"


def test_what_is_refused() -> None:
    for options, message in (
        ({"average": True}, "got average; choose float64 weights"),
        ({"l1_ratio": 0.5}, "got l1_ratio below 1"),
        ({"truncation": "subgradient", "theta": 0.0}, "got truncation subgradient"),
    ):
        with pytest.raises(InputError, match=message):
            make_learner("truncated-gradient", 3, OnlineOptions(0.1, weights="q2.13", **options))
