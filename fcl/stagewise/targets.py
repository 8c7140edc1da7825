"""The targets of rows: classes as codes, several labels a row, or one or more numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.dataset import DataSet
from fcl.data.outputs import encode_multilabel, n_target_columns, number_columns
from fcl.data.targets import encode_classes
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

    values : int32 (n,) or float64 (n, K), codes 0 .. K - 1 of classes; 0 and 1 for each label; or
        numbers.
    labels : the class of each code; None for labels and numbers.
    noun : {"class", "label", "target"}, what a column is.
    """

    values: np.ndarray
    labels: tuple[Any, ...] | None
    noun: str = "class"

    @property
    def width(self) -> int:
        """Number K of classes, labels, or numbers for each row."""
        return self.values.shape[1] if self.labels is None else len(self.labels)

    def rows(self, some: slice) -> Floats:
        """The targets of some rows, float64 (k, K); classes are one-hot."""
        values = self.values[some]
        if values.ndim == 2:
            return values
        return (values[:, None] == np.arange(self.width)).astype(np.float64)

    def select(self, keep: Mask) -> Targets:
        """The targets of the rows of a mask (n,)."""
        return Targets(self.values[keep], self.labels, self.noun)


def encoded_targets(
    values: np.ndarray, name: str, numbers: bool, like: Targets | None = None
) -> Targets:
    """Encode one or more numbers for each row, labels as columns of 0 and 1, or one class.

    like : targets of the training rows, for validation rows.

    Raises InputError for fewer than two classes, and for targets of another kind than ``like``.
    """
    width = None if like is None else like.width
    if numbers:
        return Targets(number_columns(values, name, width), None, "target")
    if n_target_columns(values) > 1 and (like is None or like.noun == "label"):
        signs = encode_multilabel(values, name, width, "give --regression (numbers=True)")
        return Targets((signs.T + 1.0) / 2.0, None, "label")
    if np.shape(values)[1:] not in ((), (1,)):
        raise InputError(
            f"{name}: expected one class for each row, got shape {np.shape(values)}; for several labels "
            "give a column of 0 and 1 for each, for several numbers --regression (numbers=True)"
        )
    return Targets(*encode_classes(values, name, None if like is None else like.labels))


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


def refuse_single(targets: Targets, name: str) -> None:
    """Raise InputError for a class with a single row, which cannot be both trained on and validated."""
    if targets.labels is None:
        return
    counts = np.bincount(targets.values, minlength=targets.width)
    code = int(counts.argmin())
    if counts[code] < 2:
        row = int(np.flatnonzero(targets.values == code)[0])
        raise InputError(
            f"{name}: expected at least two rows of each class to hold out a share, got one of class "
            f"{targets.labels[code]!r}, row {row}; remove the row, add others, or set valid_fraction to 0"
        )


def hashed(n: int, seed: int) -> npt.NDArray[np.uint64]:
    """A hash of each number below n; its order is a permutation that depends on the seed alone."""
    keys = np.arange(n, dtype=np.uint64) + np.uint64(seed % (1 << 32)) * np.uint64(1 << 32)
    for factor in _MIX:
        keys = (keys ^ (keys >> _SHIFT)) * factor
    return np.asarray(keys ^ (keys >> _SHIFT))


def held_out(targets: Targets, share: float, seed: int) -> Mask:
    """Choose validation rows: this share of each class, at least one row less than all of it.

    share : from 0 to 1.

    Returns bool (n,): the choice depends on the seed, the number of each row, and the rows of its class.
    """
    n = len(targets.values)
    codes = np.zeros(n, np.int32) if targets.labels is None else targets.values
    order = np.lexsort((hashed(n, seed), codes))
    counts = np.bincount(codes)
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    out = np.zeros(n, np.bool_)
    out[order] = rank < np.minimum(np.floor(share * counts), counts - 1)[codes[order]]
    return out
