"""The steps of a pass over shards on the workers, with the same numbers as in one process."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.rows import ClusterObjective, ClusterVectors, Shards, Vector
from fcl.features.base import Family, Ids
from fcl.features.prices import PriceQuery, Prices, RowVector, grid_step, merge_prices
from fcl.objective import block_sums
from fcl.solve.outputs import local_passes
from fcl.solve.passes import Passes
from fcl.solve.polish import MOST_ENTRIES
from fcl.solve.state import Floats, Point

__all__ = ["ClusterPasses", "bytes_of_sums", "is_by_rows"]


#: Groups of parts whose sums of all shards are added apart: each has a task for every shard.
MOST_GROUPS = 8
#: Largest number of bytes of the sums of a shard; larger ones are not sent, but the rows.
MOST_SUMS = 2 << 30


def bytes_of_sums(family: Family, block_rows: int) -> int:
    """Bytes of all sums over a shard; 0 if sums over shards cannot be added."""
    rows = tasks.empty_rows(family, block_rows)
    pricer: Any = family.pricer(rows, 1)
    if not hasattr(pricer, "requests"):
        return 0
    requests = pricer.requests(PriceQuery(range(pricer.n_parts)))
    nothing = RowVector(np.empty(0), 1.0)
    one = pricer.accumulate(requests[0], nothing, range(0), lambda share: None)
    return tasks.size_of(one) * len(requests)


def is_by_rows(family: Family, block_rows: int) -> bool:
    """Whether to price a family by rows, not by features."""
    return 0 < bytes_of_sums(family, block_rows) <= MOST_SUMS


class ClusterPasses(Passes):
    """The steps of a pass over shards.

    Margins, residuals and curvatures stay on the workers. A family whose sums are integers is priced by
    rows: each shard makes the sums of a group of parts, and one task a group adds and scans them. Other
    families are priced by features: a task has all rows, and prices a group of parts.

    Parameters
    ----------
    objective : Objective
        Over all rows.
    family : Family
    shards : Shards
    """

    objective: ClusterObjective
    vectors: ClusterVectors

    def __init__(self, objective: Any, family: Family, shards: Shards) -> None:
        nothing = tasks.empty_rows(family, objective.block_rows)
        over = ClusterObjective.of(objective, shards)
        super().__init__(over, family, nothing, ClusterVectors())
        self.shards = shards
        self.cluster = shards.cluster
        self.by_rows = is_by_rows(family, objective.block_rows)
        self._family = self.cluster.submit(tasks.identity, family)
        self._step = 0.0  # of the last residuals
        self._here: PreparedRows | None = None
        #: bytes of sums that workers have sent each other or made for themselves
        self.moved = 0
        #: workers, and all their threads; affects speed only
        self.workers = self.threads = 1

    # -- rows in this process ------------------------------------------------------------------

    def rows_here(self) -> PreparedRows:
        """All prepared rows; for few rows, or a trainer that works on all."""
        if self._here is None:
            (whole,) = self.cluster.gather([self.shards.all_rows()])
            self._here = whole.rows
        return self._here

    def select(self, rows: Ids, chosen: PreparedRows) -> None:
        picked = self.shards.picked(rows)
        every = np.arange(len(rows))
        for number in range(chosen.n_blocks):
            self.family.select(picked, every, chosen, number)

    def near(self) -> Passes:
        """The same steps in this process for few rows; for more rows nothing would use them."""
        objective, vectors = self.objective, self.vectors
        if objective.n_rows > MOST_ENTRIES:
            return self
        here = objective.over(objective.y, objective.s, None)
        near = local_passes(here, self.family, self.rows_here())
        near.vectors.accepted[:] = vectors.accepted
        near.vectors.residuals[:] = vectors.residuals
        near.vectors.curvatures[:] = vectors.curvatures
        return near

    # -- the steps -----------------------------------------------------------------------------

    def _start(self) -> Vector:
        start = self.shards.map(tasks.start_margins)
        self.vectors.margins[self.vectors.anchor] = start
        return start

    def write_margins(self, point: Point, blocks: range) -> None:
        literal = self.cluster.submit(tasks.identity, point)
        made = self.shards.map(tasks.margins, literal)
        self.vectors.margins[1 - self.vectors.anchor] = made

    def _step_to(self, proposed: Point) -> Vector:
        new: Any = self.vectors.proposed
        old: Any = self.vectors.accepted
        pairs = zip(new.futures, old.futures, strict=True)
        return Vector(self.shards, [self.cluster.submit(tasks.subtract, *pair) for pair in pairs])

    def write_residuals(self, b: float, blocks: range, loss: float = math.inf) -> None:
        """Residuals and curvatures at the anchor, with the sums that the next steps need."""
        made = self.shards.map(tasks.residuals, self.vectors.accepted, b)
        r, q = made.at(0), made.at(1)
        self.vectors.residuals, self.vectors.curvatures = r, q
        sums: list[Any] = [(block_sums.sides, [r], ())]
        sums += [(block_sums.total, [values], ()) for values in (r, q)]
        if self._step:  # the grid is most often that of the last pass
            sums.append((block_sums.sides, [r.on_grid(self._step)], ()))
        self.objective.fetch(sums)

    def _on_grid(self, values: Any, total: float, bound: float, units: Any = None) -> Any:
        step = grid_step(total, bound)
        if values is self.vectors.residuals:
            self._step = step
        return values.on_grid(step)

    # -- prices --------------------------------------------------------------------------------

    def _run(self, query: PriceQuery, rows: Any) -> Prices:
        vector = None if isinstance(rows, RowVector) else rows  # ones need no vector
        where = tasks.Where(None, 1.0) if vector is None else vector.where
        n = min(self.workers, MOST_GROUPS) if self.by_rows else self.threads
        groups = _groups(query.parts, n)
        literal = self.cluster.submit(tasks.identity, query)
        price = self._by_rows if self.by_rows else self._by_features
        futures = [price(query, literal, parts, vector, where) for parts in groups]
        found = self.cluster.gather(futures, self.on_progress)
        self.moved += sum(size for _, size in found)
        return merge_prices([prices for prices, _ in found])

    def _by_rows(
        self, query: PriceQuery, literal: Any, parts: range, vector: Any, where: tasks.Where
    ) -> Any:
        requests = self.pricer.requests(query.of_parts(parts))  # type: ignore[attr-defined]
        sums = []
        for k, shard in enumerate(self.shards.futures if requests else []):
            own = None if vector is None else vector.futures[k]
            sums.append(self.cluster.submit(tasks.tables, shard, own, where, requests, self.listed))
        size = self.objective.block_rows
        fixed = self._family, size, literal, parts, self.listed, where.step
        return self.cluster.submit(tasks.scan, *fixed, sums)

    def _by_features(
        self, query: PriceQuery, literal: Any, parts: range, vector: Any, where: tasks.Where
    ) -> Any:
        every = None
        if vector is not None:
            every = self.cluster.submit(tasks.whole, vector.futures, where)
        at = tasks.Where(None, where.step)
        rows = self.shards.all_rows()
        return self.cluster.submit(tasks.price, rows, every, at, literal, parts, self.listed)

    def _sums(self, ids: Ids, rows: Any, power: int, parts: range | None = None) -> Floats:
        query = PriceQuery(parts or self.parts, ids, find=False, power=power)
        return self._run(query, rows).watched


def _groups(parts: range, n: int) -> list[range]:
    """The parts in about n groups of equal size, in order."""
    n = max(1, min(n, len(parts)))
    ends = [parts.start + len(parts) * k // n for k in range(n + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
