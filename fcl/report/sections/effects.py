"""Effects: a logo of letters for windows, otherwise the features that move the margins most.

Features overlap, so that different weights can give the same function. The effect of a letter is the
mean margin of the rows that have it, minus the mean margin of all rows: the function alone decides it.
"""

from __future__ import annotations

import numpy as np

from fcl.report.columns import FeatureStats
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, SECOND, drawing, short
from fcl.report.logo import draw_logo
from fcl.report.measured import LetterEffects
from fcl.units import counted

#: Features of each direction in the picture.
MOST_BARS = 15
#: Characters of the names in the picture; names above the first number put one direction below the other.
SIDE_BY_SIDE, MOST_CHARACTERS = 28, 72


def section(context: Context) -> Section | None:
    """Effects on the rows of the data; None without data or features."""
    measured = context.measured
    if measured is None or not context.model.n_active:
        return None
    if measured.letters is not None:
        lead = (
            "The height of a letter is the mean margin of the rows that have it at this position, minus "
            "the mean margin of all rows. It includes what other letters contribute that occur with it."
        )
        figure = _logo(measured.letters, context.origin)
        return Section("effects", "Effects of letters", lead, blocks=[figure])
    lead = (
        "The features that move the margins most: the standard deviation over "
        f"{counted(measured.features.n_rows, 'row')} of weight times value, in the direction of "
        "the weight."
    )
    if len(measured.features.indices) < context.model.n_active:
        n = len(measured.features.indices)
        lead += f" Only the {n:,} features with the largest |weight| were measured."
    return Section(
        "effects", "Effects of features", lead, blocks=[_bars(context, measured.features)]
    )


def _logo(letters: LetterEffects, origin: int) -> Figure:
    with drawing(9.0, 2.6) as drawn:
        draw_logo(drawn.axes, "ACGT", letters.effects, origin)
        drawn.axes.set(xlabel="position", ylabel="effect on the margin")
    rows = [
        [position - origin, letter, effect, weight]
        for position, (effects, weights) in enumerate(
            zip(letters.effects.tolist(), letters.weights.tolist(), strict=True)
        )
        for letter, effect, weight in zip("ACGT", effects, weights, strict=True)
    ]
    head = ["position", "letter", "effect", "sum of row weights"]
    caption = "Letters above the line raise the margin, letters below lower it."
    return Figure("effects", drawn.svg, caption, Table("effects", head, rows, shown=False))


def _bars(context: Context, stats: FeatureStats) -> Figure:
    """The largest effects towards each label."""
    weights = context.model.weights[stats.indices]
    sides = [_largest(stats, weights < 0.0), _largest(stats, weights > 0.0)]
    titles = ["lower the prediction", "raise the prediction"]
    if context.model.labels is not None:
        titles = [f"towards {short(label, 22)}" for label in context.labels]
    names = [[short(_name(context, stats, i), MOST_CHARACTERS) for i in side] for side in sides]
    n = max(1, *map(len, sides))
    longest = max((len(name) for name in [*names[0], *names[1]]), default=0)
    rows, columns = (1, 2) if longest <= SIDE_BY_SIDE else (2, 1)
    most = float(stats.spread[np.isfinite(stats.spread)].max(initial=0.0)) or 1.0
    with drawing(9.0, rows * (0.7 + 0.22 * n), rows, columns) as drawn:
        for axes, side, texts, title, colour in zip(
            drawn.axes, sides, names, titles, (SECOND, ACCENT), strict=True
        ):
            at = np.arange(n - 1, n - 1 - len(side), -1)
            axes.barh(at, stats.spread[side], height=0.7, color=colour, alpha=0.85)
            axes.set_yticks(at, texts)
            axes.set(title=title, xlim=(0.0, 1.05 * most), ylim=(-0.6, n - 0.4))
            axes.grid(axis="y", visible=False)
    numbers = [
        [_name(context, stats, i), float(weights[i]), stats.mean[i], stats.spread[i]]
        for side in sides
        for i in side
    ]
    head = ["feature", "weight", "mean contribution", "effect"]
    caption = f"The {n} largest effects of each direction."
    return Figure("effects", drawn.svg, caption, Table("effects", head, numbers, shown=False))


def _name(context: Context, stats: FeatureStats, index: int) -> str:
    return context.feature(int(stats.indices[index]))


def _largest(stats: FeatureStats, chosen: np.ndarray) -> np.ndarray:
    at = np.flatnonzero(chosen & (stats.spread > 0.0) & np.isfinite(stats.spread))
    return at[np.argsort(-stats.spread[at], kind="stable")[:MOST_BARS]]
