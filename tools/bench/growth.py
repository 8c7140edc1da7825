#!/usr/bin/env python3
"""How the time grows with rows, length of k-mers, C, writers and memory; one axis at a time.

    python tools/bench/growth.py rows [--every 160,40,10,4,1] [--C 0.03,0.1]
    python tools/bench/growth.py d | C | writers | memory [--repeat 3]

Every run is a separate ``fcl-train`` on windows of C. elegans on disk; kernels are compiled beforehand.
Seconds are from the start of the command to a certified relative gap, and include starting processes,
reading and preparing. With several runs, times are medians, and the other figures come from the run
of median time. ``--drivers inline,processes`` compares drivers. ``apart`` is the largest relative
difference between the last objectives of the runs of a line: the order in which writers bring columns
differs from run to run.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, jobs

#: The values of each axis; the other options keep their defaults.
AXES = {
    "rows": {"every": "160,40,10,4,1", "C": "0.03,0.1"},
    "d": {"d": "4,6,8,10"},
    "C": {"C": "0.01,0.03,0.1,0.3"},
    "writers": {"writers": "1,2,4,8", "every": "10"},
    "memory": {"memory": "768MiB,1GiB,2GiB,4GiB", "every": "10"},
}
DEFAULTS = {
    "every": "40",
    "d": "8",
    "C": "0.1",
    "drivers": "processes",
    "writers": "2",
    "memory": "6GiB",
    "row-view": "auto",
}
KEYS = ("every", "d", "C", "drivers", "writers", "memory", "row-view")


def options_of(case: dict[str, str], args: argparse.Namespace) -> list[str]:
    """The options of ``fcl-train`` for one case."""
    options = ["--features", f"kmers:d={case['d']}", "--C", case["C"], "--memory", case["memory"]]
    options += ["--driver", case["drivers"], "--row-view", case["row-view"]]
    if case["drivers"] == "processes":
        options += ["--writers", case["writers"]]
    return [*options, "--tol", str(args.tol), "--max-time", args.max_time]


def main() -> None:
    """Run the cases in turn, and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("axis", choices=list(AXES))
    parser.add_argument("--data", type=Path, help="folder with seq.npy and y.npy of all windows")
    for key in KEYS:
        parser.add_argument(f"--{key}", help=f"comma-separated (default {DEFAULTS[key]})")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--max-time", default="30m", help="time limit of a run (default 30m)")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    chosen = {**DEFAULTS, **AXES[args.axis]}
    chosen |= {k: v for k in KEYS if (v := getattr(args, k.replace("-", "_"))) is not None}
    folder = common.windows_folder(args.data)
    cases = [
        dict(zip(KEYS, values, strict=True))
        for values in itertools.product(*(chosen[key].split(",") for key in KEYS))
    ]
    print(common.machine())
    jobs.warm()
    found: list[list[jobs.Job]] = [[] for _ in cases]
    for _ in range(args.repeat):
        for case, runs in zip(cases, found, strict=True):
            data = common.every_kth(folder, int(case["every"]))
            runs.append(jobs.train(data, options_of(case, args)))
            job = runs[-1]
            figures = {"wall": job.wall, "gap": job.last["gap"], "objective": job.last["objective"]}
            print(json.dumps(case | figures), file=sys.stderr, flush=True)
    varied = [key for key in KEYS if "," in chosen[key]]
    rows = []
    for case, runs in zip(cases, found, strict=True):
        data = common.every_kth(folder, int(case["every"]))
        n_rows = len(np.load(data / "y.npy", mmap_mode="r"))
        last = jobs.middle(runs).last
        ends = [job.last["objective"] for job in runs]
        rows.append(
            [
                f"{n_rows:,}",
                *(case[key] for key in varied if key != "every"),
                common.spread([job.first_line for job in runs]),
                common.spread([job.prepared for job in runs]),
                common.spread([job.first_pass for job in runs]),
                common.spread([_near_the_end(job) for job in runs]),
                *(_reached(runs, gap) for gap in jobs.GAPS),
                common.spread([len(job.passes) for job in runs]),
                f"{last['objective']:.2f}",
                f"{max(ends) / min(ends) - 1.0:.1e}",
                f"{last['gap']:.1e}",
                common.spread([job.last["active"] for job in runs]),
                f"{max(job.peak for job in runs) / 2**20:,.0f}",
            ]
        )
    header = ["rows", *(key for key in varied if key != "every")]
    header += [
        "first line, s",
        "prepared, s",
        "first pass, s",
        "objective within 1e-4, s",
        *(f"gap {gap:g}, s" for gap in jobs.GAPS),
    ]
    header += ["passes", "objective", "apart", "gap", "active", "peak, MiB"]
    print(common.table(header, rows))


def _near_the_end(job: jobs.Job) -> float:
    """Seconds until the objective was within 1e-4 of the last one."""
    return job.to_objective(job.last["objective"] * (1.0 + 1e-4)) or 0.0


def _reached(runs: list[jobs.Job], gap: float) -> str:
    times = [job.to_gap(gap) for job in runs]
    reached = [t for t in times if t is not None]
    if len(reached) == len(times):
        return common.spread(reached)
    return f"> {common.median([job.wall for job in runs]):.0f}"


if __name__ == "__main__":
    main()
