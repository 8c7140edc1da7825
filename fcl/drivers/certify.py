"""``fcl.certify``: how far a linear model is from the optimum, whoever trained it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fcl import kernels
from fcl.checks import positive, shown, whole
from fcl.data import DataSet
from fcl.data.prepared import PreparedRows
from fcl.drivers.finished import free_in_units, in_solver_units, model_at
from fcl.drivers.job import Job, make_job
from fcl.drivers.kinds import JOB_SECONDS
from fcl.drivers.limits import check_within
from fcl.drivers.model_to_certify import ModelToCertify, bound_of, linear_model
from fcl.drivers.optimality import Optimality, Violator
from fcl.drivers.rows import check_data_set
from fcl.drivers.session import started
from fcl.errors import InputError
from fcl.features import Spec
from fcl.features.standardized import attach_scales, plain
from fcl.memory.meter import peak_memory
from fcl.model.certificate import Certificate, Scope
from fcl.model.model import Model
from fcl.model.shapes import public
from fcl.objective import relative_gap
from fcl.options import PROBLEM, TRAINING, TrainOptions
from fcl.options.choices import PENALTY, Arguments, ElasticNet
from fcl.options.option import CERTIFY
from fcl.parallel import one_blas_thread
from fcl.run.bar import Progress, on_event
from fcl.run.events import Compiling, Event, PassDone, Prepared, StepProgress, Stopped
from fcl.run.reasons import StopReason
from fcl.solve.certify import CertifiedPoint
from fcl.solve.passes import KEEP_PER_GROUP, Passes, Vectors

#: Seconds between two progress events of the pass.
PROGRESS_EVERY = 2.0
#: Relative amount by which rounding may put a given bound above the objective.
ROUNDED = 1e-9


def certify(
    model: Any,
    data: DataSet,
    C: float | str | None = None,
    *,
    alpha: float | None = None,
    bound: Model | float | None = None,
    radius: float | None = None,
    features: Spec | str | None = None,
    loss: str | None = None,
    penalty: str | ElasticNet | None = None,
    limits: Any = None,
    class_weight: str | Mapping[Any, float] | None = None,
    intercept: bool | None = None,
    namespace: str = "",
    memory: int | str = "4GiB",
    scratch: str | os.PathLike[str] | None = None,
    top: int = 10,
    keep_model: bool = False,
    trusted: Collection[str] = (),
    progress: Progress | None = None,
    **old: Any,
) -> Optimality:
    """Say how far a linear model is from the optimum, by one pass over the data.

    The pass prices the whole family of features at the model's weights. That gives the objective, a
    lower bound on the objective of any model, and the features that break their optimality conditions.
    Intercept and covariates, which are not penalised, are fitted first.

    A point proves a good bound only if it is nearly optimal. The own gap of any other point is an upper
    limit that may be far too large; a ``bound`` from the optimum then says more.

    Parameters
    ----------
    model : Model, path, (weights, intercept), or (ids, weights, intercept)
        A model of :func:`fcl.train`, or its file; a readable model of Vowpal Wabbit, an ``.npy`` or
        ``.npz`` of coefficients, or a table of names and weights (:mod:`fcl.model.foreign`); or arrays: a
        weight for each feature of the family, float (p,), or the ids of some features, int (k,), and
        their weights, float (k,); and a number.
    data : DataSet
        From :func:`fcl.open_data`, with a target.
    C, alpha : float
        At most one: the problem, as for :func:`fcl.train`. ``C="best"``: the C at which the model is
        most nearly optimal; with squares or norms in the penalty this takes several passes. By default
        the C of the model, or its alpha if the sample weights of the data have another sum; for models
        of other programs the C of ``bound``, or else "best".
    bound : Model or float
        A lower bound on the optimum of the same problem, or a model of :func:`fcl.train` with one. It is
        used if it is better than the bound of the point. The model must be of the same data, family, C,
        loss and penalty.
    radius : float
        Of the L1 ball to compare with; by default that of a model that was learnt on a ball, and of other
        models the norm of the weights.
    features, loss, penalty, limits, class_weight, intercept
        The problem of a model of another program, as for :func:`fcl.train`; by default "columns",
        "logistic", "l1", None, None and True. A model of fcl has them in its file.
    namespace : str
        Of the features in a readable model of Vowpal Wabbit without names.
    memory, scratch
        As for :func:`fcl.train`.
    top : int
        Most violators to name.
    keep_model : bool
        Whether the result has the model with the best intercept and this certificate, which takes
        another pass to count its support.
    trusted : collection of str
        Names of modules that a model file may import.
    progress : callable
        Called with the events Prepared, Compiling and StepProgress.
    **old
        Arguments of earlier versions, for one version more: a DeprecationWarning gives the new spelling.

    Returns
    -------
    Optimality
        Objective, bounds and gaps, and the features that break their optimality conditions most.

    Raises
    ------
    InputError
        The model is no linear model of one output (models of fcl may have several), or does not fit the
        data; an option is wrong; or ``bound`` is of another problem. ``BudgetError``, a subclass, names
        the smallest budget that works.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(200, 5))
    >>> y = X[:, 0] - X[:, 3]
    >>> from sklearn.linear_model import Lasso
    >>> lasso = Lasso(alpha=0.1).fit(X, y)
    >>> data = fcl.open_data(X, y=y)
    >>> found = fcl.certify((lasso.coef_, lasso.intercept_), data, alpha=0.2, loss="squared")
    >>> found.gap < 1e-2, found.n_active
    (True, 2)
    """
    return run_certify(**_ARGUMENTS.by_name(locals()))


_OPTIONS = {name: option for name, option in TRAINING.items() if CERTIFY in option.commands}
_ARGUMENTS = Arguments(certify, _OPTIONS, PENALTY, offset=None, covariates=None)


def run_certify(**given: Any) -> Optimality:
    """Certify a model; takes the arguments of :func:`certify` as keywords."""
    given = _ARGUMENTS.complete(given)
    check_data_set("data", given["data"])
    top, radius, bound = whole("top", given["top"], 0), given["radius"], given["bound"]
    if radius is not None:
        radius = positive("radius", radius)
    own = {
        name: given[name]
        for name in PROBLEM
        if name not in ("C", "alpha") and given.get(name) is not None
    }
    to_certify = linear_model(given["model"], given["trusted"], given["namespace"])
    radius = to_certify.radius if radius is None else radius
    data = to_certify.opened(given["data"], given["offset"], given["covariates"])
    problem = to_certify.problem(data, own)
    C, alpha = _strength(given["C"], given.get("alpha"), to_certify, bound)
    best = isinstance(C, str)
    running: dict[str, Any] = {}
    running |= {name: given[name] for name in ("memory", "scratch") if name in given}
    job = _job(to_certify, data, problem, running, best, C, alpha)
    known = None if bound is None or best else bound_of(bound, job)
    report = on_event(given["progress"])
    begin = started(job, "certify")
    report(replace(begin, C=None, alpha=None) if best else begin)
    with kernels.compilation.Compilation(lambda: report(Compiling(JOB_SECONDS))), one_blas_thread():
        begun = time.perf_counter()
        share = _shares(report, begun)
        prepared = job.prepare(job.train, lambda done: share("reading", done))
        try:
            seconds = time.perf_counter() - begun
            report(Prepared(seconds, job.train.n / max(seconds, 1e-9)))
            fingerprint = data.fingerprint()
            passes = _passes(job, prepared, max(top, 1))
            passes.on_progress = lambda done: share("pricing", done)
            own_point = to_certify.point(job)
            check_within(own_point, job.limits, plain(job.family))
            point = in_solver_units(job.family, own_point)
            certified = CertifiedPoint(passes, point)
            if best:
                certified.go_to_best_C()
                if certified.largest == 0.0:
                    raise InputError(
                        "C: expected a number, since no feature has a price at this model: it is optimal "
                        "for the losses alone, and more nearly so the larger C is; got best"
                    )
                job = job.at(certified.C)
                known = None if bound is None else bound_of(bound, job)
            elif to_certify.claims_less_than(certified.certificate.gap):
                certified.polish()
            found = _optimality(to_certify, job, certified, known, radius, top, best, fingerprint)
            done = _pass(found, time.perf_counter() - begun)
            report(done)
            if given["keep_model"]:
                kept = model_at(
                    job,
                    passes,
                    certified.point,
                    found.certificate,
                    fingerprint=fingerprint,
                    C_min=None,
                    history=[done.to_dict()],
                )
                found = replace(found, model=kept)
        finally:
            prepared.close()
        reason, spent = StopReason.DONE, {"certificate": time.perf_counter() - begun}
        report(Stopped(reason, reason.sentence, found.certificate, spent, peak_memory()))
    return found


def _pass(found: Optimality, seconds: float) -> PassDone:
    """The event of the pass, which is also the history of the model."""
    return PassDone(
        number=0,
        seconds=seconds,
        objective=found.objective,
        bound=found.bound,
        gap=found.gap,
        max_violation=found.certificate.max_violation,
        priced=found.certificate.n_priced,
        cached=0,
        active=found.n_active,
        cache_bytes=0,
        cache_capacity=0,
        evicted=0,
        rows_per_second=found.n_rows / max(seconds, 1e-9),
        memory_bytes=peak_memory(),
        beta=0.0,
        scope=found.certificate.scope_text,
    )


def _strength(
    C: float | str | None, alpha: float | None, to_certify: ModelToCertify, bound: Any
) -> tuple[float | str | None, float | None]:
    """C and alpha of the user, or the default; both None: the model's own."""
    if isinstance(C, str) and C != "best":
        raise InputError(f"C must be a finite number above 0, or best, got {shown(C)}")
    if C is not None and alpha is not None:
        raise InputError("give either C (weight of the losses) or alpha (weight of the penalty)")
    if C is not None or alpha is not None or to_certify.model is not None:
        return C, alpha
    return (bound.C if isinstance(bound, Model) else "best"), None


