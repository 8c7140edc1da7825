"""The rows of a job: which are selected, and their targets, weights, offsets and covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.numeric import NumericReader
from fcl.drivers.covariates import Design
from fcl.errors import InputError
from fcl.objective import Loss

__all__ = [
    "Rows",
    "centred",
    "check_data_set",
    "encode_targets",
    "select_rows",
    "select_valid_rows",
    "weighted_by_class",
]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The selected rows of a data set, with their targets and weights."""

    data: DataSet
    keep: npt.NDArray[np.bool_] | None  #: bool (data.n_rows,), the selection; None: all rows
    y: Floats  #: float64 (n,), targets; with several numbers a row, (m, n)
    s: Floats  #: float64 (n,), weights, above 0
    #: float64 (n,), added to the margins, or (K, n) with K outputs; None for zeros
    offset: Floats | None = None
    covariates: Floats | None = None  #: float64 (n, q), orthonormal; None for none

    @property
    def n(self) -> int:
        """Number of selected rows."""
        return len(self.s)

    @property
    def held_bytes(self) -> int:
        """Bytes of all arrays but X as they were read, and of two copies of the row mask."""
        arrays = (self.data.target, self.data.weights, self.data.offset, self.keep, self.keep)
        held = sum(a.nbytes for a in arrays if a is not None)
        return held + sum(array.values.nbytes for array in self.data.covariates or ())

    def block_bytes(self, block_rows: int) -> int:
        """Bytes of the largest block of raw rows, and of row pointers that are kept in memory."""
        from fcl.data.sparse import SparseRowReader

        reader = self.data.rows
        if not isinstance(reader, SparseRowReader):
            return block_rows * reader.dtype.itemsize * int(np.prod(reader.shape[1:]))
        entries = NumericReader(reader, self.keep).block_entries(block_rows)
        return reader.resident_bytes + 20 * int(entries.max())

    def with_covariates(self, design: Design) -> Rows:
        """The same rows with the columns of a design."""
        return replace(self, covariates=design.columns(self.data, self.keep))


def check_data_set(name: str, data: Any) -> None:
    """Raise InputError unless an argument of that name is a data set."""
    if not isinstance(data, DataSet):
        raise InputError(
            f"{name} must be a data set, got {type(data).__name__}; open it with fcl.open_data"
        )


def encode_targets(
    data: DataSet, loss: Loss, purpose: str
) -> tuple[Floats, tuple[Any, Any] | None]:
    """The targets for a loss; and the labels (negative, positive), None for regression."""
    from fcl.data.targets import encode_labels, regression_target

    if data.target is None:
        raise InputError(f"{data.name}: {purpose} needs a target, and none was opened (y=None)")
    if loss.classifies:
        return encode_labels(data.target, data.target_name)
    y = regression_target(data.target, data.target_name)
    loss.check_targets(y, data.target_name)
    return y, None


def select_rows(
    data: DataSet,
    y: Floats,
    weights: Floats | None,
    keep: npt.NDArray[np.bool_] | None,
    purpose: str = "train on",
) -> Rows:
    """The rows of ``keep``, without rows of weight 0, which have no effect."""
    if weights is not None and (weights == 0.0).any():
        keep = weights > 0.0 if keep is None else keep & (weights > 0.0)
    if keep is not None and keep.all():
        keep = None
    if keep is None:
        s = np.ones(len(y)) if weights is None else np.ascontiguousarray(weights, np.float64)
        return Rows(data, None, np.ascontiguousarray(y), s, data.offset)
    if not keep.any():
        raise InputError(f"{data.name}: no rows are left to {purpose}")
    s = np.ones(int(keep.sum())) if weights is None else weights[keep]
    return Rows(data, keep, y[keep], s, None if data.offset is None else data.offset[keep])


def select_valid_rows(valid: DataSet, loss: Loss, labels: tuple[Any, Any] | None) -> Rows:
    """The rows of a validation data set, whose target must be of the kind that was trained on."""
    y, found = encode_targets(valid, loss, "validation")
    if found != labels:
        raise InputError(
            f"{valid.target_name}: labels {found} differ from those trained on, {labels}"
        )
    return select_rows(valid, y, valid.weights, None)


def centred(
    loss: Loss, train: Rows, valid: Rows | None, intercept: bool
) -> tuple[tuple[Rows, Rows | None], float]:
    """Centre targets or offsets, and return the rows with the shift of the intercept.

    Margins are about as large as targets and offsets, and around 1e6 they would lose six digits to
    rounding. If the loss depends on y - m alone, offsets are subtracted from the targets. A free
    intercept then absorbs the mean of the targets, or for other losses the mean of the offsets.
    """
    rows = [train] if valid is None else [train, valid]
    if loss.translates:
        rows = [r if r.offset is None else replace(r, y=r.y - r.offset, offset=None) for r in rows]
    shift = 0.0
    if intercept and loss.translates:
        shift = float(np.average(rows[0].y, weights=train.s))
        rows = [replace(r, y=r.y - shift) for r in rows]
    elif intercept and train.offset is not None:
        shift = -float(np.average(train.offset, weights=train.s))
        rows = [r if r.offset is None else replace(r, offset=r.offset + shift) for r in rows]
    return (rows[0], rows[1] if valid is not None else None), shift


def weighted_by_class(rows: Rows, by_class: str | tuple[tuple[Any, float], ...]) -> Rows:
    """The rows with their weights times class weights; balanced ones give both classes equal sums."""
    positive = rows.y > 0.0
    if isinstance(by_class, str):
        sums = [math.fsum(rows.s[~positive]), math.fsum(rows.s[positive])]
        low, high = (0.5 * sum(sums) / part for part in sums)
    else:
        (_, low), (_, high) = by_class
    return replace(rows, s=rows.s * np.where(positive, high, low))
