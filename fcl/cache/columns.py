"""Columns in a bounded arena of bytes.

Live columns are numbered 0 .. n - 1 without holes, in the order of admission. New columns go behind
the last one; eviction closes the gaps, so the arena never fragments. Encodings: see
:mod:`fcl.kernels.columns`. A sparse binary column costs 2 bytes a nonzero (and up to 6 a row block
for alignment), a dense one a bit a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import BudgetError
from fcl.features.base import BitColumns, Columns
from fcl.kernels import columns as kernels
from fcl.kernels.columns import Pieces

#: Directory bytes a column and row block: kind 1, offset 8, count 8.
DIRECTORY_BYTES = 17
#: Directory bytes a column: id, hash, nonzeros, first byte, size.
COLUMN_BYTES = 40


@dataclass(frozen=True)
class StagedColumns:
    """Columns as a family made them, measured but not yet in the cache."""

    ids: npt.NDArray[np.int64]
    blocks: Sequence[Columns]
    nonzeros: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]  #: bytes in the arena
    hashes: npt.NDArray[np.uint64]  #: equal columns have equal hashes


class ColumnCache:
    """A bounded set of columns over the rows of a view.

    Parameters
    ----------
    capacity : int
        Bytes of the arena.
    max_columns : int
        Columns that the directory has room for; its bytes come on top (``directory_bytes``).
    n_rows, block_rows : int
        Rows of the view, and rows a block (at most 65,536).

    Raises
    ------
    BudgetError
        ``capacity`` is less than the largest column can need: the working set could become empty.
    """

    def __init__(
        self,
        capacity: int,
        max_columns: int,
        n_rows: int,
        block_rows: int,
        binary: bool = True,
    ) -> None:
        if not 0 < block_rows <= 65536:
            raise ValueError(f"block_rows must be from 1 to 65536, got {block_rows}")
        need = self.largest_column(n_rows, block_rows, binary)
        if capacity < need or max_columns < 1:
            raise BudgetError(
                f"cache: expected room for a column of {n_rows} rows ({need} bytes), "
                f"got {capacity} bytes; raise the memory budget"
            )
        self.n_rows = n_rows
        self.block_rows = block_rows
        self.largest = need  #: bytes that any column fits in
        self.n_blocks = -(-n_rows // block_rows)
        self.max_columns = max_columns
        words = capacity // 8
        self.capacity = 8 * words
        self._arena = np.empty(words, np.uint64)
        self._kind = np.empty((max_columns, self.n_blocks), np.uint8)
        self._offset = np.empty((max_columns, self.n_blocks), np.int64)
        self._count = np.empty((max_columns, self.n_blocks), np.int64)
        self._ids = np.empty(max_columns, np.int64)
        self._hashes = np.empty(max_columns, np.uint64)
        self._nonzeros = np.empty(max_columns, np.int64)
        self._first = np.empty(max_columns, np.int64)
        self._sizes = np.empty(max_columns, np.int64)
        self.n = 0
        self.used = 0  #: bytes of the arena in use: always its beginning

    @staticmethod
    def largest_column(n_rows: int, block_rows: int, binary: bool = True) -> int:
        """Bytes of the largest column: a bitmap of every block, or float32 values."""
        full, rest = divmod(n_rows, block_rows)
        if binary:
            return 8 * (full * -(-block_rows // 64) + -(-rest // 64))
        return 8 * (full * -(-block_rows // 2) + -(-rest // 2))

    @staticmethod
    def directory_bytes(max_columns: int, n_rows: int, block_rows: int) -> int:
        """Bytes beside the arena."""
        return max_columns * (COLUMN_BYTES + DIRECTORY_BYTES * -(-n_rows // block_rows))

    # -- what is there -------------------------------------------------------------------------

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Feature ids of the live columns, by number."""
        return self._ids[: self.n]

    @property
    def nonzeros(self) -> npt.NDArray[np.int64]:
        """Stored entries of the live columns."""
        return self._nonzeros[: self.n]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Bytes of the live columns."""
        return self._sizes[: self.n]

    @property
    def free(self) -> int:
        """Bytes left in the arena."""
        return self.capacity - self.used

    @property
    def pieces(self) -> Pieces:
        """The arrays as kernels take them; valid until a column is admitted or evicted."""
        return Pieces(
            self._arena.view(np.uint16),
            self._arena.view(np.float32),
            self._arena,
            self._kind,
            self._offset,
            self._count,
            self.block_rows,
            self.n_rows,
        )

    def check(self) -> list[str]:
        """The invariants that do not hold (none, unless fcl has a bug)."""
        wrong = []
        ends = self._first[: self.n] + self.sizes
        starts = np.append(self._first[: self.n], self.used)
        if self.n and (starts[0] != 0 or (ends != starts[1:]).any()):
            wrong.append("columns do not tile the beginning of the arena")
        if len(np.unique(self.ids)) != self.n:
            wrong.append("a feature is cached twice")
        if self.used > self.capacity or self.n > self.max_columns:
            wrong.append(f"{self.used} bytes used of {self.capacity}")
        dense = self._kind[: self.n] == kernels.DENSE
        counts = self._count[: self.n].sum(axis=1)
        if (counts[~dense.any(axis=1)] != self.nonzeros[~dense.any(axis=1)]).any():
            wrong.append("counts of pieces do not add up")
        return wrong

    # -- changes -------------------------------------------------------------------------------

    def _limit(self, n_rows: int) -> int:
        """Entries of a block above which a bitmap is smaller than a list of rows."""
        return 4 * -(-n_rows // 64)

    def measure(self, ids: npt.NDArray[np.int64], blocks: Sequence[Columns]) -> StagedColumns:
        """Count, size and hash columns that a family made, before any room is spent on them."""
        nonzeros = np.zeros(len(ids), np.int64)
        sizes = np.zeros(len(ids), np.int64)
        hashes = np.zeros(len(ids), np.uint64)
        for b, made in enumerate(blocks):
            if isinstance(made, BitColumns):
                limit = self._limit(made.n_rows)
                kernels.measure_bits(made.bits, made.n_rows, b, limit, nonzeros, sizes, hashes)
            else:
                values = made.values.view(np.uint32)
                kernels.measure_dense(values, b, nonzeros, sizes, hashes)
        return StagedColumns(ids, blocks, nonzeros, sizes, hashes)

    def find_equal(self, staged: StagedColumns, t: int) -> int | None:
        """The number of a live column equal to a staged one (same count, same hash)."""
        same = (self._hashes[: self.n] == staged.hashes[t]) & (self.nonzeros == staged.nonzeros[t])
        return int(np.argmax(same)) if same.any() else None

    def admit(self, staged: StagedColumns, t: int) -> bool:
        """Store a staged column behind the last one; False if there is no room for it."""
        size = int(staged.sizes[t])
        if size > self.free or self.n == self.max_columns:
            return False
        j, at = self.n, self.used
        arena16, arena32 = self._arena.view(np.uint16), self._arena.view(np.float32)
        for b, made in enumerate(staged.blocks):
            if isinstance(made, BitColumns):
                limit = self._limit(made.n_rows)
                kind, count, used = kernels.store_bits(
                    made.bits[t], made.n_rows, limit, arena16, self._arena, at
                )
            else:
                kind, count, used = kernels.store_dense(made.values[t], arena16, arena32, at)
            self._kind[j, b], self._offset[j, b], self._count[j, b] = kind, at, count
            at += used
        assert at == self.used + size
        self._ids[j] = staged.ids[t]
        self._hashes[j] = staged.hashes[t]
        self._nonzeros[j] = staged.nonzeros[t]
        self._first[j] = self.used
        self._sizes[j] = size
        self.used = at
        self.n += 1
        return True

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the live columns that are not kept and close the gaps; the order stays."""
        kept = np.flatnonzero(keep)
        into = np.concatenate([[0], np.cumsum(self._sizes[kept])])
        first = self._first[kept]
        kernels.compact(self._arena, first // 8, self._sizes[kept] // 8, into[:-1] // 8)
        n = len(kept)
        self._offset[:n] = self._offset[kept] - (first - into[:-1])[:, None]
        self._first[:n] = into[:-1]
        for array in (
            self._kind,
            self._count,
            self._ids,
            self._hashes,
            self._nonzeros,
            self._sizes,
        ):
            array[:n] = array[kept]
        self.n = n
        self.used = int(into[-1])
