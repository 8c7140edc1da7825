"""The columns of unpenalised covariates, and the inverse of their curvatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.types import Floats

#: Curvature below which a direction is flat, relative to the curvatures of its columns.
FLAT = 1e-13
#: Rows whose scaled columns are in memory at a time.
CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Covariates:
    """Columns that are orthonormal in the weights of all training rows.

    A free intercept is the first of them: the objective then has no other intercept.

    values : float64 (n, q), C-contiguous.
    constant : whether the first column is a column of ones.
    names : of the columns, for messages; empty where no message needs them.
    """

    values: Floats
    constant: bool = False
    names: tuple[str, ...] = ()

    @property
    def q(self) -> int:
        return int(self.values.shape[1])

    def times(self, v: Floats, rows: slice = slice(None)) -> Floats:
        """Z v for some rows, float64 (rows,)."""
        return self.values[rows] @ v

    def sums(self, r: Floats, rows: slice) -> Floats:
        """Z' r over some rows, float64 (q,)."""
        return r @ self.values[rows]

    def gram(self, q: Floats, rows: slice) -> Floats:
        """Z' Q Z over some rows, float64 (q, q); q : float64 (rows,), >= 0."""
        out, roots = np.zeros((self.q, self.q)), np.sqrt(q)
        for part in _chunks(rows):
            scaled = self.values[part] * roots[part.start - rows.start :][:CHUNK_ROWS, None]
            out += scaled.T @ scaled
        return out

    def take(self, rows: npt.NDArray[np.int64], out: Floats | None = None) -> Covariates:
        """The columns at some rows."""
        return Covariates(np.take(self.values, rows, axis=0, out=out), self.constant, self.names)


def _chunks(rows: slice) -> Iterator[slice]:
    for start in range(rows.start, rows.stop, CHUNK_ROWS):
        yield slice(start, min(start + CHUNK_ROWS, rows.stop))


def inverse_root(matrix: Floats, flat: float) -> Floats:
    """T, float64 (q, r), such that T T' is the inverse of a matrix (q, q) without its flat directions.

    A direction is flat if its curvature is at most ``flat``, relative to the curvatures of its columns:
    rounding hides it, or the rows of a sample make columns dependent.
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    bent = values > flat
    return vectors[:, bent] / np.sqrt(values[bent]) / scale[:, None]
