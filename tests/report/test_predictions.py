"""Sums over predictions, against the same numbers from all rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    log_loss,
    mean_absolute_error,
    mean_poisson_deviance,
    mean_squared_error,
    r2_score,
)

from fcl.data import open_data
from fcl.report import measured
from fcl.report.contract import Table
from fcl.report.groups import Groups
from fcl.report.measured import measure
from fcl.report.sections.by_group import MOST_GROUPS, scores_by_group
from tests.report.conftest import Case, table_case

RNG = np.random.default_rng(10)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "BLOCK_ROWS", 64)


def test_labels(kmers: Case) -> None:
    names = RNG.choice(["chrI", "chrII", "<b>"], 333)
    names[:6] = "none"
    y = np.where(names == "none", "no", kmers.data.target)
    data = kmers.data.with_target(y, kmers.data.weights)
    found = measure(kmers.model, data, names).predictions
    margins = kmers.model.margins(data)
    weights, positive = kmers.data.weights, y == "yes"
    counted = weights > 0.0
    assert (found.n_rows, found.n_counted) == (333, counted.sum())
    repeated = np.repeat(found.margins.values, found.margins.column("rows").astype(int))
    np.testing.assert_allclose(repeated, np.sort(margins[counted]), atol=1e-12)
    probability = 1.0 / (1.0 + np.exp(-margins))
    _, table = scores_by_group(found)
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == sorted(set(names[counted]))
    for row, group in zip(table.rows, found.group_names, strict=True):
        here = counted & (names == group)
        own = weights[here]
        share = np.average(positive[here], weights=own)
        assert row[1] == here.sum() and row[2] == pytest.approx(share)
        area = np.nan
        if group != "none":
            area = average_precision_score(positive[here], margins[here], sample_weight=own)
        assert row[3] == pytest.approx(area, nan_ok=True)
        at = found.group_names.index(group)
        loss = log_loss(positive[here], probability[here], sample_weight=own, labels=[False, True])
        assert found.totals.mean("log_loss")[at] == pytest.approx(loss)
        brier = np.average((probability[here] - positive[here]) ** 2, weights=own)
        assert found.totals.mean("brier")[at] == pytest.approx(brier)
    extremes = found.extremes
    right, wrong = positive & counted, ~positive & counted
    assert extremes["true_positive"].row == np.where(right, margins, -np.inf).argmax()
    assert extremes["false_positive"].row == np.where(wrong, margins, -np.inf).argmax()
    assert extremes["false_negative"].row == np.where(right, -margins, -np.inf).argmax()


@pytest.mark.parametrize("loss", ["squared", "huber:delta=1", "poisson"])
def test_numbers_by_group(loss: str) -> None:
    case = table_case(labels=None, loss=loss)
    scale = 0.3 if loss == "poisson" else 1.0
    x = scale * case.data.rows.read_all()
    margins = scale * (case.margins - case.model.intercept) + case.model.intercept
    predicted = np.exp(margins) if loss == "poisson" else margins
    y = RNG.poisson(predicted) + 0.0 if loss == "poisson" else 1e6 + RNG.normal(size=150)
    weights = RNG.integers(0, 3, 150).astype(float)
    groups = RNG.choice([10, 2, 7], 150)
    groups[0], weights[0] = 99, 0.0  # no row of this group counts
    found = measure(case.model, open_data(x, y=y, weights=weights), groups).predictions
    metric = {"squared": mean_squared_error, "poisson": mean_poisson_deviance}.get(
        loss, mean_absolute_error
    )
    _, table = scores_by_group(found, "M")
    assert isinstance(table, Table) and [row[0] for row in table.rows] == ["2", "7", "10"]
    for row in table.rows:
        own = (weights > 0.0) & (groups == int(row[0]))
        arguments, s = (y[own], predicted[own]), {"sample_weight": weights[own]}
        assert row[1] == own.sum()
        assert row[2] == pytest.approx(r2_score(*arguments, **s), rel=1e-6)
        assert row[3] == pytest.approx(mean_absolute_error(*arguments, **s))
        assert row[4] == pytest.approx(mean_squared_error(*arguments, **s) ** 0.5)
        assert row[5] == pytest.approx(metric(*arguments, **s))
    _, named = scores_by_group(found, "mean absolute error")
    assert isinstance(named, Table)
    assert [*named.head[2:]] == ["R squared", "root mean squared error", "mean absolute error"]
    assert [row[2:] for row in named.rows] == [[row[2], *row[4:]] for row in table.rows]
    residuals = np.where(weights > 0.0, y - predicted, 0.0)
    assert found.extremes["highest"].row == np.where(weights > 0.0, margins, -np.inf).argmax()
    if loss == "poisson":
        assert found.extremes["too_high"].row == residuals.argmin()
    else:
        assert "too_high" not in found.extremes  # all targets are near 1e6
    assert found.extremes["too_low"].row == residuals.argmax()
    assert found.extremes["too_low"].target == y[residuals.argmax()]


def test_many_groups_are_in_the_file_alone() -> None:
    case = table_case(labels=None, loss="squared")
    found = measure(case.model, case.data, np.arange(150) // 3).predictions
    figure, table = scores_by_group(found, "MSE")
    assert isinstance(table, Table) and len(table.rows) == 50 and not table.shown
    assert f"{MOST_GROUPS} largest of 50 groups" in figure.caption


def test_names_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fcl.report.groups.BLOCK_ROWS", 2)
    groups = Groups(np.array([["\u00e9".encode()], [b"b"], [b"\xff"], [b"b"]]), 4)
    assert groups.names == ["\\xff", "b", "\u00e9"]
    assert groups.numbers(1, 4).tolist() == [1, 0, 1]
    assert Groups(np.array([10, 9, 10]), 3).names == ["9", "10"]
    assert Groups(np.array(["x", 1, None], object), 3).names == ["1", "None", "x"]
