"""Cross-validation of a path: the folds, when it ends, and rows that have no score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, KFold

import fcl
from fcl.path import running
from fcl.path.folds import fold_of_rows
from fcl.run.events import PointDone
from fcl.run.reasons import StopReason
from tests.path.conftest import N, rows, train_path


def data_of(y: np.ndarray) -> fcl.DataSet:
    return fcl.open_data(np.zeros((len(y), 1)), y=y)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 5), st.integers(0, 3), st.data())
def test_a_number_of_folds_keeps_the_labels_shares(
    n_folds: int, seed: int, draw: st.DataObject
) -> None:
    y = np.array(draw.draw(st.lists(st.integers(0, 1), min_size=10, max_size=60)))
    folds = fold_of_rows(n_folds, data_of(y), None, True, seed)
    counts = np.zeros((n_folds, 2))
    np.add.at(counts, (folds, y), 1)
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all()
    assert np.ptp(counts.sum(axis=1)) <= 1


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.data())
def test_groups_are_never_split(n_folds: int, draw: st.DataObject) -> None:
    groups = np.array(draw.draw(st.lists(st.integers(0, 8), min_size=12, max_size=60)))
    y = np.arange(len(groups)) % 2
    if len(np.unique(groups)) < n_folds:
        return
    folds = fold_of_rows(n_folds, data_of(y), groups, True, 0)
    assert all(len(np.unique(folds[groups == group])) == 1 for group in groups)
    assert set(folds) == set(range(n_folds))
    # greedily even: no fold exceeds another by more than the largest group
    sizes = np.bincount(folds)
    assert np.ptp(sizes) <= 2 * np.bincount(groups).max()


def test_labels_and_splitters_give_the_folds() -> None:
    y = np.arange(12) % 2
    data, groups = data_of(y), np.repeat(["b", "a", "c"], 4)
    by_label = fold_of_rows(groups, data, None, True, 0)
    np.testing.assert_array_equal(by_label, np.repeat([1, 0, 2], 4))
    splitter = fold_of_rows(GroupKFold(3), data, groups, True, 0)
    assert all(len(np.unique(splitter[groups == group])) == 1 for group in "abc")
    np.testing.assert_array_equal(
        fold_of_rows(KFold(3), data, None, True, 0), np.repeat([0, 1, 2], 4)
    )
    of_one_label = fold_of_rows(2, data, y, True, 0)
    np.testing.assert_array_equal(of_one_label, y)


@pytest.mark.slow
def test_patience_is_of_the_mean_over_folds() -> None:
    codes, y = rows()
    data = fcl.open_data(codes, y=y)
    full = train_path(data, cv=3, points=9, patience=None)
    path = train_path(data, cv=3, points=9, patience=1)
    mean = full.scores.mean
    first = next((n for n in range(2, 10) if mean[n - 1] <= mean[: n - 1].max()), None)
    assert first is not None
    assert path.reason is StopReason.PATIENCE and len(path.points) == first
    np.testing.assert_allclose(path.scores.mean, mean[:first], atol=1e-12)


def test_limits_end_a_cross_validated_path() -> None:
    codes, y = rows("squared")
    data = fcl.open_data(codes, y=y)
    path = train_path(data, cv=3, loss="squared", points=5, max_active=4, patience=None)
    assert path.reason is StopReason.MAX_ACTIVE and not path.scores.higher_is_better
    timed = train_path(data, cv=3, loss="squared", points=5, max_time=1e-9)
    assert timed.reason is StopReason.MAX_TIME and len(timed.points) == 1


def test_folds_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []
    session = running.Session

    def recording(job: Any, *rest: Any, **more: Any) -> Any:
        limits.append(job.options.max_time)
        return session(job, *rest, **more)

    monkeypatch.setattr(running, "Session", recording)
    codes, y = rows()
    train_path(fcl.open_data(codes, y=y), cv=3, points=2, max_time=900)
    whole, *folds, rest = limits
    assert whole is rest is None
    np.testing.assert_allclose(folds, [300, 450, 900], rtol=0.3)


def test_held_out_rows_of_one_label_have_no_score() -> None:
    codes, y = rows(n=90)
    data = fcl.open_data(codes, y=y)
    folds = np.where(y > 0, np.arange(90) % 3, np.arange(90) % 2)  # fold 2 has positive rows alone
    with pytest.warns(UserWarning, match="1 of 3 folds hold out rows of one label.* fold 3; their"):
        path = fcl.train_path(data, fcl.Kmers(1), points=2, cv=folds, memory="1GiB")
    found = path.scores.folds
    assert np.isnan(found[2]).all()
    np.testing.assert_allclose(path.scores.mean, found[:2].mean(axis=0))


def test_groups_of_validation_rows_widen_the_error() -> None:
    codes, y = rows()
    held = np.arange(N) % 3 == 0
    data, valid = (fcl.open_data(codes[some], y=y[some]) for some in (~held, held))
    groups = np.arange(held.sum()) // 35
    path = train_path(data, valid=valid, groups=groups, points=4, select="1se")
    assert path.scores.error_from == "50 bootstrap samples of the validation 4 groups"
    assert np.isfinite(path.scores.se).all()


def test_folds_report_the_C_of_the_table() -> None:
    codes, y = rows()
    seen: list[Any] = []
    path = train_path(fcl.open_data(codes, y=y), cv=2, points=3, progress=seen.append)
    done = [event for event in seen if isinstance(event, PointDone)]
    for part in ("", "fold 1 of 2", "fold 2 of 2"):
        found = [event.C for event in done if event.part == part]
        np.testing.assert_allclose(found, [point.C for point in path.points][: len(found)])
        assert found
