"""The columns of unpenalised covariates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Covariates"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Covariates:
    """Standardised, linearly independent columns.

    values : float64 (n, q), C-contiguous.
    names : of the columns, for messages; empty where no message needs them.
    """

    values: Floats
    names: tuple[str, ...] = ()

    @property
    def q(self) -> int:
        """Number of columns."""
        return int(self.values.shape[1])

    def times(self, v: Floats, rows: slice = slice(None)) -> Floats:
        """Z v for some rows, float64 (rows,)."""
        product: Floats = self.values[rows] @ v
        return product

    def take(self, rows: npt.NDArray[np.int64], out: Floats | None = None) -> Covariates:
        """The columns at some rows."""
        return Covariates(np.take(self.values, rows, axis=0, out=out), self.names)
