"""Genotypes by sample, from a file that stores them by variant, through a scratch file."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator

import numpy as np

from fcl.convert.contract import Budget
from fcl.units import counted

#: The part of the budget that a tile or a band may take.
_PART = 4
#: Samples or variants that a tile or band must have, as shorter requests to the scratch file are slow.
_SHORTEST = 16


class Transposed:
    """A matrix (samples, variants) of int8 that is written by columns and read by rows.

    The scratch file holds one byte for each genotype, in tiles: some variants of all samples. A band,
    which is some samples of all variants, is read from all tiles. Tiles and bands are as large as the
    budget allows, because each pair of a tile and a band takes one request to the file: with 512 MiB, 0.2
    million requests of about 130 KB for 50,000 samples of 500,000 variants. The file has no name, so that
    nothing is left of it.

    tiles : ranges of variants, in the order in which they must be appended.
    bands : ranges of samples.
    """

    def __init__(self, n_samples: int, n_variants: int, budget: Budget) -> None:
        size = budget.total // _PART
        budget.check(
            f"{_SHORTEST} samples of {counted(n_variants, 'variant')}, or {_SHORTEST} variants of "
            f"{counted(n_samples, 'sample')},",
            _SHORTEST * max(n_samples, n_variants),
            _PART,
        )
        self.tiles = _ranges(n_variants, size // max(1, n_samples))
        self.bands = _ranges(n_samples, size // n_variants)
        self._n_samples = n_samples
        self._file = tempfile.TemporaryFile(dir=budget.scratch)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def append(self, columns: np.ndarray) -> None:
        """Append the next tile: int8 (samples, variants of the tile)."""
        self._file.write(np.ascontiguousarray(columns).data)

    def rows(self) -> Iterator[np.ndarray]:
        """Iterate over the bands: int8 (samples of the band, variants); the next one overwrites it."""
        self._file.flush()
        memory = np.empty((self.bands[0].stop, self.tiles[-1].stop) if self.bands else 0, np.int8)
        for band in self.bands:
            n_rows = band.stop - band.start
            rows = memory[:n_rows]
            for tile in self.tiles:
                width = tile.stop - tile.start
                at = self._n_samples * tile.start + band.start * width
                piece = os.pread(self._file.fileno(), n_rows * width, at)
                rows[:, tile] = np.frombuffer(piece, np.int8).reshape(n_rows, width)
            yield rows


def _ranges(stop: int, step: int) -> list[slice]:
    return [slice(start, min(stop, start + step)) for start in range(0, stop, step)]
