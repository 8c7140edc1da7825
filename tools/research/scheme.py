#!/usr/bin/env python3
"""Compare the published scheme with exact pricing, and random with ordered eviction.

    python tools/research/scheme.py [--every 160] [--d 8] [--C 0.1] [--limit 40] [--cache 500]

*The paper's scheme* (Matsushima 2016): features are proposed at random, priced in batches (all of one
position together, so that its letters are read once), and enter a bounded cache if they violate the
optimality condition. The trainer takes one random cached column at a time, and makes a Newton step with a
line search. When the cache is full, random columns are evicted, and their weights frozen. The writer has
four fifths of the core, since the scheme lacks proposals, and the trainer has the rest. The scheme has no
certificate: fcl's pricing computes its gap afterwards, which is not timed. *fcl* minimises the same
objective with exact pricing and its own trainer, on the same core.

Both are run again with the other eviction: the scheme with the order of :mod:`fcl.cache.policy`, and fcl
with a cache of half as many columns, which is smaller than the optimum's, in its own and in random order.

Prints processor seconds from prepared rows to an objective within several distances of the optimum, and
the work.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.cache import ColumnCache, StagedColumns, evict_order
from fcl.features.base import BitColumns
from fcl.kernels import kernel
from fcl.kernels.bits import trailing_zeros
from fcl.solve.line import SIGMA
from fcl.solve.state import Columns, Floats, Point
from tools.bench import common
from tools.research import newton
from tools.research.trainers import make_solver

if TYPE_CHECKING:
    from fcl.data.prepared import PreparedRows
    from fcl.drivers.job import Job
    from fcl.features.base import Ids

#: Relative distances from the optimum that are timed.
LEVELS = (1.0, 0.3, 0.1, 0.03, 0.01, 1e-3)
#: Seconds for which writer and trainer work in turn.
WRITING, TRAINING = 0.2, 0.05
#: Columns between two steps on the intercept, and most columns admitted at once.
TOGETHER = 64
#: Features priced at a time, and drawn at a time: some hundreds at each position.
BATCH, ROUND = 1024, 1 << 15
#: Most passes of fcl.
MOST_PASSES = 200


@dataclass(frozen=True)
class Traced:
    """Objectives of a run over time, and its last point."""

    trace: list[tuple[float, float]]
    point: Point
    gap: float
    words: str

    def to_objective(self, value: float) -> float | None:
        """Seconds until the objective was at most a value; None if it never was."""
        return next((t for t, objective in self.trace if objective <= value), None)


@kernel
def add_sums(bits: Any, r: Any, out: Any) -> None:
    """Add the sum of r over the rows of each column of a block to out.

    bits : uint64 (c, >= ceil(len(r) / 64)).
    """
    for t in range(bits.shape[0]):
        total = 0.0
        for w in range((r.shape[0] + 63) >> 6):
            word = bits[t, w]
            while word != 0:
                total += r[64 * w + np.int64(trailing_zeros(word))]
                word &= word - np.uint64(1)
        out[t] += total


class Published:
    """The scheme of the paper, for k-mers and the logistic loss."""

    def __init__(
        self, job: Job, prepared: PreparedRows, columns: int, seed: int, ordered: bool
    ) -> None:
        self.ordered = ordered
        n, block_rows = job.train.n, job.options.block_rows
        self.job, self.prepared, self.objective = job, prepared, job.objective()
        self.random = np.random.default_rng(seed)
        self.proposals = self._propose()
        largest = ColumnCache.largest_column(n, block_rows)
        self.cache = ColumnCache(columns * largest, columns, n, block_rows)
        self.maker = job.family.column_maker(prepared, BATCH * largest)
        self.m, self.u, self.rq = np.zeros(n), np.zeros(n), np.zeros((n, 2))
        self.w, self.zeros = np.zeros(columns), np.zeros(columns)
        self.frozen: dict[int, float] = {}
        self.rows = np.empty(n, np.int32)
        self.out = np.empty(3)
        self.proposed = self.admitted = self.evicted = self.steps = 0
        self.b = self.objective.best_intercept(self.m, 0.0, 0.0, 0.0)
        self.m += self.b
        newton.refresh(self.objective.y, self.objective.s, self.m, self.u, self.rq)

    def _propose(self) -> Iterator[Ids]:
        """Yield batches of random features forever; the ids of a batch increase."""
        n_features = self.job.family.n_features
        while True:
            ids = np.unique(self.random.integers(0, n_features, min(ROUND, n_features)))
            batches = np.array_split(ids, -(-len(ids) // self.maker.batch))
            for number in self.random.permutation(len(batches)):
                yield batches[number]

    def write(self, until: float) -> None:
        """Price features at random, and admit those that violate."""
        while time.process_time() < until:
            ids = next(self.proposals)
            ids = ids[~np.isin(ids, self.cache.ids)]
            if not len(ids):
                continue
            made = self.maker.make(ids)
            gradients = np.zeros(len(ids))
            for number, block in enumerate(made):
                assert isinstance(block, BitColumns)
                add_sums(block.bits, self.rq[self.prepared.rows_of(number), 0], gradients)
            self.proposed += len(ids)
            violate = np.abs(self.objective.C * gradients) > 1.0
            if self.frozen:  # a frozen weight is hardly ever optimal
                violate |= np.isin(ids, np.fromiter(self.frozen, np.int64))
            chosen = np.flatnonzero(violate)
            for at in range(0, len(chosen), TOGETHER):
                part = chosen[at : at + TOGETHER][: self.cache.max_columns]
                blocks = [BitColumns(b.bits[part], b.n_rows) for b in made]  # type: ignore[union-attr]
                self._admit(self.cache.measure(ids[part], blocks))

    def _admit(self, staged: StagedColumns) -> None:
        """Admit columns; evict others for lack of room, and freeze their weights."""
        cache, count = self.cache, len(staged.ids)
        leaving = cache.n + count - cache.max_columns
        if leaving > 0:
            keep = np.ones(cache.n, bool)
            if self.ordered:
                keep[self._order()[:leaving]] = False
            else:
                keep[self.random.choice(cache.n, leaving, replace=False)] = False
            for number in np.flatnonzero(~keep & (self.w[: cache.n] != 0.0)):
                self.frozen[int(cache.ids[number])] = float(self.w[number])
            kept = self.w[: cache.n][keep]
            cache.evict(keep)
            self.w[: cache.n] = kept
            self.evicted += leaving
        for t, feature in enumerate(staged.ids.tolist()):
            admitted = cache.admit(staged, t)
            assert admitted
            self.w[cache.n - 1] = self.frozen.pop(feature, 0.0)
        self.admitted += count

    def _order(self) -> Columns:
        """The cached columns, the most dispensable first, by their gradients at the current point."""
        cache, penalty = self.cache, self.objective.penalty
        moments = (newton.column_moments(cache.pieces, j, self.rq) for j in cache.slots[: cache.n])
        prices = self.objective.C * np.array([g for g, *_ in moments])
        given = (prices, self.w[: cache.n], np.ones(cache.n))
        violations = penalty.violations(*given)
        seen = np.ones(cache.n, bool)
        return evict_order(given[1], penalty.slopes(*given), violations, seen)

    def train(self, until: float) -> None:
        """Make Newton steps on random cached columns, one at a time."""
        o, cache = self.objective, self.cache
        while cache.n and time.process_time() < until:
            order = self.random.integers(0, cache.n, TOGETHER)
            newton.newton_sweep(
                *(cache.pieces, cache.slots, order, o.C, SIGMA, o.y, o.s),
                *(self.m, self.u, self.rq, self.w, self.zeros, self.zeros, self.zeros),
                *(np.empty(TOGETHER), self.rows, self.out),
            )
            self.b += newton.move_intercept(o.y, o.s, self.m, self.u, self.rq, 0.0, 0.0, 2.0)
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


def published(
    job: Job, prepared: PreparedRows, columns: int, limit: float, seed: int, ordered: bool = False
) -> Traced:
    """Run the paper's scheme for ``limit`` seconds."""
    begun = time.process_time()
    scheme = Published(job, prepared, columns, seed, ordered)
    trace, idle, look = [], 0.0, 0.5
    while (now := time.process_time() - begun - idle) < limit:
        scheme.write(time.process_time() + WRITING)
        scheme.train(time.process_time() + TRAINING)
        if now >= look:  # computing the objective is not timed
            since = time.process_time()
            trace.append((since - begun - idle, scheme.value()))
            look = 1.05 * now + 0.1
            idle += time.process_time() - since
    point = scheme.point()
    solver = make_solver(job, prepared, 1e-3)
    solver.propose(point)
    share = scheme.proposed / job.family.n_features
    words = (
        f"{scheme.proposed:,} features proposed ({share:.2g} of all), {scheme.admitted:,} admitted, "
        f"{scheme.evicted:,} evictions, {scheme.steps:,} steps"
    )
    return Traced(trace, point, solver.price().gap, words)


