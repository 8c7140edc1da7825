"""Numbers as they are stored: which values float32 cannot hold."""

from __future__ import annotations

import re

import numpy as np

__all__ = [
    "FIRST_INEXACT",
    "any_inexact_in_float32",
    "inexact_in_float32",
    "is_rounded_integer",
]

#: From here on, float64 does not hold all whole numbers.
FIRST_INEXACT = 1 << 53


def is_rounded_integer(text: str) -> bool:
    """Whether a text is an integer that float64 changes; numbers such as 1e20 are not integers."""
    return re.fullmatch("[-+]?[0-9]{16,}", text) is not None and int(float(text)) != int(text)


def inexact_in_float32(values: np.ndarray) -> np.ndarray:
    """Which finite values float32 changes by more than rounding: bool, of the shape of the values.

    These are whole numbers that become other numbers, and values beyond the range of float32. Values
    that are not finite are never among them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
        whole = (rounded != values) & (np.trunc(values) == values)
        out_of_range = np.isinf(rounded) | ((rounded == 0) & (values != 0))
    return (whole | out_of_range) & np.isfinite(values)


def any_inexact_in_float32(values: np.ndarray) -> bool:
    """Whether :func:`inexact_in_float32` holds for any value; fast if all are small."""
    size = np.abs(values)
    tiny = np.finfo(np.float32).smallest_subnormal
    if not size.size or (size.max() <= 1 << 24 and (size[size > 0] >= tiny).all()):
        return False
    return bool(inexact_in_float32(values).any())
