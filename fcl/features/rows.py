"""Rows as lists of their nonzero features, for learners that read one row after another.

A :class:`RowLister` lists the features of raw rows in chunks, which are small enough to stay in the cache
of the core.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.data.sparse import SparseRows

if TYPE_CHECKING:
    from fcl.types import Ids

#: Most features in a chunk: ids and values then take 512 KiB, and stay in the second-level cache.
CHUNK_IDS = 1 << 16
#: Rows in the first batch of a :class:`BatchedView`, and in the largest.
FIRST_BATCH, MOST_BATCH = 16, 4096


@dataclass(frozen=True)
class RowChunk:
    """Some rows as a CSR matrix of their nonzero features.

    indptr : int64 (n + 1,), from 0 to the number of entries.
    ids : int32 or int64 (entries,), features, distinct within a row, in any order.
    values : float32 or float64 (entries,), values of the features.
    """

    indptr: npt.NDArray[np.int64]
    ids: npt.NDArray[Any]
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.indptr) - 1


def id_type(n_features: int) -> type[np.int32] | type[np.int64]:
    """The dtype of the ids of a family in chunks."""
    return np.int32 if n_features <= 1 << 31 else np.int64


class RowLister(ABC):
    """Lists the nonzero features of raw rows; returned by :meth:`fcl.features.base.Family.row_view`."""

    @abstractmethod
    def chunks(self, raw: Any, order: Ids | None = None) -> Iterator[RowChunk]:
        """Yield the rows of a block in chunks of at most ``CHUNK_IDS`` features.

        A row with more features is a chunk of its own. Chunks of writeable arrays; each is valid until
        the next is requested.

        raw : array or SparseRows, raw rows, as :meth:`fcl.features.base.Family.read_rows` yields them.
        order : int64 (m,), optional, the rows to list, in this order; None: all rows in order.
        """

    def most_listed(self, n_rows: int) -> int | None:
        """The most features that so many rows can have together; None if that is not known."""
        return None

    @abstractmethod
    def listed(self, raw: Any, rows: Ids) -> RowChunk:
        """The features of some rows, however many, in new arrays; ``rows`` as in :meth:`chunks`."""


class BufferedView(RowLister):
    """A view that knows how many features a row may have before it lists them."""

    def __init__(self, n_features: int) -> None:
        self._id_type = id_type(n_features)
        self._ids = np.empty(0, self._id_type)
        self._values: npt.NDArray[Any] = np.empty(0, np.float32)

    @abstractmethod
    def room(self, raw: Any) -> Ids:
        """Upper bounds on the numbers of features of raw rows: int64 (len(raw),)."""

    @abstractmethod
    def write(self, raw: Any, rows: Ids, out: RowChunk) -> None:
        """Write the features of some rows to ``out``, whose arrays are large enough."""

    def value_type(self, raw: Any) -> Any:
        """The dtype of the values: float32 or float64."""
        return np.float32

    def chunks(self, raw: Any, order: Ids | None = None) -> Iterator[RowChunk]:
        order = np.arange(len(raw)) if order is None else np.asarray(order, np.int64)
        ends = np.cumsum(self.room(raw)[order])
        at, before = 0, 0
        while at < len(order):
            stop = max(at + 1, int(np.searchsorted(ends, before + CHUNK_IDS, side="right")))
            out = self._buffers(stop - at, int(ends[stop - 1]) - before, self.value_type(raw))
            self.write(raw, order[at:stop], out)
            used = int(out.indptr[-1])
            yield RowChunk(out.indptr, out.ids[:used], out.values[:used])
            at, before = stop, int(ends[stop - 1])

    def listed(self, raw: Any, rows: Ids) -> RowChunk:
        room = int(self.room(raw)[rows].sum())
        out = RowChunk(
            np.empty(len(rows) + 1, np.int64),
            np.empty(room, self._id_type),
            np.empty(room, self.value_type(raw)),
        )
        self.write(raw, rows, out)
        used = int(out.indptr[-1])
        return RowChunk(out.indptr, out.ids[:used], out.values[:used])

    def _buffers(self, n: int, room: int, dtype: Any) -> RowChunk:
        if len(self._ids) < room:
            self._ids = np.empty(max(room, CHUNK_IDS), self._id_type)
        if len(self._values) < room or self._values.dtype != dtype:
            self._values = np.empty(max(room, CHUNK_IDS), dtype)
        return RowChunk(np.empty(n + 1, np.int64), self._ids, self._values)


class BatchedView(RowLister):
    """A view that does not know how many features a row has: it lists batches of rows, then cuts them."""

    def chunks(self, raw: Any, order: Ids | None = None) -> Iterator[RowChunk]:
        order = np.arange(len(raw)) if order is None else np.asarray(order, np.int64)
        at, batch = 0, FIRST_BATCH
        while at < len(order):
            found = self.listed(raw, order[at : at + batch])
            yield from cut(found)
            at += batch
            batch = max(1, min(MOST_BATCH, CHUNK_IDS * len(found) // max(1, len(found.ids))))


def cut(chunk: RowChunk) -> Iterator[RowChunk]:
    """Cut rows into chunks of at most CHUNK_IDS features; a longer row is a chunk of its own."""
    indptr, at = chunk.indptr, 0
    while at < len(chunk):
        most = int(indptr[at]) + CHUNK_IDS
        stop = max(at + 1, int(np.searchsorted(indptr, most, side="right")) - 1)
        entries = slice(int(indptr[at]), int(indptr[stop]))
        part = indptr[at : stop + 1] - entries.start
        yield RowChunk(part, chunk.ids[entries], chunk.values[entries])
        at = stop


class MatrixView(BufferedView):
    """Lists the entries of dense or sparse numbers: feature j is column j."""

    def room(self, raw: Any) -> Ids:
        if isinstance(raw, SparseRows):
            return np.diff(raw.indptr).astype(np.int64)
        return np.full(len(raw), raw.shape[1], np.int64)

    def value_type(self, raw: Any) -> Any:
        return np.float32 if raw.dtype == np.float32 else np.float64

    def write(self, raw: Any, rows: Ids, out: RowChunk) -> None:
        if isinstance(raw, SparseRows):
            starts, columns, data = map(_read_only, (raw.indptr, raw.indices, raw.data))
            kernels.listing.list_sparse(
                starts, columns, data, rows, out.indptr, out.ids, out.values
            )
        else:
            matrix = _read_only(np.ascontiguousarray(raw))
            kernels.listing.list_dense(matrix, rows, out.indptr, out.ids, out.values)


def _read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view, so that a kernel is compiled for one kind of array."""
    view = array.view()
    view.flags.writeable = False
    return view
