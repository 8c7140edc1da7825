#!/usr/bin/env python3
"""Train on C. elegans acceptor sites, from rows in memory to a certified model, on one core.

Each run has a process of its own, so that its peak memory can be measured, and compiles or loads all
kernels before the clock starts.

    python tools/bench/real.py
    python tools/bench/real.py --every 160 --d 4 --repeat 5
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

GAPS = (1e-1, 1e-2, 1e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--d", type=int, default=8, help="letters of a k-mer (default 8)")
    parser.add_argument("--C", type=float, default=0.1, help="weight of the losses (default 0.1)")
    parser.add_argument("--tol", type=float, default=1e-3, help="relative gap (default 1e-3)")
    parser.add_argument("--memory", default="4GiB", help="budget (default 4GiB)")
    parser.add_argument("--row-view", default="auto", help="all, auto or a number (default auto)")
    parser.add_argument("--max-time", type=float, help="seconds after which to stop")
    parser.add_argument("--repeat", type=int, default=3, help="runs (default 3)")
    parser.add_argument("--child", choices=["warm", "run"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run(args, args.child == "warm")))
        return
    common.pin(args.core)
    args.data = common.windows_folder(args.data)
    cold = _child("warm", args)["warm-up"]
    runs = []
    for n in range(args.repeat):
        runs.append(_child("run", args))
        print(f"run {n + 1}: {runs[-1]['seconds']:.2f} s", file=sys.stderr)
    report(args, cold, runs)


def _child(what: str, args: argparse.Namespace) -> dict[str, Any]:
    """Run this file in a separate process."""
    command = [sys.executable, __file__, "--child", what, "--data", str(args.data)]
    for name in ("every", "d", "C", "tol", "memory", "row_view", "max_time"):
        value = getattr(args, name)
        if value is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def run(args: argparse.Namespace, warm_only: bool) -> dict[str, Any]:
    """Warm up, train once, and return the figures."""
    start = time.perf_counter()
    from fcl.drivers.train import train
    from fcl.drivers.warmup import warmup

    warmup()
    warm = time.perf_counter() - start
    if warm_only:
        return {"warm-up": warm}
    data = common.open_rows(args.data, args.every)
    start, busy = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a run stopped by --max-time says so below
        result = train(
            data,
            f"kmers:d={args.d}",
            C=args.C,
            tol=args.tol,
            memory=args.memory,
            row_view=int(args.row_view) if args.row_view.isdigit() else args.row_view,
            max_time=args.max_time,
        )
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    certificate, model = result.certificate, result.model
    reached = {}
    for gap in GAPS:
        times = [event["seconds"] for event in model.history if event["gap"] <= gap]
        if times:
            reached[f"{gap:g}"] = times[0]
    return {
        "warm-up": warm,
        "seconds": seconds,
        "busy": busy,
        "split": result.seconds,
        "reached": reached,
        "passes": result.passes,
        "rows": model.n_rows,
        "objective": certificate.objective,
        "bound": certificate.bound,
        "gap": certificate.gap,
        "features": certificate.n_priced,
        "active": len(model.ids),
        "peak": result.peak_memory,
        "message": result.message,
    }


def report(args: argparse.Namespace, cold: float, runs: list[dict[str, Any]]) -> None:
    """Print medians."""
    first = runs[0]
    print(common.machine())
    print(
        f"\n{first['rows']:,} rows, d = {args.d} ({first['features']:,} features), C = {args.C:g}, "
        f"tolerance {args.tol:g}, budget {args.memory}, row view {args.row_view}, one core; "
        f"{len(runs)} runs: "
        "median (lowest-highest)\n"
    )
    rows: list[tuple[str, str]] = [("time, s", common.spread([r["seconds"] for r in runs]))]
    rows.append(("processor time, s", common.spread([r["busy"] for r in runs])))
    for gap in first["reached"]:
        times = [r["reached"][gap] for r in runs if gap in r["reached"]]
        rows.append((f"... to gap {gap}, s", common.spread(times)))
    for step in first["split"]:
        rows.append((f"of it {step}, s", common.spread([r["split"][step] for r in runs])))
    rows += [
        ("passes", common.spread([r["passes"] for r in runs])),
        ("objective", f"{first['objective']:.5f}"),
        ("bound", f"{first['bound']:.5f}"),
        ("relative gap", f"{first['gap']:.2e}"),
        ("active features", f"{first['active']:,}"),
        ("peak memory, MiB", common.spread([r["peak"] / 2**20 for r in runs])),
        ("compiling or loading kernels before (not counted), s", f"{cold:.1f}"),
        ("same bits in all runs", str(len({r["objective"] for r in runs}) == 1)),
        ("ended", first["message"]),
    ]
    print(common.table(("what", "figure"), rows))


if __name__ == "__main__":
    main()
