"""The components of the decision logic's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from fcl.drivers.processes.logic.protocol import Published, Stage, WriterTask


class LogicError(AssertionError):
    """A bug in fcl: an invariant is broken, or an impossible event arrived."""


def require(holds: bool, words: str) -> None:
    """Raise LogicError unless an invariant holds."""
    if not holds:
        raise LogicError(words)


class StageParts:
    """The parts [0, size) of one stage, cut into ranges that are dealt to writers.

    At any time each part is in exactly one range, which is waiting, dealt, done or dropped.
    """

    def __init__(self, size: int = 0, batch: int = 1) -> None:
        self.size = size
        self.waiting = deque(range(a, min(a + batch, size)) for a in range(0, size, batch))
        self.dealt: dict[int, range] = {}  #: serial -> range
        self.done: list[range] = []
        self.dropped: list[range] = []

    @property
    def complete(self) -> bool:
        return not self.waiting and not self.dealt

    @property
    def started(self) -> bool:
        return bool(self.dealt or self.done)

    @property
    def n_ended(self) -> int:
        """Number of parts that are done or dropped."""
        return sum(map(len, (*self.done, *self.dropped)))

    def deal(self, serial: int) -> range:
        """Deal the next range, in order; ranges that were taken back come first."""
        self.dealt[serial] = part = self.waiting.popleft()
        return part

    def finish(self, serial: int, n_done: int) -> None:
        """Mark the first ``n_done`` parts of a range as done, the rest as waiting; 0: drop all."""
        part = self.dealt.pop(serial)
        if n_done == 0:
            self.dropped.append(part)
            return
        self.done.append(part[:n_done])
        if n_done < len(part):
            self.waiting.appendleft(part[n_done:])

    def take_back(self, serial: int) -> None:
        """Let the whole range wait again, since its writer died."""
        self.waiting.appendleft(self.dealt.pop(serial))

    def drop_waiting(self) -> None:
        self.dropped.extend(self.waiting)
        self.waiting.clear()


@dataclass
class Lane:
    """A sequence of stages, one at a time: the passes, or the validation alongside."""

    stage: Stage
    pass_number: int
    parts: StageParts = field(default_factory=StageParts)

    def begin(self, stage: Stage, size: int = 0, batch: int = 1) -> None:
        require(self.parts.complete, f"{stage} begins while {self.stage} has parts left")
        self.stage = stage
        self.parts = StageParts(size, batch)


class Validation(Lane):
    """The validation of certified anchors: of as many as time allows, and always of the last one."""

    def __init__(self, n_parts: int) -> None:
        super().__init__(Stage.OFF, -1)
        self.n_parts = n_parts
        self.allowed = True  #: False while validation takes too much time
        self.scored = -1  #: the last pass with a score

    def take(self, pass_number: int, is_last: bool) -> bool:
        """Take a certified anchor; returns whether its validation begins now.

        A validation that has started continues, and the new anchor is skipped: if each new anchor ended
        the validation of the one before, a slow validation would never give a score.
        """
        new = self.pass_number != pass_number
        if not (self.n_parts and new and (self.allowed or is_last)):
            return False
        if self.stage == Stage.VALIDATE and not self.parts.started:
            self.parts.drop_waiting()
            self.stage = Stage.OFF
        if self.stage == Stage.OFF:
            self.pass_number = pass_number
            self.begin(Stage.VALIDATE, self.n_parts)
            return True
        if is_last:
            self.parts.drop_waiting()
        return False

    def advance(self) -> bool:
        """Begin the stage after a complete one; returns whether the anchor has a score now."""
        if self.stage == Stage.VALIDATE:
            self.begin(Stage.SCORE, 1)
            return False
        self.begin(Stage.OFF)
        self.scored = self.pass_number
        return True


class Extents:
    """Who holds each extent of the arena.

    An extent is free, granted to a writer, or committed to the trainer. An extent that the trainer is
    about to drop stays committed until Freed arrives, so no process reads or writes a free extent.
    Extents that were in use before come first: the others have no memory yet.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.free = deque(range(n))
        self.granted: dict[int, int] = {}  #: extent -> writer
        self.committed: set[int] = set()

    def limit(self, n: int) -> None:
        """Lower the number of extents to n; extents from n on must be free."""
        require(
            max([*self.granted, *self.committed], default=-1) < n,
            f"an extent from {n} on is owned already",
        )
        self.n = n
        self.free = deque(extent for extent in self.free if extent < n)

    def grant(self, writer: int) -> int:
        extent = self.free.popleft()
        self.granted[extent] = writer
        return extent

    def give_back(self, extent: int) -> None:
        """Free the extent of a writer that has stored nothing, or is dead and reaped."""
        del self.granted[extent]
        self.free.appendleft(extent)

    def commit(self, extent: int) -> None:
        del self.granted[extent]
        self.committed.add(extent)

    def lend(self) -> int:
        extent = self.free.popleft()
        self.committed.add(extent)
        return extent

    def release(self, extents: Iterable[int]) -> None:
        """Free extents that the trainer has released."""
        for extent in sorted(extents):
            require(extent in self.committed, f"freed extent {extent} is not the trainer's")
            self.committed.remove(extent)
            self.free.appendleft(extent)


