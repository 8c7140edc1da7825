"""Effects: a logo of letters for windows, otherwise the features that move the margins most.

Features overlap, so that different weights can give the same function. The effect of a letter is the
mean margin of the rows that have it, minus the mean margin of all rows: the function alone decides it.
"""

from __future__ import annotations

import numpy as np

from fcl.report.columns import FeatureStats
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import bars, short
from fcl.report.logo import logo_panels
from fcl.report.measured import LetterEffects
from fcl.types import Floats
from fcl.units import counted

#: Features of each direction in the picture.
MOST_BARS = 15
#: Outputs whose letters are drawn.
MOST_DRAWN = 6


def section(context: Context) -> Section | None:
    """Effects on the rows of the data; None without data or features."""
    measured = context.measured
    if measured is None or measured.features is None or not context.model.n_active:
        return None
    if measured.letters is not None:
        return _of_letters(context, measured.letters)
    if len(context.outputs) > 1:  # the section of the features has the weights of each output
        return None
    stats = measured.features
    lead = (
        "The features that move the margins most: the standard deviation over "
        f"{counted(stats.n_rows, 'row')} of weight times value, in the direction of the weight."
    )
    if len(stats.indices) < context.model.n_active:
        n = len(stats.indices)
        lead += f" Only the {n:,} features with the largest |weight| were measured."
    return Section("effects", "Effects of features", lead, blocks=[_bars(context, stats)])


def _of_letters(context: Context, letters: LetterEffects) -> Section:
    names = context.outputs
    lead = (
        "The height of a letter is the mean margin of the rows that have it at this position, minus "
        "the mean margin of all rows. It includes what other letters contribute that occur with it."
    )
    if context.model.noun == "class" and len(names) > 1:
        lead += " Margins of classes count less the mean margin of all classes."
    if len(names) > MOST_DRAWN:
        lead += f" The first {MOST_DRAWN} of {len(names):,}; --save-data writes all."
    panels: list[str] = []
    sentence = ""
    for number, name in enumerate(names[:MOST_DRAWN]):
        effects = letters.effects[:, :, number]
        title = short(context.heading(number), 30) if name else ""
        drawn, sentence = logo_panels(
            "ACGT", effects, context.origin, "effect on the margin", title=title
        )
        panels += drawn
    caption = "Letters above the line raise the margin, letters below lower it."
    rows = [
        [name, position - context.origin, letter, *map(float, pair)]
        for number, name in enumerate(names)
        for position in range(len(letters.weights))
        for letter, *pair in zip(
            "ACGT", letters.effects[position, :, number], letters.weights[position], strict=True
        )
    ]
    head = [context.model.noun, "position", "letter", "effect", "sum of row weights"]
    if len(names) == 1:
        head, rows = head[1:], [row[1:] for row in rows]
        caption = f"{caption} {sentence}".rstrip()
    figure = Figure("effects", panels, caption, Table("effects", head, rows, shown=False))
    return Section("effects", "Effects of letters", lead, blocks=[figure])


def _bars(context: Context, stats: FeatureStats) -> Figure:
    """The largest effects in each direction."""
    weights = context.weights[stats.indices, 0]
    with np.errstate(over="ignore"):
        effects = np.abs(weights) * stats.spread
    most = float(effects[np.isfinite(effects)].max(initial=0.0)) or 1.0
    panels, rows = [], []
    for sign, title in zip((-1.0, 1.0), context.directions, strict=True):
        side = _largest(effects, sign * weights > 0.0)
        names = [context.feature(int(stats.indices[i])) for i in side]
        panels.append(bars(names, (sign * effects[side]).tolist(), short(title, 40), most))
        rows += [
            [name, float(weights[i]), float(weights[i] * stats.mean[i]), float(effects[i])]
            for name, i in zip(names, side, strict=True)
        ]
    head = ["feature", "weight", "mean contribution", "effect"]
    caption = f"The largest effects of each direction, at most {MOST_BARS}."
    return Figure("effects", panels, caption, Table("effects", head, rows, shown=False))


def _largest(effects: Floats, chosen: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(chosen & (effects > 0.0) & np.isfinite(effects))
    return at[np.argsort(-effects[at], kind="stable")[:MOST_BARS]]
