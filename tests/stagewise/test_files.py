"""Models and checkpoints on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from waves import Problem

from fcl.errors import InputError
from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.train import StagewiseRunOptions


def test_a_folder_in_use_is_refused(problem: Problem, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "c")
    problem.train(block=8, running=StagewiseRunOptions(cores=1, checkpoint=folder))
    with folder.lock, pytest.raises(InputError, match="in use by"):
        problem.train(
            block=8, running=StagewiseRunOptions(cores=1, checkpoint=StateFolder(folder.path))
        )
