"""The supervisor: carries out what the decision logic says, and tells it what happens.

It starts and watches the children, moves a few numbers and lists between shared arrays, keeps the anchor
(so that a checkpoint needs no child), and touches no column.
"""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fcl.data.prepared import pack_sides
from fcl.drivers.events import Compiled
from fcl.drivers.inline import last_certified
from fcl.drivers.job import Rows, available_cores
from fcl.drivers.plan import first_sample
from fcl.drivers.processes import logic as words
from fcl.drivers.processes.channel import RAISED, TEXT_BYTES, Message
from fcl.drivers.processes.children import Child, Heartbeats, dismiss
from fcl.drivers.processes.layout import Config, Layout, segment_names
from fcl.drivers.processes.logic import TRAINER, WRITER, Logic, Settings
from fcl.drivers.processes.memory import Meter, on_tmpfs
from fcl.drivers.processes.messages import OUTCOMES, TASKS, From, To
from fcl.drivers.processes.shared import Segment
from fcl.drivers.processes.slots import SlotBook
from fcl.drivers.processes.writer import make_store, read_point, write_point
from fcl.drivers.result import TrainResult
from fcl.drivers.saving import Snapshot
from fcl.drivers.session import MAX_IDLE, Session
from fcl.errors import BudgetError, FclError, InputError, RepeatedDeaths
from fcl.features.base import Prices
from fcl.kernels import is_compiled
from fcl.solve.outer import Certified, Outer
from fcl.solve.passes import KEEP_PER_GROUP, Passes, Vectors
from fcl.solve.solver import null_outer
from fcl.solve.state import Ids, Point

__all__ = ["run_processes"]

_log = logging.getLogger("fcl")

#: Seconds between two looks at what has no descriptor: wishes to stop, clocks.
TICK = 0.05
SAMPLE_EVERY = 0.5
#: Seconds without a heartbeat after which a child is taken for hung.
DEADLINE = 30.0
#: A gap of this many seconds in our own life excuses that of the children.
OWN_GAP = 5.0
#: Parts of a stage, a writer: enough to share the work, few enough not to matter.
PARTS_A_WRITER = 4
#: Bytes of an extent: between these, if the cache can have a few.
LEAST_EXTENT, MOST_EXTENT = 1 << 20, 8 << 20
MOST_EXTENTS = 1024
MOST_BATCH = 256
#: A sample that has proved too small grows by this factor.
GROWTH = 4


def run_processes(
    session: Session,
    scratch: str | os.PathLike[str] | None,
    share_cores: bool,
    shared_files: str | os.PathLike[str] | None,
) -> TrainResult:
    """Train with writers and a trainer beside this process."""
    return Supervisor(session, scratch, share_cores, shared_files).run()


class _Over(Exception):
    """The logic has come to its end."""

    def __init__(self, instruction: words.Instruction) -> None:
        self.instruction = instruction


