"""Balance residuals against unpenalised covariates, as a point of the dual needs it.

**The dual point.** With covariates Z (:mod:`fcl.objective.unpenalised`), the dual of P is finite only at
vectors r with Z' r = 0, and sum r = 0 if the intercept is free; below, A is Z with a column of ones for a
free intercept. At the best (b, v) both hold up to rounding, and up to the truncation of r to the grid of
the prices. :func:`balanced` removes the rest:

    r~_i = r_i - d_i (A x)_i,   A' D A x = A' r,   0 <= d_i <= distance of r_i from the ends of its domain

d_i is at most the curvature s_i loss'', so this is the first-order effect of a Newton step of (b, v) on
the residuals, and x is tiny after a fit of (b, v). r~ is in the domain if |A x| <= 1 in every row, so
(A x)_i is clipped to that range. No price changes by more than sum_i |r~_i - r_i| times the largest value
of its feature, which the prices of the pass account for.

**Remainder.** In floating point A' r~ is not 0 but about 1e-16 of its terms, and more where (A x)_i is
clipped. Weak duality then gives

    P(w, v, b) >= D(r~) + C (A' r~) . (b, v)    for every point

so :func:`slack` lowers the bound by C * reach * sum_c |(A' r~)_c|. The bound holds for all models whose
intercept and coefficients, of orthonormal columns (:class:`fcl.drivers.covariates.Design`), are at most
``reach`` in absolute value: a thousand times the largest margin of the anchor. (The balance of the
intercept alone, in :meth:`fcl.objective.Objective.dual_bound`, leaves the same rounding.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.objective.covariates import newton_step, total
from fcl.objective.problem import Objective, RowValues

__all__ = ["Balanced", "balanced", "slack"]

Floats = npt.NDArray[np.float64]

#: Multiple of the largest margin up to which coefficients are covered by the bound.
REACH = 1e3


@dataclass(frozen=True)
class Balanced:
    """Residuals r~ with A' r~ = 0 up to rounding, computed from r where they are read."""

    objective: Objective
    residuals: RowValues
    curvatures: Floats
    x: Floats  #: float64 (1 + q,), 0 first without an intercept

    def __getitem__(self, rows: slice) -> Floats:
        r, covariates = self.residuals[rows], self.objective.covariates
        assert covariates is not None
        moved = covariates.times(self.x[1:], rows) + self.x[0]
        if not self.objective.loss.unbounded:
            moved = np.clip(moved, -1.0, 1.0)
        return np.asarray(r - _room(self.objective, r, self.curvatures, rows) * moved)


def _room(objective: Objective, r: Floats, curvatures: Floats, rows: slice) -> Floats:
    """d_i: the curvature, but at most the distance of r_i from the ends of its domain."""
    low, high = objective.loss.domain(objective.y[rows])
    s = objective.s[rows]
    inside = np.minimum(r - s * low, s * high - r)
    return np.minimum(curvatures[rows], np.maximum(inside, 0.0))


def balanced(
    objective: Objective, residuals: RowValues, curvatures: Floats
) -> tuple[Balanced, float]:
    """The balanced residuals, and sum_i |r~_i - r_i|.

    curvatures : float64 (n,), of the same point as the residuals.
    """
    covariates = objective.covariates
    assert covariates is not None
    blocks = list(objective.blocks())
    free = np.arange(0 if objective.intercept else 1, 1 + covariates.q)

    def sums(rows: slice) -> tuple[Floats, Floats]:
        r = residuals[rows]
        return covariates.sums(r, rows), covariates.gram(
            _room(objective, r, curvatures, rows), rows
        )

    parts = zip(*objective.team.map(sums, blocks), strict=True)
    imbalance, gram = (total(part) for part in parts)
    x = np.zeros(1 + covariates.q)
    x[free] = -newton_step(gram[np.ix_(free, free)], imbalance[free])[0]
    found = Balanced(objective, residuals, curvatures, x)

    def change(rows: slice) -> float:
        return float(np.abs(found[rows] - residuals[rows]).sum())

    return found, math.fsum(objective.team.map(change, blocks))


def slack(objective: Objective, r: RowValues, margins: Floats) -> float:
    """C * reach * sum_c |(A' r~)_c|: what the remainder of r~ may take from the bound.

    margins : float64 (n,), of the point of the residuals, from which ``reach`` follows.
    """
    covariates = objective.covariates
    assert covariates is not None
    parts = [covariates.sums(r[rows], rows) for rows in objective.blocks()]
    off = np.abs(total(tuple(parts)))[0 if objective.intercept else 1 :]
    largest = max(float(np.abs(margins[rows]).max()) for rows in objective.blocks())
    reach = REACH * (1.0 + largest)
    return objective.C * reach * float(off.sum())
