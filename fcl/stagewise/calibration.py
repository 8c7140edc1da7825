"""Calibration of predictions: a regression of the targets on functions of the predictions.

A round of calibrated least squares fits the residuals of the current predictions by the features, and
then the targets by a constant and powers of the predictions of all classes; the result is projected onto
the probability simplex, or for several labels a row onto the cube [0, 1]^K (Agarwal et al., "Least
squares revisited", ICML 2014, algorithm 2, equations 18 and 19, and section 4).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from fcl.parallel import Team
from fcl.stagewise.blocks import Part
from fcl.stagewise.links import project
from fcl.types import Floats

#: Directions of the basis with less than this share of the largest eigenvalue are left out. Predictions
#: sum to 1, so that some directions are constant up to rounding.
LEAST_SHARE = 1e-12


def _basis(margins: Floats, degree: int) -> Floats:
    """A constant and the powers 1 .. degree of predictions (n, K), float64 (n, 1 + degree K)."""
    powers = [margins**power for power in range(1, degree + 1)]
    return np.hstack([np.ones((len(margins), 1)), *powers])


def calibrated(margins: Floats, weights: Floats, noun: str) -> Floats:
    """Predictions (n, K) after a calibration (1 + degree K, K).

    noun : "class", whose rows are in the simplex, or "label", whose values are in [0, 1].
    """
    degree = (len(weights) - 1) // margins.shape[1]
    found = _basis(margins, degree) @ weights
    return project(found) if noun == "class" else np.clip(found, 0.0, 1.0)


def calibrate(part: Part, weights: Floats, team: Team) -> None:
    """Replace the margins of a part by their calibration."""

    def work(tile: int) -> None:
        margins = part.margins[part.prepared.rows_of(tile)]
        margins[:] = calibrated(margins, weights, part.targets.noun)

    team.map(work, range(part.prepared.n_blocks))


def fit_calibration(part: Part, degree: int, team: Team) -> Floats:
    """The least squares weights of a calibration at the current margins, float64 (1 + degree K, K).

    Among several minimisers, the one of smallest norm for columns of the basis of equal size.
    """

    def work(tile: int) -> tuple[Floats, Floats]:
        rows = part.prepared.rows_of(tile)
        basis = _basis(part.margins[rows], degree)
        weighted = basis.T * part.s[rows]
        return weighted @ basis, weighted @ part.targets.rows(rows)

    gram: Floats | float = 0.0
    crossed: Floats | float = 0.0
    for own_gram, own_crossed in team.map(work, range(part.prepared.n_blocks)):
        gram, crossed = gram + own_gram, crossed + own_crossed
    size = np.sqrt(np.diag(gram))
    size = np.where(size > 0.0, size, 1.0)
    values, vectors = eigh(gram / np.outer(size, size))
    kept = values > LEAST_SHARE * values[-1]
    rotated = vectors[:, kept]
    scaled = np.asarray(crossed) / size[:, None]
    solved = rotated @ ((rotated.T @ scaled) / values[kept][:, None])
    return np.asarray(solved / size[:, None])
