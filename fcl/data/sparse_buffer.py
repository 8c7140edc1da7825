"""Blocks of sparse rows, collected from parts."""

from __future__ import annotations

import numpy as np

from fcl.data.sparse import SparseRows


class SparseBuffer:
    """Collects the rows of a block part by part.

    n_rows, room : numbers of rows and of entries for which there is room.
    like : a part; the block gets the dtype of its indices, and its columns.
    dtype : of the entries.
    in_place : whether parts are views of arrays in memory: those that follow each other there are not
        copied.
    """

    def __init__(
        self, n_rows: int, room: int, like: SparseRows, dtype: np.dtype, in_place: bool
    ) -> None:
        self._indptr = np.zeros(n_rows + 1, np.int64)
        self._indices = np.empty(0, like.indices.dtype)
        self._data = np.empty(0, dtype)
        self._n_columns = like.n_columns
        self._n, self._room = 0, room
        self._copied = False  # whether the arrays are our own, with room for all entries
        if not in_place:
            self._allocate()

    def append(self, part: SparseRows) -> None:
        """Add the rows of a part behind the others."""
        first = int(self._indptr[self._n])
        end = self._n + len(part)
        self._indptr[self._n + 1 : end + 1] = part.indptr[1:] + first
        self._n = end
        if not self._copied:
            indices = _adjoin(self._indices, part.indices)
            data = _adjoin(self._data, part.data)
            if indices is not None and data is not None:
                self._indices, self._data = indices, data
                return
            before = self._indices, self._data
            self._allocate()
            self._indices[:first], self._data[:first] = before
        entries = slice(first, first + part.nnz)
        self._indices[entries], self._data[entries] = part.indices, part.data

    def _allocate(self) -> None:
        self._copied = True
        self._indices = np.empty(self._room, self._indices.dtype)
        self._data = np.empty(self._room, self._data.dtype)

    def rows(self) -> SparseRows:
        """The rows so far, which share the memory of the buffer, or of the matrix."""
        indptr = self._indptr[: self._n + 1]
        entries = slice(0, int(indptr[-1]))
        return SparseRows(indptr, self._indices[entries], self._data[entries], self._n_columns)


def _adjoin(before: np.ndarray, after: np.ndarray) -> np.ndarray | None:
    """One read-only view of two contiguous parts of an array, if the second follows the first, else None.

    Either may be empty.
    """
    if not len(before) or not len(after):
        found = after if len(after) else before
        return found if found.dtype == before.dtype and found.flags.c_contiguous else None
    whole = before.base
    if not isinstance(whole, np.ndarray) or after.base is not whole or whole.dtype != before.dtype:
        return None
    if whole.ndim != 1 or not whole.flags.c_contiguous or after.dtype != before.dtype:
        return None
    if before.ctypes.data + before.nbytes != after.ctypes.data:
        return None
    first = (before.ctypes.data - whole.ctypes.data) // before.itemsize
    found = whole[first : first + len(before) + len(after)]
    found.flags.writeable = False
    return found if found.ctypes.data == before.ctypes.data else None
