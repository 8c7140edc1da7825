"""Exact prices of all patterns, position by position."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError
from fcl.features.base import Floats, Ids, Prices, no_progress
from fcl.features.kmers.rows import SCRATCH_POSITIONS, Patterns

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily

#: Bytes of tables of residuals that are filled in one reading of a scratch file, at most.
GROUP_BYTES = 1 << 28
#: Bytes of windows with unknown letters in one go: code 4, mask 4, value 8 each.
ITEM_BYTES = 1 << 25
BYTES_AN_ITEM = 16
#: A position with more windows with unknown letters than this share of 5^d is scanned over five
#: letters. 208,094 windows, d = 8, 22 % of them with unknown letters: 0.6 s a pass instead of 2.0 s.
FIVE_LETTERS_FROM = 1 / 40
MAX_FIVE_LETTERS = 10


def tables_in_group(family: KmerFamily, in_memory: bool, most_unknown: int = 0) -> int:
    """Positions whose tables are filled in one go over the rows.

    With rows in memory one: its table stays in the cache of the core. From a scratch file a few
    neighbours, since each go reads their letters of every block; with them the lists of windows with
    unknown letters, of which a position has at most ``most_unknown``.
    """
    if in_memory:
        return 1
    fit = min(SCRATCH_POSITIONS, GROUP_BYTES // (8 * 4**family.d))
    if most_unknown:
        fit = min(fit, ITEM_BYTES // (BYTES_AN_ITEM * most_unknown))
    return min(family.n_positions, max(1, fit))


def five_letters(family: KmerFamily, unknown: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Positions whose scan is cheaper with unknown as a fifth letter.

    unknown : windows with unknown letters at each position. With long patterns the table would be too
    large.
    """
    few = family.d <= MAX_FIVE_LETTERS
    return (unknown > FIVE_LETTERS_FROM * 5**family.d) & few


def unknown_counts(family: KmerFamily, prepared: PreparedRows) -> npt.NDArray[np.int64]:
    """Windows with unknown letters at each position, int64 (n_positions,)."""
    from fcl.kernels import kmers

    counts = np.zeros(family.n_positions, np.int64)
    masks = np.zeros(prepared.block_rows, np.uint32)
    rows = np.empty(prepared.block_rows, np.int32)
    for number, _ in prepared.blocks():
        start, unknown = prepared.sides(number)
        if not len(unknown):
            continue
        for k in range(len(counts)):
            n = kmers.unknown_windows(start, unknown, k, family.d, masks, rows)
            masks[rows[:n]] = 0
            counts[k] += n
    return counts


