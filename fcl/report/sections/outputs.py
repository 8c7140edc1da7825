"""Scores of several outputs: errors of each class, number or label on the rows of the data."""

from __future__ import annotations

import math

import numpy as np

from fcl.model.outputs import output_names
from fcl.objective.multi_output import ClassScoreSums, LabelSums, NumberSums
from fcl.report.cells import Cells, ranking_errors
from fcl.report.contract import (
    Context,
    Figure,
    OutputsContext,
    Section,
    Table,
    name_text,
    output_title,
)
from fcl.report.figures import ACCENT, INK, drawing, short
from fcl.report.outputs import MeasuredOutputs
from fcl.report.scores import calibration, precision_recall, roc
from fcl.report.sections.by_group import errors_of_outputs
from fcl.report.sections.scores import OTHER, TRAINING, WITHOUT, draw_calibration, rounded_up
from fcl.units import counted

#: Outputs that the tables show.
MOST_OUTPUTS = 1_000
#: Classes up to which the page shows all confusions; with more, the pairs that are confused most.
MOST_SHOWN, MOST_PAIRS = 20, 50
#: Outputs whose calibration is drawn, and pictures side by side.
MOST_CALIBRATED, COLUMNS = 6, 3

Blocks = list[Figure | Table]


def section(context: Context) -> Section:
    """Scores of a model of ``fcl train``."""
    return scores(context.of_outputs)


def scores(context: OutputsContext) -> Section:
    """Scores on the rows of the data, or how to get them."""
    measured = context.measured
    if measured is None:
        return Section("scores", "Scores", WITHOUT)
    sums = measured.sums
    names = [name_text(name) for name in output_names(context.model)]
    facts = [(name, f"{value:.5g}") for name, value in sums.metrics().items()]
    blocks: Blocks = []
    if sums.n_rows:
        if isinstance(sums, ClassScoreSums):
            blocks = [_classes(sums, names, measured.ranks), *_confusions(sums, names)]
        elif isinstance(sums, NumberSums):
            columns = {"MSE": sums.mse().tolist(), "R2": sums.r2().tolist()}
            blocks = [_outputs("target", names, columns)]
        elif isinstance(sums, LabelSums):
            columns = {"error": (sums.wrong / sums.weight).tolist()}
            blocks = [_outputs("label", names, columns | _areas(measured.ranks))]
        blocks += _calibrations(context, measured, names)
        blocks += errors_of_outputs(measured.groups)
    return Section("scores", "Scores", _lead(measured), facts, blocks, _notes(measured))


def _lead(measured: MeasuredOutputs) -> str:
    n, n_counted = measured.data.n_rows, measured.sums.n_rows
    text = f"{counted(n, 'row')} of {name_text(measured.data.name)}."
    if n_counted < n:
        text += f" Without {counted(n - n_counted, 'row')} of weight 0."
    return f"{text} {TRAINING if measured.is_training else OTHER}"


def _outputs(noun: str, names: list[str], columns: dict[str, list[float]]) -> Table:
    more = f" The first {MOST_OUTPUTS:,} of {len(names):,}." if len(names) > MOST_OUTPUTS else ""
    rows = [list(row) for row in zip(names, *columns.values(), strict=True)]
    head = [noun, *columns]
    return Table("outputs", head, rows[:MOST_OUTPUTS], f"Each {noun} by itself.{more}")


def _areas(ranks: Cells | None) -> dict[str, list[float]]:
    """AUPRC and AUROC of each output; without any if there are too many outputs."""
    if ranks is None:
        return {}
    found: dict[str, list[float]] = {"AUPRC": [], "AUROC": []}
    for number in range(int(ranks.groups.max()) + 1):
        y, values, weights = ranks.of_group(number).labelled()
        both = len(np.unique(y)) == 2
        found["AUPRC"].append(precision_recall(y, values, weights).area if both else math.nan)
        found["AUROC"].append(roc(y, values, weights).area if both else math.nan)
    return found


def _notes(measured: MeasuredOutputs) -> list[str]:
    """By how much the areas may be wrong, if predictions were rounded."""
    ranks = measured.ranks
    if ranks is None or ranks.exact or isinstance(measured.sums, NumberSums):
        return []
    errors = []
    for number in np.unique(ranks.groups).tolist():
        own = ranks.of_group(number)
        target = own.column("target")
        if target.any() and (own.column("weight") > target).any():
            errors.append(ranking_errors(own))
    if not errors:
        return []
    auprc, auroc = (max(getattr(e, name) for e in errors) for name in ("auprc", "auroc"))
    return [
        f"The areas group the rows into intervals of nearly equal predictions. This changes AUPRC by at "
        f"most {rounded_up(auprc)}, and AUROC by at most {rounded_up(auroc)}."
    ]


