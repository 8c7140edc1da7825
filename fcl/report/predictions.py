"""What the report keeps of the predictions of a stream of rows: sums, and a few rows.

The memory does not depend on the number of rows; see :mod:`fcl.report.cells`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fcl.report.cells import COLUMNS, Cells, CellSums, row_sums
from fcl.types import Floats, Ints

if TYPE_CHECKING:
    from fcl.model import Model
    from fcl.objective.losses import Loss
    from fcl.report.groups import Groups


#: The largest |prediction| whose squared error surely does not overflow.
MOST_PREDICTED = 1e100
#: Errors of a row that are summed by group, for labels (True) and for numbers (False).
ERRORS = {True: ("log_loss", "brier"), False: ("squared", "absolute", "metric", "covered")}


@dataclass(frozen=True)
class Extreme:
    """The row in which a prediction is extreme in some way.

    Attributes
    ----------
    row : int
    target : float
        -1 or +1 for labels.
    margin : float
    """

    row: int
    target: float
    margin: float


@dataclass(frozen=True, eq=False)
class Totals:
    """Sums over the rows of each group; over all rows, as one group, without groups.

    Attributes
    ----------
    sums : float64 (groups, columns)
        The columns of ``COLUMNS``, then the columns of ``ERRORS``.
    classifies : bool
        Whether targets are labels.
    """

    sums: Floats
    classifies: bool

    def column(self, name: str) -> Floats:
        """A column by its name, float64 (groups,)."""
        return self.sums[:, (*COLUMNS, *ERRORS[self.classifies]).index(name)]

    def mean(self, name: str) -> Floats:
        """The weighted mean of a column over the rows of each group; NaN for a group without rows."""
        with np.errstate(invalid="ignore"):
            return self.column(name) / self.column("weight")

    def spread(self) -> Floats:
        """The weighted variance of the target in each group."""
        return np.maximum(self.mean("squared_target") - self.mean("target") ** 2, 0.0)

    def all(self) -> Totals:
        """The sums over all groups, as one group."""
        return Totals(self.sums.sum(axis=0, keepdims=True), self.classifies)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Sums over rows with a sample weight above 0, and the most extreme of these rows.

    Targets are 0 and 1 for labels, and ``centre`` less than the targets of the data for numbers.

    Attributes
    ----------
    n_rows : int
        All rows.
    n_counted : int
        Rows with a sample weight above 0.
    margins : Cells
        Sums by margin.
    residuals : Cells
        Sums by target minus prediction; no cells for labels.
    by_group : Cells
        Sums by group and margin; no cells for numbers, or without groups.
    totals : Totals
    group_names : list of str
        Empty without groups.
    centre : float
        The first target that counts; 0 for labels.
    overflows : bool
        Whether a prediction exceeds ``MOST_PREDICTED``, so that there are no sums.
    extremes : dict of str to Extreme
        For labels ``true_positive``, ``false_positive`` and ``false_negative``: the rows of the largest
        |margin|. For numbers ``highest``, the row of the largest margin; and ``too_low`` and
        ``too_high``, the rows of the largest errors.
    """

    n_rows: int
    n_counted: int
    margins: Cells
    residuals: Cells
    by_group: Cells
    totals: Totals
    group_names: list[str]
    centre: float
    overflows: bool
    extremes: dict[str, Extreme]


class PredictionSums:
    """Adds up :class:`Predictions` block by block.

    Parameters
    ----------
    model : Model
    groups : Groups or None
    """

    def __init__(self, model: Model, groups: Groups | None) -> None:
        self._loss: Loss = model.loss_object
        self._groups = groups
        n_groups = 1 if groups is None else len(groups.names)
        self._margins, self._residuals = CellSums(), CellSums()
        self._by_group = CellSums(n_groups)
        self._totals = np.zeros((n_groups, len(COLUMNS) + len(ERRORS[self._loss.classifies])))
        self._n_rows = self._n_counted = 0
        self._centre: float | None = 0.0 if self._loss.classifies else None
        self._overflows = False
        self._extremes: dict[str, Extreme] = {}
        self._sizes: dict[str, float] = {}

    def add(self, y: Floats, margins: Floats, weights: Floats) -> None:
        """Add the next rows, each float64 (n,); y is -1 or +1 for labels."""
        first, self._n_rows = self._n_rows, self._n_rows + len(y)
        counted = np.flatnonzero(weights > 0.0)
        if not len(counted):
            return
        groups = np.zeros(len(counted), np.int64)
        if self._groups is not None:
            groups = self._groups.numbers(first, self._n_rows)[counted]
        self._n_counted += len(counted)
        y, margins, weights = y[counted], margins[counted], weights[counted]
        predicted = self._loss.mean(margins) if self._loss.has_mean else np.zeros(len(y))
        self._keep_extremes(first + counted, y, margins, predicted)
        self._overflows |= bool(np.abs(predicted).max() > MOST_PREDICTED)
        if not self._overflows:
            self._add_sums(groups, y, margins, weights, predicted)

    def predictions(self) -> Predictions:
        """What was added up."""
        return Predictions(
            self._n_rows,
            self._n_counted,
            self._margins.cells(),
            self._residuals.cells(),
            self._by_group.cells(),
            Totals(self._totals, self._loss.classifies),
            [] if self._groups is None else self._groups.names,
            self._centre or 0.0,
            self._overflows,
            self._extremes,
        )

    def _add_sums(
        self, groups: Ints, y: Floats, margins: Floats, weights: Floats, predicted: Floats
    ) -> None:
        if self._centre is None:  # sums of squares lose all digits if the mean is large
            self._centre = float(y[0])
        none = np.zeros(len(y), np.int64)
        if self._loss.classifies:
            sums = row_sums(weights, (y + 1.0) / 2.0, predicted)
            # by margins: the logarithm of a probability that rounds to 0 is lost
            errors = [np.logaddexp(0.0, -y * margins), (predicted - (y + 1.0) / 2.0) ** 2]
            if self._groups is not None:
                self._by_group.add(groups, margins, sums)
        else:
            sums = row_sums(weights, y - self._centre, predicted)
            residuals = y - predicted
            metric = self._metric(groups, y, margins, weights)
            errors = [residuals**2, np.abs(residuals), metric, residuals <= 0.0]
            self._residuals.add(none, residuals, sums)
        self._margins.add(none, margins, sums)
        for i, column in enumerate([*sums.T, *(weights * error for error in errors)]):
            self._totals[:, i] += np.bincount(groups, column, len(self._totals))

    def _metric(self, groups: Ints, y: Floats, margins: Floats, weights: Floats) -> Floats:
        """The metric of the loss over the rows of each group, for each of these rows: float64 (n,).

        The metric of a regression loss is a weighted mean over rows.
        """
        out = np.empty(len(y))
        for own in _rows_of_groups(groups):
            out[own] = self._loss.score(y[own], weights[own], margins[own])
        return out

    def _keep_extremes(self, rows: Ints, y: Floats, margins: Floats, predicted: Floats) -> None:
        for name, sizes in self._sizes_of(y, margins, predicted):
            at = int(np.argmax(sizes))
            if sizes[at] > self._sizes.get(name, -np.inf):
                self._sizes[name] = float(sizes[at])
                found = Extreme(int(rows[at]), float(y[at]), float(margins[at]))
                self._extremes[name] = found

    def _sizes_of(
        self, y: Floats, margins: Floats, predicted: Floats
    ) -> Iterator[tuple[str, Floats]]:
        """How extreme each row is in each way, -inf if not at all."""
        if self._loss.classifies:
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
