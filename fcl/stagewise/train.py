"""From a data set to a stagewise model."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fcl import kernels
from fcl.clock import Clock
from fcl.data.dataset import DataSet
from fcl.data.prepared import PreparedRows
from fcl.drivers.saving import was_saved
from fcl.errors import ConvergenceWarning
from fcl.facts import Fact
from fcl.features import Spec
from fcl.memory.meter import peak_memory
from fcl.parallel import Team, one_blas_thread, threads_of_job
from fcl.plain import plain
from fcl.run.events import BlockVisited, Event, Started
from fcl.run.reasons import StopReason
from fcl.run.reporter import Reporter
from fcl.run.result import RunResult
from fcl.stagewise.blocks import Part
from fcl.stagewise.certify import JointGap, certify, check_certifiable
from fcl.stagewise.checkpoint import SavedState, StateFolder
from fcl.stagewise.describe import end_in_words, place_of, scores_text, unvisited
from fcl.stagewise.job import StagewiseJob, make_job
from fcl.stagewise.learner import StagewiseLearner, State, block_count
from fcl.stagewise.margins import verify_state
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.plan import tile_rows
from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import Sweeper
from fcl.stagewise.targets import Targets
from fcl.units import format_gap, format_seconds


@dataclass(frozen=True)
class StagewiseRunOptions:
    """How a job runs; nothing here changes a bit of the model.

    cores : number of threads; None: all that the process may use.
    scratch : folder for prepared rows that do not fit in memory; None: the system's.
    certify : whether to compute the gap to the joint optimum at the end.
    max_time : seconds, since the first block began without the time of compilation, after which no
        further block begins.
    checkpoint_every : seconds between checkpoints.
    command : options that checkpoints keep for the command.
    progress : called with each event of :mod:`fcl.run.events`; it may end the training as the
        callback of :func:`fcl.train` does.
    should_stop : called after each block; True ends the training.
    """

    cores: int | None = None
    scratch: str | None = None
    certify: bool = False
    max_time: float | None = None
    checkpoint: StateFolder | None = None
    checkpoint_every: float = 300.0
    resume: SavedState | None = None
    command: dict[str, Any] = field(default_factory=dict)
    progress: Callable[[Event], Any] | None = None
    should_stop: Callable[[], bool] = lambda: False

    @property
    def threads(self) -> int:
        """Number of threads."""
        return threads_of_job(self.cores)

    def report(self, event: Event) -> None:
        """Pass an event to ``progress``."""
        if self.progress is not None:
            self.progress(event)


@dataclass(frozen=True, kw_only=True)
class StagewiseResult(RunResult):
    """A trained model, and how the training ended.

    Attributes
    ----------
    model : StagewiseModel
    reason : StopReason
    message : str
        Why and where the training ended, in words.
    seconds : dict of str to float
        Time of the visits, and of the certificate.
    peak_memory : int
        Bytes.
    checkpoint_failed : bool
        Whether the last checkpoint could not be written; the model is not affected.
    gap : JointGap or None
    visit_seconds : float
        Time that a further visit of all blocks would take, by the last visit of each block.
    """

    model: StagewiseModel
    gap: JointGap | None
    visit_seconds: float

    def facts(self) -> list[Fact]:
        """How the training ended, as data and in words."""
        model, facts = self.model, [self.stopped_fact()]
        if model.history:
            best = scores_text(model.history[model.best_number - 1])
            where = place_of(model, model.best_number)
            facts.append(Fact("weights", f"after {where}: {best}", model.best_number))
        if self.gap is not None:
            text = (
                f"at most {format_gap(self.gap.gap)} to the joint optimum over "
                f"{self.gap.n_features:,} features, a bound that is loose far from the optimum; a "
                f"further visit takes about {format_seconds(self.visit_seconds)}"
            )
            facts.append(Fact("gap", text, self.gap.gap))
        return facts


def train_stagewise(
    data: DataSet,
    features: Spec | str,
    settings: Settings | None = None,
    valid: DataSet | None = None,
    numbers: bool = False,
    running: StagewiseRunOptions | None = None,
) -> StagewiseResult:
    """Train a ridge model by stages over blocks of generated features.

    Warns (:class:`fcl.ConvergenceWarning`) if the patience runs out before each block was visited.

    data : rows with a target; numbers may have several columns.
    features : a family with a number of features that makes its columns: ``"fourier:n=8192"``,
        ``"columns"``, or your own.
    valid : rows to validate on, in place of a share of ``data``.
    numbers : whether the target is numeric; False: classes, or labels as columns of 0 and 1.

    Raises BudgetError: the memory budget is too small.
    """
    settings, running = settings or Settings(), running or StagewiseRunOptions()
    if running.certify:
        check_certifiable(settings.checked())
    resumed = None if running.resume is None else running.resume.family
    job = make_job(
        data, features, settings, valid, numbers, running.threads, running.certify, resumed
    )
    if running.resume is not None:
        running.resume.check(job)
    reporter = Reporter(running.progress, running.should_stop)
    running = replace(running, progress=reporter.report, should_stop=reporter.should_stop)
    running.report(_started(job))
    team = Team(running.threads)
    with ExitStack() as stack:
        stack.callback(team.close)
        if running.checkpoint is not None:
            stack.enter_context(running.checkpoint.lock)
        stack.enter_context(one_blas_thread())
        parts = stack.enter_context(_prepared(job, running))
        sweeper = Sweeper(job.settings.link, team)
        state = None if running.resume is None else running.resume.state
        learner = StagewiseLearner(job.family, job.settings, parts, sweeper, job.plan, state)
        if state is not None:
            verify_state(learner)
        since = time.monotonic()
        reason, saved = _run(job, learner, running)
        seconds = {"visits": time.monotonic() - since}
        gap = None
        if running.certify and reporter.error is None:
            since = time.monotonic()
            gap = certify(learner)
            seconds["certificate"] = time.monotonic() - since
    result = _result(job, learner, reporter.cause(reason), gap, seconds, not saved)
    if reason is StopReason.PATIENCE and (text := unvisited(result.model)):
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    running.report(result.stopped(gap, result.model.best_number))
    return reporter.finish(result)


def _started(job: StagewiseJob) -> Started:
    n_features, settings = job.family.n_features, job.settings
    return Started(
        plan=job.plan,
        options=asdict(settings),
        n_rows=job.train.n,
        n_features=n_features,
        C=None,
        alpha=settings.alpha,
        learner="stagewise",
        n_valid=0 if job.valid is None else job.valid.n,
        n_outputs=job.n_outputs,
        n_steps=settings.n_rounds * settings.n_visits * block_count(n_features, settings.block),
    )


@contextmanager
def _prepared(job: StagewiseJob, running: StagewiseRunOptions) -> Iterator[list[Part]]:
    """Read the rows once, into the family's compact form."""
    height, K = tile_rows(job.family), job.n_outputs
    folder = os.fspath(running.scratch or tempfile.gettempdir()) if job.plan.scratch else None
    with ExitStack() as stack:
        parts = []
        for rows in job.rows:
            shape = job.family.record_shape(height)
            prepared = PreparedRows(rows.n, height, shape, folder)
            stack.callback(prepared.close)
            for _ in job.family.fill(prepared, rows.data.rows, rows.keep):
                pass
            rows.data.check_unchanged()
            offset = None if rows.offset is None else np.atleast_2d(rows.offset).T
            targets = Targets(rows.y, job.noun, K)
            parts.append(Part(prepared, targets, rows.s, np.empty((0, K)), offset))
        yield parts


