"""Weights that are multiples of a step, so that float64 sums of them are exact, in any order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def common_step(weights: Floats) -> float:
    """The largest power of two of which all weights are multiples; 1 if all of them are 0."""
    mantissas, exponents = np.frexp(weights[weights != 0.0])
    if not len(mantissas):
        return 1.0
    whole = np.ldexp(mantissas, 53).astype(np.int64)
    last_bit = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return float(np.ldexp(1.0, int((exponents - 53 + last_bit).min())))


def in_steps(weights: Floats, step: float) -> Floats:
    """Round weights to the nearest multiples of a power of two."""
    out: Floats = np.rint(weights / step) * step
    return out
