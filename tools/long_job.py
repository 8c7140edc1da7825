#!/usr/bin/env python3
"""Kill a long job repeatedly, resume it each time, and measure how much work is lost.

    python tools/long_job.py DATA --x seq --features kmers:d=8 --C 0.1 --minutes 60 --kills 10

Runs ``fcl-train`` for --minutes in total, ends it at random moments, alternately with SIGKILL and
SIGTERM to its whole process group, and resumes it from its checkpoint. After each end the script reads
the checkpoint; objective and bound of the resumed job must not be worse at any pass. It prints one line
of JSON for each part of the job, and a summary. The exit code is 1 if something was worse, or if
processes were left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fcl.model.checkpoint import CheckpointFolder

#: Relative differences below this are ignored: the order of sums may change after a resume.
ROUNDING = 1e-12


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("data")
    parser.add_argument("--x", default="X")
    parser.add_argument("--features", default="kmers:d=8")
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--memory", default="3GiB")
    parser.add_argument("--writers", type=int)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--every", default="60s", help="time between checkpoints")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", default="long-job", help="folder for model, checkpoints and logs")
    return parser.parse_args()


def first_command(options: argparse.Namespace, work: Path) -> list[str]:
    """The arguments of the first command."""
    command = [options.data, "--x", options.x, "--features", options.features]
    command += ["--C", str(options.C), "--tol", str(options.tol), "--memory", options.memory]
    command += ["--checkpoint-every", options.every, "--out", str(work / "model.fcl")]
    return command + (["--writers", str(options.writers)] if options.writers else [])


def passes(log: Path) -> list[dict[str, Any]]:
    """The events of passes in a log."""
    if not log.exists():
        return []
    records = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a killed job may be incomplete
            break
    return [record for record in records if record["event"] == "PassDone"]


def state_of(folder: Path) -> dict[str, Any] | None:
    """Objective, bound and progress of the newest checkpoint."""
    try:
        checkpoint = CheckpointFolder(folder).load()
    except ValueError:
        return None
    return {
        "number": checkpoint.number,
        "objective": checkpoint.state["objective"],
        "bound": checkpoint.state["bound"],
        "passes": len(checkpoint.history),
        "elapsed": checkpoint.elapsed,
    }


def worse(before: dict[str, Any] | None, seen: list[dict[str, Any]]) -> list[str]:
    """Describe where a resumed job is worse than its checkpoint or than its previous pass."""
    found = []
    objective = before["objective"] if before else float("inf")
    bound = before["bound"] if before else float("-inf")
    for record in seen:
        number = record["number"]
        if record["objective"] > objective * (1 + ROUNDING):
            found.append(f"pass {number}: objective {record['objective']} above {objective}")
        if record["bound"] < bound - ROUNDING * abs(bound):
            found.append(f"pass {number}: bound {record['bound']} below {bound}")
        objective, bound = record["objective"], record["bound"]
    return found


def main() -> int:
    """Run the job to its end or for --minutes; return the exit code."""
    options = parse()
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)
    folder = work / "model.fcl.checkpoint"
    chance = random.Random(options.seed)
    # random moments, but not in the first or last 2 % of the time
    cuts = sorted(chance.uniform(0.02, 0.98) for _ in range(options.kills))
    stretches = [b - a for a, b in zip([0.0, *cuts], [*cuts, 1.0], strict=True)]
    problems: list[str] = []
    total = 0.0
    code: int | None = None
    record: dict[str, Any] = {}
    for number, share in enumerate(stretches):
        before = state_of(folder)
        log = work / f"log-{number}.jsonl"
        command = [sys.executable, "-m", "fcl", "train", "--log-json", str(log), "--quiet"]
        last = number == len(stretches) - 1
        limit = 60.0 * options.minutes * share
        if before is None:
            command += [*first_command(options, work), "--overwrite"]
        else:
            command += ["--resume", str(folder)]
        command += ["--max-time", f"{limit:.0f}s" if last else "10h"]
        started = time.monotonic()
        with (work / f"stderr-{number}.txt").open("wb") as errors:
            job = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
            try:
                code = job.wait(timeout=None if last else limit)
                how = "ended by itself"
            except subprocess.TimeoutExpired:
                how = "SIGKILL" if number % 2 == 0 else "SIGTERM"
                os.killpg(job.pid, getattr(signal, how))
                code = job.wait(timeout=60)
        spent = time.monotonic() - started
        total += spent
        time.sleep(2.0)  # children exit by themselves
        left = group_members(job.pid)
        seen = passes(log)
        wrong = worse(before, seen) + ([f"processes left: {left}"] if left else [])
        after = state_of(folder)
        lost = seen[-1]["seconds"] if seen and after else 0.0
        if after and seen:
            kept = [r["seconds"] for r in seen if r["objective"] >= after["objective"]]
            lost = spent - (max(kept) if kept else 0.0)
        record = {
            "stretch": number,
            "seconds": round(spent, 1),
            "end": how,
            "code": code,
            "from": before,
            "passes": len(seen),
            "last": {k: seen[-1][k] for k in ("objective", "bound", "gap")} if seen else None,
            "checkpoint": after,
            "lost_seconds": round(lost, 1),
            "wrong": wrong,
        }
        expected = {"SIGKILL": (-9,), "SIGTERM": (143, 130)}.get(how, (0,))
        if code not in expected:
            wrong.append(f"exit code {code}, expected {expected[0]}")
        problems += wrong
        print(json.dumps(record), flush=True)
        if how == "ended by itself" and not last:
            break
    print(
        f"{total / 60:.1f} minutes, {len(problems)} problems, last exit code {code}: "
        f"{json.dumps(record['last'])}"
    )
    return 1 if problems else 0


def group_members(group: int) -> list[int]:
    """The processes of a process group that are still running."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


if __name__ == "__main__":
    sys.exit(main())
