"""Families that are not bound to rows yet: parsing, spelling, binding, and restoring from models."""

from __future__ import annotations

import copy
import inspect
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import positive, shortened, shown
from fcl.errors import InputError
from fcl.features.bag import Bag
from fcl.features.concat import ConcatFamily
from fcl.features.generator import GeneratedFamily, bind
from fcl.features.generator.contract import Generator, decode, family_name
from fcl.features.hashed import HashedFamily
from fcl.features.kmers import Kmers
from fcl.features.products import UNITS, Products
from fcl.features.registry import OWN, class_of, family_names, meant
from fcl.kinds import split_options
from fcl.numerals import read_number, read_whole

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.features.base import Family

_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(?=:|$)")
_PLUS = re.compile(r"\s\+\s")
_TIMES = re.compile(r"\s\*\s")


class Concat:
    """Several families over the same rows, not yet bound to them.

    Parameters
    ----------
    families : sequence
        Families (``Kmers(8)``, a generator, or their text), or pairs (family, factor), where the
        factor > 0 multiplies the penalty of the family's features; the default is 1. All families must
        read the same kind of rows. A nested ``Concat`` is replaced by its members, with factors
        multiplied.

    Examples
    --------
    >>> features = fcl.Concat(["columns", (fcl.Products(degree=2), 2.0)])
    >>> features == fcl.parse_features("columns + products:degree=2 * 2")
    True
    """

    def __init__(self, families: Sequence[Any]) -> None:
        if isinstance(families, str) or not isinstance(families, Sequence) or not families:
            raise InputError(
                "Concat: expected a list of families, or of pairs (family, factor), such as "
                f"[Kmers(8), (Columns(), 2.0)], got {families!r}"
            )
        self.members: tuple[tuple[Any, float], ...] = ()
        for given in families:
            spec, factor = given if isinstance(given, tuple) and len(given) == 2 else (given, 1.0)
            factor = positive("Concat: factor", factor)
            if isinstance(spec, str):
                spec = parse_features(spec)
            if isinstance(spec, Concat):
                self.members += tuple((s, factor * f) for s, f in spec.members)
            elif is_spec(spec):
                self.members += ((spec, factor),)
            else:
                raise InputError(
                    "Concat: expected a family such as Kmers(d=8), a Generator or their text, got "
                    f"{spec!r}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concat) and other.members == self.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Concat({list(self.members)!r})"

    def bind(self, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None) -> ConcatFamily:
        """Bind the families to the rows of a data set.

        Parameters
        ----------
        rows : RowReader
        keep : bool (n,), optional
            The training rows; None: all rows.
        """
        bound = [bind_features(spec, rows, keep) for spec, _ in self.members]
        return ConcatFamily(tuple(bound), tuple(factor for _, factor in self.members))


#: A family with its options, not yet bound to rows.
Spec = Kmers | Bag | Concat | Generator


def parse_features(text: str, trusted: Collection[str] | None = None) -> Spec:
    """Parse a family such as ``kmers:d=8,origin=70``, ``columns`` or ``module:Class:option=value``.

    ``+`` joins several families, and a penalty factor follows a ``*``; both operators must stand between
    blanks::

        features = member { " + " member }
        member   = family [ " * " factor ]
        family   = name [ ":" option "=" value { "," option "=" value } ]
        value    = number | "true" | "false" | text | JSON list

    For example, ``kmers:d=6 + motifs:Pairs:gap=3 * 2`` is ``Concat([Kmers(6), (Pairs(gap=3), 2.0)])``.
    A single family without a factor is returned as it is, not as a ``Concat``.

    Parameters
    ----------
    text : str
        The family, in the grammar above.
    trusted : collection of str, optional
        Modules that the text may name if it comes from a file (:func:`family_from_config`). None: the
        user typed the text, so all its modules are trusted.

    Returns
    -------
    Kmers, Bag, Concat or Generator
        The family, not yet bound to rows.

    Raises
    ------
    InputError
        For an unknown family or option, or a class that cannot be imported.

    Examples
    --------
    >>> fcl.parse_features("kmers:d=8,origin=70")
    Kmers(d=8, origin=70)
    >>> fcl.parse_features("columns + hinges:n=5 * 2")
    Concat([(Columns(), 1.0), (Hinges(n=5, scale=True), 2.0)])
    """
    members = [_parse_member(part, text, trusted) for part in _PLUS.split(text)]
    if len(members) == 1 and members[0][1] is None:
        return members[0][0]
    return Concat([(spec, 1.0 if factor is None else factor) for spec, factor in members])


def _parse_member(
    part: str, text: str, trusted: Collection[str] | None
) -> tuple[Spec, float | None]:
    """A family and its factor, or None without a factor."""
    name, *factors = _TIMES.split(part)
    if not factors:
        return _parse_family(name.strip(), trusted), None
    if len(factors) > 1:
        raise InputError(f"features {text!r}: expected one factor after ' * ', got {part!r}")
    factor = read_number(factors[0])
    if factor is None:
        raise InputError(f"features {text!r}: expected a number after ' * ', got {factors[0]!r}")
    return _parse_family(name.strip(), trusted), positive(f"features {text!r}: factor", factor)


def _parse_family(text: str, trusted: Collection[str] | None) -> Spec:
    found = _CLASS.match(text)
    name, _, rest = text.partition(":")
    if found and name.strip() not in family_names():
        name, rest = found.group(), text[found.end() :].removeprefix(":")
    made = class_of(name.strip(), f"features {text!r}", trusted)
    names = inspect.signature(made).parameters
    options: dict[str, Any] = {}
    for part, key, value in split_options(rest):
        if value is None or key not in names:
            known = f"name=value with name one of {', '.join(names)}" if names else "no options"
            raise InputError(
                f"features {text!r}: expected {known}; got {part!r}{meant(key, names)}"
            )
        options[key] = _checked_value(f"features {text!r}: {key}", value, names[key].default)
    for key, parameter in names.items():
        if parameter.default is parameter.empty and key not in options:
            raise InputError(f"features {text!r}: {key} is missing; for instance {name}:{key}=8")
    try:
        found_spec: Spec = made(**options)
    except InputError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"features {text!r}: {type(error).__name__}: {error}") from error
    return found_spec


