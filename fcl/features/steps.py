"""Weights that are multiples of a step, so that float64 sums of them are exact, in any order."""

from __future__ import annotations

import math

import numpy as np

from fcl.types import Floats

#: Numbers of at least this many steps are multiples of the step, since float64 has no finer ones.
WHOLE = 2.0**52


def common_step(weights: Floats) -> float:
    """The largest power of two of which all weights are multiples; 1 if all of them are 0."""
    mantissas, exponents = np.frexp(weights[weights != 0.0])
    if not len(mantissas):
        return 1.0
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    last_bit = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return float(np.ldexp(1.0, int((exponents - 53 + last_bit).min())))


def useful_step(weights: Floats) -> float:
    """A power of two such that any sum of weights, rounded to its multiples, has about 31 bits.

    A coarser step would be of no further use; 0 if all weights are 0.
    """
    total = float(np.abs(weights).sum())
    return 2.0 ** (math.floor(math.log2(total)) - 30) if total > 0.0 else 0.0


def rounded_to(weights: Floats, step: float) -> Floats:
    """The nearest multiples of a power of two."""
    out = weights.copy()
    finer = np.abs(weights) < step * WHOLE
    out[finer] = np.rint(weights[finer] / step) * step
    return out
