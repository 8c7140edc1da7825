"""Online gradient descent over tables: its definition, and small tables."""

from __future__ import annotations

import gzip
import hashlib
import math
from pathlib import Path

import numpy as np
import psutil
import pytest
from checkpoints import rewrite
from hypothesis import given
from hypothesis import strategies as st
from online_eager import chunk_of, dense_point, slope, stream
from windows import examples

from fcl.errors import InputError, ModelFileError
from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions
from fcl.online import table as table_module
from fcl.online.ogd import Ogd
from fcl.online.table import Grid, anonymous
from tests.online.conftest import feed, ogd

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")
ROOT = Path(__file__).resolve().parents[2]
SMALL = ("float32", "q2.13", "q5.10")


@given(st.integers(0, 2**31), st.sampled_from(LOSSES), st.sampled_from([0.0, 0.02]))
@examples(30)
def test_float64_is_the_definition(seed: int, loss: str, alpha: float) -> None:
    n, p, rate, rho = 40, 4, 0.2, 0.6
    X, y, s = stream(seed, n, p, loss)
    factors = np.array([1.0, 0.5, 2.0, np.inf])
    learner = ogd(p, factors, loss=loss, rate=rate, alpha=alpha, l1_ratio=rho)
    w, counts, b, events, total = np.zeros(p), np.zeros(p), 0.0, 0, 0.0
    margins = feed(learner, X, y, s)
    for i, (x, label, weight) in enumerate(zip(X, y, s, strict=True)):
        if weight == 0.0:
            continue
        m = float(x @ w + b)
        assert margins[i] == pytest.approx(m, rel=1e-10, abs=1e-10)
        d = weight * slope(loss, label, m)
        for j in np.flatnonzero(d * x):
            if np.isinf(factors[j]):
                continue
            counts[j] += 1
            eta = rate / math.sqrt(counts[j])
            v = w[j] - eta * d * x[j]
            due = eta * alpha * factors[j] * total / counts[j]
            w[j] = math.copysign(max(abs(v) - rho * due, 0.0), v) / (1 + (1 - rho) * due)
        if d:
            events += 1
            b -= rate / math.sqrt(events) * d
        total += weight
    found, intercept = dense_point(learner)
    np.testing.assert_allclose(found, w, rtol=1e-9, atol=1e-12)
    assert intercept == pytest.approx(b, rel=1e-9, abs=1e-12)
    assert (learner.others == counts).all() and learner.weight == pytest.approx(s.sum())


def test_a_fine_grid_with_exact_counts_is_plain_descent() -> None:
    """As the step falls, weights are those of float64 within the steps that roundings add up to."""
    X, y, s = stream(3, 1000, 20, "logistic")
    exact, fine = ogd(20, weights="float64"), ogd(20, weights="q2.13")
    fine._up, fine._events = exact._up, exact._events  # exact counts
    fine.others = np.zeros(20, np.uint32)
    plain, rough = feed(exact, X, y, s), feed(fine, X, y, s)
    events = fine.others.max()
    moved = 2.0**-13 * math.sqrt(0.5 * events * math.log(2 * 20 * 1000**2))
    assert np.abs(dense_point(fine)[0] - dense_point(exact)[0]).max() <= moved
    norms = np.sqrt(np.square(X).sum(axis=1))
    assert (np.abs(rough - plain) <= moved * norms * 20).all()


def test_results_depend_on_the_seed_and_on_the_pass() -> None:
    """Which they would not if values were rounded before the randomised rounding."""
    X, y, s = stream(0, 400, 8, "logistic")
    found = []
    for seed in range(4):
        learner = ogd(8, weights="q2.13", seed=seed, rate=0.01)
        feed(learner, X, y, s)
        found.append(learner.weights.tobytes())
    assert len(set(found)) == 4


@pytest.mark.parametrize("weights", ["q2.13", "q0.15"])
def test_weights_stop_at_the_range(weights: str) -> None:
    n = 300
    ids = np.zeros(n, np.int32)
    chunk = RowChunk(np.arange(n + 1), ids, np.full(n, 1e4))
    learner = ogd(1, weights=weights, loss="squared", rate=1e6, intercept=False)
    margins = np.zeros(n)
    done = learner.learn(chunk, np.where(np.arange(n) % 2, 1e9, -1e9), np.ones(n), margins)
    grid = Grid.parse(weights)
    assert done == n and abs(dense_point(learner)[0][0]) == grid.largest
    assert learner.clipped == 1 and np.abs(margins).max() <= 1e4 * grid.largest


