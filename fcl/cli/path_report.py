"""The progress and the summary of a path, as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fcl.cli.common import messages
from fcl.cli.progress import View, problem_text
from fcl.cli.report import covariate_lines, result_lines
from fcl.facts import Fact, aligned
from fcl.path.result import score_text
from fcl.run.events import Event, Jobs, PathStarted, PointDone, PointStarted, Prepared, Started
from fcl.units import counted, format_gap, format_seconds, score_title

if TYPE_CHECKING:
    from fcl.path.result import OuterScores, PathPoint, PathResult


class PathView(View):
    """A line for each point; another view may show the passes between them.

    Parameters
    ----------
    inner : View or None
        Receives the events of the passes.
    """

    def __init__(self, inner: View | None = None) -> None:
        super().__init__()
        self._inner = inner or View()
        self._n_done = 0  # jobs on a cluster

    def __enter__(self) -> PathView:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def show(self, event: Event) -> None:
        if isinstance(event, PointDone):
            messages.write(point_line(event))
        if isinstance(event, Jobs) and event.done > self._n_done:
            self._n_done = event.done
            messages.write(jobs_line(event))
        if isinstance(event, Started):
            messages.say(problem_text(event))
        if isinstance(event, PathStarted | PointStarted | PointDone | Jobs | Started):
            return
        if not isinstance(event, Prepared):  # once for each fold
            self._inner(event)


def point_line(event: PointDone) -> str:
    """A finished point in one line."""
    part = f"{event.part}, " if event.part else ""
    score = (
        "" if event.score is None else f"  {score_title(event.metric)} {score_text(event.score)}"
    )
    return (
        f"{part}point {event.number} of {event.of}  C {event.C:.4g}  active {event.active:,}  "
        f"gap {format_gap(event.gap)}{score}  passes {event.passes}  {format_seconds(event.seconds)}"
    )


def jobs_line(event: Jobs) -> str:
    """The jobs on a cluster in one line."""
    running = f"{counted(event.running, 'job')} on {counted(event.workers, 'worker')}"
    return f"{event.done} of {counted(event.sent, 'job')} done; running: {running}"


def path_lines(path: PathResult, written: list[tuple[str, str]], folder: str) -> list[str]:
    """The summary: the table of points, why the path ended, and the chosen point."""
    known = [f._replace(text=f.text.replace("OUT.path", folder)) for f in path.facts()]
    facts = [*known, *(Fact(*pair) for pair in written), Fact("points", folder)]
    lines = [*_table(path), "", *result_lines(facts, path.chosen.model)]
    lines += covariate_lines(path.chosen.model)
    if path.refit is not None:
        lines += ["", *_refit_lines(path, path.refit)]
    if path.outer is not None:
        lines += ["", *_outer_lines(path.outer)]
    return lines


def _refit_lines(path: PathResult, refit: PathPoint) -> list[str]:
    """What the refit minimises, its certificate, and its score."""
    from fcl.model.facts import proof_facts

    ridge = f"ridge penalty alpha {refit.alpha:.4g} in place of alpha {path.chosen.alpha:.4g}"
    chosen = counted(path.chosen.active, "chosen feature")
    facts = [Fact("refit", f"the {chosen} again, {ridge}"), *proof_facts(refit.model)]
    if not math.isnan(refit.score):
        score = float(path.scores.mean[path.chosen.number])
        text = f"{score_text(refit.score)}{_error(refit.se)}, the chosen model {score_text(score)}"
        facts.append(Fact("score", f"{score_title(path.scores.metric)} {text}", refit.score))
    return aligned(facts)


def _outer_lines(outer: OuterScores) -> list[str]:
    """The table of the outer folds, and their mean score."""
    head = ["outer fold", "rows", "C", "active", "gap", score_title(outer.metric)]
    cells = [
        [
            f"{fold.number + 1}",
            f"{fold.n_rows:,}",
            f"{fold.chosen.C:.4g}",
            f"{fold.chosen.active:,}",
            fold.chosen.certificate.gap_text,
            score_text(fold.score),
        ]
        for fold in outer.folds
    ]
    mean = f"{score_title(outer.metric)} {score_text(outer.mean)}{_error(outer.se)}"
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
    cells = path.point_cells()
    cells[path.chosen.number + 1][0] = f"* {path.chosen.number + 1}"
    return _columns(cells)
