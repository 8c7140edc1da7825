"""Exact prices of the presence of patterns with wildcards: a search in their tree.

Presence is no sum over places, so that no table gives it. But the rows that have a pattern are among
those that have its beginning: below a pattern every feature has

    |g| <= max(sum of the positive r_i, sum of the negative |r_i|) over the distinct rows that have it

A subtree whose bound is no more than what is looked for is not entered; the largest of such bounds counts
in ``largest``. The sums of all children of a pattern come from one reading of its occurrences.

Whole, the tree takes about 2^(d-1) looks at every occurrence of a letter, of which a row has L. 52,024
windows of C. elegans of 141 letters, residuals of the empty model, where least is skipped; seconds of one
core, while other jobs ran:

    d  strands  threshold  patterns  sums made  s
    6  one      100          12,500       70 %  2.0
    6  one      10           12,500      100 %  2.0
    8  one      100         312,500       19 %  7.7
    8  one      10          312,500       52 %  9.4
    8  both     100         156,624       31 %  15.7
    8  both     10          156,624       70 %  17.7

A short pattern is in nearly every row: in long windows bounds begin to tell at six known letters or so.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError, InputError
from fcl.features.bag.rows import RowBuffers, letters_of
from fcl.features.base import Floats, Ids, Prices, merge_prices, no_progress

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily

#: Room for the occurrences of a path, in those of the most frequent letter. Of letters that are equally
#: frequent it takes 7 / 3: those of the first, of all four behind it, and of four of a quarter each time.
PATH_ROOM = 5, 2
BYTES_AN_OCCURRENCE = 8
#: Steps between two looks at what else the process has to do: about 0.1 s.
WORK = 1 << 25


def letter_counts(family: BagFamily, prepared: PreparedRows) -> npt.NDArray[np.int64]:
    """Occurrences of each letter in all rows, int64 (4,); with both strands of both."""
    from fcl.kernels import occurrences

    counts = np.zeros(4, np.int64)
    buffers = RowBuffers(family)
    for number, _ in prepared.blocks():
        block = family.block(prepared, number)
        cursors, letters, _ = buffers.of(block)
        occurrences.count_first(
            *letters_of(block), block.n_rows, family.both, cursors, letters, counts
        )
    return counts


def path_room(family: BagFamily, prepared: PreparedRows) -> int:
    """Occurrences that a pricer has room for."""
    times, of = PATH_ROOM
    return times * int(letter_counts(family, prepared).max()) // of + 1


def list_bytes(family: BagFamily, prepared: PreparedRows) -> int:
    """Bytes of a pricer's lists of occurrences."""
    return BYTES_AN_OCCURRENCE * path_room(family, prepared)


