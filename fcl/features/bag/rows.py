"""Arguments and buffers of the kernels that process a block row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.features.windows import WindowBlock

if TYPE_CHECKING:
    from fcl.features.bag.family import BagFamily

#: First arguments of the kernels: the letters of a block, and the positions of the unknown ones.
Letters = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int32]]


class RowBuffers:
    """Buffers for the letters and codes of a row."""

    def __init__(self, family: BagFamily) -> None:
        from fcl.kernels import bags

        self._letters = np.empty((bags.LETTER_ROWS, family.length), np.uint8)
        self._codes = np.empty(family.n_positions, np.int64)
        columns = family.length if family.searched else 0
        self._windows = np.empty((columns, bags.LETTER_ROWS), np.uint32)
        self._hits = np.empty(bags.LETTER_ROWS, np.uint32)

    def of(
        self, block: WindowBlock
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Cursors at the beginning of the block, and buffers for letters and codes."""
        return block.unknown_start[:-1].copy(), self._letters, self._codes

    def of_windows(
        self, block: WindowBlock
    ) -> tuple[
        npt.NDArray[np.int64], npt.NDArray[np.uint8], npt.NDArray[np.uint32], npt.NDArray[np.uint32]
    ]:
        """Cursors, and room for letters, windows and what is found in them."""
        return block.unknown_start[:-1].copy(), self._letters, self._windows, self._hits


def letters_of(block: WindowBlock) -> Letters:
    """The arrays of a block in the order of the kernels' arguments."""
    return block.planes, block.unknown_start, block.unknown_rows


def spans(family: BagFamily) -> list[tuple[int, int]]:
    """(position, letters) of the windows of a row; with wildcards, including those cut off at its end."""
    most = family.length if family.wildcards else family.n_positions
    return [(k, min(family.d, family.length - k)) for k in range(most)]
