"""Arrays in memory, with the same interface as stored arrays."""

from __future__ import annotations

import numpy as np

from fcl.data.base import RowReader, check_array, fixed_text
from fcl.errors import InputError


class MemoryReader(RowReader[np.ndarray]):
    """Rows of a numpy array; ``read`` returns read-only views."""

    def __init__(self, array: np.ndarray, name: str, may_be_empty: bool = False) -> None:
        if np.ma.is_masked(array):
            raise InputError(
                f"{name} has masked values; expected a value everywhere: fill them in "
                "(array.filled(...)) or drop their rows"
            )
        array = np.asarray(array)
        # Text columns, for example from pandas, are Python objects or StringDType.
        if array.dtype.kind in "OT" and array.size:
            array = fixed_text(array, name)
        check_array(name, array.shape, array.dtype, may_be_empty)
        self.name = name
        self.shape = array.shape
        self.dtype = array.dtype
        self.chunk_rows = max(1, array.shape[0])
        self._array = array.view()
        self._array.flags.writeable = False

    @property
    def chunk_bytes(self) -> int:
        """0: rows are read in place."""
        return 0

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._array[start:stop]
