"""Checks of single options and paths. Numbers may be NumPy scalars, but not booleans."""

from __future__ import annotations

import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, TypeVar

from fcl.errors import InputError

#: Special files that a path may lead to; reading from one of them may never end.
_SPECIAL = {
    stat.S_IFIFO: "a FIFO (named pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

#: The smallest sample of rows that a user may request.
LEAST_VIEW = 64
#: Upper limit of whole numbers, also in files: they become int64, and sums of a few of them must fit.
MOST_WHOLE = 1 << 62
#: Maximum number of characters that a message or a table shows of a text from a file.
MOST_SHOWN = 120

Owner = TypeVar("Owner")
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = MOST_SHOWN
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


def _without_numpy(value: Any) -> Any:
    """Convert a NumPy scalar to a Python one, without importing NumPy, which commands load late."""
    return value.item() if getattr(value, "shape", None) == () else value


def refuse_unknown(function: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for an argument that a function does not have; the message has those it has."""
    for name in given:
        if name not in known:
            expected = ", ".join(known)
            raise TypeError(
                f"{function}() got an unexpected keyword argument {name!r}; expected some of {expected}"
            )


def refusing_unknown(owner: type[Owner]) -> type[Owner]:
    """Make a class refuse unknown arguments as :func:`refuse_unknown` does."""
    init: Any = owner.__init__
    _, *known = signature(init).parameters

    @wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        refuse_unknown(owner.__name__, given, known)
        init(self, *args, **given)

    setattr(owner, "__init__", checked)  # noqa: B010  (mypy refuses to assign a method)
    return owner


def shown(value: Any) -> str:
    """Format a value for a message: NumPy numbers as Python numbers, long values shortened.

    The value may come from a file, with any depth and length.
    """
    try:
        return _SHORT.repr(_without_numpy(value))
    except Exception:  # an int with more digits than Python prints, or a failing __repr__
        return f"a value of type {type(value).__name__} that cannot be shown"


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """Shorten a text from a file for one line of a terminal, with control characters escaped."""
    text = text[: most + 1]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def listed(values: Any, most: int = 5, show: Callable[[Any], str] = shown) -> str:
    """The first of a sequence of values for a message, and how many more there are."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return ", ".join(map(show, values[:most])) + more


def file_kind(path: str | os.PathLike[str]) -> str:
    """Classify an input path: "file", "folder", or "" if nothing is there.

    Raises InputError for a FIFO, socket or device, and for a path that cannot be looked up.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if "://" in os.fsdecode(path):
            raise InputError(
                f"{os.fsdecode(path)}: expected a local path here, got a URL; copy the file to this "
                "machine first"
            ) from None
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
    """Return the value if it is one of the words; else raise InputError that names the option."""
    if value not in among:
        raise InputError(f"{name} must be one of {', '.join(among)}, got {shown(value)}")
    return str(value)


def flag(name: str, value: Any) -> bool:
    """Return the value as a bool; raises InputError that names the option for other types."""
    value = _without_numpy(value)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def real(words: str, fits: Callable[[float], bool]) -> Callable[[str, Any], float]:
    """A check of numbers: it returns them as floats, or raises InputError that names the option.

    words : which numbers fit.
    """

    def check(name: str, value: Any) -> float:
        if not isinstance(value, bool) and isinstance(value, Real):
            with suppress(OverflowError):  # an int beyond float64
                if fits(found := float(value)):
                    return found + 0.0  # not -0.0
        raise InputError(f"{name} must be {words}, got {shown(value)}")

    return check


number = real("a finite number", math.isfinite)
positive = real("a finite number above 0", lambda x: 0.0 < x < math.inf)
at_least_0 = real("a finite number of at least 0", lambda x: 0.0 <= x < math.inf)
share = real("strictly between 0 and 1", lambda x: 0.0 < x < 1.0)
share_or_0 = real("at least 0 and below 1", lambda x: 0.0 <= x < 1.0)
up_to_one = real("above 0 and at most 1", lambda x: 0.0 < x <= 1.0)


def check_threads_variable() -> None:
    """Raise InputError if numba cannot be imported since ``NUMBA_NUM_THREADS`` is no number above 0."""
    found = os.environ.get("NUMBA_NUM_THREADS")
    if found is not None and not (re.fullmatch("[0-9]+", found.strip()) and int(found) > 0):
        raise InputError(
            f"NUMBA_NUM_THREADS: expected a whole number above 0, got {shown(found)}; unset it, or "
            "set it to the number of cores to use"
        )


def is_whole(value: Any) -> bool:
    """Whether the value is a whole number; booleans are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int) -> int:
    """Return the value as an int; raises InputError unless least <= value <= 2^62."""
    if not is_whole(value) or not least <= value <= MOST_WHOLE:
        most = " and at most 2^62" if is_whole(value) and value > MOST_WHOLE else ""
        raise InputError(
            f"{name} must be a whole number of at least {least}{most}, got {shown(value)}"
        )
    return int(value)


def view_of_rows(name: str, value: Any) -> str | int:
    """Return "all", "auto" or a number of rows; raises InputError for other values."""
    if isinstance(value, str) and value in ("all", "auto"):
        return value
    if not is_whole(value) or not LEAST_VIEW <= value <= MOST_WHOLE:
        raise InputError(
            f"{name} must be all, auto, or a whole number of rows of at least {LEAST_VIEW}, "
            f"got {shown(value)}"
        )
    return int(value)
