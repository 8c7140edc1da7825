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
from fcl.report.contract import Context, Figure, Section, Table, number
from fcl.report.figures import ACCENT, INK, PANEL, SECOND, THIRD, drawing, log_axis, short
from fcl.store import local_neighbour
from fcl.types import Floats, Mask
from fcl.units import score_title

#: Points that the picture and the table show.
MOST_POINTS = 500


def section(context: Context) -> Section | None:
    """The points of the path in the folder beside the model; None if this model is not one of them."""
    try:
        read = _read(context)
    except InputError as error:
        return Section("path", "Choice of C", f"The points of the path cannot be read: {error}")
    if read is None:
        return None
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
    areas = [_numbers(found.get(name, ()), len(rows)) for name in ("auroc", "auroc_se")]
    head = [
        "point", "C", metric or "score", "se", "AUROC", "se", "features", "gap", "objective", "seconds",
    ]  # fmt: skip
    known = [True, True, scored, measured, *(np.isfinite(area).any() for area in areas)]
    known += [True] * 4
    names = ("active", "gap", "objective", "seconds")
    lines = [
        [i + 1, *measures, *(number(row.get(name)) for name in names)]
        for i, (row, *measures) in enumerate(zip(rows, values, scores, errors, *areas, strict=True))
    ]
    head, *lines = [list(compress(line, known)) for line in (head, *lines)]
    active = np.array([number(row.get("active")) for row in rows])
    marks: dict[int, list[str]] = {}  # both rules may choose the same point
    for name, rule in (("best", "best"), ("one standard error", "one_se")):
        if found.get(rule) is not None and found[rule] < len(rows):
            marks.setdefault(found[rule], []).append(name)
    errors = np.where(errors >= 0.0, errors, np.nan)
    numbers = (values, active, scores if metric else active, errors)
    panels = [_panel(*numbers, metric or "features", marks, np.ones(len(rows), np.bool_))]
    if metric:
        near = _near_choice(scores, errors, list(marks))
        if near.sum() >= 2 and not near[np.isfinite(scores)].all():
            panels.append(_panel(*numbers, metric, marks, near))
    caption = "Number of features with a weight"
    if metric:
        errs = " with standard errors" if measured else ""
        caption = f"{metric}{errs} over C, and over the number of features; dotted: the choices"
        if len(panels) > 1:
            caption += ". The second picture has the points near the choices"
    return Section(
        "path",
        "Choice of C",
        _lead(found if scored else {}, chosen, len(rows)),
        blocks=[
            Figure("path", panels, f"{caption}."),
            Table(
                "path",
                head,
                lines,
                "Every point has a certificate of its own. The model is the bold line.",
                marked=chosen,
            ),
        ],
    )


def _numbers(values: Sequence[float | None], n: int) -> Floats:
    """Numbers of n points, float64 (n,); NaN where a number is missing."""
    found = [number(value) for value in values[:n]]
    return np.array(found + [math.nan] * (n - len(found)))


def _read(context: Context) -> dict[str, Any] | None:
    """The table of the path in the folder beside the model; None if there is no folder."""
    table = Path(local_neighbour(context.path, FOLDER_SUFFIX), TABLE_NAME)
    return read_table(table) if table.is_file() else None


def score_of_choice(context: Context) -> tuple[str, bool] | None:
    """The score of the model among the points of its path, and whether it is no gain; None if unknown."""
    try:
        found = (_read(context) or {}).get("result", {})
    except InputError:
        return None
    at, scores, errors = found.get("chosen"), found.get("score", ()), found.get("se", ())
    if at is None or not at < min(len(scores), len(errors)) or not found.get("metric"):
        return None
    score, se, empty = number(scores[at]), number(errors[at]), number(found.get("empty"))
    if not math.isfinite(score):
        return None
    error = f", standard error {se:.2g}" if math.isfinite(se) else ""
    without = f"; a model without features {empty:.4g}" if math.isfinite(empty) else ""
    name = short(score_title(found["metric"]), 12)
    words = f"When C was chosen: {name} {score:.4g}{error}{without}."
    return words, bool(_no_gain(found, at))


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


def _near_choice(scores: Floats, errors: Floats, chosen: list[int]) -> Mask:
    """The points whose scores are within a fifth of the range of scores from a choice."""
    known = np.isfinite(scores)
    if not chosen or not known[chosen].all():
        return known
    reach = max(0.2 * np.ptp(scores[known]), 2.0 * np.nan_to_num(errors[chosen]).max())
    distance = np.abs(np.where(known, scores, np.inf)[:, None] - scores[chosen]).min(axis=1)
    return distance <= reach


def _panel(
    C: Floats,
    active: Floats,
    values: Floats,
    errors: Floats,
    name: str,
    marks: dict[int, list[str]],
    shown: Mask,
) -> str:
    """The values of the points that are shown, over C; marks : names of choices, by point."""
    with drawing(PANEL, 3.2) as drawn:
        axes = drawn.axes
        axes.errorbar(
            C[shown], values[shown], errors[shown],
            fmt=".-", color=ACCENT, ecolor=INK, capsize=2.0,
        )  # fmt: skip
        axes.set(ylabel=name, xlabel="C")
        positive = C[shown & (C > 0.0)]
        low, high = positive.min() / 1.2, positive.max() * 1.2
        log_axis(axes, "x", low, high)
        axes.set_xlim(low, high)
        for (at, names), colour in zip(marks.items(), (SECOND, THIRD), strict=False):
            if shown[at]:
                axes.axvline(C[at], color=colour, linestyle=":", label=", ".join(names))
        if marks:
            drawn.figure.legend(loc="outside upper center", ncols=2)
        if name != "features":
            points = np.flatnonzero(shown)
            some = np.unique(np.linspace(0, len(points) - 1, min(len(points), 6)).astype(np.intp))
            counts = axes.secondary_xaxis("top")
            counts.set_xticks(C[points[some]], [f"{active[i]:.0f}" for i in points[some]])
            counts.set_xticks([], minor=True)
            counts.set_xlabel("features")
    return drawn.svg
