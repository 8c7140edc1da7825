"""Scores against brute force, scikit-learn and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, confusion_matrix, f1_score, roc_auc_score

from fcl.report import scores
from fcl.report.cells import Cells, CellSums, row_sums

RNG = np.random.default_rng(4)
N = 400
Y = np.where(RNG.random(N) < 0.3, 1.0, -1.0)
MARGINS = np.round(Y + RNG.normal(size=N) * 1.5, 1)  # with ties
WEIGHTS = RNG.integers(1, 4, N).astype(float)
REPEATED = np.repeat(np.arange(N), WEIGHTS.astype(int))


def cells_of(predicted: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Cells:
    sums = CellSums()
    sums.add(np.zeros(N, np.int64), MARGINS, row_sums(weights, targets, predicted))
    return sums.cells()


def test_curves_count_weights_as_repeated_rows() -> None:
    y, margins = Y[REPEATED], MARGINS[REPEATED]
    ranked, rates = (f(Y, MARGINS, WEIGHTS) for f in (scores.precision_recall, scores.roc))
    assert ranked.area == pytest.approx(average_precision_score(y > 0, margins))
    assert rates.area == pytest.approx(roc_auc_score(y > 0, margins))
    for i in range(0, len(ranked.x) - 1, 7):
        chosen = margins >= ranked.thresholds[i]
        if chosen.any():
            assert ranked.x[i] == pytest.approx((y[chosen] > 0).sum() / (y > 0).sum())
            assert ranked.y[i] == pytest.approx((y[chosen] > 0).mean())
    few = scores.thinned(ranked, 20)
    assert len(few.x) <= 22 and few.area == ranked.area
    assert {few.x[0], few.x[-1]} == {0.0, 1.0} and set(few.x) <= set(ranked.x)


def test_thresholds_and_confusion() -> None:
    ranked = scores.precision_recall(Y, MARGINS, WEIGHTS)
    found = dict(scores.thresholds(ranked))
    y, margins = Y[REPEATED], MARGINS[REPEATED]
    by_cut = {cut: f1_score(y > 0, margins >= cut) for cut in np.unique(margins)}
    assert by_cut[found["best F1"]] == pytest.approx(max(by_cut.values()))
    recalls = {cut: (margins[y > 0] >= cut).mean() for cut in by_cut}
    assert found["95 % recall"] == max(cut for cut, recall in recalls.items() if recall >= 0.95)
    for rule, cut in found.items():
        got = scores.confusion_at(rule, cut, Y, MARGINS, WEIGHTS)
        predicted = margins > 0 if rule == "margin > 0" else margins >= cut
        tn, fp, fn, tp = confusion_matrix(y > 0, predicted).ravel()
        cells = (got.true_positive, got.false_positive, got.false_negative, got.true_negative)
        assert cells == (tp, fp, fn, tn)
        assert got.f1 == pytest.approx(f1_score(y > 0, predicted))


def test_calibration_bins() -> None:
    bins = scores.quantile_bins(MARGINS, WEIGHTS)
    assert np.array_equal(np.unique(bins), np.arange(10))
    for value in np.unique(MARGINS):
        assert len(set(bins[value == MARGINS])) == 1  # equal predictions are together
    assert (np.diff(bins[np.argsort(MARGINS, kind="stable")]) >= 0).all()
    assert abs(np.bincount(bins, WEIGHTS) / WEIGHTS.sum() - 0.1).max() < 0.06
    assert set(scores.quantile_bins(np.ones(7), np.ones(7))) == {0}

    probability = 1 / (1 + np.exp(-MARGINS))
    found = scores.calibration(cells_of(probability, (Y + 1) / 2, np.ones(N)), binary=True)
    # half of a bin is its share of the rows, and half its share of the expected positive rows
    own = scores.quantile_bins(probability, 1.0 / N + probability / probability.sum())
    for k in range(len(found.rows)):
        here = own == k
        positive, n = int((Y[here] > 0).sum()), int(here.sum())
        assert found.rows[k] == n and found.observed[k] == pytest.approx(positive / n)
        assert found.predicted[k] == pytest.approx(probability[here].mean())
        interval = binomtest(positive, n).proportion_ci(0.95, method="wilson")
        assert (found.low[k], found.high[k]) == pytest.approx((interval.low, interval.high))
    targets = 3 * MARGINS + RNG.normal(size=N)
    cells = cells_of(MARGINS, targets - 7.0, WEIGHTS)
    numbers = scores.calibration(cells, False, centre=7.0)
    for k in range(len(numbers.rows)):
        own = bins == k
        mean = np.average(targets[own], weights=WEIGHTS[own])
        variance = np.average((targets[own] - mean) ** 2, weights=WEIGHTS[own])
        half = scores.Z95 * np.sqrt(variance * (WEIGHTS[own] ** 2).sum()) / WEIGHTS[own].sum()
        assert numbers.observed[k] == pytest.approx(mean)
        expected = pytest.approx((mean - half, mean + half))
        assert (numbers.low[k], numbers.high[k]) == expected
