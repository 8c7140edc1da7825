"""The state machine of the decision logic: one event in, a list of instructions out."""

from __future__ import annotations

from fcl.drivers.processes.logic.protocol import (
    TRAINER,
    WRITER,
    Abort,
    AnchorTaken,
    Begin,
    Certify,
    Deal,
    Decide,
    Decided,
    Died,
    Done,
    DropAll,
    Fail,
    Finish,
    Freed,
    Instruction,
    LogicEvent,
    LogicSettings,
    Outcome,
    Published,
    Raised,
    Ready,
    Rejected,
    Restore,
    RowsPrepared,
    SendAnchor,
    Spawn,
    Stalled,
    StopAsked,
    TakeProposal,
    Threads,
    TrainerIdle,
    WriterTask,
)
from fcl.drivers.processes.logic.room import Room
from fcl.drivers.processes.logic.stages import BETWEEN_PASSES, TASKS, Stage
from fcl.drivers.processes.logic.state import (
    Activity,
    Deaths,
    Extents,
    Lane,
    LogicError,
    StageParts,
    Tokens,
    TrainerSide,
    WriterSide,
    require,
)
from fcl.drivers.processes.logic.validation import Validation


class Logic:
    """Decides who does what in a run, without any process, clock, file or array.

    Call ``start()`` once, then ``handle(event)`` for each event in the order of arrival, and carry out
    the instructions in the order of the list. The same events give the same instructions.
    """

    def __init__(self, settings: LogicSettings) -> None:
        self.settings = settings
        self.tokens = Tokens(settings.cores, settings.sharing)
        self.extents = Extents(settings.extents)
        self.deaths = Deaths(settings.max_deaths)
        self.writers = [WriterSide(number) for number in range(settings.writers)]
        self.trainer = TrainerSide()
        self.threads = 0  #: of the trainer, by the last instruction
        self.handed: int | None = None  #: the pass whose anchor the trainer has or will get
        self.passes = Lane(Stage.PREPARE, settings.first_pass, StageParts(settings.prepare_parts))
        self._out: list[Instruction] = []
        self.room = Room(self.extents, self.trainer, self.passes, self._say)
        self.validation = Validation(settings.validate_parts, self.passes, self._say)
        self._serial = 0
        self._outcome: Outcome | None = None  # of the last search or accept
        self._taken: Published | None = None  # the proposal of this pass
        self._decided = Decided()  # the last answer of the shell
        self.starting = False  #: whether the initial point is tried; the trainer has no anchor yet

    # -- what others may read ----------------------------------------------------------------------

    @property
    def stage(self) -> Stage:
        """The present stage of the passes."""
        return self.passes.stage

    @property
    def parts(self) -> tuple[int, int]:
        """Number of parts of the stage that are done or dropped, and number of all its parts."""
        parts = self.passes.parts
        return sum(map(len, (*parts.done, *parts.dropped))), parts.size

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
        self._say(Spawn(TRAINER, 0, 0))
        for writer in self.writers:
            self._say(Spawn(WRITER, writer.number, 0))
        return self._go_on()

    def handle(self, event: LogicEvent) -> list[Instruction]:
        """Process an event; returns the instructions to carry out now.

        Raises
        ------
        LogicError
            The event is impossible: a bug in the shell or in a child.
        """
        if self.finished:
            return []
        match event:
            case Ready(role, number):
                self._ready(role, number)
            case Done():
                self._done(event)
            case Died(role, number):
                self._died(role, number)
            case Raised():
                self._finish(Abort(event))
            case Published():
                self.trainer.published(event)
            case TrainerIdle(order):
                self.trainer.idle(order)
            case AnchorTaken(order):
                self.trainer.anchor_taken(order)
            case Freed():
                self.room.freed(event)
            case Decided():
                self._decide(event)
            case StopAsked(reason):
                # an earlier decision to stop stands; the run only waits for its score
                self._finish(Finish(self._decided.stop or reason))
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
            self.room.lend()
            self.room.give_up()
            if not self._advance() and not self.validation.advance():
                break
        if not self.finished:
            self._deal()
            self.room.request()
            threads = self.tokens.threads(self.busy_writers)
            if threads != self.threads:
                self.threads = threads
                self._say(Threads(threads))
        out, self._out = self._out, []
        return out

    # -- children ----------------------------------------------------------------------------------

    def _ready(self, role: str, number: int) -> None:
        if role == WRITER:
            writer = self.writers[number]
            require(not writer.ready, f"writer {number} is ready twice")
            writer.ready = True
            return
        self.trainer.ready(self.handed is None and not self.extents.committed)

    def _died(self, role: str, number: int) -> None:
        if self.deaths.add(role):
            self._finish(Fail(role))
            return
        if role == WRITER:
            writer = self.writers[number]
            if writer.task is not None:
                self._lane(writer.task.serial).parts.take_back(writer.task.serial)
                if writer.task.extent >= 0:
                    self.extents.give_back(writer.task.extent)
            writer.died()
            self._say(Spawn(WRITER, number, writer.incarnation))
            return
        if self.trainer.drop_order:
            self.room.release_all()
        self.trainer.died()
        self._say(Spawn(TRAINER, 0, self.trainer.incarnation))

    # -- the passes --------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Move from a complete stage to the next; returns whether that was possible."""
        if not self.passes.parts.complete:
            return False
        settings = self.settings
        match self.stage:
            case Stage.PREPARE:
                self.deaths.progress()
                self._say(RowsPrepared())
                if settings.measure_parts:
                    self.passes.begin(Stage.MEASURE, settings.measure_parts)
                else:
                    self._first_pass()
            case Stage.MEASURE:
                self._first_pass()
            case Stage.MARGINS:
                self.passes.begin(Stage.ACCEPT if self._taken is None else Stage.SEARCH, 1)
            case Stage.SEARCH | Stage.ACCEPT:
                self._searched()
            case Stage.BLEND:
                self.passes.begin(Stage.ACCEPT, 1)
            case Stage.RESIDUALS:
                self.passes.begin(Stage.PRICE, settings.price_parts)
            case Stage.PRICE:
                self.passes.begin(Stage.CERTIFY, 1)
            case Stage.CERTIFY:
                self.passes.begin(Stage.DECIDE)
                self._say(Certify(self.pass_number))
                self.validation.begin()
            case Stage.DROP:
                if self.trainer.drop_order:
                    return False
                self.passes.begin(Stage.DRAW, 1)
            case Stage.DRAW:
                self.passes.begin(Stage.SAMPLE, self._decided.sample_parts)
            case Stage.SAMPLE:
                self._begin_columns()
            case Stage.COLUMNS:
                self.passes.begin(Stage.WAIT)
            case Stage.WAIT:
                return self._next_pass()
            case Stage.SCORING:
                if self.validation.scored != self.pass_number:
                    return False
                self._finish(Finish(self._decided.stop))
            case _:  # DECIDE waits for the shell
                return False
        return True

    def _first_pass(self) -> None:
        self._say(Begin())
        first = Stage.MARGINS if self.settings.resumed else Stage.RESIDUALS
        self.passes.begin(first, self.settings.margins_parts)

    def _searched(self) -> None:
        """Act on the outcome of a search, or of the acceptance of a single point."""
        match self._outcome:
            case Outcome.ACCEPTED:
                self.deaths.progress()
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
        if self.starting:
            self.starting = False
            self.passes.pass_number -= 1
            self.passes.begin(Stage.DECIDE)
            self._say(Decide())
            return
        stalled = taken.last_word and trainer.state == Activity.IDLE and trainer.proposal is None
        self.passes.pass_number -= 1
        order = trainer.give()
        if order:
            self._say(Rejected(order))
        if stalled and trainer.informed:
            self._stall()
        else:
            self.passes.begin(Stage.WAIT)

    def _stall(self) -> None:
        self.passes.begin(Stage.DECIDE)
        self._say(Stalled())

    def _next_pass(self) -> bool:
        """Begin a pass if there is a proposal for it; returns whether anything began.

        Its margins overwrite the former anchor's, so the trainer must have taken the present anchor.
        """
        trainer = self.trainer
        if not trainer.informed or trainer.anchor_order:
            return False
        if trainer.worth_a_pass:
            self._taken, trainer.proposal = trainer.proposal, None
            assert self._taken is not None
            self.passes.pass_number += 1
            self._say(TakeProposal(self._taken.version))
            self.passes.begin(Stage.MARGINS, self.settings.margins_parts)
            return True
        if trainer.state == Activity.IDLE:
            self._stall()
            return True
        return False

    def _decide(self, event: Decided) -> None:
        """Act on the shell's decision about a pass."""
        require(self.stage == Stage.DECIDE, f"decided in stage {self.stage}")
        self._decided = event
        if event.stop:
            if event.score_first and self.settings.validate_parts:
                self.passes.begin(Stage.SCORING)
                self.validation.begin()
            else:
                self._finish(Finish(event.stop))
        elif event.start:
            first = self.handed is None and not self.starting
            require(first, "an initial point after the beginning")
            self.starting, self._taken = True, Published(0, worth=True)
            self.passes.pass_number += 1
            self.passes.begin(Stage.MARGINS, self.settings.margins_parts)
        elif event.again:
            require(self.handed == self.pass_number, "an anchor is certified again at once")
            self.passes.pass_number += 1
            self.passes.begin(Stage.RESIDUALS, self.settings.margins_parts)
        elif event.redraw:
            order = self.trainer.give()
            if order:
                self.trainer.drop_order = order
                self._say(DropAll(order))
                self.passes.begin(Stage.DROP)
            else:
                self.room.release_all()
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
            self._say(SendAnchor(trainer.give(), pass_number))
        else:
            trainer.informed = True
            held = tuple(sorted(self.extents.committed))
            self._say(Restore(trainer.give(), pass_number, held))
        trainer.anchor_order = trainer.handed_order = trainer.order

    # -- columns -----------------------------------------------------------------------------------

    def _begin_columns(self) -> None:
        self.passes.begin(Stage.COLUMNS, self._decided.columns, self.settings.batch)
        self.room.crowded = self._decided.crowded
        self._hand_over(self.pass_number)

    # -- tasks -------------------------------------------------------------------------------------

    def _lane(self, serial: int) -> Lane:
        return self.passes if serial in self.passes.parts.dealt else self.validation.lane

    def lane_with_work(self) -> Lane | None:
        """The lane whose next task can be dealt; validation only if the pass has no task.

        While the shell decides, which takes a moment, validation waits too: the tasks that follow the
        decision come first.
        """
        passes, validation = self.passes, self.validation.lane
        if passes.parts.waiting and (passes.stage != Stage.COLUMNS or self.room.is_there):
            return passes
        if validation.parts.waiting and passes.stage != Stage.DECIDE:
            return validation
        return None

    @property
    def _trainer_busy(self) -> bool:
        return self.trainer.state == Activity.BUSY

    def next_writer(self) -> WriterSide | None:
        """The first writer that has no task, if there is a token for it."""
        if self.busy_writers >= self.tokens.most_writers(self._trainer_busy):
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
                threads = self.tokens.threads_alone(self.busy_writers, self._trainer_busy)
            writer.task = WriterTask(
                kind, part.start, part.stop, lane.pass_number, self._serial, extent, threads
            )
            self._say(Deal(writer.number, writer.task))

    def _done(self, event: Done) -> None:
        writer = self.writers[event.number]
        task = writer.task
        if task is None or task.serial != event.serial:
            return
        if task.kind == Stage.COLUMNS:
            self.room.stored(task, event.stored)
        else:
            self._lane(task.serial).parts.finish(task.serial, task.size)
        if task.kind in (Stage.SEARCH, Stage.ACCEPT):
            self._outcome = event.outcome
        writer.task = None
