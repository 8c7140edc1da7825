"""Columns in an arena of bytes, by slot. Encodings: see :mod:`fcl.kernels.columns`.

A sparse binary column costs 2 bytes per nonzero (and up to 6 per row block for alignment), a dense one a
bit per row. A column of numbers costs 6 bytes per nonzero or 4 per row; 1 per row if they are small
multiples of a step; or, if it has at most :data:`~fcl.features.base.FINE_ROWS` rows, 10 per nonzero.
The arrays may lie in memory that processes share; a store has no other state.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.arrays import Allocate, Arrays, fresh
from fcl.features.base import (
    FINE_ROWS,
    BitBlocks,
    BitColumns,
    Columns,
    ListedColumns,
    StepColumns,
)
from fcl.kernels import columns, encoding
from fcl.kernels.columns import Pieces

Slots = npt.NDArray[np.int64]


def _advise(memory: mmap.mmap, advice: str, first: int) -> None:
    """Advise the system on the pages from byte ``first`` on, if it knows such advice."""
    first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    if hasattr(mmap, advice) and first < len(memory):
        memory.madvise(getattr(mmap, advice), first)


@dataclass(frozen=True)
class StagedColumns:
    """Columns as a family made them, measured but not yet stored."""

    ids: npt.NDArray[np.int64]
    blocks: Sequence[Columns]
    nonzeros: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]  #: bytes in the arena
    hashes: npt.NDArray[np.uint64]  #: equal columns have equal hashes

    def split(self, which: Slots) -> list[tuple[StagedColumns, npt.NDArray[np.intp], Slots]]:
        """The pieces with some of the columns: each with their places in ``which`` and their numbers."""
        return [(self, np.arange(len(which)), which)]


class StagedPieces(StagedColumns):
    """Columns that were made and measured in pieces, one after the other in their order."""

    def __init__(self, pieces: Sequence[StagedColumns]) -> None:
        names = ("ids", "nonzeros", "sizes", "hashes")
        joined = {name: np.concatenate([getattr(own, name) for own in pieces]) for name in names}
        super().__init__(blocks=(), **joined)
        vars(self)["_pieces"] = pieces  # frozen

    def split(self, which: Slots) -> list[tuple[StagedColumns, npt.NDArray[np.intp], Slots]]:
        found, first = [], 0
        pieces: Sequence[StagedColumns] = vars(self)["_pieces"]
        for piece in pieces:
            last = first + len(piece.ids)
            here = np.flatnonzero((which >= first) & (which < last))
            if len(here):
                found.append((piece, here, which[here] - first))
            first = last
        return found


def check_block_rows(block_rows: int) -> None:
    """Raise ValueError unless a row inside its block fits uint16."""
    if not 0 < block_rows <= 65536:
        raise ValueError(f"block_rows must be from 1 to 65536, got {block_rows}")


def largest_column(n_rows: int, block_rows: int, binary: bool = True, step: float = 0.0) -> int:
    """Bytes of the largest column: bitmaps of all blocks, int8 if there is a step, or floats.

    This size does not decrease with the number of rows.
    """
    full, rest = divmod(n_rows, block_rows)
    if binary:
        return 8 * (full * -(-block_rows // 64) + -(-rest // 64))
    if step > 0.0:
        return 8 * (full * (1 + -(-block_rows // 8)) + (rest > 0) + -(-rest // 8))
    coarse = 8 * (full * -(-block_rows // 2) + -(-rest // 2))
    fine = min(n_rows, FINE_ROWS)
    return max(coarse, 8 * (fine + fine // 4 + -(-fine // block_rows)))


def directory(max_columns: int, n_blocks: int) -> Arrays:
    """The directory of a store, by slot."""
    each, pieces = max_columns, (max_columns, n_blocks)
    return Arrays(
        ("i8", each, "first ids nonzeros sizes"),
        ("u8", each, "hashes"),
        ("u4", pieces, "offsets counts"),
        ("u1", pieces, "kinds"),
    )


class Store:
    """The arena of bytes and the directory of columns.

    capacity : bytes of the arena (rounded down to a multiple of 8).
    max_columns : slots of the directory.
    n_rows, block_rows : rows of the columns, and rows per block (at most 65,536).
    allocate : makes the arrays.
    """

    def __init__(
        self,
        capacity: int,
        max_columns: int,
        n_rows: int,
        block_rows: int,
        allocate: Allocate = fresh,
    ) -> None:
        check_block_rows(block_rows)
        self.capacity = 8 * (capacity // 8)
        self.max_columns = max_columns
        self.n_rows = n_rows
        self.block_rows = block_rows
        self.n_blocks = -(-n_rows // block_rows)
        self._map: mmap.mmap | None = None  # of an arena that can give memory back
        if allocate is fresh:
            self._map = mmap.mmap(-1, max(8, self.capacity), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            _advise(self._map, "MADV_HUGEPAGE", 0)
            self.arena = np.frombuffer(self._map, np.uint64, self.capacity // 8)
        else:
            self.arena = allocate("arena", np.uint64, (self.capacity // 8,))
        made = self._directory = directory(max_columns, self.n_blocks).allocate(allocate)
        self.first, self.ids, self.hashes = made["first"], made["ids"], made["hashes"]
        self.nonzeros, self.sizes = made["nonzeros"], made["sizes"]
        self._offsets, self._counts, self._kinds = made["offsets"], made["counts"], made["kinds"]
        self.pieces = Pieces(
            self.arena.view(np.uint16),
            self.arena.view(np.float32),
            self.arena.view(np.int8),
            self.arena,
            self.arena.view(np.float64),
            self.first,
            self._kinds,
            self._offsets,
            self._counts,
            block_rows,
            n_rows,
        )

    def resize(self, max_columns: int, capacity: int, used: int) -> None:
        """Change the slots of the directory, and use only so many bytes of the arena.

        The memory behind the first ``used`` bytes of the arena goes back to the system, whether columns
        were ever there or not. The arena has at most its first size. Only a store in private memory can
        change, and only while nothing else refers to its directory.
        """
        assert self._map is not None
        _advise(self._map, "MADV_DONTNEED", used)
        for name, (_, shape) in directory(max_columns, self.n_blocks).items():
            self._directory[name].resize(shape, refcheck=False)
        self.max_columns, self.capacity = max_columns, 8 * (capacity // 8)

    def _limit(self, n_rows: int) -> int:
        """Number of entries of a block above which a bitmap is smaller than a list of rows."""
        return 4 * -(-n_rows // 64)

    def measure(self, ids: npt.NDArray[np.int64], blocks: Sequence[Columns]) -> StagedColumns:
        """Count nonzeros of new columns, and compute their sizes and hashes, without storing them."""
        nonzeros = np.zeros(len(ids), np.int64)
        sizes = np.zeros(len(ids), np.int64)
        hashes = np.zeros(len(ids), np.uint64)
        for b, made in enumerate(blocks):
            if isinstance(made, BitColumns):
                limit = self._limit(made.n_rows)
                encoding.measure_bits(made.bits, made.n_rows, b, limit, nonzeros, sizes, hashes)
            elif isinstance(made, StepColumns):
                values = (np.arange(-128, 128) * made.step).astype(np.float32).view(np.uint32)
                encoding.measure_steps(made.steps, made.step, values, b, nonzeros, sizes, hashes)
            else:
                coarse, rest = made.values.astype(np.float32, copy=False), None
                if made.values.dtype == np.float64:
                    rest = (made.values - coarse).view(np.uint64)
                entries = made.values, coarse.view(np.uint32), rest
                sums = b, nonzeros, sizes, hashes
                if isinstance(made, ListedColumns):
                    encoding.measure_lists(made.start, made.rows, *entries, made.n_rows, *sums)
                else:
                    encoding.measure_values(*entries, *sums)
        return StagedColumns(ids, blocks, nonzeros, sizes, hashes)

    def write(self, slots: Slots, staged: StagedColumns, which: Slots, starts: Slots) -> None:
        """Store some staged columns and enter them in the directory.

        which : their numbers in ``staged``.  starts : the first byte of each, a multiple of 8.
        """
        made = staged.blocks
        if isinstance(made, BitBlocks):
            used = self._write_bits(slots, made, which, starts)
        else:
            used = np.zeros(len(slots), np.int64)
            for b, block in enumerate(made):
                self._write_block(slots, b, block, which, starts, used)
        assert (used == staged.sizes[which]).all()
        # a sample may have fewer blocks than there is room for
        rest = np.s_[slots, len(made) :]
        self._kinds[rest], self._counts[rest], self._offsets[rest] = columns.ROWS, 0, 0
        self.first[slots] = starts
        self.hashes[slots] = staged.hashes[which]
        self.nonzeros[slots] = staged.nonzeros[which]
        self.sizes[slots] = used
        self.ids[slots] = staged.ids[which]  # last: a slot with an id holds a whole column

    def _write_bits(
        self, slots: Slots, made: BitBlocks, which: Slots, starts: Slots
    ) -> npt.NDArray[np.int64]:
        """Store bitmaps; returns the bytes of each column."""
        assert made.block_rows == self.block_rows
        used = np.empty(len(slots), np.int64)
        encoding.store_bitmaps(
            *(made.bits, which, made.n_rows, made.block_rows),
            *(self.pieces.arena16, self.pieces.arena64, starts, slots),
            *(self._kinds, self._offsets, self._counts, used),
        )
        return used

    def _write_block(
        self,
        slots: Slots,
        b: int,
        made: Columns,
        which: Slots,
        starts: Slots,
        used: npt.NDArray[np.int64],
    ) -> None:
        """Store block b of columns of which ``used`` bytes are stored already; adds to ``used``."""
        pieces = self.pieces
        if isinstance(made, ListedColumns):
            lists = made.start, made.rows, made.values, made.n_rows
            encoding.store_lists(*lists, which, b, slots, starts, used, pieces)
            return
        for i, (slot, t) in enumerate(zip(slots.tolist(), which.tolist(), strict=True)):
            at = int(starts[i] + used[i])
            if isinstance(made, BitColumns):
                limit, into = self._limit(made.n_rows), (pieces.arena16, pieces.arena64, at)
                stored = encoding.store_bits(made.bits[t], made.n_rows, limit, *into)
            elif isinstance(made, StepColumns):
                stored = self._store_values(made.steps[t], made.step, made.step, at)
            else:
                stored = self._store_values(made.values[t], 1.0, None, at)
            self._kinds[slot, b], self._counts[slot, b], size = stored
            self._offsets[slot, b] = used[i]
            used[i] += size

    def _store_values(
        self, values: npt.NDArray[Any], unit: float, step: float | None, at: int
    ) -> tuple[int, int, int]:
        """Write a piece of ``unit`` times the values of all rows to the arena at byte ``at``.

        Returns its encoding, count and bytes.

        step : all products are multiples of it from -127 to 127 times; 0 for none, None if unknown.
        """
        pieces, n = self.pieces, len(values)
        fine = values.dtype == np.float64 and (values.astype(np.float32) != values).any()
        if step is None:
            step = 0.0 if fine else encoding.common_step(values)
        filled = int(np.count_nonzero(values))
        kind, size = encoding.valued_bytes(n, filled, step)
        if fine:
            kind, size = columns.FINE, encoding.fine_bytes(filled)
        if kind == columns.STEPS:
            pieces.arena32[at // 4 : at // 4 + 2] = step, 0.0
            pieces.arena8[at + 8 : at + 8 + n] = np.rint(unit / step * values.astype(np.float64))
            return kind, n, size
        if kind == columns.DENSE:
            exact = values if unit == 1.0 else unit * values.astype(np.float64)
            pieces.arena32[at // 4 : at // 4 + n] = exact
            return kind, n, size
        rows = np.flatnonzero(values)
        pieces.arena16[at // 2 : at // 2 + filled] = rows
        arena = pieces.fine if fine else pieces.arena32
        first = (at + 8 * -(-filled // 4)) // arena.itemsize
        arena[first : first + filled] = unit * values[rows].astype(np.float64)
        return kind, filled, size

    def move(self, slot: int, into: int) -> None:
        """Move a column to byte ``into``; the directory is updated after the copy is complete.

        The two places may overlap only if the new one comes first; such a move must not be interrupted.
        """
        size = int(self.sizes[slot])
        first = int(self.first[slot])
        if first != into:
            encoding.move_words(self.arena, first // 8, size // 8, into // 8)
            self.first[slot] = into

    def valued(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Whether columns hold values other than 0 and 1."""
        return np.asarray((self._kinds[slots] >= columns.VALUES).any(axis=1))
