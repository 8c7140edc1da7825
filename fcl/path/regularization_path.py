"""A path over one set of rows: all training rows, or the training rows of one fold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fcl.drivers.inline import InlineRun
from fcl.drivers.job import Job
from fcl.drivers.processes.supervisor import Supervisor
from fcl.drivers.result import TrainResult
from fcl.drivers.saving import was_saved
from fcl.drivers.train import start_point
from fcl.files.same_job import JobFacts
from fcl.objective import resolve_C
from fcl.objective.metrics import auroc
from fcl.path.grid import Grid, resolve_grid
from fcl.path.jobs import PathJobs
from fcl.path.result import PathPoint
from fcl.path.running import PathContext
from fcl.path.scores import bootstrap_error, empty_score, margins_on, ranking
from fcl.path.store import CUT, PathFolder, SavedPath
from fcl.run.events import PathStarted, PointStarted
from fcl.run.reasons import StopReason
from fcl.solve.state import Point
from fcl.types import Floats

#: A time limit in seconds that is over after the first pass.
SOON = 1e-9
#: Why to stop after these points; None to continue.
Reason = Callable[[list[PathPoint]], StopReason | None]

#: Number of features from which on the next point is guessed: trying a guess takes another pass, which a
#: small model does not save.
LEAST_EXTRAPOLATED = 200


def fixed_options(job: Job) -> dict[str, Any]:
    """The options of a job that do not change along the path."""
    options = job.options.of_job()
    return {name: value for name, value in options.items() if name not in ("C", "alpha")}


@dataclass(frozen=True)
class PathRows:
    """What a path trains on."""

    grid: Grid
    fold: int | None = None  #: train on the training rows of this fold; None: on all rows
    part: str = ""  #: name of the rows in events; empty for all
    bootstraps: bool = False  #: whether to measure the standard error of each score


class RegularizationPath:
    """A path at one C after the other, which is saved in ``store``, and extended where jobs run."""

    def __init__(
        self,
        jobs: PathJobs,
        rows: PathRows,
        running: PathContext,
        store: PathFolder | None = None,
    ) -> None:
        self._jobs, self._rows, self._running, self._store = jobs, rows, running, store
        saved = None if store is None else store.load()
        self._saved = saved or SavedPath([], None, np.empty(0))
        self.saved = True  #: whether the last points could be saved

    @property
    def part(self) -> str:
        """Name of the rows in events; empty for all."""
        return self._rows.part

    @property
    def points(self) -> list[PathPoint]:
        """The finished points."""
        return self._saved.points

    def grid_alphas(self, sum_weights: float) -> Floats:
        """Alphas of the whole grid, once it is known."""
        return 1.0 / (self._saved.values * sum_weights)

    @property
    def scores(self) -> Floats:
        """Scores of the points, float64 (points,)."""
        return np.array([point.score for point in self.points])

    def extend(self, enough: Reason, most: int | None = None) -> StopReason | None:
        """Add points until ``enough`` returns a reason, or there are ``most`` points.

        enough : called with all points, also before the first new one.  most : None: the whole grid.

        Returns None if ``most`` ended it.
        """
        points = len(self._saved.values) or self._rows.grid.points
        most = points if most is None else min(most, points)
        reason = enough(self.points) if self.points else None
        while reason is None and len(self.points) < most:
            executor = self._running.executor
            args = (self._rows, self._saved, enough, most)
            for saved, end in executor.stream(add_points, self._jobs, self._running, *args):
                is_new = len(saved.points) > len(self.points)
                self._saved, reason = saved, end
                if self._store is not None and (is_new or not self.saved):
                    self.saved = was_saved(partial(self._store.save, saved))
        return reason or (StopReason.DONE if len(self.points) >= points else None)


def add_points(
    jobs: PathJobs,
    running: PathContext,
    rows: PathRows,
    saved: SavedPath,
    enough: Reason,
    most: int,
) -> Iterator[tuple[SavedPath, StopReason | None]]:
    """Add points until ``enough`` returns a reason, there are ``most`` points, or the job pauses.

    Yields all points after each new one, and the reason of the last.
    """
    fit = _PathFit(jobs, running, rows, saved)
    with closing(fit.new_points()) as cuts:
        for cut in cuts:
            is_new = len(fit.points) > len(saved.points)
            saved = fit.saved()
            reason = cut or enough(saved.points)
            yield saved, reason
            if is_new:
                fit.report_last()
            done = reason is not None or len(saved.points) >= most
            if done or time.monotonic() >= running.pause_at:
                return


class _PathFit:
    """Trains at one C after the other, on the same prepared rows, and scores each model."""

    def __init__(
        self, jobs: PathJobs, running: PathContext, rows: PathRows, saved: SavedPath
    ) -> None:
        self._jobs, self._running, self._rows = jobs, running, rows
        self.points = list(saved.points)
        self._begun_with, self._state, self._values = saved, saved.state, saved.values
        #: the anchor at which the last point ended
        self._before = None if self._state is None else self._state.outer.point
        self._facts = JobFacts()  # of the job, once its rows are read
        self._empty = saved.points[0].empty if saved.points else math.nan

    def _make_job(self) -> Job:
        fold, saved = self._rows.fold, self._begun_with.checkpoint
        resumed = None if saved is None else saved.family
        if fold is None:
            return self._jobs.make_job(resumed=resumed)
        return self._jobs.make_fold_job(fold, self._running, resumed=resumed)

    def saved(self) -> SavedPath:
        """The points so far."""
        return SavedPath(list(self.points), self._state, self._values, self._facts)

    def report_last(self) -> None:
        """Report that the last point is done."""
        metric, part, point = self._jobs.loss.metric, self._rows.part, self.points[-1]
        C = self._C_of_all_rows(point.C, point.alpha)
        self._running.point_done(point, len(self._values), C, metric, part)

    def _C_of_all_rows(self, C: float, alpha: float) -> float:
        """The C of a point in the table of the path: folds have its alpha, and fewer rows."""
        return C if self._rows.fold is None else resolve_C(None, alpha, self._jobs.sum_weights)[0]

    def new_points(self) -> Generator[StopReason | None]:
        """Add a point at a time; yields None after each, or why the path was cut short."""
        first, running = len(self.points), self._running
        running.report(PathStarted(self._rows.part))
        job = self._make_job()
        if job.options.driver == "processes":
            yield from self._new_points_of_processes(job)
            return
        if first:
            job = job.at(self._values[first])
        session = running.session(job)
        session.state = self._state
        with session.compilation, InlineRun(session) as run:
            run.scores_passes = False
            self._facts = JobFacts(
                fixed_options(job),
                session.fingerprint,
                job.train.data.column_record.summary,
                job.family.to_config(),
                job.family.n_features,
                run.checksums,
                job.train.n,
            )
            if self._begun_with.checkpoint is not None:
                self._begun_with.checkpoint.check_job(self._facts)
            if not first:
                session.clock.start()
                run.solver.price()  # the null model, whose prices give C_min
                if job.valid is not None:
                    self._empty = empty_score(job, job.valid, run.scores().metric)
                C_min = run.solver.outer.C_min
                self._values = resolve_grid(self._rows.grid, C_min, job.sum_weights)
                self._move(run, 0)
            for number in range(first, len(self._values)):
                yield self._solve(run, number)

    def _move(self, run: InlineRun, number: int) -> None:
        """Continue at the C of a point, and keep the state from which a later run can do so, too."""
        self._state = None
        if number < len(self._values):
            ahead = self._extrapolate(run.solver.outer.point)
            run.change_session(run.session.at(run.job.at(float(self._values[number]))))
            self._state = replace(run.solver.snapshot(), untried=ahead)

    def _extrapolate(self, here: Point) -> Point | None:
        """A guess of the next point from the last two, which lie a constant factor of C apart."""
        before, self._before = self._before, here
        if before is None or len(here.ids) < LEAST_EXTRAPOLATED:
            return None
        return here.beyond(before)

    def _solve(self, run: InlineRun, number: int) -> StopReason | None:
        """Train at the C of the session, and add the point, unless it is cut short after others."""
        if number + 1 < len(self._values):
            run.solver.outer.look_ahead(float(self._values[number + 1]))
        untried = None if self._state is None else self._state.untried

        def measure(result: TrainResult) -> tuple[float, Floats]:
            return run.scores().metric, run.valid_margins

        cut = self._add(number, run.job, lambda: run.solve(untried), measure)
        if len(self.points) > number:
            self._move(run, number + 1)
        return cut

    def _add(
        self,
        number: int,
        job: Job,
        train: Callable[[], TrainResult],
        measure: Callable[[TrainResult], tuple[float, Floats]],
    ) -> StopReason | None:
        """Train, and add the point; if it is cut short after others, only return why.

        measure : returns the score on the validation rows, and their margins for its standard error.
        """
        since = time.perf_counter()
        C, alpha = job.options.C, job.options.alpha
        shown = self._C_of_all_rows(C, alpha)
        event = PointStarted(number + 1, len(self._values), shown, alpha, self._rows.part)
        self._running.report(event)
        try:
            result = train()
        except KeyboardInterrupt:
            if not self.points:
                raise
            return StopReason.INTERRUPTED
        cut = result.reason if result.reason in CUT else None
        if cut is not None and self.points:
            return cut
        score = se = area = math.nan
        if job.valid is not None:
            score, margins = measure(result)
            if self._rows.bootstraps:
                groups = self._jobs.groups
                se = bootstrap_error(job.loss, job.valid, margins, job.options.seed, groups)
            if ranking(job):
                area = auroc(job.valid.y, margins, job.valid.s)
        point = self._running.point(number, result, since, score, se)
        self.points.append(replace(point, empty=self._empty, auroc=area))
        return cut

    # -- the driver ``processes``, whose children are started, and read the rows, anew for each point --

    def _new_points_of_processes(self, job: Job) -> Generator[StopReason | None]:
        """Like :meth:`new_points`; each point begins at the weights of the point before."""
        if not self.points:
            C_min = math.nan
            if self._rows.grid.alphas is None:  # training ends after the pass of the null model
                at_once = replace(job, options=replace(job.options, max_time=SOON))
                result = self._by_processes(at_once)
                if result.reason is StopReason.INTERRUPTED:
                    raise KeyboardInterrupt
                found = result.model.options["C_min"]
                C_min = math.inf if found is None else float(found)
            self._values = resolve_grid(self._rows.grid, C_min, job.sum_weights)
            if job.valid is not None:
                self._empty = empty_score(job, job.valid)
        for number in range(len(self.points), len(self._values)):
            yield self._solve_by_processes(number)

    def _solve_by_processes(self, number: int) -> StopReason | None:
        """Like :meth:`_solve`."""
        job = self._make_job().at(float(self._values[number]))
        start = start_point(job, self.points[-1].model) if self.points else None

        def measure(result: TrainResult) -> tuple[float, Floats]:
            assert job.valid is not None
            score = result.history[-1]["validation"][job.loss.metric]
            needed = self._rows.bootstraps or ranking(job)
            margins = margins_on(job, job.valid, result.model) if needed else np.empty(0)
            return math.nan if score is None else float(score), margins

        return self._add(number, job, lambda: self._by_processes(job, start), measure)

    def _by_processes(self, job: Job, start: Point | None = None) -> TrainResult:
        session = self._running.session(job, start)
        del job  # the session has it, and moves its arrays to shared memory
        with session.compilation:
            return Supervisor(session).run()
