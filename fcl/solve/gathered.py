"""Columns gathered on a sample of the rows, and their products with vectors over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.solve.state import Floats, Ids

__all__ = ["Gathered"]

Singles = npt.NDArray[np.float32]

#: Maximum entries of columns that are multiplied by covariates at a time, unless a column has more.
ENTRIES_A_PRODUCT = 1 << 20


@dataclass(frozen=True)
class Gathered:
    """Columns gathered on the rows of a sample; see :func:`fcl.kernels.columns.gather_chosen`."""

    start: Ids
    stop: Ids
    entries: npt.NDArray[np.int32]
    values: Singles  #: empty if all columns consist of zeros and ones
    q: Floats  #: float64 (rows,), weights of the sampled rows

    def products(self, rows: npt.NDArray[Any], squared: bool = False) -> Floats:
        """sum_i phi_ij rows_i, or phi_ij^2, over the gathered columns, float64 (k, r).

        rows : float32 or float64 (rows, r).
        """
        from scipy.sparse import csr_array

        out = np.empty((len(self.start), rows.shape[1]))
        for columns in self._runs():
            some = slice(self.start[columns.start], self.stop[columns.stop - 1])
            valued = len(self.values) > 0
            values = self.values[some] if valued else np.ones(some.stop - some.start, np.float32)
            values = values * values if squared else values
            shape = columns.stop - columns.start, len(rows)
            if rows.dtype == np.float32 and len(values) == shape[0] * shape[1]:  # all dense
                out[columns] = values.reshape(shape) @ rows
                continue
            ends = np.append(self.start[columns], some.stop) - some.start
            out[columns] = csr_array((values, self.entries[some], ends), shape=shape) @ rows
        return out

    def _runs(self) -> Iterator[slice]:
        """Runs of columns that lie side by side, up to a number of entries."""
        first, k = 0, len(self.start)
        while first < k:
            last = first + 1
            while last < k and self.start[last] == self.stop[last - 1]:
                if self.stop[last] - self.start[first] > ENTRIES_A_PRODUCT:
                    break
                last += 1
            yield slice(first, last)
            first = last
