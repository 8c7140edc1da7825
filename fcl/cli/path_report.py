"""The progress and the summary of a path, as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fcl.cli.common import messages
from fcl.cli.progress import View, problem_text
from fcl.cli.report import aligned, certificate_items, covariate_lines, strongest_lines
from fcl.drivers.events import Event, Jobs, Prepared, Started
from fcl.path.events import PathStarted, PointDone, PointStarted
from fcl.path.rules import PathStop
from fcl.units import counted, format_seconds, score_title

if TYPE_CHECKING:
    from fcl.path.result import OuterScores, PathPoint, PathResult

#: Why a path ended, in words.
REASONS = {
    PathStop.GRID: "all points are done",
    PathStop.PATIENCE: "the score has not improved for the last points (--patience)",
    PathStop.MAX_ACTIVE: "the model has as many features as --max-active allows",
    PathStop.MAX_TIME: "--max-time was reached",
    PathStop.INTERRUPTED: "interrupted",
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
        self._part = ""
        self._n_done = 0  # jobs on a cluster

    def __enter__(self) -> PathView:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def show(self, event: Event) -> None:
        if isinstance(event, PointDone) and not self._quiet:
            messages.write(point_line(event))
        if isinstance(event, Jobs) and not self._quiet and event.done > self._n_done:
            self._n_done = event.done
            messages.write(jobs_line(event))
        if isinstance(event, PathStarted):
            self._part = f"{event.part}: " if event.part else ""
        if isinstance(event, PathStarted | PointStarted | PointDone | Jobs):
            return
        if isinstance(event, Started):  # its C is not one of the path's
            if not self._started and not self._quiet:
                messages.say(f"{self._part}{problem_text(event)}")
            self._started = True
        elif not isinstance(event, Prepared):  # once for each fold
            self._inner(event)


def point_line(event: PointDone) -> str:
    """A finished point in one line."""
    part = f"{event.part}, " if event.part else ""
    score = "" if event.score is None else f"  {score_title(event.metric)} {_score(event.score)}"
    return (
        f"{part}point {event.number} of {event.of}  C {event.C:.4g}  active {event.active:,}  "
        f"gap {event.gap:.2e}{score}  passes {event.passes}  {format_seconds(event.seconds)}"
    )


def jobs_line(event: Jobs) -> str:
    """The jobs on a cluster in one line."""
    running = f"{counted(event.running, 'job')} on {counted(event.workers, 'worker')}"
    return f"{event.done} of {counted(event.sent, 'job')} done; running: {running}"


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
    if _ends_at_best(path):
        items.insert(2, ("hint", "the last point has the best score: raise --C-max"))
    items += [*written, ("points", folder)]
    lines = [*_table(path), "", *aligned(items)]
    if strongest := strongest_lines(chosen.model, 10):
        lines += ["strongest features:", *strongest]
    lines += covariate_lines(chosen.model)
    if path.refit is not None:
        lines += ["", *_refit_lines(path, path.refit)]
    if path.outer is not None:
        lines += ["", *_outer_lines(path.outer)]
    return lines


def _ends_at_best(path: PathResult) -> bool:
    """Whether a larger C than the last of the grid may have a better score."""
    return path.reason == "grid" and path.best is not None and path.best is path.points[-1]


def _refit_lines(path: PathResult, refit: PathPoint) -> list[str]:
    """What the refit minimises, its certificate, and its score."""
    ridge = f"ridge penalty alpha {refit.alpha:.4g} in place of alpha {path.chosen.alpha:.4g}"
    items = [
        ("refit", f"the {counted(path.chosen.active, 'chosen feature')} again, {ridge}"),
        *certificate_items(refit.certificate, refit.active),
    ]
    if not math.isnan(refit.score):
        chosen = float(path.scores.mean[path.chosen.number])
        text = f"{_score(refit.score)}{_error(refit.se)}, the chosen model {_score(chosen)}"
        items.append(("score", f"{score_title(path.scores.metric)} {text}"))
    return aligned(items)


def _outer_lines(outer: OuterScores) -> list[str]:
    """The table of the outer folds, and their mean score."""
    head = ["outer fold", "rows", "C", "active", "gap", score_title(outer.metric)]
    cells = [
        [
            f"{fold.number + 1}",
            f"{fold.n_rows:,}",
            f"{fold.chosen.C:.4g}",
            f"{fold.chosen.active:,}",
            f"{fold.chosen.certificate.gap:.1e}",
            _score(fold.score),
        ]
        for fold in outer.folds
    ]
    mean = f"{score_title(outer.metric)} {_score(outer.mean)}{_error(outer.se)}"
    return [
        *_columns([head, *cells]),
        f"mean over the outer folds, each with its own choice of C: {mean}",
    ]


def _error(se: float) -> str:
    return "" if math.isnan(se) else f" (SE {se:.2g})"


def _columns(rows: list[list[str]]) -> list[str]:
    """Rows of cells as lines, aligned on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def _table(path: PathResult) -> list[str]:
    """The points as a table; * marks the chosen one."""
    scores = path.scores
    metric = score_title(scores.metric) if scores.known else ""
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
    return _columns([[row[number] for number in kept] for row in rows])


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
