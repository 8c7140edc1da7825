"""The scikit-learn estimators of online learners."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin

from fcl.checks import refusing_unknown
from fcl.data import regression_target
from fcl.errors import InputError
from fcl.estimators.classifier import (
    against_rest,
    check_classes,
    found_classes,
    labels_against_rest,
    loss_weights,
)
from fcl.estimators.online_base import OnlineEstimator
from fcl.estimators.parameters import OnlineParameters
from fcl.estimators.predictors import ClassPredictor
from fcl.estimators.rows import RowArrays, Training


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False)
class FCLOnlineClassifier(OnlineParameters, ClassifierMixin, ClassPredictor, OnlineEstimator):  # type: ignore[misc]
    """L1-regularised linear classifier that learns row by row, with ``partial_fit`` for streams.

    The problem is that of :class:`FCLClassifier` at C = 1 / (alpha S), where S is the sum of the sample
    weights. An online learner only comes near its optimum; :meth:`certify` says how near. More than two
    classes are learnt each against the rest, from one reading of the rows.

    Parameters
    ----------
    features : str, Kmers or Generator
        The family; it must be able to list the features of a row.
    alpha : float
        Weight of the penalty, above 0.
    rate : float or "auto"
        Rate of the first row. ``auto`` tries a few on the first rows of ``fit``, or of the first
        ``partial_fit``.
    passes : int
        Passes of ``fit`` over the rows.
    fit_intercept : bool
        Whether to learn an intercept, which is not penalised.
    shuffle : bool
        Whether ``fit`` reads the rows in random order; ``partial_fit`` reads them in theirs.
    random_state : int, RandomState or None
        Seed of the order; None means 0.
    memory : int or str
        Budget in bytes or as "4GiB".
    progress : callable, progress bar or None
        As in :class:`FCLClassifier`, with an event ``OnlineProgress`` for each class in turn; it ends
        learning with what was learnt so far, also in ``partial_fit``.
    hash_bits : int or None
        Hash the features into 2^hash_bits weights; see :func:`fcl.train_online`.
    loss : {"logistic", "squared_hinge", "hinge"}
    class_weight : None, "balanced" or dict of class to weight
        Factors of the sample weights of each class, 1 for classes not named. ``alpha`` refers to the
        weights before, as far as the rows of the first call tell; "balanced" needs all rows, and is for
        ``fit``.
    method
        As in :func:`fcl.train_online`.
    power, step, period, theta, truncation, average, l1_ratio
        As in :class:`fcl.online.OnlineOptions`.
    batch, radius, weights, gamma, max_weight, rates
        As in :class:`fcl.online.OnlineOptions`.

    Attributes
    ----------
    classes_ : (n_classes,)
    coef_ : float64 CSR (1 or n_classes, p)
        Weights of all features of the family.
    intercept_ : float64 (1 or n_classes,)
    models_ : list of :class:`fcl.Model`
        The models, which can be saved.
    learners_ : list of Learner
    n_features_in_, feature_names_in_
        Columns of X, and their names if X is a data frame.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] > X[:, 3]
    >>> model = fcl.FCLOnlineClassifier(alpha=0.01)
    >>> for part in np.split(np.arange(200), 4):
    ...     model = model.partial_fit(X[part], y[part], classes=[False, True])
    >>> model.score(X, y) > 0.9
    True
    """

    _: KW_ONLY
    loss: str = "logistic"
    class_weight: Any = None

    _losses = ("logistic", "squared_hinge", "hinge")
    _numeric = False

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        classes: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
    ) -> Self:
        """Learn from more rows, once and in their order.

        Each call also takes time in proportion to the number of features of the family.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in :meth:`fit`, with the columns of the first call.
        classes : array-like (n_classes,)
            All classes of the stream; needed in the first call.

        Raises
        ------
        InputError
            The columns or classes are not those of the first call; or as from :meth:`fit`.
        """
        self._options()
        first = not hasattr(self, "learners_")
        if self.class_weight is not None and isinstance(self.class_weight, str):
            raise InputError(
                f"class_weight: expected a dict for partial_fit, got {self.class_weight!r}, which needs "
                "the rows of all calls; give the weight of each class"
            )
        known = None if classes is None else np.unique(np.asarray(classes))
        if first and (known is None or len(known) < 2):
            raise InputError("classes: expected all classes of the stream in the first partial_fit")
        if not first and known is not None and not np.array_equal(known, self.classes_):
            raise InputError(
                f"classes: expected those of the first call, {self.classes_.tolist()!r:.200}, got "
                f"{known.tolist()!r:.200}"
            )
        training = self._open(X, RowArrays(y, sample_weight, offset), first)
        given = self.classes_ if not first else known
        assert given is not None
        unknown = np.setdiff1d(training.weighted_target, given)
        if len(unknown):
            raise InputError(
                f"{training.data.target_name}: expected classes {given.tolist()!r:.200}, got "
                f"{unknown.tolist()[0]!r}"
            )
        self.classes_ = given
        return self._learn_part(training, first)

    def _open(self, X: Any, given: RowArrays, first: bool) -> Training:
        training = super()._open(X, given, first)
        check_classes(training)
        return training

    def _weighted(self, training: Training) -> Training:
        weights = loss_weights(self.class_weight, training, self.classes_)
        return replace(training, weights=weights)

    def _begun(self, training: Training) -> None:
        self.classes_ = found_classes(training)

    def _labels_of_outputs(self) -> list[Any]:
        classes = self.classes_.tolist()
        return [tuple(classes)] if len(classes) == 2 else [*map(labels_against_rest, classes)]

    def _targets(self, training: Training) -> list[np.ndarray]:
        """The targets -1 and +1 of each output."""
        return [np.where(own, 1.0, -1.0) for own in against_rest(training.target, self.classes_)]

    def _problems(self, training: Training) -> list[np.ndarray]:
        positive = against_rest(training.target, self.classes_)
        return positive if len(positive) > 1 else [self.classes_[positive[0].astype(np.intp)]]


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False)
class FCLOnlineRegressor(OnlineParameters, RegressorMixin, OnlineEstimator):  # type: ignore[misc]
    """L1-regularised least squares, learnt row by row, with ``partial_fit`` for streams.

    The problem is that of :class:`FCLRegressor` at C = 1 / (alpha S), where S is the sum of the sample
    weights.

    Parameters
    ----------
    others
        As in :class:`FCLOnlineClassifier`.

    Attributes
    ----------
    coef_, intercept_, models_, learners_, n_features_in_, feature_names_in_
        As in :class:`FCLOnlineClassifier`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] - 2.0 * X[:, 3]
    >>> model = fcl.FCLOnlineRegressor(alpha=0.01).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _losses = ("squared",)
    _numeric = True

    def partial_fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None
    ) -> Self:
        """Learn from more rows, once and in their order; see :meth:`FCLOnlineClassifier.partial_fit`."""
        self._options()
        first = not hasattr(self, "learners_")
        return self._learn_part(self._open(X, RowArrays(y, sample_weight, offset), first), first)

    def _targets(self, training: Training) -> list[np.ndarray]:
        return [regression_target(training.target, training.data.target_name)]

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Expected targets, float64 (n,)."""
        return self._margins(X, offset)[:, 0]
