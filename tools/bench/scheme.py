#!/usr/bin/env python3
"""The published scheme against exact pricing, on the same columns, cache and kernels.

    python tools/bench/scheme.py [--every 160] [--d 8] [--C 0.1] [--limit 120] [--cache 2000]

*The paper's* (Matsushima 2016): features are proposed at random and enter a bounded cache if they
violate the optimality condition; the trainer takes one random cached column at a time, a Newton step with
a line search; when the cache is full, random columns leave, their weights frozen. Writer and trainer
share a core by halves. It has no certificate: its gap is found afterwards, by fcl's pricing, and not
counted. *fcl*: the same objective by exact pricing and fcl's trainer, on the same core.

Prints seconds from prepared rows to an objective within so much of the optimum.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.cache import ColumnCache
from fcl.solve.state import Point
from fcl.solve.trainer import SIGMA
from tools.bench import common, newton
from tools.bench.trainers import make_solver

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import Job

#: Relative distances from the optimum that are timed.
LEVELS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)
#: Seconds of writer and trainer in turn, and columns between two steps on the intercept.
TURN = 0.1
TOGETHER = 64


@dataclass(frozen=True)
class Traced:
    """Objectives of a run over its seconds, and its last point."""

    trace: list[tuple[float, float]]
    point: Point
    gap: float
    words: str

    def to_objective(self, value: float) -> float | None:
        """When the objective was at most this."""
        return next((t for t, objective in self.trace if objective <= value), None)


class Published:
    """The scheme of the paper, for k-mers and the logistic loss."""

    def __init__(self, job: Job, prepared: PreparedRows, columns: int, seed: int) -> None:
        n = job.train.n
        self.job, self.objective = job, job.objective()
        self.random = np.random.default_rng(seed)
        self.maker = job.family.column_maker(prepared, job.plan.staging)
        block_rows = job.options.block_rows
        self.cache = ColumnCache(job.plan.cache_bytes, columns, n, block_rows)
        self.proposals = ColumnCache(
            2 * self.maker.batch * self.cache.largest, self.maker.batch, n, block_rows
        )
        self.m, self.u, self.r, self.q = (np.zeros(n) for _ in range(4))
        self.w, self.zeros = np.zeros(columns), np.zeros(columns)
        self.frozen: dict[int, float] = {}
        self.rows = np.empty(n, np.int32)
        self.out = np.empty(3)
        self.proposed = self.evicted = self.steps = 0
        self.b = self.objective.best_intercept(self.m, 0.0, 0.0, 0.0)
        self.m += self.b
        newton.refresh(self.objective.y, self.objective.s, self.m, self.u, self.r, self.q)

    def write(self, until: float) -> None:
        """Propose features at random, and admit those that violate."""
        C = self.objective.C
        while time.perf_counter() < until:
            ids = np.unique(self.random.integers(0, self.job.family.n_features, self.maker.batch))
            ids = ids[~np.isin(ids, self.cache.ids)]
            self.proposals.evict(np.zeros(self.proposals.n, bool))
            staged = self.proposals.measure(ids, self.maker.make(ids))
            self.proposed += len(ids)
            for t in range(len(ids)):
                self.proposals.admit(staged, t)
            for t, slot in enumerate(self.proposals.slots):
                g, _ = newton.column_moments(self.proposals.pieces, slot, self.r, self.q)
                weight = self.frozen.get(int(ids[t]), 0.0)
                violates = abs(C * g + np.sign(weight)) > 0.0 if weight else abs(C * g) > 1.0
                if violates:
                    self._admit(staged, t, weight)

    def _admit(self, staged: object, t: int, weight: float) -> None:
        cache = self.cache
        while not cache.admit(staged, t):  # type: ignore[arg-type]
            keep = np.ones(cache.n, bool)
            leaving = int(self.random.integers(cache.n))
            keep[leaving] = False
            if self.w[leaving]:
                self.frozen[int(cache.ids[leaving])] = float(self.w[leaving])
            self.w[: cache.n - 1] = self.w[: cache.n][keep]
            cache.evict(keep)
            self.evicted += 1
        self.frozen.pop(int(cache.ids[-1]), None)
        self.w[cache.n - 1] = weight

    def train(self, until: float) -> None:
        """Newton steps on random cached columns, one at a time."""
        o, cache = self.objective, self.cache
        while cache.n and time.perf_counter() < until:
            order = self.random.integers(0, cache.n, TOGETHER)
            newton.newton_sweep(
                *(cache.pieces, cache.slots, order, o.C, SIGMA, o.y, o.s),
                *(self.m, self.u, self.r, self.q, self.w, self.zeros, self.zeros, self.zeros),
                *(np.empty(TOGETHER), self.rows, self.out),
            )
            self.b += newton.move_intercept(o.y, o.s, self.m, self.u, self.r, self.q, 0.0, 0.0, 2.0)
            self.steps += TOGETHER

    def value(self) -> float:
        """The objective."""
        norm = np.abs(self.w[: self.cache.n]).sum() + sum(map(abs, self.frozen.values()))
        return float(norm) + self.objective.C * self.objective.loss_sum(self.m, 0.0)

    def point(self) -> Point:
        """Weights and intercept."""
        weights = {**self.frozen, **dict(zip(self.cache.ids.tolist(), self.w, strict=False))}
        ids = np.array(sorted(j for j, w in weights.items() if w), np.int64)
        return Point(ids, np.array([weights[int(j)] for j in ids]), self.b)


def published(job: Job, prepared: PreparedRows, columns: int, limit: float, seed: int) -> Traced:
    """Run the paper's scheme for so many seconds."""
    begun = time.perf_counter()
    scheme = Published(job, prepared, columns, seed)
    trace, idle, look = [], 0.0, 0.5
    while (now := time.perf_counter() - begun - idle) < limit:
        scheme.write(time.perf_counter() + TURN)
        scheme.train(time.perf_counter() + TURN)
        if now >= look:  # looking is not counted
            since = time.perf_counter()
            trace.append((since - begun - idle, scheme.value()))
            look = 1.05 * now + 0.1
            idle += time.perf_counter() - since
    point = scheme.point()
    solver = make_solver(job, prepared, 1e-3)
    solver.propose(point)
    words = f"{scheme.proposed:,} features proposed, {scheme.steps:,} steps, {scheme.evicted:,} evictions"
    return Traced(trace, point, solver.price().gap, words)


