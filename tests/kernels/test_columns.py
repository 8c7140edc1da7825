"""Sums over columns in every encoding, against dense numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fcl.cache import ColumnCache
from fcl.features.fourier import STEP
from fcl.kernels import bits, encoding
from fcl.kernels import columns as kernels
from tests.columns import broken_invariants, make_phi, read_back, stage
from tests.windows import INTERPRETED, examples

Filled = tuple[ColumnCache, np.ndarray, np.random.Generator]
# ragged last blocks, words that are not full, one block, many
SHAPES = [(1, 64), (63, 64), (64, 64), (65, 64), (300, 128), (805, 256), (130, 65536)]


def fill(n_rows: int, block_rows: int, seed: int, kinds: str) -> Filled:
    """A cache of a dozen columns of the given kinds, its contents, and a random generator."""
    rng = np.random.default_rng(seed)
    binary = kinds == "binary"
    capacity = 14 * ColumnCache.largest_column(n_rows, block_rows, binary) + 500
    cache = ColumnCache(capacity, 20, n_rows, block_rows, binary)
    parts = []
    # bitmaps or not; and the step of the values, which the cache may or may not know
    ways = {
        "binary": [(True, 0.0, False)],
        "real": [(False, 0.0, False)],
        "steps": [(False, STEP, True)],
        "whole": [(False, 1.0, False)],
        "all": [(True, 0.0, False), (False, 0.0, False), (False, 0.25, True), (False, 1.0, False)],
    }[kinds]
    for number, (bitmaps, step, told) in enumerate(ways):
        part = make_phi(rng, 12 // len(ways), n_rows, bitmaps, step)
        ids = np.arange(len(part)) + 100 * number
        staged = stage(cache, ids, part, bitmaps, step if told else 0.0)
        assert all(cache.admit(staged, t) for t in range(len(part)))
        parts.append(part)
    assert broken_invariants(cache) == []
    return cache, np.concatenate(parts).astype(np.float64), rng


filled = st.builds(
    lambda shape, seed, kinds: fill(*shape, seed, kinds),
    st.sampled_from(SHAPES[:5] if INTERPRETED else SHAPES),
    st.integers(0, 2**31),
    st.sampled_from(["binary", "real", "steps", "whole", "all"]),
)


def close(found: np.ndarray, expected: np.ndarray, size: np.ndarray) -> None:
    """Equal but for the order of summation; ``size``: the same sums of absolute values."""
    assert (np.abs(found - expected) <= 1e-12 * size).all()


@given(filled)
@examples(80)
def test_sums_moments_and_additions(made: Filled) -> None:
    cache, phi, rng = made
    assert (read_back(cache) == phi).all()
    r, q = rng.normal(size=cache.n_rows), rng.exponential(size=cache.n_rows)
    pieces = cache.pieces
    g, h = phi @ r, phi**2 @ q
    size_g, size_h = np.abs(phi) @ np.abs(r), h
    order = rng.permutation(len(phi))
    found_g, found_h = np.zeros(len(phi)), np.zeros(len(phi))
    for block in range(cache.store.n_blocks):
        part_g, part_h = np.empty(len(phi)), np.empty(len(phi))
        kernels.block_moments(pieces, order, block, r, q, part_g, part_h)
        found_g += part_g
        found_h += part_h
    close(found_g, g[order], size_g[order])
    close(found_h, h[order], size_h[order])

    deltas = rng.normal(size=len(phi))
    deltas[0] = 0.0
    m = r.copy()
    for block in rng.permutation(cache.store.n_blocks):
        kernels.add_block(pieces, order, deltas, block, m)
    close(m, r + deltas @ phi[order], np.abs(r) + np.abs(deltas) @ np.abs(phi[order]))


@given(filled, st.sampled_from([64, 128, 4096]), st.booleans())
@examples(60)
def test_products_of_columns(made: Filled, size: int, sampled: bool) -> None:
    """A sample has fewer rows than its cache has room for; what stands beyond them does not count."""
    cache, phi, rng = made
    q = rng.exponential(size=rng.integers(1, cache.n_rows + 1) if sampled else cache.n_rows)
    order = rng.permutation(len(phi))[: rng.integers(1, len(phi) + 1)]
    k = len(order)
    gram = np.zeros((k, k))
    buffers = np.empty((size, k), np.int32), np.empty((size, k))
    for block in range(-(-len(q) // cache.block_rows)):
        kernels.add_sparse_gram(cache.pieces, order, block, q, *buffers, gram)
    part = phi[order, : len(q)]
    size_of = np.abs(part) * q @ np.abs(part).T
    close(gram, np.triu(part * q @ part.T), size_of)


def marked(chosen: np.ndarray, cache: ColumnCache) -> tuple[np.ndarray, np.ndarray]:
    """The chosen rows as bitmaps, and their numbers before each word."""
    shape = cache.store.n_blocks, -(-cache.block_rows // 64)
    wanted, before = np.ones(shape, np.uint64), np.ones(shape, np.int32)
    kernels.mark_rows(chosen, cache.block_rows, wanted, before)
    return wanted, before


@given(filled, st.sampled_from([0.0, 0.1, 0.6, 1.0]))
@examples(80)
def test_entries_of_chosen_rows(made: Filled, share: float) -> None:
    cache, phi, rng = made
    valued = not np.isin(phi, [0.0, 1.0]).all() or cache.largest > 8 * -(-cache.n_rows // 64)
    taken = np.flatnonzero(rng.random(cache.n_rows) < share)
    chosen = np.full(cache.n_rows, -1, np.int32)
    chosen[taken] = np.arange(len(taken))
    q = rng.exponential(size=len(taken))
    columns = rng.permutation(len(phi))[: rng.integers(1, len(phi) + 1)]
    k = len(columns)
    full = rng.random(k) < 0.5
    room = int(cache.pieces.counts[columns].sum())
    begin = int(rng.integers(5))
    start, stop = np.empty(k, np.int64), np.empty(k, np.int64)
    lean, curve = np.empty(k), np.empty(k)
    rows = np.full(begin + room + 3, -7, np.int32)
    values = np.empty(len(rows) if valued else 0, np.float32)
    if valued and not room:
        return
    assert k == kernels.gather_chosen(
        cache.pieces,
        columns,
        full,
        chosen,
        *marked(chosen, cache),
        q,
        begin,
        begin + room,
        start,
        stop,
        rows,
        values,
        lean,
        curve,
    )
    assert start[0] == begin and stop[-1] <= begin + room
    assert (start[1:] == stop[:-1]).all()
    assert (rows[:begin] == -7).all() and (rows[begin + room :] == -7).all()
    picked = np.zeros((k, len(taken)))
    picked[:, chosen[taken]] = phi[columns][:, taken]
    for t in range(k):
        entries = slice(start[t], stop[t])
        dense = np.zeros(len(taken))
        assert len(np.unique(rows[entries])) == stop[t] - start[t]
        densely = np.isin(cache.pieces.kinds[columns[t]], [kernels.DENSE, kernels.STEPS])
        zeros_too = full[t] & densely[taken // cache.block_rows]
        listed = zeros_too | (phi[columns[t]][taken] != 0.0)
        assert stop[t] - start[t] == np.count_nonzero(listed)
        dense[rows[entries]] = values[entries] if valued else 1.0
        assert (dense == picked[t]).all()
    close(lean, picked @ q, np.abs(picked) @ q)
    close(curve, picked**2 @ q, picked**2 @ q)


def test_too_little_room_for_entries_is_reported() -> None:
    cache = ColumnCache(1 << 12, 4, 200, 64)
    staged = stage(cache, np.arange(2), np.ones((2, 200), np.float32))
    assert cache.admit(staged, 0) and cache.admit(staged, 1)
    chosen = np.arange(200, dtype=np.int32)
    for room, written in ((400, 2), (399, 1), (10, 0)):
        out = np.empty(room, np.int32)
        found = kernels.gather_chosen(
            cache.pieces,
            np.arange(2),
            np.ones(2, bool),
            chosen,
            *marked(chosen, cache),
            np.ones(200),
            0,
            room,
            np.empty(2, np.int64),
            np.empty(2, np.int64),
            out,
            np.empty(0, np.float32),
            np.empty(2),
            np.empty(2),
        )
        assert found == written


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=5))
@examples(60)
def test_bits_of_words(words: list[int]) -> None:
    array = np.array([words], np.uint64)
    set_bits = [64 * w + i for w, word in enumerate(words) for i in range(64) if word >> i & 1]
    rows = np.empty(64 * len(words), np.uint16)
    assert encoding.bits_to_rows(array[0], len(words), rows) == len(set_bits)
    assert rows[: len(set_bits)].tolist() == set_bits


@pytest.mark.skipif(not INTERPRETED, reason="the compiled forms are no Python functions")
@given(st.integers(1, 2**64 - 1))
@examples(100)
def test_the_plain_forms_of_bit_operations(word: int) -> None:
    assert bits.population(np.uint64(word)) == bin(word).count("1")
    assert bits.trailing_zeros(np.uint64(word)) == len(bin(word)) - len(bin(word).rstrip("0"))


def test_columns_move_down_without_harm() -> None:
    for first, size, into in ((7, 4, 3), (12, 18, 7), (30, 1, 25), (5, 0, 2), (3, 6, 3)):
        arena = np.arange(40, dtype=np.uint64)
        encoding.move_words(arena, first, size, into)
        assert arena[into : into + size].tolist() == list(range(first, first + size))
        assert arena[:into].tolist() == list(range(into))
