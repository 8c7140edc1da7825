"""Margins of a model of positional k-mers, position by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.features.base import Floats, Ids
from fcl.features.steps import common_step
from fcl.features.windows import buffers_for

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily
    from fcl.kernels.kmers import WindowBlock, WindowBuffers

#: Most letters of a table of margins.
TABLE_LETTERS = 9
#: Most patterns at a position that are matched one by one, by the letters they span (0 to TABLE_LETTERS):
#: a look-up takes longer if its table is larger than the first-level cache of the core, above all if the
#: tables of other positions have displaced it since the last block of rows. While one position goes
#: through all blocks, its table stays near the core.
MOST_MATCHED = (4, 4, 4, 4, 4, 4, 4, 16, 32, 48)
MOST_MATCHED_IN_PASS = (4, 4, 4, 4, 4, 4, 4, 6, 8, 12)
#: Number of tables of margins that a scorer keeps between blocks of raw rows.
MAX_KEPT_TABLES = 256
#: Parts that begin at so many neighbouring positions share one reading of a scratch file: few enough that
#: their tables stay in the cache of the core, and their letters are a few planes of each block's record.
SCRATCH_POSITIONS = 4
#: Fewest rows of a pass for which neighbouring positions share a table: making it takes longer.
SHARED_ROWS = 1 << 17
#: Most patterns of several positions that are matched one by one rather than in a table that they share.
MOST_APART = 4
#: Sums of absolute weights stay below this number of steps in the tables that positions share: int32.
MOST_SHARED_STEPS = 2.0**31
#: Sums of float64 are exact below this number of steps.
EXACT_STEPS = 2.0**53


def margin_table_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables of one group of positions, which are in memory at the same time."""
    own = 4 ** min(family.d, TABLE_LETTERS)
    two = 2 * 8 * 4 ** min(family.d, TABLE_LETTERS - 1)
    letters = min(family.length, TABLE_LETTERS)
    shared = 4 * (max(own, 4 ** (letters - 1)) + 4**letters)
    largest = max(8 * own, two, shared)
    if not scratch:
        return largest
    # the other positions of a group are alone, or share a table of up to two letters more
    each = 24 * own if family.d + 2 <= TABLE_LETTERS else 8 * own
    return largest + (SCRATCH_POSITIONS - 1) * each


def shares_tables(n_rows: int) -> bool:
    """Whether neighbouring positions share tables in a pass over so many rows."""
    return n_rows >= SHARED_ROWS


