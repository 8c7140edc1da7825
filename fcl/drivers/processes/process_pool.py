"""The children of a run: the current process of each role and number."""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

from fcl.drivers.processes.children import Child, dismiss
from fcl.drivers.processes.logic.protocol import WRITER
from fcl.drivers.processes.shared import Segment
from fcl.errors import RepeatedDeaths
from fcl.numerals import read_number

_log = logging.getLogger("fcl")

#: Seconds without a heartbeat after which a child counts as hung.
DEADLINE = read_number(os.environ.get("FCL_DEADLINE", "")) or 30.0
#: Factor on DEADLINE until the first heartbeat: a child may start slowly, from a slow disk perhaps.
STARTING = 4.0
#: Seconds to wait for a child's exit status after its channel has closed.
DYING = 0.5


class ProcessPool:
    """Starts the children, sends messages, waits for events, and records causes of death.

    segments : shared memory by name, which each child inherits.
    """

    def __init__(self, n_writers: int, segments: Mapping[str, Segment]) -> None:
        self._n_writers = n_writers
        self._segments = segments
        self._children: dict[tuple[str, int], Child] = {}
        self._selector = selectors.DefaultSelector()
        #: causes of the deaths of each role, each with advice that may prevent it, or an empty text
        self._deaths: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._busy_since: tuple[float, dict[str, float]] = (time.monotonic(), {})

    def spawn(self, role: str, number: int, incarnation: int) -> None:
        """Start a child."""
        index = number if role == WRITER else self._n_writers
        child = Child(role, number, incarnation, index, self._segments)
        self._children[role, number] = child
        self._selector.register(child.channel, selectors.EVENT_READ, child)
        if child.sentinel is not None:
            self._selector.register(child.sentinel, selectors.EVENT_READ, child)

    def __iter__(self) -> Iterator[Child]:
        return iter(list(self._children.values()))

    def __contains__(self, child: Child) -> bool:
        return self._children.get((child.role, child.number)) is child

    # -- messages ------------------------------------------------------------------------------

    def send(self, role: str, number: int, message: Any) -> None:
        """Send a message to a child, unless the child is gone."""
        child = self._children.get((role, number))
        if child is not None and not child.channel.closed:
            child.channel.send(message)
            self.watch(child)

    def wait(self, timeout: float) -> Iterator[Child]:
        """Wait up to ``timeout`` seconds; yield children that have sent something or ended."""
        for key, mask in self._selector.select(timeout):
            child: Child = key.data
            if child in self:  # it may have been reaped while others were handled
                if mask & selectors.EVENT_WRITE:
                    child.channel.flush()
                yield child

    def watch(self, child: Child) -> None:
        """Watch for messages from the child, and for room to send queued messages."""
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.channel.wants_write else 0)
        self._selector.modify(child.channel, mask, child)

    # -- ends ----------------------------------------------------------------------------------

    def kill_if_hung(self, child: Child, now: float) -> None:
        """Kill a child that has sent no heartbeat for too long.

        now : the current value of time.monotonic().
        """
        silent = child.silent(self._segments["control"], now)
        if child.alive() and silent > (DEADLINE if child.heard else STARTING * DEADLINE):
            _log.warning("%s has been silent for %.0f s and is killed", child.name, silent)
            child.kill()

    def reap(self, child: Child) -> list[Any]:
        """Remove a child that is gone or unreachable; return its last messages.

        Kills the child if necessary. The caller has to close it.
        """
        self._remove(child)
        child.wait(DYING)
        child.kill()
        return child.channel.receive()

    def record_death(self, child: Child, doing: str) -> None:
        """Record how a reaped child ended. doing : what it was doing, or empty."""
        before = f"{doing}: " if doing else ""
        self._deaths[child.role].append((f"{before}{child.name} {child.cause()}", child.cure()))

    def repeated_deaths(self, role: str, n: int) -> RepeatedDeaths:
        """The error that names the causes of the last n deaths of a role."""
        deaths = self._deaths[role][-n:]
        cures = sorted({f"; {cure}" for _, cure in deaths if cure})
        return RepeatedDeaths(
            f"the {role} died {len(deaths)} times without progress in between: "
            f"{'; '.join(cause for cause, _ in deaths)}{''.join(cures)}. The last checkpoint has the "
            "progress so far, if checkpoints are saved"
        )

    def dismiss(self) -> None:
        """End all children."""
        children = list(self)
        for child in children:
            self._remove(child)
        dismiss(children)

    def close(self) -> None:
        """End all children, and stop waiting for them."""
        self.dismiss()
        self._selector.close()

    def _remove(self, child: Child) -> None:
        self._selector.unregister(child.channel)
        if child.sentinel is not None:
            self._selector.unregister(child.sentinel)
        del self._children[child.role, child.number]

    # -- use of resources ----------------------------------------------------------------------

    def pids(self) -> dict[str, int]:
        """Process ids by name, including the supervisor."""
        children = {f"{child.role} {child.number}": child.pid for child in self}
        return {"supervisor": os.getpid(), **children}

    def busy_shares(self) -> dict[str, float]:
        """Processor time over elapsed time of each process since the last call, by name."""
        now = time.monotonic()
        times = {name: _cpu_seconds(pid) for name, pid in self.pids().items()}
        since, before = self._busy_since
        self._busy_since = (now, times)
        passed = max(now - since, 1e-9)
        return {
            name: round(max(0.0, spent - before.get(name, 0.0)) / passed, 3)
            for name, spent in times.items()
        }


def _cpu_seconds(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
