"""The state of a stagewise job on disk, from which it continues with the same bits.

A folder holds one file, which is replaced after a block, completely or not at all.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fcl.checks import shortened, shown
from fcl.errors import CheckpointError, InputError, reason
from fcl.features.generator import same_features
from fcl.model import schema
from fcl.model.archive import (
    add_array,
    add_member,
    installed_version,
    now,
    open_archive,
    read_array,
    read_json,
    read_member,
    write_json,
)
from fcl.model.atomic import atomic_file
from fcl.model.checkpoint import CheckpointFolder
from fcl.model.checkpoint_file import COLUMNS_TABLE
from fcl.model.columns import other_record
from fcl.model.signature import sign
from fcl.plain import plain
from fcl.stagewise.file import (
    ARRAYS,
    DONE_TABLE,
    SETTINGS_TABLE,
    check_best,
    read_settings,
    shaped,
    vector,
)
from fcl.stagewise.job import StagewiseJob
from fcl.stagewise.learner import BlockDone, State, first_order
from fcl.stagewise.settings import Settings
from fcl.store import local_path

FORMAT, VERSION = "fcl-stagewise-checkpoint", 1
_HEADER = "header.json"
_KIND = "a checkpoint of a stagewise job"


_TABLE = schema.record(
    settings=SETTINGS_TABLE,
    # options of the command that started the job; none if it began in Python
    command=schema.record(
        **dict.fromkeys(("features", "x", "y"), schema.Maybe(schema.text)),
        **dict.fromkeys(
            ("data", "weights", "offset", "valid", "out"),
            schema.Maybe(schema.nullable(schema.text)),
        ),
        regression=schema.Maybe(schema.flag),
    ),
    signature=schema.Maybe(schema.text),
    fingerprint=schema.text,
    columns=schema.Maybe(COLUMNS_TABLE),
    family=schema.table,
    n_features=schema.whole(1),
    n_margins=schema.whole(1),
    best_number=schema.whole(0),
    has_best=schema.flag,
    rows=schema.listing(schema.whole(1)),
    history=schema.listing(DONE_TABLE),
)


@dataclass(frozen=True)
class SavedState:
    """What a checkpoint holds.

    Attributes
    ----------
    settings : Settings
    command : dict
        Options of the command that started the job; empty for jobs of Python.
    fingerprint : str
        Of the training data, and of the validation data if there are any.
    family : dict
        Configuration of the fitted family.
    state : State
    columns : dict or None
        Of the record of the columns (:meth:`fcl.data.columns.ColumnRecord.summary`); None in checkpoints
        of earlier versions.
    signature : str
        Of the locations in the command; empty until it is saved.
    """

    settings: Settings
    command: dict[str, Any]
    fingerprint: str
    family: dict[str, Any]
    state: State
    columns: dict[str, Any] | None = None
    signature: str = ""

    def check(self, job: StagewiseJob) -> None:
        """Raise InputError naming what differs between the saved job and the one to be run."""
        before, now_ = self.settings.fixed(), job.settings.fixed()
        wrong = [
            f"{name} was {shown(before.get(name))}, is {shown(value)}"
            for name, value in now_.items()
            if before.get(name) != value and name not in job.settings.ends
        ]
        shapes = [margins.shape for margins in self.state.margins]
        own = [(rows.n, job.targets[0].width) for rows in job.rows]
        if job.fingerprint != self.fingerprint or shapes != own:
            wrong.append("the data differ")
        if other := other_record(self.columns, job.rows[0].data.column_record):
            wrong.append(other)
        n_features = len(self.state.weights.features)
        if (
            not same_features(self.family, plain(job.family.to_config()))
            or n_features != job.family.n_features
        ):
            wrong.append("the features differ: their options, their class, or what it learnt")
        if wrong:
            raise InputError(
                f"the checkpoint is of another job: {'; '.join(wrong)}. Resume with the data and options "
                "of that job, or start over"
            )


class StateFolder:
    """The folder of checkpoints of a stagewise job.

    Parameters
    ----------
    path : path
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = local_path(path, "checkpoints")
        #: keeps other jobs out, and removes a folder in which nothing was saved
        self.lock = CheckpointFolder(path)
        self._file = self.path / "checkpoint-1.fcl-ckpt"

    @property
    def exists(self) -> bool:
        """Whether a checkpoint was saved."""
        return os.path.isfile(self._file)  # also False if a link cannot be followed

    def save(self, saved: SavedState) -> None:
        """Replace the checkpoint; raises CheckpointError if that fails, and the earlier one stays."""
        state = saved.state
        header = {
            "format": FORMAT,
            "version": VERSION,
            "settings": saved.settings.fixed(),
            "command": saved.command,
            "signature": sign("stagewise", self.lock.path, saved.command),
            "fingerprint": saved.fingerprint,
            "columns": saved.columns,
            "family": saved.family,
            "n_features": state.weights.features.shape[0],
            "n_margins": state.margins[0].shape[1],
            "best_number": state.best_number,
            "has_best": state.best is not state.weights,
            "rows": [len(margins) for margins in state.margins],
            "history": [asdict(done) for done in state.history],
            "created": now(),
            "fcl_version": installed_version(),
        }
        try:
            with atomic_file(self._file, True) as file, zipfile.ZipFile(file, "w") as archive:
                add_member(archive, _HEADER, write_json(plain(header)))
                for name, array in _arrays(state).items():
                    add_array(archive, f"{name}.npy", vector(array))
        except (OSError, InputError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise CheckpointError(
                f"{self.path}: the checkpoint could not be written ({why}); an earlier one is kept"
            ) from error

    def load(self) -> SavedState:
        """Read the checkpoint; raises InputError if there is none, or it is damaged."""
        if not self.exists:
            raise InputError(f"{self.path}: holds no checkpoint of a stagewise job")
        try:
            with open_archive(self._file) as archive:
                return _read(archive)
        except Exception as error:  # a damaged zip raises many kinds of errors
            raise InputError(
                f"{self._file}: damaged, or not {_KIND} ({shortened(str(error), 400)}); start the job "
                "over"
            ) from error


def _arrays(state: State) -> dict[str, np.ndarray]:
    found = {name: getattr(state.weights, name) for name in ARRAYS}
    if state.best is not state.weights:
        found |= {f"best-{name}": getattr(state.best, name) for name in ARRAYS}
    found["order"] = state.order
    return found | {f"margins-{k}": margins for k, margins in enumerate(state.margins)}


def _read(archive: zipfile.ZipFile) -> SavedState:
    found = read_json(read_member(archive, _HEADER, _KIND))
    if found.get("format") != FORMAT or found.get("version") != VERSION:
        raise ValueError(f"expected format {FORMAT} of version {VERSION}")
    header = _TABLE("", found)
    _check(header)
    settings, K = read_settings(header["settings"]), header["n_margins"]

    def weights(prefix: str, number: int) -> Any:
        arrays = {name: _array(archive, prefix + name) for name in ARRAYS}
        return shaped(arrays, header["n_features"], K, settings, number)

    last = weights("", len(header["history"]))
    state = State(
        weights=last,
        best=weights("best-", header["best_number"]) if header["has_best"] else last,
        best_number=header["best_number"],
        margins=[
            _array(archive, f"margins-{k}").reshape(n, K) for k, n in enumerate(header["rows"])
        ],
        order=_order(archive, header["n_features"], settings),
        history=[BlockDone(**row) for row in header["history"]],
    )
    return SavedState(
        settings,
        header["command"],
        header["fingerprint"],
        header["family"],
        state,
        header.get("columns"),
        header.get("signature", ""),
    )


def _check(header: Mapping[str, Any]) -> None:
    """Raise Mismatch unless the best block is the first one of the lowest validation loss."""
    rows, history, best = header["rows"], header["history"], header["best_number"]
    check_best(best, history)
    if not 1 <= len(rows) <= 2:
        raise schema.Mismatch(f"rows: expected one number or two, got {len(rows)}")
    losses = [row["valid_loss"] for row in history]
    if any((loss is None) == (len(rows) == 2) for loss in losses):
        raise schema.Mismatch(
            "history: expected a valid_loss, if and only if there are validation rows"
        )
    first = len(history) if len(rows) == 1 else 1 + losses.index(min(losses)) if losses else 0
    if best != first:
        raise schema.Mismatch(f"best_number: expected {first}, of the lowest loss, got {best}")


def _order(archive: zipfile.ZipFile, n_features: int, settings: Settings) -> np.ndarray:
    """The order of the features; raises ValueError unless it has each of them once."""
    if settings.order != "gradient":
        return first_order(n_features, settings)
    found = _array(archive, "order")
    if not np.array_equal(np.sort(found), np.arange(n_features)):
        raise ValueError("order.npy: expected each feature once")
    return found.astype(np.int64)


def _array(archive: zipfile.ZipFile, name: str) -> np.ndarray:
    return read_array(archive, f"{name}.npy", "<f8", _KIND)
