"""Stagewise models: loss and error after each visit of a block."""

from __future__ import annotations

import numpy as np

from fcl.model.history import History
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, INK, PANEL, SECOND, drawing
from fcl.report.sections.convergence import plot, thinned
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
    caption = "Mean loss and share of errors. Dashed: where the weights of the model were taken."
    figure = Figure(
        "visits", _draw(columns, model.best_number), caption, Table.of("visits", columns)
    )
    lead = (
        "A visit of a block of features lowers the loss of the training rows. The model has the weights "
        "of the visit with the lowest loss of the validation rows, if there are any."
    )
    facts = [(fact.name, fact.text) for fact in model.facts() if fact.name not in ("file", "data")]
    return Section("convergence", "Certificate and training", lead, facts, [figure], folded=True)


def _draw(columns: dict[str, np.ndarray], best: int) -> list[str]:
    curves = thinned(columns)
    panels = []
    for name in ["loss"] + ["error"] * bool(np.isfinite(columns["error"]).any()):
        with drawing(PANEL, 2.6) as drawn:
            axes, x = drawn.axes, curves["number"]
            plot(axes, x, curves[name], ACCENT, "training")
            plot(axes, x, curves[f"valid_{name}"], SECOND, "validation")
            axes.axvline(best, color=INK, linewidth=0.8, linestyle="--")
            axes.set(xlabel="visits of blocks", ylabel=name)
            axes.locator_params(axis="x", integer=True)
            drawn.figure.legend(loc="outside upper center", ncols=2)
        panels.append(drawn.svg)
    return panels
