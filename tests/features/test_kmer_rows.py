"""Columns, margins, prediction and selected rows against the explicit matrix."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcl.features.kmers.margins as module
from fcl.data.prepared import PreparedRows
from fcl.features import KmerFamily
from fcl.kernels import kmers
from fcl.kernels import margins as kernels
from tests import brute
from tests.families import values_of
from tests.windows import BLOCK_ROWS, INTERPRETED, MAX_D, MAX_ROWS, make_windows, prepare, tolerance


def margins(
    family: KmerFamily, prepared: PreparedRows, ids: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    out = np.full(prepared.n_rows, np.nan)  # what is there before counts for nothing
    family.write_margins(prepared, ids, weights, out)
    return out


@pytest.mark.skipif(INTERPRETED, reason="too many rows, one by one")
def test_bitmaps_of_many_patterns_over_many_rows() -> None:
    """Blocks of several slices, whose last one is not full, and patterns of the letters of its rows."""
    family = KmerFamily(8, 9)
    codes = make_windows(4, 70_001, 9, "few")
    prepared = prepare(family, codes, 65536)
    rng = np.random.default_rng(4)
    letters = np.array(list("ACGT?"))
    texts = set()
    for row in codes[rng.integers(len(codes), size=100)]:
        kept = np.where(rng.random(8) < 0.5, letters[row[:8]], ".")
        texts.add("".join(kept).rstrip("."))
    texts = {text for text in texts if text[:1] not in ("", ".", "?") and "?" not in text}
    assert len(texts) > kmers.LEAST_SLICED
    ids = np.array([family.feature_id(text, 0) for text in sorted(texts)])
    maker = family.column_maker(prepared, 1 << 24)
    assert maker.batch >= len(ids)
    made = np.concatenate([values_of(block) for block in maker.make(ids)], axis=1)
    for text, column in zip(sorted(texts), made, strict=True):
        wanted = np.ones(len(codes), bool)
        for t, letter in enumerate(text):
            wanted &= (letter == ".") | (letters[codes[:, t]] == letter)
        assert (column == wanted).all()


def grid_model(family: KmerFamily, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Distinct features, and weights that are multiples of 2^-20, none of them 0.

    Half of the features have wildcards from the middle on.
    """
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(family.n_features, min(n, family.n_features), replace=False))
    tails = 5 ** (family.d // 2)
    ids[::2] += tails - 1 - ids[::2] % tails
    ids = np.unique(ids)
    return ids, rng.choice([-1.0, 1.0], len(ids)) * rng.integers(1, 1 << 20, len(ids)) * 2.0**-20


def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let neighbouring positions share tables, however few the rows and patterns are."""
    monkeypatch.setattr(module, "SHARED_ROWS", 1)
    monkeypatch.setattr(module, "LOOKUP_PATTERNS", 1.5)
    monkeypatch.setattr(module, "MAKING_PATTERNS", 0.0)


def shared_parts(
    family: KmerFamily, ids: np.ndarray, weights: np.ndarray
) -> list[module.SharedTable]:
    parts = module.KmerScorer(family, ids, weights, module.SHARED_ROWS)._parts
    return [part for part in parts if isinstance(part, module.SharedTable)]


@pytest.mark.parametrize("unknown", ["none", "many"])
@pytest.mark.parametrize(
    ("d", "length", "n"),
    [
        *[(1, 3, 12), (3, 14, 200), (4, 20, 300), (7, 16, 200), (8, 12, 200)],
        *[(9, 20, 300), (10, 24, 300), (12, 24, 100)],  # the longest patterns are in no table
    ],
)
def test_positions_that_share_a_table_have_the_same_margins_bit_for_bit(
    d: int, length: int, n: int, unknown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRETED and d > MAX_D:
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, length)
    codes = make_windows(8, MAX_ROWS, length, unknown)
    ids, weights = grid_model(family, n, 8)
    monkeypatch.setattr(module, "MOST_MATCHED_IN_PASS", [1] * 10)
    in_memory, on_disk = prepare(family, codes), prepare(family, codes, scratch=tmp_path)
    alone = margins(family, in_memory, ids, weights)
    if d <= MAX_D:  # else an explicit matrix takes too long
        expected = brute.matrix(codes, d)[:, ids] @ weights
        np.testing.assert_allclose(alone, expected, rtol=0, atol=tolerance(weights))
    share(monkeypatch)
    assert shared_parts(family, ids, weights)
    for prepared in (in_memory, on_disk):
        assert margins(family, prepared, ids, weights).tobytes() == alone.tobytes()
    assert family.scorer(ids, weights).margins(codes).tobytes() == alone.tobytes()


@pytest.mark.parametrize(("d", "length"), [(1, 30), (6, 30), (7, 30), (8, 30), (9, 30), (12, 30)])
def test_tables_of_margins_take_the_bytes_that_are_planned(
    d: int, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRETED:
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, length)
    codes = make_windows(8, BLOCK_ROWS, length, "none")
    ids, weights = grid_model(family, 1000, 8)
    monkeypatch.setattr(module, "MOST_MATCHED_IN_PASS", [1] * 10)
    share(monkeypatch)
    for rows in (1, 10**9):
        monkeypatch.setattr(module, "SHARED_ROWS", rows)
        for scratch in (None, tmp_path):
            prepared = prepare(family, codes, scratch=scratch)
            margins(family, prepared, ids, weights)  # kernels may be compiled
            tracemalloc.start()
            margins(family, prepared, ids, weights)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak <= module.margin_table_bytes(family, scratch is not None) + (1 << 18)


@given(st.data())
def test_tables_are_chosen_for_the_least_time(data: st.DataObject) -> None:
    """The choice takes no longer than any other, and the sums of a table stay below the limit."""
    n, d, most = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4)), 10.0
    spaces = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    positions = np.cumsum(spaces)
    sizes = st.lists(st.integers(0, 4), min_size=d, max_size=d).filter(any)
    counts = np.array([[0, *data.draw(sizes)] for _ in range(n)])
    longer = counts.sum(axis=1)[:, None] - np.cumsum(counts, axis=1)
    totals = np.array(data.draw(st.lists(st.integers(1, 11), min_size=n, max_size=n)), np.float64)
    costs = np.array(data.draw(st.lists(st.integers(0, 6), min_size=5, max_size=5)), np.float64)
    extra = float(data.draw(st.integers(0, 2)))

    def time(first: int, stop: int, letters: int) -> float:
        """Of a table with the patterns of some positions, or of matching those of one position."""
        if not letters:
            return float(longer[first, 0] + extra) if stop == first + 1 else np.inf
        room = positions[first] + letters - positions[first:stop]
        if room.min() <= 0 or totals[first:stop].sum() >= most:
            return np.inf
        beyond = [longer[t, min(r, d)] for t, r in zip(range(first, stop), room, strict=True)]
        return float(costs[letters] + sum(b + extra for b in beyond if b))

    least = [np.inf] * n + [0.0]
    for first in range(n - 1, -1, -1):
        ends = ((stop, size) for stop in range(first + 1, n + 1) for size in range(5))
        least[first] = min(time(first, stop, size) + least[stop] for stop, size in ends)
    stops, letters = np.empty((2, n), np.int64)
    kernels.choose_tables(positions, longer, totals, most, costs, extra, stops, letters)
    at, spent = 0, 0.0
    while at < n:
        stop = max(int(stops[at]), at + 1)
        spent += time(at, stop, int(letters[at]))
        at = stop
    assert spent == least[0]


def test_a_shared_table_never_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    family = KmerFamily(1, 3)
    codes = make_windows(9, 50, 3, "none")
    share(monkeypatch)
    monkeypatch.setattr(module, "MOST_MATCHED_IN_PASS", [0] * 10)
    ids = np.arange(12)  # four patterns at each of three positions
    for total, stops in ((2**31 - 5, [3]), (2**31 - 1, [2, 3]), (2**31, [1, 2, 3])):
        weights = np.ones(12)
        weights[4] = total - 7  # so that the first two positions have this sum
        assert [part.stop for part in shared_parts(family, ids, weights)] == stops
        found = margins(family, prepare(family, codes), ids, weights)
        assert (found == brute.matrix(codes, 1)[:, ids] @ weights).all()
    weights[4] = 2.0**31  # too much for a table of 32 bits, even of one position
    parts = module.KmerScorer(family, ids, weights, module.SHARED_ROWS)._parts
    assert [type(part) for part in parts] == [
        module.SharedTable,
        module.MarginPart,
        module.SharedTable,
    ]
    assert [part.tabled for part in parts if isinstance(part, module.MarginPart)] == [True]


def test_no_table_is_shared_by_weights_whose_sums_are_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = KmerFamily(3, 10)
    ids, weights = grid_model(family, 100, 10)
    monkeypatch.setattr(module, "MOST_MATCHED_IN_PASS", [0] * 10)
    assert shared_parts(family, ids, weights)
    weights[-1] = 2.0**40  # sums with 2^-20 need more than 53 bits
    assert not shared_parts(family, ids, weights)
    assert not shared_parts(family, ids, np.random.default_rng(10).normal(size=len(ids)))
    assert not shared_parts(family, ids[:0], weights[:0])
