"""A path that was killed continues where it was, with the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.model.checkpoint import CheckpointFolder
from fcl.path import track as tracks
from tests.path.conftest import Killed, counting, kill_after, split, train_path


def assert_same(a: fcl.PathResult, b: fcl.PathResult) -> None:
    """The same table but for times, and the same models, bit for bit."""
    assert len(a.points) == len(b.points) and a.reason == b.reason
    for ours, other in zip(a.points, b.points, strict=True):
        assert ours.certificate == other.certificate and ours.passes == other.passes
        np.testing.assert_array_equal(ours.model.ids, other.model.ids)
        np.testing.assert_array_equal(ours.model.weights, other.model.weights)
        assert ours.model.intercept == other.model.intercept
    for name in ("mean", "se", "folds"):
        np.testing.assert_array_equal(getattr(a.scores, name), getattr(b.scores, name))


@pytest.mark.parametrize(("points", "row_view"), [(1, "all"), (4, "all"), (3, 96)])
def test_a_killed_path_continues_to_the_same_bits(
    tmp_path: Path, points: int, row_view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracks, "LEAST_EXTRAPOLATED", 5)
    data, valid = split()
    options = {"valid": valid, "row_view": row_view, "points": 5, "C_max": 0.5, "select": "1se"}
    whole = train_path(data, folder=tmp_path / "whole", **options)
    with pytest.raises(Killed):
        train_path(data, folder=tmp_path / "p", progress=kill_after(points), **options)
    done: list[Any] = []
    again = train_path(data, folder=tmp_path / "p", progress=counting(done), **options)
    assert_same(again, whole)
    assert [number for _, number in done] == list(range(points + 1, 6))
    once_more = train_path(data, folder=tmp_path / "p", progress=counting(done), **options)
    assert_same(once_more, whole)
    assert len(done) == 5 - points  # nothing was left to do


@pytest.mark.parametrize("number", [1, 4])
def test_a_kill_between_table_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    data, _ = split()
    whole = train_path(data)
    save, saves = CheckpointFolder.save, []

    def failing(self: CheckpointFolder, checkpoint: Any) -> Any:
        saves.append(checkpoint)
        if len(saves) == number:
            raise Killed
        return save(self, checkpoint)

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointFolder, "save", failing)
        with pytest.raises(Killed):
            train_path(data, folder=tmp_path / "p")
    done: list[Any] = []
    assert_same(train_path(data, folder=tmp_path / "p", progress=counting(done)), whole)
    assert done[0] == ("", number)


def test_errors_are_measured_when_the_rule_changes(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    X, offset = random.normal(size=(90, 4)), random.normal(size=90)
    y, weights = X[:, 0] + offset + random.normal(size=90), np.arange(90) % 3 * 1.0
    data = fcl.open_data(X, y=y, offset=offset, weights=weights)
    options: dict[str, Any] = {"valid": data, "points": 4, "loss": "squared", "memory": "1GiB"}
    fcl.train_path(data, "columns", folder=tmp_path, **options)
    again = fcl.train_path(data, "columns", folder=tmp_path, select="1se", **options)
    once = fcl.train_path(data, "columns", select="1se", **options)
    # equal margins of the empty model differ by rounding, which changes the order of the rows
    np.testing.assert_allclose(again.scores.se[1:], once.scores.se[1:], rtol=1e-6)
    assert again.chosen.number == once.chosen.number


def test_a_point_that_time_cut_short_is_trained_again(tmp_path: Path) -> None:
    data, _ = split()
    cut = train_path(data, alphas=[1e-3], folder=tmp_path, max_time=1e-9)
    assert cut.reason == "max-time" and not cut.chosen.converged
    assert train_path(data, alphas=[1e-3], folder=tmp_path).chosen.converged


def test_folds_continue_too(tmp_path: Path) -> None:
    data, _ = split()
    whole = train_path(data, cv=2, points=4)
    progress = kill_after(2, "fold 2 of 2")
    with pytest.raises(Killed):
        train_path(data, cv=2, points=4, folder=tmp_path / "p", progress=progress)
    done: list[Any] = []
    again = train_path(data, cv=2, points=4, folder=tmp_path / "p", progress=counting(done))
    assert_same(again, whole)
    assert whole.oof is not None and again.oof is not None
    np.testing.assert_array_equal(again.oof, whole.oof)
    assert done[0] == ("fold 2 of 2", 3) and ("fold 1 of 2", 1) not in done


def test_the_table_on_disk(tmp_path: Path) -> None:
    data, valid = split()
    path = train_path(data, folder=tmp_path, valid=valid, points=4, patience=None)
    table = json.loads((tmp_path / "path.json").read_text())
    assert [row["C"] for row in table["points"]] == table["grid"] == [p.C for p in path.points]
    assert [row["gap"] for row in table["points"]] == [p.certificate.gap for p in path.points]
    assert [row["score"] for row in table["points"]] == path.scores.mean.tolist()
