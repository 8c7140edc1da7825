"""The supervisor: carries out the logic's instructions, and reports events to it.

It passes messages on and watches clocks. The roster owns the children. The outer loop's state interprets
the values in messages; it also keeps the anchor, so that a checkpoint needs no child.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from typing import Any

from fcl.drivers.processes.children import Child
from fcl.drivers.processes.compilation import compile_kernels
from fcl.drivers.processes.faults import arm, fault
from fcl.drivers.processes.logic import protocol
from fcl.drivers.processes.logic.machine import Logic
from fcl.drivers.processes.logic.protocol import WRITER, TaskKind
from fcl.drivers.processes.memory import Meter
from fcl.drivers.processes.messages import (
    Assign,
    ColumnsResult,
    CommitColumns,
    EvictColumns,
    MoveAnchor,
    ProposalTaken,
    Proposed,
    Raised,
    RestoreTrainer,
    SearchResult,
    SetUp,
    Started,
    TaskDone,
)
from fcl.drivers.processes.outer_loop import OuterLoopState
from fcl.drivers.processes.roster import Roster
from fcl.drivers.processes.setup import Folders, Shared
from fcl.drivers.result import StopReason, TrainResult
from fcl.drivers.session import Session
from fcl.errors import BudgetError, FclError, GeneratorError, InputError
from fcl.model import atomic

__all__ = ["run_processes"]

_log = logging.getLogger("fcl")

#: Seconds between two polls of requests to stop and of clocks, which have no descriptor.
TICK = 0.05
#: Seconds between two samples of memory, heartbeats and progress.
SAMPLE_EVERY = 0.5
#: Share of the processor time that validation may take; the last anchor is scored in any case.
VALIDATION_SHARE = 0.05
#: If the supervisor itself was stopped for this many seconds, silent children are not counted as hung.
OWN_GAP = 5.0

#: Tasks that run code of the family.
ON_FEATURES = (
    TaskKind.PREPARE,
    TaskKind.MEASURE,
    TaskKind.MARGINS,
    TaskKind.PRICE,
    TaskKind.COLUMNS,
    TaskKind.VALIDATE,
)
#: Stages of a pass that may take long; the others only stream vectors over rows.
LONG = ("prepare", "margins", "blend", "price", "sample", "columns")
#: Tasks that run beside the passes.
BESIDE = (TaskKind.VALIDATE, TaskKind.SCORE)

#: Kind of task -> its name in the report of times.
STEPS = {
    "prepare": "reading",
    "measure": "standard deviations",
    "margins": "margins and search",
    "search": "margins and search",
    "accept": "margins and search",
    "residuals": "pricing",
    "price": "pricing",
    "certify": "pricing",
    "blend": "margins and search",
    "draw": "sample",
    "validate": "validation",
    "score": "validation",
}


def run_processes(
    session: Session,
    scratch: str | os.PathLike[str] | None,
    share_cores: bool,
    shared_files: str | os.PathLike[str] | None,
) -> TrainResult:
    """Train with writer processes and a trainer process, supervised by this one.

    scratch : folder of the scratch file of prepared rows; None: the system's temporary folder.
    share_cores : whether trainer and writers lend each other idle cores.
    shared_files : folder of files to use instead of anonymous shared memory, or None.
    """
    return Supervisor(session, Folders(scratch, shared_files), share_cores).run()


class _Over(Exception):
    """Raised when the decision logic ends the run."""

    def __init__(self, instruction: protocol.Instruction) -> None:
        self.instruction = instruction


class Supervisor:
    """Supervises one run."""

    def __init__(self, session: Session, folders: Folders, share_cores: bool) -> None:
        self.session = session
        self.folders = folders
        self.share_cores = share_cores
        self.shared: Shared
        self.roster: Roster
        self.logic: Logic
        self._outer_loop: OuterLoopState | None = None  # once the rows are read
        self._tasks: dict[int, protocol.Task] = {}  # by writer
        self._failure: tuple[str, Raised] | None = None
        self._last_tick = self._last_sample = 0.0
        self._events: deque[protocol.Event] = deque()
        self._telling = False
        self._passes = 0

    @property
    def outer_loop(self) -> OuterLoopState:
        """The state of the outer loop, which exists once the rows are read."""
        assert self._outer_loop is not None
        return self._outer_loop

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> TrainResult:
        """Start all children, train to the end, and clean up in any case."""
        session = self.session
        arm("supervisor", 0, 0)
        atomic.step = lambda name: fault(f"write-{name}")
        session.started()
        compile_kernels(session, self._poll_stop)
        self._reading_since = time.monotonic()
        self.shared = shared = Shared(session.job, self.folders)
        session.job = shared.job
        self.roster = Roster(shared.plan.writers, shared.segments)
        self.meter = Meter(self.roster.pids, shared.memory_segments)
        try:
            shared.reserve()
            shared.prepare_own(self._reading)
            first_pass = None if session.continued is None else len(session.history)
            self.logic = Logic(shared.settings(self.share_cores, first_pass))
            return self._end(self._loop())
        except Exception:
            session.saver.rescue()  # does nothing if the newest state is on disk already
            raise
        finally:
            self.roster.close()
            shared.close()

    def _loop(self) -> protocol.Instruction:
        try:
            self._carry_out(self.logic.start())
            while True:
                for child in self.roster.wait(TICK):
                    self._on_readable(child)
                self._on_tick()
        except _Over as over:
            return over.instruction
        except KeyboardInterrupt:
            return protocol.Finish(StopReason.INTERRUPTED)

    def _poll_stop(self) -> None:
        if self.session.should_stop():
            raise KeyboardInterrupt

    def _reading(self, share: float) -> None:
        self._poll_stop()
        self.session.working("reading", share)

    def _tell(self, event: protocol.Event) -> None:
        """Pass an event to the logic and carry out its instructions; queue events meanwhile."""
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                self._carry_out(self.logic.handle(self._events.popleft()))
        finally:
            self._telling = False

    # -- events --------------------------------------------------------------------------------

    def _on_readable(self, child: Child) -> None:
        """Handle the messages of a child, and its exit if it is gone."""
        for message in child.channel.receive():
            self._on_message(child, message)
        if child.channel.closed or not child.alive():
            self._on_exit(child)
        else:
            self.roster.watch(child)

    def _on_message(self, child: Child, message: Any) -> None:
        match message:
            case Started():
                if self._outer_loop is not None:
                    self.roster.send(child, SetUp())
                self._tell(protocol.Ready(child.role, child.number))
            case TaskDone():
                self._on_task_done(child.number, message)
            case Proposed(version, _, violation, _, worth, last_word):
                self.outer_loop.proposed(message)
                self.roster.send(child, ProposalTaken(version))
                self._tell(protocol.Published(version, violation, worth, last_word))
            case Raised():
                self._failure = child.name, message
                self._tell(protocol.Raised(child.role, child.number))
            case protocol.Event():
                self._tell(message)

    def _on_task_done(self, writer: int, done: TaskDone) -> None:
        task = self._tasks.get(writer)
        if task is None or task.serial != done.serial:
            return
        del self._tasks[writer]
        self.session.spent(STEPS.get(task.kind, task.kind), done.seconds)
        if self._outer_loop is not None:
            self._outer_loop.done(task, done.result)
        outcome = done.result.outcome if isinstance(done.result, SearchResult) else None
        stored = done.result.count if isinstance(done.result, ColumnsResult) else 0
        self._tell(protocol.Done(writer, done.serial, outcome, stored))

    def _on_exit(self, child: Child) -> None:
        """Reap a child that is gone, and let the logic replace it."""
        try:
            for message in self.roster.reap(child):  # perhaps an exception, which ends the run
                self._on_message(child, message)
            cure = child.cure()
            _log.warning("%s %s; it is replaced%s", child.name, child.cause(), cure and f"; {cure}")
        finally:
            child.close()
        task = self._tasks.pop(child.number, None) if child.role == WRITER else None
        self.roster.record_death(child, "" if task is None else self._in_words(task))
        if task is not None and self._outer_loop is not None:
            self._outer_loop.lost(task)
        self._tell(protocol.Died(child.role, child.number))

    def _in_words(self, task: protocol.Task) -> str:
        words = f"in the task {task.kind}, parts {task.start} to {task.stop}"
        if task.kind in ON_FEATURES:
            words += f", which runs code of the features {self.session.job.family.name}"
        return words

    def _on_tick(self) -> None:
        """Check requests and clocks."""
        now = time.monotonic()
        if self._last_tick and now - self._last_tick > OWN_GAP:
            self.roster.heartbeats.forgive()
        self._last_tick = now
        if self.session.should_stop():
            self._tell(protocol.StopAsked(StopReason.INTERRUPTED))
        self.session.saver.poll()
        # there is a certificate, and the end is not decided yet
        if self._passes and self.session.out_of_time and self.logic.stage != "scoring":
            self._tell(protocol.StopAsked(StopReason.MAX_TIME))
        if now - self._last_sample < SAMPLE_EVERY:
            return
        self._last_sample = now
        spent = self.session.seconds.get("validation", 0.0)
        cores = self.shared.cores
        self.logic.validation.wanted = spent <= VALIDATION_SHARE * cores * self.session.elapsed
        self.meter.sample()
        self._report_progress()
        for child in self.roster:
            silent = self.roster.heartbeats.silent(child, now)
            if child.alive() and silent > self.roster.patience(child):
                _log.warning("%s has been silent for %.0f s and is killed", child.name, silent)
                child.kill()
            if not child.alive():
                self._on_readable(child)

    # -- instructions --------------------------------------------------------------------------

    def _carry_out(self, instructions: list[protocol.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case protocol.Spawn(role, number, incarnation):
                    self.roster.spawn(role, number, incarnation)
                case protocol.Deal(number, task):
                    self._deal(number, task)
                case protocol.Threads(n):
                    self.shared.layout.array("threads")[0] = n
                case protocol.Prepared():
                    self._prepared()
                case protocol.Order():
                    if message := self._order(instruction):
                        self.roster.send(self.roster.trainer, message)
                case protocol.TakeProposal():
                    self.outer_loop.take_proposal()
                case protocol.Certify(number, True):
                    self._tell(self.outer_loop.stalled(number))
                case protocol.Certify(number):
                    self.outer_loop.certify(number)
                    self._report_pass()
                    self._tell(self.outer_loop.decide(number))
                case protocol.Decide(number):
                    self._tell(self.outer_loop.decide(number))
                case protocol.Redraw():
                    self.outer_loop.redraw()
                case protocol.Validate():
                    self.outer_loop.validate()
                case protocol.Scored(number):
                    self.outer_loop.scored(number)
                case protocol.Finish() | protocol.Fail() | protocol.Abort():
                    raise _Over(instruction)
                case _:
                    raise TypeError(f"not an instruction: {instruction!r}")

    def _deal(self, number: int, task: protocol.Task) -> None:
        self._tasks[number] = task
        self.shared.layout.array("shares")[number] = 0.0
        work = None if self._outer_loop is None else self._outer_loop.work(task)
        self.roster.send(self.roster.writer(number), Assign(task, work))

    def _order(self, order: protocol.Order) -> Any:
        """The message to the trainer; None if there is no trainer to send it to."""
        match order:
            case protocol.SendAnchor(number, pass_number):
                return MoveAnchor(number, self.outer_loop.anchors[pass_number])
            case protocol.Restore(number, pass_number, extents):
                n_held = self.outer_loop.list_held()
                return RestoreTrainer(number, self.outer_loop.anchors[pass_number], n_held, extents)
            case protocol.Commit(number, extent, _, _, pass_number, serial):
                stored = self.outer_loop.columns.stored(serial)
                return CommitColumns(number, extent, stored, pass_number) if number else None
            case protocol.MakeRoom(number, wanted):
                return EvictColumns(number, wanted, self.outer_loop.too_many)
        return order

    def _prepared(self) -> None:
        """All rows are read: complete the shared memory, and start the outer loop."""
        session, shared = self.session, self.shared
        for rows in (session.job.train, session.job.valid):
            if rows is not None:
                rows.data.check_unchanged()
        rows_read = shared.prepared(0)
        session.prepared(time.monotonic() - self._reading_since, rows_read.checksums.copy())
        self.logic.extents.limit(shared.complete())
        self._outer_loop = OuterLoopState(session, shared.layout, shared.vectors, rows_read)
        for child in self.roster:
            self.roster.send(child, SetUp())

    # -- reports -------------------------------------------------------------------------------

    def _report_progress(self) -> None:
        """Report the progress of the stage, from tasks done and from shares of tasks under way."""
        stage = self.logic.stage
        if stage not in LONG or not self._tasks:  # such as while writers are starting
            return
        done, size = self.logic.parts
        shares = self.shared.layout.array("shares")
        under_way = sum(
            task.size * float(shares[number])
            for number, task in self._tasks.items()
            if task.kind not in BESIDE
        )
        self.session.working(STEPS.get(stage, stage), (done + under_way) / size)

    def _report_pass(self) -> None:
        session, outer_loop = self.session, self.outer_loop
        assert outer_loop.certified is not None
        slots, _ = outer_loop.cached()
        self._passes += 1
        working = max(session.elapsed - session.seconds.get("read", 0.0), 1e-9)
        session.passed(
            outer_loop.certified,
            active=len(outer_loop.outer.point.ids),
            cached=len(slots),
            cache_bytes=int(outer_loop.store.sizes[slots].sum()),
            cache_capacity=outer_loop.store.capacity,
            evicted=outer_loop.slots.count_dropped(),
            beta=outer_loop.beta,
            rows_per_second=self._passes * session.job.train.n / working,
            memory=self.meter.peak,
            busy=self.roster.busy_shares(),
        )

    # -- the end -------------------------------------------------------------------------------

    def _end(self, instruction: protocol.Instruction) -> TrainResult:
        """Save, end all children, and make the result."""
        session = self.session
        session.saver.save()
        if isinstance(instruction, protocol.Abort):
            assert self._failure is not None
            raise _exception(*self._failure)
        if isinstance(instruction, protocol.Fail):
            raise self.roster.repeated_deaths(instruction.role, self.logic.settings.max_deaths)
        assert isinstance(instruction, protocol.Finish)
        # without a point that this run has verified there is no result; its checkpoint still exists
        if self._outer_loop is None or not session.history or not self._outer_loop.verified:
            raise KeyboardInterrupt
        outer_loop, outer = self._outer_loop, self._outer_loop.outer
        self.meter.sample()
        self.roster.dismiss()
        # the only long computation of this process; the children have freed their memory for it
        support = outer_loop.passes.counts(outer.point.ids)
        self.meter.sample()
        return session.result(
            outer.point,
            outer.certified(),
            outer.C_min,
            support,
            outer_loop.passes.rounded_slope(outer.point, session.job.intercept_shift, outer.reach),
            StopReason(instruction.reason),
            self.meter.peak,
        )


def _exception(name: str, raised: Raised) -> Exception:
    """The exception to raise for that of a child: an InputError, or an FclError with a traceback."""
    if raised.is_input:
        kinds = {"BudgetError": BudgetError, "GeneratorError": GeneratorError}
        text = raised.text
        if not raised.doing:  # this process accepted the same input
            text = f"{name} failed at its start, in a separate process: {text}"
        return kinds.get(raised.type.rpartition(".")[2], InputError)(text)
    doing = raised.doing or "at its start"
    return FclError(f"{name} failed {doing} with {raised.type}: {raised.text}\n{raised.traceback}")