def _job(
    to_certify: ModelToCertify,
    data: DataSet,
    problem: dict[str, Any],
    running: dict[str, Any],
    best: bool,
    C: Any,
    alpha: float | None,
) -> Job:
    """The job of the problem; at C = 1 if the best C is wanted."""
    model = to_certify.model
    own = C is None and alpha is None
    given = dict(problem) | running | {"C": 1.0 if best else C, "alpha": alpha}
    if own and model is not None:
        given["alpha"] = model.alpha
    job = make_job(data, given.pop("features"), TrainOptions.checked(given), one_pass=True)
    to_certify.check(job)
    if model is None:
        return job
    if own and job.sum_weights == model.sum_weights:
        job = job.at(model.C)
    words = str(model.options.get("features", job.options.features))
    return replace(job, options=replace(job.options, features=words))


def _shares(report: Callable[[Event], None], begun: float) -> Callable[[str, float], None]:
    """A function that reports the share of a step that is done, once in PROGRESS_EVERY seconds."""
    last = begun

    def share(step: str, done: float) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= PROGRESS_EVERY:
            last = now
            report(StepProgress(0, step, done, now - begun))

    return share


def _passes(job: Job, prepared: PreparedRows, keep: int) -> Any:
    """The steps of a pass over the prepared rows, with measured features."""
    job.plan_with([prepared])  # the contents of the rows may take more than the budget allows
    vectors = Vectors(job.train.n, n_outputs=job.n_outputs)
    if job.options.group:  # norms are bounded by what the lists of the outputs lack
        keep = max(keep, KEEP_PER_GROUP)
    passes = Passes(job.objective(), job.family, prepared, vectors, keep)
    if job.options.standardize:
        attach_scales(job.family, np.empty((2, job.family.n_features)))
        passes.measure(passes.parts)
    return passes


