"""Exact prices of the presence of patterns with wildcards: a search in their tree.

Presence is not a sum over positions, so no table gives it. But the rows that have a pattern are among the
rows that have its beginning: below a pattern, every feature satisfies

    |g| <= max(sum of the positive r_i, sum of the negative |r_i|) over the distinct rows that have it

The search skips a subtree whose bound is too small to be of interest; ``largest`` includes the largest of
these bounds. The sums of all children of a pattern come from one reading of its occurrences.

The whole tree takes about 2^(d-1) visits to every occurrence of a letter. A short pattern is in nearly
every row: in long windows, bounds exclude subtrees only from about six known letters on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays, zeros
from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError, InputError
from fcl.features.bag.columns import row_buffers
from fcl.features.candidates import Heaps
from fcl.features.prices import (
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    Scan,
    in_units,
    merge_prices,
    only_watched,
)
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily

#: Room for the occurrences of a path, per occurrence of the most frequent letter: 5 / 2. Equally frequent
#: letters need 1 + (1 + 1/4 + 1/16 + ...) = 7 / 3: the first letter's list, and each node's children's.
PATH_ROOM = 5, 2
#: Steps between two polls for other work of the process: about 0.1 s.
WORK = 1 << 25


def letter_counts(family: BagFamily, prepared: PreparedRows) -> npt.NDArray[np.int64]:
    """Occurrences of each letter in all rows, on both strands if the family has both: int64 (4,)."""
    counts = np.zeros(4, np.int64)
    buffers = row_buffers(family)
    for number, _ in prepared.blocks():
        kernels.occurrences.count_first(
            family.block(prepared, number), family.both, buffers, counts
        )
    return counts


def path_room(family: BagFamily, prepared: PreparedRows) -> int:
    """Occurrences that a pricer has room for."""
    times, of = PATH_ROOM
    return times * int(letter_counts(family, prepared).max()) // of + 1


def lists(family: BagFamily, prepared: PreparedRows) -> Arrays:
    """A pricer's lists of occurrences, and the rows' residuals in steps."""
    return Arrays(
        ("i8", path_room(family, prepared), "occurrences"), ("i8", prepared.n_rows, "units")
    )


@dataclass
class Listed:
    """Where a letter is, and the residuals: what the search reads instead of sums.

    occurrences : int64, of the letter in some rows; see :mod:`fcl.kernels.occurrences`.
    units : int64 (n_rows,), residuals in steps; 0 in other rows.
    """

    occurrences: npt.NDArray[np.int64]
    units: npt.NDArray[np.int64]


class SearchPricer:
    """Exact prices of all patterns; see :class:`fcl.features.prices.Pricer`.

    Parts are the patterns of two leading letters. Each part keeps its ``keep`` largest candidates. A
    request is a letter, 0 to 3, and sums are :class:`Listed`: presence has no sums that several
    processes could make and add, so lists of occurrences are merged instead.
    """

    def __init__(self, family: BagFamily, prepared: PreparedRows, keep: int) -> None:
        self.family, self.prepared = family, prepared
        self.n_parts = family.n_price_parts
        d, most_rows = family.d, kernels.occurrences.MOST_ROWS
        if prepared.n_rows > most_rows:
            raise InputError(
                f"bag:d={d},value=presence,wildcards=true: at most {most_rows:,} rows, got "
                f"{prepared.n_rows:,}; take fewer, or value=count"
            )
        declared = lists(family, prepared)
        try:
            self._occurrences, self._units = declared.allocate(zeros).values()
        except MemoryError as error:
            raise BudgetError(
                f"bag:d={d},value=presence,wildcards=true: the lists of occurrences need "
                f"{declared.nbytes / 2**20:.0f} MiB, which could not be allocated; take "
                "fewer rows"
            ) from error
        self._buffers = row_buffers(family)
        self._nodes = np.zeros((d, kernels.occurrences.NODE), np.int64)
        self._sums = np.zeros((d, 2, 4 * d), np.int64)
        self._keep = keep
        self._units_of: tuple[bytes, range] | None = None
        #: what is listed: letter, row blocks, and number of occurrences
        self._listed: tuple[int, range, int] = (-1, range(0), 0)

    def accumulate(
        self, request: int, rows: RowVector, blocks: range, progress: Progress
    ) -> Listed:
        if self._listed[:2] != (request, blocks):
            self._listed = (-1, range(0), 0)
            self._listed = (request, blocks, self._list(request, blocks))
        units_of = rows.digest(), blocks
        if self._units_of != units_of:
            self._units[:] = 0
            for number in blocks:
                some = self.prepared.rows_of(number)
                self._units[some] = rows.units(some)
            self._units_of = units_of
        return Listed(self._occurrences[: self._listed[2]], self._units)

    def merge(self, sums: Listed, more: Listed) -> Listed:
        both = np.sort(np.concatenate([sums.occurrences, more.occurrences]))  # rows in order
        return Listed(both, sums.units + more.units)

    def scan(self, query: PriceQuery, step: float) -> Scan:
        """Price some parts; the excess is infinite if every feature has an excess."""
        codes = self.family.codes(query.watched)
        known, where = np.unique(codes, return_inverse=True)
        sums = np.zeros(len(known), np.int64)
        prices = []
        parts = [part for part in query.parts if query.find or self._has(part, known)]
        for done, part in enumerate(parts):
            listed = yield self._letter(part), done / len(parts), (done + 1) / len(parts)
            self._place(listed)
            prices.append(self._price_part(part, listed, query, step, known, sums))
        watched = in_units(sums, step)[where]
        if not query.find:
            return only_watched(watched)
        return replace(merge_prices(prices), watched=watched)

    # -- parts ---------------------------------------------------------------------------------

    def _codes(self, part: int) -> tuple[int, int]:
        """The range of codes of a part: first, and one past the last."""
        each = 4 * 5 ** (self.family.d - 1) // self.n_parts
        return part * each, (part + 1) * each

    def _has(self, part: int, known: Ids) -> bool:
        """Whether some of these codes, increasing, belong to the part."""
        low, high = np.searchsorted(known, self._codes(part))
        return bool(low < high)

    def _letter(self, part: int) -> int:
        return self._codes(part)[0] // int(5 ** (self.family.d - 1))

    def _place(self, listed: Listed) -> None:
        """Put the occurrences where the search has room behind them."""
        n = len(listed.occurrences)
        if not np.may_share_memory(listed.occurrences, self._occurrences):
            if n >= len(self._occurrences):
                self._occurrences = np.empty(n * PATH_ROOM[0] // PATH_ROOM[1] + 1, np.int64)
            self._listed = (-1, range(0), 0)
            self._occurrences[:n] = listed.occurrences

    def _price_part(
        self,
        part: int,
        listed: Listed,
        query: PriceQuery,
        step: float,
        known: Ids,
        sums: npt.NDArray[np.int64],
    ) -> Prices:
        family, d = self.family, self.family.d
        low, high = self._codes(part)
        letter, n, node = self._letter(part), len(listed.occurrences), self._nodes[0]
        heaps = Heaps(query, self._keep, step, family.integer_bound)
        wanted = heaps.wanted(0, known, sums)
        # the pattern of the letter alone: the search visits only patterns of more letters
        alone = (letter + 1) * 5 ** (d - 1) - 1
        if low <= alone < high and self._is_feature(alone):
            total = int(kernels.occurrences.distinct_sum(self._occurrences, n, listed.units))
            kernels.candidates.take(alone, total, wanted)
        node[:] = 0
        node[kernels.occurrences.SPAN], node[kernels.occurrences.PREFIX] = 1, letter
        node[kernels.occurrences.STOP] = node[kernels.occurrences.CUTS] = n
        kernels.occurrences.expand(self._occurrences, node, d, listed.units, self._sums[0])
        node[kernels.occurrences.PLACE], node[kernels.occurrences.LETTER] = d - 1, 4
        at = 0
        while at >= 0:
            at = kernels.occurrences.search(
                self._occurrences,
                d,
                family.both,
                listed.units,
                low,
                high,
                self._nodes,
                self._sums,
                at,
                WORK,
                wanted,
            )
        if not family.both:
            return heaps.prices(high - low)
        codes = family.canonical()[0]
        first, last = np.searchsorted(codes, [low, high])
        found = heaps.prices(int(last - first))
        return replace(found, ids=np.searchsorted(codes, found.ids).astype(np.int64))

    def _is_feature(self, code: int) -> bool:
        """Whether a pattern has an id; with both strands, only the one with the smaller code has one."""
        d = self.family.d
        return not self.family.both or code <= int(kernels.bags.reverse_complement(code, d, 5))

    def _list(self, letter: int, blocks: range) -> int:
        """List the occurrences of a letter; returns their number."""
        family, count = self.family, 0
        for number in blocks:
            block, buffers = family.block(self.prepared, number), self._buffers
            count = kernels.occurrences.list_occurrences(
                block, family.d, family.both, letter, buffers, self._occurrences, count
            )
        return int(count)
