"""The decision logic itself: one event in, a list of instructions out."""

from __future__ import annotations

from fcl.drivers.processes.logic.protocol import (
    TRAINER,
    WRITER,
    Abort,
    AnchorTaken,
    Certify,
    Commit,
    Deal,
    Decide,
    Decided,
    Died,
    Done,
    DropAll,
    Event,
    Fail,
    Finish,
    Freed,
    Instruction,
    Lend,
    MakeRoom,
    Outcome,
    Prepared,
    Published,
    Raised,
    Ready,
    Redraw,
    Rejected,
    Restore,
    Scored,
    SendAnchor,
    Settings,
    Spawn,
    StopAsked,
    TakeProposal,
    Task,
    TaskKind,
    Threads,
    TrainerBusy,
    TrainerIdle,
    Validate,
)
from fcl.drivers.processes.logic.state import (
    Deaths,
    Extents,
    Lane,
    LogicError,
    Parts,
    Tokens,
    TrainerSide,
    WriterSide,
    require,
)

__all__ = ["STAGES", "Logic"]

#: The stages of a run and what may follow each; "finished" may follow all.
STAGES: dict[str, tuple[str, ...]] = {
    "prepare": ("measure", "residuals", "margins"),
    "measure": ("residuals", "margins"),  # standard deviations of the features
    # a pass
    "margins": ("search", "accept"),  # accept at once: the first pass of a resumed run
    "search": ("residuals", "blend", "wait", "decide"),
    "blend": ("accept",),  # margins of a point between anchor and proposal
    "accept": ("residuals", "blend", "wait", "decide"),  # blend: back to the anchor of a checkpoint
    "residuals": ("price",),
    "price": ("certify",),
    "certify": ("decide",),
    # between passes
    "decide": (
        "drop",
        "draw",
        "columns",
        "scoring",
        "margins",
    ),  # margins: of a point to begin with
    "drop": ("draw",),  # the trainer drops all columns, before the rows under them change
    "draw": ("sample",),
    "sample": ("columns",),
    "columns": ("wait",),
    "wait": ("margins", "decide"),
    "scoring": (),
    "finished": (),
}

#: Stages in which what the passes write belongs to the anchor handed over, so that a new trainer can
#: be given it.
BETWEEN_PASSES = ("columns", "wait")


