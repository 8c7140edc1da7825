"""From the covariates of the data to the orthonormal columns of a job, and back to their units."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.model.covariates import CovariateTerm, encoded_blocks, terms_of
from fcl.parallel import one_blas_thread
from fcl.types import Floats, Mask

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

    terms: tuple[CovariateTerm, ...]
    kept: npt.NDArray[np.intp]
    means: Floats
    transform: Floats
    constant: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kept columns."""
        columns = [name for term in self.terms for name in term.columns]
        return tuple(columns[k] for k in self.kept)

    def warn(self) -> None:
        """Log a warning that names the columns left out, if there are any."""
        columns = [name for term in self.terms for name in term.columns]
        if left_out := [name for k, name in enumerate(columns) if k not in self.kept]:
            _log.warning(
                "covariates left out, with the coefficient 0, since they are constant over the training "
                "rows or others determine them: %s",
                ", ".join(left_out),
            )

    def columns(self, data: DataSet, keep: Mask | None) -> Floats:
        """The columns of some rows, float64 (rows, n); InputError if the data lack an array."""
        n = data.n_rows if keep is None else int(keep.sum())
        out = np.ones((n, self.constant + len(self.kept)))
        for rows, values in _kept_blocks(self.terms, data, keep):
            out[rows, self.constant :] = (values[:, self.kept] - self.means) @ self.transform
        return out

    def in_units(self, v: Floats) -> tuple[tuple[CovariateTerm, ...], Floats]:
        """The coefficients in the units of the data, and the intercepts, float64 (K,).

        v : coefficients of the columns of the job, float64 (q, K); of intercepts alone if there are no
            columns.
        """
        every = np.zeros((sum(term.width for term in self.terms), v.shape[1]))
        intercepts = v.sum(axis=0)
        if len(self.kept):
            every[self.kept] = own = self.transform @ v[self.constant :]
            intercepts = v[: self.constant].sum(axis=0) - self.means @ own
        ends = np.cumsum([term.width for term in self.terms])[:-1]
        pairs = zip(self.terms, np.split(every, ends), strict=True)
        return tuple(term.with_coefficients(part) for term, part in pairs), intercepts

    def start(self, terms: Sequence[CovariateTerm], intercepts: Floats) -> Floats:
        """The inverse of :meth:`in_units`; zeros for columns that the terms lack."""
        K = len(intercepts)
        if not len(self.kept):
            return intercepts[None, :]
        pairs = (zip(term.columns, term.by_output(K), strict=True) for term in terms)
        known = dict(itertools.chain.from_iterable(pairs))
        own = np.array([known.get(name, np.zeros(K)) for name in self.names])
        v = np.linalg.solve(self.transform, own)
        if self.constant:
            v = np.concatenate([[intercepts + self.means @ own], v])
        return np.asarray(v)


@one_blas_thread()
def make_design(data: DataSet, keep: Mask | None, s: Floats, intercept: bool) -> Design:
    """The columns of training rows.

    keep : bool (data.n_rows,), the training rows, or None for all.  s : float64 (n,), their weights.
    """
    terms = terms_of(data.covariates or ())
    shares = s / s.sum()
    means, sizes = np.zeros((2, sum(term.width for term in terms)))
    for rows, values in _kept_blocks(terms, data, keep):
        means += shares[rows] @ values if intercept else 0.0
        sizes = np.maximum(sizes, np.abs(values).max(axis=0, initial=0.0))
    sizes = np.where(sizes > 0.0, sizes, 1.0)
    # R of a QR decomposition: sums of squares would lose half the digits of nearly collinear columns
    corner = np.empty((0, len(sizes)))
    for rows, values in _kept_blocks(terms, data, keep):
        part = (values - means) / sizes * np.sqrt(shares[rows])[:, None]
        corner = np.asarray(np.linalg.qr(np.vstack([corner, part]), mode="r"))
    spread = np.linalg.norm(corner, axis=0)
    varied = np.flatnonzero(spread > CONSTANT)
    unit = corner[:, varied] / spread[varied]
    own = list(range(len(varied)))
    while own:  # drop the first column that those before it determine
        beyond = np.abs(np.linalg.qr(unit[:, own]).R.diagonal())
        if (beyond > DEPENDENT).all():
            break
        del own[int(np.argmax(beyond <= DEPENDENT))]
    kept = varied[own]
    _, singular, axes = np.linalg.svd(unit[:, own], full_matrices=False)
    scales = (sizes * spread)[kept]
    transform = axes.T / singular @ axes / scales[:, None]
    return Design(terms, kept, means[kept], transform, intercept and len(kept) > 0)


def _kept_blocks(
    terms: Sequence[CovariateTerm], data: DataSet, keep: Mask | None
) -> Iterator[tuple[slice, Floats]]:
    """Encoded columns of the rows that are kept, a block at a time, and where the rows come in order."""
    done = 0
    for rows, values in encoded_blocks(terms, data.covariates, data.name):
        kept = values if keep is None else values[keep[rows]]
        yield slice(done, done + len(kept)), kept
        done += len(kept)
