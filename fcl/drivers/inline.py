"""The inline driver: all steps in one process, in lock-step.

Deterministic: the same input, options and seed give the same bits. It is the reference for every other
driver, and the one that short jobs and Python callers want.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.cache import ColumnCache
from fcl.drivers.events import Event, PassDone, Prepared, Started, Stopped
from fcl.drivers.job import Job, make_job
from fcl.drivers.plan import Plan
from fcl.errors import ConvergenceWarning
from fcl.model.certificate import Certificate
from fcl.model.metrics import average_precision
from fcl.model.model import Model
from fcl.solve.outer import Certified
from fcl.solve.solver import Solver
from fcl.solve.state import Point

if TYPE_CHECKING:
    from fcl.data import DataSet
    from fcl.data.prepared import PreparedRows
    from fcl.features import Kmers

Progress = Callable[[Event], None]

#: Passes in a row without progress after which rounding is taken for reached.
MAX_IDLE = 4


@dataclass(frozen=True)
class TrainResult:
    """A model, and how training ended."""

    model: Model
    converged: bool
    reason: str  #: "tolerance", "max-passes", "max-time", "interrupted" or "stalled"
    message: str
    seconds: dict[str, float]
    peak_memory: int
    passes: int

    @property
    def certificate(self) -> Certificate:
        """What is proved of the model."""
        return self.model.certificate


def plan_training(data: DataSet, features: Kmers | str, **options: Any) -> Plan:
    """The memory plan of :func:`train` with the same arguments; reads no rows."""
    for name in ("scratch", "progress", "should_stop"):  # change no plan
        options.pop(name, None)
    return make_job(data, features, **options).plan


def train(
    data: DataSet,
    features: Kmers | str,
    *,
    C: float | None = None,
    alpha: float | None = None,
    loss: str = "logistic",
    intercept: bool = True,
    tol: float = 1e-3,
    memory: int | str = "4GiB",
    max_time: float | None = None,
    max_passes: int | None = None,
    seed: int = 0,
    valid: DataSet | None = None,
    valid_fraction: float | None = None,
    block_rows: int = 65536,
    scratch: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> TrainResult:
    """Minimise ||w||_1 + C sum_i s_i loss(y_i, <w, phi(x_i)> + b) over a whole family of features.

    Parameters
    ----------
    data : DataSet
        From :func:`fcl.open_data`, with a target.
    features : Kmers or str
        The family, as ``Kmers(d=8)`` or ``"kmers:d=8"``.
    C, alpha : float
        Exactly one: the weight of the losses, or C = 1 / (alpha * sum of the sample weights).
    loss : {"logistic", "squared", "squared_hinge"}
        ``squared`` is (y - m)^2, without 1/2.
    intercept : bool
        Whether b is free; it is never penalised.
    tol : float
        Relative duality gap (P - D) / P at which to stop.
    memory : int or str
        Budget in bytes or as "4GiB"; covers the whole process.
    max_time, max_passes : float (seconds), int
        Stop earlier, with the best model so far and a ConvergenceWarning. Pass 0, which prices the null
        model, does not count.
    valid, valid_fraction
        Rows to measure average precision on (squared loss: mean squared error) after each pass: a data
        set, or the share of rows to set aside.
    block_rows : int
        Rows a block, a multiple of 64, at most 65536.
    scratch : path
        Folder of the scratch file that holds prepared rows when the budget cannot.
    progress : callable
        Gets the events of :mod:`fcl.drivers.events`.
    should_stop : callable
        Polled between steps; True ends the run with the best model so far.

    Returns
    -------
    TrainResult
        A ``KeyboardInterrupt`` gives a result with ``converged = False`` too; before the first pass is
        done there is none to give, and it is raised.

    Raises
    ------
    InputError
        Data or options are unusable; the message names array, row or option.
    """
    job = make_job(
        data,
        features,
        C=C,
        alpha=alpha,
        loss=loss,
        intercept=intercept,
        tol=tol,
        memory=memory,
        max_time=max_time,
        max_passes=max_passes,
        seed=seed,
        valid=valid,
        valid_fraction=valid_fraction,
        block_rows=block_rows,
    )
    run = _Run(job, progress or (lambda event: None), should_stop or (lambda: False))
    result = run.train(scratch)
    if not result.converged:
        warnings.warn(result.message, ConvergenceWarning, stacklevel=2)
    return result


class _Interrupted(KeyboardInterrupt):
    """``should_stop`` asked for an end; before the first certificate there is no result to give."""


@dataclass
class _Run:
    job: Job
    report: Progress
    should_stop: Callable[[], bool]
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    fingerprint: str = ""
    valid_margins: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

    @contextmanager
    def _timed(self, step: str) -> Iterator[None]:
        self._poll()
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[step] = self.seconds.get(step, 0.0) + spent

    def _poll(self) -> None:
        if self.should_stop():
            raise _Interrupted

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.begun

    # -- the run -------------------------------------------------------------------------------

    def train(self, scratch: str | os.PathLike[str] | None) -> TrainResult:
        job, options = self.job, self.job.options
        y = job.train.y
        self.report(
            Started(
                plan=job.plan,
                options=asdict(options),
                n_rows=job.train.n,
                n_features=job.family.n_features,
                C=options.C,
                alpha=options.alpha,
                n_positive=int((y > 0).sum()) if job.loss.classifies else None,
            )
        )
        start = time.perf_counter()
        prepared = job.prepare(job.train, scratch, self._poll)
        valid = job.prepare(job.valid, scratch, self._poll) if job.valid else None
        # now, not at the end: a source that is gone by then must not cost the model
        self.fingerprint = job.train.data.fingerprint()
        if job.valid:
            self.valid_margins = np.empty(job.valid.n)
        spent = time.perf_counter() - start
        self.seconds["read"] = spent
        n_read = job.train.n + (job.valid.n if job.valid else 0)
        self.report(Prepared(spent, n_read / max(spent, 1e-9)))
        try:
            return self._solve(prepared, valid)
        finally:
            prepared.close()
            if valid is not None:
                valid.close()

    def _solve(self, prepared: PreparedRows, valid: PreparedRows | None) -> TrainResult:
        job, options = self.job, self.job.options
        with self._timed("start"):
            plan = job.plan_with([prepared] if valid is None else [prepared, valid])
            cache = ColumnCache(plan.cache_bytes, plan.max_columns, job.train.n, options.block_rows)
            solver = Solver(
                job.objective(),
                job.family,
                prepared,
                cache,
                tol=options.tol,
                entries=plan.entries,
                staging=plan.staging,
                seed=options.seed,
            )
        certified: Certified | None = None
        beta, evicted, idle = 0.0, 0, 0
        try:
            while True:
                before = certified
                with self._timed("pricing"):
                    certified = solver.price()
                idle = 0 if certified.progressed(before) else idle + 1
                passes = len(self.history)
                self._passed(solver, certified, beta, evicted, valid)
                reason = self._reason(certified, passes, idle)
                if reason:
                    break
                with self._timed("columns"):
                    evicted = solver.admit().evicted
                with self._timed("descent"):
                    solver.train()
                with self._timed("margins and search"):
                    beta = solver.propose(solver.proposal())
        except KeyboardInterrupt:
            if certified is None:
                raise
            certified = solver.certified()  # the anchor may be newer than the last pricing
            reason = "interrupted"
        return self._result(solver, certified, reason)

    def _reason(self, certified: Certified, passes: int, idle: int) -> str:
        options = self.job.options
        if certified.gap <= options.tol:
            return "tolerance"
        if options.max_passes is not None and passes >= options.max_passes:
            return "max-passes"
        if options.max_time is not None and self.elapsed >= options.max_time:
            return "max-time"
        return "stalled" if idle >= MAX_IDLE else ""

    def _passed(
        self,
        solver: Solver,
        certified: Certified,
        beta: float,
        evicted: int,
        valid: PreparedRows | None,
    ) -> None:
        cache = solver.cache
        scores = None
        if valid is not None:
            with self._timed("validation"):
                scores = self._validate(solver.outer.point, valid)
        event = PassDone(
            number=len(self.history),
            seconds=self.elapsed,
            objective=certified.objective,
            bound=certified.bound,
            gap=certified.gap,
            max_violation=certified.max_violation,
            priced=certified.n_priced,
            cached=cache.n,
            active=len(solver.outer.point.ids),
            cache_bytes=cache.used,
            cache_capacity=cache.capacity,
            evicted=evicted,
            rows_per_second=(len(self.history) + 1)
            * self.job.train.n
            / max(self.seconds.get("pricing", 0.0), 1e-9),
            memory_bytes=peak_memory(),
            beta=beta,
            validation=scores,
            time_left=None
            if self.job.options.max_time is None
            else max(0.0, self.job.options.max_time - self.elapsed),
        )
        self.history.append(event.to_dict())
        self.report(event)

    def _validate(self, point: Point, valid: PreparedRows) -> dict[str, Any]:
        rows = self.job.valid
        assert rows is not None
        margins = self.valid_margins
        self.job.family.write_margins(valid, point.ids, point.weights, margins)
        margins += point.intercept
        if self.job.loss.classifies:
            auprc = average_precision(rows.y, margins)
            return {"auprc": None if math.isnan(auprc) else auprc, "n_rows": rows.n}
        error = float(np.average((rows.y - margins) ** 2, weights=rows.s))
        return {"mse": error, "n_rows": rows.n}

    def _result(self, solver: Solver, certified: Certified, reason: str) -> TrainResult:
        job, options = self.job, self.job.options
        point = solver.outer.point
        certificate = Certificate(
            objective=certified.objective,
            bound=certified.bound,
            gap=certified.gap,
            max_violation=certified.max_violation,
            n_priced=certified.n_priced,
            passes=len(self.history),
        )
        support = solver.passes.pricer.sums(np.ones(job.train.n), point.ids)
        model = Model(
            family=job.family,
            ids=point.ids,
            weights=point.weights,
            support=np.rint(support).astype(np.int64),
            intercept=point.intercept,
            loss=job.loss.name,
            C=options.C,
            alpha=options.alpha,
            labels=job.labels,
            n_rows=job.train.n,
            sum_weights=job.sum_weights,
            fingerprint=self.fingerprint,
            certificate=certificate,
            options={**asdict(options), "C_min": solver.outer.C_min},
            history=self.history,
        )
        message = _words(reason, certificate, options.tol)
        peak = peak_memory()
        self.report(Stopped(reason, message, certificate, dict(self.seconds), peak))
        return TrainResult(
            model,
            reason == "tolerance",
            reason,
            message,
            dict(self.seconds),
            peak,
            len(self.history),
        )


def _words(reason: str, certificate: Certificate, tol: float) -> str:
    reached = f"relative gap {certificate.gap:.2e}, asked {tol:.2e}"
    return {
        "tolerance": f"converged: {reached}",
        "max-passes": f"stopped by the limit of passes: {reached}; raise max_passes or tol",
        "max-time": f"stopped by the limit of time: {reached}; raise max_time or tol",
        "interrupted": f"interrupted: {reached}",
        "stalled": f"no step lowers the objective any more (rounding): {reached}; raise tol",
    }[reason]


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    Not ``ru_maxrss`` where it can be helped: on Linux a child begins with that of the process that
    started it.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return 1024 * int(line.split()[1])
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
