"""The protocol of the decision logic: settings, tasks, events and instructions.

All classes are frozen and contain no arrays. Roles are ``"writer"`` and ``"trainer"``; the trainer has
number 0. Children send most events themselves, and the trainer receives orders: these classes are
messages, and have fields that only the shell or the trainer reads.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from fcl.drivers.processes.codec import message
from fcl.drivers.processes.logic.stages import Stage

#: A sum over rows, or with several outputs one for each.
Total = float | tuple[float, ...]

WRITER = "writer"
TRAINER = "trainer"


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

    def __post_init__(self) -> None:
        least = {
            field.name: 1 for field in fields(self) if field.name not in ("sharing", "resumed")
        }
        least |= {"extents": 2, "measure_parts": 0, "validate_parts": 0, "first_pass": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be at least {bound}, got {getattr(self, name)}")


@message
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


@message
class SharedPoint:
    """Where in shared memory a point is."""

    place: str = ""  #: of :data:`fcl.drivers.processes.lists.POINTS`
    n_weights: int = 0
    intercept: float = 0.0
    covariates: tuple[float, ...] = ()


@message
class TrainerAnchor:
    """A certified anchor, as it is sent to the trainer."""

    pass_number: int
    margins: int  #: which vector of margins is the anchor's
    point: SharedPoint
    target: float  #: violation at which the trainer may stop
    violation: float  #: largest |slope_j| over the family
    gap: float  #: the objective minus its lower bound
    total_r: Total  #: sum of the residuals
    total_q: Total  #: sum of the curvatures
    version: int  #: of the proposal that led to the anchor
    decrease: float  #: of the objective on all rows
    beta: float
    n_coming: int = 0  #: columns to come, if the trainer should wait for most of them
    #: whether features wait until fewer have a weight: the trainer drops columns without one
    crowded: bool = False


class LogicEvent:
    """Base class of events: what happened."""


class Instruction:
    """Base class of instructions: what the shell has to do."""


# -- events ----------------------------------------------------------------------------------------


@message
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


@message
class Raised(LogicEvent):
    """A child has reported an exception, from a bug in fcl or bad input; it would occur again."""

    name: str  #: of the child, for people
    type: str = ""  #: qualified name, as "fcl.errors.InputError"
    text: str = ""  #: with its notes
    traceback: str = ""
    is_input: bool = False  #: whether it is an InputError or a StoreError, written for the user
    doing: str = ""  #: what the child was doing; empty before its first task or order


@message
class Published(LogicEvent):
    """The trainer proposes a point.

    worth: whether the trainer estimates that a pass would pay off.
    last_word: whether the local problem is solved, so that no better point will come.
    decrease: of the objective, as the trainer expects.
    models: as of :class:`fcl.run.events.PassDone`, since the last anchor.
    """

    version: int
    worth: bool
    last_word: bool = False
    point: SharedPoint = SharedPoint()
    decrease: float = 0.0
    models: str = ""


@message
class TrainerIdle(LogicEvent):
    """The trainer has nothing to do.

    order: the last order that it has handled, 0 before the first.

    The logic ignores the event if it has given a later order, so the trainer MUST send it again after
    each order that leaves it without work.
    """

    order: int


@message
class AnchorTaken(LogicEvent):
    """The trainer has copied the anchor of this order; the anchor's places may be overwritten."""

    order: int


@message
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
    """The answer to Certify, Stalled or Decide.

    stop: a reason to end, or "". score_first: validate this anchor before the end.
    columns: length of the list of columns to make. redraw: draw a new sample first, in ``sample_parts``
        parts, once the trainer has dropped all columns.
    crowded: too few slots are free, so some columns have to be evicted before others are made.
    start: after the first pass: the next pass tries the initial point, which is already in its place.
    again: after Stalled: the next pass prices and certifies the same anchor.
    """

    stop: str = ""
    columns: int = 0
    redraw: bool = False
    sample_parts: int = 0
    score_first: bool = False
    crowded: bool = False
    start: bool = False
    again: bool = False


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
    """Copy the certified anchor into the place ``validated``, which no task reads now."""


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


@message
class Order(Instruction):
    """Base class of orders to the trainer, numbered from 1 through all its incarnations."""

    order: int


@message
class SendAnchor(Order):
    """Send the certified anchor of a pass; answered by AnchorTaken(order)."""

    pass_number: int
    anchor: TrainerAnchor | None = None


@message
class Restore(Order):
    """Like SendAnchor, for a trainer that replaces a dead one; with all extents of the trainer.

    Sent only between passes, while margins and prices belong to this anchor. Extents without a
    committed column are spare.
    """

    pass_number: int
    extents: tuple[int, ...]
    anchor: TrainerAnchor | None = None
    n_held: int = 0  #: number of the trainer's columns; the array ``held`` begins with their slots


@message
class Commit(Order):
    """The first ``count`` columns of an extent now belong to the trainer."""

    extent: int
    count: int
    pass_number: int  #: of the anchor at which they were made


@message
class Lend(Order):
    """Lend the trainer an empty extent for compaction."""

    extent: int


@message
class MakeRoom(Order):
    """Evict until ``wanted`` extents are empty and ``columns`` columns are gone, as far as possible.

    It is answered by Freed(.., order). ``wanted`` is 0 if only the number of columns has to fall.
    """

    wanted: int
    columns: int = 0


@message
class DropAll(Order):
    """Drop all columns and spares; answered by Freed(all extents, 0, order)."""


@message
class Rejected(Order):
    """The trainer's proposal did not lower the objective; the anchor remains."""
