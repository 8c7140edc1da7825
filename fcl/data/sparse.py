"""Sparse rows (CSR): blocks of rows, and the reader that makes them from stored arrays.

A CSR matrix is three arrays: the entries of row i are ``data[indptr[i]:indptr[i + 1]]``, in the columns
``indices[indptr[i]:indptr[i + 1]]``. The arrays may be in Zarr, in HDF5 or in memory; scipy is not
needed, since its matrices are recognised by their attributes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fcl.data.base import RowReader
from fcl.data.memory import MemoryReader
from fcl.errors import InputError

# An indptr up to this size is kept in memory, as int64; a larger one is read in pieces for each block.
MAX_KEPT_INDPTR_BYTES = 64 << 20

# Rows are read in steps of at most this size, so that the temporaries of the checks stay in the L2 cache.
BLOCK_BYTES = 1 << 20

# Rows whose indptr is validated at a time when a matrix is opened; also a limit of ``chunk_rows``.
_PIECE_ROWS = 1 << 20


class SparseMatrix(Protocol):
    """A sparse matrix in memory, such as a SciPy matrix."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and columns."""

    def tocsr(self) -> Any:
        """The matrix as CSR: an object with ``indptr``, ``indices``, ``data`` and ``shape``."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A block of m rows of a sparse matrix.

    The arrays may share memory with a source, so they must not be modified.

    indptr : int64 (m + 1,), from 0 to the number of entries.
    indices : int32 (entries,), or int64 if there are more than 2^31 columns, columns of the entries,
        strictly increasing within a row.
    data : (entries,) of any real dtype, values of the entries, all different from 0.
    n_columns : number of columns of the whole matrix.
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    n_columns: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.n_columns

    @property
    def dtype(self) -> np.dtype:
        return self.data.dtype

    @property
    def nnz(self) -> int:
        return len(self.data)

    @property
    def nbytes(self) -> int:
        return self.indptr.nbytes + self.indices.nbytes + self.data.nbytes

    def entry_rows(self) -> np.ndarray:
        """The row of each entry, int64 (entries,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def __getitem__(self, rows: slice | np.ndarray) -> SparseRows:
        """Some rows: a slice shares the memory of the entries; an array of row numbers gives a copy."""
        entries: slice | np.ndarray
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(len(self))
            entries = slice(int(self.indptr[start]), int(self.indptr[stop]))
            indptr = self.indptr[start : stop + 1] - entries.start
        else:
            counts = np.diff(self.indptr)[rows]
            indptr = np.concatenate([[0], np.cumsum(counts)])
            entries = np.arange(indptr[-1]) + np.repeat(self.indptr[rows] - indptr[:-1], counts)
        return SparseRows(indptr, self.indices[entries], self.data[entries], self.n_columns)

    def to_dense(self) -> np.ndarray:
        """The block as an array (m, n_columns), with the dtype of the entries."""
        dense = np.zeros(self.shape, dtype=self.data.dtype)
        dense[self.entry_rows(), self.indices] = self.data
        return dense

    @staticmethod
    def concatenate(parts: Sequence[SparseRows]) -> SparseRows:
        """The rows of all parts (at least one), copied."""
        ends = itertools.accumulate((part.nnz for part in parts), initial=0)
        pieces = [part.indptr[1:] + end for part, end in zip(parts, ends, strict=False)]
        return SparseRows(
            np.concatenate([[0], *pieces]),
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.data for part in parts]),
            parts[0].n_columns,
        )


