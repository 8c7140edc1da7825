"""Eliminate the unpenalised coefficients x from a quadratic model of the local objective.

The model of a step has the terms sum_i q_i (phi_i d + z_i x)^2 / 2 + floor . x^2 / 2 + slopes . x, where
z_i are the covariates, or 1 for an intercept. For given d, the best x is a linear function of d.
Alternating steps of d and x would converge slowly: the indicators of the four letters at a position add
up to a constant, and k-mers resemble the principal components of a population. With T such that
T T' = (Z' Q Z + diag(floor))^-1, the best step is x = T a, a = -T' slopes - L' d: each feature needs its
*cross terms* L_j = T' Z' Q phi_j, and the model is left with -a^2 / 2.
"""

from __future__ import annotations

import numpy as np

from fcl.objective import SingleOutput
from fcl.objective.covariates import inverse_root
from fcl.types import Floats

#: Curvature below which a direction is flat and is not eliminated, relative to that of its columns: the
#: rows of a sample may make columns dependent, and rows of a level may have no curvature.
FLAT = 1e-10


def elimination(objective: SingleOutput, q: Floats, floor: Floats) -> Floats:
    """T, float64 (n_free, r), where r is n_free less the flat directions.

    q : float64 (n_rows of the objective,), curvatures.
    """
    return inverse_root(objective.free_gram(q) + np.diag(floor), FLAT)
