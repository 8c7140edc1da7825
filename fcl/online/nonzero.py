"""Truncated gradient over a hash table of the weights that are not 0."""

from __future__ import annotations

import math

import numpy as np

from fcl import kernels
from fcl.online.base import LearntRows, Point
from fcl.online.truncated import TruncatedGradient
from fcl.options import OnlineOptions
from fcl.types import Floats, Ids

#: Entries of a new table, the share of them that may be in use, and the share when a table is made.
FIRST, FULLEST, ROOMY = 1 << 12, 0.7, 0.45


class NonzeroTruncatedGradient(TruncatedGradient):
    """Truncated gradient that keeps the features whose weights are not 0 (section 4 of the paper).

    The weights have the bits of the dense table; rows take more time. A feature enters when a row moves
    its weight away from 0; where the table is full, features whose weights are truncated to 0 leave.

    keys : int64 (capacity,), feature of each entry, -1 for free ones.
    table : (capacity, 2), as the dense one, by entries.
    """

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        assert options.most_nonzero is not None
        self._most = min(options.most_nonzero, n_features)
        self._make(np.empty(0, np.int64), self.table[:0], 0)

    def new_table(self) -> np.ndarray:
        return np.zeros((0, self.columns), self.options.weights)

    @classmethod
    def bytes_of_entry(cls, options: OnlineOptions) -> float:
        """Bytes of the table for each weight that is not 0, and of its copy when a new table is made."""
        entry = 8 + cls.columns * np.dtype(options.weights).itemsize
        return entry / ROOMY + entry

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        assert options.most_nonzero is not None
        return math.ceil(min(n_features, options.most_nonzero) * cls.bytes_of_entry(options))

    @classmethod
    def settled_bytes_for(cls, n_features: int) -> int:
        return math.ceil(n_features * (8 / ROOMY + 24))

    def arrays(self) -> list[np.ndarray]:
        return [self.keys, self.table]

    def _make(self, ids: Ids, rows: np.ndarray, more: int) -> None:
        """Make a new table of some entries, with room for further ones."""
        largest = max(FIRST, math.ceil(self._most / ROOMY))
        capacity = min(max(FIRST, math.ceil((len(ids) + more) / ROOMY)), largest)
        self.table = np.zeros((0, self.columns), rows.dtype)  # its memory is free for the new one
        self.keys = np.full(capacity, kernels.nonzero.FREE, np.int64)
        self.table = np.zeros((capacity, self.columns), rows.dtype)
        kernels.nonzero.fill(self.keys, self.table, ids, np.ascontiguousarray(rows))
        self._used = len(ids)

    def _free(self) -> int:
        """Entries that may be added, up to the number of weights that the plan counts."""
        return min(int(FULLEST * len(self.keys)), self._most) - self._used

    def _kept(self) -> tuple[Ids, np.ndarray]:
        """Features whose weights are not 0, and their rows of the table, as they are."""
        entries = np.flatnonzero(self._settled_entries())
        return self.keys[entries], self.table[entries]

    def _settled_entries(self) -> Floats:
        """The weight of each entry."""
        out = np.empty(len(self.keys))
        kernels.nonzero.settle_nonzero(
            self.rule, self.factors, self.keys, self.table, self.state, out
        )
        return out

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        places = self._room(rows).view(np.int64)
        own = (self.factors, places, self._free(), self.keys, self.table, self.state)
        done, why, added = kernels.nonzero.learn_nonzero(*rows, self.rule, *own)
        self._used += int(added)
        if why == kernels.nonzero.FULL:
            ids, table = self._kept()
            row = rows.ids[rows.indptr[done] : rows.indptr[done + 1]]
            self._make(ids, table, max(len(row), len(ids) // 2))
            if self._free() < kernels.nonzero.missing(self.keys, row):
                self.is_full, why = True, kernels.online.DIVERGED  # the rows before are learnt
        return done, why

    def _settle_in_place(self) -> Floats:
        weights = self._settled_entries()
        kept = weights != 0.0
        sizes = np.abs(weights[kept])
        rows = np.zeros((len(sizes), self.columns), self.table.dtype)
        rows[:, 0] = weights[kept]
        self._make(self.keys[kept], rows, 0)
        return sizes

    def point(self) -> Point:
        weights = self._settled_entries()
        entries = np.flatnonzero(weights)
        entries = entries[np.argsort(self.keys[entries])]
        return self.keys[entries], weights[entries], self.intercept

    def _put(self, ids: Ids, weights: Floats) -> None:
        rows = np.zeros((len(ids), self.columns), self.table.dtype)
        rows[:, 0] = weights
        some = weights != 0.0
        self._make(np.asarray(ids, np.int64)[some], rows[some], 0)

    # -- saving --------------------------------------------------------------------------------

    def _held(self) -> tuple[Ids, np.ndarray]:
        """As of other learners, without features whose weights are 0; a dense table restores it."""
        ids, rows = self._kept()
        order = np.argsort(ids)
        return ids[order], rows[order]

    def _fill(self, ids: Ids, table: np.ndarray) -> None:
        some = table[:, 0] != 0.0
        self._make(np.asarray(ids, np.int64)[some], table[some], 0)
