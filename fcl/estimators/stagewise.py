"""The scikit-learn estimators of stagewise models."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from fcl.checks import flag, refusing_unknown, share_or_0
from fcl.drivers.problem import checked_spec
from fcl.errors import InputError
from fcl.estimators.base import check_jobs, n_cores
from fcl.estimators.classifier import check_classes
from fcl.estimators.parameters import seed_of
from fcl.estimators.rows import (
    RowArrays,
    RowEstimator,
    Training,
    open_rows,
    open_training,
)
from fcl.features import Spec
from fcl.model.shapes import public
from fcl.options.stagewise import SETTINGS
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise


@dataclass(eq=False, repr=False, match_args=False)
class _Parameters:
    """Parameters of both estimators."""

    features: Spec | str = "columns"
    _: KW_ONLY
    block: int = 1024
    order: str = "ids"
    visits: int | None = None
    alpha: float = 1.0
    validation_fraction: float = 0.05
    patience: int | None = None
    random_state: Any = None
    memory: int | str = "4GiB"
    n_jobs: int | None = None
    certify: bool = False
    progress: Any = None


class _Stagewise(RowEstimator):
    """What both estimators share."""

    model_: StagewiseModel

    _classifies: bool

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Fit to rows with one class each, or with labels as columns of 0 and 1; or to numbers.

        Parameters
        ----------
        X, y, sample_weight
            As in :meth:`FCLClassifier.fit` and :meth:`FCLRegressor.fit`; y (n,), or (n, outputs).
        offset : array-like (n,) or (n, outputs), str or None
            Added to the margins; predictions then need one, too. With a path also the name of an array.

        Raises
        ------
        InputError
            Parameters, data or targets are unusable.
        """
        settings, spec = self._settings(), checked_spec(self.features)
        given = RowArrays(y, sample_weight, offset)
        training = open_training(self, spec, X, given, numeric=not self._classifies)
        if self._classifies:
            check_classes(training)
        name = training.data.target_name
        data = training.data.with_target(training.target, training.weights, name)
        if not self._classifies:
            data.target_columns = training.names
        running = StagewiseRunOptions(
            cores=n_cores(self.n_jobs), certify=self.certify, progress=self.progress
        )
        result = train_stagewise(
            data, spec, settings, numbers=not self._classifies, running=running
        )
        self.model_ = result.model
        self.n_iter_ = len(result.model.history)
        self.history_ = result.model.history
        self.dual_gap_ = None if result.gap is None else result.gap.gap
        self._set_outputs(training)
        return self

    def _set_outputs(self, training: Training) -> None:
        """Set what is known about the classes of a classifier."""

    def _settings(self) -> Settings:
        """Validate the parameters; raises InputError that names the first wrong one."""
        check_jobs(self.n_jobs)
        flag("certify", self.certify)
        loss = getattr(self, "loss", None)
        if not isinstance(loss, str | None):
            raise InputError(f"loss: expected None or the name of a loss, got {loss!r:.200}")
        share_or_0("validation_fraction", self.validation_fraction)
        given = {name: getattr(self, name) for name in SETTINGS if hasattr(self, name)}
        seed = seed_of(self.random_state, SETTINGS["seed"])
        return Settings(**given, valid_fraction=self.validation_fraction, seed=seed).checked()

    def _margins(self, X: Any, offset: Any = None) -> np.ndarray:
        """The margins of rows with their offsets, float64 (n, K)."""
        check_is_fitted(self)
        return self.model_.margins(open_rows(self, self.model_.family, X, offset))


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False)
class StagewiseClassifier(_Parameters, ClassifierMixin, _Stagewise):  # type: ignore[misc]
    """Ridge classifier of several classes, or labels, over blocks of generated features.

    Parameters
    ----------
    features : str or Generator
        A family with a number of features that makes its columns: ``"columns"``,
        ``"fourier:n=24576"``, or your own.
    block : int
        Number of features of a block.
    order : {"ids", "random", "gradient"}
        The order in which features are put into blocks: by id; drawn without replacement; or by the size
        of their gradients, computed again before each visit.
    visits : int or None
        How often each block is visited, in each round of ``cls``; None: 3 for ``ls``, else 1.
    alpha : float
        Weight of the penalty alpha / 2 |W|^2 beside the sum of the losses, at least 0.
    validation_fraction : float
        Share of the rows, of each class, that is held out; 0 for none. The fit returns the weights with
        the lowest loss on these rows.
    patience : int or None
        Blocks, or rounds of ``cls``, without a lower validation loss after which the fit stops; None: 10
        blocks or 3 rounds.
    random_state : int, RandomState or None
        Seeds the choice of the held-out rows, and the random order; None means 0.
    memory : int or str
        Budget of a fit, in bytes or as "4GiB".
    n_jobs : int or None
        Threads: -1 or None for all cores. The result has the same bits for any number.
    certify : bool
        Whether to compute the gap to the joint optimum over all blocks, in two passes.
    progress : callable, progress bar or None
        As in :class:`FCLClassifier`, with an event ``BlockVisited`` for each block.
    update : {"ls", "gls", "cls"}
        Least squares on the classes; generalised least squares for the loss of a link; or calibrated
        least squares, in rounds.
    loss : str or None
        Of ``gls``: ``"softmax"``, ``"logistic"``, ``"probit"`` or ``"power:p=2"``; None: softmax, and
        logistic for several labels. Other updates have the squared loss.
    rounds : int or None
        Rounds of ``cls``; each round fits the residuals of the predictions and calibrates them. None: 20.
        Other updates have no rounds.
    inner : int
        Steps of a visit of ``gls``.
    calibration : {"linear", "quadratic", "cubic"}
        Up to which power of the predictions ``cls`` fits the classes.
    class_weight : None, "balanced" or dict of class to weight
        Factors of the sample weights of each class, 1 for classes not named; ``"balanced"`` gives all
        classes the same total weight. Losses of held-out rows do not count them.

    Attributes
    ----------
    classes_ : (n_classes,)
        Of several labels their numbers from 0.
    multilabel_ : bool
        Whether the estimator was fitted to rows that may have several labels.
    model_ : StagewiseModel
        The model, which can be saved.
    n_iter_ : int
        Blocks that were visited, over all visits.
    history_ : list of dict
        Losses and errors after each of them.
    dual_gap_ : float or None
        Relative gap to the joint optimum, if ``certify`` is set.
    n_features_in_, feature_names_in_
        Columns of X, and their names if X is a data frame.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = (X[:, 0] > 0) + (X[:, 3] > 1)
    >>> model = fcl.StagewiseClassifier("fourier:n=200", block=50, validation_fraction=0).fit(X, y)
    >>> model.n_iter_, model.classes_
    (12, array([False,  True]))
    >>> model.score(X, y) > 0.9
    True
    """

    _: KW_ONLY
    update: str = "ls"
    loss: str | None = None
    rounds: int | None = None
    inner: int = 5
    calibration: str = "cubic"
    class_weight: Any = None

    _classifies = True

    def _set_outputs(self, training: Training) -> None:
        self.multilabel_ = self.model_.noun == "label"
        numbers = np.arange(self.model_.n_outputs)
        self.classes_ = numbers if self.multilabel_ else np.unique(training.weighted_target)

    def decision_function(self, X: Any, offset: Any = None) -> np.ndarray:
        """Margins, float64 (n, n_classes); with two classes (n,), above 0 for ``classes_[1]``."""
        margins = self._margins(X, offset)
        is_one = margins.shape[1] == 2 and not self.multilabel_
        return margins[:, 1] - margins[:, 0] if is_one else margins

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """The class of each row, (n,), or its labels as 0 and 1, (n, labels)."""
        margins = self._margins(X, offset)
        if self.multilabel_:
            return (self.model_.mean(margins) > 0.5).astype(np.int64)
        return np.asarray(self.classes_[margins.argmax(axis=1)])

    def predict_proba(self, X: Any, offset: Any = None) -> np.ndarray:
        """Probabilities, float64 (n, n_classes), as :meth:`StagewiseModel.mean` computes them."""
        margins = self._margins(X, offset)
        return self.model_.mean(margins)


