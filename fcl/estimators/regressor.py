"""The scikit-learn regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from fcl.data import regression_target
from fcl.data.outputs import number_columns
from fcl.estimators.base import Estimator
from fcl.estimators.parameters import FitParameters, GroupParameters, RegressionParameters
from fcl.estimators.rows import RowArrays, Training, open_scored, open_training
from fcl.model import Model


class Regressor(RegressionParameters, RegressorMixin, Estimator):  # type: ignore[misc]
    """Fits one problem to a numeric target, or to several of them together."""

    _classifies = False
    _joint_estimator = "FCLRegressor(loss='squared')"

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
        feature_names: Any = None,
    ) -> Self:
        """Fit to numeric targets (n,) or, with squared loss, (n, targets).

        Other arguments, errors and warnings are as in :meth:`FCLClassifier.fit`.

        Examples
        --------
        >>> X = np.random.default_rng(0).normal(size=(200, 5))
        >>> import zarr
        >>> group = zarr.open_group("train.zarr", mode="w")
        >>> group["X"], group["age"] = X, X[:, 1] - X[:, 2]
        >>> fcl.FCLRegressor(alpha=0.1).fit("train.zarr", "age").feature_keys_
        array([1, 2])
        """
        options = self._checked_options()
        given = RowArrays(y, sample_weight, offset, covariates, feature_names)
        training = open_training(self, options["features"], X, given, numeric=True)
        self._check_outputs(training)
        name, several = training.data.target_name, training.target.ndim == 2
        target = (number_columns if several else regression_target)(training.target, name)
        if not several and "group" in options:
            options["group"] = False  # the norm of one weight is its size
        problem = f"{target.shape[1]} targets together" if several else f"target {name}"
        begin = [self._begin(training)]
        self._fit_all(training, [target], [problem], training.weights, begin, options)
        if not several:
            self.coef_ = self.coef_[0]
            self.intercept_ = float(self.intercept_[0])
        return self

    def _begin(self, training: Training) -> Model | None:
        """The model of the previous fit, if warm starts apply to as many targets; otherwise None."""
        before: Model | None = getattr(self, "model_", None) if self.warm_start else None
        n_targets = 1 if training.target.ndim == 1 else training.target.shape[1]
        return before if before is not None and before.n_outputs == n_targets else None

    def predict(self, X: Any, offset: Any = None, covariates: Any = None) -> Any:
        """Expected targets, float64 (n,) or (n, targets); X, offset and covariates as in :meth:`fit`."""
        margins = self._margins(X, offset, covariates)
        return self._loss().mean(margins[:, 0] if margins.shape[1] == 1 else margins)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
    ) -> float:
        """The coefficient of determination R^2, the mean over targets; arguments as in :meth:`fit`."""
        X, given = open_scored(X, RowArrays(y, sample_weight, offset, covariates))
        predicted = self.predict(X, given.offset, given.covariates)
        return float(r2_score(given.y, predicted, sample_weight=given.sample_weight))


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLRegressor(GroupParameters, FitParameters, Regressor):
    """L1-regularised linear regression over a family of features, to a certified duality gap.

    Minimises ||w||_1 + C sum_i s_i (y_i - <w, phi(x_i)> - b)^2, or another loss in place of the square,
    over all features phi of the family. The square has no factor 1/2: for n rows of weight 1,
    ``Lasso(alpha=a)`` corresponds to C = 1 / (2 n a), that is, ``alpha = 2 a`` here.

    Several targets (n, targets) with squared loss are one problem, with one certificate. With ``group``
    it is the multi-task lasso; ``MultiTaskLasso(alpha=a)`` corresponds to the same C.

    Parameters
    ----------
    loss : {"squared", "huber:delta=1", "poisson", "pinball:tau=0.5,width=0.1"}
        ``huber`` takes any delta > 0, in the units of the target; ``poisson`` needs targets >= 0 and
        predicts exp(margin); ``pinball`` predicts the tau-quantile, 0 < tau < 1, with the loss smoothed
        on an interval of length ``width`` in the units of the target. The smoothed loss is at most
        max(tau, 1 - tau)^2 width / 2 lower; a width of a tenth of the residuals' spread or less is usual.
    group : bool
        With several targets, whether a feature is in or out for all of them: the penalty is the sum over
        features of the Euclidean norm of their weights. Ignored with a single target.
    others
        As in :class:`FCLClassifier`.

    Attributes
    ----------
    coef_ : float64 (n_discovered,) or (n_targets, n_discovered)
        Weights of the features in ``feature_keys_``.
    column_weights_ : float64 (n_features_in_,) or (n_targets, n_features_in_)
        Weights of all columns of X; see :class:`FCLClassifier`.
    intercept_ : float, or float64 (n_targets,)
    model_ : :class:`fcl.Model`
        The trained model, which can be saved; also the only item of ``models_``.
    dual_gap_, converged_, certificate_scope_ : float, bool, str
        As in :class:`FCLClassifier`.
    feature_keys_, feature_names_out_, n_nonzero_, objective_, n_iter_
        As in :class:`FCLClassifier`.
    n_features_in_, feature_names_in_
        As in :class:`FCLClassifier`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] - 2.0 * X[:, 3]
    >>> model = fcl.FCLRegressor(alpha=0.1, tol=1e-9).fit(X, y)
    >>> model.get_feature_names_out(), model.coef_.round(2)
    (array(['x0', 'x3'], dtype=object), array([ 0.94, -1.96]))
    >>> model.score(X, y) > 0.99
    True
    """

    _joint_losses = ("squared",)
