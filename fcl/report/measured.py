"""What the report measures on rows of data, in two streamed passes.

The first pass adds up the predictions of all rows and, for windows, the margins for each letter at each
position. The second pass computes the columns of the strongest features on a sample of the rows. Besides
the target, weights and offset of the data, both passes together keep two bytes of memory for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.windows import LETTERS
from fcl.model.labels import encoded_target
from fcl.report.columns import FeatureStats, feature_stats
from fcl.report.groups import Groups
from fcl.report.predictions import Predictions, PredictionSums
from fcl.types import Floats

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model import Model


#: The number of letters with an effect: A, C, G, T, without the unknown one.
N_LETTERS = len(LETTERS) - 1
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
class Measured:
    """Predictions and statistics of the rows of a data set.

    Attributes
    ----------
    data : DataSet
    is_training : bool
        Whether these are the rows on which the model was trained.
    predictions : Predictions
    letters : LetterEffects or None
        None unless rows are windows of letters.
    features : FeatureStats
    """

    data: DataSet
    is_training: bool
    predictions: Predictions
    letters: LetterEffects | None
    features: FeatureStats


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
        The data have no target, a label that the model does not know, or rows unlike the training rows;
        or there is not one group for each row.
    """
    data = model.opened(data)
    known = None if groups is None else Groups(groups, data.n_rows)
    for start in range(0, data.n_rows, BLOCK_ROWS):  # before the rows are read, which takes long
        _targets(model, data, start, start + BLOCK_ROWS)
    predictions, letters = _predictions(model, data, known)
    return Measured(
        data=data,
        is_training=data.fingerprint() == model.fingerprint,
        predictions=predictions,
        letters=letters,
        features=feature_stats(model, data),
    )


def _targets(model: Model, data: DataSet, start: int, stop: int) -> Floats:
    """The targets of a range of rows, float64 (n,); InputError for an unknown label."""
    if data.target is None:
        raise InputError(
            f"{data.name}: expected a target to compare predictions with, got none; name its array (--y)"
        )
    values = data.target[start:stop]
    rows = np.arange(start, start + len(values))
    return encoded_target(model, values, data.target_name, rows)


def _predictions(
    model: Model, data: DataSet, groups: Groups | None
) -> tuple[Predictions, LetterEffects | None]:
    """Sums over the predictions of all rows and, for windows, the effects of letters."""
    added = model.added_margins(data)
    family = model.family
    margins_of = model.scorer()
    predictions = PredictionSums(model, groups)
    letters = _LetterSums() if family.row_kind == "sequences" else None
    block_rows = min(BLOCK_ROWS, family.most_block_rows())
    for start, stop, block in family.read_rows(data.rows, block_rows):
        margins = margins_of(block)
        if added is not None:
            margins += added[start:stop]
        weights = np.ones(stop - start) if data.weights is None else data.weights[start:stop]
        predictions.add(_targets(model, data, start, stop), margins, weights)
        if letters is not None:
            letters.add(block, margins, weights)
    return predictions.predictions(), None if letters is None else letters.effects()


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
