"""What all drivers share: clocks, events, history, stopping rules, and the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fcl import kernels
from fcl.clock import Clock
from fcl.drivers.finished import in_solver_units, model_at
from fcl.drivers.job import Job
from fcl.drivers.kinds import JOB_SECONDS
from fcl.drivers.result import TrainResult, end_in_words
from fcl.drivers.saving import Saver
from fcl.features.base import is_sampled
from fcl.files.checkpoint import Checkpoint
from fcl.files.same_job import JobFacts
from fcl.model.certificate import Certificate, Scope
from fcl.run.events import (
    Compiled,
    Compiling,
    Event,
    PassDone,
    Prepared,
    Started,
    StepProgress,
    Validated,
)
from fcl.run.held_out import HeldOutScores, Patience
from fcl.run.reasons import StopReason
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import MOST_ROUNDING, Passes
from fcl.solve.run_state import BestPass, RunState
from fcl.solve.state import Point

Progress = Callable[[Event], None]

#: Passes in a row without progress after which a run ends if rounding explains the gap ...
MAX_IDLE = 4
#: ... and after which it ends in any case.
PATIENCE = 30
#: Passes from which the time left is estimated.
ESTIMATED_FROM = 3
#: Seconds between two progress events within a pass; shorter passes report no progress.
PROGRESS_EVERY = 2.0


def started(job: Job, learner: str = "train") -> Started:
    """The event of the start of a job."""
    y, options = job.train.y, job.options
    return Started(
        plan=job.plan,
        options=options.of_job(),
        n_rows=job.train.n,
        n_features=job.family.n_features,
        C=options.C,
        alpha=options.alpha,
        n_positive=int((y > 0).sum()) if job.loss.classifies and job.n_outputs == 1 else None,
        n_sampled=len(job.family.features_in_pass(0)) if is_sampled(job.family) else None,
        driver_in_words=job.driver_in_words,
        learner=learner,
        n_valid=0 if job.valid is None else job.valid.n,
        n_outputs=job.n_outputs,
    )


@dataclass
class Session:
    """One run of a job, with any driver."""

    job: Job
    report: Progress
    should_stop: Callable[[], bool]
    saver: Saver
    resumed: Checkpoint | None = None
    start: Point | None = None  #: the initial point, in the user's units
    seconds: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)
    fingerprint: str = ""
    state: RunState | None = None  #: to resume from; None if it was saved before the first pass
    idle: int = 0  #: passes in a row without progress
    ending: bool = False  #: whether a request to stop comes too late
    lacking: str = ""  #: the memory that the run lacks, and what to do; empty if it lacks none
    rounding: float = math.nan  #: relative gap that rounding can cause, once it was estimated
    compile_seconds: float = JOB_SECONDS  #: estimated, if the cache lacks kernels
    #: what ``max_time`` limits: the time since the first pass began, without that of compiling
    clock: Clock = field(default_factory=Clock)
    #: names the callback in the reason of an end that it asked for
    cause: Callable[[StopReason], StopReason] = lambda reason: reason

    def __post_init__(self) -> None:
        self.compilation = kernels.compilation.Compilation(
            lambda: self.report(Compiling(self.compile_seconds)), self.clock
        )
        self._made = time.monotonic()  # a path begins before the sessions of its points
        self._progress_from = self.begun + PROGRESS_EVERY
        self.patience = Patience(self.job.options.patience)
        self._saved: RunState | None = None
        if self.resumed is not None:
            self._saved = saved = RunState.from_file(self.resumed.state, self.resumed.arrays)
            if self.resumed.history:
                self.history.extend(self.resumed.history)
                self.state, self.idle = saved, saved.idle
                best = saved.best_pass
                if best is not None and best.number >= len(self.history):
                    best = None  # forged
                self.patience.best = None if self.patience.most is None else best

    def at(self, job: Job) -> Session:
        """A session of the same run for the same job at another C."""
        other = Session(
            job,
            self.report,
            self.should_stop,
            self.saver,
            begun=self.begun,
            fingerprint=self.fingerprint,
            clock=self.clock,
        )
        other.compilation = self.compilation
        return other

    @property
    def elapsed(self) -> float:
        """Seconds since the start of this run."""
        return time.monotonic() - self.begun

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        """Add the wall time of the body to the time of a step."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent(step, time.perf_counter() - start)

    def spent(self, step: str, seconds: float) -> None:
        """Add seconds to the time of a step."""
        self.seconds[step] = self.seconds.get(step, 0.0) + seconds

    def poll(self) -> None:
        """Save a checkpoint that is due; raises KeyboardInterrupt if ``should_stop`` returns True."""
        if self.should_stop():
            raise KeyboardInterrupt
        self.saver.poll()

    # -- the beginning -------------------------------------------------------------------------

    def started(self) -> None:
        """Report the start, with the plan."""
        self.report(started(self.job))

    def reading(self, share: float) -> None:
        """Poll, and report the share of the rows that are read."""
        self.poll()
        self.working("reading", share)

    def prepared(self, seconds: float, checksums: Callable[[], np.ndarray]) -> None:
        """Report that the rows are read; a resumed job first compares them with its checkpoint.

        seconds : time that reading took.
        checksums : returns uint64 (n_blocks,), the checksums of the prepared training rows; called if
            they are needed.

        Raises InputError: the data differ from the data of the checkpoint.
        """
        # computed now: if the source has disappeared by the end, the model must not be lost
        self.fingerprint = self.job.train.data.fingerprint()
        needed = self.resumed is not None or self.saver.saves
        sums = checksums() if needed else np.empty(0, np.uint64)
        if self.resumed is not None:
            now = JobFacts(
                self.job.options.of_job(),
                self.fingerprint,
                self.job.train.data.column_record.summary,
                checksums=sums,
            )
            self.resumed.check_job(now)
        self.saver.describe(self.job, self.fingerprint, sums, self.history)
        self.seconds["read"] = seconds
        n_read = self.job.train.n + (self.job.valid.n if self.job.valid else 0)
        self.report(Prepared(seconds, n_read / max(seconds, 1e-9)))

    def compiled(self) -> None:
        """Report how long compiling took, if anything was compiled."""
        if seconds := self.compilation.take():
            self.report(Compiled(seconds))

    # -- passes --------------------------------------------------------------------------------

    def working(self, step: str, share: float) -> None:
        """Report the share of a step that is done, at most once in PROGRESS_EVERY seconds."""
        now = time.monotonic()
        if now >= self._progress_from:
            self._progress_from = now + PROGRESS_EVERY
            self.report(StepProgress(len(self.history), step, share, now - self.begun))

    def counted(self, before: Certified | None, now: Certified) -> None:
        """Count a pass without progress, or start the count again."""
        self.idle = 0 if now.progressed(before) else self.idle + 1

    def reason(self, certified: Certified, rounding: Callable[[], float]) -> StopReason | None:
        """Why to stop after this pass; None to continue.

        rounding : returns the relative gap that rounding alone can cause.
        """
        options = self.job.options
        if certified.gap <= options.tol:
            return StopReason.TOLERANCE
        if self.patience.ran_out(self.history):
            return StopReason.PATIENCE
        # pass 0, of the null model, does not count
        if options.max_passes is not None and len(self.history) > options.max_passes:
            return StopReason.MAX_PASSES
        if self.out_of_time:
            return StopReason.MAX_TIME
        return self.stalled(certified, rounding)

    def stalled(self, certified: Certified, rounding: Callable[[], float]) -> StopReason | None:
        """Why to stop because of passes without progress; None to continue."""
        if self.idle < MAX_IDLE or (certified.scope is not Scope.FAMILY and self.idle < PATIENCE):
            return None
        self.rounding = min(rounding(), 1.0)
        # a larger estimate would explain any gap
        if certified.gap <= self.rounding <= MOST_ROUNDING:
            return StopReason.STALLED
        if self.lacking:
            return StopReason.MEMORY
        return StopReason.NO_PROGRESS if self.idle >= PATIENCE else None

    def short_of_memory(self, error: Exception) -> StopReason:
        """Why a run ends that can allocate no more; its best model is kept."""
        words = str(error) or "memory: no more could be allocated"
        self.lacking = f"{words}; free memory, then resume from a checkpoint, or start again"
        return StopReason.MEMORY

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit is reached."""
        limit = self.job.options.max_time
        return limit is not None and self.clock.seconds >= limit

    def passed(self, certified: Certified, **measured: Any) -> None:
        """Report a pass and add it to the history.

        measured : the remaining fields of :class:`PassDone`.
        """
        event = PassDone(
            number=len(self.history),
            seconds=self.elapsed,
            objective=certified.objective,
            bound=certified.bound,
            gap=certified.gap,
            max_violation=certified.max_violation,
            priced=certified.n_priced,
            scope=certified.scope.text(certified.n_priced),
            time_left=self._time_left(certified.gap),
            **measured,
        )
        first = self.resumed is not None and event.number == len(self.resumed.history) > 0
        self.history.append({**event.to_dict(), **({"resumed": True} if first else {})})
        self.report(event)
        self._progress_from = time.monotonic() + PROGRESS_EVERY
        if event.number > 0:  # every step has run once, so all kernels are compiled
            self.compiled()

    def _time_left(self, gap: float) -> float | None:
        """Estimated seconds to the tolerance or the time limit; None without an estimate.

        It assumes that the gap continues to fall at the geometric rate of the last few passes.
        """
        limit = self.job.options.max_time
        left = math.inf if limit is None else max(0.0, limit - self.clock.seconds)
        earlier = 0 if self.resumed is None else len(self.resumed.history)
        recent = [r for r in self.history[earlier:][-ESTIMATED_FROM:] if r["gap"]]
        if len(recent) == ESTIMATED_FROM and 0.0 < gap < recent[0]["gap"]:
            fall = math.log(recent[0]["gap"] / gap) / (self.elapsed - recent[0]["seconds"])
            to_go = math.log(max(gap / self.job.options.tol, 1.0))
            left = min(left, to_go / fall)
        return left if math.isfinite(left) else None

    def validated(self, number: int, scores: Mapping[str, Any]) -> None:
        """Record and report the scores of a pass's anchor, after the pass itself was reported."""
        self.history[number]["validation"] = dict(scores)
        self.report(Validated(number, scores))

    def scores(self, number: int, point: Point, scores: HeldOutScores) -> dict[str, Any]:
        """The scores at the anchor of a pass by name (None if undefined), and the number of rows."""
        rows = self.job.valid
        assert rows is not None
        found = {self.job.loss.metric: None if math.isnan(scores.metric) else scores.metric}
        if self.patience.most is not None:
            found["loss"] = None if math.isnan(scores.loss) else scores.loss
            self.patience.measured(number, scores.loss, point)
        return {**found, "n_rows": rows.n}

    def first_point(self) -> Point | None:
        """The checkpoint's untried point, or else the initial point, in the solver's units; or None.

        Call it once the features are measured.
        """
        if self._saved is not None:
            return self._saved.untried
        return None if self.start is None else in_solver_units(self.job.family, self.start)

    # -- the end -------------------------------------------------------------------------------

    def result(
        self, outer: Outer, passes: Passes, reason: StopReason, peak_memory: Callable[[], int]
    ) -> TrainResult:
        """Report the end, and return the model at the anchor with the reason to stop.

        outer, passes : of the run; the margins of the anchor are written.
        peak_memory : returns the peak memory in bytes; called after the last long computation.
        """
        job, options, reason = self.job, self.job.options, self.cause(reason)
        best = None if reason is StopReason.TOLERANCE else self._back_to_best(outer, passes)
        point, certified = outer.point, outer.certified()  # perhaps newer than the last pricing
        shift = float(np.abs(job.intercept_shift).max())
        violation, resolved = passes.resolved(point, shift, outer.reach, certified.max_violation)
        # C_min of a sample does not cover the other features; it is infinite if the null model was priced
        # only before a checkpoint
        known = certified.scope is Scope.FAMILY and math.isfinite(outer.C_min)
        certificate = Certificate(
            objective=certified.objective,
            bound=certified.bound,
            gap=certified.gap,
            max_violation=violation,
            n_priced=certified.n_priced,
            scope=certified.scope,
            passes=len(self.history),
            violation_resolved=resolved,
        )
        model = model_at(
            job,
            passes,
            point,
            certificate,
            fingerprint=self.fingerprint,
            C_min=outer.C_min if known else None,
            history=self.history,
        )
        peak = peak_memory()
        message = end_in_words(reason, certificate, options.tol, self.rounding, self.lacking)
        if best is not None:
            where = f"pass {best.number}, of the lowest held-out loss {best.loss:.6g}"
            message += f"; the model is that of {where}"
        self.compiled()
        found = TrainResult(
            model=model,
            reason=reason,
            message=message,
            seconds=dict(self.seconds),
            peak_memory=peak,
            checkpoint_failed=self.saver.failed,
            passes=len(self.history),
            limit_seconds=self.clock.seconds,
            best_pass=None if best is None else best.number,
            wall_seconds=time.monotonic() - self._made,
        )
        self.report(found.stopped(certificate, found.best_pass))
        return found

    def _back_to_best(self, outer: Outer, passes: Passes) -> BestPass | None:
        """Make the point of the lowest held-out loss the anchor; its objective is computed again."""
        best = self.patience.best
        if best is None or (best.number == len(self.history) - 1 and outer.priced):
            return best  # the anchor is that of the last pass
        passes.write_margins(best.point, passes.blocks)
        margins = passes.vectors.proposed
        passes.objective.add_covariates(best.point.covariates, margins)
        value = passes.value(best.point, margins)
        if not math.isfinite(value):  # of a forged checkpoint
            return None
        passes.vectors.anchor = 1 - passes.vectors.anchor
        outer.accept(best.point, value)
        return best
