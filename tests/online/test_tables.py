"""Tables of rounded weights: roundings without bias, ranges, files, adaptive precision, regret.

Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via randomization", ICML 2013.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from checkpoints import rewrite
from hypothesis import given
from hypothesis import strategies as st
from online_eager import dense_point, stream
from windows import examples

from fcl.errors import ModelFileError
from fcl.features.rows import RowChunk
from fcl.kernels.tables import decoded_square, encoded_square
from fcl.online import OnlineOptions, make_learner
from fcl.online import table as table_module
from fcl.online.methods import kind_of
from fcl.online.ogd import Ogd
from fcl.online.table import BASE, WeightGrid, anonymous
from tests.online.conftest import feed, ogd


def test_a_feature_twice_in_a_row_is_updated_twice() -> None:
    chunk = RowChunk(np.array([0, 2]), np.array([1, 1], np.int32), np.ones(2))
    learner = ogd(3, weights="float64", rate=1.0, intercept=False)
    margins = np.zeros(1)
    learner.learn(chunk, np.ones(1), np.ones(1), margins)
    assert learner.others[1] == 2
    assert dense_point(learner)[0][1] == pytest.approx(0.5 * (1 + math.sqrt(0.5)))


@pytest.mark.parametrize("weights", ["q2.13", "q0.15"])
def test_weights_stop_at_the_range(weights: str) -> None:
    n = 300
    ids = np.zeros(n, np.int32)
    chunk = RowChunk(np.arange(n + 1), ids, np.full(n, 1e4))
    learner = ogd(1, weights=weights, loss="squared", rate=1e6, intercept=False)
    margins = np.zeros(n)
    done = learner.learn(chunk, np.where(np.arange(n) % 2, 1e9, -1e9), np.ones(n), margins)
    grid = WeightGrid.parse(weights)
    assert done == n and abs(dense_point(learner)[0][0]) == grid.largest
    assert learner.clipped == 1 and np.abs(margins).max() <= 1e4 * grid.largest


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


@pytest.mark.parametrize(
    ("text", "size"),
    [("q0.3", 1), ("q2.5", 1), ("q2.6", 2), ("q3.0", 1), ("q2.13", 2), ("q2.14", 4), ("q2.29", 4)],
)
def test_a_weight_takes_the_smallest_integer_of_its_bits(text: str, size: int) -> None:
    """ogd counts in another byte; the others keep sums of squares in 2 and truncations in 4."""
    for method, more in (("ogd", 1), ("ftrl", 2), ("truncated-gradient", 4)):
        options = OnlineOptions(0.1, weights=text)
        assert kind_of(method, options).bytes_for(1000, options) == 1000 * (size + more)
    X, y, _ = stream(2, 400, 10, "logistic")
    learner, grid = ogd(10, weights=text, rate=1.0), WeightGrid.parse(text)
    feed(learner, X, y)
    assert learner.weights.itemsize == size and learner.others.itemsize == 1
    steps = dense_point(learner)[0] * 2.0**grid.m
    assert (steps == np.rint(steps)).all() and steps.any()
    assert np.abs(steps).max() < 2 ** (grid.n + grid.m)


def test_fine_grids_with_exact_counts_approach_float64() -> None:
    """With exact counts the weights differ by what roundings add up to, which halves with each bit."""
    X, y, _ = stream(3, 500, 8, "logistic")
    exact = ogd(8)
    feed(exact, X, y)
    last = math.inf
    for m in (9, 13, 17, 21, 25):
        fine = ogd(8, weights=f"q3.{m}")
        fine._counters = exact._counters  # exact counts
        fine.others = np.zeros(8, np.uint32)
        feed(fine, X, y)
        away = np.abs(dense_point(fine)[0] - dense_point(exact)[0]).max()
        assert away <= 2.0**-m * math.sqrt(0.5 * 500 * math.log(2 * 8 * 1e6)) and away < last / 4
        last = away


@pytest.mark.parametrize("method", ["ftrl", "truncated-gradient", "ogd"])
def test_roundings_are_unbiased_and_cost_little(method: str) -> None:
    """Each seed rounds otherwise."""
    random = np.random.default_rng(5)
    X = (random.random((1500, 20)) < 0.3).astype(float)
    y = np.where(random.random(1500) < 1 / (1 + np.exp(-X @ random.normal(size=20))), 1.0, -1.0)
    given: dict[str, Any] = {"alpha": 1e-3, "rate": 0.3, "period": 5, "step": "explicit"}
    exact = make_learner(method, 20, OnlineOptions(**given))
    plain = np.logaddexp(0.0, -y * feed(exact, X, y)).mean()
    extra, weights = [], []
    for seed in range(12):
        learner = make_learner(method, 20, OnlineOptions(**given, weights="q2.9", seed=seed))
        extra.append(np.logaddexp(0.0, -y * feed(learner, X, y)).mean() / plain - 1.0)
        weights.append(dense_point(learner)[0])
    assert abs(np.mean(extra)) <= 5e-3, extra
    assert len({w.tobytes() for w in weights}) == 12
    w, away = dense_point(exact)[0], np.mean(weights, axis=0)
    noise = np.std(weights, axis=0) / math.sqrt(12)
    assert (np.abs(away - w) <= 5.0 * noise + 0.01).all()


@pytest.mark.parametrize("weights", ["float64", "float32", "q2.13", "q5.10"])
def test_initial_weights(weights: str) -> None:
    """Learning goes on from them, also after saving; features without rows keep theirs."""
    X, y, s = stream(4, 50, 4, "logistic")
    X[:, 3] = 0.0
    for method in ("ftrl", "truncated-gradient", "ogd"):
        learners = [make_learner(method, 4, OnlineOptions(0.0, weights=weights)) for _ in range(2)]
        learners[0].start_from(np.array([0, 1, 3]), np.array([0.5, -2.0, 1.75]), 0.25)
        start, intercept = dense_point(learners[0])
        np.testing.assert_allclose(start, [0.5, -2.0, 0.0, 1.75], rtol=1e-6)
        learners[1].restore(learners[0].saved())
        margins = [feed(learner, X, y, s) for learner in learners]
        assert intercept == 0.25 and margins[0].tobytes() == margins[1].tobytes()
        first = int(np.flatnonzero(s)[0])
        assert margins[0][first] == pytest.approx(X[first] @ start + 0.25)
        assert dense_point(learners[1])[0][3] == start[3]


def test_the_range_follows_the_inputs() -> None:
    assert [WeightGrid.fitting(rms).text for rms in (1.0, 30.0, 0.5, 0.12, 1e-9)] == [
        "q2.13", "q2.13", "q3.12", "q5.10", "q15.0",
    ]  # fmt: skip
    grid = WeightGrid.parse("q2.13")
    assert grid.largest == 32767 / 8192 and grid.step == 2.0**-13


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


# -- the table on disk and in memory


def test_golden_table() -> None:
    """The same bits on all machines, and in later versions."""
    X, y, _ = stream(1, 500, 16, "squared_hinge")
    X, y = np.rint(4 * X), np.sign(y)
    learner = ogd(16, weights="q2.13", loss="squared_hinge", rate=2.0**-6, seed=9)
    feed(learner, X, np.where(y == 0.0, 1.0, y), np.ones(500))
    content = learner.weights.astype("<i2").tobytes() + learner.others.tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "f52bebb809714d89"


def test_checkpoints_leave_zeros_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "PIECE", 1000)
    learner = ogd(100_000, weights="q2.13")
    ids = np.array([5, 77_777], np.int32)
    chunk = RowChunk(np.array([0, 1, 2]), ids, np.ones(2))
    learner.learn(chunk, np.ones(2), np.ones(2), np.zeros(2))
    learner.end_pass()
    learner.save(tmp_path / "t.zip")
    assert (tmp_path / "t.zip").stat().st_size < 10_000
    other = ogd(100_000, weights="q2.13")
    other.load(tmp_path / "t.zip")
    for name in ("weights", "others", "state"):
        assert getattr(other, name).tobytes() == getattr(learner, name).tobytes()
    assert other.passes == 1 and other.rows == 2


def test_damaged_checkpoints(tmp_path: Path) -> None:
    learner = ogd(4, weights="q2.13")
    feed(learner, np.ones((3, 4)), np.ones(3), np.ones(3))
    learner.save(tmp_path / "t.zip")
    content = (tmp_path / "t.zip").read_bytes()
    for size in range(0, len(content), 13):
        (tmp_path / "t.zip").write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"t\.zip: "):
            ogd(4, weights="q2.13").load(tmp_path / "t.zip")
    (tmp_path / "t.zip").write_bytes(content)
    rewrite(tmp_path / "t.zip", lambda members: members.update({"weights.0": b"none"}))
    with pytest.raises(ModelFileError):
        ogd(4, weights="q2.13").load(tmp_path / "t.zip")


def test_untouched_pages_take_no_memory() -> None:
    assert Ogd.bytes_for(10**9, OnlineOptions(0.0, weights="q2.13")) == 3 * 10**9
    assert Ogd.bytes_for(10**9, OnlineOptions(0.0, weights="float32")) == 8 * 10**9
    before = psutil.Process().memory_info().rss
    vector = anonymous(1 << 29, np.int16)  # 1 GiB
    vector[1 << 28] = 3
    assert vector[1 << 28] == 3 and vector[0] == 0 and len(anonymous(0, np.uint8)) == 0
    assert psutil.Process().memory_info().rss - before < 64 << 20
    with pytest.raises(MemoryError, match="a table of 2,305,843,009,213,693,952 bytes"):
        anonymous(1 << 60, np.int16)


# -- adaptive precision


def largest_step(gamma: float, rate: float, grid: WeightGrid) -> float:
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
    grid, rate = WeightGrid.parse("q3.12"), 0.5
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


@pytest.mark.slow
def test_coarse_rounding_is_unbiased() -> None:
    """The mean of a weight over many seeds, after one row whose gradient is known."""
    chunk = RowChunk(np.array([0, 1]), np.zeros(1, np.int32), np.full(1, 0.3))
    found = []
    for seed in range(1500):
        learner = ogd(1, weights="q2.13", gamma=1.0, rate=0.5, intercept=False, seed=seed)
        learner.learn(chunk, np.ones(1), np.ones(1), np.zeros(1))
        found.append(float(learner.weights[0]) * 2.0**-13)
    # w = 0.5 * 0.3 / 2 between multiples of 0.5
    assert set(found) == {0.0, 0.5}
    assert np.mean(found) == pytest.approx(0.075, abs=4.5 * np.std(found) / math.sqrt(1500))


# -- regret
