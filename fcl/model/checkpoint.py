"""Checkpoints: the state of a training job in a folder, from which it can be resumed.

CHECKPOINT.md beside this module is the specification, and the tables below say what a file may hold. A
file is validated as a whole before anything else is done with it, since anybody may have written it; what
is declared in the tables is given back bit for bit.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shortened, shown
from fcl.errors import CheckpointError, InputError, reason
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    open_archive,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.atomic import atomic_file, check_name
from fcl.plain import plain

__all__ = ["FORMAT", "MAY_CHANGE", "VERSION", "Checkpoint", "CheckpointFolder"]

FORMAT = "fcl-checkpoint"
VERSION = 2

#: options that a resumed job may have otherwise: none of them moves the optimum
MAY_CHANGE = frozenset(
    {
        *("tol", "max_time", "max_passes", "memory", "writers", "checkpoint_every", "driver"),
        # another view of the rows draws its own sample at the anchor; a smaller budget may need one
        "row_view",
        # where files lie, how cores and shared memory are dealt, and what was typed
        *("scratch", "checkpoint", "share_cores", "shared_files", "command"),
    }
)

#: options that came later, with the values that jobs had before
ADDED: dict[str, Any] = {"l1_ratio": 1.0, "class_weight": None, "standardize": False}

#: Checkpoints kept: the newest, and the one before in case the disk lost a part of it.
KEPT = 2

#: Weights up to here have a sum of squares.
MOST_WEIGHT = 1e100

_KIND = "a checkpoint"
_HEADER = "header.json"
_CHECKSUMS = "block_checksums.npy"
_LOCK = "lock"
#: the file may be removed between opening and locking it, by the job that had it
_LOCK_TRIES = 20
_FILE = re.compile(r"checkpoint-([0-9]+)\.fcl-ckpt")
_LEFTOVER = re.compile(r"\.checkpoint-[0-9]+\.fcl-ckpt\..*\.tmp")  # as atomic_file names them

_log = logging.getLogger("fcl")

# -- what a file may hold: numbers of which the path of a job depends, none of which is a proof

_AT_LEAST_0 = schema.number(0.0)
_FINITE = schema.number()
_ANY = schema.number(infinite=True)

_SAMPLE = schema.record(
    **dict.fromkeys(("most", "wanted"), schema.whole(1)),
    **dict.fromkeys(("drawn", "draws", "age"), schema.whole()),
    **dict.fromkeys(("objective", "last_gap", "last_objective"), _ANY),
    pending=schema.flag,
    proximal=schema.number(1e-9, 1e9),
    step=schema.record(beta=_FINITE, decrease=_ANY, promised=_ANY),
    intercept=schema.Maybe(_FINITE),  # of the anchor at which the sample was drawn
)
_STATE = schema.record(
    # the anchor, and what was said of it when it was saved: computed anew when the job is resumed
    objective=_FINITE,
    intercept=_FINITE,
    bound=_ANY,
    best_intercept=schema.Maybe(_FINITE),  # of the point whose residuals gave the bound
    # what the next steps depend on
    max_violation=schema.number(0.0, infinite=True),
    gap=_ANY,
    sharpness=schema.number(1e-9, 1.0),
    drawn=schema.whole(0, 1 << 31),
    grown=schema.number(1.0, 1024.0),
    raised=schema.Maybe(schema.number(0.0, 1.0)),
    careful=schema.Maybe(schema.whole(0, 1)),
    idle=schema.whole(0, 1 << 31),
    beta=_FINITE,
    evicted=schema.whole(),
    last=schema.record(objective=schema.Maybe(_FINITE), bound=schema.Maybe(_ANY)),
    sample=schema.Maybe(_SAMPLE),
    untried_intercept=schema.Maybe(_FINITE),  # of a point that is to be tried before the anchor
)
_COMMAND_VALUE_KINDS = (type(None), bool, int, float, str)


def _command(where: str, value: Any) -> dict[str, Any]:
    """Options of fcl-train by name: plain values, or weights by label."""
    for name, item in schema.table(where, value).items():
        inner = item.values() if isinstance(item, dict) else [item]
        for part in inner:
            too_long = isinstance(part, int) and abs(part) >= 1 << 63
            if too_long or not isinstance(part, _COMMAND_VALUE_KINDS):
                raise schema.Mismatch(
                    f"{where}.{name}: expected a plain value, got a {type(part).__name__}"
                )
    return dict(value)


def _options(where: str, value: Any) -> dict[str, Any]:
    """Options are compared with those of the resumed job; two of them are used."""
    used = schema.record(
        block_rows=schema.Maybe(schema.whole(64, 65_536)),
        command=schema.Maybe(schema.nullable(_command)),
    )
    return {**schema.table(where, value), **used(where, value)}


_HEADER_TABLE = schema.record(
    format=schema.one_of(FORMAT),
    version=schema.whole(1),
    number=schema.whole(),
    created=schema.text,
    fcl_version=schema.text,
    driver=schema.text,
    elapsed=_AT_LEAST_0,
    family=schema.table,
    options=_options,
    n_rows=schema.whole(1),
    fingerprint=schema.text,
    arrays=schema.listing(schema.text),
    state=_STATE,
    history=schema.listing(schema.table),
)
#: dtype of each array, little-endian whatever the machine
_DTYPES = {
    **dict.fromkeys(("ids", "best_ids", "sample_ids", "untried_ids", "cached"), "<i8"),
    **dict.fromkeys(("weights", "best_weights", "sample_weights", "untried_weights"), "<f8"),
    "seen": "|b1",
}
#: points of the job: the prefix of their arrays, and the key of the state that has their intercept
_POINTS = {
    "": ("intercept",),
    "best_": ("best_intercept",),
    "sample_": ("sample", "intercept"),
    "untried_": ("untried_intercept",),
}


class _Damaged(Exception):
    """This file holds no whole checkpoint."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _fcl_version() -> str:
    import fcl

    return str(fcl.__version__)


