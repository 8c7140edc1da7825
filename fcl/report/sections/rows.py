"""Single rows: where the model is right, where it is wrong, and which features are responsible."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.motif import Motif
from fcl.model.explain import ExplainedOutput, Explanation, iter_explanations
from fcl.report.contract import Context, Figure, Section, Table, name_text
from fcl.report.logo import logo_panels
from fcl.report.measured import Measured
from fcl.report.predictions import Extreme
from fcl.units import counted

_LETTERS = np.frombuffer(b"ACGTN", np.uint8)
_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def window_text(codes: npt.NDArray[np.uint8]) -> str:
    """The letters of a window of codes 0-4, with N for unknown letters."""
    return _LETTERS[codes].tobytes().decode("ascii")


def occurrences(motif: Motif, text: str) -> list[tuple[int, str]]:
    """Where a pattern occurs in a window: the position and the pattern, or its reverse complement."""
    patterns = [motif.pattern]
    if motif.both_strands:
        patterns.append(motif.pattern[::-1].translate(_COMPLEMENT))
    if motif.start is not None:
        return [(motif.start, motif.pattern)]
    return [
        (match.start(), pattern)
        for pattern in dict.fromkeys(patterns)
        for match in re.finditer(f"(?={pattern})", text)
    ]


def letter_contributions(
    text: str, contributions: Iterable[tuple[Motif, float]]
) -> npt.NDArray[np.float64]:
    """What patterns that occur in a window add to its margin, by letter: float64 (len(text),).

    A contribution is divided equally among the occurrences of the pattern, and then among its letters.
    """
    out = np.zeros(len(text))
    for motif, value in contributions:
        places = occurrences(motif, text)
        for start, pattern in places:
            fixed = [start + i for i, letter in enumerate(pattern) if letter != "."]
            out[fixed] += value / (len(fixed) * len(places))
    return out


#: Features of each row in its table.
MOST_FEATURES = 5


@dataclass(frozen=True)
class _Chosen:
    """A row, and why it was chosen."""

    key: str
    title: str
    extreme: Extreme


#: The rows that the page shows, by their names in ``Predictions.extremes``.
TITLES = {
    "true_positive": "Strongest true positive",
    "false_positive": "Worst false positive",
    "false_negative": "Worst false negative",
    "highest": "Highest prediction",
    "too_low": "Prediction too low by most",
    "too_high": "Prediction too high by most",
}


def section(context: Context) -> Section | None:
    """A few rows with their largest contributions; None without data or features."""
    measured = context.measured
    if measured is None or len(context.outputs) > 1 or not context.model.n_active:
        return None
    blocks: list[Figure | Table] = []
    for key, title in TITLES.items():
        extreme = measured.predictions.extremes.get(key)
        if extreme is not None:
            blocks += _blocks(context, measured, _Chosen(key, title, extreme))
    lead = (
        f"A margin is the intercept ({context.model.intercept:+.4g}) plus the contributions of the "
        "features, weight times value"
        + (", plus the row's offset" if context.model.has_offset else "")
        + (", plus its covariates times their coefficients." if context.model.covariates else ".")
    )
    if any(motif is not None for motif in context.motifs):
        lead += (
            " The contribution of a pattern is divided equally among its fixed letters, so that the "
            "letters of a logo add up to the contributions of the patterns."
        )
    return Section("rows", "Single rows", lead, blocks=blocks) if blocks else None


def _blocks(context: Context, measured: Measured, chosen: _Chosen) -> list[Figure | Table]:
    model = context.model.fitted(measured.data)
    row, y = chosen.extreme.row, chosen.extreme.target
    keep = np.zeros(measured.data.n_rows, np.bool_)
    keep[row] = True
    (explained,) = iter_explanations(ExplainedOutput.of(model), measured.data, None, keep)
    target = f"{y:.6g}" if model.labels is None else context.labels[int(y > 0)]
    title = (
        f"{chosen.title}: row {row:,}{_name(measured, row)}, target {target}, margin "
        f"{explained.margins[0]:+.4g}."
    )
    if all(context.motifs[index] is None for index in _features(explained)):
        return [_table(context, explained, chosen, title)]
    ((_, _, codes),) = model.family.read_rows(measured.data.rows, 64, keep)
    logo = _logo(context, explained, chosen, window_text(codes[0]), title)
    return [logo, _table(context, explained, chosen, "")]


def _features(explained: Explanation) -> list[int]:
    """The features of the first row by decreasing |contribution|, by their indices in ``model.ids``."""
    found: list[int] = explained.model.indices[explained.indices[0]].tolist()
    return found


def _name(measured: Measured, row: int) -> str:
    """The name of a row in brackets; nothing for rows without names."""
    if measured.row_names is None:
        return ""
    name = measured.row_names.read(row, row + 1)[0]
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)
    return f" ({name_text(text)})"


def _table(context: Context, explained: Explanation, chosen: _Chosen, title: str) -> Table:
    weights, values = context.model.weights, explained.contributions[0]
    rows = [
        [context.feature(index), float(weights[index]), value / float(weights[index]), value]
        for index, value in zip(_features(explained), values.tolist(), strict=True)
        if value
    ]
    shown, others = rows[:MOST_FEATURES], rows[MOST_FEATURES:]
    if others:
        total = float(sum(row[3] for row in others))
        shown.append([counted(len(others), "other feature"), None, None, total])
    shown.append(["intercept", None, None, context.model.intercept])
    for name, part in (("offset", explained.offset), ("covariates", explained.covariates)):
        if part[0]:
            shown.append([name, None, None, float(part[0])])
    shown.append(["margin", None, None, float(explained.margins[0])])
    head = ["feature", "weight", "value", "contribution"]
    return Table(f"row_{chosen.key}", head, shown, title)


def _logo(
    context: Context, explained: Explanation, chosen: _Chosen, text: str, title: str
) -> Figure:
    pairs = zip(_features(explained), explained.contributions[0].tolist(), strict=True)
    found = ((context.motifs[index], value) for index, value in pairs if value)
    motifs = [(motif, value) for motif, value in found if motif is not None]
    letters = letter_contributions(text, motifs)
    heights = np.zeros((len(text), 5))
    heights[np.arange(len(text)), ["ACGTN".index(letter) for letter in text]] = letters
    panels, sentence = logo_panels("ACGTN", heights, context.origin, "contribution", 1.5)
    positions = range(-context.origin, len(text) - context.origin)
    columns = {"position": positions, "letter": text, "contribution": letters}
    data = Table.of(f"letters_{chosen.key}", columns)
    return Figure(f"row_{chosen.key}", panels, f"{title} {sentence}".rstrip(), data)
