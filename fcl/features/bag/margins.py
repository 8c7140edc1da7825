"""Margins of a model of patterns anywhere in the window: table look-ups, or a search for each pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fcl.features.bag.rows import RowBuffers, letters_of, spans
from fcl.features.base import Floats, Ids
from fcl.features.windows import WindowBlock

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily


def margin_bytes(family: BagFamily) -> int:
    """Bytes of the tables from codes to margins."""
    if family.searched:
        return 0
    if family.wildcards:
        return 8 * 5**family.d + 8 * 4**family.d * 4 // 3
    return (12 if family.binary else 8) * 4**family.d


class BagScorer:
    """Computes the margins of a model: one table look-up per row and position.

    The presence of patterns with wildcards is computed pattern by pattern.

    ids : int64 (k,).
    weights : float64 (k,).
    """

    def __init__(self, family: BagFamily, ids: Ids, weights: Floats) -> None:
        from fcl.kernels import bags

        self.family = family
        d, radix = family.d, family.radix
        self._empty = not np.any(weights)
        self._buffers = RowBuffers(family)
        if self._empty:
            return
        if family.searched:
            used = np.flatnonzero(weights)
            self._weights = np.array(weights, np.float64)[used]
            self._patterns = family.windows_of(np.asarray(ids)[used])
            return
        cells = np.zeros(radix**d)
        codes = others = np.array(family.codes(ids))  # a copy: ids of a model are read-only
        if family.both and not family.binary:  # presence needs only the canonical codes
            others = family.others(ids)
        bags.place_weights(codes, others, np.array(weights, np.float64), cells)
        self._five = np.empty(0)
        self._tables = {d: cells}
        if family.wildcards:
            bags.share_wildcards(cells, d)
            self._five = cells
            self._tables = {}
            for span in range(1, d + 1):
                table = self._tables[span] = np.empty(4**span)
                bags.take_from_five(cells, span, d, table)
        self._stamps = np.empty(4**d if family.binary else 0, np.int32)

    def add(self, block: WindowBlock, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        from fcl.kernels import bags, kmers, occurrences

        if self._empty:
            return
        family, d, n = self.family, self.family.d, block.n_rows
        if family.searched:
            occurrences.add_margins(
                *letters_of(block),
                d,
                n,
                *self._patterns,
                self._weights,
                *self._buffers.of_windows(block),
                out,
            )
            return
        if family.binary:
            self._stamps[:] = -1
            bags.add_present_margins(
                *letters_of(block),
                d,
                n,
                family.both,
                self._tables[d],
                *self._buffers.of(block),
                self._stamps,
                out,
            )
            return
        codes = np.empty(kmers.CHUNK, np.uint32)
        masks, rows = np.zeros(n, np.uint32), np.empty(n, np.int32)
        for k, span in spans(family):
            table = self._tables[span]
            kmers.add_margins(block.planes, k, span, n, table, codes, out)
            if len(block.unknown_rows):
                bags.mend_unknown(
                    *letters_of(block), k, span, d, table, self._five, masks, rows, out
                )

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        self.add(self.family.block_of(rows), out)
        return out
