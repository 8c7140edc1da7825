"""Effects of letters on the margin of each of several outputs, as logos."""

from __future__ import annotations

import numpy as np

from fcl.model.outputs import output_names
from fcl.report.contract import Context, Figure, Section, Table, name_text
from fcl.report.figures import drawing, short
from fcl.report.logo import draw_logo

#: Outputs that are drawn.
MOST_DRAWN = 6


def section(context: Context) -> Section | None:
    """A logo for each output; None without windows of letters, or features."""
    measured, model = context.outputs, context.model
    if measured is None or measured.letters is None or not model.n_active:
        return None
    names = [name_text(name) for name in output_names(model)]
    lead = (
        "The height of a letter is the mean margin of the rows that have it at this position, minus "
        "the mean margin of all rows. It includes what other letters contribute that occur with it."
    )
    if model.noun == "class":
        lead += " Margins of classes count less the mean margin of all classes."
    if len(names) > MOST_DRAWN:
        lead += f" The first {MOST_DRAWN} of {len(names):,}; --save-data writes all."
    drawn = measured.letters[:MOST_DRAWN]
    most = max(float(np.abs(letters.effects).sum(axis=1).max()) for letters in drawn)
    with drawing(9.0, 0.5 + 1.5 * len(drawn), len(drawn), sharex=True, squeeze=False) as picture:
        for axes, letters, name in zip(picture.axes[:, 0], drawn, names, strict=False):
            draw_logo(axes, "ACGT", letters.effects, context.origin)
            low, high = axes.get_ylim()
            axes.set(ylabel=short(name, 20), ylim=(min(low, -0.05 * most), max(high, 0.05 * most)))
        picture.axes[-1, 0].set_xlabel("position")
    rows = [
        [name, position - context.origin, letter, effect, weight]
        for name, letters in zip(names, measured.letters, strict=True)
        for position, (effects, weights) in enumerate(
            zip(letters.effects.tolist(), letters.weights.tolist(), strict=True)
        )
        for letter, effect, weight in zip("ACGT", effects, weights, strict=True)
    ]
    head = [model.noun, "position", "letter", "effect", "sum of row weights"]
    data = Table("effects", head, rows, shown=False)
    caption = "Letters above the line raise the margin, letters below lower it."
    figure = Figure("effects", picture.svg, caption, data)
    return Section("effects", "Effects of letters", lead, blocks=[figure])