@dataclass(frozen=True, eq=False, kw_only=True)
class Checkpoint:
    """The state of a job between two passes.

    options         effective options, as JSON knows them; ``block_rows`` among them.
    family_config   of the bound family.
    fingerprint     of the training data, n_rows of them.
    block_checksums uint64 (number of blocks,), of the prepared rows; empty if they were not taken.
    state           what ``_STATE`` declares; infinite floats are kept.
    arrays          what ``_DTYPES`` declares, and ``_check_arrays``.
    history         one dictionary a pass.
    elapsed         seconds of work so far, over all resumptions.
    driver          that saved it.
    number          0 until it is saved, then rising within the folder.
    """

    options: Mapping[str, Any]
    family_config: Mapping[str, Any]
    fingerprint: str
    n_rows: int
    block_checksums: npt.NDArray[np.uint64]
    state: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    history: list[dict[str, Any]]
    elapsed: float
    driver: str
    number: int = 0
    created: str = field(default_factory=_now)
    fcl_version: str = field(default_factory=_fcl_version)
    version: int = VERSION


class CheckpointFolder:
    """At most two checkpoints, and a lock that keeps a second job out.

    lock() or ``with folder:`` before anything is saved; release() at the end. The folder is made if
    its parent is there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        self._obsolete: set[int] = set()  # numbers to be removed after the next save

    # -- before the work

    def check(self) -> None:
        """Raise InputError if the folder cannot be made or written to."""
        shown = os.fspath(self.path)
        check_name(self._file(10**9))
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{shown}: is not a folder; name another for the checkpoints")
        place = self.path if self.path.exists() else Path(os.path.abspath(shown)).parent
        if not place.is_dir():
            raise InputError(f"{shown}: the folder {place} does not exist; make it first")
        if not os.access(place, os.W_OK | os.X_OK):
            raise InputError(
                f"{shown}: the folder {place} is not writable; keep the checkpoints elsewhere"
            )

    def numbers(self) -> list[int]:
        """Numbers of the checkpoints there, rising; those that are damaged count."""
        if not self.path.is_dir():
            return []
        try:
            names = os.listdir(self.path)
        except PermissionError as error:
            raise InputError(f"{os.fspath(self.path)}: cannot be read ({reason(error)})") from error
        found = (_FILE.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def begin(self, resumed: Checkpoint | None) -> None:
        """Say which checkpoints there belong to this job, before its first is saved.

        With None, a new job: none of them. Else those up to `resumed`; newer ones were found
        damaged when it was loaded. The others go once a checkpoint of this job is safe.
        """
        kept = 0 if resumed is None else resumed.number
        self._obsolete = {number for number in self.numbers() if number > kept}

    # -- the lock

    def lock(self) -> CheckpointFolder:
        """Make the folder if need be, and keep other jobs out until `release`.

        The lock ends with the process, however that ends. Raises InputError if another job has it,
        or if the folder cannot be made or written to.
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
                f"{os.fspath(self.path)}: its file {_LOCK} vanishes again and again; choose another "
                "folder"
            )
        self._lock = descriptor
        with suppress(OSError):  # a full disk: the lock holds without the number in it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        for name in os.listdir(self.path):
            if _LEFTOVER.fullmatch(name):  # of a job that was killed while it saved
                with suppress(OSError):
                    os.unlink(self.path / name)
        return self

    def _try_lock(self) -> int | None:
        """The open, locked file; None if it has lost its name meanwhile."""
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
        """Let other jobs in; harmless without a lock. A folder without checkpoints is removed."""
        if self._lock is None:
            return
        with suppress(OSError):
            os.ftruncate(self._lock, 0)
            if not self.numbers():  # a job that was refused leaves nothing
                os.unlink(self.path / _LOCK)
                self.path.rmdir()  # fails, as it should, where there is anything else
        os.close(self._lock)
        self._lock = None

    def __enter__(self) -> CheckpointFolder:
        return self.lock()

    def __exit__(self, *error: object) -> None:
        self.release()

    # -- saving and loading

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write it as the newest, then remove all but the last two; returns its file.

        Raises CheckpointError if that fails; the earlier ones are then untouched.
        """
        if self._lock is None:
            raise RuntimeError(f"{self.path}: lock the folder before saving to it")
        try:
            numbers = self.numbers()
            number = max(numbers, default=0) + 1
            path = self._file(number)
            with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
                _write(archive, replace(checkpoint, number=number))
        except (OSError, InputError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise CheckpointError(
                f"{os.fspath(self.path)}: the checkpoint could not be written ({why}); "
                "the earlier ones are kept"
            ) from error
        own = [n for n in numbers if n not in self._obsolete]
        for old in {*self._obsolete, *own[: max(0, len(own) + 1 - KEPT)]}:
            with suppress(OSError):  # tried again after the next
                os.unlink(self._file(old))
        self._obsolete &= set(self.numbers())
        return path

    def load(self) -> Checkpoint:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning.

        Raises InputError if there is none, or if it was made by a newer version.
        """
        shown = os.fspath(self.path)
        if not os.path.isdir(shown):  # False also of a name that is too long
            raise InputError(f"{shown}: no such folder of checkpoints")
        numbers = self.numbers()
        if not numbers:
            raise InputError(f"{shown}: holds no checkpoint")
        for number in reversed(numbers):
            path = self._file(number)
            try:
                return _read(path)
            except _Damaged as error:
                reason = shortened(str(error), 400)
                _log.warning("%s: damaged (%s); it is passed over", path, reason)
        raise InputError(
            f"{shown}: holds no checkpoint that is whole (checkpoint {number}: {reason}); the job must "
            "start anew"
        )

    def _file(self, number: int) -> Path:
        return self.path / f"checkpoint-{number}.fcl-ckpt"

    # -- resuming

    @staticmethod
    def check_resume(
        checkpoint: Checkpoint,
        options: Mapping[str, Any],
        fingerprint: str | None = None,
        checksums: npt.NDArray[np.uint64] | None = None,
        family: Mapping[str, Any] | None = None,
        n_features: int | None = None,
    ) -> None:
        """Raise InputError that names every difference between the job saved and the one to be run.

        options     effective ones; those that both have are compared, but for MAY_CHANGE. What an
                    earlier version did not save, it had as in ADDED.
        family      configuration of the bound family; None: not known yet. n_features of it.
        fingerprint of the data now; None: not known yet. checksums as ``block_checksums``.
        """
        wrong = []
        before = ADDED | plain(checkpoint.options)
        for name, value in plain(options).items():
            if name not in MAY_CHANGE and name in before and before[name] != value:
                wrong.append(f"{name} was {shown(before[name])}, is {shown(value)}")
        if fingerprint is not None and fingerprint != checkpoint.fingerprint:
            wrong.append(
                f"the data are others: fingerprint was {shortened(checkpoint.fingerprint[:12])}, is "
                f"{fingerprint[:12]}"
            )
        if family is not None:
            from fcl.features.generated import same_features

            if not same_features(checkpoint.family_config, plain(family)):
                wrong.append(
                    "its features had other columns: their class, or what it uses, has changed"
                )
        if n_features is not None:
            for name, array in checkpoint.arrays.items():
                if name.endswith(("ids", "cached")) and array.max(initial=0) >= n_features:
                    wrong.append(f"its {name} go up to {array.max()} of {n_features} features")
        if checksums is not None:
            wrong += _differing_blocks(checkpoint, checksums)
        if wrong:
            raise InputError(
                f"checkpoint {checkpoint.number} of {shortened(checkpoint.created)} is of another job: "
                f"{'; '.join(wrong)}. Resume it with what it was started with, or start anew"
            )


