"""Checks of single options and of paths. NumPy numbers are accepted, booleans are not."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from fcl.errors import InputError

__all__ = [
    "choice",
    "file_kind",
    "flag",
    "is_whole",
    "positive",
    "share",
    "shown",
    "up_to_one",
    "view_of_rows",
    "whole",
]

#: What a path may lead to besides a file and a folder; reading it may never end.
_SPECIAL = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

#: Rows of a sample whose size is given, at least.
LEAST_VIEW = 64


def shown(value: Any) -> str:
    """A value as messages have it: a number of numpy like any other."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def file_kind(path: str | os.PathLike[str]) -> str:
    """What an input path leads to: "file", "folder", or "" if nothing is there.

    Raises InputError for a FIFO, socket or device, and for a path that cannot be looked up.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise InputError(
            f"{os.fspath(path)}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if special := _SPECIAL.get(stat.S_IFMT(mode)):
        raise InputError(
            f"{os.fspath(path)}: is {special}; expected a regular file or a folder: write what it "
            "gives to a file first"
        )
    return "folder" if stat.S_ISDIR(mode) else "file"


def choice(name: str, value: Any, among: Sequence[str]) -> str:
    """The value, if it is one of these words; InputError naming the option otherwise."""
    if value not in among:
        raise InputError(f"{name} must be one of {', '.join(among)}, got {shown(value)}")
    return str(value)


def flag(name: str, value: Any) -> bool:
    """The value as a bool; InputError naming the option for anything that is none."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def positive(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is finite and above 0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < math.inf:
        raise InputError(f"{name} must be a finite number above 0, got {shown(value)}")
    return float(value)


def share(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) < 1.0:
        raise InputError(f"{name} must be between 0 and 1, got {shown(value)}")
    return float(value)


def up_to_one(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is above 0 and at most 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 < float(value) <= 1.0:
        raise InputError(f"{name} must be above 0 and at most 1, got {shown(value)}")
    return float(value)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int; InputError naming the option unless it is whole and at least ``least``."""
    if not is_whole(value) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {shown(value)}")
    return int(value)


def view_of_rows(name: str, value: Any) -> str | int:
    """ "all", "auto" or a number of rows; InputError naming the option otherwise."""
    if isinstance(value, str) and value in ("all", "auto"):
        return value
    if not is_whole(value) or value < LEAST_VIEW:
        raise InputError(
            f"{name} must be all, auto, or a whole number of rows of at least {LEAST_VIEW}, "
            f"got {shown(value)}"
        )
    return int(value)
