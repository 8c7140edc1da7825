"""Models and checkpoints on disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem, Waves

import fcl
from fcl.errors import InputError, ModelFileError
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.train import Running
from tests.stagewise.conftest import interrupted


@pytest.mark.parametrize("update", ["ls", "gls", "cls"])
def test_a_model_is_read_as_it_was_saved(problem: Problem, update: str, tmp_path: Path) -> None:
    running = Running(cores=1, certify=update != "cls")
    model = problem.train(update=update, block=10, running=running).model
    path = tmp_path / "m.fcl"
    model.save(path)
    read = fcl.load_model(path)
    assert isinstance(read, StagewiseModel) and read.labels == ("a", "b", "c")
    assert np.array_equal(read.margins(problem.x), model.margins(problem.x))
    assert read.history == model.history and read.certificate == model.certificate
    with pytest.raises(InputError, match="exists"):
        model.save(path)
    with pytest.raises(ModelFileError, match="format is 'fcl-stagewise'"):
        fcl.Model.load(path)
    read.save(tmp_path / "again.fcl")
    assert (tmp_path / "again.fcl").read_bytes() == path.read_bytes()


def test_damage_is_noticed_or_harmless(problem: Problem, tmp_path: Path) -> None:
    model, path = problem.train("columns", block=3).model, tmp_path / "m.fcl"
    model.save(path)
    content = path.read_bytes()
    for size in range(0, len(content), 97):
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"m\.fcl: "):
            fcl.load_model(path)
    for at in np.random.default_rng(1).choice(len(content), 80, replace=False).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :])
        try:
            again: Any = fcl.load_model(path)
        except ModelFileError:
            continue
        assert np.array_equal(again.weights.features, model.weights.features)


@pytest.mark.parametrize(
    ("update", "features", "more"),
    [
        ("ls", Waves(), {"order": "random", "visits": 2}),
        ("ls", Waves(), {"order": "gradient"}),
        ("gls", Waves(), {}),
        ("cls", Waves(), {"rounds": 3, "visits": 2, "block": 15}),
        ("ls", "fourier:n=20,pca=3", {}),
    ],
)
def test_a_job_resumes_with_the_same_bits_after_any_block(
    problem: Problem, update: str, features: Any, more: dict[str, Any], tmp_path: Path
) -> None:
    options = {"features": features, "update": update, "block": 8, "inner": 2, **more}
    options["valid_fraction"] = 0.2
    whole = problem.train(**options).model
    for stop_at in range(1, len(whole.history)):
        folder = interrupted(problem, tmp_path / f"{stop_at}", stop_at, cores=2, **options)
        resumed = replace(Running(cores=1), checkpoint=folder, resume=folder.load())
        model = problem.train(**options, running=resumed).model
        for name in ("features", "intercepts", "calibration"):
            assert np.array_equal(getattr(model.weights, name), getattr(whole.weights, name))
        assert model.best_number == whole.best_number
        assert [row["loss"] for row in model.history] == [row["loss"] for row in whole.history]


@pytest.mark.parametrize(
    ("update", "first", "then"),
    [
        *((update, {"visits": 1}, {"visits": 3}) for update in ("ls", "gls")),
        ("cls", {"rounds": 1}, {"rounds": 3}),
        ("ls", {"visits": 3, "patience": 1}, {"visits": 3, "patience": 99}),
        ("gls", {"visits": 3, "patience": 1}, {"visits": 3, "patience": 99}),
        ("cls", {"rounds": 9, "patience": 1}, {"rounds": 9, "patience": 99}),
    ],
)
def test_a_finished_job_continues_with_the_bits_of_a_longer_one(
    problem: Problem, update: str, first: dict, then: dict, tmp_path: Path
) -> None:
    folder = StateFolder(tmp_path / "c")
    options: dict[str, Any] = {"update": update, "block": 8, "inner": 2, "valid_fraction": 0.2}
    options["alpha"] = 1e-6 if "patience" in first else 1.0
    part = problem.train(**options, **first, running=Running(cores=1, checkpoint=folder))
    assert part.reason == ("patience" if "patience" in first else "done")
    whole = problem.train(**options, **then).model
    assert len(part.model.history) < len(whole.history)
    model = problem.train(**options, **then, running=Running(cores=1, resume=folder.load())).model
    for name in ("features", "intercepts"):
        assert np.array_equal(getattr(model.weights, name), getattr(whole.weights, name))
    assert model.settings == whole.settings and model.best_number == whole.best_number
    assert [row["loss"] for row in model.history] == [row["loss"] for row in whole.history]


def test_a_folder_in_use_is_refused(problem: Problem, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "c")
    problem.train(block=8, running=Running(cores=1, checkpoint=folder))
    with folder.lock, pytest.raises(InputError, match="in use by"):
        problem.train(block=8, running=Running(cores=1, checkpoint=StateFolder(folder.path)))
