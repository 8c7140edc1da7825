"""The rows of a job: which are selected, and their targets, weights, offsets and covariates."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet, outputs
from fcl.data.numeric import NumericReader
from fcl.data.outputs import n_target_columns, refuse_absent_classes
from fcl.data.sparse import SparseRowReader
from fcl.data.targets import encode_labels, regression_target
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
    y: Floats  #: float64 (n,), targets or codes of classes; (K, n) for several targets or labels
    s: Floats  #: float64 (n,), weights, above 0
    offset: Floats | None = None  #: float64 (n,) or (K, n), added to the margins; None for zeros
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


def encode_targets(
    data: DataSet, loss: Loss, purpose: str
) -> tuple[Floats, tuple[Any, Any] | None]:
    """The targets for a loss; and the labels (negative, positive), None for regression."""
    if data.target is None:
        raise InputError(f"{data.name}: {purpose} needs a target, and none was opened (y=None)")
    if data.offset is not None and data.offset.ndim > 1:
        raise InputError(
            f"{data.name}: expected one offset for each row, got shape {data.offset.shape}; offsets for "
            "several outputs need a loss or a target of several outputs"
        )
    if loss.classifies:
        return encode_labels(data.target, data.target_name)
    y = regression_target(data.target, data.target_name)
    loss.check_targets(y, data.target_name)
    return y, None


#: Losses of several outputs, by name.
_OF_OUTPUTS = ("softmax", "squared", "logistic")


def has_several_outputs(data: DataSet, loss: Loss) -> bool:
    """Whether a model of this loss and target has several outputs: classes, targets or labels."""
    several = data.target is not None and n_target_columns(data.target) > 1
    return several or loss.name == "softmax"


def encode_outputs(
    data: DataSet, loss: Loss, purpose: str, width: int | None = None, known: Any = None
) -> tuple[Floats, tuple[Any, ...] | None]:
    """The targets of several outputs, and their labels.

    Parameters
    ----------
    data : DataSet
    loss : Loss
        softmax, squared or logistic.
    purpose : str
        For messages.
    width : int, optional
        The number of outputs of a model; None for any number.
    known : sequence, optional
        The classes of a model, for softmax; None: those that occur.

    Returns
    -------
    y : float64
        softmax: codes (n,) of the classes, sorted by label; squared: numbers (m, n); logistic: -1 and +1,
        (K, n). C-contiguous.
    labels : tuple or None
        The classes of softmax, or the names of the columns of the target; None if they have no names.

    Raises
    ------
    InputError
        The target is missing, or not of the kind or number of columns that the loss needs.
    """
    values, name = data.target, data.target_name
    if values is None:
        raise InputError(f"{data.name}: {purpose} needs a target, and none was opened (y=None)")
    y: Floats
    labels: tuple[Any, ...] | None
    if loss.name == "softmax":
        y, labels = outputs.encode_softmax(values, name, known)
    elif loss.name == "squared":
        y, labels = outputs.number_columns(values, name, width).T, data.target_columns
    elif loss.name == "logistic":
        y, labels = outputs.encode_multilabel(values, name, width), data.target_columns
    else:
        raise InputError(
            f"{name}: expected one column for {loss.name} loss, got shape {values.shape}; several "
            f"columns need one of the losses {', '.join(_OF_OUTPUTS[1:])}"
        )
    n_outputs = len(labels) if loss.name == "softmax" and labels is not None else len(y)
    _check_offset_shape(data, n_outputs)
    return np.ascontiguousarray(y), labels


def _check_offset_shape(data: DataSet, n_outputs: int) -> None:
    if data.offset is not None and data.offset.shape[1:] != (n_outputs,):
        raise InputError(
            f"{data.name}: expected an offset for each row and output, shape "
            f"{(data.n_rows, n_outputs)}, got shape {data.offset.shape}"
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
    """The rows of ``keep``, without rows of weight 0, which have no effect."""
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


def select_valid_rows(valid: DataSet, loss: Loss, labels: tuple[Any, Any] | None) -> Rows:
    """The rows of a validation data set, whose target must be of the kind that was trained on."""
    y, found = encode_targets(valid, loss, "validation")
    if found != labels:
        raise InputError(
            f"{valid.target_name}: labels {found} differ from those trained on, {labels}"
        )
    return select_rows(valid, y, valid.weights, None)


def select_valid_outputs(
    valid: DataSet, loss: Loss, labels: tuple[Any, ...] | None, n_outputs: int
) -> Rows:
    """The rows of a validation data set for a model of several outputs.

    Raises InputError for another number of columns, an unknown class, or a class without rows.
    """
    known = labels if loss.name == "softmax" else None
    y, _ = encode_outputs(valid, loss, "validation", n_outputs, known)
    if known is not None:
        refuse_absent_classes(y, known, valid.target_name)
    return select_rows(valid, y, valid.weights, None)


def centred(
    loss: Loss, train: Rows, valid: Rows | None, intercept: bool
) -> tuple[tuple[Rows, Rows | None], Any]:
    """Centre targets or offsets, and return the rows with the shift of the intercept.

    Margins are about as large as targets and offsets, and around 1e6 they would lose six digits to
    rounding. If the loss depends on y - m alone, offsets are subtracted from the targets. A free
    intercept then absorbs the mean of the targets, or for other losses the mean of the offsets. With
    several targets there is a shift for each, float64 (m,); classes and labels have none.
    """
    several = train.y.ndim > 1 or (train.offset is not None and train.offset.ndim > 1)
    if several and not loss.translates:
        return (train, valid), 0.0
    rows = [train] if valid is None else [train, valid]
    if loss.translates:
        rows = [r if r.offset is None else replace(r, y=r.y - r.offset, offset=None) for r in rows]
    shift: Any = 0.0
    if intercept and several:
        shift = np.average(rows[0].y, axis=1, weights=train.s)
        rows = [replace(r, y=r.y - shift[:, None]) for r in rows]
    elif intercept and loss.translates:
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
    return _weighted(rows, np.where(positive, high, low))


def weighted_by_code(rows: Rows, by_class: str | tuple[tuple[Any, float], ...], K: int) -> Rows:
    """The rows of K classes, whose targets are codes, with their weights times class weights.

    Balanced weights give all classes equal sums, and leave the sum over all rows unchanged.
    """
    codes = rows.y.astype(np.intp)
    if isinstance(by_class, str):
        sums = np.bincount(codes, weights=rows.s, minlength=K)
        factors = sums.sum() / (K * sums)
    else:
        factors = np.array([weight for _, weight in by_class])
    return _weighted(rows, factors[codes])


def _weighted(rows: Rows, factors: Floats) -> Rows:
    """The rows with their weights times factors; InputError if these have no finite sum."""
    s = rows.s * factors
    with np.errstate(over="ignore"):
        total = s.sum()
    if not np.isfinite(total):
        raise InputError(
            "class_weight: expected weights whose sum over the rows is finite, got up to "
            f"{factors.max():g}; give smaller ones"
        )
    return replace(rows, s=s)
