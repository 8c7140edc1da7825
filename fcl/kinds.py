"""The text of what has options of its own: ``NAME:OPTION=VALUE,OPTION=VALUE``.

So are written losses (``huber:delta=2``), families (``kmers:d=8``), drivers, penalties and methods of
online learners.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from fcl.checks import positive, share, shown
from fcl.errors import InputError
from fcl.numerals import read_number

Kind = TypeVar("Kind")
#: Commas outside lists.
_COMMA = re.compile(r""",(?![^\[\]]*\])""")


def split_options(text: str) -> Iterator[tuple[str, str, str | None]]:
    """Each part of ``OPTION=VALUE,OPTION=VALUE``, with its option and its value.

    A value may be a list in brackets. The value of a part without ``=`` is None.
    """
    for part in filter(None, map(str.strip, _COMMA.split(text))):
        option, equals, value = (word.strip() for word in part.partition("="))
        yield part, option, value if equals else None


def parse_kind(noun: str, text: str, kinds: Mapping[str, type[Kind]]) -> Kind:
    """Make an object of a dataclass from ``NAME`` or ``NAME:OPTION=NUMBER``; options are above 0.

    An option may have the limit 1 (``below`` in the metadata of its field).

    noun : what a kind is, for messages.
    kinds : mapping of str to dataclass, by name; fields are options.

    Raises InputError: the message lists the kinds, or names the wrong option.
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    kind: Any = kinds.get(name.replace("-", "_"))
    if kind is None:
        raise InputError(f"unknown {noun} {shown(text)}; expected one of {', '.join(kinds)}")
    known = {field.name: field for field in fields(kind)}
    options: dict[str, float] = {}
    for part, option, value in split_options(rest):
        if option not in known or option in options or value is None:
            expected = ", ".join(f"{name}=NUMBER" for name in known)
            expected = f"{expected}, each once" if known else "no options"
            raise InputError(f"{noun} {shown(text)}: expected {expected}, got {shown(part)}")
        number = read_number(value)
        check = share if known[option].metadata.get("below") == 1.0 else positive
        options[option] = check(
            f"{noun} {shown(text)}: {option}", value if number is None else number
        )
    made: Kind = kind(**options)
    return made
