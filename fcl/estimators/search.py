"""Estimators that choose the weight of the penalty by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv

from fcl.checks import is_whole, whole
from fcl.cli.path_report import PathView
from fcl.data import DataSet
from fcl.drivers.result import TrainResult, end_in_words
from fcl.estimators.base import Estimator, seed_of
from fcl.estimators.classifier import Classifier
from fcl.estimators.parameters import GroupParameters, PathParameters
from fcl.estimators.regressor import Regressor
from fcl.estimators.rows import Training
from fcl.objective import COUPLED_LOSSES
from fcl.path.folds import fold_of_rows
from fcl.path.grid import check_alphas
from fcl.path.result import PathPoint, PathResult
from fcl.path.rules import PathStop
from fcl.path.train import train_path


class PathSearch(PathParameters, Estimator):
    """Fit each problem by a path of alphas, and keep the chosen model, or its refit."""

    # what the base reads of estimators that fit at one C, which a path does not have as parameters
    C = alpha = None
    warm_start = False
    driver = "inline"
    _groups: Any = None
    _path_class_weight: Any = None  # that the path itself applies

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
        groups: Any = None,
    ) -> Self:
        """Choose alpha, and fit to all rows; warns (ConvergenceWarning) if a fit stops before ``tol``.

        Parameters
        ----------
        X, y, sample_weight, offset, covariates
            As in :meth:`FCLClassifier.fit` and :meth:`FCLRegressor.fit`.
        groups : array-like (n,)
            Rows of one group are held out together. In pipelines and meta-estimators it is requested with
            ``set_fit_request(groups=True)``.

        Returns
        -------
        PathSearch
            This estimator.

        Raises
        ------
        InputError
            Parameters, data, labels or folds are unusable.
        """
        self._groups = groups
        try:
            super().fit(X, y, sample_weight, offset, covariates)
        finally:
            self._groups = None
        return self

    def _fit_all(self, training: Training, targets: Sequence[np.ndarray], *rest: Any) -> None:
        cv = self.cv
        if not is_whole(cv) and not hasattr(cv, "split"):
            cv = check_cv(cv, training.target, classifier=self._classifies)
        self.folds_ = fold_of_rows(
            cv, training.data, self._groups, self._classifies, seed_of(self.random_state)
        )
        self.paths_: list[PathResult] = [None] * len(targets)  # type: ignore[list-item]
        self._sum_weights = training.sum_weights
        super()._fit_all(training, targets, *rest)
        alphas = [self._alphas_of(path.points) for path in self.paths_]
        chosen = [self._alphas_of([path.chosen])[0] for path in self.paths_]
        values = [path.chosen.C for path in self.paths_]
        scores = [path.scores.folds for path in self.paths_]
        one = len(self.paths_) == 1
        self.alphas_: Any = alphas[0] if one else alphas
        self.scores_: Any = scores[0] if one else scores
        self.alpha_: Any = chosen[0] if one else np.array(chosen)
        self.C_: Any = values[0] if one else np.array(values)

    def _loss_weights(self, training: Training, classes: np.ndarray) -> np.ndarray | None:
        """Sample weights; times class weights only if several problems share them.

        The path of a single problem applies the class weights itself: to the training rows of each fold,
        where ``"balanced"`` counts them, but not to scores.
        """
        weights: np.ndarray | None = super()._loss_weights(training, classes)
        self._path_class_weight = None
        several = len(classes) > 2 and self.loss not in COUPLED_LOSSES
        if several or self.class_weight is None:
            return weights
        self._path_class_weight = self.class_weight
        return training.weights

    def _alphas_of(self, points: list[PathPoint]) -> np.ndarray:
        """Alphas with respect to the sample weights, before class weights."""
        return np.array([1.0 / (point.C * self._sum_weights) for point in points])

    def _strength(self, training: Training) -> dict[str, Any]:
        """The grid, as arguments of :func:`fcl.train_path`."""
        if is_whole(self.alphas):
            return {"points": whole("alphas", self.alphas, 1)}
        return {"alphas": check_alphas(self.alphas)}

    def _sends_jobs(self, n_problems: int) -> bool:
        return True

    def _view(self) -> Any:
        return PathView()

    def _fit_one(self, data: DataSet, problem: Any, options: dict[str, Any]) -> TrainResult:
        features = options.pop("features")
        options["class_weight"] = self._path_class_weight
        if "alphas" in options and data.weights is not None:  # they do not count class weights
            options["alphas"] = options["alphas"] * (self._sum_weights / data.weights.sum())
        if self.verbose:
            from fcl.cli.common import messages

            messages.write(f"{type(self).__name__}: fitting {problem.text}")
            options["progress"] = self._view()
        found = train_path(
            data,
            features,
            cv=PredefinedSplit(self.folds_),  # leaves rows of -1 in all training sets
            patience=self.patience,
            select=self.select,
            refit=self.refit,
            refit_alpha=self.refit_alpha,
            warn=False,
            client=problem.executor,
            **options,
        )
        if found.reason is PathStop.INTERRUPTED:
            raise KeyboardInterrupt
        self.paths_[problem.number] = found
        return _result_of(found.chosen, found.refit, options["tol"])


def _result_of(chosen: PathPoint, refit: PathPoint | None, tol: float) -> TrainResult:
    """The chosen point, or its refit, as the result of training; converged only if both converged."""
    point = refit if refit is not None and chosen.converged else chosen
    message = end_in_words(point.reason, point.certificate, tol)
    seconds = {"path": point.seconds}
    return TrainResult(
        (refit or chosen).model, point.converged, point.reason, message, seconds, 0, point.passes
    )


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLClassifierCV(PathSearch, GroupParameters, Classifier):
    """:class:`FCLClassifier` that chooses the weight of the penalty by cross-validation.

    Each fold trains along a path of alphas, each from the model before. The alpha of the best mean
    average precision on held-out rows is chosen, and the model is trained on all rows. With more than
    two classes, each problem of one class against the rest has its own path and alpha; with the loss
    ``softmax`` there is one path of all classes, and the alpha of the smallest log loss is chosen.

    Parameters
    ----------
    alphas : int or array of float (k,)
        A number of alphas, from the smallest at which the model is empty down to a hundredth of it; or
        the alphas. C = 1 / (alpha * sum of the sample weights, before class weights).
    cv : int, splitter or iterable of (train, test)
        A number of folds, which keep the shares of the classes; or a splitter of scikit-learn that holds
        each row out at most once, and trains on all others.
    select : {"best", "1se"}
        The best score, or the largest alpha within one standard error of it.
    patience : int or None
        Stop the path after this many alphas without a better mean score; None: never.
    refit : bool
        Whether to fit the features of the chosen model again, nearly without a penalty, since the L1 norm
        shrinks the weights. ``coef_``, predictions and certificate are then those of the refit.
        ``alpha_``, ``C_`` and ``scores_`` are still those of the path, and
        ``paths_[0].chosen.model`` is the model before the refit.
        A chosen model without features stays as it is.
    refit_alpha : float
        Weight of the ridge penalty of the refit: it minimises the weighted mean of the losses plus
        refit_alpha sum_j var_j w_j^2 / 2, where var_j is the variance of feature j.
    n_jobs : int or None
        Number of threads, shared out between the folds and classes that are trained side by side, as many
        as ``memory`` has room for; -1 or None for all cores. The bits are the same with any number.
    random_state, max_time, verbose
        As in :class:`FCLClassifier`; ``random_state`` also shuffles the rows for a number of folds, and
        ``max_time`` limits the paths of the folds.
    dask : str, distributed.Client or None
        Train folds, of all classes, as whole jobs on the workers of a Dask cluster, side by side, with
        the same result bit for bit; given as in :class:`FCLClassifier`.
    others
        As in :class:`FCLClassifier`.

    Attributes
    ----------
    alpha_, C_ : float, or float64 (n_classes,)
        The chosen weights of penalty and losses; one for each class if there are several problems.
    alphas_ : float64 (k,), or a list of n_classes such arrays
        Alphas of the path, decreasing.
    scores_ : float64 (folds, k), or a list of n_classes such arrays
        Average precision on the held-out rows, each with its sample weight, as from
        :func:`fcl.train_path`; with more than two classes, also with its class weight. The log loss for
        ``softmax``; for regression, the error.
    folds_ : int64 (n,)
        The fold that holds each row out; -1 if none does.
    paths_ : list of :class:`fcl.PathResult`
        All models, certificates and standard errors, for each problem; ``paths_[0].refit.score`` is
        the cross-validated score of the refit.
    classes_, coef_, intercept_ and others
        As in :class:`FCLClassifier`, of the chosen model or its refit.
    """

    _joins_classes = True


@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLRegressorCV(PathSearch, Regressor):
    """:class:`FCLRegressor` that chooses the weight of the penalty by cross-validation.

    The alpha of the smallest mean error on the held-out rows is chosen: mean squared error, mean absolute
    error for ``huber``, mean deviance for ``poisson``, mean pinball loss for ``pinball``.

    Parameters
    ----------
    alphas, cv, select, patience, refit, refit_alpha, random_state, max_time
        As in :class:`FCLClassifierCV`.
    n_jobs, dask, verbose
        As in :class:`FCLClassifierCV`.
    others
        As in :class:`FCLRegressor`.

    Attributes
    ----------
    alpha_, C_, alphas_, scores_, folds_, paths_
        As in :class:`FCLClassifierCV`.
    coef_, intercept_ and others
        As in :class:`FCLRegressor`, of the chosen model or its refit.
    """
