"""A valid JSON document with one wrong value at a time, for tests of what readers do with it."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fcl

#: What takes the place of a value, by name; ``...`` removes its key.
WRONG: dict[str, Any] = {
    "missing": ...,
    "null": None,
    "text": "x",
    "flag": True,
    "negative": -1,
    "fraction": 0.5,
    "huge": 10**30,
    "large": 1e308,
    "nan": math.nan,
    "infinite": -math.inf,
    "list": [],
    "lists": [[[]]],
    "object": {},
    "digits": int("9" * 4000),
}

Place = tuple[Any, ...]


def places(value: Any, path: Place = ()) -> Iterator[Place]:
    """The paths of all entries of a JSON value; of a list the first and the last."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = sorted({0, len(value) - 1} & set(range(len(value))))
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


def mutated(document: Any, place: Place, wrong: Any) -> Any:
    """A copy of a document with another value at a place."""
    out = copy.deepcopy(document)
    inside = out
    for key in place[:-1]:
        inside = inside[key]
    if wrong is ...:
        del inside[place[-1]]
    else:
        inside[place[-1]] = wrong
    return out


def mutations(document: Any) -> Iterator[tuple[str, Any]]:
    """All copies of a document with one wrong value, and what was done to each."""
    for place in places(document):
        for name, wrong in WRONG.items():
            yield f"{'/'.join(map(str, place))} {name}", mutated(document, place, wrong)


def encoded(document: Any) -> bytes:
    """A document as the bytes of a file, with NaN and infinity."""
    return json.dumps(document).encode()


def refusals(document: Any, read: Callable[[Any], object], every: bool = True) -> dict[str, str]:
    """Read the mutations; returns the messages of those that are refused.

    read : reads a document, and uses what it says; raises InputError, or nothing.
    every : whether to read all of them; otherwise a ninth, so that each place has some.

    Fails for any other error, and for messages of several lines.
    """
    messages, wrong = {}, []
    chosen = list(mutations(document))[:: 1 if every else 9]
    for words, each in chosen:
        try:
            read(each)
        except fcl.InputError as error:
            messages[words] = str(error)
            if "\n" in str(error) or len(str(error)) > 1500:
                wrong.append(f"{words}: {error!r:.200}")
        except Exception as error:
            wrong.append(f"{words}: {type(error).__name__}: {error!s:.100}")
    if wrong:
        pytest.fail(
            f"{len(wrong)} of {sum(1 for _ in mutations(document))}:\n" + "\n".join(wrong[:60])
        )
    return messages
