"""Targets of new rows, encoded as a model was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.model.model import Model

__all__ = ["encoded_target"]


def encoded_target(
    model: Model, values: np.ndarray, name: str, rows: npt.NDArray[np.int64] | None = None
) -> npt.NDArray[np.float64]:
    """The target of each row, float64 (n,): -1 or +1 for labels, numbers for regression.

    Parameters
    ----------
    model : Model
    values : (n,) or (n, 1)
        The target of new rows.
    name : str
        Of the target, for messages.
    rows : int64 (n,), optional
        Numbers of the rows, for messages; by default from 0.

    Raises
    ------
    InputError
        A label that the model does not know, or a number that is not finite.
    """
    from fcl.data.targets import regression_target

    if model.labels is None:
        return regression_target(values, name, rows)
    values = np.asarray(values).reshape(-1)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    known = [values == label for label in model.labels]
    wrong = np.flatnonzero(~(known[0] | known[1]))
    if len(wrong):
        row = wrong[0] if rows is None else f"{rows[wrong[0]]} (from 0)"
        raise InputError(
            f"{name}: expected the labels of the model, {shown(model.labels[0])} and "
            f"{shown(model.labels[1])}, got {shown(values[wrong[0]])} in row {row}"
        )
    return np.where(known[1], 1.0, -1.0)
