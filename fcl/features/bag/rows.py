"""The patterns of a row, listed with their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fcl import kernels
from fcl.features.rows import BufferedView, RowChunk
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily


class BagRows(BufferedView):
    """Lists the patterns that occur anywhere in windows of letters."""

    def __init__(self, family: BagFamily) -> None:
        super().__init__(family.n_features)
        each = 1 << (family.d - 1) if family.wildcards else 1
        self._family, self._most = family, family.length * each
        self._canonical = family.canonical()[0] if family.both else np.empty(0, np.int32)
        self._found = np.empty(self._most, np.int64)

    def room(self, raw: np.ndarray) -> Ids:
        return np.full(len(raw), self._most, np.int64)

    def write(self, raw: np.ndarray, rows: Ids, out: RowChunk) -> None:
        family = self._family
        kernels.listing.list_bag(
            raw,
            rows,
            family.d,
            family.radix,
            self._canonical,
            family.binary,
            self._found,
            out.indptr,
            out.ids,
            out.values,
        )
