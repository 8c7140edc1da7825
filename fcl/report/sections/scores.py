"""Scores: how the predictions compare with the targets of the data."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np

from fcl.path.rules import is_no_gain
from fcl.report.cells import Cells, ranking_errors
from fcl.report.contract import Context, Figure, Section, Table, name_text
from fcl.report.figures import ACCENT, INK, SECOND, drawing, log_axis, short
from fcl.report.measured import Measured
from fcl.report.predictions import MOST_PREDICTED, Predictions
from fcl.report.scores import (
    Bins,
    Confusion,
    Curve,
    calibration,
    confusion_at,
    precision_recall,
    roc,
    thinned,
    thresholds,
)
from fcl.report.sections.by_group import scores_of_labels, scores_of_numbers
from fcl.types import Floats
from fcl.units import counted

#: Bins of a histogram.
BINS = 50
#: Rounds upper bounds to one significant digit.
UP = decimal.Context(prec=1, rounding=decimal.ROUND_CEILING)
#: Share of the rows beyond each end of a histogram; a few large values must not flatten the others.
OUTER_SHARE = 0.002
OUTER = "The outer bars include the rows further out."
#: Predictions whose means differ by this factor are drawn on a log scale.
LOG_FROM = 1_000.0
TRAINING = "The model was trained on these rows, so that scores on new rows are usually worse."
OTHER = (
    "These data differ from the training data by fingerprint (rows, names of columns, target, weights, "
    "offset, covariates); whether they share rows is not checked."
)
WITHOUT = (
    "Scores, effects and single rows need rows of data: fcl-report MODEL --data DATA --out FILE."
)


def section(context: Context) -> Section:
    """Scores on the rows of the data, or how to get them."""
    measured = context.measured
    if measured is None:
        return Section("scores", "Scores", WITHOUT)
    lead = _lead(measured)
    if context.model.labels is None:
        return _regression(context, measured.predictions, lead)
    return _classification(context, measured.predictions, lead)


def _lead(measured: Measured) -> str:
    n, n_counted = measured.predictions.n_rows, measured.predictions.n_counted
    text = f"{counted(n, 'row')} of {name_text(measured.data.name)}."
    if n_counted < n:
        text += f" Without {counted(n - n_counted, 'row')} of weight 0."
    return f"{text} {TRAINING if measured.is_training else OTHER}"


# -- classification --------------------------------------------------------------------------------


def _classification(context: Context, predictions: Predictions, lead: str) -> Section:
    y, margins, weights = predictions.margins.labelled()
    if len(np.unique(y)) < 2:
        lead += " All rows have the same label, so that there are no curves."
        return Section("scores", "Scores", lead)
    ranked, rates = precision_recall(y, margins, weights), roc(y, margins, weights)
    totals = predictions.totals.all()
    base = float(totals.mean("target")[0])
    if is_no_gain(ranked.area, base, np.nan, higher_is_better=True):
        lead += " The order of the rows by this model is hardly better than a random order."
    facts = [
        ("AUPRC", f"{ranked.area:.4f}, of a random order {base:.4f}"),
        ("AUROC", f"{rates.area:.4f}, of a random order 0.5"),
    ]
    blocks: list[Figure | Table] = [_curves(ranked, rates, base)]
    blocks.append(_histogram(context, y, margins, weights))
    if context.model.loss_object.has_mean:
        facts.append(("log loss", f"{totals.mean('log_loss')[0]:.5g}"))
        facts.append(("Brier score", f"{totals.mean('brier')[0]:.5g}"))
        words = "mean predicted probability", "share of positive rows"
        blocks.append(_calibration(calibration(predictions.margins, binary=True), *words))
    rules = thresholds(ranked)
    blocks.append(_confusions([confusion_at(*rule, y, margins, weights) for rule in rules]))
    blocks += scores_of_labels(predictions, ranked.area)
    return Section("scores", "Scores", lead, facts, blocks, _notes(predictions.margins))


def _notes(cells: Cells) -> list[str]:
    """By how much the areas may be wrong, if margins were rounded."""
    if cells.exact:
        return []
    errors = ranking_errors(cells)
    return [
        f"The curves group the rows into {len(cells):,} intervals of nearly equal margins. This changes "
        f"AUPRC by at most {rounded_up(errors.auprc)}, and AUROC by at most {rounded_up(errors.auroc)}."
    ]


def rounded_up(value: float) -> str:
    """A bound with one significant digit, rounded up so that it stays a bound."""
    return f"{float(UP.create_decimal_from_float(value)):.1g}"


def _curves(ranked: Curve, rates: Curve, base: float) -> Figure:
    ranked, rates = thinned(ranked), thinned(rates)
    with drawing(9.0, 3.6, columns=2) as drawn:
        left, right = drawn.axes
        # a precision holds from the recall before it: straight lines would show more than the AUPRC
        left.plot(ranked.x, ranked.y, color=ACCENT, drawstyle="steps-pre")
        left.axhline(base, color=SECOND, linewidth=1.0, linestyle="--")
        left.set(xlabel="recall", ylabel="precision", xlim=(0, 1.01), ylim=(0, 1.02))
        left.set_title(f"precision and recall, AUPRC {ranked.area:.4f}")
        right.plot(rates.x, rates.y, color=ACCENT)
        right.plot([0, 1], [0, 1], color=SECOND, linewidth=1.0, linestyle="--")
        right.set(xlabel="false positive rate", ylabel="true positive rate")
        right.set(xlim=(-0.01, 1), ylim=(0, 1.02))
        right.set_title(f"ROC, AUROC {rates.area:.4f}")
    rows = [
        [name, *point]
        for name, curve in (("precision-recall", ranked), ("ROC", rates))
        for point in zip(curve.x.tolist(), curve.y.tolist(), curve.thresholds.tolist(), strict=True)
    ]
    data = Table("curves", ["curve", "x", "y", "threshold"], rows, shown=False)
    return Figure("curves", drawn.svg, "Dashed: a random order of the rows.", data)


def _histogram(context: Context, y: Floats, margins: Floats, weights: Floats) -> Figure:
    classes = [(margins[y == side], weights[y == side]) for side in (-1, 1)]
    edges = _edges(*classes)
    counts = [_counts(edges, *own) for own in classes]
    with drawing(9.0, 2.4) as drawn:
        for count, colour in zip(counts, (SECOND, ACCENT), strict=True):
            share = count / count.sum()
            drawn.axes.stairs(share, edges, color=colour, fill=True, alpha=0.35)
            drawn.axes.stairs(share, edges, color=colour, linewidth=1.2)
        drawn.axes.axvline(0.0, color=INK, linewidth=0.8)
        drawn.axes.set(xlabel="margin", ylabel="share of the class")
        handles = drawn.axes.patches[::2]
        drawn.axes.legend(handles, [short(label, 24) for label in context.labels])
    rows = [list(row) for row in zip(edges[:-1], edges[1:], *counts, strict=True)]
    data = Table("margins", ["low", "high", "negative", "positive"], rows, shown=False)
    caption = f"Margins by class. A margin above 0 predicts the positive label. {OUTER}"
    return Figure("margins", drawn.svg, caption, data)


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


def _calibration(bins: Bins, predicted: str, observed: str) -> Figure:
    caption = "Ten quantile bins of the predictions, with 95 % intervals; dashed: perfect."
    with drawing(4.6, 3.6) as drawn:
        caption += draw_calibration(drawn.axes, bins, predicted, observed)
        drawn.axes.set_title("calibration")
    head = ["predicted", "observed", "low", "high", "rows"]
    columns = (bins.predicted, bins.observed, bins.low, bins.high, bins.rows)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Figure("calibration", drawn.svg, caption, Table("calibration", head, rows, shown=False))


def draw_calibration(axes: Any, bins: Bins, predicted: str, observed: str) -> str:
    """Draw observed against predicted means; returns what a caption says of the scale.

    axes : of matplotlib.
    bins : Bins
    predicted, observed : names of the axes.
    """
    ends = [min(bins.predicted.min(), bins.low.min()), max(bins.predicted.max(), bins.high.max())]
    words = ""
    low, observed_means = bins.low, bins.observed
    if bins.predicted[0] > 0.0 and bins.predicted[-1] > LOG_FROM * bins.predicted[0]:
        ends = [bins.predicted[0] / 2.0, 1.5 * ends[1]]
        words = " On the log scale, smaller values are at the lower edge."
        # a log scale has no 0
        low, observed_means = np.maximum(low, ends[0]), np.maximum(observed_means, ends[0])
        for which in "xy":
            log_axis(axes, which, *ends)
        axes.set(xlim=ends, ylim=ends)
    axes.plot(ends, ends, color=SECOND, linewidth=1.0, linestyle="--")
    axes.vlines(bins.predicted, low, bins.high, color=ACCENT, linewidth=1.2)
    axes.plot(bins.predicted, observed_means, "o", color=ACCENT, markersize=4, clip_on=False)
    axes.set(xlabel=predicted, ylabel=observed)
    return words


def _confusions(found: list[Confusion]) -> Table:
    head = [
        "rule", "threshold", "true positive", "false positive", "false negative", "true negative",
        "precision", "recall", "F1",
    ]  # fmt: skip
    rows = [
        [
            c.rule, round(c.threshold, 12), c.true_positive, c.false_positive, c.false_negative,
            c.true_negative, c.precision, c.recall, c.f1,
        ]
        for c in found
    ]  # fmt: skip
    caption = "Confusion at three thresholds, in sums of sample weights."
    return Table("confusion", head, rows, caption)


# -- regression ------------------------------------------------------------------------------------


def _regression(context: Context, predictions: Predictions, lead: str) -> Section:
    if predictions.overflows:
        lead += (
            f" Predictions of more than {MOST_PREDICTED:.0e} occur, so that there are no scores."
        )
        return Section("scores", "Scores", lead)
    loss = context.model.loss_object
    metric, quantile = loss.metric, loss.quantile
    totals = predictions.totals.all()
    squared, spread = float(totals.mean("squared")[0]), float(totals.spread()[0])
    facts = [
        (loss.metric_title, f"{totals.mean('metric')[0]:.6g}"),
        ("root mean squared error", f"{np.sqrt(squared):.6g}"),
    ]
    if metric != "mae":
        facts.append(("mean absolute error", f"{totals.mean('absolute')[0]:.6g}"))
    if spread > 0.0:
        facts.append(("R squared", f"{1.0 - squared / spread:z.4f}"))
    if quantile is not None:
        share = f"{totals.mean('covered')[0]:.4f}, {quantile:g} is perfect"
        facts.append(("share of targets up to the prediction", share))
    blocks: list[Any] = []
    if quantile is None:  # predicted means
        bins = calibration(predictions.margins, False, predictions.centre)
        blocks.append(_calibration(bins, "mean prediction", "mean target"))
    blocks += [
        _residuals(predictions.residuals),
        *scores_of_numbers(predictions, metric.upper()),
    ]
    return Section("scores", "Scores", lead, facts, blocks)


def _residuals(cells: Cells) -> Figure:
    edges = _edges((cells.values, cells.column("weight")))
    counts = _counts(edges, cells.values, cells.column("weight"))
    with drawing(9.0, 2.2) as drawn:
        drawn.axes.stairs(counts, edges, color=ACCENT, fill=True, alpha=0.5)
        drawn.axes.axvline(0.0, color=INK, linewidth=0.8)
        drawn.axes.set(xlabel="target - prediction", ylabel="rows, by weight")
    rows: list[list[Any]] = [list(row) for row in zip(edges[:-1], edges[1:], counts, strict=True)]
    data = Table("residuals", ["low", "high", "rows"], rows, shown=False)
    return Figure("residuals", drawn.svg, f"Residuals of the rows. {OUTER}", data)
