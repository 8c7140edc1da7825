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

    If the intercept is free, a column of ones comes first, and v[0] is the intercept.

    In these columns the coefficients are no larger than the margins, however nearly collinear the
    covariates are, so the bound can cover all coefficients of a given size. T is symmetric but for the
    units, so each column is as close as possible to the covariate whose name it has (Loewdin 1950).

    kept : numbers of the columns of the data that neither are constant nor depend on others.
    means : float64 (kept,), zeros without an intercept.
    transform : float64 (kept, kept), T.
    constant : whether the intercept is free, and there are columns.
    """

    encodings: tuple[Encoding, ...]
    kept: npt.NDArray[np.intp]
    means: Floats
    transform: Floats
    constant: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kept columns."""
        columns = [name for encoding in self.encodings for name in encoding.columns]
        return tuple(columns[k] for k in self.kept)

    def columns(self, data: DataSet, keep: Mask | None) -> Floats:
        """The columns of some rows, float64 (rows, n); InputError if the data lack an array."""
        n = data.n_rows if keep is None else int(keep.sum())
        out = np.ones((n, self.constant + len(self.kept)))
        for rows, values in _kept_blocks(self.encodings, data, keep):
            out[rows, self.constant :] = (values[:, self.kept] - self.means) @ self.transform
        return out

    def terms(self, v: Floats) -> tuple[tuple[CovariateTerm, ...], float]:
        """The coefficients in the units of the data, and the intercept."""
        own = self.transform @ v[self.constant :]
        every = np.zeros(sum(encoding.width for encoding in self.encodings))
        every[self.kept] = own
        ends = np.cumsum([encoding.width for encoding in self.encodings])[:-1]
        parts = np.split(every, ends)
        return tuple(
            CovariateTerm(encoding.name, encoding.levels, tuple(part.tolist()))
            for encoding, part in zip(self.encodings, parts, strict=True)
        ), float(v[: self.constant].sum() - self.means @ own)

    def start(self, terms: Sequence[CovariateTerm], intercept: float) -> Floats:
        """The inverse of :meth:`terms`; zeros for columns that the terms lack."""
        known = dict(row for term in terms for row in term.rows)
        own = np.array([known.get(name, 0.0) for name in self.names])
        constant = [intercept + float(self.means @ own)][: self.constant]
        return np.append(constant, np.linalg.solve(self.transform, own))


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
        corner = np.linalg.qr(np.vstack([corner, part]), mode="r")
    spread = np.linalg.norm(corner, axis=0)
    varied = np.flatnonzero(spread > CONSTANT)
    unit = corner[:, varied] / spread[varied]
    own = list(range(len(varied)))  # columns that those before them do not determine
    while len(
        small := np.flatnonzero(np.abs(np.linalg.qr(unit[:, own], mode="r").diagonal()) <= DEPENDENT)
    ):
        del own[small[0]]
    kept = varied[own]
    _, singular, axes = np.linalg.svd(unit[:, own], full_matrices=False)
    scales = (sizes * spread)[kept]
    transform = axes.T / singular @ axes / scales[:, None]
    design = Design(encodings, kept, means[kept], transform, intercept and len(kept) > 0)
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
