"""Families by name: their text on the command line, and their description in a model."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NoReturn

from fcl.checks import positive, shortened, shown
from fcl.errors import GeneratorError, InputError
from fcl.features.bag import Bag, BagFamily
from fcl.features.concat import Concat, ConcatFamily
from fcl.features.generator.contract import Generator, family_name
from fcl.features.kmers import KmerFamily, Kmers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fcl.data.base import RowReader
    from fcl.features.base import Family

__all__ = [
    "Spec",
    "bind_features",
    "check_home",
    "family_from_config",
    "is_spec",
    "parse_features",
    "spell_features",
]

#: A family with its options, not yet bound to rows.
Spec = Kmers | Bag | Concat | Generator

#: Other packages name their families here.
ENTRY_POINTS = "fcl.generators"
#: Families not built on Generator, unbound and bound.
_OWN: dict[str, tuple[type[Kmers] | type[Bag], Any]] = {
    "kmers": (Kmers, KmerFamily),
    "bag": (Bag, BagFamily),
}
_BUILT_IN = {
    "columns": "fcl.features.plain:Columns",
    "fourier": "fcl.features.fourier:Fourier",
    "products": "fcl.features.products:Products",
}
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(?=:|$)")
#: Commas outside of lists.
_COMMA = re.compile(r""",(?![^\[\]]*\])""")
_PLUS = re.compile(r"\s\+\s")
_TIMES = re.compile(r"\s\*\s")


def parse_features(text: str, trusted: Collection[str] | None = None) -> Spec:
    """A family from its text: ``kmers:d=8,origin=70``, ``columns``, ``module:Class:option=value``.

    Several families are joined by ``+``, and a factor in the penalty stands behind a ``*``, both between
    blanks::

        features = member { " + " member }
        member   = family [ " * " factor ]
        family   = name [ ":" option "=" value { "," option "=" value } ]
        value    = number | "true" | "false" | text | list, as of JSON

    as in ``kmers:d=6 + motifs:Pairs:gap=3 * 2``, which is ``Concat([Kmers(6), (Pairs(gap=3), 2.0)])``.
    One family without a factor is itself.

    trusted : modules that the text of a file may name (:func:`family_from_config`); None: the user typed
        the text, so all its modules are trusted.

    Raises InputError for an unknown family or option, or a class that cannot be imported.
    """
    members = [_parse_member(part, text, trusted) for part in _PLUS.split(text)]
    if len(members) == 1 and members[0][1] is None:
        return members[0][0]
    return Concat([(spec, 1.0 if factor is None else factor) for spec, factor in members])


def _parse_member(
    part: str, text: str, trusted: Collection[str] | None
) -> tuple[Spec, float | None]:
    """A family and its factor, if it has one."""
    name, *factors = _TIMES.split(part)
    if not factors:
        return _parse_family(name.strip(), trusted), None
    if len(factors) > 1:
        raise InputError(f"features {text!r}: expected one factor behind ' * ', got {part!r}")
    try:
        factor = float(factors[0])
    except ValueError:
        raise InputError(
            f"features {text!r}: expected a number behind ' * ', got {factors[0]!r}"
        ) from None
    return _parse_family(name.strip(), trusted), positive(f"features {text!r}: factor", factor)


def _parse_family(text: str, trusted: Collection[str] | None) -> Spec:
    found = _CLASS.match(text)
    name, _, rest = text.partition(":")
    if found and name.strip() not in _names():
        name, rest = found.group(), text[found.end() :].removeprefix(":")
    made = _class_of(name.strip(), f"features {text!r}", trusted)
    names = inspect.signature(made).parameters
    options: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in _COMMA.split(rest))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or key not in names:
            known = ", ".join(names) or "it has none"
            raise InputError(
                f"features {text!r}: expected options of the form name=value with name one of {known}; "
                f"got {part!r}{_meant(key, names)}"
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
    """The text of a family, for :func:`parse_features`."""
    if isinstance(spec, Concat):
        one = len(spec.members) == 1  # its factor tells that it is a Concat
        return " + ".join(
            spell_features(s) + (f" * {f:.17g}" if one or f != 1.0 else "") for s, f in spec.members
        )
    if isinstance(spec, Generator):
        given = {k: v for k, v in spec.options().items() if v is not None}
        name = family_name(spec)
    else:
        name = next(name for name, (own, _) in _OWN.items() if isinstance(spec, own))
        given = {
            f.name: getattr(spec, f.name)
            for f in fields(spec)
            if getattr(spec, f.name) != f.default
        }
    options = ",".join(f"{k}={_spell_value(v)}" for k, v in given.items())
    return name + (f":{options}" if options else "")


def _spell_value(value: Any) -> str:
    """An option's value as text; what would end it is escaped in the texts of a list."""
    if isinstance(value, list | tuple):
        text = json.dumps(list(value), separators=(",", ":"))
        inner = re.compile(r'"(?:[^"\\]|\\.)*"')
        return inner.sub(lambda m: re.sub(r"[ \[\],]", lambda c: f"\\u{ord(c[0]):04x}", m[0]), text)
    return str(value).lower() if value is True or value is False else str(value)