def _classes(sums: ClassScoreSums, names: list[str], ranks: Cells | None) -> Table:
    """Precision, recall and areas of each class against the others."""
    columns = {"sum of row weights": sums.of_class}
    with np.errstate(invalid="ignore"):
        if sums.confusion is not None:
            columns["precision"] = sums.right / sums.confusion.sum(axis=0)
        columns["recall"] = sums.right / sums.of_class
    lists = {name: values.tolist() for name, values in columns.items()}
    return _outputs("class", names, lists | _areas(ranks))


def _confusions(sums: ClassScoreSums, names: list[str]) -> Blocks:
    """All confusions of few classes as a picture, the largest of more; none of very many."""
    if sums.confusion is None:
        return []
    if len(names) <= MOST_SHOWN:
        caption = (
            "Sums of row weights: the class of the rows, by the predicted class. The colour is the share "
            "of the class."
        )
        cells = [[name, *row] for name, row in zip(names, sums.confusion.tolist(), strict=True)]
        data = Table("confusion", ["class", *names], cells, shown=False)
        return [Figure("confusion", _heat(sums.confusion, names), caption, data)]
    wrong = sums.confusion - np.diag(np.diag(sums.confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    rows = [[names[i], names[j], float(wrong[i, j])] for i, j in pairs if wrong[i, j]]
    head = ["class", "predicted", "sum of row weights"]
    return [Table("confusion", head, rows, "The classes that are confused most.")]


def _heat(confusion: np.ndarray, names: list[str]) -> str:
    """Confusions as rectangles whose opacity is the share of the class, so that they suit any page."""
    from matplotlib.patches import Rectangle

    K = len(names)
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1e-300)
    texts = [short(name, 24) for name in names]
    height = 0.29 * K + 0.7 + (0.075 * max(map(len, texts)) if K > 4 else 0.0)
    with drawing(min(9.0, 3.0 + 0.9 * K), height) as drawn:
        axes = drawn.axes
        for i, j in np.argwhere(confusion > 0.0):
            alpha = round(float(0.05 + 0.55 * share[i, j]), 2)
            corner = (j - 0.5, i - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor=ACCENT, alpha=alpha, linewidth=0))
            words = (
                f"{confusion[i, j]:,.0f}" if confusion[i, j] >= 99.95 else f"{confusion[i, j]:.3g}"
            )
            axes.text(j, i, words, ha="center", va="center", color=INK, fontsize=7.5)
        axes.set_xticks(range(K), texts, rotation=90 if K > 4 else 0)
        axes.set_yticks(range(K), texts)
        axes.set(xlim=(-0.5, K - 0.5), ylim=(K - 0.5, -0.5), xlabel="predicted", ylabel="class")
        axes.grid(False)
    svg: str = drawn.svg
    return svg


def _calibrations(context: OutputsContext, measured: MeasuredOutputs, names: list[str]) -> Blocks:
    """Mean target against mean prediction of the first outputs; nothing if margins are no means."""
    model, ranks = context.model, measured.ranks
    numbers = isinstance(measured.sums, NumberSums)
    if ranks is None or not (numbers or model.mean_name == "probability"):
        return []
    words = ("mean prediction", "mean target") if numbers else ("mean probability", "share of rows")
    shown = list(range(min(model.n_outputs, MOST_CALIBRATED)))
    rows = -(-len(shown) // COLUMNS)
    caption, lines = "", []
    with drawing(9.0, 2.7 * rows, rows, COLUMNS, squeeze=False) as drawn:
        for axes in drawn.axes.ravel()[len(shown) :]:
            axes.set_axis_off()
        for number, axes in zip(shown, drawn.axes.ravel(), strict=False):
            centre = float(measured.centre[number])
            bins = calibration(ranks.of_group(number), not numbers, centre)
            caption = draw_calibration(axes, bins, *words) or caption
            title = output_title(model.noun, names[number], model.labels is not None)
            axes.set_title(short(title, 30))
            values = (bins.predicted, bins.observed, bins.low, bins.high, bins.rows)
            lines += [[names[number], *line] for line in zip(*values, strict=True)]
    text = "Ten quantile bins of the predictions, with 95 % intervals; dashed: perfect."
    if len(names) > len(shown):
        text += f" The first {len(shown)} of {len(names):,}."
    head = [model.noun, "predicted", "observed", "low", "high", "rows"]
    data = Table("calibration", head, lines, shown=False)
    return [Figure("calibration", drawn.svg, text + caption, data)]
