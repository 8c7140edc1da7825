"""The base of classifier and regressor: options, fitting, warm starts, attributes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning as SklearnConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fcl.checks import flag, is_whole, whole
from fcl.cli.progress import LineView
from fcl.data import DataSet
from fcl.data.columns import ColumnRecord, joined
from fcl.drivers.cluster.jobs import executor_for
from fcl.drivers.executor import Executor, Needs, RunContext, train_job
from fcl.drivers.job import make_job
from fcl.errors import ConvergenceWarning, InputError, ScaleWarning
from fcl.estimators.parameters import RENAMED, passed_options
from fcl.estimators.rows import Training, open_rows, resolve_features, with_input_tags
from fcl.features import Columns, Family, bind_features
from fcl.features.generator import without_scales
from fcl.features.standardized import say_divided, uneven_scales
from fcl.model.columns import difference, matched
from fcl.objective import COUPLED_LOSSES, LOSSES, Loss, find_loss, resolve_C
from fcl.options import TRAINING, TrainOptions
from fcl.run.bar import on_event
from fcl.run.reasons import StopReason
from fcl.solve.state import is_active
from fcl.units import counted

if TYPE_CHECKING:
    from fcl.drivers.result import TrainResult
    from fcl.model import Model

DEFAULT_C = 1.0


class EstimatorConvergenceWarning(ConvergenceWarning, SklearnConvergenceWarning):  # type: ignore[misc]
    """A fit stopped before its tolerance; both fcl's and scikit-learn's ConvergenceWarning."""


@dataclass(frozen=True)
class _Problem:
    """One of the problems of a fit.

    number : from 0.  text : for ``verbose``.  initial : the model to start from, if any.  executor : what
    solves it.
    """

    number: int
    text: str
    initial: Model | None
    executor: Executor


class FittedPredictor(BaseEstimator):  # type: ignore[misc]
    """An estimator whose predictions are those of ``models_``, which share a family."""

    models_: list[Model]

    def _margins(self, X: Any, offset: Any = None, covariates: Any = None) -> np.ndarray:
        """Margins with intercepts, offset and covariates, float64 (n, outputs); reads the rows once."""
        check_is_fitted(self)
        models = self.models_
        family = models[0].family
        data = open_rows(self, family, X, offset, covariates)
        record = joined([model.column_record for model in models])
        data = matched(data, record, family.row_width)
        added = [model.added_margins(data) for model in models]
        scorers = [model.scorer() for model in models]
        margins = np.empty((data.n_rows, sum(model.n_outputs for model in models)))
        for start, stop, block in family.read_rows(data.rows, family.most_block_rows()):
            margins[start:stop] = np.column_stack([margins_of(block) for margins_of in scorers])
        if models[0].n_outputs > 1:
            return margins if added[0] is None else margins + added[0]
        for k, more in enumerate(added):
            if more is not None:
                margins[:, k] += more
        return margins

    def _column_names(self) -> list[str] | None:
        """Names of the columns of X, or None if it has none."""
        names = getattr(self, "feature_names_in_", None)
        names = getattr(self, "feature_names_", None) if names is None else names
        return None if names is None else [str(name) for name in names]


class Estimator(FittedPredictor):
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

    def _checked_options(self) -> dict[str, Any]:
        """Validate the parameters, and return them as arguments of :func:`fcl.train`.

        Raises InputError naming the first invalid parameter.
        """
        # the default of C counts as None, so that alpha can be set alone
        if self.alpha is not None and self.C is not None and self.C != DEFAULT_C:
            raise InputError(
                f"expected either C or alpha, got C={self.C!r} and alpha={self.alpha!r}; set C=None to "
                "use alpha"
            )
        flag("warm_start", self.warm_start)
        if self.n_jobs is not None and (not is_whole(self.n_jobs) or self.n_jobs == 0):
            raise InputError(f"n_jobs must be None or a nonzero integer, got {self.n_jobs!r}")
        if not isinstance(self.verbose, bool):
            whole("verbose", self.verbose, 0)
        TRAINING["max_time"].check(self.max_time)  # the problems of a fit share it
        options = {"features": resolve_features(self.features), "loss": self._loss().text}
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

    def _check_outputs(self, training: Training) -> None:
        """Raise InputError for a target of several columns that this loss cannot fit together."""
        if training.target.ndim == 2 and self.loss not in self._joint_losses:
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
        from joblib import effective_n_jobs

        n = None if self.n_jobs is None else max(1, effective_n_jobs(self.n_jobs))
        if self.driver == "inline":
            return {"driver": "inline", "threads": n}
        return {"driver": "processes", "writers": n}

    def _fit_all(
        self,
        training: Training,
        targets: Sequence[np.ndarray],
        problems: Sequence[str],
        weights: np.ndarray | None,
        begin: Sequence[Model | None],
        options: dict[str, Any],
    ) -> None:
        """Solve a problem for each target, and set the fitted attributes.

        problems : a description of each problem, for ``verbose``.
        weights : sample weights times class weights, float64 (n,), or None.
        begin : for each problem the model to start from, if any; ignored if its family differs.
        """
        options |= self._strength(training)
        spent = 0.0
        keep = None if training.weights is None else training.weights > 0.0
        family = bind_features(options["features"], training.data.rows, keep)
        say_divided(family, self._column_names())
        if not options["standardize"] and (text := uneven_scales(family, self._column_names())):
            warnings.warn(text, ScaleWarning, stacklevel=3)
        data = []
        for target in targets:
            data.append(training.data.with_target(target, weights, training.data.target_name))
            data[-1].target_columns = training.names
        with self._executor(data, options) as executor:

            def fit(number: int) -> TrainResult:
                nonlocal spent
                own, lanes = dict(options), executor.lanes
                if self.max_time is not None:
                    # the remaining problems share the remaining time; each makes at least its first pass
                    jobs = -(-len(targets) // lanes) if lanes else len(targets) - number
                    left = float(self.max_time) - (0.0 if lanes else spent)
                    own["max_time"] = max(1e-3, left / jobs)
                text = f" ({number + 1} of {len(targets)})" if len(targets) > 1 else ""
                initial = begin[number]
                if initial is not None and not _same_features(
                    initial, family, data[number].column_record
                ):
                    initial = None
                problem = _Problem(number, problems[number] + text, initial, executor)
                result = self._fit_one(data[number], problem, own)
                spent += result.limit_seconds
                return result

            results = executor.each(fit, range(len(targets)))
        self._set_attributes(results)

    def _strength(self, training: Training) -> dict[str, Any]:
        """The weight of the losses against the penalty, as an argument of :func:`fcl.train`."""
        given = self.C if self.alpha is None else None
        C, _ = resolve_C(given, self.alpha, training.sum_weights)
        return {"C": C}

    @contextmanager
    def _executor(self, data: Sequence[DataSet], options: dict[str, Any]) -> Iterator[Executor]:
        """Where the problems are solved: several side by side as whole jobs; one by its driver."""
        client, address = (None, self.dask) if isinstance(self.dask, str) else (self.dask, None)
        if self.dask is not None and not self._sends_jobs(len(data)):
            options |= {"client": client, "dask": address}
            client = address = None
        needs, somewhere = None, client is not None or address is not None
        if somewhere and options["driver"] == "processes":
            raise InputError(
                "driver: expected inline jobs on a cluster (dask), got 'processes'; leave driver out"
            )
        if somewhere or self._sends_jobs(len(data)):
            known = (TRAINING.keys() & options.keys()) - {"C", "features"}
            job = TrainOptions.checked({name: options[name] for name in known}, alpha=1.0)
            needs = Needs.of(make_job(data[0], options["features"], job))
        report = self._view() if self.verbose else on_event(None)
        with executor_for(client, address, None, needs, report) as executor:
            yield executor

    def _sends_jobs(self, n_problems: int) -> bool:
        """Whether a fit has more than one whole job."""
        return n_problems > 1

    def _view(self) -> Any:
        """Shows the events of a fit."""
        return LineView()

    def _fit_one(self, data: DataSet, problem: _Problem, options: dict[str, Any]) -> TrainResult:
        options["initial"] = problem.initial
        report = on_event(None)
        if self.verbose:
            from fcl.cli.common import messages

            messages.write(f"{type(self).__name__}: fitting {problem.text}")
            report = self._view()
        context = RunContext(report, lambda: False, executor=problem.executor)
        result: TrainResult = context.run(train_job, data, options)
        if self.verbose:
            found = np.count_nonzero(result.model.weights)
            messages.write(
                f"{type(self).__name__}: {result.message}; {counted(int(found), 'feature')} used"
            )
        if result.reason == StopReason.INTERRUPTED:
            raise KeyboardInterrupt
        return result

    def _set_attributes(self, results: list[TrainResult]) -> None:
        """Set the fitted attributes, and warn if a problem ended before the tolerance."""
        self.models_ = [result.model for result in results]
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
        early = [result for result in results if not result.converged]
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
        names = input_features
        known = getattr(self, "feature_names_in_", None)
        if names is not None:
            names = np.asarray(names, dtype=object)
            if known is not None and not np.array_equal(known, names):
                raise ValueError("input_features is not equal to feature_names_in_")
            if names.shape != (self.n_features_in_,):
                raise ValueError(
                    "input_features should have length equal to number of features "
                    f"({self.n_features_in_}), got {len(names)}"
                )
        else:
            names = self._column_names()
        family = self.models_[0].family
        given = None if names is None else [str(name) for name in names]
        words = [family.describe(int(feature), given) for feature in self.feature_keys_]
        return np.array(words, dtype=object)

    @property
    def feature_names_out_(self) -> np.ndarray:
        """Names of the discovered features."""
        check_is_fitted(self)
        return self.get_feature_names_out()

    def __sklearn_tags__(self) -> Any:
        tags = with_input_tags(super().__sklearn_tags__(), self.features)
        tags.target_tags.multi_output = self.loss in self._joint_losses
        return tags


def seed_of(random_state: Any) -> int:
    """The seed that scikit-learn's ``random_state`` stands for; None means 0."""
    if random_state is None:
        return 0
    if is_whole(random_state) and random_state >= 0:
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


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
