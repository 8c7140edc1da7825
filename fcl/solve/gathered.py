"""Columns gathered on a sample of the rows, and their products with vectors over it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.kernels.gather import GatheredColumns
from fcl.types import Floats

#: Maximum entries of columns that are multiplied by covariates at a time, unless a column has more.
ENTRIES_A_PRODUCT = 1 << 20


@dataclass(frozen=True)
class Gathered:
    """Columns gathered on the rows of a sample."""

    columns: GatheredColumns
    q: Floats  #: float64 (rows,), weights of the sampled rows

    @property
    def start(self) -> npt.NDArray[np.int64]:
        """Where the entries of each column begin, int64 (k,)."""
        return self.columns.cuts[:, 0]

    @property
    def stop(self) -> npt.NDArray[np.int64]:
        return self.columns.cuts[:, -1]

    def numbers(self, some: slice) -> npt.NDArray[np.int32]:
        """The numbers in the sample of the rows of some columns side by side, int32 (entries,)."""
        cuts, firsts = self.columns.cuts[some], self.columns.firsts
        entries = self.columns.rows[cuts[0, 0] : cuts[-1, -1]].astype(np.int32)
        starts = np.tile(firsts[:-1].astype(np.int32), len(cuts))
        entries += np.repeat(starts, np.diff(cuts).ravel())
        return entries

    def products(self, rows: npt.NDArray[Any], squared: bool = False) -> Floats:
        """sum_i phi_ij rows_i, or phi_ij^2, over the gathered columns, float64 (k, r).

        rows : float32 or float64 (rows, r).
        """
        from scipy.sparse import csr_array

        out = np.empty((len(self.start), rows.shape[1]))
        own = self.columns.values
        for columns in self._runs():
            some = slice(self.start[columns.start], self.stop[columns.stop - 1])
            values = own[some] if len(own) else np.ones(some.stop - some.start, np.float32)
            values = values * values if squared else values
            shape = columns.stop - columns.start, len(rows)
            if rows.dtype == np.float32 and len(values) == shape[0] * shape[1]:  # all dense
                out[columns] = values.reshape(shape) @ rows
                continue
            ends = np.append(self.start[columns], some.stop) - some.start
            out[columns] = csr_array((values, self.numbers(columns), ends), shape=shape) @ rows
        return out

    def _runs(self) -> Iterator[slice]:
        """Runs of columns that lie side by side, up to a number of entries."""
        start, stop = self.start, self.stop
        first, k = 0, len(start)
        while first < k:
            last = first + 1
            while last < k and start[last] == stop[last - 1]:
                if stop[last] - start[first] > ENTRIES_A_PRODUCT:
                    break
                last += 1
            yield slice(first, last)
            first = last
