"""Kinds of families, by the kernels that they reach.

A job compiles only the kernels that it uses. ``fcl-train --warmup`` compiles all kernels, or those of
``--features``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fcl.features.base import Family

#: Names of built-in families -> their kind; all others are of the kind of their rows.
_KIND_OF = {
    "kmers": "sequences",
    "bag": "sequences",
    "columns": "numbers",
    "products": "products",
    "fourier": "fourier",
}
#: Variable that tells a compiling child the kinds, by comma.
KINDS_VARIABLE = "FCL_COMPILE"
#: About how many seconds a core takes to compile all kernels of a kind.
KIND_SECONDS = {"sequences": 25.0, "numbers": 12.0, "products": 45.0, "fourier": 15.0}
#: The same for the few kernels that one job needs, compiled when they are first called.
JOB_SECONDS = 5.0


def kinds_of(family: Family) -> tuple[str, ...]:
    """The kinds whose kernels a family reaches."""
    kinds = {_KIND_OF.get(name, "numbers") for name in _names(family.to_config())}
    if family.row_kind == "sequences":
        kinds.add("sequences")  # generated families on them, too, read them by these kernels
    return tuple(sorted(kinds))


def kinds_named(features: str) -> tuple[str, ...]:
    """The kinds of the families of a text, as far as names tell; all kinds for a class of one's own."""
    names = [member.split(":", 1)[0].split(" * ", 1)[0].strip() for member in features.split(" + ")]
    if not all(name in _KIND_OF for name in names):
        return tuple(KIND_SECONDS)
    return tuple(sorted({_KIND_OF[name] for name in names}))


def _names(config: dict[str, Any]) -> Iterator[str]:
    members = config.get("members")
    if members is None:
        yield str(config["family"])
    else:
        for member in members:
            yield from _names(member)


def missing(kinds: Iterable[str]) -> tuple[str, ...]:
    """Those of the kinds whose kernels are not in the cache."""
    from fcl.kernels import is_compiled

    return tuple(kind for kind in kinds if not is_compiled(kind))
