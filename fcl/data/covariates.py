"""Unpenalised covariates of rows, read by name; :mod:`fcl.model.covariates` makes columns of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.data.base import Container, RowReader
from fcl.data.encodings import CategoricalReader, open_column
from fcl.data.frame import is_frame
from fcl.data.memory import MemoryReader
from fcl.data.sparse import is_matrix
from fcl.errors import InputError
from fcl.units import counted

#: Largest absolute value, and the inverse of the smallest largest one, so that float64 holds squares.
MOST_VALUE = 1e100


@dataclass(frozen=True)
class CovariateArray:
    """A covariate of rows.

    values : float64 (n, k), or int32 (n,), the place of each row's category in ``levels``.
    levels : text of the categories, sorted; None for numbers.
    """

    name: str
    values: np.ndarray
    levels: tuple[str, ...] | None = None


def read_covariates(
    container: Container | None, given: Any, rows: RowReader[Any]
) -> tuple[CovariateArray, ...]:
    """Read covariates for rows.

    container : where names are looked up; None for rows in memory.
    given : sequence of names, text with commas between names, array (n,) or (n, k), or data frame
    rows : the rows, for their number.

    Raises InputError: an array is missing, has a missing value, or does not fit the rows.
    """
    if is_frame(given):
        names = [str(key) for key in given.columns]
        columns = [_frame_column(given[key]) for key in given.columns]
        found = [
            _checked(name, MemoryReader(column, name), rows)
            for name, column in zip(names, columns, strict=True)
        ]
    elif isinstance(given, np.ndarray) and given.dtype.kind not in "UT":
        found = [_checked("covariates", MemoryReader(given, "covariates"), rows)]
    elif is_matrix(given):
        raise InputError("covariates is a sparse matrix; expected an array (covariates.toarray())")
    else:
        names = [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)
        found = [_named(container, name, rows) for name in names]
    names = [array.name for array in found]
    if len(set(names)) < len(names):
        raise InputError(f"covariates: expected distinct names, got {', '.join(names)}")
    return tuple(found)


def split_covariates(frame: Any, given: Any) -> tuple[Any, Any]:
    """Split the columns that ``given`` names from a data frame; other values are returned unchanged."""
    if given is None or is_frame(given) or isinstance(given, np.ndarray):
        return frame, given
    names = [n.strip() for n in given.split(",")] if isinstance(given, str) else list(given)
    for name in names:
        if name not in list(frame.columns):
            raise InputError(f"covariates: the data frame has no column {name!r}")
    return frame[[key for key in frame.columns if key not in names]], frame[names]


def _frame_column(column: Any) -> np.ndarray:
    """A column of a data frame; categories become text."""
    if str(getattr(column, "dtype", "")) == "category":
        if column.isna().any():
            row = int(np.asarray(column.isna()).argmax())
            raise InputError(
                f"covariate {column.name} has no value in row {row}; drop the row, or fill in the value"
            )
        return np.asarray(column.astype(str))
    return np.asarray(column)


def _named(container: Container | None, name: Any, rows: RowReader[Any]) -> CovariateArray:
    if not isinstance(name, str) or not name:
        raise InputError(
            "covariates: expected names of arrays, an array (n, columns) or a data frame, got "
            f"{name!r:.60}"
        )
    if container is None:
        raise InputError(
            f'covariates="{name}" is a name, which fcl looks up only in a path or data frame that it '
            "opens; give it to fcl.open_data, or pass covariates as an array or a data frame"
        )
    return _checked(name, open_column(container, name), rows)


def _checked(name: str, reader: RowReader[np.ndarray], rows: RowReader[Any]) -> CovariateArray:
    """Read and check one array."""
    if reader.shape[0] != rows.shape[0]:
        raise InputError(
            f"{rows.name} has {counted(rows.shape[0], 'row')}, but covariate {name} has "
            f"{reader.shape[0]:,}; they "
            "must agree"
        )
    values = reader.read_all()
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "backslashreplace")
    if isinstance(reader, CategoricalReader) or values.dtype.kind == "U":
        if values.ndim != 1:
            raise InputError(
                f"covariate {name} has shape {values.shape}; expected one level per row"
            )
        levels, places = np.unique(values.astype(str), return_inverse=True)
        return CovariateArray(name, places.astype(np.int32), tuple(levels.tolist()))
    if values.dtype.kind not in "biuf" or values.ndim > 2:
        raise InputError(
            f"covariate {name} has dtype {values.dtype} and shape {values.shape}; expected numbers (n,) "
            "or (n, columns), or categories (n,)"
        )
    numbers = values.reshape(len(values), -1).astype(np.float64)
    fine = np.asarray(np.isfinite(numbers).all(axis=1))
    if not fine.all():
        row = int((~fine).argmax())
        raise InputError(
            f"covariate {name} is {numbers[row][~np.isfinite(numbers[row])][0]} in row {row}; expected "
            f"finite numbers: drop such rows, or fill in the values ({int((~fine).sum())} of {len(fine)})"
        )
    largest = np.abs(numbers).max(axis=0, initial=0.0)
    if ((largest > MOST_VALUE) | ((largest > 0.0) & (largest < 1.0 / MOST_VALUE))).any():
        raise InputError(
            f"covariate {name} has values of up to {largest.max():g}, expected columns of 0 or of values "
            f"between {1.0 / MOST_VALUE:g} and {MOST_VALUE:g}; change the unit"
        )
    return CovariateArray(name, numbers)
