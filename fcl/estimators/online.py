"""The scikit-learn estimators of online learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import ClassifierMixin, RegressorMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from fcl.checks import choice, positive
from fcl.data import DataSet, regression_target
from fcl.drivers.certify import Optimality, certify
from fcl.drivers.online.blocks import Block, Blocks, row_number
from fcl.drivers.online.job import (
    OnlineJob,
    Running,
    block_rows_of,
    make_online_plan,
    penalty_factors,
)
from fcl.drivers.online.rates import choose_rate
from fcl.drivers.online.run import starting_intercept
from fcl.drivers.online.train import model_of
from fcl.drivers.rows import Rows, select_rows
from fcl.errors import BudgetError, InputError
from fcl.estimators.base import Predictor, seed_of
from fcl.estimators.classifier import has_probabilities
from fcl.estimators.rows import (
    RowArrays,
    Training,
    is_data_set,
    open_training,
    resolve_features,
    with_input_tags,
)
from fcl.features import Family, Spec, bind_features, spell_features
from fcl.model.columns import matched
from fcl.objective import find_loss
from fcl.online import Learner, OnlineOptions, make_learner
from fcl.online.methods import kind_of
from fcl.parallel import one_blas_thread
from fcl.units import counted, format_bytes

__all__ = ["FCLOnlineClassifier", "FCLOnlineRegressor"]


@dataclass(eq=False, repr=False, match_args=False)
class _Parameters:
    """Parameters of both estimators."""

    features: Spec | str = "columns"
    _: KW_ONLY
    alpha: float = 1e-4
    method: str = "ftrl"
    rate: float | str = "auto"
    passes: int = 5
    power: float = 0.5
    step: str = "implicit"
    period: int = 100
    theta: float = float("inf")
    truncation: str = "soft"
    l1_ratio: float = 1.0
    radius: float | None = None
    fit_intercept: bool = True
    weights: str = "float64"
    shuffle: bool = True
    random_state: Any = None
    memory: int | str = "1GiB"


class _Online(Predictor):
    """What both estimators share: a learner for each output, which all read the same chunks of rows."""

    learners_: list[Learner]
    _losses: tuple[str, ...]
    _numeric: bool

    def _options(self) -> tuple[OnlineOptions, Running]:
        """Validate the parameters; raises InputError that names the first wrong one."""
        seed = seed_of(self.random_state)
        running = Running(
            method=self.method,
            rate=self.rate,
            passes=self.passes,
            shuffle=self.shuffle,
            seed=seed,
            memory=self.memory,
        ).checked()
        same = ("power", "step", "period", "theta", "truncation", "l1_ratio", "radius", "weights")
        options = OnlineOptions(
            alpha=positive("alpha", self.alpha),
            loss=choice("loss", getattr(self, "loss", "squared"), self._losses),
            rate=1.0 if isinstance(self.rate, str) else self.rate,
            intercept=self.fit_intercept,
            seed=seed,
            **{name: getattr(self, name) for name in same},
        )
        if options.radius is not None and running.method != "ball":
            raise InputError(
                f"radius: expected None for the method {running.method}, got {options.radius:g}; choose "
                "the method ball, or alpha"
            )
        return options, running

    def _open(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Training:
        """Open the rows; after the first call they must have the columns of the earlier ones."""
        spec = resolve_features(self.features)
        probe = self if first else clone(self)
        training = open_training(probe, spec, X, RowArrays(y, sample_weight), numeric=self._numeric)
        if training.data.offset is not None or training.data.covariates:
            raise InputError(f"{training.data.name}: online learners take no offset or covariates")
        if training.target.ndim == 2:
            raise InputError(
                f"{training.data.target_name}: expected a single column, got shape "
                f"{training.target.shape}; fit an estimator to each (sklearn.multioutput)"
            )
        if first:
            return training
        if probe.n_features_in_ != self.n_features_in_:
            raise InputError(
                f"X has {probe.n_features_in_} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        if is_data_set(X):
            read = dict(enumerate(self._column_names() or ()))
            data = matched(training.data, read or None, self._family.row_width)
            return replace(training, data=data)
        try:
            _check_feature_names(self, X, reset=False)
        except ValueError as error:
            raise InputError(str(error)) from error
        return training

    def _begin(self, training: Training, rows: Sequence[Rows], labels: Sequence[Any]) -> None:
        """Make a learner for each output; ``rows`` differ in their targets alone."""
        options, running = self._options()
        spec, train = resolve_features(self.features), rows[0]
        self._family: Family = bind_features(spec, training.data.rows, train.keep)
        self._words, self._labels = spell_features(spec), list(labels)
        self._n_rows, self._sum_weights = 0, 0.0
        family, kind = self._family, kind_of(running.method, options)
        make_online_plan(family, options, running, train, None)
        size = len(rows) * kind.bytes_for(family.n_features, options)
        if size > running.memory:
            raise BudgetError(
                f"memory: the tables of {counted(len(rows), 'output')} need {format_bytes(size)}, more than "
                f"the budget of {format_bytes(running.memory)}; raise memory, or choose float32 weights",
                size,
            )
        self._rates = [options.rate] * len(rows)
        if running.rate == "auto":
            self._rates = [choose_rate(job) for job in self._jobs(rows)]
        self.learners_ = []
        for job in self._jobs(rows):
            method, p = running.method, family.n_features
            self.learners_.append(make_learner(method, p, job.options, job.factors))

    def _jobs(self, rows: Sequence[Rows]) -> list[OnlineJob]:
        """The job of each output over some rows."""
        options, running = self._options()
        family = self._family
        running = replace(running, block_rows=block_rows_of(running, family, rows[0]))
        plan = make_online_plan(family, options, running, rows[0], None)
        factors, view, S = (
            penalty_factors(family),
            family.row_view(),
            max(self._sum_weights, 1e-300),
        )
        return [
            OnlineJob(
                options=replace(options, rate=rate),
                running=running,
                family=family,
                view=view,
                factors=factors,
                train=train,
                valid=None,
                labels=labels,
                loss=find_loss(options.loss),
                alpha=options.alpha,
                C=1.0 / (options.alpha * S),
                sum_weights=S,
                features=self._words,
                class_weight=None,
                plan=plan,
            )
            for rate, train, labels in zip(self._rates, rows, self._labels, strict=True)
        ]

    def _learn(self, rows: Sequence[Rows], passes: int | None, fingerprints: Sequence[str]) -> None:
        """Learn from rows: in ``passes``, or with None once and in their order, as a part of a stream."""
        from fcl.kernels import Compilation

        with Compilation(lambda: None), one_blas_thread():
            jobs = self._jobs(rows)
            run, train = jobs[0].running, rows[0]
            shuffle = run.shuffle and passes is not None
            blocks = Blocks(self._family, train, run.block_rows, run.seed, shuffle)
            for number in range(passes or 1):
                for block in blocks.of_pass(number):
                    self._learn_block(jobs, block)
                if passes is not None:
                    for learner in self.learners_:
                        learner.end_pass()
        self._n_rows += train.n
        self._sum_weights += float(train.s.sum())
        self.models_ = [
            replace(model_of(job, learner, fingerprint), n_rows=self._n_rows)
            for job, learner, fingerprint in zip(
                self._jobs(rows), self.learners_, fingerprints, strict=True
            )
        ]

    def _learn_block(self, jobs: Sequence[OnlineJob], block: Block) -> None:
        numbers = block.rows
        for job, learner in zip(jobs, self.learners_, strict=True):
            if not learner.rows:
                y, s = job.train.y[numbers], job.train.s[numbers]
                learner.start_at(starting_intercept(job.loss.name, y, s))
        at = 0
        for chunk in jobs[0].view.chunks(block.raw, block.order):
            some = numbers[at : at + len(chunk)]
            for job, learner in zip(jobs, self.learners_, strict=True):
                y, s = job.train.y[some], job.train.s[some]
                done = learner.learn(chunk, y, s, np.zeros(len(chunk)))
                if done < len(chunk):
                    row = row_number(job.train.keep, int(some[done]))
                    raise InputError(
                        f"{job.train.data.name}: the margin of row {row} is not finite or beyond 1e100: the "
                        f"rate {learner.rate:.3g} is too large for these features; lower rate, or choose "
                        "step implicit"
                    )
            at += len(chunk)

    def _fit(self, training: Training, targets: list[np.ndarray], labels: Sequence[Any]) -> None:
        """Fit a new learner to each target; labels : pairs of labels of each output, or None."""
        with one_blas_thread():
            rows = self._rows(training, targets)
            self._begin(training, rows, labels)
        data = self._data_sets(training, self._problems(training))
        self._learn(rows, self.passes, [each.fingerprint() for each in data])

    @staticmethod
    def _rows(training: Training, targets: Sequence[np.ndarray]) -> list[Rows]:
        return [select_rows(training.data, y, training.weights, None) for y in targets]

    @staticmethod
    def _data_sets(training: Training, targets: Sequence[np.ndarray]) -> list[DataSet]:
        name = training.data.target_name
        return [training.data.with_target(y, training.weights, name) for y in targets]

    def _problems(self, training: Training) -> list[np.ndarray]:
        """The target of each output, as :func:`fcl.train` takes it."""
        return [training.target]

    def certify(
        self, X: Any, y: Any = None, sample_weight: Any = None, **options: Any
    ) -> Optimality | list[Optimality]:
        """How far the model is from the optimum of its problem over some rows, by :func:`fcl.certify`.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.
        **options
            Further arguments of :func:`fcl.certify`, such as ``bound``, ``top`` or ``keep_model``.

        Returns
        -------
        Optimality, or list of Optimality
            One for each class if there are more than two.

        Raises
        ------
        InputError
            The rows do not fit the model, or a class has no rows.
        """
        check_is_fitted(self)
        training = self._open(X, y, sample_weight, first=False)
        data = self._data_sets(training, self._problems(training))
        found = [
            certify(model, each, **options) for model, each in zip(self.models_, data, strict=True)
        ]
        return found if len(found) > 1 else found[0]

    @property
    def coef_(self) -> csr_array:
        """Weights of all features of the family, float64 CSR (outputs, p)."""
        check_is_fitted(self)
        ids, values = [m.ids for m in self.models_], [m.weights for m in self.models_]
        indptr = np.concatenate([[0], np.cumsum([len(some) for some in ids])])
        shape = (len(ids), self._family.n_features)
        return csr_array((np.concatenate(values), np.concatenate(ids), indptr), shape=shape)

    @property
    def intercept_(self) -> np.ndarray:
        """The intercepts, float64 (outputs,)."""
        check_is_fitted(self)
        return np.array([model.intercept for model in self.models_])

    def __sklearn_tags__(self) -> Any:
        return with_input_tags(super().__sklearn_tags__(), self.features)


@dataclass(eq=False, repr=False, match_args=False)
class FCLOnlineClassifier(_Parameters, ClassifierMixin, _Online):  # type: ignore[misc]
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
    method, power, step, period, theta, truncation, l1_ratio, radius, weights
        As in ``fcl online``; see :class:`fcl.online.OnlineOptions`. ``weights`` is the kind of table.
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
    loss : {"logistic", "squared_hinge"}

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
    """

    _: KW_ONLY
    loss: str = "logistic"

    _losses = ("logistic", "squared_hinge")
    _numeric = False

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows with one label each, from the start; arguments as in :class:`FCLClassifier`.

        Raises InputError if parameters, data or labels are unusable, or learning diverges.
        """
        self._options()
        training = self._opened(X, y, sample_weight, first=True)
        classes = np.unique(training.weighted_target)
        if len(classes) < 2:
            raise InputError(
                f"{training.data.target_name}: expected at least two classes among the rows of weight "
                f"above 0, got only one class, {classes.tolist()[0]!r}"
            )
        self.classes_ = classes
        self._fit(training, self._signs(training), self._pairs())
        return self

    def partial_fit(
        self, X: Any, y: Any = None, classes: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn from more rows, once and in their order.

        Each call also takes time in proportion to the number of features of the family.

        Parameters
        ----------
        X, y, sample_weight
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
        known = None if classes is None else np.unique(np.asarray(classes))
        if first and (known is None or len(known) < 2):
            raise InputError("classes: expected all classes of the stream in the first partial_fit")
        if not first and known is not None and not np.array_equal(known, self.classes_):
            raise InputError(
                f"classes: expected those of the first call, {self.classes_.tolist()!r:.200}, got "
                f"{known.tolist()!r:.200}"
            )
        training = self._opened(X, y, sample_weight, first)
        given = self.classes_ if not first else known
        assert given is not None
        unknown = np.setdiff1d(training.weighted_target, given)
        if len(unknown):
            raise InputError(
                f"{training.data.target_name}: expected classes {given.tolist()!r:.200}, got "
                f"{unknown.tolist()[0]!r}"
            )
        self.classes_ = given
        rows = self._rows(training, self._signs(training))
        if first:
            self._begin(training, rows, self._pairs())
        self._learn(rows, None, [""] * len(rows))
        return self

    def _opened(self, X: Any, y: Any, sample_weight: Any, first: bool) -> Training:
        training = self._open(X, y, sample_weight, first)
        with np.errstate(invalid="ignore"):  # it casts NaN before it rejects it
            check_classification_targets(training.target)
        return training

    def _pairs(self) -> list[tuple[Any, Any]]:
        """The labels (negative, positive) of each output."""
        classes = self.classes_.tolist()
        return [tuple(classes)] if len(classes) == 2 else [(False, True)] * len(classes)

    def _signs(self, training: Training) -> list[np.ndarray]:
        """The targets -1 and +1 of each output."""
        classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [np.where(training.target == label, 1.0, -1.0) for label in classes]

    def _problems(self, training: Training) -> list[np.ndarray]:
        positive = [signs > 0.0 for signs in self._signs(training)]
        return positive if len(positive) > 1 else [self.classes_[positive[0].astype(np.intp)]]

    def decision_function(self, X: Any) -> np.ndarray:
        """Margins, float64 (n, n_classes); with two classes (n,), above 0 for ``classes_[1]``."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> np.ndarray:
        """The class of each row, (n,)."""
        margins = self._margins(X)
        if margins.shape[1] == 1:
            return np.asarray(self.classes_[(margins[:, 0] > 0.0).astype(np.intp)])
        return np.asarray(self.classes_[margins.argmax(axis=1)])

    @available_if(has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities, float64 (n, n_classes), by logistic loss.

        Of more than two classes, those of each against the rest are scaled to sum to 1.
        """
        margins = self._margins(X)
        if margins.shape[1] == 1:
            return np.exp(-np.logaddexp(0.0, np.column_stack([margins, -margins])))
        logs = -np.logaddexp(0.0, -margins)
        found = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(found / found.sum(axis=1, keepdims=True))


@dataclass(eq=False, repr=False, match_args=False)
class FCLOnlineRegressor(_Parameters, RegressorMixin, _Online):  # type: ignore[misc]
    """L1-regularised least squares, learnt row by row, with ``partial_fit`` for streams.

    Parameters and attributes are those of :class:`FCLOnlineClassifier`, without ``loss`` and ``classes_``.
    """

    _losses = ("squared",)
    _numeric = True

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows with a number each, from the start.

        Raises InputError if parameters, data or targets are unusable, or learning diverges.
        """
        self._options()
        training = self._open(X, y, sample_weight, first=True)
        self._fit(training, [self._numbers(training)], [None])
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows, once and in their order; see :meth:`FCLOnlineClassifier.partial_fit`."""
        self._options()
        first = not hasattr(self, "learners_")
        training = self._open(X, y, sample_weight, first)
        rows = self._rows(training, [self._numbers(training)])
        if first:
            self._begin(training, rows, [None])
        self._learn(rows, None, [""])
        return self

    @staticmethod
    def _numbers(training: Training) -> np.ndarray:
        return regression_target(training.target, training.data.target_name)

    def predict(self, X: Any) -> np.ndarray:
        """Expected targets, float64 (n,)."""
        return self._margins(X)[:, 0]