def exact(
    job: Job, prepared: PreparedRows, tol: float, columns: int = 0, shuffled: int | None = None
) -> Traced:
    """Run fcl on the same core.

    columns : of its cache, if not 0
    shuffled : seed of a random order of eviction; None for fcl's own
    """
    from fcl.solve import local

    begun = time.process_time()
    solver = make_solver(job, prepared, tol, columns)
    trace, passes, evicted, admitted = [], 0, 0, 0
    random = np.random.default_rng(shuffled)

    def in_random_order(w: Floats, slopes: Floats, violations: Floats, seen: Any) -> Columns:
        return random.permutation(np.flatnonzero(seen))

    own = {} if shuffled is None else {"evict_order": in_random_order}
    with common.constants(local, **own):
        while True:
            certified = solver.price()
            passes += 1
            trace.append((time.process_time() - begun, certified.objective))
            if certified.gap <= tol or passes == MOST_PASSES:
                words = f"{passes} passes, {admitted:,} admitted, {evicted:,} evicted"
                return Traced(trace, solver.outer.point, certified.gap, words)
            before = solver.cache.n
            left = solver.admit()
            evicted += left
            admitted += solver.cache.n - before + left
            solver.train()
            solver.propose(solver.proposal())


def main() -> None:
    """Run both, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=160)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--limit", type=float, default=40.0, help="seconds of the paper's scheme")
    parser.add_argument("--cache", type=int, default=500, help="columns that its cache holds")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    common.pin(args.core)
    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup

    warmup(["sequences"])
    data = common.open_rows(common.windows_folder(args.data), args.every)
    job = make_job(data, f"kmers:d={args.d}", C=args.C, tol=1e-7, memory="4GiB")
    prepared = job.prepare(job.train, lambda share: None)
    published(job, prepared, 20, 1.0, args.seed, True)  # compiles
    optimum = exact(job, prepared, 1e-7).trace[-1][1]
    half, scheme = args.cache // 2, partial(published, job, prepared, args.cache, args.limit)
    runs = {
        "fcl": exact(job, prepared, 1e-3),
        f"fcl, {half} columns, ordered": exact(job, prepared, 1e-3, half),
        f"fcl, {half} columns, random": exact(job, prepared, 1e-3, half, args.seed),
        f"the paper's scheme, {args.cache} columns, random": scheme(args.seed),
        f"the paper's scheme, {args.cache} columns, ordered": scheme(args.seed, True),
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
