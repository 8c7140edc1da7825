"""What the runs of all learners share: events, results, and the reasons why a run ended.

``from fcl.run import PassDone`` gives the events that ``progress`` receives, which
:mod:`fcl.run.events` describes.
"""

from fcl.run.events import (
    BlockVisited,
    Compiled,
    Compiling,
    Event,
    Jobs,
    Measured,
    OnlineProgress,
    PassDone,
    PathStarted,
    PointDone,
    PointStarted,
    Prepared,
    Started,
    StepProgress,
    Stopped,
    Validated,
    Workers,
)
from fcl.run.reasons import StopReason
from fcl.run.result import RunResult

__all__ = [
    "BlockVisited",
    "Compiled",
    "Compiling",
    "Event",
    "Jobs",
    "Measured",
    "OnlineProgress",
    "PassDone",
    "PathStarted",
    "PointDone",
    "PointStarted",
    "Prepared",
    "RunResult",
    "Started",
    "StepProgress",
    "StopReason",
    "Stopped",
    "Validated",
    "Workers",
]
