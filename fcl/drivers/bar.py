"""Progress on a bar such as tqdm's: how far the gap has fallen from 1 to the tolerance, in percent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from fcl.drivers.events import Event, PassDone, Started, StepProgress, Stopped
from fcl.units import format_gap

Callback = Callable[[Event], Any]


class Bar(Protocol):
    """A progress bar with three methods of tqdm's bars; ``total`` should be 100."""

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

    Parameters
    ----------
    progress : callable, Bar, subclass of Bar, or None
        A function gets every event. A class such as ``tqdm.tqdm`` is
        called with ``total=100`` to create the bar.
    """
    if progress is None:
        return lambda event: None
    bar = as_bar(progress, 100)
    return progress if bar is None else _OnBar(bar)  # type: ignore[return-value]


def as_bar(progress: Progress | None, total: float | None) -> Bar | None:
    """Return a bar unchanged, or create one with this total from a class; None for other values."""
    if not callable(getattr(progress, "set_postfix", None)):
        return None
    return progress(total=total) if isinstance(progress, type) else progress  # type: ignore[return-value]


class _OnBar:
    """Shows the events of a run on a bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._tol = 1e-3
        self._reached = 0.0  #: percent

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._tol = float(event.options.get("tol", self._tol))
            case StepProgress():
                self._bar.set_postfix(step=event.step, done=f"{event.share:.0%}")
            case PassDone():
                self._advance(event.gap)
                gap, active = format_gap(event.gap), f"{event.active:,}"
                self._bar.set_postfix(passes=event.number, gap=gap, active=active)
            case Stopped():
                self._bar.close()

    def _advance(self, gap: float) -> None:
        """Move the bar to the share of the way from gap 1 to the tolerance, on a log scale."""
        share = 1.0
        if gap > self._tol:
            share = math.log(min(gap, 1.0)) / math.log(self._tol) if self._tol < 1.0 else 0.0
        percent = round(100.0 * share, 1)
        if percent > self._reached:  # the gap may rise for a pass, but a bar does not go back
            self._bar.update(percent - self._reached)
            self._reached = percent