def _differing_blocks(checkpoint: Checkpoint, checksums: npt.NDArray[np.uint64]) -> list[str]:
    """The first few blocks of prepared rows whose checksum is another, in words."""
    before = checkpoint.block_checksums
    if before.size == 0:  # the job was stopped before they were taken
        return []
    if before.shape != checksums.shape:
        return [f"there were {before.size} blocks of rows, there are {checksums.size}"]
    rows = int(checkpoint.options.get("block_rows", 0))
    blocks = np.flatnonzero(before != checksums).tolist()
    words = [
        f"training rows {block * rows}-{min(checkpoint.n_rows, (block + 1) * rows) - 1} "
        f"(block {block}) are others: checksum was {int(before[block]):016x}, is "
        f"{int(checksums[block]):016x}"
        for block in blocks[:3]
    ]
    return words if len(blocks) <= 3 else [*words, f"and so in {len(blocks) - 3} more blocks"]


# -- the file


def _write(archive: zipfile.ZipFile, checkpoint: Checkpoint) -> None:
    if unknown := checkpoint.arrays.keys() - _DTYPES.keys():
        raise ValueError(f"a checkpoint declares no array {', '.join(sorted(unknown))}")
    arrays = {
        name: np.asarray(array).astype(_DTYPES[name], casting="safe", copy=False)
        for name, array in checkpoint.arrays.items()
    }
    header = {
        "format": FORMAT,
        "version": VERSION,
        "number": checkpoint.number,
        "created": checkpoint.created,
        "fcl_version": checkpoint.fcl_version,
        "driver": checkpoint.driver,
        "elapsed": float(checkpoint.elapsed),
        "family": plain(checkpoint.family_config),
        "options": plain(checkpoint.options),
        "n_rows": int(checkpoint.n_rows),
        "fingerprint": checkpoint.fingerprint,
        "arrays": sorted(checkpoint.arrays),
        "state": dict(checkpoint.state),
        "history": plain(checkpoint.history),
    }
    # the state is not made plain: an infinite bound must come back as it was
    content = write_json(header, default=_scalar, allow_nan=True)
    # what would not be read again is a fault of fcl, which tests find here
    stored = read_json(content)
    checked = _HEADER_TABLE("", stored)
    if extra := schema.undeclared(stored["state"], checked["state"]):
        raise ValueError(f"the state of a checkpoint declares no {', '.join(extra)}")
    checksums = np.asarray(checkpoint.block_checksums).astype("<u8")
    _check_arrays(checked, checksums, arrays)
    add_member(archive, _HEADER, content)
    add_array(archive, _CHECKSUMS, checksums)
    for name, array in sorted(arrays.items()):
        add_array(archive, f"arrays/{name}.npy", array)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"the state of a checkpoint cannot hold {type(value).__name__}: {value!r}")


