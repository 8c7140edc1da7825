"""The grid of 16-bit weights that fits the sizes of the features."""

from __future__ import annotations

import math

import numpy as np

from fcl.drivers.rows import Rows
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.rows import RowLister
from fcl.online.table import WeightGrid


def grid_for(family: Family, view: RowLister, rows: Rows, block_rows: int) -> str:
    """The grid for weights ``q``, by the features of the first block of rows, such as ``q2.13``.

    Raises InputError if all features of these rows are 0.
    """
    total, count = 0.0, 0
    _, _, raw = next(iter(family.read_rows(rows.data.rows, block_rows, rows.keep)))
    for chunk in view.chunks(raw):
        values = np.asarray(chunk.values, np.float64)
        total += float(values @ values)
        count += int(np.count_nonzero(values))
    if not count:
        raise InputError(
            f"{rows.data.name}: weights q need features other than 0 in the first rows, to find their "
            "size; name the grid, such as q2.13"
        )
    return WeightGrid.fitting(math.sqrt(total / count)).text