def pricing_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables of a pricer, leaving unknown letters aside."""
    from fcl.kernels import patterns

    group = tables_in_group(family, in_memory=not scratch)
    return 8 * int(patterns.scan_size(family.d, 4)) + 8 * 4**family.d * (group - 1)


def unknown_bytes(family: KmerFamily, prepared: PreparedRows) -> int:
    """Bytes that a pricer needs because of the unknown letters in the rows."""
    from fcl.kernels import patterns

    unknown = unknown_counts(family, prepared)
    group = tables_in_group(family, prepared.in_memory, int(unknown.max(initial=0)))
    items = BYTES_AN_ITEM * int(np.sort(unknown)[-group:].sum())
    stack = 4 * (family.d + 1) * int(unknown.max(initial=0))
    five = 8 * int(patterns.scan_size(family.d, 5)) if five_letters(family, unknown).any() else 0
    return items + stack + five


class KmerPricer:
    """Exact prices of all patterns: a table of residuals a position, then a pruned scan.

    The result has the same bits however positions are grouped, since every table is summed in the
    order of the rows and scanned by itself.

    Parameters
    ----------
    keep : int
        Candidates kept at each position (the largest there).
    """

    def __init__(self, family: KmerFamily, prepared: PreparedRows, keep: int) -> None:
        from fcl.kernels import kmers, patterns

        self.family = family
        self.prepared = prepared
        self.keep = keep
        self.on_progress: Callable[[float], None] = no_progress
        self._scan_cells = int(patterns.scan_size(family.d, 4))
        n_cells = 4**family.d
        self._unknown = unknown_counts(family, prepared)
        most = int(self._unknown.max(initial=0))
        self._group = tables_in_group(family, prepared.in_memory, most)
        try:
            # tables of a group one after another; behind the last, room for its scan
            self._cells = np.empty(self._group * n_cells + self._scan_cells - n_cells)
        except MemoryError as error:
            raise BudgetError(
                f"kmers:d={family.d}: the tables of one position need "
                f"{8 * self._scan_cells / 2**20:.0f} MiB, which could not be had; lower d"
            ) from error
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)
        self._flats = np.empty((2, 5**patterns.FLAT_LETTERS))
        self._heap_ids = np.empty(keep, np.int64)
        self._heap_values = np.empty(keep)
        self._five = five_letters(family, self._unknown)
        size = int(patterns.scan_size(family.d, 5)) if self._five.any() else 0
        self._five_cells = np.empty(size)
        # a group may be any positions (:meth:`sums` leaves some out), so also those with the most
        most = int(np.sort(self._unknown)[-self._group :].sum())
        self._item_code = np.empty(most, np.uint32)
        self._item_mask = np.empty(most, np.uint32)
        self._item_value = np.empty(most)
        alone = int(self._unknown.max(initial=0))
        self._stack = np.empty(alone * (family.d + 1), np.int32)

    @property
    def n_parts(self) -> int:
        """Positions: each is priced by itself."""
        return self.family.n_positions

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
        family = self.family
        order = np.argsort(watch, kind="stable")
        watched = family.patterns(watch[order])
        known = watch[order]
        sums = np.zeros(len(watch))
        found_ids: list[Ids] = []
        found_values: list[Floats] = []
        largest = 0.0
        floor = math.inf if level is None else level - slack
        each = family.per_position
        positions = np.arange(family.n_positions)
        if parts is not None:
            positions = positions[parts.start : parts.stop]
        excess = np.zeros(family.n_positions)
        for done, (k, cells, items) in enumerate(self._tables(residuals, positions)):
            self.on_progress(done / len(positions))
            self._watched_sums(k, cells, items, watched, sums)
            here = known[slice(*np.searchsorted(known, (k * each, (k + 1) * each)))]
            bound, excess[k] = self._scan(
                k, cells, items, threshold, floor, here, found_ids, found_values
            )
            largest = max(largest, bound)
        gradients = np.empty(len(watch))
        gradients[order] = sums
        ids = np.concatenate(found_ids)
        canonical = np.argsort(ids)
        return Prices(
            ids=ids[canonical],
            gradients=np.concatenate(found_values)[canonical],
            largest=largest,
            watched=gradients,
            n_priced=len(positions) * family.per_position,
            excess=excess[positions],
        )

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """See :class:`fcl.features.base.Pricer`; the columns are binary, their own squares."""
        order = np.argsort(ids, kind="stable")
        watched = self.family.patterns(ids[order])
        sums = np.zeros(len(ids))
        positions = np.unique(watched.positions)
        if parts is not None:
            positions = positions[(positions >= parts.start) & (positions < parts.stop)]
        for k, cells, items in self._tables(values, positions):
            self._watched_sums(k, cells, items, watched, sums)
        out = np.empty(len(ids))
        out[order] = sums
        return out

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        spare[:] = 1.0
        return np.rint(self.sums(spare, ids)).astype(np.int64)

    def _tables(self, values: Floats, positions: Ids) -> Iterator[tuple[int, Floats, slice]]:
        """Yield (position, cells, its items with unknown letters) for each position.

        The cells begin with the table of sums; a scan may overwrite what follows it.
        """
        from fcl.kernels import kmers

        d = self.family.d
        n_cells = 4**d
        for at in range(0, len(positions), self._group):
            group = [int(k) for k in positions[at : at + self._group]]
            room = np.concatenate([[0], np.cumsum(self._unknown[group])])
            used = room[:-1].copy()
            tables = self._cells[: len(group) * n_cells].reshape(len(group), n_cells)
            tables[:] = 0.0
            letters = slice(group[0], group[-1] + d)
            for number, rows in self.prepared.blocks():
                block = self.family.block(self.prepared, number, letters)
                for t, k in enumerate(group):
                    part = values[rows]
                    kmers.add_to_table(
                        block.planes, k, d, block.n_rows, part, self._codes, tables[t]
                    )
                    if len(block.unknown_rows):
                        used[t] = kmers.take_unknown(
                            block.planes,
                            block.unknown_start,
                            block.unknown_rows,
                            k,
                            d,
                            part,
                            self._masks,
                            self._rows,
                            tables[t],
                            used[t],
                            self._item_code,
                            self._item_mask,
                            self._item_value,
                        )
            for t in range(len(group) - 1, -1, -1):  # from the end: a scan overwrites what follows
                cells = self._cells[t * n_cells : t * n_cells + self._scan_cells]
                yield group[t], cells, slice(int(room[t]), int(used[t]))

    def _watched_sums(
        self, k: int, cells: Floats, items: slice, watched: Patterns, sums: Floats
    ) -> None:
        from fcl.kernels import patterns

        here, cares, values = watched.at(k, self.family.d, self.family.d)
        if here.stop > here.start:
            patterns.pattern_sums(
                cells,
                items.stop - items.start,
                self._item_code[items],
                self._item_mask[items],
                self._item_value[items],
                cares,
                values,
                self.family.d,
                sums[here],
            )

    def _scan(
        self,
        k: int,
        cells: Floats,
        items: slice,
        threshold: float,
        floor: float,
        known: Ids,
        found_ids: list[Ids],
        found_values: list[Floats],
    ) -> tuple[float, float]:
        """Scan a position: an upper bound of the largest |g_j|, and the excess over the floor."""
        from fcl.kernels import patterns

        out = np.empty(5)
        radix, n_items = 4, items.stop - items.start
        code, mask = self._item_code[items], self._item_mask[items]
        value = self._item_value[items]
        if self._five[k]:
            patterns.five_letter_table(
                cells, self.family.d, n_items, code, mask, value, self._five_cells
            )
            cells, radix, n_items = self._five_cells, 5, 0
        patterns.scan_patterns(
            cells,
            self.family.d,
            radix,
            n_items,
            code,
            mask,
            value,
            self._stack,
            k * self.family.per_position,
            threshold,
            floor,
            known,
            self._heap_ids,
            self._heap_values,
            self._flats,
            out,
        )
        kept = int(out[2])
        found_ids.append(self._heap_ids[:kept].copy())
        found_values.append(self._heap_values[:kept].copy())
        return float(max(out[0], out[1])), float(out[4])
