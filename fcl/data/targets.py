"""Validate labels, regression targets, sample weights and offsets, and convert them to float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fcl.checks import listed, positive, shown
from fcl.data.base import fixed_text
from fcl.errors import InputError
from fcl.numerals import read_number

Label = int | float | bool | str
#: Most labels that a message lists.
_LISTED = 5


def encode_labels(values: np.ndarray, name: str) -> tuple[np.ndarray, tuple[Label, Label]]:
    """Encode two labels of any kind as -1 and +1.

    values : (n,) or (n, 1), integers, floats, booleans, text or bytes.
    name : name of the array, for messages.

    Returns y, float64 (n,), -1 for the smaller label, +1 for the larger; labels (tuple), the (negative,
        positive) label as Python values; bytes become text.
    Raises InputError: there are not exactly two labels, or a label is not finite.
    """
    values = _one_column(values, name)
    if values.dtype.kind == "f":
        _refuse_row(~np.isfinite(values), values, name, "labels must be finite")
    distinct = np.unique(values)  # takes a fraction of the time that codes of the rows take
    labels = [_python_label(label) for label in distinct[:5]]
    if len(distinct) == 1:
        raise InputError(
            f"{name} holds only one class, {labels[0]!r}, in all {len(values)} rows; two are needed"
        )
    if len(distinct) > 2:
        few = listed(distinct, show=lambda label: repr(_python_label(label)))
        raise InputError(
            f"{name} holds {len(distinct)} distinct labels ({few}); expected two. For numbers choose "
            "the loss squared, for more classes softmax (--loss), or make the target 1 for one class and "
            "0 for the others"
        )
    return np.where(values == distinct[1], 1.0, -1.0), (labels[0], labels[1])


def encode_classes(
    values: np.ndarray,
    name: str,
    known: Sequence[Label] | None = None,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, tuple[Label, ...]]:
    """Encode labels of any kind and number as codes 0 .. K - 1.

    values : (n,) or (n, 1), integers, floats, booleans, text or bytes.
    name : name of the array, for messages.
    known : the labels of a model, in the order of their codes; None: those that occur, sorted.
    rows : int64 (n,), numbers of the rows, for messages; by default from 0.

    Returns codes, int32 (n,); labels (tuple), the label of each code as a Python value; bytes become
        text.
    Raises InputError: a label is not finite, or not known; or there are fewer than two.
    """
    values = _one_column(values, name)
    if values.dtype.kind == "f":
        _refuse_row(~np.isfinite(values), values, name, "labels must be finite", rows)
    if known is not None:
        return _known_codes(values, name, known, rows), tuple(known)
    distinct, inverse = np.unique(values, return_inverse=True)
    labels = tuple(_python_label(label) for label in distinct)
    if len(labels) < 2:
        raise InputError(
            f"{name}: expected at least two classes, got only one class, {labels[0]!r}; add rows of "
            "another class"
        )
    return inverse.reshape(-1).astype(np.int32), labels


def _known_codes(
    values: np.ndarray, name: str, known: Sequence[Label], rows: np.ndarray | None
) -> np.ndarray:
    """The codes of labels, int32 (n,); InputError for a label that is not known."""
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    labels = np.array(known)
    if (labels.dtype.kind == "U") != (values.dtype.kind == "U"):
        wrong = np.ones(len(values), np.bool_)
    else:
        order = np.argsort(labels, kind="stable")
        at = np.searchsorted(labels, values, sorter=order)
        codes = order[np.minimum(at, len(labels) - 1)].astype(np.int32)
        wrong = labels[codes] != values
        if not wrong.any():
            return codes
    first = int(np.flatnonzero(wrong)[0])
    row = first if rows is None else f"{rows[first]} (from 0)"
    words = [shown(label) for label in known[:_LISTED]]
    listed = f"{', '.join(words[:-1])} and {words[-1]}"
    if len(known) > _LISTED:
        listed = f"{', '.join(words)}, ... ({len(known):,} labels)"
    raise InputError(
        f"{name}: expected the labels of the model, {listed}, got {shown(values[first])} in row {row}; "
        "remove the row, or train on rows of this label too"
    )


def regression_target(values: np.ndarray, name: str, rows: np.ndarray | None = None) -> np.ndarray:
    """A numeric target as float64 (n,); an ``InputError`` names the first row that is not finite.

    rows : numbers of the rows, for messages; by default from 0.
    """
    return _finite_numbers(values, name, "a regression target", rows=rows)


def check_weights(values: np.ndarray, n_rows: int, name: str) -> np.ndarray:
    """Sample weights as float64 (n,): one per row, finite, >= 0, not all 0."""
    weights = _finite_numbers(values, name, "weights", n_rows)
    _refuse_row(weights < 0, weights, name, "weights must not be negative")
    if not weights.any():
        raise InputError(f"{name}: all weights are zero; expected at least one above 0")
    return weights


def check_offset(values: np.ndarray, n_rows: int, name: str) -> np.ndarray:
    """Offsets of the margins as float64 (n,), or (n, K) for several outputs: finite."""
    if np.ndim(values) == 2 and np.shape(values)[1] > 1:
        columns = np.asarray(values).T
        found = [
            _finite_numbers(column, f"{name}, column {k}", "offsets", n_rows)
            for k, column in enumerate(columns)
        ]
        return np.column_stack(found)
    return _finite_numbers(values, name, "offsets", n_rows)


def check_class_weight(
    given: str | Mapping[Label, float] | None, labels: Sequence[Label] | None
) -> str | tuple[tuple[Label, float], ...] | None:
    """Validate class weights: "balanced", or (label, weight) of each label.

    given : "balanced", or weights above 0 by label (1 for a label not named), which may be given as text.
    labels : the labels, in the order of their codes; None for regression, which has no classes.

    Raises ``InputError`` naming a label that does not occur, or an invalid weight.
    """
    if given is None:
        return None
    if labels is None:
        raise InputError("class_weight is for classification; a regression target has no classes")
    if given == "balanced":
        return "balanced"
    if not isinstance(given, Mapping):
        raise InputError(
            'class_weight must be "balanced" or a dict with a weight for each label, such as '
            f"{{{labels[0]!r}: 2.0}}, got {shown(given)}"
        )
    found: dict[int, float] = {}
    for key, weight in given.items():
        at = next((i for i, label in enumerate(labels) if _is_label(key, label)), None)
        if at is None:
            raise InputError(
                f"class_weight: there is no label {shown(key)}; the labels are {listed(labels)}"
            )
        if at in found:
            raise InputError(f"class_weight: two weights for the label {labels[at]!r}")
        found[at] = positive(f"class_weight of {shown(key)}", weight)
    return tuple((label, found.get(i, 1.0)) for i, label in enumerate(labels))


def _is_label(key: object, label: Label) -> bool:
    """Whether `key` names the label, as its value or as its text ("1" also names 1.0)."""
    if key == label or not isinstance(key, str) or isinstance(label, str):
        return bool(key == label)
    if key == str(label):
        return True
    return not isinstance(label, bool) and read_number(key) == label


def _finite_numbers(
    values: np.ndarray,
    name: str,
    what: str,
    n_rows: int | None = None,
    rows: np.ndarray | None = None,
) -> np.ndarray:
    values = _one_column(values, name)
    if values.dtype.kind not in "biuf":
        raise InputError(f"{name} has dtype {values.dtype}; {what} must be numeric")
    numbers = values.astype(np.float64)
    _refuse_row(~np.isfinite(numbers), numbers, name, f"{what} must be finite", rows)
    if n_rows not in (None, len(numbers)):
        raise InputError(
            f"{name} has {len(numbers)} {what} for {n_rows} rows; expected one per row"
        )
    return numbers


def _one_column(values: np.ndarray, name: str) -> np.ndarray:
    """Convert (n,) or (n, 1) to (n,), and text to a fixed width."""
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1:
        raise InputError(
            f"{name} has shape {values.shape}; expected one value per row; name one column"
        )
    if not values.size:
        raise InputError(f"{name} is empty")
    return fixed_text(values, name) if values.dtype.kind in "OT" else values


def _refuse_row(
    bad: np.ndarray, values: np.ndarray, name: str, rule: str, rows: np.ndarray | None = None
) -> None:
    """Raise ``InputError`` naming the first row where ``bad`` is true, and the number of such rows."""
    if bad.any():
        at = int(bad.argmax())
        raise InputError(
            f"{name}: row {at if rows is None else rows[at]} is {values[at]}; {rule} "
            f"({int(bad.sum())} such rows of {len(values)})"
        )


def _python_label(label: np.generic) -> Label:
    """A label as a plain Python value that JSON can hold."""
    value = label.item()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
