"""The unpenalised covariates of a model: arrays of the data, and their coefficients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.covariates import Encoding, encoded_blocks
from fcl.errors import InputError

if TYPE_CHECKING:
    from fcl.data import DataSet

__all__ = ["CovariateTerm", "covariate_margins"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CovariateTerm:
    """An array of the data with the coefficients of its columns, in the units of the data.

    name : of the array.
    levels : of a categorical array, sorted; the first has no coefficient. None for numbers.
    coefficients : one for each column; 0 for a column that others determine.
    """

    name: str
    levels: tuple[str, ...] | None
    coefficients: tuple[float, ...]

    @property
    def encoding(self) -> Encoding:
        """How the array becomes columns."""
        return Encoding(self.name, self.levels, len(self.coefficients))

    @property
    def rows(self) -> list[tuple[str, float]]:
        """Name and coefficient of each column."""
        return list(zip(self.encoding.columns, self.coefficients, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """The term as JSON values."""
        return {**vars(self)}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> CovariateTerm:
        """The inverse of :meth:`to_dict`; InputError if levels and coefficients do not fit."""
        name, levels, coefficients = found["name"], found["levels"], tuple(found["coefficients"])
        if levels is not None:
            levels = tuple(levels)
            if len(levels) != len(coefficients) + 1 or list(levels) != sorted(set(levels)):
                raise InputError(
                    f"covariate {name}: expected sorted levels, one more than the {len(coefficients)} "
                    f"coefficients, got {len(levels)}"
                )
        return cls(name, levels, coefficients)


def covariate_margins(terms: Sequence[CovariateTerm], data: DataSet) -> Floats:
    """What covariates add to the margins of all rows, float64 (n,).

    Raises InputError if the data lack an array, or an array differs in kind from the training data.
    """
    out, v = np.empty(data.n_rows), np.concatenate([term.coefficients for term in terms])
    encodings = [term.encoding for term in terms]
    for rows, values in encoded_blocks(encodings, data.covariates, data.name):
        out[rows] = values @ v
    return out
