"""Numbers of predictions against targets, in float64, with sample weights.

Rows are given one by one, or as the two rows of each cell, see :meth:`fcl.report.cells.Cells.labelled`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.report.cells import Cells
from fcl.types import Floats

#: Points of a curve that the page shows.
MOST_POINTS = 400
#: Standard normal quantile of a two-sided interval of 95 %.
Z95 = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve with the area under it; all arrays are float64 (points,).

    ``thresholds[i]`` is the smallest margin that is predicted positive at point i.
    """

    x: Floats
    y: Floats
    thresholds: Floats
    area: float


@dataclass(frozen=True)
class Confusion:
    """Weighted counts of rows by prediction and label, if margins >= threshold are positive."""

    rule: str
    threshold: float
    true_positive: float
    false_positive: float
    false_negative: float
    true_negative: float

    @property
    def precision(self) -> float:
        """Share of positive rows among the rows predicted positive."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float:
        """Share of rows predicted positive among the positive rows."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        both = self.precision + self.recall
        return _ratio(2.0 * self.precision * self.recall, both)


@dataclass(frozen=True, eq=False)
class Bins:
    """Rows in quantile bins of their predictions; all arrays are float64 (bins,).

    Attributes
    ----------
    predicted, observed : float64
        Weighted means of prediction and target.
    low, high : float64
        Interval of 95 % of the observed mean.
    rows : float64
        Number of rows.
    """

    predicted: Floats
    observed: Floats
    low: Floats
    high: Floats
    rows: Floats


def precision_recall(y: Floats, margins: Floats, weights: Floats) -> Curve:
    """Precision over recall, by increasing recall; the area is the average precision."""
    from sklearn.metrics import average_precision_score, precision_recall_curve

    positive = y > 0
    precision, recall, cuts = precision_recall_curve(positive, margins, sample_weight=weights)
    area = average_precision_score(positive, margins, sample_weight=weights)
    cuts = np.append(cuts, np.inf)
    return Curve(recall[::-1], precision[::-1], cuts[::-1], float(area))


def roc(y: Floats, margins: Floats, weights: Floats) -> Curve:
    """True positive rate over false positive rate."""
    from sklearn.metrics import auc, roc_curve

    false, true, cuts = roc_curve(y > 0, margins, sample_weight=weights)
    return Curve(false, true, cuts, float(auc(false, true)))


def thinned(curve: Curve, most: int = MOST_POINTS) -> Curve:
    """A curve with fewer points, spaced evenly along its length, and the same area."""
    if len(curve.x) <= most:
        return curve
    length = np.append(0.0, np.cumsum(np.hypot(np.diff(curve.x), np.diff(curve.y))))
    at = np.unique(np.searchsorted(length, np.linspace(0.0, length[-1], most)))
    at = np.unique([0, *np.minimum(at, len(length) - 1), len(length) - 1])
    return Curve(curve.x[at], curve.y[at], curve.thresholds[at], curve.area)


def thresholds(curve: Curve) -> list[tuple[str, float]]:
    """Rules that choose a threshold on a precision-recall curve, and the thresholds."""
    recall, precision = curve.x, curve.y
    both = np.maximum(recall + precision, 1e-300)
    best = int(np.argmax(2.0 * recall * precision / both))
    enough = int(np.argmax(recall >= 0.95))  # recall increases
    return [
        ("margin > 0", float(np.nextafter(0.0, 1.0))),  # as predictions do
        ("best F1", float(curve.thresholds[best])),
        ("95 % recall", float(curve.thresholds[enough])),
    ]


def confusion_at(
    rule: str, threshold: float, y: Floats, margins: Floats, weights: Floats
) -> Confusion:
    """The weighted confusion matrix if margins of at least ``threshold`` are positive."""
    chosen = margins >= threshold
    positive = y > 0
    cells = (chosen & positive, chosen & ~positive, ~chosen & positive, ~chosen & ~positive)
    return Confusion(rule, threshold, *(float(weights[cell].sum()) for cell in cells))


def quantile_bins(predicted: Floats, weights: Floats, most: int = 10) -> npt.NDArray[np.int64]:
    """The number of the quantile bin of each row, int64 (n,), by sample weight.

    Equal predictions are in one bin, so there may be fewer than ``most`` bins; the numbers have no gaps.
    """
    values, inverse = np.unique(predicted, return_inverse=True)
    inverse = inverse.reshape(-1)
    mass = np.bincount(inverse, weights, len(values))
    middle = (np.cumsum(mass) - mass / 2.0) / mass.sum()
    bins = np.minimum((middle * most).astype(np.int64), most - 1)
    _, bins = np.unique(bins, return_inverse=True)
    return bins.reshape(-1)[inverse]


def calibration(cells: Cells, binary: bool, centre: float = 0.0) -> Bins:
    """Mean target against mean prediction in 10 quantile bins of the predictions.

    Intervals are Wilson's for shares (E. B. Wilson 1927), and normal for means of numbers, with Kish's
    effective number of rows.

    Parameters
    ----------
    cells : Cells
        Rows by margin.
    binary : bool
        Whether targets are 0 or 1.
    centre : float
        What is added to the targets of the cells.
    """
    cell_mass = cells.column("weight")
    predicted = cells.column("prediction") / cell_mass
    bins = quantile_bins(predicted, cell_mass)

    def total(name: str) -> Floats:
        return np.bincount(bins, cells.column(name)).astype(np.float64)

    mass = total("weight")
    effective = mass**2 / total("squared_weight")
    observed = total("target") / mass
    if binary:
        low, high = _wilson(observed, effective)
    else:
        variance = np.maximum(total("squared_target") / mass - observed**2, 0.0)
        half = Z95 * np.sqrt(variance / effective)
        low, high = observed - half, observed + half
    means = total("prediction") / mass
    return Bins(means, observed + centre, low + centre, high + centre, total("rows"))


def _wilson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    scale = 1.0 + Z95**2 / n
    middle = (share + Z95**2 / (2.0 * n)) / scale
    half = Z95 / scale * np.sqrt(share * (1.0 - share) / n + Z95**2 / (4.0 * n**2))
    return middle - half, middle + half


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else float("nan")
