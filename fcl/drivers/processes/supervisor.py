"""The supervisor: carries out the logic's instructions, and reports events to it.

It passes messages on and watches clocks. The pool owns the children. The outer loop's state interprets
the values in messages; it also keeps the anchor, so that a checkpoint needs no child.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from dataclasses import replace
from typing import Any

from fcl.drivers.processes.children import Child
from fcl.drivers.processes.compilation import compile_kernels
from fcl.drivers.processes.faults import arm, fault
from fcl.drivers.processes.logic import protocol
from fcl.drivers.processes.logic.machine import Logic
from fcl.drivers.processes.logic.protocol import TRAINER, WRITER, Assign, Stage, TaskDone
from fcl.drivers.processes.outer_loop import OuterLoopState
from fcl.drivers.processes.process_pool import ProcessPool
from fcl.drivers.processes.setup import SharedMemory
from fcl.drivers.result import TrainResult
from fcl.drivers.session import Session
from fcl.errors import BudgetError, FclError, GeneratorError, InputError, StoreError
from fcl.files import atomic
from fcl.memory.meter import Meter
from fcl.run.reasons import StopReason

_log = logging.getLogger("fcl")

#: Seconds between two polls of requests to stop and of clocks, which have no descriptor.
TICK = 0.05
#: Seconds between two samples of memory, heartbeats and progress.
SAMPLE_EVERY = 0.5
#: Bytes of the cache that are allocated at each sample, even if no column needs them yet, since hours
#: later there might be less memory.
BACK_BYTES = 32 << 20
#: Share of the processor time that validation may take; the last anchor is scored in any case.
VALIDATION_SHARE = 0.05
#: If the supervisor itself was stopped for this many seconds, silent children are not counted as hung.
OWN_GAP = 5.0

#: Tasks that run code of the family.
ON_FEATURES = (
    Stage.PREPARE,
    Stage.MEASURE,
    Stage.MARGINS,
    Stage.PRICE,
    Stage.COLUMNS,
    Stage.VALIDATE,
)
#: Stages of a pass that may take long; the others only stream vectors over rows.
LONG = ("prepare", "margins", "blend", "price", "sample", "columns")
#: Tasks that run alongside the passes.
BESIDE = (Stage.VALIDATE, Stage.SCORE)

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


class _Over(Exception):
    """Raised when the decision logic ends the run."""

    def __init__(self, instruction: protocol.Instruction) -> None:
        self.instruction = instruction


class Supervisor:
    """Trains with writer processes and a trainer process, supervised by this one."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.shared: SharedMemory
        self.pool: ProcessPool
        self.logic: Logic
        self._outer_loop: OuterLoopState | None = None  # once the features are measured
        self._tasks: dict[int, protocol.WriterTask] = {}  # by writer
        self._last_tick = self._last_sample = 0.0
        self._events: deque[protocol.LogicEvent] = deque()
        self._telling = False
        self._passes = 0

    @property
    def outer_loop(self) -> OuterLoopState:
        """The state of the outer loop, which exists once the features are measured."""
        assert self._outer_loop is not None
        return self._outer_loop

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> TrainResult:
        """Start all children, train to the end, and clean up in any case."""
        session = self.session
        arm("supervisor", 0, 0)
        atomic.step = lambda name: fault(f"write-{name}")
        session.started()
        compile_kernels(session)
        self._reading_since = time.monotonic()
        self.shared = shared = SharedMemory(session.job)
        session.job = shared.job
        self.pool = ProcessPool(shared.plan.writers, shared.segments)
        self.meter = Meter(self.pool.pids, shared.memory_segments)
        try:
            shared.reserve()
            shared.prepare_own(session.reading)
            first_pass = None if session.state is None else len(session.history)
            self.logic = Logic(shared.settings(first_pass))
            return self._end(self._loop())
        finally:
            self.pool.close()
            shared.close()

    def _loop(self) -> protocol.Instruction:
        try:
            self._carry_out(self.logic.start())
            while True:
                for child in self.pool.wait(TICK):
                    self._on_readable(child)
                self._on_tick()
        except _Over as over:
            return over.instruction
        except KeyboardInterrupt:
            return protocol.Finish(StopReason.INTERRUPTED)
        except (BudgetError, MemoryError) as error:
            return self._short_of_memory(error)
        except InputError:
            self.session.saver.refuse_input()
            raise
        finally:
            self.session.saver.save()

    def _short_of_memory(self, error: Exception) -> protocol.Finish:
        """End with the best model; raises the error if this run has none yet."""
        if not self._has_model:
            raise error
        return protocol.Finish(self.session.short_of_memory(error))

    @property
    def _has_model(self) -> bool:
        """Whether there is a point that this run has verified."""
        loop = self._outer_loop
        return loop is not None and bool(self.session.history) and loop.verified

    def _tell(self, event: protocol.LogicEvent) -> None:
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
            self.pool.watch(child)

    def _on_message(self, child: Child, message: Any) -> None:
        match message:
            case TaskDone():
                self._on_task_done(child.number, message)
                return
            case protocol.Published():
                self.outer_loop.proposed(message)
        self._tell(message)

    def _on_task_done(self, writer: int, done: TaskDone) -> None:
        task = self._tasks.get(writer)
        if task is None or task.serial != done.serial:
            return
        del self._tasks[writer]
        self.session.spent(STEPS.get(task.kind, task.kind.value), done.seconds)
        outcome = None
        if self._outer_loop is not None:
            outcome = self._outer_loop.done(task, done.result)
        stored = len(done.result) if task.kind == Stage.COLUMNS else 0
        self._tell(protocol.Done(writer, done.serial, outcome, stored))

    def _on_exit(self, child: Child) -> None:
        """Reap a child that is gone, and let the logic replace it."""
        try:
            for message in self.pool.reap(child):  # perhaps an exception, which ends the run
                self._on_message(child, message)
            cure = child.cure()
            _log.warning("%s %s; it is replaced%s", child.name, child.cause(), cure and f"; {cure}")
        finally:
            child.close()
        task = self._tasks.pop(child.number, None) if child.role == WRITER else None
        self.pool.record_death(child, "" if task is None else self._in_words(task))
        if task is not None and self._outer_loop is not None:
            self._outer_loop.lost(task)
        self._tell(protocol.Died(child.role, child.number))

    def _in_words(self, task: protocol.WriterTask) -> str:
        words = f"in the task {task.kind}, parts {task.start} to {task.stop}"
        if task.kind in ON_FEATURES:
            words += f", which runs code of the features {self.session.job.family.name}"
        return words

    def _on_tick(self) -> None:
        """Check requests and clocks."""
        now = time.monotonic()
        if self._last_tick and now - self._last_tick > OWN_GAP:
            for child in self.pool:
                child.forgive()
        self._last_tick = now
        if self.session.should_stop():
            self._tell(protocol.StopAsked(StopReason.INTERRUPTED))
        self.session.saver.poll()
        # there is a certificate, and the end is not decided yet
        if self._passes and self.session.out_of_time and self.logic.stage != Stage.SCORING:
            self._tell(protocol.StopAsked(StopReason.MAX_TIME))
        if now - self._last_sample < SAMPLE_EVERY:
            return
        self._last_sample = now
        spent = self.session.seconds.get("validation", 0.0)
        cores = self.shared.cores
        self.logic.validation.allowed = spent <= VALIDATION_SHARE * cores * self.session.elapsed
        self.meter.sample()
        if self._outer_loop is not None:
            with contextlib.suppress(BudgetError):  # it is not needed yet, and may never be
                self.shared.layout.back_more(BACK_BYTES)
        self._report_progress()
        for child in self.pool:
            self.pool.kill_if_hung(child, now)
            if not child.alive():
                self._on_readable(child)

    # -- instructions --------------------------------------------------------------------------

    def _carry_out(self, instructions: list[protocol.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case protocol.Spawn(role, number, incarnation):
                    self.pool.spawn(role, number, incarnation)
                    self.pool.send(role, number, self.shared.set_up)
                case protocol.Deal(number, task):
                    self._deal(number, task)
                case protocol.Threads(n):
                    self.shared.layout.array("threads")[0] = n
                case protocol.RowsPrepared():
                    self._prepared()
                case protocol.Begin():
                    self.session.clock.start()
                    rows = self.shared.layout.prepared(0)
                    self._outer_loop = OuterLoopState(
                        self.session, self.shared.layout, self.shared.vectors, rows
                    )
                case protocol.Order():
                    self.pool.send(TRAINER, 0, self._completed(instruction))
                case protocol.TakeProposal(version):
                    self.outer_loop.take_proposal(version)
                case protocol.Stalled():
                    self._tell(self.outer_loop.stalled())
                case protocol.Certify(number):
                    self.outer_loop.certify(number)
                    self._report_pass()
                    self._tell(self.outer_loop.decide())
                case protocol.Decide():
                    self._tell(self.outer_loop.decide())
                case protocol.Validate():
                    self.outer_loop.validate()
                case protocol.Scored(number):
                    self.outer_loop.scored(number)
                case protocol.Finish() | protocol.Fail() | protocol.Abort():
                    raise _Over(instruction)
                case _:
                    raise TypeError(f"not an instruction: {instruction!r}")

    def _deal(self, number: int, task: protocol.WriterTask) -> None:
        if task.extent >= 0:
            self.shared.layout.back(task.extent)
        self._tasks[number] = task
        self.shared.layout.array("shares")[number] = 0.0
        inputs = {} if self._outer_loop is None else self._outer_loop.inputs(task)
        self.pool.send(WRITER, number, Assign(task, inputs))

    def _completed(self, order: protocol.Order) -> protocol.Order:
        """The order with the values that the logic does not know."""
        match order:
            case protocol.SendAnchor() | protocol.Restore():
                anchor = self.outer_loop.anchor
                assert anchor is not None
                assert anchor.pass_number == order.pass_number
                parts = self.logic.passes.parts  # of the columns; none once all are made
                anchor = replace(anchor, n_coming=min(anchor.n_coming, parts.size - parts.n_ended))
                order = replace(order, anchor=anchor)
                if isinstance(order, protocol.Restore):
                    order = replace(order, n_held=self.outer_loop.list_held())
                return order
            case protocol.Lend(extent=extent):
                self.shared.layout.back(extent)
            case protocol.MakeRoom():
                return replace(order, columns=self.outer_loop.too_many)
        return order

    def _prepared(self) -> None:
        """All rows are read: complete the shared memory."""
        session, shared = self.session, self.shared
        for rows in (session.job.train, session.job.valid):
            if rows is not None:
                rows.data.check_unchanged()
        checksums = shared.layout.prepared(0).checksums.copy()
        session.prepared(time.monotonic() - self._reading_since, lambda: checksums)
        self.logic.extents.limit(shared.complete())
        for child in self.pool:
            self.pool.send(child.role, child.number, shared.set_up)

    # -- reports -------------------------------------------------------------------------------

    def _report_progress(self) -> None:
        """Report the progress of the stage, from tasks done and from shares of tasks under way."""
        stage = self.logic.stage
        if stage not in LONG or not self._tasks:  # for instance while writers are starting
            return
        parts = self.logic.passes.parts
        shares = self.shared.layout.array("shares")
        under_way = sum(
            task.size * float(shares[number])
            for number, task in self._tasks.items()
            if task.kind not in BESIDE
        )
        self.session.working(STEPS.get(stage, stage), (parts.n_ended + under_way) / parts.size)

    def _report_pass(self) -> None:
        session, outer_loop = self.session, self.outer_loop
        assert outer_loop.certified is not None
        slots, _ = outer_loop.slots.committed()
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
            **outer_loop.choices,
            rows_per_second=self._passes * session.job.train.n / working,
            memory_bytes=self.meter.peak,
            busy=self.pool.busy_shares(),
        )

    # -- the end -------------------------------------------------------------------------------

    def _end(self, instruction: protocol.Instruction) -> TrainResult:
        """End all children, and make the result, or raise the error that ended the run."""
        session = self.session
        if isinstance(instruction, protocol.Abort):
            error = _exception(instruction.raised)
            if not isinstance(error, BudgetError | MemoryError):
                raise error
            instruction = self._short_of_memory(error)
        if isinstance(instruction, protocol.Fail):
            raise self.pool.repeated_deaths(instruction.role, self.logic.settings.max_deaths)
        assert isinstance(instruction, protocol.Finish)
        if not self._has_model:  # its checkpoint still exists
            raise KeyboardInterrupt
        assert self._outer_loop is not None
        self._peak_memory()
        # the long computations that follow may use the memory that the children held
        self.pool.dismiss()
        return session.result(
            self._outer_loop.outer,
            self._outer_loop.passes,
            StopReason(instruction.reason),
            self._peak_memory,
        )

    def _peak_memory(self) -> int:
        self.meter.sample()
        return self.meter.peak


def _exception(raised: protocol.Raised) -> Exception:
    """Convert a child's exception to an InputError, or to an FclError with a traceback."""
    if raised.is_input:
        kinds: dict[str, type[FclError]] = {
            kind.__name__: kind for kind in (BudgetError, GeneratorError, StoreError)
        }
        text = raised.text
        if not raised.doing:  # this process accepted the same input
            text = f"{raised.name} failed at its start, in a separate process: {text}"
        return kinds.get(raised.type.rpartition(".")[2], InputError)(text)
    doing = raised.doing or "at its start"
    if raised.type.rpartition(".")[2] == "MemoryError":
        return MemoryError(f"{raised.name} could not allocate memory {doing}: {raised.text}")
    return FclError(
        f"{raised.name} failed {doing} with {raised.type}: {raised.text}\n{raised.traceback}"
    )
