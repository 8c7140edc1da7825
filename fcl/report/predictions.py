"""What the report keeps of the predictions of a stream of rows: sums, and a few rows.

Targets, margins and predictions are arrays (n, K) of K >= 1 outputs. The memory does not depend on the
number of rows; see :mod:`fcl.report.cells`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fcl.model import Model
from fcl.objective.multi_output import MOST_CONFUSED
from fcl.report.cells import COLUMNS, Cells, CellSums, row_sums
from fcl.report.scores import Answer, Estimate, explained_share, ranking, share_of
from fcl.types import Floats, Ints

if TYPE_CHECKING:
    from fcl.model.predictor import Predictor
    from fcl.report.groups import Groups


#: The largest |prediction| whose squared error surely does not overflow.
MOST_PREDICTED = 1e100
#: Errors of a row that are added up, by the kind of the outputs.
LABEL_ERRORS = ("log_loss", "brier", "wrong")
ERRORS = {
    "class": LABEL_ERRORS,
    "label": LABEL_ERRORS,
    "target": ("squared", "absolute", "metric", "covered"),
}


def kind_of(model: Predictor) -> str:
    """What the outputs are: "class", one of K > 1; "label", which a row has or not; or "target"."""
    if not model.classifies:
        return "target"
    return "label" if model.n_outputs == 1 else model.noun


@dataclass(frozen=True)
class Extreme:
    """The row in which a prediction is extreme in some way."""

    row: int
    target: float  #: -1 or +1 for labels
    margin: float


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over rows, for each group of rows or for each output."""

    sums: Floats  #: (lines, columns), the columns of ``COLUMNS`` and then those of ``ERRORS``
    kind: str  #: from :func:`kind_of`

    def column(self, name: str) -> Floats:
        """A column by its name, float64 (lines,)."""
        return self.sums[:, (*COLUMNS, *ERRORS[self.kind]).index(name)]

    def mean(self, name: str) -> Floats:
        """The weighted mean of a column over the rows of each line; NaN for a line without rows."""
        with np.errstate(invalid="ignore"):
            return self.column(name) / self.column("weight")

    def spread(self) -> Floats:
        """The weighted variance of the target in each line."""
        return np.maximum(self.mean("squared_target") - self.mean("target") ** 2, 0.0)

    def explained(self) -> Floats:
        """R squared of each line; NaN where the target is constant."""
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = self.spread()
            return np.where(spread > 0.0, 1.0 - self.mean("squared") / spread, np.nan)

    def all(self) -> Totals:
        """The sums over all lines, as one line."""
        return Totals(self.sums.sum(axis=0, keepdims=True), self.kind)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Sums over rows with a sample weight above 0, and the most extreme of these rows.

    Targets are 0 and 1 for classes and labels, and ``centre`` less than the targets of the data for
    numbers. Errors of groups are means over the outputs, and sums over classes.
    """

    kind: str  #: from :func:`kind_of`
    n_rows: int
    n_counted: int  #: rows with a sample weight above 0
    #: sums by output (the group of the cells) and margin, or probability of a class; no cells for more
    #: than MOST_CONFUSED outputs
    margins: Cells
    residuals: Cells  #: sums by output and target minus prediction; no cells for labels
    by_group: Cells  #: sums by group and margin of one label; no cells without groups
    totals: Totals  #: of each group; of all rows, as one group, without groups
    outputs: Totals  #: of each output
    #: (K, K), weight of the rows of each class (first axis) by the predicted class; None for labels,
    #: numbers and more than MOST_CONFUSED classes
    confusion: Floats | None
    group_names: list[str]  #: empty without groups
    centre: Floats  #: (K,), the first target that counts; 0 for labels
    overflows: bool  #: whether a prediction exceeds ``MOST_PREDICTED``, so that there are no sums
    #: of one output. Of labels ``true_positive``, ``false_positive`` and ``false_negative``: the rows of
    #: the largest |margin|. Of numbers ``highest``, the row of the largest margin; ``too_low`` and
    #: ``too_high``, the rows of the largest errors
    extremes: Mapping[str, Extreme] = field(default_factory=dict)
    quantile: float | None = None  #: of the target that predictions estimate; None for means

    @cached_property
    def answers(self) -> list[Answer]:
        """The scores that say how good the model is, the most important one first."""
        totals = self.totals.all()
        if self.overflows or not self.n_counted or self.quantile is not None:
            return []
        if self.kind == "class":
            weight, squared = (float(totals.column(n)[0]) for n in ("weight", "squared_weight"))
            accuracy = share_of(1.0 - float(totals.mean("wrong")[0]), weight, squared)
            most = float(self.outputs.mean("target").max())
            return [Answer("accuracy", accuracy, most, "always guessing the largest class")]
        one_output = len(self.outputs.sums) == 1
        if self.kind == "label" and not one_output:
            shares = self.outputs.mean("target")
            right = Estimate(1.0 - float(totals.mean("wrong")[0]), np.nan)
            most = float(np.maximum(shares, 1.0 - shares).mean())
            found = [Answer("accuracy", right, most, "a constant")]
        elif self.kind == "label":
            base, order = float(totals.mean("target")[0]), "a random order"
            auprc, auroc = ranking(self.margins)
            found = [Answer("AUPRC", auprc, base, order), Answer("AUROC", auroc, 0.5, order)]
        else:
            shares = self.outputs.explained()
            shares = shares[np.isfinite(shares)]
            mean = Estimate(float(shares.sum()) / max(len(shares), 1), np.nan)
            share = explained_share(self.residuals) if one_output else mean
            found = [Answer("R squared", share, 0.0, "the mean target")] * (len(shares) > 0)
        return [answer for answer in found if np.isfinite(answer.estimate.value)]


class PredictionSums:
    """Adds up :class:`Predictions` block by block."""

    def __init__(self, model: Predictor, groups: Groups | None) -> None:
        K = model.n_outputs
        self._model, self._groups, self._kind = model, groups, kind_of(model)
        n_groups = 1 if groups is None else len(groups.names)
        self._margins, self._residuals = CellSums(K), CellSums(K)
        self._by_group = CellSums(n_groups)
        columns = len(COLUMNS) + len(ERRORS[self._kind])
        self._totals, self._outputs = np.zeros((n_groups, columns)), np.zeros((K, columns))
        confuses = self._kind == "class" and K <= MOST_CONFUSED
        self._confusion = np.zeros((K, K)) if confuses else None
        self._n_rows = self._n_counted = 0
        self._centre = np.zeros(K)
        self._overflows = False
        self._extremes: dict[str, Extreme] = {}
        self._sizes: dict[str, float] = {}

    def add(self, y: Floats, margins: Floats, weights: Floats) -> None:
        """Add the next rows: y from ``encoded_target``, margins (n, K), weights (n,)."""
        first, self._n_rows = self._n_rows, self._n_rows + len(y)
        counted = np.flatnonzero(weights > 0.0)
        if not len(counted):
            return
        groups = np.zeros(len(counted), np.int64)
        if self._groups is not None:
            groups = self._groups.numbers(first, self._n_rows)[counted]
        y, weights = self._columns(y[counted]), weights[counted]
        margins = margins[counted]
        predicted = self._model.mean(margins) if self._model.mean_name else margins
        if len(self._centre) == 1:
            self._keep_extremes(first + counted, y[:, 0], margins[:, 0], predicted[:, 0])
        self._overflows |= bool(np.abs(predicted).max() > MOST_PREDICTED)
        if not self._overflows:
            if self._kind == "target" and not self._n_counted:
                self._centre = y[0].copy()  # sums of squares lose all digits if the mean is large
            self._add_sums(groups, y, margins, weights, predicted)
        self._n_counted += len(counted)

    def predictions(self) -> Predictions:
        """What was added up."""
        return Predictions(
            self._kind,
            self._n_rows,
            self._n_counted,
            self._margins.cells(),
            self._residuals.cells(),
            self._by_group.cells(),
            Totals(self._totals, self._kind),
            Totals(self._outputs, self._kind),
            self._confusion,
            [] if self._groups is None else self._groups.names,
            self._centre,
            self._overflows,
            self._extremes,
            self._model.loss_object.quantile if isinstance(self._model, Model) else None,
        )

    def _columns(self, y: Floats) -> Floats:
        """Targets as -1 and +1 of each label or class, or as numbers: float64 (n, K)."""
        if self._kind == "class":
            return np.where(y[:, None] == np.arange(len(self._centre)), 1.0, -1.0)
        return y.reshape(len(y), -1)

    def _add_sums(
        self, groups: Ints, y: Floats, margins: Floats, weights: Floats, predicted: Floats
    ) -> None:
        n, K = y.shape
        targets = y - self._centre if self._kind == "target" else (y + 1.0) / 2.0
        repeated = np.repeat(weights, K)
        sums = row_sums(repeated, targets.reshape(-1), predicted.reshape(-1))
        number = np.tile(np.arange(K), n)
        if K <= MOST_CONFUSED:
            values = predicted if self._kind == "class" else margins
            self._margins.add(number, values.reshape(-1), sums)
            if self._kind == "target":
                self._residuals.add(number, (y - predicted).reshape(-1), sums)
        if self._kind == "label" and K == 1 and self._groups is not None:
            self._by_group.add(groups, margins[:, 0], sums)
        if self._confusion is not None:
            np.add.at(self._confusion, (y.argmax(axis=1), predicted.argmax(axis=1)), weights)
        errors = self._errors(groups, y, margins, weights, predicted)
        columns = [*sums.T, *(repeated * error.reshape(-1) for error in errors)]
        for i, column in enumerate(columns):
            by_row = column.reshape(n, K)
            self._outputs[:, i] += by_row.sum(axis=0)
            is_error = i >= len(COLUMNS)
            of_row = (
                by_row.sum(axis=1) if is_error and self._kind == "class" else by_row.mean(axis=1)
            )
            self._totals[:, i] += np.bincount(groups, of_row, len(self._totals))

    def _errors(
        self, groups: Ints, y: Floats, margins: Floats, weights: Floats, predicted: Floats
    ) -> list[Floats]:
        """The errors of each row and output as ``ERRORS`` names them, each float64 (n, K)."""
        if self._kind == "target":
            residuals = y - predicted
            squared = residuals**2
            metric = self._metric(groups, y, margins, weights) if y.shape[1] == 1 else squared
            return [squared, np.abs(residuals), metric, (residuals <= 0.0).astype(np.float64)]
        if not self._model.mean_name:  # margins of a loss without probabilities
            wrong = (margins > 0.0) != (y > 0.0)
            return [np.zeros_like(y), np.zeros_like(y), wrong.astype(np.float64)]
        brier = (predicted - (y + 1.0) / 2.0) ** 2
        if self._kind == "label":
            log_loss = self._log_loss(y, margins, predicted)
            return [log_loss, brier, ((predicted > 0.5) != (y > 0.0)).astype(np.float64)]
        own = y > 0.0
        wrong = own & (predicted.argmax(axis=1) != y.argmax(axis=1))[:, None]
        with np.errstate(divide="ignore"):
            log_loss = -np.log(np.where(own, predicted, 1.0))
        return [log_loss, brier, wrong.astype(np.float64)]

    def _log_loss(self, y: Floats, margins: Floats, predicted: Floats) -> Floats:
        if isinstance(self._model, Model):
            # by margins: the logarithm of a probability that rounds to 0 is lost
            return np.logaddexp(0.0, -y * margins)
        with np.errstate(divide="ignore"):
            return -np.log(np.where(y > 0.0, predicted, 1.0 - predicted))

    def _metric(self, groups: Ints, y: Floats, margins: Floats, weights: Floats) -> Floats:
        """The metric of the loss over the rows of each group, for each of these rows: float64 (n, 1).

        The metric of a regression loss is a weighted mean over rows.
        """
        if not isinstance(self._model, Model):
            return (y - margins) ** 2
        out = np.empty(y.shape)
        for own in _rows_of_groups(groups):
            out[own] = self._model.loss_object.score(y[own, 0], weights[own], margins[own, 0])
        return out

    def _keep_extremes(self, rows: Ints, y: Floats, margins: Floats, predicted: Floats) -> None:
        for name, sizes in self._sizes_of(y, margins, predicted):
            at = int(np.argmax(sizes))
            if sizes[at] > self._sizes.get(name, -np.inf):
                self._sizes[name] = float(sizes[at])
                self._extremes[name] = Extreme(int(rows[at]), float(y[at]), float(margins[at]))

    def _sizes_of(
        self, y: Floats, margins: Floats, predicted: Floats
    ) -> Iterator[tuple[str, Floats]]:
        """How extreme each row is in each way, -inf if not at all."""
        if self._kind == "label":
            yield "true_positive", np.where((y > 0) & (margins > 0), margins, -np.inf)
            yield "false_positive", np.where((y < 0) & (margins > 0), margins, -np.inf)
            yield "false_negative", np.where((y > 0) & (margins <= 0), -margins, -np.inf)
        else:
            yield "highest", margins
            yield "too_low", np.where(y > predicted, y - predicted, -np.inf)
            yield "too_high", np.where(y < predicted, predicted - y, -np.inf)


def _rows_of_groups(groups: Ints) -> list[Ints]:
    """The rows of each group that occurs."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
