"""Stagewise models as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fcl.checks import shortened
from fcl.cli.common import printable
from fcl.facts import Fact, aligned, table_lines
from fcl.model.outputs import column_heads, output_names
from fcl.stagewise.describe import feature_text, place_of, strongest

if TYPE_CHECKING:
    from fcl.stagewise.model import StagewiseModel


def model_lines(model: StagewiseModel, path: str, top: int) -> list[str]:
    """The summary of ``fcl inspect``: facts, blocks, and the strongest named features of each output."""
    lines = aligned([Fact("model", path), *model.facts()])
    if model.history:
        lines += ["", *_history_lines(model, top)]
    names = output_names(model)
    for name, rows in zip(names, strongest(model, top), strict=False):
        output = f", {model.noun} {shortened(name)}".rstrip() if len(names) > 1 else ""
        cells = [[f"{weight:+.5g}", shortened(text)] for text, weight in rows]
        lines += ["", *table_lines([["weight", f"feature{output}"], *cells], [1], 12)]
    return lines


def tsv_lines(model: StagewiseModel) -> Iterator[str]:
    """The weights of all features that predictions use, with a column for each output."""
    names = list(column_heads("weight", model))
    if model.n_rounds > 1:  # of cls, side by side
        names = [f"{name}_round_{k + 1}" for k in range(model.n_rounds) for name in names]
    yield "\t".join(["feature", *names]) + "\n"
    visited = model.weights.features[: model.n_blocks * model.settings.block]
    for feature, weights in enumerate(visited.tolist()):
        text = printable(feature_text(model, feature))
        yield "\t".join([text, *(f"{weight:.17g}" for weight in weights)]) + "\n"


def _history_lines(model: StagewiseModel, top: int) -> list[str]:
    """The last visits of blocks, as many as ``top``."""
    columns = ["loss", "error", "valid_loss", "valid_error", "seconds"]
    shown = model.history[len(model.history) - min(top, len(model.history)) :]
    rows = [
        [place_of(model, row["number"])]
        + ["" if row[name] is None else f"{row[name]:.5g}" for name in columns]
        for row in shown
    ]
    return table_lines([["", *columns], *rows], least=12) if rows else []
