"""What the report measures on rows of data, in two streamed passes.

The first pass computes the margins of all rows and, for windows, the sum of the margins for each letter
at each position. The second pass computes the columns of the strongest features on a sample of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.windows import LETTERS
from fcl.model.explain import iter_values
from fcl.model.labels import encoded_target
from fcl.parallel import one_blas_thread

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model import Model

__all__ = ["FeatureStats", "LetterEffects", "Measured", "measure"]

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

#: The strongest features by |weight| whose columns are measured.
MOST_FEATURES = 2_000
#: Values of columns that the second pass computes, which limits the rows of its sample.
MOST_VALUES = 40_000_000
#: The number of letters with an effect: A, C, G, T, without the unknown one.
N_LETTERS = len(LETTERS) - 1
#: A factor that mixes the bits of numbers (Steele, Lea and Flood 2014).
MIXER = np.uint64(0xBF58476D1CE4E5B9)
#: Rows of a block of the first pass.
BLOCK_ROWS = 8_192


@dataclass(frozen=True, eq=False)
class LetterEffects:
    """The mean margin of the rows with a letter at a position, minus the mean margin of all rows.

    Attributes
    ----------
    effects : float64 (L, 4)
        For A, C, G, T; 0 for a letter that does not occur at the position.
    weights : float64 (L, 4)
        Sum of the sample weights of the rows with the letter.
    """

    effects: Floats
    weights: Floats


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """The columns of the strongest features on a sample of rows.

    Attributes
    ----------
    indices : int64 (k,)
        Indices of the features in ``model.ids``, increasing.
    n_rows : int
        Rows of the sample, evenly spaced among those with a weight above 0.
    nonzero : int64 (k,)
        Rows of the sample in which the feature is not 0.
    positive : float64 (k,)
        Share of rows with the positive label among these rows, by sample weight; NaN for regression.
    mean, spread : float64 (k,)
        Weighted mean and standard deviation of the contribution to the margin.
    group : int64 (k,)
        Features with the same number have equal columns on the sample.
    """

    indices: Ids
    n_rows: int
    nonzero: Ids
    positive: Floats
    mean: Floats
    spread: Floats
    group: Ids


@dataclass(frozen=True, eq=False)
class Measured:
    """Margins, targets and statistics of the rows of a data set.

    Attributes
    ----------
    data : DataSet
    is_training : bool
        Whether these are the rows on which the model was trained.
    y : float64 (n,)
        -1 and +1 for labels, numbers for regression.
    weights : float64 (n,)
        Sample weights.
    margins : float64 (n,)
    letters : LetterEffects or None
        None unless rows are windows of letters.
    features : FeatureStats
    groups : (n,) of text, or None
        The group of each row, such as its chromosome.
    """

    data: DataSet
    is_training: bool
    y: Floats
    weights: Floats
    margins: Floats
    letters: LetterEffects | None
    features: FeatureStats
    groups: np.ndarray | None = None


def measure(model: Model, data: DataSet, groups: np.ndarray | None = None) -> Measured:
    """Measure a model on the rows of a data set.

    Parameters
    ----------
    model : Model
    data : DataSet
        With a target.
    groups : (n,), optional
        The group of each row.

    Raises
    ------
    InputError
        The data have no target, a label that the model does not know, or rows unlike the training rows.
    """
    y = targets(model, data)
    weights = np.ones(data.n_rows) if data.weights is None else data.weights
    margins, letters = _margins(model, data, weights)
    return Measured(
        data=data,
        is_training=data.fingerprint() == model.fingerprint,
        y=y,
        weights=weights,
        margins=margins,
        letters=letters,
        features=_feature_stats(model, data, y, weights),
        groups=None if groups is None else _group_names(groups, data.n_rows),
    )


def _group_names(groups: np.ndarray, n_rows: int) -> np.ndarray:
    """The groups as text (n,); InputError unless each row has one."""
    groups = _as_text(groups)
    if groups.shape != (n_rows,):
        raise InputError(f"groups: expected {n_rows:,}, one for each row, got {groups.shape}")
    return groups.astype(str)


def _as_text(values: np.ndarray) -> np.ndarray:
    """Values (n,) or (n, 1) as (n,), with bytes as text."""
    values = np.asarray(values)
    values = values.reshape(len(values)) if values.ndim == 2 and values.shape[1] == 1 else values
    return (
        np.char.decode(values, "utf-8", "backslashreplace") if values.dtype.kind == "S" else values
    )


def targets(model: Model, data: DataSet) -> Floats:
    """The target of each row, float64 (n,): -1 or +1 for labels; InputError for an unknown label."""
    if data.target is None:
        raise InputError(
            f"{data.name}: expected a target to compare predictions with, got none; name its array (--y)"
        )
    return encoded_target(model, data.target, data.target_name)


def _margins(model: Model, data: DataSet, weights: Floats) -> tuple[Floats, LetterEffects | None]:
    """Margins of all rows and, for windows, the effects of letters."""
    added = model.added_margins(data)
    family = model.family
    scorer = family.scorer(model.ids, model.weights)
    margins = np.zeros(data.n_rows) if added is None else added.copy()
    sums = _LetterSums() if family.row_kind == "sequences" else None
    block_rows = min(BLOCK_ROWS, family.most_block_rows())
    for start, stop, block in family.read_rows(data.rows, block_rows):
        with one_blas_thread():
            margins[start:stop] += scorer.margins(block) + model.intercept
        if sums is not None:
            sums.add(block, margins[start:stop], weights[start:stop])
    return margins, None if sums is None else sums.effects()


class _LetterSums:
    """Sums of weights and margins for each letter at each position."""

    def __init__(self) -> None:
        self.weights = self.margins = np.zeros((0, 0))

    def add(self, codes: npt.NDArray[np.uint8], margins: Floats, weights: Floats) -> None:
        if not self.weights.size:
            self.weights, self.margins = np.zeros((2, codes.shape[1], N_LETTERS + 1))
        totals = weights * margins
        for position, letters in enumerate(np.ascontiguousarray(codes.T)):
            self.weights[position] += np.bincount(letters, weights, N_LETTERS + 1)
            self.margins[position] += np.bincount(letters, totals, N_LETTERS + 1)

    def effects(self) -> LetterEffects:
        """The effects; unknown letters count in the mean alone."""
        mean = self.margins.sum() / self.weights.sum()
        weights, margins = self.weights[:, :N_LETTERS], self.margins[:, :N_LETTERS]
        means = np.divide(margins, weights, out=np.full_like(margins, mean), where=weights > 0.0)
        return LetterEffects(means - mean, weights)


def _feature_stats(model: Model, data: DataSet, y: Floats, weights: Floats) -> FeatureStats:
    active = np.flatnonzero(model.weights)
    strongest = np.argsort(-np.abs(model.weights[active]), kind="stable")[:MOST_FEATURES]
    indices = np.sort(active[strongest])
    keep = _sample(weights > 0.0, MOST_VALUES // max(1, len(indices)))
    if model.labels is None:
        y = np.full(len(y), np.nan)
    sums = _ColumnSums(len(indices), model.weights[indices])
    y, weights = y[keep], weights[keep]
    for start, stop, values in iter_values(model.family, model.ids[indices], data.rows, keep):
        with one_blas_thread():
            sums.add(values, y[start:stop], weights[start:stop])
    return sums.stats(indices, len(y), float(weights.sum()))


def _sample(counted: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.bool_]:
    """Evenly spaced rows among those that count, at most ``most``: bool (n,)."""
    rows = np.flatnonzero(counted)
    keep = np.zeros(len(counted), np.bool_)
    keep[rows[:: -(-len(rows) // most)]] = True
    return keep


class _ColumnSums:
    """Sums over the columns of some features, and hashes that reveal equal columns."""

    def __init__(self, k: int, weights: Floats) -> None:
        self._scale = weights
        self._nonzero = np.zeros(k, np.int64)
        self._carried, self._positive = np.zeros((2, k))
        self._sum, self._squares = np.zeros((2, k))
        self._hash = np.zeros((2, k), np.uint64)
        self._random = np.random.default_rng(0)
        self._shift: Floats | None = None

    def add(self, values: Floats, y: Floats, weights: Floats) -> None:
        nonzero = values != 0.0
        self._nonzero += np.count_nonzero(nonzero, axis=0)
        self._carried += weights @ nonzero
        self._positive += (weights * (y + 1.0) / 2.0) @ nonzero
        contributions = values * self._scale
        if self._shift is None:  # sums of squares lose all digits if the mean is large
            self._shift = contributions[0].copy()
        contributions -= self._shift
        self._sum += weights @ contributions
        self._squares += weights @ contributions**2
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
        variance = np.maximum(self._squares / total - mean**2, 0.0)
        share = np.divide(
            self._positive, self._carried, out=np.full_like(mean, np.nan), where=self._carried > 0.0
        )
        _, group = np.unique(self._hash, axis=1, return_inverse=True)
        return FeatureStats(
            indices,
            n_rows,
            self._nonzero,
            share,
            mean + shift,
            np.sqrt(variance),
            group.reshape(-1),
        )
