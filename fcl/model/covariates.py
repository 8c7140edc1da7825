"""The unpenalised covariates of a model: arrays of the data, and the coefficients of their columns.

A numeric array has one column for each of its columns. A categorical array or an array of text has a
column of zeros and ones for each level but the first, in sorted order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.checks import listed
from fcl.data.covariates import CovariateArray
from fcl.errors import InputError
from fcl.model.shapes import public
from fcl.types import Floats
from fcl.units import counted

#: Maximum columns of all covariates together: the trainer holds them densely.
MOST_COLUMNS = 256
#: Rows that are encoded at a time.
BLOCK_ROWS = 8192


@dataclass(frozen=True)
class CovariateTerm:
    """An array of the data with the coefficients of its columns, in the units of the data.

    name : of the array.
    levels : of a categorical array, sorted; the first has no coefficient. None for numbers.
    coefficients : one for each column, or with K outputs K for each; 0 for a column that others
        determine.
    """

    name: str
    levels: tuple[str, ...] | None
    coefficients: tuple[Any, ...]

    @property
    def width(self) -> int:
        """Number of columns."""
        return len(self.coefficients)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        if self.levels is not None:
            return [f"{self.name}={level}" for level in self.levels[1:]]
        return [self.name] if self.width == 1 else [f"{self.name}[{k}]" for k in range(self.width)]

    def by_output(self, n_outputs: int) -> Floats:
        """The coefficients as a table with a column for each output, float64 (width, K)."""
        return np.reshape(self.coefficients, (self.width, n_outputs)).astype(np.float64, copy=False)

    def with_coefficients(self, values: Floats) -> CovariateTerm:
        """The same term with other coefficients, float64 (width, K)."""
        rows = public(values).tolist()
        return replace(
            self, coefficients=tuple(tuple(row) if isinstance(row, list) else row for row in rows)
        )

    def listed(self, outputs: Sequence[Any]) -> Iterator[tuple[str, Any, float]]:
        """Name of a column, output and coefficient; the outputs of a column follow each other."""
        for name, values in zip(self.columns, self.by_output(len(outputs)).tolist(), strict=True):
            for output, value in zip(outputs, values, strict=True):
                yield name, output, value

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise InputError unless each column has a finite coefficient for each output.

        shape : (K,) for K outputs, () for one.
        """
        for values in self.coefficients:
            if np.shape(values) != shape or not np.isfinite(values).all():
                raise InputError(
                    f"covariate {self.name}: expected {counted(math.prod(shape), 'finite number')} for "
                    f"each column, one for each output, got {values}"
                )

    def encode(self, array: CovariateArray, rows: slice, where: str) -> Floats:
        """The columns of some rows, float64 (rows, width); ``where`` names the data in messages."""
        if (array.levels is None) != (self.levels is None):
            kinds = ["numbers", "categories"]
            raise InputError(
                f"{where}: covariate {self.name} holds {kinds[array.levels is not None]}, expected "
                f"{kinds[self.levels is not None]} as in training"
            )
        values = array.values[rows]
        if self.levels is None or array.levels is None:
            if values.shape[1] != self.width:
                raise InputError(
                    f"{where}: covariate {self.name} has {values.shape[1]} columns, expected "
                    f"{self.width} as in training"
                )
            return values
        place = {level: number for number, level in enumerate(self.levels)}
        at = np.array([place.get(level, -1) for level in array.levels])[values]
        if (at < 0).any():
            row = int(np.argmax(at < 0))
            raise InputError(
                f"{where}: covariate {self.name} is {array.levels[values[row]]!r} in row "
                f"{rows.start + row}, expected one of the levels in training: "
                f"{listed(self.levels, 8)}"
            )
        return (at[:, None] == np.arange(1, len(self.levels))).astype(np.float64)

    def to_dict(self) -> dict[str, Any]:
        """The term as JSON values."""
        return {**vars(self)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> CovariateTerm:
        """The inverse of :meth:`to_dict`; InputError if levels and coefficients do not fit."""
        name, levels = found["name"], found["levels"]
        coefficients = tuple(tuple(v) if isinstance(v, list) else v for v in found["coefficients"])
        if levels is not None:
            levels = tuple(levels)
            if len(levels) != len(coefficients) + 1 or list(levels) != sorted(set(levels)):
                raise InputError(
                    f"covariate {name}: expected sorted levels, one more than the {len(coefficients)} "
                    f"coefficients, got {len(levels)}"
                )
        return cls(name, levels, coefficients)


def terms_of(arrays: Sequence[CovariateArray]) -> tuple[CovariateTerm, ...]:
    """Terms of training rows, with coefficients of 0; InputError for too many columns."""
    widths = [a.values.shape[1] if a.levels is None else len(a.levels) - 1 for a in arrays]
    if sum(widths) > MOST_COLUMNS:
        widest = arrays[int(np.argmax(widths))].name
        raise InputError(
            f"the covariates have {sum(widths)} columns, expected at most {MOST_COLUMNS}; {widest} alone "
            f"has {max(widths)}: leave it out, or merge its levels"
        )
    pairs = zip(arrays, widths, strict=True)
    return tuple(CovariateTerm(a.name, a.levels, (0.0,) * width) for a, width in pairs)


def encoded_blocks(
    terms: Sequence[CovariateTerm], arrays: Sequence[CovariateArray] | None, where: str
) -> Iterator[tuple[slice, Floats]]:
    """All columns side by side, float64 (rows, columns), a block of rows at a time.

    Arrays are found by name. Arrays in memory are named ``covariates``.

    Raises InputError: an array is missing, or differs in kind from the array of the training data.
    """
    by_name = {array.name: array for array in arrays or ()}
    for term in terms:
        if term.name not in by_name:
            wanted = ",".join(term.name for term in terms)
            raise InputError(
                f"{where}: expected the covariate {term.name}, with which the model was trained, got "
                f"{', '.join(by_name) or 'no covariates'}; name the arrays (covariates=, --covariates "
                f"{wanted})"
            )
    n_rows = len(by_name[terms[0].name].values)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, n_rows))
        parts = [term.encode(by_name[term.name], rows, where) for term in terms]
        yield rows, np.concatenate(parts, axis=1)


def covariate_margins(
    terms: Sequence[CovariateTerm],
    arrays: Sequence[CovariateArray] | None,
    n_rows: int,
    n_outputs: int,
    where: str,
) -> Floats:
    """What covariates add to the margins of all rows, float64 (n_rows, K); ``where`` names the data.

    Raises InputError if the data lack an array, or an array differs in kind from the training data.
    """
    out = np.empty((n_rows, n_outputs))
    v = np.concatenate([term.by_output(n_outputs) for term in terms])
    for rows, values in encoded_blocks(terms, arrays, where):
        out[rows] = values @ v
    return out
