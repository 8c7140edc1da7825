"""Families of features: :class:`Kmers`, and what a family owes the solver (``base``)."""

from __future__ import annotations

from typing import Any

from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.kmers import KmerFamily, Kmers

__all__ = ["Family", "KmerFamily", "Kmers", "family_from_config", "parse_features"]

_SPECS = {"kmers": Kmers}
_FAMILIES = {"kmers": KmerFamily}


def parse_features(text: str) -> Kmers:
    """A family from its command-line form, ``kmers:d=8,origin=70``.

    Raises InputError for an unknown family or option, naming the nearest.
    """
    name, _, rest = text.partition(":")
    spec = _SPECS.get(name.strip())
    if spec is None:
        raise InputError(
            f"features {text!r}: unknown family {name.strip()!r}; there is: {', '.join(_SPECS)}"
        )
    options: dict[str, int] = {}
    known = list(spec.__dataclass_fields__)
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or key not in known:
            raise InputError(
                f"features {text!r}: expected options of the form name=value with name one of "
                f"{', '.join(known)}; got {part!r}"
            )
        try:
            options[key] = int(value)
        except ValueError:
            raise InputError(
                f"features {text!r}: {key} must be a whole number, got {value!r}"
            ) from None
    if "d" not in options:
        raise InputError(f"features {text!r}: d is missing; for instance kmers:d=8")
    return spec(**options)


def family_from_config(config: dict[str, Any]) -> KmerFamily:
    """The family that a model was made with (:meth:`Family.to_config`)."""
    options = dict(config)
    name = options.pop("family", None)
    made = _FAMILIES.get(name) if isinstance(name, str) else None
    if made is None:
        raise InputError(f"model: unknown family of features {name!r}; made by a newer fcl?")
    try:
        return made(**options)
    except TypeError as error:
        raise InputError(f"model: bad description of its {name} features: {error}") from None
