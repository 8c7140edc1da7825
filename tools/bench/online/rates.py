#!/usr/bin/env python3
"""What ``--rate auto`` of ``fcl online`` costs, and how near its model is to that of the best rate.

    python tools/bench/online/rates.py [--C 0.1] [--repeat 5]

The least objective of one pass at a rate of a grid with steps of 2, against that at the rate which auto
chose; and the processor seconds of the choice against those of the pass, the medians of runs that take
turns.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.drivers.online.job import Running, make_online_job
from fcl.drivers.online.rates import choose_rate
from fcl.drivers.online.train import train_online
from fcl.parallel import one_blas_thread
from tools.bench import common
from tools.bench.online.peers import TITLES, rows_of

GRID = tuple(2.0**k for k in range(-8, 3))
METHODS = ("ftrl", "truncated-gradient")
HEADER = ("rows", "method", "rate: auto", "grid", "above optimum: auto", "grid", "choice / pass")


def lines_of(name: str, data: fcl.DataSet, C: float, repeat: int) -> list[list[object]]:
    """The lines of a data set."""
    best = fcl.train(data, "columns", C=C, tol=1e-6)
    lines: list[list[object]] = []
    for method in METHODS:
        job = make_online_job(data, "columns", Running(method), C=C)

        def learnt(rate: float | str, method: str = method) -> tuple[float, float, float]:
            begun = time.process_time()
            model = train_online(
                data, "columns", C=C, method=method, rate=rate, certify=False
            ).model
            took = time.process_time() - begun
            found = fcl.certify(model, data, C=C, top=0).objective
            return found / best.certificate.bound - 1.0, float(model.options["rate"]), took

        auto, chosen, _ = learnt("auto")
        grid = min((learnt(rate)[:2] for rate in GRID), key=lambda found: found[0])
        choices, passes = [], []
        for _ in range(repeat):
            begun = time.process_time()
            with one_blas_thread():
                choose_rate(job)
            choices.append(time.process_time() - begun)
            passes.append(learnt(chosen)[2])
        share = common.median(choices) / common.median(passes)
        cells = [name, method, f"{chosen:.3g}", f"{grid[1]:.3g}", f"{auto:.2%}", f"{grid[0]:.2%}"]
        lines.append([*cells, f"{share:.2f}"])
        print(lines[-1], file=sys.stderr)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=common.SHARED, help="folder of the data")
    parser.add_argument("--C", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs (default 5)")
    parser.add_argument("--core", type=int, help="number of the core to run on")
    args = parser.parse_args()
    common.pin(args.core)
    warnings.simplefilter("ignore", fcl.ConvergenceWarning)
    lines: list[list[object]] = []
    for name, title in TITLES.items():
        X, y, *_ = rows_of(name, args.data)
        lines += lines_of(title, fcl.open_data(X, y=y), args.C, args.repeat)
    print(common.machine())
    print()
    print(common.table(HEADER, lines))


if __name__ == "__main__":
    main()
