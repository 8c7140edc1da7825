"""Columns of positional k-mers, and margins of a model, position by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import BitBlocks, ColumnMaker, Columns, Floats, Ids
from fcl.features.windows import buffers_for, window_buffers

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily
    from fcl.kernels.kmers import WindowBlock, WindowBuffers

#: Patterns of at most this many letters may get a table of margins.
TABLE_LETTERS = 9
#: Most patterns at a position that are matched one by one, by the letters they span (0 to TABLE_LETTERS):
#: a look-up takes longer if its table is larger than the first-level cache of the core, above all if the
#: tables of other positions have displaced it since the last block of rows. While one position goes
#: through all blocks, its table stays near the core.
MOST_MATCHED = (4, 4, 4, 4, 4, 4, 4, 16, 32, 48)
MOST_MATCHED_IN_PASS = (4, 4, 4, 4, 4, 4, 4, 6, 8, 12)
#: Number of tables of margins that a scorer keeps between blocks of raw rows.
MAX_KEPT_TABLES = 256
#: Number of neighbouring positions that share one reading of a scratch file: few enough that their tables
#: stay in the cache of the core, and their letters are a few planes of each block's record.
SCRATCH_POSITIONS = 4


@dataclass(frozen=True)
class Patterns:
    """Patterns as bit fields over window codes (see :mod:`fcl.kernels.kmers`), each int64 (k,)."""

    positions: npt.NDArray[np.int64]
    cares: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def at(self, position: int) -> tuple[slice, Ids, Ids]:
        """The patterns at one position: their range, cares and values; patterns sorted by position."""
        lo, hi = np.searchsorted(self.positions, [position, position + 1])
        return slice(int(lo), int(hi)), self.cares[lo:hi], self.values[lo:hi]


class KmerColumns(ColumnMaker):
    """Makes the columns of positional patterns as bitmaps."""

    def __init__(self, family: KmerFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        super().__init__(family, prepared, buffer_bytes)
        shape = prepared.n_blocks, -(-min(prepared.block_rows, prepared.n_rows) // 64)
        each = 8 * max(1, shape[0] * shape[1])  # a sample may have no rows yet
        self.batch = max(1, min(self.batch, int(buffer_bytes // each)))
        self._bits = np.empty((shape[0], self.batch, shape[1]), np.uint64)
        self._buffers = window_buffers(prepared.block_rows)

    def make(self, ids: Ids) -> Sequence[Columns]:
        from fcl.kernels import kmers

        d, prepared = self.family.d, self.prepared
        found = self.family.patterns(ids)
        for number, _ in prepared.blocks():
            block = self.family.block(prepared, number)
            bits = self._bits[number, : len(ids)]
            for k in np.unique(found.positions):
                here, cares, values = found.at(int(k))
                kmers.match_bits(block, int(k), d, cares, values, self._buffers, bits[here])
        return BitBlocks(self._bits, len(ids), prepared.n_rows, prepared.block_rows)


# -- margins ---------------------------------------------------------------------------------------


def margin_table_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables of one group of positions, which are in memory at the same time."""
    table: int = 8 * 4 ** min(family.d, TABLE_LETTERS)
    two: int = 2 * 8 * 4 ** min(family.d, TABLE_LETTERS - 1)
    return table * SCRATCH_POSITIONS if scratch else max(table, two)


