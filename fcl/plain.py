"""Conversion of values to JSON types, for events, model headers and effective options."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Convert a value to JSON types, recursively; the keys of mappings are sorted.

    NumPy scalars and arrays become Python numbers and lists, paths and bytes become text, and objects
    with ``to_dict`` become dictionaries. Numbers that are not finite become None: JSON cannot represent
    them, and ``NaN`` breaks strict readers.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, without importing numpy
        listed = value.tolist()
        return plain(float(value) if type(listed) is type(value) else listed)  # a long double
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    return str(value)
