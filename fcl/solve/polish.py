"""A dual point that rounding of the margins does not spoil.

The residuals of the anchor come from its margins, in float64. Where rows are nearly interpolated, or
values are very large, the residuals that the optimum needs are smaller than what rounding leaves of
margins, and no weights in float64 could give them: the bound stands still far from an objective that is
right to the last digit. But any vector in the domain of the dual proves a bound. This module looks for
one near the residuals that meets the optimality conditions of the weights that are not 0, in twice the
precision.
"""

from __future__ import annotations

import math

import numpy as np

from fcl.solve.passes import Passes
from fcl.solve.state import Floats, Point

__all__ = ["polished_bound"]

#: The most weights, and entries of their columns, that this is done for: some milliseconds.
MOST_WEIGHTS = 512
MOST_ENTRIES = 1 << 16
#: Corrections of a vector: each leaves what rounding leaves of the one before.
CORRECTIONS = 4
#: A column whose part beyond the others is this share of the largest depends on them.
DEPENDENT = 1e-13
#: Share of an end of the domain up to which a residual is at that end.
EDGE = 1e-9
#: Relative error of a margin, as a share of the sum of its terms' sizes: rounding, and what the trainer
#: cannot see for it.
ROUNDED = 256 * np.finfo(float).eps


def polished_bound(passes: Passes, point: Point, threshold: float) -> float:
    """A dual bound from residuals that are corrected; -inf if there are too many weights.

    The vector of residuals holds those of the anchor ``point``, and holds them again in the end.
    threshold : |g_j| / f_j below which prices need not be exact.
    """
    objective, k = passes.objective, len(point.ids)
    n = objective.n_rows
    if not 0 < k <= MOST_WEIGHTS or n * (k + 1) > MOST_ENTRIES or passes.sampled:
        return -math.inf
    penalty, factors = objective.penalty, passes.conditions.factors(point.ids)
    columns = np.ones((k + objective.intercept, n))
    target = np.zeros(len(columns))
    for t in range(k):
        passes.family.write_margins(
            passes.prepared, point.ids[t : t + 1], np.ones(1), columns[t], None
        )
    signs, ridge = np.sign(point.weights), penalty.ridge(factors) * point.weights
    target[:k] = -(penalty.absolute(factors) * signs + ridge) / objective.C
    norms = np.maximum(np.sqrt(np.einsum("ij,ij->i", columns, columns)), 1e-300)
    columns /= norms[:, None]
    target /= norms
    residuals = passes.vectors.residuals
    own = residuals.copy()
    low, high = (end * objective.s for end in objective.loss.domain(objective.y))
    # at an end of the domain a residual stays: on the far pieces of the Huber loss, for one
    ends = (own <= _within(low)) | (own >= _within(high))
    hidden = _hidden(passes, point, columns[:k] * norms[:k, None])
    sizes = np.maximum(np.where(ends, 0.0, np.abs(own)), hidden)
    best = -math.inf
    try:
        # the second start leaves out whatever the conditions do not ask for: noise, where rows are
        # interpolated
        for start in (own, np.where(ends, own, 0.0)):
            residuals[:] = _corrected(start, sizes, columns, target, low, high)
            dual = passes.dual_point()
            prices = passes.price(dual, np.empty(0, np.int64), threshold, passes.parts)
            best = max(best, passes.bound(dual, prices.largest, math.fsum(prices.excess)))
    finally:
        residuals[:] = own
    # the margins of the objective, which this bound is held against, are rounded still
    return best - passes.rounded_value(point)


def _hidden(passes: Passes, point: Point, columns: Floats) -> Floats:
    """How far residuals move while margins stay within their rounding, float64 (n_rows,).

    Rounding may have set the residual of a row near a jump of the curvature to 0.
    """
    objective, margins = passes.objective, passes.vectors.accepted
    terms = np.abs(margins) + abs(point.intercept) + np.abs(point.weights) @ np.abs(columns)
    rounded = ROUNDED * terms
    low, high, q = np.empty((3, objective.n_rows))
    objective.residuals_curvatures(margins - rounded, point.intercept, low, q)
    objective.residuals_curvatures(margins + rounded, point.intercept, high, q)
    return np.abs(high - low)


def _within(end: Floats) -> Floats:
    """Numbers a little inside of an end of the domain."""
    return np.where(np.isfinite(end), (1.0 - EDGE) * end, end)


def _corrected(
    start: Floats, sizes: Floats, columns: Floats, target: Floats, low: Floats, high: Floats
) -> Floats:
    """The vector in [low, high] nearest to ``start``, by ``sizes``, with columns @ vector = target."""
    from scipy.linalg import qr, solve_triangular

    roots = np.sqrt(sizes)
    exact_columns = columns.astype(np.longdouble)
    # the shortest correction, from linearly independent columns
    basis, triangle, order = qr((columns * roots).T, mode="economic", pivoting=True)
    beyond = np.abs(np.diag(triangle))
    rank = int(np.count_nonzero(beyond > DEPENDENT * beyond[0]))
    basis, triangle, order = basis[:, :rank], triangle[:rank, :rank], order[:rank]
    vector = start.copy()
    for _ in range(CORRECTIONS):
        missing = (target - exact_columns @ vector).astype(np.float64)[order]
        move = solve_triangular(triangle, missing, trans="T", check_finite=False)
        vector = np.clip(vector + roots * (basis @ move), low, high)
    return vector
