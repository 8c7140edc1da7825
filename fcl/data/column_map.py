"""Rows whose columns are put where a model reads them, and turned to the alleles that it counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcl.data.base import RowReader
from fcl.data.memory import MemoryReader
from fcl.data.sparse import SparseRowReader, SparseRows, from_matrix
from fcl.errors import InputError


@dataclass(frozen=True)
class ColumnMap:
    """Which column of an input is which column of the model's rows.

    width : columns of the model's rows.
    source, target : int64 (k,), or None, column ``source[i]`` of the input is column ``target[i]`` of the
        rows. None: column j of the input is column j + ``shift``. Other columns of the rows are 0.
    shift : at least 0.
    n_given : columns of the input.
    turned : int64 (t,), columns of the rows that count the other allele in the input.
    scale : the value of two copies of an allele.
    filled : int64 (f,), columns of the rows in which the input replaced missing genotypes with its own
        mean.
    old, new : float32 (f,), this mean, as the input has it, and the mean of the training data.
    ignored : columns of the input that are not read.
    note : in a line, what is done; empty if there is nothing to say.
    says_more : whether the line is to be said although nothing changes.
    """

    width: int
    source: np.ndarray | None = None
    target: np.ndarray | None = None
    shift: int = 0
    n_given: int = 0
    turned: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    scale: float = 2.0
    filled: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    old: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    new: np.ndarray = field(default_factory=lambda: np.empty(0, np.float32))
    ignored: int = 0
    note: str = ""
    says_more: bool = False

    @property
    def keeps_places(self) -> bool:
        """Whether each column of the rows is the column of the input at the same position."""
        if self.n_given != self.width:
            return False
        if self.source is None or self.target is None:
            return self.shift == 0
        return len(self.source) == self.width and bool((self.source == self.target).all())

    @property
    def changes_nothing(self) -> bool:
        """Whether the rows of the input fit the model without a change."""
        return self.keeps_places and not len(self.turned) and not len(self.filled)

    def dense(self, x: np.ndarray) -> np.ndarray:
        """The rows (m, width) of the model from rows of the input."""
        if self.keeps_places:
            found = x.copy()
        else:
            found = np.zeros((len(x), self.width), x.dtype)
            if self.source is None:
                n = min(self.n_given, self.width - self.shift)
                found[:, self.shift : self.shift + n] = x[:, :n]
            else:
                found[:, self.target] = x[:, self.source]
        if len(self.filled) and found.dtype.kind == "f":  # integers have no means
            values = found[:, self.filled]
            found[:, self.filled] = np.where(values == self.old, self.new, values)
        if len(self.turned):
            found[:, self.turned] = found.dtype.type(self.scale) - found[:, self.turned]
        return found

    def sparse(self, x: SparseRows) -> SparseRows:
        """Sparse rows of the model from sparse rows of the input; in the order of the input."""
        # no table of all columns of the input, of which there may be 2^31
        if self.source is None or self.target is None:
            moved = x.indices.astype(np.int64) + self.shift
            return _recoded(x, np.where(moved < self.width, moved, -1), self.width)
        source, order = np.append(self.source, -1), np.argsort(self.source)
        found = np.append(order, -1)[np.searchsorted(self.source, x.indices, sorter=order)]
        is_read = source[found] == x.indices
        return _recoded(x, np.where(is_read, np.append(self.target, -1)[found], -1), self.width)


def cut(x: SparseRows, width: int) -> SparseRows:
    """Sparse rows without the entries from column ``width`` on."""
    return _recoded(x, np.where(x.indices < width, x.indices, -1), width)


def _recoded(x: SparseRows, indices: np.ndarray, width: int) -> SparseRows:
    keep = indices >= 0
    ends = np.concatenate([[0], np.cumsum(keep)])
    return SparseRows(ends[x.indptr], indices[keep].astype(np.int32), x.data[keep], width)


def refuse_mapped(rows: RowReader[Any], name: str) -> None:
    """Raise InputError for rows that are turned as they are read, which other machines cannot do."""
    if isinstance(rows, MappedRows | MappedSparseRows):
        raise InputError(
            f"{name}: expected the columns of the training data in their order, with the same alleles "
            "and ids, as workers of a cluster do not turn them; convert the files with --like TRAIN.zarr"
        )


def mapped_rows(rows: RowReader[Any], columns: ColumnMap) -> RowReader[Any]:
    """The rows of a reader as a model reads them; raises InputError for what cannot be turned."""
    if isinstance(rows, SparseRowReader):
        if len(columns.turned) or len(columns.filled):
            raise InputError(
                f"{rows.name}: expected X as an array, whose alleles can be turned to those of the "
                "training data, got a sparse matrix; convert the files with --like TRAIN.zarr"
            )
        return MappedSparseRows(rows, columns)
    if isinstance(rows, MemoryReader):
        return MemoryReader(columns.dense(rows.read(0, rows.shape[0])), rows.name)
    return MappedRows(rows, columns)


class MappedRows(RowReader[np.ndarray]):
    """Rows of an array, mapped as they are read."""

    def __init__(self, rows: RowReader[np.ndarray], columns: ColumnMap) -> None:
        self._rows, self._columns = rows, columns
        self.name, self.dtype, self.chunk_rows = rows.name, rows.dtype, rows.chunk_rows
        self.shape = (rows.shape[0], columns.width)

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._columns.dense(self._rows.read(start, stop))

    @property
    def most_ahead(self) -> int:
        """See :class:`RowReader`."""
        return self._rows.most_ahead

    @most_ahead.setter
    def most_ahead(self, size: int) -> None:
        self._rows.most_ahead = size

    @property
    def chunk_bytes(self) -> int:
        # a chunk of the storage, and its columns where the model reads them
        own = self.chunk_rows * self.shape[1] * self.dtype.itemsize
        return self._rows.chunk_bytes + own

    @property
    def ahead_bytes(self) -> int:
        return self._rows.ahead_bytes

    def ahead(self, ranges: Iterable[tuple[int, int]]) -> AbstractContextManager[None]:
        return self._rows.ahead(ranges)

    def missing_chunks(self) -> int:
        return self._rows.missing_chunks()


class MappedSparseRows(SparseRowReader):
    """Rows of a sparse matrix, mapped as they are read; they have at most as many entries."""

    def __init__(self, rows: SparseRowReader, columns: ColumnMap) -> None:
        # the state of the reader itself, whose arrays are not validated again
        vars(self).update(vars(rows))
        self._rows, self._columns = rows, columns
        self.shape = (rows.shape[0], columns.width)

    @property
    def in_place(self) -> bool:
        return False

    def read(self, start: int, stop: int) -> SparseRows:
        block = self._columns.sparse(self._rows.read(start, stop))
        # another reader sorts the entries of each row
        return from_matrix(block, self.name).read(0, len(block)) if len(block) else block


def columns_of(pairs: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Source and target of a map from pairs (source, target), in the order of the targets."""
    found = np.array(sorted(pairs, key=lambda pair: pair[1]), np.int64).reshape(-1, 2)
    return found[:, 0].copy(), found[:, 1].copy()
