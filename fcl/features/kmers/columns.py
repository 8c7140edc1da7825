"""Columns of positional k-mers, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.data.prepared import PreparedRows
from fcl.features.base import BitBlocks, ColumnMaker, Columns
from fcl.features.windows import window_buffers
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily


@dataclass(frozen=True)
class Patterns:
    """Patterns as bit fields over window codes (see :mod:`fcl.kernels.kmers`), each int64 (k,).

    Sorted by position if :meth:`at` is used.
    """

    positions: npt.NDArray[np.int64]
    cares: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def at(self, position: int) -> tuple[slice, Ids, Ids]:
        """The patterns at one position: their range, cares and values."""
        here = self._ranges.get(position, slice(0, 0))
        return here, self.cares[here], self.values[here]

    @cached_property
    def _ranges(self) -> dict[int, slice]:
        positions, first = np.unique(self.positions, return_index=True)
        ends = [*first[1:].tolist(), len(self.positions)]
        return dict(zip(positions.tolist(), map(slice, first.tolist(), ends), strict=False))


class KmerColumns(ColumnMaker):
    """Makes the columns of positional patterns as bitmaps."""

    def __init__(self, family: KmerFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        super().__init__(family, prepared, buffer_bytes)
        self._words = -(-min(prepared.block_rows, prepared.n_rows) // 64)
        each = 8 * max(1, prepared.n_blocks * self._words)  # a sample may have no rows yet
        self.batch = max(1, min(self.batch, int(buffer_bytes // each)))
        self._bits = np.empty((prepared.n_blocks, 0, self._words), np.uint64)  # grows with batches
        self._buffers = window_buffers(prepared.block_rows)

    def make(self, ids: Ids) -> Sequence[Columns]:
        d, prepared = self.family.d, self.prepared
        found = self.family.patterns(ids)
        if self._bits.shape[1] < len(ids):
            self._bits = np.empty((prepared.n_blocks, len(ids), self._words), np.uint64)
        for number, _ in prepared.blocks():
            block = self.family.block(prepared, number)
            bits = self._bits[number, : len(ids)]
            for k in np.unique(found.positions):
                here, cares, values = found.at(int(k))
                kernels.kmers.match_bits(block, int(k), d, cares, values, self._buffers, bits[here])
        return BitBlocks(self._bits, len(ids), prepared.n_rows, prepared.block_rows)
