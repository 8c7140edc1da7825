"""The text of a kind with options, such as the loss ``huber:delta=2``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from fcl.checks import positive, share, shown
from fcl.errors import InputError
from fcl.numerals import read_number

Kind = TypeVar("Kind")


def parse_kind(noun: str, text: str, kinds: Mapping[str, type[Kind]]) -> Kind:
    """Make an object of a dataclass from ``NAME`` or ``NAME:OPTION=NUMBER``; options are above 0.

    An option may have the limit 1 (``below`` in the metadata of its field).

    Parameters
    ----------
    noun : str
        What a kind is, for messages.
    text : str
    kinds : mapping of str to dataclass
        By name; fields are options.

    Raises
    ------
    InputError
        The message lists the kinds, or names the wrong option.
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    kind: Any = kinds.get(name.replace("-", "_"))
    if kind is None:
        raise InputError(f"unknown {noun} {shown(text)}; expected one of {', '.join(kinds)}")
    known = {field.name: field for field in fields(kind)}
    options: dict[str, float] = {}
    for part in rest.split(",") if rest else ():
        option, _, value = part.partition("=")
        if option not in known or option in options:
            expected = f"{', '.join(known)}, once" if known else "no options"
            raise InputError(f"{noun} {shown(text)}: expected {expected}, got {shown(part)}")
        number = read_number(value)
        check = share if known[option].metadata.get("below") == 1.0 else positive
        options[option] = check(
            f"{noun} {shown(text)}: {option}", value if number is None else number
        )
    made: Kind = kind(**options)
    return made
