"""From the covariates of the data to the standardised columns of a job, and back to their units."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.covariates import Encoding, encode, encodings_of
from fcl.model.covariates import CovariateTerm

__all__ = ["Design", "make_design"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Rows at a time.
BLOCK_ROWS = 65_536
#: Standard deviation, relative to the largest absolute value, up to which a column is constant.
CONSTANT = 1e-12
#: Share of the variance that a column must have beside the columns before it.
DEPENDENT = 1e-10

_log = logging.getLogger("fcl")


@dataclass(frozen=True)
class Design:
    """The columns of a job: standardised, and without columns that others determine.

    means, scales : float64 (kept,); means are 0 without an intercept.
    """

    encodings: tuple[Encoding, ...]
    kept: npt.NDArray[np.intp]
    means: Floats
    scales: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kept columns."""
        columns = [name for encoding in self.encodings for name in encoding.columns]
        return tuple(columns[k] for k in self.kept)

    def columns(self, data: DataSet, keep: Mask | None) -> Floats:
        """The columns of some rows, float64 (rows, kept); InputError if the data lack an array."""
        values = encode(self.encodings, data.covariates, data.name)
        out = np.empty((len(values) if keep is None else int(keep.sum()), len(self.kept)))
        for t, (k, mean, scale) in enumerate(zip(self.kept, self.means, self.scales, strict=True)):
            column = values[:, k] if keep is None else values[keep, k]
            out[:, t] = (column - mean) / scale
        return out

    def terms(self, v: Floats) -> tuple[tuple[CovariateTerm, ...], float]:
        """The coefficients in the units of the data, and the change of the intercept."""
        own = v / self.scales
        every = np.zeros(sum(encoding.width for encoding in self.encodings))
        every[self.kept] = own
        ends = np.cumsum([encoding.width for encoding in self.encodings])[:-1]
        parts = np.split(every, ends)
        return tuple(
            CovariateTerm(encoding.name, encoding.levels, tuple(part.tolist()))
            for encoding, part in zip(self.encodings, parts, strict=True)
        ), -float(self.means @ own)

    def start(self, terms: Sequence[CovariateTerm]) -> tuple[Floats, float]:
        """The inverse of :meth:`terms`; zeros for columns that the terms lack."""
        known = dict(row for term in terms for row in term.rows)
        own = np.array([known.get(name, 0.0) for name in self.names])
        return own * self.scales, float(self.means @ own)


def make_design(data: DataSet, keep: Mask | None, s: Floats, intercept: bool) -> Design:
    """The columns of training rows; logs a warning that names columns left out.

    keep : bool (data.n_rows,), the training rows, or None for all.  s : float64 (n,), their weights.
    """
    encodings = encodings_of(data.covariates or ())
    values = encode(encodings, data.covariates, data.name)
    values = values if keep is None else values[keep]
    q, total = values.shape[1], float(s.sum())
    means = s @ values / total if intercept else np.zeros(q)
    gram, sizes = np.zeros((q, q)), np.zeros(q)
    for start in range(0, len(values), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        centred = values[rows] - means
        gram += centred.T @ (centred * (s[rows] / total)[:, None])
        sizes = np.maximum(sizes, np.abs(values[rows]).max(axis=0, initial=0.0))
    scales = np.sqrt(np.diag(gram))
    varied = np.flatnonzero(scales > CONSTANT * sizes)
    unit = gram[np.ix_(varied, varied)] / scales[varied] / scales[varied][:, None]
    kept = varied[_independent(unit)]
    design = Design(encodings, kept, means[kept], scales[kept])
    columns = [name for encoding in encodings for name in encoding.columns]
    if left_out := sorted(set(columns) - set(design.names), key=columns.index):
        _log.warning(
            "covariates left out, with the coefficient 0, since they are constant over the training rows "
            "or others determine them: %s",
            ", ".join(left_out),
        )
    return design


def _independent(gram: Floats) -> npt.NDArray[np.intp]:
    """Numbers of the columns that those before them do not determine, by their Gram matrix."""
    from scipy.linalg import solve_triangular

    own: list[int] = []
    corner = np.zeros_like(gram)  # Cholesky factor of the kept columns
    for j in range(len(gram)):
        k = len(own)
        row = solve_triangular(corner[:k, :k], gram[own, j], lower=True) if k else np.empty(0)
        left = gram[j, j] - float(row @ row)
        if left > DEPENDENT:
            corner[k, :k], corner[k, k] = row, np.sqrt(left)
            own.append(j)
    return np.array(own, np.intp)
