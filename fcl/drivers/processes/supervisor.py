"""The supervisor: carries out what the decision logic says, and tells it what happens.

It starts and watches the children and passes messages on. What the numbers in them mean is known at
the desk (:mod:`fcl.drivers.processes.desk`), which also keeps the anchor, so that a checkpoint needs no
child. It touches no column.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import time
from collections import defaultdict, deque

from fcl.drivers.plan import child_bytes
from fcl.drivers.processes import logic as words
from fcl.drivers.processes.channel import RAISED, Failure, Message
from fcl.drivers.processes.children import Child, Heartbeats, dismiss
from fcl.drivers.processes.crew import Crew
from fcl.drivers.processes.desk import Desk
from fcl.drivers.processes.faults import arm, fault
from fcl.drivers.processes.logic import TRAINER, WRITER, Logic
from fcl.drivers.processes.memory import Meter
from fcl.drivers.processes.messages import OUTCOMES, TASKS, From, To
from fcl.drivers.processes.setup import Folders, Shared
from fcl.drivers.result import TrainResult
from fcl.drivers.session import Session
from fcl.drivers.warmup import KIND_SECONDS, KINDS_VARIABLE, kinds_of, missing
from fcl.errors import BudgetError, FclError, GeneratorError, InputError, RepeatedDeaths
from fcl.features import is_built_in
from fcl.model import atomic

__all__ = ["run_processes"]

_log = logging.getLogger("fcl")

#: Seconds between two looks at what has no descriptor: wishes to stop, clocks.
TICK = 0.05
SAMPLE_EVERY = 0.5
#: Seconds from the end of a child's channel to that of the child, which says by what it died.
DYING = 0.5
#: Seconds without a heartbeat after which a child is taken for hung.
DEADLINE = float(os.environ.get("FCL_DEADLINE", "30"))
#: A child that starts, from a slow disk perhaps, has so many times as long for its first one.
STARTING = 4.0
#: Share of the processor time that validation may take; the last anchor is scored in any case.
VALIDATION_SHARE = 0.05
#: A gap of this many seconds in our own life excuses that of the children.
OWN_GAP = 5.0

#: Kinds of tasks that make columns, margins or prices, or what features prepare of rows.
ON_FEATURES = ("prepare", "measure", "margins", "price", "columns", "validate")

#: Stages of a pass that may take long; the others only stream vectors over rows.
LONG = ("prepare", "margins", "blend", "price", "sample", "columns")
#: Kinds of tasks that belong to no pass under way.
BESIDE = ("validate", "score")

#: Names in the report of times, by kind of task.
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
    crew: Crew | None = None,
) -> TrainResult:
    """Train with writers and a trainer beside this process, lent by a crew; None: by one for this job."""
    with Crew(keep=False) if crew is None else contextlib.nullcontext(crew) as lender:
        return Supervisor(session, Folders(scratch, shared_files), share_cores, lender).run()


class _Over(Exception):
    """The logic has come to its end."""

    def __init__(self, instruction: words.Instruction) -> None:
        self.instruction = instruction


class Supervisor:
    """One run."""

    def __init__(self, session: Session, folders: Folders, share_cores: bool, crew: Crew) -> None:
        self.session = session
        self.folders = folders
        self.share_cores = share_cores
        self.crew = crew
        self.children: dict[tuple[str, int], Child] = {}
        self.selector = selectors.DefaultSelector()
        self.shared: Shared
        self.logic: Logic
        self.desk: Desk | None = None  # once the rows are read
        self._tasks: dict[int, words.Task] = {}  # by writer
        self._failure: tuple[Child, Failure, Message] | None = None
        #: by role, from the first on: how each came about, and what may prevent it
        self._deaths: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._since_busy: tuple[float, dict[str, float]] = (time.monotonic(), {})
        self._last_tick = self._last_sample = 0.0
        self._events: deque[words.Event] = deque()
        self._telling = False
        self._passes = 0

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> TrainResult:
        """Start everybody, go on to the end, and clean up whatever happens."""
        session = self.session
        arm("supervisor", 0, 0)
        atomic.step = lambda name: fault(f"write-{name}")
        session.started()
        self._compile()
        self._reading_since = time.monotonic()
        self.shared = shared = Shared(session.job, self.folders)
        session.job = shared.job
        self.heartbeats = Heartbeats(shared.segments["control"])
        self.meter = Meter(self._all_pids, shared.memory_segments)
        try:
            self.crew.prepare({TRAINER: 1, WRITER: shared.plan.writers})
            shared.reserve()
            shared.prepare_own(self._reading)
            first_pass = None if session.continued is None else len(session.history)
            self.logic = Logic(shared.settings(self.share_cores, first_pass))
            return self._end(self._loop())
        except FclError:
            raise  # after the end, or before there was anything to save
        except Exception:
            session.saver.save()
            raise
        finally:
            self._dismiss()
            self.selector.close()
            shared.close()
            # it knows us: a cycle, in which the shared arrays would stay for a while
            del self.meter

    def _loop(self) -> words.Instruction:
        try:
            self._carry_out(self.logic.start())
            while True:
                self._turn()
        except _Over as over:
            return over.instruction
        except KeyboardInterrupt:
            return words.Finish("interrupted")

    def _compile(self) -> None:
        """Compile the kernels once, in a process that does not stay: compilers leave much behind."""
        kinds = missing(kinds_of(self.session.job.family))
        if not kinds:
            return
        session = self.session
        session.compile_seconds = sum(KIND_SECONDS[kind] for kind in kinds)
        environment = {KINDS_VARIABLE: ",".join(kinds)}
        child = Child.spawn("fcl.drivers.warmup:Compiler", 0, 0, 0, {}, environment)
        compiling = False
        try:
            while child.alive():
                self._poll_stop()
                if not compiling and any(m.kind == From.COMPILING for m in child.channel.receive()):
                    compiling = True
                    session.compilation.begin()
                time.sleep(TICK)
        finally:
            child.close()
        if compiling:
            session.compilation.end()
        if not missing(kinds):  # else each child compiles for itself
            session.compiled()

    def _poll_stop(self) -> None:
        if self.session.should_stop():
            raise KeyboardInterrupt

    def _reading(self, share: float) -> None:
        self._poll_stop()
        self.session.working("reading", share)

    # -- one turn of the loop ------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait for something to happen, and deal with all that has."""
        for key, mask in self.selector.select(TICK):
            child: Child = key.data
            if self.children.get((child.role, child.number)) is not child:
                continue  # buried meanwhile
            if mask & selectors.EVENT_WRITE:
                child.channel.flush()
            self._hear(child)
        self._tick()

    def _hear(self, child: Child) -> None:
        """Take in what a child has sent; bury it if it is gone."""
        for message in child.channel.receive():
            self._message(child, message)
        if child.channel.closed or not child.alive():
            self._bury(child)
        else:
            self._watch(child)

    def _watch(self, child: Child) -> None:
        mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if child.channel.wants_write else 0)
        self.selector.modify(child.channel, mask, child)

    def _forget(self, child: Child) -> None:
        self.selector.unregister(child.channel)
        if child.sentinel is not None:
            self.selector.unregister(child.sentinel)
        del self.children[child.role, child.number]

    def _bury(self, child: Child) -> None:
        """A child is gone: reap it, and have it replaced."""
        self._forget(child)
        try:
            child.wait(DYING)
            child.kill()
            for message in child.channel.receive():  # its last words may be the end of all
                self._message(child, message)
            how, cure = f"{child.name} {child.cause()}", child.cure()
            _log.warning("%s; it is replaced%s", how, cure and f"; {cure}")
        finally:
            child.close()
        if child.role == WRITER:
            task = self._tasks.pop(child.number, None)
            if task is not None:
                at = f"at {task.kind}, parts {task.start} to {task.stop}"
                if task.kind in ON_FEATURES:
                    at += f", of the features {self.session.job.family.name}, whose code runs there"
                how = f"{at}: {how}"
            if task is not None and self.desk is not None:
                self.desk.lost(task)
        self._deaths[child.role].append((how, cure))
        self._tell(words.Died(child.role, child.number))

    def _tick(self) -> None:
        """What has to be looked at by the clock."""
        now = time.monotonic()
        if self._last_tick and now - self._last_tick > OWN_GAP:
            self.heartbeats.forgive()
        self._last_tick = now
        if self.session.should_stop():
            self._tell(words.StopAsked("interrupted"))
        self.session.saver.poll()
        # there is a certificate to give, and nothing decided already
        if self._passes and self.session.out_of_time and self.logic.stage != "scoring":
            self._tell(words.StopAsked("max-time"))
        if now - self._last_sample < SAMPLE_EVERY:
            return
        self._last_sample = now
        spent = self.session.seconds.get("validation", 0.0)
        cores = self.shared.cores
        self.logic.validation_wanted = spent <= VALIDATION_SHARE * cores * self.session.elapsed
        self.meter.sample()
        self._report_progress()
        for child in list(self.children.values()):
            if not child.alive():
                self._hear(child)
                continue
            silent = self.heartbeats.silent(child, now)
            if silent > DEADLINE * (1.0 if self.heartbeats.heard(child) else STARTING):
                _log.warning("%s has been silent for %.0f s and is killed", child.name, silent)
                child.kill()
                self._hear(child)

    def _report_progress(self) -> None:
        """Report how far the stage of the pass is: tasks done, and what writers say of theirs."""
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

    def _tell(self, event: words.Event) -> None:
        """Tell the logic, and carry out what it says; what happens meanwhile is told after that."""
        self._events.append(event)
        if self._telling:
            return
        self._telling = True
        try:
            while self._events:
                self._carry_out(self.logic.handle(self._events.popleft()))
        finally:
            self._telling = False

    # -- messages from children ----------------------------------------------------------------

    def _message(self, child: Child, message: Message) -> None:
        if message.kind == RAISED:
            failure = child.failure(message, self.shared.segments["texts"])
            self._failure = (child, failure, message)
            self._tell(words.Raised(child.role, child.number))
            return
        ints = message.ints
        match From(message.kind):
            case From.READY:
                if self.desk is not None:
                    self._send(child, Message.make(To.SETUP))
                self._tell(words.Ready(child.role, child.number))
            case From.DONE:
                self._done(child, message)
            case From.PUBLISHED:
                assert self.desk is not None
                violation, b, decrease = message.floats[:3]
                self.desk.published(ints[0], ints[1], b, decrease)
                self._send(child, Message.make(To.TAKEN, ints[0]))
                self._tell(words.Published(ints[0], violation, bool(ints[2]), bool(ints[3])))
            case From.IDLE:
                self._tell(words.TrainerIdle(ints[0]))
            case From.ANCHOR_TAKEN:
                self._tell(words.AnchorTaken(ints[0]))
            case From.FREED:
                freed = self.shared.layout.array("freed")[ints[3], : ints[2]].tolist()
                self._tell(words.Freed(tuple(freed), ints[1], ints[0]))

    def _done(self, child: Child, message: Message) -> None:
        serial, stored, code, count = message.ints[:4]
        task = self._tasks.get(child.number)
        if task is None or task.serial != serial:
            return
        del self._tasks[child.number]
        self.session.spent(STEPS.get(task.kind, task.kind), message.floats[7])
        if self.desk is not None:
            self.desk.done(task, OUTCOMES[code], stored, count, message.floats)
        self._tell(words.Done(child.number, serial, OUTCOMES[code], stored))

    # -- instructions --------------------------------------------------------------------------

    def _carry_out(self, instructions: list[words.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case words.Spawn(role, number, incarnation):
                    self._spawn(role, number, incarnation)
                case words.Deal(number, task):
                    self._deal(number, task)
                case words.Threads(n):
                    self.shared.layout.array("threads")[0] = n
                case words.Prepared():
                    self._prepared()
                case words.Finish() | words.Fail() | words.Abort():
                    raise _Over(instruction)
                case words.Order():
                    self._order(instruction)
                case _:
                    self._at_the_desk(instruction)

    def _at_the_desk(self, instruction: words.Instruction) -> None:
        desk = self.desk
        assert desk is not None
        match instruction:
            case words.TakeProposal():
                desk.take_proposal()
            case words.Certify(number, True):
                self._tell(desk.stalled(number))
            case words.Certify(number):
                desk.certify(number)
                self._report(desk)
                self._tell(desk.decide(number))
            case words.Decide(number):
                self._tell(desk.decide(number))
            case words.Redraw():
                desk.redraw()
            case words.Validate():
                desk.validate()
            case words.Scored(number):
                desk.scored(number)
            case _:
                raise TypeError(f"not an instruction: {instruction!r}")

    def _spawn(self, role: str, number: int, incarnation: int) -> None:
        index = number if role == WRITER else self.shared.plan.writers
        child = self.crew.hire(role, number, incarnation, index, self.shared.segments)
        self.children[role, number] = child
        self.selector.register(child.channel, selectors.EVENT_READ, child)
        if child.sentinel is not None:
            self.selector.register(child.sentinel, selectors.EVENT_READ, child)

    def _send(self, child: Child | None, message: Message) -> None:
        if child is not None and not child.channel.closed:
            child.channel.send(message)
            if self.children.get((child.role, child.number)) is child:
                self._watch(child)

    def _deal(self, number: int, task: words.Task) -> None:
        self._tasks[number] = task
        self.shared.layout.array("shares")[number] = 0.0
        count = argument = 0
        numbers: tuple[float, ...] = ()
        if self.desk is not None:
            count, argument, numbers = self.desk.task(task)
        code = TASKS.index(task.kind)
        message = Message.make(
            To.TASK,
            *(code, task.start, task.stop, task.serial, task.extent, count, argument),
            floats=numbers,
        )
        self._send(self.children.get((WRITER, number)), message)

    def _order(self, order: words.Order) -> None:
        message = self._order_message(order)
        trainer = self.children.get((TRAINER, 0))
        if message is None or trainer is None:
            return
        self._send(trainer, message)

    def _order_message(self, order: words.Order) -> Message | None:
        desk, layout = self.desk, self.shared.layout
        match order:
            case words.SendAnchor(number, pass_number):
                return self._anchor(To.ANCHOR, number, pass_number, 0, 0)
            case words.Restore(number, pass_number, extents):
                assert desk is not None
                slots, _ = desk.cached()
                layout.array("held")[: len(slots)] = slots
                layout.array("restored")[: len(extents)] = extents
                return self._anchor(To.RESTORE, number, pass_number, len(slots), len(extents))
            case words.Commit(number, extent, _, _, pass_number, serial):
                assert desk is not None
                stored = desk.columns.stored(serial)
                if not number:  # there is no trainer to tell; the next one is told of all
                    return None
                return Message.make(To.COMMIT, number, extent, stored, pass_number & 1)
            case words.Lend(number, extent):
                return Message.make(To.LEND, number, extent)
            case words.MakeRoom(number, wanted):
                assert desk is not None
                return Message.make(To.MAKE_ROOM, number, wanted, desk.too_many)
            case words.DropAll(number):
                return Message.make(To.DROP_ALL, number)
            case words.Rejected(number, _, version):
                return Message.make(To.REJECTED, number, version)
        raise TypeError(f"not an order: {order!r}")

    def _anchor(self, kind: To, order: int, pass_number: int, slots: int, extents: int) -> Message:
        assert self.desk is not None
        info = self.desk.handed[pass_number]
        return Message.make(
            kind,
            *(order, info.version, info.margins, info.active, pass_number & 1, slots, extents),
            floats=(
                *(info.target, info.violation, info.total_r, info.total_q),
                *(info.decrease, info.intercept, info.beta),
                info.coming if kind == To.ANCHOR else 0,  # a new trainer has some of them
            ),
        )

    def _prepared(self) -> None:
        """All rows are read: plan and make what was waiting for that."""
        session, shared = self.session, self.shared
        for rows in (session.job.train, session.job.valid):
            if rows is not None:
                rows.data.check_unchanged()
        rows_read = shared.prepared(0)
        session.prepared(time.monotonic() - self._reading_since, rows_read.checksums.copy())
        self.logic.extents.limit(shared.complete())
        self.desk = Desk(session, shared.layout, shared.vectors, rows_read)
        for child in self.children.values():
            self._send(child, Message.make(To.SETUP))

    # -- telling -------------------------------------------------------------------------------

    def _report(self, desk: Desk) -> None:
        """Tell of the pass that was certified."""
        assert desk.certified is not None
        session = self.session
        slots, _ = desk.cached()
        self._passes += 1
        working = max(session.elapsed - session.seconds.get("read", 0.0), 1e-9)
        session.passed(
            desk.certified,
            active=len(desk.outer.point.ids),
            cached=len(slots),
            cache_bytes=int(desk.store.sizes[slots].sum()),
            cache_capacity=desk.store.capacity,
            evicted=desk.slots.count_dropped(),
            beta=desk.beta,
            rows_per_second=self._passes * session.job.train.n / working,
            memory=self.meter.peak,
            busy=self._busy_shares(),
        )

    def _pids(self) -> dict[str, int]:
        children = {f"{c.role} {c.number}": c.pid for c in self.children.values()}
        return {"supervisor": os.getpid(), **children}

    def _all_pids(self) -> dict[str, int]:
        """With children that were given back: they hold little, but they are there."""
        return {**self._pids(), **{f"idle {pid}": pid for pid in self.crew.pids}}

    def _busy_shares(self) -> dict[str, float]:
        """Processor time over time of each process since the last call."""
        now = time.monotonic()
        times = {name: _cpu_seconds(pid) for name, pid in self._pids().items()}
        since, before = self._since_busy
        self._since_busy = (now, times)
        passed = max(now - since, 1e-9)
        return {
            name: round(max(0.0, spent - before.get(name, 0.0)) / passed, 3)
            for name, spent in times.items()
        }

    # -- the end -------------------------------------------------------------------------------

    def _dismiss(self, keep: bool = False) -> None:
        """Send everybody away, or give them back to the crew: at a clean end alone.

        Children that have imported code of the user are not kept: it may be another one at the next job.
        """
        children = list(self.children.values())
        for child in children:
            self._forget(child)
        if keep and is_built_in(self.session.job.family.to_config()):
            self.crew.give_back(children, child_bytes())
        else:
            dismiss(children)

    def _end(self, instruction: words.Instruction) -> TrainResult:
        """Save, send everybody away, and make the result."""
        session = self.session
        session.saver.save()
        if isinstance(instruction, words.Abort):
            raise self._error()
        if isinstance(instruction, words.Fail):
            deaths = self._deaths[instruction.role][-self.logic.settings.max_deaths :]
            cures = sorted({f"; {cure}" for _, cure in deaths if cure})
            raise RepeatedDeaths(
                f"the {instruction.role} died {len(deaths)} times without progress in between: "
                f"{'; '.join(how for how, _ in deaths)}{''.join(cures)}. What was reached is in the last "
                "checkpoint, if any are kept"
            )
        assert isinstance(instruction, words.Finish)
        # without a point of this run there is no result; what was resumed from is still there
        if self.desk is None or not session.history or not self.desk.verified:
            raise KeyboardInterrupt
        desk, outer = self.desk, self.desk.outer
        self.meter.sample()
        self._dismiss(keep=instruction.reason != "interrupted")
        # the one long computation of this process: the others are gone
        support = desk.passes.counts(outer.point.ids)
        self.meter.sample()
        return session.result(
            outer.point,
            outer.certified(),
            outer.C_min,
            support,
            desk.passes.rounded_slope(outer.point, session.job.target_offset, outer.reach),
            instruction.reason,
            self.meter.peak,
        )

    def _error(self) -> Exception:
        """What a child has raised: a fault of the input as such, another one with all that is known."""
        assert self._failure is not None
        child, failure, message = self._failure
        if message.ints[1]:
            kinds = {"BudgetError": BudgetError, "GeneratorError": GeneratorError}
            text = failure.message
            if not any(message.ints[2:]):  # this process has met the same input without a fault
                text = f"{child.name} failed at its start, in a process of its own: {text}"
            return kinds.get(failure.type.rpartition(".")[2], InputError)(text)
        doing = _in_words(child.role, message.ints[2:])
        return FclError(
            f"{child.name} failed {doing} with {failure.type}: {failure.message}\n"
            f"{failure.traceback}"
        )


def _in_words(role: str, task: tuple[int, ...]) -> str:
    """What a child was at, from what it told of its task."""
    if not any(task):
        return "at its start"
    if role == WRITER:
        return f"at {TASKS[task[0]]}, parts {task[1]} to {task[2]}"
    return f"at order {task[1]} ({To(task[0]).name.lower()})"


def _cpu_seconds(pid: int) -> float:
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
