"""Prices all positional patterns exactly, position by position."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays, zeros
from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError
from fcl.features.candidates import Heaps
from fcl.features.kmers.margins import POSITIONS_IN_GROUP
from fcl.features.prices import (
    PriceQuery,
    Progress,
    RowVector,
    Scan,
    in_units,
    only_watched,
    within,
)
from fcl.features.windows import window_buffers
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily
    from fcl.kernels.candidates import Wanted
    from fcl.kernels.kmers import WindowBlock
    from fcl.kernels.patterns import Items

#: Largest number of bytes of the tables of residuals that are filled in one reading of a large file. More
#: positions need fewer readings, but their tables take each other's place in the caches: with
#: d = 10, a table takes 2.0 ns for each row alone, and 5.0 ns if there are four.
GROUP_BYTES = 1 << 22
#: Bytes of the tables that are filled together if the rows are at hand: the first-level cache holds them.
CORE_CACHE_BYTES = 1 << 15
#: Values of d for which two neighbouring positions share a table of d + 1 letters, which is filled once
#: for both; tables of fewer letters are filled as fast one by one, and a larger one leaves the caches. A
#: table of 32 bits, of residuals on a coarser grid, was measured: it saves a tenth of the filling, but at
#: 8 million rows that grid loosens the bound by up to 2e-3 of the objective.
PAIR_LETTERS = (7, 8)
#: Smallest number of rows for which that is faster: the shared table has to be added up for both.
PAIR_ROWS = 1 << 17
#: Largest number of bytes of the windows with unknown letters (items) that are listed in one reading.
ITEM_BYTES = 1 << 25
#: A position is scanned with unknown as a fifth letter if more windows than this share of 5^d have
#: unknown letters: scanning the larger table is then faster than carrying the items down the tree.
FIVE_LETTERS_FROM = 1 / 40
MAX_FIVE_LETTERS = 10


def tables_in_group(family: KmerFamily, at_hand: bool, most_unknown: int = 0) -> int:
    """Number of positions whose tables are filled in one pass over the rows.

    If the rows are at hand, a group is as large as the first-level cache allows, or two positions share a
    table. With a large scratch file there are more, unless their tables are large, because every pass
    reads the letters of these positions from all blocks. In all cases the memory for the lists of windows
    with unknown letters limits the group, which has at most POSITIONS_IN_GROUP.

    most_unknown : the largest number of windows with unknown letters at a position.
    """
    room = CORE_CACHE_BYTES if at_hand else GROUP_BYTES
    fit = min(POSITIONS_IN_GROUP, room // (8 * 4**family.d))
    if at_hand and family.d in PAIR_LETTERS:
        fit = 2
    if most_unknown:
        fit = min(fit, ITEM_BYTES // item_arrays(most_unknown).nbytes)
    return min(family.n_positions, max(1, fit))


def most_items(family: KmerFamily) -> float:
    """Number of windows with unknown letters above which unknown is a fifth letter in a scan.

    With long patterns, whose table would be too large, it is not a letter.
    """
    return FIVE_LETTERS_FROM * 5**family.d if family.d <= MAX_FIVE_LETTERS else math.inf


def unknown_counts(family: KmerFamily, prepared: PreparedRows) -> npt.NDArray[np.int64]:
    """Number of windows with unknown letters at each position, int64 (n_positions,)."""
    counts = np.zeros(family.n_positions, np.int64)
    buffers = window_buffers(prepared.block_rows)
    no_planes = np.empty((0, 0), np.uint8)
    for number, rows in prepared.blocks():
        start, unknown = prepared.sides(number)
        if not len(unknown):
            continue
        block = kernels.kmers.WindowBlock(
            no_planes, start, unknown, rows.start, rows.stop - rows.start
        )
        for k in range(len(counts)):
            n = kernels.kmers.unknown_windows(block, k, family.d, buffers)
            buffers.masks[buffers.rows[:n]] = 0
            counts[k] += n
    return counts


def pricing_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables of a pricer, without those needed for unknown letters."""
    return scan_tables(family, tables_in_group(family, at_hand=not scratch)).nbytes


