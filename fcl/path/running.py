"""What the paths of all folds share: callbacks, the clock, and how a result becomes a point."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from fcl.drivers.executor import RunContext
from fcl.drivers.job import Job
from fcl.drivers.result import TrainResult
from fcl.drivers.saving import Saver
from fcl.drivers.session import Session
from fcl.path.result import PathPoint
from fcl.run.events import Event, PointDone, Started, Stopped
from fcl.solve.state import Point


@dataclass(frozen=True)
class PathContext(RunContext):
    """A running path; its time limit is one of ``clock``."""

    def session(self, job: Job, start: Point | None = None) -> Session:
        """A session of the path, without checkpoints.  start : the initial point, if any."""
        return Session(
            job,
            self._report_of_point,
            self.should_stop,
            Saver(),
            start=start,
            begun=self.begun,
            clock=self.clock,
        )

    def _report_of_point(self, event: Event) -> None:
        """Report an event of a point, which is not the start or the end of the path."""
        if not isinstance(event, Started | Stopped):
            self.report(event)

    def point(
        self, number: int, result: TrainResult, since: float, score: float, se: float = math.nan
    ) -> PathPoint:
        """A result as a point, whose history counts the seconds of the point alone.

        number : from 0.  since : ``time.perf_counter()`` when the point began.
        """
        seconds = time.perf_counter() - since
        begun = time.monotonic() - self.begun - seconds
        model = replace(result.model, history=result.model.history.since(begun))
        return PathPoint(number, model, result.reason, seconds, result.passes, score, se)

    def point_done(self, point: PathPoint, of: int, C: float, metric: str, part: str) -> None:
        """Report a finished point; ``of``, ``C`` and ``part`` are as in :class:`PointStarted`."""
        self.report(
            PointDone(
                number=point.number + 1,
                of=of,
                C=C,
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
        )
