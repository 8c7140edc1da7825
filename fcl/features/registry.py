"""Families by name: their text on the command line, and their description in a model."""

from __future__ import annotations

import importlib
import inspect
import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from fcl.errors import InputError
from fcl.features.generator import Generator, decode, family_name
from fcl.features.kmers import KmerFamily, Kmers

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.features.base import Family

__all__ = ["Spec", "bind_features", "family_from_config", "parse_features", "spell_features"]

#: A family with its options, not yet bound to rows.
Spec = Kmers | Generator

#: Other packages name their families here.
ENTRY_POINTS = "fcl.generators"
_BUILT_IN = {
    "columns": "fcl.features.plain:Columns",
    "fourier": "fcl.features.fourier:Fourier",
}
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*(?=:|$)")


def parse_features(text: str) -> Spec:
    """A family from its text: ``kmers:d=8,origin=70``, ``columns``, ``module:Class:option=value``.

    Raises InputError for an unknown family or option, or a class that cannot be imported.
    """
    found = _CLASS.match(text)
    name, _, rest = text.partition(":")
    if found and name.strip() not in _names():
        name, rest = found.group(), text[found.end() :].removeprefix(":")
    made = _class_of(name.strip(), f"features {text!r}")
    names = inspect.signature(made).parameters
    options: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = (p.strip() for p in part.partition("="))
        if not equals or key not in names:
            known = ", ".join(names) or "it has none"
            raise InputError(
                f"features {text!r}: expected options of the form name=value with name one of {known}; "
                f"got {part!r}"
            )
        options[key] = _value(value)
    for key, parameter in names.items():
        if parameter.default is parameter.empty and key not in options:
            raise InputError(f"features {text!r}: {key} is missing; for instance {name}:{key}=8")
    found_spec: Spec = made(**options)
    return found_spec


def spell_features(spec: Spec) -> str:
    """The text of a family, for :func:`parse_features`."""
    if isinstance(spec, Kmers):
        return f"kmers:d={spec.d}" + (f",origin={spec.origin}" if spec.origin else "")
    given = ",".join(f"{k}={v}" for k, v in spec.options().items() if v is not None)
    return family_name(spec) + (f":{given}" if given else "")


def bind_features(spec: Spec, rows: RowReader[Any]) -> Family:
    """The family over the rows of a data set; families that learn from the data read a sample."""
    if isinstance(spec, Kmers):
        return spec.bind(rows)
    from fcl.features.generated import bind

    return bind(spec, rows)


def family_from_config(config: dict[str, Any]) -> Family:
    """The family that a model was made with (:meth:`Family.to_config`)."""
    options = dict(config)
    name = options.pop("family", None)
    if not isinstance(name, str):
        raise InputError(f"model: expected the name of its family of features, got {name!r}")
    try:
        if name == "kmers":
            return KmerFamily(**options)
        from fcl.features.generated import GeneratedFamily
        from fcl.features.generated.forms import form_from_config

        generator = _class_of(name, "model")(**options["options"])
        generator.restore({key: decode(value) for key, value in options["state"].items()})
        return GeneratedFamily(generator, form_from_config(options["form"]))
    except (TypeError, KeyError) as error:
        raise InputError(f"model: bad description of its {name} features: {error}") from None


def _names() -> list[str]:
    return ["kmers", *_BUILT_IN, *(entry.name for entry in entry_points(group=ENTRY_POINTS))]


def _class_of(name: str, where: str) -> Any:
    """The class of a family by its name, or of ``module:Class``."""
    if name == "kmers":
        return Kmers
    path = _BUILT_IN.get(name)
    if path is None and ":" in name:
        path = name
    for entry in entry_points(group=ENTRY_POINTS) if path is None else ():
        if entry.name == name:
            path = entry.value
    if path is None:
        raise InputError(
            f"{where}: unknown family {name!r}; there is: {', '.join(_names())}, or module:Class of "
            "your own"
        )
    return _import(path, where)


def _import(path: str, where: str) -> Any:
    module, _, name = path.partition(":")
    if module == "__main__":
        raise InputError(
            f"{where}: the class {name} is defined in a script or notebook, where neither another "
            "process nor a model can find it; move it to a module of its own"
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise InputError(
            f"{where}: {path} cannot be imported ({type(error).__name__}: {error}); is its module "
            "installed, or in the folder where you are?"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Generator)):
        raise InputError(
            f"{where}: {path} is not a subclass of fcl.features.Generator, but {found!r:.80}"
        )
    return found


def _value(text: str) -> Any:
    """An option's value: a number, yes or no, or a word."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
