"""The summary of a path, as lines of text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fcl.cli.report import covariate_lines, result_lines
from fcl.facts import Fact, aligned
from fcl.units import counted, score_text, score_title

if TYPE_CHECKING:
    from fcl.path.result import OuterScores, PathPoint, PathResult


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
