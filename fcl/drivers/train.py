"""The entry point of training: validate the job, choose the driver, run it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np

from fcl.checks import flag, shown
from fcl.data import DataSet
from fcl.drivers.finished import point_of
from fcl.drivers.initial import fitting, in_units_of
from fcl.drivers.inline import InlineRun
from fcl.drivers.job import Job, make_job
from fcl.drivers.plan import Plan, RowViewOption
from fcl.drivers.result import TrainResult
from fcl.drivers.rows import check_data_set
from fcl.drivers.saving import Saver
from fcl.drivers.session import Session
from fcl.errors import ConvergenceWarning, InputError
from fcl.features import Spec
from fcl.files.checkpoint import Checkpoint
from fcl.files.folder import CheckpointFolder
from fcl.files.model import check_header
from fcl.files.same_job import JobFacts
from fcl.model.certificate import Certificate
from fcl.model.columns import record_of
from fcl.model.model import Model
from fcl.model.shapes import public
from fcl.options import TRAINING, TrainOptions
from fcl.options.choices import (
    DRIVER,
    PENALTY,
    Arguments,
    Dask,
    ElasticNet,
    GroupNorm,
    Processes,
)
from fcl.parallel import one_blas_thread
from fcl.run.bar import Progress
from fcl.run.reasons import StopReason
from fcl.run.reporter import Reporter
from fcl.solve.run_state import RunState
from fcl.solve.state import Point
from fcl.units import counted


def plan_training(data: DataSet, features: Spec | str, **arguments: Any) -> Plan:
    """The memory plan of :func:`train` with the same arguments; reads no rows.

    Parameters
    ----------
    data, features, **arguments
        As for :func:`train`.

    Returns
    -------
    Plan
        ``parts`` are the pairs (what, bytes) that the job would take, ``budget`` the limit.

    Raises
    ------
    InputError
        Data or options are unusable.
    BudgetError
        The budget is too small; the message names the smallest one that works.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> plan = fcl.plan_training(data, "products:degree=2", C=1.0, memory="1GiB")
    >>> plan.budget, sum(size for name, size in plan.parts) <= plan.budget
    (1073741824, True)
    """
    given = signature(train).bind(data, features, **arguments)
    given.apply_defaults()
    return planned_job(**_ARGUMENTS.by_name(given.arguments, "plan_training")).plan


def planned_job(data: DataSet, features: Spec | str, **arguments: Any) -> Job:
    """The job of :func:`run_training` with the same arguments."""
    given = _ARGUMENTS.complete({**arguments, "data": data, "features": features})
    return _job(given | {"resume": _loaded(given["resume"])})


def train(
    data: DataSet,
    features: Spec | str,
    *,
    C: float | None = None,
    alpha: float | None = None,
    penalty: str | ElasticNet | GroupNorm = "l1",
    limits: Any = None,
    standardize: bool = False,
    loss: str = "logistic",
    class_weight: str | Mapping[Any, float] | None = None,
    intercept: bool = True,
    tol: float = 1e-3,
    memory: int | str = "4GiB",
    max_time: float | None = None,
    max_passes: int | None = None,
    patience: int | None = None,
    seed: int = 0,
    valid: DataSet | float | None = None,
    block_rows: int = 65536,
    driver: str | Processes | Dask = "inline",
    threads: int | None = None,
    row_view: RowViewOption = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 300.0,
    resume: Checkpoint | str | os.PathLike[str] | None = None,
    initial: Model | None = None,
    scratch: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    **old: Any,
) -> TrainResult:
    """Train a sparse linear model over a whole family of features.

    It minimises penalty(w) + C sum_i s_i loss(y_i, <w, phi(x_i)> + b) over w and b, where

        penalty(w) = sum_j f_j [ rho |w_j| + (1 - rho) w_j^2 / 2 ]

    with rho = 1 unless ``penalty`` says otherwise, and the family's penalty factors f_j (1 for k-mers).
    With ``standardize``, the penalty applies to sd_j w_j instead of w_j.

    Parameters
    ----------
    data : DataSet
        From :func:`fcl.open_data`, with a target.
    features : Kmers, Bag, Generator, Concat or str
        The family, as ``Kmers(d=8)`` or ``"kmers:d=8"``; the page on families lists them.
    C, alpha : float
        Exactly one: the weight of the losses, or C = 1 / (alpha * sum of the sample weights).
    penalty : str, ElasticNet or GroupNorm
        ``"l1"``; ``"elastic"``, the elastic net, with the options of :class:`ElasticNet`; or ``"group"``,
        with several outputs: the Euclidean norm of a feature's K weights instead of their L1 norm, so
        that a feature has a weight in all outputs or in none.
    limits : str, (low, high) or mapping
        Limits low <= w_j <= high of the weights, with low <= 0 <= high: for all features, ``"0:"`` or
        ``(0, inf)`` for weights of at least 0; or for some features, by name or id,
        ``{"age": (0, inf)}``, where ``"*"`` stands for all others. They are in the units of the model's
        weights, and the certificate is about all models within them. For all features only a sign in
        families too large to look at every feature (k-mers, products, bags that are searched), with
        ``standardize`` and with several outputs; for up to 10,000 features any limits, except with these
        two. Not with penalty ``group`` or loss ``softmax``. Intercept and covariates have no limits.
    loss : str
        For two labels: ``logistic``, ``squared_hinge``. For more: ``softmax``, one model of all classes,
        with weights (features, K), whose probabilities sum to 1. For numbers: ``squared``, (y - m)^2
        without the factor 1/2; ``huber:delta=1``, the same up to |y - m| = delta, and linear beyond it;
        ``poisson``, half the deviance of counts with mean exp(m); ``pinball:tau=0.5,width=0.1``, whose
        margin is the tau-quantile: max(tau u, (tau - 1) u) of u = y - m, smoothed over an interval of
        length ``width`` in the units of the target. There it is u^2 / (2 width), and everywhere lower
        than without smoothing by at most max(tau, 1 - tau)^2 width / 2; a tenth of the residuals' spread
        or less is usual. A target (n, K) of numbers (``squared``), or of 0 and 1 (``logistic``), gives K
        models that share passes, columns and one certificate.
    standardize : bool
        Penalise sd_j w_j instead of w_j, as glmnet does by default: sd_j is the standard deviation of
        feature j over the training rows, weighted by sample times class weights, in the population form.
        Weights, names and predictions stay in the units of the data; constant features are left out.
        Available for ``columns``, ``hinges``, ``fourier`` with a number of features, and classes that
        make all their columns; an extra pass over the rows measures the features first. Without
        ``standardize``, a ``ScaleWarning`` names columns whose standard deviations, on a sample of 2,000
        rows, differ by a factor above 1,000.
    class_weight : None, "balanced" or mapping of label to weight > 0
        Multiplies the sample weights of each class (by 1 for a class that is not named); "balanced" gives
        all classes the same total weight. For classification only; ``alpha`` refers to the sample
        weights without it.
    intercept : bool
        Whether b is free; it is never penalised.
    tol : float
        Relative duality gap (P - D) / P at which to stop.
    memory : int or str
        Budget in bytes or as "4GiB"; covers everything, all processes together.
    max_time, max_passes : float (seconds), int
        Stop earlier, with the best model so far and a ConvergenceWarning. The time counts from the first
        pass, without the compilation of kernels, and at least one pass is made; the inline driver
        finishes a pass that has begun, and makes one more for a point on which its trainer was working.
        Passes count over the whole job, without pass 0, which prices the null model.
    patience : int
        Early stopping: stop after this many passes without a lower mean loss of the held-out rows
        (``valid``). The model is then that of the pass with the lowest held-out loss,
        however the run ended, unless it converged before; ``result.best_pass`` and the message name that
        pass. The driver ``processes`` does not score every pass, and counts those that it scores.
    seed : int
        At least 0. Seeds all sampling: the rows to set aside depend on the whole number, all other
        samples on the number modulo 2^31.
    valid : DataSet or float
        Rows on which to score the model after each pass: a data set, or the share of rows to set aside.
        The loss determines the score: average precision, mean squared or absolute error, mean deviance,
        mean pinball loss.
    block_rows : int
        Rows per block, a multiple of 64, at most 65536.
    driver : str, Processes or Dask
        ``"inline"``: in this process, reproducible bit for bit; ``"processes:writers=3"``: a trainer and
        writers in parallel; ``"dask:address=tcp://HOST:8786"``: passes on a Dask cluster, with the same
        numbers as ``"inline"``. :class:`fcl.Processes` and :class:`fcl.Dask` have all their options.
    threads : int
        Number of threads of the driver ``inline``; by default the cores that the process may use: by
        affinity, the quota of its control group, and ``OMP_NUM_THREADS``. The result is the same, bit for
        bit, with any number.
    row_view : {"all", "auto"} or int
        Rows on which the trainer works between passes: all; a weighted sample that starts with about this
        many rows (at least 64; all if there are no more); or "auto", a sample if there are more than
        65,536 rows. A sample grows as the gap closes. It affects only speed and memory: objective and
        certificate always cover all rows.
    checkpoint, checkpoint_every : path, float (seconds)
        Folder in which to save checkpoints, at this interval and at the end.
    resume : Checkpoint or path
        Resume from this checkpoint, or from the newest in this folder, with the same data and options.
    initial : Model
        Starting point: its weights are tried first, after the null model. It must be of the same family,
        with the same options and the same learnt state, but may come from other rows.
    scratch : path
        Folder of the scratch file that holds prepared rows when the budget cannot.
    progress : callable, or progress bar
        A function is called with each event of :mod:`fcl.run.events`, such as ``PassDone``, in the
        thread of this call:
        ``progress=lambda event: print(event.gap) if isinstance(event, PassDone) else None``. It ends
        the run with the best model so far by returning False or raising :class:`fcl.StopTraining`, once a
        pass is done; ``result.reason`` is then ``"callback"``. Any other exception ends the run, too, and
        is raised when the checkpoint is written; its attribute ``result`` is then the TrainResult.
        A bar of tqdm, or the class ``tqdm.tqdm``, shows how far the gap has fallen towards ``tol``, on a
        log scale; so does any object with ``update``, ``set_postfix`` and ``close`` and a total of 100.
    should_stop : callable
        Polled between steps; True ends the run with the best model so far.
    **old
        Arguments of earlier versions, for one version more: a DeprecationWarning gives the new spelling.

    Returns
    -------
    TrainResult
        After a ``KeyboardInterrupt`` too, with ``converged = False``; an interrupt before the end of the
        first pass is raised.

    Raises
    ------
    InputError
        Data or options are unusable; the message names array, row or option. ``BudgetError``, a subclass,
        names the smallest budget that works, where it is known.
    RepeatedDeaths
        Processes of one role died three times without progress in between; a checkpoint was saved if
        ``checkpoint`` is set.
    FclError
        A process could not be started, or raised an exception (``processes``).

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> data = fcl.open_data(X, y=X[:, 0] > X[:, 3])
    >>> result = fcl.train(data, "columns", C=1.0)
    >>> result.converged, result.certificate.gap <= 1e-3
    (True, True)
    >>> [row.feature for row in result.model.describe()]
    ['x3', 'x0', 'x2']

    Regression on splines, beside a covariate without a penalty:

    >>> data = fcl.open_data(X, y=np.abs(X[:, 1]) + X[:, 2], covariates=X[:, 2:3])
    >>> model = fcl.train(data, fcl.Hinges(n=3), alpha=0.1, loss="squared").model
    >>> [row.feature for row in model.describe()]
    ['max(0, -0.132105 - x1) / 0.941', 'max(0, x1 + 0.132105) / 0.941']
    """
    return run_training(**_ARGUMENTS.by_name(locals()))


_ARGUMENTS = Arguments(
    train,
    TRAINING,
    DRIVER,
    PENALTY,
    offset=None,
    covariates=None,
    client=None,
    should_checkpoint=None,
    command=None,
    warn=True,
)


def run_training(**given: Any) -> TrainResult:
    """Train; takes the arguments of :func:`train` as keywords, and some more for commands.

    should_checkpoint : polled between steps; True saves a checkpoint now.
    command : options of a command, saved in checkpoints so that the command can resume the job.
    warn : whether to warn about columns of uneven scales, and about a stop before the tolerance.
    """
    given = _ARGUMENTS.complete(given)
    resume, initial, client = given["resume"], given["initial"], given["client"]
    warn = flag("warn", given["warn"])
    if initial is not None and resume is not None:
        raise InputError(
            "initial: expected no resume beside it, got both; leave initial out, since a checkpoint has "
            "weights of its own"
        )
    resume = _loaded(resume)
    job = _job(given | {"resume": resume})
    options = job.options
    _check_savable(job)
    if options.driver == "dask":
        from fcl.drivers.cluster.connect import check_cluster
        from fcl.drivers.cluster.run import check_job

        check_cluster(client, options.dask, options.dask_tls)
        check_job(job)
    if warn:
        job.warn()
    start = None if initial is None else start_point(job, initial)
    kept = options.of_job()
    if resume is not None:
        # values derived from the data are compared after reading, when the message can name the data
        derived = {"alpha" if given.get("alpha") is None else "C"}
        if options.block_rows != given.get("block_rows", options.block_rows):
            derived.add("block_rows")
        now = JobFacts(
            {name: value for name, value in kept.items() if name not in derived}
            | {"n_outputs": job.n_outputs},
            family=job.family.to_config(),
            n_features=job.family.n_features,
        )
        resume.check_job(now)
    if given["command"] is not None:
        kept["command"] = dict(given["command"])
    reporter = Reporter(given["progress"], given["should_stop"])
    requested = reporter.guarded(given["should_checkpoint"])
    saver = Saver(options.checkpoint, options.checkpoint_every, requested, kept, resume)
    saver.open()
    try:
        session = Session(
            job,
            reporter.report,
            reporter.should_stop,
            saver,
            resume,
            start,
            cause=reporter.cause,
        )
        del job  # the session has it, and may move its arrays elsewhere
        with session.compilation, one_blas_thread(), reporter.explained():
            if options.driver == "inline":
                result = InlineRun(session).run()
            elif options.driver == "dask":
                from fcl.drivers.cluster.connect import connected
                from fcl.drivers.cluster.run import ClusterRun

                where = options.dask if client is None else client
                with connected(where, options.dask_tls) as cluster:
                    result = ClusterRun(session, cluster).run()
            else:
                from fcl.drivers.processes.supervisor import Supervisor

                result = Supervisor(session).run()
        if result.converged:
            saver.complete()
    finally:
        saver.close()
    expected = result.converged or result.reason in (StopReason.PATIENCE, StopReason.CALLBACK)
    if warn and not expected and reporter.error is None:
        warnings.warn(result.message, ConvergenceWarning, stacklevel=3)
    return reporter.finish(result)


def _loaded(resume: Checkpoint | str | os.PathLike[str] | None) -> Checkpoint | None:
    """The checkpoint to resume from: the given one, or the newest in the given folder."""
    if resume is None or isinstance(resume, Checkpoint):
        return resume
    return CheckpointFolder(resume).load()


def _job(given: Mapping[str, Any]) -> Job:
    """The job for the arguments of :func:`train`, with the checkpoint itself to resume from."""
    check_data_set("data", given["data"])
    data = given["data"].with_added(given["offset"], given["covariates"])
    options = TrainOptions.checked({name: given[name] for name in TRAINING if name in given})
    if given["client"] is not None or options.dask is not None:
        options = replace(options, driver="dask")
    initial, resume = given["initial"], given["resume"]
    active, resumed = 0 if initial is None else len(initial.ids), None
    if resume is not None:
        active = RunState.from_file(resume.state, resume.arrays).most_active
        resumed = resume.family
    return make_job(
        data, given["features"], options, valid=given["valid"], resumed=resumed, active=active
    )


def _check_savable(job: Job) -> None:
    """Raise InputError before training if a model of this job could not be saved afterwards."""
    check_header(
        Model(
            family=job.family,
            ids=np.empty(0, np.int64),
            weights=public(np.empty((0, job.n_outputs))),
            support=np.empty(0, np.int64),
            intercept=public(np.zeros(job.n_outputs)),
            loss=job.loss.text,
            C=job.options.C,
            alpha=job.options.alpha,
            labels=job.labels,
            n_rows=job.train.n,
            sum_weights=job.sum_weights,
            fingerprint="",
            certificate=Certificate(0.0, 0.0, 0.0, 0.0, 0),
            options=job.options.of_job(),
            column_record=record_of(
                job.family, np.empty(0, np.int64), job.train.data.column_record
            ),
        ).header()
    )


def start_point(job: Job, model: Model) -> Point:
    """The weights of an initial model as a point; InputError if its family is another one."""
    model = fitting(model, job.family, job.train.data)
    weights = job.limits.within(model.ids, in_units_of(job.family, model))
    if model.n_outputs != job.n_outputs:
        raise InputError(
            f"initial: expected a model of {counted(job.n_outputs, 'output')}, got one of "
            f"{model.n_outputs}; leave it out"
        )
    if job.n_outputs > 1:
        _check_initial_outputs(job, model)
    return point_of(job, model.ids, weights, model.intercepts, model.covariates)


def _check_initial_outputs(job: Job, model: Model) -> None:
    """Raise InputError unless the outputs of an initial model are the same as those of the job."""
    if model.loss_object != job.loss:
        raise InputError(
            f"initial: expected a model of {job.loss.text} loss, got one of {model.loss} loss; leave it "
            "out"
        )
    mine, others = job.labels, model.labels
    if mine is not None and others is not None and tuple(mine) != tuple(others):
        raise InputError(
            f"initial: expected a model of {shown(list(mine))}, got one of {shown(list(others))}; leave "
            "it out"
        )
