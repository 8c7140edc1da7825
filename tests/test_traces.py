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


def test_a_difference_is_found() -> None:
    """A bit, an id, another number of passes; elsewhere, more than rounding can explain."""
    name = "columns"
    then = RECORDED["jobs"][name]

    def changed(number: int, key: str, value: Any) -> dict[str, Any]:
        passes = [dict(one) for one in then["passes"]]
        passes[number][key] = value
        return then | {"passes": passes}

    first, last = (float.fromhex(then["passes"][k]["objective"]) for k in (0, -1))
    cases = [
        (changed(2, "objective", (first * (1.0 + 2e-16)).hex()), True, False),
        (changed(0, "objective", (first * (1.0 + 1e-8)).hex()), True, True),
        (changed(-1, "objective", (last * (1.0 - 1e-5)).hex()), True, True),
        (changed(3, "active", -1), True, False),
        (changed(-1, "active", 99), True, True),
        (then | {"passes": then["passes"][:-1]}, True, False),
        (then | {"passes": [*then["passes"], *then["passes"]]}, True, True),
        (then | {"last": then["last"] | {"ids": "1 0"}}, True, False),
        (then | {"last": then["last"] | {"weights": "0"}}, True, False),
        (then, False, False),
    ]
    for other, bits, loosely in cases:
        assert bool(traces.differences(name, other, then, exact=True)) == bits
        assert bool(traces.differences(name, other, then, exact=False)) == loosely
