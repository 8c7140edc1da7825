"""Chunks of HDF5 files that gzip compresses, decoded to at most the size that the dataset announces.

The HDF5 library lets the filter ``deflate`` grow its buffer without a limit: a chunk of a megabyte can
become a gigabyte. Other filters do not, or bound what they write by the size of a chunk.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fcl.memory.allowance import SMALL, inflate

_DEFLATE, _SHUFFLE, _FLETCHER32 = 1, 2, 3
#: Most bytes that a byte of a deflate stream can stand for, rounded up.
_MOST_INFLATED = 1040
#: Bytes of a checksum.
_CHECKSUM = 4


class DeflatedChunks:
    """The chunks of a dataset whose last filters are gzip and perhaps a checksum.

    dataset : with chunks.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        plan = dataset.id.get_create_plist()
        self._filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        self._bytes = dataset.dtype.itemsize * math.prod(dataset.chunks)

    @property
    def is_limited(self) -> bool:
        """Whether this class decodes chunks; False if the library decodes them in bounded memory."""
        return _DEFLATE in self._filters and self._bytes * _MOST_INFLATED > SMALL

    def read(self, cell: tuple[slice, ...]) -> np.ndarray:
        """The rows of a slice, or rows and columns; ValueError or an error of h5py for a bad chunk."""
        dataset = self._dataset
        whole = [slice(0, n) for n in dataset.shape[len(cell) :]]
        box = [(each.start, each.stop) for each in (*cell, *whole)]
        out = np.empty([stop - start for start, stop in box], dataset.dtype)
        grid = [
            range(start // c, -(-stop // c))
            for (start, stop), c in zip(box, dataset.chunks, strict=True)
        ]
        for index in itertools.product(*grid):
            corner = tuple(i * c for i, c in zip(index, dataset.chunks, strict=True))
            shared = [
                (max(start, at), min(stop, at + c))
                for (start, stop), at, c in zip(box, corner, dataset.chunks, strict=True)
            ]
            chunk = self._chunk(corner)
            if chunk is None:
                found = dataset[tuple(slice(*each) for each in shared)]
            else:
                found = chunk[_within(shared, corner)]
            out[_within(shared, [start for start, _ in box])] = found
        return out

    def _chunk(self, corner: tuple[int, ...]) -> np.ndarray | None:
        """A decoded chunk; None if it was never written."""
        dataset = self._dataset
        try:
            mask, content = dataset.id.read_direct_chunk(corner)
        except (OSError, RuntimeError, ValueError, MemoryError):
            # the library gives the fill value, or says what is damaged; without any chunk it reports
            # that it cannot allocate
            return None
        for number in reversed(range(len(self._filters))):
            if not mask >> number & 1:  # a bit of the mask says that the filter was left out
                content = self._undone(self._filters[number], content)
        return np.frombuffer(content, dataset.dtype).reshape(dataset.chunks)

    def _undone(self, code: int, content: Any) -> Any:
        """The bytes before a filter."""
        if code == _DEFLATE:
            return inflate(content, self._bytes + _CHECKSUM)
        if code == _SHUFFLE:
            from numcodecs import Shuffle

            return Shuffle(self._dataset.dtype.itemsize).decode(content)
        if code == _FLETCHER32:
            from numcodecs.fletcher32 import Fletcher32

            return Fletcher32().decode(content)
        raise ValueError(
            f"it is compressed by gzip after or before the filter {code}, which fcl does not read; write "
            "the array again with gzip and shuffle alone"
        )


def _within(box: Sequence[tuple[int, int]], origin: Sequence[int]) -> tuple[slice, ...]:
    """A box of an array as slices of a part of the array that begins at an origin."""
    return tuple(slice(a - at, b - at) for (a, b), at in zip(box, origin, strict=True))
