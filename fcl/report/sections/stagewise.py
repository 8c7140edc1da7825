"""Stagewise models: loss and error after each visit of a block."""

from __future__ import annotations

import numpy as np

from fcl.model.history import History
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, INK, PANEL, SECOND, drawing
from fcl.report.sections.convergence import MOST_DOTS, MOST_DRAWN, MOST_PASSES
from fcl.stagewise.model import StagewiseModel

COLUMNS = ("loss", "valid_loss", "error", "valid_error", "seconds")


def section(context: Context) -> Section | None:
    """Loss and error after each visit of a block; None if the model has no history."""
    model = context.predictor
    assert isinstance(model, StagewiseModel)
    history = History(model.history)
    if not len(history):
        return None
    columns = {name: history.column(name) for name in ("number", *COLUMNS)}
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    table = Table("visits", list(columns), rows, shown=False)
    caption = "Mean loss and share of errors. Dashed: where the weights of the model were taken."
    figure = Figure("visits", _draw(columns, model.best_number), caption, table)
    lead = (
        "A visit of a block of features lowers the loss of the training rows. The model has the weights "
        "of the visit with the lowest loss of the validation rows, if there are any."
    )
    facts = [(fact.name, fact.text) for fact in model.facts() if fact.name not in ("file", "data")]
    return Section("convergence", "Certificate and training", lead, facts, [figure], folded=True)


def _draw(columns: dict[str, np.ndarray], best: int) -> list[str]:
    n = len(columns["number"])
    at = np.unique(np.linspace(0, n - 1, MOST_PASSES).astype(np.intp))
    x, style = columns["number"][at], ".-" if n <= MOST_DOTS else "-"
    panels = []
    for name in ["loss"] + ["error"] * bool(np.isfinite(columns["error"]).any()):
        with drawing(PANEL, 2.6) as drawn:
            for column, colour in ((name, ACCENT), (f"valid_{name}", SECOND)):
                values = columns[column][at]
                known = np.where(np.abs(values) < MOST_DRAWN, values, np.nan)
                label = "validation" if column.startswith("valid") else "training"
                drawn.axes.plot(x, known, style, color=colour, label=label)
            drawn.axes.axvline(best, color=INK, linewidth=0.8, linestyle="--")
            drawn.axes.set(xlabel="visits of blocks", ylabel=name)
            drawn.axes.locator_params(axis="x", integer=True)
            drawn.figure.legend(loc="outside upper center", ncols=2)
        panels.append(drawn.svg)
    return panels
