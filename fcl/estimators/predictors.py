"""Predictions of fitted estimators: margins, classes, probabilities and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fcl.data.columns import joined
from fcl.estimators.rows import RowArrays, RowEstimator, open_rows, open_scored
from fcl.model import Model
from fcl.model.columns import matched
from fcl.model.shapes import public
from fcl.objective import find_loss


class FittedPredictor(RowEstimator):
    """An estimator that predicts by its ``models_``, which share a family."""

    models_: list[Model]
    classes_: np.ndarray  #: of classifiers

    def _margins(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """Margins with intercepts, offset and covariates, float64 (n, outputs); reads the rows once."""
        check_is_fitted(self)
        models = self.models_
        family = models[0].family
        data = open_rows(self, family, X, offset, covariates)
        record = joined([model.column_record for model in models])
        data = matched(data, record, family.row_width)
        added = [model.added_margins(data) for model in models]
        scorers = [model.scorer() for model in models]
        margins = np.empty((data.n_rows, sum(model.n_outputs for model in models)))
        for start, stop, block in family.read_rows(data.rows, family.most_block_rows()):
            margins[start:stop] = np.hstack([margins_of(block) for margins_of in scorers])
        first = 0
        for model, more in zip(models, added, strict=True):
            last = first + model.n_outputs
            if more is not None:
                margins[:, first:last] += more
            first = last
        return margins

    def _models_of_problems(self) -> list[Model]:
        """The models with the labels of their targets: of several, whether a row is of the class."""
        if len(self.models_) == 1:
            return list(self.models_)
        return [replace(model, labels=(False, True)) for model in self.models_]

    def _column_names(self) -> list[str] | None:
        """Names of the columns of X, or None if it has none."""
        names = getattr(self, "feature_names_in_", None)
        names = getattr(self, "feature_names_", None) if names is None else names
        return None if names is None else [str(name) for name in names]


class MetricScorer:
    """Scores predictions by a metric of scikit-learn."""

    _metric: Callable[..., Any]

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
    ) -> float:
        """Share of rows whose classes are right, all labels if there are several; of numbers R^2.

        It is the mean R^2 of all targets. Arguments are as in ``fit``.
        """
        X, given = open_scored(X, RowArrays(y, sample_weight, offset, covariates))
        predicted = self.predict(X, given.offset, given.covariates)  # type: ignore[attr-defined]
        return float(self._metric(given.y, predicted, sample_weight=given.sample_weight))


def has_probabilities(estimator: Any) -> bool:
    """Whether the loss of a classifier gives probabilities."""
    return find_loss(estimator.loss).has_mean


class ClassPredictor(FittedPredictor):
    """Classes and their probabilities, from margins of two classes, of all together, or of each alone."""

    @property
    def multilabel_(self) -> bool:
        """Whether the estimator was fitted to rows that may have several labels."""
        check_is_fitted(self)
        return self.models_[0].noun == "label"

    def decision_function(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """Margins of the rows; X, offset and covariates as in ``fit``.

        Returns
        -------
        ndarray of float64 (n,) or (n, n_classes)
            With two classes (n,), above 0 for ``classes_[1]``; otherwise a column per class, or per
            label, above 0 if the row has it.
        """
        margins: np.ndarray = public(self._margins(X, offset, covariates))
        return margins

    def predict(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """The class of each row, (n,), or 0 or 1 for each label, int64 (n, n_labels).

        X, offset and covariates are as in ``fit``.
        """
        margins = self._margins(X, offset, covariates)
        if self.multilabel_:
            return (margins > 0.0).astype(np.int64)
        if margins.shape[1] == 1:
            return np.asarray(self.classes_[(margins[:, 0] > 0.0).astype(np.intp)])
        return np.asarray(self.classes_[margins.argmax(axis=1)])

    @available_if(has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """Probabilities of the classes, float64 (n, n_classes); only for logistic and softmax loss.

        With logistic loss and more than two classes, the probabilities of each class against the rest
        are scaled to sum to 1. Of several labels, the probability that a row has each of them.
        """
        return np.asarray(np.exp(self.predict_log_proba(X, offset, covariates)))

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """Logarithms of the probabilities, float64 (n, n_classes), without underflow."""
        margins = self._margins(X, offset, covariates)
        if margins.shape[1] == 1 or self.multilabel_:
            both = margins if self.multilabel_ else np.column_stack([-margins, margins])
            return -np.logaddexp(0.0, -both)
        logs = margins if len(self.models_) == 1 else -np.logaddexp(0.0, -margins)
        logs = logs - logs.max(axis=1, keepdims=True)
        return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))
