"""The working folder as a place of modules: a command takes from there only what the user named.

A stranger's data may come with files such as ``org.py``, and libraries look for optional modules of many
names. So the working folder is not on ``sys.path`` of a command or of its children. A finder serves the
module that the user names (``--features module:Class``, ``--import``) under its own name. What this
module imports from the folder in turn is loaded under another name, ``working_folder.helper``, so that
no library can get it, neither by a finder nor from ``sys.modules``.
"""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module as _import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import Any

#: Package under which the helpers of the user's modules are loaded.
PREFIX = "working_folder"
#: File of settings that numba reads from the working folder.
NUMBA_SETTINGS = ".numba_config.yaml"


class _Loader(SourceFileLoader):
    """Loads a module whose ``import`` statements may find other modules of the working folder."""

    def __init__(self, name: str, path: str, finder: _Finder) -> None:
        super().__init__(name, path)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        """See :class:`importlib.abc.Loader`; functions of the module keep these builtins."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._finder.import_from}
        super().exec_module(module)


class _NumbaConfigLoader(SourceFileLoader):
    """Loads the module that would read numba's settings from the working folder."""

    def exec_module(self, module: ModuleType) -> None:
        """See :class:`importlib.abc.Loader`."""
        missing = object()
        before: Any = sys.modules.get("yaml", missing)
        sys.modules["yaml"] = None  # type: ignore[assignment]  # without it numba reads no such file
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "A Numba config file is found")
                super().exec_module(module)
        finally:
            del sys.modules["yaml"]
            if before is not missing:
                sys.modules["yaml"] = before
        vars(module)["_config_fname"] = os.devnull  # numba looks again when it compiles


class _Finder:
    """Finds the named modules of a folder, their submodules, and their helpers.

    Settings of numba in the working folder are kept from numba.

    named : modules that the user named and that are found here, without submodules.
    """

    def __init__(self, folder: str, named: Iterable[str] = ()) -> None:
        self.folder, self.named = folder, set(named)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`."""
        top, dot, _ = fullname.partition(".")
        if fullname == PREFIX:
            package = ModuleSpec(PREFIX, None, is_package=True)
            package.submodule_search_locations = [self.folder]
            return package
        if fullname == "numba.core.config":
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and type(spec.loader) is SourceFileLoader:
                spec.loader = _NumbaConfigLoader(fullname, spec.loader.path)
            return spec
        if top != PREFIX and top not in self.named:
            return None
        spec = PathFinder.find_spec(fullname, path if dot else [self.folder])
        if spec is None:
            return None
        if spec.submodule_search_locations is not None:
            # that of a folder without __init__.py would look at sys.path again
            spec.submodule_search_locations = list(spec.submodule_search_locations)
        if type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(fullname, spec.loader.path, self)
        return spec

    def name(self, module: str) -> None:
        """Serve a module that the user named, unless it is loaded or found elsewhere."""
        top = module.partition(".")[0]
        if top and top not in sys.modules and find_spec(top) is None and self.has(top):
            self.named.add(top)

    def has(self, top: str) -> bool:
        """Whether the folder has a module or package of this name."""
        return PathFinder.find_spec(top, [self.folder]) is not None

    def import_from(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """The function ``__import__`` of modules of the folder: what is installed comes first."""
        top = name.partition(".")[0]
        # a list comes from C, such as pickle's, which then looks into sys.modules
        elsewhere = level != 0 or isinstance(fromlist, list)
        if elsewhere or f"{PREFIX}.{top}" not in sys.modules:
            try:
                return builtins.__import__(name, globals, locals, fromlist or (), level)
            except ModuleNotFoundError as error:
                if elsewhere or error.name != top or not self.has(top):
                    raise
        found = _import_module(f"{PREFIX}.{name}")
        if not fromlist:
            return sys.modules[f"{PREFIX}.{top}"]
        # once more, for submodules that ``from`` names
        return builtins.__import__(found.__name__, globals, locals, fromlist)


#: The last one is in use.
_finders: list[_Finder] = []


def protect(folder: str, named: Iterable[str] = ()) -> None:
    """Serve the named modules of a folder, and no others, from now on."""
    _finders.append(_Finder(folder, named))
    sys.meta_path.insert(0, _finders[-1])


@contextmanager
def protected() -> Iterator[None]:
    """Serve named modules of the working folder, and no others, while a command runs."""
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        yield
        return
    protect(folder)
    try:
        yield
    finally:
        sys.meta_path.remove(_finders.pop())


def handed_on() -> dict[str, Any]:
    """The arguments of :func:`protect` for another process; empty if this one is not protected."""
    return {"folder": _finders[-1].folder, "named": in_use()} if _finders else {}


def in_use() -> list[str]:
    """The modules that are taken from the working folder, without submodules and helpers."""
    return sorted(_finders[-1].named) if _finders else []


def import_module(name: str) -> ModuleType:
    """Import a module that the user named; a command finds it in the working folder, too."""
    if _finders:
        _finders[-1].name(name)
    return _import_module(name)


def can_be_found(name: str) -> bool:
    """Whether the package of a module is loaded, installed, or in the working folder of a command."""
    top = name.partition(".")[0]
    found = top in sys.modules or find_spec(top) is not None
    return found or (bool(_finders) and _finders[-1].has(top))


def why_missing(error: BaseException) -> str:
    """For a message: if a module was not found that is in the working folder, what to do."""
    top = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not _finders or not top:
        return ""
    if top in in_use() or top == PREFIX or not _finders[-1].has(top):
        return ""
    return (
        f"; {top} is in the working folder, from which fcl imports only the modules that you name "
        "(--features, --import) and what these import; to import all, put the folder into PYTHONPATH"
    )
