"""Which columns to evict and which to admit when room is short; functions of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fcl.types import Floats, Ints

#: Share of the cache that columns with a weight may leave between two anchors. If all left, the new
#: columns would undo the optimum of the old ones, and the next pass the other way round.
ROTATED_SHARE = 0.25
#: This many may always leave: a small cache has few columns, and an extent may contain only one.
LEAST_ROTATED = 2


class Rotation:
    """Limits the columns with a weight that leave the cache between two anchors.

    capacity : bytes of the cache.
    max_columns : most columns of the cache.
    """

    def __init__(self, capacity: int, max_columns: int) -> None:
        self._bytes = int(ROTATED_SHARE * capacity)
        self._columns = int(ROTATED_SHARE * max_columns)
        self.restart()

    def restart(self) -> None:
        """Count from 0, because there is a new anchor."""
        self._left_bytes = self._left_columns = 0

    def allows(self, size: int) -> bool:
        """Whether one more column of this size may leave."""
        if self._left_columns < LEAST_ROTATED:
            return True
        return self._left_bytes + size <= self._bytes and self._left_columns < self._columns

    def count(self, size: int) -> None:
        self._left_bytes += size
        self._left_columns += 1


def evict_order(
    weights: Floats, slopes: Floats, violations: Floats, seen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Numbers of the columns that may be evicted, the most dispensable first.

    Columns of weight 0 come first, by increasing |slope|. Columns with a weight follow, by increasing
    violation; eviction freezes their weight. Of equal violations the column that was cached longest comes
    first, so that every group of features eventually meets every other. Columns that are not ``seen`` by
    a local solve and a pass are not evicted.

    All arrays have one entry per live column, in the order of admission; ``slopes`` are defined in
    :mod:`fcl.objective.penalty`, over all rows.
    """
    order = np.lexsort(
        (
            np.arange(len(weights)),
            np.where(weights == 0.0, np.abs(slopes), violations),
            weights != 0.0,
        )
    )
    return order[seen[order]]


def fit_in_room(
    violations: Floats, curvatures: Floats, sizes: Ints, room: int
) -> npt.NDArray[np.bool_]:
    """Which candidates to admit into ``room`` bytes: the largest violator, then the best per byte.

    A column alone promises a decrease of violation^2 / (2 curvature).
    """
    chosen = np.zeros(len(violations), bool)
    if not len(violations):
        return chosen
    first = int(np.argmax(violations))
    chosen[first] = True
    left = room - int(sizes[first])
    worth = violations**2 / (np.maximum(curvatures, 1e-300) * np.maximum(sizes, 8))
    for j in np.argsort(-worth, kind="stable"):
        if j != first and sizes[j] <= left:
            chosen[j] = True
            left -= int(sizes[j])
    return chosen
