"""The messages between the supervisor and its children.

Many classes of the decision logic (:mod:`fcl.drivers.processes.logic`) are messages: orders to the
trainer, and the events that children send. Messages contain no arrays: those are in shared memory
(:mod:`fcl.drivers.processes.layout`).
"""

from __future__ import annotations

from fcl.drivers.processes.codec import message
from fcl.drivers.processes.logic.protocol import Outcome, SharedPoint, Task

# -- to a child ------------------------------------------------------------------------------------


@message
class SetUp:
    """The configuration; sent at the start, and again when all rows are read and memory is planned."""

    config: str  #: :meth:`fcl.drivers.processes.layout.Config.to_json`


@message
class Assign:
    """Do a task; the other values are those of the outer loop, and most tasks need only some."""

    task: Task
    anchor: int = 0  #: which vector of margins is the anchor's
    objective: float = 0.0  #: of the anchor; infinite if it is not known yet
    intercept: float = 0.0  #: of the anchor
    origin: SharedPoint = SharedPoint()  #: the anchor's weights
    tried: SharedPoint = SharedPoint()  #: the point that this pass tries
    beta: float = 0.0  #: share of the step that the tried point took
    has_fallback: bool = False  #: whether another point is tried if this one is worse
    n_watched: int = 0  #: watched features, listed in ``watch_ids``
    threshold: float = 0.0  #: of prices
    draw: int = 0  #: number of the draw of the sample, from 1
    n_sampled: int = 0  #: rows to draw
    n_slots: int = 0  #: slots for the columns of this task
    room_is_short: bool = False
    validated: SharedPoint = SharedPoint()  #: the point to validate


@message
class ProposalTaken:
    """To the trainer: the proposal was copied, so its place is free for the next one."""


# -- from a child ----------------------------------------------------------------------------------


@message
class CompileStarted:
    """The compiling child has started to compile a kernel that the cache lacks."""


@message
class SearchResult:
    """The outcome of a search, and the point that it found."""

    outcome: Outcome
    objective: float = 0.0
    beta: float = 0.0
    point: SharedPoint | None = None


@message
class BoundResult:
    """The dual bound at the anchor, and the sums of residuals and curvatures."""

    bound: float
    total_r: float
    total_q: float


#: An int is the number of rows drawn, or of columns stored in the extent; a float is a score.
Result = SearchResult | BoundResult | int | float


@message
class TaskDone:
    """A task is complete."""

    serial: int
    seconds: float  #: processor time
    result: Result | None = None
