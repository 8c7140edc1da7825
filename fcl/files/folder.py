"""Checkpoints: the state of a training job in a folder, from which it can be resumed.

``docs/reference/checkpoint.md`` is the specification; :mod:`fcl.files.checkpoint` reads and writes single
files.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from fcl.checks import shortened
from fcl.errors import CheckpointError, InputError, reason
from fcl.files.atomic import check_name
from fcl.files.bundle import DamagedFile, write_bundle
from fcl.files.checkpoint import Checkpoint, checkpoint_members, read_checkpoint
from fcl.files.signature import sign
from fcl.store import local_path

#: Checkpoints kept: the newest, and the previous one in case the disk lost a part of the newest.
KEPT = 2

_LOCK = "lock"
#: name of a file that exists if the job of the newest checkpoint has reached its tolerance
_COMPLETE = "complete"
#: attempts to lock: the previous holder may remove the file between its opening and its locking
_LOCK_TRIES = 20
# the names that save() gives; other names, and numbers beyond int64, belong to other files
_FILE = re.compile(r"checkpoint-([1-9][0-9]{0,17})\.fcl-ckpt")
_LEFTOVER = re.compile(r"\.checkpoint-[0-9]+\.fcl-ckpt\..*\.tmp")  # as atomic_file names them

_log = logging.getLogger("fcl")


@contextmanager
def checkpoint_errors(folder: Path) -> Iterator[None]:
    """Raise CheckpointError for what prevents a checkpoint from being written within the context."""
    try:
        yield
    except (OSError, InputError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise CheckpointError(
            f"{folder}: the checkpoint could not be written ({why}); the earlier ones are kept"
        ) from error


class CheckpointFolder:
    """A folder of at most two checkpoints, with a lock that keeps a second job out.

    Call :meth:`lock`, or enter the folder as a context, before saving. The folder is created if its
    parent exists.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path, "checkpoints")
        self._lock: int | None = None
        self._obsolete: set[int] = set()  # numbers to be removed after the next save

    # -- before the work

    def check(self) -> None:
        """Raise InputError if the folder cannot be created or written to."""
        shown = os.fspath(self.path)
        check_name(self._file(10**9))
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{shown}: is not a folder; name another folder for the checkpoints")
        place = self.path if self.path.exists() else Path(os.path.abspath(shown)).parent
        if not place.is_dir():
            raise InputError(f"{shown}: the folder {place} does not exist; make it first")
        if not os.access(place, os.W_OK | os.X_OK):
            raise InputError(
                f"{shown}: the folder {place} is not writable; keep the checkpoints elsewhere"
            )

    def numbers(self) -> list[int]:
        """Numbers of the checkpoints in the folder, increasing, damaged ones included."""
        if not os.path.isdir(self.path):  # False, too, for an impossible name
            return []
        try:
            names = os.listdir(self.path)
        except PermissionError as error:
            raise InputError(f"{os.fspath(self.path)}: cannot be read ({reason(error)})") from error
        found = (_FILE.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def begin(self, resumed: Checkpoint | None) -> None:
        """Mark the checkpoints of earlier jobs, before the first one of this job is saved.

        Checkpoints up to ``resumed`` belong to this job; newer ones are damaged. If ``resumed`` is None,
        all belong to earlier jobs. Both kinds are removed once this job has saved a checkpoint.
        """
        kept = 0 if resumed is None else resumed.number
        self._obsolete = {number for number in self.numbers() if number > kept}

    @property
    def newest(self) -> Path:
        """The file of the newest checkpoint."""
        return self._file(max(self.numbers(), default=1))

    @property
    def is_complete(self) -> bool:
        """Whether the job of the newest checkpoint has reached its tolerance."""
        return (self.path / _COMPLETE).is_file()

    def mark_complete(self) -> None:
        """Record that the job has reached its tolerance, until the next save."""
        if self.numbers() and not self._obsolete:
            # if a full disk prevents this, a new job is rejected, and its message says how to start
            with suppress(OSError):
                (self.path / _COMPLETE).touch()

    # -- the lock

    def lock(self) -> CheckpointFolder:
        """Create the folder if it is missing, and keep other jobs out until `release`.

        The lock ends with the process, however it ends. Raises InputError if another job holds the lock,
        or if the folder cannot be created or written to.
        """
        if self._lock is not None:
            raise RuntimeError(f"{self.path}: locked twice by the same object")
        for _ in range(_LOCK_TRIES):
            self.check()
            descriptor = self._try_lock()
            if descriptor is not None:
                break
        else:
            raise InputError(
                f"{os.fspath(self.path)}: its file {_LOCK} vanishes repeatedly; choose another folder"
            )
        self._lock = descriptor
        with suppress(OSError):  # on a full disk the lock holds without the process id in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        for name in os.listdir(self.path):
            if _LEFTOVER.fullmatch(name):  # from a job that was killed while saving
                with suppress(OSError):
                    os.unlink(self.path / name)
        return self

    def _try_lock(self) -> int | None:
        """The open, locked file; None if another job removed it in the meantime."""
        shown, name = os.fspath(self.path), self.path / _LOCK
        try:
            self.path.mkdir(exist_ok=True)
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(
                f"{shown}: cannot keep checkpoints there ({error.strerror}); choose another folder"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(name)):
                return descriptor
        except FileNotFoundError:
            pass
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise InputError(
                    f"{shown}: cannot be locked ({error.strerror}); keep the checkpoints on "
                    "another file system"
                ) from error
            who = f"process {holder}" if holder else "another process"
            raise InputError(
                f"{shown}: in use by {who}; wait for it, stop it, or choose another folder"
            ) from None
        os.close(descriptor)
        return None

    def release(self) -> None:
        """Release the lock, if held, and remove the folder if it holds no checkpoint."""
        if self._lock is None:
            return
        again = False
        try:
            os.ftruncate(self._lock, 0)
            self._remove_if_unused()
        except OSError as error:  # such as ENOTEMPTY
            again = error.errno in (errno.EMFILE, errno.ENFILE)
        os.close(self._lock)
        self._lock = None
        if again:  # now there is a descriptor to list the folder
            with suppress(OSError):
                self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        """Remove a folder without checkpoints: a job that was rejected leaves no files behind."""
        if not self.numbers():
            os.unlink(self.path / _LOCK)
            self.path.rmdir()  # fails, as it should, if there is anything else

    def __enter__(self) -> CheckpointFolder:
        return self.lock()

    def __exit__(self, *error: object) -> None:
        self.release()

    # -- saving and loading

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write the newest checkpoint, then remove all but the last two; returns its file.

        Raises CheckpointError if writing fails; earlier checkpoints are then untouched.
        """
        if self._lock is None:
            raise RuntimeError(f"{self.path}: lock the folder before saving to it")
        with checkpoint_errors(self.path):
            numbers = self.numbers()
            number = max(numbers, default=0) + 1
            path = self._file(number)
            if self.is_complete:
                os.unlink(self.path / _COMPLETE)
            signature = sign("train", self.path, checkpoint.options.get("command"))
            numbered = replace(checkpoint, number=number, signature=signature)
            write_bundle(path, checkpoint_members(numbered).items())
        own = [n for n in numbers if n not in self._obsolete]
        for old in {*self._obsolete, *own[: max(0, len(own) + 1 - KEPT)]}:
            with suppress(OSError):  # retried after the next save
                os.unlink(self._file(old))
        self._obsolete &= set(self.numbers())
        return path

    def load(self) -> Checkpoint:
        """The newest valid checkpoint; damaged ones are skipped with a warning."""
        shown = os.fspath(self.path)
        if not os.path.isdir(shown):  # also False if the name is too long
            raise InputError(f"{shown}: no such folder of checkpoints")
        numbers = self.numbers()
        if not numbers:
            raise InputError(f"{shown}: holds no checkpoint")
        for number in reversed(numbers):
            path = self._file(number)
            try:
                return read_checkpoint(path)
            except DamagedFile as error:
                why = shortened(str(error).removeprefix(f"{path}: "), 400)
                _log.warning("%s: damaged (%s); it is skipped", path, why)
        raise InputError(
            f"{shown}: holds no intact checkpoint (checkpoint {number}: {why}); start the job over"
        )

    def _file(self, number: int) -> Path:
        return self.path / f"checkpoint-{number}.fcl-ckpt"