def test_a_feature_twice_in_a_row_is_updated_twice() -> None:
    chunk = RowChunk(np.array([0, 2]), np.array([1, 1], np.int32), np.ones(2))
    learner = ogd(3, weights="float64", rate=1.0, intercept=False)
    margins = np.zeros(1)
    learner.learn(chunk, np.ones(1), np.ones(1), margins)
    assert learner.others[1] == 2
    assert dense_point(learner)[0][1] == pytest.approx(0.5 * (1 + math.sqrt(0.5)))


def test_a_margin_that_is_not_finite_changes_nothing() -> None:
    learner = ogd(2, weights="q2.13")
    feed(learner, np.ones((3, 2)), np.ones(3), np.ones(3))
    before = learner.saved()
    margins = np.zeros(2)
    X = np.array([[np.inf, 0.0], [1.0, 0.0]])
    assert learner.learn(chunk_of(X), np.ones(2), np.ones(2), margins) == 0
    after = learner.saved()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_little_memory_costs_little_loss() -> None:
    """Extra progressive loss of 24 bits over 64, over ten seeds."""
    X, y, s = stream(5, 3000, 30, "logistic")
    s[:] = 1.0
    binary = (X > 0.4).astype(float)
    y = np.where(
        np.random.default_rng(0).random(3000) < 1 / (1 + np.exp(-binary @ X[0])), 1.0, -1.0
    )
    exact = np.logaddexp(0.0, -y * feed(ogd(30, weights="float32"), binary, y, s)).mean()
    extra = []
    for seed in range(10):
        margins = feed(ogd(30, weights="q2.13", seed=seed), binary, y, s)
        extra.append(np.logaddexp(0.0, -y * margins).mean() / exact - 1.0)
    assert np.mean(extra) <= 0.005, extra


def test_little_memory_costs_little_loss_on_census_data() -> None:
    """Of 24 bits over 64, with the columns of a9a, over ten seeds."""
    path = ROOT.parent / "shared" / "data" / "a9a.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not here: it comes with the shared data, not with a clone")
    with gzip.open(path, "rt") as file:
        lines = [line.split() for line in file]
    y = np.array([float(line[0]) for line in lines])
    ids = [[int(cell.split(":")[0]) - 1 for cell in line[1:]] for line in lines]
    every = np.concatenate([np.array(own, np.int32) for own in ids])
    indptr = np.cumsum([0, *map(len, ids)])
    chunk, losses = RowChunk(indptr, every, np.ones(len(every))), []
    for weights, seed in [("float32", 0), *(("q2.13", seed) for seed in range(10))]:
        learner, margins = ogd(123, weights=weights, seed=seed, rate=0.5), np.zeros(len(y))
        assert learner.learn(chunk, y, np.ones(len(y)), margins) == len(y)
        losses.append(np.logaddexp(0.0, -y * margins).mean())
    assert losses[0] < 0.333 and np.mean(losses[1:]) / losses[0] - 1.0 <= 1e-3


# -- the table -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize("weights", ["float64", *SMALL])
def test_initial_weights(weights: str, tmp_path: Path) -> None:
    """Learning goes on from them, also after saving; features without rows keep theirs."""
    X, y, s = stream(4, 50, 4, "logistic")
    X[:, 3] = 0.0
    given, ids = np.array([0.5, -2.0, 1.75]), np.array([0, 1, 3])
    learners = [ogd(4, weights=weights) for _ in range(2)]
    for learner in learners:
        learner.start_from(ids, given, 0.25)
    start, intercept = dense_point(learners[0])
    assert start.tolist() == [0.5, -2.0, 0.0, 1.75] and intercept == 0.25
    learners[1].restore(learners[0].saved())
    margins = [feed(learner, X, y, s) for learner in learners]
    assert margins[0].tobytes() == margins[1].tobytes()
    first = int(np.flatnonzero(s)[0])
    assert margins[0][first] == pytest.approx(X[first] @ start + 0.25)
    assert dense_point(learners[1])[0][3] == 1.75
    with pytest.raises(InputError, match="expected a learner before its first row"):
        learners[0].start_from(ids, given)


def test_the_range_follows_the_inputs() -> None:
    assert [Grid.fitting(rms).text for rms in (1.0, 30.0, 0.5, 0.12, 1e-9)] == [
        "q2.13", "q2.13", "q3.12", "q5.10", "q15.0",
    ]  # fmt: skip
    grid = Grid.parse("q2.13")
    assert grid.largest == 32767 / 8192 and grid.step == 2.0**-13


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
