"""Margins of a model of positional k-mers: one table look-up per row and position with weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fcl.features.base import Floats, Ids
from fcl.features.kmers.rows import SCRATCH_POSITIONS
from fcl.features.windows import WindowBlock

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily

#: Patterns of at most this many letters get a table of margins; longer ones are matched one by one.
TABLE_LETTERS = 9
#: Number of tables of margins that a scorer keeps between blocks of raw rows.
MAX_KEPT_TABLES = 256


def margin_table_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables that exist together: one, or those of a group of positions."""
    table: int = 8 * 4 ** min(family.d, TABLE_LETTERS)
    return table * (SCRATCH_POSITIONS if scratch else 1)


class MarginPart:
    """The weights of the patterns at one position."""

    def __init__(
        self, family: KmerFamily, position: int, cares: Ids, values: Ids, weights: Floats
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
        # a table has 4^span cells; a few long patterns are matched faster one by one
        self.tabled = self.span <= TABLE_LETTERS
        self.table: Floats = np.empty(0)

    def add(self, block: WindowBlock, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        from fcl.kernels import kmers

        codes = np.empty(kmers.CHUNK, np.uint32)
        if self.tabled:
            if not len(self.table):
                self.table = np.empty(4**self.span)
                kmers.fold_table(self.cares, self.values, self.weights, self.span, self.table)
            kmers.add_margins(
                block.planes, self.position, self.span, block.n_rows, self.table, codes, out
            )
        else:
            kmers.add_patterns(
                block.planes,
                self.position,
                self.span,
                block.n_rows,
                self.cares,
                self.values,
                self.weights,
                codes,
                out,
            )
        if len(block.unknown_rows):
            kmers.mend_margins(
                block.planes,
                block.unknown_start,
                block.unknown_rows,
                self.position,
                self.span,
                self.cares,
                self.values,
                self.weights,
                np.zeros(block.n_rows, np.uint32),
                np.empty(block.n_rows, np.int32),
                out,
            )


class KmerScorer:
    """Computes the margins of a model: one table look-up per row and position with weights.

    Patterns of more than TABLE_LETTERS letters are matched one by one instead.

    ids : int64 (k,).
    weights : float64 (k,); weights of 0 are ignored.
    """

    def __init__(self, family: KmerFamily, ids: Ids, weights: Floats) -> None:
        self.family = family
        order = np.argsort(ids, kind="stable")
        order = order[weights[order] != 0.0]
        found = family.patterns(ids[order])
        weights = np.ascontiguousarray(weights[order], np.float64)
        self._parts = []
        for position in np.unique(found.positions):
            here, cares, values = found.at(int(position))
            self._parts.append(
                MarginPart(family, int(position), cares, values, weights[here].copy())
            )

    def groups(self, most: int) -> Iterator[list[MarginPart]]:
        """Yield the positions with weights in order, in groups within ``most`` neighbouring positions.

        The tables of a group are discarded when the next group is requested.
        """
        at = 0
        while at < len(self._parts):
            first = self._parts[at].position
            group = [p for p in self._parts[at : at + most] if p.position < first + most]
            yield group
            for part in group:
                part.table = np.empty(0)
            at += len(group)

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        block = self.family.block_of(rows)
        for n, part in enumerate(self._parts):
            part.add(block, out)
            if n >= MAX_KEPT_TABLES:
                part.table = np.empty(0)
        return out
