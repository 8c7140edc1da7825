"""Targets of new rows, encoded as a model was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.outputs import encode_multilabel, number_columns
from fcl.data.targets import encode_classes, regression_target
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.model.predictor import Predictor


def encoded_target(
    model: Predictor, values: np.ndarray, name: str, rows: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """The target of each row, float64 (n,): numbers, or -1 or +1 for the labels of one margin.

    For K > 1 outputs, the number of each class, from 0, (n,); or a number, or -1 or +1 for each label,
    (n, K).

    values : (n,), (n, 1), or (n, K) for K targets or labels, the target of new rows.
    name : of the target, for messages.
    rows : int64 (n,), numbers of the rows, for messages; by default from 0.

    Raises InputError: a label that the model does not know, a number that is not finite, or another
        number of columns.
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
    codes, _ = encode_classes(values, name, model.labels, rows)
    return codes.astype(np.float64) if model.n_outputs > 1 else np.where(codes == 1, 1.0, -1.0)