def _read(path: Path) -> Checkpoint:
    """Raises _Damaged for a file that is no whole checkpoint, InputError for a newer one."""
    try:
        if not path.is_file():  # opening a FIFO would never end
            raise _Damaged("not a regular file")
        with open_archive(path) as archive:
            header = read_json(read_member(archive, _HEADER, _KIND))
            _check_version(header, path)
            header = _HEADER_TABLE("", header)
            checksums = read_array(archive, _CHECKSUMS, "<u8", _KIND)
            arrays = {
                name: read_array(archive, f"arrays/{name}.npy", dtype, _KIND)
                for name, dtype in _DTYPES.items()
                if name in header["arrays"]
            }
        _check_arrays(header, checksums, arrays)
        return Checkpoint(
            options=header["options"],
            family_config=header["family"],
            fingerprint=header["fingerprint"],
            n_rows=header["n_rows"],
            block_checksums=checksums,
            state=header["state"],
            arrays=arrays,
            history=header["history"],
            elapsed=header["elapsed"],
            driver=header["driver"],
            number=header["number"],
            created=header["created"],
            fcl_version=header["fcl_version"],
            version=header["version"],
        )
    except (InputError, _Damaged):
        raise
    except PermissionError as error:
        raise InputError(f"{path}: no permission to read it") from error
    except schema.Mismatch as error:
        raise _Damaged(str(error)) from error
    # a damaged zip shows itself in many ways; RuntimeError: it seems to be encrypted
    except (
        *(zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError, struct.error),
        *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
    ) as error:
        raise _Damaged(str(error) or type(error).__name__) from error