class Logic:
    """Deals the work of a run; knows no process, clock, file or array.

    ``start()`` once, then ``handle(event)`` for each event, in the order of arrival; the instructions
    are to be carried out in the order of the list. The same events give the same instructions.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens = Tokens(settings.cores, settings.sharing)
        self.extents = Extents(settings.extents)
        self.deaths = Deaths(settings.max_deaths)
        self.writers = [WriterSide(number) for number in range(settings.writers)]
        self.trainer = TrainerSide()
        self.threads = 0  #: of the trainer, as last told
        self.validation_wanted = True  #: the shell's: False while it takes too much of the time
        self.handed: int | None = None  #: the pass whose anchor the trainer has or will get
        self._passes = Lane("prepare", settings.first_pass, Parts(settings.prepare_parts))
        self._validation = Lane("off", -1)
        self._scored = -1  # the last pass with scores
        self._serial = 0
        self._outcome: Outcome | None = None  # of the last search or accept
        self._taken: Published | None = None  # the proposal of this pass
        self._decided = Decided()  # the last answer of the shell
        self._starting = False  # on a point to begin with, before the trainer has had any anchor
        self._crowded = False  # whether columns have to leave before any is made
        self._out: list[Instruction] = []

    # -- what others may look at -------------------------------------------------------------------

    @property
    def stage(self) -> str:
        """One of STAGES."""
        return self._passes.stage

    @property
    def parts(self) -> tuple[int, int]:
        """Parts of the stage that are done or dropped, and how many there are."""
        parts = self._passes.parts
        return sum(map(len, (*parts.done, *parts.dropped))), parts.size

    @property
    def pass_number(self) -> int:
        """The pass under way, or the last; a rejected proposal takes no number."""
        return self._passes.pass_number

    @property
    def busy_writers(self) -> int:
        """Writers that have a task."""
        return sum(writer.task is not None for writer in self.writers)

    @property
    def finished(self) -> bool:
        """Whether all is over: events are ignored from then on."""
        return self.stage == "finished"

    # -- events in, instructions out ---------------------------------------------------------------

    def start(self) -> list[Instruction]:
        """Spawn everybody."""
        self._say(Spawn(TRAINER, 0, 0))
        for writer in self.writers:
            self._say(Spawn(WRITER, writer.number, 0))
        return self._go_on()

    def handle(self, event: Event) -> list[Instruction]:
        """Take note of an event; what is to be done now.

        Raises
        ------
        LogicError
            The event cannot be: a fault of the shell or of a child.
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
            case Raised(role, number):
                self._finish(Abort(role, number))
            case Published():
                self.trainer.published(event)
            case TrainerIdle(order):
                self.trainer.idle(order)
            case TrainerBusy():
                require(self.trainer.informed, "a trainer is busy that was told nothing")
                self.trainer.state = "busy"
            case AnchorTaken(order):
                self.trainer.anchor_taken(order)
            case Freed():
                self._freed(event)
            case Decided():
                self._decide(event)
            case StopAsked(reason):
                # what was decided already stands: only its score is missing
                self._finish(Finish(self._decided.stop or reason))
            case _:
                raise TypeError(f"not an event: {event!r}")
        return self._go_on()

    def _say(self, instruction: Instruction) -> None:
        self._out.append(instruction)

    def _finish(self, last: Instruction) -> None:
        self._say(last)
        self._passes.stage = "finished"

    def _go_on(self) -> list[Instruction]:
        """All that can be done now."""
        while not self.finished:
            self._restore()
            self._lend()
            self._drop_columns()
            if not self._advance() and not self._advance_validation():
                break
        if not self.finished:
            self._deal()
            self._make_room()
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
            self._release_all()
        self.trainer.died()
        self._say(Spawn(TRAINER, 0, self.trainer.incarnation))

    # -- the passes --------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """One step from a complete stage to the next; whether there was one."""
        if not self._passes.parts.complete:
            return False
        settings = self.settings
        match self.stage:
            case "prepare":
                self.deaths.progress()
                self._say(Prepared())
                if settings.measure_parts:
                    self._begin("measure", settings.measure_parts)
                else:
                    self._first_pass()
            case "measure":
                self._first_pass()
            case "margins":
                self._begin("accept" if self._taken is None else "search", 1)
            case "search" | "accept":
                self._searched()
            case "blend":
                self._begin("accept", 1)
            case "residuals":
                self._begin("price", settings.price_parts)
            case "price":
                self._begin("certify", 1)
            case "certify":
                self._begin("decide")
                self._say(Certify(self.pass_number))
                self._begin_validation()
            case "drop":
                if self.trainer.drop_order:
                    return False
                self._begin("draw", 1)
            case "draw":
                self._begin("sample", self._decided.sample_parts)
            case "sample":
                self._begin_columns()
            case "columns":
                self._begin("wait")
            case "wait":
                return self._next_pass()
            case "scoring":
                if self._scored != self.pass_number:
                    return False
                self._finish(Finish(self._decided.stop))
            case _:  # decide
                return False
        return True

    def _first_pass(self) -> None:
        first = "margins" if self.settings.resumed else "residuals"
        self._begin(first, self.settings.margins_parts)

    def _begin(self, stage: str, size: int = 0, batch: int = 1) -> None:
        require(stage in STAGES[self.stage], f"{stage} cannot follow {self.stage}")
        self._passes.begin(stage, size, batch)

    def _searched(self) -> None:
        """The search, or the second look at a blended point, has an outcome."""
        match self._outcome:
            case Outcome.ACCEPTED:
                self.deaths.progress()
                self._begin("residuals", self.settings.margins_parts)
            case Outcome.BLEND:
                self._begin("blend", self.settings.margins_parts)
            case Outcome.REJECTED:
                self._reject()
            case other:
                raise LogicError(f"{self.stage}: expected an outcome, got {other!r}")

    def _reject(self) -> None:
        """The anchor stays, and nothing is priced.

        The last word of a trainer that has had nothing to do since: it could say nothing else.
        """
        taken, trainer = self._taken, self.trainer
        require(taken is not None, "the anchor of a resumed run is rejected")
        assert taken is not None
        if self._starting:
            self._starting = False
            self._passes.pass_number -= 1
            self._begin("decide")
            self._say(Decide(self.pass_number))
            return
        stalled = taken.last_word and trainer.state == "idle" and trainer.proposal is None
        self._passes.pass_number -= 1
        order = trainer.give()
        if order:
            self._say(Rejected(order, self.pass_number, taken.version))
        if stalled and trainer.informed:
            self._stall()
        else:
            self._begin("wait")

    def _stall(self) -> None:
        self._begin("decide")
        self._say(Certify(self.pass_number, stalled=True))

    def _next_pass(self) -> bool:
        """Begin one if there is a proposal for it; whether anything began.

        Its margins overwrite the slot next to the anchor's: the trainer must have let go of it.
        """
        trainer = self.trainer
        if not trainer.informed or trainer.anchor_order:
            return False
        if trainer.worth_a_pass:
            self._taken, trainer.proposal = trainer.proposal, None
            assert self._taken is not None
            self._passes.pass_number += 1
            self._say(TakeProposal(self._taken.version, self.pass_number))
            self._begin("margins", self.settings.margins_parts)
            return True
        if trainer.state == "idle":
            self._stall()
            return True
        return False

    def _decide(self, event: Decided) -> None:
        """The shell has done the bookkeeping of a pass."""
        require(self.stage == "decide", f"decided in stage {self.stage}")
        self._decided = event
        if event.stop:
            if event.score_first and self.settings.validate_parts:
                self._begin("scoring")
                self._begin_validation()
            else:
                self._finish(Finish(event.stop))
        elif event.start:
            first = self.handed is None and not self._starting
            require(first, "a point to begin with after the beginning")
            self._starting, self._taken = True, Published(0, 0.0, worth=True)
            self._passes.pass_number += 1
            self._begin("margins", self.settings.margins_parts)
        elif event.redraw:
            self._say(Redraw(self.pass_number))
            order = self.trainer.give()
            if order:
                self.trainer.drop_order = order
                self._say(DropAll(order))
                self._begin("drop")
            else:
                self._release_all()
                self._begin("draw", 1)
        else:
            self._begin_columns()

    def _restore(self) -> None:
        """Hand the anchor to a trainer that replaces a dead one.

        Not in the middle of a pass, which overwrites margins and residuals under it: it would have to
        be waited for. Until then its cores are the writers'.
        """
        new = self.trainer.state != "absent" and not self.trainer.informed
        if new and self.stage in BETWEEN_PASSES:
            self._hand_over(self.pass_number)

    def _hand_over(self, pass_number: int) -> None:
        """Give the trainer the certified anchor; one that is new gets all it holds with it."""
        trainer = self.trainer
        self.handed, self._starting = pass_number, False
        if trainer.state == "absent":
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
        self._begin("columns", self._decided.columns, self.settings.batch)
        self._crowded = self._decided.crowded
        self._hand_over(self.pass_number)

    def _lend(self) -> None:
        """One empty extent is the trainer's, to compact into; before any is for writers.

        Not while rows are read: there is no cache yet, and an order makes the trainer busy, which would
        keep a core from the readers.
        """
        trainer = self.trainer
        if self.stage == "prepare":
            return
        if trainer.informed and not (trainer.spare or trainer.drop_order) and self.extents.free:
            trainer.spare, trainer.lend_order = 1, trainer.give()
            self._say(Lend(trainer.lend_order, self.extents.lend()))

    def _make_room(self) -> None:
        """Ask the trainer for room, once, if columns wait, and no extent is free or it is crowded."""
        trainer = self.trainer
        wanted = len(self._passes.parts.waiting) if self.stage == "columns" else 0
        if not wanted or not trainer.informed or trainer.room_order:
            return
        if self.extents.free:
            wanted = 0
        if self._crowded or (wanted and not trainer.refuses_room):
            trainer.room_order = trainer.give()
            self._say(MakeRoom(trainer.room_order, min(wanted, self.extents.n - 1)))

    def _drop_columns(self) -> None:
        """Give up the columns that wait, if the trainer has no room and no writer brings any."""
        hope = self.extents.free or self.extents.granted or not self.trainer.refuses_room
        if self.stage == "columns" and not hope:
            self._passes.parts.drop_waiting()

    def _freed(self, event: Freed) -> None:
        trainer = self.trainer
        trainer.freed(event.spare, event.order)
        self.extents.release(event.extents)
        if trainer.drop_order and event.order >= trainer.drop_order:
            trainer.drop_order = 0
            kept = sorted(self.extents.committed)
            require(
                not kept and not event.spare, f"extents {kept} kept where all were to be dropped"
            )
        if trainer.room_order and event.order >= trainer.room_order:
            # what the trainer needs for itself is no room: lent first, or it could go on for ever
            self._lend()
            if (
                not self.extents.free and not self._crowded
            ):  # else it was not asked for extents alone
                trainer.denied = trainer.room_order
            trainer.room_order, self._crowded = 0, False

    def _release_all(self) -> None:
        """There is no trainer, and its columns are not wanted any more."""
        self.extents.release(set(self.extents.committed))
        self.trainer.spare = 0

    def _stored(self, task: Task, stored: int) -> None:
        """A writer has put the first ``stored`` columns of its task into the extent.

        None: the first does not fit into an empty one, and the task is dropped; trying the others one
        by one would cost a stream over the rows each.
        """
        require(0 <= stored <= task.size, f"{stored} columns stored of {task}")
        if stored:
            self.extents.commit(task.extent)
            self.trainer.commit_order = order = self.trainer.give()
            stop = task.start + stored
            self._say(Commit(order, task.extent, task.start, stop, task.pass_number, task.serial))
        else:
            self.extents.give_back(task.extent)
        self._passes.parts.finish(task.serial, stored)

    # -- validation, beside the passes -------------------------------------------------------------

    def _begin_validation(self) -> None:
        """Validate the anchor just certified, unless an earlier one is half done.

        A started one goes on and this anchor is left out: if each new anchor ended the work on the one
        before, a slow validation would never give a score. Only the last anchor must have its own.
        """
        lane = self._validation
        if not self.settings.validate_parts or lane.pass_number == self.pass_number:
            return
        if not self.validation_wanted and self.stage != "scoring":
            return
        if lane.stage == "validate" and not lane.parts.started:
            lane.parts.drop_waiting()
            lane.stage = "off"
        if lane.stage == "off":
            lane.pass_number = self.pass_number
            lane.begin("validate", self.settings.validate_parts)
            self._say(Validate(self.pass_number))
        elif self.stage == "scoring":
            lane.parts.drop_waiting()

    def _advance_validation(self) -> bool:
        lane = self._validation
        if lane.stage == "off" or not lane.parts.complete:
            return False
        if self.stage == "scoring" and lane.pass_number != self.pass_number:
            lane.begin("off")
            self._begin_validation()
        elif lane.stage == "validate":
            lane.begin("score", 1)
        else:
            lane.begin("off")
            self._scored = lane.pass_number
            self._say(Scored(lane.pass_number))
        return True

    # -- tasks -------------------------------------------------------------------------------------

    def _lane(self, serial: int) -> Lane:
        return self._passes if serial in self._passes.parts.dealt else self._validation

    def _lane_with_work(self) -> Lane | None:
        """The lane whose next task can be dealt: validation only where the pass has none.

        Nor while the shell decides, which is short: the tasks after that come first.
        """
        passes = self._passes
        room = self.extents.free and not self._crowded
        if passes.parts.waiting and (passes.stage != "columns" or room):
            return passes
        if self._validation.parts.waiting and passes.stage != "decide":
            return self._validation
        return None

    def _next_writer(self) -> WriterSide | None:
        """The first writer that has no task, if there is a token for it."""
        if self.busy_writers >= self.tokens.most_writers(self.trainer.state == "busy"):
            return None
        return next((w for w in self.writers if w.ready and w.task is None), None)

    def _deal(self) -> None:
        while (lane := self._lane_with_work()) and (writer := self._next_writer()):
            self._serial += 1
            part = lane.parts.deal(self._serial)
            kind = TaskKind("margins" if lane.stage == "blend" else lane.stage)
            extent = self.extents.grant(writer.number) if kind == "columns" else -1
            writer.task = Task(kind, part.start, part.stop, lane.pass_number, self._serial, extent)
            self._say(Deal(writer.number, writer.task))

    def _done(self, event: Done) -> None:
        writer = self.writers[event.number]
        task = writer.task
        if task is None or task.serial != event.serial:
            return
        if task.kind == "columns":
            self._stored(task, event.stored)
        else:
            self._lane(task.serial).parts.finish(task.serial, task.size)
        if task.kind in ("search", "accept"):
            self._outcome = event.outcome
        writer.task = None

    # -- invariants --------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raise LogicError, naming what is broken; for tests, between events: O(parts)."""
        if self.finished:
            return
        for part in (self._passes.parts, self._validation.parts, self.extents, self.trainer):
            part.validate()
        for writer in self.writers:
            writer.validate()
        self._validate_tasks()
        self._validate_passes()
        self._validate_sharing()

    def _validate_tasks(self) -> None:
        tasks = {w.number: w.task for w in self.writers if w.task is not None}
        dealt = self._passes.parts.dealt | self._validation.parts.dealt
        held = {task.serial: range(task.start, task.stop) for task in tasks.values()}
        require(held == dealt, f"dealt parts {dealt} are not the tasks {held} of the writers")
        extents = {task.extent: n for n, task in tasks.items() if task.kind == "columns"}
        granted = self.extents.granted
        require(granted == extents, f"granted extents {granted} are not those of tasks {extents}")

    def _validate_passes(self) -> None:
        number, handed = self.pass_number, self.handed
        first = self.settings.first_pass + self._starting
        before = handed is None if number == first else handed == number - 1
        if self.stage in ("columns", "wait"):
            require(
                handed == number, f"{self.stage} of pass {number}, anchor handed over: {handed}"
            )
        elif self.stage in (
            "decide",
            "scoring",
            "drop",
            "draw",
            "sample",
        ):  # again the same, if stalled
            require(before or handed == number, f"pass {number} follows the anchor {handed}")
        else:
            require(before, f"{self.stage} of pass {number}, anchor handed over: {handed}")
        require(
            self._validation.pass_number <= number and self._scored <= self._validation.pass_number,
            f"validation of pass {self._validation.pass_number} in pass {number}",
        )

    def _validate_sharing(self) -> None:
        running, trainer = self.busy_writers, self.trainer
        require(running <= self.settings.cores, f"{running} tasks on {self.settings.cores} cores")
        threads = self.tokens.threads(running)
        require(self.threads == threads, f"the trainer has {self.threads} threads, not {threads}")
        idle = self._lane_with_work() and self._next_writer() and not self._out
        require(not idle, "a writer and a core are idle though there is work")
        if self.stage in BETWEEN_PASSES:
            told = trainer.informed or trainer.state == "absent"
            require(told, "a trainer waits for an anchor that it could be given")
        room = self.extents.free and not self._crowded
        if self.stage == "columns" and self._passes.parts.waiting and not room:
            hope = trainer.room_order or not trainer.informed or self.extents.granted
            require(bool(hope), "columns wait for room that nobody was asked for")
        lends = self.stage != "prepare" and trainer.informed
        if lends and not (trainer.spare or trainer.drop_order):
            require(not self.extents.free, "the trainer has no spare extent though one is free")
