"""k-mers anywhere in the window, against slow code on strings that is independent of fcl."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.features import Bag, BagFamily, family_from_config, parse_features, spell_features
from fcl.features.base import BitColumns
from fcl.features.prices import Prices
from tests.bag_matrix import features_of, matrix, occurrences, patterns, reverse
from tests.explicit import select_rows
from tests.pricing import Pricing
from tests.rows import acceptors
from tests.windows import (
    BLOCK_ROWS,
    INTERPRETED,
    MAX_ROWS,
    RESIDUALS,
    UNKNOWN,
    examples,
    make_residuals,
    make_windows,
    prepare,
    tolerance,
)

KINDS = (("count", False), ("presence", False), ("count", True), ("presence", True))


@st.composite
def cases(draw: st.DrawFn) -> tuple[BagFamily, np.ndarray, np.ndarray, int]:
    """A family, windows, its explicit features, and a seed."""
    value, wildcards = draw(st.sampled_from(KINDS))
    d = draw(st.integers(1, 2 if INTERPRETED else 3 if wildcards else 4))
    length = d + draw(st.integers(0, 6))
    n = draw(st.sampled_from([1, 63, BLOCK_ROWS + 5, MAX_ROWS // 2]))
    seed = draw(st.integers(0, 2**31))
    codes = make_windows(seed, n, length, draw(st.sampled_from(UNKNOWN)))
    family = BagFamily(d, length, value, draw(st.sampled_from(["one", "both"])), wildcards)
    return family, codes, matrix(family, codes), seed


def dense(columns: Any) -> np.ndarray:
    """float64 (k, n) of one block."""
    if not isinstance(columns, BitColumns):
        return columns.values.astype(np.float64)
    data = np.ascontiguousarray(columns.bits).view(np.uint8)
    return np.unpackbits(data, axis=1, bitorder="little")[:, : columns.n_rows].astype(np.float64)


def bounds_of(family: BagFamily, part: int) -> tuple[int, int]:
    """The ids of a part."""
    parts = family.n_price_parts
    if not family.searched:
        return part * family.n_features // parts, (part + 1) * family.n_features // parts
    leading = itertools.product("ACGT", *["ACGT."] * min(1, family.d - 1))
    wanted = "".join(list(leading)[part])
    first = [p[0].ljust(family.d, ".").startswith(wanted) for p in features_of(family)]
    return (first.index(True), len(first) - first[::-1].index(True)) if any(first) else (0, 0)


def same_bits(a: Prices, b: Prices) -> bool:
    arrays = ("ids", "gradients", "watched", "excess")
    same = all(getattr(a, x).tobytes() == getattr(b, x).tobytes() for x in arrays)
    return same and a.largest == b.largest and a.n_priced == b.n_priced


@examples(60)
@given(
    case=cases(),
    kind=st.sampled_from(RESIDUALS),
    keep=st.sampled_from([1, 3, 10_000]),
    quantile=st.sampled_from([0.0, 0.5, 0.99, 1.5]),
)
def test_prices(
    case: tuple[BagFamily, np.ndarray, np.ndarray, int], kind: str, keep: int, quantile: float
) -> None:
    family, codes, phi, seed = case
    rng = np.random.default_rng(seed)
    assert phi.shape[1] == family.n_features
    assert phi.max(initial=0.0) <= family.integer_bound
    r = make_residuals(seed, len(codes), kind)
    g = r @ phi
    slack = tolerance(r) * family.integer_bound
    threshold = float(np.quantile(np.abs(g), min(quantile, 1.0)) * max(quantile, 1.0))
    watch = rng.permutation(family.n_features)[: rng.integers(5)]
    pricer = Pricing(family, prepare(family, codes), keep)
    level, more = threshold / 2, 0.1
    found = pricer.price(r, watch, threshold, level=level, imbalance=more)

    np.testing.assert_allclose(found.watched, g[watch], rtol=0, atol=slack)
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=0, atol=slack)
    most, change = float(np.abs(g).max()), more * family.integer_bound
    if family.searched and most <= threshold:  # then it is an upper bound alone
        assert most - slack <= found.largest - change <= max(threshold, most) + slack
    else:
        assert found.largest - change == pytest.approx(most, rel=0, abs=slack)
    assert found.n_priced == family.n_features
    excess = float(np.sum(np.maximum(np.abs(g) + change - level, 0.0) ** 2))
    if (
        family.searched and level <= change
    ):  # every pattern has its share, and not all are looked at
        excess = math.inf
    close = {"rel": 1e-9, "abs": slack * slack + 1e-300}
    assert math.fsum(found.excess) == pytest.approx(excess, **close)
    size = np.abs(g)
    size[watch] = 0.0
    assert (np.diff(found.ids) > 0).all()
    assert not np.isin(found.ids, watch).any()
    assert (size[found.ids] > threshold - slack).all()
    parts = pricer.n_parts
    assert len(found.excess) == parts
    for part in range(parts):  # of each part the largest
        first, last = bounds_of(family, part)
        here = found.ids[(found.ids >= first) & (found.ids < last)]
        must = np.sort(size[first:last])[::-1][:keep]
        must = must[must > threshold + slack]
        assert len(must) <= len(here) <= keep
        np.testing.assert_allclose(np.sort(size[here])[::-1][: len(must)], must, atol=slack)

    # grouping and what came before change no bit
    cut = int(rng.integers(parts + 1))
    fresh = Pricing(family, prepare(family, codes), keep)
    halves = []
    for some in (range(cut, parts), range(cut)):
        fresh.price(-r, watch, threshold, range(min(1, parts)))
        if len(some):
            halves.append(fresh.price(r, watch, threshold, some, level, more))
    order = np.argsort(np.concatenate([h.ids for h in halves]), kind="stable")
    assert np.concatenate([h.ids for h in halves])[order].tolist() == found.ids.tolist()
    gradients = np.concatenate([h.gradients for h in halves])[order]
    assert gradients.tobytes() == found.gradients.tobytes()
    assert max(h.largest for h in halves) == found.largest
    assert same_bits(pricer.price(r, watch, threshold, level=level, imbalance=more), found)


@examples(60)
@given(case=cases())
def test_columns_sums_and_margins(case: tuple[BagFamily, np.ndarray, np.ndarray, int]) -> None:
    family, codes, phi, seed = case
    rng = np.random.default_rng(seed)
    prepared = prepare(family, codes)
    ids = np.sort(rng.permutation(family.n_features)[:20])
    maker = family.column_maker(prepared, 1 << 20)
    for some in (ids[: len(ids) // 2], ids):  # buffers are used again
        made = np.concatenate([dense(block) for block in maker.make(some)], axis=1)
        assert (phi[:, some] == made.T).all()

    v = rng.normal(size=len(codes))
    again = rng.choice(ids, 30)
    pricer = Pricing(family, prepared, 3)
    squares = v @ phi**2
    close = {"rtol": 0, "atol": tolerance(v) * family.integer_bound**2}
    np.testing.assert_allclose(pricer.sums(v, again), squares[again], **close)
    cut = int(rng.integers(pricer.n_parts))
    split = pricer.sums(v, again, range(cut + 1))
    if cut + 1 < pricer.n_parts:
        split = split + pricer.sums(v, again, range(cut + 1, pricer.n_parts))
    assert split.tobytes() == pricer.sums(v, again).tobytes()
    assert (pricer.counts(again) == (phi != 0).sum(axis=0)[again]).all()

    w = rng.normal(size=len(ids))
    m = phi[:, ids] @ w
    out = np.full(len(codes), np.nan)
    for number in reversed(range(prepared.n_blocks)):
        family.write_margins(prepared, ids, w, out, range(number, number + 1))
    close = {"rtol": 0, "atol": 1e-12 * family.integer_bound * float(np.abs(w).sum())}
    np.testing.assert_allclose(out, m, **close)
    np.testing.assert_allclose(family.scorer(ids, w).margins(codes), m, **close)
    family.write_margins(prepared, ids[:0], w[:0], out)
    assert not out.any()

    rows = np.sort(rng.permutation(len(codes))[: max(1, len(codes) // 3)])
    chosen = select_rows(family, prepared, rows, 64)  # type: ignore[arg-type]
    made = np.concatenate(
        [dense(b) for b in family.column_maker(chosen, 1 << 20).make(ids)], axis=1
    )
    assert (phi[np.ix_(rows, ids)] == made.T).all()


@pytest.mark.parametrize("wildcards", [False, True])
def test_all_patterns_of_both_strands_are_there_once(wildcards: bool) -> None:
    for d in range(1, 4 if INTERPRETED else 6):
        family = BagFamily(d, 20, strands="both", wildcards=wildcards)
        features = patterns(d, True, wildcards)
        assert family.n_features == len(features)
        for j in range(0, len(features), 7):
            assert {family.feature_id(p) for p in features[j]} == {j}
            assert family.describe(j) == f"{features[j][0]}, either strand"


@pytest.mark.skipif(INTERPRETED, reason="tables of millions of cells")
def test_long_words_by_hand() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (70, 40)).astype(np.uint8)
    codes[:, 9:21] = codes[0, 9:21]
    codes[::5, 21:33] = codes[0, 9:21]
    codes[::7, 15] = 4
    r = rng.normal(size=70)
    texts = ["".join("ACGTN"[c] for c in row) for row in codes]
    word = texts[1][9:21]
    counts = np.array([occurrences(word, text) for text in texts])
    assert set(counts) == {0, 1, 2}
    for value, wanted in (("count", counts), ("presence", np.minimum(counts, 1))):
        family = BagFamily(12, 40, value)
        pricer = Pricing(family, prepare(family, codes), 8)
        j = family.feature_id(word)
        found = pricer.price(r, np.array([j]), 1e9)
        assert found.watched[0] == pytest.approx(r @ wanted, abs=1e-12)
        assert family.describe(j) == f"{word} anywhere"
    wild = BagFamily(10, 40, strands="both", wildcards=True)
    pattern = word[:3] + "." + word[4:10]
    counts = np.array([occurrences(pattern, t) + occurrences(reverse(pattern), t) for t in texts])
    j = wild.feature_id(pattern)
    assert wild.feature_id(reverse(pattern)) == j
    found = Pricing(wild, prepare(wild, codes), 8).price(r, np.array([j]), 1e9)
    assert found.watched[0] == pytest.approx(r @ counts, abs=1e-12)
    there = BagFamily(10, 40, "presence", "both", True)
    found = Pricing(there, prepare(there, codes), 8).price(r, np.array([j]), 1e9)
    assert found.watched[0] == pytest.approx(r @ np.minimum(counts, 1), abs=1e-12)


@pytest.mark.skipif(INTERPRETED, reason="a search of thousands of patterns")
@pytest.mark.parametrize("strands", ["one", "both"])
def test_search_skips_what_cannot_count(strands: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real windows: few patterns are looked at, the result is that of all, with or without room."""
    codes, y = acceptors(30, 400)
    codes[::9, 4] = 4
    family = BagFamily(5, 30, "presence", strands, True)
    prepared = prepare(family, codes)
    r = np.where(y > 0, -0.6, 0.4) * np.linspace(0.5, 1.5, len(y))
    ids = np.arange(family.n_features)
    columns = family.column_maker(prepared, 1 << 20).make(ids)
    g = r @ np.concatenate([dense(block) for block in columns], axis=1).T
    threshold = 0.5 * float(np.abs(g).max())
    watch = np.array([0, 17, family.n_features - 1])
    pricer = Pricing(family, prepared, 64)
    found = pricer.price(r, watch, threshold)
    wanted = np.setdiff1d(np.flatnonzero(np.abs(g) > threshold), watch)
    assert (found.ids == wanted).all() and len(wanted) > 3
    assert found.largest == pytest.approx(np.abs(g).max(), rel=1e-12)
    np.testing.assert_allclose(found.watched, g[watch], rtol=0, atol=1e-9)
    assert found.n_visited < (0.75 if strands == "both" else 0.5) * family.n_features
    monkeypatch.setattr("fcl.features.bag.search.PATH_ROOM", (1, 1))
    short = Pricing(family, prepared, 64)
    assert same_bits(short.price(r, watch, threshold), found)
    assert short.sums(r, ids).tobytes() == pricer.sums(r, ids).tobytes()


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("bag:d=6", Bag(6)),
        ("bag:d=4,value=presence,strands=both", Bag(4, "presence", "both")),
        ("bag:d=5,strands=both,wildcards=true", Bag(5, strands="both", wildcards=True)),
    ],
)
def test_text(text: str, spec: Bag) -> None:
    assert parse_features(text) == spec
    assert spell_features(spec) == text
    family = BagFamily(spec.d, 12, spec.value, spec.strands, spec.wildcards)
    assert family_from_config(family.to_config()) == family
