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
from fcl.features.run import price_in_turn
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily

#: Longest patterns whose outputs share tables: whole softmax jobs over 3,000 and 20,000 windows then take
#: 0.83 to 0.93 of the time of outputs in turn (d = 4 and 6), 1.01 over 100,000; with d = 8 it is 1.01.
MAX_LANE_D = 6
#: Fewer outputs than this are priced faster in turn, since unused lanes cost as much as used ones.
LEAST_LANES = 3


def lane_tables(family: KmerFamily) -> Arrays:
    """Tables of all lanes and workspace of a scan; empty without lanes."""
    cells = int(kernels.patterns.scan_size(family.d, 4)) if family.d <= MAX_LANE_D else 0
    return Arrays(("i8", kernels.lanes.LANES * cells, "cells"))


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
        self._lane_cells = lane_tables(family).allocate()["cells"]
        self._lane_flats = np.empty(
            (2, kernels.lanes.LANES * 5**kernels.patterns.FLAT_LETTERS), np.int64
        )
        most = int(self._unknown.max(initial=0))
        self._lane_items = kernels.lanes.LaneItems(**lane_items(most).allocate())
        #: of lanes without an output
        self._unused = Heaps(PriceQuery(range(0), find=False), 1, 1.0, family.integer_bound)

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`; the rows of all outputs are in steps, or of none.

        Positions with many unknown letters are scanned with a fifth letter, output by output.
        """
        many = self._unknown[list(queries[0].parts)].max(initial=0) > most_items(self.family)
        found: list[Prices] = []
        for at in range(0, len(rows), kernels.lanes.LANES):
            some = slice(at, at + kernels.lanes.LANES)
            n = len(rows[some])

            def share(done: float, at: int = at, n: int = n) -> None:
                progress((at + done * n) / len(rows))

            if n < LEAST_LANES or many:
                found += price_in_turn(self, queries[some], rows[some], blocks, share)
            else:
                found += self._price_lanes(queries[some], rows[some], blocks, share)
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
            self._price_position(outputs, at, k, self._fill_lanes(rows, k, blocks))
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
        table = self._lane_cells[: kernels.lanes.LANES * 4**d]
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

    def _price_position(self, outputs: _Outputs, at: int, k: int, n_items: int) -> None:
        """Price a position, the ``at``-th of the query."""
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
                self._lane_cells, mine, cares, values, self.family.d, sums
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
            self._lane_cells, d, mine, self._stack, k * each, self._lane_flats, padded
        )
