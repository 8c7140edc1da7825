"""What to evict and what to admit when room is short: functions of arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def evict_order(
    weights: Floats, slopes: Floats, violations: Floats, seen: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Numbers of the columns that may go, the most dispensable first.

    First dead columns (weight 0), the smallest slope first; then columns with a weight, which is
    frozen when they go: the smallest violation first, and among settled ones the longest cached, so
    that in turn every group of features meets every other. Columns not ``seen`` by a local solve and a
    pass stay.

    All arrays have an entry a live column, in the order of admission; ``slopes`` are those of the
    objective in units of the L1 weight, corrected to all rows.
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
    """Which candidates to admit into ``room`` bytes: the largest violator, then the best by the byte.

    The decrease that a column alone promises is violation^2 / (2 curvature).
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
