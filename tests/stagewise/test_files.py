"""Models and checkpoints on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waves import Problem

import fcl
from fcl.errors import InputError, ModelFileError
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.train import StagewiseRunOptions


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


def test_a_folder_in_use_is_refused(problem: Problem, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "c")
    problem.train(block=8, running=StagewiseRunOptions(cores=1, checkpoint=folder))
    with folder.lock, pytest.raises(InputError, match="in use by"):
        problem.train(
            block=8, running=StagewiseRunOptions(cores=1, checkpoint=StateFolder(folder.path))
        )
