"""The decision logic of the driver ``processes``: its guarantees, and random runs with deaths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from logic_invariants import check_invariants
from simulated_pool import BESIDE, SimulatedPool

from fcl.drivers.processes.logic.machine import Logic
from fcl.drivers.processes.logic.protocol import (
    Abort,
    AnchorTaken,
    Certify,
    Decide,
    Decided,
    Done,
    DropAll,
    Finish,
    Freed,
    Lend,
    LogicEvent,
    MakeRoom,
    Published,
    Raised,
    Ready,
    Rejected,
    Restore,
    Scored,
    SendAnchor,
    Spawn,
    Stalled,
    StopAsked,
    TakeProposal,
    TrainerIdle,
    Validate,
)
from fcl.drivers.processes.logic.state import LogicError, WriterSide
from tests.windows import THOROUGH


def certified(**changes: Any) -> SimulatedPool:
    """A pool whose null model is certified."""
    pool = SimulatedPool(**changes)
    pool.run_on()
    assert pool.logic.stage == "decide" and pool.certified[-1:] == [pool.logic.pass_number]
    return pool


def waiting(**changes: Any) -> SimulatedPool:
    """A pool in which the trainer is at work on the anchor and no columns are wanted."""
    pool = certified(**changes)
    pool.decide()
    pool.trainer_works()
    assert pool.logic.stage == "wait"
    return pool


def publish(pool: SimulatedPool, **how: bool) -> None:
    assert pool.trainer is not None
    pool.trainer.publish(**how)
    pool.hear()


def kinds_until(pool: SimulatedPool) -> list[str]:
    """The stages until no task is left."""
    kinds = []
    while pool.tasks:
        kinds.append(pool.kind)
        pool.finish_stage()
    return kinds


def rest(pool: SimulatedPool) -> None:
    assert pool.trainer is not None
    pool.trainer.rest()
    while pool.trainer.said:
        pool.hear()


# -- the order of things ---------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [True, False])
def test_the_order_of_stages(resumed: bool) -> None:
    """Of a run that measures its features, and of a pass whose point is blended."""
    pool = SimulatedPool(measure_parts=3, resumed=resumed)
    pool.everybody_comes()
    first = ["margins", "accept", "residuals"] if resumed else ["residuals"]
    assert kinds_until(pool) == ["prepare", "measure", *first, "price", "certify"]
    pool.decide()
    pool.trainer_works()
    publish(pool)
    assert pool.said(TakeProposal) == [TakeProposal(1)]
    pool.finish_stage()
    pool.finish_stage(outcome="blend")
    assert kinds_until(pool) == ["margins", "accept", "residuals", "price", "certify"]
    assert pool.certified == [0, 1]


def test_a_point_worse_than_its_checkpoint_makes_way_for_the_anchor() -> None:
    pool = SimulatedPool(resumed=True, first_pass=7)
    pool.everybody_comes()
    pool.finish_stage()
    pool.finish_stage()
    pool.finish_stage(outcome="blend")
    assert kinds_until(pool) == ["margins", "accept", "residuals", "price", "certify"]
    assert pool.certified == [7]


def test_a_rejected_proposal_costs_no_pricing_and_no_number() -> None:
    pool = waiting()
    publish(pool)
    pool.finish_stage()
    pool.finish_stage(outcome="rejected")
    assert len(pool.said(Rejected)) == 1
    assert pool.logic.stage == "wait" and pool.logic.pass_number == 0 and not pool.tasks
    pool.trainer_works()
    publish(pool, last_word=True)
    rest(pool)
    pool.finish_stage()
    pool.finish_stage(outcome="rejected")
    assert pool.said(Stalled)


@pytest.mark.parametrize("again", [True, False])
def test_a_stalled_run_continues_if_the_shell_requests_it(again: bool) -> None:
    pool = waiting()
    rest(pool)
    assert pool.said(Stalled)
    pool.decide(again=again, columns=0 if again else 1)
    assert pool.logic.stage == ("residuals" if again else "columns")
    pool.run_on()
    assert pool.certified == [0, 1]


@pytest.mark.parametrize("trainer", [True, False], ids=["trainer", "no-trainer"])
@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_a_point_to_begin_with_is_tried_after_the_null_model(trainer: bool, outcome: str) -> None:
    """Before any columns, and before the trainer has an anchor; a worse one leaves the null model."""
    pool = certified()
    if not trainer:
        pool.kill("trainer")
    pool.decide(start=True)
    kinds = []
    while pool.tasks and pool.logic.stage != "decide":
        kinds.append(pool.kind)
        assert not pool.said(SendAnchor) and not pool.said(Restore)
        pool.finish_stage(outcome=outcome)
    assert kinds == ["margins", "search", "residuals", "price", "certify"][: len(kinds)]
    assert pool.said(Decide if outcome == "rejected" else Certify)
    pool.decide(columns=2)
    anchors = [order.pass_number for order in pool.said(SendAnchor)]
    assert anchors == ([pool.certified[-1]] if trainer else [])
    pool.run_on()
    assert pool.certified == ([0, 1] if outcome == "rejected" else [0, 1, 2])
    with pytest.raises(LogicError, match="after the beginning"):
        pool.logic.handle(Decided(start=True))


def test_nothing_follows_the_end() -> None:
    pool = SimulatedPool()
    pool.everybody_comes()
    assert pool.tell(StopAsked("SIGTERM")) == [Finish("SIGTERM")]
    assert pool.logic.finished
    assert pool.tell(Done(0, pool.tasks[0].serial)) == []
    assert pool.tell(StopAsked("again")) == []
    pool = SimulatedPool()
    assert pool.tell(Raised("writer 1")) == [Abort(Raised("writer 1"))]


def test_all_cores_read() -> None:
    """The trainer has no order while rows are read, and so nothing to do."""
    pool = SimulatedPool(writers=4, cores=4, prepare_parts=9)
    pool.everybody_comes()
    assert len(pool.tasks) == 4 and not pool.said(Lend)


# -- what random runs cannot tell apart ------------------------------------------------------------


def test_a_proposal_made_with_the_old_anchor_is_taken_if_nothing_else_comes() -> None:
    pool = certified()
    pool.decide()
    (sent,) = pool.said(SendAnchor)
    assert pool.tell(Published(1, worth=True)) == []
    assert pool.tell(AnchorTaken(sent.order)) == []
    assert pool.logic.stage == "wait"
    assert TakeProposal(1) in pool.tell(TrainerIdle(sent.order))


def test_columns_are_dealt_in_batches_and_what_did_not_fit_again() -> None:
    pool = certified(writers=1, cores=1, extents=5)
    pool.decide(columns=5)
    ranges = []
    while pool.tasks:
        ranges.append((pool.tasks[0].start, pool.tasks[0].stop))
        pool.finish(0, stored=1 if len(ranges) == 1 else 99)
    assert ranges == [(0, 2), (1, 2), (2, 4), (4, 5)]


def test_the_trainer_is_asked_again_when_it_has_more_to_evict() -> None:
    """It held nothing but its spare when it was asked, and has got a column since."""
    pool = certified(writers=1, cores=1, batch=1, extents=2)
    pool.trainer_works()
    pool.decide(columns=3)
    assert [order.wanted for order in pool.said(MakeRoom)] == [1]
    pool.finish(0)
    pool.tell(AnchorTaken(pool.logic.trainer.anchor_order))
    pool.tell(Freed((), 1, pool.logic.trainer.room_order))
    assert pool.said(MakeRoom) and pool.logic.stage == "columns"


def test_columns_too_large_for_an_extent_are_dropped() -> None:
    pool = certified(writers=1, cores=1, batch=4)
    pool.decide(columns=4)
    extent = pool.tasks[0].extent
    pool.finish(0, stored=0)
    assert pool.logic.stage == "wait" and extent in pool.logic.extents.free


@pytest.mark.parametrize("dies_first", [True, False])
def test_without_a_trainer_a_new_sample_is_drawn_at_once(dies_first: bool) -> None:
    """Of a trainer that dies before it has dropped its extents, too; the next one is told afterwards."""
    pool = certified(extents=4)
    pool.decide(columns=2)
    pool.run_on()
    if dies_first:
        pool.kill("trainer")
    pool.decide(redraw=True, sample_parts=1, columns=1)
    if not dies_first:
        assert pool.said(DropAll) and not pool.tasks
        pool.kill("trainer")
    assert pool.kinds() == ["draw"]
    assert set(pool.owner.values()) == {"nobody"} and not pool.logic.extents.committed
    pool.come("trainer")
    assert not pool.said(Restore)
    pool.finish_stage()
    pool.finish_stage()
    (restore,) = pool.said(Restore)
    assert restore.pass_number == 1 and restore.extents == ()


def test_what_is_said_of_spares_before_a_lent_one_arrives_is_out_of_date() -> None:
    pool = waiting(extents=4)
    order = pool.logic.trainer.order
    for number, lent in ((order, [1]), (order, []), (order + 1, [2])):
        pool.tell(Freed((), 0, number))
        assert [lend.extent for lend in pool.said(Lend)] == lent


def test_the_task_of_a_dead_writer_is_dealt_again() -> None:
    pool = certified(extents=4)
    pool.decide(columns=4)
    pool.trainer_works()
    rest(pool)
    lost = pool.tasks[0]
    assert Spawn("writer", 0, 1) in pool.kill("writer", 0)
    pool.finish(1)
    assert (pool.tasks[1].start, pool.tasks[1].stop) == (lost.start, lost.stop)
    assert pool.tasks[1].serial != lost.serial
    assert pool.tell(Done(1, lost.serial)) == []  # what a dead one said is ignored


def test_a_trainer_that_comes_is_restored_when_the_proposal_is_rejected() -> None:
    pool = waiting()
    publish(pool, last_word=True)
    pool.kill("trainer")
    pool.come("trainer")
    pool.finish_stage()
    pool.finish_stage(outcome="rejected")
    assert pool.logic.stage == "wait"  # a new trainer is to have its say
    assert [restore.pass_number for restore in pool.said(Restore)] == [0]


def test_a_new_trainer_is_asked_for_room_though_the_dead_one_had_none() -> None:
    pool = certified(writers=1, cores=1, batch=1, extents=2)
    pool.decide(columns=3)
    pool.run_on(n_freed=0)
    pool.kill("trainer")
    pool.decide(columns=3)
    assert pool.logic.stage == "columns" and not pool.tasks
    pool.come("trainer")
    assert pool.said(MakeRoom)


# -- validation ------------------------------------------------------------------------------------


def test_validation_comes_after_the_columns_and_does_not_hold_up_a_pass() -> None:
    pool = certified(validate_parts=2)
    assert pool.said(Validate) and not pool.tasks
    pool.decide(columns=2)
    pool.trainer_works()
    assert pool.kinds() == ["columns"]
    pool.finish_stage()
    assert pool.kinds() == ["validate"]
    pool.trainer_works()
    publish(pool)
    assert pool.kinds() == ["validate"]  # the one that runs is not taken away
    pool.finish(min(pool.tasks))
    assert pool.kinds() == ["margins"]


@pytest.mark.parametrize("started", [True, False])
def test_validation_that_has_not_begun_gives_way_to_that_of_the_next_anchor(started: bool) -> None:
    pool = waiting(writers=1, cores=1, validate_parts=3)
    assert pool.kinds() == ["validate"]
    if started:
        publish(pool)
        pool.finish(0)
    else:
        pool.kill("writer", 0)
        publish(pool)
        pool.come("writer", 0)
    while not pool.said(Certify):
        assert not set(pool.kinds()) & set(BESIDE)
        pool.finish(0)
    assert len(pool.said(Validate)) == (not started)
    pool.decide(stop="tolerance", score_first=True)
    while pool.tasks and not pool.over:
        pool.finish(0)
    assert pool.last == [Scored(1), Finish("tolerance")]


# -- faults of others ------------------------------------------------------------------------------


def in_columns() -> SimulatedPool:
    """A pool whose writer makes columns while the trainer has not taken the anchor."""
    pool = certified(writers=1, cores=3, extents=5)
    pool.decide(columns=6)
    return pool


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (lambda logic: Ready("writer", 0), "ready twice"),
        (lambda logic: Ready("trainer", 0), "ready twice"),
        (lambda logic: Decided(), "decided in stage"),
        (lambda logic: TrainerIdle(logic.trainer.order), "not answered"),
        (lambda logic: TrainerIdle(logic.trainer.order + 1), "idle after order"),
        (lambda logic: Freed((min(logic.extents.granted),), 1, 0), "not the trainer's"),
        (lambda logic: Freed((), 1, logic.trainer.order + 1), "freed after order"),
        (lambda logic: AnchorTaken(logic.trainer.order + 1), "anchor of order"),
    ],
)
def test_impossible_events_are_refused(event: Callable[[Logic], LogicEvent], words: str) -> None:
    pool = in_columns()
    with pytest.raises(LogicError, match=words):
        pool.logic.handle(event(pool.logic))


def test_an_unknown_outcome_is_refused_and_an_old_answer_is_not_believed() -> None:
    pool = in_columns()
    assert pool.tell(TrainerIdle(pool.logic.trainer.order - 1)) == []
    assert pool.logic.trainer.state == "busy"
    pool = waiting()
    publish(pool)
    pool.finish_stage()
    with pytest.raises(LogicError, match="expected an outcome"):
        pool.finish_stage(outcome="perhaps")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda logic: logic.passes.parts.waiting.pop(), "of 6 parts are lost"),
        (lambda logic: logic.passes.parts.done.append(range(1)), "held more than once"),
        (lambda logic: setattr(logic.writers[0], "task", None), "not the tasks"),
        (lambda logic: setattr(logic.writers[0], "ready", False), "is not ready"),
        (lambda logic: logic.extents.free.append(0), "has one owner"),
        (lambda logic: logic.extents.granted.clear(), "has one owner"),
        (lambda logic: logic.extents.granted.update({1: 1}), "granted extents"),
        (lambda logic: setattr(logic, "threads", 7), "has 7 threads"),
        (lambda logic: setattr(logic, "handed", None), "anchor handed over: None"),
        (lambda logic: setattr(logic.trainer, "informed", False), "are not answered"),
        (lambda logic: setattr(logic.trainer, "state", "idle"), "are not answered"),
        (lambda logic: setattr(logic.trainer, "spare", 0), "no spare extent"),
        (lambda logic: logic.writers.append(WriterSide(9, ready=True)), "are idle although"),
    ],
)
def test_broken_invariants_are_named(damage: Callable[[Logic], object], words: str) -> None:
    pool = in_columns()
    check_invariants(pool.logic)
    damage(pool.logic)
    with pytest.raises(LogicError, match=words):
        check_invariants(pool.logic)


# -- random runs -----------------------------------------------------------------------------------

SETTINGS = st.fixed_dictionaries(
    {
        "writers": st.integers(1, 4),
        "cores": st.integers(1, 4),
        "sharing": st.booleans(),
        "extents": st.integers(2, 5),
        "batch": st.integers(1, 3),
        "prepare_parts": st.integers(1, 3),
        "measure_parts": st.integers(0, 3),
        "margins_parts": st.integers(1, 3),
        "price_parts": st.integers(1, 3),
        "validate_parts": st.integers(0, 3),
        "max_deaths": st.sampled_from([3, 1000, 1000]),
        "resumed": st.booleans(),
    }
)


class Runs(RuleBasedStateMachine):
    """Children that work, answer and die in any order; the pool tracks the state."""

    @initialize(settings=SETTINGS, prelude=st.booleans())
    def begin(self, settings: dict[str, Any], prelude: bool) -> None:
        self.pool = SimulatedPool(**settings)
        if prelude:
            self.pool.run_on()

    @precondition(lambda self: self.pool.spawned and not self.pool.over)
    @rule(data=st.data())
    def a_child_comes(self, data: st.DataObject) -> None:
        self.pool.come(*data.draw(st.sampled_from(sorted(self.pool.spawned))))

    @precondition(lambda self: self.pool.tasks and not self.pool.over)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["accepted", "blend", "rejected"]),
        stored=st.integers(0, 3),
    )
    def a_task_is_done(self, data: st.DataObject, outcome: str, stored: int) -> None:
        pool = self.pool
        number = data.draw(st.sampled_from(sorted(pool.tasks)))
        if pool.logic.stage == "accept":
            back = pool.settings.resumed and not pool.certified  # to the anchor of the checkpoint
            if (outcome == "blend" and not back) or not pool.logic.pass_number:
                outcome = "accepted"
        pool.finish(number, outcome, stored)

    @precondition(lambda self: self.pool.tasks and not self.pool.over)
    @rule()
    def a_stage_is_done(self) -> None:
        self.pool.finish_stage()

    @precondition(lambda self: not self.pool.over)
    @rule(data=st.data())
    def a_writer_dies(self, data: st.DataObject) -> None:
        self.pool.kill("writer", data.draw(st.integers(0, self.pool.settings.writers - 1)))

    @precondition(lambda self: not self.pool.over)
    @rule()
    def the_trainer_dies(self) -> None:
        self.pool.kill("trainer")

    @precondition(lambda self: self.pool.trainer and self.pool.trainer.orders)
    @rule(n_freed=st.integers(0, 3), use_spare=st.booleans())
    def the_trainer_handles_an_order(self, n_freed: int, use_spare: bool) -> None:
        self.pool.trainer.act(n_freed, use_spare)

    @precondition(lambda self: self.pool.trainer and not self.pool.over)
    @rule()
    def the_trainer_handles_all(self) -> None:
        self.pool.trainer_works()

    @precondition(lambda self: self.pool.trainer and self.pool.trainer.handled)
    @rule(worth=st.booleans(), last_word=st.booleans())
    def the_trainer_publishes(self, worth: bool, last_word: bool) -> None:
        self.pool.trainer.publish(worth, last_word)

    @precondition(lambda self: self.pool.trainer and self.pool.trainer.handled)
    @rule(n=st.integers(0, 2), use_spare=st.booleans())
    def the_trainer_empties_extents(self, n: int, use_spare: bool) -> None:
        self.pool.trainer.free(n, use_spare)

    @precondition(lambda self: self.pool.trainer and not self.pool.trainer.orders)
    @rule()
    def the_trainer_rests(self) -> None:
        self.pool.trainer.rest()

    @precondition(lambda self: self.pool.trainer and self.pool.trainer.said and not self.pool.over)
    @rule()
    def the_trainer_is_heard(self) -> None:
        self.pool.hear()

    @precondition(lambda self: self.pool.logic.stage == "decide")
    @rule(
        columns=st.integers(0, 7),
        redraw=st.booleans(),
        sample_parts=st.integers(0, 2),
        crowded=st.booleans(),
        start=st.booleans(),
        again=st.booleans(),
    )
    def the_shell_decides(
        self, columns: int, redraw: bool, sample_parts: int, crowded: bool, start: bool, again: bool
    ) -> None:
        logic = self.pool.logic
        if again and logic.handed == logic.pass_number:
            self.pool.decide(again=True)
            return
        if start and logic.handed is None and logic.pass_number == logic.settings.first_pass:
            self.pool.decide(start=True)
            return
        crowded = crowded and not redraw  # which leaves nothing
        self.pool.decide(columns=columns, redraw=redraw, sample_parts=sample_parts, crowded=crowded)

    @rule(number=st.integers(0, 3))
    def an_old_message_comes(self, number: int) -> None:
        number %= self.pool.settings.writers
        old = self.pool.serials - {task.serial for task in self.pool.tasks.values()}
        assert self.pool.tell(Done(number, max(old, default=0))) == []

    @precondition(lambda self: not self.pool.over)
    @rule(
        n_freed=st.integers(0, 2),
        outcome=st.sampled_from(["accepted", "blend", "rejected"]),
        until=st.sampled_from(["decide", "columns", "wait", "margins", "search", "residuals"]),
    )
    def all_goes_well_for_a_while(self, n_freed: int, outcome: str, until: str) -> None:
        self.pool.run_on(n_freed, outcome, until)
        assert self.pool.over or self.pool.logic.stage in ("decide", until)

    @precondition(lambda self: not self.pool.over)
    @rule(reason=st.sampled_from([""] * 20 + ["interrupted"]))
    def somebody_asks_for_the_end(self, reason: str) -> None:
        if reason:
            assert self.pool.tell(StopAsked(reason)) == [Finish(reason)]

    def teardown(self) -> None:
        pool = getattr(self, "pool", None)
        if pool is None or pool.over or not pool.sound:
            return
        pool.run_on()
        passes = len(pool.certified)
        pool.decide(columns=3)
        pool.run_on()
        assert len(pool.certified) == passes + 1
        pool.decide(stop="tolerance", score_first=True)
        pool.run_on()
        assert pool.over == Finish("tolerance")
        if pool.settings.validate_parts:
            assert pool.scored[-1] == pool.certified[-1]


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(
    max_examples=300 if THOROUGH else 100, stateful_step_count=60
)
