"""Rows as numbers: validated blocks of a dense or sparse matrix, in float32 or float64.

Types whose values float32 holds exactly (float32, float16, booleans, integers of 8 and 16 bits) become
float32, and all others float64. Integers beyond 2^53 are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl.data.base import BlockReader, Numbers, RowReader
from fcl.data.sparse import SparseRowReader, SparseRows
from fcl.data.sparse_buffer import SparseBuffer
from fcl.errors import InputError
from fcl.memory.allowance import SMALL, allow
from fcl.units import counted

Block = np.ndarray | SparseRows
# Rows whose entries are counted together.
_PIECE_ROWS = 1 << 20


class NumericReader(BlockReader):
    """Blocks of numbers from the rows of a data set; the constructor reads nothing.

    The rows are a matrix (n, columns), dense or sparse, of any real dtype.

    dtype : float32 or float64, of all blocks.
    sparse : whether blocks are ``SparseRows``; otherwise they are arrays.

    Raises InputError: the rows are not a matrix of numbers.
    """

    def __init__(self, rows: RowReader[Any], keep: np.ndarray | None = None) -> None:
        if rows.dtype.kind not in "biuf":
            what = "text" if rows.dtype.kind in "SU" else f"dtype {rows.dtype}"
            raise InputError(f"{rows.name} holds {what}; expected numbers")
        if len(rows.shape) != 2:
            raise InputError(
                f"{rows.name} has shape {rows.shape}; expected (rows, columns). Store a single "
                f"column as {(*rows.shape, 1)}"
            )
        super().__init__(rows, keep)
        self.n_columns = rows.shape[1]
        self.dtype = float_dtype(rows.dtype)
        self.sparse = isinstance(rows, SparseRowReader)

    def iter_blocks(
        self, block_rows: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, int, Any]]:
        """Iterate over blocks of the kept rows ``first`` to ``last``, in order.

        Every storage chunk is decoded once. One chunk and one block are held at a time.

        Yields start, stop (int), range of kept rows: ``block_rows`` of them, fewer in the last block;
            block, array (stop - start, n_columns) or SparseRows, all values are finite and of ``dtype``;
            an array is C-contiguous, and new, so that the caller may keep or modify it. Sparse rows may
            be a read-only part of a matrix in memory.
        Raises InputError: a value is not finite; the message names row and column of the first one.
        """
        room = self.block_entries(block_rows, first) if self.sparse else None
        block: Any = None
        try:
            for piece in self._pieces(block_rows, first, last):
                start, stop, filled, numbers = piece[:4]
                part: Block = piece.take()
                if isinstance(part, SparseRows):
                    check_finite(part, numbers, self.rows.name)
                    if not filled:
                        assert room is not None and isinstance(self.rows, SparseRowReader)
                        most = int(room[(start - first) // block_rows])
                        in_place = self.rows.in_place
                        block = SparseBuffer(stop - start, most, part, self.dtype, in_place)
                    block.append(part)
                else:
                    if not filled:
                        shape = stop - start, self.n_columns
                        size = math.prod(shape) * self.dtype.itemsize
                        if size > SMALL:  # the plan, which knows of other needs, refuses the others
                            allow(f"{self.rows.name}: {shape[0]:,} rows need", size)
                        block = np.empty(shape, self.dtype)
                    block[filled : filled + len(numbers)] = part
                    part = block[filled : filled + len(numbers)]
                    check_finite(part, numbers, self.rows.name)
                if piece.ends_block:
                    yield start, stop, block.rows() if self.sparse else block
                    block = None
                del piece, part  # before the next chunk is read
        finally:
            if isinstance(self.rows, SparseRowReader):
                self.rows.release()

    def block_entries(self, block_rows: int, first: int = 0) -> np.ndarray:
        """Number of entries of each block of ``block_rows`` kept rows from ``first`` on, int64 (blocks,).

        For sparse rows from ``indptr`` alone, so stored zeros count; for dense rows, rows times columns.
        """
        sizes = np.diff(np.r_[first : self.n_rows : block_rows, self.n_rows])
        if not isinstance(self.rows, SparseRowReader):
            return sizes * self.n_columns
        entries = np.zeros(len(sizes), np.int64)
        seen = -first
        for start in range(0, self.rows.shape[0], _PIECE_ROWS):
            stop = min(self.rows.shape[0], start + _PIECE_ROWS)
            counts = self.rows.row_counts(start, stop)
            if self._keep is not None:
                counts = counts[self._keep[start:stop]]
            skipped = min(max(-seen, 0), len(counts))
            counts, seen = counts[skipped:], seen + skipped
            if len(counts):
                end = seen + len(counts)
                blocks = slice(seen // block_rows, -(-end // block_rows))
                cuts = np.arange(blocks.start, blocks.stop) * block_rows - seen
                entries[blocks] += np.add.reduceat(counts, np.maximum(cuts, 0))
                seen = end
        self.rows.release()
        return entries


def float_dtype(dtype: np.dtype) -> np.dtype:
    """The float type to which numbers of a stored type are converted: float32 or float64."""
    return np.dtype(np.float32 if np.result_type(dtype, np.float32) == np.float32 else np.float64)


def check_finite(block: Block, rows: int | Numbers, name: str) -> None:
    """Raise ``InputError`` naming row and column of the first value that is NaN or infinite.

    block : array (m, columns) or sparse rows, of any real dtype.
    rows : number of the first row, or the numbers of all m rows, for the message.
    name : name of the matrix, for the message.
    """
    values = block.data if isinstance(block, SparseRows) else block
    if values.dtype.kind != "f":
        return
    with np.errstate(over="ignore", invalid="ignore"):
        # a sum needs no temporary array; if it overflows, each value is tested
        if np.isfinite(values.sum()):
            return
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    at = int(bad.argmax())
    if isinstance(block, SparseRows):
        row = int(np.searchsorted(block.indptr, at, side="right")) - 1
        column, value = int(block.indices[at]), values[at]
    else:
        row, column = divmod(at, block.shape[1])
        value = values[row, column]
    numbers = range(rows, rows + len(block)) if isinstance(rows, int) else rows
    raise InputError(
        f"{name}: row {numbers[row]}, column {column} is {value}; values must be finite "
        f"({int(bad.sum())} such values in rows {numbers[0]}-{numbers[-1]}). Replace them, or drop "
        "their rows or columns"
    )


def check_columns(rows: RowReader[Any], n_columns: int) -> None:
    """Raise ``InputError`` unless the rows have as many columns as the training rows of a model."""
    found = rows.shape[1] if len(rows.shape) == 2 else 1
    if found != n_columns:
        raise InputError(
            f"{rows.name} has {counted(found, 'column')}, but the model was trained on "
            f"{n_columns}; give it "
            "the same columns, in the same order (fcl convert --like TRAIN.zarr makes them)"
        )
