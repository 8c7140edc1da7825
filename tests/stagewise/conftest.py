"""A small problem for each test, and jobs that were stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from waves import Problem

from fcl.stagewise.checkpoint import StateFolder
from fcl.stagewise.events import BlockVisited
from fcl.stagewise.train import Running


@pytest.fixture
def problem() -> Problem:
    return Problem()


def interrupted(
    problem: Problem, path: Path, after: int, cores: int = 1, **options: Any
) -> StateFolder:
    """The checkpoint of a job that was stopped after some blocks."""
    seen: list[int] = []
    folder = StateFolder(path)
    running = Running(
        cores=cores,
        checkpoint=folder,
        progress=lambda event: seen.append(1) if isinstance(event, BlockVisited) else None,
        should_stop=lambda: len(seen) == after,
    )
    assert problem.train(**options, running=running).reason == "interrupted"
    return folder
