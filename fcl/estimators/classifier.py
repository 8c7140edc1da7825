"""The scikit-learn classifier."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from fcl.checks import refusing_unknown
from fcl.data.outputs import constant_labels
from fcl.data.targets import check_class_weight
from fcl.drivers.rows import class_factors
from fcl.errors import InputError
from fcl.estimators.base import Estimator, Problems
from fcl.estimators.choice import Given, Search
from fcl.estimators.parameters import ClassParameters, FitParameters, GroupParameters
from fcl.estimators.predictors import ClassPredictor, MetricScorer
from fcl.estimators.rows import Training
from fcl.model import Model


def loss_weights(given: Any, training: Training, classes: np.ndarray) -> np.ndarray | None:
    """Sample weights times the class weights ``given``; None if there are neither."""
    by_class = check_class_weight(given, classes.tolist())
    if by_class is None:
        return training.weights
    sample = np.ones(len(training.target)) if training.weights is None else training.weights
    at = np.minimum(np.searchsorted(classes, training.target), len(classes) - 1)
    return sample * class_factors(at, sample, by_class, len(classes))


def check_classes(training: Training) -> None:
    """Raise ValueError for a target of numbers that are no classes."""
    with np.errstate(invalid="ignore"):  # it casts NaN before it rejects it
        check_classification_targets(training.target)


def found_classes(training: Training) -> np.ndarray:
    """The classes of the rows whose weight is not 0, sorted; InputError unless there are two."""
    classes = np.unique(training.weighted_target)
    if len(classes) < 2:
        raise InputError(
            f"{training.data.target_name}: expected at least two classes among the rows of weight "
            f"above 0, got only one class, {classes.tolist()[0]!r}"
        )
    return classes


def against_rest(target: np.ndarray, classes: np.ndarray) -> list[np.ndarray]:
    """The rows of each class, bool (n,); of two classes only those of the second."""
    return [target == label for label in (classes[1:] if len(classes) == 2 else classes)]


def labels_against_rest(label: Any) -> tuple[str, str]:
    """The labels of a class against the rest, as its model has them."""
    return f"not {label}", f"{label}"


class Classifier(ClassParameters, MetricScorer, ClassifierMixin, ClassPredictor, Estimator):  # type: ignore[misc]
    """Fits one problem to two classes, to all classes or labels, or to each class against the rest."""

    _classifies = True
    _joint_estimator = "FCLClassifier(loss='logistic')"
    _metric = staticmethod(accuracy_score)

    def _problems(
        self, training: Training, options: dict[str, Any], choice: Given | Search
    ) -> Problems:
        check_classes(training)
        self._check_outputs(training, choice)
        labels = training.target.ndim == 2
        if labels:
            problems = self._label_problem(training)
        else:
            problems = self._class_problems(training, options, choice)
        if not self.warm_start or not hasattr(self, "models_") or self.multilabel_ != labels:
            return problems
        classes, same = problems.classes, len(self.models_) == len(problems.targets)
        if same and classes is not None and np.array_equal(self.classes_, classes):
            return replace(problems, before=[*self._models_of_problems()])
        return problems

    def _named(self, models: list[Model]) -> list[Model]:
        if len(models) == 1:
            return models
        named = zip(models, self.classes_.tolist(), strict=True)
        return [replace(model, labels=labels_against_rest(label)) for model, label in named]

    def _class_problems(
        self, training: Training, options: dict[str, Any], choice: Given | Search
    ) -> Problems:
        """One problem for two classes or a loss of all classes, else one for each class."""
        classes = found_classes(training)
        target, labels = training.target, classes.tolist()
        weights = loss_weights(self.class_weight, training, classes)
        if (
            options["loss"] == "softmax" and len(classes) == 2
        ):  # of two classes it is the logistic loss
            options["loss"] = "logistic"
            options["group"] = False  # the norm of one weight is its size
        if len(classes) > 2 and options["loss"] != "softmax":
            texts = [f"class {label!r} against the rest" for label in labels]
            return Problems(
                against_rest(target, classes), texts, weights, [None] * len(classes), classes
            )
        if training.weights is not None:  # rows of weight 0 may have other labels
            target = np.where(training.weights > 0.0, target, classes[0])
        text = f"class {labels[1]!r} against class {labels[0]!r}"
        if len(classes) > 2:
            text = f"{len(classes)} classes together"
        if choice.searches and self.class_weight is not None:
            # "balanced" counts the training rows of each fold, and scores do not count class weights
            found = Problems([target], [text], training.weights, [None], classes)
            return replace(found, class_weight=self.class_weight)
        return Problems([target], [text], weights, [None], classes)

    def _label_problem(self, training: Training) -> Problems:
        """One problem of several labels, where a row may have any number of them."""
        if self.class_weight is not None:
            raise InputError(
                f"class_weight: expected None, since a row with several labels is not of one class, got "
                f"{self.class_weight!r:.200}; use sample_weight"
            )
        name, rows = training.data.target_name, training.weighted_target
        if text := constant_labels(rows.T, name, training.names):
            warnings.warn(text, stacklevel=5)
        labels = np.arange(training.target.shape[1])
        text = f"{len(labels)} labels together"
        return Problems([training.target], [text], training.weights, [None], labels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = tags.target_tags.multi_output
        return tags

    # -- coefficients --------------------------------------------------------------------------

    def sparsify(self) -> Self:
        """Make ``coef_`` a CSR array, which saves memory with many classes; predictions do not change."""
        from scipy.sparse import csr_array

        check_is_fitted(self)
        self.coef_ = csr_array(self.coef_)
        return self

    def densify(self) -> Self:
        """Make ``coef_`` a dense array again."""
        check_is_fitted(self)
        if hasattr(self.coef_, "toarray"):
            self.coef_ = self.coef_.toarray()
        return self


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False, kw_only=True)
class FCLClassifier(GroupParameters, FitParameters, Classifier):
    """L1-regularised linear classifier over a family of features, to a certified duality gap.

    Minimises ||w||_1 + C sum_i s_i loss(y_i, <w, phi(x_i)> + b) over all features phi of the family. With
    more than two classes, one problem per class separates it from the rest, or with the loss ``softmax``
    there is one problem of all classes; the data are opened once. Rows that may have several
    labels are one problem with one certificate, with logistic loss.

    Parameters
    ----------
    features : str, Kmers or Generator
        The family: ``"columns"`` for the columns of X, ``"kmers:d=8"`` and others; see
        :func:`fcl.train`.
    C : float, "auto" or None
        Weight of the losses; None or the default if ``alpha`` is given. ``"auto"`` chooses it by five
        folds, as :class:`FCLClassifierCV` with its defaults does, and sets its attributes ``C_``,
        ``alpha_``, ``paths_`` and others; ``warm_start`` is then ignored.
    alpha : float or None
        Another way to give C: C = 1 / (alpha * sum of the sample weights, before class weights).
    l1_ratio : float
        rho in (0, 1]: 1 for the L1 norm, less for the elastic net, whose penalty is
        sum_j rho |w_j| + (1 - rho) w_j^2 / 2.
    limits : None, str, (low, high) or dict
        Limits of the weights: ``"0:"`` or ``(0, inf)`` for weights of at least 0; a pair for all features
        or a dict from the name or id of a feature to its pair; see :func:`fcl.train`.
    standardize : bool
        Whether each weight is penalised in units of the standard deviation of its feature, as glmnet does
        by default; see :func:`fcl.train`. ``coef_`` stays in the units of X. If False, ``fit`` issues a
        :class:`fcl.ScaleWarning` for columns whose scales differ by more than a factor of 1,000.
    loss : {"logistic", "squared_hinge", "softmax"}
        ``softmax`` fits one model of all classes, whose probabilities sum to 1 by themselves; the others
        fit each of more than two classes against the rest. Of two classes, ``softmax`` is ``logistic``,
        with or without ``group``.
    group : bool
        With ``softmax`` or several labels, whether a feature is in or out for all classes or labels: the
        penalty is the sum over features of the Euclidean norm of their weights.
    fit_intercept : bool
        Whether to fit b, which is never penalised.
    tol : float
        Relative duality gap (P - D) / P at which to stop. The default of 1e-4 is a tenth of the tolerance
        below which held-out accuracy and average precision no longer changed in the fourth digit on the
        measured data sets (see the page on performance). For a sampled family, such as
        ``"fourier:per_pass=200"``, the gap covers only the features that the last pass priced.
    max_iter : int
        Largest number of passes over the data for each problem, besides the first, of the null model.
    class_weight : None, "balanced" or dict of class to weight
        Factors of the sample weights of each class, 1 for classes not named; ``"balanced"`` gives all
        classes the same total weight. None for several labels.
    warm_start : bool
        Whether ``fit`` starts from the weights of the previous fit, if classes and family are the same.
        The result is certified like any other. The learnt state of a family is compared exactly: a
        family such as ``"fourier"``, which learns means, scales and the width of the kernel, may differ
        after the change of a single value of X, and the fit then starts from 0. ``"columns"``,
        ``"products"`` and families over letters learn only the width of the rows.
    random_state : int, RandomState or None
        Seed of the samples of rows and of the order of coordinates; None means 0.
    validation_fraction, patience : float, int or None
        Early stopping: the share of the rows to hold out, and the number of passes without a lower loss
        on them after which a fit stops, with the best model; see :func:`fcl.train`.
    n_jobs : int or None
        Number of threads of a fit, which gives the same bits with any number; -1 or None for all cores.
        Problems of one class against the rest share them, side by side where ``memory`` has room. With
        the driver ``processes``, the number of writers. Inside workers of joblib a fit has one thread.
    driver : {"inline", "processes"}
        In this process, or with a trainer and writers in processes of their own, for millions of rows or
        a feature class in Python. Starting the processes takes seconds for each problem, so small fits
        and searches are faster inline. Inside workers of joblib every fit runs inline.
    memory : int or str
        Budget of a fit for all processes together, in bytes or as "4GiB".
    row_view : {"all", "auto"} or int
        Rows on which the trainer works: all, a sample where that pays, or a sample of about this many
        (at least 64). It affects only speed and memory; the result is certified over all rows.
    max_time : float or None
        Seconds after which ``fit`` stops with the best weights so far, from the first pass on and without
        the compilation of kernels; the driver ``inline`` finishes a
        pass that has begun. With more than two classes, each class gets an equal share of the remaining
        time, one after the other, and makes at least its first pass.
    dask : str, distributed.Client or None
        Fit the problems of more than two classes as whole jobs on the workers of a Dask cluster, side by
        side, with the same result bit for bit: an address as for :func:`fcl.train`, or a client. A single
        problem has its passes made there. ``GridSearchCV`` and others that copy estimators need an
        address.
    progress : callable, progress bar or None
        Called with each event of :mod:`fcl.run.events`, or a bar such as ``tqdm``; it ends the fit as in
        :func:`fcl.train`. Problems that have not begun then make their first pass. ``StopTraining`` is
        raised where problems run side by side, or C is chosen, and one has no model yet.
    verbose : bool or int
        Whether to write to stderr which class is being fitted, a line for each pass, the progress of long
        passes, and how each fit ended.

    Attributes
    ----------
    classes_ : (n_classes,)
        Classes of the rows whose weight is not 0, sorted; of several labels, their columns 0 .. K - 1.
    multilabel_ : bool
        Whether y had several labels.
    coef_ : float64 (1 or n_classes, n_discovered)
        Weights of the features that any problem uses: a row per class, or one row for ``classes_[1]`` if
        there are two classes. A row per label of several. CSR after :meth:`sparsify`.
    feature_keys_ : int64 (n_discovered,)
        Ids of these features in the family; for ``"columns"``, columns of X.
    feature_names_out_ : object (n_discovered,)
        Names of these features, as from :meth:`get_feature_names_out`.
    column_weights_ : float64 (n_features_in_,) or (n_classes, n_features_in_)
        Weights of all columns of X, with 0 for columns that no problem uses; one row per class if there
        are more than two. Only for ``"columns"``. Positions in ``coef_`` are not columns of X, so ``RFE``
        and ``SelectFromModel`` need ``importance_getter="column_weights_"``, and the latter a
        ``threshold`` such as 1e-5 to select all columns that are used.
    intercept_ : float64 (1 or n_classes,)
    n_nonzero_ : int
        Number of nonzero weights.
    objective_ : float
        Sum of the objectives of all problems.
    dual_gap_ : float
        Relative duality gap of that sum, over the features that ``certificate_scope_`` names.
    converged_ : bool
        Whether all problems reached ``tol``, over the same features.
    certificate_scope_ : str, or list of str
        The features that ``dual_gap_`` and ``converged_`` cover, for each class if there are more than
        two: ``"all features of the family"``, or for a sampled family those that the last pass priced.
    n_iter_ : int
        Passes of the longest problem, at least 1.
    models_ : list of :class:`fcl.Model`
        The models, which can be saved; if there is only one, also ``model_``. Those of each class
        against the rest have the labels ``not LABEL`` and ``LABEL``.
    n_features_in_ : int
        Columns of X, or letters of a window.
    feature_names_in_ : object (n_features_in_,)
        Names of the columns of X, if it was a data frame.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = np.where(X[:, 0] > X[:, 3], "yes", "no")
    >>> model = fcl.FCLClassifier(alpha=0.01).fit(X, y)
    >>> model.converged_, model.feature_keys_
    (True, array([0, 2, 3]))
    >>> model.predict(X[1:4])
    array(['yes', 'no', 'no'], dtype='<U3')
    >>> model.score(X, y) > 0.95
    True
    """

    _joins_classes = True
    _joint_losses = ("logistic",)
