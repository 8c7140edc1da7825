"""Vectors over rows in few bytes, without loss, since the scheduler carries targets and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.types import Floats

#: A vector with at most this many distinct numbers takes a byte a row.
MOST_LEVELS = 256
#: Rows from which the number of distinct numbers is guessed before all rows are sorted.
GLANCE = 4096


@dataclass(frozen=True)
class Packed:
    """A float64 vector: its distinct numbers with one byte a row, or the numbers themselves."""

    levels: Floats
    codes: npt.NDArray[np.uint8] | None  #: None: ``levels`` has the numbers
    n: int

    @classmethod
    def of(cls, values: Floats) -> Packed:
        """Pack a vector; -0.0 and 0.0 are distinct."""
        bits = np.ascontiguousarray(values, np.float64).view(np.int64)
        if len(np.unique(bits[:GLANCE])) <= MOST_LEVELS:
            levels, codes = np.unique(bits, return_inverse=True)
            if len(levels) == 1:
                return cls(levels.view(np.float64), np.empty(0, np.uint8), len(bits))
            if len(levels) <= MOST_LEVELS:
                return cls(levels.view(np.float64), codes.astype(np.uint8), len(bits))
        return cls(values, None, len(bits))

    def values(self) -> Floats:
        """The vector."""
        if self.codes is None:
            return np.ascontiguousarray(self.levels, np.float64)
        if not len(self.codes):
            return np.repeat(self.levels, self.n)
        found: Floats = self.levels[self.codes]
        return found
