"""The scikit-learn regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from fcl.data import regression_target
from fcl.estimators.base import Estimator
from fcl.estimators.parameters import FitParameters, RegressionParameters
from fcl.estimators.rows import RowArrays, open_scored, open_training

__all__ = ["FCLRegressor", "Regressor"]


class Regressor(RegressionParameters, RegressorMixin, Estimator):  # type: ignore[misc]
    """Fits one problem to a numeric target."""

    _classifies = False

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
    ) -> Self:
        """Fit to numeric targets; arguments, errors and warnings as in :meth:`FCLClassifier.fit`."""
        options = self._checked_options()
        given = RowArrays(y, sample_weight, offset, covariates)
        training = open_training(self, options["features"], X, given, numeric=True)
        target = regression_target(training.target, training.data.target_name)
        begin = getattr(self, "model_", None) if self.warm_start else None
        problem = f"target {training.data.target_name}"
        self._fit_all(training, [target], [problem], training.weights, [begin], options)
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])
        return self

    def predict(self, X: Any, offset: Any = None, covariates: Any = None) -> Any:
        """Expected targets, float64 (n,); X, offset and covariates as in :meth:`fit`."""
        return self._loss().mean(self._margins(X, offset, covariates)[:, 0])

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
    ) -> float:
        """The coefficient of determination R^2; arguments as in :meth:`fit`."""
        X, given = open_scored(X, RowArrays(y, sample_weight, offset, covariates))
        predicted = self.predict(X, given.offset, given.covariates)
        return float(r2_score(given.y, predicted, sample_weight=given.sample_weight))


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLRegressor(FitParameters, Regressor):
    """L1-regularised linear regression over a family of features, to a certified duality gap.

    Minimises ||w||_1 + C sum_i s_i (y_i - <w, phi(x_i)> - b)^2, or another loss in place of the square,
    over all features phi of the family. The square has no factor 1/2: for n rows of weight 1,
    ``Lasso(alpha=a)`` corresponds to C = 1 / (2 n a), that is, ``alpha = 2 a`` here.

    Parameters
    ----------
    loss : {"squared", "huber:delta=1", "poisson"}
        ``huber`` takes any delta > 0, in the units of the target; ``poisson`` needs targets >= 0 and
        predicts exp(margin).
    features, C, alpha, l1_ratio, standardize, fit_intercept, tol, max_iter
        As in :class:`FCLClassifier`.
    warm_start, random_state, n_jobs, driver, memory, row_view, max_time, verbose
        As in :class:`FCLClassifier`.

    Attributes
    ----------
    coef_ : float64 (n_discovered,)
        Weights of the features in ``feature_keys_``.
    column_weights_ : float64 (n_features_in_,)
        Weights of all columns of X; see :class:`FCLClassifier`.
    intercept_ : float
    model_ : :class:`fcl.Model`
        The trained model, which can be saved; also the only item of ``models_``.
    dual_gap_, converged_, certificate_scope_ : float, bool, str
        As in :class:`FCLClassifier`.
    feature_keys_, feature_names_out_, n_nonzero_, objective_, n_iter_
        As in :class:`FCLClassifier`.
    n_features_in_, feature_names_in_
        As in :class:`FCLClassifier`.
    """
