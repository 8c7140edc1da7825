"""The state of a stagewise job on disk, from which it continues with the same bits.

A folder holds one file, which is replaced after a block, completely or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.files.bundle import (
    HEADER,
    Bundle,
    installed_version,
    now,
    open_bundle,
    to_vector,
    write_bundle,
)
from fcl.files.folder import CheckpointFolder, checkpoint_errors
from fcl.files.same_job import JobFacts, require_same
from fcl.files.signature import sign
from fcl.files.stagewise import STAGEWISE_CHECKPOINT
from fcl.plain import plain
from fcl.stagewise.job import StagewiseJob
from fcl.stagewise.learner import BlockDone, State, first_order
from fcl.stagewise.settings import Settings
from fcl.stagewise.stored import read_weights, weight_members
from fcl.store import local_path


@dataclass(frozen=True)
class SavedState:
    """What a checkpoint holds.

    command : options of the command that started the job; empty for jobs of Python.
    fingerprint : of the training data, and of the validation data if there are any.
    family : configuration of the fitted family.
    columns : of the record of the columns (:meth:`fcl.data.columns.ColumnRecord.summary`); None in
        checkpoints of earlier versions.
    signature : of the locations in the command; empty until it is saved.
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
        own = [(rows.n, job.n_outputs) for rows in job.rows]
        n_features, ends = len(self.state.weights.features), job.settings.ends
        shapes = [margins.shape for margins in self.state.margins]
        require_same(
            "the checkpoint",
            JobFacts(
                _options(self.settings, ends, n_features, shapes),
                self.fingerprint,
                self.columns,
                self.family,
            ),
            JobFacts(
                _options(job.settings, ends, job.family.n_features, own),
                job.fingerprint,
                job.train.data.column_record.summary,
                job.family.to_config(),
            ),
        )


def _options(
    settings: Settings, ends: Collection[str], n_features: int, shapes: Sequence[tuple[int, ...]]
) -> dict[str, Any]:
    """What two runs of a job have in common, ends : options that only say when it ends."""
    fixed = {name: value for name, value in settings.fixed().items() if name not in ends}
    options: dict[str, Any] = plain(fixed | {"n_features": n_features, "rows and outputs": shapes})
    return options


class StateFolder:
    """The folder of checkpoints of a stagewise job."""

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
        members: dict[str, np.ndarray | bytes] = {
            HEADER: STAGEWISE_CHECKPOINT.encode(plain(header))
        }
        members |= weight_members(state.weights)
        if state.best is not state.weights:
            members |= weight_members(state.best, "best-")
        members["order.npy"] = to_vector(state.order, "<f8")
        for k, margins in enumerate(state.margins):
            members[f"margins-{k}.npy"] = to_vector(margins, "<f8")
        with checkpoint_errors(self.path):
            write_bundle(self._file, members.items(), overwrite=True)

    def load(self) -> SavedState:
        """Read the checkpoint; raises InputError if there is none, or it is damaged."""
        if not self.exists:
            raise InputError(f"{self.path}: holds no checkpoint of a stagewise job")
        try:
            with open_bundle(self._file, STAGEWISE_CHECKPOINT) as bundle:
                return _read(bundle)
        except InputError as error:
            raise InputError(f"{error}; start the job over") from error


def _read(bundle: Bundle) -> SavedState:
    header = bundle.header
    settings = Settings(**header["settings"]).checked()
    D, K = header["n_features"], header["n_margins"]
    last = read_weights(bundle, D, K, settings, len(header["history"]))
    best = last
    if header["has_best"]:
        best = read_weights(bundle, D, K, settings, header["best_number"], "best-")
    margins = [
        bundle.vector(f"margins-{k}", "<f8").reshape(n, K) for k, n in enumerate(header["rows"])
    ]
    order = first_order(D, settings)
    if settings.order == "gradient":
        order = bundle.vector("order", "<f8").astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(D)):
            raise ValueError("order.npy: expected each feature once")
    return SavedState(
        settings,
        header["command"],
        header["fingerprint"],
        header["family"],
        State(
            weights=last,
            best=best,
            best_number=header["best_number"],
            margins=margins,
            order=order,
            history=[BlockDone(**row) for row in header["history"]],
        ),
        header["columns"],
        header["signature"],
    )
