"""A family over an explicit matrix of floats, and the solver's loop without a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from judge import Problem, Solution, confirm

from fcl.cache import ColumnCache
from fcl.data.prepared import PreparedRows
from fcl.features.base import Columns, DenseColumns, Family
from fcl.features.candidates import Collector
from fcl.features.generator.trial import take
from fcl.features.prices import BlockSums, PriceQuery, RowVector, Scan, only_watched
from fcl.objective import Penalty, SingleOutput, find_loss
from fcl.parallel import SERIAL, Team
from fcl.solve.passes import local_passes
from fcl.solve.solver import Certified, Solver
from fcl.solve.view import RowView
from tests.columns import broken_invariants


@dataclass(frozen=True)
class ExplicitFamily:
    """The columns of a matrix (n, p) whose values are exact in float32."""

    n_features: int
    max_abs: float
    binary: bool = False
    step: float = 0.0
    n_price_parts: int = 1
    name: str = "matrix"
    verifies_columns: bool = True
    lists_columns: bool = False
    quick_passes: bool = True
    integer_bound: float = 0.0
    thread_safe: bool = True
    factors: tuple[float, ...] = ()  #: of the features in the penalty; none: 1

    def penalty_factors(self, ids: np.ndarray) -> np.ndarray:
        return np.array(self.factors)[ids] if self.factors else np.ones(len(ids))

    def rounds_weights(self, n_rows: int) -> bool:
        return False

    def user_class(self, feature: int) -> str:
        return self.name

    def features_in_pass(self, number: int) -> range:
        return range(self.n_features)

    def describe(self, feature: int) -> str:
        return f"column {feature}"

    def to_config(self) -> dict[str, Any]:
        return {}

    def read_rows(self, rows: Any, block_rows: int, keep: Any = None) -> Iterator[Any]:
        raise AssertionError("tests prepare rows themselves")

    def check_rows(self, rows: Any) -> None:
        raise AssertionError("tests prepare rows themselves")

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (self.n_features, 4 * block_rows)

    def prepare(self, raw: np.ndarray, record: np.ndarray, block_rows: int) -> Sequence[np.ndarray]:
        record.view(np.float32)[:, : len(raw)] = raw.T
        return ()

    def block(self, prepared: PreparedRows, number: int) -> np.ndarray:
        """float32 (p, rows of the block)."""
        rows = prepared.rows_of(number)
        return prepared.read(number)[0].view(np.float32)[:, : rows.stop - rows.start]

    def select(
        self, prepared: PreparedRows, rows: np.ndarray, chosen: PreparedRows, number: int
    ) -> None:
        raw = np.concatenate([self.block(prepared, b).T for b in range(prepared.n_blocks)])
        part = np.ascontiguousarray(raw[rows[chosen.rows_of(number)]])
        sides = self.prepare(part, chosen.writable(number), chosen.block_rows)
        chosen.commit(number, sides)

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: np.ndarray,
        weights: np.ndarray,
        out: np.ndarray,
        blocks: range | None = None,
    ) -> None:
        for number in blocks or range(prepared.n_blocks):
            rows = prepared.rows_of(number)
            out[rows] = weights @ self.block(prepared, number)[ids].astype(np.float64)

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> ExplicitPricer:
        return ExplicitPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ExplicitColumns:
        return ExplicitColumns(self, prepared)

    def scorer(self, ids: np.ndarray, weights: np.ndarray) -> Any:
        raise AssertionError("not needed here")

    def workspace_bytes(self, block_rows: int, scratch: bool = False) -> int:
        return 0


@dataclass(frozen=True)
class ExplicitPricer:
    family: ExplicitFamily
    prepared: PreparedRows
    keep: int

    n_parts: int = 1

    def accumulate(self, request: int, rows: RowVector, blocks: range, progress: Any) -> BlockSums:
        out = BlockSums()
        for number in blocks:
            values = self.family.block(self.prepared, number).astype(np.float64) ** request
            out.add(number, values @ rows[self.prepared.rows_of(number)])
        return out

    def merge(self, sums: BlockSums, more: BlockSums) -> BlockSums:
        return sums.merge(more)

    def scan(self, query: PriceQuery, step: float) -> Scan:
        assert query.parts == range(1)
        g = (yield query.power, 0.0, 1.0).total
        if not query.find:
            return only_watched(g[query.watched])
        f = self.family.penalty_factors(np.arange(len(g)))
        found = Collector(query, self.keep)
        hits = found.observe(g, f, self.family.max_abs)
        found.add(hits, g[hits], f[hits])
        return found.prices(len(g), g[query.watched])


@dataclass(frozen=True)
class ExplicitColumns:
    family: ExplicitFamily
    prepared: PreparedRows
    batch: int = 7

    def order(self, ids: np.ndarray) -> np.ndarray:
        return np.argsort(ids)

    def make(self, ids: np.ndarray) -> Sequence[Columns]:
        parts = [
            self.family.block(self.prepared, b)[ids].copy() for b in range(self.prepared.n_blocks)
        ]
        return [DenseColumns(part, part.shape[1]) for part in parts]


def explicit_family(phi: np.ndarray, factors: np.ndarray | None = None) -> ExplicitFamily:
    """The family of a matrix; rejects a matrix that float32 would round."""
    assert (phi == phi.astype(np.float32)).all(), "the test's matrix is not exact in float32"
    f = () if factors is None else tuple(factors.tolist())
    return ExplicitFamily(phi.shape[1], float(np.abs(phi).max()), factors=f)


def prepare(
    family: Family, raw: np.ndarray, block_rows: int = 256, scratch: Path | None = None
) -> PreparedRows:
    """Prepare rows in memory or in a scratch file."""
    prepared = PreparedRows(len(raw), block_rows, family.record_shape(block_rows), scratch)
    for number, rows in prepared.blocks():
        block = take(raw, np.arange(rows.start, rows.stop))
        sides = family.prepare(block, prepared.writable(number), block_rows)
        prepared.commit(number, sides)
    return prepared


def select_rows(
    family: Family, prepared: PreparedRows, rows: np.ndarray, block_rows: int | None = None
) -> PreparedRows:
    """Select some rows of prepared rows."""
    size = block_rows or prepared.block_rows
    chosen = PreparedRows(len(rows), size, family.record_shape(size))
    for number, _ in chosen.blocks():
        family.select(prepared, rows, chosen, number)
    return chosen


def objective_of(problem: Problem, block_rows: int = 256) -> SingleOutput:
    """fcl's objective of the same problem."""
    return SingleOutput(
        *(find_loss(problem.loss), problem.y, problem.s, problem.C, problem.intercept, block_rows),
        penalty=Penalty(problem.rho),
    )


