"""Sums by value in bounded memory, against sums over the rows and scikit-learn's areas."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from fcl.report.cells import COLUMNS, Cells, CellSums, ranking_errors, row_sums
from fcl.report.scores import precision_recall, roc

RNG = np.random.default_rng(9)
N = 3_000
Y = np.where(RNG.random(N) < 0.2, 1.0, -1.0)
MARGINS = 1.5 * Y + RNG.normal(size=N) - 2.0
WEIGHTS = RNG.integers(1, 5, N).astype(float)
GROUPS = RNG.integers(0, 4, N)


def cells_of(margins: np.ndarray, most: int | None, groups: np.ndarray | None = None) -> Cells:
    sums = CellSums(1 if groups is None else 4, most)
    groups = np.zeros(N, np.int64) if groups is None else groups
    rows = row_sums(WEIGHTS, (Y + 1.0) / 2.0, np.sin(margins))
    for own in np.array_split(np.arange(N), 13):
        sums.add(groups[own], margins[own], rows[own])
    return sums.cells()


def test_few_values_are_exact() -> None:
    margins = np.append(np.round(MARGINS[:-2], 1), [-0.0, 0.0])
    cells = cells_of(margins, None)
    assert cells.exact and np.array_equal(cells.values, np.unique(margins))
    assert ranking_errors(cells).auprc == ranking_errors(cells).auroc == 0.0
    expected = {
        "rows": np.ones(N),
        "weight": WEIGHTS,
        "squared_weight": WEIGHTS**2,
        "target": WEIGHTS * (Y > 0),
        "squared_target": WEIGHTS * (Y > 0),
        "prediction": WEIGHTS * np.sin(margins),
    }
    assert tuple(expected) == COLUMNS
    for name, column in expected.items():
        own = [column[margins == value].sum() for value in cells.values]
        np.testing.assert_allclose(cells.column(name), own, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("most", [16, 200, 2_000])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_many_values_are_merged_within_a_bound_of_the_error(most: int, scale: float) -> None:
    margins = scale * MARGINS
    cells = cells_of(margins, most)
    assert not cells.exact and most // 8 < len(cells) <= most
    # each cell holds the rows from its value up to the next one
    own = np.searchsorted(cells.values, margins, side="right") - 1
    assert np.array_equal(np.bincount(own, WEIGHTS), cells.column("weight"))
    y, merged, weights = cells.labelled()
    errors = ranking_errors(cells)
    for bound, function, exact in (
        (errors.auprc, precision_recall, average_precision_score),
        (errors.auroc, roc, roc_auc_score),
    ):
        area = exact(Y > 0, margins, sample_weight=WEIGHTS)
        assert abs(function(y, merged, weights).area - area) <= bound < 8.0 / most


def test_the_bounds_are_reached() -> None:
    """One cell, whose rows are in the best or in the worst order."""
    sums = CellSums(1, 3)
    y = np.array([0.0, 0.0, 0.0, 1.0, 1.0])
    margins = 1.0 + np.arange(5.0) / 64.0
    sums.add(np.zeros(5, np.int64), margins, row_sums(np.ones(5), y, y))
    cells = sums.cells()
    assert len(cells) == 1
    errors = ranking_errors(cells)
    assert errors.auroc == pytest.approx(roc_auc_score(y, margins) - 0.5)
    assert errors.auprc == pytest.approx(average_precision_score(y, margins) - 0.4)


def test_groups_have_cells_of_their_own() -> None:
    cells = cells_of(MARGINS, None, GROUPS)
    for group in range(4):
        own = cells.of_group(group)
        assert np.array_equal(own.values, np.sort(MARGINS[group == GROUPS]))
        y, margins, weights = own.labelled()
        here = group == GROUPS
        area = average_precision_score(Y[here] > 0, MARGINS[here], sample_weight=WEIGHTS[here])
        assert precision_recall(y, margins, weights).area == pytest.approx(area)
    few = cells_of(MARGINS, 16, GROUPS)
    assert len(few) <= 16 and np.array_equal(np.unique(few.groups), np.arange(4))