def _meant(given: str, among: Iterable[str], before: str = "") -> str:
    """The question whether a name like the given one was meant, or nothing."""
    near = get_close_matches(given, list(among), 1)
    return f"; did you mean {before}{near[0]}?" if near else ""


def _meant_class(name: str) -> str:
    """The question whether a colon was meant for the last dot, of ``module.Class``."""
    module, dot, last = name.rpartition(".")
    return f"; did you mean {module}:{last}?" if dot and module and last else ""


def is_spec(value: object) -> bool:
    """Whether it is a family that is not yet bound to rows."""
    return isinstance(value, Kmers | Bag | Concat | Generator)


def bind_features(
    spec: Spec, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None
) -> Family:
    """The family over the rows of a data set.

    keep : bool (n,), the rows that are trained on, None for all: families that learn from the data read a
        sample of them.
    """
    if isinstance(spec, Concat):
        return spec.bind(rows, keep)
    if not isinstance(spec, Generator):
        return spec.bind(rows)
    from fcl.features.generator import bind

    return bind(spec, rows, keep)


def family_from_config(config: Mapping[str, Any], trusted: Collection[str] | None = None) -> Family:
    """The family that a model was made with (:meth:`Family.to_config`).

    trusted : modules that a configuration from a file may import: these, modules in these packages, and
        those that an installed package names as an entry point; a module that is loaded already is used
        in any case. None: the configuration was made by this program.

    Raises InputError for a configuration that no family with checked options could have written.
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
        if name in _OWN:
            bound: Family = _OWN[name][1](**options)
            return bound
        from fcl.features.generator import GeneratedFamily

        made = _class_of(name, "model", trusted)(**options["options"])
        return GeneratedFamily.from_config(made, options)
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise InputError(
            f"model: bad description of its {shortened(name)} features: {shortened(str(error))}"
        ) from None


def check_home(generator: Generator) -> None:
    """Raise GeneratorError unless a model file, or another process, would find the class again.

    Modules are looked for, not run anew: what fails in the child alone is told when it starts.
    """
    name, cls = family_name(generator), type(generator)
    where = f"features {cls.__name__}"
    if "<locals>" in cls.__qualname__:
        raise GeneratorError(
            f"{where}: the class is defined inside a function, where neither another process nor a model "
            "can find it; move it to the top of a module"
        )
    try:
        found = _class_of(name, where, None)
    except GeneratorError:
        raise
    except InputError as error:
        raise GeneratorError(str(error)) from error
    if found is not cls:
        raise GeneratorError(
            f"{where}: expected the class at {name} to be that of the features, got another one; was its "
            "module loaded anew? Make the features again"
        )
    module = sys.modules[cls.__module__]
    for at in range(len(cls.__module__.split("."))):
        part = ".".join(cls.__module__.split(".")[: at + 1])
        parent = sys.modules.get(part.rpartition(".")[0])
        if not _can_be_found(part, getattr(parent, "__path__", None)):
            raise GeneratorError(
                f"{where}: another process cannot import its module {cls.__module__} "
                f"({getattr(module, '__file__', None) or 'made without a file'}): no {part} is found "
                "along sys.path; put its folder there (PYTHONPATH), or install it"
            )


def _can_be_found(module: str, path: Any) -> bool:
    """Whether a fresh interpreter with our sys.path finds a module, whatever is loaded here."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and find(module, path, None) is not None:
            return True
    return False


