"""Files that become visible complete or not at all.

A file is written beside its target, flushed to the disk, and put in place by an operation that fails if
another process has taken the name, unless it may be replaced; then the folder is flushed too, so that
after a crash of the machine the name refers to the old file or to the complete new one. A result whose
name was taken gets an unused name beside it, so that it is not lost.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fcl.errors import InputError, OutputExistsError
from fcl.store import Location, RemotePath, locate, put_in_place
from fcl.store.writing import check_remote_output, remote_file, remote_folder

#: errors of a full disk, and seconds between two attempts
_FULL = (errno.ENOSPC, errno.EDQUOT)
_TRY_EVERY = 1.0
#: seconds after each attempt to remove a partial file
_REMOVAL_WAITS = (0.0, *[0.05] * 20)
#: errors of file systems without links
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)

# partial files, which a process must remove even if it exits without unwinding
_temporaries: set[str] = set()

#: a folder is replaced only if it is empty or holds one of these, as an earlier Zarr output does
_ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")


def _no_step(name: str) -> None:
    """Do nothing between the steps."""


#: called with the name of each step of writing a file; tests replace it to make a step fail
step: Callable[[str], None] = _no_step


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise InputError if the file system rejects this name or the name of its temporary file."""
    for name in (os.fspath(path), _beside(Path(path))):
        try:
            os.lstat(name)
        except (FileNotFoundError, NotADirectoryError):  # reported elsewhere
            continue
        except (OSError, ValueError) as error:
            raise InputError(
                f"{os.fspath(path)}: cannot be written ({getattr(error, 'strerror', None) or error}); "
                "choose a shorter name: the name of the temporary file is about 20 bytes longer"
            ) from error


def check_output(path: str | os.PathLike[str], overwrite: bool, folder: bool = False) -> Location:
    """Check before the work that an output can be written; returns its real path or place in a store."""
    place = locate(path)
    if isinstance(place, RemotePath):
        check_remote_output(place, overwrite, folder)
        return place
    target = _target(place, overwrite, folder)
    probe = _beside(target)
    try:  # a file system may reject a file in spite of the permissions
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.unlink(probe)
    except OSError as error:
        raise InputError(
            f"{os.fspath(path)}: no file can be created in {os.fspath(target.parent)} "
            f"({error.strerror}); write elsewhere"
        ) from error
    return target


def _target(path: str | os.PathLike[str], overwrite: bool, folder: bool = False) -> Path:
    """Make the checks of `check_output` that write nothing."""
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
        if not _holds_zarr(target) and any(target.iterdir()):
            raise InputError(
                f"{shown}: is a folder that holds something other than a Zarr store and is never "
                "replaced; choose another name"
            )
    elif not stat.S_ISREG(mode):
        raise InputError(f"{shown}: exists and is not a regular file; choose another name")
    elif folder and overwrite:
        raise InputError(
            f"{shown}: is a file, which a folder does not replace; choose another name, or remove it"
        )
    if not overwrite:
        raise OutputExistsError(shown)
    return target


def _beside(target: Path) -> str:
    """A new name for a temporary file or folder beside the target."""
    return os.fspath(target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _make_locked(target: Path, folder: bool) -> tuple[str, int]:
    """Make a temporary file or folder beside a target, locked, which shows that its writer is alive.

    Returns its name and its descriptor.
    """
    while True:
        temporary = _beside(target)
        _temporaries.add(temporary)
        try:
            if folder:
                os.mkdir(temporary)
            # not tempfile, whose files are private (0600): an output follows the user's umask
            flags = os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
            descriptor = os.open(temporary, flags, 0o666)
        except BaseException as error:
            _discard(temporary)
            if isinstance(error, FileNotFoundError) and target.parent.is_dir():
                continue  # removed before it was opened
            raise
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(temporary)):
                return temporary, descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        except OSError:  # some file systems have no locks; leftovers then stay, too
            return temporary, descriptor
        # another process took it for the leftover of a killed writer before it was locked
        os.close(descriptor)
        _discard(temporary)


def _remove_leftovers(target: Path) -> None:
    """Remove the temporary files of killed writers of this target."""
    leftover = re.compile(re.escape(f".{target.name}.") + r"[0-9]+-[0-9a-f]{8}\.tmp")
    with suppress(OSError):
        for name in os.listdir(target.parent):
            if leftover.fullmatch(name):
                _remove_leftover(os.fspath(target.parent / name))


def _remove_leftover(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _discard(path)
    except OSError:  # its writer is alive
        pass
    finally:
        os.close(descriptor)


def _flush_file(file: BinaryIO) -> None:
    file.flush()
    if sys.platform == "darwin":  # there fsync leaves the data in the drive's cache
        with suppress(OSError):  # not every file system supports it
            fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)
            return
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    # some network file systems cannot flush a folder; the rename is valid nevertheless
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _discard(path: str) -> None:
    for wait in _REMOVAL_WAITS:  # other threads may still write, or hold all file descriptors
        with suppress(OSError):
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
                _remove_with_few_descriptors(path)
            else:
                os.unlink(path)
        if not os.path.lexists(path):
            break
        time.sleep(wait)
    _temporaries.discard(path)


