"""Columns of patterns anywhere in the window, and margins of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.arrays import Arrays, zeros
from fcl.data.prepared import PreparedRows
from fcl.features.base import BitColumns, ColumnMaker, Columns, DenseColumns
from fcl.features.windows import buffers_for, window_buffers
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily
    from fcl.kernels.kmers import WindowBlock


def row_buffers(family: BagFamily) -> kernels.bags.RowBuffers:
    """Buffers for the rows of a family."""
    return kernels.bags.RowBuffers(
        np.empty(family.length, np.int64),
        np.empty((kernels.bags.LETTER_ROWS, family.length), np.uint8),
        np.empty(family.n_positions, np.int64),
        np.empty((family.length if family.searched else 0, kernels.bags.LETTER_ROWS), np.uint32),
        np.empty(kernels.bags.LETTER_ROWS, np.uint32),
    )


def spans(family: BagFamily) -> list[tuple[int, int]]:
    """(position, letters) of the windows of a row; with wildcards, also windows cut off at its end."""
    most = family.length if family.wildcards else family.n_positions
    return [(k, min(family.d, family.length - k)) for k in range(most)]


def code_slots(family: BagFamily) -> Arrays:
    """The table from codes to columns."""
    return Arrays(("i4", 0 if family.wildcards else 4**family.d, "slots"))


def code_tables(family: BagFamily, dtype: str, stamped: bool) -> Arrays:
    """Tables of numbers by code; with wildcards of windows of each span, and by five code.

    stamps : the last row with each code.
    """
    d = family.d
    return Arrays(
        (dtype, sum(4**span for span in _spans(family)), "cells"),
        (dtype, 5**d if family.wildcards else 0, "five"),
        ("i4", 4**d if stamped else 0, "stamps"),
    )


def _spans(family: BagFamily) -> range:
    return range(1 if family.wildcards else family.d, family.d + 1)


def by_span(family: BagFamily, cells: np.ndarray) -> dict[int, np.ndarray]:
    """The table of the windows of each span."""
    ends = np.cumsum([4**span for span in _spans(family)])
    return dict(zip(_spans(family), np.split(cells, ends[:-1]), strict=True))


class BagColumns(ColumnMaker):
    """Makes the columns of patterns as float32 counts, or as bitmaps."""

    def __init__(self, family: BagFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        super().__init__(family, prepared, buffer_bytes)
        self._slots = np.empty(0, np.int32)  # allocated on first use
        self._windows = window_buffers(prepared.block_rows)
        self._buffers = row_buffers(family)

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
        d, both = self.family.d, self.family.both
        out = np.zeros((len(ids), block.n_rows), np.float32)
        if self.family.wildcards:
            self._count_patterns(block, ids, out)
        else:
            kernels.bags.count_codes(block, d, both, self._places(ids), self._buffers, out)
        return out

    def _bits(self, block: WindowBlock, ids: Ids) -> npt.NDArray[np.uint64]:
        d, both = self.family.d, self.family.both
        out = np.zeros((len(ids), -(-block.n_rows // 64)), np.uint64)
        if self.family.searched:
            cares, values = self.family.windows_of(ids)
            kernels.occurrences.mark_patterns(block, d, cares, values, self._buffers, out)
        else:
            kernels.bags.mark_present(block, d, both, self._places(ids), self._buffers, out)
        return out

    def _places(self, ids: Ids) -> npt.NDArray[np.int32]:
        """The index in ``ids`` of the feature of each code, int32 (4^d,); -1 for other codes."""
        if not len(self._slots):
            self._slots = code_slots(self.family).allocate()["slots"]
        self._slots[:] = -1
        self._slots[self.family.codes(ids)] = np.arange(len(ids))
        return self._slots

    def _count_patterns(self, block: WindowBlock, ids: Ids, out: npt.NDArray[np.float32]) -> None:
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
            cares, values = found.cares[fits] >> cut, found.values[fits] >> cut
            kernels.bags.count_patterns(
                block, k, span, cares, values, owners[fits], self._windows, out
            )


# -- margins ---------------------------------------------------------------------------------------


def margin_bytes(family: BagFamily) -> int:
    """Bytes of the tables from codes to margins."""
    return 0 if family.searched else code_tables(family, "f8", family.binary).nbytes


class BagScorer:
    """Computes the margins of a model: one table look-up per row and position.

    The presence of patterns with wildcards is computed pattern by pattern.

    ids : int64 (k,).
    weights : float64 (k,).
    """

    def __init__(self, family: BagFamily, ids: Ids, weights: Floats) -> None:
        self.family = family
        d = family.d
        self._empty = not np.any(weights)
        self._buffers = row_buffers(family)
        if self._empty:
            return
        if family.searched:
            used = np.flatnonzero(weights)
            self._weights = np.array(weights, np.float64)[used]
            self._patterns = family.windows_of(np.asarray(ids)[used])
            return
        made = code_tables(family, "f8", family.binary).allocate(zeros)
        self._five, self._stamps = made["five"], made["stamps"]
        self._tables = by_span(family, made["cells"])
        cells = self._five if family.wildcards else made["cells"]
        codes = others = np.array(family.codes(ids))  # a copy: ids of a model are read-only
        if family.both and not family.binary:  # presence needs only the canonical codes
            others = family.others(ids)
        kernels.bags.place_weights(codes, others, np.array(weights, np.float64), cells)
        if family.wildcards:
            kernels.bags.share_wildcards(cells, d)
            for span, table in self._tables.items():
                kernels.bags.take_from_five(cells, span, d, table)

    def add(self, block: WindowBlock, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        if self._empty:
            return
        family, d = self.family, self.family.d
        if family.searched:
            kernels.occurrences.add_margins(
                block, d, *self._patterns, self._weights, self._buffers, out
            )
            return
        if family.binary:
            self._stamps[:] = -1
            kernels.bags.add_present_margins(
                block, d, family.both, self._tables[d], self._buffers, self._stamps, out
            )
            return
        buffers = buffers_for(block)
        for k, span in spans(family):
            table = self._tables[span]
            kernels.margins.add_margins(block.planes, k, span, table, 1.0, buffers.codes, out)
            if len(block.unknown_rows):
                kernels.bags.mend_unknown(block, k, span, d, table, self._five, buffers, out)

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        self.add(self.family.block_of(rows), out)
        return out
