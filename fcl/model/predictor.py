"""Prediction from raw rows, whichever training made the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.data.sequences import SequenceReader
from fcl.model.columns import open_matched
from fcl.model.shapes import public
from fcl.types import Floats

if TYPE_CHECKING:
    from fcl.data.columns import ColumnRecord
    from fcl.facts import Fact
    from fcl.features.base import Family

Offset = str | npt.ArrayLike

#: the default block size of training; a block of windows takes a few MB
BLOCK_ROWS = 65_536


class Predictor:
    """A base of :class:`fcl.Model` and of stagewise models, whose fields it reads.

    format : the format of the model file.
    family : the features, bound to the training rows.
    labels : the label or name of each output; None if they have no names. For K = 1, the negative and the
        positive label; None for numbers.
    column_record : what the model knows about the columns that it reads.
    fingerprint : hash of the training data.
    created : time of creation in UTC, ISO 8601.
    fcl_version : the version of fcl that trained the model.
    """

    format: ClassVar[str]
    #: Whether users see the margins of one output as a vector.
    margins_of_one: ClassVar[bool] = True

    family: Family
    labels: tuple[Any, ...] | None
    column_record: ColumnRecord
    fingerprint: str
    created: str
    fcl_version: str

    if TYPE_CHECKING:  # fields of some models, properties of others

        @property
        def n_outputs(self) -> int:
            """Number K of margins of a row."""

        @property
        def noun(self) -> str:
            """What an output is: "class", one of K; "target", a number; "label", that a row may have."""

        @property
        def mean_name(self) -> str:
            """What :meth:`mean` computes: "probability", "mean"; "" if margins are it, or for none."""

        @property
        def has_offset(self) -> bool:
            """Whether rows to predict need an offset."""

        def facts(self) -> list[Fact]:
            """What is known about the model, as data and in words."""

        def require_probability(self) -> None:
            """Raise InputError unless :meth:`mean` gives probabilities."""

        def mean(self, margins: Floats) -> Floats:
            """The expected targets, in the shape of the margins: for labels, probabilities.

            Raises InputError if the loss has no link from margins to a mean.
            """

        def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
            """Write the model file."""

        def added_margins(self, data: DataSet) -> Floats | None:
            """What offset and covariates add to the margins, float64 (n, K); None for zeros.

            Raises InputError if they are missing.
            """

        def rows_of_block(self, block_rows: int = BLOCK_ROWS) -> int:
            """Rows of the blocks of :meth:`iter_margins`, at most ``block_rows``."""

        def scorer(self) -> Callable[[Any], Floats]:
            """A function from a block of ``family.read_rows`` to its margins (n, K), without others."""

        def probabilities_of(self, margins: Floats) -> Floats:
            """The probabilities of the labels from margins (n, K)."""

        def predicted(self, margins: Floats) -> np.ndarray:
            """The predictions from margins (n, K)."""

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes or labels; False for numbers."""
        return self.noun != "target"

    @property
    def column_names(self) -> dict[int, str] | None:
        """Names of the columns of X that the features read, by position; None without names."""
        return self.column_record.column_names

    @property
    def covariate_names(self) -> Sequence[str]:
        """Names of the arrays of unpenalised covariates, which rows to predict need, too."""
        return ()

    def opened(self, data: DataSet | Any, offset: Any = None, covariates: Any = None) -> DataSet:
        """Open rows, with each column that the features read at its position in the training rows.

        Columns of data frames, and of data sets with names, are matched by name, and may be more columns
        in any order; alleles of variants that are exchanged are turned. Columns of svmlight rows are
        matched by id, and other columns without names by position
        (:func:`fcl.model.columns.match`). Arguments are as in :meth:`iter_margins`; raises InputError for
        a column that is missing.
        """
        if covariates is None and isinstance(data, str | os.PathLike):
            covariates = self.covariate_names or None
        width = self.family.row_width
        return open_matched(data, self.column_record, width, offset, covariates)

    def resized(self, width: int) -> Self:
        """The model for rows of another width; itself if its features depend on the width."""
        family = self.family.resized(width)
        return self if family is self.family else replace(cast(Any, self), family=family)

    def fitted(self, data: DataSet) -> Self:
        """The model for the letters of the rows of a data set, which a bag may have any number of."""
        if self.family.row_kind != "sequences":
            return self
        return self.resized(SequenceReader(data.rows).length)

    def margins(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Margins of all rows, float64 (n,) or (n, K); arguments, errors as in :meth:`iter_margins`."""
        return self._shown(self._all_margins(data, block_rows, offset, covariates))

    def _shown(self, margins: Floats) -> Floats:
        """Margins (n, K) as users see them."""
        found: Floats = public(margins) if self.margins_of_one else margins
        return found

    def _all_margins(self, data: Any, block_rows: int, offset: Any, covariates: Any) -> Floats:
        """The margins of all rows, float64 (n, K)."""
        data = self.opened(data, offset, covariates)
        out = np.empty((data.n_rows, self.n_outputs))
        for start, stop, block in self._blocks(data, block_rows, 0, None):
            out[start:stop] = block
        return out

    def iter_margins(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Floats]]:
        """Iterate over the margins in row order, one block of rows at a time.

        Parameters
        ----------
        data : DataSet, path or array
            A data set, or a source for :func:`fcl.open_data`; no target is needed. Columns are matched as
            :meth:`opened` says.
        block_rows : int
            Largest number of rows per block.
        offset : array-like (n,), or (n, K) for K outputs, or str
            Added to the margins; with a path also the name of an array. Required if the model was trained
            with an offset.
        covariates : array-like (n, columns), data frame or names
            Required if the model was trained with covariates, of the same names and order; with a path,
            the arrays that the model names are read by default.
        first, last : int
            Only the rows ``first`` to ``last`` (exclusive; None: all); ``first`` must be the beginning of
            a block (:meth:`rows_of_block`).

        Yields
        ------
        start, stop, margins : int, int, float64 (stop - start,) or (stop - start, K)
            The rows of a block, and their margins with intercept and offset.

        Raises
        ------
        InputError
            The rows are not like the training rows (another length, for instance), cannot be read, lack
            a column, or lack an offset or a covariate.
        """
        data = self.opened(data, offset, covariates)
        for start, stop, margins in self._blocks(data, block_rows, first, last):
            yield start, stop, self._shown(margins)

    def _blocks(
        self, data: DataSet, block_rows: int, first: int, last: int | None
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield the margins (n, K) of blocks of rows that :meth:`opened` returned."""
        added = self.added_margins(data)
        model = self.fitted(data)
        margins_of = model.scorer()
        size = self.rows_of_block(block_rows)
        for start, stop, block in model.family.read_rows(data.rows, size, None, first, last):
            margins = margins_of(block)
            yield start, stop, margins if added is None else margins + added[start:stop]

    def predict_proba(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Probabilities of ``labels[0]`` and ``labels[1]``, float64 (n, 2); only for models of classes.

        For K classes, their probabilities (n, K), which sum to 1 in each row; for K labels, the
        probability of each label by itself, (n, K). Arguments and errors are as in :meth:`iter_margins`;
        InputError also for a model without probabilities, such as one of numbers.
        """
        self.require_probability()
        return self.probabilities_of(self._all_margins(data, block_rows, offset, covariates))

    def predict(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> np.ndarray:
        """Labels of the rows, (n,), as in the training data; for regression expected targets, float64.

        The label is the positive one if the margin is above 0. For several outputs, the class of the
        largest margin (n,), the numbers (n, K), or 0 and 1 for each label, int64 (n, K). Arguments and
        errors are as in :meth:`iter_margins`.
        """
        return self.predicted(self._all_margins(data, block_rows, offset, covariates))
