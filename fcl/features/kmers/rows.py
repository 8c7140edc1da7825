"""Prepared blocks and patterns, in the form that the kernels take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.base import Ids

#: Neighbouring positions that share one reading of a scratch file: their tables stay in the cache of the
#: core, and their letters are a few planes of each block's record.
SCRATCH_POSITIONS = 4


@dataclass(frozen=True)
class Patterns:
    """Patterns as bit fields over window codes (see :mod:`fcl.kernels.kmers`), each int64 (k,)."""

    positions: npt.NDArray[np.int64]
    cares: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def at(self, position: int, d: int, span: int) -> tuple[slice, Ids, Ids]:
        """Those at one position, for codes of the first ``span`` of d letters; sorted input."""
        lo, hi = np.searchsorted(self.positions, [position, position + 1])
        cut = 2 * (d - span)
        return slice(int(lo), int(hi)), self.cares[lo:hi] >> cut, self.values[lo:hi] >> cut
