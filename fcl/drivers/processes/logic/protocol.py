"""The protocol of the decision logic: settings, tasks, events in, instructions out.

All are frozen and hold numbers and names only. Roles are ``"writer"`` and ``"trainer"``; the trainer
has number 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

WRITER = "writer"
TRAINER = "trainer"


class TaskKind(StrEnum):
    """What a task of a writer does."""

    PREPARE = "prepare"
    MEASURE = "measure"
    MARGINS = "margins"
    SEARCH = "search"
    ACCEPT = "accept"
    RESIDUALS = "residuals"
    PRICE = "price"
    CERTIFY = "certify"
    DRAW = "draw"
    SAMPLE = "sample"
    COLUMNS = "columns"
    VALIDATE = "validate"
    SCORE = "score"


class Outcome(StrEnum):
    """What a search finds; BLEND: a point between anchor and proposal, whose margins are to be made."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    BLEND = "blend"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the logic has to know of a run."""

    writers: int  #: writer processes
    cores: int  #: core tokens
    sharing: bool = True  #: whether tokens move between the trainer and the writers
    extents: int  #: of the arena; at least 2, since one is lent to the trainer
    batch: int  #: most columns a task
    prepare_parts: int
    margins_parts: int  #: of residuals too
    price_parts: int
    measure_parts: int = 0  #: 0: features are not standardised
    validate_parts: int = 0  #: 0: no validation
    max_deaths: int = 3  #: of one role without an accepted anchor in between: the end
    first_pass: int = 0  #: number of the first pass
    resumed: bool = False  #: the first anchor has weights: its pass begins with margins and accept

    def __post_init__(self) -> None:
        least = {
            field.name: 1 for field in fields(self) if field.name not in ("sharing", "resumed")
        }
        least |= {"extents": 2, "measure_parts": 0, "validate_parts": 0, "first_pass": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"{name} must be at least {bound}, got {getattr(self, name)}")


@dataclass(frozen=True)
class Task:
    """A piece of a pass for one writer: parts [start, stop) of a kind of work.

    ``columns`` are positions [start, stop) in the list of ids to be made, into ``extent``; all other
    tasks are of one part, ``start``. A serial is never used twice: it is the generation of a grant too.
    """

    kind: TaskKind
    start: int
    stop: int
    pass_number: int
    serial: int
    extent: int = -1

    @property
    def size(self) -> int:
        """Number of parts."""
        return self.stop - self.start


class Event:
    """Base of what happened."""


class Instruction:
    """Base of what is to be done."""


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ready(Event):
    """A spawned child has its imports and waits for work."""

    role: str
    number: int


@dataclass(frozen=True)
class Done(Event):
    """A writer has completed its task; ignored unless the serial is that of its task.

    outcome: of ``search`` and ``accept``.
    stored: of ``columns``: how many of the first ones are in the extent.
    """

    number: int
    serial: int
    outcome: Outcome | None = None
    stored: int = 0


@dataclass(frozen=True)
class Died(Event):
    """A child is gone **and reaped**: nothing of it writes any more."""

    role: str
    number: int


@dataclass(frozen=True)
class Raised(Event):
    """A child has reported an exception: a fault of fcl or of the input, which would come again."""

    role: str
    number: int


@dataclass(frozen=True)
class Published(Event):
    """The trainer proposes a point.

    worth: the trainer finds that a pass would pay. last_word: it is solved, nothing better will come.
    """

    version: int
    violation: float
    worth: bool
    last_word: bool = False


@dataclass(frozen=True)
class TrainerIdle(Event):
    """The trainer has nothing to do; ``order`` is the last one it has handled, 0 before the first.

    One that was sent before a later order arrived is out of date, and ignored: so the trainer MUST say
    so again after each order that gives it nothing to do.
    """

    order: int


@dataclass(frozen=True)
class TrainerBusy(Event):
    """The trainer has found work by itself."""


@dataclass(frozen=True)
class AnchorTaken(Event):
    """The trainer has copied what it needs of the anchor of this order; its slots may be reused."""

    order: int


