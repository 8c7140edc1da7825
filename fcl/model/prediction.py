"""Margins and predictions of a linear model from raw rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data import DataSet
from fcl.errors import InputError
from fcl.model.covariates import covariate_margins
from fcl.model.explain import ExplainedOutput, Explanation, iter_explanations, iter_values
from fcl.model.linear import LinearModel
from fcl.model.predictor import BLOCK_ROWS, Offset, Predictor
from fcl.model.scorer import row_scorer
from fcl.types import Floats

if TYPE_CHECKING:
    from scipy.sparse import csr_array

#: Margins in a block of rows: 32 MiB.
BLOCK_MARGINS = 1 << 22


class PredictingModel(LinearModel, Predictor):
    """A base of :class:`fcl.Model`: what it computes from rows."""

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

    def probabilities_of(self, margins: Floats) -> Floats:
        """The probabilities of the labels from margins (n, K)."""
        return self.task.probabilities(margins)

    def predicted(self, margins: Floats) -> np.ndarray:
        """The predictions from margins (n, K)."""
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
        data = self.opened(data, offset, covariates)
        explained = ExplainedOutput.of(self.fitted(data), output)
        parts = list(iter_explanations(explained, data, top))
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

        data = self.opened(data)
        values = iter_values(self.fitted(data).family, self.ids, data.rows)
        return vstack([csr_array(block) for _, _, block in values], format="csr")
