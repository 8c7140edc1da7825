"""Exact prices of all patterns anywhere: one table of residuals by code, from which all sums follow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError
from fcl.features.bag.columns import BagColumns
from fcl.features.bag.rows import RowBuffers, letters_of, spans
from fcl.features.base import Floats, Ids, Prices, merge_prices, no_progress
from fcl.features.kmers.rows import KmerBlock

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily

#: Parts of the family: ranges of ids, of each of which candidates are reported. All come from one table.
MOST_PARTS = 32
#: Bytes of columns that sums of squares are made of at a time.
SQUARE_BYTES = 16 << 20


def pricing_bytes(family: BagFamily) -> int:
    """Bytes of the tables of a pricer, and of the sums of a part."""
    d = family.d
    if family.searched:  # its lists depend on the rows
        return 0
    tables = 8 * 4**d
    if family.wildcards:
        tables = tables * 4 // 3 + 8 * 5**d + SQUARE_BYTES
    stamps = 4 * 4**d  # of rows, or places of the features whose squares are summed
    return tables + stamps + 40 * -(-family.n_features // family.n_price_parts)


class BagPricer:
    """Exact prices of all patterns.

    Every row adds its residual to the cells of its windows' codes (for presence, once a code).
    With wildcards the cells are by five code, and summed out letter by letter. The table is kept: parts
    that are asked for one after another, against the same residuals, need one reading.

    Of several writers each fills a table of its own. To split it by leading letters would save memory
    alone, since every row has windows of all of them; to split it by rows needs a reduction, and all to
    wait for it. 52,024 windows of 141 letters, a core, in ms: the filling, and reading all sums off it:

        counts                d = 6: 6-7 and 1    d = 8: 11-15 and 1-3
        presence of words     d = 6: 24 and 1     d = 8: 28 and 1

    So a second writer saves nearly nothing here, and half the filling, 3 to 15 ms a pass, is all that a
    split could save; each has 0.1 MiB of tables with d = 6 and 0.8 with d = 8, with wildcards 16 and 20.

    Parameters
    ----------
    keep : int
        Candidates kept of each part (the largest there).
    """

    def __init__(self, family: BagFamily, prepared: PreparedRows, keep: int) -> None:
        from fcl.kernels import kmers

        self.family, self.prepared, self.keep = family, prepared, keep
        self.on_progress: Callable[[float], None] = no_progress
        d = family.d
        try:
            sizes = range(1, d + 1) if family.wildcards else [d]
            self._tables = {span: np.empty(4**span) for span in sizes}
            self._five = np.empty(5**d if family.wildcards else 0)
            self._stamps = np.empty(4**d if not family.wildcards else 0, np.int32)
        except MemoryError as error:
            raise BudgetError(
                f"bag:d={d}: the tables need {pricing_bytes(family) / 2**20:.0f} MiB, which could not "
                "be had; lower d"
            ) from error
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)
        self._buffers = RowBuffers(family)
        self._made_of = b""  # digest of what the table was made of

    @property
    def n_parts(self) -> int:
        """Ranges of ids."""
        return self.family.n_price_parts

    def _features(self, part: int) -> tuple[int, int]:
        n, parts = self.family.n_features, self.n_parts
        return part * n // parts, (part + 1) * n // parts

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        """See :class:`fcl.features.base.Pricer`."""
        cells = self._sums(residuals)
        prices = []
        for part in range(self.n_parts) if parts is None else parts:
            first, last = self._features(part)
            g = self._read(cells, slice(first, last))
            size = np.abs(g)
            largest = float(size.max(initial=0.0))
            excess = np.zeros(1)
            if level is not None:
                excess[0] = np.sum(np.maximum(size + slack - level, 0.0) ** 2)
            watched = np.zeros(len(watch))
            own = (watch >= first) & (watch < last)
            watched[own] = g[watch[own] - first]
            size[watch[own] - first] = 0.0
            found = np.flatnonzero(size > threshold)
            if len(found) > self.keep:
                found = _largest(size, found, self.keep)
            prices.append(Prices(found + first, g[found], largest, watched, last - first, excess))
        return merge_prices(prices)

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """See :class:`fcl.features.base.Pricer`."""
        own = np.ones(len(ids), bool)
        if parts is not None:
            first, last = self._features(parts.start)[0], self._features(parts.stop - 1)[1]
            own = (ids >= first) & (ids < last)
        out = np.zeros(len(ids))
        out[own] = self._squares(values, ids[own])[0]
        return out

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        spare[:] = 1.0
        return np.rint(self._squares(spare, ids)[1]).astype(np.int64)

    # -- tables --------------------------------------------------------------------------------

    def _sums(self, values: Floats) -> Floats:
        """Sums of all patterns by code; of one strand each."""
        digest = hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
        cells = self._five if self.family.wildcards else self._tables[self.family.d]
        if digest != self._made_of:
            self._made_of = b""
            self._fill(values)
            self._made_of = digest
        return cells

    def _fill(self, values: Floats) -> None:
        from fcl.kernels import bags

        family, d = self.family, self.family.d
        for table in self._tables.values():
            table[:] = 0.0
        self._five[:] = 0.0
        for number, rows in self.prepared.blocks():
            block = family.block(self.prepared, number)
            part = values[rows]
            if family.binary:
                self._stamps[:] = -1
                bags.add_present(
                    *letters_of(block),
                    d,
                    block.n_rows,
                    family.both,
                    part,
                    *self._buffers.of(block),
                    self._stamps,
                    self._tables[d],
                )
            else:
                self._add_counts(block, part)
            self.on_progress((number + 1) / self.prepared.n_blocks)
        if family.wildcards:
            for span, table in self._tables.items():
                bags.add_to_five(table, span, d, self._five)
            bags.sum_wildcards(self._five, d)

    def _add_counts(self, block: KmerBlock, part: Floats) -> None:
        from fcl.kernels import bags, kmers

        for k, span in spans(self.family):
            table = self._tables[span]
            kmers.add_to_table(block.planes, k, span, block.n_rows, part, self._codes, table)
            if len(block.unknown_rows):
                bags.move_unknown(
                    *letters_of(block),
                    k,
                    span,
                    self.family.d,
                    part,
                    self._masks,
                    self._rows,
                    table,
                    self._five,
                )

    def _read(self, cells: Floats, some: slice | Ids) -> Floats:
        """Sums of some features."""
        from fcl.kernels import bags

        family = self.family
        if not family.both:
            return cells[some]
        codes, others = (part[some] for part in family.canonical())
        if family.binary:  # by canonical codes already
            return cells[codes]
        out = np.empty(len(codes))
        bags.both_sums(cells, codes, others, out)
        return out

    # -- squares -------------------------------------------------------------------------------

    def _squares(self, values: Floats, ids: Ids) -> tuple[Floats, Floats]:
        """sum_i values_i phi_ij^2 of features, and sum_i values_i over the rows where they are not 0."""
        chosen, where = np.unique(ids, return_inverse=True)
        if not len(chosen):
            return np.zeros(0), np.zeros(0)
        total = self._wild_squares if self.family.wildcards else self._plain_squares
        squares, present = total(values, chosen)
        return squares[where], (squares if self.family.binary else present)[where]

    def _plain_squares(self, values: Floats, chosen: Ids) -> tuple[Floats, Floats]:
        from fcl.kernels import bags

        family, n = self.family, len(chosen)
        if family.binary:
            g = self._read(self._sums(values), chosen)
            return g, g
        slots = self._stamps  # of no use to counts
        slots[:] = -1
        slots[family.codes(chosen)] = np.arange(n)
        stamps, seen = np.empty(n, np.int64), np.zeros(n, np.int64)
        squares, present = np.zeros(n), np.zeros(n)
        for number, rows in self.prepared.blocks():
            block = family.block(self.prepared, number)
            stamps[:] = -1
            bags.add_squares(
                *letters_of(block),
                family.d,
                block.n_rows,
                family.both,
                slots,
                values[rows],
                *self._buffers.of(block),
                stamps,
                seen,
                squares,
                present,
            )
        return squares, present

    def _wild_squares(self, values: Floats, chosen: Ids) -> tuple[Floats, Floats]:
        from fcl.kernels import bags

        squares, present = np.zeros(len(chosen)), np.zeros(len(chosen))
        maker = BagColumns(self.family, self.prepared, 0)
        for number, rows in self.prepared.blocks():
            block = self.family.block(self.prepared, number)
            size = max(1, SQUARE_BYTES // (4 * block.n_rows))
            for at in range(0, len(chosen), size):
                some = slice(at, at + size)
                counts = maker.counts(block, chosen[some])
                bags.add_moments(counts, values[rows], squares[some], present[some])
        return squares, present


def _largest(size: Floats, among: Ids, keep: int) -> Ids:
    """The ``keep`` features of largest size, the first ones of equals; in increasing order."""
    least = np.partition(size[among], len(among) - keep)[len(among) - keep]
    above, equal = among[size[among] > least], among[size[among] == least]
    return np.sort(np.append(above, equal[: keep - len(above)]))
