"""A buffer of the size of a record, which holds the same part of many records of a file."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Fill = Callable[[int, int, memoryview], None]


class RecordBuffer:
    """Reads parts of records from a file, and keeps as many as fit.

    shape : shape of a record, which is uint8. Parts are ranges of the first axis.
    """

    def __init__(self, shape: tuple[int, ...], n_records: int) -> None:
        self._n, self._n_records = shape[0], n_records
        self._row_bytes = math.prod(shape[1:])
        self._flat = len(shape) == 1
        # a record of which the buffer has a part may begin before the buffer, or end after it; the memory
        # around the buffer is hardly ever touched
        self._room = np.empty((3 * self._n, *shape[1:]), np.uint8)
        self._record: npt.NDArray[np.uint8] = self._room[self._n : 2 * self._n]
        self._held: dict[int, int] = {}  # the records in the buffer, the oldest first: their places
        self._part = (0, 0)  # the range of the first axis that the buffer has of them

    @property
    def record(self) -> npt.NDArray[np.uint8]:
        """The whole buffer, to write a record to; it no longer holds what was read."""
        self._held.clear()
        return self._record

    def read(self, number: int, first: int, stop: int, fill: Fill) -> npt.NDArray[np.uint8]:
        """A record with arbitrary content outside a range; it is valid until the next call.

        fill : called, if the part is not held, with the record's number, a position in its bytes, and the
            memory to fill from there.
        """
        part = self._part
        within = part[0] <= first <= stop <= part[1]
        if not (within and number in self._held):
            if (first, stop) != part and not (within and self.places(*part) >= self._n_records):
                self._held.clear()
                # read ahead as far as the buffer has room for all records
                ahead = stop if self._flat else first + self._n // self._n_records
                self._part = (first, min(self._n, max(stop, ahead)))
            self._load(number, fill)
        start = self._n + self._start(self._held[number]) - self._part[0]
        return self._room[start : start + self._n]

    def places(self, first: int, stop: int) -> int:
        """Number of records of which the buffer can hold a range of the first axis."""
        if self._flat:  # the parts stay in place, where their dtypes find them aligned
            return 1
        return self._n // max(1, stop - first)

    def _start(self, place: int) -> int:
        """The row of the buffer at which a place begins."""
        first, stop = self._part
        return place * (stop - first) if self.places(first, stop) > 1 else first

    def _load(self, number: int, fill: Fill) -> None:
        """Read a part of a record, to the place of the oldest if the buffer is full."""
        first, stop = self._part
        place = len(self._held)
        if place == self.places(first, stop):
            place = self._held.pop(next(iter(self._held)))
        start, row = self._start(place), self._row_bytes
        view = self._record.data.cast("B")[start * row : (start + stop - first) * row]
        try:
            fill(number, first * row, view)
        except BaseException:
            self._held.clear()  # else the place of the oldest would be forgotten
            raise
        self._held[number] = place
