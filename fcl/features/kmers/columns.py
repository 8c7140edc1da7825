"""Makes the columns of positional k-mers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.base import BitColumns, ColumnMaker, Columns, Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily


class KmerColumns(ColumnMaker):
    """Makes the columns of positional patterns as bitmaps."""

    def __init__(self, family: KmerFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        from fcl.kernels import kmers

        self.family = family
        self.prepared = prepared
        words = [-(-(rows.stop - rows.start) // 64) for _, rows in prepared.blocks()]
        super().__init__(buffer_bytes, 8 * sum(words))
        self._bits = [np.empty((self.batch, w), np.uint64) for w in words]
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)

    def make(self, ids: Ids) -> Sequence[Columns]:
        from fcl.kernels import kmers

        d = self.family.d
        found = self.family.patterns(ids)
        made = []
        for number, _ in self.prepared.blocks():
            block = self.family.block(self.prepared, number)
            bits = self._bits[number][: len(ids)]
            for k in np.unique(found.positions):
                here, cares, values = found.at(int(k))
                kmers.match_bits(
                    block.planes,
                    block.unknown_start,
                    block.unknown_rows,
                    int(k),
                    d,
                    block.n_rows,
                    cares,
                    values,
                    self._codes,
                    self._masks,
                    self._rows,
                    bits[here],
                )
            made.append(BitColumns(bits, block.n_rows))
        return made