class MarginPart:
    """The weights of the patterns at one position.

    most_matched : most patterns that are matched one by one, by the letters they span.
    """

    def __init__(
        self,
        family: KmerFamily,
        position: int,
        cares: Ids,
        values: Ids,
        weights: Floats,
        most_matched: Sequence[int],
    ) -> None:
        every = int(np.bitwise_or.reduce(cares))
        trailing = 0
        while not every >> (2 * trailing) & 3:
            trailing += 1
        self.position = position
        self.span = family.d - trailing
        self.cares = cares >> (2 * trailing)
        self.values = values >> (2 * trailing)
        self.weights = weights
        # a table has 4^span cells; a few patterns, or long ones, are matched faster one by one
        self.tabled = self.span <= TABLE_LETTERS and len(cares) > most_matched[self.span]
        self.table: Floats = np.empty(0)

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        from fcl.kernels import kmers

        k, span = self.position, self.span
        patterns = self.cares, self.values, self.weights
        if self.tabled:
            kmers.add_margins(block.planes, k, span, self._folded(), buffers.codes, out)
        else:
            kmers.add_patterns(block.planes, k, span, *patterns, buffers.codes, buffers.sums, out)
        if len(block.unknown_rows):
            kmers.mend_margins(block, k, span, *patterns, buffers, out)

    def add_with(
        self, following: MarginPart, block: WindowBlock, buffers: WindowBuffers, out: Floats
    ) -> None:
        """Add the margins at this position, and then at the next one, with which it shares the cache.

        A block with unknown letters in these windows takes two readings, since its margins are corrected
        position by position.
        """
        from fcl.kernels import kmers

        k = self.position
        stop = max(k + self.span, k + 1 + following.span)
        if block.unknown_start[k] == block.unknown_start[stop]:
            tables = self.span, self._folded(), following.span, following._folded()
            kmers.add_two_margins(block.planes, k, *tables, buffers.codes, out)
        else:
            self.add(block, buffers, out)
            following.add(block, buffers, out)

    def shares(self, other: MarginPart) -> bool:
        """Whether both are tables, of neighbours, that fit in the cache of the core together."""
        fit = max(self.span, other.span) < TABLE_LETTERS
        return fit and self.tabled and other.tabled and other.position == self.position + 1

    def _folded(self) -> Floats:
        from fcl.kernels import kmers

        if not len(self.table):
            self.table = np.empty(4**self.span)
            kmers.fold_table(self.cares, self.values, self.weights, self.span, self.table)
        return self.table


def paired(parts: Sequence[MarginPart]) -> Iterator[Sequence[MarginPart]]:
    """The parts in order, in twos that share the cache of the core, or alone."""
    at = 0
    while at < len(parts):
        n = 2 if at + 1 < len(parts) and parts[at].shares(parts[at + 1]) else 1
        yield parts[at : at + n]
        at += n


def add_parts(
    parts: Sequence[MarginPart], block: WindowBlock, buffers: WindowBuffers, out: Floats
) -> None:
    """Add the margins at some positions, in order and in place."""
    for some in paired(parts):
        if len(some) == 2:
            some[0].add_with(some[1], block, buffers, out)
        else:
            some[0].add(block, buffers, out)


class KmerScorer:
    """Computes the margins of a model: one table look-up per row and position with many patterns.

    Few patterns, and patterns of more than TABLE_LETTERS letters, are matched one by one instead.

    ids : int64 (k,).
    weights : float64 (k,); weights of 0 are ignored.
    in_pass : whether each position goes through all blocks before the next one.
    """

    def __init__(
        self, family: KmerFamily, ids: Ids, weights: Floats, in_pass: bool = False
    ) -> None:
        self.family = family
        most_matched = MOST_MATCHED_IN_PASS if in_pass else MOST_MATCHED
        order = np.argsort(ids, kind="stable")
        order = order[weights[order] != 0.0]
        found = family.patterns(ids[order])
        weights = np.ascontiguousarray(weights[order], np.float64)
        self._parts = []
        for position in np.unique(found.positions):
            here, cares, values = found.at(int(position))
            some = weights[here].copy()
            self._parts.append(MarginPart(family, int(position), cares, values, some, most_matched))

    def groups(self, in_memory: bool) -> Iterator[Sequence[MarginPart]]:
        """Yield the positions with weights in order, in groups that go through the blocks together.

        With rows in memory these are twos that share the cache of the core; else neighbouring positions.
        The tables of a group are discarded when the next group is requested.
        """
        for group in paired(self._parts) if in_memory else self._neighbours():
            yield group
            for part in group:
                part.table = np.empty(0)

    def _neighbours(self) -> Iterator[Sequence[MarginPart]]:
        at = 0
        while at < len(self._parts):
            stop = self._parts[at].position + SCRATCH_POSITIONS
            group = [p for p in self._parts[at : at + SCRATCH_POSITIONS] if p.position < stop]
            yield group
            at += len(group)

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        block = self.family.block_of(rows)
        buffers = buffers_for(block)
        n = 0
        for some in paired(self._parts):
            add_parts(some, block, buffers, out)
            n += len(some)
            for part in some if n > MAX_KEPT_TABLES else ():
                part.table = np.empty(0)
        return out
