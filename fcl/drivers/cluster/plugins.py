"""Plugins of workers that fcl starts itself."""

from __future__ import annotations

import signal
from typing import Any

from distributed import WorkerPlugin

from fcl.working_folder import handed_on, protect


class IgnoreInterrupts(WorkerPlugin):  # type: ignore[misc]
    """Lets Ctrl-C reach the command alone, which needs its workers for an orderly end."""

    name = "fcl-ignore-interrupts"

    def setup(self, worker: Any) -> None:
        """Called when a worker starts, in the thread of its event loop."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        except ValueError:  # the event loop is not in the main thread, which gets the signal
            return


class NamedModules(WorkerPlugin):  # type: ignore[misc]
    """Lets a worker of this machine import the modules of the working folder that the user named."""

    name = "fcl-named-modules"

    def __init__(self) -> None:
        self._modules = handed_on()

    def setup(self, worker: Any) -> None:
        """Called when a worker starts, before its first task."""
        if self._modules:
            protect(**self._modules)