class Supervisor:
    """One run."""

    def __init__(
        self,
        session: Session,
        scratch: str | os.PathLike[str] | None,
        share_cores: bool,
        shared_files: str | os.PathLike[str] | None,
    ) -> None:
        self.session = session
        self.job = session.job
        self.plan = session.job.plan
        self.scratch = scratch
        self.share_cores = share_cores
        self.shared_files = shared_files
        self.cores = available_cores()
        self.children: dict[tuple[str, int], Child] = {}
        self.segments: dict[str, Segment] = {}
        self.certified: Certified | None = None
        self.beta = 0.0
        self.selector = selectors.DefaultSelector()
        self._tasks: dict[int, words.Task] = {}  # by writer
        self._early: list[tuple[Child, Message]] = []  # orders from before the cache was there
        self._since_busy = (time.monotonic(), {"": 0.0})
        self._proposal: tuple[int, Point, float] | None = None  # version, point, promised decrease
        self._taken: tuple[int, Point, float] | None = None
        self._found: tuple[float, Point, float] | None = None  # beta, point, objective
        self._bound = (0.0, 0.0, 0.0)  # dual bound, sums of residuals and curvatures
        self._anchors: dict[int, dict[str, Any]] = {}  # what was handed over, by pass
        self._accepted_decrease = 0.0
        self._selected: dict[str, np.ndarray] = {}
        self._prices: tuple[Prices, np.ndarray] | None = None
        self._scores: dict[str, Any] | None = None
        self._redraws = 0
        self._drawn_at = np.inf  # objective when the sample was drawn
        self._gap_seen = self._objective_seen = np.inf  # after the pass before
        self._promised = 0.0  # decrease that the trainer expected of the point taken
        self._sample_size = 0
        self._passes_done = 0
        self._pass_seconds = 0.0
        self._anchor_index = 0  # which margins are the anchor's
        self._started = time.monotonic()
        self._resuming = False
        self._wanted_sample = 1
        self._last_tick = self._last_sample = 0.0

    # -- the run -------------------------------------------------------------------------------

    def run(self) -> TrainResult:
        """Start everybody, go on to the end, and clean up whatever happens."""
        session = self.session
        session.started()
        self._compile()
        try:
            self._make_segments()
            self.logic = Logic(self._settings())
            try:
                self._carry_out(self.logic.start())
                while True:
                    self._turn()
            except _Over as over:
                end = over.instruction
            except KeyboardInterrupt:
                end = words.Finish("interrupted")
            return self._end(end)
        finally:
            self._dismiss()
            self.selector.close()
            for segment in self.segments.values():
                segment.close()

    def _compile(self) -> None:
        """Compile the kernels once, in a process that does not stay: compilers leave much behind."""
        if is_compiled():
            return
        since = time.monotonic()
        _log.info("compiling the kernels, which is done once")
        process = subprocess.Popen(
            [sys.executable, "-c", "from fcl.drivers.warmup import warmup; warmup()"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                self._poll_stop()
                time.sleep(TICK)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        # where it failed each child compiles for itself
        self.session.report(Compiled(time.monotonic() - since))

    def _poll_stop(self) -> None:
        if self.session.should_stop():
            raise KeyboardInterrupt

    def _make_segments(self) -> None:
        job, plan = self.job, self.plan
        folder = self.shared_files
        for name in segment_names(plan.writers):
            where = folder
            if name == "rows" and plan.scratch:
                where = self.scratch or tempfile.gettempdir()
            self.segments[name] = Segment.create(name, where)
        self.segments["texts"].allocate((plan.writers + 1) * TEXT_BYTES)
        block_rows = job.options.block_rows
        record = job.family.record_shape(block_rows)
        rows = [job.train, job.valid]
        blocks = [-(-r.n // block_rows) if r else 0 for r in rows]
        parts = {
            "prepare": _prepare_parts(rows, blocks, block_rows, plan.writers),
            "margins": _cut(0, blocks[0], PARTS_A_WRITER * plan.writers),
            "price": [],
            "validate": _cut(1, blocks[1], PARTS_A_WRITER * plan.writers),
        }
        self.config = Config(
            family=job.family.to_config(),
            sources=[r.data.source if r else None for r in rows],
            loss=job.loss.name,
            C=job.options.C,
            intercept=job.options.intercept,
            seed=job.options.seed,
            n_rows=job.train.n,
            n_valid=job.valid.n if job.valid else 0,
            n_kept=[len(r.keep) if r and r.keep is not None else 0 for r in rows],
            block_rows=block_rows,
            scratch=plan.scratch,
            writers=plan.writers,
            cores=self.cores,
            tol=job.options.tol,
            parts=parts,
        )
        self.layout = Layout(self.config, self.segments.__getitem__)
        self.layout.allocate(int(np.prod(record)))
        self.segments["config"].write_json(self.config.to_json())
        self.heartbeats = Heartbeats(self.segments["control"])
        self._share_targets()
        self.meter = Meter(
            lambda: (
                {"supervisor": os.getpid()}
                | {f"{c.role} {c.number}": c.pid for c in self.children.values()}
            ),
            lambda: [s for n, s in self.segments.items() if n != "rows" or self._rows_in_memory()],
        )
        self._vectors = Vectors(job.train.n, self.layout.allocator)
        self._own_prepared()

    def _rows_in_memory(self) -> bool:
        if not self.plan.scratch:
            return True
        return on_tmpfs(os.fspath(self.scratch or tempfile.gettempdir()))

    def _share_targets(self) -> None:
        """Move targets and weights to shared memory; the job keeps views of them."""
        shared: list[Any] = []
        for which, rows in enumerate((self.job.train, self.job.valid)):
            prefix = "valid_" if which else ""
            if rows is None:
                shared.append(None)
                continue
            y, s = self.layout.array(f"{prefix}y"), self.layout.array(f"{prefix}s")
            y[:], s[:] = rows.y, rows.s
            if rows.keep is not None:
                self.layout.array(f"keep{which}")[:] = rows.keep
            shared.append(Rows(rows.data, rows.keep, y, s))
        self.job = replace(self.job, train=shared[0], valid=shared[1])
        self.session.job = self.job

    def _own_prepared(self) -> None:
        """Rows that only this process can see (arrays in memory) are prepared here."""
        size = self.job.options.block_rows
        first_valid = -(-self.job.train.n // size)
        for which, rows in enumerate((self.job.train, self.job.valid)):
            if rows is None or rows.data.source is not None:
                continue
            family = self.job.family
            prepared = self.layout.prepared(which, family.record_shape(size))
            directory = self.layout.array("sides")
            for start, _, raw in family.read_rows(rows.data.rows, size, rows.keep):
                number = start // size
                sides = family.prepare(raw, prepared.writable(number))
                prepared.commit(number, sides)
                data = pack_sides(sides)
                at = self.segments["sides_0"].append(data)
                directory[number + (first_valid if which else 0)] = (0, at, len(data))
                self._poll_stop()

    def _settings(self) -> Settings:
        plan, parts = self.plan, self.config.parts
        n_view = plan.view_rows or self.job.train.n
        column = _largest(self.job, n_view)
        # as many as leave room for a few columns each, even if the rows turn out to need more memory
        extents = plan.cache_bytes // max(2 * column, LEAST_EXTENT)
        fewest = plan.cache_bytes // max(2 * column, MOST_EXTENT)
        self.n_extents = int(
            min(max(min(extents, MOST_EXTENTS), fewest, 5), plan.cache_bytes // column)
        )
        self.batch = int(max(1, min(MOST_BATCH, plan.staging // column)))
        resumed = self.session.resumed
        positions = _price_parts(self.job, plan)
        self.config = replace(self.config, parts={**parts, "price": positions})
        return Settings(
            writers=plan.writers,
            cores=self.cores,
            sharing=self.share_cores,
            extents=self.n_extents,
            batch=self.batch,
            prepare_parts=len(parts["prepare"]),
            margins_parts=len(parts["margins"]),
            price_parts=len(positions),
            validate_parts=len(parts["validate"]),
            first_pass=len(resumed.history) if resumed else 0,
            resumed=resumed is not None,
        )

    # -- one turn of the loop ------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait for something to happen, and deal with all that has."""
        events = self.selector.select(TICK)
        for key, mask in events:
            child: Child = key.data
            if self.children.get((child.role, child.number)) is not child:
                continue
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

    def _bury(self, child: Child) -> None:
        self.selector.unregister(child.channel)
        if child.sentinel is not None:
            self.selector.unregister(child.sentinel)
        child.kill()
        for message in child.channel.receive():
            self._message(child, message)
        del self.children[child.role, child.number]
        _log.warning("%s %s; it is replaced", child.name, child.cause())
        child.close()
        if child.role == WRITER:
            task = self._tasks.pop(child.number, None)
            if task is not None and task.kind == "columns":
                self.slots.settle(task.serial, np.empty(0, np.int64))
        self._tell(words.Died(child.role, child.number))

    def _tick(self) -> None:
        now = time.monotonic()
        if self._last_tick and now - self._last_tick > OWN_GAP:
            self.heartbeats.forgive()
        self._last_tick = now
        if self.session.should_stop():
            self._tell(words.StopAsked("interrupted"))
        self.session.saver.poll()
        if self.session.out_of_time:
            self._tell(words.StopAsked("max-time"))
        if now - self._last_sample < SAMPLE_EVERY:
            return
        self._last_sample = now
        self.meter.sample()
        for child in list(self.children.values()):
            if not child.alive():
                self._hear(child)
            elif self.heartbeats.silent(child, now) > DEADLINE:
                _log.warning("%s has been silent for %.0f s and is killed", child.name, DEADLINE)
                child.kill()
                self._hear(child)

    def _tell(self, event: words.Event) -> None:
        self._carry_out(self.logic.handle(event))

    # -- messages from children ----------------------------------------------------------------

    def _message(self, child: Child, message: Message) -> None:
        if message.kind == RAISED:
            self._failure = (child, child.failure(message, self.segments["texts"]), message)
            self._tell(words.Raised(child.role, child.number))
            return
        match From(message.kind):
            case From.READY:
                if self.config.ready:
                    child.channel.send(Message.make(To.SETUP))
                self._tell(words.Ready(child.role, child.number))
            case From.DONE:
                self._done(child, message)
            case From.PUBLISHED:
                self._published(child, message)
            case From.IDLE:
                self._tell(words.TrainerIdle(message.ints[0]))
            case From.BUSY:
                self._tell(words.TrainerBusy())
            case From.ANCHOR_TAKEN:
                self._tell(words.AnchorTaken(message.ints[0]))
            case From.FREED:
                order, spare, count = message.ints[:3]
                extents = tuple(int(e) for e in self.layout.array("freed")[:count])
                self._tell(words.Freed(extents, spare, order))

    def _done(self, child: Child, message: Message) -> None:
        serial, stored, code, count = message.ints[:4]
        task = self._tasks.get(child.number)
        if task is None or task.serial != serial:
            return
        del self._tasks[child.number]
        outcome = OUTCOMES[code]
        self.session.spent(_STEPS.get(task.kind, task.kind), message.floats[7])
        if task.kind in ("search", "accept"):
            self._searched(outcome, count, message.floats)
        elif task.kind == "certify":
            bound, total_r, total_q = message.floats[:3]
            self._bound = bound, total_r, total_q
        elif task.kind == "draw":
            self._sample_size = count
            self.layout.array("sample_size")[:] = (count, self._redraws)
        elif task.kind == "columns":
            self._stored(task, stored)
        elif task.kind == "score":
            self._score = message.floats[0]
        self._tell(words.Done(child.number, serial, outcome, stored))

    def _searched(self, outcome: str, count: int, floats: tuple[float, ...]) -> None:
        beta, b, objective = floats[:3]
        assert self._taken is not None
        version, proposed, _ = self._taken
        if outcome == "blend":
            point = read_point(self.layout, "found", count, b)
            write_point(self.layout, "proposed", point)
            self._taken = (version, point, beta)
        elif outcome == "accepted":
            before = self.outer.objective
            point = Point(proposed.ids, proposed.weights, b)
            self.beta = beta
            self._accepted_decrease = before - objective
            self._anchor_index = 1 - self._anchor_index
            self._vectors.anchor = self._anchor_index
            self.outer.accept(point, min(objective, before))
            self._offer()

    def _published(self, child: Child, message: Message) -> None:
        version, n, worth, last = message.ints[:4]
        violation, b, decrease = message.floats[:3]
        # copied at once, so that the trainer can put the next one there
        self._proposal = (version, read_point(self.layout, "mailbox", n, b), decrease)
        child.channel.send(Message.make(To.TAKEN, version))
        self._tell(words.Published(version, violation, bool(worth), bool(last)))

    def _stored(self, task: words.Task, stored: int) -> None:
        layout = self.layout
        some = slice(task.start, task.stop)
        order = layout.array("job_order")[some]
        used = layout.array("job_slots")[task.start : task.start + stored].copy()
        for name in ("ids", "violations", "gradients", "curvatures", "weights"):
            part = layout.array(f"job_{name}")[some]
            part[:] = part[order]
        self.slots.settle(task.serial, used)
        self._stored_counts[task.serial] = stored

    # -- instructions --------------------------------------------------------------------------

    def _carry_out(self, instructions: list[words.Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case words.Spawn(role, number, incarnation):
                    self._spawn(role, number, incarnation)
                case words.Deal(number, task):
                    self._deal(number, task)
                case words.Threads(n):
                    self.layout.array("threads")[0] = n
                case words.Prepared():
                    self._prepared()
                case words.TakeProposal():
                    self._take_proposal()
                case words.Certify(number, stalled):
                    # may answer at once: the rest of the list is empty or independent of it
                    self._certify(number, stalled)
                case words.Redraw():
                    self._redraws += 1
                case words.Validate():
                    write_point(self.layout, "validated", self.outer.point)
                    self._validated = self.outer.point
                case words.Scored():
                    self._scored()
                case words.Finish() | words.Fail() | words.Abort():
                    raise _Over(instruction)
                case words.Order():
                    self._order(instruction)
                case _:
                    raise TypeError(f"not an instruction: {instruction!r}")

    def _spawn(self, role: str, number: int, incarnation: int) -> None:
        index = number if role == WRITER else self.plan.writers
        child = Child.spawn(role, number, incarnation, index, self.segments)
        self.children[role, number] = child
        self.selector.register(child.channel, selectors.EVENT_READ, child)
        if child.sentinel is not None:
            self.selector.register(child.sentinel, selectors.EVENT_READ, child)

    def _send(self, child: Child | None, message: Message) -> None:
        if child is None:
            return
        child.channel.send(message)
        self._watch(child)

    def _deal(self, number: int, task: words.Task) -> None:
        self._tasks[number] = task
        count = argument = 0
        floats: tuple[float, ...] = ()
        kind = task.kind
        if kind in ("margins", "search", "accept", "residuals"):
            argument = self._anchor_index
        if kind == "margins":
            assert self._taken is not None
            count = len(self._taken[1].ids)
        elif kind == "search":
            assert self._taken is not None
            proposed = self._taken[1]
            anchor = self.outer.point
            count = (task.pass_number - 1) & 1
            floats = (
                self.outer.objective,
                anchor.intercept,
                proposed.intercept,
                len(anchor.ids),
                len(proposed.ids),
            )
        elif kind == "accept":
            assert self._taken is not None
            _, point, beta = self._taken
            value = np.inf if self._resuming else self.outer.objective
            floats = (value, point.intercept, beta, len(point.ids))
            self._resuming = False
        elif kind == "residuals":
            floats = (self.outer.point.intercept,)
        elif kind == "price":
            if self._watch_pass != task.pass_number:
                self._begin_pricing(task.pass_number)
            count = self._n_watched
            floats = (self.outer.threshold,)
        elif kind == "certify":
            floats = (float(self.layout.array("priced_largest").max()),)
        elif kind == "draw":
            self.slots.clear()
            argument = self._wanted_sample
        elif kind == "columns":
            slots = self.slots.allot(task.serial, task.size)
            self.layout.array("job_slots")[task.start : task.start + len(slots)] = slots
            count, argument = len(slots), int(self._short)
            floats = (task.pass_number & 1,)
        elif kind == "validate":
            count, floats = len(self._validated.ids), (self._validated.intercept,)
        self._send(
            self.children.get((WRITER, number)),
            Message.make(
                To.TASK,
                *(TASKS.index(kind), task.start, task.stop, task.serial, task.extent),
                *(count, argument),
                floats=floats,
            ),
        )

    def _order(self, order: words.Order) -> None:
        trainer = self.children.get((TRAINER, 0))
        match order:
            case words.SendAnchor(number, pass_number):
                message = self._anchor_message(To.ANCHOR, number, pass_number)
            case words.Restore(number, pass_number, extents):
                slots = self.slots.committed
                self.layout.array("held")[: len(slots)] = slots
                self.layout.array("freed")[: len(extents)] = extents
                message = self._anchor_message(To.RESTORE, number, pass_number)
                ints = list(message.ints)
                ints[4] = len(slots)
                floats = list(message.floats)
                floats[7] = len(extents)
                message = message._replace(ints=tuple(ints), floats=tuple(floats))
            case words.Commit(number, extent, _, _, pass_number, serial):
                count = self._stored_counts.pop(serial)
                message = Message.make(To.COMMIT, number, extent, count, pass_number & 1)
                if number == 0:
                    return
            case words.Lend(number, extent):
                message = Message.make(To.LEND, number, extent)
            case words.MakeRoom(number, wanted):
                message = Message.make(To.MAKE_ROOM, number, wanted)
            case words.DropAll(number):
                message = Message.make(To.DROP_ALL, number)
            case words.Rejected(number, _, version):
                message = Message.make(To.REJECTED, number, version)
            case _:
                raise TypeError(f"not an order: {order!r}")
        if self.config.ready:
            self._send(trainer, message)
        elif trainer is not None:  # it has no cache to carry it out in yet
            self._early.append((trainer, message))

    def _anchor_message(self, kind: To, order: int, pass_number: int) -> Message:
        info = self._anchors[pass_number]
        return Message.make(
            kind,
            *(order, pass_number, info["margins"], info["active"], info["version"]),
            pass_number & 1,
            floats=(
                *(info["target"], info["violation"], info["total_r"], info["total_q"]),
                *(info["decrease"], info["intercept"], info["beta"]),
            ),
        )

    # -- the beginning -------------------------------------------------------------------------

    def _prepared(self) -> None:
        """All rows are read: plan what only they could tell, make room for the rest."""
        session, job = self.session, self.job
        size = job.options.block_rows
        shape = job.family.record_shape(size)
        sets = [self.layout.prepared(0, shape)]
        if job.valid:
            sets.append(self.layout.prepared(1, shape))
        job.train.data.check_unchanged()
        session.prepared(time.monotonic() - self._started, sets[0].checksums.copy())
        plan = job.plan_with(sets)
        column = _largest(job, plan.view_rows or job.train.n)
        extent_bytes = plan.cache_bytes // self.n_extents // 8 * 8
        if extent_bytes < column:
            raise BudgetError(
                f"memory: after the rows were read {plan.cache_bytes} bytes are left for the cache, "
                f"and {self.n_extents * column} are needed; raise --memory"
            )
        self.config = replace(
            self.config,
            ready=True,
            max_columns=plan.max_columns,
            entries=plan.entries,
            staging=plan.staging,
            extents=self.n_extents,
            extent_bytes=extent_bytes,
            batch=self.batch,
            max_active=2 * plan.max_columns,
            view_rows=plan.view_rows,
            keep=KEEP_PER_GROUP,
        )
        self.layout = Layout(self.config, self.segments.__getitem__)
        self.layout.allocate(int(np.prod(shape)))
        self.segments["config"].write_json(self.config.to_json())
        for child in self.children.values():
            self._send(child, Message.make(To.SETUP))
        for child, message in self._early:
            if self.children.get((child.role, child.number)) is child:
                self._send(child, message)
        self.store = make_store(self.layout)
        self.slots = SlotBook(self.store.ids)
        self._stored_counts: dict[int, int] = {}
        self._watch_pass, self._n_watched, self._short = -1, 0, False
        self._wanted_sample = first_sample(job.train.n, plan.view_rows)
        self._begin_outer(sets[0])

    def _begin_outer(self, prepared: Any) -> None:
        job, session = self.job, self.session
        self.passes = Passes(job.objective(), job.family, prepared, self._vectors)
        self.outer: Outer = null_outer(self.passes, job.options.tol)
        resumed = session.resumed
        self._recall = np.empty(0, np.int64)  # ids to be cached again
        self._taken = (0, self.outer.point, 1.0)
        if resumed is not None:
            state, arrays = resumed.state, resumed.arrays
            self.outer.restore(dict(state), arrays["ids"], arrays["weights"])
            self.beta = float(state["beta"])
            self.certified = last_certified(state)
            self._recall = arrays["cached"]
            write_point(self.layout, "proposed", self.outer.point)
            self._taken = (0, self.outer.point, 1.0)
            self._resuming = True
        self._offer()

    # -- passes --------------------------------------------------------------------------------

    def _take_proposal(self) -> None:
        assert self._proposal is not None
        self._taken = self._proposal
        version, point, self._promised = self._proposal
        write_point(self.layout, "proposed", point)
        self._taken = (version, point, 1.0)

    def _cached(self) -> tuple[Ids, Ids]:
        """Slots of the committed columns, and their features."""
        slots = self.slots.committed
        return slots, self.store.ids[slots]

    def _begin_pricing(self, pass_number: int) -> None:
        """Say which features are watched: the cached ones, and those with a frozen weight."""
        self._watch_pass = pass_number
        self._watched_slots, cached = self._cached()
        self._frozen = self.outer.frozen(cached)
        watch = np.concatenate([cached, self._frozen.ids])
        layout = self.layout
        self._n_watched = len(watch)
        layout.array("watch_ids")[: len(watch)] = watch
        layout.array("watched")[: len(watch)] = 0.0
        layout.array("watched_curvatures")[: len(watch)] = 0.0

    def _certify(self, pass_number: int, stalled: bool) -> None:
        session, outer, layout = self.session, self.outer, self.layout
        if stalled:
            session.idle += 1
            outer.sharpen()
            stop = "stalled" if session.idle >= MAX_IDLE else ""
            self._anchors[pass_number]["target"] = outer.target()
            n = 0 if stop else self._select(pass_number)
            self._tell(words.Decided(stop=stop, columns=n))
            return
        self._prices = prices, curvatures = self._merged_prices()
        before = self.certified
        self.certified = outer.certify(prices.largest, self._bound[0])
        session.counted(before, self.certified)
        parity = pass_number & 1
        n_cached = len(self._watched_slots)
        watched = layout.array("watched")[: self._n_watched].copy()
        layout.array("slot_gradients")[parity][self._watched_slots] = watched[:n_cached]
        exact = layout.array("watched_curvatures")[: self._n_watched]
        layout.array("slot_curvatures")[parity][self._watched_slots] = exact[:n_cached]
        self._frozen_gradients = watched[n_cached:]
        self._frozen_curvatures = exact[n_cached:].copy()
        write_point(layout, f"anchor{parity}", outer.point)
        self._anchors = {k: v for k, v in self._anchors.items() if k >= pass_number - 1}
        self._anchors[pass_number] = {
            "margins": self._anchor_index,
            "active": len(outer.point.ids),
            "intercept": outer.point.intercept,
            "target": outer.target(),
            "violation": outer.max_violation,
            "total_r": self._bound[1],
            "total_q": self._bound[2],
            "decrease": self._accepted_decrease,
            "version": self._taken[0] if self._taken else 0,
            "beta": self.beta,
        }
        self._report()
        self._offer()
        stop = session.reason(self.certified)
        redraw = not stop and self._wants_redraw()
        n = 0
        if not stop:
            n = self._select(pass_number, drop_cache=redraw)
        sample_parts = -(-self._wanted_sample // self.job.options.block_rows)
        self._tell(
            words.Decided(
                stop=stop,
                columns=n,
                redraw=redraw,
                sample_parts=sample_parts if redraw else 0,
                score_first=bool(stop),
            )
        )

    def _merged_prices(self) -> tuple[Prices, np.ndarray]:
        layout, config = self.layout, self.config
        counts = layout.array("priced_counts")
        found = np.concatenate(
            [
                np.arange(count) + config.keep * part[1]
                for part, count in zip(config.parts["price"], counts, strict=True)
            ]
        ).astype(np.int64)
        ids = layout.array("priced_ids")[found]
        order = np.argsort(ids, kind="stable")
        gradients = layout.array("priced_gradients")[found][order]
        largest = float(layout.array("priced_largest").max())
        prices = Prices(ids[order], gradients, largest, np.empty(0), self.job.family.n_features)
        return prices, layout.array("priced_curvatures")[found][order]

    def _select(self, pass_number: int, drop_cache: bool = False) -> int:
        """Write the list of features to make columns of; returns how many.

        drop_cache : all columns are about to go, and those of features with a weight come back.
        """
        assert self._prices is not None
        outer, layout = self.outer, self.layout
        prices, curvatures = self._prices
        slots, cached = self._cached()
        parity = pass_number & 1
        # all that is known of gradients and curvatures at this anchor, by feature
        known = np.concatenate([prices.ids, self._frozen.ids, cached])
        g = np.concatenate(
            [
                prices.gradients,
                self._frozen_gradients,
                layout.array("slot_gradients")[parity][slots],
            ]
        )
        h = np.concatenate(
            [
                curvatures,
                self._frozen_curvatures,
                layout.array("slot_curvatures")[parity][slots],
            ]
        )
        there = np.empty(0, np.int64) if drop_cache else cached
        frozen = outer.frozen(there)
        selection = outer.select(prices, frozen, _look_up(frozen.ids, known, g), there)
        # what was cached before the rows changed, or before a checkpoint, comes back as well
        back = frozen.ids if drop_cache else self._recall
        self._recall = np.empty(0, np.int64)
        back = back[~np.isin(back, selection.ids) & ~np.isin(back, there)]
        ids = np.concatenate([selection.ids, back])[: self.config.max_active]
        n = len(ids)
        violations = np.zeros(n)
        violations[: len(selection.ids)] = selection.violations[:n]
        for name, values in (
            ("ids", ids),
            ("violations", violations),
            ("gradients", _look_up(ids, known, g)),
            ("curvatures", _look_up(ids, known, h)),
            ("weights", outer.point.weights_of(ids)),
        ):
            layout.array(f"job_{name}")[:n] = values
        self._order_list(n)
        return n

    def _order_list(self, n: int) -> None:
        """By violation if room is short, the largest first; else as columns are cheapest to make."""
        sizes = self.store.sizes[self.slots.committed]
        column = _largest(self.job, self.config.view_rows or self.job.train.n)
        mean = float(sizes.mean()) if len(sizes) else 0.5 * column
        free = self.store.capacity - float(sizes.sum())
        self._short = 2.0 * n * mean > free or n > self.config.max_columns - len(sizes)
        if self._short or not n:
            return
        ids = self.layout.array("job_ids")[:n]
        order = np.argsort(ids, kind="stable")
        for name in ("ids", "violations", "gradients", "curvatures", "weights"):
            part = self.layout.array(f"job_{name}")[:n]
            part[:] = part[order]

    def _wants_redraw(self) -> bool:
        """Whether to draw a new sample, and of what size.

        The first one goes by the curvatures of the null model. While the objective falls fast they soon
        are quite other ones, and there are few columns to be made again. Later the sample grows, to all
        rows if the cache allows, whenever it has foretold the last step badly or the gap hardly closes.
        """
        if not self.plan.view_rows:
            return False
        objective = self.outer.objective
        if self._redraws == 0:
            self._drawn_at = objective
            return True
        gap = self.outer.gap
        promised = self._promised
        bad = self.beta < 0.5 or self._accepted_decrease < 0.5 * promised
        slow = gap > 0.7 * self._gap_seen and objective > 0.98 * self._objective_seen
        self._gap_seen, self._objective_seen = gap, objective
        if bad or slow:
            wanted = min(GROWTH * self._wanted_sample, self._largest_sample())
            if wanted > 1.2 * self._wanted_sample:
                self._wanted_sample, self._drawn_at = wanted, objective
                return True
        if objective < 0.7 * self._drawn_at:
            self._drawn_at = objective
            return True
        return False

    def _largest_sample(self) -> int:
        """Rows over which the cache can hold what is cached now, and some more."""
        used = float(self.store.sizes[self.slots.committed].sum())
        fit = 0.6 * self.store.capacity / max(used / max(self._sample_size, 1), 1e-9)
        n = self.plan.view_rows
        if fit >= n:
            return n
        return max(self._wanted_sample, int(fit))

    # -- telling -------------------------------------------------------------------------------

    def _report(self) -> None:
        assert self.certified is not None
        slots, _ = self._cached()
        self._passes_done += 1
        used = int(self.store.sizes[slots].sum())
        elapsed = max(self.session.elapsed - self.session.seconds.get("read", 0.0), 1e-9)
        self.session.passed(
            self.certified,
            active=len(self.outer.point.ids),
            cached=len(slots),
            cache_bytes=used,
            cache_capacity=self.store.capacity,
            evicted=self.slots.count_dropped(),
            beta=self.beta,
            rows_per_second=self._passes_done * self.job.train.n / elapsed,
            memory=self.meter.peak,
            busy=self._busy_shares(),
            validation=self._scores,
        )

    def _busy_shares(self) -> dict[str, float]:
        """Processor time over time of each process since the last call."""
        now = time.monotonic()
        times = {"supervisor": time.process_time()}
        for child in self.children.values():
            times[f"{child.role} {child.number}"] = _cpu_seconds(child.pid)
        since, before = self._since_busy
        self._since_busy = (now, times)
        passed = max(now - since, 1e-9)
        return {
            name: round(max(0.0, spent - before.get(name, 0.0)) / passed, 3)
            for name, spent in times.items()
        }

    def _scored(self) -> None:
        rows = self.job.valid
        assert rows is not None
        name = "auprc" if self.job.loss.classifies else "mse"
        value = self._score
        self._scores = {name: None if value != value else value, "n_rows": rows.n}
        if self.session.history:
            self.session.history[-1]["validation"] = self._scores

    def _offer(self) -> None:
        """The state to go on from, should everything end now."""
        point, state = self.outer.point, self.outer.state()
        _, cached = self._cached()
        last: dict[str, Any] = {}
        if self.certified is not None:
            last = {"objective": self.certified.objective, "bound": self.certified.bound}
        numbers = {
            **state,
            **{"drawn": 0, "grown": 1.0, "idle": self.session.idle},
            **{"beta": self.beta, "evicted": 0, "last": last},
        }
        arrays = {
            "ids": point.ids,
            "weights": point.weights,
            "cached": cached,
            "seen": np.ones(len(cached), bool),
        }
        snapshot: Snapshot = numbers, arrays
        self.session.saver.offer(lambda: snapshot)

    # -- the end -------------------------------------------------------------------------------

    def _dismiss(self) -> None:
        for child in self.children.values():
            self.selector.unregister(child.channel)
            if child.sentinel is not None:
                self.selector.unregister(child.sentinel)
        dismiss(list(self.children.values()))
        self.children.clear()

    def _end(self, instruction: words.Instruction) -> TrainResult:
        """Save, send everybody away, and make the result."""
        session = self.session
        session.saver.save()
        if isinstance(instruction, words.Abort):
            self._raise_failure()
        if isinstance(instruction, words.Fail):
            raise RepeatedDeaths(
                f"the {instruction.role} died {self.logic.settings.max_deaths} times without "
                "progress in between; the last checkpoint has all that was reached"
            )
        assert isinstance(instruction, words.Finish)
        if not session.history:
            raise KeyboardInterrupt
        self.meter.sample()
        self._dismiss()
        point = self.outer.point
        support = self.passes.pricer.sums(np.ones(self.job.train.n), point.ids)
        self.meter.sample()
        return session.result(
            point,
            self.outer.certified(),
            self.outer.C_min,
            np.rint(support).astype(np.int64),
            instruction.reason,
            self.meter.peak,
        )

    def _raise_failure(self) -> None:
        child, failure, message = self._failure
        if message.ints[1]:
            kind = BudgetError if failure.type.endswith("BudgetError") else InputError
            raise kind(failure.message)
        task = f"at task {message.ints[2:]}" if any(message.ints[2:]) else "at its start"
        raise FclError(
            f"{child.name} failed {task} with {failure.type}: {failure.message}\n{failure.traceback}"
        )


#: Words for the kinds of tasks in the report of times.
_STEPS = {
    "prepare": "reading",
    "margins": "margins and search",
    "search": "margins and search",
    "accept": "margins and search",
    "residuals": "pricing",
    "price": "pricing",
    "certify": "pricing",
    "draw": "sample",
    "validate": "validation",
    "score": "validation",
}


def _largest(job: Any, n_rows: int) -> int:
    from fcl.cache.store import largest_column

    return largest_column(n_rows, job.options.block_rows, job.family.binary)


def _cut(which: int, n: int, most: int) -> list[list[int]]:
    """[which, first, stop] of at most so many nearly equal ranges of 0 .. n."""
    if not n:
        return []
    edges = np.linspace(0, n, min(n, most) + 1).astype(int)
    return [[which, int(a), int(b)] for a, b in pairwise(edges)]


def _prepare_parts(
    rows: list[Rows | None], blocks: list[int], block_rows: int, writers: int
) -> list[list[int]]:
    """Ranges of blocks, cut near the ends of storage chunks: a chunk that is cut is decoded twice."""
    parts = []
    for which, (some, n) in enumerate(zip(rows, blocks, strict=True)):
        if some is None:
            continue
        stored = some.data.rows.shape[0]
        chunks = -(-stored // some.data.rows.chunk_rows)
        parts += _cut(which, n, max(1, min(chunks, 8 * writers)))
    return parts


def _price_parts(job: Any, plan: Any) -> list[list[int]]:
    """Ranges of the parts that the family's pricer falls into."""
    return _cut(0, job.family.n_price_parts, 2 * PARTS_A_WRITER * plan.writers)


def _look_up(wanted: Ids, known: Ids, values: np.ndarray) -> np.ndarray:
    """Values of features by id; 0 where there is none."""
    out = np.zeros(len(wanted))
    if len(known):
        order = np.argsort(known, kind="stable")
        at = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
        here = known[order][at] == wanted
        out[here] = values[order][at[here]]
    return out


def _cpu_seconds(pid: int) -> float:
    import psutil

    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