def spell_features(spec: Spec) -> str:
    """The text of a family, the inverse of :func:`parse_features`."""
    if isinstance(spec, Concat):
        one = len(spec.members) == 1  # an explicit factor marks it as a Concat
        return " + ".join(
            spell_features(s) + (f" * {f:.17g}" if one or f != 1.0 else "") for s, f in spec.members
        )
    if isinstance(spec, Generator):
        given = {k: v for k, v in spec.options().items() if v is not None}
        name = family_name(spec)
    else:
        name = next(name for name, (own, _) in OWN.items() if isinstance(spec, own))
        given = {
            f.name: getattr(spec, f.name)
            for f in fields(spec)
            if getattr(spec, f.name) != f.default
        }
    options = ",".join(f"{k}={_spell_value(v)}" for k, v in given.items())
    return name + (f":{options}" if options else "")


def _spell_value(value: Any) -> str:
    """An option's value as text; separators inside the strings of a list are escaped."""
    if isinstance(value, list | tuple):
        text = json.dumps(list(value), separators=(",", ":"))
        inner = re.compile(r'"(?:[^"\\]|\\.)*"')
        return inner.sub(lambda m: re.sub(r"[ \[\],]", lambda c: f"\\u{ord(c[0]):04x}", m[0]), text)
    return str(value).lower() if value is True or value is False else str(value)


def _checked_value(where: str, text: str, default: Any) -> Any:
    """Parse an option's value; it must be a number or a bool if the default is."""
    value = _value(text)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InputError(f"{where} must be true or false, got {text!r}")
    if isinstance(value, list):
        return value
    if isinstance(default, int | float) and isinstance(value, str):
        raise InputError(f"{where} must be a number, got {text!r}")
    return value


def _value(text: str) -> Any:
    """Parse an option's value as a list, a number, true or false, or else text."""
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InputError(
                f'features: expected a list such as [1,2.5] or ["a","b"], got {text!r} ({error})'
            ) from None
    for read in (read_whole, read_number):
        if (number := read(text)) is not None:
            return number
    return {"true": True, "false": False}.get(text.lower(), text)


