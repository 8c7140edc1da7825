"""Fault injection for tests: a plugin that kills or stops a worker when it begins a task."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from distributed import WorkerPlugin

#: Seconds during which a new worker is spared: Dask's nanny does not replace a worker that dies before
#: the nanny has noticed its start.
GRACE = 2.0
#: When this process got its first plugin, which for workers that start later is at their start.
_BEGUN = time.monotonic()


class Fault(WorkerPlugin):  # type: ignore[misc]
    """Acts on workers as they begin a task of some kind.

    Each act uses up a file in a folder, so that the number of files is the number of acts.

    Parameters
    ----------
    kind : str
        Name of the function of :mod:`fcl.drivers.cluster.tasks`.
    folder : path
        Of the files.
    action : signal.Signals
    """

    def __init__(self, kind: str, folder: Path, action: int = signal.SIGKILL) -> None:
        self.name = f"fcl-fault-{kind}"
        self.prefix, self.folder, self.action = f"fcl_{kind}-", folder, int(action)

    def transition(self, key: Any, start: str, finish: str, **more: Any) -> None:
        """Called by Dask when a task changes its state."""
        if finish != "executing" or not str(key).startswith(self.prefix):
            return
        if time.monotonic() - _BEGUN < GRACE:
            return
        for token in sorted(self.folder.glob("fault-*")):
            try:
                token.unlink()
            except FileNotFoundError:  # another worker was faster
                continue
            os.kill(os.getpid(), self.action)
            return
