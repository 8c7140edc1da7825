#!/usr/bin/env python3
"""Compare trainers on real data, in one run, by the time to a certified gap.

Compares the trainer of fcl (proximal Newton: coordinate descent on a quadratic model over a sample of the
rows) with one-variable Newton with a line search, the method of the paper, and with variants of both. All
use the same solver, passes and anchors; only the solution of the local problem differs.

    python tools/research/trainers.py
    python tools/research/trainers.py --every 160 --methods kept,one --repeat 5
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.solve import inner, outer, passes, trainer
from fcl.solve.local import LocalSolver
from fcl.solve.trainer import Trainer
from tools.bench import common
from tools.research.newton import OftenIntercept, OneVariableNewton

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import Job
    from fcl.solve.solver import Solver

GAPS = (1e-1, 1e-2, 1e-3)


@dataclass(frozen=True)
class Method:
    """A method for the local problem: a class, and constants or methods of fcl that it replaces."""

    name: str
    words: str
    make: Callable[..., Any] = lambda *sizes: Trainer(inner.InnerModel(*sizes))
    settings: tuple[tuple[Any, dict[str, Any]], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the constants and methods inside a ``with`` block."""
        with ExitStack() as stack:
            for owner, values in self.settings:
                stack.enter_context(common.constants(owner, **values))
            yield


_choose_rows = inner.InnerModel._choose_rows


def largest_curvatures(self: inner.InnerModel, q: Any, most: int) -> int:
    """Choose the rows of largest curvature instead of a sample; the diagonal stands for the others."""
    kept = np.zeros_like(q)
    chosen = np.argpartition(q, -most)[-most:] if most < len(q) else np.arange(len(q))
    kept[chosen] = q[chosen]
    return _choose_rows(self, kept, len(q))


METHODS = (
    Method("kept", "proximal Newton, Hessian of a sample of rows (kept)"),
    Method("allrows", "Hessian of all rows", settings=((inner, {"LEAST_ROWS": 1 << 60}),)),
    Method(
        "steep",
        "Hessian of the rows of largest curvature, exact diagonal",
        settings=(
            (inner, {"FLOOR": 1.0}),
            (inner.InnerModel, {"_choose_rows": largest_curvatures}),
        ),
    ),
    Method(
        "tight",
        "inner problem to 1e-3 of its violation, trainer to 0.01 of the outer one",
        settings=((trainer, {"INNER_SHARE": 1e-3}), (outer, {"TRAIN_SHARE": 0.01})),
    ),
    Method(
        "loose",
        "trainer to 0.9 of the outer violation",
        settings=((outer, {"TRAIN_SHARE": 0.9}),),
    ),
    Method(
        "unrested",
        "no column rests until the next pass",
        settings=((trainer, {"RESTING": 0.0, "NEAR": math.inf}),),
    ),
    Method(
        "equal",
        "duplicates admitted",
        settings=((LocalSolver, {"has_equal": lambda *_: False}),),
    ),
    Method("few", "4 candidates of each position", settings=((passes, {"KEEP_PER_GROUP": 4}),)),
    Method(
        "any",
        "candidates of any position (2,048 of each)",
        settings=((passes, {"KEEP_PER_GROUP": 2048}),),
    ),
    Method("one", "one-variable Newton with line search", OneVariableNewton),
    Method("often", "the same, intercept after every 64 columns", OftenIntercept),
)


@dataclass(frozen=True)
class Run:
    """The results of one run."""

    reached: dict[float, float]  #: gap -> seconds
    seconds: float
    training: float  #: seconds of it in the trainer
    passes: int
    objective: float
    gap: float
    active: int


def run(job: Job, prepared: PreparedRows, method: Method, tol: float, limit: float) -> Run:
    """Solve with one method until the gap or the time limit is reached."""
    with method.applied():
        start = time.perf_counter()
        solver = make_solver(job, prepared, tol)
        n = job.train.n
        solver.local.trainer = method.make(n, job.plan.max_columns, job.plan.entries, 0, True)
        if isinstance(solver.local.trainer, OneVariableNewton):
            solver.local.trainer.deadline = start + limit
        reached: dict[float, float] = {}
        training, passes = 0.0, 0
        while True:
            certified = solver.price()
            passes += 1
            now = time.perf_counter() - start
            for gap in GAPS:
                if certified.gap <= gap:
                    reached.setdefault(gap, now)
            if certified.gap <= tol or now > limit:
                break
            solver.admit()
            before = time.perf_counter()
            solver.train()
            training += time.perf_counter() - before
            solver.propose(solver.proposal())
    active = len(solver.outer.point.ids)
    return Run(reached, now, training, passes, certified.objective, certified.gap, active)


