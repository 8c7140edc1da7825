"""The classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from fcl.errors import InputError
from fcl.estimators.base import Estimator
from fcl.estimators.rows import Training, open_scored, open_training
from fcl.features import Spec
from fcl.model import Model
from fcl.objective import find_loss

__all__ = ["FCLClassifier"]


def _has_probabilities(estimator: Any) -> bool:
    return find_loss(estimator.loss).has_mean


class FCLClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """L1-regularised linear classifier over a family of features, to a certified duality gap.

    Minimises ||w||_1 + C sum_i s_i loss(y_i, <w, phi(x_i)> + b) over all features phi of the family. With
    more than two classes each is separated from the rest by a problem of its own: as many fits as
    classes, over data that are opened once.

    Parameters
    ----------
    features : str, Kmers or Generator
        The family: ``"columns"``, the columns of X as they are; ``"kmers:d=8"`` and others, see
        :func:`fcl.train`.
    C : float or None
        Weight of the losses; None, or left at 1, where ``alpha`` is given.
    alpha : float or None
        The other spelling: C = 1 / (alpha * sum of the sample weights, before class weights).
    l1_ratio : float
        rho in (0, 1]: 1 for the L1 norm, less for the elastic net, whose penalty is
        sum_j rho |w_j| + (1 - rho) w_j^2 / 2.
    standardize : bool
        Whether each weight is penalised in units of the standard deviation of its feature, as glmnet does
        by default; see :func:`fcl.train`. ``coef_`` stays in the units of X. Off, ``fit`` warns
        (:class:`fcl.ScaleWarning`) of columns whose scales differ by more than a factor of 10^4.
    loss : {"logistic", "squared_hinge"}
    fit_intercept : bool
        Whether b is free; it is never penalised.
    tol : float
        Relative duality gap (P - D) / P at which to stop. The default of 1e-4 is an order of magnitude
        below the tolerance from which held-out accuracy and average precision of the measured data sets
        no longer change in the fourth digit (``tools/bench/tolerance.py``). Of a sampled family, such as
        ``"fourier:per_pass=200"``, the gap is that of the problem with the features that the last pass
        priced alone.
    max_iter : int
        Passes over the data at most, for each problem; the first one, of the null model, does not count.
    class_weight : None, "balanced" or dict of class to weight
        Multiplies the sample weights of a class, 1 where it is not named; balanced: such that all classes
        weigh as much in sum.
    warm_start : bool
        Whether ``fit`` begins with the weights of the fit before, where classes and family are the same.
        The result is certified like any other. What a family has learnt from the rows is compared
        exactly: with one that learns, such as ``"fourier"`` (means, scales, width of the kernel), a
        change of a single value of X may be another family, and the fit then begins anew. ``"columns"``,
        ``"products"`` and families of letters learn nothing but the width of the rows.
    random_state : int, RandomState or None
        Seed of the order of coordinates. None is 0: the same result each time.
    n_jobs : int or None
        Writers of the driver ``processes``, -1 for all cores, None for as many as there are. Nothing to
        the driver ``inline``.
    driver : {"inline", "processes"}
        In this process; or a trainer and writers side by side, for data that take minutes. Within workers
        of joblib everything is in the worker's process. The processes are started for each problem,
        which takes seconds: small fits and searches are faster in this process.
    memory : int or str
        Budget of a fit in bytes or as "4GiB"; covers everything, all processes together.
    row_view : {"all", "auto"} or int
        Rows on which the trainer works: all, a sample where that pays, or a sample of about so many
        (at least 64). It sets speed and memory alone; the result is certified over all rows.
    max_time : float or None
        Seconds after which ``fit`` stops at the best weights so far; the driver ``inline`` finishes a
        pass that has begun. Of more than two classes each in turn gets an equal share of the time that is
        left, so the time that a class does not need goes to the classes after it. Each class makes at
        least its first pass.
    verbose : bool or int
        Whether to write to stderr which class is being fitted, a line for each pass, how much of a long
        pass is done, and how each fit ended.

    Attributes
    ----------
    classes_ : (n_classes,), those of rows whose weight is not 0.
    coef_ : float64 (1 or n_classes, n_discovered), weights of the features that any problem uses, a
        row for each class, or one for ``classes_[1]`` of two. CSR after :meth:`sparsify`.
    feature_keys_ : int64 (n_discovered,), ids of these features in the family: columns of X for
        ``"columns"``. :meth:`get_feature_names_out` and ``feature_names_out_`` have them in words.
    column_weights_ : float64 (n_features_in_,), or (n_classes, n_features_in_) of more than two; of
        ``"columns"`` alone. Weights of all columns of X, 0 of those that were not found. Positions in
        ``coef_`` are not columns of X: ``RFE`` and ``SelectFromModel`` need
        ``importance_getter="column_weights_"``, and the latter a ``threshold`` such as 1e-5 to select
        all that were found.
    intercept_ : float64 (1 or n_classes,)
    n_nonzero_ : int, nonzero weights.
    objective_, dual_gap_ : float, objective and relative duality gap, of the sum of all problems; the
        gap is over the features that ``certificate_scope_`` tells.
    converged_ : bool, whether all problems reached ``tol``, over these features.
    certificate_scope_ : str, or list of str, one for each of more than two classes: for which features
        ``dual_gap_`` and ``converged_`` hold. ``"all features of the family"``, but of a sampled family
        those alone that the last pass priced.
    n_iter_ : int, passes of the longest problem, at least 1.
    models_ : list of :class:`fcl.Model`, which can be saved; ``model_`` the one of two classes.
    n_features_in_ : int, columns of X, or letters of a window. ``feature_names_in_`` of a data frame.
    """

    _classifies = True

    def __init__(
        self,
        features: Spec | str = "columns",
        *,
        C: float | None = 1.0,
        alpha: float | None = None,
        l1_ratio: float = 1.0,
        standardize: bool = False,
        loss: str = "logistic",
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 1000,
        class_weight: Mapping[Any, float] | str | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        driver: str = "inline",
        memory: int | str = "1GiB",
        row_view: int | str = "auto",
        max_time: float | None = None,
        verbose: bool | int = 0,
    ) -> None:
        self.features = features
        self.C = C
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.standardize = standardize
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.driver = driver
        self.memory = memory
        self.row_view = row_view
        self.max_time = max_time
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None
    ) -> FCLClassifier:
        """Fit to rows with labels.

        X : numbers (n, m), dense, sparse or a data frame; letters or codes (n,) or (n, L) for families
            over sequences; the path of a data set such as ``"train.zarr"`` or ``"train.h5::/fold1"``; or
            what ``fcl.open_data`` returns. ``GridSearchCV``, ``cross_val_score`` and whatever else
            splits rows cannot split a path or an opened data set: load arrays for that.
        y : (n,) labels of any kind, at least two. With a path, the name of the array of labels (None:
            ``y``) or an array; with an opened data set None for its own.
        sample_weight : (n,), >= 0, or None; with a path also the name of an array. Weight 2 is a row
            twice, weight 0 none.
        offset : (n,), added to the margins, here and in predictions, or None; with a path also a name.

        Raises InputError for unusable parameters, data or labels; warns with scikit-learn's
        ConvergenceWarning of an end before ``tol``.
        """
        options = self._checked_options()
        training = open_training(
            self, options["features"], X, y, sample_weight, numeric=False, offset=offset
        )
        with np.errstate(invalid="ignore"):  # it casts NaN before it refuses it
            check_classification_targets(training.target)
        classes = np.unique(training.counting)
        if len(classes) < 2:
            raise InputError(
                f"{training.data.target_name}: expected at least two classes among the rows of a weight "
                f"above 0, got only one class, {classes.tolist()[0]!r}"
            )
        begin = self._begin(classes)
        weights = self._loss_weights(training, classes)
        target = training.target
        labels = classes.tolist()
        problems = [f"class {labels[1]!r} against class {labels[0]!r}"]
        if len(classes) > 2:
            targets = [target == label for label in classes]
            problems = [f"class {label!r} against the rest" for label in labels]
        elif training.weights is None:
            targets = [target]
        else:  # rows of weight 0 may have labels of their own
            targets = [np.where(training.weights > 0.0, target, classes[0])]
        self._fit_all(training, targets, problems, weights, begin, options)
        self.classes_ = classes
        return self

    def _begin(self, classes: np.ndarray) -> list[Model | None]:
        """For each problem the model of the fit before, if it is to be used and of the same classes."""
        before = getattr(self, "classes_", None)
        if self.warm_start and before is not None and np.array_equal(before, classes):
            return list(self.models_)
        return [None] * (len(classes) if len(classes) > 2 else 1)

    def _loss_weights(self, training: Training, classes: np.ndarray) -> np.ndarray | None:
        """Sample weights times class weights."""
        weights = training.weights
        given = self.class_weight
        if given is None:
            return weights
        sample = np.ones(len(training.target)) if weights is None else weights
        at = np.minimum(np.searchsorted(classes, training.target), len(classes) - 1)
        if isinstance(given, str):
            if given != "balanced":
                raise InputError(f"class_weight must be None, 'balanced' or a dict, got {given!r}")
            sums = np.bincount(at, weights=sample, minlength=len(classes))
            factors = sums.sum() / (len(classes) * sums)
        else:
            factors = self._named_weights(given, classes)
        return np.asarray(sample * factors[at], np.float64)

    @staticmethod
    def _named_weights(given: Any, classes: np.ndarray) -> np.ndarray:
        if not isinstance(given, Mapping):
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {given!r}")
        labels = classes.tolist()
        unknown = [label for label in given if label not in labels]
        if unknown:
            raise InputError(
                f"class_weight: expected classes of y, {labels!r:.200}, got {unknown[0]!r}"
            )
        factors = np.array([given.get(label, 1.0) for label in labels])
        if factors.dtype.kind not in "biuf" or not (np.isfinite(factors) & (factors > 0)).all():
            raise InputError(
                f"class_weight: expected finite numbers above 0, got {dict(given)!r:.200}"
            )
        return factors.astype(np.float64)

    # -- prediction ----------------------------------------------------------------------------

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Margins: float64 (n,) of two classes, above 0 for ``classes_[1]``; else (n, n_classes).

        X, offset : as of :meth:`fit`.
        """
        margins = self._margins(X, offset)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The class of each row: (n,)."""
        margins = self._margins(X, offset)
        if margins.shape[1] == 1:
            return np.asarray(self.classes_[(margins[:, 0] > 0.0).astype(np.intp)])
        return np.asarray(self.classes_[margins.argmax(axis=1)])

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Probabilities, float64 (n, n_classes): logistic loss only.

        Those of more than two classes, each against the rest, are scaled to sum 1.
        """
        return np.asarray(np.exp(self.predict_log_proba(X, offset)))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Logarithms of the probabilities, without underflow."""
        margins = self._margins(X, offset)
        if margins.shape[1] == 1:
            margins = np.column_stack([-margins, margins])
            return -np.logaddexp(0.0, -margins)
        logs = -np.logaddexp(0.0, -margins)
        logs -= logs.max(axis=1, keepdims=True)
        return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> float:
        """Accuracy; arguments as of :meth:`fit`."""
        X, y, sample_weight, offset = open_scored(X, y, sample_weight, offset)
        predicted = self.predict(X, offset)
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))

    # -- coefficients --------------------------------------------------------------------------

    def sparsify(self) -> FCLClassifier:
        """Make ``coef_`` a CSR array; of many classes most weights are 0. Prediction stays as it is."""
        from scipy.sparse import csr_array

        check_is_fitted(self)
        self.coef_ = csr_array(self.coef_)
        return self

    def densify(self) -> FCLClassifier:
        """Make ``coef_`` an array again."""
        check_is_fitted(self)
        if hasattr(self.coef_, "toarray"):
            self.coef_ = self.coef_.toarray()
        return self
