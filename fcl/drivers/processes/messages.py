"""The messages between the supervisor and its children.

Some are words of the decision logic as they are (:mod:`fcl.drivers.processes.logic`): the trainer gets
``Lend``, ``DropAll`` and ``Rejected``, and says ``TrainerIdle``, ``AnchorTaken`` and ``Freed``. Long
arrays do not travel: they are where :mod:`fcl.drivers.processes.layout` says.
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

for _word in (Task, Lend, DropAll, Rejected, TrainerIdle, AnchorTaken, Freed):
    declare(_word)


@message
class SharedPoint:
    """A point of weights in shared memory."""

    place: str  #: of :data:`fcl.drivers.processes.layout.POINTS`
    n_weights: int
    intercept: float


# -- to all children -------------------------------------------------------------------------------


@message
class SetUp:
    """All rows are read, and what depends on them is planned: read the configuration again."""


# -- to a writer: a task, and what it needs besides ------------------------------------------------


@message
class WriteMargins:
    """Margins of a point, beside those of the anchor."""

    anchor: int  #: which vector of margins is the anchor's
    point: SharedPoint


@message
class Search:
    """Search between anchor and proposal, whose margins are both there."""

    anchor: int
    objective: float  #: of the anchor
    origin: SharedPoint  #: the anchor's weights
    proposal: SharedPoint


@message
class TryPoint:
    """Compute the objective of a point whose margins are there, and accept it if it is lower."""

    anchor: int
    objective: float  #: of the anchor; infinite if it is not known yet
    point: SharedPoint
    beta: float  #: share of the step that the point took
    has_fallback: bool  #: a worse point makes way for another one


@message
class WriteResiduals:
    """Residuals and curvatures at the anchor."""

    anchor: int
    intercept: float


@message
class PriceFeatures:
    """Gradients at the anchor."""

    n_watched: int
    threshold: float


@message
class CertifyBound:
    """The dual bound, from what pricing found over the family."""

    largest: float  #: |g_j| / f_j
    excess: float


@message
class DrawSample:
    """Draw the rows of the trainer."""

    number: int  #: of the draw, from 1
    n_rows: int


@message
class MakeColumns:
    """Make columns of a part of the list."""

    n_slots: int
    room_is_short: bool


@message
class ValidatePoint:
    """Margins of the validation rows."""

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
    """Do a task; ``work`` is None where the task says all."""

    task: Task
    work: Work | None = None


# -- to the trainer --------------------------------------------------------------------------------


@message
class TrainerAnchor:
    """A certified anchor as the trainer gets it."""

    pass_number: int
    margins: int  #: which vector of margins is the anchor's
    point: SharedPoint
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |slope_j| over the family
    total_r: float
    total_q: float
    version: int  #: of the proposal that led there
    decrease: float  #: of the objective on all rows
    beta: float
    n_coming: int = 0  #: columns that are worth waiting for, since nothing is cached


@message
class MoveAnchor:
    """The local problem is that of this anchor from now on."""

    order: int
    anchor: TrainerAnchor


@message
class RestoreTrainer:
    """Take over from a trainer that died; its columns are in the first slots of the list ``held``."""

    order: int
    anchor: TrainerAnchor
    n_held: int
    extents: tuple[int, ...]


@message
class CommitColumns:
    """The first columns of an extent, made at the anchor of a pass, are the trainer's."""

    order: int
    extent: int
    count: int
    pass_number: int


@message
class EvictColumns:
    """Evict until so many extents are empty and so many columns gone, as far as can be."""

    order: int
    extents: int
    columns: int


@message
class ProposalTaken:
    """The proposal was copied: its place is free for the next one."""

    version: int


# -- from all children -----------------------------------------------------------------------------


@message
class Started:
    """All is imported: the child waits for work."""


@message
class CompileStarted:
    """The cache lacks a kernel, which is being compiled."""


@message
class Raised:
    """The role of the child raised an exception."""

    type: str  #: qualified name, as "fcl.errors.InputError"
    text: str  #: with its notes
    traceback: str
    is_input: bool  #: an InputError
    doing: str  #: what the child was at, in words; empty at its start


# -- from a writer: a task is done, and its result -------------------------------------------------


@message
class SearchResult:
    """The outcome of a search, and the point that it leads to."""

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
    """How many columns are in the extent."""

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
    seconds: float  #: of the processor
    result: Result | None = None


# -- from the trainer ------------------------------------------------------------------------------


@message
class Proposed:
    """The trainer proposes a point."""

    version: int
    point: SharedPoint
    violation: float
    decrease: float  #: of the objective, as the trainer expects
    worth: bool  #: a pass would pay
    last_word: bool  #: nothing better will come
