#!/usr/bin/env python3
"""Compare dual cached loops, stochastic gradients on cached rows, and feature cached loops.

    python tools/bench/online/dcl.py [--cases 20news,celegans] [--C 0.1,1,10,100] [--steps 64] [--ratio 4]

fcl and DCL-SGD minimise |w|_1 + C sum of logistic losses, DCL its own problem, with 1/2 |w|^2 and hinge
or squared hinge, without an intercept. fcl has 4 GiB, and then the least memory that it accepts; the
others have a cache of 1/4 and of 1/16 of the rows. The reader brings
one row for ``--ratio`` steps of the trainer, and reading costs nothing here
(:mod:`tools.bench.online.dual`). Draws (P - P*) / P* against processor seconds, without the time to
compute P. P* is fcl's optimum to a gap of 1e-6; of DCL it is the largest dual objective of any run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.drivers.events import PassDone
from fcl.errors import BudgetError
from fcl.units import format_bytes
from tools.bench import common
from tools.bench.online import cases, dual, picture
from tools.bench.online.ball import best_rate
from tools.bench.online.baselines import Batch

Floats = npt.NDArray[np.float64]
Curve = tuple[list[float], list[float]]
#: A row leaves DCL's cache at this share of the largest projected gradient.
SHARE = 1.0
SHARES = {"1/4": 4, "1/16": 16}


class Watched:
    """Objective against processor seconds; the time of computing objectives does not count."""

    def __init__(self, objective: Callable[[], float]) -> None:
        self._objective = objective
        self.seconds = 0.0
        self.curve: Curve = ([], [])

    def run(self, train: Callable[[int], None], n: int, steps: int) -> Curve:
        """Train ``steps`` times n steps, and note the objective at n / 4 steps and each doubling."""
        taken, goal = 0, -(-n // 4)
        while taken < steps * n:
            begun = time.process_time()
            train(goal - taken)
            self.seconds += time.process_time() - begun
            taken = goal
            goal = min(2 * goal, steps * n)
            self.curve[0].append(self.seconds)
            self.curve[1].append(self._objective())
        return self.curve


def smallest_budget(data: fcl.DataSet) -> int:
    """The least memory with which fcl trains on the columns."""
    try:
        fcl.train(data, "columns", C=1.0, memory=1)
    except BudgetError as error:
        return error.smallest
    raise AssertionError("a budget of one byte was accepted")


def by_fcl(data: fcl.DataSet, C: float, memory: int | str) -> tuple[Curve, float]:
    """fcl's objectives against its processor seconds, and the optimum; prints what left its cache."""
    seconds: list[float] = []
    passes: list[PassDone] = []
    begun = 0.0

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            seconds.append(time.process_time() - begun)
            passes.append(event)

    fcl.train(data, "columns", C=0.1, tol=1e-2, memory=memory)  # everything is compiled
    begun = time.process_time()
    result = fcl.train(data, "columns", C=C, tol=1e-6, memory=memory, progress=note, max_time=600)
    print(
        f"  fcl, {memory if isinstance(memory, str) else format_bytes(memory)}: {len(passes)} passes, "
        f"gap {passes[-1].gap:.1e}, {len(result.model.ids):,} active; cache of "
        f"{format_bytes(passes[-1].cache_capacity)}, at most {max(p.cached for p in passes):,} columns, "
        f"{sum(p.evicted for p in passes):,} evicted",
        flush=True,
    )
    return (seconds, [p.objective for p in passes]), result.model.certificate.objective


def by_descent(case: cases.Case, C: float, capacity: int, rate: float, args: Any) -> Curve:
    """DCL-SGD: objectives at the best intercept, as fcl's are."""
    n, p = case.X.shape
    w, seen, cache = np.zeros(p), np.zeros(p), dual.make_cache(n, capacity)
    problem = Batch(case.X, case.y, False)
    matrix = case.matrix

    def objective() -> float:
        found = dual.settled(w, seen, cache)
        return float(np.abs(found).sum()) + C * n * problem.value(found)[0]

    def train(steps: int) -> None:
        dual.train_l1(*matrix, case.y, C, rate, args.ratio, steps, w, seen, cache)

    return Watched(objective).run(train, n, args.steps)


