"""Means and standard deviations of the columns of a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.features.generator.forms import SparseColumns
from fcl.types import Floats, Ids

#: Number of columns of the sample that are measured together.
AT_ONCE = 1024
#: Multiple of its standard deviation that the mean of a column has to exceed to be subtracted.
CENTRED_FROM = 16.0


@dataclass(frozen=True)
class ScalesSeen:
    """The columns with the smallest and the largest standard deviation on a sample of rows."""

    smallest: int
    low: float  #: standard deviation of column ``smallest``
    largest: int
    high: float  #: standard deviation of column ``largest``
    n_rows: int  #: rows of the sample


def extremes(columns: Ids, sd: Floats, n_rows: int) -> ScalesSeen | None:
    """The extreme standard deviations of the columns that vary on a sample; None if none varies."""
    varies = (sd > 0.0) & np.isfinite(sd)
    if not varies.any():
        return None
    columns, sd = columns[varies], sd[varies]
    low, high = int(np.argmin(sd)), int(np.argmax(sd))
    return ScalesSeen(
        int(columns[low]), float(sd[low]), int(columns[high]), float(sd[high]), n_rows
    )


def means_and_deviations(sample: np.ndarray) -> tuple[Floats, Floats]:
    """The means and the standard deviations of all columns; exactly 0 for a constant column."""
    means, sd = np.empty((2, sample.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # squares may overflow
        for at in range(0, len(sd), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            part = sample[:, some].astype(np.float64)
            moved = part - part[0]
            means[some], sd[some] = part[0] + moved.mean(axis=0), moved.std(axis=0)
    return means, sd


def centres_of(sample: np.ndarray, means: Floats | None = None, sd: Floats | None = None) -> Floats:
    """A number near the mean of each column of large mean and small spread; 0 for other columns.

    It is a multiple of a power of two that is at most the standard deviation, so that float64 subtracts
    it without rounding from values near the mean.

    means, sd : of :func:`means_and_deviations`, if they are known.
    """
    if means is None or sd is None:
        means, sd = means_and_deviations(sample)
    out = np.zeros(len(sd))
    far = np.flatnonzero((sd > 0.0) & (np.abs(means) > CENTRED_FROM * sd))
    if len(far):
        values = sample[:, far]
        far = far[~((values == 0.0) | (values == 1.0)).all(axis=0)]
        unit = np.exp2(np.floor(np.log2(sd[far])))
        out[far] = np.rint(means[far] / unit) * unit
    return np.where(np.isfinite(out), out, 0.0)


def are_numbers(value: object, shape: tuple[int, ...], above: float = -np.inf) -> bool:
    """Whether a value, which may come from a file, is a float64 array of finite numbers of this shape.

    above : a number that all of them exceed.
    """
    return (
        isinstance(value, np.ndarray)
        and value.shape == shape
        and value.dtype == np.float64
        and bool((np.isfinite(value) & (value > above)).all())
    )


def sparse_deviations(sample: SparseColumns) -> tuple[Ids, Floats]:
    """The columns that have an entry, and their standard deviations."""
    if not len(sample.columns):
        return sample.columns, np.empty(0)
    counts, first = np.diff(sample.start), sample.start[:-1]
    zeros = sample.n_rows - counts
    # a column without zeros may have a large offset
    shift = np.where(zeros > 0, 0.0, sample.values[first])
    values = sample.values - np.repeat(shift, counts)
    means = np.add.reduceat(values, first) / sample.n_rows
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.add.reduceat((values - np.repeat(means, counts)) ** 2, first)
    return sample.columns, np.sqrt((squares + zeros * means**2) / sample.n_rows)
