"""The folder of a path: its table, and paths that continue from it with other rules or after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.files.folder import CheckpointFolder
from tests.path.conftest import Killed, bits, counting, split, train_path


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


def test_the_table_on_disk(tmp_path: Path) -> None:
    data, valid = split()
    path = train_path(data, folder=tmp_path, valid=valid, points=4, patience=None)
    table = json.loads((tmp_path / "path.json").read_text())
    assert [row["C"] for row in table["points"]] == table["grid"] == [p.C for p in path.points]
    assert [row["gap"] for row in table["points"]] == [p.certificate.gap for p in path.points]
    assert [row["score"] for row in table["points"]] == path.scores.mean.tolist()
