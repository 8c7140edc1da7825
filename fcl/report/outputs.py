"""What the report measures of a model of several outputs, in streamed passes over rows.

Memory does not depend on the number of rows, besides the target, weights and offset of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.model import Model
from fcl.model.labels import encoded_target
from fcl.objective.multi_output import MOST_CONFUSED, OutputSums, sums_for
from fcl.parallel import one_blas_thread
from fcl.report.cells import Cells, CellSums, row_sums
from fcl.report.columns import FeatureStats, feature_stats
from fcl.report.groups import Groups
from fcl.report.measured import N_LETTERS, LetterEffects
from fcl.types import Floats

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.model.predictor import Predictor


#: Numbers of rows times outputs of a block.
BLOCK_NUMBERS = 1 << 18
#: Outputs whose letters have effects.
MOST_LETTERED = 256


@dataclass(frozen=True, eq=False)
class GroupErrors:
    """Mean errors of the rows of each group.

    Attributes
    ----------
    names : list of str
        Of the groups.
    rows : int64 (groups,)
        Rows with a sample weight above 0.
    errors : dict of str to float64 (groups,)
        Means by sample weight, by name; NaN for a group without rows. For several targets or labels, a
        mean also over these.
    overall : dict of str to float
        The same means over all rows.
    """

    names: list[str]
    rows: npt.NDArray[np.int64]
    errors: dict[str, Floats]
    overall: dict[str, float]


@dataclass(frozen=True, eq=False)
class MeasuredOutputs:
    """The errors of a model on the rows of a data set.

    Attributes
    ----------
    data : DataSet
    is_training : bool
        Whether these are the rows on which the model was trained.
    sums : OutputSums
    ranks : Cells or None
        Sums by output (the group of the cells) and value: the probability of a class, the margin of a
        label, or the predicted number. Targets are 0 and 1, or numbers less ``centre``. None for more
        than MOST_CONFUSED outputs.
    centre : float64 (K,)
        Of numbers: the targets of the first row that counts; 0 for classes and labels.
    groups : GroupErrors or None
        None without groups of rows.
    letters : list of LetterEffects or None
        Of each output; None unless rows are windows of letters. Effects on a class are effects on its
        margin less the mean margin of all classes.
    features : FeatureStats or None
        Of the columns, not of their contributions; None for stagewise models.
    """

    data: DataSet
    is_training: bool
    sums: OutputSums
    ranks: Cells | None
    centre: Floats
    groups: GroupErrors | None = None
    letters: list[LetterEffects] | None = None
    features: FeatureStats | None = None


def measure_outputs(
    model: Predictor, data: DataSet, groups: np.ndarray | None = None
) -> MeasuredOutputs:
    """Measure a model on rows with a target.

    Parameters
    ----------
    model : Predictor
        Of several outputs.
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
    if data.target is None:
        raise InputError(
            f"{data.name}: expected a target to compare predictions with, got none; name its array (--y)"
        )
    known = None if groups is None else Groups(groups, data.n_rows)
    y = encoded_target(model, data.target, data.target_name)  # before the rows are read
    added, margins_of, family = model.added_margins(data), model.scorer(), model.family
    sums = _Sums(model, known)
    letters = None
    if family.row_kind == "sequences" and model.n_outputs <= MOST_LETTERED:
        letters = _LetterSums(model.noun == "class")
    block_rows = min(family.most_block_rows(), max(64, BLOCK_NUMBERS // model.n_outputs // 64 * 64))
    for start, stop, block in family.read_rows(data.rows, block_rows):
        margins = margins_of(block)
        if added is not None:
            margins = margins + added[start:stop]
        weights = np.ones(stop - start) if data.weights is None else data.weights[start:stop]
        sums.add(y[start:stop], margins, weights)
        if letters is not None:
            letters.add(block, margins, weights)
    return MeasuredOutputs(
        data,
        data.fingerprint() == model.fingerprint,
        sums.outputs,
        None if sums.cells is None else sums.cells.cells(),
        sums.centre,
        sums.groups(),
        None if letters is None else letters.effects(),
        feature_stats(model, data) if isinstance(model, Model) else None,
    )


class _Sums:
    """Adds up errors block by block."""

    def __init__(self, model: Predictor, groups: Groups | None) -> None:
        K = model.n_outputs
        self.outputs = sums_for(model.noun, K)
        self.cells = CellSums(K) if K <= MOST_CONFUSED else None
        self.centre = np.zeros(K)
        self._model, self._groups, self._n_rows = model, groups, 0
        self._totals = np.zeros((0 if groups is None else len(groups.names), 4))

    def add(self, y: Floats, margins: Floats, weights: Floats) -> None:
        """Add the next rows: y as from ``encoded_target``, margins (n, K), weights (n,)."""
        first, self._n_rows = self._n_rows, self._n_rows + len(y)
        margins = margins.reshape(len(y), -1)  # a stagewise model of one number has margins (n,)
        means = self._model.mean(margins) if self._model.mean_name else margins
        y = y.reshape(margins.shape) if self._model.noun == "target" else y
        kept = np.flatnonzero(weights > 0.0)
        y, means, margins, weights = y[kept], means[kept], margins[kept], weights[kept]
        if not len(kept):
            return
        if self._model.noun == "target" and not self.outputs.n_rows:
            self.centre = y[0].copy()  # sums of squares lose all digits if the mean is large
        self.outputs.add(y, means, weights)
        if self.cells is not None:
            self._add_cells(self.cells, y, means, margins, weights)
        if self._groups is not None:
            numbers = self._groups.numbers(first, self._n_rows)[kept]
            columns = [np.ones(len(y)), weights, *(weights * e for e in self._errors(y, means))]
            for at, column in enumerate(columns):
                self._totals[:, at] += np.bincount(numbers, column, len(self._totals))

    def groups(self) -> GroupErrors | None:
        """The errors of each group; None without groups."""
        if self._groups is None:
            return None
        rows, weights, *errors = self._totals.T
        names = {"class": ["log loss", "error"], "label": ["log loss", "error"]}.get(
            self._model.noun, ["mean absolute error", "MSE"]
        )
        with np.errstate(invalid="ignore"):
            means = {name: e / weights for name, e in zip(names, errors, strict=True)}
            overall = {
                name: float(e.sum() / weights.sum()) for name, e in zip(names, errors, strict=True)
            }
        return GroupErrors(self._groups.names, rows.astype(np.int64), means, overall)

    def _add_cells(
        self, cells: CellSums, y: Floats, means: Floats, margins: Floats, weights: Floats
    ) -> None:
        n, K = means.shape
        noun = self._model.noun
        if noun == "class":
            targets = (y[:, None] == np.arange(K)).astype(np.float64)
        else:
            targets = y - self.centre if noun == "target" else (y + 1.0) / 2.0
        values = margins if noun == "label" else means  # probabilities of labels may round to 1
        sums = row_sums(np.repeat(weights, K), targets.reshape(-1), means.reshape(-1))
        cells.add(np.tile(np.arange(K), n), values.reshape(-1), sums)

    def _errors(self, y: Floats, means: Floats) -> tuple[Floats, Floats]:
        """Two errors of each row, each float64 (n,)."""
        if self._model.noun == "target":
            return np.abs(y - means).mean(axis=1), np.square(y - means).mean(axis=1)
        with np.errstate(divide="ignore"):
            if self._model.noun == "label":
                right = np.where(y > 0.0, means, 1.0 - means)
                wrong = (means > 0.5) != (y > 0.0)
                return -np.log(right).mean(axis=1), wrong.mean(axis=1)
            codes = y.astype(np.intp)
            own = means[np.arange(len(codes)), codes]
            return -np.log(own), (means.argmax(axis=1) != codes).astype(np.float64)


class _LetterSums:
    """Sums of weights and of the margins of all outputs for each letter at each position.

    centred : whether margins count less their mean over the outputs.
    """

    def __init__(self, centred: bool) -> None:
        self._centred = centred
        self._weights = np.zeros((0, 0))
        self._margins = np.zeros((0, 0, 0))

    def add(self, codes: npt.NDArray[np.uint8], margins: Floats, weights: Floats) -> None:
        length, K = codes.shape[1], margins.shape[1]
        if not self._weights.size:
            self._weights = np.zeros((N_LETTERS + 1, length))
            self._margins = np.zeros((N_LETTERS + 1, length, K))
        if self._centred:
            margins = margins - margins.mean(axis=1, keepdims=True)
        weighted = weights[:, None] * margins
        with one_blas_thread():  # the number of threads changes the rounding
            for letter in range(N_LETTERS + 1):
                has = (codes == letter).astype(np.float64)
                self._weights[letter] += weights @ has
                self._margins[letter] += has.T @ weighted

    def effects(self) -> list[LetterEffects]:
        """The effects on each output; unknown letters count in the mean alone."""
        total = self._weights[:, 0].sum()
        mean = self._margins[:, 0].sum(axis=0) / total
        weights = self._weights[:N_LETTERS].T
        margins = self._margins[:N_LETTERS].transpose(1, 0, 2)  # (L, 4, K)
        means = np.divide(
            margins,
            weights[:, :, None],
            out=np.broadcast_to(mean, margins.shape).copy(),
            where=weights[:, :, None] > 0.0,
        )
        return [LetterEffects(effects, weights) for effects in np.moveaxis(means - mean, 2, 0)]
