"""Progress of a path on a bar such as tqdm's, which counts finished points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fcl.drivers.bar import Bar, Progress, as_bar, on_event
from fcl.drivers.events import Event, PassDone
from fcl.path.events import PointDone, PointStarted

__all__ = ["reporting"]


@contextmanager
def reporting(progress: Progress | None) -> Iterator[Callable[[Event], Any]]:
    """Yield a function that takes the events of a path and passes them on; closes a bar at the end.

    Parameters
    ----------
    progress : callable, Bar, subclass of Bar, or None
        A function gets every event. A class such as ``tqdm.tqdm`` is called with ``total=None`` to
        create the bar, since rules may end a path before its last point.
    """
    bar = as_bar(progress, None)
    if bar is None:
        yield on_event(progress)
        return
    try:
        yield _OnBar(bar)
    finally:
        bar.close()


class _OnBar:
    """Shows the events of a path on a bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._values: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case PointStarted():
                self._values = {"part": event.part} if event.part else {}
                self._values["C"] = f"{event.C:.3g}"
            case PassDone():
                self._values["gap"] = f"{event.gap:.2e}"
            case PointDone():
                self._bar.update(1)
                return
            case _:
                return
        self._bar.set_postfix(**self._values)
