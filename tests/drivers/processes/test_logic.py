"""The decision logic of the driver ``processes``: its guarantees, and random runs with deaths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from crew import BESIDE, Crew
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from logic_invariants import check_invariants

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
    LogicSettings,
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


def certified(**changes: Any) -> Crew:
    """A crew whose null model is certified."""
    crew = Crew(**changes)
    crew.run_on()
    assert crew.logic.stage == "decide" and crew.certified[-1:] == [crew.logic.pass_number]
    return crew


def waiting(**changes: Any) -> Crew:
    """A crew in which the trainer is at work on the anchor and no columns are wanted."""
    crew = certified(**changes)
    crew.decide()
    crew.trainer_works()
    assert crew.logic.stage == "wait"
    return crew


def publish(crew: Crew, **how: bool) -> None:
    assert crew.trainer is not None
    crew.trainer.publish(**how)
    crew.hear()


def kinds_until(crew: Crew) -> list[str]:
    """The stages until no task is left."""
    kinds = []
    while crew.tasks:
        kinds.append(crew.kind)
        crew.finish_stage()
    return kinds


def rest(crew: Crew) -> None:
    assert crew.trainer is not None
    crew.trainer.rest()
    while crew.trainer.said:
        crew.hear()


# -- the order of things ---------------------------------------------------------------------------


@pytest.mark.parametrize("resumed", [True, False])
def test_the_order_of_stages(resumed: bool) -> None:
    """Of a run that measures its features, and of a pass whose point is blended."""
    crew = Crew(measure_parts=3, resumed=resumed)
    crew.everybody_comes()
    first = ["margins", "accept", "residuals"] if resumed else ["residuals"]
    assert kinds_until(crew) == ["prepare", "measure", *first, "price", "certify"]
    crew.decide()
    crew.trainer_works()
    publish(crew)
    assert crew.said(TakeProposal) == [TakeProposal(1)]
    crew.finish_stage()
    crew.finish_stage(outcome="blend")
    assert kinds_until(crew) == ["margins", "accept", "residuals", "price", "certify"]
    assert crew.certified == [0, 1]


def test_a_point_worse_than_its_checkpoint_makes_way_for_the_anchor() -> None:
    crew = Crew(resumed=True, first_pass=7)
    crew.everybody_comes()
    crew.finish_stage()
    crew.finish_stage()
    crew.finish_stage(outcome="blend")
    assert kinds_until(crew) == ["margins", "accept", "residuals", "price", "certify"]
    assert crew.certified == [7]


def test_a_rejected_proposal_costs_no_pricing_and_no_number() -> None:
    crew = waiting()
    publish(crew)
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert len(crew.said(Rejected)) == 1
    assert crew.logic.stage == "wait" and crew.logic.pass_number == 0 and not crew.tasks
    crew.trainer_works()
    publish(crew, last_word=True)
    rest(crew)
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert crew.said(Stalled)


@pytest.mark.parametrize("again", [True, False])
def test_a_stalled_run_continues_if_the_shell_requests_it(again: bool) -> None:
    crew = waiting()
    rest(crew)
    assert crew.said(Stalled)
    crew.decide(again=again, columns=0 if again else 1)
    assert crew.logic.stage == ("residuals" if again else "columns")
    crew.run_on()
    assert crew.certified == [0, 1]


@pytest.mark.parametrize("trainer", [True, False], ids=["trainer", "no-trainer"])
@pytest.mark.parametrize("outcome", ["accepted", "rejected"])
def test_a_point_to_begin_with_is_tried_after_the_null_model(trainer: bool, outcome: str) -> None:
    """Before any columns, and before the trainer has an anchor; a worse one leaves the null model."""
    crew = certified()
    if not trainer:
        crew.kill("trainer")
    crew.decide(start=True)
    kinds = []
    while crew.tasks and crew.logic.stage != "decide":
        kinds.append(crew.kind)
        assert not crew.said(SendAnchor) and not crew.said(Restore)
        crew.finish_stage(outcome=outcome)
    assert kinds == ["margins", "search", "residuals", "price", "certify"][: len(kinds)]
    assert crew.said(Decide if outcome == "rejected" else Certify)
    crew.decide(columns=2)
    anchors = [order.pass_number for order in crew.said(SendAnchor)]
    assert anchors == ([crew.certified[-1]] if trainer else [])
    crew.run_on()
    assert crew.certified == ([0, 1] if outcome == "rejected" else [0, 1, 2])
    with pytest.raises(LogicError, match="after the beginning"):
        crew.logic.handle(Decided(start=True))


def test_nothing_follows_the_end() -> None:
    crew = Crew()
    crew.everybody_comes()
    assert crew.tell(StopAsked("SIGTERM")) == [Finish("SIGTERM")]
    assert crew.logic.finished
    assert crew.tell(Done(0, crew.tasks[0].serial)) == []
    assert crew.tell(StopAsked("again")) == []
    crew = Crew()
    assert crew.tell(Raised("writer 1")) == [Abort(Raised("writer 1"))]


def test_all_cores_read() -> None:
    """The trainer has no order while rows are read, and so nothing to do."""
    crew = Crew(writers=4, cores=4, prepare_parts=9)
    crew.everybody_comes()
    assert len(crew.tasks) == 4 and not crew.said(Lend)


# -- what random runs cannot tell apart ------------------------------------------------------------


def test_a_proposal_made_with_the_old_anchor_is_taken_if_nothing_else_comes() -> None:
    crew = certified()
    crew.decide()
    (sent,) = crew.said(SendAnchor)
    assert crew.tell(Published(1, worth=True)) == []
    assert crew.tell(AnchorTaken(sent.order)) == []
    assert crew.logic.stage == "wait"
    assert TakeProposal(1) in crew.tell(TrainerIdle(sent.order))


def test_columns_are_dealt_in_batches_and_what_did_not_fit_again() -> None:
    crew = certified(writers=1, cores=1, extents=5)
    crew.decide(columns=5)
    ranges = []
    while crew.tasks:
        ranges.append((crew.tasks[0].start, crew.tasks[0].stop))
        crew.finish(0, stored=1 if len(ranges) == 1 else 99)
    assert ranges == [(0, 2), (1, 2), (2, 4), (4, 5)]


def test_the_trainer_is_asked_again_when_it_has_more_to_evict() -> None:
    """It held nothing but its spare when it was asked, and has got a column since."""
    crew = certified(writers=1, cores=1, batch=1, extents=2)
    crew.trainer_works()
    crew.decide(columns=3)
    assert [order.wanted for order in crew.said(MakeRoom)] == [1]
    crew.finish(0)
    crew.tell(AnchorTaken(crew.logic.trainer.anchor_order))
    crew.tell(Freed((), 1, crew.logic.trainer.room_order))
    assert crew.said(MakeRoom) and crew.logic.stage == "columns"


def test_columns_too_large_for_an_extent_are_dropped() -> None:
    crew = certified(writers=1, cores=1, batch=4)
    crew.decide(columns=4)
    extent = crew.tasks[0].extent
    crew.finish(0, stored=0)
    assert crew.logic.stage == "wait" and extent in crew.logic.extents.free


@pytest.mark.parametrize("dies_first", [True, False])
def test_without_a_trainer_a_new_sample_is_drawn_at_once(dies_first: bool) -> None:
    """Of a trainer that dies before it has dropped its extents, too; the next one is told afterwards."""
    crew = certified(extents=4)
    crew.decide(columns=2)
    crew.run_on()
    if dies_first:
        crew.kill("trainer")
    crew.decide(redraw=True, sample_parts=1, columns=1)
    if not dies_first:
        assert crew.said(DropAll) and not crew.tasks
        crew.kill("trainer")
    assert crew.kinds() == ["draw"]
    assert set(crew.owner.values()) == {"nobody"} and not crew.logic.extents.committed
    crew.come("trainer")
    assert not crew.said(Restore)
    crew.finish_stage()
    crew.finish_stage()
    (restore,) = crew.said(Restore)
    assert restore.pass_number == 1 and restore.extents == ()


def test_what_is_said_of_spares_before_a_lent_one_arrives_is_out_of_date() -> None:
    crew = waiting(extents=4)
    order = crew.logic.trainer.order
    for number, lent in ((order, [1]), (order, []), (order + 1, [2])):
        crew.tell(Freed((), 0, number))
        assert [lend.extent for lend in crew.said(Lend)] == lent


def test_the_task_of_a_dead_writer_is_dealt_again() -> None:
    crew = certified(extents=4)
    crew.decide(columns=4)
    crew.trainer_works()
    rest(crew)
    lost = crew.tasks[0]
    assert Spawn("writer", 0, 1) in crew.kill("writer", 0)
    crew.finish(1)
    assert (crew.tasks[1].start, crew.tasks[1].stop) == (lost.start, lost.stop)
    assert crew.tasks[1].serial != lost.serial
    assert crew.tell(Done(1, lost.serial)) == []  # what a dead one said is ignored


def test_a_trainer_that_comes_is_restored_when_the_proposal_is_rejected() -> None:
    crew = waiting()
    publish(crew, last_word=True)
    crew.kill("trainer")
    crew.come("trainer")
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert crew.logic.stage == "wait"  # a new trainer is to have its say
    assert [restore.pass_number for restore in crew.said(Restore)] == [0]


def test_a_new_trainer_is_asked_for_room_though_the_dead_one_had_none() -> None:
    crew = certified(writers=1, cores=1, batch=1, extents=2)
    crew.decide(columns=3)
    crew.run_on(n_freed=0)
    crew.kill("trainer")
    crew.decide(columns=3)
    assert crew.logic.stage == "columns" and not crew.tasks
    crew.come("trainer")
    assert crew.said(MakeRoom)


# -- validation ------------------------------------------------------------------------------------


def test_validation_comes_after_the_columns_and_does_not_hold_up_a_pass() -> None:
    crew = certified(validate_parts=2)
    assert crew.said(Validate) and not crew.tasks
    crew.decide(columns=2)
    crew.trainer_works()
    assert crew.kinds() == ["columns"]
    crew.finish_stage()
    assert crew.kinds() == ["validate"]
    crew.trainer_works()
    publish(crew)
    assert crew.kinds() == ["validate"]  # the one that runs is not taken away
    crew.finish(min(crew.tasks))
    assert crew.kinds() == ["margins"]


@pytest.mark.parametrize("started", [True, False])
def test_validation_that_has_not_begun_gives_way_to_that_of_the_next_anchor(started: bool) -> None:
    crew = waiting(writers=1, cores=1, validate_parts=3)
    assert crew.kinds() == ["validate"]
    if started:
        publish(crew)
        crew.finish(0)
    else:
        crew.kill("writer", 0)
        publish(crew)
        crew.come("writer", 0)
    while not crew.said(Certify):
        assert not set(crew.kinds()) & set(BESIDE)
        crew.finish(0)
    assert len(crew.said(Validate)) == (not started)
    crew.decide(stop="tolerance", score_first=True)
    while crew.tasks and not crew.over:
        crew.finish(0)
    assert crew.last == [Scored(1), Finish("tolerance")]


# -- faults of others ------------------------------------------------------------------------------


def in_columns() -> Crew:
    """A crew whose writer makes columns while the trainer has not taken the anchor."""
    crew = certified(writers=1, cores=3, extents=5)
    crew.decide(columns=6)
    return crew


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
    crew = in_columns()
    with pytest.raises(LogicError, match=words):
        crew.logic.handle(event(crew.logic))


def test_an_unknown_outcome_is_refused_and_an_old_answer_is_not_believed() -> None:
    crew = in_columns()
    assert crew.tell(TrainerIdle(crew.logic.trainer.order - 1)) == []
    assert crew.logic.trainer.state == "busy"
    crew = waiting()
    publish(crew)
    crew.finish_stage()
    with pytest.raises(LogicError, match="expected an outcome"):
        crew.finish_stage(outcome="perhaps")


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
    crew = in_columns()
    check_invariants(crew.logic)
    damage(crew.logic)
    with pytest.raises(LogicError, match=words):
        check_invariants(crew.logic)


@pytest.mark.parametrize("field", ["writers", "cores", "batch", "extents", "price_parts"])
def test_settings_are_checked(field: str) -> None:
    good = dict.fromkeys(("writers", "cores", "batch"), 1) | {"extents": 2}
    good |= dict.fromkeys(("prepare_parts", "margins_parts", "price_parts"), 1)
    LogicSettings(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{field} must be at least"):
        LogicSettings(**good | {field: good[field] - 1})  # type: ignore[arg-type]


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
    """Children that work, answer and die in any order; the crew tracks the state."""

    @initialize(settings=SETTINGS, prelude=st.booleans())
    def begin(self, settings: dict[str, Any], prelude: bool) -> None:
        self.crew = Crew(**settings)
        if prelude:
            self.crew.run_on()

    @precondition(lambda self: self.crew.spawned and not self.crew.over)
    @rule(data=st.data())
    def a_child_comes(self, data: st.DataObject) -> None:
        self.crew.come(*data.draw(st.sampled_from(sorted(self.crew.spawned))))

    @precondition(lambda self: self.crew.tasks and not self.crew.over)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(["accepted", "blend", "rejected"]),
        stored=st.integers(0, 3),
    )
    def a_task_is_done(self, data: st.DataObject, outcome: str, stored: int) -> None:
        crew = self.crew
        number = data.draw(st.sampled_from(sorted(crew.tasks)))
        if crew.logic.stage == "accept":
            back = crew.settings.resumed and not crew.certified  # to the anchor of the checkpoint
            if (outcome == "blend" and not back) or not crew.logic.pass_number:
                outcome = "accepted"
        crew.finish(number, outcome, stored)

    @precondition(lambda self: self.crew.tasks and not self.crew.over)
    @rule()
    def a_stage_is_done(self) -> None:
        self.crew.finish_stage()

    @precondition(lambda self: not self.crew.over)
    @rule(data=st.data())
    def a_writer_dies(self, data: st.DataObject) -> None:
        self.crew.kill("writer", data.draw(st.integers(0, self.crew.settings.writers - 1)))

    @precondition(lambda self: not self.crew.over)
    @rule()
    def the_trainer_dies(self) -> None:
        self.crew.kill("trainer")

    @precondition(lambda self: self.crew.trainer and self.crew.trainer.orders)
    @rule(n_freed=st.integers(0, 3), use_spare=st.booleans())
    def the_trainer_handles_an_order(self, n_freed: int, use_spare: bool) -> None:
        self.crew.trainer.act(n_freed, use_spare)

    @precondition(lambda self: self.crew.trainer and not self.crew.over)
    @rule()
    def the_trainer_handles_all(self) -> None:
        self.crew.trainer_works()

    @precondition(lambda self: self.crew.trainer and self.crew.trainer.handled)
    @rule(worth=st.booleans(), last_word=st.booleans())
    def the_trainer_publishes(self, worth: bool, last_word: bool) -> None:
        self.crew.trainer.publish(worth, last_word)

    @precondition(lambda self: self.crew.trainer and self.crew.trainer.handled)
    @rule(n=st.integers(0, 2), use_spare=st.booleans())
    def the_trainer_empties_extents(self, n: int, use_spare: bool) -> None:
        self.crew.trainer.free(n, use_spare)

    @precondition(lambda self: self.crew.trainer and not self.crew.trainer.orders)
    @rule()
    def the_trainer_rests(self) -> None:
        self.crew.trainer.rest()

    @precondition(lambda self: self.crew.trainer and self.crew.trainer.said and not self.crew.over)
    @rule()
    def the_trainer_is_heard(self) -> None:
        self.crew.hear()

    @precondition(lambda self: self.crew.logic.stage == "decide")
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
        logic = self.crew.logic
        if again and logic.handed == logic.pass_number:
            self.crew.decide(again=True)
            return
        if start and logic.handed is None and logic.pass_number == logic.settings.first_pass:
            self.crew.decide(start=True)
            return
        crowded = crowded and not redraw  # which leaves nothing
        self.crew.decide(columns=columns, redraw=redraw, sample_parts=sample_parts, crowded=crowded)

    @rule(number=st.integers(0, 3))
    def an_old_message_comes(self, number: int) -> None:
        number %= self.crew.settings.writers
        old = self.crew.serials - {task.serial for task in self.crew.tasks.values()}
        assert self.crew.tell(Done(number, max(old, default=0))) == []

    @precondition(lambda self: not self.crew.over)
    @rule(
        n_freed=st.integers(0, 2),
        outcome=st.sampled_from(["accepted", "blend", "rejected"]),
        until=st.sampled_from(["decide", "columns", "wait", "margins", "search", "residuals"]),
    )
    def all_goes_well_for_a_while(self, n_freed: int, outcome: str, until: str) -> None:
        self.crew.run_on(n_freed, outcome, until)
        assert self.crew.over or self.crew.logic.stage in ("decide", until)

    @precondition(lambda self: not self.crew.over)
    @rule(reason=st.sampled_from([""] * 20 + ["interrupted"]))
    def somebody_asks_for_the_end(self, reason: str) -> None:
        if reason:
            assert self.crew.tell(StopAsked(reason)) == [Finish(reason)]

    def teardown(self) -> None:
        crew = getattr(self, "crew", None)
        if crew is None or crew.over or not crew.sound:
            return
        crew.run_on()
        passes = len(crew.certified)
        crew.decide(columns=3)
        crew.run_on()
        assert len(crew.certified) == passes + 1
        crew.decide(stop="tolerance", score_first=True)
        crew.run_on()
        assert crew.over == Finish("tolerance")
        if crew.settings.validate_parts:
            assert crew.scored[-1] == crew.certified[-1]


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(
    max_examples=300 if THOROUGH else 100, stateful_step_count=60
)
