"""Sums over rows by value, in bounded memory.

A curve over n rows needs the n margins in order. :class:`CellSums` keeps the sums of the rows of each
distinct margin instead, and once there are too many distinct ones, drops as many of the last bits of all
margins as necessary: equal margins share a cell, and then close ones, too. The curves treat the rows of a
cell as equal, and :func:`ranking_errors` bounds what that changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.types import Floats, Ints

#: Cells of a table at most, if there are few groups.
MOST_CELLS = 1 << 18
#: Cells for each group at most, if there are many groups.
CELLS_OF_GROUP = 256
#: What is summed over the rows of a cell, each but the number of rows times the sample weight.
COLUMNS = ("rows", "weight", "squared_weight", "target", "squared_target", "prediction")


def row_sums(weights: Floats, targets: Floats, predictions: Floats) -> Floats:
    """The summands of each row, in the order of ``COLUMNS``: float64 (n, 6)."""
    weighted = weights * targets
    columns = (weights, weights**2, weighted, weighted * targets, weights * predictions)
    return np.stack([np.ones(len(weights)), *columns], axis=1)


@dataclass(frozen=True, eq=False)
class Cells:
    """Sums over the rows of each cell, by increasing group and value."""

    groups: Ints  #: (k,), number of the group of the rows
    values: Floats  #: (k,), the smallest value that the cell can hold
    sums: Floats  #: (k, 6), as ``COLUMNS`` says
    exact: bool  #: whether all rows of a cell have the same value

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str) -> Floats:
        """A column of the sums by its name in ``COLUMNS``, float64 (k,)."""
        return self.sums[:, COLUMNS.index(name)]

    def of_group(self, group: int) -> Cells:
        """The cells of one group."""
        own = slice(*np.searchsorted(self.groups, [group, group + 1]))
        return Cells(self.groups[own], self.values[own], self.sums[own], self.exact)

    def labelled(self) -> tuple[Floats, Floats, Floats]:
        """Labels -1 and +1, values and weights of two rows for each cell, each float64 (2 k,).

        They have the same weighted ranking as the rows of the cells, whose targets are 0 and 1.
        """
        positive = self.column("target")
        weights = np.append(self.column("weight") - positive, positive)
        kept = weights > 0.0
        y = np.repeat([-1.0, 1.0], len(self))
        return y[kept], np.tile(self.values, 2)[kept], weights[kept]


class CellSums:
    """Sums over the rows of a stream, by group and value.

    most : cells at most, at least 4 for each group; by default ``MOST_CELLS``, or more for many groups.
    """

    def __init__(self, n_groups: int = 1, most: int | None = None) -> None:
        self._most = max(MOST_CELLS, CELLS_OF_GROUP * n_groups) if most is None else most
        self._shift = 0  # bits of the keys that are dropped
        self._table = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(COLUMNS))))
        self._waiting: list[tuple[Ints, Ints, Floats]] = []

    def add(self, groups: Ints, values: Floats, sums: Floats) -> None:
        """Add a block of rows; groups and values are (n,), and sums (n, 6) from :func:`row_sums`."""
        self._waiting.append((groups, _keys(values) >> self._shift, sums))
        if sum(len(part[1]) for part in self._waiting) >= self._most:
            self._merge()

    def cells(self) -> Cells:
        """The cells of all rows that were added."""
        self._merge()
        groups, keys, sums = self._table
        lowest = _keys(np.array([-np.finfo(np.float64).max]))
        return Cells(
            groups, _values(np.maximum(keys << self._shift, lowest)), sums, not self._shift
        )

    def _merge(self) -> None:
        """Add the rows that wait to the table, which loses digits of its values if it is too long."""
        groups, keys, sums = map(np.concatenate, zip(self._table, *self._waiting, strict=True))
        self._waiting.clear()
        order = np.lexsort((keys, groups))
        groups, keys = groups[order], keys[order]
        first = _first_of_cells(groups, keys)
        if np.count_nonzero(first) > self._most:
            while np.count_nonzero(first) > self._most // 2:
                keys >>= 1
                self._shift += 1
                first = _first_of_cells(groups, keys)
        starts = np.flatnonzero(first)
        if len(starts):
            sums = np.add.reduceat(sums[order], starts, axis=0)
        self._table = (groups[starts], keys[starts], sums)


def _first_of_cells(groups: Ints, keys: Ints) -> npt.NDArray[np.bool_]:
    """Which rows, sorted by group and key, are the first of their cell: bool (n,)."""
    first = np.ones(len(keys), np.bool_)
    first[1:] = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
    return first


def _keys(values: Floats) -> Ints:
    """Integers in the order of the values: int64 (n,)."""
    bits = (values + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    return bits ^ ((bits >> 63) & np.int64(np.iinfo(np.int64).max))


def _values(keys: Ints) -> Floats:
    """The values of integers from :func:`_keys`."""
    bits = keys ^ ((keys >> 63) & np.int64(np.iinfo(np.int64).max))
    return bits.view(np.float64)


@dataclass(frozen=True)
class RankingErrors:
    """The largest possible differences between areas over cells and over their rows."""

    auprc: float
    auroc: float


def ranking_errors(cells: Cells) -> RankingErrors:
    """Bound the errors of areas under curves that treat the rows of a cell as equal.

    The ROC curve of the rows lies in the triangle above, or below, the chord of each cell. The
    precision at a positive row of a cell is at least that with all negative rows of the cell before it,
    and at most that with all positive rows and no negative row. Cells are of one group, with targets 0
    and 1 and rows of both.
    """
    if cells.exact:
        return RankingErrors(0.0, 0.0)
    positive = cells.column("target")[::-1]
    negative = cells.column("weight")[::-1] - positive
    hits, misses = np.cumsum(positive), np.cumsum(negative)
    share = positive / hits[-1]
    auroc = 0.5 * float(share @ negative) / float(misses[-1])
    before = hits - positive + misses - negative
    with np.errstate(invalid="ignore"):  # 0 / 0 in leading cells, whose rows all have one label
        precision = np.nan_to_num(hits / (hits + misses))
        most = np.nan_to_num(hits / (before + positive))
        least = np.nan_to_num((hits - positive) / (before + negative), nan=1.0)
    above, below = share @ (most - precision), share @ (precision - least)
    return RankingErrors(float(max(above, below)), auroc)
