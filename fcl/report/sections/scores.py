"""Scores: how the predictions compare with the targets of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.report.contract import Context, Figure, Section, Table, name_text
from fcl.report.figures import ACCENT, FAINT, INK, SECOND, drawing, log_axis, short
from fcl.report.measured import Measured
from fcl.report.scores import (
    Bins,
    Confusion,
    Curve,
    GroupScore,
    calibration,
    confusion_at,
    group_scores,
    precision_recall,
    roc,
    thinned,
    thresholds,
)

__all__ = ["section"]

Floats = npt.NDArray[np.float64]

#: Bins of a histogram.
BINS = 50
#: Predictions whose means differ by this factor are drawn on a log scale.
LOG_FROM = 1_000.0
#: Groups that the page shows: the largest ones.
MOST_GROUPS = 40
TRAINING = "The model was trained on these rows, so that scores on new rows are usually lower."
WITHOUT = (
    "Scores, effects and single rows need rows of data: fcl-report MODEL --data DATA --out FILE."
)


def section(context: Context) -> Section:
    """Scores on the rows of the data, or how to get them."""
    measured = context.measured
    if measured is None:
        return Section("scores", "Scores", WITHOUT)
    lead = f"{len(measured.y):,} rows of {name_text(measured.data.name)}."
    if not measured.weights.all():
        zero = int(np.count_nonzero(measured.weights == 0.0))
        lead += f" {zero:,} rows of weight 0 do not count."
    lead += f" {TRAINING}" if measured.is_training else " The model was not trained on these rows."
    if context.model.labels is None:
        return _regression(context, measured, lead)
    return _classification(context, measured, lead)


def _counted(measured: Measured) -> tuple[Floats, Floats, Floats]:
    """Targets, margins and weights of the rows that count."""
    kept = measured.weights > 0.0
    return measured.y[kept], measured.margins[kept], measured.weights[kept]


# -- classification --------------------------------------------------------------------------------


def _classification(context: Context, measured: Measured, lead: str) -> Section:
    y, margins, weights = _counted(measured)
    if len(np.unique(y)) < 2:
        lead += " All rows have the same label, so that there are no curves."
        return Section("scores", "Scores", lead)
    ranked, rates = precision_recall(y, margins, weights), roc(y, margins, weights)
    base = float(weights[y > 0].sum() / weights.sum())
    facts = [
        ("AUPRC", f"{ranked.area:.4f}, of a random order {base:.4f}"),
        ("AUROC", f"{rates.area:.4f}, of a random order 0.5"),
    ]
    blocks: list[Figure | Table] = [_curves(ranked, rates, base)]
    blocks.append(_histogram(context, y, margins, weights))
    if context.model.loss_object.has_mean:
        probability = context.model.loss_object.mean(margins)
        facts += _probability_facts(y, probability, weights)
        bins = calibration(probability, (y + 1.0) / 2.0, weights, binary=True)
        words = "mean predicted probability", "share of positive rows"
        blocks.append(_calibration(bins, *words))
    rules = thresholds(ranked)
    blocks.append(_confusions([confusion_at(*rule, y, margins, weights) for rule in rules]))
    if measured.groups is not None:
        kept = measured.groups[measured.weights > 0.0]
        blocks += _groups(group_scores(kept, y, margins, weights), ranked.area)
    return Section("scores", "Scores", lead, facts, blocks)


def _probability_facts(y: Floats, probability: Floats, weights: Floats) -> list[tuple[str, str]]:
    from sklearn.metrics import brier_score_loss, log_loss

    brier = brier_score_loss(y > 0, probability, sample_weight=weights)
    loss = log_loss(y > 0, probability, sample_weight=weights)
    return [("log loss", f"{loss:.5g}"), ("Brier score", f"{brier:.5g}")]


def _curves(ranked: Curve, rates: Curve, base: float) -> Figure:
    ranked, rates = thinned(ranked), thinned(rates)
    with drawing(9.0, 3.6, columns=2) as drawn:
        left, right = drawn.axes
        left.plot(ranked.x, ranked.y, color=ACCENT)
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
    edges = _edges(margins)
    counts = [
        np.histogram(margins[y == side], edges, weights=weights[y == side])[0] for side in (-1, 1)
    ]
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
    caption = "Margins by class. A margin above 0 predicts the positive label."
    return Figure("margins", drawn.svg, caption, data)


def _edges(values: Floats) -> Floats:
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high if high > low else low + 1.0, BINS + 1)


def _calibration(bins: Bins, predicted: str, observed: str) -> Figure:
    ends = [min(bins.predicted.min(), bins.low.min()), max(bins.predicted.max(), bins.high.max())]
    caption = "Ten quantile bins of the predictions, with 95 % intervals; dashed: perfect."
    low, observed_means = bins.low, bins.observed
    with drawing(4.6, 3.6) as drawn:
        if bins.predicted[0] > 0.0 and bins.predicted[-1] > LOG_FROM * bins.predicted[0]:
            ends = [bins.predicted[0] / 2.0, 1.5 * ends[1]]
            caption += " On the log scale, shares of 0 are at the lower edge."
            # a log scale has no 0
            low, observed_means = np.maximum(low, ends[0]), np.maximum(observed_means, ends[0])
            for which in "xy":
                log_axis(drawn.axes, which, *ends)
            drawn.axes.set(xlim=ends, ylim=ends)
        drawn.axes.plot(ends, ends, color=SECOND, linewidth=1.0, linestyle="--")
        drawn.axes.vlines(bins.predicted, low, bins.high, color=ACCENT, linewidth=1.2)
        drawn.axes.plot(bins.predicted, observed_means, "o", color=ACCENT, markersize=4)
        drawn.axes.set(xlabel=predicted, ylabel=observed)
        drawn.axes.set_title("calibration")
    head = ["predicted", "observed", "low", "high", "rows"]
    columns = (bins.predicted, bins.observed, bins.low, bins.high, bins.rows)
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Figure("calibration", drawn.svg, caption, Table("calibration", head, rows, shown=False))


def _confusions(found: list[Confusion]) -> Table:
    head = [
        "rule", "margin from", "true positive", "false positive", "false negative", "true negative",
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


def _groups(found: list[GroupScore], overall: float) -> list[Figure | Table]:
    head = ["group", "rows", "share of positive rows", "AUPRC"]
    rows = [[name_text(g.group), g.rows, g.positive, g.auprc] for g in found]
    table = Table("groups", head, rows, "Scores of each group.", shown=len(rows) <= MOST_GROUPS)
    largest = sorted(found, key=lambda g: -g.rows)[:MOST_GROUPS]
    chosen = [g for g in found if g in largest]
    with drawing(9.0, 0.9 + 0.22 * len(chosen)) as drawn:
        at = np.arange(len(chosen))[::-1]
        drawn.axes.plot([g.positive for g in chosen], at, "|", color=SECOND, markersize=9)
        drawn.axes.plot([g.auprc for g in chosen], at, "o", color=ACCENT, markersize=5)
        drawn.axes.axvline(overall, color=FAINT, linewidth=1.5)
        drawn.axes.set_yticks(at, [f"{short(g.group, 24)} (n = {g.rows:,})" for g in chosen])
        drawn.axes.set(xlabel="AUPRC", xlim=(0, 1.02))
    caption = "AUPRC of each group; the short stroke is a random order, the line all rows together."
    return [Figure("groups", drawn.svg, caption), table]


# -- regression ------------------------------------------------------------------------------------


def _regression(context: Context, measured: Measured, lead: str) -> Section:
    y, margins, weights = _counted(measured)
    loss = context.model.loss_object
    predicted = loss.mean(margins)
    residuals = y - predicted
    total = float(weights.sum())
    spread = float(weights @ (y - float(weights @ y) / total) ** 2)
    squared = float(weights @ residuals**2)
    facts = [
        (loss.metric.upper(), f"{loss.score(y, weights, margins):.6g}"),
        ("root mean squared error", f"{np.sqrt(squared / total):.6g}"),
        ("mean absolute error", f"{float(weights @ np.abs(residuals)) / total:.6g}"),
    ]
    if spread > 0.0:
        facts.append(("R squared", f"{1.0 - squared / spread:.4f}"))
    bins = calibration(predicted, y, weights, binary=False)
    blocks = [
        _calibration(bins, "mean prediction", "mean target"),
        _residuals(residuals, weights),
    ]
    return Section("scores", "Scores", lead, facts, blocks)


def _residuals(residuals: Floats, weights: Floats) -> Figure:
    edges = _edges(residuals)
    counts, _ = np.histogram(residuals, edges, weights=weights)
    with drawing(9.0, 2.2) as drawn:
        drawn.axes.stairs(counts, edges, color=ACCENT, fill=True, alpha=0.5)
        drawn.axes.axvline(0.0, color=INK, linewidth=0.8)
        drawn.axes.set(xlabel="target - prediction", ylabel="rows, by weight")
    rows: list[list[Any]] = [list(row) for row in zip(edges[:-1], edges[1:], counts, strict=True)]
    data = Table("residuals", ["low", "high", "rows"], rows, shown=False)
    return Figure("residuals", drawn.svg, "Residuals of the rows.", data)
