"""The steps of a pass over shards on the workers, with the same numbers as in one process."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.rows import ClusterObjective, ClusterVectors, Shards, Vector
from fcl.features.base import Family
from fcl.features.prices import (
    PriceQuery,
    Prices,
    RowVector,
    in_units,
    merge_prices,
    only_watched,
)
from fcl.objective import block_sums
from fcl.solve.passes import Passes, local_passes
from fcl.solve.polish import MOST_ENTRIES
from fcl.solve.state import Point
from fcl.types import Ids

#: Groups of parts that workers scan side by side: each has a task for every worker.
MOST_GROUPS = 8
#: Bytes of the sums that the threads of a worker make at a time, unless a family has only one table.
SUMS_AT_ONCE = 512 << 20
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
    rows. Each worker adds up the sums over its shards, one after another on each of its threads; then one
    task for each group of parts adds the sums of all workers, and scans them. Which worker has which
    shards, and the order of these additions, thus change no bit. Other families are priced by features: a
    task has all rows, and prices a group of parts.

    objective : over all rows.
    """

    objective: ClusterObjective
    vectors: ClusterVectors

    def __init__(self, objective: Any, family: Family, shards: Shards) -> None:
        nothing = tasks.empty_rows(family, objective.block_rows)
        over = ClusterObjective.of(objective, shards)
        super().__init__(over, family, nothing, ClusterVectors())
        self.shards = shards
        self.cluster = shards.cluster
        self.sums = bytes_of_sums(family, objective.block_rows)
        self.by_rows = is_by_rows(family, objective.block_rows)
        self._family = self.cluster.submit(tasks.identity, family)
        self._step = 0.0  # of the last residuals
        self._here: PreparedRows | None = None
        #: bytes of sums that workers have sent each other or made for themselves
        self.moved = 0
        #: threads of each worker by address; affects speed only
        self.threads: dict[str, int] = {}

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
        near = local_passes(objective.here(), self.family, self.rows_here())
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
        pairs = list(zip(new.futures, old.futures, strict=True))
        return Vector(self.shards, self.cluster.submit_all(tasks.subtract, pairs))

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

    def _on_grid(self, values: Any, step: Any, units: Any = None) -> Any:
        if values is self.vectors.residuals:
            self._step = float(step)
        return values.on_grid(float(step))

    # -- prices --------------------------------------------------------------------------------

    def _run(self, query: PriceQuery, rows: Any) -> Prices:
        vector = None if isinstance(rows, RowVector) else rows  # ones need no vector
        where = tasks.Where(None, 1.0) if vector is None else vector.where
        literal = self.cluster.submit(tasks.identity, query)
        if self.by_rows and not query.find:
            made = self.shards.each(tasks.watched, vector, where, literal, self.listed)
            units = sum(self.cluster.gather(made, self.on_progress))
            return only_watched(in_units(units, where.step))
        price = self._by_rows if self.by_rows else self._by_features
        found = price(query, literal, vector, where)
        self.moved += sum(size for _, size in found)
        return merge_prices([prices for prices, _ in found])

    def _by_rows(
        self, query: PriceQuery, literal: Any, vector: Any, where: tasks.Where
    ) -> list[tuple[Prices, int]]:
        pricer: Any = self.pricer
        divisible = len(pricer.requests(query)) > 1
        chains = self._chains()
        at_once = self.sums * max(map(len, chains))
        slices = _groups(query.parts, -(-at_once // SUMS_AT_ONCE) if divisible else 1)
        found = []
        for number, some in enumerate(slices):
            groups = _groups(some, min(len(chains), MOST_GROUPS) if divisible else 1)
            requests = [pricer.requests(query.of_parts(parts)) for parts in groups]
            ends = self._accumulate(chains, vector, where, requests)
            fixed = self._family, self.objective.block_rows
            if len(chains) > 1:
                calls = [(*fixed, g, own) for g in range(len(groups)) for own in ends]
                added = self.cluster.submit_all(tasks.add_group, calls)
                by_group = [added[g * len(ends) : (g + 1) * len(ends)] for g in range(len(groups))]
            else:
                by_group = ends
            scans = self.cluster.submit_all(
                tasks.scan,
                [
                    (*fixed, literal, parts, self.listed, where.step, own)
                    for parts, own in zip(groups, by_group, strict=True)
                ],
            )

            def progress(share: float, done: int = number) -> None:
                self.on_progress((done + share) / len(slices))

            found += self.cluster.gather(scans, progress)
        return found

    def _accumulate(
        self, chains: list[list[list[int]]], vector: Any, where: tasks.Where, requests: Any
    ) -> list[list[Any]]:
        """Futures of the sums over the shards of each chain, by worker."""
        asked = self.cluster.submit(tasks.identity, requests)
        every = [chain for own in chains for chain in own]
        sums: list[Any] = [None] * len(every)
        for at in range(max(map(len, every))):
            going = [c for c, chain in enumerate(every) if at < len(chain)]
            calls = []
            for c in going:
                k = every[c][at]
                own = None if vector is None else vector.futures[k]
                calls.append((self.shards.futures[k], own, where, asked, self.listed, sums[c]))
            for c, made in zip(going, self.cluster.submit_all(tasks.tables, calls), strict=True):
                sums[c] = made
        ends = iter(sums)
        return [[next(ends) for _ in own] for own in chains]

    def _chains(self) -> list[list[list[int]]]:
        """The shards that each worker has, in one chain for each of its threads."""
        held: dict[str | None, list[int]] = defaultdict(list)
        for k, address in enumerate(self.cluster.where(self.shards.futures)):
            held[address].append(k)
        chains = []
        for address, own in held.items():
            n = min(len(own), self.threads.get(address or "", len(own)))  # lost shards: one each
            chains.append([own[c::n] for c in range(n)])
        return chains

    def _by_features(
        self, query: PriceQuery, literal: Any, vector: Any, where: tasks.Where
    ) -> list[tuple[Prices, int]]:
        every = None
        if vector is not None:
            every = self.cluster.submit(tasks.whole, vector.futures, where)
        at = tasks.Where(None, where.step)
        rows = self.shards.all_rows()
        groups = _groups(query.parts, sum(self.threads.values()))
        calls = [(rows, every, at, literal, parts, self.listed) for parts in groups]
        found: list[tuple[Prices, int]] = self.cluster.gather(
            self.cluster.submit_all(tasks.price, calls), self.on_progress
        )
        return found


def _groups(parts: range, n: int) -> list[range]:
    """The parts in about n groups of equal size, in order."""
    n = max(1, min(n, len(parts)))
    ends = [parts.start + len(parts) * k // n for k in range(n + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
