"""A second model of the chosen features: nearly without a penalty, since L1 shrinks the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fcl.drivers.inline import InlineRun
from fcl.drivers.job import Job
from fcl.drivers.train import start_point
from fcl.features.centred import uncentred
from fcl.features.standardized import plain
from fcl.features.support import SupportFamily
from fcl.model.certificate import Scope
from fcl.model.model import Model
from fcl.objective import resolve_C, stored_penalty
from fcl.path.jobs import PathJobs
from fcl.path.result import PathPoint
from fcl.path.running import PathContext
from fcl.run.events import PointStarted
from fcl.run.reasons import StopReason
from fcl.solve.state import is_active

#: Share of |w| in the penalty: the solver needs one above 0, and this one does not change the model.
REFIT_L1 = 1e-6


def refit_point(
    jobs: PathJobs,
    running: PathContext,
    fold: int | None,
    point: PathPoint,
    alpha: float,
    part: str,
) -> Iterator[PathPoint | None]:
    """Yield the refit of a point over the training rows of a fold, or over all rows; as a job."""
    jobs = replace(jobs, options=replace(jobs.options, driver="inline"))
    job = jobs.make_job() if fold is None else jobs.make_fold_job(fold, running)
    yield refit_support(job, point, alpha, running, part)


def refit_support(
    job: Job, point: PathPoint, alpha: float, running: PathContext, part: str = ""
) -> PathPoint | None:
    """Train the features of a point again, with a ridge penalty on sd_j w_j; None if it has none.

    A penalty of 0 has no optimum on separable rows, and no unique one with equal columns, which are
    common among patterns; a small ridge penalty always has exactly one.

    job : with the driver ``inline``; its C, penalty and time limit do not apply.
    alpha : weight of sum_j var_j w_j^2 / 2 against the weighted mean of the losses.
    part : name of the rows in events; empty for all.

    Returns the refitted model, whose certificate covers the support alone, with its score on the
    validation rows of the job. Raises KeyboardInterrupt: ``should_stop`` ended the refit.
    """
    model, family = point.model, plain(job.family)
    ids = model.ids[is_active(model.weights)]
    if not len(ids):
        return None
    support = SupportFamily(family, ids)
    C, alpha = resolve_C(None, alpha, job.sum_weights)
    limits = job.limits.restricted(ids).stored()
    penalty = replace(stored_penalty(vars(job.options)), rho=REFIT_L1)
    options = replace(
        job.options,
        **penalty.stored(),
        C=C,
        alpha=alpha,
        limits=limits,
        standardize=False,
        max_time=None,
    )
    start = start_point(replace(job, family=family), model)
    start = replace(start, ids=np.searchsorted(ids, start.ids))
    session = running.session(replace(job, family=support, options=options), start)
    since = time.perf_counter()
    running.report(PointStarted(1, 1, C, alpha, part))
    with session.compilation, InlineRun(session) as run:
        run.scores_passes = False
        result = run.solve()
        score = math.nan if job.valid is None else run.scores().metric
    if result.reason == StopReason.INTERRUPTED:
        raise KeyboardInterrupt
    result = replace(result, model=_in_family(result.model, support, job.options.limits))
    found = running.point(point.number, result, since, score)
    running.point_done(replace(found, number=0), 1, C, job.loss.metric, part)
    return found


def _in_family(model: Model, support: SupportFamily, limits: Any) -> Model:
    """A model of the support as one of the whole family, with the scope of its certificate."""
    return replace(
        model,
        family=uncentred(support.inner),
        ids=support.chosen[model.ids],
        certificate=replace(model.certificate, scope=Scope.SUPPORT),
        options={**model.options, "C_min": None, "limits": limits},
        centres={int(support.chosen[t]): c for t, c in model.centres.items()},
    )