def make_solver(
    family: Family,
    raw: np.ndarray,
    problem: Problem,
    *,
    tol: float = 1e-9,
    block_rows: int = 256,
    capacity: int | None = None,
    max_columns: int = 4096,
    seed: int = 0,
    scratch: Path | None = None,
    sample: tuple[np.ndarray, np.ndarray] | None = None,
    team: Team = SERIAL,
) -> Solver:
    """Make a solver over raw rows; capacity : bytes of the cache; sample : rows and probabilities."""
    prepared = prepare(family, raw, block_rows, scratch)
    objective = replace(objective_of(problem, block_rows), team=team)
    view = view_rows = None
    if sample:
        rows, inclusion = sample
        part = replace(objective, y=objective.y[rows], s=objective.s[rows] / inclusion)
        view, view_rows = RowView(rows, part), select_rows(family, prepared, rows)
    n = len(sample[0]) if sample else len(raw)
    cache = ColumnCache(capacity or 1 << 24, max_columns, n, block_rows, family.binary, family.step)
    return Solver(
        local_passes(objective, family, prepared),
        cache,
        tol=tol,
        entries=1 << 22,
        staging=1 << 16,
        seed=seed,
        view=view,
        view_rows=view_rows,
    )


def run(
    solver: Solver, most: int = 100, watch: Callable[[Solver, Certified], None] | None = None
) -> list[Certified]:
    """Make the steps of the inline driver, until the tolerance or ``most`` passes."""
    passes = []
    while True:
        passes.append(solver.price())
        if watch:
            watch(solver, passes[-1])
        if passes[-1].gap <= solver.outer.tol or len(passes) == most:
            return passes
        solver.admit()
        assert broken_invariants(solver.cache) == []
        solver.train()
        solver.propose(solver.proposal())


def reach_the_optimum(
    solver: Solver, problem: Problem, most: int = 100, best: Solution | None = None
) -> list[Certified]:
    """Run to the tolerance: no pass raises the objective, and the judge confirms the last one."""
    passes = run(solver, most)
    last = passes[-1]
    assert last.gap <= solver.outer.tol, f"gap {last.gap:.1e} after {len(passes)} passes"
    objectives = [found.objective for found in passes]
    assert objectives == sorted(objectives, reverse=True)
    best = problem.solve(1e-8) if best is None else best
    confirm(problem, dense_weights(solver), solver.outer.point.intercept, last, best)
    return passes


def dense_weights(solver: Solver) -> np.ndarray:
    """The anchor's weights as a vector over the whole family."""
    w = np.zeros(solver.family.n_features)
    w[solver.outer.point.ids] = solver.outer.point.weights
    return w
