"""The scikit-learn regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from fcl.checks import refusing_unknown
from fcl.data.outputs import n_target_columns, number_columns
from fcl.drivers.result import TrainResult
from fcl.estimators.base import Estimator, Problems
from fcl.estimators.choice import Given, Search
from fcl.estimators.parameters import FitParameters, GroupParameters, RegressionParameters
from fcl.estimators.predictors import MetricScorer
from fcl.estimators.rows import Training
from fcl.model import Model
from fcl.model.shapes import public


class Regressor(RegressionParameters, MetricScorer, RegressorMixin, Estimator):  # type: ignore[misc]
    """Fits one problem to a numeric target, or to several of them together."""

    _classifies = False
    _joint_estimator = "FCLRegressor(loss='squared')"
    _metric = staticmethod(r2_score)

    def _problems(
        self, training: Training, options: dict[str, Any], choice: Given | Search
    ) -> Problems:
        self._check_outputs(training, choice)
        name, n_targets = training.data.target_name, n_target_columns(training.target)
        target = public(number_columns(training.target, name))
        if n_targets == 1 and "group" in options:
            options["group"] = False  # the norm of one weight is its size
        text = f"target {name}" if n_targets == 1 else f"{n_targets} targets together"
        before: Model | None = getattr(self, "model_", None) if self.warm_start else None
        if before is not None and before.n_outputs != n_targets:
            before = None
        return Problems([target], [text], training.weights, [before])

    def _set_attributes(self, results: list[TrainResult]) -> None:
        super()._set_attributes(results)
        if len(self.intercept_) == 1:
            self.coef_ = self.coef_[0]
            self.intercept_ = float(self.intercept_[0])

    def predict(self, X: Any, offset: Any = None, covariates: Any = None) -> Any:
        """Expected targets, float64 (n,) or (n, targets); X, offset and covariates as in ``fit``."""
        margins = self._margins(X, offset, covariates)
        return self._loss().mean(public(margins))


@refusing_unknown
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