class SparseRowReader(RowReader[SparseRows]):
    """Rows of a CSR matrix whose three arrays are stored, or in memory.

    Opening reads ``indptr`` once, to validate it; reading validates ``data`` and ``indices``. Both raise
    ``InputError`` for arrays that do not fit together, a column out of range, or a duplicate entry.
    Entries are sorted by column, and stored zeros are dropped.

    ``chunk_rows`` is the largest power of 2 such that all aligned blocks of this many rows fit into
    ``BLOCK_BYTES``; at least 1, and at most the number of rows. A storage chunk of entries that ends
    beyond the requested rows is kept for the next read, so that reading in order decodes each chunk once.
    """

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        indptr: RowReader[np.ndarray],
        indices: RowReader[np.ndarray],
        data: RowReader[np.ndarray],
    ) -> None:
        self.name = name
        self.shape = _checked_shape(name, shape)
        self.dtype = data.dtype.newbyteorder("=")
        self._readers = (indptr, indices, data)
        self._check_arrays()
        self._indptr = _Pieces(indptr)
        self._indices = _Pieces(indices)
        self._data = _Pieces(data)
        self._index_dtype = np.dtype(np.int32 if self.shape[1] <= 1 << 31 else np.int64)
        kept = indptr.chunk_bytes > 0 and 8 * indptr.shape[0] <= MAX_KEPT_INDPTR_BYTES
        self._kept = np.empty(indptr.shape[0], np.int64) if kept else None
        self.nnz, most = self._scan()
        entry_bytes = self.dtype.itemsize + self._index_dtype.itemsize
        sizes = {rows: entries * entry_bytes + 8 * rows for rows, entries in most.items()}
        fitting = [rows for rows, size in sizes.items() if size <= BLOCK_BYTES]
        rows = max(fitting, default=1)
        self.chunk_rows = min(rows, self.shape[0])
        # storage chunks that are kept for the next read
        held = sum(reader.chunk_bytes for reader in (indices, data))
        held += 0 if kept else indptr.chunk_bytes
        self._chunk_bytes = sizes[rows] + held

    @property
    def in_place(self) -> bool:
        """Whether entries are read where they are, in arrays in memory."""
        return all(reader.chunk_bytes == 0 for reader in self._readers[1:])

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the largest ``chunk_rows`` rows, and of the storage chunks kept for the next read."""
        return self._chunk_bytes

    @property
    def most_ahead(self) -> int:
        """Bytes of stored chunks that may be requested ahead, of ``indices`` and ``data`` together."""
        return sum(reader.most_ahead for reader in self._readers[1:])

    @most_ahead.setter
    def most_ahead(self, size: int) -> None:
        for reader in self._readers[1:]:
            reader.most_ahead = size // 2

    @property
    def ahead_bytes(self) -> int:
        return sum(reader.ahead_bytes for reader in self._readers[1:])

    @contextmanager
    def ahead(self, ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
        kept = self._kept
        with ExitStack() as stack:
            if kept is not None and self.ahead_bytes:
                entries = ((int(kept[start]), int(kept[stop])) for start, stop in ranges)
                for reader, own in zip(self._readers[1:], itertools.tee(entries), strict=True):
                    stack.enter_context(reader.ahead(own))
            yield

    @property
    def resident_bytes(self) -> int:
        """Bytes of ``indptr`` if the reader keeps it in memory, else 0."""
        return 0 if self._kept is None else self._kept.nbytes

    def read(self, start: int, stop: int) -> SparseRows:
        absolute = self._read_indptr(start, stop)
        first, last = int(absolute[0]), int(absolute[-1])
        indices, data = self._indices.read(first, last), self._data.read(first, last)
        data = data.astype(self.dtype, copy=False)
        return self._canonical(start, absolute - first, indices, data)

    def row_counts(self, start: int, stop: int) -> np.ndarray:
        """Number of stored entries of each of the rows ``start`` to ``stop``, int64 (stop - start,)."""
        return np.diff(self._read_indptr(start, stop))

    def release(self) -> None:
        for pieces in (self._indptr, self._indices, self._data):
            pieces.release()

    def missing_chunks(self) -> int:
        return sum(reader.missing_chunks() for reader in self._readers)

    def _check_arrays(self) -> None:
        """Raise InputError for dtypes and lengths that cannot be a CSR matrix."""
        indptr, indices, data = self._readers
        for reader, kinds, expected in (
            (indptr, "iu", "integers"),
            (indices, "iu", "integers"),
            (data, "biuf", "real numbers"),
        ):
            if reader.dtype.kind not in kinds:
                raise InputError(f"{reader.name} has dtype {reader.dtype}; expected {expected}")
            if len(reader.shape) != 1:
                raise InputError(f"{reader.name} has shape {reader.shape}; expected one dimension")
        if indptr.shape[0] != self.shape[0] + 1:
            raise InputError(
                f"{self.name} has shape {self.shape}, but its indptr has {indptr.shape[0]} values; "
                f"expected {self.shape[0] + 1}, one more than rows"
            )
        if indices.shape != data.shape:
            raise InputError(
                f"{self.name} has {indices.shape[0]} indices and {data.shape[0]} data; expected equal "
                "numbers. The matrix is damaged or incomplete"
            )

    def _scan(self) -> tuple[int, dict[int, int]]:
        """Validate ``indptr``, and keep it in memory if it is small.

        Returns the number of entries, and for each block size of 1, 2, 4, ... rows the largest number of
        entries of a block, where blocks begin at multiples of their size.
        """
        n = self.shape[0]
        most: dict[int, int] = {}
        last = 0
        for start in range(0, n, _PIECE_ROWS):
            stop = min(n, start + _PIECE_ROWS)
            piece = self._indptr.read(start, stop + 1).astype(np.int64)
            self._check_indptr(start, last, piece)
            last = int(piece[-1])
            if self._kept is not None:
                self._kept[start : stop + 1] = piece
            rows = 1
            while True:
                ends = piece[::rows]
                if (stop - start) % rows:
                    ends = np.append(ends, last)
                most[rows] = max(most.get(rows, 0), int(np.diff(ends).max()))
                if rows >= min(n, _PIECE_ROWS):
                    break
                rows *= 2
        self._indptr.release()
        return last, most

    def _check_indptr(self, start: int, last: int, piece: np.ndarray) -> None:
        """Raise InputError if ``indptr`` does not begin at 0, decreases, or exceeds the entries."""
        name, entries = self._readers[0].name, self._readers[2].shape[0]
        if start == 0 and piece[0] != 0:
            raise InputError(f"{name} begins with {piece[0]}; expected 0")
        falls = np.diff(piece, prepend=last) < 0
        if falls.any():
            i = int(falls.argmax())
            raise InputError(
                f"{name} decreases to {piece[i]} at position {start + i}; expected values that never "
                "decrease. The matrix is damaged or not CSR"
            )
        if piece[-1] > entries:
            row = start + int(np.argmax(piece[1:] > entries))
            raise InputError(
                f"{name} says that row {row} ends at entry {piece[row - start + 1]}, but there are "
                f"only {entries}. The matrix is damaged or incomplete"
            )

    def _read_indptr(self, start: int, stop: int) -> np.ndarray:
        if self._kept is not None:
            return self._kept[start : stop + 1]
        return self._indptr.read(start, stop + 1).astype(np.int64)

    def _canonical(
        self, start: int, indptr: np.ndarray, indices: np.ndarray, data: np.ndarray
    ) -> SparseRows:
        """The rows from ``start`` on, with columns validated and sorted, and without zeros."""
        n_columns = self.shape[1]
        if len(indices) == 0:
            return SparseRows(indptr, indices.astype(self._index_dtype), data, n_columns)
        if indices.max() >= n_columns or indices.min() < 0:
            entry = int(((indices < 0) | (indices >= n_columns)).argmax())
            row = start + int(np.searchsorted(indptr, entry, side="right")) - 1
            raise InputError(
                f"{self.name}: row {row} has an entry in column {indices[entry]}; expected columns from "
                f"0 to {n_columns - 1}, as its shape is {self.shape}"
            )
        indices = indices.astype(self._index_dtype, copy=False)
        rows = SparseRows(indptr, indices, data, n_columns)
        steps = np.diff(indices)
        starts = indptr[1:-1]  # at the beginning of a row the column may decrease
        starts = starts[(starts > 0) & (starts < len(indices))]
        steps[starts - 1] = 1
        if (steps < 0).any():
            order = _order(rows)
            rows = SparseRows(indptr, indices[order], data[order], n_columns)
            steps = np.diff(rows.indices)
            steps[starts - 1] = 1
        if (steps == 0).any():
            entry = int((steps == 0).argmax())
            row = start + int(np.searchsorted(rows.indptr, entry, side="right")) - 1
            raise InputError(
                f"{self.name}: row {row}, column {rows.indices[entry]} has more than one entry; expected "
                "at most one. Add them up first (scipy: X.sum_duplicates())"
            )
        zero = rows.data == 0
        if zero.any():
            before = np.concatenate([[0], np.cumsum(zero)])
            indptr = indptr - before[indptr]
            rows = SparseRows(indptr, rows.indices[~zero], rows.data[~zero], n_columns)
        return rows


class _Pieces:
    """Ranges of an array of one dimension; ranges read in order decode each storage chunk once.

    The last chunk of a range is kept for the next range. Arrays in memory are read in place.
    """

    def __init__(self, reader: RowReader[np.ndarray]) -> None:
        self._reader = reader
        self._in_place = reader.chunk_bytes == 0
        self.release()

    def release(self) -> None:
        # its start and its values, in one tuple so that threads see both replaced at once
        self._held = (0, np.empty(0, self._reader.dtype))

    def read(self, start: int, stop: int) -> np.ndarray:
        """The values ``start`` to ``stop``, which must not be modified."""
        reader = self._reader
        if start >= stop:
            return np.empty(0, reader.dtype)
        if self._in_place:
            return reader.read(start, stop)
        first, held = self._held
        parts = []
        if first <= start < first + len(held):
            parts.append(held[start - first : stop - first])
            start += len(parts[0])
        if start < stop:
            end = min(reader.shape[0], -(-stop // reader.chunk_rows) * reader.chunk_rows)
            values = reader.read(start, end)
            parts.append(values[: stop - start])
            cut = max(start, (end - 1) // reader.chunk_rows * reader.chunk_rows)
            self._held = (cut, values[cut - start :].copy())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def from_matrix(matrix: Any, name: str) -> SparseRowReader:
    """A reader of the rows of a sparse matrix in memory, which is converted to CSR if necessary."""
    if hasattr(matrix, "tocsr"):
        if len(matrix.shape) != 2:
            _checked_shape(name, matrix.shape)
        if getattr(matrix, "format", None) != "csr":  # of which the reader says more
            check_matrix(matrix, name)
        matrix = matrix.tocsr()
    elif getattr(matrix, "format", "csr") != "csr":
        raise InputError(f"{name} is a sparse matrix stored as {matrix.format}; expected CSR")
    indptr, indices, data = (
        MemoryReader(np.asarray(getattr(matrix, part)), f"{name}.{part}", may_be_empty=True)
        for part in ("indptr", "indices", "data")
    )
    return SparseRowReader(name, matrix.shape, indptr, indices, data)


def check_matrix(matrix: Any, name: str) -> None:
    """Raise InputError for a matrix of SciPy whose places lie outside it; SciPy would follow them."""
    try:
        if hasattr(matrix, "check_format"):  # CSR, CSC and BSR
            matrix.check_format(full_check=True)
            if (matrix.indptr[1:] < matrix.indptr[:-1]).any():  # unchecked if the last one is 0
                raise ValueError("indptr must be a non-decreasing sequence")
        elif getattr(matrix, "format", None) == "coo":
            for places, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
                if len(places) != len(matrix.data):
                    raise ValueError(f"{len(places)} places of {len(matrix.data)} entries")
                if len(places) and not 0 <= places.min() <= places.max() < size:
                    raise ValueError(f"places from {places.min()} to {places.max()} of {size}")
    except ValueError as error:
        raise InputError(f"{name}: the sparse matrix is damaged: {error}") from error


def is_matrix(source: object) -> bool:
    """Whether an object has the attributes of a sparse matrix."""
    parts = ("indptr", "indices", "data")
    return hasattr(source, "shape") and (
        hasattr(source, "tocsr") or all(hasattr(source, part) for part in parts)
    )


def _checked_shape(name: str, shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(
            f"{name} has {len(shape)} dimensions, shape {tuple(shape)}; a sparse matrix has two"
        )
    n_rows, n_columns = int(shape[0]), int(shape[1])
    if n_rows < 1 or n_columns < 1:
        raise InputError(
            f"{name} is empty, shape {n_rows, n_columns}; expected at least one row and one column"
        )
    return n_rows, n_columns


def _order(rows: SparseRows) -> np.ndarray:
    """The order of the entries by row and column."""
    numbers = rows.entry_rows()
    if len(rows) * rows.n_columns < 1 << 63:
        # sorting by one key is several times faster than by two
        numbers *= rows.n_columns
        numbers += rows.indices
        return np.argsort(numbers)
    return np.lexsort((rows.indices, numbers))
