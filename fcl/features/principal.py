"""Principal axes of a sample of rows."""

from __future__ import annotations

import numpy as np

from fcl.errors import InputError
from fcl.parallel import one_blas_thread
from fcl.types import Floats

#: Rows that are centred and scaled at a time.
CHUNK = 2048
#: Largest number of coefficients: the header of a model stores them.
MOST_COEFFICIENTS = 1 << 20


def principal_axes(sample: Floats, mean: Floats, scale: Floats, k: int, option: str) -> Floats:
    """The k directions of largest variance of ``(sample - mean) / scale``.

    sample : float64 (n, m)
    mean, scale : float64 (m,), ``mean`` holds the means of the columns.
    option : name of the option that k is, for errors.

    Returns float64 (k, m): orthonormal rows, by falling variance; the largest coefficient of each of them
        is positive. The same sample gives the same bits for any number of threads.

    Raises InputError: the sample varies in fewer than k directions, or k m is too large to be stored.
    """
    n, m = sample.shape
    if k * m > MOST_COEFFICIENTS:
        raise InputError(
            f"{option}: expected at most {MOST_COEFFICIENTS // m:,} components of {m:,} columns, whose "
            f"coefficients a model stores, got {k:,}"
        )
    with one_blas_thread():  # sums of several threads would be rounded differently
        find = _from_covariance if n >= m else _from_rows
        axes, variances = find(sample, mean, scale, min(k, n, m))
    noise = max(n, m) * np.finfo(np.float64).eps
    axes = axes[variances > noise * variances.max(initial=0.0)]
    if len(axes) < k:
        raise InputError(
            f"{option}: expected at most {len(axes)}, because the {n:,} rows of the sample vary in no "
            f"more directions, got {k}"
        )
    largest = np.abs(axes).argmax(axis=1)
    return np.asarray(axes * np.sign(axes[np.arange(k), largest])[:, None])


def _from_covariance(sample: Floats, mean: Floats, scale: Floats, k: int) -> tuple[Floats, Floats]:
    """Eigenvectors of the covariance (m, m) as rows, and n times the variances along them."""
    m = len(mean)
    covariance = np.zeros((m, m))
    for at in range(0, len(sample), CHUNK):
        part = (sample[at : at + CHUNK] - mean) / scale
        covariance += part.T @ part
    vectors, values = _largest(covariance, k)
    return vectors.T, values


def _from_rows(sample: Floats, mean: Floats, scale: Floats, k: int) -> tuple[Floats, Floats]:
    """The same from the products of the rows (n, n), which are fewer than the columns."""
    centred = (sample - mean) / scale
    vectors, values = _largest(centred @ centred.T, k)
    lengths = np.sqrt(np.where(values > 0.0, values, 1.0))
    return (vectors / lengths).T @ centred, values


def _largest(matrix: Floats, k: int) -> tuple[Floats, Floats]:
    """The k largest eigenvalues, falling, and their eigenvectors as columns."""
    from scipy.linalg import eigh

    n = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=[n - k, n - 1])
    return vectors[:, ::-1], values[::-1]
