"""Kinds of families: groups of families that call the same kernels.

A job compiles only the kernels that it uses. ``fcl train --warmup`` compiles all kernels, or the kernels
that ``--features`` needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fcl import kernels
from fcl.features.base import Family
from fcl.features.registry import OWN, is_built_in_name

#: The kind of jobs with several outputs, whatever their family.
OUTPUTS = "outputs"
#: The kind of online learners, whatever their family.
ONLINE = "online"
#: Environment variable of a compiling child: the kinds to compile, separated by commas.
KINDS_VARIABLE = "FCL_COMPILE"
#: Estimated seconds that a core takes to compile all kernels of a kind.
KIND_SECONDS = {
    "sequences": 25.0,
    "numbers": 12.0,
    "products": 45.0,
    "fourier": 15.0,
    OUTPUTS: 15.0,
    ONLINE: 30.0,
}
#: Estimated seconds for the few kernels that one job needs, compiled when they are first called.
JOB_SECONDS = 15.0


def kinds_of(family: Family, n_outputs: int = 1) -> tuple[str, ...]:
    """The kinds whose kernels a job of a family calls."""
    kinds = {_kind_of(name) for name in _names(family.to_config())}
    if family.row_kind == "sequences":
        kinds.add("sequences")  # generated families, too, read sequences with these kernels
    return *sorted(kinds), *[OUTPUTS] * (n_outputs > 1)


def kinds_named(features: str) -> tuple[str, ...]:
    """The kinds of the families named in ``features``; all kinds if a name is not built in."""
    names = [member.split(":", 1)[0].split(" * ", 1)[0].strip() for member in features.split(" + ")]
    if not all(map(is_built_in_name, names)):
        return tuple(KIND_SECONDS)
    return tuple(sorted(set(map(_kind_of, names))))


def _kind_of(name: str) -> str:
    """The kind of a family: its name, if a kind has this name, or that of the rows that it reads."""
    if name in OWN:
        return "sequences"
    return name if is_built_in_name(name) and name in KIND_SECONDS else "numbers"


def _names(config: dict[str, Any]) -> Iterator[str]:
    members = config.get("members")
    if members is None:
        yield str(config["family"])
    else:
        for member in members:
            yield from _names(member)


def missing(kinds: Iterable[str]) -> tuple[str, ...]:
    """The given kinds whose kernels are not in the cache."""
    return tuple(kind for kind in kinds if not kernels.compilation.is_compiled(kind))