def _remove_with_few_descriptors(folder: str) -> None:
    """Remove what shutil left of a folder, with a single file descriptor; it needs two for each level."""
    for parent, folders, files in os.walk(folder, topdown=False):
        for name in files:
            os.unlink(os.path.join(parent, name))
        for name in folders:
            os.rmdir(os.path.join(parent, name))
    if os.path.isdir(folder):
        os.rmdir(folder)


def discard_temporaries() -> None:
    """Remove partial files, for a process that exits without unwinding its stack."""
    for path in list(_temporaries):
        _discard(path)


@contextmanager
def atomic_file(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[BinaryIO]:
    """Open a binary file for writing that becomes `path` when the block ends without an error."""
    place = locate(path)
    if isinstance(place, RemotePath):
        with remote_file(place, overwrite) as remote:
            yield remote
        return
    path = place
    target = _target(path, overwrite)
    _remove_leftovers(target)
    temporary, descriptor = _make_locked(target, folder=False)
    try:
        with open(descriptor, "wb") as file:
            step("open")
            yield file
            step("flush")
            _flush_file(file)
            # within the block, whose lock keeps other processes from removing the temporary file
            step("rename")
            put_in_place(target, overwrite, partial(_name_file, temporary), path)
            step("renamed")
    except BaseException:
        _discard(temporary)
        raise
    finally:
        _flush_folder(target.parent)
    _temporaries.discard(temporary)


def _name_file(temporary: str, target: Path, replace: bool) -> None:
    """Give a file its name; raises FileExistsError if the name is taken."""
    (_replace_file if replace else _link_file)(temporary, target)


def _replace_file(temporary: str, target: Path) -> None:
    """Rename a file; raises FileExistsError if a folder or device has taken the name."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(target))
    os.replace(temporary, target)


def _link_file(temporary: str, target: Path) -> None:
    """Rename a file; raises FileExistsError if the name is taken, also in the last moment."""
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # reserve the name, then replace the empty file
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            os.replace(temporary, target)
        except BaseException:
            _discard(os.fspath(target))
            raise
    else:
        _discard(temporary)


def _rename_folder(temporary: str, target: Path) -> None:
    """Rename a folder; raises FileExistsError if the name is taken by anything but an empty folder."""
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, error.strerror, os.fspath(target)) from None
        raise


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder to fill that becomes `path`, which must be missing or empty, at the end of the block.

    If `path` has something in it by then, the folder gets an unused name beside it, and OutputExistsError
    gives this name.
    """
    target = Path(os.path.realpath(path))
    with _temporary_folder(target) as temporary:
        yield Path(temporary)
        step("rename")
        put_in_place(target, False, lambda name, _: _rename_folder(temporary, name), path)


@contextmanager
def _temporary_folder(target: Path) -> Iterator[str]:
    """Make a folder beside a target, locked; it is removed after an error."""
    temporary, descriptor = _make_locked(target, folder=True)
    try:
        yield temporary
    except BaseException:
        os.close(descriptor)  # perhaps the only one that is left for what follows
        _discard(temporary)
        raise
    os.close(descriptor)
    _temporaries.discard(temporary)
    _flush_folder(target.parent)


@contextmanager
def atomic_folder(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Make a folder to fill that becomes `path` when the block ends without an error.

    A Zarr store at `path` is first moved away, and removed only at the end, so that one of the two always
    exists. Raises InputError as `check_output` does. If another process takes the name during the block,
    the folder gets an unused name beside it, and OutputExistsError gives this name. A store at a URL is
    made on the local disk first.
    """
    place = locate(path)
    if isinstance(place, RemotePath):
        with remote_folder(place, overwrite) as remote:
            yield remote
        return
    path = place
    target = _target(path, overwrite, folder=True)
    old: list[str] = []

    def put(temporary: str, name: Path, replace: bool) -> None:
        if replace and _holds_zarr(target):
            old.append(_beside(target))
            os.rename(target, old[-1])
        try:
            _rename_folder(temporary, name)
        except BaseException:
            with suppress(OSError):  # unless another process has put its own there
                if old:
                    os.rename(old[-1], target)
            raise

    try:
        with _temporary_folder(target) as temporary:
            yield Path(temporary)
            step("rename")
            put_in_place(target, overwrite, partial(put, temporary), path)
    finally:
        if old and os.path.lexists(target):
            _discard(old[-1])
    # only now, since one of them may be the store that a killed writer moved away
    _remove_leftovers(target)


def _holds_zarr(folder: Path) -> bool:
    return any((folder / name).is_file() for name in _ZARR_FILES)


def retry_while_full(
    write: Callable[[], None],
    wait: float,
    say: Callable[[str], None],
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Write; while the disk is full, say so once and retry.

    wait : seconds after which to give up.
    say : called with a message after the first failure.
    should_stop : polled; True gives up at once.

    Raises the OSError of the last attempt.
    """
    until = time.monotonic() + wait
    said = False
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in _FULL or time.monotonic() >= until or should_stop():
                raise
            if not said:
                say(f"{error.strerror}: make room; retrying for {wait:.0f} s")
                said = True
        pause = time.monotonic() + _TRY_EVERY
        while time.monotonic() < pause and not should_stop():
            time.sleep(0.05)
