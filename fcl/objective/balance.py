"""Balance residuals against unpenalised covariates, as a point of the dual needs it.

**The dual point.** With covariates Z (:mod:`fcl.objective.unpenalised`), the dual of P is finite only at
vectors r with Z' r = 0. At the best coefficients this holds up to rounding. :func:`balanced` removes the
rest:

    r~_i = r_i - d_i (Z x)_i,   Z' D Z x = Z' r,   0 <= d_i <= distance of r_i from the ends of its domain

d_i is at most the curvature s_i loss'', so this is the first-order effect of a Newton step of the
coefficients on the residuals, and x is tiny after a fit. r~ is in the domain if |Z x| <= 1 in every row,
so (Z x)_i is clipped to that range.

**Remainder.** In floating point, and on the grid of the prices, Z' r~ is not 0 but about 1e-16 of its
terms, and more where (Z x)_i is clipped. Weak duality then gives

    P(w, v) >= D(r~) + C (Z' r~) . v    for every point

so :func:`slack` lowers the bound by C * reach * sum_c |(Z' r~)_c|. The bound holds for all models whose
coefficients, of orthonormal columns (:class:`fcl.drivers.covariates.Design`), are at most ``reach`` in
absolute value: a thousand times the largest margin of the anchor. (The balance of an intercept without
covariates, in :meth:`fcl.objective.Objective.dual_bound`, leaves the same rounding.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fcl.objective.covariates import FLAT, inverse_root
from fcl.objective.problem import RowValues
from fcl.types import Floats

#: Multiple of the largest margin up to which coefficients are covered by the bound.
REACH = 1e3
CORRECTIONS = 2


def balanced(
    objective: Any,
    residuals: Floats,
    curvatures: Floats,
    on_grid: Callable[[Floats], RowValues],
) -> Floats:
    """Residuals r~, float64 (n,), with Z' r~ = 0 up to rounding once they are truncated.

    residuals, curvatures : float64 (n,), of one point.
    on_grid : truncates residuals, as they are priced. A second correction balances the truncation,
        whose errors have the signs of the residuals and add up.
    """
    covariates = objective.covariates
    assert covariates is not None
    room, out = np.empty((2, objective.n_rows))
    for rows in objective.blocks():
        low, high = objective.loss.domain(objective.y[rows])
        r, s = residuals[rows], objective.s[rows]
        np.clip(np.minimum(r - s * low, s * high - r), 0.0, curvatures[rows], out=room[rows])
    root = inverse_root(objective.free_gram(room), FLAT)
    x, found = np.zeros(covariates.q), residuals
    for _ in range(CORRECTIONS):
        x += root @ (root.T @ objective.free_sums(on_grid(found)))
        out[:] = 0.0
        objective.add_free(x, out)
        if not objective.loss.unbounded:
            np.clip(out, -1.0, 1.0, out=out)
        out *= room
        found = np.subtract(residuals, out, out=out)
    return found


def slack(objective: Any, r: RowValues, margins: Floats) -> float:
    """C * reach * sum_c |(Z' r~)_c|: what the remainder of r~ may take from the bound.

    margins : float64 (n,), of the point of the residuals, from which ``reach`` follows.
    """
    reach = REACH * (1.0 + max(-float(margins.min()), float(margins.max())))
    return objective.C * reach * float(np.abs(objective.free_sums(r)).sum())
