"""The messages between the supervisor and its children.

Some classes of the decision logic (:mod:`fcl.drivers.processes.logic`) are messages as well: the trainer
receives ``Lend``, ``DropAll`` and ``Rejected``, and sends ``TrainerIdle``, ``AnchorTaken`` and ``Freed``.
Messages contain no arrays: those are in shared memory (:mod:`fcl.drivers.processes.layout`).
"""

from __future__ import annotations

from fcl.drivers.processes.codec import declare, message
from fcl.drivers.processes.logic.protocol import (
    AnchorTaken,
    DropAll,
    Freed,
    Lend,
    Outcome,
    Rejected,
    Task,
    TrainerIdle,
)

for _class in (Task, Lend, DropAll, Rejected, TrainerIdle, AnchorTaken, Freed):
    declare(_class)


@message
class SharedPoint:
    """Where in shared memory a point is."""

    place: str  #: of :data:`fcl.drivers.processes.layout.POINTS`
    n_weights: int
    intercept: float


# -- to all children -------------------------------------------------------------------------------


@message
class SetUp:
    """All rows are read and the memory is planned: read the configuration again."""


# -- to a writer: a task, and the values that it needs ---------------------------------------------


@message
class WriteMargins:
    """Write the margins of a point into the vector that the anchor does not use."""

    anchor: int  #: which vector of margins is the anchor's
    point: SharedPoint


@message
class Search:
    """Search on the line between anchor and proposal; the margins of both are written."""

    anchor: int
    objective: float  #: of the anchor
    origin: SharedPoint  #: the anchor's weights
    proposal: SharedPoint


@message
class TryPoint:
    """Compute the objective of a point from its written margins; accept a lower one."""

    anchor: int
    objective: float  #: of the anchor; infinite if it is not known yet
    point: SharedPoint
    beta: float  #: share of the step that the point took
    has_fallback: bool  #: whether another point is tried if this one is worse


@message
class WriteResiduals:
    """Write residuals and curvatures at the anchor."""

    anchor: int
    intercept: float


@message
class PriceFeatures:
    """Compute gradients at the anchor, of a part of the family and of the watched features."""

    n_watched: int
    threshold: float


@message
class CertifyBound:
    """Compute the dual bound from the prices of the whole family."""

    largest: float  #: max_j |g_j| / f_j
    excess: float  #: sum of ``Prices.excess``, for the elastic net


@message
class DrawSample:
    """Draw the trainer's sample of rows."""

    number: int  #: of the draw, from 1
    n_rows: int


@message
class MakeColumns:
    """Make columns of a part of the list of features."""

    n_slots: int
    room_is_short: bool


@message
class ValidatePoint:
    """Write margins of the validation rows."""

    point: SharedPoint


Work = (
    WriteMargins
    | Search
    | TryPoint
    | WriteResiduals
    | PriceFeatures
    | CertifyBound
    | DrawSample
    | MakeColumns
    | ValidatePoint
)


@message
class Assign:
    """Do a task; ``work`` is None if the task needs no more values."""

    task: Task
    work: Work | None = None


# -- to the trainer --------------------------------------------------------------------------------


@message
class TrainerAnchor:
    """A certified anchor, as it is sent to the trainer."""

    pass_number: int
    margins: int  #: which vector of margins is the anchor's
    point: SharedPoint
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |slope_j| over the family
    total_r: float  #: sum of the residuals
    total_q: float  #: sum of the curvatures
    version: int  #: of the proposal that led to the anchor
    decrease: float  #: of the objective on all rows
    beta: float
    n_coming: int = 0  #: columns to come, if the trainer should wait for most of them


@message
class MoveAnchor:
    """Move the local problem to this anchor."""

    order: int
    anchor: TrainerAnchor


@message
class RestoreTrainer:
    """Take over from a trainer that died."""

    order: int
    anchor: TrainerAnchor
    n_held: int  #: number of its columns, whose slots the array ``held`` begins with
    extents: tuple[int, ...]


@message
class CommitColumns:
    """The first ``count`` columns of an extent now belong to the trainer."""

    order: int
    extent: int
    count: int
    pass_number: int  #: of the anchor at which they were made


@message
class EvictColumns:
    """Evict until so many extents are empty and so many columns gone, as far as possible."""

    order: int
    extents: int
    columns: int


@message
class ProposalTaken:
    """The proposal was copied, so its place is free for the next one."""

    version: int


# -- from all children -----------------------------------------------------------------------------


@message
class Started:
    """The child has finished its imports and waits for work."""


@message
class CompileStarted:
    """The compiling child has started to compile a kernel that the cache lacks."""


@message
class Raised:
    """The role of the child raised an exception."""

    type: str  #: qualified name, as "fcl.errors.InputError"
    text: str  #: with its notes
    traceback: str
    is_input: bool  #: whether it is an InputError
    doing: str  #: what the child was doing, for messages; empty before its first task or order


# -- from a writer: a task is done, and its result -------------------------------------------------


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


@message
class SampleResult:
    """How many rows were drawn."""

    n_rows: int


@message
class ColumnsResult:
    """How many columns were stored in the extent."""

    count: int


@message
class ScoreResult:
    """The score of the validated point."""

    score: float


Result = SearchResult | BoundResult | SampleResult | ColumnsResult | ScoreResult


@message
class TaskDone:
    """A task is complete."""

    serial: int
    seconds: float  #: processor time
    result: Result | None = None


# -- from the trainer ------------------------------------------------------------------------------


@message
class Proposed:
    """The trainer proposes a point."""

    version: int
    point: SharedPoint
    violation: float
    decrease: float  #: of the objective, as the trainer expects
    worth: bool  #: whether a pass would pay off
    last_word: bool  #: whether the trainer cannot improve it any further
