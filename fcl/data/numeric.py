"""Rows as numbers: validated blocks of a dense or sparse matrix, in float32 or float64.

Types whose values float32 holds exactly (float32, float16, booleans, integers of 8 and 16 bits) become
float32, and all others float64. Integers beyond 2^53 are rounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fcl.data.base import RowReader, chunk_ranges
from fcl.data.sparse import SparseRowReader, SparseRows
from fcl.errors import InputError

Block = np.ndarray | SparseRows
Numbers = np.ndarray | range  # of rows, increasing

# Rows whose entries are counted together.
_PIECE_ROWS = 1 << 20


class NumericReader:
    """Blocks of numbers from the rows of a data set; the constructor reads nothing.

    Parameters
    ----------
    rows : RowReader
        The stored matrix (n, columns), dense or sparse, of any real dtype.
    keep : bool (n,) or None
        Rows to read; None for all. Other rows are neither counted nor validated, and chunks without a
        kept row are not read.

    Attributes
    ----------
    n_rows : int
        Number of kept rows.
    n_columns : int
    dtype : dtype
        float32 or float64, of all blocks.
    sparse : bool
        Whether blocks are ``SparseRows``; otherwise they are arrays.

    Raises
    ------
    InputError
        The rows are not a matrix of numbers.
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
        if keep is not None and (keep.dtype != np.bool_ or keep.shape != rows.shape[:1]):
            raise ValueError(f"keep must be bool {rows.shape[:1]}, got {keep.dtype} {keep.shape}")
        self.rows = rows
        self._keep = keep
        self.n_rows = rows.shape[0] if keep is None else int(np.count_nonzero(keep))
        self.n_columns = rows.shape[1]
        self.dtype = float_dtype(rows.dtype)
        self.sparse = isinstance(rows, SparseRowReader)

    def iter_blocks(
        self, block_rows: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, int, Any]]:
        """Iterate over blocks of the kept rows ``first`` to ``last``, in order.

        Every storage chunk is decoded once. One chunk and one block are held at a time; for sparse rows,
        the block twice.

        Yields
        ------
        start, stop : int
            Range of kept rows: ``block_rows`` of them, fewer in the last block.
        block : array (stop - start, n_columns) or SparseRows
            All values are finite and of ``dtype``; an array is C-contiguous. Each block is new, so the
            caller may keep or modify it.

        Raises
        ------
        InputError
            A value is not finite; the message names row and column of the first one.
        """
        last = self.n_rows if last is None else last
        start = first
        block: _DenseBlock | _SparseBlock | None = None
        try:
            for stored, chunk in self._chunks(first, last):
                taken = 0
                while taken < len(stored):
                    if block is None:
                        size = min(block_rows, last - start)
                        make = _SparseBlock if self.sparse else _DenseBlock
                        block = make(self.rows.name, (size, self.n_columns), self.dtype)
                    count = min(len(stored) - taken, block.room)
                    # the chunk begins at its first stored row that is needed
                    block.add(chunk, stored[taken : taken + count], int(stored[0]))
                    taken += count
                    if block.room == 0:
                        stop = start + size
                        yield start, stop, block.finish()
                        start, block = stop, None
                del chunk  # before the next one is read
        finally:
            if isinstance(self.rows, SparseRowReader):
                self.rows.release()

    def block_entries(self, block_rows: int) -> np.ndarray:
        """Number of entries of each block of ``block_rows`` kept rows, int64 (blocks,).

        For sparse rows from ``indptr`` alone, so stored zeros count; for dense rows, rows times columns.
        """
        sizes = np.diff(np.r_[0 : self.n_rows : block_rows, self.n_rows])
        if not isinstance(self.rows, SparseRowReader):
            return sizes * self.n_columns
        entries = np.zeros(len(sizes), np.int64)
        seen = 0
        for start in range(0, self.rows.shape[0], _PIECE_ROWS):
            stop = min(self.rows.shape[0], start + _PIECE_ROWS)
            counts = self.rows.row_counts(start, stop)
            if self._keep is not None:
                counts = counts[self._keep[start:stop]]
            if len(counts):
                end = seen + len(counts)
                blocks = slice(seen // block_rows, -(-end // block_rows))
                cuts = np.arange(blocks.start, blocks.stop) * block_rows - seen
                entries[blocks] += np.add.reduceat(counts, np.maximum(cuts, 0))
                seen = end
        self.rows.release()
        return entries

    def _chunks(self, first: int, last: int) -> Iterator[tuple[Numbers, Any]]:
        """Iterate over the kept rows ``first`` to ``last`` by storage chunks.

        Yields the numbers of the kept rows among the stored rows, and the values of the stored rows from
        the first to the last of these numbers.
        """
        seen = 0
        for start, stop in chunk_ranges(self.rows):
            if seen >= last:
                return
            if self._keep is None:
                stored: Numbers = range(start, stop)
            else:
                stored = start + np.flatnonzero(self._keep[start:stop])
            n = len(stored)
            stored = stored[max(first - seen, 0) : max(last - seen, 0)]
            seen += n
            if len(stored):
                yield stored, self.rows.read(int(stored[0]), int(stored[-1]) + 1)


class _DenseBlock:
    """A dense block that is filled from chunks."""

    def __init__(self, name: str, shape: tuple[int, int], dtype: np.dtype) -> None:
        self._name = name
        self._values = np.empty(shape, dtype)
        self.room = shape[0]

    def add(self, chunk: np.ndarray, stored: Numbers, first: int) -> None:
        """Copy the rows with the numbers ``stored`` from a chunk whose first row has number ``first``."""
        at = len(self._values) - self.room
        out = self._values[at : at + len(stored)]
        if _consecutive(stored):
            out[...] = chunk[stored[0] - first : stored[-1] + 1 - first]
        else:
            out[...] = chunk[np.asarray(stored) - first]
        check_finite(out, stored, self._name)
        self.room -= len(stored)

    def finish(self) -> np.ndarray:
        return self._values


class _SparseBlock:
    """A sparse block that is concatenated from parts of chunks."""

    def __init__(self, name: str, shape: tuple[int, int], dtype: np.dtype) -> None:
        self._name = name
        self._dtype = dtype
        self._parts: list[SparseRows] = []
        self.room = shape[0]

    def add(self, chunk: SparseRows, stored: Numbers, first: int) -> None:
        """As in ``_DenseBlock``."""
        if _consecutive(stored):
            part = chunk.rows(int(stored[0]) - first, int(stored[-1]) + 1 - first)
        else:
            part = chunk.take(np.asarray(stored) - first)
        check_finite(part, stored, self._name)
        self._parts.append(part)
        self.room -= len(stored)

    def finish(self) -> SparseRows:
        return SparseRows.concatenate(self._parts, self._dtype)


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
            f"{rows.name} has {found} columns, but the model was trained on {n_columns}; give it "
            "the same columns, in the same order"
        )


def _consecutive(numbers: Numbers) -> bool:
    """Whether increasing numbers are consecutive."""
    return int(numbers[-1]) - int(numbers[0]) == len(numbers) - 1
