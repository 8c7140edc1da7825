"""The columns of unpenalised covariates; below, A is Z with a column of ones before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Covariates", "newton_step", "total"]

Floats = npt.NDArray[np.float64]

#: Curvature below which a direction is flat, relative to the curvatures of its columns.
FLAT = 1e-13


@dataclass(frozen=True)
class Covariates:
    """Columns that are orthonormal in the weights of all training rows.

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

    def sums(self, r: Floats, rows: slice) -> Floats:
        """A' r over some rows, float64 (1 + q,)."""
        return np.concatenate([[r.sum()], r @ self.values[rows]])

    def sizes(self, r: Floats, rows: slice) -> Floats:
        """The sums of the absolute values of the terms of :meth:`sums`."""
        size = np.abs(r)
        return np.concatenate([[size.sum()], size @ np.abs(self.values[rows])])

    def gram(self, q: Floats, rows: slice) -> Floats:
        """A' Q A over some rows, float64 (1 + q, 1 + q)."""
        k, z = 1 + self.q, self.values[rows]
        out, scaled = np.empty((k, k)), z * q[:, None]
        out[0, 0] = q.sum()
        out[0, 1:] = out[1:, 0] = scaled.sum(axis=0)
        out[1:, 1:] = z.T @ scaled
        return out

    def take(self, rows: npt.NDArray[np.int64], out: Floats | None = None) -> Covariates:
        """The columns at some rows."""
        return Covariates(np.take(self.values, rows, axis=0, out=out), self.names)


def total(parts: tuple[Floats, ...]) -> Floats:
    """The sum of the arrays of row blocks, in order."""
    out: Floats = np.sum(parts, axis=0)
    return out


def newton_step(hessian: Floats, g: Floats) -> tuple[Floats, bool]:
    """-hessian^-1 g without the directions that are flat, and whether there is a flat direction.

    A direction is flat where rounding hides its curvature; a step along it would be arbitrarily long.
    """
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(hessian / scale / scale[:, None])
    bent = values > FLAT
    own = vectors[:, bent]
    return -(own / values[bent]) @ (own.T @ (g / scale)) / scale, not bool(bent.all())
