"""Checks that validate the values in a file before they are used.

A check takes a place (words for messages) and a value, and returns the value or raises
:class:`Mismatch`. The schema of a whole header is composed of such checks. It drops keys that it does not
declare, so no undeclared value reaches the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fcl.checks import MOST_WHOLE, shown

Check = Callable[[str, Any], Any]


class Mismatch(ValueError):
    """A value does not fit the schema."""


@dataclass(frozen=True)
class Maybe:
    """A key that may be missing, for which the default stands, if there is one."""

    check: Check
    default: Any = ...


def _expected(where: str, what: str, value: Any) -> Mismatch:
    return Mismatch(f"{where}: expected {what}, got {shown(value)}")


#: The smallest number above 0.
_TINY = 5e-324


def number(low: float = -math.inf, high: float = math.inf, infinite: bool = False) -> Check:
    """Check for a number from ``low`` to ``high``, not NaN; infinite only if ``infinite``."""
    least = "" if math.isinf(low) else " above 0" if low == _TINY else f" of at least {low:g}"
    most = "" if math.isinf(high) else f" up to {high:g}"
    what = ("a number" if infinite else "a finite number") + least + most

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


def whole(low: int = 0, high: int = MOST_WHOLE) -> Check:
    """Check for a whole number from ``low`` to ``high``."""

    def check(where: str, value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _expected(where, f"a whole number from {low} to {high}", value)
        return value

    return check


def text(where: str, value: Any) -> str:
    """Check for a string."""
    if not isinstance(value, str):
        raise _expected(where, "a string", value)
    return value


def label(where: str, value: Any) -> Any:
    """Check for the label of a class: a number of 64 bits but not NaN, a string, true or false."""
    if not isinstance(value, bool | int | float | str):
        raise _expected(where, "a number or a string", value)
    too_long = isinstance(value, int) and abs(value) >= 1 << 64
    if too_long or (isinstance(value, float) and math.isnan(value)):
        raise _expected(where, "a number of 64 bits", value)
    return value


def flag(where: str, value: Any) -> bool:
    """Check for true or false."""
    if not isinstance(value, bool):
        raise _expected(where, "true or false", value)
    return value


def anything(where: str, value: Any) -> Any:
    """Accept any value."""
    return value


def one_of(*words: str) -> Check:
    """Check for one of these words."""

    def check(where: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise _expected(where, f"one of {', '.join(words)}", value)
        return value

    return check


def nullable(inner: Check) -> Check:
    """Accept null, or a value that the inner check accepts."""
    return lambda where, value: None if value is None else inner(where, value)


finite = number()
positive = number(_TINY)
at_least_0 = number(0.0)
share = number(_TINY, 1.0)
#: A number that is null if it is not known, or not finite.
unknown = nullable(finite)


def listing(inner: Check, length: int | None = None) -> Check:
    """Check for a list, of this length if given, of values that the inner check accepts."""

    def check(where: str, value: Any) -> list[Any]:
        if not isinstance(value, list) or length not in (None, len(value)):
            raise _expected(where, "a list" if length is None else f"a list of {length}", value)
        return [inner(f"{where}[{i}]", item) for i, item in enumerate(value)]

    return check


def row(*checks: Check) -> Check:
    """Check for a list of one value for each inner check."""

    def check(where: str, value: Any) -> list[Any]:
        items = listing(anything, len(checks))(where, value)
        pairs = enumerate(zip(checks, items, strict=True))
        return [inner(f"{where}[{i}]", item) for i, (inner, item) in pairs]

    return check


def class_weight(where: str, value: Any) -> Any:
    """Check for "balanced", or a list of pairs of a label and its weight above 0."""
    if isinstance(value, str):
        return one_of("balanced")(where, value)
    pairs = listing(row(label, positive))(where, value)
    if len(pairs) < 2:
        raise _expected(where, "at least two pairs", value)
    return pairs


def table(where: str, value: Any) -> dict[str, Any]:
    """Check for an object with any keys."""
    if not isinstance(value, dict):
        raise _expected(where, "an object", value)
    return value


def mapping(inner: Check) -> Check:
    """Check for an object with any keys, whose values the inner check accepts."""

    def check(where: str, value: Any) -> dict[str, Any]:
        items = table(where, value).items()
        return {name: inner(f"{where}.{name}", item) for name, item in items}

    return check


def record(**fields: Check | Maybe) -> Check:
    """Check for an object with these keys; other keys are dropped."""

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
            elif field.default is not ...:
                out[name] = field.default
        return out

    return check


def open_record(**fields: Check | Maybe) -> Check:
    """Check for an object that may have these keys, and any others, which are kept."""
    used = record(**fields)
    return lambda where, value: {**table(where, value), **used(where, value)}


def claims(**fields: Check) -> Check:
    """Check for an object that only describes: other keys, and values that do not fit, are dropped."""

    def check(where: str, value: Any) -> dict[str, Any]:
        out = {}
        for name, item in table(where, value).items():
            if name in fields:
                with suppress(Mismatch):
                    out[name] = fields[name](f"{where}.{name}", item)
        return out

    return check


def undeclared(value: Mapping[str, Any], checked: Mapping[str, Any]) -> list[str]:
    """Keys of a value that its schema has dropped."""
    out = []
    for name, item in value.items():
        if name not in checked:
            out.append(name)
        elif isinstance(item, Mapping) and isinstance(checked[name], Mapping):
            out += [f"{name}.{key}" for key in undeclared(item, checked[name])]
    return out
