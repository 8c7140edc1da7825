#!/usr/bin/env python3
"""Compare drivers on real data: one process, several, and several that do not share cores.

    python tools/bench/sharing.py DATA [--C 0.03] [--memory 8GiB] [--methods inline,apart,shared]

The methods take turns; each run is a separate process. The table has the seconds from prepared rows to
the certified gaps, and the processor time of writers and trainer divided by that time (2 means that two
cores were always busy).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, jobs

METHODS = {
    "inline": ["--driver", "inline"],
    "apart": ["--no-share-cores"],
    "shared": [],
}


def run(data: Path, options: argparse.Namespace, method: str) -> dict[str, Any]:
    """Train once in a separate process; seconds count from the prepared rows."""
    settings = ["--features", f"kmers:d={options.d}", "--C", str(options.C)]
    settings += ["--tol", str(options.tol), "--memory", options.memory]
    job = jobs.train(data, [*settings, "--max-time", f"{options.limit}s", *METHODS[method]])
    reached = {gap: job.to_gap(gap) for gap in jobs.GAPS}
    return {
        "method": method,
        "wall": job.wall,
        "seconds": job.last["time"] - job.prepared,
        "to_gap": {g: None if t is None else t - job.prepared for g, t in reached.items()},
        "cpu": job.cpu,
        "passes": len(job.passes),
        "objective": job.last["objective"],
        "gap": job.last["gap"],
        "memory": job.last["memory_bytes"],
    }


def main() -> None:
    """Run all methods in turn, and print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("data", help="folder with seq.npy and y.npy")
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.03)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--memory", default="8GiB")
    parser.add_argument("--limit", type=int, default=1200)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--methods", default=",".join(METHODS))
    options = parser.parse_args()
    print(common.machine())
    jobs.warm()
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.repeat):
        for method in options.methods.split(","):
            record = run(Path(options.data), options, method)
            print(json.dumps(record), flush=True)
            found.setdefault(method, []).append(record)
    rows = []
    for method, records in found.items():
        cells = []
        for gap in jobs.GAPS:
            reached = [r["to_gap"][gap] for r in records if r["to_gap"][gap] is not None]
            cells.append(common.spread(reached) if len(reached) == len(records) else "-")
        cells.append(f"{common.median([r['cpu'] for r in records]):.2f}")
        cells.append(common.spread([r["passes"] for r in records]))
        rows.append([method, *cells, f"{records[-1]['objective']:.5f}"])
    header = ["driver", *(f"gap {gap:g}, s" for gap in jobs.GAPS), "processor time / time"]
    print(common.table([*header, "passes", "objective"], rows))


if __name__ == "__main__":
    main()