def by_dual(
    case: cases.Case, C: float, capacity: int, squared: bool, args: Any
) -> tuple[Curve, float]:
    """DCL: objectives, and the last dual objective."""
    n, p = case.X.shape
    a, w, cache = np.zeros(n), np.zeros(p), dual.make_cache(n, capacity)
    norms = np.asarray(case.X.multiply(case.X).sum(axis=1)).ravel()
    matrix = case.matrix

    def objective() -> float:
        return float(dual.primal_and_dual(case.X, case.y, C, squared, a, w)[0])

    def train(steps: int) -> None:
        given = (*matrix, case.y, norms, C, squared, SHARE, args.ratio, steps)
        dual.train_dual(*given, a, w, cache)

    curve = Watched(objective).run(train, n, args.steps)
    return curve, float(dual.primal_and_dual(case.X, case.y, C, squared, a, w)[1])


def above(curve: Curve, optimum: float) -> Curve:
    """(P - P*) / P*, at least 1e-7."""
    return curve[0], [max((value - optimum) / optimum, 1e-7) for value in curve[1]]


def compared(case: cases.Case, C: float, args: argparse.Namespace) -> dict[str, Curve]:
    """The curves of one case at one C."""
    n, name = len(case.y), case.name
    data = fcl.open_data(case.X, y=case.y)
    curves: dict[str, Curve] = {}
    print(f"{name}: {n:,} rows, C = {C:g}", flush=True)
    found, optimum = by_fcl(data, C, "4GiB")
    short, other = by_fcl(data, C, smallest_budget(data))
    optimum = min(optimum, other)
    print(f"  P* = {optimum:.6f}", flush=True)
    curves["fcl"], curves["fcl, least memory"] = above(found, optimum), above(short, optimum)
    for share, part in SHARES.items():
        few = argparse.Namespace(**{**vars(args), "steps": min(args.steps, 8)})

        def cost(rate: float, part: int = part, few: argparse.Namespace = few) -> float:
            return by_descent(case, C, n // part, rate, few)[1][-1]

        rate = best_rate(0.01 if name == "20news" else 0.001, cost)
        print(f"  DCL-SGD, cache {share}: rate {rate:.3g}", flush=True)
        curves[f"DCL-SGD, cache {share}"] = above(
            by_descent(case, C, n // part, rate, args), optimum
        )
    for squared in (False, True):
        kind = "squared hinge" if squared else "hinge"
        longer = argparse.Namespace(**{**vars(args), "steps": 2 * args.steps})
        full, best = by_dual(case, C, n, squared, longer)
        print(f"  DCL, {kind}, all rows: P = {full[1][-1]:.6f}, D = {best:.6f}", flush=True)
        for share, part in SHARES.items() if squared else [("1/4", 4)]:
            found, bound = by_dual(case, C, n // part, squared, args)
            best = max(best, bound)
            curves[f"DCL, {kind}, cache {share}"] = above(found, best)
    for label, (seconds, values) in curves.items():
        line = "  ".join(f"{s:.3g}: {v:.1e}" for s, v in zip(seconds, values, strict=True))
        print(f"  {label}, seconds: (P - P*) / P*   {line}", flush=True)
    return curves


def main() -> None:
    """Compare, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", default="20news,celegans", help="default %(default)s")
    parser.add_argument("--every", type=int, default=160, help="every k-th window (default 160)")
    parser.add_argument("--C", default="0.1,1,10,100", help="default %(default)s")
    parser.add_argument("--steps", type=int, default=64, help="steps, in rows (default 64 n)")
    parser.add_argument("--ratio", type=int, default=4, help="steps for a row read (default 4)")
    parser.add_argument("--no-plot", action="store_true", help="print alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    panels = {}
    for name in args.cases.split(","):
        case = cases.load(name, args.every)
        for C in args.C.split(","):
            panels[f"{cases.TITLES[name]}, C = {C}"] = compared(case, float(C), args)
    if not args.no_plot:
        picture.draw("dcl", panels, "processor seconds", "(P - P*) / P*")


if __name__ == "__main__":
    main()
