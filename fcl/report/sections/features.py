"""Features: motifs, where patterns are, which features are strong, and which ones are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fcl.report.columns import FeatureStats
from fcl.report.contract import Context, Figure, Section, Table, first_of
from fcl.report.figures import ACCENT, PANEL, SECOND, bars, drawing, short
from fcl.report.logo import draw_logo
from fcl.report.motifs import MergedMotif, WeightedMotif, merged_motifs
from fcl.types import Floats
from fcl.units import counted, format_share

#: Weights in the table of the page, and outputs in the table of the outputs.
MOST_ROWS, MOST_OUTPUTS = 1_000, 100
#: Features with equal columns that are named beside the first one.
MOST_EQUAL = 5
#: Positions in a picture; neighbouring positions of longer windows are added up.
MOST_POSITIONS = 300
#: Several outputs whose strongest features are drawn, and bars of each.
MOST_DRAWN, MOST_BARS = 24, 10
#: Motifs that are drawn, and lines of their table.
MOST_MOTIFS, MOST_MOTIF_ROWS = 8, 12
#: Positions of the picture of a motif at least, so that a single letter is not wide.
LEAST_POSITIONS = 8
#: Patterns that are merged: each is compared with all motifs so far.
MOST_MERGED = 1_000


class FeatureLine(NamedTuple):
    """A weight, with the features of equal columns by their indices in ``model.ids``."""

    output: int
    rank: int  #: among the lines of the output
    members: list[int]  #: the strongest is first


def section(context: Context) -> Section:
    """The strongest features of each output."""
    model = context.model
    outputs = [_of_outputs(context)] if len(context.outputs) > 1 else []
    if not model.n_active:
        return Section("features", "Features", "The model has no features.", blocks=outputs)
    lines = list(_lines(context))
    blocks = [*_motifs(context), *outputs, *_pictures(context, lines)]
    blocks += [*_positions(context), _table(context, lines)]
    return Section("features", "Features", _lead(context), _facts(context), blocks)


def _lead(context: Context) -> str:
    model, nouns = context.model, context.nouns
    total = counted(model.family.n_features, "feature")
    lead = f"The model gives a weight to {model.n_active:,} of {total}."
    if len(context.outputs) == 1:
        return lead
    if model.group:
        lead += f" A feature is in the model for all {nouns}, or for none of them."
    elif model.noun == "class":
        lead += (
            " The same number added to the weights of all classes would change no probability; the L1 "
            "norm is smallest where their median is 0."
        )
    return (
        f'{lead} Single rows are not shown for several {nouns}: fcl.Model.explain(rows, output="NAME") '
        "divides the margin of one of them among its features."
    )


def _stats(context: Context) -> FeatureStats | None:
    return None if context.measured is None else context.measured.features


def _facts(context: Context) -> list[tuple[str, str]]:
    if len(context.outputs) > 1:
        return []
    weights = context.weights
    counts = (weights < 0.0).sum(), (weights > 0.0).sum()
    facts = [(w, f"{n:,}") for w, n in zip(context.directions, counts, strict=True)][::-1]
    stats = _stats(context)
    if stats is not None:
        text = (
            f"{len(np.unique(stats.group)):,} of the {len(stats.group):,} strongest, on "
            f"{counted(stats.n_rows, 'row')}"
        )
        facts.append(("different columns", text))
    return facts


def _lines(context: Context) -> Iterator[FeatureLine]:
    """The nonzero weights of each output by decreasing |weight|, those of equal columns as one line."""
    for number, weights in enumerate(context.weights.T):
        active = np.flatnonzero(weights)
        order = active[np.argsort(-np.abs(weights[active]), kind="stable")]
        for rank, members in enumerate(_folded(_stats(context), order)):
            yield FeatureLine(number, rank, members)


def _folded(stats: FeatureStats | None, order: npt.NDArray[np.intp]) -> list[list[int]]:
    """Features by decreasing |weight|, each with the features of equal columns after it."""
    group_of: dict[int, int] = {}
    if stats is not None:
        group_of = dict(zip(stats.indices.tolist(), stats.group.tolist(), strict=True))
    out: dict[int, list[int]] = {}
    for index in order.tolist():
        # features that were not measured stand alone
        out.setdefault(group_of.get(index, -1 - index), []).append(index)
    return list(out.values())


def _of_outputs(context: Context) -> Table:
    """Intercept and number of features of each output."""
    weights, noun = context.weights, context.model.noun
    shown = slice(MOST_OUTPUTS)
    columns = {
        noun: context.outputs[shown],
        "intercept": context.model.intercepts[shown].tolist(),
        "weights above 0": (weights > 0.0).sum(axis=0)[shown].tolist(),
        "weights below 0": (weights < 0.0).sum(axis=0)[shown].tolist(),
    }
    more = first_of(MOST_OUTPUTS, len(context.outputs))
    return Table.of("intercepts", columns, f"The {context.nouns}.{more}")


# -- motifs ----------------------------------------------------------------------------------------


def _motifs(context: Context) -> list[Figure | Table]:
    """Patterns of letters, merged where they overlap; nothing without patterns or rows of data."""
    stats = _stats(context)
    if stats is None or not any(context.motifs):
        return []
    found = [(k, motif) for k in range(len(context.outputs)) for motif in _of_output(context, k)]
    found.sort(key=lambda pair: -pair[1].share)
    if not found:
        return []
    drawn = found[:MOST_MOTIFS]
    panels = [_draw_motif(context, *pair) for pair in drawn]
    motifs = [motif for _, motif in found]
    strongest = [[context.feature(member.index) for member in m.members[:3]] for m in motifs]
    named: dict[str, Sequence[Any]] = {context.model.noun: [context.outputs[k] for k, _ in found]}
    columns = (named if len(context.outputs) > 1 else {}) | {
        "motif": [m.consensus for m in motifs],
        "position": ["anywhere" if m.position is None else f"{m.position:+d}" for m in motifs],
        "share of the score": [m.share for m in motifs],
        "direction": [context.directions[m.raises] for m in motifs],
        "patterns": [len(m.members) for m in motifs],
        "strongest patterns": ["; ".join(names) for names in strongest],
    }
    data = Table.of("motifs", columns)
    caption = (
        "Patterns that overlap and agree are one motif. The height of a letter is what the patterns that "
        "have it contribute; heights of two pictures cannot be compared. Share of the score: of the "
        "variance of the margins over the rows, by the covariance with the margin. All features together "
        "have 100 %, and negative shares work against others."
    )
    lead = "A letter in lower case is only the most frequent one."
    if len(found) > MOST_MOTIF_ROWS:
        lead += f" The {MOST_MOTIF_ROWS} largest shares of {len(found):,}; --save-data writes all."
    shown = replace(data, rows=data.rows[:MOST_MOTIF_ROWS], caption=lead, shown=True)
    return [Figure("motifs", panels, caption, data), shown]


def _of_output(context: Context, output: int) -> list[MergedMotif]:
    stats = _stats(context)
    assert stats is not None
    shares, members = stats.share[:, output], []
    for at in np.argsort(-np.abs(np.nan_to_num(shares)), kind="stable")[:MOST_MERGED].tolist():
        index = int(stats.indices[at])
        motif, weight = context.motifs[index], float(context.weights[index, output])
        if motif is not None and weight and np.isfinite(shares[at]):
            members.append(WeightedMotif(index, motif, weight, float(shares[at])))
    return merged_motifs(members)


def _draw_motif(context: Context, output: int, motif: MergedMotif) -> str:
    start = 0 if motif.start is None else motif.start - motif.members[0].motif.origin
    with drawing(PANEL / 2.0, 1.45) as drawn:
        draw_logo(drawn.axes, "ACGT", motif.heights, -start)
        low, high = drawn.axes.get_xlim()
        room = max(0.0, LEAST_POSITIONS - (high - low)) / 2.0
        drawn.axes.set_xlim(low - room, high + room)
        drawn.axes.set_yticks([])
        drawn.axes.spines["left"].set_visible(False)
        if motif.start is None:
            drawn.axes.set_xticks([])
        name = f"{short(context.heading(output), 16)}: " if len(context.outputs) > 1 else ""
        words = short(context.directions[motif.raises], 24)
        title = f"{name}{format_share(motif.share)} of the score,\n{words}"
        drawn.axes.set_title(title, color=ACCENT if motif.raises else SECOND, fontsize=8.5)
    return drawn.svg


# -- patterns by position --------------------------------------------------------------------------


def _positions(context: Context) -> list[Figure]:
    """A picture of the patterns that are at one position; nothing if there are none."""
    sizes = np.abs(context.weights).sum(axis=1)
    placed = [
        (motif.start, motif.pattern, float(size))
        for motif, size in zip(context.motifs, sizes, strict=True)
        if motif is not None and motif.start is not None and size
    ]
    if not placed:
        return []
    length = max(start + len(pattern) for start, pattern, _ in placed)
    width = -(-length // MOST_POSITIONS)
    letters = _letter_weights(placed, length, width)
    counts = np.bincount([start // width for start, _, _ in placed], minlength=len(letters))
    at = np.arange(len(letters)) * width - context.origin
    with drawing(PANEL, 2.0) as left:
        left.axes.bar(at, counts, width=0.9 * width, color=ACCENT)
        left.axes.set(xlabel="position", ylabel="patterns")
        left.axes.locator_params(axis="y", integer=True)
    with drawing(PANEL, 2.0) as right:
        _heat(right.axes, letters, at, width)
        right.axes.set_xlabel("position")
    columns: dict[str, np.ndarray] = {"position": at, "patterns that begin here": counts}
    columns |= {f"sum of |weight| on {a}": letters[:, i] for i, a in enumerate("ACGT")}
    summed = f", summed over the {context.nouns}," if len(context.outputs) > 1 else ""
    caption = (
        f"Patterns by the position of their first letter; the sum of |weight|{summed} of the patterns "
        "that fix a letter at a position (stronger colour: larger)."
    )
    return [Figure("positions", [left.svg, right.svg], caption, Table.of("positions", columns))]


def _letter_weights(placed: Sequence[tuple[int, str, float]], length: int, width: int) -> Floats:
    """The sum of |weight| of the patterns that fix each letter, float64 (positions, 4)."""
    out = np.zeros((-(-length // width), 4))
    for start, pattern, size in placed:
        for i, letter in enumerate(pattern):
            if letter != ".":
                out[(start + i) // width, "ACGT".index(letter)] += size
    return out


def _heat(axes: object, letters: Floats, at: np.ndarray, width: int) -> None:
    """Draw a heat map as rectangles whose opacity is the value, so that it suits any background."""
    from matplotlib.patches import Rectangle

    share = letters / letters.max()
    for i, position in enumerate(at):
        for letter in range(4):
            if share[i, letter] >= 0.005:
                corner = (position - width / 2, 3 - letter - 0.5)
                alpha = round(float(np.sqrt(share[i, letter])), 2)
                patch = Rectangle(corner, width, 1, facecolor=ACCENT, alpha=alpha, linewidth=0)
                axes.add_patch(patch)  # type: ignore[attr-defined]
    axes.set_yticks([3, 2, 1, 0], list("ACGT"))  # type: ignore[attr-defined]
    axes.set_xlim(at[0] - width, at[-1] + width)  # type: ignore[attr-defined]
    axes.set_ylim(-0.5, 3.5)  # type: ignore[attr-defined]
    axes.grid(False)  # type: ignore[attr-defined]


# -- the strongest features of several outputs -----------------------------------------------------


def _pictures(context: Context, lines: list[FeatureLine]) -> list[Figure]:
    """The strongest features of the first outputs, a panel for each; nothing for one output."""
    if len(context.outputs) == 1:
        return []
    drawn: list[list[FeatureLine]] = [[] for _ in context.outputs[:MOST_DRAWN]]
    for line in lines:
        if line.output < len(drawn) and line.rank < MOST_BARS:
            drawn[line.output].append(line)
    panels, rows = [], []
    for own in filter(None, drawn):
        names = [context.feature(line.members[0]) for line in own]
        weights = [_weight(context, line) for line in own]
        output = context.outputs[own[0].output]
        panels.append(bars(names, weights, short(context.heading(own[0].output), 40)))
        rows += [[output, name, weight] for name, weight in zip(names, weights, strict=True)]
    noun = context.model.noun
    caption = f"The {MOST_BARS} features of the largest |weight| of each {noun}."
    caption += first_of(len(drawn), len(context.outputs), context.nouns)
    data = Table("strongest", [noun, "feature", "weight"], rows, shown=False)
    return [Figure("strongest", panels, caption, data)]


def _weight(context: Context, line: FeatureLine) -> float:
    return float(context.weights[line.members[0], line.output])


# -- the table -------------------------------------------------------------------------------------


def _table(context: Context, lines: list[FeatureLine]) -> Table:
    """The strongest weights of each output, by decreasing |weight|."""
    chosen = sorted(lines, key=lambda line: (line.rank, -abs(_weight(context, line))))[:MOST_ROWS]
    chosen.sort(key=lambda line: -abs(_weight(context, line)))
    stats, named = _stats(context), len(context.outputs) > 1
    shares = context.model.labels is not None and not named
    rows = []
    for line in chosen:
        first = line.members[0]
        weight = _weight(context, line)
        row: list[Any] = [weight, context.feature(first), int(context.model.support[first])]
        if named:
            row.insert(1, context.outputs[line.output])
        if stats is not None:
            at = stats.at(first)
            effect = None if at is None else abs(weight) * float(stats.spread[at])
            row += [None if at is None else float(stats.positive[at])] * shares + [effect]
        rows.append([*row, _equal(context, line)])
    head = ["weight", *[context.model.noun] * named, "feature", "rows"]
    if stats is not None:
        head += [*["positive share"] * shares, "effect"]
    caption = _caption(context, stats, shares, len(lines))
    return Table("features", [*head, "equal columns"], rows, caption, sortable=True)


def _equal(context: Context, line: FeatureLine) -> str:
    """The features of equal columns as ``2 equal: a (+1); b (-2)``; empty if there are none."""
    members, weights = line.members[1:], context.weights[:, line.output]
    if not members:
        return ""
    words = [f"{short(context.feature(i))} ({weights[i]:+.3g})" for i in members[:MOST_EQUAL]]
    more = len(members) - len(words)
    names = "; ".join(words) + (f"; and {more:,} more" if more else "")
    return f"{len(members):,} equal: {names}"


def _caption(context: Context, stats: FeatureStats | None, shares: bool, n_lines: int) -> str:
    text = "Rows: training rows in which the feature is not 0."
    if shares and stats is not None:
        text += " Positive share: share of positive rows among the rows where it is not 0."
    if stats is not None:
        text += (
            f" Effect: standard deviation of weight times value, over {counted(stats.n_rows, 'row')}. "
            "Features with equal columns on these rows are folded into one line."
        )
    if n_lines > MOST_ROWS:
        which = f"the strongest of each {context.model.noun}" if len(context.outputs) > 1 else ""
        text += f" The table has {MOST_ROWS:,} of {n_lines:,} lines, {which or 'the strongest'}."
    return text
