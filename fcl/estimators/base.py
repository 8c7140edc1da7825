"""The base of classifier and regressor: options, fitting, warm starts, attributes."""

from __future__ import annotations

import multiprocessing
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from fcl.checks import flag, is_whole, whole
from fcl.data import DataSet
from fcl.data.columns import ColumnRecord
from fcl.drivers.cluster.jobs import executor_for, refuse_processes
from fcl.drivers.executor import Executor, Needs, RunContext
from fcl.drivers.job import make_job
from fcl.drivers.problem import checked_spec
from fcl.drivers.result import TrainResult
from fcl.errors import ConvergenceWarning, InputError, ScaleWarning
from fcl.estimators.choice import AUTO, SEARCHED, Given, Search
from fcl.estimators.parameters import RENAMED, PathParameters, passed_options, seed_of
from fcl.estimators.predictors import FittedPredictor
from fcl.estimators.rows import RowArrays, Training, open_training
from fcl.features import Columns, Family, bind_features
from fcl.features.generator import without_scales
from fcl.features.standardized import say_divided, uneven_scales
from fcl.model import Model
from fcl.model.columns import difference
from fcl.objective import COUPLED_LOSSES, LOSSES, Loss, find_loss
from fcl.options import TRAINING, TrainOptions
from fcl.run.events import Event
from fcl.run.reasons import StopReason
from fcl.run.reporter import Reporter
from fcl.solve.state import is_active
from fcl.units import counted


class EstimatorConvergenceWarning(ConvergenceWarning, SklearnConvergenceWarning):  # type: ignore[misc]
    """A fit stopped before its tolerance; both fcl's and scikit-learn's ConvergenceWarning."""


@dataclass(frozen=True)
class Problems:
    """The problems of a fit.

    targets : of each problem.  texts : a description of each, for ``verbose``.  weights : sample weights
    times class weights, float64 (n,), or None.  before : for each problem the model to start from, or
    None; ignored if its family differs.  classes : sorted; None for numbers.  class_weight : that the
    search applies itself.
    """

    targets: list[np.ndarray]
    texts: list[str]
    weights: np.ndarray | None
    before: list[Model | None]
    classes: np.ndarray | None = None
    class_weight: Any = None


