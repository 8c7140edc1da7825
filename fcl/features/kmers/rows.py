"""Patterns as bit fields, in the layout that the kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.base import Ids

#: Number of neighbouring positions that share one reading of a scratch file: few enough that their tables
#: stay in the cache of the core, and their letters are a few planes of each block's record.
SCRATCH_POSITIONS = 4


@dataclass(frozen=True)
class Patterns:
    """Patterns as bit fields over window codes (see :mod:`fcl.kernels.kmers`), each int64 (k,)."""

    positions: npt.NDArray[np.int64]
    cares: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def at(self, position: int) -> tuple[slice, Ids, Ids]:
        """The patterns at one position: their range, cares and values; patterns sorted by position."""
        lo, hi = np.searchsorted(self.positions, [position, position + 1])
        return slice(int(lo), int(hi)), self.cares[lo:hi], self.values[lo:hi]
