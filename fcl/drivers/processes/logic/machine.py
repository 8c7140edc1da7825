"""The state machine of the decision logic: one event in, a list of instructions out."""

from __future__ import annotations

from collections import Counter

from fcl.drivers.processes.logic import protocol
from fcl.drivers.processes.logic.protocol import (
    BETWEEN_PASSES,
    TASKS,
    TRAINER,
    WRITER,
    Decided,
    Instruction,
    LogicEvent,
    LogicSettings,
    Outcome,
    Published,
    Stage,
    WriterTask,
)
from fcl.drivers.processes.logic.state import (
    Activity,
    Extents,
    Lane,
    LogicError,
    StageParts,
    Tokens,
    TrainerSide,
    Validation,
    WriterSide,
    require,
)


class Logic:
    """Decides who does what in a run, without any process, clock, file or array.

    Call ``start()`` once, then ``handle(event)`` for each event in the order of arrival, and carry out
    the instructions in the order of the list. The same events give the same instructions.
    """

    def __init__(self, settings: LogicSettings) -> None:
        self.settings = settings
        self.tokens = Tokens(settings.cores, settings.sharing)
        self.extents = Extents(settings.extents)
        self.deaths: Counter[str] = Counter()  #: of each role since the last progress
        self.writers = [WriterSide(number) for number in range(settings.writers)]
        self.trainer = TrainerSide()
        self.threads = 0  #: of the trainer, by the last instruction
        self.handed: int | None = None  #: the pass whose anchor the trainer has or will get
        self.passes = Lane(Stage.PREPARE, settings.first_pass, StageParts(settings.prepare_parts))
        self.validation = Validation(settings.validate_parts)
        self.crowded = False  #: whether columns have to be evicted before any is made
        self.starting = False  #: whether the initial point is tried; the trainer has no anchor yet
        self._out: list[Instruction] = []
        self._serial = 0
        self._outcome: Outcome | None = None  # of the last search or accept
        self._taken: Published | None = None  # the proposal of this pass
        self._decided = Decided()  # the last answer of the shell

    # -- what others may read ----------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """The present stage of the passes."""
        return self.passes.stage

    @property
    def pass_number(self) -> int:
        """The pass under way, or the last one; a rejected proposal does not count as a pass."""
        return self.passes.pass_number

    @property
    def busy_writers(self) -> int:
        """Number of writers that have a task."""
        return sum(writer.task is not None for writer in self.writers)

    @property
    def finished(self) -> bool:
        """Whether the run is over, and events are ignored."""
        return self.stage == Stage.FINISHED

    # -- events in, instructions out ---------------------------------------------------------------

    def start(self) -> list[Instruction]:
        """Spawn all children."""
        self._say(protocol.Spawn(TRAINER, 0, 0))
        for writer in self.writers:
            self._say(protocol.Spawn(WRITER, writer.number, 0))
        return self._go_on()

    def handle(self, event: LogicEvent) -> list[Instruction]:
        """Process an event; returns the instructions to carry out now.

        Raises LogicError: the event is impossible, a bug in the shell or in a child.
        """
        if self.finished:
            return []
        match event:
            case protocol.Ready(role, number):
                self._ready(role, number)
            case protocol.Done():
                self._done(event)
            case protocol.Died(role, number):
                self._died(role, number)
            case protocol.Raised():
                self._finish(protocol.Abort(event))
            case protocol.Published():
                self.trainer.published(event)
            case protocol.TrainerIdle(order):
                self.trainer.idle(order)
            case protocol.AnchorTaken(order):
                self.trainer.anchor_taken(order)
            case protocol.Freed():
                self._freed(event)
            case Decided():
                self._decide(event)
            case protocol.StopAsked(reason):
                # an earlier decision to stop stands; the run only waits for its score
                self._finish(protocol.Finish(self._decided.stop or reason))
            case _:
                raise TypeError(f"not an event: {event!r}")
        return self._go_on()

    def _say(self, instruction: Instruction) -> None:
        self._out.append(instruction)

    def _finish(self, last: Instruction) -> None:
        self._say(last)
        self.passes.stage = Stage.FINISHED

    def _go_on(self) -> list[Instruction]:
        """Advance as far as possible; returns the instructions."""
        while not self.finished:
            self._restore()
            self._lend()
            self._give_up_columns()
            if not self._advance() and not self._advance_validation():
                break
        if not self.finished:
            self._deal()
            self._request_room()
            threads = self.tokens.threads(self.busy_writers)
            if threads != self.threads:
                self.threads = threads
                self._say(protocol.Threads(threads))
        out, self._out = self._out, []
        return out

    # -- children ----------------------------------------------------------------------------------

    def _ready(self, role: str, number: int) -> None:
        if role == WRITER:
            self.writers[number].became_ready()
        else:
            self.trainer.became_ready(self.handed is None and not self.extents.committed)

    def _died(self, role: str, number: int) -> None:
        self.deaths[role] += 1
        if self.deaths[role] >= self.settings.max_deaths:
            self._finish(protocol.Fail(role))
            return
        if role == WRITER:
            writer = self.writers[number]
            if writer.task is not None:
                self._lane(writer.task.serial).parts.take_back(writer.task.serial)
                if writer.task.extent >= 0:
                    self.extents.give_back(writer.task.extent)
            writer.died()
            self._say(protocol.Spawn(WRITER, number, writer.incarnation))
            return
        if self.trainer.drop_order:
            self._release_all()
        self.trainer.died()
        self._say(protocol.Spawn(TRAINER, 0, self.trainer.incarnation))

    # -- the passes --------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Move from a complete stage to the next; returns whether that was possible."""
        if not self.passes.parts.complete:
            return False
        begin, settings = self.passes.begin, self.settings
        match self.stage:
            case Stage.PREPARE:
                self.deaths.clear()
                self._say(protocol.RowsPrepared())
                if settings.measure_parts:
                    begin(Stage.MEASURE, settings.measure_parts)
                else:
                    self._first_pass()
            case Stage.MEASURE:
                self._first_pass()
            case Stage.MARGINS:
                begin(Stage.ACCEPT if self._taken is None else Stage.SEARCH, 1)
            case Stage.SEARCH | Stage.ACCEPT:
                self._searched()
            case Stage.BLEND:
                begin(Stage.ACCEPT, 1)
            case Stage.RESIDUALS:
                begin(Stage.PRICE, settings.price_parts)
            case Stage.PRICE:
                begin(Stage.CERTIFY, 1)
            case Stage.CERTIFY:
                begin(Stage.DECIDE)
                self._say(protocol.Certify(self.pass_number))
                self._begin_validation()
            case Stage.DROP:
                if self.trainer.drop_order:
                    return False
                begin(Stage.DRAW, 1)
            case Stage.DRAW:
                begin(Stage.SAMPLE, self._decided.sample_parts)
            case Stage.SAMPLE:
                self._begin_columns()
            case Stage.COLUMNS:
                begin(Stage.WAIT)
            case Stage.WAIT:
                return self._next_pass()
            case Stage.SCORING:
                if self.validation.scored != self.pass_number:
                    return False
                self._finish(protocol.Finish(self._decided.stop))
            case _:  # DECIDE waits for the shell
                return False
        return True

    def _first_pass(self) -> None:
        self._say(protocol.Begin())
        first = Stage.MARGINS if self.settings.resumed else Stage.RESIDUALS
        self.passes.begin(first, self.settings.margins_parts)

    def _try_point(self, proposal: Published) -> None:
        """Begin a pass that tries a point."""
        self._taken = proposal
        self.passes.pass_number += 1
        self.passes.begin(Stage.MARGINS, self.settings.margins_parts)

    def _searched(self) -> None:
        """Act on the outcome of a search, or of the acceptance of a single point."""
        match self._outcome:
            case Outcome.ACCEPTED:
                self.deaths.clear()
                self.passes.begin(Stage.RESIDUALS, self.settings.margins_parts)
            case Outcome.BLEND:
                self.passes.begin(Stage.BLEND, self.settings.margins_parts)
            case Outcome.REJECTED:
                self._reject()
            case other:
                raise LogicError(f"{self.stage}: expected an outcome, got {other!r}")

    def _reject(self) -> None:
        """Keep the anchor, without pricing.

        A rejected last word stalls the run if the trainer is idle: it would propose the same point again.
        """
        taken, trainer = self._taken, self.trainer
        require(taken is not None, "the anchor of a resumed run is rejected")
        assert taken is not None
        self.passes.pass_number -= 1
        if self.starting:
            self.starting = False
            self._ask(protocol.Decide())
            return
        stalled = taken.last_word and trainer.state == Activity.IDLE and trainer.proposal is None
        if order := trainer.give():
            self._say(protocol.Rejected(order))
        if stalled and trainer.informed:
            self._ask(protocol.Stalled())
        else:
            self.passes.begin(Stage.WAIT)

    def _ask(self, question: Instruction) -> None:
        """Ask the shell to decide."""
        self.passes.begin(Stage.DECIDE)
        self._say(question)

    def _next_pass(self) -> bool:
        """Begin a pass if there is a proposal for it; returns whether anything began.

        Its margins overwrite the former anchor's, so the trainer must have taken the present anchor.
        """
        trainer = self.trainer
        if not trainer.informed or trainer.anchor_order:
            return False
        if trainer.worth_a_pass:
            proposal, trainer.proposal = trainer.proposal, None
            assert proposal is not None
            self._say(protocol.TakeProposal(proposal.version))
            self._try_point(proposal)
            return True
        if trainer.state == Activity.IDLE:
            self._ask(protocol.Stalled())
            return True
        return False

    def _decide(self, event: Decided) -> None:
        """Act on the shell's decision about a pass."""
        require(self.stage == Stage.DECIDE, f"decided in stage {self.stage}")
        self._decided = event
        if event.stop:
            if event.score_first and self.settings.validate_parts:
                self.passes.begin(Stage.SCORING)
                self._begin_validation()
            else:
                self._finish(protocol.Finish(event.stop))
        elif event.start:
            first = self.handed is None and not self.starting
            require(first, "an initial point after the beginning")
            self.starting = True
            self._try_point(Published(0, worth=True))
        elif event.again:
            require(self.handed == self.pass_number, "an anchor is certified again at once")
            self.passes.pass_number += 1
            self.passes.begin(Stage.RESIDUALS, self.settings.margins_parts)
        elif event.redraw:
            if order := self.trainer.give():
                self.trainer.drop_order = order
                self._say(protocol.DropAll(order))
                self.passes.begin(Stage.DROP)
            else:
                self._release_all()
                self.passes.begin(Stage.DRAW, 1)
        else:
            self._begin_columns()

    def _restore(self) -> None:
        """Send the anchor to a trainer that replaces a dead one.

        Only between passes: in the middle of a pass, margins and residuals are overwritten, and the pass
        would have to wait until the trainer has copied them. Until then the writers use its cores.
        """
        new = self.trainer.state != Activity.ABSENT and not self.trainer.informed
        if new and self.stage in BETWEEN_PASSES:
            self._hand_over(self.pass_number)

    def _hand_over(self, pass_number: int) -> None:
        """Send the trainer the certified anchor, and a new trainer also its extents."""
        trainer = self.trainer
        self.handed, self.starting = pass_number, False
        if trainer.state == Activity.ABSENT:
            return
        if trainer.informed:
            self._say(protocol.SendAnchor(trainer.give(), pass_number))
        else:
            trainer.informed = True
            held = tuple(sorted(self.extents.committed))
            self._say(protocol.Restore(trainer.give(), pass_number, held))
        trainer.anchor_order = trainer.handed_order = trainer.order

    # -- room for columns: extents move between the arena, the writers and the trainer -------------

    def _begin_columns(self) -> None:
        self.passes.begin(Stage.COLUMNS, self._decided.columns, self.settings.batch)
        self.crowded = self._decided.crowded
        self._hand_over(self.pass_number)

    @property
    def has_room(self) -> bool:
        """Whether a writer can be granted an extent."""
        return bool(self.extents.free) and not self.crowded

    def _lend(self) -> None:
        """Lend the trainer an empty extent for compaction, unless it has one; writers come second.

        It does nothing while rows are read: there is no cache yet, and an order makes the trainer busy,
        which would take a core from the readers.
        """
        trainer = self.trainer
        if self.stage == Stage.PREPARE:
            return
        if trainer.informed and not (trainer.spare or trainer.drop_order) and self.extents.free:
            trainer.spare, trainer.lend_order = 1, trainer.give()
            self._say(protocol.Lend(trainer.lend_order, self.extents.lend()))

    def _request_room(self) -> None:
        """Request room from the trainer if columns wait, unless a request is still unanswered."""
        trainer, passes = self.trainer, self.passes
        wanted = len(passes.parts.waiting) if passes.stage == Stage.COLUMNS else 0
        if not wanted or not trainer.informed or trainer.room_order:
            return
        if self.extents.free:
            wanted = 0
        if self.crowded or (wanted and not trainer.refuses_room):
            trainer.room_order = trainer.give()
            self._say(protocol.MakeRoom(trainer.room_order, min(wanted, self.extents.n - 1)))

    def _give_up_columns(self) -> None:
        """Drop the waiting columns if neither the trainer nor a writer can free an extent."""
        hope = self.extents.free or self.extents.granted or not self.trainer.refuses_room
        if self.stage == Stage.COLUMNS and not hope:
            self.passes.parts.drop_waiting()

    def _freed(self, event: protocol.Freed) -> None:
        """Take back extents from the trainer, and note which orders it has answered."""
        trainer, extents = self.trainer, self.extents
        extents.release(event.extents)
        trainer.freed(event.spare, event.order, extents.committed)
        if trainer.room_order and event.order >= trainer.room_order:
            # lend first: an extent that goes back to the trainer is no room for writers, and counting it
            # as room could repeat the request forever
            self._lend()
            # when crowded, the request was for slots, and says nothing about extents
            if not extents.free and not self.crowded:
                trainer.denied = trainer.room_order
            trainer.room_order, self.crowded = 0, False

    def _release_all(self) -> None:
        """Free all extents of a trainer that is absent or dead; its columns are obsolete."""
        self.extents.release(set(self.extents.committed))
        self.trainer.spare = 0

    def _stored(self, task: WriterTask, stored: int) -> None:
        """Commit the extent into which a writer has put the first ``stored`` columns of its task.

        If ``stored`` is 0, the first column does not fit into an empty extent, and the whole task is
        dropped: each further column to try would cost a pass over the rows.
        """
        require(0 <= stored <= task.size, f"{stored} columns stored of {task}")
        if stored:
            self.extents.commit(task.extent)
            self.trainer.commit_order = order = self.trainer.give()
            if order:  # else a later Restore will name the extent
                self._say(protocol.Commit(order, task.extent, stored, task.pass_number))
        else:
            self.extents.give_back(task.extent)
        self.passes.parts.finish(task.serial, stored)

    # -- validation --------------------------------------------------------------------------------

    def _begin_validation(self) -> None:
        """Validate the anchor just certified, if it is its turn."""
        if self.validation.take(self.pass_number, is_last=self.stage == Stage.SCORING):
            self._say(protocol.Validate())

    def _advance_validation(self) -> bool:
        """Move from a complete stage to the next; returns whether that was possible."""
        lane = self.validation
        if lane.stage == Stage.OFF or not lane.parts.complete:
            return False
        if self.stage == Stage.SCORING and lane.pass_number != self.pass_number:
            lane.begin(Stage.OFF)
            self._begin_validation()
        elif lane.advance():
            self._say(protocol.Scored(lane.scored))
        return True

    # -- tasks -------------------------------------------------------------------------------------

    def _lane(self, serial: int) -> Lane:
        return self.passes if serial in self.passes.parts.dealt else self.validation

    def lane_with_work(self) -> Lane | None:
        """The lane whose next task can be dealt; validation only if the pass has no task.

        While the shell decides, which takes a moment, validation waits too: the tasks that follow the
        decision come first.
        """
        passes, validation = self.passes, self.validation
        if passes.parts.waiting and (passes.stage != Stage.COLUMNS or self.has_room):
            return passes
        if validation.parts.waiting and passes.stage != Stage.DECIDE:
            return validation
        return None

    def next_writer(self) -> WriterSide | None:
        """The first writer that has no task, if there is a token for it."""
        if self.busy_writers >= self.tokens.most_writers(self.trainer.busy):
            return None
        return next((w for w in self.writers if w.ready and w.task is None), None)

    def _deal(self) -> None:
        while (lane := self.lane_with_work()) and (writer := self.next_writer()):
            self._serial += 1
            part = lane.parts.deal(self._serial)
            kind = Stage.MARGINS if lane.stage == Stage.BLEND else lane.stage
            require(kind in TASKS, f"a task in stage {kind}")
            extent = self.extents.grant(writer.number) if kind == Stage.COLUMNS else -1
            threads = 1
            if lane.parts.size == 1:
                threads = self.tokens.threads_alone(self.busy_writers, self.trainer.busy)
            writer.task = WriterTask(
                kind, part.start, part.stop, lane.pass_number, self._serial, extent, threads
            )
            self._say(protocol.Deal(writer.number, writer.task))

    def _done(self, event: protocol.Done) -> None:
        writer = self.writers[event.number]
        task = writer.task
        if task is None or task.serial != event.serial:
            return
        if task.kind == Stage.COLUMNS:
            self._stored(task, event.stored)
        else:
            self._lane(task.serial).parts.finish(task.serial, task.size)
        if task.kind in (Stage.SEARCH, Stage.ACCEPT):
            self._outcome = event.outcome
        writer.task = None
