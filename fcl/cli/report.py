"""Summaries of a model, a training, a path and a certificate, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fcl.checks import shortened, shown
from fcl.facts import LISTED_OUTPUTS, Fact, aligned, table_lines, whole
from fcl.units import counted, score_text, score_title

if TYPE_CHECKING:
    from fcl.drivers.optimality import Optimality
    from fcl.drivers.result import TrainResult
    from fcl.model import Model
    from fcl.model.frames import FeatureRow, OutputFeature
    from fcl.path.result import OuterScores, PathPoint, PathResult


def model_lines(model: Model, path: str, top: int) -> list[str]:
    """The summary of ``fcl inspect``."""
    lines = aligned([Fact("model", path), *model.facts()])
    if strongest := strongest_lines(model, top):
        lines += ["", *strongest]
    return [*lines, *covariate_lines(model)]


def result_lines(facts: Iterable[Fact], model: Model) -> list[str]:
    """The summary at the end of a command that learnt a model: its facts, and the strongest features."""
    lines = aligned(facts)
    if strongest := strongest_lines(model, 10):
        lines += ["strongest features:", *strongest]
    return lines


def strongest_lines(model: Model, top: int) -> list[str]:
    """A table of the `top` features of largest |weight|; of several outputs, a table for each."""
    if model.n_outputs == 1:
        return _table(model.describe(top))
    lines: list[str] = []
    for label in model.output_labels[:LISTED_OUTPUTS]:
        table = _table(model.describe(top, label))
        lines += [
            f"{model.noun} {whole(label)}: {'' if table else 'no features'}".rstrip(),
            *table,
        ]
    if model.n_outputs > LISTED_OUTPUTS:
        lines.append(f"... and {model.n_outputs - LISTED_OUTPUTS:,} more; --tsv writes all")
    return lines


def _table(rows: Sequence[FeatureRow | OutputFeature]) -> list[str]:
    cells = [[f"{row.weight:+.5g}", shortened(row.feature), f"{row.support:,}"] for row in rows]
    return table_lines([["weight", "feature", "rows"], *cells], [1], 12) if rows else []


def covariate_lines(model: Model) -> list[str]:
    """A table of the unpenalised covariates, after an empty line; nothing without covariates."""
    rows = model.covariate_rows
    cells = [["coefficient", model.noun, "covariate, not penalised"]]
    cells += [
        [f"{value:+.5g}", shortened(shown(whole(output))), shortened(name)]
        for name, output, value in rows
    ]
    if rows and rows[0][1] is None:  # a single output
        cells = [[first, last] for first, _, last in cells]
    return ["", *table_lines(cells, [1, 2], 12)] if rows else []


def certify_lines(found: Optimality, model: str, notes: Sequence[Fact]) -> list[str]:
    own = Fact("model", f"{model}, {counted(found.n_active, 'active feature')}")
    lines = aligned([own, *found.facts(), *notes])
    cells = [
        [f"{row.slope:.5g}", _weight_text(row.weight), shortened(row.feature)]
        for row in found.violators
    ]
    if cells:
        table = table_lines([["|C g|", "weight", "feature"], *cells], [2], 12)
        lines += ["strongest violators:", *table]
    return lines


def _weight_text(weight: Any) -> str:
    """A weight, or the largest of several outputs."""
    if isinstance(weight, list):
        weight = max(weight, key=abs)
    return f"{weight:+.5g}" if weight else "0"


def warning_line(result: TrainResult, tol: float) -> str | None:
    """A warning if the run ended above its tolerance: both gaps, and the option to change."""
    from fcl.run.reasons import StopReason

    if result.converged or result.reason is StopReason.PATIENCE:
        return None
    knobs = {
        StopReason.MAX_TIME: "raise --max-time, or accept it with a larger --tol",
        StopReason.MAX_PASSES: "raise --max-passes, or accept it with a larger --tol",
        StopReason.INTERRUPTED: "run it longer, or accept it with a larger --tol",
        StopReason.STALLED: "rounding of float64 allows no smaller gap; accept it with a larger --tol",
        StopReason.NO_PROGRESS: "scale the columns, lower --C, or accept it with a larger --tol",
        StopReason.MEMORY: result.message,
    }
    return (
        f"warning: stopped early ({result.reason}) with gap {result.certificate.gap_text} where "
        f"{tol:.3g} was requested; {knobs.get(result.reason, 'see --tol')}"
    )


def path_lines(path: PathResult, written: list[tuple[str, str]], folder: str) -> list[str]:
    """The summary: the table of points, why the path ended, and the chosen point."""
    known = [f._replace(text=f.text.replace("OUT.path", folder)) for f in path.facts()]
    facts = [*known, *(Fact(*pair) for pair in written), Fact("points", folder)]
    lines = [*_points(path), "", *result_lines(facts, path.chosen.model)]
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
        *table_lines([head, *cells]),
        f"mean over the outer folds, each with its own choice of C: {mean}",
    ]


def _error(se: float) -> str:
    return "" if math.isnan(se) else f" (SE {se:.2g})"


def _points(path: PathResult) -> list[str]:
    """The points as a table; * marks the chosen one."""
    cells = path.point_cells()
    cells[path.chosen.number + 1][0] = f"* {path.chosen.number + 1}"
    return table_lines(cells)
