"""Decorators that declare kernels, and the folder that keeps their machine code.

:func:`kernel` declares a kernel; :func:`inlined`, :func:`summing` and :func:`shared` declare small
functions that become part of the kernels that call them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fcl.checks import check_threads_variable
from fcl.config import say, say_once
from fcl.parallel import caller
from fcl.private_folder import make_private
from fcl.working_folder import NUMBA_SETTINGS

check_threads_variable()  # before numba fails

import numba  # noqa: E402
from numba.core import event  # noqa: E402
from numba.core.caching import CompileResultCacheImpl, _CacheLocator  # noqa: E402
from numba.extending import register_jitable  # noqa: E402

if TYPE_CHECKING:
    from fcl.clock import Clock

#: A process that is started by another one is silent, since that one has reported the folder.
_logger = logging.getLogger(__name__)
#: Prefix of the marker files, which say that all kernels of a kind are in the cache.
_COMPLETE = "complete"
#: An import of other files of this folder, whose code becomes part of the kernels that call it.
_IMPORT = re.compile(rb"^from fcl\.kernels(?:\.(\w+))? import (\([^)]*\)|.*)", re.MULTILINE)

#: Seconds of compiling whose end is worth a line.
SAID_FROM = 0.5

#: Options of functions that numba compiles as parts of kernels.
WITHIN_KERNELS = {"error_model": "numpy", "forceinline": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])


def _digest(*parts: Any) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _digests(folder: Path) -> dict[str, str]:
    """For each file of kernels a hash of its content and of the files that it imports; "" : of all.

    Numba's own cache checks only the file of a function: after a change to a callee in another file it
    returns the old code. Files without code of kernels do not count.
    """
    contents = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.py"))}
    for name in ("__init__", "compilation"):
        contents.pop(name)
    imports = {}
    for name, content in contents.items():
        words = {word for found in _IMPORT.findall(content) for word in found}
        own = {word.decode() for text in words for word in re.findall(rb"\w+", text)}
        imports[name] = own & contents.keys() - {name}
    found = {"": _digest(sorted(contents.items()))}
    for name in contents:
        reached, new = {name}, {name}
        while new:
            new = {other for each in new for other in imports[each]} - reached
            reached |= new
        found[name] = _digest([(each, contents[each]) for each in sorted(reached)])
    return found


_digest_of = _digests(Path(__file__).parent)


def _candidate_folders() -> list[Path]:
    config = numba.config
    # numba's own cache does not notice that bounds checking was enabled
    built = (
        numba.__version__,
        config.BOUNDSCHECK,
        config.OPT,
        config.CPU_NAME,
        config.CPU_FEATURES,
    )
    name = f"kernels-{_digest(sys.version, *built)}"
    folders = []
    named = numba.config.CACHE_DIR
    if os.path.lexists(NUMBA_SETTINGS):  # a stranger's data may have come with it
        named = os.environ.get("NUMBA_CACHE_DIR")
    if named:
        folders.append(Path(named) / "fcl" / name)
    elif sys.platform == "darwin":
        folders.append(Path.home() / "Library" / "Caches" / "fcl" / name)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or (Path.home() / ".cache")
        folders.append(Path(base) / "fcl" / name)
    folders.append(Path(tempfile.gettempdir()) / f"fcl-{os.getuid()}" / name)
    return folders


def _find_cache_folder() -> Path | None:
    """Return the first writeable folder into which no other user can put code."""
    try:
        candidates = _candidate_folders()
    except RuntimeError:  # no home folder
        return None
    unsafe = ""
    usable = None
    for folder in candidates:
        try:
            reason = make_private(folder)
            if not reason:
                with tempfile.TemporaryFile(dir=folder):
                    usable = folder
                    break
        except OSError:
            continue
        unsafe = unsafe or f"{folder.parent} is not used for compiled kernels ({reason})"
    if unsafe:
        instead = f"they are kept in {usable}" if usable else "each process compiles them again"
        _logger.warning(
            "%s; %s; name a folder that only you can write in NUMBA_CACHE_DIR", unsafe, instead
        )
    return usable


#: Folder of the compiled kernels; None if no folder is writeable, so that every process compiles them.
cache_folder: Path | None = _find_cache_folder()


def kernel(function: F) -> F:
    """Compile ``function`` on first use: ``nogil``, cached on disk, division as in NumPy.

    Machine code is cached in :data:`cache_folder`, in a folder for each content of the files that it
    comes from, so that a new version of fcl compiles only what changed. Other numba settings of the
    program are not changed.
    """
    return _compiled(function)


def inlined(function: F) -> F:
    """Like :func:`kernel`, but each kernel that calls ``function`` contains its machine code.

    Loops that call it can then compile to vector instructions. For small functions.
    """
    return _compiled(function, forceinline=True)


def summing(function: F) -> F:
    """Like :func:`inlined`, but the terms of its sums are added in any order, so by vector instructions.

    Another processor may round them differently: this is for numbers that no certificate depends on.
    """
    return _compiled(function, forceinline=True, fastmath={"reassoc"})


def shared(function: F) -> F:
    """Declare a small function that Python calls uncompiled, and kernels compiled."""
    found: F = register_jitable(**WITHIN_KERNELS)(function)
    return found


class _ContentLocator(_CacheLocator):  # type: ignore[misc]
    """Places machine code in a folder named by its sources, wherever and whenever they were installed."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._folder = str(numba.config.CACHE_DIR)
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return self._folder.rpartition("-")[2]

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _ContentLocator:
        return cls(function)