class MarginPart:
    """The weights of the patterns at one position.

    every : the letters that some pattern cares for.
    total : sum of the absolute weights.
    most_matched : most patterns that are matched one by one, by the letters they span.
    """

    def __init__(
        self,
        family: KmerFamily,
        position: int,
        cares: Ids,
        values: Ids,
        weights: Floats,
        every: int,
        total: float,
        most_matched: Sequence[int],
    ) -> None:
        trailing = 0
        while not every >> (2 * trailing) & 3:
            trailing += 1
        self.position = position
        self.span = family.d - trailing
        self.cares = cares >> (2 * trailing)
        self.values = values >> (2 * trailing)
        self.weights = weights
        self.total = total
        # a table has 4^span cells; a few patterns, or long ones, are matched faster one by one
        self.tabled = self.span <= TABLE_LETTERS and len(cares) > most_matched[self.span]
        self._table: Floats = np.empty(0)

    @property
    def stop(self) -> int:
        """The position that follows the letters."""
        return self.position + self.span

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        from fcl.kernels import kmers

        k, span = self.position, self.span
        patterns = self.cares, self.values, self.weights
        if self.tabled:
            kmers.add_margins(block.planes, k, span, self.table(), 1.0, buffers.codes, out)
        else:
            kmers.add_patterns(block.planes, k, span, *patterns, buffers.codes, buffers.sums, out)
        if len(block.unknown_rows):
            self.mend(block, buffers, out)

    def mend(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Correct the margins of rows with unknown letters, in place."""
        from fcl.kernels import kmers

        patterns = self.cares, self.values, self.weights
        kmers.mend_margins(block, self.position, self.span, *patterns, buffers, out)

    def table(self) -> Floats:
        """The margin of every code, float64 (4^span,)."""
        from fcl.kernels import kmers

        if not len(self._table):
            self._table = np.empty(4**self.span)
            kmers.fold_table(self.cares, self.values, self.weights, self.span, self._table)
        return self._table

    def forget(self) -> None:
        """Discard the table."""
        self._table = np.empty(0)


class Pair:
    """Two neighbouring positions whose tables fit in the cache of the core together."""

    def __init__(self, first: MarginPart, second: MarginPart) -> None:
        self.position = first.position
        self.stop = max(first.stop, second.stop)
        self._parts = first, second

    @classmethod
    def fits(cls, first: MarginPart, second: MarginPart) -> bool:
        """Whether both have tables, and are neighbours, and fit."""
        small = max(first.span, second.span) < TABLE_LETTERS
        return small and first.tabled and second.tabled and second.position == first.position + 1

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins at both positions, in order and in place.

        A block with unknown letters in these windows takes two readings, since its margins are corrected
        position by position.
        """
        from fcl.kernels import kmers

        if block.unknown_start[self.position] == block.unknown_start[self.stop]:
            first, second = self._parts
            tables = first.span, first.table(), second.span, second.table()
            kmers.add_two_margins(block.planes, self.position, *tables, buffers.codes, out)
        else:
            for part in self._parts:
                part.add(block, buffers, out)

    def forget(self) -> None:
        """Discard the tables."""
        for part in self._parts:
            part.forget()


class Shared:
    """Neighbouring positions whose weights are multiples of a step, and which share one table.

    Its cells are sums of whole steps in 32 bits, so a table of one letter more takes no more room than
    two tables of float64. Sums of multiples of a power of two are exact, so the margins are those of the
    positions one by one, bit for bit.
    """

    def __init__(self, parts: Sequence[MarginPart], step: float) -> None:
        self.position = parts[0].position
        self.stop = max(part.stop for part in parts)
        self._parts = parts
        self._step = step
        self._table: npt.NDArray[np.int32] = np.empty(0, np.int32)

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins at all positions, in place."""
        from fcl.kernels import kmers

        k, span = self.position, self.stop - self.position
        if not len(self._table):
            self._table = self._sums()
        kmers.add_margins(block.planes, k, span, self._table, self._step, buffers.codes, out)
        if len(block.unknown_rows):
            for part in self._parts:
                part.mend(block, buffers, out)

    def _sums(self) -> npt.NDArray[np.int32]:
        """The sum of the weights by the code of all letters, in steps.

        Positions that end early go to a table of their letters, which is then spread over more letters.
        """
        from fcl.kernels import kmers

        table, end = np.zeros(1, np.int32), self.position
        for stop in sorted({part.stop for part in self._parts}):
            wider = np.zeros(4 ** (stop - self.position), np.int32)
            kmers.spread_table(table, stop - end, wider)
            table, end = wider, stop
            for part in (part for part in self._parts if part.stop == stop):
                own = np.empty(4**part.span, np.int32)
                steps = (part.weights * (1.0 / self._step)).astype(np.int32)
                kmers.fold_table(part.cares, part.values, steps, part.span, own)
                kmers.spread_table(own, 0, table)
        return table

    def forget(self) -> None:
        """Discard the table."""
        self._table = np.empty(0, np.int32)


Parts = Sequence[MarginPart | Pair | Shared]


def together(parts: Sequence[MarginPart], share: bool) -> Parts:
    """The parts in order, some of them joined.

    share : whether neighbours of few letters may share a table if sums of the weights are exact.
    """
    out: list[MarginPart | Pair | Shared] = []
    step = 0.0
    if share and parts:
        weights = np.concatenate([part.weights for part in parts])
        step = common_step(weights)
        share = bool(np.abs(weights).sum() < EXACT_STEPS * step)
    at = 0
    while at < len(parts):
        n = _n_shared(parts[at:], step) if share else 0
        most = MOST_APART if n > 1 else MOST_MATCHED_IN_PASS[-1]
        if sum(len(part.weights) for part in parts[at : at + n]) > most:
            out.append(Shared(parts[at : at + n], step))
        elif at + 1 < len(parts) and Pair.fits(*parts[at : at + 2]):
            n = 2
            out.append(Pair(*parts[at : at + 2]))
        else:
            n = 1
            out.append(parts[at])
        at += n
    return out


def _n_shared(parts: Sequence[MarginPart], step: float) -> int:
    """Number of the first parts whose letters and sums of weights fit in one table."""
    stop, total = 0, 0.0
    for n, part in enumerate(parts):
        stop = max(stop, part.stop)
        total += part.total
        if stop - parts[0].position > TABLE_LETTERS or not total < MOST_SHARED_STEPS * step:
            return n
    return len(parts)


class KmerScorer:
    """Computes the margins of a model: one table look-up per row and position with many patterns.

    Few patterns, and patterns of more than TABLE_LETTERS letters, are matched one by one instead.

    ids : int64 (k,).
    weights : float64 (k,); weights of 0 are ignored.
    n_rows : number of rows of a pass, in which each position goes through all blocks before the next
        one; 0 if raw rows come in blocks.
    """

    def __init__(self, family: KmerFamily, ids: Ids, weights: Floats, n_rows: int = 0) -> None:
        self.family = family
        most_matched = MOST_MATCHED_IN_PASS if n_rows else MOST_MATCHED
        order = np.argsort(ids, kind="stable")
        order = order[weights[order] != 0.0]
        found = family.patterns(ids[order])
        weights = np.ascontiguousarray(weights[order], np.float64)
        positions, starts = np.unique(found.positions, return_index=True)
        every = np.bitwise_or.reduceat(found.cares, starts).tolist()
        totals = np.add.reduceat(np.abs(weights), starts).tolist()
        parts = []
        for position, letters, total in zip(positions.tolist(), every, totals, strict=True):
            here, cares, values = found.at(position)
            patterns = cares, values, weights[here]
            parts.append(MarginPart(family, position, *patterns, letters, total, most_matched))
        self._parts = together(parts, shares_tables(n_rows))

    def groups(self, in_memory: bool) -> Iterator[Parts]:
        """Yield the parts in order, in groups that go through the blocks together.

        With rows in memory these are single parts, whose tables fit in the cache of the core; else parts
        of neighbouring positions. The tables of a group are discarded when the next group is requested.
        """
        at = 0
        while at < len(self._parts):
            n, last = 1, self._parts[at].position + SCRATCH_POSITIONS
            while (
                not in_memory and at + n < len(self._parts) and self._parts[at + n].position < last
            ):
                n += 1
            yield self._parts[at : at + n]
            for part in self._parts[at : at + n]:
                part.forget()
            at += n

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        block = self.family.block_of(rows)
        buffers = buffers_for(block)
        n_tables = 0
        for part in self._parts:
            part.add(block, buffers, out)
            n_tables += 2 if isinstance(part, Pair) else 1
            if n_tables > MAX_KEPT_TABLES:
                part.forget()
        return out
