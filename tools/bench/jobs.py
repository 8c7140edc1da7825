"""Run ``fcl-train`` in a separate process, and read its log.

Compile the kernels beforehand with :func:`warm`. Times are counted from the start of the command, so
they include starting processes, reading and preparing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench import common

#: Relative gaps whose times are reported.
GAPS = (1e-1, 1e-2, 1e-3)


@dataclass(frozen=True)
class Job:
    """Results of a training; all times are in seconds from the start of its command."""

    wall: float
    first_line: float  #: when the first line of progress came on standard error
    prepared: float  #: when all rows were read and prepared
    passes: list[dict[str, Any]]  #: PassDone events, with ``time`` from the start
    cpu: float  #: processor time of writers and trainer / time, since the rows were prepared
    peak: int  #: bytes, as fcl reports them
    reason: str
    model: Path | None

    @property
    def last(self) -> dict[str, Any]:
        """The event of the last pass."""
        return self.passes[-1]

    @property
    def first_pass(self) -> float:
        """When the first pass ended."""
        return float(self.passes[0]["time"])

    def to_gap(self, gap: float) -> float | None:
        """When a relative gap was certified; None if it was not."""
        return next((p["time"] for p in self.passes if p["gap"] <= gap), None)

    def to_objective(self, value: float) -> float | None:
        """When the objective of an anchor first was at most this value; None if it never was."""
        return next((p["time"] for p in self.passes if p["objective"] <= value), None)


def middle(runs: Sequence[Job]) -> Job:
    """The run of median time; for an even number of runs, the faster of the middle two."""
    return sorted(runs, key=lambda job: job.wall)[(len(runs) - 1) // 2]


def warm() -> None:
    """Compile all kernels in a separate process."""
    run_cli("train", "--warmup", "--quiet")


def run_cli(command: str, *options: str) -> float:
    """Run ``python -m fcl`` with this repository's fcl.

    Returns the seconds to the first line on standard error, or to its end if there was no line.
    Raises CalledProcessError if the command fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(common.ROOT)}
    line = [sys.executable, "-m", "fcl", command, *options]
    begun = time.monotonic()
    job = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert job.stderr is not None
    with job.stderr:
        said = job.stderr.readline()
        first = time.monotonic() - begun
        said += job.stderr.read()
    if job.wait():
        sys.stderr.write(said)
        raise subprocess.CalledProcessError(job.returncode, line)
    return first


def train(data: Path, options: Sequence[str], model: Path | None = None) -> Job:
    """Train on a data set with options of ``fcl-train``; keep the model if a path is given.

    Without the option ``--x`` the arrays are ``seq`` and ``y``.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        out = model or Path(folder) / "model.fcl"
        names = [] if "--x" in options else ["--x", "seq", "--y", "y"]
        fixed = ["--no-checkpoint", "--log-json", str(log), "--out", str(out)]
        since, begun = time.time(), time.monotonic()
        first_line = run_cli("train", str(data), *names, *options, *fixed)
        wall = time.monotonic() - begun
        records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for record in records:
        record["time"] -= since
    prepared = next(r["time"] for r in records if r["event"] == "Prepared")
    passes = [r for r in records if r["event"] == "PassDone"]
    validations = {r["number"]: r["validation"] for r in records if r["event"] == "Validated"}
    before, cpu = prepared, 0.0
    for record in passes:
        record["validation"] = validations.get(record["number"], record["validation"])
        busy = record["busy"] or {"trainer": 1.0}
        cpu += (record["time"] - before) * sum(v for k, v in busy.items() if k != "supervisor")
        before = record["time"]
    stopped = next(r for r in records if r["event"] == "Stopped")
    cpu /= max(passes[-1]["time"] - prepared, 1e-9)
    return Job(
        wall, first_line, prepared, passes, cpu, stopped["peak_memory"], stopped["reason"], model
    )