def _compiled(function: F, **options: Any) -> F:
    before = numba.config.CACHE_DIR, CompileResultCacheImpl._locator_classes
    # no C code calls kernels; without wrappers for such calls, compiling takes a tenth less
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    if cache_folder is not None:
        file = Path(function.__code__.co_filename)
        if file.parent == Path(__file__).parent:
            CompileResultCacheImpl._locator_classes = [_ContentLocator]
        content = _digest_of.get(file.stem if file.parent == Path(__file__).parent else "", "")
        numba.config.CACHE_DIR = str(cache_folder / f"{file.stem}-{_digest(content, options)}")
    try:
        compiled: F = numba.njit(cache=cache_folder is not None, **options)(function)
        return compiled
    finally:
        numba.config.CACHE_DIR, CompileResultCacheImpl._locator_classes = before


def is_compiled(kind: str) -> bool:
    """Whether all kernels of a kind are in the cache; also True if there is no cache folder."""
    return cache_folder is None or _marker(cache_folder, kind).exists()


def mark_compiled(kind: str) -> None:
    """Record that all kernels of a kind have been compiled."""
    if cache_folder is not None:
        with suppress(OSError):
            _marker(cache_folder, kind).touch()


def _marker(folder: Path, kind: str) -> Path:
    return folder / f"{_COMPLETE}-{kind}-{_digest_of['']}"


class Compilation(event.Listener):  # type: ignore[misc]
    """Context manager that notices when this thread, or one that helps it, compiles a kernel of fcl.

    Loading a kernel from the cache does not count.

    begun : called before the first kernel is compiled, and again if more are compiled after :meth:`take`.
    clock : paused while kernels compile.
    """

    def __init__(self, begun: Callable[[], None], clock: Clock | None = None) -> None:
        self._begun = begun
        self._clock = clock
        self._thread = threading.get_ident()
        self._announced = False
        self._depth = 0  # compiling a kernel also compiles the kernels that it calls
        self._since = self._seconds = self._total = 0.0

    def __enter__(self) -> Compilation:
        event.register("numba:compile", self)
        return self

    def __exit__(self, *error: object) -> None:
        event.unregister("numba:compile", self)
        if self._total > SAID_FROM:
            say(f"kernels compiled in {self._total:.0f} s")
        self._begun = lambda: None  # it may refer to this object's owner

    def begin(self) -> None:
        """Record that compilation has begun, here or in a process that was started for it."""
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()
            if self._clock is not None:
                self._clock.pause()
            # what a helper thread compiles is announced with the next kernel of this one
            if not self._announced and threading.get_ident() == self._thread:
                self._announced = True
                say_once(
                    "compiling kernels, once for this machine, which may take half a minute "
                    "(fcl.set_config(verbose=0) or FCL_QUIET=1 silences this)"
                )
                self._begun()

    def end(self) -> None:
        """Record that the compilation that :meth:`begin` recorded has ended."""
        self._depth -= 1
        if self._depth == 0:
            seconds = time.perf_counter() - self._since
            self._seconds += seconds
            self._total += seconds
            if self._clock is not None:
                self._clock.resume()

    def take(self) -> float:
        """Seconds spent on compiling since the last call; 0 if nothing was compiled."""
        seconds, self._seconds, self._announced = self._seconds, 0.0, self._depth > 0
        return seconds

    def on_start(self, event: Any) -> None:
        """See :class:`numba.core.event.Listener`."""
        if self._is_ours(event):
            self.begin()

    def on_end(self, event: Any) -> None:
        """See :class:`numba.core.event.Listener`."""
        if self._is_ours(event):
            self.end()

    def _is_ours(self, event: Any) -> bool:
        module: str = event.data["dispatcher"].py_func.__module__
        return caller() == self._thread and module.startswith(f"{__package__}.")
