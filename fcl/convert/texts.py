"""Arrays of text, whose chunks hold a limited number of bytes however long the texts are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl.convert.arrays import TEXT, ArrayStore, Growing, write_rows

#: What a text takes beside its letters, as an array and as the objects that zarr makes of it.
_TEXT_BYTES = 64
#: Texts that are turned into an array at a time.
_STEP = 1 << 16


class TextArray(Growing):
    """An array of text (n,) to which values are appended; it is written chunk by chunk.

    All chunks of an array have the same number of rows. If later texts are so long that a chunk would
    exceed the limit of bytes, the rows that are stored already are written again in smaller chunks.

    store : its layout limits the rows, a power of two, and the bytes of a chunk.
    """

    def __init__(self, store: ArrayStore, path: str) -> None:
        super().__init__(store, path)
        self._chunk = store.layout.chunk_rows
        self._limit = store.layout.column_bytes
        self._waiting: list[np.ndarray] = []
        self._n_waiting, self._bytes = 0, 0
        self._n_rows = 0

    def append(self, values: np.ndarray) -> None:
        """Append texts of any dtype of NumPy; bytes are read as UTF-8."""
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        values = values.astype(TEXT, copy=False)
        while len(values):
            here = values[: self._chunk - self._n_waiting]
            sizes = self._bytes + np.cumsum(np.strings.str_len(here) + _TEXT_BYTES)
            fits = int(np.searchsorted(sizes, self._limit, side="right"))
            if fits < len(here) and self._chunk > 1:
                values = np.concatenate([*self._waiting, values])
                self._shrink(self._n_waiting + fits)
                self._start_chunk()
                continue
            self._waiting.append(here)
            self._n_waiting += len(here)
            self._bytes = int(sizes[-1])
            values = values[len(here) :]
            if self._n_waiting == self._chunk:
                self._flush()

    def finish(self) -> None:
        """Write what is left, and wait until all is written."""
        if self._n_waiting or self._array is None:
            self._chunk = self._chunk if self._n_rows else max(1, self._n_waiting)
            self._flush()
        self._wait()

    def _start_chunk(self) -> None:
        self._waiting, self._n_waiting, self._bytes = [], 0, 0

    def _flush(self) -> None:
        self._wait()
        if self._array is None:
            self._array = self._create()
        values = np.concatenate([np.empty(0, TEXT), *self._waiting])
        self._n_rows += len(values)
        self._submit(self._n_rows, values)
        self._start_chunk()

    def _create(self) -> Any:
        return self._store.create(self._path, TEXT, (self._chunk,))

    def _shrink(self, rows: int) -> None:
        """Make chunks of at most so many rows, also of the rows that are stored already."""
        before = self._chunk
        while self._chunk > max(1, rows):
            self._chunk //= 2
        self._wait()
        if self._array is None:
            return
        with self._store.moved_away(self._path) as old:
            self._array = self._create()
            for start in range(0, self._n_rows, before):
                values = old[start : start + before]
                write_rows(self._array, start + len(values), values)


def write_texts(store: ArrayStore, path: str, values: Sequence[str]) -> None:
    """Write an array of text."""
    array = TextArray(store, path)
    for start in range(0, len(values), _STEP):
        array.append(np.array(values[start : start + _STEP], TEXT))
    array.finish()
