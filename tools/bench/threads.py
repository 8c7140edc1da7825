#!/usr/bin/env python3
"""Threads of one process beside the driver ``processes``, and the speed on more cores by Amdahl's law.

    python tools/bench/threads.py [--every 21,1] [--C 0.1,0.03] [--repeat 3] [--processes]

Runs are child processes on windows of C. elegans, in turns; kernels are loaded before the clock starts.
``bits`` is a hash of weights, objective and bound. The serial share is what the calling thread does
outside of :meth:`fcl.parallel.Team.map`; sweeps and gathering are cut in two parts at most. The time on n
cores is then serial + two / min(2, n) + shared / n.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import threading
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

#: Functions whose calls of ``map`` have two parts.
IN_TWO = ("_side_by_side", "gather")
CORES = (2, 4, 8, 16, 64)


def main() -> None:
    """Run the cases in turns, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--every", default="21", help="take every k-th row (default 21)")
    parser.add_argument("--C", default="0.1", help="one for each --every (default 0.1)")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--processes", action="store_true", help="the driver processes, too")
    parser.add_argument("--memory", default="8GiB", help="budget (default 8GiB)")
    parser.add_argument("--repeat", type=int, default=3, help="runs in turns (default 3)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run(**json.loads(args.child))))
        return
    print(common.machine())
    common.windows_folder(None)
    kinds: list[dict[str, Any]] = [{"threads": int(t)} for t in args.threads.split(",")]
    if args.processes:
        kinds.append({"driver": "processes"})
    for every, C in zip(args.every.split(","), args.C.split(","), strict=True):
        case = {"every": int(every), "C": float(C), "memory": args.memory}
        runs: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for _ in range(args.repeat):
            for k, kind in enumerate(kinds):
                runs[k].append(_child(case | {"kind": kind}))
        report(case, kinds, runs)


def _child(case: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", json.dumps(case)]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    )
    return found


def watch_maps() -> dict[str, list[float]]:
    """Measure the calls of ``Team.map`` by the caller: seconds of the clock and of all threads."""
    from fcl import parallel

    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    inside: list[str] = []
    original, owner = parallel.Team._map, threading.get_ident()

    def watched(self: Any, function: Any, parts: Any, most: int) -> Any:
        if threading.get_ident() != owner or inside:
            return original(self, function, parts, most)
        name = sys._getframe(2).f_code.co_name
        clock, busy = time.perf_counter(), time.process_time()
        inside.append(name)
        try:
            return original(self, function, parts, most)
        finally:
            inside.pop()
            spent[name][0] += time.perf_counter() - clock
            spent[name][1] += time.process_time() - busy

    parallel.Team._map = watched  # type: ignore[method-assign]
    return spent


def run(every: int, C: float, memory: str, kind: dict[str, Any]) -> dict[str, Any]:
    """Load the kernels, train once, and return the figures."""
    from fcl.drivers.train import train

    spent = watch_maps()
    folder = common.windows_folder(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, rows in ((80, "auto"), (800, 4096)):
            few = common.open_rows(folder, max(every, step))
            train(few, "kmers:d=8", C=C, max_passes=4, row_view=rows)
        data = common.open_rows(folder, every)
        spent.clear()
        clock, busy = time.perf_counter(), time.process_time()
        result = train(data, "kmers:d=8", C=C, tol=1e-3, memory=memory, **kind)
    seconds, busy = time.perf_counter() - clock, time.process_time() - busy
    model, certificate = result.model, result.certificate
    bits = model.weights.tobytes() + repr((certificate.objective, certificate.bound)).encode()
    two = sum(spent[name][1] for name in IN_TWO)
    return {
        "rows": model.n_rows,
        "seconds": seconds,
        "busy": busy,
        "peak": result.peak_memory / 2**30,
        "passes": result.passes,
        "gap": certificate.gap,
        "bits": hashlib.sha256(bits).hexdigest()[:8],
        "serial": seconds - sum(wall for wall, _ in spent.values()),
        "two": two,
        "shared": sum(cpu for _, cpu in spent.values()) - two,
    }


def report(case: dict[str, Any], kinds: list[dict[str, Any]], runs: dict[int, Any]) -> None:
    """Print the table of a case."""
    rows = []
    for k, kind in enumerate(kinds):
        own = runs[k]
        rows.append(
            (
                ", ".join(f"{name} {value}" for name, value in kind.items()),
                common.spread([r["seconds"] for r in own]),
                common.spread([r["busy"] for r in own]) if "threads" in kind else "",
                common.spread([r["peak"] for r in own]),
                common.spread([r["passes"] for r in own]),
                ", ".join(sorted({r["bits"] for r in own})),
            )
        )
    first = runs[0][0]
    print(f"\n{first['rows']:,} rows, d = 8, C = {case['C']:g}, {case['memory']}\n")
    header = ("", "time, s", "processor, s", "peak, GiB", "passes", "bits")
    print(common.table(header, rows))
    for k, kind in enumerate(kinds):
        if kind.get("threads", 1) < 2:
            continue
        serial, two, shared = (
            common.median([r[name] for r in runs[k]]) for name in ("serial", "two", "shared")
        )
        one = serial + two + shared
        words = [f"{n}: {one / (serial + two / min(2, n) + shared / n):.1f}" for n in CORES]
        print(
            f"\nserial {serial / one:.1%}, in two parts {two / one:.1%}, shared {shared / one:.1%} of "
            f"{one:.1f} s; speed on n cores by Amdahl's law: {', '.join(words)}"
        )


if __name__ == "__main__":
    main()
