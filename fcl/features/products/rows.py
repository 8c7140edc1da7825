"""The products of a row, listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fcl import kernels
from fcl.features.rows import BufferedView, MatrixView, RowChunk
from fcl.types import Ids

if TYPE_CHECKING:
    from fcl.features.products.family import Products

#: Largest degree of products that are listed.
MOST_LISTED = 3


class ProductRows(BufferedView):
    """Lists the products of the entries of a row; values are float64."""

    def __init__(self, generator: Products) -> None:
        super().__init__(generator.n_features)
        self._columns = MatrixView(generator.columns_)
        self._divisors, self._shifts = generator.divisors, generator.shifts
        self._first = generator.numbering.first[: generator.degree + 1]
        self._repeats = generator.numbering.repeats

    def value_type(self, raw: Any) -> Any:
        return np.float64

    def room(self, raw: Any) -> Ids:
        dense = isinstance(raw, np.ndarray)
        given = raw if self._shifts is None or not dense else raw != self._shifts
        k = np.count_nonzero(given, axis=1) if dense else self._columns.room(raw)
        more = 1 if self._repeats else 0
        total = k.copy()
        for degree in range(2, len(self._first)):
            term = np.ones_like(k)
            for i in range(degree):  # the binomial coefficient, exact after every division
                term = term * (k + more * (degree - 1) - i) // (i + 1)
            total += np.maximum(term, 0)
        return np.asarray(total, np.int64)

    def write(self, raw: Any, rows: Ids, out: RowChunk) -> None:
        if self._shifts is not None and isinstance(raw, np.ndarray):
            raw, rows = raw[rows] - self._shifts, np.arange(len(rows))
        found = self._columns.listed(raw, rows)
        values = found.values
        if self._divisors is not None:
            values = values / self._divisors[found.ids]
        kernels.listing.list_products(
            found.indptr,
            found.ids,
            values,
            self._first,
            self._repeats,
            out.indptr,
            out.ids,
            out.values,
        )
