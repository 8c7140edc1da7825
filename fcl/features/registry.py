"""Looks up families of fcl, of installed packages and of users by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from fcl.checks import shortened, shown
from fcl.errors import GeneratorError, InputError
from fcl.features.bag import Bag, BagFamily
from fcl.features.generator.contract import Generator, family_name
from fcl.features.kmers import KmerFamily, Kmers
from fcl.working_folder import import_module, why_missing

#: Entry-point group in which other packages register their families.
ENTRY_POINTS = "fcl.generators"
#: Families not built on Generator: the classes before and after binding to rows.
OWN: dict[str, tuple[type[Kmers] | type[Bag], Any]] = {
    "kmers": (Kmers, KmerFamily),
    "bag": (Bag, BagFamily),
}
_BUILT_IN = {
    "columns": "fcl.features.plain:Columns",
    "fourier": "fcl.features.fourier:Fourier",
    "hinges": "fcl.features.hinges:Hinges",
    "products": "fcl.features.products:Products",
}


def meant(given: str, among: Iterable[str], before: str = "") -> str:
    """A suggestion such as "; did you mean kmers?", or an empty text if no name is similar."""
    near = get_close_matches(given, list(among), 1)
    return f"; did you mean {before}{near[0]}?" if near else ""


def _meant_class(name: str) -> str:
    """A suggestion of ``module:Class`` for a name ``module.Class``, or an empty text."""
    module, dot, last = name.rpartition(".")
    return f"; did you mean {module}:{last}?" if dot and module and last else ""


def check_home(generator: Generator) -> None:
    """Raise GeneratorError unless another process, or the reader of a model, can find the class.

    This locates modules but does not run them again: an import that fails only in a child process is
    reported when the child starts.
    """
    name, cls = family_name(generator), type(generator)
    where = f"features {cls.__name__}"
    if "<locals>" in cls.__qualname__:
        raise GeneratorError(
            f"{where}: the class is defined inside a function, where neither another process nor a model "
            "can find it; move it to the top of a module"
        )
    try:
        found = class_of(name, where, None)
    except GeneratorError:
        raise
    except InputError as error:
        raise GeneratorError(str(error)) from error
    if found is not cls:
        raise GeneratorError(
            f"{where}: {name} is no longer the class of these features; if its module was "
            "reloaded, create the features again"
        )
    module = sys.modules[cls.__module__]
    for at in range(len(cls.__module__.split("."))):
        part = ".".join(cls.__module__.split(".")[: at + 1])
        parent = sys.modules.get(part.rpartition(".")[0])
        if not _can_be_found(part, getattr(parent, "__path__", None)):
            raise GeneratorError(
                f"{where}: another process cannot import its module {cls.__module__} "
                f"({getattr(module, '__file__', None) or 'created without a file'}): {part} is not "
                "found on sys.path; add its folder (PYTHONPATH), or install it"
            )


def _can_be_found(module: str, path: Any) -> bool:
    """Whether a new interpreter with the current sys.path would find a module."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if find is not None and find(module, path, None) is not None:
            return True
    return False


def _installed() -> list[EntryPoint]:
    """Families of installed packages; ignores package metadata in the working folder."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder was removed
        here = ""
    return [
        entry
        for entry in entry_points(group=ENTRY_POINTS)
        if entry.dist is None or os.path.realpath(str(entry.dist.locate_file(""))) != here
    ]


def family_names() -> list[str]:
    """Names of the families of fcl and of installed packages."""
    return [*OWN, *_BUILT_IN, *(entry.name for entry in _installed())]


def is_built_in_name(name: str) -> bool:
    """Whether a family of fcl has this name."""
    return name in OWN or name in _BUILT_IN


def class_of(name: str, where: str, trusted: Collection[str] | None) -> Any:
    """The class of a family, by name or as ``module:Class``.

    trusted : as in :func:`fcl.features.family_from_config`.
    """
    if name in OWN:
        return OWN[name][0]
    path = _BUILT_IN.get(name)
    if path is None and ":" in name:
        path = name
    if path is None or ":" in name:
        for entry in _installed():
            if entry.name == name:
                path = f"{entry.module}:{entry.attr}"
            if trusted is not None and path is not None and path.startswith(f"{entry.module}:"):
                trusted = [*trusted, entry.module]
    if path is None and name == "hashed":
        raise InputError(
            f"{where}: only online learners hash features; name the features themselves, and give "
            "--hash-bits of fcl online, or hash_bits in Python"
        )
    if path is None:
        names = family_names()
        raise InputError(
            f"{where}: unknown family {shown(name)}; expected one of {', '.join(names)}, or "
            f"module:Class for a class of your own{meant(name[:100], names) or _meant_class(name[:100])}"
        )
    return _import(path, where, trusted)


def _import(path: str, where: str, trusted: Collection[str] | None) -> Any:
    module, _, name = path.partition(":")
    if module == "__main__":
        raise GeneratorError(
            f"{where}: the class {name} is defined in a script or notebook, where neither another "
            "process nor a model can find it; move it to a module of its own"
        )
    if not module or not name:
        raise InputError(f"{where}: expected module:Class, got {path!r}")
    # families of fcl are trusted, and looking up a loaded module runs no code
    named = trusted is None or any(module == t or module.startswith(f"{t}.") for t in trusted)
    if not named and path not in _BUILT_IN.values():
        if module not in sys.modules:
            module = shortened(module)
            raise InputError(
                f"{where}: its features are the class {shortened(name)} of the module {module}, which "
                "fcl imports for a file only if you have named it: if you trust its code, pass --import "
                f'{module}; in Python, import it first, or pass trusted=["{module}"]'
            )
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = vars(found).get(part) if hasattr(found, "__dict__") else None
        if found is None:
            raise InputError(f"{where}: the module {module} has no class {shortened(name)}")
        return _as_generator(found, path, where)
    try:
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        loaded = sys.modules.get(module)
        there = [
            key
            for key, value in (vars(loaded) if loaded else {}).items()
            if isinstance(value, type) and issubclass(value, Generator) and value is not Generator
        ]
        hint = why_missing(error) or meant(name, there, f"{module}:")
        if module.endswith(".py"):
            hint = f"; write {module[:-3]}:{name}"
        raise InputError(
            f"{where}: {path} cannot be imported ({type(error).__name__}: {error}); is its module "
            f"installed, or in the current folder?{hint}"
        ) from error
    return _as_generator(found, path, where)


def _as_generator(found: Any, path: str, where: str) -> type[Generator]:
    if not (isinstance(found, type) and issubclass(found, Generator)):
        raise InputError(
            f"{where}: {path} is not a subclass of fcl.features.Generator, but {found!r:.80}"
        )
    return found
