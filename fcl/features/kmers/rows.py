"""The k-mers of a row, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fcl import kernels
from fcl.features.rows import BufferedView, RowChunk
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily


class KmerRows(BufferedView):
    """Lists the positional patterns that match windows of letters."""

    def __init__(self, family: KmerFamily) -> None:
        super().__init__(family.n_features)
        self._d, self._most = family.d, family.n_positions << (family.d - 1)

    def most_listed(self, n_rows: int) -> int:
        return n_rows * self._most

    def room(self, raw: np.ndarray) -> Ids:
        return np.full(len(raw), self._most, np.int64)

    def write(self, raw: np.ndarray, rows: Ids, out: RowChunk) -> None:
        kernels.listing.list_kmers(raw, rows, self._d, out.indptr, out.ids, out.values)
