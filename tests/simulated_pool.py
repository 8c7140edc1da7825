"""A simulated pool of processes for the logic: children, trainer and shell, with its own accounting.

It does not trust the state of the logic: from the instructions alone it tracks who holds each extent, how
often each part was done, and what each core runs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from logic_invariants import check_invariants

from fcl.drivers.processes.logic.machine import Logic
from fcl.drivers.processes.logic.protocol import (
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
    Fail,
    Finish,
    Freed,
    Instruction,
    Lend,
    LogicEvent,
    LogicSettings,
    MakeRoom,
    Order,
    Published,
    Ready,
    Restore,
    RowsPrepared,
    Scored,
    SendAnchor,
    Spawn,
    Stalled,
    TakeProposal,
    Threads,
    TrainerIdle,
    WriterTask,
)

#: The kinds of tasks that may follow each kind, except for validation tasks.
FOLLOWS = {
    "": {"prepare"},
    "prepare": {"measure", "residuals", "margins"},
    "measure": {"residuals", "margins"},
    "margins": {"search", "accept"},
    "search": {"residuals", "margins"},
    "accept": {"residuals", "margins"},
    "residuals": {"price"},
    "price": {"certify"},
    "certify": set(),
    "decided": {"draw", "columns", "margins", "residuals"},
    "draw": {"sample", "columns", "margins"},
    "sample": {"columns", "margins"},
    "columns": {"margins"},
}
BESIDE = ("validate", "score")


class SimulatedTrainer:
    """Handles orders one by one; its messages wait in ``said`` until they are received."""

    def __init__(self) -> None:
        self.orders: deque[Order] = deque()
        self.said: deque[LogicEvent] = deque()
        self.handled = 0
        self.holds: set[int] = set()
        self.spares: set[int] = set()
        self.idle = False  # as it sees itself
        self.version = 0

    def act(self, n_freed: int = 99, use_spare: bool = False) -> None:
        """Handle the next order; MakeRoom frees at most a given number of extents."""
        order = self.orders.popleft()
        self.handled, self.idle = order.order, False
        match order:
            case SendAnchor():
                self.said.append(AnchorTaken(order.order))
            case Restore():
                self.holds = set(order.extents)
                self.said.append(AnchorTaken(order.order))
            case Commit():
                self.holds.add(order.extent)
            case Lend():
                self.holds.add(order.extent)
                self.spares.add(order.extent)
            case MakeRoom():
                self.free(min(n_freed, order.wanted), use_spare)
            case DropAll():
                self.said.append(Freed(tuple(sorted(self.holds)), 0, order.order))
                self.holds, self.spares = set(), set()

    def free(self, n: int, use_spare: bool = False) -> None:
        if use_spare:
            self.spares = set()
        freed = sorted(self.holds - self.spares)[:n]
        self.holds -= set(freed)
        self.said.append(Freed(tuple(freed), len(self.spares), self.handled))

    def publish(self, worth: bool = True, last_word: bool = False) -> None:
        self.version += 1
        self.said.append(Published(self.version, worth, last_word))

    def rest(self) -> None:
        self.idle = True
        self.said.append(TrainerIdle(self.handled))


class SimulatedPool:
    """Everything around a Logic; each event goes through :meth:`tell`."""

    def __init__(self, **changes: Any) -> None:
        small = {"writers": 2, "cores": 2, "extents": 3, "batch": 2}
        parts = {"prepare_parts": 2, "margins_parts": 2, "price_parts": 2}
        self.settings = LogicSettings(**(small | parts | changes))
        self.logic = Logic(self.settings)
        self.last: list[Instruction] = []
        self.sound = True  # False after a broken promise
        self.over: Instruction | None = None
        self.spawned: dict[tuple[str, int], int] = {}  # not ready yet -> incarnation
        self.died: Counter[tuple[str, int]] = Counter()
        self.deaths: Counter[str] = Counter()  # since the last progress
        self.idle_writers: set[int] = set()
        self.tasks: dict[int, WriterTask] = {}
        self.serials: set[int] = set()
        self.trainer: SimulatedTrainer | None = None
        self.trainer_busy = False
        self.orders = 0
        self.anchors_due: set[int] = set()
        self.proposal: Published | None = None  # the newest one of the present trainer
        self.fresh = False  # made with the present anchor
        self.room_due = self.drop_due = 0
        self.crowded = False  # columns have to leave, and the trainer has not answered
        self.owner: dict[int, str] = dict.fromkeys(range(self.settings.extents), "nobody")
        self.threads = 0
        self.kind = ""
        self.done: Counter[int] = Counter()  # parts of this stage
        self.beside_done: Counter[tuple[str, int, int]] = Counter()  # kind, pass, part
        self.lossless = True
        self.certified: list[int] = []
        self.scored: list[int] = []
        self.handed = -1  # the last certified anchor after which the shell continued
        self.decision = Decided()
        self.redrawing = False  # the last event was the decision to draw a new sample
        self.rejected = self.blending = False
        self._carry_out(self.logic.start())

    # -- events ------------------------------------------------------------------------------------

    def tell(self, event: LogicEvent) -> list[Instruction]:
        was_over = self.over
        self._note(event)
        self._carry_out(self.logic.handle(event))
        assert not (was_over and self.last), "an instruction after the end"
        return self.last

    def _note(self, event: LogicEvent) -> None:
        """Record the effect of a trainer's event."""
        match event:
            case AnchorTaken(order):
                self.fresh &= order not in self.anchors_due
                self.anchors_due.discard(order)
            case Published():
                self.proposal, self.fresh = event, True
            case TrainerIdle(order):
                self.trainer_busy &= order != self.orders
            case Freed():
                for extent in event.extents:
                    assert self.owner[extent] == "trainer"
                    self.owner[extent] = "nobody"
                if self.room_due and event.order >= self.room_due:
                    if not self.crowded:
                        self.lossless &= bool(event.extents) and event.spare > 0
                    self.room_due, self.crowded = 0, False
                if self.drop_due and event.order >= self.drop_due:
                    assert set(self.owner.values()) == {"nobody"}
                    self.drop_due = 0

    def come(self, role: str, number: int = 0) -> list[Instruction]:
        del self.spawned[role, number]
        if role == "trainer":
            self.trainer = SimulatedTrainer()
        else:
            self.idle_writers.add(number)
        return self.tell(Ready(role, number))

    def everybody_comes(self) -> None:
        for role, number in list(self.spawned):
            self.come(role, number)

    def finish(self, number: int, outcome: str = "accepted", stored: int = 99) -> list[Instruction]:
        task = self.tasks.pop(number)
        self.idle_writers.add(number)
        stored = min(stored, task.size)
        if task.kind in BESIDE:
            self.beside_done[task.kind, task.pass_number, task.start] += 1
        elif task.kind == "columns":
            self.done.update(range(task.start, task.start + stored))
            self.owner[task.extent] = "trainer" if stored else "nobody"
            self.lossless &= stored > 0
        else:
            self.done[task.start] += 1
        if task.kind not in ("search", "accept"):
            outcome = ""
        elif outcome == "accepted":
            self.deaths.clear()
        self.rejected = outcome == "rejected"
        if task.kind in ("search", "accept"):
            self.blending = outcome == "blend"
        out = self.tell(Done(number, task.serial, outcome, stored))
        committed = [(i.extent, i.count, i.pass_number) for i in out if isinstance(i, Commit)]
        if task.kind == "columns" and stored and self.logic.trainer.informed:
            assert committed == [(task.extent, stored, task.pass_number)]
        else:
            assert not committed
        self.rejected = False
        return out

    def kill(self, role: str, number: int = 0) -> list[Instruction]:
        """Kill a child: the shell has reaped it, and nobody owns what it held."""
        self.died[role, number] += 1
        self.deaths[role] += 1
        if role == "trainer":
            self.trainer, self.trainer_busy = None, False
            self.anchors_due.clear()
            self.proposal = None
            if self.drop_due:
                self._nobody_holds("trainer")
            self.room_due = self.drop_due = 0
        else:
            self.idle_writers.discard(number)
            task = self.tasks.pop(number, None)
            if task and task.extent >= 0:
                self.owner[task.extent] = "nobody"
        self.spawned.pop((role, number), None)
        out = self.tell(Died(role, number))
        assert (out == [Fail(role)]) == (self.deaths[role] >= self.settings.max_deaths)
        return out

    def hear(self) -> list[Instruction]:
        """Deliver the trainer's next message."""
        assert self.trainer is not None
        return self.tell(self.trainer.said.popleft())

    def trainer_works(self) -> None:
        """Let the trainer handle all orders, and deliver its messages."""
        while self.trainer and (self.trainer.orders or self.trainer.said):
            if self.trainer.said:
                self.hear()
            else:
                self.trainer.act()

    def decide(self, **answer: Any) -> list[Instruction]:
        self.decision = Decided(**answer)
        self.crowded = self.decision.crowded and self.decision.columns > 0
        self.handed = self.certified[-1]
        self.redrawing = self.decision.redraw
        return self.tell(self.decision)

    def finish_stage(self, **how: Any) -> None:
        """Complete the tasks of the present stage."""
        kind = self.kind
        while self.kind == kind and kind in self.kinds():
            self.finish(next(n for n, task in self.tasks.items() if task.kind == kind), **how)

    def run_on(self, n_freed: int = 0, outcome: str = "accepted", until: str = "decide") -> None:
        """Let everybody work and answer until a stage is reached or a decision is due."""
        for _ in range(1000):
            trainer, stage = self.trainer, self.logic.stage
            if self.over or stage in (until, "decide"):
                return
            if self.spawned:
                self.everybody_comes()
            elif trainer and trainer.said:
                self.hear()
            elif trainer and trainer.orders:
                trainer.act(n_freed)
            elif self.tasks:
                self.finish(min(self.tasks), outcome if stage == "search" else "accepted")
            elif trainer and not trainer.idle:
                trainer.publish(last_word=True)
                trainer.rest()
            else:
                break
        raise AssertionError(f"stuck in stage {self.logic.stage} of pass {self.logic.pass_number}")

    # -- what a test looks at ----------------------------------------------------------------------

    def kinds(self) -> list[str]:
        """The kinds of the running tasks."""
        return sorted(task.kind for task in self.tasks.values())

    def said(self, kind: type[Any]) -> list[Any]:
        """The instructions of one type among the last."""
        return [instruction for instruction in self.last if isinstance(instruction, kind)]

    # -- the books ---------------------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        self.last, self.sound = list(instructions), False
        if self.redrawing and not any(isinstance(other, DropAll) for other in instructions):
            self._nobody_holds("trainer")
        self.redrawing = False
        for instruction in instructions:
            assert self.over is None, f"{instruction} after {self.over}"
            if isinstance(instruction, Order):
                self._order(instruction)
            match instruction:
                case Spawn(role, number, incarnation):
                    assert incarnation == self.died[role, number]
                    assert (role, number) not in self.spawned
                    self.spawned[role, number] = incarnation
                case Deal(number, task):
                    self._deal(number, task)
                case Threads(n):
                    assert n >= 1 and n != self.threads
                    self.threads = n
                case RowsPrepared():
                    assert self.kind == "prepare"
                    self.deaths.clear()
                case TakeProposal(version):
                    assert self.proposal and version == self.proposal.version
                    assert self.worth_a_pass()
                    self.proposal = None
                    assert self.trainer and not self.anchors_due, "its margins may be in use"
                    assert not self.tasks or set(self.kinds()) <= set(BESIDE)
                case Certify(pass_number):
                    assert self.kind == "certify"
                    expected = (
                        self.certified[-1] + 1 if self.certified else self.settings.first_pass
                    )
                    assert pass_number == expected
                    self.certified.append(expected)
                    self._decision_is_due()
                case Stalled():
                    assert self.rejected or not (self.trainer_busy or self.proposal)
                    self._decision_is_due()
                case Decide():
                    assert self.rejected
                    self._decision_is_due()
                case Scored(pass_number):
                    parts = range(self.settings.validate_parts)
                    kinds = [("validate", part) for part in parts] + [("score", 0)]
                    assert all(self.beside_done[k, pass_number, part] == 1 for k, part in kinds)
                    self.scored.append(pass_number)
                case Abort() | Fail() | Finish():
                    self.over = instruction
        check_invariants(self.logic)
        if not self.over:
            running = len(self.tasks)
            assert running == self.logic.busy_writers
            left = max(1, self.settings.cores - running) if self.settings.sharing else 1
            assert self.threads == self.logic.threads == left
            idle = self.idle_writers and running < self._most_writers()
            assert not (idle and self.logic.lane_with_work()), "a writer and a core are idle"
            takes = self.logic.trainer.informed and not self.anchors_due and self.worth_a_pass()
            assert not (self.logic.stage == "wait" and takes), "a proposal waits"
        self.sound = True

    def worth_a_pass(self) -> bool:
        """Whether there is a proposal to be taken: a good one, or any of a trainer that rests."""
        if self.proposal is None:
            return False
        good = self.proposal.worth or self.proposal.last_word
        return not self.trainer_busy or (self.fresh and good)

    def _most_writers(self) -> int:
        """Cores for writers: all if the trainer shares its own and has nothing to do; at least one."""
        shared = self.settings.sharing and not self.trainer_busy
        return max(1, self.settings.cores - (not shared))

    def _parts(self, kind: str) -> int:
        """The number of parts of a stage."""
        settings = self.settings
        return {
            "prepare": settings.prepare_parts,
            "measure": settings.measure_parts,
            "margins": settings.margins_parts,
            "residuals": settings.margins_parts,
            "price": settings.price_parts,
            "validate": settings.validate_parts,
            "sample": self.decision.sample_parts,
            "columns": self.decision.columns,
            "": 0,
            "decided": 0,
        }.get(kind, 1)

    def _order(self, order: Order) -> None:
        assert self.trainer is not None
        self.orders += 1
        assert order.order == self.orders
        self.trainer.orders.append(order)
        self.trainer_busy = True
        match order:
            case SendAnchor(number, pass_number) | Restore(number, pass_number):
                assert pass_number == self.handed
                self.anchors_due.add(number)
                if isinstance(order, Restore):
                    held = [e for e, owner in self.owner.items() if owner == "trainer"]
                    assert list(order.extents) == held
                    assert set(self.kinds()) <= {"columns", *BESIDE}, "in the middle of a pass"
            case Lend():
                assert self.owner[order.extent] == "nobody"
                self.owner[order.extent] = "trainer"
            case MakeRoom():
                assert not self.room_due and 0 <= order.wanted < self.settings.extents
                assert bool(order.wanted) == ("nobody" not in self.owner.values())
                assert order.wanted or self.crowded
                self.room_due = order.order
            case DropAll():
                self.drop_due = order.order

    def _deal(self, number: int, task: WriterTask) -> None:
        self.idle_writers.remove(number)
        settings = self.settings
        assert len(self.tasks) < self._most_writers(), "a task without a token"
        left = settings.cores - len(self.tasks) - self.trainer_busy
        alone = settings.sharing and self._parts(task.kind) == 1
        assert task.threads == (max(1, left) if alone else 1)
        assert task.serial not in self.serials
        self.serials.add(task.serial)
        others = [
            part
            for other in self.tasks.values()
            if other.kind == task.kind
            for part in range(other.start, other.stop)
        ]
        assert not set(range(task.start, task.stop)) & set(others), "a part in two hands"
        if task.kind in BESIDE:
            assert (task.kind, task.pass_number, task.start) not in self.beside_done
            if task.kind == "score":
                parts = range(settings.validate_parts)
                assert all(self.beside_done["validate", task.pass_number, p] == 1 for p in parts)
        else:
            if task.kind != self.kind:
                self._begin(task.kind)
            assert not any(self.done[part] for part in range(task.start, task.stop)), "done already"
        if task.kind == "columns":
            assert 1 <= task.size <= settings.batch
            assert not self.crowded, "columns are made before others have left"
            assert self.owner[task.extent] == "nobody", "an extent in two hands"
            self.owner[task.extent] = f"writer {number}"
        else:
            assert task.size == 1 and task.extent == -1
        self.tasks[number] = task

    def _begin(self, kind: str) -> None:
        assert kind in FOLLOWS[self.kind], f"{kind} after {self.kind}"
        if self.kind == "decided":
            assert (kind == "residuals") == self.decision.again, kind
        if self.kind == "prepare":
            assert (kind == "measure") == (self.settings.measure_parts > 0), kind
        assert all(task.kind in BESIDE for task in self.tasks.values())
        if self.kind == "margins":
            resumed = self.settings.resumed and not self.certified
            assert kind == ("accept" if self.blending or resumed else "search")
            self.blending = False
        if kind == "draw":
            assert not self.drop_due, "the trainer may still read what a draw changes"
        self._close()
        self.kind, self.done, self.lossless = kind, Counter(), True

    def _close(self) -> None:
        """End the stage: check that each of its parts was done exactly once."""
        n = self._parts(self.kind)
        assert set(self.done) <= set(range(n)) and set(self.done.values()) <= {1}
        if self.kind != "columns" or self.lossless:
            assert len(self.done) == n, f"{self.kind}: {len(self.done)} of {n} parts done"

    def _decision_is_due(self) -> None:
        assert self.logic.pass_number == self.certified[-1]
        self._close()
        self.kind, self.done, self.lossless = "decided", Counter(), True

    def _nobody_holds(self, holder: str) -> None:
        for extent, owner in self.owner.items():
            if owner == holder:
                self.owner[extent] = "nobody"
