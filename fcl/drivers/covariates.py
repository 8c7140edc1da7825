"""From the covariates of the data to the orthonormal columns of a job, and back to their units."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.covariates import Encoding, encoded_blocks, encodings_of
from fcl.model.covariates import CovariateTerm

__all__ = ["Design", "make_design"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Standard deviation, relative to the largest absolute value, up to which a column is constant.
CONSTANT = 1e-12
#: Distance from the span of the columns before it, in standard deviations, up to which a column is
#: determined by them; ``lm`` of R uses the same.
DEPENDENT = 1e-7

_log = logging.getLogger("fcl")


@dataclass(frozen=True)
class Design:
    """The columns of a job, (z - means) T: orthonormal over the weighted training rows.

    In these columns the coefficients are no larger than the margins, however nearly collinear the
    covariates are, so the bound can cover all coefficients of a given size. T is symmetric but for the
    units, so each column is as close as possible to the covariate whose name it has (Loewdin 1950).

    kept : numbers of the columns of the data that neither are constant nor depend on others.
    means : float64 (kept,), zeros without an intercept.
    transform : float64 (kept, kept), T.
    """

    encodings: tuple[Encoding, ...]
    kept: npt.NDArray[np.intp]
    means: Floats
    transform: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kept columns."""
        columns = [name for encoding in self.encodings for name in encoding.columns]
        return tuple(columns[k] for k in self.kept)

    def columns(self, data: DataSet, keep: Mask | None) -> Floats:
        """The columns of some rows, float64 (rows, kept); InputError if the data lack an array."""
        out = np.empty((data.n_rows if keep is None else int(keep.sum()), len(self.kept)))
        for rows, values in _kept_blocks(self.encodings, data, keep):
            np.matmul(values[:, self.kept] - self.means, self.transform, out=out[rows])
        return out

    def terms(self, v: Floats) -> tuple[tuple[CovariateTerm, ...], float]:
        """The coefficients in the units of the data, and the change of the intercept."""
        own = self.transform @ v
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
        return np.linalg.solve(self.transform, own), float(self.means @ own)


def make_design(data: DataSet, keep: Mask | None, s: Floats, intercept: bool) -> Design:
    """The columns of training rows; logs a warning that names columns left out.

    keep : bool (data.n_rows,), the training rows, or None for all.  s : float64 (n,), their weights.
    """
    encodings = encodings_of(data.covariates or ())
    shares = s / s.sum()
    means, sizes = np.zeros((2, sum(encoding.width for encoding in encodings)))
    for rows, values in _kept_blocks(encodings, data, keep):
        means += shares[rows] @ values if intercept else 0.0
        sizes = np.maximum(sizes, np.abs(values).max(axis=0, initial=0.0))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    # R of a QR decomposition: sums of squares would lose half the digits of nearly collinear columns
    corner = np.empty((0, len(sizes)))
    for rows, values in _kept_blocks(encodings, data, keep):
        part = (values - means) / sizes * np.sqrt(shares[rows])[:, None]
        corner = np.linalg.qr(np.vstack([corner, part])).R
    spread = np.linalg.norm(corner, axis=0)
    varied = np.flatnonzero(spread > CONSTANT)
    unit = corner[:, varied] / spread[varied]
    own = _independent(unit)
    kept = varied[own]
    _, singular, axes = np.linalg.svd(unit[:, own], full_matrices=False)
    scales = (sizes * spread)[kept]
    design = Design(encodings, kept, means[kept], axes.T / singular @ axes / scales[:, None])
    columns = [name for encoding in encodings for name in encoding.columns]
    if left_out := sorted(set(columns) - set(design.names), key=columns.index):
        _log.warning(
            "covariates left out, with the coefficient 0, since they are constant over the training rows "
            "or others determine them: %s",
            ", ".join(left_out),
        )
    return design


def _kept_blocks(
    encodings: Sequence[Encoding], data: DataSet, keep: Mask | None
) -> Iterator[tuple[slice, Floats]]:
    """Encoded columns of the rows that are kept, a block at a time, and where the rows come in order."""
    done = 0
    for rows, values in encoded_blocks(encodings, data.covariates, data.name):
        kept = values if keep is None else values[keep[rows]]
        yield slice(done, done + len(kept)), kept
        done += len(kept)


def _independent(columns: Floats) -> list[int]:
    """Numbers of the columns, of norm 1, that those before them do not determine."""
    own: list[int] = []
    basis = np.empty((len(columns), 0))
    for j, column in enumerate(columns.T):
        left = column
        for _ in range(2):  # the second time removes the rounding of the first
            left = left - basis @ (basis.T @ left)
        size = float(np.linalg.norm(left))
        if size > DEPENDENT:
            basis = np.column_stack([basis, left / size])
            own.append(j)
    return own
