"""A path that was killed continues where it was, with the same result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.data.columns import ColumnRecord
from fcl.errors import InputError
from fcl.model.checkpoint import CheckpointFolder
from fcl.path import track as tracks
from fcl.path.events import PointDone
from tests.path.conftest import split, train_path


class Killed(BaseException):
    """As a signal that no handler catches."""


def kill_after(points: int, part: str = "") -> Any:
    """A progress callback that ends the path after this point."""

    def progress(event: Any) -> None:
        if isinstance(event, PointDone) and event.part == part and event.number == points:
            raise Killed

    return progress


def counting(events: list[Any]) -> Any:
    def progress(event: Any) -> None:
        if isinstance(event, PointDone):
            events.append((event.part, event.number))

    return progress


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


def test_another_path_is_refused(tmp_path: Path) -> None:
    data, valid = split()
    train_path(data, folder=tmp_path / "p", points=3, patience=None)
    for options, message in (
        ({"points": 4}, "points was 3, is 4"),
        ({"points": 3, "C_max": 9.0}, "C_max was None, is 9.0"),
        ({"points": 3, "valid": valid}, "valid was None, is"),
        ({"points": 3, "cv": 2}, "folds was None, is"),
        ({"points": 3, "max_passes": 9}, "max_passes was"),
    ):
        with pytest.raises(InputError, match=message):
            train_path(data, folder=tmp_path / "p", **options)


def test_other_rows_or_options_are_refused(tmp_path: Path) -> None:
    data, valid = split()
    for name, other, options in (
        ("rows", valid, {}),
        ("options", data, {"l1_ratio": 0.5}),
        ("loss", data, {"loss": "squared_hinge"}),
    ):
        folder = tmp_path / name
        with pytest.raises(Killed):
            train_path(data, folder=folder, progress=kill_after(2))
        with pytest.raises(InputError, match="holds the points of another path: "):
            train_path(other, folder=folder, **options)


def test_renamed_columns_are_refused(tmp_path: Path) -> None:
    """A path and a job whose columns have other names, over the same numbers."""
    X = np.random.default_rng(0).normal(size=(90, 3))
    data = [fcl.open_data(X, y=X[:, 0] > 0) for _ in range(3)]
    for opened, names in zip(data, (["a", "b", "c"], ["b", "a", "c"], None), strict=True):
        opened.column_record = ColumnRecord(names)
    job: dict[str, Any] = {"C": 0.1, "tol": 1e-2, "memory": "1GiB"}
    fcl.train_path(data[0], "columns", points=2, folder=tmp_path / "p")
    fcl.train(data[0], "columns", checkpoint=tmp_path / "c", **job)
    for other in data[1:]:
        with pytest.raises(InputError, match=r"data was .*names of columns"):
            fcl.train_path(other, "columns", points=2, folder=tmp_path / "p")
        with pytest.raises(InputError, match=r"fingerprint was .*names of its columns"):
            fcl.train(other, "columns", resume=tmp_path / "c", **job)
    assert len({opened.fingerprint() for opened in data}) == 3


def test_the_state_of_other_rows_is_refused(tmp_path: Path) -> None:
    """The fingerprint samples the rows; each of their blocks is compared with the state."""
    data, valid = split()
    with pytest.raises(Killed):
        train_path(data, folder=tmp_path / "p", progress=kill_after(2))
    valid.fingerprint = data.fingerprint  # type: ignore[method-assign]
    with pytest.raises(InputError, match="blocks of rows, there are"):
        train_path(valid, folder=tmp_path / "p")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected the table of a path"),
        ('{"format": "other"}', "format 'other'"),
        ('{"format": "fcl-path 1", "points": 3}', "expected the table of a path"),
        ('{"format": "fcl-path 1", "points": [{}], "grid": [1]}', r"points\[0\]\.C is missing"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "path.json").write_text(content)
    with pytest.raises(InputError, match=message):
        train_path(split()[0], folder=tmp_path)


def test_a_model_of_another_path_is_refused(tmp_path: Path) -> None:
    data, _ = split()
    train_path(data, folder=tmp_path, points=3)
    (tmp_path / "point-02.fcl").unlink()
    with pytest.raises(
        fcl.ModelFileError, match=r"point-02\.fcl.*; remove the folder .*--overwrite"
    ):
        train_path(data, folder=tmp_path, points=3)
    (tmp_path / "point-03.fcl").rename(tmp_path / "point-02.fcl")
    with pytest.raises(InputError, match=r"point-02\.fcl: expected a model at C"):
        train_path(data, folder=tmp_path, points=3)


def test_the_table_on_disk(tmp_path: Path) -> None:
    data, valid = split()
    path = train_path(data, folder=tmp_path, valid=valid, points=4, patience=None)
    table = json.loads((tmp_path / "path.json").read_text())
    assert [row["C"] for row in table["points"]] == table["grid"] == [p.C for p in path.points]
    assert [row["gap"] for row in table["points"]] == [p.certificate.gap for p in path.points]
    assert [row["score"] for row in table["points"]] == path.scores.mean.tolist()


def test_other_folds_are_refused_without_their_hashes(tmp_path: Path) -> None:
    data, _ = split()
    folds = np.arange(data.n_rows) % 2
    train_path(data, folder=tmp_path, points=2, cv=folds)
    with pytest.raises(InputError, match=r"another path: folds differ\. Resume"):
        train_path(data, folder=tmp_path, points=2, cv=1 - folds)
