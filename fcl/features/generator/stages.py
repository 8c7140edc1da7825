"""Columns in float64, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["STAGES", "STAGE_BYTES", "batches"]

#: Bytes of columns in float64 that are made at a time, beside their block; what there is of them at once:
#: as they came, in float64, their squares, and three steps on the generator's way to them.
STAGE_BYTES = 16 << 20
STAGES = 6


def batches(k: int, n: int) -> Iterator[slice]:
    """Cut k columns of n rows so that in float64 they take no more than the stage."""
    size = max(1, STAGE_BYTES // (8 * max(1, n)))
    for at in range(0, k, size):
        yield slice(at, min(at + size, k))
