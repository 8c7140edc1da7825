"""Features: where patterns are, which ones are strong, and which ones are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.motif import Motif
from fcl.report.columns import FeatureStats
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import ACCENT, drawing, short
from fcl.units import counted

#: Features in the table of the page.
MOST_ROWS = 1_000
#: Features with equal columns that are named beside the first one.
MOST_EQUAL = 5
#: Positions in a picture; neighbouring positions of longer windows are added up.
MOST_POSITIONS = 300


def section(context: Context) -> Section:
    """The active features, by decreasing |weight|."""
    model = context.model
    if not model.n_active:
        return Section("features", "Features", "The model has no features.")
    blocks = [*positions(context, model.weights), _table(context)]
    total = counted(model.family.n_features, "feature")
    lead = f"The model gives a weight to {model.n_active:,} of {total}."
    return Section("features", "Features", lead, _facts(context), blocks)


@dataclass(frozen=True)
class _Placed:
    """A pattern at one position, with its weight."""

    motif: Motif
    weight: float

    @property
    def start(self) -> int:
        """Position of the first letter in the window."""
        return self.motif.start or 0


def _facts(context: Context) -> list[tuple[str, str]]:
    weights = context.model.weights
    positive, negative = int((weights > 0.0).sum()), int((weights < 0.0).sum())
    up, down = "raise the prediction", "lower the prediction"
    if context.model.labels is not None:
        down, up = (f"towards {label}" for label in context.labels)
    facts = [(up, f"{positive:,}"), (down, f"{negative:,}")]
    if context.measured is not None:
        stats = context.measured.features
        distinct = len(np.unique(stats.group))
        text = (
            f"{distinct:,} of the {len(stats.group):,} strongest, on {counted(stats.n_rows, 'row')}"
        )
        facts.append(("different columns", text))
    return facts


# -- patterns by position --------------------------------------------------------------------------


def positions(
    context: Context, weights: npt.NDArray[np.float64], of_outputs: str = ""
) -> list[Figure | Table]:
    """A picture of the patterns that are at one position; nothing if there are none.

    Parameters
    ----------
    context : Context
    weights : float64 (k,)
        Of the features of the model.
    of_outputs : str
        Words after ``the sum of |weight|``.
    """
    found = [context.model.family.motif(int(feature)) for feature in context.model.ids]
    placed = [
        _Placed(motif, float(weight))
        for motif, weight in zip(found, weights, strict=True)
        if motif is not None and motif.start is not None and weight
    ]
    return [_positions(placed, context.origin, of_outputs)] if placed else []


def _positions(placed: Sequence[_Placed], origin: int, of_outputs: str) -> Figure:
    """Count of patterns by position and by length, and |weight| by position and letter."""
    length = max(p.start + len(p.motif.pattern) for p in placed)
    width = -(-length // MOST_POSITIONS)
    letters = _letter_weights(placed, length, width)
    counts = np.bincount([p.start // width for p in placed], minlength=len(letters))
    sizes = np.bincount([len(p.motif.pattern.replace(".", "")) for p in placed])
    at = np.arange(len(letters)) * width - origin
    with drawing(9.0, 3.4, rows=2, columns=2, width_ratios=[5, 1]) as drawn:
        top, by_length, bottom, unused = drawn.axes.ravel()
        top.bar(at, counts, width=0.9 * width, color=ACCENT)
        top.set_ylabel("patterns")
        by_length.bar(np.arange(1, len(sizes)), sizes[1:], color=ACCENT)
        by_length.set_xlabel("fixed letters")
        by_length.set_xticks(np.arange(1, len(sizes)))
        _heat(bottom, letters, at, width)
        bottom.set_xlabel("position")
        bottom.sharex(top)
        unused.set_axis_off()
    rows = [[int(x), int(c), *row] for x, c, row in zip(at, counts, letters.tolist(), strict=True)]
    head = ["position", "patterns that begin here", *(f"sum of |weight| on {a}" for a in "ACGT")]
    caption = (
        "Patterns by the position of their first letter and by their number of fixed letters; the sum "
        f"of |weight|{of_outputs} of the patterns that fix a letter at a position (stronger colour: "
        "larger)."
    )
    return Figure("positions", drawn.svg, caption, Table("positions", head, rows, shown=False))


def _letter_weights(placed: Sequence[_Placed], length: int, width: int) -> npt.NDArray[np.float64]:
    """The sum of |weight| of the patterns that fix each letter, float64 (positions, 4)."""
    out = np.zeros((-(-length // width), 4))
    for p in placed:
        for i, letter in enumerate(p.motif.pattern):
            if letter != ".":
                out[(p.start + i) // width, "ACGT".index(letter)] += abs(p.weight)
    return out


def _heat(axes: object, letters: npt.NDArray[np.float64], at: np.ndarray, width: int) -> None:
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
    axes.set_ylim(-0.5, 3.5)  # type: ignore[attr-defined]
    axes.grid(False)  # type: ignore[attr-defined]


# -- the table -------------------------------------------------------------------------------------


def _table(context: Context) -> Table:
    """The strongest features; equal columns are folded into the strongest one of them."""
    model = context.model
    active = np.flatnonzero(model.weights)
    order = active[np.argsort(-np.abs(model.weights[active]), kind="stable")]
    groups = folded(None if context.measured is None else context.measured.features, order)
    head = ["weight", "feature", "rows"]
    measured = context.measured
    if measured is not None:
        head += ["effect"] if model.labels is None else ["positive share", "effect"]
    rows = []
    for members in groups[:MOST_ROWS]:
        first = members[0]
        row = [float(model.weights[first]), context.feature(first), int(model.support[first])]
        rows.append([*row, *_measured(context, first), equal(context, members[1:], model.weights)])
    return Table(
        "features", [*head, "equal columns"], rows, _caption(context, len(groups)), sortable=True
    )


def folded(stats: FeatureStats | None, order: npt.NDArray[np.intp]) -> list[list[int]]:
    """Features by decreasing |weight|, each with the features of equal columns after it."""
    group_of: dict[int, int] = {}
    if stats is not None:
        group_of = dict(zip(stats.indices.tolist(), stats.group.tolist(), strict=True))
    out: dict[int, list[int]] = {}
    for index in order.tolist():
        # features that were not measured stand alone
        out.setdefault(group_of.get(index, -1 - index), []).append(index)
    return list(out.values())


def _measured(context: Context, index: int) -> list[float | None]:
    """Share of positives and effect of a feature; None if it was not measured."""
    if context.measured is None:
        return []
    stats = context.measured.features
    at = int(np.searchsorted(stats.indices, index))
    known = at < len(stats.indices) and stats.indices[at] == index
    effect = float(stats.spread[at]) if known else None
    if context.model.labels is None:
        return [effect]
    return [float(stats.positive[at]) if known else None, effect]


def equal(context: Context, members: Sequence[int], weights: npt.NDArray[np.float64]) -> str:
    """The features of equal columns as ``2 equal: a (+1); b (-2)``; empty if there are none."""
    if not members:
        return ""
    words = [f"{short(context.feature(i))} ({weights[i]:+.3g})" for i in members[:MOST_EQUAL]]
    more = len(members) - len(words)
    names = "; ".join(words) + (f"; and {more:,} more" if more else "")
    return f"{len(members):,} equal: {names}"


def _caption(context: Context, n_lines: int) -> str:
    text = "Rows: training rows in which the feature is not 0."
    if context.measured is not None:
        n = context.measured.features.n_rows
        if context.model.labels is not None:
            text += " Positive share: share of positive rows among the rows where it is not 0."
        text += (
            f" Effect: standard deviation of weight times value, over {counted(n, 'row')}. "
            "Features with equal "
            "columns on these rows are folded into one line."
        )
    if n_lines > MOST_ROWS:
        text += f" The table has the {MOST_ROWS:,} strongest of {n_lines:,} lines."
    return text
