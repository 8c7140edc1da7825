"""Genotypes by sample, from a file that stores them by variant, through a scratch file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Transposed"]


@dataclass
class Transposed:
    """A matrix (n samples, variants) of int8 that is written by columns and read by rows.

    The scratch file holds one byte a genotype, in tiles of some variants of all samples, so that both
    directions move long pieces. It has no name, so that nothing is left of it.
    """

    n_samples: int
    scratch: str | None  #: folder of the file; None for the system's
    _tiles: list[tuple[int, int]] = field(
        default_factory=list
    )  #: first variant, number of variants

    def __post_init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=self.scratch)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    @property
    def n_variants(self) -> int:
        return sum(width for _, width in self._tiles)

    def append(self, columns: np.ndarray) -> None:
        """Append variants: int8 (n, variants)."""
        self._tiles.append((self.n_variants, columns.shape[1]))
        self._file.write(np.ascontiguousarray(columns).data)

    def rows(self, step: int) -> Iterator[np.ndarray]:
        """Iterate over blocks of samples: int8 (up to step, variants)."""
        self._file.flush()
        for start in range(0, self.n_samples, step):
            stop = min(self.n_samples, start + step)
            block = np.empty((stop - start, self.n_variants), np.int8)
            for first, width in self._tiles:
                at = self.n_samples * first + start * width
                piece = os.pread(self._file.fileno(), (stop - start) * width, at)
                tile = np.frombuffer(piece, np.int8).reshape(-1, width)
                block[:, first : first + width] = tile
            yield block
