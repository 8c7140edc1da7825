"""The targets of rows: classes as codes, several labels a row, or one or more numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data.dataset import DataSet
from fcl.drivers.targets import EncodedTarget
from fcl.errors import InputError
from fcl.stagewise.settings import Settings
from fcl.types import Floats, Mask
from fcl.units import counted

#: The finaliser of MurmurHash3 for 64 bits, which spreads the bits of numbers.
_MIX = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_SHIFT = np.uint64(33)


@dataclass(frozen=True)
class Targets:
    """The targets of n rows.

    y : as :class:`fcl.drivers.targets.EncodedTarget` has them.
    noun : {"class", "label", "target"}, what a column is.
    width : number K of classes, labels, or numbers for each row.
    """

    y: Floats
    noun: str
    width: int

    def rows(self, some: slice) -> Floats:
        """The targets of some rows, float64 (k, K); classes are one-hot, labels 0 and 1."""
        if self.noun == "class":
            return (self.y[some, None] == np.arange(self.width)).astype(np.float64)
        values = np.ascontiguousarray(np.atleast_2d(self.y)[:, some].T)
        return values if self.noun == "target" else (values + 1.0) / 2.0


def checked_offset(data: DataSet, settings: Settings, K: int) -> Floats | None:
    """The offsets of the margins, float64 (n, K), or None; raises InputError for another shape."""
    if data.offset is None:
        return None
    if settings.update == "cls":
        raise InputError(
            f"{data.name}: the update cls takes no offset, since it calibrates its predictions; set "
            "update to ls or gls"
        )
    offset = data.offset[:, None] if data.offset.ndim == 1 else data.offset
    if offset.shape[1] != K:
        raise InputError(
            f"{data.name}: expected an offset of {counted(K, 'column')}, one for each class or number, "
            f"got shape {data.offset.shape}"
        )
    return offset


def refuse_single(codes: Floats, data: DataSet, targets: EncodedTarget) -> None:
    """Raise InputError for a class with a single row, which cannot be both trained on and validated.

    codes : of the rows with a weight above 0.
    """
    assert targets.labels is not None
    counts = np.bincount(codes.astype(np.intp), minlength=targets.n_outputs)
    code = int(counts.argmin())
    if counts[code] < 2:
        weighted = True if data.weights is None else data.weights > 0.0
        row = int(np.flatnonzero((targets.y == code) & weighted)[0])
        raise InputError(
            f"{data.target_name}: expected at least two rows of each class to hold out a share, got one "
            f"of class {targets.labels[code]!r}, row {row}; remove the row, add others, or set "
            "valid_fraction to 0"
        )


def hashed(n: int, seed: int) -> npt.NDArray[np.uint64]:
    """A hash of each number below n; its order is a permutation that depends on the seed alone."""
    keys = np.arange(n, dtype=np.uint64) + np.uint64(seed % (1 << 32)) * np.uint64(1 << 32)
    for factor in _MIX:
        keys = (keys ^ (keys >> _SHIFT)) * factor
    return np.asarray(keys ^ (keys >> _SHIFT))


def held_out(codes: npt.ArrayLike, share: float, seed: int) -> Mask:
    """Choose validation rows: this share of each class, at least one row less than all of it.

    codes : of the classes of n rows; equal where there are no classes.
    share : from 0 to 1.

    Returns bool (n,): the choice depends on the seed, the number of each row, and the rows of its class.
    """
    codes = np.asarray(codes).astype(np.intp)
    n = len(codes)
    order = np.lexsort((hashed(n, seed), codes))
    counts = np.bincount(codes)
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    out = np.zeros(n, np.bool_)
    out[order] = rank < np.minimum(np.floor(share * counts), counts - 1)[codes[order]]
    return out
