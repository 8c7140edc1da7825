"""The progress and the summary of a path, as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fcl.cli.common import messages
from fcl.cli.progress import View, problem_text
from fcl.cli.report import aligned, certificate_items, strongest_lines
from fcl.drivers.events import Event, Prepared, Started
from fcl.path.events import PointDone, PointStarted
from fcl.units import format_seconds

if TYPE_CHECKING:
    from fcl.path.result import PathPoint, PathResult

__all__ = ["PathView", "path_lines"]

#: Why a path ended, in words.
REASONS = {
    "grid": "all points are done",
    "patience": "the score has not improved for the last points (--patience)",
    "max-active": "the model has as many features as --max-active allows",
    "max-time": "--max-time was reached",
    "interrupted": "interrupted",
}


class PathView(View):
    """A line for each point; another view may show the passes between them.

    Parameters
    ----------
    inner : View or None
        Receives the events of the passes.
    quiet : bool
        Whether to show nothing.
    """

    def __init__(self, inner: View | None, quiet: bool) -> None:
        super().__init__()
        self._inner = inner or View()
        self._quiet = quiet
        self._started = False  # whether the problem was shown; it is not, again, for each fold

    def __enter__(self) -> PathView:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def show(self, event: Event) -> None:
        if isinstance(event, PointDone) and not self._quiet:
            messages.write(point_line(event))
        if isinstance(event, PointStarted | PointDone):
            return
        if isinstance(event, Started):  # its C is not one of the path's
            if not self._started and not self._quiet:
                messages.say(problem_text(event))
            self._started = True
        elif not isinstance(event, Prepared):  # once for each fold
            self._inner(event)


def point_line(event: PointDone) -> str:
    """A finished point in one line."""
    part = f"{event.part}, " if event.part else ""
    score = "" if event.score is None else f"  {event.metric.upper()} {_score(event.score)}"
    return (
        f"{part}point {event.number} of {event.of}  C {event.C:.4g}  active {event.active:,}  "
        f"gap {event.gap:.2e}{score}  passes {event.passes}  {format_seconds(event.seconds)}"
    )


def _score(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.6g}"


def path_lines(path: PathResult, written: list[tuple[str, str]], folder: str) -> list[str]:
    """The summary: the table of points, why the path ended, and the chosen point."""
    chosen, scores = path.chosen, path.scores
    rule = {"best": "the best score", "1se": "the smallest C within one standard error of the best"}
    why = rule[path.select] if scores.known else "the last, since there are no scores"
    items = [
        ("stopped", f"{path.reason}: {REASONS[path.reason]}"),
        ("chosen", f"point {chosen.number + 1}: {why}"),
        ("C", f"{chosen.C:.8g} (alpha {chosen.alpha:.8g})"),
        *certificate_items(chosen.certificate, chosen.active),
    ]
    if scores.error_from:
        items.insert(2, ("errors", f"standard errors from {scores.error_from}"))
    items += [*written, ("points", folder)]
    lines = [*_table(path), "", *aligned(items)]
    if strongest := strongest_lines(chosen.model, 10):
        lines += ["strongest features:", *strongest]
    return lines


def _table(path: PathResult) -> list[str]:
    """The points as a table; * marks the chosen one."""
    scores = path.scores
    metric = scores.metric.upper() if scores.known else ""
    head = [
        "point",
        "C",
        "active",
        "objective",
        "gap",
        metric,
        "se" if scores.error_from else "",
        "seconds",
    ]
    rows = [head, *(_cells(path, point) for point in path.points)]
    kept = [number for number, name in enumerate(head) if name]
    widths = [max(len(row[number]) for row in rows) for number in kept]
    return [
        "  ".join(f"{row[number]:>{width}}" for number, width in zip(kept, widths, strict=True))
        for row in rows
    ]


def _cells(path: PathResult, point: PathPoint) -> list[str]:
    scores: Any = path.scores
    mark = "* " if point is path.chosen else ""
    return [
        f"{mark}{point.number + 1}",
        f"{point.C:.4g}",
        f"{point.active:,}",
        f"{point.certificate.objective:.6g}",
        f"{point.certificate.gap:.1e}",
        _score(float(scores.mean[point.number])),
        _score(float(scores.se[point.number])),
        f"{point.seconds:.2f}",
    ]