def _optimality(
    to_certify: ModelToCertify,
    job: Job,
    certified: CertifiedPoint,
    bound: float | None,
    radius: float | None,
    top: int,
    best: bool,
    fingerprint: str,
) -> Optimality:
    """Everything that the pass says, in the user's units."""
    proved, norm = certified.certificate, certified.norm
    given = _better(bound, proved, job)
    if radius is not None and radius < norm * (1.0 - ROUNDED):
        raise InputError(
            f"radius: expected at least the norm of the weights, {norm:.10g}, got {radius:.10g}: the "
            "model is outside of the ball"
        )
    radius = norm if radius is None else radius
    gap = relative_gap(proved.objective, given)
    best_C, best_gap = certified.best_C() if certified.serves_every_C else (None, None)
    if best or (best_gap is not None and proved.gap < best_gap):
        best_C, best_gap = certified.C, proved.gap
    shift = float(np.abs(job.intercept_shift).max())
    certificate = Certificate(
        proved.objective,
        given,
        gap,
        proved.max_violation,
        proved.n_priced,
        proved.scope,
        1,
        certified.resolves(shift),
    )
    _, intercepts, _ = free_in_units(job, certified.point)
    own = certified.penalty + certified.C * certified.own_loss
    return Optimality(
        C=certified.C,
        alpha=job.options.alpha,
        certificate=certificate,
        own_bound=proved.bound,
        own_gap=proved.gap,
        own_objective=own if to_certify.has_intercept and math.isfinite(own) else None,
        losses=certified.loss,
        penalty=certified.penalty,
        intercept=np.asarray(public(intercepts)).tolist(),
        n_active=len(certified.point.ids),
        best_C=best_C,
        best_gap=best_gap,
        radius=radius,
        ball_gap=certified.ball_gap(radius),
        violators=_violators(job, certified, top),
        n_rows=job.train.n,
        sum_weights=job.sum_weights,
        fingerprint=fingerprint,
        same_data=to_certify.is_of(fingerprint),
    )


def _better(bound: float | None, proved: Certificate, job: Job) -> float:
    """The better of the own bound and a given one, which is refused if it cannot be one."""
    if bound is None or proved.scope is not Scope.FAMILY:
        return proved.bound
    if bound > proved.objective * (1.0 + ROUNDED):
        raise InputError(
            f"bound: expected at most the objective of the model, {proved.objective:.12g}, got "
            f"{bound:.12g}: it is the bound of another problem, or of other rows"
        )
    return max(proved.bound, min(bound, proved.objective))


def _violators(job: Job, certified: CertifiedPoint, top: int) -> tuple[Violator, ...]:
    found, names = certified.violators(top), job.train.data.column_names
    family, rows = plain(job.family), zip(found.ids.tolist(), found.weights.tolist(), strict=True)
    return tuple(
        Violator(id, family.describe(id, names), weight, slope, violation)
        for (id, weight), slope, violation in zip(
            rows, found.slopes.tolist(), found.violations.tolist(), strict=True
        )
    )