def exact(job: Job, prepared: PreparedRows, tol: float) -> Traced:
    """fcl on the same core."""
    begun = time.perf_counter()
    solver = make_solver(job, prepared, tol)
    trace, passes = [], 0
    while True:
        certified = solver.price()
        passes += 1
        trace.append((time.perf_counter() - begun, certified.objective))
        if certified.gap <= tol:
            return Traced(trace, solver.outer.point, certified.gap, f"{passes} passes")
        solver.admit()
        solver.train()
        solver.propose(solver.proposal())


def main() -> None:
    """Run both, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=160)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of the paper's scheme")
    parser.add_argument("--cache", type=int, default=2000, help="columns that its cache holds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    common.pin(args.core)
    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup

    warmup()
    data = common.open_rows(common.windows_folder(args.data), args.every)
    job = make_job(data, f"kmers:d={args.d}", C=args.C, tol=1e-7, memory="4GiB")
    prepared = job.prepare(job.train, None, lambda: None)
    published(job, prepared, args.cache, 1.0, args.seed)  # compiles
    optimum = exact(job, prepared, 1e-7).trace[-1][1]
    runs = {
        "fcl": exact(job, prepared, 1e-3),
        "the paper's scheme": published(job, prepared, args.cache, args.limit, args.seed),
    }
    print(common.machine())
    print(
        f"{job.train.n:,} rows, d = {args.d} ({job.family.n_features:,} features), C = {args.C:g}: "
        f"optimum {optimum:.6g}; one core\n"
    )
    rows = []
    for name, run in runs.items():
        last = run.trace[-1]
        cells = []
        for level in LEVELS:
            at = run.to_objective(optimum * (1.0 + level))
            cells.append(f"> {last[0]:.0f}" if at is None else f"{at:.3g}")
        rows.append(
            [name, *cells, f"{last[1]:.5g}", f"{run.gap:.1e}", len(run.point.ids), run.words]
        )
    header = [
        "",
        *(f"within {level:g}, s" for level in LEVELS),
        "objective",
        "gap",
        "active",
        "work",
    ]
    print(common.table(header, rows))


if __name__ == "__main__":
    main()
