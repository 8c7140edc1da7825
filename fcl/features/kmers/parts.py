"""Parts of the margins of positional k-mers: patterns of one position, or of neighbouring ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.kernels.kmers import WindowBlock, WindowBuffers

#: Most letters of a table of margins.
TABLE_LETTERS = 9


class MarginPart:
    """The weights of patterns at one position, or of patterns that begin at it or soon after.

    span : number of letters from the position on that the patterns care for, at most.
    cares, values : int64 (k,), for codes of so many letters.
    tabled : whether a table of all codes is faster than matching the patterns one by one.
    """

    def __init__(
        self,
        position: int,
        span: int,
        cares: Ids,
        values: Ids,
        weights: Floats,
        tabled: bool = False,
    ) -> None:
        self.position, self.span = position, span
        self.cares, self.values, self.weights = cares, values, weights
        self.tabled = tabled
        self.table_bytes = 8 * 4**span if tabled else 0
        self._table: Floats = np.empty(0)

    @property
    def stop(self) -> int:
        """The position that follows the letters."""
        return self.position + self.span

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        k, span = self.position, self.span
        patterns = self.cares, self.values, self.weights
        if self.tabled:
            kernels.margins.add_margins(
                block.planes, k, span, self.table(), 1.0, buffers.codes, out
            )
        else:
            kernels.margins.add_patterns(
                block.planes, k, span, *patterns, buffers.codes, buffers.sums, out
            )
        if len(block.unknown_rows):
            self.mend(block, buffers, out)

    def mend(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Correct the margins of rows with unknown letters, in place."""
        patterns = self.cares, self.values, self.weights
        kernels.margins.mend_margins(block, self.position, self.span, *patterns, buffers, out)

    def table(self) -> Floats:
        """The margin of every code, float64 (4^span,)."""
        if not len(self._table):
            self._table = np.empty(4**self.span)
            kernels.margins.fold_table(
                self.cares, self.values, self.weights, self.span, self._table
            )
        return self._table

    def forget(self) -> None:
        """Discard the table."""
        self._table = np.empty(0)


class Pair:
    """Two neighbouring positions whose tables fit in the cache of the core together."""

    def __init__(self, first: MarginPart, second: MarginPart) -> None:
        self.position = first.position
        self.stop = max(first.stop, second.stop)
        self.table_bytes = first.table_bytes + second.table_bytes
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
        if block.unknown_start[self.position] == block.unknown_start[self.stop]:
            first, second = self._parts
            tables = first.span, first.table(), second.span, second.table()
            kernels.margins.add_two_margins(
                block.planes, self.position, *tables, buffers.codes, out
            )
        else:
            for part in self._parts:
                part.add(block, buffers, out)

    def forget(self) -> None:
        """Discard the tables."""
        for part in self._parts:
            part.forget()


class SharedTable:
    """Neighbouring positions whose weights are multiples of a step, and which share one table.

    Its cells are sums of whole steps in 32 bits, so a table of one letter more takes no more room than
    two tables of float64. Sums of multiples of a power of two are exact, so the margins are those of the
    positions one by one, bit for bit.
    """

    def __init__(self, parts: Sequence[MarginPart], step: float) -> None:
        self.position = parts[0].position
        self.stop = max(part.stop for part in parts)
        self.table_bytes = 4 * 4 ** (self.stop - self.position)
        self._parts = parts
        self._step = step
        self._table: npt.NDArray[np.int32] = np.empty(0, np.int32)

    def add(self, block: WindowBlock, buffers: WindowBuffers, out: Floats) -> None:
        """Add the margins at all positions, in place."""
        k, span = self.position, self.stop - self.position
        if not len(self._table):
            self._table = self._sums()
        kernels.margins.add_margins(
            block.planes, k, span, self._table, self._step, buffers.codes, out
        )
        if len(block.unknown_rows):
            for part in self._parts:
                part.mend(block, buffers, out)

    def _sums(self) -> npt.NDArray[np.int32]:
        """The sum of the weights by the code of all letters, in steps.

        Positions that end early go to a table of their letters, which is then spread over more letters.
        """
        table, end = np.zeros(1, np.int32), self.position
        for stop in sorted({part.stop for part in self._parts}):
            wider = np.zeros(4 ** (stop - self.position), np.int32)
            kernels.margins.spread_table(table, stop - end, wider)
            table, end = wider, stop
            for part in (part for part in self._parts if part.stop == stop):
                self._add(part, table)
        return table

    def _add(self, part: MarginPart, table: npt.NDArray[np.int32]) -> None:
        """Add a part to a table whose last letter is that of the part."""
        own = np.empty(4**part.span, np.int32)
        steps = (part.weights / self._step).astype(np.int32)
        kernels.margins.fold_table(part.cares, part.values, steps, part.span, own)
        kernels.margins.spread_table(own, 0, table)

    def forget(self) -> None:
        """Discard the table."""
        self._table = np.empty(0, np.int32)
