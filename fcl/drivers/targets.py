"""The target of rows, encoded as a loss needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.arrays import of_outputs
from fcl.data import DataSet, outputs
from fcl.data.outputs import n_target_columns, refuse_absent_classes
from fcl.data.targets import encode_classes, encode_labels, regression_target
from fcl.drivers.rows import Rows, select_rows
from fcl.errors import InputError
from fcl.objective import Loss
from fcl.types import Floats


@dataclass(frozen=True)
class EncodedTarget:
    """The target of rows, encoded as a loss needs it.

    y : float64, C-contiguous, (n,): numbers, -1 and +1 for two labels, or codes of K classes; (K, n):
        numbers, or -1 and +1, of K columns.
    labels : the (negative, positive) label, the K classes, or the names of the columns; None without
        names.
    n_outputs : number K of margins that a model of these targets has.
    """

    y: Floats
    labels: tuple[Any, ...] | None
    n_outputs: int


def encode_targets(
    data: DataSet, loss: Loss, purpose: str, like: EncodedTarget | None = None
) -> EncodedTarget:
    """The targets of a data set for a loss.

    purpose : for messages.
    like : of the training rows, for validation rows: as many columns, the same classes.

    Raises InputError: the target is missing, or not of the kind or number of columns that the loss needs;
        or offsets have another shape.
    """
    values, name = data.target, data.target_name
    if values is None:
        raise InputError(f"{data.name}: {purpose} needs a target, and none was opened (y=None)")
    width = None if like is None else like.n_outputs
    if loss.couples:
        codes, labels = encode_classes(values, name, None if like is None else like.labels)
        found = EncodedTarget(codes.astype(np.float64), labels, len(labels))
    elif (width or n_target_columns(values)) > 1:
        y = _columns(values, name, loss, width)
        found = EncodedTarget(y, data.target_columns, len(y))
    elif loss.classifies:
        found = EncodedTarget(*encode_labels(values, name), 1)
    else:
        y = regression_target(values, name)
        loss.check_targets(y, name)
        found = EncodedTarget(y, None, 1)
    _check_offset(data, found.n_outputs)
    return found


def select_valid_rows(valid: DataSet, loss: Loss, train: EncodedTarget) -> Rows:
    """The rows of a validation data set, whose target must be of the kind that was trained on.

    Raises InputError for another number of columns, other labels, or a class without rows.
    """
    found = encode_targets(valid, loss, "validation", train)
    if loss.couples and train.labels is not None:
        refuse_absent_classes(found.y, train.labels, valid.target_name)
    elif loss.classifies and found.n_outputs == 1 and found.labels != train.labels:
        raise InputError(
            f"{valid.target_name}: labels {found.labels} differ from those trained on, {train.labels}"
        )
    return select_rows(valid, found.y, valid.weights, None)


def _columns(values: np.ndarray, name: str, loss: Loss, width: int | None) -> Floats:
    """The columns of a target of several, float64 (K, n)."""
    if loss.name == "squared":
        return np.ascontiguousarray(outputs.number_columns(values, name, width).T)
    if loss.name == "logistic":
        return outputs.encode_multilabel(values, name, width)
    raise InputError(
        f"{name}: expected one column for {loss.name} loss, got shape {values.shape}; several "
        "columns need one of the losses squared, logistic"
    )


def _check_offset(data: DataSet, n_outputs: int) -> None:
    expected = (data.n_rows, *of_outputs(n_outputs))
    if data.offset is not None and data.offset.shape != expected:
        raise InputError(
            f"{data.name}: expected an offset for each row and output, shape {expected}, got shape "
            f"{data.offset.shape}"
        )
