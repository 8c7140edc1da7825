"""Eliminate covariates from a quadratic model of the local objective.

The model of a step has the terms q_i (phi_i d + db + z_i dv)^2 / 2. For given d, the best (db, dv) is a
linear function of d. Alternating steps of d and dv would converge slowly if features resemble covariates,
as k-mers resemble the principal components of a population. With W = (Z - means) T, whose columns are
orthonormal in the weights q, the best step is dv = -T (W' Q Phi) d: each feature needs q numbers, its
*leans* W' Q phi_j.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.solve.state import Columns, Floats, WorkingSet
from fcl.solve.view import RowView, column_moments

__all__ = ["Eliminated", "leans_of", "orthonormal"]

#: Ridge that keeps the factorisation possible if the rows of a sample make columns dependent.
RIDGE = 1e-10


@dataclass(frozen=True)
class Eliminated:
    """Covariates made orthonormal in the weights of a model's rows."""

    columns: Floats  #: float64 (rows, q), W
    transform: Floats  #: float64 (q, q), T
    means: Floats  #: float64 (q,), zeros if the intercept is not free

    def step(self, a: Floats) -> tuple[float, Floats]:
        """Steps (db, dv) of a step ``a`` in the coordinates of W."""
        dv = self.transform @ a
        return -float(self.means @ dv), dv


def orthonormal(z: Floats, q: Floats, free: bool, floor: Floats | None) -> Eliminated:
    """Make covariates orthonormal.

    Parameters
    ----------
    z : float64 (rows, q)
    q : float64 (rows,), curvatures.
    free : whether the intercept is free; the columns are then centred.
    floor : float64 (q,), curvatures of further terms in v^2 / 2, or None.
    """
    from scipy.linalg import solve_triangular

    total = float(q.sum())
    means = q @ z / total if free and total > 0.0 else np.zeros(z.shape[1])
    centred = z - means
    gram = centred.T @ (centred * q[:, None])
    if floor is not None:
        gram[np.diag_indices_from(gram)] += floor
    diagonal = np.diag(gram)
    gram[np.diag_indices_from(gram)] += RIDGE * diagonal + 1e-12 * diagonal.max() + 1e-300
    scale = np.sqrt(np.diag(gram))
    corner = np.linalg.cholesky(gram / scale / scale[:, None])
    transform = solve_triangular(corner, np.diag(1.0 / scale), lower=True).T
    return Eliminated(centred @ transform, transform, means)


def leans_of(
    view: RowView, working: WorkingSet, columns: Columns, q: Floats, of: Eliminated
) -> Floats:
    """W' Q phi_j of cached columns over the rows of the view, float64 (columns, q)."""
    parts = [
        column_moments(working, columns, q * w, q, view.objective.team)[0] for w in of.columns.T
    ]
    return np.column_stack(parts)