def _check_version(header: Mapping[str, Any], path: Path) -> None:
    """Before all else: a newer version may hold anything."""
    if header.get("format") != FORMAT:
        raise _Damaged("not a checkpoint")
    version = header.get("version")
    if type(version) is not int or version < 1:
        raise _Damaged(f"version must be an integer from 1, got {shown(version)}")
    if version > VERSION:
        raise InputError(
            f"{path}: checkpoint version {shown(version)}, this fcl reads up to {VERSION}: made by a "
            f"newer fcl? (it says {shown(header.get('fcl_version'))}); upgrade fcl to resume it"
        )


def _check_arrays(
    header: Mapping[str, Any], checksums: np.ndarray, arrays: Mapping[str, np.ndarray]
) -> None:
    """Raise Mismatch unless the arrays fit one another and the header."""

    def intercept(keys: tuple[str, ...]) -> Any:
        value = header["state"]
        for key in keys:
            value = value.get(key) if value is not None else None
        return value

    for prefix, keys in _POINTS.items():
        names = {f"{prefix}ids", f"{prefix}weights"}
        if intercept(keys) is None:
            if extra := names & arrays.keys():
                raise schema.Mismatch(f"state.{'.'.join(keys)} is missing beside {min(extra)}")
            continue
        if missing := names - arrays.keys():
            raise schema.Mismatch(f"array {min(missing)} is missing")
        ids, weights = arrays[f"{prefix}ids"], arrays[f"{prefix}weights"]
        if ids.shape != weights.shape:
            raise schema.Mismatch(f"{len(ids)} {prefix}ids and {len(weights)} {prefix}weights")
        if (ids < 0).any() or (ids[1:] <= ids[:-1]).any():
            raise schema.Mismatch(f"{prefix}ids: expected rising numbers from 0 on")
        if not (np.abs(weights) <= MOST_WEIGHT).all():  # nor NaN
            raise schema.Mismatch(f"{prefix}weights: expected numbers up to {MOST_WEIGHT:g}")
    for name in ("cached", "seen"):
        if name not in arrays:
            raise schema.Mismatch(f"array {name} is missing")
    cached = arrays["cached"]
    if cached.shape != arrays["seen"].shape:
        raise schema.Mismatch(f"{len(cached)} cached and {len(arrays['seen'])} seen")
    if (cached < 0).any() or len(np.unique(cached)) < len(cached):
        raise schema.Mismatch("cached: expected numbers from 0 on, each once")
    rows = header["options"].get("block_rows")
    if len(checksums) and rows and len(checksums) != -(-header["n_rows"] // rows):
        raise schema.Mismatch(
            f"{len(checksums)} checksums for {header['n_rows']} rows in blocks of {rows}"
        )
