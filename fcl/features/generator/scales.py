"""Standard deviations of the columns of a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fcl.features.generator.forms import SparseColumns
from fcl.types import Floats, Ids

#: Number of columns of the sample that are measured together.
AT_ONCE = 1024


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
