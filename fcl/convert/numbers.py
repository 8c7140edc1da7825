"""Whole numbers as text that float64 changes."""

from __future__ import annotations

import re

#: From here on, float64 does not hold all whole numbers.
FIRST_INEXACT = 1 << 53


def is_rounded_integer(text: str) -> bool:
    """Whether a text is an integer that float64 changes; numbers such as 1e20 are not integers."""
    return re.fullmatch("[-+]?[0-9]{16,}", text) is not None and int(float(text)) != int(text)
