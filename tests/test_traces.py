"""The traces of the jobs are those that were recorded; see traces.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
import traces
from jobs import JOBS

RECORDED: dict[str, Any] = json.loads(traces.STORED.read_text())


def test_every_job_is_recorded() -> None:
    assert list(RECORDED["jobs"]) == list(JOBS) and len(JOBS) >= 40


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", JOBS)
def test_traces(name: str) -> None:
    exact = RECORDED["machine"] == traces.machine()
    found = traces.differences(name, traces.trace(JOBS[name]), RECORDED["jobs"][name], exact)
    assert not found, "\n".join(
        [*found, "", "if this is intended: python3 tools/dev.py traces --record"]
    )
