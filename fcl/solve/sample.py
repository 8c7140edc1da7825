"""Drawing the rows of a sampled view.

Row i is drawn with probability pi_i = min(1, N (0.8 q_i / sum q + 0.2 s_i / sum s)): by its curvature at
the anchor, with a floor by weight, since flat rows may become curved. N is chosen such that the expected
number of rows is the requested one, less the variation of their number, although some rows are drawn for
certain. All rows of a rare class are drawn, and all rows if that many are requested. The draw of row i is
a hash of the seed and i.
"""

from __future__ import annotations

import math

import numpy as np

from fcl.kernels import descent
from fcl.objective import Objective
from fcl.solve.state import Floats, Ids

#: Share of the expected sample that is drawn by curvature; the rest is drawn by weight.
BY_CURVATURE = 0.8
#: A class of at most this share of the sample is drawn as a whole.
RARE = 0.25
#: Maximum passes over the rows that search for N; each comes nearer, without exceeding it.
MOST_RESCALED = 8


def draw_rows(
    objective: Objective, curvatures: Floats, size: int, seed: int, rows: Ids, weights: Floats
) -> int:
    """Draw about ``size`` rows; writes their numbers and weights s_i / pi_i, returns their count.

    curvatures : float64 (n,), at the anchor.  rows, weights : buffers of the sample; rows that do not fit
    are dropped from its end.
    """
    rare = _rare_class(objective, size)
    # the other rows share the room that the rare class leaves, less the variation of their number
    n_rare, total_q, total_s = 0, 0.0, 0.0
    for block in objective.blocks():
        others = objective.y[block] * rare <= 0
        n_rare += len(others) - int(others.sum())
        total_q += float(curvatures[block] @ others)
        total_s += float(objective.s[block] @ others)
    room = min(size, len(rows)) - n_rare
    most = max(0.0, room - 4.0 * math.sqrt(max(room, 0)))
    by_q = BY_CURVATURE / total_q if total_q > 0.0 else 0.0
    by_s = (1.0 - BY_CURVATURE if by_q else 1.0) / total_s if total_s > 0.0 else 0.0

    def inclusion_of(block: slice) -> Floats:
        return np.minimum(1.0, scale * (by_q * curvatures[block] + by_s * objective.s[block]))

    scale = most
    for _ in range(MOST_RESCALED if size < objective.n_rows else 0):
        expected = 0.0
        for block in objective.blocks():
            expected += float(inclusion_of(block) @ (objective.y[block] * rare <= 0))
        if expected >= 0.95 * most or expected <= 0.0:
            break
        scale *= most / expected
    n = 0
    for block in objective.blocks():
        s, y = objective.s[block], objective.y[block]
        inclusion = inclusion_of(block)
        if size >= objective.n_rows:  # otherwise rows of very small probability would be missing
            inclusion[:] = 1.0
        if rare:
            inclusion[y * rare > 0] = 1.0
        chosen = np.empty(len(y), np.bool_)
        descent.choose_by(inclusion, (seed << 32) ^ block.start, chosen)
        found = np.flatnonzero(chosen)[: len(rows) - n]
        rows[n : n + len(found)] = found + block.start
        weights[n : n + len(found)] = s[found] / inclusion[found]
        n += len(found)
    return n


def _rare_class(objective: Objective, size: int) -> int:
    """The label (-1, +1) of a class small enough to be drawn as a whole; 0 if there is none."""
    if not objective.loss.classifies:
        return 0
    positive = sum(int((objective.y[b] > 0).sum()) for b in objective.blocks())
    for label, count in ((1, positive), (-1, objective.n_rows - positive)):
        if count <= RARE * size:
            return label
    return 0
