"""Prices all patterns anywhere in the window exactly, from one table of residuals by code."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays
from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError
from fcl.features.bag.columns import BagColumns, by_span, code_tables, row_buffers, spans
from fcl.features.candidates import Collector
from fcl.features.prices import (
    PriceQuery,
    Progress,
    RowVector,
    Scan,
    in_units,
    merge_prices,
    only_watched,
    within,
)
from fcl.features.windows import window_buffers
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily
    from fcl.kernels.kmers import WindowBlock

#: Largest number of parts, which are ranges of ids; one table prices all of them.
MOST_PARTS = 32
#: Bytes of the columns that are made at a time for sums of squares.
SQUARE_BYTES = 16 << 20


def pricing_bytes(family: BagFamily) -> int:
    """Bytes of the tables of a pricer, and of the arrays for the sums of one part."""
    if family.searched:  # its lists depend on the rows
        return 0
    squares = SQUARE_BYTES if family.wildcards else 0
    part = 40 * -(-family.n_features // family.n_price_parts)
    return pricing_tables(family).nbytes + squares + part


def pricing_tables(family: BagFamily) -> Arrays:
    """The tables of a pricer; without wildcards, stamps are also the slots of watched features."""
    return code_tables(family, "i8", stamped=not family.wildcards)


Units = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Squares:
    """A request for sum_i v_i phi_ij^2, or for the sum of v_i over the rows where phi_ij is not 0.

    ids : features, increasing.
    squared : whether sums of squares are requested.
    """

    ids: Ids
    squared: bool


class BagPricer:
    """Prices all patterns exactly; see :class:`fcl.features.prices.Pricer`.

    A request is ``None`` (for the whole table) or :class:`Squares`; sums are int64, in steps.

    Every row adds its residual to the cells of its windows' codes (for presence, once per distinct code).
    With wildcards, cells are indexed by five code, and wildcards are summed out letter by letter. The
    table is kept, so that parts that are priced one after another against the same residuals read the
    rows only once.

    Each of several writers fills its own table. Splitting the table by leading letters would save only
    memory, since every row has windows with all leading letters; splitting it by rows would require a
    reduction for which all writers wait, and filling the table takes only milliseconds.

    keep : number of candidates to keep in each part.
    """

    def __init__(self, family: BagFamily, prepared: PreparedRows, keep: int) -> None:
        self.family, self.prepared, self.keep = family, prepared, keep
        self.n_parts = family.n_price_parts
        try:
            cells, self._five, self._stamps = pricing_tables(family).allocate().values()
        except MemoryError as error:
            raise BudgetError(
                f"bag:d={family.d}: the tables need {pricing_bytes(family) / 2**20:.0f} MiB, which "
                "could not be allocated; lower d"
            ) from error
        self._tables = by_span(family, cells)
        self._windows = window_buffers(prepared.block_rows)
        self._buffers = row_buffers(family)
        #: digest of the rows' numbers, and the row blocks, from which the table was made
        self._made_of: tuple[bytes, range] | None = None

    def _features(self, part: int) -> tuple[int, int]:
        n, parts = self.family.n_features, self.n_parts
        return part * n // parts, (part + 1) * n // parts

    def accumulate(
        self, request: Squares | None, rows: RowVector, blocks: range, progress: Progress
    ) -> Units:
        if request is not None:
            return self._squares(request, rows, blocks)
        cells = self._five if self.family.wildcards else self._tables[self.family.d]
        made_of = rows.digest(), blocks
        if made_of != self._made_of:
            self._made_of = None
            self._fill(rows, blocks, progress)
            self._made_of = made_of
        return cells

    def merge(self, sums: Units, more: Units) -> Units:
        self._made_of = None
        sums += more
        return sums

    def requests(self, query: PriceQuery) -> list[Squares | None]:
        """See :class:`fcl.features.prices.Pricer`."""
        if query.find:
            return [None]
        chosen = np.unique(query.watched[self._own(query)])
        return [self._request_of(query, chosen)] if len(chosen) else []

    def scan(self, query: PriceQuery, step: float) -> Scan:
        if not query.find:
            return only_watched(in_units((yield from self.watched_units(query)), step))
        cells = yield None, 0.0, 1.0
        prices = []
        for part in query.parts:
            first, last = self._features(part)
            g = in_units(self._read(cells, slice(first, last)), step)
            found = Collector(query, self.keep, reach=self.family.integer_bound)
            prices.append(found.price_range(first, g))
        return merge_prices(prices)

    def watched_units(self, query: PriceQuery) -> Generator[Any, Any, Units]:
        """See :class:`fcl.features.prices.Pricer`."""
        own = self._own(query)
        out = np.zeros(len(own), np.int64)
        chosen, where = np.unique(query.watched[own], return_inverse=True)
        if len(chosen):
            sums = yield self._request_of(query, chosen), 0.0, 1.0
            out[own] = (self._read(sums, chosen) if self._from_table(query) else sums)[where]
        return out

    def _own(self, query: PriceQuery) -> npt.NDArray[np.bool_]:
        """Whether the watched features are in a part of the query."""
        first = self._features(query.parts.start)[0]
        return within(query.watched, first, self._features(query.parts.stop - 1)[1])

    def _from_table(self, query: PriceQuery) -> bool:
        return query.power == 1 or self.family.binary

    def _request_of(self, query: PriceQuery, ids: Ids) -> Squares | None:
        return None if self._from_table(query) else Squares(ids, query.power == 2)

    # -- tables --------------------------------------------------------------------------------

    def _fill(self, rows: RowVector, blocks: range, progress: Progress) -> None:
        """Fill the table with the sums of all patterns by code, each for one strand."""
        family, d = self.family, self.family.d
        for table in self._tables.values():
            table[:] = 0
        self._five[:] = 0
        for number in blocks:
            block = family.block(self.prepared, number)
            if family.binary:
                self._stamps[:] = -1
                part, table = rows.raw(block.rows), self._tables[d]
                kernels.bags.add_present(
                    block, d, family.both, part, rows.inverse, self._buffers, self._stamps, table
                )
            else:
                self._add_counts(block, rows)
            progress((number - blocks.start + 1) / len(blocks))
        if family.wildcards:
            for span, table in self._tables.items():
                kernels.bags.add_to_five(table, span, d, self._five)
            kernels.bags.sum_wildcards(self._five, d)

    def _add_counts(self, block: WindowBlock, rows: RowVector) -> None:
        d, part, inverse = self.family.d, rows.raw(block.rows), rows.inverse
        for k, span in spans(self.family):
            table = self._tables[span]
            kernels.kmers.add_to_table(
                block.planes, k, span, part, inverse, self._windows.codes, table
            )
            if len(block.unknown_rows):
                kernels.bags.move_unknown(
                    block, k, span, d, part, inverse, self._windows, table, self._five
                )

    def _read(self, cells: Units, some: slice | Ids) -> Units:
        """Read the sums of some features from the table."""
        family = self.family
        if not family.both:
            return cells[some]
        codes, others = (part[some] for part in family.canonical())
        if family.binary:  # the table has canonical codes already
            return cells[codes]
        out = np.empty(len(codes), np.int64)
        kernels.bags.both_sums(cells, codes, others, out)
        return out

    # -- squares -------------------------------------------------------------------------------

    def _squares(self, request: Squares, rows: RowVector, blocks: range) -> Units:
        """Make the sums of a :class:`Squares` request."""
        add = self._add_wild if self.family.wildcards else self._add_plain
        squares, present = np.zeros((2, len(request.ids)), np.int64)
        add(request.ids, rows, blocks, squares, present)
        return squares if request.squared else present

    def _add_plain(
        self, chosen: Ids, rows: RowVector, blocks: range, squares: Units, present: Units
    ) -> None:
        family, n = self.family, len(chosen)
        slots = self._stamps  # counts do not use it otherwise
        slots[:] = -1
        slots[family.codes(chosen)] = np.arange(n)
        stamps, seen = np.empty(n, np.int64), np.zeros(n, np.int64)
        for number in blocks:
            block = family.block(self.prepared, number)
            stamps[:] = -1
            units, sums = rows.units(block.rows), (stamps, seen, squares, present)
            kernels.bags.add_squares(
                block, family.d, family.both, slots, units, self._buffers, *sums
            )

    def _add_wild(
        self, chosen: Ids, rows: RowVector, blocks: range, squares: Units, present: Units
    ) -> None:
        maker = BagColumns(self.family, self.prepared, 0)
        for number in blocks:
            block = self.family.block(self.prepared, number)
            units = rows.units(block.rows)
            size = max(1, SQUARE_BYTES // (4 * block.n_rows))
            for at in range(0, len(chosen), size):
                some = slice(at, at + size)
                counts = maker.counts(block, chosen[some])
                kernels.bags.add_squares_of(counts, units, squares[some], present[some])
