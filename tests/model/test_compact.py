"""Rounded weights: the laws of the rounding, the bounds on losses, and the file."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import rewrite, set_header
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp
from windows import examples

from fcl.errors import InputError, ModelFileError
from fcl.model import Model, file, load_model
from fcl.model.compact import (
    MOST_BITS,
    Encoding,
    bits_for,
    margin_bound,
    mean_rise,
    pack_arrays,
    round_weights,
)

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


@pytest.mark.parametrize("weight", [1e300, -1e300, 2.0**43])
def test_too_large_for_the_grid(weight: float) -> None:
    with pytest.raises(InputError, match="bits: expected fewer than 9, since the largest weight"):
        round_weights(np.array([weight]), np.zeros(1, np.int64), 9, "random", 0)


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


@pytest.fixture
def compact(make_model: Callable[..., Model]) -> Model:
    weights = round_weights(np.array([0.1, -2.5, 1 / 3]), np.arange(3), 7, "nearest", 0)
    return make_model(weights=weights, history=[], encoding=Encoding(7, "nearest", loss=0.25))


@pytest.fixture
def path(compact: Model, tmp_path: Path) -> Path:
    compact.save(tmp_path / "s.fcl")
    return tmp_path / "s.fcl"


@pytest.mark.parametrize("codec", ["zstd", "zlib"])
def test_round_trip(make_model: Callable[..., Model], tmp_path: Path, codec: str) -> None:
    random = np.random.default_rng(0)
    ids = np.sort(random.choice(1000, 300, replace=False))
    weights = round_weights(random.laplace(size=300), ids, 5, "random", 0)
    given = make_model(
        ids=ids,
        weights=weights[:300],
        support=random.integers(0, 10**6, 300),
        encoding=Encoding(5, "random", 3, codec, 0.5, 0.4, 0.1, None, 77, "ab"),
    )
    if not given.weights.all():
        kept = np.flatnonzero(given.weights)
        given = make_model(
            ids=ids[kept], weights=weights[kept], support=kept, encoding=given.encoding
        )
    given.save(tmp_path / "a.fcl")
    again = load_model(tmp_path / "a.fcl")
    for name in ("ids", "weights", "support"):
        assert getattr(again, name).tobytes() == getattr(given, name).tobytes()
    assert again.encoding == given.encoding
    again.save(tmp_path / "b.fcl")
    assert (tmp_path / "a.fcl").read_bytes() == (tmp_path / "b.fcl").read_bytes()


def test_margins_are_those_of_the_rounded_weights(
    path: Path, compact: Model, windows: np.ndarray, brute_margins: Any
) -> None:
    found = load_model(path).margins(windows)
    np.testing.assert_allclose(found, brute_margins(compact, windows), rtol=0, atol=1e-12)


def test_older_readers_refuse_compact_models(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(header_of(path))["version"] == 4
    monkeypatch.setattr(file, "VERSION", 3)
    with pytest.raises(ModelFileError, match="format version 4, this fcl reads up to 3"):
        load_model(path)


def header_of(path: Path) -> bytes:
    found: list[bytes] = []
    rewrite(path, lambda members: found.append(members["header.json"]))
    return found[0]


def test_damage_is_noticed_or_harmless(path: Path, compact: Model) -> None:
    content = path.read_bytes()
    for size in range(0, len(content), 29):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"s\.fcl: "):
            load_model(path)
    for at in range(0, len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            again = load_model(path)
        except ModelFileError:
            continue
        assert np.array_equal(again.weights, compact.weights)


@pytest.mark.parametrize("member", ["ids.gaps", "weights.q", "support.q"])
def test_members_of_strangers(path: Path, member: str) -> None:
    """Valid checksums around bytes that no writer wrote."""
    (members,) = read(path)
    for changed in (b"", members[member][:-1], members[member] + b"\1", bytes(40)):
        rewrite(path, lambda all_of, new=changed: all_of.update({member: new}))  # type: ignore[misc]
        with pytest.raises(ModelFileError, match=rf"{member} is damaged"):
            load_model(path)
    rewrite(path, lambda all_of: all_of.pop(member))
    with pytest.raises(ModelFileError, match=f"holds no {member}"):
        load_model(path)


def read(path: Path) -> list[dict[str, bytes]]:
    found: list[dict[str, bytes]] = []
    rewrite(path, lambda members: found.append(dict(members)))
    return found


def test_ids_that_do_not_increase(path: Path) -> None:
    arrays = {"ids": np.array([3, 2, 9]), "weights": np.ones(3), "support": np.ones(3, np.int64)}
    packed = pack_arrays(arrays, Encoding(7, "nearest"))
    rewrite(path, lambda members: members.update(packed))
    with pytest.raises(ModelFileError, match=r"ids\.gaps is damaged \(ids that do not increase"):
        load_model(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"m": 53}, "encoding.m: expected a whole number from -32 to 52"),
        ({"m": True}, "encoding.m: expected"),
        ({"rounding": "up"}, "encoding.rounding: expected one of nearest, random"),
        ({"codec": "lz4"}, "encoding.codec: expected one of zstd, zlib"),
        ({"codec": "zlib"}, "ids.gaps is damaged"),
        ({"loss": "low"}, "encoding.loss: expected a finite number"),
        ({"seed": -1}, "encoding.seed: expected"),
    ],
)
def test_bad_encoding(path: Path, change: dict[str, Any], message: str) -> None:
    encoding = json.loads(header_of(path))["encoding"] | change
    set_header(path, encoding=encoding)
    with pytest.raises(ModelFileError, match=message):
        load_model(path)


@pytest.mark.parametrize("count", [2, 4, 10**9, 1 << 61])
def test_a_forged_number_of_features(path: Path, count: int) -> None:
    set_header(path, n_active=count)
    # a number that the file cannot hold is refused before its arrays are unpacked
    message = r"ids\.gaps is damaged" if count < 10**9 else r"need .* of memory; expected at most"
    with pytest.raises(ModelFileError, match=message):
        load_model(path)
