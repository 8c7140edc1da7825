#!/usr/bin/env python3
"""Compare methods of minimising the trainer's inner model, on models of a real run.

    python tools/research/inner.py [--every 40] [--d 8] [--C 0.1] [--models 3] [--limit 20]

Trains on windows of C. elegans and keeps the inner models (quadratic models on a sample of the rows,
fcl/solve/inner.py) of the last passes, which take most of the time. Each method then minimises each
model from the same start until no column violates by more than the trainer's tolerance. The table gives
seconds, and the number of entries read divided by all entries: a sweep over all columns reads them once,
and a step reads its column again. The time includes data that a method makes (Gram matrices). One core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.kernels.gather import GatheredColumns
from fcl.solve import inner
from fcl.solve.gathered import Gathered
from fcl.solve.inner_descent import Descent
from tools.bench import common
from tools.research.trainers import make_solver
from tools.research.ways import WAYS, Recorded, Spent, State


def record(args: argparse.Namespace) -> list[Recorded]:
    """Train, and return copies of the last models with the positions of their columns."""
    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup

    warmup(["sequences"])
    data = common.open_rows(common.windows_folder(args.data), args.every)
    job = make_job(data, f"kmers:d={args.d}", C=args.C, tol=1e-3, memory=args.memory)
    prepared = job.prepare(job.train, lambda share: None)
    solver = make_solver(job, prepared, 1e-3)
    kept: list[Recorded] = []

    class Copying(Descent):
        def __init__(self, model: Any, u: Any, b: Any, everything: Any, *rest: Any) -> None:
            super().__init__(model, u, b, everything, *rest)
            arrays = ("shared", "q", "extra", "curve", "leans", "ids")
            columns = GatheredColumns(*(array.copy() for array in model.columns))
            own = replace(
                model,
                columns=columns,
                at=replace(model.at, **{k: v.copy() for k, v in _arrays(model.at)}),
                **{name: getattr(model, name).copy() for name in arrays},
            )
            positions = np.asarray(job.family.patterns(own.ids).positions)  # type: ignore[attr-defined]
            gathered = Gathered(columns, own.q)
            k = len(columns.cuts)
            entries = [gathered.numbers(slice(t, t + 1)) for t in range(k)]
            ends = np.cumsum([0, *map(len, entries)])
            self._own = Recorded(
                *(own, len(u), everything.copy(), 0.0, positions, b.copy()),
                *(ends[:-1], ends[1:], np.concatenate(entries)),
            )
            kept[:] = [*kept, self._own][-args.models :]

        def run(self, tolerance: float) -> None:
            self._own.tolerance = tolerance
            super().run(tolerance)

    with patch.object(inner, "Descent", Copying):
        while solver.price().gap > 1e-3:
            solver.admit()
            solver.train()
            solver.propose(solver.proposal())
    return kept


def _arrays(point: Any) -> Iterator[tuple[str, np.ndarray]]:
    return ((k, v) for k, v in vars(point).items() if isinstance(v, np.ndarray))


def main() -> None:
    """Record models, minimise each with every method, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--models", type=int, default=3, help="how many of the run's last models")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds per method and model")
    parser.add_argument("--ways", default=",".join(WAYS))
    args = parser.parse_args()
    common.pin(args.core)
    models = record(args)
    names = args.ways.split(",")
    for name in names:  # compiles, so that the time limit does not include it
        _run(models[0], name, args.limit)
    print(common.machine())
    for recorded in models:
        k, entries = len(recorded.order), int(recorded.sizes.sum())
        print(
            f"\n{k:,} columns on {recorded.rows:,} rows, {entries / 1e6:.1f} M entries, "
            f"tolerance {recorded.tolerance:.2g}\n"
        )
        rows = []
        for name in names:
            seconds, state, done = _run(recorded, name, args.limit)
            shown = f"{seconds:.3g}" if done else f"> {seconds:.0f}"
            rows.append(
                [WAYS[name][0], shown, f"{state.read / entries:.3g}", f"{state.value():.9g}"]
            )
        print(common.table(["way", "s", "entries read / all", "model at the end"], rows))


def _run(recorded: Recorded, name: str, limit: float) -> tuple[float, State, bool]:
    state = State(recorded, limit)
    begun, done = time.perf_counter(), True
    try:
        WAYS[name][1](state)
    except Spent:
        done = False
    return time.perf_counter() - begun, state, done


if __name__ == "__main__":
    main()
