"""The folder of a path: its table, and paths that continue from it with other rules or after a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.files.folder import CheckpointFolder
from tests.path.conftest import Killed, bits, confirm_points, counting, split, train_path


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
    again = train_path(data, folder=tmp_path / "p", progress=counting(done))
    assert bits(again) == bits(whole)
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


@pytest.mark.slow
@pytest.mark.parametrize("cv", [None, 2])
def test_a_wider_grid_keeps_the_points(tmp_path: Path, cv: int | None) -> None:
    """Only the last point is trained again, from the state before it: the next C is known now."""
    data, _ = split()
    given: dict[str, Any] = {"folder": tmp_path, "points": 3, "cv": cv, "patience": 9 if cv else 3}
    narrow = train_path(data, C_max=0.1, **given)
    if cv is not None:
        assert narrow.best is narrow.points[-1]
        hint = next(fact for fact in narrow.facts() if fact.name == "hint")
        assert hint.value == pytest.approx(1.0) and "--C-max 1 --resume OUT.path" in hint.text
        uncertain = replace(narrow.scores, se=narrow.scores.se + 1)
        modest = replace(narrow, select="1se", scores=uncertain)
        assert modest.chosen is not narrow.chosen
        assert next(fact for fact in modest.facts() if fact.name == "hint") == hint
    done: list[Any] = []
    wide = train_path(data, C_max=1.0, **given, progress=counting(done))
    values = np.array([point.C for point in wide.points])
    np.testing.assert_array_equal(values[:3], [point.C for point in narrow.points])
    assert values[-1] == 1.0 and (np.diff(np.log(values)) <= np.log(values[1] / values[0])).all()
    assert len(values) > 3 and min(number for _, number in done) == 3
    np.testing.assert_array_equal(wide.models[1].weights, narrow.models[1].weights)
    confirm_points(wide, data)
    alphas = [point.alpha for point in wide.points]
    fresh = train_path(data, alphas=alphas, cv=cv, patience=given["patience"])
    found, expected = (
        [point.certificate.objective for point in path.points] for path in (wide, fresh)
    )
    np.testing.assert_allclose(found, expected, rtol=2e-4)
    if cv is not None:
        np.testing.assert_allclose(wide.scores.folds, fresh.scores.folds, atol=0.02)
        assert all(len(points) == len(values) for points in wide.fold_points)
    with pytest.raises(fcl.InputError, match=r"C_max was 1\.0, is 0\.1"):
        train_path(data, C_max=0.1, **given)


def test_alphas_that_go_further_keep_the_points(tmp_path: Path) -> None:
    data, _ = split()
    train_path(data, alphas=[1e-1, 1e-2], folder=tmp_path)
    done: list[Any] = []
    wide = train_path(data, alphas=[1e-1, 1e-2, 1e-3], folder=tmp_path, progress=counting(done))
    assert [number for _, number in done] == [2, 3] and len(wide.points) == 3
    with pytest.raises(fcl.InputError, match="alphas was"):
        train_path(data, alphas=[1e-1, 1e-3, 1e-4], folder=tmp_path)
