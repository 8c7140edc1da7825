"""Opens the data sets that the options of a command name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fcl.cli.common import messages
from fcl.errors import InputError
from fcl.numerals import read_number

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model import Model


def open_rows(path: str, y: str, **arrays: Any) -> DataSet:
    """Open DATA with a target, or with several numeric ones as columns.

    y : name of an array (n,) or (n, m), or names of arrays (n,) separated by commas.
    arrays : other arguments of :func:`fcl.open_data`.
    """
    import numpy as np

    from fcl.data import open_data

    names = [name.strip() for name in y.split(",")]
    data = open_data(path, y=names[0], **arrays)
    if len(names) == 1:
        return data
    parts = [data, *(open_data(path, x=arrays.get("x", "X"), y=name) for name in names[1:])]
    columns = []
    for part in parts:
        values = np.asarray(part.target)
        if values.ndim != 1 or values.dtype.kind not in "biuf":
            raise InputError(
                f"{part.target_name}: expected a column of numbers, one of the targets {y}, got "
                f"{values.dtype} of shape {values.shape}"
            )
        columns.append(values.astype(np.float64))
    joined = data.with_target(np.column_stack(columns), data.weights, f"{data.name}:{y}")
    joined.target_columns = tuple(names)
    return joined


def call_by_files(data: DataSet, *files: str | None) -> None:
    """Name converted rows, in messages and reports, after the user's files."""
    data.name = " and ".join(os.path.basename(file) for file in files if file)
    data.target_name = f"the target of {data.name}"


def open_valid(options: Mapping[str, Any], arrays: Mapping[str, Any]) -> DataSet | None:
    """Open DATA2 of ``--valid``, with its sample weights if it has an array of their name.

    arrays : x, y and others, as for :func:`open_rows`.
    """
    from fcl.data.open import open_columns

    path, weights = options["valid"], options["weights"]
    if path is None:
        return None
    if read_number(path) is not None and not os.path.lexists(path):
        raise InputError(
            f"--valid {path}: expected data to validate on, got a number; --valid-fraction {path} "
            "validates on a share of the rows of DATA"
        )
    valid = open_rows(path, **arrays)
    if weights is None:
        return valid
    if open_columns({"source": path}, {"weights": weights}, valid.n_rows):
        return open_rows(path, weights=weights, **arrays)
    messages.note(
        f'{path}: no array "{weights}" of {valid.n_rows:,} weights, so that all rows count equally in '
        "scores"
    )
    return valid


def initial_model(options: Mapping[str, Any]) -> Model:
    """The model of ``--initial``; raises InputError for a stagewise model."""
    from fcl.model.formats import load_model
    from fcl.model.model import Model

    path = options["initial"]
    model = load_model(path, options["imports"])
    if not isinstance(model, Model):
        raise InputError(
            f"--initial {path}: expected a model of fcl train, got a stagewise model, which cannot be an "
            "initial point; leave it out"
        )
    return model