@dataclass(frozen=True)
class Tokens:
    """How the cores are divided between the threads of the trainer and the running writers.

    With sharing, the trainer gets the cores that no writer uses, and writers may use all cores while the
    trainer has nothing to do. Without sharing, one core always belongs to the trainer. Either side always
    has at least one core, so cores + 1 are in use if there is only one core, or if an idle trainer gets
    work while writers use all cores, until one of their tasks is done.
    """

    cores: int
    sharing: bool

    def most_writers(self, trainer_busy: bool) -> int:
        if self.sharing and not trainer_busy:
            return self.cores
        return max(1, self.cores - 1)

    def threads_alone(self, running: int, trainer_busy: bool) -> int:
        """Threads of the only task of a stage, beside the writers that are running already."""
        return max(1, self.cores - running - trainer_busy) if self.sharing else 1

    def threads(self, running: int) -> int:
        """Threads of the trainer; at least 1, also while it is idle, so that it can always start."""
        return max(1, self.cores - running) if self.sharing else 1


@dataclass
class WriterSide:
    """A writer as the logic sees it."""

    number: int
    incarnation: int = 0
    ready: bool = False
    task: WriterTask | None = None

    def became_ready(self) -> None:
        require(not self.ready, f"writer {self.number} is ready twice")
        self.ready = True

    def died(self) -> None:
        self.incarnation += 1
        self.ready, self.task = False, None


class Activity(StrEnum):
    """What the trainer is doing."""

    ABSENT = "absent"
    IDLE = "idle"
    BUSY = "busy"


@dataclass
class TrainerSide:
    """The trainer as the logic sees it.

    The trainer gets numbered orders, one by one. Its answers name the order that they answer, so that a
    message from before a later order is not mistaken for an answer to that order.
    """

    incarnation: int = 0
    state: Activity = Activity.ABSENT
    informed: bool = False  #: whether the trainer knows the anchor and its extents
    order: int = 0  #: the last order
    anchor_order: int = 0  #: a SendAnchor or Restore without an answer, or 0
    room_order: int = 0  #: a MakeRoom without an answer, or 0
    drop_order: int = 0  #: a DropAll without an answer, or 0
    denied: int = 0  #: the last MakeRoom that freed no extent
    handed_order: int = 0  #: the last SendAnchor or Restore
    lend_order: int = 0  #: the last Lend
    commit_order: int = 0  #: the last Commit
    spare: int = 0  #: empty extents that the trainer keeps for compaction
    proposal: Published | None = None  #: the newest proposal that no pass has taken
    fresh: bool = False  #: whether the proposal was made with the present anchor

    def give(self) -> int:
        """The number of a new order; 0 while there is no informed trainer to give it to."""
        if not self.informed:
            return 0
        self.order += 1
        self.state = Activity.BUSY
        return self.order

    @property
    def busy(self) -> bool:
        return self.state == Activity.BUSY

    def became_ready(self, nothing_to_know: bool) -> None:
        """Note that the trainer is ready; a Restore will inform it, unless there is nothing to know."""
        require(self.state == Activity.ABSENT, "the trainer is ready twice")
        self.state, self.informed = Activity.IDLE, nothing_to_know

    def died(self) -> None:
        """Note the trainer's death: its orders stay unanswered, its extents and spares are kept."""
        self.incarnation += 1
        self.state, self.informed = Activity.ABSENT, False
        self.anchor_order = self.room_order = self.drop_order = 0
        self.proposal, self.fresh = None, False

    def idle(self, order: int) -> None:
        require(order <= self.order, f"idle after order {order}, the last was {self.order}")
        if order == self.order:
            self.require_answered()
            self.state = Activity.IDLE

    def freed(self, spare: int, order: int, kept: set[int]) -> None:
        """Note freed extents; the trainer's number of spares is out of date if one was lent since.

        kept : the trainer's extents without the freed ones.
        """
        require(self.informed, "extents freed by a trainer that holds none")
        require(order <= self.order, f"freed after order {order}, the last was {self.order}")
        if order >= self.lend_order:
            self.spare = spare
        if self.drop_order and order >= self.drop_order:
            self.drop_order = 0
            dropped = not kept and not spare
            require(dropped, f"extents {sorted(kept)} kept although all had to be dropped")

    @property
    def refuses_room(self) -> bool:
        """Whether the trainer freed no extent when last asked, and got no columns or anchor since."""
        return self.informed and self.denied > max(self.commit_order, self.handed_order)

    def published(self, proposal: Published) -> None:
        require(self.informed, "a proposal of a trainer that has no anchor")
        self.proposal, self.fresh = proposal, True

    def anchor_taken(self, order: int) -> None:
        require(0 < order <= self.order, f"anchor of order {order}, the last was {self.order}")
        if order == self.anchor_order:
            self.anchor_order = 0
            self.fresh = False  # the present proposal was made with the former anchor

    @property
    def worth_a_pass(self) -> bool:
        """Whether to take the proposal; always if the trainer is idle, since no better one will come."""
        proposal = self.proposal
        if proposal is None:
            return False
        if self.state == Activity.IDLE:
            return True
        return self.fresh and (proposal.worth or proposal.last_word)

    def require_answered(self) -> None:
        """Raise LogicError if an order is unanswered although there is nothing to do."""
        waiting = [n for n in (self.anchor_order, self.room_order, self.drop_order) if n]
        require(not waiting, f"orders {waiting} are not answered, but the trainer is {self.state}")
