"""From the sums of a block to a step: pure functions.

A step minimises, over the weights of the block and the intercepts, a quadratic that majorises the
objective everywhere, so that the objective never rises (Agarwal et al., "Least squares revisited", ICML
2014, equation 14; here with a ridge, and with the intercepts eliminated). For the squared loss the
quadratic is the objective itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, lapack

from fcl.errors import InputError
from fcl.stagewise.sums import Sums
from fcl.types import Floats


@dataclass(frozen=True)
class Factor:
    """The Cholesky factor of lipschitz * centred Gram matrix + alpha I, and what centred it.

    lower : float64 (p, p), lower triangle.
    mean : float64 (p,), weighted means of the features.
    weight : sum of the weights of the rows.
    lipschitz : the constant L of the link.
    """

    lower: Floats
    mean: Floats
    weight: float
    lipschitz: float


@dataclass(frozen=True)
class BlockStep:
    """Changes of the weights (p, K) of a block and of the intercepts (K,)."""

    weights: Floats
    intercept: Floats


def factorise(
    sums: Sums, weight: float, lipschitz: float, alpha: float, precision: Any, text: str
) -> Factor:
    """Factorise the matrix of a block.

    sums : with the Gram matrix, which is overwritten.
    weight : sum of the weights of the rows.
    lipschitz : the constant L of the link.
    alpha : the ridge.
    precision : of the features: their rounding limits the condition of the matrix if alpha is 0.

    Raises InputError: the matrix is singular, or not finite.
    """
    matrix = sums.gram
    assert matrix is not None
    mean = sums.features / weight
    matrix -= np.outer(sums.features, mean)
    matrix *= lipschitz
    norm = float(np.abs(matrix).sum(axis=0).max(initial=0.0))
    if not np.isfinite(norm):
        raise InputError(
            f"{text}: their squares overflow {np.dtype(precision).name}; divide the values by a constant"
        )
    matrix[np.diag_indices(len(matrix))] += alpha
    lower, failed = lapack.dpotrf(matrix, lower=1, clean=0)
    if not failed and not alpha:
        rcond, _ = lapack.dpocon(lower, norm, uplo="L")
        failed = rcond < np.finfo(precision).eps
    if failed:
        more = f"above {alpha:g}" if alpha else "above 0"
        raise InputError(
            f"{text}: their Gram matrix is singular at alpha = {alpha:g}, because features are constant "
            f"or depend on each other; set alpha {more}"
        )
    return Factor(lower, mean, weight, lipschitz)


def step(factor: Factor, sums: Sums, weights: Floats, alpha: float) -> BlockStep:
    """The minimiser of the quadratic at the current weights (p, K) of the block."""
    pull = sums.gradient - np.outer(factor.mean, sums.residuals) + alpha * weights
    change = -cho_solve((factor.lower, True), pull)
    intercept = -sums.residuals / (factor.lipschitz * factor.weight) - factor.mean @ change
    return BlockStep(change, intercept)
