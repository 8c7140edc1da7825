"""The clock of a time limit, which stands still while kernels compile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def parts_of(wall: float, seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each step and of all else, ``other``, which add up to the wall time of a run.

    Steps that ran side by side, in several processes, share the wall time in proportion.
    """
    spent = sum(seconds.values())
    scale = min(1.0, wall / spent) if spent > 0.0 else 1.0
    parts = {step: scale * each for step, each in seconds.items()}
    return parts | {"other": max(0.0, wall - spent)}


class Clock:
    """Counts the seconds that a time limit counts: from :meth:`start` on, but not while paused.

    now : the time in seconds, from any origin.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since: float | None = None
        self._before = 0.0  # seconds counted before ``_since``
        self._paused = False
        self.started = False

    def start(self, spent: float = 0.0) -> None:
        """Start to count, unless that was done before.  spent : seconds that count already."""
        if not self.started:
            self.started, self._before = True, spent
            self._since = None if self._paused else self._now()

    def pause(self) -> None:
        """Count no more until :meth:`resume`."""
        self._before, self._since, self._paused = self.seconds, None, True

    def resume(self) -> None:
        """Count again, if the clock was started."""
        self._paused = False
        self._since = self._now() if self.started else None

    @property
    def seconds(self) -> float:
        """The seconds that were counted so far."""
        return self._before + (0.0 if self._since is None else self._now() - self._since)