@dataclass(frozen=True)
class Freed(Event):
    """The trainer has dropped its hold on extents, and keeps ``spare`` empty ones.

    order: the last one it has handled; the first Freed with that of a MakeRoom or DropAll answers it.
    """

    extents: tuple[int, ...]
    spare: int
    order: int


@dataclass(frozen=True)
class Decided(Event):
    """The answer to Certify.

    stop: a reason to end, or "". score_first: validate this anchor before the end.
    columns: how many ids are to be made. redraw: draw a new sample first, in ``sample_parts`` parts.
    crowded: so many columns are there that some have to leave before any is made.
    start: of the first pass: a point to begin with is in place, and the next pass is of that.
    """

    stop: str = ""
    columns: int = 0
    redraw: bool = False
    sample_parts: int = 0
    score_first: bool = False
    crowded: bool = False
    start: bool = False


@dataclass(frozen=True)
class StopAsked(Event):
    """A signal, a limit of time, a caller."""

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
    task: Task


@dataclass(frozen=True)
class Threads(Instruction):
    """So many threads are the trainer's from now on."""

    n: int


@dataclass(frozen=True)
class Prepared(Instruction):
    """All rows are prepared; the first pass begins."""


@dataclass(frozen=True)
class TakeProposal(Instruction):
    """Copy the proposal and tell the trainer that its slot is free; it is the point of this pass."""

    version: int
    pass_number: int


@dataclass(frozen=True)
class Certify(Instruction):
    """Do the bookkeeping of a pass and answer with Decided.

    stalled: no new pass; the trainer has nothing to propose against the certified anchor.
    """

    pass_number: int
    stalled: bool = False


@dataclass(frozen=True)
class Decide(Instruction):
    """The point to begin with is not better than the certified anchor: answer with Decided once more."""

    pass_number: int


@dataclass(frozen=True)
class Redraw(Instruction):
    """Forget all cached columns; a new sample is drawn as soon as the trainer has dropped its hold."""

    pass_number: int


@dataclass(frozen=True)
class Validate(Instruction):
    """Copy the certified anchor into the slot of the validation; no task reads that slot now."""

    pass_number: int


@dataclass(frozen=True)
class Scored(Instruction):
    """The scores of an anchor are there."""

    pass_number: int


@dataclass(frozen=True)
class Fail(Instruction):
    """The end: a role has died too often without progress."""

    role: str


@dataclass(frozen=True)
class Abort(Instruction):
    """The end: a child raised an exception."""

    role: str
    number: int


@dataclass(frozen=True)
class Finish(Instruction):
    """The end: decided or asked for."""

    reason: str


# -- orders: instructions that reach the trainer ---------------------------------------------------


@dataclass(frozen=True)
class Order(Instruction):
    """Base of messages to the trainer; orders count from 1, through all incarnations."""

    order: int


@dataclass(frozen=True)
class SendAnchor(Order):
    """Hand over the certified anchor of a pass; answered by AnchorTaken(order)."""

    pass_number: int


@dataclass(frozen=True)
class Restore(Order):
    """As SendAnchor, for a trainer that replaces a dead one; with all that is the trainer's.

    Only between passes: margins, residuals and prices are those of this anchor. Of ``extents`` those
    without a committed column are spare.
    """

    pass_number: int
    extents: tuple[int, ...]


@dataclass(frozen=True)
class Commit(Order):
    """Ids [start, stop) are stored in an extent, which is the trainer's now.

    With order 0 there is no trainer to tell: enter it in the directory, Restore will name it.
    """

    extent: int
    start: int
    stop: int
    pass_number: int
    serial: int


@dataclass(frozen=True)
class Lend(Order):
    """An empty extent for the trainer's compaction."""

    extent: int


@dataclass(frozen=True)
class MakeRoom(Order):
    """Evict until ``wanted`` extents are empty, as far as can be; answered by Freed(.., order).

    None may be wanted: then it is the number of columns that has to fall.
    """

    wanted: int


@dataclass(frozen=True)
class DropAll(Order):
    """Drop all columns and spares; answered by Freed(all extents, 0, order)."""


@dataclass(frozen=True)
class Rejected(Order):
    """The proposal did not lower the objective; the anchor of ``pass_number`` stays."""

    pass_number: int
    version: int
