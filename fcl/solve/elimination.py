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

#: Curvature below which a direction is flat and is not eliminated, relative to that of its columns: the
#: rows of a sample may make columns dependent, and rows of a level may have no curvature.
FLAT = 1e-10


@dataclass(frozen=True)
class Eliminated:
    """Covariates made orthonormal in the weights of a model's rows."""

    columns: Floats  #: float64 (rows, r), W; r is q less the flat directions
    transform: Floats  #: float64 (q, r), T
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
    total = float(q.sum())
    means = q @ z / total if free and total > 0.0 else np.zeros(z.shape[1])
    centred = z - means
    gram, size = centred.T @ (centred * q[:, None]), q @ np.square(z)
    if floor is not None:
        gram[np.diag_indices_from(gram)] += floor
        size = size + floor
    scale = np.sqrt(np.where(size > 0.0, size, 1.0))
    values, vectors = np.linalg.eigh(gram / scale / scale[:, None])
    bent = values > FLAT
    transform = vectors[:, bent] / np.sqrt(values[bent]) / scale[:, None]
    return Eliminated(centred @ transform, transform, means)


def leans_of(
    view: RowView, working: WorkingSet, columns: Columns, q: Floats, of: Eliminated
) -> Floats:
    """W' Q phi_j of cached columns over the rows of the view, float64 (columns, r)."""
    leans = np.empty((len(columns), of.columns.shape[1]))
    for c, w in enumerate(of.columns.T):
        leans[:, c], _ = column_moments(working, columns, q * w, q, view.objective.team)
    return leans
