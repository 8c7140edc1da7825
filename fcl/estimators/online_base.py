"""The base of the estimators of online learners: parameters, learning, certificates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from fcl import kernels
from fcl.checks import choice, flag, positive
from fcl.data import DataSet
from fcl.drivers.certify import certify
from fcl.drivers.online.blocks import Blocks, row_number
from fcl.drivers.online.job import OnlineJob, OnlinePlanner, block_rows_of, penalty_factors
from fcl.drivers.online.progress import FIRST_LINE, Progressive
from fcl.drivers.online.rates import choose_rate
from fcl.drivers.online.run import OnlineReporter, OnlineRun, RunPosition
from fcl.drivers.online.train import end_of_run, model_of
from fcl.drivers.optimality import Optimality
from fcl.drivers.problem import checked_spec
from fcl.drivers.rows import Rows, select_rows
from fcl.errors import BudgetError, InputError
from fcl.estimators.parameters import seed_of
from fcl.estimators.predictors import FittedPredictor
from fcl.estimators.rows import (
    RowArrays,
    Training,
    is_data_set,
    open_training,
)
from fcl.features import Family, bind_features, spell_features
from fcl.features.hashed import hashed_family
from fcl.memory.meter import peak_memory
from fcl.model.columns import matched
from fcl.objective import find_loss
from fcl.online import Learner
from fcl.online.methods import kind_of
from fcl.options import OnlineOptions, OnlineRunOptions
from fcl.options.online import LEARNING, RUNNING
from fcl.parallel import one_blas_thread
from fcl.run.events import Stopped
from fcl.run.reasons import StopReason
from fcl.units import counted, format_bytes

#: Parameters that are options of the learner of the same names.
_SAME = tuple(name for name in LEARNING if name not in ("loss", "decay", "intercept"))


class OnlineEstimator(FittedPredictor, ABC):
    """What both estimators share: a learner for each output, which all read the same chunks of rows."""

    learners_: list[Learner]
    _losses: tuple[str, ...]
    _numeric: bool

    def _options(self) -> tuple[OnlineOptions, OnlineRunOptions]:
        """Validate the parameters; raises InputError that names the first wrong one."""
        seed = seed_of(self.random_state)
        given = {name: getattr(self, name) for name in RUNNING if hasattr(self, name)}
        running = OnlineRunOptions(**given, seed=seed).checked()
        options = OnlineOptions(
            alpha=positive("alpha", self.alpha),
            loss=choice("loss", getattr(self, "loss", "squared"), self._losses),
            rate=1.0 if isinstance(self.rate, str) else self.rate,
            intercept=flag("fit_intercept", self.fit_intercept),
            seed=seed,
            **{name: getattr(self, name) for name in _SAME},
        )
        options.check_method(running.method)
        return options, running

    def _open(self, X: Any, given: RowArrays, first: bool) -> Training:
        """Open the rows; after the first call they must have the columns of the earlier ones."""
        spec = checked_spec(self.features)
        probe = self if first else clone(self)
        training = open_training(probe, spec, X, given, numeric=self._numeric)
        data = training.data
        if data.covariates:
            raise InputError(f"{data.name}: online learners take no covariates; add them to X")
        if data.offset is not None and data.offset.ndim > 1:
            raise InputError(
                f"{data.name}: expected one offset for each row, got shape {data.offset.shape}"
            )
        if not first and (data.offset is None) == self.models_[0].has_offset:
            words = "an" if data.offset is None else "no"
            raise InputError(f"{data.name}: expected {words} offset, as in the first call")
        if training.target.ndim == 2:
            raise InputError(
                f"{training.data.target_name}: expected a single column, got shape "
                f"{training.target.shape}; fit an estimator to each (sklearn.multioutput)"
            )
        if first:
            self._columns = data.column_record
            return training
        if probe.n_features_in_ != self.n_features_in_:
            raise InputError(
                f"X has {probe.n_features_in_} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        if not is_data_set(X):
            try:
                _check_feature_names(self, X, reset=False)
            except ValueError as error:
                raise InputError(str(error)) from error
        return replace(training, data=matched(data, self._columns, self._family.row_width))

    def _begin(self, training: Training, rows: Sequence[Rows]) -> None:
        """Make a learner for each output; ``rows`` differ in their targets alone."""
        options, running = self._given = self._options()
        spec, train = checked_spec(self.features), rows[0]
        self._family: Family = bind_features(spec, training.data.rows, train.keep)
        if self.hash_bits is not None:
            self._family = hashed_family(self._family, self.hash_bits, training.data.rows)
        # alpha refers to the weights before those of the classes
        self._share = training.sum_weights / self._weighted(training).sum_weights
        self._words, self._labels = spell_features(spec), self._labels_of_outputs()
        self._n_rows, self._sum_weights = 0, 0.0
        options, _ = OnlinePlanner(self._family, running, train).chosen(options)
        self._given, kind = (options, running), kind_of(running.method, options)
        size = len(rows) * kind.bytes_for(self._family.n_features, options)
        if size > running.memory:
            raise BudgetError(
                f"memory: the tables of {counted(len(rows), 'output')} need {format_bytes(size)}, more "
                f"than the budget of {format_bytes(running.memory)}; raise memory, or choose float32 "
                "weights",
                size,
            )
        self._rates = [options.rate] * len(rows)
        if running.rate == "auto":
            self._rates = [choose_rate(job) for job in self._jobs(rows)]
        self.learners_ = [job.new_learner() for job in self._jobs(rows)]

    def _jobs(self, rows: Sequence[Rows]) -> list[OnlineJob]:
        """The job of each output over some rows, with the options of the first call."""
        (options, running), family = self._given, self._family
        running = replace(running, block_rows=block_rows_of(running, family, rows[0]))
        plan = OnlinePlanner(family, running, rows[0]).plan(options)
        factors, view = penalty_factors(family), family.row_view()
        alpha, S = options.alpha * self._share, max(self._sum_weights, 1e-300)
        return [
            OnlineJob(
                options=replace(options, rate=rate, alpha=alpha),
                running=running,
                family=family,
                view=view,
                factors=factors,
                train=train,
                valid=None,
                labels=labels,
                n_outputs=1,
                loss=find_loss(options.loss),
                alpha=alpha,
                C=1.0 / (alpha * S),
                sum_weights=S,
                features=self._words,
                class_weight=None,
                plan=plan,
            )
            for rate, train, labels in zip(self._rates, rows, self._labels, strict=True)
        ]

    def _learn(self, rows: Sequence[Rows], passes: int | None, fingerprints: Sequence[str]) -> None:
        """Learn from rows: in ``passes``, or with None once and in their order, as a part of a stream."""
        self._n_rows += rows[0].n
        self._sum_weights += float(rows[0].s.sum())
        reporter, jobs = OnlineReporter(self.progress), self._jobs(rows)
        runs = [
            self._run_of(job, learner, reporter)
            for job, learner in zip(jobs, self.learners_, strict=True)
        ]
        run = jobs[0].running
        blocks = Blocks(
            self._family, rows[0], run.block_rows, run.seed, run.shuffle and passes is not None
        )
        reporter.started(jobs[0])
        try:
            with kernels.compilation.Compilation(lambda: None), one_blas_thread():
                reason = reporter.cause(_learn_passes(runs, blocks, passes))
        finally:  # if learning diverges, the models are those before the row
            self.models_ = [
                replace(model_of(run.job, run.learner, fingerprint), n_rows=self._n_rows)
                for run, fingerprint in zip(runs, fingerprints, strict=True)
            ]
        message = end_of_run(reason, self.learners_[0], jobs[0], None)
        reporter.report(Stopped(reason, message, None, {}, peak_memory()))
        reporter.finish(self)

    def _run_of(self, job: OnlineJob, learner: Learner, reporter: OnlineReporter) -> OnlineRun:
        place = RunPosition(sums=Progressive(next_line=learner.rows + FIRST_LINE))
        report, should_stop = reporter.report, reporter.should_stop
        tracks = self.progress is not None
        return OnlineRun(job, learner, place, report, should_stop, tracks=tracks, warns=False)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None) -> Self:
        """Learn from rows with one label or number each, from the start; as in :class:`FCLClassifier`.

        Raises InputError if parameters, data or targets are unusable, or learning diverges.
        """
        self._options()
        training = self._open(X, RowArrays(y, sample_weight, offset), first=True)
        self._begun(training)
        with one_blas_thread():
            rows = self._rows(training)
            self._begin(training, rows)
        data = self._data_sets(training)
        self._learn(rows, self.passes, [each.fingerprint() for each in data])
        return self

    def _learn_part(self, training: Training, first: bool) -> Self:
        """Learn from a part of a stream."""
        rows = self._rows(training)
        if first:
            self._begin(training, rows)
        self._learn(rows, None, [""] * len(rows))
        return self

    def _begun(self, training: Training) -> None:
        """Take from the rows of a fit what later rows must agree with."""

    def _labels_of_outputs(self) -> list[Any]:
        """For each output its labels (negative, positive), or None for numbers."""
        return [None]

    @abstractmethod
    def _targets(self, training: Training) -> list[np.ndarray]:
        """The numbers that each output learns, float64 (n,)."""

    def _weighted(self, training: Training) -> Training:
        """The rows with their weights in the losses."""
        return training

    def _rows(self, training: Training) -> list[Rows]:
        weights = self._weighted(training).weights
        return [select_rows(training.data, y, weights, None) for y in self._targets(training)]

    def _data_sets(self, training: Training) -> list[DataSet]:
        """The data set of each output, as :func:`fcl.train` takes it."""
        name, weights = training.data.target_name, self._weighted(training).weights
        return [training.data.with_target(y, weights, name) for y in self._problems(training)]

    def _problems(self, training: Training) -> list[np.ndarray]:
        """The target of each output, as :func:`fcl.train` takes it."""
        return [training.target]

    def certify(
        self, X: Any, y: Any = None, sample_weight: Any = None, offset: Any = None, **options: Any
    ) -> Optimality | list[Optimality]:
        """How far the model is from the optimum of its problem over some rows, by :func:`fcl.certify`.

        Parameters
        ----------
        X, y, sample_weight, offset
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
        data = self._data_sets(self._open(X, RowArrays(y, sample_weight, offset), first=False))
        models = self._models_of_problems()
        found = [certify(model, each, **options) for model, each in zip(models, data, strict=True)]
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


def _learn_passes(runs: Sequence[OnlineRun], blocks: Blocks, passes: int | None) -> StopReason:
    """Learn all outputs; returns why learning ended.  passes : None for a part of a stream.

    Raises InputError: a row cannot be learnt.
    """
    first, *others = runs
    for number in range(passes or 1):
        for block in blocks.of_pass(number):
            reason = first.learn_block(block, others)
            if reason is not None and not reason.is_interrupt:
                run = first.failed
                row = row_number(run.job.train.keep, run.bad_row)
                raise InputError(end_of_run(reason, run.learner, run.job, row))
            if reason is not None:
                return reason
        for run in runs:
            run.report_progress() if passes is None else run.end_pass()
    return StopReason.DONE
