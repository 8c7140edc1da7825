"""The groups of rows, such as chromosomes, numbered block by block."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError

#: Rows whose groups are converted at a time.
BLOCK_ROWS = 65_536


class Groups:
    """Names and numbers of the groups of rows; raises InputError unless each row has one value.

    values : the group of each row, (n,) or (n, 1) of text, bytes or numbers. ``names`` has them sorted,
    as numbers or as text.
    """

    def __init__(self, values: np.ndarray, n_rows: int) -> None:
        values = np.asarray(values)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values.reshape(-1)
        if values.shape != (n_rows,):
            raise InputError(f"groups: expected {n_rows:,}, one for each row, got {values.shape}")
        self._values = values
        parts = [np.unique(self._read(at, at + BLOCK_ROWS)) for at in range(0, n_rows, BLOCK_ROWS)]
        self._known = np.unique(np.concatenate(parts))
        self.names: list[str] = self._known.astype(str).tolist()

    def numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The number of the group of each row in a range: int64 (stop - start,)."""
        return np.searchsorted(self._known, self._read(start, stop)).astype(np.int64)

    def _read(self, start: int, stop: int) -> np.ndarray:
        """The groups of a range of rows: numbers or text."""
        values = self._values[start:stop]
        if values.dtype.kind in "biuf":
            return values
        if values.dtype.kind == "S":
            return np.char.decode(values, "utf-8", "backslashreplace")
        return values.astype(str)
