"""Stores the records of several families in one record and one list of side arrays per block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows, SideArrays
from fcl.features.base import Family

#: Records of members begin at multiples of this many bytes, which aligns them for any dtype.
ALIGN = 64


@dataclass(frozen=True)
class Slot:
    """A piece of the record: the family that prepares it, its range of bytes, and its shape."""

    owner: Family
    start: int
    stop: int
    shape: tuple[int, ...]


class PartRows(PreparedRows):
    """A member's part of prepared rows: its records and side arrays, for some row blocks.

    committed : the side arrays of the last committed block, while rows are being selected.
    """

    def __init__(
        self,
        whole: PreparedRows,
        slot: Slot,
        number: int,
        blocks: range | None = None,
        record: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        blocks = range(whole.n_blocks) if blocks is None else blocks
        first = blocks.start * whole.block_rows
        last = min(blocks.stop * whole.block_rows, whole.n_rows)
        # no records of its own: the methods below read those of the whole set
        none = np.empty((0, *slot.shape), np.uint8)
        super().__init__(last - first, whole.block_rows, slot.shape, records=none)
        self._whole, self._slot, self._number, self._first = whole, slot, number, blocks.start
        self._record = record
        self.committed: SideArrays = ()

    @property
    def in_memory(self) -> bool:
        return self._whole.in_memory

    def writable(self, block: int) -> npt.NDArray[np.uint8]:
        assert self._record is not None
        return self._record[self._slot.start : self._slot.stop].reshape(self._slot.shape)

    def commit(self, block: int, sides: Sequence[np.ndarray]) -> None:
        self.committed = tuple(sides)

    def read(
        self, block: int, part: slice = slice(None)
    ) -> tuple[npt.NDArray[np.uint8], SideArrays]:
        slot = self._slot
        first, stop, _ = part.indices(slot.shape[0])
        row = (slot.stop - slot.start) // slot.shape[0]
        wanted = slice(slot.start + first * row, slot.start + stop * row)
        record, _ = self._whole.read(block + self._first, wanted)
        return record[slot.start : slot.stop].reshape(slot.shape), self.sides(block)

    def sides(self, block: int) -> SideArrays:
        counts, *sides = self._whole.sides(block + self._first)
        first = int(counts[: self._number].sum())
        return tuple(sides[first : first + int(counts[self._number])])

    def side_bytes(self) -> int:
        return sum(a.nbytes for b in range(self.n_blocks) for a in self.sides(b))

    def close(self) -> None:
        """Do nothing: the whole set owns the rows."""


def joined_sides(sides: Sequence[SideArrays]) -> list[np.ndarray]:
    """Concatenate lists of side arrays, after an array with the length of each list."""
    return [np.array([len(some) for some in sides]), *(a for some in sides for a in some)]