@refusing_unknown
@dataclass(eq=False, repr=False, match_args=False)
class StagewiseRegressor(_Parameters, RegressorMixin, _Stagewise):  # type: ignore[misc]
    """Ridge regression of one or several targets over blocks of generated features.

    Minimises sum_i s_i |y_i - W' phi(x_i) - b|^2 / 2 + alpha / 2 |W|^2, as ``Ridge(alpha)``.

    Parameters
    ----------
    features, block, order, visits, alpha, validation_fraction, patience
        As in :class:`StagewiseClassifier`; 3 visits by default.
    random_state, memory, n_jobs, certify, progress
        As in :class:`StagewiseClassifier`.

    Attributes
    ----------
    model_, n_iter_, history_, dual_gap_, n_features_in_, feature_names_in_
        As in :class:`StagewiseClassifier`.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, :2] + X[:, 3:]
    >>> model = fcl.StagewiseRegressor(block=2, certify=True).fit(X, y)
    >>> model.predict(X[:3]).shape, model.dual_gap_ < 0.1
    ((3, 2), True)
    """

    _classifies = False

    def predict(self, X: Any, offset: Any = None) -> np.ndarray:
        """Expected targets, float64 (n,) or (n, targets), as in :meth:`fit`."""
        margins = self._margins(X, offset)
        return np.asarray(public(margins))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
