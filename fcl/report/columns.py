"""Statistics of the columns of the strongest features, on a sample of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.model import Model
from fcl.model.description import feature_sizes
from fcl.model.explain import iter_values
from fcl.model.labels import encoded_target
from fcl.parallel import one_blas_thread
from fcl.types import Floats, Ids

#: The strongest features by |weight| whose columns are measured.
MOST_FEATURES = 2_000
#: Values of columns that are computed, and rows of the sample, at most.
MOST_VALUES = 40_000_000
MOST_ROWS = 1_000_000
#: Rows that are chosen at a time.
BLOCK_ROWS = 65_536
#: A factor that mixes the bits of numbers (Steele, Lea and Flood 2014).
MIXER = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """The columns of the strongest features on a sample of rows."""

    indices: Ids  #: (k,) of the features in ``model.ids``, increasing
    n_rows: int  #: of the sample, evenly spaced among those with a weight above 0
    nonzero: Ids  #: (k,), rows of the sample in which the feature is not 0
    #: (k,), share of rows with the positive label among these rows, by sample weight; NaN for regression
    #: and for several outputs
    positive: Floats
    mean: Floats  #: (k,), weighted mean of the value
    spread: Floats  #: (k,), weighted standard deviation of the value
    #: (k, K), share of the variance of the score of each output: the covariance of the feature's
    #: contribution with the sum of the contributions of all k features, divided by the variance of the
    #: sum. The shares of an output add up to 1; a negative one works against other features. NaN if the
    #: sum is constant
    share: Floats
    #: (k,); features with the same number have equal columns on the sample, which are not 0 everywhere
    group: Ids

    def at(self, index: int) -> int | None:
        """The place of a feature, given by its index in ``model.ids``; None if it was not measured."""
        place = int(np.searchsorted(self.indices, index))
        known = place < len(self.indices) and self.indices[place] == index
        return place if known else None


def feature_stats(model: Model, data: DataSet) -> FeatureStats:
    """Measure the columns of the strongest features, on a sample of the rows of data with a target."""
    weights = model.weights_by_output
    sizes = feature_sizes(weights, model.group)
    active = np.flatnonzero(sizes)
    strongest = np.argsort(-sizes[active], kind="stable")[:MOST_FEATURES]
    indices = np.sort(active[strongest])
    keep = _sample(data, min(MOST_ROWS, MOST_VALUES // max(1, len(indices))))
    n_rows = int(np.count_nonzero(keep))
    y = np.full(n_rows, np.nan)
    if model.labels is not None and data.target is not None and model.n_outputs == 1:
        y = encoded_target(model, data.target[keep], data.target_name)
    row_weights = np.ones(n_rows) if data.weights is None else data.weights[keep]
    sums = _ColumnSums(weights[indices])
    for start, stop, values in iter_values(model.family, model.ids[indices], data.rows, keep):
        with one_blas_thread():
            sums.add(values, y[start:stop], row_weights[start:stop])
    return sums.stats(indices, n_rows, float(row_weights.sum()))


def _sample(data: DataSet, most: int) -> npt.NDArray[np.bool_]:
    """Evenly spaced rows among those with a sample weight above 0, at most ``most``: bool (n,)."""
    n = data.n_rows
    counted = np.ones(n, np.bool_) if data.weights is None else data.weights > 0.0
    step = -(-np.count_nonzero(counted) // most)
    seen = 0
    for start in range(0, n, BLOCK_ROWS):  # the numbers of all rows would take 8 bytes for each
        own = counted[start : start + BLOCK_ROWS]
        rows = np.flatnonzero(own)
        own[:] = False
        own[rows[-seen % step :: step]] = True
        seen += len(rows)
    return counted


class _ColumnSums:
    """Sums over the columns of some features, and hashes that reveal equal columns.

    weights : float64 (k, K), of the features.
    """

    def __init__(self, weights: Floats) -> None:
        k, K = weights.shape
        self._weights = weights
        self._nonzero = np.zeros(k, np.int64)
        self._carried, self._positive = np.zeros((2, k))
        self._sum, self._squares = np.zeros((2, k))
        self._products = np.zeros((k, K))  # of values and scores
        self._score_sum, self._score_squares = np.zeros((2, K))
        self._hash = np.zeros((2, k), np.uint64)
        self._random = np.random.default_rng(0)
        self._shift: Floats | None = None

    def add(self, values: Floats, y: Floats, weights: Floats) -> None:
        nonzero = values != 0.0
        self._nonzero += np.count_nonzero(nonzero, axis=0)
        self._carried += weights @ nonzero
        self._positive += (weights * (y + 1.0) / 2.0) @ nonzero
        if self._shift is None:  # sums of squares lose all digits if the mean is large
            self._shift = values[0].copy()
        moved = values - self._shift
        self._sum += weights @ moved
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite effect is not drawn
            self._squares += weights @ moved**2
            scores = moved @ self._weights
            weighted = weights[:, None] * scores
            self._products += moved.T @ weighted
            self._score_sum += weighted.sum(axis=0)
            self._score_squares += (weighted * scores).sum(axis=0)
        # sums modulo 2^64 of mixed bits times odd random numbers; + 0.0 turns -0.0 into 0.0. Without the
        # mixing, numbers such as 1.0, whose last 52 bits are 0, leave 12 bits to a sum
        bits = (values + 0.0).view(np.uint64)
        bits ^= bits >> 32
        bits *= MIXER
        bits ^= bits >> 32
        for lane in range(len(self._hash)):
            factors = self._random.integers(0, 1 << 63, len(values), np.uint64) * 2 + 1
            self._hash[lane] += (bits * factors[:, None]).sum(axis=0, dtype=np.uint64)

    def stats(self, indices: Ids, n_rows: int, total: float) -> FeatureStats:
        """The statistics; ``total`` is the sum of the sample weights."""
        shift = 0.0 if self._shift is None else self._shift
        mean = self._sum / total
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            variance = np.maximum(self._squares / total - mean**2, 0.0)
            score = self._score_sum / total
            score_variance = self._score_squares / total - score**2
            covariance = self._products / total - mean[:, None] * score
            share = self._weights * covariance / score_variance
        positive = np.divide(
            self._positive, self._carried, out=np.full_like(mean, np.nan), where=self._carried > 0.0
        )
        _, group = np.unique(self._hash, axis=1, return_inverse=True)
        group = group.reshape(-1)  # of shape (1, n) in NumPy 2.0.0
        # features that are 0 in all rows of the sample may differ in other rows
        zero = self._nonzero == 0
        group[zero] = len(group) + np.arange(np.count_nonzero(zero))
        spread = np.sqrt(variance)
        return FeatureStats(
            indices, n_rows, self._nonzero, positive, mean + shift, spread, share, group
        )
