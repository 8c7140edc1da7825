"""Cuts columns into batches, to limit the memory of their float64 copies."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["STAGES", "STAGE_BYTES", "batches"]

#: Bytes of the float64 columns that are made at a time, and the number of arrays of this size that exist
#: together: the columns as returned, in float64, their squares, and three temporaries of the generator.
STAGE_BYTES = 16 << 20
STAGES = 6


def batches(k: int, n: int) -> Iterator[slice]:
    """Slices of k columns of n rows that take at most STAGE_BYTES in float64."""
    size = max(1, STAGE_BYTES // (8 * max(1, n)))
    for at in range(0, k, size):
        yield slice(at, min(at + size, k))