class SearchPricer:
    """Exact prices of all patterns; see :class:`fcl.features.base.Pricer`.

    Parts are the patterns of two leading letters. Of each the ``keep`` largest candidates are kept.

    visited : patterns whose sum was made by the last call of :meth:`price`.
    """

    def __init__(self, family: BagFamily, prepared: PreparedRows, keep: int) -> None:
        from fcl.kernels import occurrences

        self.family, self.prepared, self.keep = family, prepared, keep
        self.on_progress: Callable[[float], None] = no_progress
        self.visited = 0
        d, room = family.d, path_room(family, prepared)
        if prepared.n_rows > occurrences.MOST_ROWS:
            raise InputError(
                f"bag:d={d},value=presence,wildcards=true: at most {occurrences.MOST_ROWS:,} rows, got "
                f"{prepared.n_rows:,}; take fewer, or value=count"
            )
        try:
            self._occurrences = np.empty(room, np.int64)
        except MemoryError as error:
            raise BudgetError(
                f"bag:d={d},value=presence,wildcards=true: the lists of occurrences need "
                f"{BYTES_AN_OCCURRENCE * room / 2**20:.0f} MiB, which could not be had; take fewer rows"
            ) from error
        self._buffers = RowBuffers(family)
        self._nodes = np.zeros((d, occurrences.NODE), np.int64)
        self._sums = np.zeros((d, 2, 4 * d))
        self._alone = 0.0  # the sum of the letter that is listed
        self._heap_ids = np.empty(keep, np.int64)
        self._heap_values = np.empty(keep)
        self._letter, self._listed = -1, 0  # whose occurrences are listed, and their number
        self._expanded_of: tuple[int, bytes] = (-1, b"")

    @property
    def n_parts(self) -> int:
        """Pairs of leading letters."""
        return self.family.n_price_parts

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        """See :class:`fcl.features.base.Pricer`. The excess is infinite where all features have some."""
        floor = math.inf if level is None else level - slack
        parts = range(self.n_parts) if parts is None else parts
        known, where = np.unique(self.family.codes(watch), return_inverse=True)
        sums = np.zeros(len(known))
        digest = _digest(residuals)
        self.visited = 0
        prices = []
        for part in parts:
            prices.append(self._price_part(part, residuals, digest, threshold, floor, known, sums))
            self.on_progress(len(prices) / len(parts))
        merged = merge_prices(prices)
        return Prices(
            merged.ids,
            merged.gradients,
            merged.largest,
            sums[where],
            merged.n_priced,
            merged.excess,
        )

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """See :class:`fcl.features.base.Pricer`; the columns are binary, their own squares."""
        known, where = np.unique(self.family.codes(ids), return_inverse=True)
        sums = np.zeros(len(known))
        digest = _digest(values)
        for part in range(self.n_parts) if parts is None else parts:
            low, high = self._codes(part)
            if np.searchsorted(known, low) < np.searchsorted(known, high):
                self._price_part(part, values, digest, math.inf, math.inf, known, sums)
        return sums[where]

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        """See :class:`fcl.features.base.Pricer`."""
        spare[:] = 1.0
        return np.rint(self.sums(spare, ids)).astype(np.int64)

    # -- parts ---------------------------------------------------------------------------------

    def _codes(self, part: int) -> tuple[int, int]:
        """The codes of a part: from, and below."""
        each = 4 * 5 ** (self.family.d - 1) // self.n_parts
        return part * each, (part + 1) * each

    def _price_part(
        self,
        part: int,
        r: Floats,
        digest: bytes,
        threshold: float,
        floor: float,
        known: Ids,
        sums: Floats,
    ) -> Prices:
        from fcl.kernels import occurrences

        family, d = self.family, self.family.d
        low, high = self._codes(part)
        letter = low // 5 ** (d - 1)
        self._expand_letter(letter, r, digest)
        found = np.zeros(occurrences.FOUND)
        endless = floor <= 0.0
        if endless:
            floor = math.inf
        kept = (threshold, floor, known, sums, self._heap_ids, self._heap_values)
        alone = (letter + 1) * 5 ** (
            d - 1
        ) - 1  # the letter with nothing behind: always canonical or not
        if low <= alone < high and self._is_feature(alone):
            occurrences.take(alone, self._alone, *kept, found)
        self._nodes[0, occurrences.PLACE], self._nodes[0, occurrences.LETTER] = d - 1, 4
        at = 0
        while at >= 0:
            at = occurrences.search(
                self._occurrences,
                d,
                family.both,
                r,
                low,
                high,
                *kept,
                self._nodes,
                self._sums,
                at,
                found,
                WORK,
            )
        self.visited += int(found[occurrences.VISITED])
        count = int(found[occurrences.COUNT])
        order = np.argsort(self._heap_ids[:count])
        first, last, ids = low, high, self._heap_ids[:count][order]
        if family.both:
            codes = family.canonical()[0]
            first, last = np.searchsorted(codes, [low, high])
            ids = np.searchsorted(codes, ids)
        return Prices(
            ids.astype(np.int64),
            self._heap_values[:count][order],
            float(max(found[occurrences.LARGEST], found[occurrences.SKIPPED])),
            np.zeros(0),
            int(last - first),
            np.array([math.inf if endless else found[occurrences.EXCESS]]),
        )

    def _is_feature(self, code: int) -> bool:
        """Whether a pattern has an id of its own: of both strands the one of the smaller code has."""
        from fcl.kernels import bags

        d = self.family.d
        return not self.family.both or code <= int(bags.reverse_complement(code, d, 5))

    def _expand_letter(self, letter: int, r: Floats, digest: bytes) -> None:
        """The occurrences of a letter at the beginning of the lists, and the sums of its children."""
        from fcl.kernels import occurrences

        d = self.family.d
        if self._letter != letter:
            self._letter, self._listed = -1, self._list(letter)
            self._letter = letter
        if self._expanded_of == (letter, digest):
            return
        self._expanded_of = -1, b""
        n, node = self._listed, self._nodes[0]
        self._alone = float(occurrences.distinct_sum(self._occurrences, n, r))
        node[:] = 0
        node[occurrences.SPAN], node[occurrences.PREFIX] = 1, letter
        node[occurrences.STOP] = node[occurrences.CUTS] = n
        occurrences.expand(self._occurrences, node, d, r, self._sums[0])
        self._expanded_of = letter, digest

    def _list(self, letter: int) -> int:
        from fcl.kernels import occurrences

        family, count = self.family, 0
        for number, rows in self.prepared.blocks():
            block = family.block(self.prepared, number)
            cursors, letters, _ = self._buffers.of(block)
            count = occurrences.list_occurrences(
                *letters_of(block),
                family.d,
                block.n_rows,
                family.both,
                letter,
                rows.start,
                cursors,
                letters,
                self._occurrences,
                count,
            )
        return int(count)


def _digest(values: Floats) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(values).data, digest_size=16).digest()
