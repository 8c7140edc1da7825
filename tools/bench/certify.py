#!/usr/bin/env python3
"""``fcl certify`` against a pass of the training, on prepared rows and one core.

Both place a point, fit its intercept, price the family and prove a bound; certify also finds the C at
which the point is most nearly optimal, and the gap of the ball. The point is an optimum, or the optimum
with its weights made smaller, which stands for the model of another program.

    python tools/bench/certify.py
    python tools/bench/certify.py --d 4,6,8 --repeat 9
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import Job
    from fcl.solve.state import Point

DATA = common.ROOT / "examples" / "celegans" / "train.zarr"


def training_pass(job: Job, prepared: PreparedRows, point: Point) -> Callable[[], object]:
    """A pass as the trainer makes it: margins, intercept, residuals, prices, bound."""
    from fcl.solve.passes import Passes, Vectors

    passes = Passes(job.objective(), job.family, prepared, Vectors(job.train.n))
    blocks = range(prepared.n_blocks)

    def run() -> None:
        passes.write_margins(point, blocks)
        found = passes.settled(point, float("inf"), 1.0, point.intercept).point
        assert found is not None
        passes.vectors.anchor = 1 - passes.vectors.anchor
        passes.write_residuals(found.intercept, blocks)
        passes.prove(found.ids, passes.conditions.limit)

    return run


def certification(job: Job, prepared: PreparedRows, point: Point) -> Callable[[], object]:
    """What ``fcl.certify`` computes once the rows are read."""
    from fcl.solve.certify import Standing
    from fcl.solve.passes import Passes, Vectors

    passes = Passes(job.objective(), job.family, prepared, Vectors(job.train.n), 10)

    def run() -> None:
        standing = Standing(passes, point)
        standing.best_C()
        standing.ball_gap(standing.norm)
        standing.violators(10)

    return run


def timed(works: list[Callable[[], object]], repeat: int) -> list[float]:
    """Median processor seconds of some functions, which take turns."""
    times: list[list[float]] = [[] for _ in works]
    for turn in range(repeat + 1):
        for own, work in zip(times, works, strict=True):
            start = time.process_time()
            work()
            if turn:  # the first is not counted
                own.append(time.process_time() - start)
    return [common.median(own) for own in times]


def rows_of(data: DataSet, d: int, repeat: int) -> list[list[object]]:
    """The lines of the table for k-mers of d letters."""
    from fcl.drivers.job import make_job
    from fcl.drivers.train import start_point, train

    job = make_job(data, f"kmers:d={d}", C=0.1)
    optimum = start_point(job, train(data, f"kmers:d={d}", C=0.1).model)
    prepared = job.prepare(job.train, lambda share: None)
    lines: list[list[object]] = []
    for name, scale in (("optimum", 1.0), ("weights x 0.3", 0.3)):
        point = replace(optimum, weights=scale * optimum.weights)
        works = [work(job, prepared, point) for work in (training_pass, certification)]
        one, other = timed(works, repeat)
        lines.append([d, name, len(point.ids), f"{one:.3f}", f"{other:.3f}", f"{other / one:.2f}"])
        print("measured:", *lines[-1], file=sys.stderr)
    prepared.close()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="windows (default: the example)")
    parser.add_argument("--d", default="4,6,8", help="comma-separated (default 4,6,8)")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each (default 7)")
    parser.add_argument("--core", type=int, help="number of the core to run on")
    args = parser.parse_args()
    common.pin(args.core)
    from fcl import open_data

    data = open_data(args.data)
    lines = [line for d in args.d.split(",") for line in rows_of(data, int(d), args.repeat)]
    print(common.machine())
    print(f"\n{data.n_rows:,} rows, one core, medians of {args.repeat} runs in turns\n")
    print(common.table(["d", "point", "weights", "pass, s", "certify, s", "ratio"], lines))


if __name__ == "__main__":
    main()
