"""Random columns of every density, as a dense matrix and as the blocks that a family makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from fcl.cache import ColumnCache, ExtentCache, LiveColumns, StagedColumns, Store
from fcl.cache.extents import DROPPED
from fcl.features.base import (
    BitBlocks,
    BitColumns,
    Columns,
    DenseColumns,
    ListedColumns,
    StepColumns,
)
from fcl.features.fourier import STEP
from fcl.kernels import columns as kernels
from tests.windows import INTERPRETED

#: Shares of nonzeros: none, a few (lists of rows), around the size at which a bitmap is smaller, all.
DENSITIES = (0.0, 0.002, 0.03, 0.06, 0.0625, 0.07, 0.3, 0.9, 1.0)


def make_phi(
    rng: np.random.Generator, n_columns: int, n_rows: int, binary: bool, step: float = 0.0
) -> np.ndarray:
    """float32 (n_columns, n_rows); each column has one density, and another one on part of its rows.

    step : all values are multiples of it, by -127 to 127; some columns have only small multiples.
    """
    phi = np.zeros((n_columns, n_rows), np.float32)
    for column in phi:
        cut = rng.integers(n_rows + 1)
        for part in (column[:cut], column[cut:]):
            part[rng.random(len(part)) < rng.choice(DENSITIES)] = 1.0
    if binary:
        return phi
    if step:
        most = rng.choice([2, 127], (n_columns, 1))
        steps = rng.integers(1, most + 1, phi.shape) * rng.choice([-1, 1], phi.shape)
        return (step * steps * phi).astype(np.float32)
    return phi * rng.normal(size=phi.shape).astype(np.float32)


def to_blocks(
    phi: np.ndarray, block_rows: int, binary: bool, step: float = 0.0, listed: bool = False
) -> Sequence[Columns]:
    """The columns on each row block: bitmaps if binary, multiples if there is a step, or lists.

    Bitmaps are in one array, or, if ``listed``, in one for each block.
    """
    blocks: list[Columns] = []
    for start in range(0, phi.shape[1], block_rows):
        part = phi[:, start : start + block_rows]
        n = part.shape[1]
        if binary:
            padded = np.zeros((len(phi), -(-n // 64) * 64), bool)
            padded[:, :n] = part != 0.0
            words = np.packbits(padded, axis=1, bitorder="little").view("<u8")
            blocks.append(BitColumns(words.astype(np.uint64), n))
        elif step:
            blocks.append(StepColumns(np.rint(part / step).astype(np.int8), n, step))
        elif listed:
            column, row = np.nonzero(part)
            start_of = np.searchsorted(column, np.arange(len(phi) + 1))
            blocks.append(ListedColumns(start_of, row.astype(np.uint16), part[column, row], n))
        else:
            blocks.append(DenseColumns(np.ascontiguousarray(part), n))
    if binary and not listed:
        n_words = -(-min(block_rows, phi.shape[1]) // 64)
        # unused columns and words hold arbitrary bits
        bits = np.full((len(blocks), len(phi) + 1, n_words), 2**63 + 5, np.uint64)
        for whole, block in zip(bits, blocks, strict=True):
            whole[: len(phi), : block.bits.shape[1]] = block.bits
        return BitBlocks(bits, len(phi), phi.shape[1], block_rows)
    return blocks


def stage(
    cache: ColumnCache | Store,
    ids: np.ndarray,
    phi: np.ndarray,
    binary: bool = True,
    step: float = 0.0,
    listed: bool = False,
) -> StagedColumns:
    """The columns measured for a cache, or a store."""
    blocks = to_blocks(phi, cache.block_rows, binary, step, listed)
    return cache.measure(np.asarray(ids, np.int64), blocks)


def broken_invariants(cache: LiveColumns) -> list[str]:
    """The invariants of a cache that do not hold; an empty list unless fcl has a bug."""
    store, slots = cache.store, cache.slots
    first, sizes = store.first[slots], cache.sizes
    wrong = []
    if len(np.unique(cache.ids)) != cache.n:
        wrong.append("a feature is cached twice")
    if isinstance(cache, ColumnCache):
        starts = np.append(first, cache.used)
        if cache.n and (starts[0] != 0 or (first + sizes != starts[1:]).any()):
            wrong.append("columns do not tile the beginning of the arena")
        if cache.used > cache.capacity or cache.n > cache.max_columns:
            wrong.append(f"{cache.used} bytes used of {cache.capacity}")
        if sorted([*cache._free, *slots.tolist()]) != list(range(cache.max_columns)):
            wrong.append("a slot is lost, or has two columns")
        dense = (store._kinds[slots] >= kernels.DENSE).any(axis=1)
        counts = store._counts[slots].sum(axis=1)
        if (counts[~dense] != store.nonzeros[slots][~dense]).any():
            wrong.append("counts of pieces do not add up")
    if isinstance(cache, ExtentCache):
        extents = cache._extents(slots)
        if (cache.ids == DROPPED).any():
            wrong.append("a live column was dropped")
        if (first + sizes > (extents + 1) * cache.extent_bytes).any():
            wrong.append("a column crosses the end of its extent")
        order = np.lexsort((sizes, first))
        if (first[order][:-1] + sizes[order][:-1] > first[order][1:]).any():
            wrong.append("two columns overlap")
        if (cache._ends[extents] < 0).any():
            wrong.append("a live column lies in an extent that is not ours")
        elif (first + sizes > extents * cache.extent_bytes + cache._ends[extents]).any():
            wrong.append("a live column lies where the next one may be moved to")
    return wrong


def read_back(cache: LiveColumns) -> np.ndarray:
    """The columns in the cache, in its order, float64 (n, n_rows)."""
    return read_slots(cache.store, cache.slots)


def read_slots(store: Store, slots: np.ndarray) -> np.ndarray:
    """Columns of a store, float64 (len(slots), n_rows), decoded piece by piece as documented."""
    p = store.pieces
    out = np.zeros((len(slots), store.n_rows))
    for j, slot in enumerate(slots):
        for b in range(store.n_blocks):
            part = out[j, b * store.block_rows : (b + 1) * store.block_rows]
            at = int(p.first[slot]) + int(p.offsets[slot, b])
            n = int(p.counts[slot, b])
            kind = ["BITS", "ROWS", "VALUES", "FINE", "DENSE", "STEPS"][p.kinds[slot, b]]
            assert at % 8 == 0
            if kind == "BITS":
                words = p.arena64[at // 8 : at // 8 + -(-len(part) // 64)]
                bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
                assert bits.sum() == n and not bits[len(part) :].any()
                part[:] = bits[: len(part)]
                continue
            if kind == "DENSE":
                assert n == len(part)
                part[:] = p.arena32[at // 4 : at // 4 + n]
                continue
            if kind == "STEPS":
                assert n == len(part)
                part[:] = p.arena8[at + 8 : at + 8 + n] * np.float64(p.arena32[at // 4])
                continue
            rows = p.arena16[at // 2 : at // 2 + n].astype(int)
            assert (np.diff(rows) > 0).all() and (n == 0 or rows[-1] < len(part))
            values_at = (at + -(-2 * n // 8) * 8) // 4
            if kind == "FINE":
                part[rows] = p.fine[values_at // 2 : values_at // 2 + n]
                continue
            part[rows] = 1.0 if kind == "ROWS" else p.arena32[values_at : values_at + n]
    return out


Filled = tuple[ColumnCache, np.ndarray, np.random.Generator]
# ragged last blocks, words that are not full, one block, many
SHAPES = [(1, 64), (63, 64), (64, 64), (65, 64), (300, 128), (805, 256), (130, 65536)]


def fill(n_rows: int, block_rows: int, seed: int, kinds: str) -> Filled:
    """A cache of a dozen columns of the given kinds, its contents, and a random generator."""
    rng = np.random.default_rng(seed)
    binary = kinds == "binary"
    capacity = 14 * ColumnCache.largest_column(n_rows, block_rows, binary) + 500
    capacity *= 3 if kinds == "fine" else 1  # ten bytes for each entry
    cache = ColumnCache(capacity, 20, n_rows, block_rows, binary)
    parts = []
    # bitmaps or not; and the step of the values, which the cache may or may not know
    ways = {
        "binary": [(True, 0.0, False)],
        "real": [(False, 0.0, False)],
        "fine": [(False, 0.0, False)],
        "steps": [(False, STEP, True)],
        "whole": [(False, 1.0, False)],
        "all": [(True, 0.0, False), (False, 0.0, False), (False, 0.25, True), (False, 1.0, False)],
    }[kinds]
    for number, (bitmaps, step, told) in enumerate(ways):
        part = make_phi(rng, 12 // len(ways), n_rows, bitmaps, step)
        if kinds == "fine":
            part = part * (1.0 + 1e-9 * rng.random(part.shape))
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
    st.sampled_from(["binary", "real", "fine", "steps", "whole", "all"]),
)


def close(found: np.ndarray, expected: np.ndarray, size: np.ndarray) -> None:
    """Equal but for the order of summation; ``size``: the same sums of absolute values."""
    assert (np.abs(found - expected) <= 1e-12 * size).all()