def _run(
    job: StagewiseJob, learner: StagewiseLearner, running: StagewiseRunOptions
) -> tuple[StopReason, bool]:
    """Visit the blocks; returns why the training ended, and whether the last state was saved."""
    saved_at, clock = time.monotonic(), Clock()
    clock.start()

    def save() -> bool:
        folder = running.checkpoint
        if folder is None or not learner.state.history:
            return True
        return was_saved(lambda: folder.save(_saved(job, learner.state, running)))

    with kernels.compilation.Compilation(lambda: None, clock):
        for done in learner.run():
            of_round = job.settings.visits_of_round
            left = _seconds_left(learner)
            running.report(
                BlockVisited(
                    **asdict(done),
                    n_blocks=learner.n_blocks,
                    visits_of_round=of_round,
                    time_left=left,
                )
            )
            if running.should_stop():
                return StopReason.INTERRUPTED, save()
            if running.max_time is not None and clock.seconds >= running.max_time:
                return StopReason.MAX_TIME, save()
            if time.monotonic() - saved_at >= running.checkpoint_every:
                save()
                saved_at = time.monotonic()
    return learner.state.end(job.settings) or StopReason.DONE, save()


def _saved(job: StagewiseJob, state: State, running: StagewiseRunOptions) -> SavedState:
    family = plain(job.family.to_config())
    columns = job.train.data.column_record.summary
    return SavedState(job.settings, running.command, job.fingerprint, family, state, columns)


def _seconds_left(learner: StagewiseLearner) -> float:
    """The time that the blocks left will take: as long as the last visit of each, or as the others."""
    history, n = learner.state.history, learner.n_blocks
    mean = sum(done.seconds for done in history[-n:]) / min(n, len(history))
    return mean * (learner.n_steps - len(history))


def _result(
    job: StagewiseJob,
    learner: StagewiseLearner,
    reason: StopReason,
    gap: JointGap | None,
    seconds: dict[str, float],
    checkpoint_failed: bool,
) -> StagewiseResult:
    state, n, data = learner.state, learner.n_blocks, job.train.data
    model = StagewiseModel(
        family=job.family,
        weights=state.best,
        settings=job.settings,
        noun=job.noun,
        labels=job.labels or data.target_columns,
        history=[asdict(done) for done in state.history],
        best_number=state.best_number,
        n_rows=job.train.n,
        fingerprint=data.fingerprint(),
        has_offset=data.offset is not None,
        column_record=data.column_record.part(),
        certificate=gap,
    )
    last = [done.seconds for done in state.history[-n:]]
    return StagewiseResult(
        model=model,
        reason=reason,
        message=end_in_words(model, reason),
        seconds=seconds,
        peak_memory=peak_memory(),
        checkpoint_failed=checkpoint_failed,
        gap=gap,
        visit_seconds=sum(last) * n / max(1, len(last)),
    )