def is_spec(value: object) -> bool:
    """Whether a value is a family that is not bound to rows yet."""
    return isinstance(value, Kmers | Bag | Concat | Generator)


def takes_any_length(spec: Spec) -> bool:
    """Whether a family is of sequences of any length, whose rows are filled up to one length."""
    if isinstance(spec, Concat):
        return all(takes_any_length(own) for own, _ in spec.members)
    return isinstance(spec, Bag)


def undivided(spec: Spec | str) -> Spec | str:
    """A family, or its text, whose products shift no columns, and divide them only if asked to."""
    if isinstance(spec, str):
        spec = parse_features(spec)
    if isinstance(spec, Concat):
        return Concat([(undivided(own), factor) for own, factor in spec.members])
    if type(spec) is Products:
        return Products(spec.degree, spec.binary, spec.scale or False, centre=False)
    return spec


def kept_features(spec: Spec, config: Mapping[str, Any]) -> Spec:
    """A family that keeps what the job of a checkpoint learnt from its rows, where it can.

    config : of the checkpoint's family; one that does not fit the family is left to later checks.
    """
    if isinstance(spec, Concat):
        members = config.get("members")
        if not isinstance(members, Sequence) or len(members) != len(spec.members):
            return spec
        pairs = zip(spec.members, members, strict=True)
        return Concat([(kept_features(own, stored), factor) for (own, factor), stored in pairs])
    state = config.get("state")
    if not isinstance(spec, Products) or not isinstance(state, Mapping):
        return spec
    found = copy.copy(spec)
    try:
        found.kept = {name: decode(state[name]) for name in state.keys() & set(UNITS)}
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise InputError(
            f"checkpoint: bad description of its products features: {shortened(str(error))}"
        ) from None
    return found


def like_bound(spec: Spec | str, family: Family) -> Spec | str:
    """A family whose products divide their columns only if they do so in a family bound to all rows.

    Columns that are not divided are shifted as in that family.
    """
    if isinstance(spec, str):
        spec = parse_features(spec)
    if isinstance(spec, Concat) and isinstance(family, ConcatFamily):
        pairs = zip(spec.members, family.members, strict=True)
        return Concat([(like_bound(own, bound), factor) for (own, factor), bound in pairs])
    if not (isinstance(spec, Products) and isinstance(family, GeneratedFamily)):
        return spec
    found = copy.copy(spec)
    if family.generator.divisors is None:
        shifts = family.generator.shifts
        found.kept = {} if shifts is None else {"shifts_": shifts}
    return found


def bind_features(
    spec: Spec, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None
) -> Family:
    """Bind a family to the rows of a data set.

    keep : bool (n,), the training rows; None: all rows. Families that learn from the data read a sample
        of these rows.
    """
    if isinstance(spec, Concat):
        return spec.bind(rows, keep)
    if not isinstance(spec, Generator):
        return spec.bind(rows)
    return bind(spec, rows, keep)


def family_from_config(config: Mapping[str, Any], trusted: Collection[str] | None = None) -> Family:
    """Restore a family from the configuration in a model (:meth:`Family.to_config`).

    trusted : modules or packages that a configuration from a file may import, in addition to modules that
        an installed package registers as an entry point and modules that are loaded already. None: this
        program made the configuration, so all its modules are trusted.

    Raises InputError: for a configuration that no family with valid options could have written.
    """
    options = dict(config)
    name = options.pop("family", None)
    if not isinstance(name, str):
        raise InputError(f"model: expected the name of its family of features, got {shown(name)}")
    try:
        if name == "concat":
            members = tuple(family_from_config(m, trusted) for m in options["members"])
            factors = tuple(positive("model: factor", factor) for factor in options["factors"])
            return ConcatFamily(members, factors)
        if name == "hashed":
            return HashedFamily.from_parts(family_from_config(options["inner"], trusted), options)
        if name in OWN:
            bound: Family = OWN[name][1](**options)
            return bound
        made = class_of(name, "model", trusted)(**options["options"])
        return GeneratedFamily.from_config(made, options)
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"model: bad description of its {shortened(name)} features: {shortened(str(error))}"
        ) from None
