"""Validate and encode the targets of several outputs: classes, several numbers, several labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fcl.checks import listed
from fcl.data.targets import Label, regression_target
from fcl.errors import BudgetError, InputError
from fcl.types import Floats
from fcl.units import counted, format_bytes

#: Up to this many classes, only the plan of the memory limits a job.
MOST_CLASSES = 10_000
#: Bytes of margins, residuals and curvatures, for each row and class.
_CLASS_BYTES = 24
#: Number of classes that a message lists.
_LISTED = 5


def count_classes(values: np.ndarray) -> int:
    """Number of distinct labels of a target (n,) of text, bool or whole numbers; 0 for other targets.

    0 also where most labels occur once, as in a count or an identifier.
    """
    values = np.asarray(values)
    if n_target_columns(values) > 1 or not len(values):
        return 0
    flat = values.reshape(-1)
    if flat.dtype.kind == "f" and not (np.isfinite(flat) & (flat == np.floor(flat))).all():
        return 0
    n_classes = len(np.unique(flat))
    return n_classes if 2 * n_classes <= len(flat) else 0


def n_target_columns(values: np.ndarray) -> int:
    """Number of columns of a target (n,) or (n, m)."""
    return int(np.prod(np.shape(values)[1:]))


def number_columns(
    values: np.ndarray,
    name: str,
    width: int | None = None,
    rows: npt.NDArray[np.int64] | None = None,
) -> Floats:
    """One or more numeric targets as float64 (n, m).

    values : (n,) or (n, m)
    width : the expected number of columns; None for any number from 1.
    rows : int64 (n,), optional, numbers of the rows, for messages; by default from 0.

    Raises InputError: another shape, or a target that is not a finite number.
    """
    columns = _columns(values, name, width, "numbers")
    single = columns.shape[1] == 1
    found = [
        regression_target(column, name if single else f"{name}, column {k}", rows)
        for k, column in enumerate(columns.T)
    ]
    return np.column_stack(found)


def encode_multilabel(
    values: np.ndarray,
    name: str,
    width: int | None = None,
) -> Floats:
    """Encode indicators 0 and 1 as -1 and +1, float64 (K, n), C-contiguous.

    values : bool or numbers (n, K)
    width : the expected number of columns; None for any number from 1.

    Raises InputError: another shape, or a value other than 0 and 1.
    """
    columns = _columns(values, name, width, "0 and 1")
    wrong = (columns != 0) & (columns != 1)
    if np.any(wrong):
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"{name}: expected 0 or 1 in each column, one column for each label, got "
            f"{columns[row, column]} in row {row}, column {column}; for one label out of several in each "
            'row, give a single column of classes; for numbers, choose loss="squared" (fcl stagewise: '
            "--regression, numbers=True)"
        )
    return np.ascontiguousarray(np.where(columns == 1, 1.0, -1.0).T)


def constant_labels(columns: np.ndarray, name: str, names: Sequence[str] | None) -> str:
    """A warning that names the labels that all rows have or that none has; "" without any.

    columns : numbers (K, n), above 0 where a training row has the label.
    """
    share = (columns > 0).mean(axis=1)
    found = [
        f"{'none has' if share[k] == 0.0 else 'all have'} that of column {k}"
        + ("" if names is None else f" ({names[k]})")
        for k in np.flatnonzero((share == 0.0) | (share == 1.0)).tolist()
    ]
    if not found:
        return ""
    return (
        f"{name}: expected training rows with and without each label, but "
        f"{listed(found, _LISTED, str)}; nothing can be learnt about these labels: leave their "
        "columns out"
    )


def _columns(values: np.ndarray, name: str, width: int | None, what: str) -> np.ndarray:
    values = np.asarray(values)
    columns = values[:, None] if values.ndim == 1 else values
    if columns.ndim != 2 or 0 in columns.shape or width not in (None, columns.shape[1]):
        expected = "one or more columns" if width is None else counted(width, "column")
        raise InputError(f"{name}: expected {expected} of {what}, got shape {values.shape}")
    return columns


def refuse_rare_classes(codes: Floats, weights: Floats, labels: Sequence[Label], name: str) -> None:
    """Raise InputError unless each class has two of the rows to train on, or a row that counts as two.

    codes, weights : float64 (n,), of the training rows with a weight above 0. A row of weight 2 is two
        rows.
    """
    counts = np.bincount(codes.astype(np.intp), minlength=len(labels))
    sums = np.bincount(codes.astype(np.intp), weights, minlength=len(labels))
    rare = np.flatnonzero((counts < 2) & (sums < 2.0))
    if len(rare):
        few = listed(rare, _LISTED, lambda k: repr(labels[k]))
        raise InputError(
            f"{name}: expected at least two training rows of weight above 0 in each class, got "
            f"{counted(int(counts[rare[0]]), 'row')} of class {labels[rare[0]]!r} (classes with fewer "
            f"than two rows: {few}); add rows, remove these classes, or join them to others"
        )


def refuse_absent_classes(codes: np.ndarray, labels: Sequence[Label], name: str) -> None:
    """Raise InputError unless each class of the training occurs in a validation set.

    codes : whole numbers (n,), of the validation rows.
    """
    absent = np.flatnonzero(np.bincount(codes.astype(np.intp), minlength=len(labels)) == 0)
    if len(absent):
        few = listed(absent, _LISTED, lambda k: repr(labels[k]))
        raise InputError(
            f"{name}: expected validation rows of all {len(labels)} classes trained on, got no row of "
            f"{few}; add such rows, or set aside a share of the training rows (valid_fraction)"
        )


def check_class_count(n_classes: int, n_rows: int, memory: int, group: bool, name: str) -> None:
    """Refuse more than MOST_CLASSES classes if the budget cannot hold their margins.

    memory : the budget in bytes.
    group : whether a feature is in or out for all classes; the plan of the memory then decides.

    Raises BudgetError: the message and ``smallest`` name the bytes that margins, residuals and curvatures
        need.
    """
    needed = _CLASS_BYTES * n_classes * n_rows
    if n_classes > MOST_CLASSES and not group and needed > memory:
        raise BudgetError(
            f"{name} holds {n_classes:,} classes: without --penalty group, more than "
            f"{MOST_CLASSES:,} classes need a budget of at least {_CLASS_BYTES} bytes for each row and "
            f"class, {format_bytes(needed)} for {counted(n_rows, 'row')}, got {format_bytes(memory)}; "
            "raise --memory, use --penalty group, or check that the target holds classes and not numbers",
            needed,
        )
