"""Prices all positional patterns of K outputs, which share the reading and the search.

Up to LANES outputs are priced together: see :mod:`fcl.kernels.lanes`. Prices are those of
:class:`KmerPricer`, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays
from fcl.data.prepared import PreparedRows
from fcl.features.candidates import Heaps
from fcl.features.kmers.columns import Patterns
from fcl.features.kmers.pricing import KmerPricer, most_items, unknown_counts
from fcl.features.prices import PriceQuery, Prices, Progress, RowVector, only_watched
from fcl.features.run import run
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily
    from fcl.kernels.lanes import LaneItems

#: Longest patterns whose outputs share tables. The tables of longer ones leave the second-level cache of
#: a core, and filling them together is not faster.
MAX_LANE_D = 8
#: Fewer outputs than this are priced faster in turn, since unused lanes cost as much as used ones.
LEAST_LANES = 3


def lane_tables(family: KmerFamily) -> Arrays:
    """Tables of all lanes, workspace of a scan, and tables of one lane; empty without lanes."""
    cells = int(kernels.patterns.scan_size(family.d, 4)) if family.d <= MAX_LANE_D else 0
    return Arrays(("i8", kernels.lanes.LANES * cells, "all"), ("i8", cells, "one"))


def lane_items(most_unknown: int) -> Arrays:
    """The windows with unknown letters at a position."""
    values = kernels.lanes.LANES, most_unknown
    return Arrays(("u4", most_unknown, "code mask"), ("i8", values, "values"))


def lane_item_bytes(family: KmerFamily, prepared: PreparedRows) -> int:
    """Bytes that a :class:`LanePricer` needs for the unknown letters, beyond :func:`unknown_bytes`."""
    if family.d > MAX_LANE_D:
        return 0
    return lane_items(int(unknown_counts(family, prepared).max(initial=0))).nbytes


@dataclass
class _Outputs:
    """The outputs that are priced together; their queries differ only in the imbalance."""

    rows: Sequence[RowVector]
    heaps: Sequence[Heaps]  #: of each output; none if only the watched features are summed
    known: Ids  #: watched features, increasing
    patterns: Patterns  #: of these features
    units: npt.NDArray[np.int64]  #: (outputs, k), overwritten with their sums in steps


class LanePricer(KmerPricer):
    """Prices K outputs together; see :class:`KmerPricer`."""

    def __init__(self, family: KmerFamily, prepared: PreparedRows, keep: int) -> None:
        super().__init__(family, prepared, keep)
        self._cells, self._lane_cells = lane_tables(family).allocate().values()
        self._lane_flats = np.empty(
            (2, kernels.lanes.LANES * 5**kernels.patterns.FLAT_LETTERS), np.int64
        )
        most = int(self._unknown.max(initial=0))
        self._lane_items = kernels.lanes.LaneItems(**lane_items(most).allocate())
        #: of lanes without an output
        self._unused = Heaps(PriceQuery(range(0), find=False), 1, 1.0, family.integer_bound)

    def price_several(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """Price K outputs.

        queries : for each output; they differ only in the imbalance.
        rows : all in steps, or none.
        progress : called with the completed share, from 0 to 1.

        Returns what :func:`fcl.features.prices.run` returns for each output.
        """
        found: list[Prices] = []
        for at in range(0, len(rows), kernels.lanes.LANES):
            some = slice(at, at + kernels.lanes.LANES)
            n = len(rows[some])

            def share(done: float, at: int = at, n: int = n) -> None:
                progress((at + done * n) / len(rows))

            if n < LEAST_LANES:
                found += self._price_alone(queries[some], rows[some], blocks, share)
            else:
                found += self._price_lanes(queries[some], rows[some], blocks, share)
        return found

    def _price_alone(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """Price outputs in turn."""
        found = []
        for k, (query, own) in enumerate(zip(queries, rows, strict=True)):
            progress(k / len(rows))
            found.append(run(self, query, own, blocks))
        return found

    def _price_lanes(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """Price up to LANES outputs."""
        query = queries[0]
        order = self._own(query)
        known = query.watched[order]
        patterns, units = self.family.patterns(known), np.zeros((len(rows), len(known)), np.int64)
        heaps = []
        if query.find:
            heaps = [self._heaps(own, mine.step) for own, mine in zip(queries, rows, strict=True)]
        outputs = _Outputs(rows, heaps, known, patterns, units)
        positions = np.array(query.parts, np.int64)
        if not query.find:
            positions = np.intersect1d(positions, patterns.positions)
        for at, k in enumerate(positions.tolist()):
            progress(at / len(positions))
            n_items = self._fill_lanes(rows, k, blocks)
            many = n_items > most_items(self.family)
            price = self._price_apart if many else self._price_together
            price(outputs, at, k, n_items)
        watched = np.zeros((len(rows), len(query.watched)))
        watched[:, order] = units * np.array([[own.step] for own in rows])
        if not query.find:
            return [only_watched(own) for own in watched]
        n_priced = len(positions) * self.family.per_position
        return [
            replace(heap.prices(n_priced), watched=own)
            for heap, own in zip(heaps, watched, strict=True)
        ]

    def _fill_lanes(self, rows: Sequence[RowVector], k: int, blocks: range) -> int:
        """Fill the table of a position; returns the number of items."""
        d, n_items = self.family.d, 0
        padded = [*rows, *[rows[-1]] * (kernels.lanes.LANES - len(rows))]
        inverses = None if rows[0].inverse is None else np.array([own.inverse for own in padded])
        table = self._cells[: kernels.lanes.LANES * 4**d]
        table[:] = 0
        for number in blocks:
            block = self.family.block(self.prepared, number, slice(k, k + d))
            part = kernels.lanes.LaneRows(*(own.raw(block.rows) for own in padded))
            codes = self._buffers.codes
            kernels.lane_tables.add_to_lanes(block.planes, k, d, part, inverses, codes, table)
            if len(block.unknown_rows):
                into = self._buffers, table, n_items, self._lane_items
                n_items = kernels.lane_tables.take_unknown_lanes(block, k, d, part, inverses, *into)
        return int(n_items)

    def _price_together(self, outputs: _Outputs, at: int, k: int, n_items: int) -> None:
        """Price a position, the ``at``-th of the query, with few unknown letters."""
        own_items = self._lane_items
        mine = kernels.lanes.LaneItems(
            own_items.code[:n_items],
            own_items.mask[:n_items],
            np.ascontiguousarray(own_items.values[:, :n_items]),
        )
        here, cares, values = outputs.patterns.at(k)
        if len(cares):
            sums = np.empty((len(cares), kernels.lanes.LANES), np.int64)
            kernels.lane_tables.lane_pattern_sums(
                self._cells, mine, cares, values, self.family.d, sums
            )
            outputs.units[:, here] = sums[:, : len(outputs.rows)].T
        if not outputs.heaps:
            return
        d, each, known = self.family.d, self.family.per_position, outputs.known[here]
        wanted = [
            heaps.wanted(at, known, units)
            for heaps, units in zip(outputs.heaps, outputs.units[:, here], strict=True)
        ]
        unused = self._unused.wanted(0, known[:0], np.empty(0, np.int64))
        padded = kernels.lanes.LaneWanted(*wanted, *[unused] * (kernels.lanes.LANES - len(wanted)))
        kernels.lanes.scan_lanes(
            self._cells, d, mine, self._stack, k * each, self._lane_flats, padded
        )

    def _price_apart(self, outputs: _Outputs, at: int, k: int, n_items: int) -> None:
        """Price a position with many unknown letters, which each output scans by itself."""
        here, cares, values = outputs.patterns.at(k)
        n_cells, known = 4**self.family.d, outputs.known[here]
        for lane, units in enumerate(outputs.units[:, here]):
            self._lane_cells[:n_cells] = self._cells[
                lane : n_cells * kernels.lanes.LANES : kernels.lanes.LANES
            ]
            mine = _items_of(self._lane_items, lane, n_items)
            self._watched(self._lane_cells, mine, cares, values, units)
            if outputs.heaps:
                wanted = outputs.heaps[lane].wanted(at, known, units)
                self._scan(k, self._lane_cells, mine, wanted)


def _items_of(items: LaneItems, lane: int, n: int) -> kernels.patterns.Items:
    """The first of the items, with the values of a lane."""
    return kernels.patterns.Items(items.code[:n], items.mask[:n], items.values[lane, :n])
