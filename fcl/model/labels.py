"""Targets of new rows, encoded as a model was trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.data.outputs import encode_multilabel, number_columns
from fcl.data.targets import regression_target
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.model.predictor import Predictor

#: Labels that a message lists.
_MOST_LABELS = 5


def encoded_target(
    model: Predictor, values: np.ndarray, name: str, rows: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """The target of each row, float64 (n,): numbers, or -1 or +1 for the labels of one margin.

    For K > 1 outputs, the number of each class, from 0, (n,); or a number, or -1 or +1 for each label,
    (n, K).

    Parameters
    ----------
    model : Predictor
    values : (n,), (n, 1), or (n, K) for K targets or labels
        The target of new rows.
    name : str
        Of the target, for messages.
    rows : int64 (n,), optional
        Numbers of the rows, for messages; by default from 0.

    Raises
    ------
    InputError
        A label that the model does not know, a number that is not finite, or another number of columns.
    """
    if model.noun == "label":
        return np.ascontiguousarray(encode_multilabel(values, name, model.n_outputs).T)
    if model.n_outputs > 1 and model.noun == "target":
        return number_columns(values, name, model.n_outputs, rows)
    if model.labels is None:
        if model.classifies:
            raise InputError(
                f"{name}: cannot be compared with the model, which has no labels although it predicts "
                "classes; its file was changed or is damaged"
            )
        return regression_target(values, name, rows)
    _check_column(values, name)
    values = np.asarray(values).reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    codes = np.full(len(values), -1)
    for code, label in enumerate(model.labels):
        codes[values == label] = code
    wrong = np.flatnonzero(codes < 0)
    if len(wrong):
        row = wrong[0] if rows is None else f"{rows[wrong[0]]} (from 0)"
        raise InputError(
            f"{name}: expected the labels of the model, {_listed(model.labels)}, got "
            f"{shown(values[wrong[0]])} in row {row}"
        )
    return codes.astype(np.float64) if model.n_outputs > 1 else np.where(codes == 1, 1.0, -1.0)


def _check_column(values: np.ndarray, name: str) -> None:
    shape = np.shape(values)
    if shape[1:] not in ((), (1,)):
        raise InputError(
            f"{name}: expected one label for each row, got shape {shape}; the model predicts "
            "classes, not several columns"
        )


def _listed(labels: Sequence[Any]) -> str:
    """The first labels in words."""
    words = [shown(label) for label in labels[:_MOST_LABELS]]
    if len(labels) > _MOST_LABELS:
        return f"{', '.join(words)}, ... ({len(labels):,} labels)"
    return f"{', '.join(words[:-1])} and {words[-1]}"
