"""The strongest columns of each output of a stagewise model."""

from __future__ import annotations

from fcl.report.contract import Context, Section, Table, name_text
from fcl.stagewise.describe import strongest
from fcl.stagewise.model import StagewiseModel

#: Features of each output, and outputs, that the page shows.
MOST_FEATURES, MOST_OUTPUTS = 20, 30


def section(context: Context) -> Section | None:
    """The strongest features; None if descriptions of the features say nothing."""
    model = context.predictor
    assert isinstance(model, StagewiseModel)
    tables = [
        Table(
            f"features_{number}",
            ["feature", "weight"],
            [[name_text(text), weight] for text, weight in rows],
            f"{model.noun} {name}".strip(),
        )
        for number, (name, rows) in enumerate(
            zip(context.outputs[:MOST_OUTPUTS], strongest(model, MOST_FEATURES), strict=False)
        )
    ]
    if not tables:
        return None
    lead = "The columns with the largest |weight|, in the units of the data, of each output."
    return Section("features", "Features", lead, blocks=tables)
