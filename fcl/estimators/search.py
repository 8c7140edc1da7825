"""Estimators that choose C by cross-validation, with a grid and folds that the user can set."""

from __future__ import annotations

from dataclasses import dataclass

from fcl.checks import refusing_unknown
from fcl.estimators.classifier import Classifier
from fcl.estimators.parameters import GroupParameters, PathParameters
from fcl.estimators.regressor import Regressor


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLClassifierCV(PathParameters, GroupParameters, Classifier):
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

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] > X[:, 3]
    >>> model = fcl.FCLClassifierCV(alphas=5, cv=3).fit(X, y)
    >>> model.scores_.shape, model.feature_keys_
    ((3, 5), array([0, 3]))
    >>> float(model.alpha_) in model.alphas_
    True
    """

    _joins_classes = True


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLRegressorCV(PathParameters, Regressor):
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

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] - 2.0 * X[:, 3]
    >>> model = fcl.FCLRegressorCV(alphas=[1.0, 0.1, 0.01], cv=3).fit(X, y)
    >>> float(model.alpha_), model.coef_.round(1)
    (0.01, array([ 1., -2.]))
    """
