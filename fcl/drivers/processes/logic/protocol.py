"""The protocol of the driver ``processes``: stages, tasks, events, instructions and messages.

Events are the input of the decision logic, instructions are its output. Children send most events
themselves, and the trainer receives orders: these classes are messages too, and have fields that only the
shell or the trainer reads. Roles are ``"writer"`` and ``"trainer"``; the trainer has number 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from fcl.drivers.processes.layout import Config
    from fcl.solve.state import Point

WRITER = "writer"
TRAINER = "trainer"


class Stage(StrEnum):
    """A stage of the passes; OFF, VALIDATE and SCORE belong to the validation alongside."""

    PREPARE = "prepare"
    MEASURE = "measure"  #: standard deviations of the features
    # a pass
    MARGINS = "margins"
    SEARCH = "search"
    BLEND = "blend"  #: margins of a point on the segment from anchor to proposal
    ACCEPT = "accept"  #: of one point: after BLEND, or of a checkpoint
    RESIDUALS = "residuals"
    PRICE = "price"
    CERTIFY = "certify"
    # between passes
    DECIDE = "decide"
    DROP = "drop"  #: the trainer drops all columns, before the sample of rows changes
    DRAW = "draw"
    SAMPLE = "sample"
    COLUMNS = "columns"
    WAIT = "wait"
    SCORING = "scoring"
    FINISHED = "finished"
    # alongside the passes
    OFF = "off"
    VALIDATE = "validate"
    SCORE = "score"


_WITHOUT_TASKS = (
    Stage.BLEND,
    Stage.DECIDE,
    Stage.DROP,
    Stage.WAIT,
    Stage.SCORING,
    Stage.FINISHED,
    Stage.OFF,
)
#: Stages that are also kinds of tasks; the parts of BLEND are dealt as MARGINS tasks.
TASKS = tuple(stage for stage in Stage if stage not in _WITHOUT_TASKS)

#: Stages in which margins and prices still belong to the certified anchor, so that a new trainer can
#: take it.
BETWEEN_PASSES = (Stage.COLUMNS, Stage.WAIT)


class Outcome(StrEnum):
    """The outcome of a search; BLEND: the margins of another point are needed."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    BLEND = "blend"


@dataclass(frozen=True, kw_only=True)
class LogicSettings:
    """What the logic has to know about a run."""

    writers: int  #: number of writer processes
    cores: int  #: number of core tokens
    sharing: bool = True  #: whether tokens move between the trainer and the writers
    extents: int  #: of the arena; at least 2, since one is lent to the trainer
    batch: int  #: most columns per task
    prepare_parts: int
    margins_parts: int  #: also the parts of residuals
    price_parts: int
    measure_parts: int = 0  #: 0: features are not standardised
    validate_parts: int = 0  #: 0: no validation
    max_deaths: int = 3  #: deaths of one role without an accepted anchor that end the run
    first_pass: int = 0  #: number of the first pass
    resumed: bool = False  #: the first pass has a point to try: it begins with margins and accept


@dataclass(frozen=True)
class WriterTask:
    """Work for one writer: parts [start, stop) of a stage.

    A ``columns`` task makes the columns at positions [start, stop) of the list of features, and stores
    them in ``extent``. All other tasks have one part, ``start``. A serial is never used twice, so it
    also identifies the grant of the extent. The only task of a stage may use several threads.
    """

    kind: Stage  #: one of TASKS
    start: int
    stop: int
    pass_number: int
    serial: int
    extent: int = -1
    threads: int = 1

    @property
    def size(self) -> int:
        """Number of parts."""
        return self.stop - self.start


class LogicEvent:
    """Base class of events: what happened."""


class Instruction:
    """Base class of instructions: what the shell has to do."""


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready(LogicEvent):
    """A spawned child has finished its imports and waits for work."""

    role: str
    number: int


