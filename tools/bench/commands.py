"""Commands: training, budgets, conversion."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import common, peers
from tools.bench.runner import Clock, Figures
from tools.bench.training import GAPS, objective


def run_command(
    options: Sequence[str], cwd: Path | None = None, code: str = "", stdin: bytes | None = None
) -> tuple[int, float]:
    """Run ``python -m fcl``; returns its peak in bytes, and the seconds to its first message.

    Raises
    ------
    SystemExit
        With the last messages, if the command fails.
    """
    environment = {**os.environ, "PYTHONPATH": code or str(common.ROOT)}
    line = [sys.executable, "-m", "fcl", *options]
    begun = time.monotonic()
    with tempfile.TemporaryFile() as given:
        given.write(stdin or b"")
        given.seek(0)
        child = subprocess.Popen(
            line, cwd=cwd, env=environment, stdin=given, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert child.stderr is not None
        with child.stderr:
            said = child.stderr.readline()
            first = time.monotonic() - begun
            said += child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"fcl {options[0]} failed with the exit code {child.returncode}:\n{said[-2000:]}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024), first


def train_command(
    data: Path, clock: Clock, part: str = "", x: str = "seq", features: str = "", d: int = 8,
    C: float = 0.1, tol: float = 1e-3, memory: str = "6GiB", driver: str = "processes",
    writers: int = 0, row_view: str = "auto", max_time: str = "30m", valid: str = "",
    no_share_cores: bool = False,
) -> Any:  # fmt: skip
    """``fcl train`` on files; all seconds are from the start of the command.

    part, valid : folders within that of the data, for training and for validation; with ``valid`` there
    is a line for each pass
    """
    folder = data / part
    options = ["--x", x, "--y", "y", "--features", features or f"kmers:d={d}", "--C", str(C)]
    own = [f"writers={writers}"] if writers else []
    own += ["share_cores=false"] if no_share_cores else []
    driver += (":" * bool(own)) + ",".join(own)
    options += ["--memory", memory, "--driver", driver, "--row-view", str(row_view)]
    options += ["--tol", str(tol), "--max-time", max_time, "--no-checkpoint"]
    options += ["--valid", str(data / valid)] if valid else []
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.jsonl"
        since = time.time()
        with clock:
            _, first = run_command(
                ["train", str(folder), *options, "--log-json", str(log), "--out", f"{name}/m.fcl"]
            )
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found, passes = logged(events, since)
    if not valid:
        return found | {"first line": first}
    scores = {e["number"]: e["validation"] for e in events if e["event"] == "Validated"}
    lines: list[Figures] = []
    for done in passes:
        score = scores.get(done["number"], done["validation"])
        lines.append({"line": f"pass {done['number']}", "seconds": done["time"] - since,
                      "objective": done["objective"], "gap": done["gap"], "active": done["active"],
                      "AUPRC": score["auprc"] if score else None})  # fmt: skip
    return [*lines, found | {"line": "all"}]


def logged(events: Sequence[Figures], since: float) -> tuple[Figures, list[Figures]]:
    """Figures from the log of a training, in seconds after ``since``, and its passes."""
    last: dict[str, Figures] = {event["event"]: event for event in events}
    passes = [event for event in events if event["event"] == "PassDone"]
    stopped, prepared = last.get("Stopped", {}), last["Prepared"]["time"] - since
    before, cpu = prepared, 0.0
    for done in passes:
        busy = done["busy"] or {"trainer": 1.0}
        at = done["time"] - since
        cpu += (at - before) * sum(v for k, v in busy.items() if k != "supervisor")
        before = at
    end = passes[-1]
    near = [p["time"] - since for p in passes if p["objective"] <= end["objective"] * 1.0001]
    found = {
        "rows": last["Started"]["n_rows"], "prepared": prepared, "passes": len(passes),
        "first pass": passes[0]["time"] - since, "objective within 1e-4": near[0],
        "objective": end["objective"], "gap": end["gap"], "active": end["active"],
        "own peak": (stopped.get("peak_memory") or 0) / common.MIB, "reason": stopped.get("reason", ""),
        "busy cores": cpu / max(before - prepared, 1e-9),
        "rises": sum(b["objective"] > a["objective"] for a, b in pairwise(passes)),
    }  # fmt: skip
    for gap in GAPS:
        times = [p["time"] - since for p in passes if p["gap"] <= gap]
        found[f"to {gap:g}"] = times[0] if times else None
    return found, passes


def within_budget(
    data: Path, clock: Clock, memory: str = "1GiB", x: str = "seq", features: str = "kmers:d=8",
    C: float = 0.03, max_time: str = "4m", tol: float = 1e-3, more: str = "", driver: str = "",
) -> Figures:  # fmt: skip
    """``fcl train`` under a budget, whose memory is read from /proc, without any code of fcl.

    ``problems`` says whether a peak is above the budget, an objective rises, or the end is not clean.
    more : further options, separated by spaces
    """
    from fcl.units import parse_duration, parse_size
    from tools.bench.memory import Watch

    budget, limit = parse_size(memory, "memory"), parse_duration(max_time, "max-time") + 180.0
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.jsonl"
        options = [
            str(data),
            "--x",
            x,
            "--y",
            "y",
            "--features",
            features,
            "--C",
            str(C),
            *more.split(),
        ]
        options += ["--memory", memory, "--max-time", max_time, "--tol", str(tol), "--quiet"]
        options += ["--checkpoint-every", "60s", "--out", f"{name}/m.fcl", "--log-json", str(log)]
        options += ["--driver", driver] if driver else []
        environment = {**os.environ, "PYTHONPATH": str(common.ROOT)}
        since, begun = time.time(), time.monotonic()
        with clock:
            job = subprocess.Popen(
                [sys.executable, "-m", "fcl", "train", *options], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            watch, late = Watch(job.pid), False
            while job.poll() is None:
                watch.look()
                late = late or time.monotonic() - begun > limit
                if late:
                    os.killpg(job.pid, signal.SIGKILL)
                time.sleep(0.2)
        time.sleep(2.0)  # children exit by themselves
        left = len(watch.pids())
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    found, _ = logged(events, since)
    problems = {
        "above the budget": watch.peak > budget, "the objective rises": found["rises"] > 0,
        "processes left": left > 0, f"exit code {job.returncode}": bool(job.returncode) or late,
        found["reason"]: found["reason"] not in ("tolerance", "max-time", "max-passes"),
    }  # fmt: skip
    listed = ", ".join(name for name, is_one in problems.items() if is_one)
    return found | {"peak": watch.peak / common.MIB, "of the budget": watch.peak / budget,
                    "problems": listed or "none"}  # fmt: skip


def liblinear_in_memory(data: Path, clock: Clock, C: float = 0.02, tol: float = 0.01) -> Figures:
    """LIBLINEAR on the matrix of a CSR matrix in Zarr, read into memory."""
    import zarr
    from scipy import sparse

    group: Any = zarr.open_group(data, mode="r")
    parts = [group["X"][name][:] for name in ("data", "indices", "indptr")]
    X, y = sparse.csr_matrix(tuple(parts), group["X"].attrs["shape"]), group["y"][:]
    w, b = peers.liblinear(X, y, C, tol, clock)
    return {"objective": objective(X, y, w, b, C, "logistic"), "active": int(np.count_nonzero(w))}


def wide_table(
    data: Path, clock: Clock, method: str = "fcl", C: float = 0.02, tol: float = 1e-3,
    memory: str = "4GiB", max_time: str = "15m", driver: str = "processes",
) -> Figures:  # fmt: skip
    """A table in Zarr by fcl within a budget, or by LIBLINEAR in memory."""
    if method == "liblinear":
        return liblinear_in_memory(data, clock, C)
    return within_budget(data, clock, memory, "X", "columns", C, max_time, tol, driver=driver)


def convert(folder: Path, clock: Clock, memory: str = "512MiB", options: str = "") -> Figures:
    """``fcl convert``: rows a second, MB a second, and the peak."""
    from fcl.units import parse_size

    notes = json.loads((folder / "notes.json").read_text())
    source = folder / notes["path"]
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as name:
        given = [option.format(folder=folder) for option in options.split()]
        with clock:
            line = ["convert", str(source), f"{name}/out.zarr", "--memory", memory, "--quiet"]
            peak, _ = run_command([*line, *given])
    size = source.stat().st_size / 1e6
    return {"rows": notes["rows"], "MB": size, "rows/s": notes["rows"] / clock.seconds,
            "MB/s": size / clock.seconds, "peak": peak / common.MIB,
            "problems": "above the budget" if peak > parse_size(memory) else "none"}  # fmt: skip