class Estimator(FittedPredictor, ABC):
    """The base class of the estimators.

    A fit solves one or more problems over the same rows, each with its own target; ``models_`` holds the
    model of each problem.
    """

    _classifies: bool
    _joins_classes = False  #: whether one model of all classes can be fitted
    _joint_losses: tuple[str, ...] = ()  #: losses of which several outputs can be fitted together
    _joint_estimator: str  #: the estimator that fits several outputs
    feature_keys_: np.ndarray
    coef_: Any
    intercept_: Any
    certificate_scope_: str | list[str]

    # -- fit -----------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        offset: Any = None,
        covariates: Any = None,
        feature_names: Any = None,
        groups: Any = None,
    ) -> Self:
        """Fit to rows with labels or numbers; warns (ConvergenceWarning) if it stops before ``tol``.

        Parameters
        ----------
        X : array-like, sparse matrix, data frame, path or DataSet
            Numbers (n, m); for families over sequences letters or codes, (n,) or (n, L). Or a data set:
            its path, such as ``"train.zarr"`` or ``"train.h5::/fold1"``, or what ``fcl.open_data``
            returns. ``GridSearchCV``, ``cross_val_score`` and others that split rows need arrays.
        y : array-like (n,), array-like or sparse matrix (n, outputs), or str
            For a classifier the class of each row, of at least two, labels of any kind; or several
            labels, with logistic loss: 1 in the columns of the labels that a row has, 0 in the others.
            For a regressor numbers; with squared loss also several targets (n, targets). With a path also
            the name of the array (None: ``y``); with an opened data set, None takes its own.
        sample_weight : array-like (n,), str or None
            At least 0: a row of weight 2 counts twice, a row of weight 0 not at all. With a path also the
            name of an array.
        offset : array-like (n,), str or None
            Added to the margins; predictions then need one, too. With a path also the name of an array.
            Of several labels, and of more than two classes with ``softmax``, a column for each.
        covariates : array-like (n, columns), data frame or None
            Columns whose coefficients are not penalised; predictions then need them, too. With a path
            also names of arrays, such as ``"obs/age,obs/sex"``. The coefficients are in
            ``models_[0].covariates``.
        feature_names : array-like of str (m,) or None
            Names of the columns of a matrix, such as ``vectorizer.get_feature_names_out()``: models,
            reports and ``get_feature_names_out`` then have them. Rows to predict need none.
        groups : array-like (n,) or None
            Where C is chosen by folds, rows of one group are held out together.

        Returns
        -------
        Self
            This estimator.

        Raises
        ------
        InputError
            Parameters, data, labels or folds are unusable.
        """
        choice, options = self._choice(groups), self._checked_options()
        given = RowArrays(y, sample_weight, offset, covariates, feature_names)
        training = open_training(self, options["features"], X, given, numeric=not self._classifies)
        self._fit_all(training, self._problems(training, options, choice), choice, options)
        return self

    @abstractmethod
    def _problems(
        self, training: Training, options: dict[str, Any], choice: Given | Search
    ) -> Problems:
        """The problems that a fit solves; may change options that a single problem does not have."""

    def _choice(self, groups: Any) -> Given | Search:
        """How the weight of the penalty is found; raises InputError if C or alpha is wrong."""
        if isinstance(self.C, str) and self.C != AUTO:
            raise InputError(f'C: expected a number above 0, None or "auto", got {self.C!r}')
        if self.C != AUTO or self.alpha is not None:
            if groups is not None:
                raise InputError(
                    'groups: expected C="auto", which holds out rows; leave groups out'
                )
            return Given(self.C, self.alpha)
        if self.driver == "processes":
            raise InputError('driver: expected "inline" for C="auto", got "processes"')
        if isinstance(self, PathParameters):
            return Search(self, groups)
        for name in ("validation_fraction", "patience"):
            if getattr(self, name) is not None:
                raise InputError(
                    f'{name}: expected None for C="auto", which trains every C to the end, got '
                    f"{getattr(self, name)!r:.200}; give C, or leave {name} out"
                )
        return Search(PathParameters(), groups)

    def _checked_options(self) -> dict[str, Any]:
        """Validate the parameters, and return them as arguments of :func:`fcl.train`.

        Raises InputError naming the first invalid parameter.
        """
        flag("warm_start", self.warm_start)
        check_jobs(self.n_jobs)
        if not isinstance(self.verbose, bool):
            whole("verbose", self.verbose, 0)
        TRAINING["max_time"].check(self.max_time)  # the problems of a fit share it
        options = {"features": checked_spec(self.features), "loss": self._loss().text}
        for name, option in passed_options(type(self)).items():
            options[option.name] = option.check(getattr(self, name), name)
        TRAINING["driver"].check(self.driver)
        return options | {"seed": seed_of(self.random_state)} | self._driver()

    def _loss(self) -> Loss:
        """The loss; raises InputError unless it is a loss for the targets of this estimator."""
        names = [name for name, kind in LOSSES.items() if kind.classifies == self._classifies]
        names += COUPLED_LOSSES if self._joins_classes else []
        if str(self.loss).partition(":")[0].replace("-", "_") not in names:
            raise InputError(f"loss must be one of {', '.join(names)}, got {self.loss!r}")
        return find_loss(self.loss)

    def _check_outputs(self, training: Training, choice: Given | Search) -> None:
        """Raise InputError for a target of several columns that this loss cannot fit together."""
        joint = () if choice.searches else self._joint_losses
        if training.target.ndim == 2 and self.loss not in joint:
            raise InputError(
                f"{training.data.target_name}: expected a single column for {type(self).__name__} with "
                f"loss {self.loss!r}, got shape {training.target.shape}; several columns need "
                f"{self._joint_estimator}, or fit an estimator to each (sklearn.multioutput)"
            )

    def _driver(self) -> dict[str, Any]:
        """The driver with its threads or writers.

        In workers of joblib and other child processes, fits run inline on one thread: their number
        divides the cores.
        """
        if _is_nested():
            return {"driver": "inline", "threads": 1}
        n = n_cores(self.n_jobs)
        if self.driver == "inline":
            return {"driver": "inline", "threads": n}
        return {"driver": "processes", "writers": n}

    def _fit_all(
        self,
        training: Training,
        problems: Problems,
        choice: Given | Search,
        options: dict[str, Any],
    ) -> None:
        """Solve all problems, and set the fitted attributes."""
        n, reporter = len(problems.targets), Reporter(self.progress)
        ended = "the run before there was a model"
        if n > 1:
            ended = f"the fit before each of its {n} problems had a model"
        choice.begin(training, problems.class_weight, self._classifies, options["seed"])
        options |= choice.options(training)
        spent = 0.0
        keep = None if training.weights is None else training.weights > 0.0
        family = bind_features(options["features"], training.data.rows, keep)
        say_divided(family, self._column_names())
        if not options["standardize"] and (text := uneven_scales(family, self._column_names())):
            warnings.warn(text, ScaleWarning, stacklevel=3)
        data = []
        for target in problems.targets:
            name = training.data.target_name
            data.append(training.data.with_target(target, problems.weights, name))
            data[-1].target_columns = training.names
        view = choice.view()

        def report(event: Event) -> None:
            if self.verbose:
                view(event)
            reporter.report(event)

        with (
            reporter.explained(ended),
            self._executor(data, options, choice, report, reporter.should_stop) as executor,
        ):
            context = RunContext(report, reporter.should_stop, executor=executor)

            def fit(number: int) -> TrainResult:
                nonlocal spent, view
                own, lanes = dict(options), executor.lanes
                if not lanes:
                    view = choice.view()
                    reporter.next_run()
                if self.max_time is not None:
                    # the remaining problems share the remaining time; each makes at least its first pass
                    jobs = -(-n // lanes) if lanes else n - number
                    left = float(self.max_time) - (0.0 if lanes else spent)
                    own["max_time"] = max(1e-3, left / jobs)
                before = problems.before[number]
                if before is not None and _same_features(
                    before, family, data[number].column_record
                ):
                    own["initial"] = before
                of = f" ({number + 1} of {n})" if n > 1 else ""
                self._say(f"fitting {problems.texts[number]}{of}")
                result = choice.solve(number, data[number], own, context)
                used = counted(int(np.count_nonzero(result.model.weights)), "feature")
                self._say(f"{result.message}; {used} used")
                spent += result.limit_seconds
                return result

            results = executor.each(fit, range(n))
        for name in SEARCHED:  # of an earlier fit
            self.__dict__.pop(name, None)
        self.__dict__.update(choice.attributes)
        if problems.classes is not None:
            self.classes_ = problems.classes
        self._set_attributes(results)
        reporter.finish(self)

    def _say(self, text: str) -> None:
        """Write a line to stderr, if ``verbose``."""
        if self.verbose:
            from fcl.cli.common import messages

            messages.write(f"{type(self).__name__}: {text}")

    @contextmanager
    def _executor(
        self,
        data: Sequence[DataSet],
        options: dict[str, Any],
        choice: Given | Search,
        report: Callable[[Event], None],
        should_stop: Callable[[], bool],
    ) -> Iterator[Executor]:
        """Where the problems are solved: several side by side as whole jobs; one by its driver."""
        client, address = (None, self.dask) if isinstance(self.dask, str) else (self.dask, None)
        has_jobs = choice.searches or len(data) > 1
        if self.dask is not None and not has_jobs:
            options |= {"client": client, "dask": address}
            client = address = None
        needs = None
        refuse_processes(options["driver"], client, address)
        if client is not None or address is not None or has_jobs:
            known = (TRAINING.keys() & options.keys()) - {"C", "features"}
            job = TrainOptions.checked({name: options[name] for name in known}, alpha=1.0)
            needs = Needs.of(make_job(data[0], options["features"], job))
        with executor_for(client, address, None, needs, report, should_stop) as executor:
            yield executor

    def _named(self, models: list[Model]) -> list[Model]:
        """The models of all problems, with the labels that users see."""
        return models

    def _set_attributes(self, results: list[TrainResult]) -> None:
        """Set the fitted attributes, and warn if a problem ended before the tolerance."""
        self.models_ = self._named([result.model for result in results])
        if len(results) == 1:
            self.model_ = self.models_[0]
        elif hasattr(self, "model_"):
            del self.model_
        certificates = [model.certificate for model in self.models_]
        scopes = [certificate.scope_text for certificate in certificates]
        self.certificate_scope_ = scopes if len(scopes) > 1 else scopes[0]
        bound = sum(certificate.bound for certificate in certificates)
        self.objective_ = float(sum(certificate.objective for certificate in certificates))
        gap = max(0.0, self.objective_ - bound)
        self.dual_gap_ = gap / self.objective_ if self.objective_ > 0.0 else 0.0
        self.converged_ = all(result.converged for result in results)
        # max_iter does not count the first pass, which is of the null model
        self.n_iter_ = max(1, *(result.passes - 1 for result in results))
        ids = [model.ids[is_active(model.weights)] for model in self.models_]
        self.feature_keys_ = np.unique(np.concatenate(ids))
        self.coef_ = self._coefficients()
        self.n_nonzero_ = int(np.count_nonzero(self.coef_))
        self.intercept_ = np.concatenate([model.intercepts for model in self.models_])
        expected = (StopReason.CALLBACK, StopReason.PATIENCE)
        early = [each for each in results if not each.converged and each.reason not in expected]
        if early:
            of = f" ({len(early)} of {len(results)} problems)" if len(results) > 1 else ""
            message = early[0].message.replace(RENAMED["max_iter"], "max_iter")
            warnings.warn(message + of, EstimatorConvergenceWarning, stacklevel=4)

    @property
    def column_weights_(self) -> np.ndarray:
        """Weights of all columns of X, with 0 for columns that no model uses; for feature selectors.

        float64 (n_features_in_,), or (outputs, n_features_in_) for more than two classes, and for several
        targets or labels. Raises AttributeError unless the family is ``columns``: features of other
        families are not columns of X.
        """
        check_is_fitted(self)
        family = self.models_[0].family
        # a subclass of Columns may derive other features from the columns
        if type(getattr(family, "generator", None)) is not Columns:
            raise AttributeError(
                "column_weights_: expected the family 'columns', whose features are columns of X, got "
                f"{family.name}; feature_keys_ has the ids of its features, coef_ their weights"
            )
        weights = self._weights_of(np.arange(self.n_features_in_))
        return weights if len(weights) > 1 else weights[0]

    def _coefficients(self) -> np.ndarray:
        """Weights of the discovered features, float64 (models, features)."""
        return self._weights_of(self.feature_keys_)

    def _weights_of(self, ids: np.ndarray) -> np.ndarray:
        """Weights of features, increasing and with all that have one, float64 (outputs, features)."""
        parts = []
        for model in self.models_:
            active = is_active(model.weights)
            part = np.zeros((model.n_outputs, len(ids)))
            part[:, np.searchsorted(ids, model.ids[active])] = model.weights[active].T
            parts.append(part)
        return np.concatenate(parts)

    # -- names ---------------------------------------------------------------------------------

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the discovered features, in the order of ``coef_``.

        Parameters
        ----------
        input_features : array-like of str (n_features_in_,) or None
            Names of the columns of X; if ``feature_names_in_`` is set, they must be equal to it. None for
            ``feature_names_in_``, the ``feature_names`` of the fit, or x0, x1 and so on.

        Returns
        -------
        ndarray of object (n_discovered,)
            The family's description of each feature; columns and their products are named by columns.

        Raises
        ------
        ValueError
            ``input_features`` has another length, or other names than the fit.
        """
        check_is_fitted(self)
        names = self._column_names()
        if input_features is not None:
            names = [str(name) for name in _check_feature_names_in(self, input_features)]
        describe = self.models_[0].family.describe
        return np.array([describe(int(id_), names) for id_ in self.feature_keys_], dtype=object)

    @property
    def feature_names_out_(self) -> np.ndarray:
        """Names of the discovered features."""
        check_is_fitted(self)
        return self.get_feature_names_out()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.loss in self._joint_losses
        return tags


def check_jobs(n_jobs: Any) -> None:
    """Raise InputError unless ``n_jobs`` is None or a whole number other than 0."""
    if n_jobs is not None and (not is_whole(n_jobs) or n_jobs == 0):
        raise InputError(f"n_jobs must be None or a nonzero integer, got {n_jobs!r}")


def n_cores(n_jobs: int | None) -> int | None:
    """The threads or writers that ``n_jobs`` asks for; None for all cores."""
    from joblib import effective_n_jobs

    return None if n_jobs is None else max(1, effective_n_jobs(n_jobs))


def _same_features(before: Model, now: Family, columns: ColumnRecord) -> bool:
    """Whether a model's weights belong to the same features of the same columns."""
    if difference(before.column_record, columns):
        return False
    return without_scales(before.family.to_config()) == without_scales(now.to_config())


def _is_nested() -> bool:
    """Whether this runs in a child process, or in a parallel call of joblib."""
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    return multiprocessing.parent_process() is not None or bool(backend.nesting_level)