def scan_tables(family: KmerFamily, n_positions: int) -> Arrays:
    """The tables of a group of positions one after another, followed by the workspace of a scan.

    shared : the tables that two of the positions share.
    """
    d = family.d
    cells = 4**d * (n_positions - 1) + int(kernels.patterns.scan_size(d, 4))
    shared = 4 ** (d + 1) * (n_positions // 2) if d in PAIR_LETTERS else 0
    return Arrays(("i8", cells, "cells"), ("i8", shared, "shared"))


def item_arrays(n: int) -> Arrays:
    """The windows with unknown letters that are listed in one reading."""
    return Arrays(("u4", n, "code mask"), ("i8", n, "value"))


def scan_arrays(family: KmerFamily, most_unknown: int) -> Arrays:
    """What a scan needs: for the windows with unknown letters on its path, or for five letters."""
    many = most_unknown > most_items(family)
    five = int(kernels.patterns.scan_size(family.d, 5)) if many else 0
    return Arrays(("i4", most_unknown * (family.d + 1), "stack"), ("i8", five, "five"))


def unknown_bytes(family: KmerFamily, prepared: PreparedRows) -> int:
    """Bytes that a pricer needs for the unknown letters in the rows."""
    unknown = unknown_counts(family, prepared)
    most = int(unknown.max(initial=0))
    group = tables_in_group(family, prepared.at_hand, most)
    items = item_arrays(int(np.sort(unknown)[-group:].sum()))
    return (items + scan_arrays(family, most)).nbytes


@dataclass
class Tables:
    """Sums of some positions by window code, in steps.

    positions : int64 (k,), increasing.
    tables : int64 (k, 4^d), for the windows without unknown letters.
    items : for each position, the windows with unknown letters.
    """

    positions: Ids
    tables: npt.NDArray[np.int64]
    items: list[Items]


@dataclass
class Fill:
    """A table of sums by the codes of ``letters`` letters at a position.

    places : in the request, of the positions whose sums it has.
    """

    position: int
    letters: int
    table: npt.NDArray[np.int64]
    places: list[int]


class KmerPricer:
    """Prices all patterns exactly: a table of residuals per position, then a pruned scan.

    See :class:`fcl.features.prices.Pricer`; requests are positions, int64 (k,), and sums :class:`Tables`.

    keep : number of candidates to keep at each position.
    """

    def __init__(self, family: KmerFamily, prepared: PreparedRows, keep: int) -> None:
        self.family = family
        self.n_parts = family.n_price_parts
        self.prepared = prepared
        self._scan_cells = int(kernels.patterns.scan_size(family.d, 4))
        unknown = unknown_counts(family, prepared)
        most = int(unknown.max(initial=0))
        self._group = tables_in_group(family, prepared.at_hand, most)
        try:
            self._cells, self._shared = scan_tables(family, self._group).allocate(zeros).values()
        except MemoryError as error:
            raise BudgetError(
                f"kmers:d={family.d}: the tables of one position need "
                f"{8 * self._scan_cells / 2**20:.0f} MiB, which could not be allocated; lower d"
            ) from error
        self._buffers = window_buffers(prepared.block_rows)
        self._flats = np.empty((2, 5**kernels.patterns.FLAT_LETTERS), np.int64)
        self._keep = keep
        self._unknown = unknown
        # a group can be any positions (a scan of a few features omits some), so allow for the largest
        room = int(np.sort(unknown)[-self._group :].sum())
        self._items = kernels.patterns.Items(**item_arrays(room).allocate())
        self._stack, self._five_cells = scan_arrays(family, most).allocate().values()

    def accumulate(
        self, request: Ids, rows: RowVector, blocks: range, progress: Progress
    ) -> Tables:
        ends = [0, *np.cumsum(self._unknown[request]).tolist()]
        used = ends[:-1]
        self._make_room(len(request), ends[-1])
        tables = self._tables(len(request))
        try:
            self._fill(request, rows, blocks, tables, used, unknown=ends[-1] > 0)
        except BaseException:
            self._shared[:] = 0  # every fill expects zeros, and leaves zeros
            raise
        items = [_cut(self._items, slice(*bounds)) for bounds in zip(ends, used, strict=False)]
        return Tables(request, tables, items)

    def _fill(
        self,
        request: Ids,
        rows: RowVector,
        blocks: range,
        tables: npt.NDArray[np.int64],
        used: list[int],
        *,
        unknown: bool,
    ) -> None:
        """Write sums by window code to ``tables``, and other windows to the lists from ``used`` on."""
        d = self.family.d
        letters = slice(int(request[0]), int(request[-1]) + d)
        runs = self.family.together(self.prepared, blocks, letters)
        # a large table goes through as many blocks as possible alone, to stay in the caches of the core
        alone = 8 * 4**d > CORE_CACHE_BYTES
        fills = self._fills(request, tables, blocks, once=alone and len(runs) == 1)
        for fill in fills:
            if unknown or len(fill.places) == 1:  # else its sums overwrite the tables
                tables[fill.places] = 0
        for at, run in enumerate(runs):
            for some in [[fill] for fill in fills] if alone else [fills]:
                for number in run:
                    block = self.family.block(self.prepared, number, letters)
                    self._add(some, block, rows, request, tables, used)
                for fill in some:
                    if at == len(runs) - 1 and len(fill.places) == 2:
                        first, second = fill.places
                        kernels.kmers.take_marginals(
                            fill.table, tables[first], tables[second], unknown
                        )

    def _add(
        self,
        fills: list[Fill],
        block: WindowBlock,
        rows: RowVector,
        request: Ids,
        tables: npt.NDArray[np.int64],
        used: list[int],
    ) -> None:
        """Add the rows of a block to tables, and take windows with unknown letters out of them."""
        to = rows.raw(block.rows), rows.inverse
        for fill in fills:
            window = block.planes, fill.position, fill.letters
            kernels.kmers.add_to_table(*window, *to, self._buffers.codes, fill.table)
            if len(block.unknown_rows):
                for t in fill.places:
                    into = self._buffers, tables[t], used[t], self._items
                    used[t] = kernels.kmers.take_unknown(
                        block, int(request[t]), self.family.d, *to, *into
                    )

    def _fills(
        self, request: Ids, tables: npt.NDArray[np.int64], blocks: range, *, once: bool
    ) -> list[Fill]:
        """The tables that are filled from the rows: of single positions, or of two neighbours.

        once : whether each table is filled and used before the next, so that all pairs can use one, which
            stays in the caches.
        """
        d, size = self.family.d, 4 ** (self.family.d + 1)
        n_rows = len(blocks) * self.prepared.block_rows
        shared = self._shared if n_rows >= PAIR_ROWS else self._shared[:0]
        fills, at = [], 0
        while at < len(request):
            k = int(request[at])
            if len(shared) and at + 1 < len(request) and request[at + 1] == k + 1:
                fills.append(Fill(k, d + 1, shared[:size], [at, at + 1]))
                shared = shared if once else shared[size:]
            else:
                fills.append(Fill(k, d, tables[at], [at]))
            at += len(fills[-1].places)
        return fills

    def _make_room(self, n_tables: int, n_items: int) -> None:
        """Grow the buffers for a request that another pricer made, over fewer unknown letters."""
        if n_tables > self._group:
            self._group = n_tables
            made = scan_tables(self.family, n_tables).allocate()
            if len(made["cells"]) > len(self._cells):
                self._cells = made["cells"]
        if n_items > len(self._items.code):
            self._items = kernels.patterns.Items(**item_arrays(n_items).allocate())

    def merge(self, sums: Tables, more: Tables) -> Tables:
        sums.tables += more.tables
        items = [
            type(one)(*map(np.concatenate, zip(one, other, strict=True)))
            for one, other in zip(sums.items, more.items, strict=True)
        ]
        return Tables(sums.positions, sums.tables, items)

    def requests(self, query: PriceQuery) -> list[Ids]:
        """See :class:`fcl.features.prices.Pricer`."""
        positions = np.array(query.parts, np.int64)
        if not query.find:
            positions = np.intersect1d(positions, query.watched // self.family.per_position)
        size = self._group
        return [positions[at : at + size] for at in range(0, len(positions), size)]

    def scan(self, query: PriceQuery, step: float) -> Scan:
        heaps = self._heaps(query, step) if query.find else None
        units = yield from self._scan_tables(query, heaps)
        watched = in_units(units, step)
        if heaps is None:
            return only_watched(watched)
        found = heaps.prices(len(query.parts) * self.family.per_position)
        return replace(found, watched=watched)

    def watched_units(self, query: PriceQuery) -> Generator[Any, Any, Ids]:
        """See :class:`fcl.features.prices.Pricer`."""
        return self._scan_tables(query, None)

    def _heaps(self, query: PriceQuery, step: float) -> Heaps:
        """What scans of the positions of a query find."""
        return Heaps(query, self._keep, step, self.family.integer_bound, len(query.parts))

    def _scan_tables(self, query: PriceQuery, heaps: Heaps | None) -> Generator[Any, Any, Ids]:
        """Scan all positions, if there are heaps; returns the sums of the watched features in steps."""
        order = self._own(query)
        known = query.watched[order]
        patterns = self.family.patterns(known)
        requests = self.requests(query)
        units = np.zeros(len(known), np.int64)
        done = 0
        for at, positions in enumerate(requests):
            sums = yield positions, at / len(requests), (at + 1) / len(requests)
            tables = self._tables(len(positions))
            if not np.may_share_memory(tables, sums.tables):
                tables[:] = sums.tables
            for t in range(len(positions) - 1, -1, -1):  # a scan overwrites what follows its table
                start = t * 4**self.family.d
                cells = self._cells[start : start + self._scan_cells]
                k, items = int(positions[t]), sums.items[t]
                here, cares, values = patterns.at(k)
                own = units[here]
                self._watched(cells, items, cares, values, own)
                if heaps is not None:
                    self._scan(k, cells, items, heaps.wanted(done + t, known[here], own))
            done += len(positions)
        watched = np.zeros(len(query.watched), np.int64)
        watched[order] = units
        return watched

    def _own(self, query: PriceQuery) -> npt.NDArray[np.intp]:
        """The watched features of the query's parts, by increasing id: their indices."""
        each = self.family.per_position
        of = within(query.watched, query.parts.start * each, query.parts.stop * each)
        own = np.flatnonzero(of)
        return own[np.argsort(query.watched[own], kind="stable")]

    def _tables(self, n: int) -> npt.NDArray[np.int64]:
        """The buffer for the tables of a group."""
        n_cells = 4**self.family.d
        return self._cells[: n * n_cells].reshape(n, n_cells)

    def _watched(
        self,
        cells: npt.NDArray[np.int64],
        items: Items,
        cares: Ids,
        values: Ids,
        out: npt.NDArray[np.int64],
    ) -> None:
        """Write the sums of some patterns of a position to ``out``, in steps."""
        if len(out):
            kernels.patterns.pattern_sums(cells, items, cares, values, self.family.d, out)

    def _scan(self, k: int, cells: npt.NDArray[np.int64], items: Items, wanted: Wanted) -> None:
        """Scan a position."""
        d, n_items, radix = self.family.d, len(items.code), 4
        if n_items > most_items(self.family):
            if not len(self._five_cells):  # another pricer has found fewer unknown letters
                self._five_cells = scan_arrays(self.family, n_items).allocate()["five"]
            kernels.patterns.five_letter_table(cells, d, items, self._five_cells)
            cells, items, radix = self._five_cells, _cut(items, slice(0)), 5
        elif n_items * (d + 1) > len(self._stack):
            self._stack = scan_arrays(self.family, n_items).allocate()["stack"]
        first = k * self.family.per_position
        kernels.patterns.scan_patterns(
            cells, d, radix, items, self._stack, first, self._flats, wanted
        )


def _cut(items: Items, some: slice) -> Items:
    """Some of the items."""
    return type(items)(*(part[some] for part in items))
