#!/usr/bin/env python3
"""Compare ``fcl train`` with one pass of ``fcl online`` over generated k-mers, which no matrix stores.

    python tools/bench/online/which.py [--d 6,8] [--every 4] [--C 0.1] [--repeat 3]

Windows of C. elegans from examples/celegans: every k-th of train.zarr is learnt, and valid.zarr gives the
area under the precision-recall curve. Seconds are processor time on one core, the medians of runs that
take turns. Online learning includes neither its certificate nor the choice of its rate. The objective of
the online model is compared with the bound of the certified one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from tools.bench import common

EXAMPLE = common.ROOT / "examples" / "celegans"
#: Gap of the certified model, and rows on which everything is compiled.
GAP, FEW = 1e-3, 2000
#: Rate of online learning: the best of a grid with steps of 2 for d = 4 and every 8th window.
RATE = 0.0625
HEADER = ("d", "features", "learner", "seconds", "rows/s", "above the bound", "weights", "AUPRC")


def windows(folder: Path, every: int) -> tuple[Any, Any]:
    """Every k-th window, uint8 (n, 141), and its label."""
    import zarr

    group = zarr.open_group(folder, mode="r")
    return np.asarray(group["X"])[::every], np.asarray(group["y"])[::every]


def rows_for(d: int, args: argparse.Namespace) -> list[list[object]]:
    """The lines of the table for k-mers of d letters."""
    from fcl.drivers.online.train import train_online
    from fcl.objective.metrics import average_precision

    codes, y = windows(args.data / "train.zarr", args.every)
    tests, of_tests = windows(args.data / "valid.zarr", 1)
    features = f"kmers:d={d}"
    data, few = fcl.open_data(codes, y=y), fcl.open_data(codes[:FEW], y=y[:FEW])
    learners: dict[str, Callable[[Any], Any]] = {
        f"fcl train to {GAP:g}": lambda rows: fcl.train(rows, features, C=args.C, tol=GAP),
        "fcl online, ftrl": lambda rows: train_online(
            rows, features, C=args.C, rate=args.rate, certify=False
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in learners}
    models: dict[str, Any] = {}
    for turn in range(args.repeat + 1):
        for name, learn in learners.items():
            begun = time.process_time()
            models[name] = learn(data if turn else few).model
            if turn:  # the first compiles
                seconds[name].append(time.process_time() - begun)
                print(f"d = {d}, {name}: {seconds[name][-1]:.1f} s", file=sys.stderr)
    exact = next(iter(models.values()))
    lines: list[list[object]] = []
    for name, model in models.items():
        standing = fcl.certify(model, data, bound=exact, top=0)
        area = average_precision(of_tests > 0, model.margins(tests), np.ones(len(of_tests)))
        took = common.median(seconds[name])
        cells = [d, f"{model.family.n_features:,}", name, f"{took:.1f}", f"{len(y) / took:,.0f}"]
        above = standing.certificate.objective / exact.certificate.bound - 1.0
        lines.append([*cells, f"{above:.2%}", f"{len(model.ids):,}", f"{area:.3f}"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=EXAMPLE, help="default: examples/celegans")
    parser.add_argument("--d", default="6,8", help="comma-separated (default 6,8)")
    parser.add_argument("--every", type=int, default=4, help="take every k-th row (default 4)")
    parser.add_argument("--C", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default 3)")
    parser.add_argument(
        "--rate", type=float, default=RATE, help=f"of online learning (default {RATE})"
    )
    parser.add_argument("--core", type=int, help="number of the core to run on")
    args = parser.parse_args()
    common.pin(args.core)
    lines = [line for d in args.d.split(",") for line in rows_for(int(d), args)]
    print(common.machine())
    print()
    print(common.table(HEADER, lines))


if __name__ == "__main__":
    main()
