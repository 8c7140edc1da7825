"""Progress of a path on a bar such as tqdm's, which counts finished points."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fcl.drivers.bar import Bar, Progress, as_bar
from fcl.drivers.events import Event, PassDone
from fcl.drivers.reporting import Reporter
from fcl.path.events import PointDone, PointStarted
from fcl.units import format_gap


@contextmanager
def reporting(
    progress: Progress | None, should_stop: Callable[[], bool] | None
) -> Iterator[Reporter]:
    """Yield the reporter of the events of a path; closes a bar at the end.

    Parameters
    ----------
    progress : callable, Bar, subclass of Bar, or None
        A function gets every event. A class such as ``tqdm.tqdm`` is called with ``total=None`` to
        create the bar, since rules may end a path before its last point.
    should_stop : callable or None
    """
    bar = as_bar(progress, None)
    if bar is None:
        yield Reporter(progress, should_stop)
        return
    try:
        yield Reporter(_OnBar(bar), should_stop)
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
                self._values["gap"] = format_gap(event.gap)
            case PointDone():
                self._bar.update(1)
                return
            case _:
                return
        self._bar.set_postfix(**self._values)
