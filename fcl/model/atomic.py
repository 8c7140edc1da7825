"""Files that become visible whole or not at all.

A file is written beside its target, flushed to the disk, and renamed; then the folder is flushed
too, so that after a crash of the machine the name points to the old file or to the whole new one.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from fcl.errors import InputError

__all__ = ["atomic_file", "atomic_folder", "check_name", "check_output", "discard_temporaries"]

# what a process that leaves in a hurry has to take away
_temporaries: set[str] = set()

#: a folder is replaced only if it holds one of these, that is, if it is an earlier Zarr output
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


def _no_step(name: str) -> None:
    """Nothing happens between the steps."""


#: called with the name of each step of writing a file; tests put one here that fails
step: Callable[[str], None] = _no_step


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise InputError if the file system cannot have a file of this name, or of its temporary."""
    for name in (os.fspath(path), _beside(Path(path))):
        try:
            os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):  # which are reported elsewhere
            continue
        except (OSError, ValueError) as error:
            raise InputError(
                f"{os.fspath(path)}: cannot be written ({getattr(error, 'strerror', None) or error}); "
                "choose another name, which leaves 30 bytes for a temporary one"
            ) from error


def check_output(path: str | os.PathLike[str], overwrite: bool, folder: bool = False) -> Path:
    """The real path of an output, if it may be written: to be asked before the work begins.

    Raises InputError if its folder is missing or not writable, if it exists and `overwrite` is
    false, if no file can have its name, or if it is of another kind (a folder in place of a file, a
    device, a folder that is no Zarr store), which is never replaced.
    """
    target = _target(path, overwrite, folder)
    probe = _beside(target)
    try:  # permissions do not tell of file systems that refuse all the same
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(probe)
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: no file can be made in {os.fspath(target.parent)} "
            f"({error.strerror}); write elsewhere"
        ) from error
    return target


def _target(path: str | os.PathLike[str], overwrite: bool, folder: bool = False) -> Path:
    """The real path of an output; raises InputError for all that needs no writing to be known."""
    shown, target = os.fspath(path), Path(os.path.realpath(path))
    if not os.path.isdir(target.parent):
        raise InputError(
            f"{shown}: the folder {os.fspath(target.parent)} does not exist; make it first"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{shown}: the folder {os.fspath(target.parent)} is not writable; write elsewhere"
        )
    check_name(target)
    try:
        mode = target.lstat().st_mode
    except FileNotFoundError:
        return target
    if folder and stat.S_ISDIR(mode):
        if not any((target / name).is_file() for name in _ZARR_FILES) and any(target.iterdir()):
            raise InputError(
                f"{shown}: is a folder that holds something else than a Zarr store and is never "
                "replaced; choose another name"
            )
    elif not stat.S_ISREG(mode):
        raise InputError(f"{shown}: exists and is not a regular file; choose another name")
    if not overwrite:
        raise InputError(
            f"{shown}: exists already; choose another name or overwrite it on purpose (--overwrite)"
        )
    return target


def _beside(target: Path) -> str:
    return os.fspath(target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _flush_file(file: BinaryIO) -> None:
    file.flush()
    if sys.platform == "darwin":  # there fsync leaves the data in the drive's own cache
        import fcntl

        with suppress(OSError):  # not every file system has it
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
            return
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # some network file systems refuse to flush a folder; the rename itself stands
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _discard(path: str) -> None:
    with suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    _temporaries.discard(path)


def discard_temporaries() -> None:
    """Remove what is half written, for a process that leaves without unwinding its stack."""
    for path in list(_temporaries):
        _discard(path)


@contextmanager
def atomic_file(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[BinaryIO]:
    """A binary file open for writing that becomes `path` when the block ends without an error.

    Raises InputError as `check_output` does; after any error the target is what it was before.
    """
    target = _target(path, overwrite)
    temporary = _beside(target)
    _temporaries.add(temporary)
    try:
        # not tempfile: its files are private (0600), an output follows the user's umask
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with open(descriptor, "wb") as file:
            step("open")
            yield file
            step("flush")
            _flush_file(file)
        _target(path, overwrite)  # somebody else may have written it in the meantime
        step("rename")
        os.replace(temporary, target)
        step("renamed")
    except BaseException:
        _discard(temporary)
        raise
    _temporaries.discard(temporary)
    _flush_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that becomes `path` when the block ends without an error.

    A Zarr store at `path` is moved away first and removed at the very end, so that at no moment
    both are gone. Raises InputError as `check_output` does.
    """
    target = _target(path, overwrite, folder=True)
    temporary = _beside(target)
    _temporaries.add(temporary)
    try:
        os.mkdir(temporary)
        yield Path(temporary)
        _target(path, overwrite, folder=True)
        old = None
        if target.exists():
            old = _beside(target)
            os.rename(target, old)
        try:
            os.rename(temporary, target)
        except OSError:
            if old is not None:
                os.rename(old, target)
            raise
    except BaseException:
        _discard(temporary)
        raise
    _temporaries.discard(temporary)
    _flush_folder(target.parent)
    if old is not None:
        _discard(old)
