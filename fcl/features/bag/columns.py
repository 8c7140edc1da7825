"""Makes the columns of patterns anywhere in the window: counts, or bits of presence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.bag.rows import RowBuffers, letters_of, spans
from fcl.features.base import BitColumns, ColumnMaker, Columns, DenseColumns, Ids, column_bytes
from fcl.features.windows import WindowBlock

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily


def columns_bytes(family: BagFamily) -> int:
    """Bytes of the table from codes to columns."""
    return 0 if family.wildcards else 4 * 4**family.d


class BagColumns(ColumnMaker):
    """Makes the columns of patterns as float32 counts, or as bitmaps."""

    def __init__(self, family: BagFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        from fcl.kernels import kmers

        self.family, self.prepared = family, prepared
        super().__init__(buffer_bytes, column_bytes(family, prepared.n_rows))
        self._slots = np.empty(0, np.int32)  # allocated on first use
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)
        self._buffers = RowBuffers(family)

    def make(self, ids: Ids) -> Sequence[Columns]:
        made: list[Columns] = []
        for number, _ in self.prepared.blocks():
            block = self.family.block(self.prepared, number)
            if self.family.binary:
                made.append(BitColumns(self._bits(block, ids), block.n_rows))
            else:
                made.append(DenseColumns(self.counts(block, ids), block.n_rows))
        return made

    def counts(self, block: WindowBlock, ids: Ids) -> npt.NDArray[np.float32]:
        """Counts of distinct features on a block: float32 (k, n)."""
        from fcl.kernels import bags

        family = self.family
        out = np.zeros((len(ids), block.n_rows), np.float32)
        if family.wildcards:
            self._count_patterns(block, ids, out)
            return out
        bags.count_codes(
            *letters_of(block),
            family.d,
            block.n_rows,
            family.both,
            self._places(ids),
            *self._buffers.of(block),
            out,
        )
        return out

    def _bits(self, block: WindowBlock, ids: Ids) -> npt.NDArray[np.uint64]:
        from fcl.kernels import bags, occurrences

        family = self.family
        out = np.zeros((len(ids), -(-block.n_rows // 64)), np.uint64)
        if family.searched:
            occurrences.mark_patterns(
                *letters_of(block),
                family.d,
                block.n_rows,
                *family.windows_of(ids),
                *self._buffers.of_windows(block),
                out,
            )
            return out
        bags.mark_present(
            *letters_of(block),
            family.d,
            block.n_rows,
            family.both,
            self._places(ids),
            *self._buffers.of(block),
            out,
        )
        return out

    def _places(self, ids: Ids) -> npt.NDArray[np.int32]:
        """The index in ``ids`` of the feature of each code, int32 (4^d,); -1 for other codes."""
        if not len(self._slots):
            self._slots = np.empty(4**self.family.d, np.int32)
        self._slots[:] = -1
        self._slots[self.family.codes(ids)] = np.arange(len(ids))
        return self._slots

    def _count_patterns(self, block: WindowBlock, ids: Ids, out: npt.NDArray[np.float32]) -> None:
        from fcl.kernels import bags

        family, d = self.family, self.family.d
        codes = family.codes(ids)
        owners = np.arange(len(ids))
        if family.both:
            others = family.others(ids)
            new = np.flatnonzero(others != codes)
            codes, owners = np.append(codes, others[new]), np.append(owners, owners[new])
        found = family.patterns(codes)
        for k, span in spans(family):
            cut = 2 * (d - span)  # patterns with letters beyond the end of the row match nothing
            fits = np.flatnonzero(found.cares & ((1 << cut) - 1) == 0)
            if not len(fits):
                continue
            bags.count_patterns(
                *letters_of(block),
                k,
                span,
                block.n_rows,
                found.cares[fits] >> cut,
                found.values[fits] >> cut,
                owners[fits],
                self._codes,
                self._masks,
                self._rows,
                out,
            )
