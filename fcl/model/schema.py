"""Checks of what a file holds, before anything else is done with it.

A check takes a place (words for messages) and a value, and returns the value or raises
:class:`Mismatch`. Checks of whole headers are put together from the small ones as a table; a key that
the table does not declare is left out of the result, so nothing undeclared reaches the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fcl.checks import shown

__all__ = [
    "Check",
    "Maybe",
    "Mismatch",
    "anything",
    "flag",
    "listing",
    "nullable",
    "number",
    "one_of",
    "record",
    "table",
    "text",
    "undeclared",
    "whole",
]

#: Whole numbers in a file stay below this: they become int64, and sums of a few of them have to fit.
WHOLE_LIMIT = 1 << 62

Check = Callable[[str, Any], Any]


class Mismatch(ValueError):
    """A value is not what the table says."""


@dataclass(frozen=True)
class Maybe:
    """A key that may be missing."""

    check: Check


def _expected(where: str, what: str, value: Any) -> Mismatch:
    return Mismatch(f"{where}: expected {what}, got {shown(value)}")


def number(low: float = -math.inf, high: float = math.inf, infinite: bool = False) -> Check:
    """A number from ``low`` to ``high``, not NaN; ``infinite``: it may be infinite."""
    bounds = "" if math.isinf(low) and math.isinf(high) else f" from {low:g} to {high:g}"
    what = ("a number" if infinite else "a finite number") + bounds

    def check(where: str, value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise _expected(where, what, value)
        try:
            out = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            raise _expected(where, what, value) from None
        if math.isinf(out) and not infinite:
            raise _expected(where, what, value)
        return out

    return check


def whole(low: int = 0, high: int = WHOLE_LIMIT) -> Check:
    """A whole number from ``low`` to ``high``."""

    def check(where: str, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _expected(where, f"a whole number from {low} to {high}", value)
        return value

    return check


def text(where: str, value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise _expected(where, "a text", value)
    return value


def flag(where: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise _expected(where, "true or false", value)
    return value


def anything(where: str, value: Any) -> Any:
    """Any value: for people, or compared as it is."""
    return value


def one_of(*words: str) -> Check:
    """One of these words."""

    def check(where: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise _expected(where, f"one of {', '.join(words)}", value)
        return value

    return check


def nullable(inner: Check) -> Check:
    """Null, or what the other check says."""
    return lambda where, value: None if value is None else inner(where, value)


def listing(inner: Check, length: int | None = None) -> Check:
    """A list of what the other check says."""

    def check(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise _expected(where, "a list" if length is None else f"a list of {length}", value)
        return [inner(f"{where}[{i}]", item) for i, item in enumerate(value)]

    return check


def table(where: str, value: Any) -> dict[str, Any]:
    """An object with any keys."""
    if not isinstance(value, dict):
        raise _expected(where, "an object", value)
    return value


def record(**fields: Check | Maybe) -> Check:
    """An object with these keys; those it has besides are left out."""

    def check(where: str, value: Any) -> dict[str, Any]:
        found = table(where, value)
        out = {}
        for name, field in fields.items():
            place = f"{where}.{name}" if where else name
            inner = field.check if isinstance(field, Maybe) else field
            if name in found:
                out[name] = inner(place, found[name])
            elif not isinstance(field, Maybe):
                raise Mismatch(f"{place} is missing")
        return out

    return check


def undeclared(value: Mapping[str, Any], checked: Mapping[str, Any]) -> list[str]:
    """Keys of a value that its table has left out."""
    out = []
    for name, item in value.items():
        if name not in checked:
            out.append(name)
        elif isinstance(item, Mapping) and isinstance(checked[name], Mapping):
            out += [f"{name}.{key}" for key in undeclared(item, checked[name])]
    return out
