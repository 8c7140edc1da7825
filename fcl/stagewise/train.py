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
from fcl.drivers.events import Event
from fcl.drivers.reporting import Reporter
from fcl.drivers.saving import was_saved
from fcl.errors import ConvergenceWarning
from fcl.facts import Fact
from fcl.features import Spec
from fcl.parallel import Team, one_blas_thread, threads_of_job
from fcl.plain import plain
from fcl.stagewise.blocks import Part
from fcl.stagewise.certify import JointGap, certify, check_certifiable
from fcl.stagewise.checkpoint import SavedState, StateFolder
from fcl.stagewise.describe import end_in_words, place_of, scores_text, unvisited
from fcl.stagewise.events import BlockVisited, StagewiseStarted, StagewiseStopped
from fcl.stagewise.job import StagewiseJob, make_job
from fcl.stagewise.learner import StagewiseLearner, State, block_count
from fcl.stagewise.margins import verify_state
from fcl.stagewise.model import StagewiseModel
from fcl.stagewise.plan import tile_rows
from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import Sweeper
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
    progress : called with each event of :mod:`fcl.stagewise.events`; it may end the training as the
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


@dataclass(frozen=True)
class StagewiseResult:
    """A trained model, and how the training ended.

    reason : {"done", "patience", "max-time", "interrupted"}
    visit_seconds : time that a further visit of all blocks would take, by the last visit of each block.
    checkpoint_failed : whether the last checkpoint could not be written; the model is not affected.
    """

    model: StagewiseModel
    reason: str
    gap: JointGap | None
    visit_seconds: float
    checkpoint_failed: bool = False

    @property
    def message(self) -> str:
        """Why and where the training ended, in words."""
        return end_in_words(self.model, self.reason)

    def facts(self) -> list[Fact]:
        """How the training ended, as data and in words."""
        model, facts = self.model, [Fact("stopped", self.message, self.reason)]
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
        reason, saved = _run(job, learner, running)
        gap = certify(learner) if running.certify and reporter.error is None else None
    result = replace(_result(job, learner, reason, gap), checkpoint_failed=not saved)
    if reason == "patience" and (text := unvisited(result.model)):
        warnings.warn(text, ConvergenceWarning, stacklevel=2)
    final = None if gap is None else gap.gap
    visited, best = len(learner.state.history), learner.state.best_number
    running.report(StagewiseStopped(reason, visited, best, final))
    return reporter.finish(result)


def _started(job: StagewiseJob) -> StagewiseStarted:
    valid = job.rows[1].n if len(job.rows) > 1 else 0
    n_features, settings = job.family.n_features, job.settings
    steps = settings.n_rounds * settings.n_visits * block_count(n_features, settings.block)
    width = job.targets[0].width
    return StagewiseStarted(job.plan, job.rows[0].n, valid, n_features, width, steps)


@contextmanager
def _prepared(job: StagewiseJob, running: StagewiseRunOptions) -> Iterator[list[Part]]:
    """Read the rows once, into the family's compact form."""
    height, K = tile_rows(job.family), job.targets[0].width
    folder = os.fspath(running.scratch or tempfile.gettempdir()) if job.plan.scratch else None
    with ExitStack() as stack:
        parts = []
        for rows, targets in zip(job.rows, job.targets, strict=True):
            shape = job.family.record_shape(height)
            prepared = PreparedRows(rows.n, height, shape, folder)
            stack.callback(prepared.close)
            for _ in job.family.fill(prepared, rows.data.rows, rows.keep):
                pass
            rows.data.check_unchanged()
            parts.append(Part(prepared, targets, rows.s, np.empty((0, K)), rows.offset))
        yield parts


def _run(
    job: StagewiseJob, learner: StagewiseLearner, running: StagewiseRunOptions
) -> tuple[str, bool]:
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
            running.report(BlockVisited.of(done, learner.n_blocks, of_round, left))
            late = running.max_time is not None and clock.seconds >= running.max_time
            if running.should_stop() or late:
                return ("interrupted" if running.should_stop() else "max-time"), save()
            if time.monotonic() - saved_at >= running.checkpoint_every:
                save()
                saved_at = time.monotonic()
    return learner.state.end(job.settings) or "done", save()


def _saved(job: StagewiseJob, state: State, running: StagewiseRunOptions) -> SavedState:
    family = plain(job.family.to_config())
    columns = job.rows[0].data.column_record.summary
    return SavedState(job.settings, running.command, job.fingerprint, family, state, columns)


def _seconds_left(learner: StagewiseLearner) -> float:
    """The time that the blocks left will take: as long as the last visit of each, or as the others."""
    history, n = learner.state.history, learner.n_blocks
    mean = sum(done.seconds for done in history[-n:]) / min(n, len(history))
    return mean * (learner.n_steps - len(history))


def _result(
    job: StagewiseJob, learner: StagewiseLearner, reason: str, gap: JointGap | None
) -> StagewiseResult:
    state, n = learner.state, learner.n_blocks
    model = StagewiseModel(
        family=job.family,
        weights=state.best,
        settings=job.settings,
        noun=job.targets[0].noun,
        labels=job.targets[0].labels or job.rows[0].data.target_columns,
        history=[asdict(done) for done in state.history],
        best_number=state.best_number,
        n_rows=job.rows[0].n,
        fingerprint=job.rows[0].data.fingerprint(),
        has_offset=job.rows[0].offset is not None,
        column_record=job.rows[0].data.column_record.part(),
        certificate=gap,
    )
    last = [done.seconds for done in state.history[-n:]]
    return StagewiseResult(model, reason, gap, sum(last) * n / max(1, len(last)))
