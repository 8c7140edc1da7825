"""Stagewise models: what they are, and loss and error after each visit of a block."""

from __future__ import annotations

import numpy as np

from fcl.checks import shortened
from fcl.model.history import History
from fcl.model.outputs import output_names
from fcl.report.contract import Figure, OutputsContext, Section, Table, name_text
from fcl.report.figures import ACCENT, INK, SECOND, drawing
from fcl.report.sections.convergence import MOST_DOTS, MOST_PASSES
from fcl.stagewise.describe import certificate, problem, strongest, validation
from fcl.stagewise.model import StagewiseModel

#: Features of each output, and outputs, that the page shows.
MOST_FEATURES, MOST_OUTPUTS = 20, 30
COLUMNS = ("loss", "valid_loss", "error", "valid_error", "seconds")


def _model(context: OutputsContext) -> StagewiseModel:
    assert isinstance(context.model, StagewiseModel)
    return context.model


def head(context: OutputsContext) -> Section:
    """The head of the page."""
    model = _model(context)
    facts = [*problem(model), *validation(model), *certificate(model)]
    shown = [(name, shortened(text, 400)) for name, text in facts]
    return Section("head", "Model and certificate", _proof(model), shown)


def _proof(model: StagewiseModel) -> str:
    found = model.certificate
    if found is None:
        return "Nothing is proved about this model: the gap to the joint optimum was not computed."
    most = max(found.objective - found.bound, 0.0)
    return (
        f"No choice of the intercepts and of weights for all {found.n_features:,} features together "
        "lowers the objective, the sum of the losses and alpha / 2 |W|^2, by more than "
        f"{most:.3g}, which is {found.gap:.3g} of the objective."
    )


def visits(context: OutputsContext) -> Section | None:
    """Loss and error after each visit of a block; None if the model has no history."""
    model = _model(context)
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
    return Section("convergence", "Convergence", lead, blocks=[figure])


def _draw(columns: dict[str, np.ndarray], best: int) -> str:
    n = len(columns["number"])
    at = np.unique(np.linspace(0, n - 1, MOST_PASSES).astype(np.intp))
    x, style = columns["number"][at], ".-" if n <= MOST_DOTS else "-"
    panels = ["loss"] + ["error"] * bool(np.isfinite(columns["error"]).any())
    with drawing(9.0, 2.6, columns=len(panels), squeeze=False) as drawn:
        for axes, name in zip(drawn.axes[0], panels, strict=True):
            for column, colour in ((name, ACCENT), (f"valid_{name}", SECOND)):
                values = columns[column][at]
                axes.plot(x, np.where(np.abs(values) < 1e100, values, np.nan), style, color=colour)
            axes.axvline(best, color=INK, linewidth=0.8, linestyle="--")
            axes.set(xlabel="visits of blocks", ylabel=name)
            axes.locator_params(axis="x", integer=True)
        drawn.axes[0, 0].legend(["training", "validation"], loc="upper right")
    svg: str = drawn.svg
    return svg


def features(context: OutputsContext) -> Section | None:
    """The strongest features of each output; None if descriptions of the features say nothing."""
    model = _model(context)
    names = output_names(model)[:MOST_OUTPUTS]
    tables = [
        Table(
            f"features_{number}",
            ["feature", "weight"],
            [[name_text(text), weight] for text, weight in rows],
            f"{model.noun} {name_text(name)}",
        )
        for number, (name, rows) in enumerate(
            zip(names, strongest(model, MOST_FEATURES), strict=False)
        )
    ]
    if not tables:
        return None
    lead = "The columns with the largest |weight|, in the units of the data, of each output."
    return Section("features", "Features", lead, blocks=tables)
