"""Checks of single options and of paths. NumPy numbers are accepted, booleans are not."""

from __future__ import annotations

import math
import os
import reprlib
import stat
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

from fcl.errors import InputError

__all__ = [
    "choice",
    "file_kind",
    "flag",
    "is_whole",
    "positive",
    "share",
    "shortened",
    "shown",
    "up_to_one",
    "view_of_rows",
    "whole",
]

#: What a path may lead to besides files and folders; reading from one of these may never end.
_SPECIAL = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

#: Rows of a sample whose size is given, at least.
LEAST_VIEW = 64
#: Whole numbers are below this.
MOST_WHOLE = 1 << 128
#: Most characters of a text from a file that a message or a table shows.
MOST_SHOWN = 120

_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


def _without_numpy(value: Any) -> Any:
    """A NumPy scalar as a Python one, without importing NumPy, which commands load late."""
    return value.item() if getattr(value, "shape", None) == () else value


def shown(value: Any) -> str:
    """A value for a message: NumPy numbers as plain ones, long values shortened.

    The value may come from a file, of any depth and length.
    """
    try:
        return _SHORT.repr(_without_numpy(value))
    except Exception:  # more digits than Python prints, or a repr that fails
        return f"a {type(value).__name__} that cannot be shown"


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """A text from a file for one line of a terminal: control characters escaped, shortened."""
    text = text[: most + 1]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."


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
            f"{os.fspath(path)}: is {special}; expected a regular file or a folder; write its "
            "content to a file first"
        )
    return "folder" if stat.S_ISDIR(mode) else "file"


def choice(name: str, value: Any, among: Sequence[str]) -> str:
    """The value, if it is one of these words; InputError naming the option otherwise."""
    if value not in among:
        raise InputError(f"{name} must be one of {', '.join(among)}, got {shown(value)}")
    return str(value)


def flag(name: str, value: Any) -> bool:
    """The value as a bool; InputError naming the option for anything that is none."""
    value = _without_numpy(value)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def _real(value: Any) -> float:
    """The value as a float, infinite if it is too large; NaN if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number
        return math.inf


def positive(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is finite and above 0."""
    number = _real(value)
    if not 0.0 < number < math.inf:
        raise InputError(f"{name} must be a finite number above 0, got {shown(value)}")
    return number


def share(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is between 0 and 1."""
    number = _real(value)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} must be between 0 and 1, got {shown(value)}")
    return number


def up_to_one(name: str, value: Any) -> float:
    """The value as a float; InputError naming the option unless it is above 0 and at most 1."""
    number = _real(value)
    if not 0.0 < number <= 1.0:
        raise InputError(f"{name} must be above 0 and at most 1, got {shown(value)}")
    return number


def is_whole(value: Any) -> bool:
    """Whether it is a whole number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int) -> int:
    """The value as an int; InputError unless it is a whole number from ``least`` to 2^63 - 1."""
    if not is_whole(value) or not least <= value < MOST_WHOLE:
        most = " and below 2^128" if is_whole(value) and value >= MOST_WHOLE else ""
        raise InputError(
            f"{name} must be a whole number of at least {least}{most}, got {shown(value)}"
        )
    return int(value)


def view_of_rows(name: str, value: Any) -> str | int:
    """ "all", "auto" or a number of rows; InputError naming the option otherwise."""
    if isinstance(value, str) and value in ("all", "auto"):
        return value
    if not is_whole(value) or not LEAST_VIEW <= value < MOST_WHOLE:
        raise InputError(
            f"{name} must be all, auto, or a whole number of rows of at least {LEAST_VIEW}, "
            f"got {shown(value)}"
        )
    return int(value)
