"""A path over one set of rows: all training rows, or the training rows of one fold."""

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
from fcl.path.events import TrackStarted
from fcl.path.grid import Grid, resolve_grid
from fcl.path.restarts import last_score, least_C, train_by_processes
from fcl.path.result import PathPoint
from fcl.path.rules import PathStop
from fcl.path.running import Running
from fcl.path.scores import bootstrap_error, margins_on
from fcl.solve.run_state import RunState
from fcl.solve.state import Point

__all__ = ["CUT", "Saved", "Store", "Track"]

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

#: Number of features from which on the next point is guessed: trying a guess takes another pass, which a
#: small model does not save.
LEAST_EXTRAPOLATED = 200

#: why a path was cut short, by the reason why its last point ended
CUT = {
    StopReason.MAX_TIME: PathStop.MAX_TIME,
    StopReason.INTERRUPTED: PathStop.INTERRUPTED,
}


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

    def load(self) -> Saved | None:
        """The points of an earlier run; None if there are none."""

    def save(self, job: Job, saved: Saved) -> None:
        """Keep the points, of which only the last one is new, and the state."""

    def check(self, job: Job, fingerprint: str, checksums: npt.NDArray[np.uint64]) -> None:
        """Raise InputError if the rows differ from the rows of the saved points."""


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
        Where to save the points, and to find those of an earlier run.
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
        saved = None if store is None else store.load()
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
        session = running.session(job)
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
        if number + 1 < len(self._values):
            run.solver.outer.look_ahead(float(self._values[number + 1]))
        untried = None if self._state is None else self._state.untried

        def measure(result: TrainResult) -> tuple[float, Floats]:
            return run.score(), run.valid_margins

        cut = self._add(number, run.job, lambda: run.solve(untried), measure)
        if len(self.points) > number:
            self._move(run, number + 1)
            self._save(run.job, run.session.fingerprint, run.checksums)
        return cut

    def _add(
        self,
        number: int,
        job: Job,
        train: Callable[[], TrainResult],
        measure: Callable[[TrainResult], tuple[float, Floats]],
    ) -> PathStop | None:
        """Train, and add the point, unless it is cut short after others; returns why it was cut short.

        measure : returns the score on the validation rows, and their margins for its standard error.
        """
        since = time.perf_counter()
        self._running.point_started(number + 1, len(self._values), job, self.part)
        try:
            result = train()
        except KeyboardInterrupt:
            if not self.points:
                raise
            return PathStop.INTERRUPTED
        cut = CUT.get(result.reason)
        if cut is not None and self.points:
            return cut
        score = se = math.nan
        if job.valid is not None:
            score, margins = measure(result)
            if self._bootstraps:
                se = bootstrap_error(job.loss, job.valid, margins, job.options.seed, self._groups)
        self.points.append(self._running.point(number, result, since, score, se))
        return cut

    def _save(self, job: Job, fingerprint: str, checksums: npt.NDArray[np.uint64]) -> None:
        """Save and report the last point."""
        if self._store is not None:
            saved = Saved(self.points, self._state, self._values, fingerprint, checksums)
            self._store.save(job, saved)
        self._running.point_done(self.points[-1], len(self._values), job.loss.metric, self.part)

    # -- the driver ``processes`` --------------------------------------------------------------

    def _new_points_of_processes(self, job: Job) -> Generator[PathStop | None]:
        """Like :meth:`_new_points`, with processes that are started for each point."""
        if not self.points:
            C_min = math.nan if self._grid.alphas is not None else least_C(job, self._running)
            self._values = resolve_grid(self._grid, C_min, job.sum_weights)
        for number in range(len(self.points), len(self._values)):
            yield self._solve_by_processes(number)

    def _solve_by_processes(self, number: int) -> PathStop | None:
        """Like :meth:`_solve`, in processes of its own, from the weights of the point before."""
        job = self._make_job().at(float(self._values[number]))
        before = self.points[-1].model if self.points else None

        def measure(result: TrainResult) -> tuple[float, Floats]:
            assert job.valid is not None
            found = margins_on(job, job.valid, result.model) if self._bootstraps else np.empty(0)
            return last_score(result, job.loss.metric), found

        cut = self._add(
            number, job, lambda: train_by_processes(job, self._running, before), measure
        )
        if len(self.points) > number:
            self._save(job, self.points[-1].model.fingerprint, np.empty(0, np.uint64))
        return cut
