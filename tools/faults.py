#!/usr/bin/env python3
"""Fault injection: small real jobs, each of which meets one fault.

    python tools/faults.py --runs 200 --out results.jsonl
    python tools/faults.py --runs 200 --out results.jsonl --resume      # continue an earlier campaign
    python tools/faults.py --runs 10 --only trainer                     # cases with this in their name

Processes are killed, stopped and made to fail at random moments and at every marked point of the code.
Signals arrive, disks fill up, data and checkpoints are damaged, and readers close their pipes. Most runs
are ``fcl-train`` on C. elegans acceptor sites in a session of its own, with a random driver, family and
row view. Jobs that did not finish are resumed. The other runs are of ``online``, ``stagewise``, paths,
``convert``, ``predict`` and ``report``: an earlier output stays, or the new one is whole, and at the end
it has the bits of a job that nothing disturbed. The script writes a line of JSON for each run, and prints
a table at the end. The exit code is 1 if a model is wrong, an exit code is unexpected, more work is lost
than the interval between checkpoints, or a process or file is left behind. On a busy machine, set
FCL_FAULTS_PATIENCE=10 to multiply all time limits by 10.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.campaign.cases import Case, all_cases
from tools.campaign.jobs import SMALL, Job, Size
from tools.campaign.others import Material, OtherRun, other_cases
from tools.campaign.run import Outcome, Run


def plan_cases(runs: int, seed: int, only: str = "") -> list[Case]:
    """The case of each run: all cases in a random order, repeated."""
    cases = [case for case in (*all_cases(), *other_cases()) if only in case.name]
    if not cases:
        raise SystemExit(f"faults: no case has {only!r} in its name")
    random.Random(seed).shuffle(cases)
    return [cases[i % len(cases)] for i in range(runs)]


def one_run(
    number: int, case: Case, seed: int, job: Job, material: Material, folder: Path
) -> Outcome:
    """Make one run in a new folder inside `folder`; removes the new folder if the run is good."""
    place = folder / f"run-{number}"
    shutil.rmtree(place, ignore_errors=True)
    if case.command:
        outcome = OtherRun(number, case, seed, material, place).go()
    else:
        outcome = Run(number, case, seed, job, place).go()
    if outcome.good:
        shutil.rmtree(place, ignore_errors=True)
    return outcome


def done_before(path: Path) -> list[dict[str, Any]]:
    """Lines of an earlier campaign, without an incomplete last one."""
    lines = []
    if path.exists():
        for line in path.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
    return lines


def table(lines: list[dict[str, Any]]) -> list[str]:
    """The lines of the summary table."""
    rows = []
    for group in sorted({line["group"] for line in lines}):
        some = [line for line in lines if line["group"] == group]
        ran = [line for line in some if not line["skipped"]]
        lost = [line["lost_seconds"] for line in ran if line["lost_seconds"] is not None]
        stops = [line["stop_seconds"] for line in ran if line["stop_seconds"] is not None]
        seconds = sorted(line["seconds"] for line in ran)
        rows.append(
            (
                group,
                len(ran),
                len(some) - len(ran),
                sum(line["fired"] for line in ran),
                sum(bool(line["wrong"]) for line in ran),
                sum(line["hang"] for line in ran),
                sum(bool(line["left"]) for line in ran),
                f"{seconds[len(seconds) // 2]:.1f}" if seconds else "",
                f"{max(lost):.2f}" if lost else "",
                f"{max(stops):.2f}" if stops else "",
            )
        )
    head = (
        "case", "runs", "skipped", "met", "wrong", "hangs", "left", "s (median)",
        "lost s (most)", "stop s (most)",
    )  # fmt: skip
    cells = [head, *rows]
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(head))]
    return [
        "  ".join(
            str(cell).ljust(width) if i == 0 else str(cell).rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"), help="lines of JSON")
    parser.add_argument("--resume", action="store_true", help="continue the campaign in --out")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    parser.add_argument("--jobs", type=int, default=2, help="number of parallel runs")
    parser.add_argument("--number", type=int, help="make only the run with this number")
    parser.add_argument("--small", action="store_true", help="use a smaller job")
    parser.add_argument("--folder", type=Path, help="folder for data and failed runs")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the exit also ends the runs
    if args.out.exists() and not args.resume:
        parser.error(f"{args.out} exists; add --resume, or name another file with --out")
    folder = args.folder or Path(tempfile.mkdtemp(prefix="fcl-faults-"))
    folder.mkdir(parents=True, exist_ok=True)
    lines = done_before(args.out)
    done = {line["run"] for line in lines}
    job = Job(folder, SMALL if args.small else Size())
    material = Material(folder, 2_000 if args.small else 20_000)
    planned = enumerate(plan_cases(args.runs, args.seed, args.only))
    todo = [(n, c) for n, c in planned if n not in done and args.number in (None, n)]
    with args.out.open("a") as out, ThreadPoolExecutor(args.jobs) as pool:
        try:
            runs = [pool.submit(one_run, n, c, args.seed, job, material, folder) for n, c in todo]
            for run in as_completed(runs):
                outcome = run.result()
                lines.append(asdict(outcome))
                out.write(json.dumps(lines[-1]) + "\n")
                out.flush()
                state = "skipped" if outcome.skipped else "ok" if outcome.good else "WRONG"
                words = f"{outcome.run:4} {outcome.case:32} {state:8} {outcome.seconds:5.1f} s"
                print(words, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    print("\n".join(["", *table(lines)]))
    bad = [line for line in lines if line["wrong"] or line["left"] or line["hang"]]
    for line in bad:
        print(f"run {line['run']} {line['case']}: {line['wrong']} {line['left']}")
    if not bad and args.folder is None:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
