"""Margins and predictions of a linear model from raw rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data import DataSet
from fcl.errors import InputError
from fcl.model.columns import open_matched
from fcl.model.covariates import covariate_margins
from fcl.model.explain import ExplainedOutput, Explanation, iter_explanations, iter_values
from fcl.model.linear import LinearModel
from fcl.model.scorer import row_scorer
from fcl.model.shapes import public
from fcl.types import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Offset = str | npt.ArrayLike

#: the default block size of training; a block of windows takes a few MB
BLOCK_ROWS = 65_536
#: Margins in a block of rows: 32 MiB.
BLOCK_MARGINS = 1 << 22


class PredictingModel(LinearModel):
    """A base of :class:`fcl.Model`: what it computes from rows."""

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

    def margins(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Margins of all rows, float64 (n,) or (n, K); arguments, errors as in :meth:`iter_margins`."""
        found: Floats = public(self._all_margins(data, block_rows, offset, covariates))
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
            yield start, stop, public(margins)

    def _blocks(
        self, data: DataSet, block_rows: int, first: int, last: int | None
    ) -> Iterator[tuple[int, int, Floats]]:
        """Yield the margins (n, K) of blocks of rows that :meth:`opened` returned."""
        added = self.added_margins(data)
        margins_of = self.scorer()
        size = self.rows_of_block(block_rows)
        for start, stop, block in self.family.read_rows(data.rows, size, None, first, last):
            margins = margins_of(block)
            yield start, stop, margins if added is None else margins + added[start:stop]

    def rows_of_block(self, block_rows: int = BLOCK_ROWS) -> int:
        """Rows of the blocks of :meth:`iter_margins`, at most ``block_rows``: fewer if rows are wide."""
        most = max(64, BLOCK_MARGINS // self.n_outputs // 64 * 64)
        return min(block_rows, self.family.most_block_rows(), most)

    def scorer(self) -> Callable[[Any], Floats]:
        """A function from a block of ``family.read_rows`` to its margins (n, K) without added ones."""
        family = self.family
        if self.centres:
            from fcl.features.centred import with_centres_at  # imports the families

            family = with_centres_at(family, self.centres)
        return row_scorer(family, self.ids, self.weights_by_output, self.constants)

    def added_margins(self, data: DataSet) -> Floats | None:
        """Offsets plus what covariates add to the margins, float64 (n, K); None for zeros.

        Raises InputError if the data lack an offset or a covariate of the training.
        """
        self.require_offset(data)
        offset, added = self.offsets(data), self.covariate_margins(data)
        if added is None or offset is None:
            return offset if added is None else added
        return added + offset

    def offsets(self, data: DataSet) -> Floats | None:
        """The offsets of rows, float64 (n, K); None without offsets."""
        return None if data.offset is None else data.offset.reshape(data.n_rows, self.n_outputs)

    def covariate_margins(self, data: DataSet) -> Floats | None:
        """What covariates add to the margins, float64 (n, K); None without covariates."""
        if not self.covariates:
            return None
        rows = data.covariates, data.n_rows
        return covariate_margins(self.covariates, *rows, self.n_outputs, data.name)

    def require_offset(self, data: DataSet) -> None:
        """Raise InputError if the model was trained with an offset and the data have none."""
        if self.has_offset and data.offset is None:
            name = self.column_record.offset
            raise InputError(
                f"{data.name}: expected an offset, since the model was trained with one"
                f"{f' ({name})' if name else ''}, got none; name its array (offset=, --offset), or give "
                "zeros"
            )
        if data.offset is not None and data.offset.shape[1:] != self.weights.shape[1:]:
            expected = (data.n_rows, *self.weights.shape[1:])
            raise InputError(
                f"{data.name}: expected an offset of shape {expected}, one number for each row and "
                f"output of the model, got shape {data.offset.shape}"
            )

    def require_probability(self) -> None:
        """Raise InputError unless the loss gives probabilities."""
        if not self.task.has_probability:
            raise InputError(
                f"probabilities need a model of logistic or softmax loss, this one has {self.loss} loss; "
                "ask for margins instead"
            )

    def predict_proba(
        self,
        data: DataSet | Any,
        block_rows: int = BLOCK_ROWS,
        offset: Offset | None = None,
        covariates: Any = None,
    ) -> Floats:
        """Probabilities of ``labels[0]`` and ``labels[1]``, float64 (n, 2); only for logistic loss.

        For K classes (``softmax``), their probabilities (n, K), which sum to 1 in each row; for K labels,
        the probability of each label by itself, (n, K). Arguments and errors are as in
        :meth:`iter_margins`; InputError also for any other loss.
        """
        self.require_probability()
        margins = self._all_margins(data, block_rows, offset, covariates)
        return self.task.probabilities(margins)

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
        margins = self._all_margins(data, block_rows, offset, covariates)
        return self.task.predicted(margins, self.labels)

    def explain(
        self,
        data: DataSet | Any,
        top: int | None = None,
        offset: Offset | None = None,
        covariates: Any = None,
        output: Any = None,
    ) -> Explanation:
        """How features add up to the margins of rows.

        Parameters
        ----------
        data : DataSet, path or array
            A data set, or a source for :func:`fcl.open_data`; no target is needed.
        top : int, optional
            Number of contributions to keep for each row, the largest |w_j phi_j(x)|; None: all of them,
            which takes 16 bytes for each row and active feature.
        offset, covariates
            As in :meth:`iter_margins`.
        output : optional
            For a model of several outputs, the label of the output whose margins are explained, or its
            number from 0 if outputs have no labels.

        Returns
        -------
        Explanation
            ``margins = intercept + offset + contributions.sum(axis=1) + others``, up to rounding.

        Raises
        ------
        InputError
            As from :meth:`iter_margins`; `top` is not a whole number above 0; or `output` is unknown.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> model = fcl.train(data, "columns", C=1.0).model
        >>> found = model.explain(X)
        >>> np.allclose(found.intercept + found.contributions.sum(axis=1), model.margins(X))
        True
        """
        if output is None:
            self.require_one_output("explain", "name one of them: explain(..., output=label)")
        explained = ExplainedOutput.of(self, output)
        parts = list(iter_explanations(explained, self.opened(data, offset, covariates), top))
        return Explanation.concatenate(parts)

    def columns(self, data: DataSet | Any) -> csr_array:
        """The values of the active features in all rows, a sparse matrix of float64 (n, k).

        Column t belongs to ``ids[t]``: ``columns @ weights + intercept`` are the margins, up to rounding
        and without offsets.

        data : a data set, or a source for :func:`fcl.open_data`; no target is needed.  Raises InputError
        as :meth:`iter_margins` does.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
        >>> model = fcl.train(data, "columns", C=1.0).model
        >>> np.allclose(model.columns(X) @ model.weights + model.intercept, model.margins(X))
        True
        """
        from scipy.sparse import csr_array, vstack

        values = iter_values(self.family, self.ids, self.opened(data).rows)
        return vstack([csr_array(block) for _, _, block in values], format="csr")