def make_solver(job: Job, prepared: PreparedRows, tol: float, columns: int = 0) -> Solver:
    """Make a solver as the inline driver does; columns : of the cache, if not those of the plan."""
    from fcl.cache import ColumnCache
    from fcl.solve.outputs import local_passes
    from fcl.solve.solver import Solver

    plan, options = job.plan, job.options
    size, most, n = plan.cache_bytes, plan.max_columns, job.train.n
    if columns:
        size, most = columns * ColumnCache.largest_column(n, options.block_rows), columns
    cache = ColumnCache(size, most, n, options.block_rows)
    return Solver(
        local_passes(job.objective(), job.family, prepared),
        cache,
        tol=tol,
        entries=plan.entries,
        staging=plan.staging,
        seed=options.seed,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--d", type=int, default=8, help="letters of a k-mer (default 8)")
    parser.add_argument("--C", type=float, default=0.1, help="weight of the losses (default 0.1)")
    parser.add_argument("--memory", default="4GiB", help="budget (default 4GiB)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per run (default 300)")
    parser.add_argument("--repeat", type=int, default=3, help="runs per method (default 3)")
    parser.add_argument(
        "--methods",
        default=",".join(m.name for m in METHODS),
        help="comma-separated (default: %(default)s)",
    )
    args = parser.parse_args()
    names = args.methods.split(",")
    unknown = [name for name in names if name not in {m.name for m in METHODS}]
    if unknown:
        parser.error(f"--methods: expected {', '.join(m.name for m in METHODS)}, got {unknown[0]}")
    methods = [m for m in METHODS if m.name in names]
    common.pin(args.core)

    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup

    data = common.open_rows(common.windows_folder(args.data), args.every)
    warmup(["sequences"])
    _warm_up(methods)
    tol = min(GAPS)
    job = make_job(data, f"kmers:d={args.d}", C=args.C, tol=tol, memory=args.memory)
    prepared = job.prepare(job.train, lambda share: None)
    runs: dict[str, list[Run]] = {m.name: [] for m in methods}
    for turn in range(args.repeat):
        for method in methods:  # in turn, so that slow minutes of the machine affect all methods
            if any(r.gap > tol for r in runs[method.name]):
                continue  # it ran out of time before, and would do so again
            done = run(job, prepared, method, tol, args.limit)
            runs[method.name].append(done)
            print(
                f"{turn + 1} {method.name}: {done.seconds:.1f} s, gap {done.gap:.1e}, "
                f"P {done.objective:.4f}, {done.passes} passes",
                file=sys.stderr,
            )
    report(args, job, methods, runs)


def _warm_up(methods: list[Method]) -> None:
    """Compile the kernels of all methods on a few rows."""
    from fcl import open_data
    from fcl.drivers.job import make_job

    random = np.random.default_rng(0)
    codes = random.integers(0, 4, (512, 12)).astype(np.uint8)
    y = np.where(codes[:, 5] == 2, 1, -1)
    y[:32] = -y[:32]
    job = make_job(open_data(codes, y=y), "kmers:d=3", C=1.0, memory="1GiB", block_rows=128)
    prepared = job.prepare(job.train, lambda share: None)
    for method in methods:
        run(job, prepared, method, 1e-2, 10.0)


def report(
    args: argparse.Namespace, job: Job, methods: list[Method], runs: dict[str, list[Run]]
) -> None:
    """Print medians, and ratios to the times of the first method."""
    print(common.machine())
    print(
        f"\n{job.train.n:,} rows, d = {args.d} ({job.family.n_features:,} features), "
        f"C = {args.C:g}, budget {args.memory}, one core; seconds from prepared rows to a certified "
        "gap, median (lowest-highest)\n"
    )
    base = runs[methods[0].name]
    rows = []
    for method in methods:
        mine = runs[method.name]
        row = [method.words]
        for gap in GAPS:
            times = [r.reached[gap] for r in mine if gap in r.reached]
            if len(times) < len(mine):
                row.append(f"> {args.limit:g}")
                continue
            first = common.median([r.reached.get(gap, math.nan) for r in base])
            row.append(f"{common.spread(times)}, x {common.median(times) / first:.2f}")
        row += [
            f"{common.median([r.training / r.seconds for r in mine]):.0%}",
            f"{common.median([r.passes for r in mine]):g}",
            f"{common.median([r.objective for r in mine]):.4f}",
            f"{common.median([r.gap for r in mine]):.1e}",
            str(len(mine)),
        ]
        rows.append(row)
    gaps = [f"to gap {gap:g}" for gap in GAPS]
    print(common.table(("method", *gaps, "in the trainer", "passes", "P", "gap", "runs"), rows))


if __name__ == "__main__":
    main()
