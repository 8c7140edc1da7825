"""A path over one set of rows: all training rows, or those of one fold."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fcl.drivers.inline import InlineRun
from fcl.drivers.job import Job
from fcl.drivers.result import StopReason, TrainResult
from fcl.drivers.saving import Saver
from fcl.drivers.session import Progress, Session
from fcl.model.model import Model
from fcl.path.events import PointDone, PointStarted, TrackStarted
from fcl.path.grid import Grid, resolve_grid
from fcl.path.restarts import last_score, least_C, train_by_processes
from fcl.path.result import PathPoint
from fcl.path.rules import PathStop
from fcl.path.scores import bootstrap_error, margins_on
from fcl.solve.run_state import RunState
from fcl.solve.state import Point

__all__ = ["CUT", "Running", "Saved", "Store", "Track", "done_event", "model_since"]

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

#: Number of features from which on the next point is guessed: trying a guess takes another pass, which a
#: small model does not save.
LEAST_EXTRAPOLATED = 200


@dataclass(frozen=True)
class Running:
    """What the tracks of a path share.

    Attributes
    ----------
    report : callable
        Receives each event.
    should_stop : callable
        Polled; returns True to end the path.
    begun : float
        ``time.monotonic()`` at the beginning of the path; its time limit counts from here.
    """

    report: Progress
    should_stop: Callable[[], bool]
    begun: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Saved:
    """The finished points of a track, and the state from which the next one continues.

    state : None before the first point and after the last.
    """

    points: list[PathPoint]
    state: RunState | None
    values: Floats  #: of C, of the whole grid
    fingerprint: str = ""
    checksums: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))


class Store(Protocol):
    """Keeps the finished points of a track where a killed path finds them again."""

    def save(self, job: Job, saved: Saved) -> None:
        """Keep the points, of which only the last one is new, and the state."""

    def check(self, job: Job, fingerprint: str, checksums: npt.NDArray[np.uint64]) -> None:
        """Raise InputError if the rows differ from those of the saved points."""


class Track:
    """Trains at one C after the other, on the same prepared rows, and scores each model.

    Parameters
    ----------
    make_job : callable
        Returns the job of these rows, at any C.
    grid : Grid
    running : Running
    part : str
        Name of the rows in events; empty for all.
    store : Store or None
    saved : Saved or None
        Points of an earlier run.
    groups : int64 (validation rows,) or None
        Groups of the validation rows, for the standard error.
    bootstraps : bool
        Whether to measure the standard error of each score.
    """

    def __init__(
        self,
        make_job: Callable[[], Job],
        grid: Grid,
        running: Running,
        *,
        part: str = "",
        store: Store | None = None,
        saved: Saved | None = None,
        groups: Ids | None = None,
        bootstraps: bool = True,
    ) -> None:
        self._make_job = make_job
        self._grid = grid
        self._running = running
        self.part = part
        self._store = store
        self._groups = groups
        self._bootstraps = bootstraps
        self.points: list[PathPoint] = [] if saved is None else list(saved.points)
        self._state = None if saved is None else saved.state
        #: the anchor at which the last point ended
        self._before = None if self._state is None else self._state.outer.point
        self._values = np.empty(0) if saved is None else saved.values

    @property
    def alphas(self) -> Floats:
        """Alphas of the points, float64 (points,)."""
        return np.array([point.alpha for point in self.points])

    def grid_alphas(self, sum_weights: float) -> Floats:
        """Alphas of the whole grid, once it is known."""
        return 1.0 / (self._values * sum_weights)

    @property
    def scores(self) -> Floats:
        """Scores of the points, float64 (points,)."""
        return np.array([point.score for point in self.points])

    def extend(
        self, enough: Callable[[list[PathPoint]], PathStop | None], most: int | None = None
    ) -> PathStop | None:
        """Add points until ``enough`` returns a reason, or there are ``most`` points.

        Parameters
        ----------
        enough : callable
            Called with all points, also before the first new one.
        most : int or None
            None: the whole grid.

        Returns
        -------
        PathStop or None
            None if ``most`` ended it.
        """
        most = self._grid.points if most is None else min(most, self._grid.points)
        reason = enough(self.points) if self.points else None
        if reason is not None or len(self.points) >= most:
            return reason or self._end()
        with closing(self._new_points()) as cuts:
            for cut in cuts:
                reason = cut or enough(self.points)
                if reason is not None or len(self.points) >= most:
                    break
        return reason or self._end()

    def _end(self) -> PathStop | None:
        return PathStop.GRID if len(self.points) >= self._grid.points else None

    def _new_points(self) -> Generator[PathStop | None]:
        """Add a point at a time; yields None after each, or why the path was cut short."""
        first, running = len(self.points), self._running
        running.report(TrackStarted(self.part))
        job = self._make_job()
        if job.options.driver == "processes":
            yield from self._new_points_of_processes(job)
            return
        if first:
            job = job.at(self._values[first])
        saver = Saver(None, math.inf, None, {}, None)
        session = Session(job, running.report, running.should_stop, saver, begun=running.begun)
        session.state = self._state
        with session.compilation, InlineRun(session) as run:
            run.scores_passes = False
            if self._store is not None:
                self._store.check(job, session.fingerprint, run.checksums)
            if not first:
                run.solver.price()  # the null model, whose prices give C_min
                C_min = run.solver.outer.C_min
                self._values = resolve_grid(self._grid, C_min, job.sum_weights)
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

    def _solve(self, run: InlineRun, number: int) -> PathStop | None:
        """Train at the C of the session, and add the point, unless it is cut short after others."""
        values = self._values
        since = time.perf_counter()
        self._report_start(number, run.job)
        if number + 1 < len(values):
            run.solver.outer.look_ahead(float(values[number + 1]))
        try:
            result = run.solve(None if self._state is None else self._state.untried)
        except KeyboardInterrupt:
            if not self.points:
                raise
            return PathStop.INTERRUPTED
        cut = CUT.get(result.reason)
        if cut is not None and self.points:
            return cut
        score = math.nan if run.job.valid is None else run.score()
        point = self._scored(run.job, number, result, since, score, run.valid_margins)
        self.points.append(point)
        fingerprint, checksums = run.session.fingerprint, run.checksums
        self._move(run, number + 1)
        self._save(run.job, fingerprint, checksums)
        return cut

    def _report_start(self, number: int, job: Job) -> None:
        C, alpha = job.options.C, job.options.alpha
        self._running.report(PointStarted(number + 1, len(self._values), C, alpha, self.part))

    def _scored(
        self,
        job: Job,
        number: int,
        result: TrainResult,
        since: float,
        score: float,
        margins: Floats,
    ) -> PathPoint:
        """The point of a result, with its score and the standard error of these margins."""
        se = math.nan
        if job.valid is not None and self._bootstraps:
            se = bootstrap_error(job.loss, job.valid, margins, job.options.seed, self._groups)
        seconds = time.perf_counter() - since
        model = model_since(result.model, seconds, self._running)
        return PathPoint(number, model, result.reason, seconds, result.passes, score, se)

    def _save(self, job: Job, fingerprint: str, checksums: npt.NDArray[np.uint64]) -> None:
        """Save and report the last point."""
        if self._store is not None:
            saved = Saved(self.points, self._state, self._values, fingerprint, checksums)
            self._store.save(job, saved)
        point, of = self.points[-1], len(self._values)
        self._running.report(done_event(point, of, job.loss.metric, self.part))

    # -- the driver ``processes`` --------------------------------------------------------------

    def _new_points_of_processes(self, job: Job) -> Generator[PathStop | None]:
        """Like :meth:`_new_points`, with processes that are started for each point."""
        running = self._running
        if not self.points:
            C_min = math.nan
            if self._grid.alphas is None:
                C_min = least_C(job, running.report, running.should_stop)
            self._values = resolve_grid(self._grid, C_min, job.sum_weights)
        for number in range(len(self.points), len(self._values)):
            yield self._solve_by_processes(number)

    def _solve_by_processes(self, number: int) -> PathStop | None:
        """Like :meth:`_solve`, in processes of its own, from the weights of the point before."""
        since, running = time.perf_counter(), self._running
        job = self._make_job().at(float(self._values[number]))
        self._report_start(number, job)
        before = self.points[-1].model if self.points else None
        try:
            result = train_by_processes(
                job, running.report, running.should_stop, before, running.begun
            )
        except KeyboardInterrupt:
            if not self.points:
                raise
            return PathStop.INTERRUPTED
        cut = CUT.get(result.reason)
        if cut is not None and self.points:
            return cut
        score, margins = math.nan, np.empty(0)
        if job.valid is not None:
            score = last_score(result, job.loss.metric)
            if self._bootstraps:
                margins = margins_on(job, job.valid, result.model)
        self.points.append(self._scored(job, number, result, since, score, margins))
        self._save(job, result.model.fingerprint, np.empty(0, np.uint64))
        return cut


#: why a path was cut short, by the reason why its last point ended
CUT = {
    StopReason.MAX_TIME: PathStop.MAX_TIME,
    StopReason.INTERRUPTED: PathStop.INTERRUPTED,
}


def model_since(model: Model, seconds: float, running: Running) -> Model:
    """The model, the history of which counts the seconds of its point alone.

    seconds : the time that this point has taken until now.
    """
    begun = time.monotonic() - running.begun - seconds
    return replace(model, history=model.history.since(begun))


def done_event(point: PathPoint, of: int, metric: str, part: str) -> PointDone:
    """The event of a finished point, of so many points."""
    return PointDone(
        number=point.number + 1,
        of=of,
        C=point.C,
        alpha=point.alpha,
        active=point.active,
        objective=point.certificate.objective,
        gap=point.certificate.gap,
        seconds=point.seconds,
        passes=point.passes,
        score=None if math.isnan(point.score) else point.score,
        metric=metric,
        part=part,
    )
