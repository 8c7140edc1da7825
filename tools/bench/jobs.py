"""A training by ``fcl-train`` in a process of its own, and what its log tells.

Kernels are to be compiled beforehand (:func:`warm`). Times are counted from the start of the command, so
that starting processes, reading and preparing are in them.
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

#: Relative gaps whose times are of interest.
GAPS = (1e-1, 1e-2, 1e-3)


@dataclass(frozen=True)
class Job:
    """What a training reached, all times in seconds from the start of its command."""

    wall: float
    first_line: float  #: of progress, on the standard error
    prepared: float  #: rows were read once and stand prepared
    passes: list[dict[str, Any]]  #: PassDone events, ``time`` from the start
    cpu: float  #: processor time of writers and trainer over time, since the rows were prepared
    peak: int  #: bytes, by its own report
    reason: str
    model: Path | None

    @property
    def last(self) -> dict[str, Any]:
        """The last pass."""
        return self.passes[-1]

    @property
    def first_pass(self) -> float:
        """When the first pass was done."""
        return float(self.passes[0]["time"])

    def to_gap(self, gap: float) -> float | None:
        """When a relative gap was certified; None: it was not."""
        return next((p["time"] for p in self.passes if p["gap"] <= gap), None)

    def to_objective(self, value: float) -> float | None:
        """When an anchor had at most this objective; None: none had."""
        return next((p["time"] for p in self.passes if p["objective"] <= value), None)


def middle(runs: Sequence[Job]) -> Job:
    """The run of median time; of an even number the faster one of the middle."""
    return sorted(runs, key=lambda job: job.wall)[(len(runs) - 1) // 2]


def warm() -> None:
    """Compile all kernels, in a process of its own."""
    run_cli("train", "--warmup", "--quiet")


def run_cli(command: str, *options: str) -> float:
    """``python -m fcl`` with this repository's fcl; raises where it fails.

    Returns the seconds to the first line on its standard error; all of them where it wrote none.
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
    """Train on a data set with options of ``fcl-train``; the model is kept where a path is given.

    Without an option ``--x`` the rows are ``seq``, the target ``y``.
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