@dataclass(frozen=True)
class Done(LogicEvent):
    """A writer has completed its task; ignored unless the serial belongs to its present task.

    outcome: for ``search`` and ``accept`` tasks.
    stored: for ``columns`` tasks, how many of the columns are in the extent.
    """

    number: int
    serial: int
    outcome: Outcome | None = None
    stored: int = 0


@dataclass(frozen=True)
class Died(LogicEvent):
    """A child is gone **and reaped**: it cannot write to shared memory any more."""

    role: str
    number: int


@dataclass(frozen=True)
class Raised(LogicEvent):
    """A child has reported an exception, from a bug in fcl or bad input; it would occur again."""

    name: str  #: of the child, for people
    type: str = ""  #: qualified name, as "fcl.errors.InputError"
    text: str = ""  #: with its notes
    traceback: str = ""
    is_input: bool = False  #: whether it is an InputError or a StoreError, written for the user
    doing: str = ""  #: what the child was doing; empty before its first task or order


@dataclass(frozen=True)
class Published(LogicEvent):
    """The trainer proposes a point."""

    version: int
    worth: bool  #: whether the trainer estimates that a pass would pay off
    last_word: bool = False  #: the local problem is solved: no better point will come
    point: Point | None = None
    decrease: float = 0.0  #: of the objective, as the trainer expects
    models: str = ""  #: as of :class:`fcl.run.events.PassDone`, since the last anchor


@dataclass(frozen=True)
class TrainerIdle(LogicEvent):
    """The trainer has nothing to do since it has handled an order, 0 before the first.

    The logic ignores the event if it has given a later order, so the trainer MUST send it again after
    each order that leaves it without work.
    """

    order: int


@dataclass(frozen=True)
class AnchorTaken(LogicEvent):
    """The trainer has copied the anchor of this order; the anchor's places may be overwritten."""

    order: int


@dataclass(frozen=True)
class Freed(LogicEvent):
    """The trainer has released extents, and keeps ``spare`` empty ones.

    order: the last order it has handled; the first Freed with at least the number of a MakeRoom or
        DropAll answers that order.
    """

    extents: tuple[int, ...]
    spare: int
    order: int


@dataclass(frozen=True)
class Decided(LogicEvent):
    """The answer to Certify, Stalled or Decide."""

    stop: str = ""  #: a reason to end
    columns: int = 0  #: length of the list of columns to make
    #: draw a new sample first, in ``sample_parts`` parts, once the trainer has dropped all columns
    redraw: bool = False
    sample_parts: int = 0
    score_first: bool = False  #: validate this anchor before the end
    crowded: bool = False  #: too few slots are free: columns are evicted before others are made
    start: bool = False  #: after the first pass: the next pass tries the initial point
    again: bool = False  #: after Stalled: the next pass prices and certifies the same anchor


@dataclass(frozen=True)
class StopAsked(LogicEvent):
    """A signal, the time limit or the caller asks the run to stop."""

    reason: str


# -- instructions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spawn(Instruction):
    """Start a child."""

    role: str
    number: int
    incarnation: int


@dataclass(frozen=True)
class Deal(Instruction):
    """Give a writer its task."""

    number: int
    task: WriterTask


@dataclass(frozen=True)
class Threads(Instruction):
    """The trainer may use ``n`` threads from now on."""

    n: int


@dataclass(frozen=True)
class RowsPrepared(Instruction):
    """All rows are prepared; complete the shared memory before features are measured."""


@dataclass(frozen=True)
class Begin(Instruction):
    """All features are measured; start the outer loop before the first pass."""


@dataclass(frozen=True)
class TakeProposal(Instruction):
    """Make the trainer's latest proposal the point of this pass."""

    version: int


@dataclass(frozen=True)
class Certify(Instruction):
    """Do the bookkeeping of a pass and answer with Decided."""

    pass_number: int


@dataclass(frozen=True)
class Stalled(Instruction):
    """The trainer could not improve the certified anchor: answer with Decided again."""


