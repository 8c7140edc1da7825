"""Scores: how the predictions compare with the targets of the data."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np

from fcl.model import Model
from fcl.report.cells import Cells, ranking_errors
from fcl.report.contract import Context, Figure, Section, Table, first_of, name_text
from fcl.report.figures import ACCENT, INK, PANEL, SECOND, drawing, short
from fcl.report.measured import Measured
from fcl.report.predictions import MOST_PREDICTED, Predictions
from fcl.report.scores import (
    Bins,
    Confusion,
    Curve,
    areas,
    calibration,
    confusion_at,
    precision_recall,
    roc,
    thinned,
    thresholds,
)
from fcl.report.sections.by_group import scores_by_group
from fcl.types import Floats
from fcl.units import counted

#: Bins of a histogram.
BINS = 50
#: Rounds upper bounds to one significant digit.
UP = decimal.Context(prec=1, rounding=decimal.ROUND_CEILING)
#: Share of the rows beyond each end of a histogram; a few large values must not flatten the others.
OUTER_SHARE = 0.002
OUTER = "The outer bars include the rows further out."
#: Outputs that the table shows, and whose calibration is drawn.
MOST_OUTPUTS, MOST_CALIBRATED = 1_000, 6
#: Classes up to which the page shows all confusions; with more, the pairs that are confused most.
MOST_SHOWN, MOST_PAIRS = 20, 50
TRAINING = "The model was trained on these rows, so that scores on new rows are usually worse."
OTHER = (
    "These data differ from the training data by fingerprint (rows, names of columns, target, weights, "
    "offset, covariates); whether they share rows is not checked."
)
WITHOUT = (
    "Scores, effects and single rows need rows of data: fcl report MODEL --data DATA --out FILE."
)
INTERVALS = (
    "The intervals show how much a score would vary over other samples of as many rows, if rows are "
    "independent."
)

Blocks = list[Figure | Table]


def section(context: Context) -> Section:
    """Scores on the rows of the data, or how to get them."""
    measured = context.measured
    if measured is None:
        return Section("scores", "Scores", WITHOUT)
    predictions, lead = measured.predictions, _lead(measured)
    if predictions.overflows:
        lead += (
            f" Predictions of more than {MOST_PREDICTED:.0e} occur, so that there are no scores."
        )
        return Section("scores", "Scores", lead)
    if not predictions.n_counted:
        return Section("scores", "Scores", lead)
    blocks = {"label": _of_labels, "class": _of_classes, "target": _of_numbers}[predictions.kind](
        context, predictions
    )
    answers = predictions.answers
    if answers and answers[0].no_gain and predictions.kind == "label":
        lead += " The order of the rows by this model is hardly better than a random order."
    if predictions.kind == "label" and not answers:
        lead += " All rows have the same label, so that there are no curves."
    facts = [(answer.name, answer.text) for answer in answers] + errors_of(context, predictions)
    notes = [INTERVALS] * any(answer.interval for answer in answers)
    blocks += scores_by_group(predictions, _metric(context))
    return Section("scores", "Scores", lead, facts, blocks, notes + _notes(predictions))


def _lead(measured: Measured) -> str:
    n, n_counted = measured.predictions.n_rows, measured.predictions.n_counted
    text = f"{counted(n, 'row')} of {name_text(measured.data.name)}."
    if n_counted < n:
        text += f" Without {counted(n - n_counted, 'row')} of weight 0."
    return f"{text} {TRAINING if measured.is_training else OTHER}"


# -- numbers ---------------------------------------------------------------------------------------


def _metric(context: Context) -> str:
    """The metric of numbers in words."""
    model = context.predictor
    return model.loss_object.metric_title if isinstance(model, Model) else "mean squared error"


def errors_of(context: Context, predictions: Predictions) -> list[tuple[str, str]]:
    """Mean errors over the rows, and over several outputs."""
    totals = predictions.totals.all()

    def mean(name: str) -> float:
        return float(totals.mean(name)[0])

    if predictions.kind != "target":
        found = {"error": mean("wrong")}
        if context.predictor.mean_name == "probability":
            found |= {"log loss": mean("log_loss"), "Brier score": mean("brier")}
        return [(name, f"{value:.5g}") for name, value in found.items() if np.isfinite(value)]
    errors = {
        _metric(context): mean("metric"),
        "root mean squared error": np.sqrt(mean("squared")),
        "mean absolute error": mean("absolute"),
    }
    facts = [(name, f"{value:.6g}") for name, value in errors.items()]
    if predictions.quantile is not None:
        share = f"{mean('covered'):.4f}, {predictions.quantile:g} is perfect"
        facts.append(("share of targets up to the prediction", share))
    return facts


def _notes(predictions: Predictions) -> list[str]:
    """By how much the areas may be wrong, if predictions were rounded."""
    cells = predictions.margins
    if cells.exact or predictions.kind == "target":
        return []
    errors = []
    for number in np.unique(cells.groups).tolist():
        own = cells.of_group(number)
        target = own.column("target")
        if target.any() and (own.column("weight") > target).any():
            errors.append(ranking_errors(own))
    if not errors:
        return []
    auprc, auroc = (max(getattr(e, name) for e in errors) for name in ("auprc", "auroc"))
    return [
        f"The curves group the rows into {len(cells):,} intervals of nearly equal predictions. This "
        f"changes AUPRC by at most {rounded_up(auprc)}, and AUROC by at most {rounded_up(auroc)}."
    ]


def rounded_up(value: float) -> str:
    """A bound with one significant digit, rounded up so that it stays a bound."""
    return f"{float(UP.create_decimal_from_float(value)):.1g}"


# -- labels and classes ----------------------------------------------------------------------------


def _of_labels(context: Context, predictions: Predictions) -> Blocks:
    if len(context.outputs) > 1:
        columns = {"error": predictions.outputs.mean("wrong")} | _areas(predictions)
        return [_outputs(context, columns), *_calibrations(context, predictions)]
    y, margins, weights = predictions.margins.labelled()
    if len(np.unique(y)) < 2:
        return []
    ranked, rates = precision_recall(y, margins, weights), roc(y, margins, weights)
    base = float(predictions.totals.all().mean("target")[0])
    rules = thresholds(ranked)
    return [
        _curves(ranked, rates, base),
        _histogram(context, y, margins, weights),
        *_calibrations(context, predictions),
        _confusions(
            _row_unit(context), [confusion_at(*rule, y, margins, weights) for rule in rules]
        ),
    ]


def _of_classes(context: Context, predictions: Predictions) -> Blocks:
    """Precision, recall and areas of each class against the others, and confusions."""
    of_class = predictions.outputs.column("target")
    right = of_class - predictions.outputs.column("wrong")
    columns = {_row_unit(context): of_class}
    with np.errstate(invalid="ignore", divide="ignore"):
        if predictions.confusion is not None:
            columns["precision"] = right / predictions.confusion.sum(axis=0)
        columns["recall"] = right / of_class
    return [
        _outputs(context, columns | _areas(predictions)),
        *_all_confusions(context, predictions),
        *_calibrations(context, predictions),
    ]


def _row_unit(context: Context) -> str:
    """What the sums over rows count."""
    measured = context.measured
    return "rows" if measured and measured.data.weights is None else "sum of row weights"


def _areas(predictions: Predictions) -> dict[str, Floats]:
    """AUPRC and AUROC of each output; nothing if there are too many outputs."""
    cells = predictions.margins
    if not len(cells):
        return {}
    found = [areas(cells.of_group(number)) for number in range(len(predictions.outputs.sums))]
    return dict(zip(("AUPRC", "AUROC"), np.array(found).T, strict=True))


def _outputs(context: Context, columns: dict[str, Floats]) -> Table:
    """A line for each of several outputs."""
    names = context.outputs
    noun, more = context.predictor.noun, first_of(MOST_OUTPUTS, len(names))
    shown = {name: values[:MOST_OUTPUTS].tolist() for name, values in columns.items()}
    return Table.of(
        "outputs", {noun: names[:MOST_OUTPUTS], **shown}, f"Each {noun} by itself.{more}"
    )


def _curves(ranked: Curve, rates: Curve, base: float) -> Figure:
    ranked, rates = thinned(ranked), thinned(rates)
    with drawing(PANEL, 3.3) as left:
        # a precision holds from the recall before it: straight lines would show more than the AUPRC
        left.axes.plot(ranked.x, ranked.y, color=ACCENT, drawstyle="steps-pre")
        left.axes.axhline(base, color=SECOND, linewidth=1.0, linestyle="--")
        left.axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.02))
        left.axes.set_title(f"precision and recall, AUPRC {ranked.area:.4f}")
    with drawing(PANEL, 3.3) as right:
        right.axes.plot(rates.x, rates.y, color=ACCENT)
        right.axes.plot([0, 1], [0, 1], color=SECOND, linewidth=1.0, linestyle="--")
        right.axes.set(xlabel="false positive rate", ylabel="true positive rate")
        right.axes.set(xlim=(-0.01, 1), ylim=(0, 1.02))
        right.axes.set_title(f"ROC, AUROC {rates.area:.4f}")
    rows = [
        [name, *point]
        for name, curve in (("precision-recall", ranked), ("ROC", rates))
        for point in zip(curve.x.tolist(), curve.y.tolist(), curve.thresholds.tolist(), strict=True)
    ]
    data = Table("curves", ["curve", "x", "y", "threshold"], rows, shown=False)
    return Figure("curves", [left.svg, right.svg], "Dashed: a random order of the rows.", data)


def _histogram(context: Context, y: Floats, margins: Floats, weights: Floats) -> Figure:
    classes = [(margins[y == side], weights[y == side]) for side in (-1, 1)]
    edges = _edges(*classes)
    counts = [_counts(edges, *own) for own in classes]
    with drawing(PANEL, 3.3) as drawn:
        for count, colour, label in zip(counts, (SECOND, ACCENT), context.labels, strict=True):
            share = count / count.sum()
            drawn.axes.stairs(
                share, edges, color=colour, fill=True, alpha=0.35, label=short(label, 18)
            )
            drawn.axes.stairs(share, edges, color=colour, linewidth=1.2)
        drawn.axes.axvline(0.0, color=INK, linewidth=0.8)
        drawn.axes.set(xlabel="margin", ylabel="share of the class")
        drawn.figure.legend(loc="outside upper center", ncols=2)
    ends = {"low": edges[:-1], "high": edges[1:]}
    data = Table.of("margins", {**ends, "negative": counts[0], "positive": counts[1]})
    caption = f"Margins by class. A margin above 0 predicts the positive label. {OUTER}"
    return Figure("margins", [drawn.svg], caption, data)


def _edges(*samples: tuple[Floats, Floats]) -> Floats:
    """Edges of a histogram of several samples (increasing values, weights) without their outer ends."""
    ends = [_quantiles(*sample) for sample in samples]
    low, high = min(low for low, _ in ends), max(high for _, high in ends)
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _quantiles(values: Floats, weights: Floats) -> Floats:
    """The values that leave a share of OUTER_SHARE of the weight below, and above."""
    total = np.cumsum(weights)
    at = np.searchsorted(total, np.array([OUTER_SHARE, 1.0 - OUTER_SHARE]) * total[-1])
    return values[np.minimum(at, len(values) - 1)]


def _counts(edges: Floats, values: Floats, weights: Floats) -> Floats:
    """The weights in the bins of a histogram, of which the outer ones are open."""
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges, weights=weights)
    return counts


def _confusions(unit: str, found: list[Confusion]) -> Table:
    """Precision and recall first: a narrow page shows the first columns."""
    head = [
        "rule", "precision", "recall", "F1", "threshold", "true positive", "false positive",
        "false negative", "true negative",
    ]  # fmt: skip
    rows = [
        [
            c.rule, c.precision, c.recall, c.f1, round(c.threshold, 12), c.true_positive,
            c.false_positive, c.false_negative, c.true_negative,
        ]
        for c in found
    ]  # fmt: skip
    caption = f"Confusion at three thresholds of the margin: {unit}."
    return Table("confusion", head, rows, caption)


def _all_confusions(context: Context, predictions: Predictions) -> Blocks:
    """All confusions of few classes as a picture, the largest of more; none of very many."""
    names, confusion = context.outputs, predictions.confusion
    if confusion is None:
        return []
    if len(names) <= MOST_SHOWN:
        unit = _row_unit(context).capitalize()
        caption = (
            f"{unit} of each class, by the predicted class. The colour is the share of the class."
        )
        cells = [[name, *row] for name, row in zip(names, confusion.tolist(), strict=True)]
        data = Table("confusion", ["class", *names], cells, shown=False)
        return [Figure("confusion", [_heat(confusion, names)], caption, data)]
    wrong = confusion - np.diag(np.diag(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = zip(*np.unravel_index(order, wrong.shape), strict=True)
    rows = [[names[i], names[j], float(wrong[i, j])] for i, j in pairs if wrong[i, j]]
    head = ["class", "predicted", _row_unit(context)]
    return [Table("confusion", head, rows, "The classes that are confused most.")]


def _heat(confusion: Floats, names: list[str]) -> str:
    """Confusions as rectangles whose opacity is the share of the class, so that they suit any page."""
    from matplotlib.patches import Rectangle

    K = len(names)
    share = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1e-300)
    texts = [short(name, 24) for name in names]
    height = 0.29 * K + 0.7 + (0.075 * max(map(len, texts)) if K > 4 else 0.0)
    with drawing(max(PANEL, min(9.0, 2.0 + 0.5 * K)), height) as drawn:
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
    return drawn.svg


# -- calibration, and residuals --------------------------------------------------------------------


def _calibrations(context: Context, predictions: Predictions) -> Blocks:
    """Mean target against mean prediction of the first outputs; nothing if margins are no means."""
    model, cells = context.predictor, predictions.margins
    numbers = predictions.kind == "target"
    if (
        not len(cells)
        or predictions.quantile is not None
        or not (numbers or model.mean_name == "probability")
    ):
        return []
    words = "mean prediction", "mean target"
    if not numbers:
        words = "mean predicted probability", "share of rows"
    names, panels, lines = context.outputs, [], []
    for number in range(min(len(names), MOST_CALIBRATED)):
        bins = calibration(cells.of_group(number), not numbers, float(predictions.centre[number]))
        title = context.heading(number) if names[number] else "calibration"
        panels.append(_calibration(bins, *words, short(title, 30)))
        columns = (bins.predicted, bins.observed, bins.low, bins.high, bins.rows)
        lines += [[names[number], *line] for line in zip(*columns, strict=True)]
    text = "Ten bins of the predictions, with 95 % intervals; dashed: perfect."
    text += first_of(len(panels), len(names))
    head = [model.noun, "predicted", "observed", "low", "high", "rows"]
    if len(names) == 1:
        head, lines = head[1:], [line[1:] for line in lines]
    data = Table("calibration", head, lines, shown=False)
    return [Figure("calibration", panels, text, data)]


def _calibration(bins: Bins, predicted: str, observed: str, title: str) -> str:
    """Observed against predicted means, on linear axes."""
    ends = [min(bins.predicted.min(), bins.low.min()), max(bins.predicted.max(), bins.high.max())]
    with drawing(PANEL, 3.3) as drawn:
        axes: Any = drawn.axes
        axes.plot(ends, ends, color=SECOND, linewidth=1.0, linestyle="--")
        axes.vlines(bins.predicted, bins.low, bins.high, color=ACCENT, linewidth=1.2)
        axes.plot(bins.predicted, bins.observed, "o", color=ACCENT, markersize=4, clip_on=False)
        axes.set(xlabel=predicted, ylabel=observed, title=title)
    return drawn.svg


def _of_numbers(context: Context, predictions: Predictions) -> Blocks:
    blocks = _calibrations(context, predictions)
    if len(context.outputs) > 1:
        outputs = predictions.outputs
        columns = {"mean squared error": outputs.mean("squared"), "R squared": outputs.explained()}
        return [_outputs(context, columns), *blocks]
    return [*blocks, _residuals(predictions.residuals)]


def _residuals(cells: Cells) -> Figure:
    edges = _edges((cells.values, cells.column("weight")))
    counts = _counts(edges, cells.values, cells.column("weight"))
    with drawing(PANEL, 3.3) as drawn:
        drawn.axes.stairs(counts, edges, color=ACCENT, fill=True, alpha=0.5)
        drawn.axes.axvline(0.0, color=INK, linewidth=0.8)
        drawn.axes.set(xlabel="target - prediction", ylabel="rows, by weight")
    data = Table.of("residuals", {"low": edges[:-1], "high": edges[1:], "rows": counts})
    return Figure("residuals", [drawn.svg], f"Residuals of the rows. {OUTER}", data)
