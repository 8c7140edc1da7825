"""Data frames as rows of numbers: pandas' and similar ones, whose packages are not imported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from fcl.checks import listed
from fcl.errors import InputError


def is_frame(source: Any) -> bool:
    return all(hasattr(source, name) for name in ("columns", "to_numpy", "__getitem__"))


def split_frame(frame: Any, roles: dict[str, Any]) -> tuple[np.ndarray, list[str], dict[str, Any]]:
    """Split a frame into numbers and the columns that hold a target, weights and the like.

    frame : data frame (n, p)
    roles : what the caller was given for each role, such as ``{"y": "label"}``; text names a column. The
        target ``"y"``, which is the default, may be missing.

    Returns values, float32 or float64 (n, rest of the columns), float32 if it holds every column exactly;
        names (list of str), of these columns; roles (dict), with values in place of names, and None for a
        missing target.
    Raises InputError: there is no such column, or a column is not numeric; the message names it.
    """
    names = [str(name) for name in frame.columns]
    repeated, count = next(iter(Counter(names).most_common(1)), ("", 0))
    if count > 1:
        raise InputError(f"the data frame has several columns {repeated!r}; rename them")
    columns = {name: np.asarray(frame[key]) for name, key in zip(names, frame.columns, strict=True)}
    found = dict(roles)
    for role, name in roles.items():
        if not isinstance(name, str):
            continue
        if name not in names and (role, name) != ("y", "y"):
            known = listed(names, 8, str)
            raise InputError(f"{role}: the data frame has no column {name!r}; it has {known}")
        found[role] = columns.get(name)
    for name in {name for name in roles.values() if isinstance(name, str)}:
        columns.pop(name, None)
    return _numbers(columns, len(frame)), list(columns), found


def check_numeric(frame: Any) -> None:
    """Raise InputError, with the name of the column, unless all columns of a frame are numeric."""
    for key in frame.columns:
        _check_numeric(str(key), np.asarray(frame[key]))


def _numbers(columns: dict[str, np.ndarray], n_rows: int) -> np.ndarray:
    """Numeric columns side by side, float32 if that holds all of them exactly."""
    for name, column in columns.items():
        _check_numeric(name, column)
    wide = np.result_type(np.float32, *{column.dtype for column in columns.values()})
    values = np.empty((n_rows, len(columns)), np.float32 if wide.itemsize <= 4 else np.float64)
    for at, column in enumerate(columns.values()):
        values[:, at] = column
    return values


def _check_numeric(name: str, column: np.ndarray) -> None:
    if column.dtype.kind in "biuf":
        return
    row = next((i for i, value in enumerate(column) if isinstance(value, str | bytes)), None)
    what = f"has dtype {column.dtype}"
    if row is not None:
        what = f"holds text, {column[row]!r:.60} in row {row}"
    raise InputError(
        f"column {name!r} of the data frame {what}; expected numbers: encode categories as columns of 0 "
        "and 1 (pandas.get_dummies, scikit-learn's OneHotEncoder; fcl convert does it for files), or "
        "leave the column out"
    )
