"""Numbers of predictions against targets, in float64, with sample weights.

Rows are given one by one, or as the two rows of each cell, see :meth:`fcl.report.cells.Cells.labelled`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.path.rules import is_no_gain
from fcl.report.cells import Cells
from fcl.types import Floats

#: Points of a curve that the page shows.
MOST_POINTS = 400
#: Standard normal quantile of a two-sided interval of 95 %.
Z95 = 1.959963984540054
#: Samples of the bootstrap: enough for the first digit of a standard error.
REPLICATES = 100


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
    """Rows in quantile bins of their predictions; all arrays are float64 (bins,)."""

    predicted: Floats  #: weighted means of the prediction
    observed: Floats  #: weighted means of the target
    low: Floats  #: ends of an interval of 95 % of the observed mean
    high: Floats
    rows: Floats  #: number of rows


@dataclass(frozen=True)
class Estimate:
    """A number measured on rows, with its standard error over samples of such rows."""

    value: float
    error: float

    @property
    def text(self) -> str:
        """The number with four digits."""
        return f"{self.value:z.4f}"

    @property
    def share_interval(self) -> str:
        """An interval of 95 % of a number between 0 and 1, in words; empty if it is not known."""
        spread = self.value * (1.0 - self.value)
        if not (spread > 0.0 and self.error > 0.0):
            return ""
        # on the scale of log odds, on which no end leaves the range
        middle, half = np.log(self.value / (1.0 - self.value)), Z95 * self.error / spread
        low, high = (1.0 / (1.0 + np.exp(-end)) for end in (middle - half, middle + half))
        return _range(float(low), float(high))

    @property
    def interval(self) -> str:
        """An interval of 95 %, in words; empty if it is not known."""
        half = Z95 * self.error
        return _range(self.value - half, self.value + half) if half > 0.0 else ""


def _range(low: float, high: float) -> str:
    """Two ends with the digits that tell them apart, at least two; empty if six do not."""
    if high - low < 1e-6:
        return ""
    digits = int(np.clip(np.ceil(-np.log10(high - low)) + 1, 2, 6))
    return f"{low:z.{digits}f} to {high:z.{digits}f}"


def areas(cells: Cells) -> tuple[float, float]:
    """AUPRC and AUROC of one output; NaN unless there are rows of both labels."""
    positive = cells.column("target")
    return _areas(positive, cells.column("weight") - positive)


def _areas(positive: Floats, negative: Floats) -> tuple[float, float]:
    """AUPRC and AUROC from the weights in cells of increasing value."""
    hits, misses = np.cumsum(positive[::-1]), np.cumsum(negative[::-1])
    if not len(hits) or not (hits[-1] > 0.0 and misses[-1] > 0.0):
        return np.nan, np.nan
    share = positive[::-1] / hits[-1]
    with np.errstate(invalid="ignore"):  # 0 / 0 in leading cells without weight
        precision = np.nan_to_num(hits / (hits + misses))
    later = misses[-1] - misses + negative[::-1] / 2.0
    return float(share @ precision), float(share @ later) / float(misses[-1])


def ranking(cells: Cells) -> tuple[Estimate, Estimate]:
    """AUPRC and AUROC of one output with standard errors, by a Poisson bootstrap of the rows.

    Each row counts a Poisson number of times (Chamandy et al. 2012, "Estimating uncertainty for massive
    data streams"). The rows of a cell get their mean weight.
    """
    rows, weight = cells.column("rows"), cells.column("weight")
    positive = rows * cells.column("target") / weight
    rates, scale = np.stack([positive, rows - positive]), weight / rows
    random = np.random.default_rng(0)
    samples = [_areas(*(random.poisson(rates) * scale)) for _ in range(REPLICATES)]
    errors = np.nanstd(samples, axis=0, ddof=1) if np.isfinite(samples).any() else (np.nan,) * 2
    auprc, auroc = (Estimate(*pair) for pair in zip(areas(cells), map(float, errors), strict=True))
    return auprc, auroc


def explained_share(residuals: Cells) -> Estimate:
    """R squared of one output with a standard error, by a Poisson bootstrap of the rows.

    Residuals that share a cell count as equal, which changes the sums by little.
    """
    rows = residuals.column("rows")
    weight, target = residuals.column("weight"), residuals.column("target")
    sums = np.stack(
        [weight, target, residuals.column("squared_target"), weight * residuals.values**2]
    )

    def share(total: Floats) -> float:
        spread = total[2] - total[1] ** 2 / total[0]
        return float(1.0 - total[3] / spread) if spread > 0.0 else np.nan

    random = np.random.default_rng(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = [share(sums @ (random.poisson(rows) / rows)) for _ in range(REPLICATES)]
        error = float(np.nanstd(samples, ddof=1)) if np.isfinite(samples).any() else np.nan
        return Estimate(share(sums.sum(axis=1)), error)


def share_of(value: float, rows: float, squared: float) -> Estimate:
    """A share of rows with its standard error; rows, squared : sums of weights and of their squares."""
    effective = rows**2 / squared
    return Estimate(value, float(np.sqrt(max(value * (1.0 - value), 0.0) / effective)))


class Answer:
    """How good the model is by one score, beside the score ``empty`` of a model without features.

    ``interval`` is one of 95 % in words; ``no_gain`` says whether the model is not clearly better.
    """

    def __init__(self, name: str, estimate: Estimate, empty: float, words: str) -> None:
        self.name, self.estimate, self.empty, self._words = name, estimate, empty, words
        shares = name != "R squared"
        self.interval = estimate.share_interval if shares else estimate.interval
        error = estimate.error if estimate.error > 0.0 else np.nan
        self.no_gain = is_no_gain(estimate.value, empty, error, higher_is_better=True)

    @property
    def text(self) -> str:
        """The score, its interval and the score without features."""
        interval = f"95 % interval {self.interval}; " if self.interval else ""
        return f"{self.estimate.text} ({interval}{self._words} has {self.empty:.4g})"


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
    """The quantile bin of each row, int64 (n,), by sample weight; equal predictions share a bin."""
    values, inverse = np.unique(predicted, return_inverse=True)
    inverse = inverse.reshape(-1)
    mass = np.bincount(inverse, weights, len(values))
    middle = (np.cumsum(mass) - mass / 2.0) / mass.sum()
    bins = np.minimum((middle * most).astype(np.int64), most - 1)
    _, bins = np.unique(bins, return_inverse=True)
    return bins.reshape(-1)[inverse]


def calibration(cells: Cells, binary: bool, centre: float = 0.0) -> Bins:
    """Mean target against mean prediction in 10 quantile bins of the predictions.

    The bins of labels divide the rows and the expected positive rows alike: half of the mass of a bin is
    its share of each. Bins of equal numbers of rows would all lie near 0 where few rows are positive.
    Intervals are Wilson's for shares (E. B. Wilson 1927), and normal for means of numbers, with Kish's
    effective number of rows.

    cells : of one output, by margin.
    binary : whether targets are 0 or 1.
    centre : what is added to the targets of the cells.
    """
    cell_mass = cells.column("weight")
    predicted = cells.column("prediction") / cell_mass
    mass = cell_mass
    if binary:
        expected = cells.column("prediction")
        mass = cell_mass / cell_mass.sum() + expected / max(expected.sum(), 1e-300)
    bins = quantile_bins(predicted, mass)

    def total(name: str) -> Floats:
        return np.bincount(bins, cells.column(name)).astype(np.float64)

    weight = total("weight")
    effective = weight**2 / total("squared_weight")
    observed = total("target") / weight
    if binary:
        low, high = _wilson(observed, effective)
    else:
        variance = np.maximum(total("squared_target") / weight - observed**2, 0.0)
        half = Z95 * np.sqrt(variance / effective)
        low, high = observed - half, observed + half
    means = total("prediction") / weight
    return Bins(means, observed + centre, low + centre, high + centre, total("rows"))


def _wilson(share: Floats, n: Floats) -> tuple[Floats, Floats]:
    scale = 1.0 + Z95**2 / n
    middle = (share + Z95**2 / (2.0 * n)) / scale
    half = Z95 / scale * np.sqrt(share * (1.0 - share) / n + Z95**2 / (4.0 * n**2))
    return middle - half, middle + half


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0.0 else float("nan")
