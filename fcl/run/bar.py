"""Progress on a bar such as tqdm's.

The bar of a path counts finished points. Other runs show how far the gap has fallen from 1 to the
tolerance, in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from fcl.errors import InputError
from fcl.run.events import (
    Event,
    PassDone,
    PointDone,
    PointStarted,
    Started,
    StepProgress,
    Stopped,
)
from fcl.units import format_gap

Callback = Callable[[Event], Any]


class Bar(Protocol):
    """A progress bar with three methods of tqdm's bars; ``total`` should be 100, of a path None."""

    def update(self, n: float) -> Any:
        """Advance the bar by n."""

    def set_postfix(self, **values: Any) -> Any:
        """Show values beside the bar."""

    def close(self) -> Any:
        """End the bar; it is called once, at the end of training."""


#: What ``fcl.train(progress=...)`` accepts.
Progress = Callback | Bar


def on_event(progress: Progress | None) -> Callback:
    """Make a function that takes the events of a run and passes them on.

    progress : a function gets every event. A class such as ``tqdm.tqdm`` is called with ``total=100`` to
        create the bar, or ``total=None`` in a path, whose rules may end it before its last point.
    """
    if progress is None:
        return lambda event: None
    if callable(getattr(progress, "set_postfix", None)):
        return BarView(progress)
    if not callable(progress):
        raise InputError(
            f"progress: expected a function of events, or a bar such as tqdm.tqdm, got {progress!r:.200}"
        )
    return progress


class BarView:
    """Shows the events of a run on a bar, which is a bar or a class of bars."""

    def __init__(self, bar: Any) -> None:
        self._given = bar
        self._bar: Bar | None = None
        self._tol = 1e-3
        self._reached = 0.0  # percent
        self._point: dict[str, str] | None = None  # of a path: what is shown beside the bar

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            self._begin(event)
        bar = self._bar
        if bar is None:
            return
        match event:
            case PointStarted():
                self._point = {"part": event.part} if event.part else {}
                self._point["C"] = f"{event.C:.3g}"
                bar.set_postfix(**self._point)
            case PassDone() if self._point is not None:
                self._point["gap"] = format_gap(event.gap)
                bar.set_postfix(**self._point)
            case PointDone():
                bar.update(1)
            case StepProgress() if self._point is None:
                bar.set_postfix(step=event.step, done=f"{event.share:.0%}")
            case PassDone():
                self._advance(bar, event.gap)
                gap, active = format_gap(event.gap), f"{event.active:,}"
                bar.set_postfix(passes=event.number, gap=gap, active=active)
            case Stopped():
                self.close()

    def _begin(self, event: Started) -> None:
        self._tol = float(event.options.get("tol", self._tol))
        total: int | None = 100
        self._point = None
        if event.learner == "path":
            total, self._point = None, {}
        is_class = isinstance(self._given, type)
        self._bar = self._given(total=total) if is_class else self._given

    def close(self) -> None:
        """End the bar, if it is open."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def _advance(self, bar: Bar, gap: float) -> None:
        """Move the bar to the share of the way from gap 1 to the tolerance, on a log scale."""
        share = 1.0
        if gap > self._tol:
            share = math.log(min(gap, 1.0)) / math.log(self._tol) if self._tol < 1.0 else 0.0
        percent = round(100.0 * share, 1)
        if percent > self._reached:  # the gap may rise for a pass, but a bar does not go back
            bar.update(percent - self._reached)
            self._reached = percent