def _installed() -> list[EntryPoint]:
    """Families of installed packages; metadata in the working folder do not count as installed."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder was removed
        here = ""
    return [
        entry
        for entry in entry_points(group=ENTRY_POINTS)
        if entry.dist is None or os.path.realpath(str(entry.dist.locate_file(""))) != here
    ]


def _names() -> list[str]:
    return [*_OWN, *_BUILT_IN, *(entry.name for entry in _installed())]


def _class_of(name: str, where: str, trusted: Collection[str] | None) -> Any:
    """The class of a family by its name, or of ``module:Class``; trusted : as of family_from_config."""
    if name in _OWN:
        return _OWN[name][0]
    path = _BUILT_IN.get(name)
    if path is None and ":" in name:
        path = name
    if path is None or ":" in name:
        for entry in _installed():
            if entry.name == name:
                path = f"{entry.module}:{entry.attr}"
            if trusted is not None and path is not None and path.startswith(f"{entry.module}:"):
                trusted = [*trusted, entry.module]
    if path is None:
        raise InputError(
            f"{where}: unknown family {shown(name)}; there is: {', '.join(_names())}, or module:Class of "
            f"your own{_meant(name[:100], _names()) or _meant_class(name[:100])}"
        )
    return _import(path, where, trusted)


def _refuse_stranger(module: str, name: str, where: str) -> NoReturn:
    module = shortened(module)
    raise InputError(
        f"{where}: its features are the class {shortened(name)} of the module {module}. No file imports "
        "a module that you have not named: if you trust its code, give --import "
        f'{module}; in Python import it first, or give trusted=["{module}"]'
    )


def _import(path: str, where: str, trusted: Collection[str] | None) -> Any:
    module, _, name = path.partition(":")
    if module == "__main__":
        raise GeneratorError(
            f"{where}: the class {name} is defined in a script or notebook, where neither another "
            "process nor a model can find it; move it to a module of its own"
        )
    if not module or not name:
        raise InputError(f"{where}: expected module:Class, got {path!r}")
    # modules of fcl are trusted, and a loaded module runs no code again
    named = trusted is None or any(module == t or module.startswith(f"{t}.") for t in trusted)
    if not named and path not in _BUILT_IN.values():
        if module not in sys.modules:
            _refuse_stranger(module, name, where)
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        if found is None:
            raise InputError(f"{where}: the module {module} has no class {shortened(name)}")
        return _as_generator(found, path, where)
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        loaded = sys.modules.get(module)
        there = (
            [
                key
                for key, value in vars(loaded).items()
                if isinstance(value, type)
                and issubclass(value, Generator)
                and value is not Generator
            ]
            if loaded
            else []
        )
        raise InputError(
            f"{where}: {path} cannot be imported ({type(error).__name__}: {error}); is its module "
            f"installed, or in the folder where you are?{_meant(name, there, module + ':')}"
        ) from error
    return _as_generator(found, path, where)


def _as_generator(found: Any, path: str, where: str) -> type[Generator]:
    if not (isinstance(found, type) and issubclass(found, Generator)):
        raise InputError(
            f"{where}: {path} is not a subclass of fcl.features.Generator, but {found!r:.80}"
        )
    return found


def _checked_value(where: str, text: str, default: Any) -> Any:
    """An option's value; one whose default is a number or a bool takes no other kind."""
    value = _value(text)
    if isinstance(default, bool) and not isinstance(value, bool):
        raise InputError(f"{where} must be true or false, got {text!r}")
    if isinstance(value, list):
        return value
    if isinstance(default, int | float) and isinstance(value, str):
        raise InputError(f"{where} must be a number, got {text!r}")
    return value


def _value(text: str) -> Any:
    """An option's value: a number, yes or no, a list, or a word."""
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InputError(
                f'features: expected a list such as [1,2.5] or ["a","b"], got {text!r} ({error})'
            ) from None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