@dataclass(frozen=True)
class Decide(Instruction):
    """The initial point is not better than the certified anchor: answer with Decided again."""


@dataclass(frozen=True)
class Validate(Instruction):
    """Make the certified anchor the point of the validation tasks."""


@dataclass(frozen=True)
class Scored(Instruction):
    """The scores of an anchor are available."""

    pass_number: int


@dataclass(frozen=True)
class Fail(Instruction):
    """The end: processes of a role have died too often without progress."""

    role: str


@dataclass(frozen=True)
class Abort(Instruction):
    """The end: a child raised an exception."""

    raised: Raised


@dataclass(frozen=True)
class Finish(Instruction):
    """The end: decided after a pass, or requested."""

    reason: str


# -- orders: instructions that reach the trainer ---------------------------------------------------


@dataclass(frozen=True)
class TrainerAnchor:
    """A certified anchor, as it is sent to the trainer."""

    pass_number: int
    margins: int  #: which vector of margins is the anchor's
    point: Point
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |slope_j| over the family
    gap: float  #: the objective minus its lower bound
    totals: tuple[Any, Any]  #: sums of the residuals and of the curvatures
    version: int  #: of the proposal that led to the anchor
    decrease: float  #: of the objective on all rows
    beta: float
    n_coming: int = 0  #: columns to come, if the trainer should wait for most of them
    #: whether features wait until fewer have a weight: the trainer drops columns without one
    crowded: bool = False


@dataclass(frozen=True)
class Order(Instruction):
    """Base class of orders to the trainer, numbered from 1 through all its incarnations."""

    #: whether long work is cut short for it: other processes wait for its answer
    urgent: ClassVar[bool] = True
    order: int


@dataclass(frozen=True)
class SendAnchor(Order):
    """Send the certified anchor of a pass; answered by AnchorTaken(order)."""

    pass_number: int
    anchor: TrainerAnchor | None = None  #: set by the shell


@dataclass(frozen=True)
class Restore(Order):
    """Like SendAnchor, for a trainer that replaces a dead one; with all extents of the trainer.

    Sent only between passes, while margins and prices belong to this anchor. Extents without a
    committed column are spare.
    """

    pass_number: int
    extents: tuple[int, ...]
    anchor: TrainerAnchor | None = None  #: set by the shell
    n_held: int = 0  #: set by the shell: the array ``held`` begins with so many slots of columns


@dataclass(frozen=True)
class Commit(Order):
    """The first ``count`` columns of an extent now belong to the trainer."""

    urgent = False
    extent: int
    count: int
    pass_number: int  #: of the anchor at which they were made


@dataclass(frozen=True)
class Lend(Order):
    """Lend the trainer an empty extent for compaction."""

    urgent = False
    extent: int


@dataclass(frozen=True)
class MakeRoom(Order):
    """Evict until ``wanted`` extents are empty and ``columns`` columns are gone, as far as possible.

    It is answered by Freed(.., order). ``wanted`` is 0 if only the number of columns has to fall.
    """

    wanted: int
    columns: int = 0  #: set by the shell


@dataclass(frozen=True)
class DropAll(Order):
    """Drop all columns and spares; answered by Freed(all extents, 0, order)."""


@dataclass(frozen=True)
class Rejected(Order):
    """The trainer's proposal did not lower the objective; the anchor remains."""


# -- other messages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetUp:
    """The configuration; sent at the start, and again when all rows are read and memory is planned."""

    config: Config


@dataclass(frozen=True)
class Assign:
    """Do a task, with what it needs besides shared memory: arguments of the writer's method."""

    task: WriterTask
    inputs: dict[str, Any]


@dataclass(frozen=True)
class TaskDone:
    """A task is complete."""

    serial: int
    seconds: float  #: processor time
    result: Any = None  #: of the writer's method


@dataclass(frozen=True)
class CompileStarted:
    """The compiling child has started to compile a kernel that the cache lacks."""
