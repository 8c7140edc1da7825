"""Rounded weights: the laws of the rounding, the bounds on losses, and the file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from windows import examples

from fcl.errors import ModelFileError
from fcl.files import model as model_file
from fcl.files.compact import MOST_BITS, Encoding, bits_for, margin_bound, mean_rise, round_weights
from fcl.model import load_model
from tests.model.conftest import make_compact, make_model

N = 1_000_000


@pytest.mark.parametrize("weight", [0.3, -0.3, 1.0625 + 2**-20, -1e-9, 3.9])
def test_random_rounding_keeps_the_mean(weight: float) -> None:
    m, ids = 4, np.arange(N)
    found = round_weights(np.full(N, weight), ids, m, "random", 7)
    low = math.floor(weight * 16)
    share = weight * 16 - low
    assert set(found * 16) <= {low, low + 1}
    if 1e-4 < share < 1 - 1e-4:
        assert len(set(found)) == 2
    sd = math.sqrt(share * (1 - share)) / 16
    assert abs(found.mean() - weight) <= 4.5 * sd / math.sqrt(N) + 2**-32 / 16
    assert np.abs(found - weight).max() < 1 / 16


def test_random_rounding_depends_on_seed_id_and_output_alone() -> None:
    random = np.random.default_rng(0)
    weights, ids = random.normal(size=(1000, 3)), np.sort(random.choice(10**12, 1000, False))
    found = round_weights(weights, ids, 6, "random", 1)
    assert (found != round_weights(weights, ids, 6, "random", 2)).mean() > 0.2
    some = random.random(1000) < 0.3
    assert (found[some] == round_weights(weights[some], ids[some], 6, "random", 1)).all()
    assert (found[:, 0] == round_weights(weights[:, 0], ids, 6, "random", 1)).all()
    same = round_weights(np.full((1000, 2), 0.3), ids, 1, "random", 1)
    assert 0.3 < (same[:, 0] != same[:, 1]).mean() < 0.7


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.integers(-10, 20),
    st.integers(0, 2**40),
)
@examples(100)
def test_errors_are_below_a_step(numbers: list[float], m: int, seed: int) -> None:
    weights, ids = np.array(numbers), np.arange(len(numbers))
    eps = math.ldexp(1.0, -m)
    random = round_weights(weights, ids, m, "random", seed)
    nearest = round_weights(weights, ids, m, "nearest", seed)
    assert (np.abs(random - weights) < eps).all() and (np.abs(nearest - weights) <= eps / 2).all()
    for found in (random, nearest):  # a point of the grid stays where it is
        assert (found / eps == np.rint(found / eps)).all()
        assert (round_weights(found, ids, m, "random", seed + 1) == found).all()


# -- bounds --------------------------------------------------------------------------------------

#: name -> (loss of margins (K,) at the target 1 or class 0, curvature)
LOSSES: dict[str, tuple[Callable[[np.ndarray], float], float]] = {
    "logistic": (lambda m: float(np.logaddexp(0.0, -m[0])), 0.25),
    "squared": (lambda m: float((m[0] - 1.0) ** 2), 2.0),
    "softmax": (lambda m: float(logsumexp(m) - m[0]), 1.0),
}


@given(st.integers(0, 2**31), st.sampled_from(sorted(LOSSES)))
@examples(40)
def test_the_mean_rise_over_all_roundings(seed: int, name: str) -> None:
    """Enumerates the independent roundings of all weights with their probabilities."""
    random = np.random.default_rng(seed)
    loss, curvature = LOSSES[name]
    K = 3 if name == "softmax" else 1
    k = 2 if name == "softmax" else 6
    x, w = random.normal(size=k), random.normal(size=(k, K))
    eps = math.ldexp(1.0, -int(random.integers(-1, 4)))
    low = np.floor(w / eps)
    share = (w / eps - low).ravel()
    full, mean = loss(x @ w), 0.0
    for up in itertools.product((0, 1), repeat=k * K):
        chosen = np.array(up)
        p = np.where(chosen, share, 1.0 - share).prod()
        mean += p * loss(x @ ((low + chosen.reshape(k, K)) * eps))
    bound = mean_rise(eps, float(x @ x), curvature)
    assert bound is not None and -1e-12 <= mean - full <= bound * (1 + 1e-12)


def test_the_mean_rise_of_the_generator() -> None:
    random = np.random.default_rng(3)
    x, w, eps = random.normal(size=40), random.normal(size=40), 0.125
    rises, moves = [], []
    for seed in range(3000):
        moved = float(x @ (round_weights(w, np.arange(40), 3, "random", seed) - w))
        moves.append(abs(moved))
        rises.append(np.logaddexp(0.0, -(x @ w) - moved) - np.logaddexp(0.0, -(x @ w)))
    square, sd = float(x @ x), np.std(rises) / math.sqrt(3000)
    assert -4 * sd <= np.mean(rises) <= float(mean_rise(eps, square, 0.25) or 0.0) + 4 * sd
    # Hoeffding: each of 3,000 "rows" exceeds the bound with probability 1 / 3000^2
    assert max(moves) <= margin_bound(eps, square, 3000)
    t = 0.6 * eps * math.sqrt(square)
    expected = 2 * math.exp(-2 * t * t / (eps * eps * square))
    assert np.mean(np.array(moves) >= t) <= expected + 4 * math.sqrt(expected / 3000)


def test_bits_for_a_rise() -> None:
    for rise in (1e-7, 1e-3, 0.3, 1e4):
        m = bits_for(rise, 100.0, 0.25)
        assert (mean_rise(2.0**-m, 100.0, 0.25) or 0.0) <= rise
        assert (mean_rise(2.0 ** (1 - m), 100.0, 0.25) or 0.0) > rise
    assert bits_for(1e-3, 100.0, math.inf) == MOST_BITS == bits_for(0.0, 1.0, 1.0)


# -- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["zstd", "zlib"])
def test_round_trip(tmp_path: Path, codec: str) -> None:
    random = np.random.default_rng(0)
    ids = np.sort(random.choice(1000, 300, replace=False))
    weights = round_weights(random.laplace(size=300), ids, 5, "random", 0)
    kept = weights != 0
    given = make_model(
        ids=ids[kept],
        weights=weights[kept],
        support=random.integers(0, 10**6, kept.sum()),
        encoding=Encoding(5, "random", 3, codec, 0.5, 0.4, 0.1, None, 77, "ab"),
    )
    given.save(tmp_path / "a.fcl")
    again = load_model(tmp_path / "a.fcl")
    for name in ("ids", "weights", "support"):
        assert getattr(again, name).tobytes() == getattr(given, name).tobytes()
    assert again.encoding == given.encoding
    again.save(tmp_path / "b.fcl")
    assert (tmp_path / "a.fcl").read_bytes() == (tmp_path / "b.fcl").read_bytes()


def test_older_readers_refuse_compact_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_compact().save(tmp_path / "s.fcl")
    monkeypatch.setattr(model_file, "MODEL", replace(model_file.MODEL, version=3))
    with pytest.raises(ModelFileError, match="format version 4, this fcl reads up to 3"):
        load_model(tmp_path / "s.fcl")
