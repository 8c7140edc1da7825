"""The rows of a job: which are selected, and their targets, weights, offsets and covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.numeric import NumericReader
from fcl.data.sparse import SparseRowReader
from fcl.drivers.covariates import Design
from fcl.errors import InputError
from fcl.features.generator.forms import MOST_COUNTED
from fcl.objective import Loss
from fcl.types import Floats

#: Bytes of an entry of sparse rows while a block is read: column and value.
ENTRY_BYTES = 12
#: Approximate largest size of a block of sparse rows in bytes, and limits of its number of rows.
BLOCK_BYTES = 64 << 20
LEAST_BLOCK_ROWS, MOST_BLOCK_ROWS = 1 << 10, 1 << 16


@dataclass(frozen=True)
class Rows:
    """The selected rows of a data set, with their targets and weights."""

    data: DataSet
    keep: npt.NDArray[np.bool_] | None  #: bool (data.n_rows,), the selection; None: all rows
    y: Floats  #: as :class:`fcl.drivers.targets.EncodedTarget` has them
    s: Floats  #: float64 (n,), weights, above 0
    offset: Floats | None = None  #: float64 (n,) or (K, n), added to the margins; None for zeros
    covariates: Floats | None = None  #: float64 (n, q), orthonormal; None for none

    @property
    def n(self) -> int:
        """Number of selected rows."""
        return len(self.s)

    @property
    def target_columns(self) -> int:
        """Number of columns of the target."""
        return self.y.size // self.n

    @property
    def held_bytes(self) -> int:
        """Bytes of all arrays but X as they were read, and of two copies of the row mask."""
        arrays = (self.data.target, self.data.weights, self.data.offset, self.keep, self.keep)
        held = sum(a.nbytes for a in arrays if a is not None)
        return held + sum(array.values.nbytes for array in self.data.covariates or ())

    def block_bytes(self, block_rows: int) -> int:
        """Bytes of the largest block of raw rows, and of row pointers that are kept in memory."""
        reader = self.data.rows
        if not isinstance(reader, SparseRowReader):
            return block_rows * reader.dtype.itemsize * int(np.prod(reader.shape[1:]))
        entries = int(self.block_entries(block_rows).max())
        # most of very many columns are empty: then the others are found by sorting
        each = ENTRY_BYTES * (1 if reader.shape[1] <= MOST_COUNTED * entries else 2)
        return reader.resident_bytes + each * entries

    def block_entries(self, block_rows: int) -> npt.NDArray[np.int64]:
        """Numbers of entries of the blocks of sparse rows; 0 for blocks of other rows."""
        if not isinstance(self.data.rows, SparseRowReader):
            return np.zeros(-(-self.n // block_rows), np.int64)
        return NumericReader(self.data.rows, self.keep).block_entries(block_rows)

    @property
    def most_block_rows(self) -> int:
        """The largest practical number of rows in a block, as far as their entries determine it."""
        reader = self.data.rows
        if not isinstance(reader, SparseRowReader):
            return MOST_BLOCK_ROWS
        row = max(1.0, ENTRY_BYTES * reader.nnz / reader.shape[0])
        return max(LEAST_BLOCK_ROWS, int(BLOCK_BYTES / row) // 64 * 64)

    def with_covariates(self, design: Design) -> Rows:
        """The same rows with the columns of a design."""
        return replace(self, covariates=design.columns(self.data, self.keep))


def check_data_set(name: str, data: Any) -> None:
    """Raise InputError unless an argument of that name is a data set."""
    if not isinstance(data, DataSet):
        raise InputError(
            f"{name} must be a data set, got {type(data).__name__}; open it with fcl.open_data"
        )


def held_out_rows(n: int, fraction: float, seed: int) -> npt.NDArray[np.bool_]:
    """The rows that ``valid_fraction`` holds out of training, bool (n,)."""
    return np.random.default_rng([seed, 0xFC1]).random(n) < fraction


def select_rows(
    data: DataSet,
    y: Floats,
    weights: Floats | None,
    keep: npt.NDArray[np.bool_] | None,
    purpose: str = "train on",
) -> Rows:
    """The rows of ``keep`` whose weight is above 0."""
    offset = data.offset
    if offset is not None and offset.ndim == 2:
        offset = np.ascontiguousarray(offset.T)
    if weights is not None and (weights == 0.0).any():
        keep = weights > 0.0 if keep is None else keep & (weights > 0.0)
    if keep is not None and keep.all():
        keep = None
    if keep is None:
        s = np.ones(y.shape[-1]) if weights is None else np.ascontiguousarray(weights, np.float64)
        return Rows(data, None, np.ascontiguousarray(y), s, offset)
    if not keep.any():
        raise InputError(f"{data.name}: no rows are left to {purpose}")
    s = np.ones(int(keep.sum())) if weights is None else weights[keep]
    kept = [None if a is None else np.ascontiguousarray(a[..., keep]) for a in (y, offset)]
    assert kept[0] is not None
    return Rows(data, keep, kept[0], s, kept[1])


def centred(
    loss: Loss, train: Rows, valid: Rows | None, intercept: bool
) -> tuple[tuple[Rows, Rows | None], Floats]:
    """Centre targets or offsets; returns the rows and the shift of the intercepts, float64 (1,) or (K,).

    Margins are about as large as targets and offsets, and around 1e6 they would lose six digits to
    rounding. If the loss depends on y - m alone, offsets are subtracted from the targets. A free
    intercept then absorbs the mean of the targets, or for other losses the mean of the offsets of a
    single output.
    """
    rows = [train] if valid is None else [train, valid]
    shift: Any = np.zeros(1)
    if loss.translates:
        rows = [r if r.offset is None else replace(r, y=r.y - r.offset, offset=None) for r in rows]
        if intercept:
            shift = np.average(rows[0].y, axis=-1, weights=train.s)
            rows = [replace(r, y=(r.y.T - shift).T) for r in rows]
    elif intercept and train.offset is not None and train.offset.ndim == 1:
        shift = -np.average(train.offset, weights=train.s)
        rows = [r if r.offset is None else replace(r, offset=r.offset + shift) for r in rows]
    return (rows[0], rows[1] if valid is not None else None), np.atleast_1d(shift)


def weighted_by_class(
    rows: Rows, by_class: str | tuple[tuple[Any, float], ...], n_outputs: int = 1
) -> Rows:
    """The rows with their weights times class weights.

    Balanced weights give all classes equal sums, and leave the sum over all rows unchanged.
    """
    if n_outputs == 1:
        factors = _factors_of_labels(rows, by_class)
    else:
        factors = class_factors(rows.y.astype(np.intp), rows.s, by_class, n_outputs)
    s = rows.s * factors
    with np.errstate(over="ignore"):
        total = s.sum()
    if not np.isfinite(total):
        raise InputError(
            "class_weight: expected weights whose sum over the rows is finite, got up to "
            f"{factors.max():g}; give smaller ones"
        )
    return replace(rows, s=s)


def _factors_of_labels(rows: Rows, by_class: str | tuple[tuple[Any, float], ...]) -> Floats:
    """The class weights of rows whose targets are -1 and +1."""
    positive = rows.y > 0.0
    if isinstance(by_class, str):
        sums = [math.fsum(rows.s[~positive]), math.fsum(rows.s[positive])]
        low, high = (0.5 * sum(sums) / part for part in sums)
    else:
        (_, low), (_, high) = by_class
    return np.where(positive, high, low)


def class_factors(
    codes: npt.NDArray[np.intp],
    s: Floats,
    by_class: str | tuple[tuple[Any, float], ...],
    n_classes: int,
) -> Floats:
    """The class weights of rows with the codes of their classes and sample weights, float64 (n,)."""
    if isinstance(by_class, str):
        sums = np.bincount(codes, weights=s, minlength=n_classes)
        factors = sums.sum() / (n_classes * sums)
    else:
        factors = np.array([weight for _, weight in by_class])
    return factors[codes]
