"""When a job saves checkpoints: by time, on demand, and at its end."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.errors import FclError, InputError, reason
from fcl.files.checkpoint import Checkpoint
from fcl.files.folder import CheckpointFolder
from fcl.solve.run_state import RunState

if TYPE_CHECKING:
    from fcl.drivers.job import Job

_log = logging.getLogger("fcl")


def was_saved(save: Callable[[], object]) -> bool:
    """Save a state; returns whether it was saved.

    A failure is logged, and never ends a job, which may save again later, and has its model at the end.
    """
    try:
        save()
    except Exception as error:
        why = reason(error) if isinstance(error, OSError) else error
        named = isinstance(error, OSError | FclError)
        _log.warning("the newest state could not be saved: %s", why if named else repr(error))
        return False
    return True


class Saver:
    """Keeps the newest state of a job, and writes it to a folder when a checkpoint is due.

    A checkpoint that cannot be written is logged and retried; it never ends the job.

    folder : None: nothing is saved.
    every : seconds between two checkpoints.
    requested : polled; returns True to request a checkpoint now.
    options : effective options, for the checkpoint; None only without a folder.
    resumed : checkpoint that this job resumes from.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        every: float = math.inf,
        requested: Callable[[], bool] | None = None,
        options: Mapping[str, Any] | None = None,
        resumed: Checkpoint | None = None,
    ) -> None:
        self._folder = None if folder is None else CheckpointFolder(folder)
        self._every = every
        self._requested = requested or (lambda: False)
        self._options = options or {}
        self._resumed = resumed
        #: the newest state, and the length of the history at that time
        self._offered: tuple[RunState, int] | None = None
        self._history: list[dict[str, Any]] = []
        self._earlier = 0.0 if resumed is None else resumed.elapsed
        self._begun = self._last = time.monotonic()
        self._fresh = False  # whether the state is newer than what is on disk
        self._asked = False
        self.failed = False  #: whether the last attempt failed

    def open(self) -> None:
        """Lock the folder; InputError if another job holds the lock, or it is not writable."""
        if self._folder is not None:
            self._folder.lock()
            try:
                self._check_newest()
                self._folder.begin(self._resumed)
            except BaseException:
                self._folder.release()
                raise

    def _check_newest(self) -> None:
        """Raise InputError if another job saved a newer checkpoint before this job had the lock."""
        resumed, folder = self._resumed, self._folder
        if folder is None or resumed is None or resumed.number not in folder.numbers():
            return
        newest = folder.load()
        if newest.number != resumed.number and newest.created >= resumed.created:
            raise InputError(
                f"{folder.path}: expected checkpoint {resumed.number} to be the newest, got checkpoint "
                f"{newest.number}, saved by another job meanwhile; resume again"
            )

    def complete(self) -> None:
        """Mark the job as converged, so that a new job may replace its checkpoints."""
        if self._folder is not None:
            self._folder.mark_complete()

    def close(self) -> None:
        """Unlock the folder."""
        if self._folder is not None:
            self._folder.release()

    @property
    def saves(self) -> bool:
        """Whether checkpoints are saved."""
        return self._folder is not None

    def describe(
        self, job: Job, fingerprint: str, checksums: np.ndarray, history: list[dict[str, Any]]
    ) -> None:
        """Set what all checkpoints of the job have in common.

        checksums : uint64 (n_blocks,), of the prepared training rows.
        history : the list to which each pass is added later.
        """
        self._job, self._fingerprint, self._checksums = job, fingerprint, checksums
        self._columns = job.train.data.column_record.summary if self.saves else None
        self._history = history

    def offer(self, state: RunState) -> None:
        """Keep this state for the next checkpoint, until a newer one is offered."""
        # one assignment: an interrupt must not leave a state beside the history of another one
        self._offered = state, len(self._history)
        self._fresh = True

    def poll(self) -> None:
        """Save if a checkpoint is due or requested.

        A request before the first state is honoured once there is one.
        """
        self._asked |= self._requested()
        due = self._fresh and time.monotonic() - self._last >= self._every
        if (self._asked or due) and self._offered is not None:
            requested, self._asked = self._asked, False
            self.save(requested)

    def refuse_input(self) -> None:
        """Keep no state of a run that is refused before its first pass: it leaves nothing behind."""
        if not self._history:
            self._offered = None

    def save(self, anyway: bool = False) -> None:
        """Save the newest state, unless it is on disk already and ``anyway`` is False.

        An error while saving is logged, so that it does not replace the error of the run.
        """
        if self._folder is None or self._offered is None or not (self._fresh or anyway):
            return
        self._last = time.monotonic()
        folder, offered = self._folder, self._offered
        self.failed = not was_saved(lambda: folder.save(self._checkpoint(*offered)))
        if self.failed:
            return
        self._fresh = False
        if anyway:
            _log.warning("checkpoint written to %s", folder.newest)

    def _checkpoint(self, state: RunState, n_passes: int) -> Checkpoint:
        numbers, arrays = state.to_file()
        return Checkpoint(
            options=self._options,
            family=self._job.family.to_config(),
            fingerprint=self._fingerprint,
            columns=self._columns,
            n_rows=self._job.train.n,
            block_checksums=self._checksums,
            state=numbers,
            arrays=arrays,
            history=self._history[:n_passes],
            elapsed=self.elapsed,
            driver=self._options["driver"],
        )

    @property
    def elapsed(self) -> float:
        """Seconds of work, including work before the checkpoint that the job resumes from."""
        return self._earlier + time.monotonic() - self._begun
