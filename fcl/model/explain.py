"""Contributions: how the features of a model add up to the margins of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fcl.checks import whole
from fcl.data.prepared import PreparedRows
from fcl.features.base import FINE_ROWS, BitColumns, Columns, Family, ListedColumns, StepColumns
from fcl.model.frames import import_pandas
from fcl.parallel import one_blas_thread
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    import pandas as pd

    from fcl.data import DataSet
    from fcl.data.base import RowReader

#: Approximate bytes of the values of all features on one block of rows.
BLOCK_BYTES = 32 << 20
#: Up to this many maxima, searching for one after the other is faster than sorting.
MOST_SEARCHES = 16
#: Bytes of a column maker's buffers.
BUFFER_BYTES = 8 << 20


@dataclass(frozen=True, eq=False)
class ExplainedOutput:
    """One output of a model, with the features that it uses.

    number : of the output.
    indices : int64 (k,), the features with a weight in the output, among those of the model.
    ids : int64 (k,), ids of these features, increasing.
    weights : float64 (k,), their weights in the output.
    """

    model: Any  # of fcl.Model, whose module imports this one
    number: int
    indices: npt.NDArray[np.intp]
    ids: Ids
    weights: Floats
    intercept: float

    @classmethod
    def of(cls, model: Any, output: Any = None) -> ExplainedOutput:
        """The output of a label, None for a single output; raises InputError for an unknown one."""
        number = model.output_number(output)
        weights = model.weights_by_output[:, number]
        own = np.flatnonzero(weights)
        return cls(
            model, number, own, model.ids[own], weights[own], float(model.intercepts[number])
        )

    def added(self, data: DataSet) -> tuple[Floats, Floats]:
        """The offsets of opened rows, and what covariates add, each float64 (n,)."""
        self.model.require_offset(data)
        parts = self.model.offsets(data), self.model.covariate_margins(data)
        zeros = np.zeros(data.n_rows)
        offset, covariates = (zeros if p is None else p[:, self.number] for p in parts)
        return offset, covariates

    def feature_text(self, index: int) -> str:
        """The description of a feature, by its index in ``ids``."""
        return self.model.feature_text(int(self.indices[index]))


class Contribution(NamedTuple):
    """What one feature adds to the margin of one row.

    Attributes
    ----------
    feature : str
        Description of the feature.
    weight : float
    value : float
        The feature's value in the row.
    contribution : float
        weight * value.
    """

    feature: str
    weight: float
    value: float
    contribution: float


@dataclass(frozen=True, eq=False)
class Explanation:
    """The largest contributions to the margins of rows.

    ``margins = intercept + offset + covariates + contributions.sum(axis=1) + others``, up to rounding.

    Attributes
    ----------
    model : ExplainedOutput
        The output, with ``ids``, ``weights`` and ``feature_text`` of its features.
    margins : float64 (n,)
    offset : float64 (n,)
        Offsets of the rows; zeros without offsets.
    covariates : float64 (n,)
        What unpenalised covariates add to the margins; zeros without covariates.
    indices : int64 (n, top)
        Indices of features in ``model.ids``, by decreasing |contribution|, ties by id.
    contributions : float64 (n, top)
        Weight times value of these features; 0 for features that are 0 in the row.
    others : float64 (n,)
        Sum of the contributions of all other features.
    """

    model: ExplainedOutput
    margins: Floats
    offset: Floats
    covariates: Floats
    indices: npt.NDArray[np.int64]
    contributions: Floats
    others: Floats

    def __len__(self) -> int:
        return len(self.margins)

    @property
    def intercept(self) -> float:
        """The intercept of the model, which is a part of every margin."""
        return self.model.intercept

    def row(self, i: int) -> list[Contribution]:
        """The features of row i with a contribution, the largest first."""
        return [
            self._contribution(int(index), float(value))
            for index, value in zip(self.indices[i], self.contributions[i], strict=True)
            if value != 0.0
        ]

    def to_dataframe(self) -> pd.DataFrame:
        """One line for each contribution: row, rank from 1, feature, weight, value, contribution.

        Raises
        ------
        InputError
            pandas is not installed.
        """
        lines = [
            (i, rank, *line) for i in range(len(self)) for rank, line in enumerate(self.row(i), 1)
        ]
        return import_pandas().DataFrame(lines, columns=["row", "rank", *Contribution._fields])

    def _contribution(self, index: int, contribution: float) -> Contribution:
        weight = float(self.model.weights[index])
        return Contribution(
            self.model.feature_text(index), weight, contribution / weight, contribution
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Explanation]) -> Explanation:
        """Join the explanations of consecutive rows, at least one."""
        names = ("margins", "offset", "covariates", "indices", "contributions", "others")
        joined = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
        return cls(parts[0].model, *joined)


def iter_explanations(
    output: ExplainedOutput,
    data: DataSet,
    top: int | None,
    keep: npt.NDArray[np.bool_] | None = None,
) -> Iterator[Explanation]:
    """Explain the rows of a data set in order, one block at a time.

    top : as for :meth:`fcl.Model.explain`.
    keep : bool (n,), rows to explain; None: all.
    """
    data = output.model.opened(data)
    offset, covariates = (part if keep is None else part[keep] for part in output.added(data))
    return explain_rows(output, data.rows, offset, top, keep, covariates)


def explain_rows(
    output: ExplainedOutput,
    rows: RowReader,
    offset: Floats,
    top: int | None,
    keep: npt.NDArray[np.bool_] | None = None,
    covariates: Floats | None = None,
) -> Iterator[Explanation]:
    """As :func:`iter_explanations`, for a reader of rows, and what is added to the kept rows."""
    covariates = np.zeros(len(offset)) if covariates is None else covariates
    k = len(output.ids)
    top = k if top is None else min(whole("top", top, 1), k)
    for start, stop, values in iter_values(output.model.family, output.ids, rows, keep):
        some = slice(start, stop)
        yield _explain(output, values * output.weights, offset[some], covariates[some], top)


def _explain(
    output: ExplainedOutput, contributions: Floats, offset: Floats, covariates: Floats, top: int
) -> Explanation:
    margins = contributions.sum(axis=1) + output.intercept + offset + covariates
    order = _largest(np.abs(contributions), top)
    largest = np.take_along_axis(contributions, order, axis=1)
    np.put_along_axis(contributions, order, 0.0, axis=1)
    others = contributions.sum(axis=1)
    return Explanation(output, margins, offset, covariates, order, largest, others)


def _largest(sizes: Floats, top: int) -> npt.NDArray[np.int64]:
    """Indices of the ``top`` largest numbers of each row, by decreasing size: int64 (n, top)."""
    if top > MOST_SEARCHES:
        return np.argsort(-sizes, axis=1, kind="stable")[:, :top]
    out = np.empty((len(sizes), top), np.int64)
    for rank in range(top):
        out[:, rank] = sizes.argmax(axis=1)
        np.put_along_axis(sizes, out[:, rank : rank + 1], -1.0, axis=1)
    return out


def iter_values(
    family: Family, ids: Ids, rows: Any, keep: npt.NDArray[np.bool_] | None = None
) -> Iterator[tuple[int, int, Floats]]:
    """Iterate over the values of some features, one block of rows at a time.

    ids : int64 (k,), features, increasing.
    keep : bool (n,), rows to read; None: all.

    Yields start, stop, values, int, int, float64 (stop - start, k), the range among the kept rows, and
        the features' values.
    Raises InputError: the rows are not like the training rows.
    """
    size = BLOCK_BYTES // (8 * max(1, len(ids))) // 64 * 64
    # beyond FINE_ROWS, columns are rounded to float32
    size = min(max(64, size), FINE_ROWS, family.most_block_rows())
    for start, stop, raw in family.read_rows(rows, size, keep):
        with one_blas_thread():  # the number of threads changes the rounding
            values = _values(family, ids, raw, size)
        yield start, stop, values


def _values(family: Family, ids: Ids, raw: Any, block_rows: int) -> Floats:
    """The values of features on one block of raw rows, float64 (n, k)."""
    prepared = PreparedRows(len(raw), block_rows, family.record_shape(block_rows))
    prepared.commit(0, family.prepare(raw, prepared.writable(0), block_rows))
    maker = family.column_maker(prepared, BUFFER_BYTES)
    out = np.empty((len(raw), len(ids)))
    for at in range(0, len(ids), maker.batch):
        (columns,) = maker.make(ids[at : at + maker.batch])
        out[:, at : at + maker.batch] = dense_columns(columns).T
    return out


def dense_columns(columns: Columns) -> np.ndarray:
    """Columns (k, n) as an array of numbers."""
    if isinstance(columns, BitColumns):
        packed = np.ascontiguousarray(columns.bits).view(np.uint8)
        return np.unpackbits(packed, axis=1, count=columns.n_rows, bitorder="little")
    if isinstance(columns, StepColumns):
        return columns.steps * columns.step
    return columns.dense() if isinstance(columns, ListedColumns) else columns.values
