"""Features of several outputs: the strongest ones of each class, number or label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fcl.model.outputs import output_names
from fcl.report.contract import PLURALS, Context, Figure, Section, Table, name_text, output_title
from fcl.report.figures import ACCENT, INK, SECOND, drawing, short
from fcl.report.sections.features import equal, folded, positions
from fcl.units import counted

#: Outputs whose features are drawn, and outputs in a picture.
MOST_DRAWN, IN_PICTURE = 24, 4
#: Bars of an output.
MOST_BARS = 10
#: Characters of the names in the picture; longer ones put one output below the other.
SIDE_BY_SIDE, MOST_CHARACTERS = 28, 72
#: Outputs in the table of the outputs, and weights in the table of the features.
MOST_OUTPUTS, MOST_ROWS = 100, 1_000


class FeatureLine(NamedTuple):
    """A weight, with the features of equal columns by their indices in ``model.ids``."""

    output: int
    rank: int  #: among the lines of the output
    members: list[int]  #: the strongest is first


def section(context: Context) -> Section:
    """The strongest features of each output."""
    model = context.model
    if not model.n_active:
        return Section("features", "Features", "The model has no features.", blocks=[_own(context)])
    nouns = PLURALS[model.noun]
    total = counted(model.family.n_features, "feature")
    lead = f"The model gives weights to {model.n_active:,} of {total}."
    if model.group:
        lead += f" A feature is in the model for all {nouns}, or for none of them."
    elif model.noun == "class":
        lead += (
            " The same number added to the weights of all classes would change no probability; the L1 "
            "norm is smallest where their median is 0."
        )
    lead += (
        f' Single rows are not shown for several {nouns}: fcl.Model.explain(rows, output="NAME") '
        "divides the margin of one of them among its features."
    )
    lines = list(_lines(context))
    summed = np.abs(model.weights).sum(axis=1)
    blocks = [
        _own(context),
        *_pictures(context, lines),
        *positions(context, summed, f", summed over the {nouns},"),
        _table(context, lines),
    ]
    return Section("features", "Features", lead, blocks=blocks)


def _names(context: Context) -> list[str]:
    return [name_text(name) for name in output_names(context.model)]


def _lines(context: Context) -> Iterator[FeatureLine]:
    """The nonzero weights of each output by decreasing |weight|, those of equal columns as one line."""
    stats = None if context.outputs is None else context.outputs.features
    for number, weights in enumerate(context.model.weights.T):
        active = np.flatnonzero(weights)
        order = active[np.argsort(-np.abs(weights[active]), kind="stable")]
        for rank, members in enumerate(folded(stats, order)):
            yield FeatureLine(number, rank, members)


def _own(context: Context) -> Table:
    """Intercept and number of features of each output."""
    weights = context.model.weights
    counts = [(weights > 0.0).sum(axis=0).tolist(), (weights < 0.0).sum(axis=0).tolist()]
    columns = (_names(context), context.model.intercepts.tolist(), *counts)
    rows = [list(row) for row in zip(*columns, strict=True)]
    head = [context.model.noun, "intercept", "weights above 0", "weights below 0"]
    more = f" The first {MOST_OUTPUTS} of {len(rows):,}." if len(rows) > MOST_OUTPUTS else ""
    return Table("intercepts", head, rows[:MOST_OUTPUTS], f"The {PLURALS[head[0]]}.{more}")


# -- pictures --------------------------------------------------------------------------------------


def _pictures(context: Context, lines: list[FeatureLine]) -> Iterator[Figure]:
    """The strongest features of the first outputs, a few outputs in each picture."""
    names = _names(context)
    bars: list[list[FeatureLine]] = [[] for _ in names[:MOST_DRAWN]]
    for line in lines:
        if line.output < len(bars) and line.rank < MOST_BARS:
            bars[line.output].append(line)
    drawn = [own for own in bars if own]
    longest = max(len(_label(context, line)) for own in drawn for line in own)
    columns = 2 if longest <= SIDE_BY_SIDE else 1
    size = IN_PICTURE if columns == 2 else IN_PICTURE // 2
    for number, first in enumerate(range(0, len(drawn), size)):
        some = drawn[first : first + size]
        caption = ""
        if not number:
            caption = (
                f"The {MOST_BARS} features of the largest |weight| of each {context.model.noun}."
            )
            if len(names) > len(bars):
                caption += (
                    f" The first {len(bars)} of {len(names):,} {PLURALS[context.model.noun]}."
                )
        rows = [
            [names[line.output], context.feature(line.members[0]), _weight(context, line)]
            for own in some
            for line in own
        ]
        key = f"strongest_{number + 1}"
        data = Table(key, [context.model.noun, "feature", "weight"], rows, shown=False)
        yield Figure(key, _bars(context, some, names, columns), caption, data)


def _bars(context: Context, drawn: list[list[FeatureLine]], names: list[str], columns: int) -> str:
    model, columns = context.model, min(columns, len(drawn))
    rows = -(-len(drawn) // columns)
    n = max(map(len, drawn))
    width = 9.0 if columns == 2 or len(drawn) > 1 else 6.0
    with drawing(width, rows * (0.6 + 0.2 * n), rows, columns, squeeze=False) as picture:
        for axes in picture.axes.ravel()[len(drawn) :]:
            axes.set_axis_off()
        for axes, own in zip(picture.axes.ravel(), drawn, strict=False):
            weights = [_weight(context, line) for line in own]
            at = np.arange(n - 1, n - 1 - len(own), -1)
            colours = [ACCENT if weight > 0.0 else SECOND for weight in weights]
            axes.barh(at, weights, height=0.7, color=colours, alpha=0.85)
            axes.axvline(0.0, color=INK, linewidth=0.6)
            axes.set_yticks(at, [_label(context, line) for line in own])
            title = output_title(model.noun, names[own[0].output], model.labels is not None)
            axes.set(title=short(title, 40), ylim=(-0.6, n - 0.4))
            axes.grid(axis="y", visible=False)
            axes.locator_params(axis="x", nbins=5)
    svg: str = picture.svg
    return svg


def _label(context: Context, line: FeatureLine) -> str:
    return short(context.feature(line.members[0]), MOST_CHARACTERS)


def _weight(context: Context, line: FeatureLine) -> float:
    return float(context.model.weights[line.members[0], line.output])


# -- the table -------------------------------------------------------------------------------------


def _table(context: Context, lines: list[FeatureLine]) -> Table:
    """The strongest weights of each output, by decreasing |weight|."""
    model, names = context.model, _names(context)
    chosen = sorted(lines, key=lambda line: (line.rank, -abs(_weight(context, line))))[:MOST_ROWS]
    chosen.sort(key=lambda line: -abs(_weight(context, line)))
    effects = _effects(context)
    rows = []
    for line in chosen:
        first, weight = line.members[0], _weight(context, line)
        row = [weight, names[line.output], context.feature(first), int(model.support[first])]
        if effects is not None:
            row.append(abs(weight) * effects[first] if first in effects else None)
        rows.append([*row, equal(context, line.members[1:], model.weights[:, line.output])])
    head = ["weight", model.noun, "feature", "rows", *["effect"] * (effects is not None)]
    caption = _caption(context, len(lines))
    return Table("features", [*head, "equal columns"], rows, caption, sortable=True)


def _effects(context: Context) -> dict[int, float] | None:
    """The standard deviation of the columns that were measured, by the index of the feature."""
    stats = None if context.outputs is None else context.outputs.features
    if stats is None:
        return None
    return dict(zip(stats.indices.tolist(), stats.spread.tolist(), strict=True))


def _caption(context: Context, n_lines: int) -> str:
    text = "Rows: training rows in which the feature is not 0."
    if context.outputs is not None and context.outputs.features is not None:
        text += (
            " Effect: standard deviation of weight times value, over "
            f"{counted(context.outputs.features.n_rows, 'row')}. Features with equal columns on these "
            "rows are folded into one line."
        )
    if n_lines > MOST_ROWS:
        text += (
            f" The table has {MOST_ROWS:,} of {n_lines:,} lines, the strongest of each "
            f"{context.model.noun}."
        )
    return text
