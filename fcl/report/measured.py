"""What the report measures on rows of data, in two streamed passes.

The first pass adds up the predictions of all rows and, for windows, the margins for each letter at each
position. The second pass computes the columns of the strongest features on a sample of the rows. Besides
the target, weights and offset of the data, both passes together keep two bytes of memory for each row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.base import RowReader
from fcl.data.open import open_columns
from fcl.errors import InputError
from fcl.features.windows import LETTERS
from fcl.model import Model
from fcl.model.labels import encoded_target
from fcl.model.predictor import Predictor
from fcl.parallel import one_blas_thread
from fcl.report.columns import FeatureStats, feature_stats
from fcl.report.groups import Groups
from fcl.report.predictions import Predictions, PredictionSums, kind_of
from fcl.types import Floats

#: The number of letters with an effect: A, C, G, T, without the unknown one.
N_LETTERS = len(LETTERS) - 1
#: Rows of a block of the first pass, and rows times outputs.
BLOCK_ROWS = 8_192
BLOCK_NUMBERS = 1 << 18
#: Rows whose letters are added at a time: their masks stay in the cache of the processor.
TILE_ROWS = 512
#: Outputs whose letters have effects.
MOST_LETTERED = 256


@dataclass(frozen=True, eq=False)
class LetterEffects:
    """The mean margin of the rows with a letter at a position, minus the mean margin of all rows.

    Margins of classes count less their mean over the classes.
    """

    effects: Floats  #: (L, 4, K) for A, C, G, T; 0 for a letter that does not occur at the position
    weights: Floats  #: (L, 4), sum of the sample weights of the rows with the letter


@dataclass(frozen=True, eq=False)
class Measured:
    """Predictions and statistics of the rows of a data set."""

    data: DataSet
    is_training: bool  #: whether these are the rows on which the model was trained
    predictions: Predictions
    letters: LetterEffects | None  #: None unless features are patterns at places of windows
    features: FeatureStats | None  #: None for stagewise models
    row_names: RowReader[np.ndarray] | None = None  #: the array ``obs/name`` of the data, if any


def measure(model: Predictor, data: DataSet, groups: np.ndarray | None = None) -> Measured:
    """Measure a model on the rows of a data set, in groups of rows if ``groups`` (n,) names them."""
    source = data.source
    data = model.opened(data)
    model = model.fitted(data)
    known = None if groups is None else Groups(groups, data.n_rows)
    targets = _Targets(model, data)
    predictions, letters = _predictions(model, data, targets, known)
    names = {} if source is None else open_columns(source, {"name": "obs/name"}, data.n_rows)
    return Measured(
        data=data,
        is_training=data.fingerprint() == model.fingerprint,
        predictions=predictions,
        letters=letters,
        features=feature_stats(model, data) if isinstance(model, Model) else None,
        row_names=names.get("name"),
    )


class _Targets:
    """The encoded targets of a range of rows; all are validated first, since reading rows takes long."""

    def __init__(self, model: Predictor, data: DataSet) -> None:
        if data.target is None:
            raise InputError(
                f"{data.name}: expected a target to compare predictions with, got none; name its array "
                "(--y)"
            )
        self._model, self._data, self._target = model, data, data.target
        # the targets of several outputs are kept; of one output, they would take 8 bytes for each row
        self._kept = None if model.n_outputs == 1 else self._encoded(0, data.n_rows)
        for start in range(0, data.n_rows, BLOCK_ROWS):
            self(start, start + BLOCK_ROWS)

    def __call__(self, start: int, stop: int) -> Floats:
        """Targets as :func:`fcl.model.labels.encoded_target` gives them."""
        return self._encoded(start, stop) if self._kept is None else self._kept[start:stop]

    def _encoded(self, start: int, stop: int) -> Floats:
        values = self._target[start:stop]
        rows = np.arange(start, start + len(values))
        return encoded_target(self._model, values, self._data.target_name, rows)


def _predictions(
    model: Predictor, data: DataSet, targets: _Targets, groups: Groups | None
) -> tuple[Predictions, LetterEffects | None]:
    """Sums over the predictions of all rows and, for windows, the effects of letters."""
    added, margins_of = model.added_margins(data), model.scorer()
    family, K = model.family, model.n_outputs
    predictions = PredictionSums(model, groups)
    letters = None
    has_places = family.row_kind == "sequences" and not family.any_width
    if has_places and K <= MOST_LETTERED:
        letters = _LetterSums(centred=kind_of(model) == "class")
    most = max(64, BLOCK_NUMBERS // K // 64 * 64)
    most = min(BLOCK_ROWS, most, family.most_block_rows())
    for start, stop, block in family.read_rows(data.rows, most):
        margins = margins_of(block)
        if added is not None:
            margins = margins + added[start:stop]
        weights = np.ones(stop - start) if data.weights is None else data.weights[start:stop]
        predictions.add(targets(start, stop), margins, weights)
        if letters is not None:
            letters.add(block, margins, weights)
    return predictions.predictions(), None if letters is None else letters.effects()


class _LetterSums:
    """Sums of weights and of the margins of all outputs for each letter at each position.

    centred : whether margins count less their mean over the outputs.
    """

    def __init__(self, centred: bool) -> None:
        self._centred = centred
        self._sums = np.zeros((N_LETTERS, 0, 0))  # (letters, weight and margins, positions)
        self._total = np.zeros(0)  # over all rows, also with unknown letters

    def add(self, codes: npt.NDArray[np.uint8], margins: Floats, weights: Floats) -> None:
        if self._centred:
            margins = margins - margins.mean(axis=1, keepdims=True)
        columns = np.concatenate([weights[None, :], weights * margins.T])
        if not self._sums.size:
            self._sums = np.zeros((N_LETTERS, len(columns), codes.shape[1]))
            self._total = np.zeros(len(columns))
        self._total += columns.sum(axis=1)
        with one_blas_thread():  # the number of threads changes the rounding
            for start in range(0, len(codes), TILE_ROWS):
                tile = codes[start : start + TILE_ROWS]
                own = np.ascontiguousarray(columns[:, start : start + TILE_ROWS])
                for letter in range(N_LETTERS):
                    self._sums[letter] += own @ (tile == letter).astype(np.float64)

    def effects(self) -> LetterEffects:
        """The effects; unknown letters count in the mean alone."""
        mean = self._total[1:] / self._total[0]
        weights = self._sums[:, 0].T
        margins = self._sums[:, 1:].transpose(2, 0, 1)  # (L, 4, K)
        means = np.divide(
            margins,
            weights[:, :, None],
            out=np.broadcast_to(mean, margins.shape).copy(),
            where=weights[:, :, None] > 0.0,
        )
        return LetterEffects(means - mean, weights)
