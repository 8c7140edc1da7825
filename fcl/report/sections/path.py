"""The path over C that chose the model, in the manner of glmnet: scores, counts, and both choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.files.path import FOLDER_SUFFIX, TABLE_NAME, read_table
from fcl.path.rules import is_no_gain
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, INK, SECOND, THIRD, drawing, log_axis, short
from fcl.report.sections.head import number
from fcl.store import local_neighbour
from fcl.types import Floats
from fcl.units import score_title

#: Points that the picture and the table show.
MOST_POINTS = 500


def section(context: Context) -> Section | None:
    """The points of the path in the folder beside the model; None if this model is not one of them."""
    table = Path(local_neighbour(context.path, FOLDER_SUFFIX), TABLE_NAME)
    if not table.is_file():
        return None
    try:
        read = read_table(table)
    except InputError as error:
        return Section("path", "Path", f"The points of the path cannot be read: {error}")
    rows = read["points"][:MOST_POINTS]
    values = np.array([number(row["C"]) for row in rows])
    # C may be far below any absolute tolerance
    same = (math.isclose(value, context.model.C, rel_tol=1e-12) for value in values.tolist())
    chosen = next(compress(range(len(values)), same), None)
    if chosen is None:
        return None
    found = read.get("result", {})
    scores, errors = (_numbers(found.get(name, ()), len(rows)) for name in ("score", "se"))
    scored, measured = np.isfinite(scores).any(), np.isfinite(errors).any()
    metric = short(score_title(found.get("metric", "")), 12) if scored else ""
    points = [[row.get(name) for name in ("active", "objective", "gap", "seconds")] for row in rows]
    lines = [
        [i + 1, value, *map(number, point[:3]), score, error, number(point[3])]
        for i, (value, point, score, error) in enumerate(
            zip(values, points, scores, errors, strict=True)
        )
    ]
    head = ["point", "C", "features", "objective", "gap", metric or "score", "se", "seconds"]
    known = [*[True] * 5, scored, measured, True]
    head, *lines = [list(compress(line, known)) for line in (head, *lines)]
    active = np.array([number(point[0]) for point in points])
    marks = {"best": found.get("best"), "one standard error": found.get("one_se")}
    picture = _draw(values, active, scores, errors, metric, marks)
    caption = "Number of features with a weight"
    if metric:
        errs = " with standard errors" if measured else ""
        caption = f"{metric}{errs}, above it the number of features; dotted: the choices"
    return Section(
        "path",
        "Path",
        _lead(found if scored else {}, chosen, len(rows)),
        blocks=[
            Figure("path", picture, f"{caption}."),
            Table("path", head, lines, "Every point has a certificate of its own."),
        ],
    )


def _numbers(values: Sequence[float | None], n: int) -> Floats:
    """Numbers of n points, float64 (n,); NaN where a number is missing."""
    found = [number(value) for value in values[:n]]
    return np.array(found + [math.nan] * (n - len(found)))


def _lead(found: dict[str, Any], chosen: int, n: int) -> str:
    text = f"The model is point {chosen + 1} of {n}, by increasing C."
    rule = {
        "best": "the best score",
        "1se": "the smallest C within one standard error of the best score",
    }
    words = rule.get(found.get("select", ""))
    if words and found.get("chosen") == chosen and found.get("metric"):
        text += f" It has {words}."
    text += _no_gain(found, chosen)
    if found.get("error_from"):
        text += f" Standard errors come from {short(found['error_from'], 80)}."
    outer = found.get("outer")
    if outer is not None and math.isfinite(mean := number(outer["mean"])):
        metric, se = short(score_title(outer["metric"]), 12), number(outer["se"])
        text += f" Nested cross-validation of the whole procedure: {metric} {mean:.4g}"
        text += f", standard error {se:.2g}." if math.isfinite(se) else "."
    return text


def _no_gain(found: dict[str, Any], chosen: int) -> str:
    """A sentence if the model is not clearly better than the model without features."""
    scores, errors = (found.get(name, ()) for name in ("score", "se"))
    empty = number(found.get("empty"))
    if found.get("chosen") != chosen or chosen >= min(len(scores), len(errors)):
        return ""
    score, se = number(scores[chosen]), number(errors[chosen])
    if not is_no_gain(score, empty, se, bool(found.get("higher_is_better"))):
        return ""
    metric = short(score_title(found.get("metric", "")), 12)
    return (
        f" It is not clearly better than a model without features: {metric} {score:.4g}, without "
        f"features {empty:.4g}."
    )


def _draw(
    C: Floats,
    active: Floats,
    scores: Floats,
    errors: Floats,
    metric: str,
    marks: dict[str, Any],
) -> str:
    with drawing(9.0, 3.0) as drawn:
        axes = drawn.axes
        positive = C[C > 0.0]
        if metric:
            errors = np.where(errors >= 0.0, errors, np.nan)
            axes.errorbar(C, scores, errors, fmt=".-", color=ACCENT, ecolor=INK, capsize=2.0)
            axes.set_ylabel(metric)
        else:
            axes.plot(C, active, ".-", color=ACCENT)
            axes.set_ylabel("features")
        axes.set_xlabel("C")
        log_axis(axes, "x", positive.min(), positive.max())
        axes.set_xlim(positive.min() / 1.2, positive.max() * 1.2)
        at_points: dict[int, list[str]] = {}  # both rules may choose the same point
        for name, at in marks.items():
            if at is not None and at < len(C):
                at_points.setdefault(at, []).append(name)
        for (at, names), colour in zip(at_points.items(), (SECOND, THIRD), strict=False):
            axes.axvline(C[at], color=colour, linestyle=":", label=",\n".join(names))
        if axes.get_legend_handles_labels()[1]:
            drawn.figure.legend(loc="outside right center")
        if metric:
            some = np.unique(np.linspace(0, len(C) - 1, min(len(C), 10)).astype(np.intp))
            counts = axes.secondary_xaxis("top")
            counts.set_xticks(C[some], [f"{active[i]:.0f}" for i in some])
            counts.set_xticks([], minor=True)
            counts.set_xlabel("features")
    svg: str = drawn.svg
    return svg
