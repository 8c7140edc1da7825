"""Readable models of Vowpal Wabbit: ``--readable_model`` and ``--invert_hash``.

A header of lines ``key:value`` ends with ``options:``. A checksum and ``:0`` or ``:1`` may follow, and
after ``:1`` the state of the learner, lines of a key and a number. Then each weight has a line,
``place:weight`` or ``name:place:weight``; a model that can be resumed (``:1``) adds numbers of the
learner after the weight. With ``--l1`` and ``--l2`` the weights of a resumable model are raw:
predictions shrink them by ``l1_state`` towards 0, and multiply them by ``l2_state``.

Features with equal hashes share a place, and one of them alone has a name there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError
from fcl.files import schema
from fcl.model.foreign.hashing import Hashing, SharedPlaces
from fcl.model.foreign.weights import ForeignWeights, lines_of, number
from fcl.numerals import read_number, read_whole

#: Options in the header under which the model is linear, with one weight for each feature.
_LINEAR = {
    "ftrl", "sgd", "bfgs", "hash", "noconstant", "link", "loss_function", "id", "keep", "ignore",
    "bit_precision", "quadratic", "cubic", "interactions",
}  # fmt: skip
_JOINED = {"quadratic", "cubic", "interactions"}
_CONSTANT = "Constant"
_WEIGHT = re.compile(r"(?:(.*):)?([0-9]{1,10}):(\S+)")
_STATE = re.compile(r"[a-z_:. A-Z0-9]+? \S+")


def _bits(where: str, value: str) -> int:
    bits = read_whole(value)
    if bits is None or not 1 <= bits <= 62:
        raise schema.Mismatch(f"expected a line such as bits:18, got {shown(value)}")
    return bits


def _linear(where: str, value: str) -> None:
    """Check for the number of an option without which a model is linear."""
    if value not in ("0", ""):
        raise schema.Mismatch(
            f"expected a linear model, got one with {where} {shown(value)}; train it without this option"
        )


#: What the header may say, by key, and the state of the learner; other lines are not needed.
_HEADER_TABLE = schema.record(
    options=schema.text,
    **dict.fromkeys(("lda", "rank", "ngram", "skip"), schema.Maybe(_linear)),
    bits=_bits,
)
_STATE_TABLE = schema.record(
    **dict.fromkeys(("l1_state", "l2_state"), schema.Maybe(schema.at_least_0))
)


def read_vw(path: str) -> ForeignWeights:
    """Read a readable model; raises InputError for one that is not linear, or has several outputs."""
    lines = lines_of(path, ends=True)
    header = _header(lines, path)
    options = _options(header, path)
    hashing = Hashing(header["bits"], options.get("hash") == "all")
    found = _weights(lines, path)
    values, names, places = found.values, found.names, found.places
    named = [name is not None for name in names]
    if any(named) and not all(named):
        raise InputError(
            f"{path}, line {found.lines[named.index(False)]}: expected a name before the hash, as in "
            "other lines, found none; write the model while training (--invert_hash), when the names are "
            "known"
        )
    joined = bool(_JOINED & options.keys())
    if joined and not any(named):
        raise InputError(
            f"{path}: expected names, since the hashes of products of features cannot be told apart, got "
            "hashes alone; write the model with --invert_hash"
        )
    # the intercept's place may have the name of a column with the same hash
    own = np.array(places, np.int64) == hashing.constant
    if "noconstant" in options:
        own[:] = False
    intercept = float(values[own].sum())
    if not any(named):
        texts = list(map(str, places))
        return ForeignWeights(path, values, intercept, texts, found.lines, hashing)
    words = [name or "" for name in names]
    kept = [at for at, name in enumerate(words) if name != _CONSTANT]
    return ForeignWeights(
        path,
        values[kept],
        intercept,
        [_plain(words[at], joined, path, found.lines[at]) for at in kept],
        [found.lines[at] for at in kept],
        shared=_shared(header, hashing, found, joined, path),
    )


@dataclass(frozen=True)
class _Lines:
    """The weights of a file, with what the state of the learner does to them."""

    values: npt.NDArray[np.float64]
    names: list[str | None]
    places: list[int]
    lines: list[int]


def _weights(lines: Iterator[tuple[int, str]], path: str) -> _Lines:
    """Read the lines of weights; raises InputError without weights, or for any other line."""
    state: dict[str, float] = {}
    names: list[str | None] = []
    places: list[int] = []
    values: list[float] = []
    numbers: list[int] = []
    for at, line in lines:
        match = _WEIGHT.fullmatch(line.partition(" ")[0])
        if match is None:
            known = line in (":0", ":1") or line.startswith("Checksum:")
            if values or not (known or _is_state(line, state)):
                raise InputError(
                    f"{path}, line {at}: expected a weight, as 14405:0.25 or age:14405:0.25, got "
                    f"{shown(line)}"
                )
            continue
        name, place, weight = match.groups()
        names.append(name)
        places.append(int(place))
        values.append(number(weight, path, at))
        numbers.append(at)
    if not values:
        raise InputError(
            f"{path}: expected a weight after the header, found none; the file is cut off, or the model "
            "is empty"
        )
    state = _checked(_STATE_TABLE, state, path)
    found = np.array(values, np.float64)
    found = np.sign(found) * np.maximum(np.abs(found) - state.get("l1_state", 0.0), 0.0)
    found *= state.get("l2_state", 1.0)
    return _Lines(found, names, places, numbers)


def _shared(
    header: Mapping[str, str], hashing: Hashing, found: _Lines, joined: bool, path: str
) -> SharedPlaces:
    """The table of places; it knows the first name whose hash is not at its place."""
    spaces: dict[str, str] = {}
    weights: dict[int, float] = {}
    wrong = ""
    rows = zip(found.names, found.places, found.values.tolist(), found.lines, strict=True)
    for name, place, weight, line in rows:
        weights[place] = weight
        if name is None or name == _CONSTANT:
            continue
        factors = [_factor(part) for part in (name.split("*") if joined else [name])]
        spaces |= {own: space for space, own in factors}
        hashes = [hashing.hash_of(own, space) for space, own in factors]
        computed = int(hashing.joined(np.array([hashes], np.uint64))[0])
        if computed != place and not wrong:
            wrong = (
                f"{path}, line {line}: expected the hash {computed} of {shown(name)}, got {place}; it "
                "cannot be found which features share a weight: train without options that change hashes"
            )
    return SharedPlaces(hashing, weights, spaces, _degrees(header), wrong)


def _factor(part: str) -> tuple[str, str]:
    """The namespace, empty for the default one, and the name of a feature."""
    space, mark, name = part.partition("^")
    return (space, name) if mark and name else ("", part)


def _degrees(header: Mapping[str, str]) -> tuple[int, ...]:
    """The numbers of factors of the features, by the options in the header."""
    words = header.get("options", "").replace("=", " ").split()
    degrees = {1}
    for option, value in pairwise(words):
        if option in ("--quadratic", "--cubic", "--interactions"):
            degrees.add(value.count("|") + 1 if value.startswith("[") else len(value))
    return tuple(sorted(degrees))


def _checked(table: schema.Check, values: Mapping[str, Any], path: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = table("", values)
    except schema.Mismatch as error:
        raise InputError(f"{path}: {error}") from error
    return found


def _header(lines: Iterator[tuple[int, str]], path: str) -> dict[str, Any]:
    """The lines up to the options, as keys and values; ``0 ngram:`` has the key ``ngram``."""
    header = {"bits": ""}
    for _, line in lines:
        key, _, value = line.partition(":")
        count, _, word = key.partition(" ")
        is_count = read_whole(count) is not None
        header[word if is_count else key] = count if is_count else value.strip()
        if key == "options":
            return _checked(_HEADER_TABLE, header, path)
    raise InputError(
        f"{path}: expected a line options: before the weights, found none; the file is cut off"
    )


def _options(header: Mapping[str, Any], path: str) -> dict[str, str]:
    """The options in the header; InputError for a model that is not linear."""
    options: dict[str, str] = {}
    last = ""
    for word in header["options"].split():
        if word.startswith("--"):
            last, _, value = word[2:].partition("=")
            options[last] = value
        elif last:
            options[last] = word
    for name in options:
        if name not in _LINEAR:
            raise InputError(
                f"{path}: expected a linear model of one output, got one trained with --{name}; train a "
                "model for each class, or without this option"
            )
    return options


def _is_state(line: str, state: dict[str, float]) -> bool:
    """Whether a line is of the learner's state, which is then added to ``state``."""
    if _STATE.fullmatch(line) is None:
        return False
    key, _, value = line.rpartition(" ")
    number = read_number(value)
    if number is None:
        return False
    state[key] = number
    return True


def _plain(name: str, joined: bool, path: str, line: int) -> str:
    """The name without namespaces; of a product, factors joined as families describe them."""
    if re.search(r"\[[0-9]+\]$", name):
        raise InputError(
            f"{path}, line {line}: expected a model of one output, got a weight of another output, "
            f"{shown(name)}; train one model for each class"
        )
    parts = name.split("*") if joined else [name]
    return " * ".join(_factor(part)[1] for part in parts)
