"""Scores of each group of rows: the ranking of labels, or the errors of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fcl.objective.metrics import average_precision, has_both_classes
from fcl.report.contract import Figure, Table, name_text
from fcl.report.figures import ACCENT, FAINT, SECOND, drawing, short
from fcl.report.outputs import GroupErrors
from fcl.report.predictions import Predictions
from fcl.units import counted

#: Groups that the page shows: the largest ones.
MOST_GROUPS = 40

Blocks = list[Figure | Table]


def scores_of_labels(predictions: Predictions, overall: float) -> Blocks:
    """AUPRC of each group, as a picture and a table; nothing without groups.

    Parameters
    ----------
    predictions : Predictions
    overall : float
        AUPRC over all rows.
    """
    shares = predictions.totals.mean("target")
    rows = []
    for group, name, n in _groups(predictions):
        y, margins, weights = predictions.by_group.of_group(group).labelled()
        area = average_precision(y, margins, weights) if has_both_classes(y, weights) else math.nan
        rows.append([name, n, float(shares[group]), area])
    head = ["group", "rows", "share of positive rows", "AUPRC"]
    caption = "AUPRC of each group; the short stroke is a random order, the line all rows together."
    return _blocks(Table("groups", head, rows), overall, caption, strokes=2)


def scores_of_numbers(predictions: Predictions, metric: str) -> Blocks:
    """Errors of each group, as a picture and a table; nothing without groups.

    Parameters
    ----------
    predictions : Predictions
    metric : str
        Name of the metric of the loss.
    """
    totals = predictions.totals
    errors = totals.mean("metric"), np.sqrt(totals.mean("squared")), totals.mean("absolute")
    spread = totals.spread()
    rows = []
    for group, name, n in _groups(predictions):
        of_mean = spread[group]
        share = 1.0 - totals.mean("squared")[group] / of_mean if of_mean > 0.0 else None
        rows.append([name, n, share, *(float(error[group]) for error in reversed(errors))])
    head = ["group", "rows", "R squared", "mean absolute error", "root mean squared error", metric]
    overall = float(totals.all().mean("metric")[0])
    caption = f"{metric} of each group; the line is all rows together."
    if metric == "MAE":  # the metric is a column already
        double = head.index("mean absolute error")
        head, rows = (
            head[:double] + head[double + 1 :],
            [r[:double] + r[double + 1 :] for r in rows],
        )
    return _blocks(Table("groups", head, rows), overall, caption)


def errors_of_outputs(found: GroupErrors | None) -> Blocks:
    """Errors of several outputs in each group, as a picture and a table; nothing without groups."""
    if found is None:
        return []
    names = list(found.errors)
    columns = zip(found.names, found.rows.tolist(), *map(list, found.errors.values()), strict=True)
    rows = [[name_text(name), n, *map(float, errors)] for name, n, *errors in columns if n]
    name = names[-1]
    caption = f"{name[0].upper()}{name[1:]} of each group; the line is all rows together."
    table = Table("groups", ["group", "rows", *names], rows)
    return _blocks(table, found.overall[name], caption)


def _groups(predictions: Predictions) -> list[tuple[int, str, int]]:
    """Number, name and number of rows of the groups whose rows count."""
    rows = predictions.totals.column("rows")
    return [
        (group, name_text(name), int(rows[group]))
        for group, name in enumerate(predictions.group_names)
        if rows[group]
    ]


def _blocks(table: Table, overall: float, caption: str, strokes: int | None = None) -> Blocks:
    """The table, and a picture: its last column as dots, and the column ``strokes`` as strokes."""
    if not table.rows:
        return []
    order = np.argsort([-row[1] for row in table.rows], kind="stable")[:MOST_GROUPS]
    chosen = [table.rows[i] for i in np.sort(order)]
    all_shown = len(chosen) == len(table.rows)
    if not all_shown:
        caption += f" The {MOST_GROUPS} largest of {counted(len(table.rows), 'group')}."
    with drawing(9.0, 0.9 + 0.22 * len(chosen)) as drawn:
        at = np.arange(len(chosen))[::-1]
        if strokes is not None:
            drawn.axes.plot(_numbers(chosen, strokes), at, "|", color=SECOND, markersize=9)
        drawn.axes.plot(_numbers(chosen, -1), at, "o", color=ACCENT, markersize=5)
        drawn.axes.axvline(overall, color=FAINT, linewidth=1.5)
        drawn.axes.set_yticks(at, [f"{short(row[0], 24)} (n = {row[1]:,})" for row in chosen])
        drawn.axes.set(xlabel=table.head[-1], ylim=(-0.6, len(chosen) - 0.4))
        drawn.axes.set_xlim(0.0, 1.02 if strokes is not None else None)
    shown = Table(table.name, table.head, table.rows, "Scores of each group.", all_shown)
    return [Figure("groups", drawn.svg, caption), shown]


def _numbers(rows: Sequence[Sequence[float]], column: int) -> list[float]:
    return [row[column] for row in rows]
