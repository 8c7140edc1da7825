"""The features of a block, made tile by tile from their ids."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import Family, is_sampled
from fcl.features.generator.family import GeneratedFamily
from fcl.stagewise.targets import Targets
from fcl.types import Floats, Ids

#: Rows of a tile. Sums inside a tile may be in float32, sums over tiles are in float64 and in the order
#: of the rows, so the number fixes the bits of a model.
TILE_ROWS = 4096


@dataclass
class Part:
    """The rows that are trained on, or those that are validated on, in memory but for X.

    prepared : with blocks of TILE_ROWS rows.
    s : float64 (n,), weights of the rows, above 0.
    margins : float64 (n, K), updated in place; they include the offset.
    offset : float64 (n, K) or None, where the margins start from, besides the intercepts; None for zeros.
    """

    prepared: PreparedRows
    targets: Targets
    s: Floats
    margins: Floats
    offset: Floats | None = None

    def constant(self, intercepts: Floats) -> Floats:
        """The margins of a model of intercepts (K,) alone, float64 (n, K)."""
        margins = np.tile(intercepts, (self.n, 1))
        if self.offset is not None:
            margins += self.offset
        return margins

    def tiles(self) -> Iterator[slice]:
        """The rows of each tile."""
        return map(self.prepared.rows_of, range(self.prepared.n_blocks))

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.s)


def check_family(family: Family) -> GeneratedFamily:
    """Return the family if its features can be made in blocks; raises InputError otherwise."""
    if is_sampled(family):
        raise InputError(
            f"features {family.name}: expected a family with a number of features, got one without an "
            "end; give its number, such as fourier:n=8192"
        )
    if "members" in family.to_config():
        raise InputError(
            f"features {family.name}: expected one family, got several that are joined; give one of "
            "them, or train these features with fcl train"
        )
    if not isinstance(family, GeneratedFamily):
        raise InputError(
            f"features {family.name}: expected a family that makes columns of numbers in blocks, such as "
            "fourier:n=8192, columns or your own; train these features with fcl train"
        )
    return family


class FeatureBlock:
    """Some features on the tiles of a part, less an origin for each feature.

    Tiles may be made by several threads at a time, except those of users' classes.

    ids : int64 (p,), of the features, increasing.
    dtype : float32 or float64.
    kept : number of tiles of the first part that are kept for the next sweep.
    """

    def __init__(
        self,
        family: GeneratedFamily,
        ids: Ids,
        dtype: Any,
        kept: int = 0,
    ) -> None:
        self.ids = ids
        self._family, self._dtype, self._most = family, dtype, kept
        self._kept: dict[int, np.ndarray] = {}
        self._owner: PreparedRows | None = None
        self._lock = threading.Lock()
        self._built_in = type(family.generator).__module__.startswith("fcl.")
        self.origin = np.zeros(len(ids))

    @property
    def text(self) -> str:
        """The features in words."""
        first, last = int(self.ids[0]), int(self.ids[-1])
        some = "" if last - first == len(self.ids) - 1 else f"{len(self.ids):,} of the "
        return f"{some}features {first:,} to {last:,}"

    def centre(self, part: Part) -> None:
        """Measure the origin on the first tile: the mean of features far from 0, else 0.

        A feature whose mean exceeds its deviation by far would lose digits in float32.
        """
        values = self._made(part.prepared, 0)
        mean = values.mean(axis=0, dtype=np.float64)
        spread = values.std(axis=0, dtype=np.float64)
        self.origin = np.where(np.abs(mean) > 4.0 * spread, mean, 0.0)

    def tile(self, part: Part, number: int) -> np.ndarray:
        """The features of a tile, (rows, features)."""
        prepared = part.prepared
        if prepared is self._owner and number in self._kept:
            return self._kept[number]
        made = self._made(prepared, number)
        moved = np.flatnonzero(self.origin)
        if len(moved):
            rest = made[:, moved] - self.origin[moved]  # in float64, before any rounding
            made = made.astype(self._dtype, order="K", copy=not self._is_own(made))
            made[:, moved] = rest
        made = made.astype(self._dtype, order="K", copy=False)
        if number < self._most and self._owner in (None, prepared):
            self._owner = prepared
            self._kept[number] = made
        return made

    def _is_own(self, made: np.ndarray) -> bool:
        """Whether nobody else holds this array: what built-in families share is read-only."""
        return self._built_in and made.flags.writeable

    def _made(self, prepared: PreparedRows, number: int) -> np.ndarray:
        rows = prepared.rows_of(number)
        family = self._family
        # a scratch file has one buffer, and a user's class need not be safe for threads
        with nullcontext() if self._built_in and prepared.in_memory else self._lock:
            block = family.block(prepared, number)
            return family.columns(self.ids, block, number, rows.stop - rows.start)
