"""The messages between the supervisor and its children.

Many classes of the decision logic (:mod:`fcl.drivers.processes.logic`) are messages: orders to the
trainer, and the events that children send. Messages contain no arrays: arrays are in shared memory
(:mod:`fcl.drivers.processes.layout`).
"""

from __future__ import annotations

from fcl.drivers.processes.codec import message
from fcl.drivers.processes.logic.protocol import Outcome, SharedPoint, Total, WriterTask

# -- to a child ------------------------------------------------------------------------------------


@message
class SetUp:
    """The configuration; sent at the start, and again when all rows are read and memory is planned."""

    config: str  #: :meth:`fcl.drivers.processes.layout.Config.to_json`


@message
class TriedPoint:
    """For ``margins``, ``search`` and ``accept``: the point that this pass tries."""

    margins: int  #: which vector of margins is the anchor's
    objective: float  #: of the anchor; infinite if it is not known yet
    anchor: SharedPoint
    point: SharedPoint
    beta: float  #: share of the step that the point took
    has_fallback: bool  #: whether another point is tried if this one is worse


@message
class ResidualsInput:
    """For ``residuals`` and ``certify``: the anchor's vector of margins and intercept."""

    margins: int
    intercept: float
    loss: float  #: an upper bound of the sum of the losses


@message
class PricingInput:
    """For ``price``."""

    n_watched: int  #: watched features, listed in ``watch_ids``
    threshold: float  #: of prices
    loss: float  #: an upper bound of the sum of the losses at the anchor


@message
class SampleRequest:
    """For ``draw``."""

    draw: int  #: number of the draw, from 1
    n_rows: int  #: rows to draw


@message
class ColumnRoom:
    """For ``columns``: slots for the columns of this task."""

    n_slots: int
    is_short: bool  #: whether there may be too little room for all columns of the list


#: A SharedPoint is the point to validate.
Input = TriedPoint | ResidualsInput | PricingInput | SampleRequest | ColumnRoom | SharedPoint


@message
class Assign:
    """Do a task; most tasks need an input besides what is in shared memory."""

    task: WriterTask
    input: Input | None = None


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
    total_r: Total
    total_q: Total


@message
class RowsDrawn:
    """How many rows a new sample has."""

    n: int


@message
class ColumnsStored:
    """How many columns a task has stored in its extent."""

    n: int


@message
class Score:
    """The validation score, and the mean held-out loss; NaN if nothing needs it."""

    value: float
    loss: float


Result = SearchResult | BoundResult | RowsDrawn | ColumnsStored | Score


@message
class TaskDone:
    """A task is complete."""

    serial: int
    seconds: float  #: processor time
    result: Result | None = None
