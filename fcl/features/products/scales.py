"""Divisors of the columns that products multiply: their standard deviations.

Without them, the square of an amount of 1e5 is 1e10 times as large as a column of 0 and 1. The penalty is
per unit, so that only this square has a weight. Products of scaled columns have comparable sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.features.generator.forms import SparseColumns
from fcl.features.generator.scales import means_and_deviations, sparse_deviations
from fcl.types import Floats

#: Standard deviations that differ by more than this factor are uneven.
UNEVEN = 100.0
#: What a column of 0 and 1 counts when scales are compared: the deviation of one with as many 0 as 1.
#: A rare 1 does not mean another unit.
FLAG = 0.5


def measured(sample: Any, only_uneven: bool) -> Floats | None:
    """The divisors of all columns, float64 (m,) above 0, from a sample of the rows.

    The divisor of a column is its standard deviation; of a constant column it is the size of the
    constant, and 1 of a column of zeros.

    sample : float32 or float64 (n, m), or SparseColumns
    only_uneven : whether to return None unless standard deviations differ by more than ``UNEVEN``.
    """
    if isinstance(sample, SparseColumns):
        columns, found = sparse_deviations(sample)
        first = sample.start[:-1]
        sizes, flags = np.abs(sample.values[first]), np.empty(0, bool)
        if len(first):
            flags = np.logical_and.reduceat(sample.values == 1.0, first)
        n_columns = sample.n_columns
    else:
        found = means_and_deviations(sample)[1]
        columns, n_columns = np.arange(len(found)), len(found)
        sizes = np.abs(sample[0])
        flags = ((sample == 0.0) | (sample == 1.0)).all(axis=0)
    varies = (found > 0.0) & np.isfinite(found)
    compared = np.where(flags, FLAG, found)[varies]
    if only_uneven and not (len(compared) and compared.max() > UNEVEN * compared.min()):
        return None
    divisors = np.ones(n_columns)
    divisors[columns] = np.where(varies, found, np.where(sizes > 0.0, sizes, 1.0))
    return divisors
