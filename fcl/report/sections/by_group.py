"""Scores of each group of rows: the ranking of one label, or the errors of other outputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fcl.report.contract import Figure, Table, name_text
from fcl.report.figures import ACCENT, FAINT, PANEL, SECOND, drawing, short
from fcl.report.predictions import Predictions, Totals
from fcl.report.scores import areas
from fcl.types import Floats
from fcl.units import counted

#: Groups that the page shows: the largest ones.
MOST_GROUPS = 40

Blocks = list[Figure | Table]


def scores_by_group(predictions: Predictions, metric: str = "") -> Blocks:
    """Scores of each group, as a picture and a table; nothing without groups.

    metric : name of the metric of numbers.
    """
    if not predictions.group_names:
        return []
    kept = np.flatnonzero(predictions.totals.column("rows") > 0.0)
    names = [name_text(predictions.group_names[group]) for group in kept.tolist()]
    rows = predictions.totals.column("rows").astype(np.int64)[kept].tolist()
    if predictions.kind == "label" and len(predictions.outputs.sums) == 1:
        columns = {
            "share of positive rows": predictions.totals.mean("target")[kept],
            "AUPRC": np.array([areas(predictions.by_group.of_group(g))[0] for g in kept.tolist()]),
        }
        overall = areas(predictions.margins)[0]
        caption = (
            "AUPRC of each group; the short stroke is a random order, the line all rows together."
        )
    else:
        errors = _errors(predictions, predictions.totals, metric)
        columns = {name: values[kept] for name, values in errors.items()}
        name = list(columns)[-1]
        overall = float(_errors(predictions, predictions.totals.all(), metric)[name][0])
        caption = f"{name[0].upper()}{name[1:]} of each group; the line is all rows together."
    numbers = {name: values.tolist() for name, values in columns.items()}
    table = Table.of("groups", {"group": names, "rows": rows, **numbers})
    return _blocks(table, overall, caption, strokes=2 if "AUPRC" in columns else None)


def _errors(predictions: Predictions, totals: Totals, metric: str) -> dict[str, Floats]:
    """The errors of each line of sums by name; the last one is drawn."""
    if predictions.kind != "target":
        return {"log loss": totals.mean("log_loss"), "error": totals.mean("wrong")}
    errors = {
        "mean absolute error": totals.mean("absolute"),
        "root mean squared error": np.sqrt(totals.mean("squared")),
    }
    if len(predictions.outputs.sums) == 1:
        errors = {"R squared": totals.explained(), **errors}
    errors.pop(metric, None)
    return errors | {metric: totals.mean("metric")}


def _blocks(table: Table, overall: float, caption: str, strokes: int | None = None) -> Blocks:
    """The table, and a picture: its last column as dots, and the column ``strokes`` as strokes."""
    if not table.rows:
        return []
    order = np.argsort([-row[1] for row in table.rows], kind="stable")[:MOST_GROUPS]
    chosen = [table.rows[i] for i in np.sort(order)]
    all_shown = len(chosen) == len(table.rows)
    if not all_shown:
        caption += f" The {MOST_GROUPS} largest of {counted(len(table.rows), 'group')}."
    with drawing(PANEL, 0.9 + 0.2 * len(chosen)) as drawn:
        at = np.arange(len(chosen))[::-1]
        if strokes is not None:
            drawn.axes.plot(_numbers(chosen, strokes), at, "|", color=SECOND, markersize=9)
        drawn.axes.plot(_numbers(chosen, -1), at, "o", color=ACCENT, markersize=5)
        drawn.axes.axvline(overall, color=FAINT, linewidth=1.5)
        drawn.axes.set_yticks(at, [f"{short(row[0], 18)} ({row[1]:,} rows)" for row in chosen])
        drawn.axes.set(xlabel=table.head[-1], ylim=(-0.6, len(chosen) - 0.4))
        drawn.axes.set_xlim(0.0, 1.02 if strokes is not None else None)
    shown = Table(table.name, table.head, table.rows, "Scores of each group.", all_shown)
    return [Figure("groups", [drawn.svg], caption), shown]


def _numbers(rows: Sequence[Sequence[float]], column: int) -> list[float]:
    return [row[column] for row in rows]
