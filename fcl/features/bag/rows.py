"""What the kernels that go row by row need beside a block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.features.windows import WindowBlock

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily

#: The letters of a block, and where its unknown ones are; first arguments of the kernels.
Letters = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]


class RowBuffers:
    """Buffers for the letters and codes of a row."""

    def __init__(self, family: BagFamily) -> None:
        from fcl.kernels import bags

        self._letters = np.empty((bags.LETTER_ROWS, family.length), np.uint8)
        self._codes = np.empty(family.n_positions, np.int64)

    def of(
        self, block: WindowBlock
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Cursors at the block's beginning, room for letters and for codes."""
        return block.unknown_start[:-1].copy(), self._letters, self._codes


def letters_of(block: WindowBlock) -> Letters:
    """What the kernels read."""
    return block.planes, block.unknown_start, block.unknown_rows


def spans(family: BagFamily) -> list[tuple[int, int]]:
    """(position, letters) of the windows of a row: with wildcards also those that its end cuts short."""
    most = family.length if family.wildcards else family.n_positions
    return [(k, min(family.d, family.length - k)) for k in range(most)]
