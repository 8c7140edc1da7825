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
    Commit,
    Decide,
    Decided,
    Done,
    DropAll,
    Event,
    Fail,
    Finish,
    Freed,
    Lend,
    MakeRoom,
    Prepared,
    Published,
    Raised,
    Ready,
    Rejected,
    Restore,
    Scored,
    SendAnchor,
    Settings,
    Spawn,
    Stalled,
    StopAsked,
    TakeProposal,
    Threads,
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


def _said(crew: Crew, event: Event, kind: type[Any]) -> list[Any]:
    crew.tell(event)
    return crew.said(kind)


def rest(crew: Crew) -> None:
    assert crew.trainer is not None
    crew.trainer.rest()
    while crew.trainer.said:
        crew.hear()


# -- the order of things ---------------------------------------------------------------------------


def test_all_are_spawned_first() -> None:
    logic = Logic(Crew().settings)
    spawned = [i for i in logic.start() if isinstance(i, Spawn)]
    assert spawned == [Spawn("trainer", 0, 0), Spawn("writer", 0, 0), Spawn("writer", 1, 0)]


def test_the_null_model_is_priced_after_the_rows_are_prepared() -> None:
    crew = Crew()
    crew.everybody_comes()
    assert crew.kinds() == ["prepare", "prepare"]
    crew.finish(0)
    assert not crew.said(Prepared) and crew.kinds() == ["prepare"]
    crew.finish(1)
    assert crew.said(Prepared) and crew.kinds() == ["residuals"]
    crew.trainer_works()
    rest(crew)
    assert crew.kinds() == ["residuals", "residuals"]
    for kinds in (["price", "price"], ["certify"]):
        crew.finish_stage()
        assert crew.kinds() == kinds
    crew.finish_stage()
    assert crew.said(Certify) == [Certify(0)]
    assert not crew.tasks


@pytest.mark.parametrize("resumed", [True, False])
def test_features_are_measured_before_the_first_pass(resumed: bool) -> None:
    crew = Crew(measure_parts=3, resumed=resumed)
    crew.everybody_comes()
    crew.finish_stage()
    assert crew.said(Prepared)
    assert crew.kinds()[0] == "measure"
    crew.finish_stage()
    assert crew.kinds()[0] == ("margins" if resumed else "residuals")


def test_the_next_pass_searches_toward_the_proposal() -> None:
    crew = certified()
    crew.decide()
    assert [order.pass_number for order in crew.said(SendAnchor)] == [0]
    crew.trainer_works()
    publish(crew)
    assert crew.said(TakeProposal) == [TakeProposal(1)]
    kinds = []
    while crew.tasks:
        kinds.append(crew.kind)
        crew.finish_stage()
    assert kinds == ["margins", "search", "residuals", "price", "certify"]
    assert crew.said(Certify) == [Certify(1)]


def test_a_blended_point_needs_its_own_margins() -> None:
    crew = waiting()
    publish(crew)
    crew.finish_stage()
    crew.finish_stage(outcome="blend")
    assert crew.logic.stage == "blend" and crew.kind == "margins"
    crew.finish_stage()
    assert crew.kinds() == ["accept"]
    crew.finish_stage(outcome="accepted")
    assert crew.kind == "residuals"


def test_a_rejected_proposal_costs_no_pricing_and_no_number() -> None:
    crew = waiting()
    publish(crew)
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert len(crew.said(Rejected)) == 1
    assert crew.logic.stage == "wait" and crew.logic.pass_number == 0 and not crew.tasks
    publish(crew)
    assert crew.said(TakeProposal) == [TakeProposal(2)]


def test_a_rejected_last_word_ends_in_a_stalled_certificate() -> None:
    crew = waiting()
    publish(crew, last_word=True)
    rest(crew)
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert crew.said(Stalled)


def test_a_stalled_run_continues_if_the_shell_requests_it() -> None:
    crew = waiting()
    rest(crew)
    assert crew.said(Stalled)
    crew.decide(columns=1)
    assert [order.pass_number for order in crew.said(SendAnchor)] == [0]
    crew.run_on()
    assert crew.certified == [0, 1]


def test_an_anchor_is_certified_again_if_the_shell_requests_it() -> None:
    crew = waiting()
    rest(crew)
    assert crew.said(Stalled)
    crew.decide(again=True)
    assert (crew.logic.stage, crew.logic.pass_number) == ("residuals", 1)
    crew.run_on()
    assert crew.certified == [0, 1]
    crew.decide(columns=1)
    assert [order.pass_number for order in crew.said(SendAnchor)] == [1]


def test_a_resumed_run_makes_the_margins_of_its_anchor_first() -> None:
    crew = Crew(resumed=True, first_pass=7)
    crew.run_on()
    assert crew.certified == [7]
    crew = Crew(resumed=True)
    crew.everybody_comes()
    kinds = []
    while crew.tasks:
        kinds.append(crew.kind)
        crew.finish_stage()
    assert kinds == ["prepare", "margins", "accept", "residuals", "price", "certify"]


def test_a_point_worse_than_its_checkpoint_makes_way_for_the_anchor() -> None:
    crew = Crew(resumed=True)
    crew.everybody_comes()
    kinds = []
    while crew.tasks:
        kinds.append(crew.kind)
        crew.finish_stage(outcome="blend" if kinds.count("accept") == 1 else "accepted")
    assert kinds[:5] == ["prepare", "margins", "accept", "margins", "accept"]
    assert kinds[5:] == ["residuals", "price", "certify"] and not crew.over


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
    if outcome == "rejected":
        assert kinds == ["margins", "search"] and crew.said(Decide)
    else:
        assert kinds == ["margins", "search", "residuals", "price", "certify"]
        assert crew.said(Certify) == [Certify(1)]
    crew.decide(columns=2)
    anchors = [order.pass_number for order in crew.said(SendAnchor)]
    assert anchors == ([crew.certified[-1]] if trainer else [])
    crew.run_on()
    assert crew.certified == ([0, 1] if outcome == "rejected" else [0, 1, 2])
    with pytest.raises(LogicError, match="after the beginning"):
        crew.logic.handle(Decided(start=True))


def test_a_stop_is_obeyed_at_once() -> None:
    crew = certified()
    assert crew.decide(stop="tolerance") == [Finish("tolerance")]
    crew = Crew()
    crew.everybody_comes()
    assert crew.tell(StopAsked("SIGTERM")) == [Finish("SIGTERM")]
    assert crew.logic.finished
    assert crew.tell(Done(0, crew.tasks[0].serial)) == []
    assert crew.tell(StopAsked("again")) == []


# -- proposals -------------------------------------------------------------------------------------


def test_a_proposal_that_is_not_worth_a_pass_waits_for_a_better_one() -> None:
    crew = waiting()
    publish(crew, worth=False)
    assert not crew.last
    publish(crew)
    assert crew.said(TakeProposal) == [TakeProposal(2)]


def test_of_an_idle_trainer_anything_new_is_worth_a_pass() -> None:
    crew = waiting()
    publish(crew, worth=False)
    rest(crew)
    assert crew.said(TakeProposal) == [TakeProposal(1)]


def test_margins_wait_until_the_trainer_has_taken_the_anchor() -> None:
    crew = certified()
    crew.decide()
    (sent,) = crew.said(SendAnchor)
    assert crew.tell(Published(1, worth=True)) == []
    assert crew.tell(AnchorTaken(sent.order)) == []  # made with the old anchor: a newer one is due
    assert crew.logic.stage == "wait"
    assert TakeProposal(2) in crew.tell(Published(2, worth=True))


def test_a_proposal_made_with_the_old_anchor_is_taken_if_nothing_else_comes() -> None:
    crew = certified()
    crew.decide()
    (sent,) = crew.said(SendAnchor)
    crew.tell(Published(1, worth=True))
    crew.tell(AnchorTaken(sent.order))
    assert crew.logic.stage == "wait"
    assert TakeProposal(1) in crew.tell(TrainerIdle(sent.order))


def test_idle_is_believed_only_after_the_last_order() -> None:
    crew = certified()
    crew.decide()
    (sent,) = crew.said(SendAnchor)
    assert crew.tell(TrainerIdle(sent.order - 1)) == []
    assert crew.logic.trainer.state == "busy"
    with pytest.raises(LogicError, match="not answered"):
        crew.tell(TrainerIdle(sent.order))


def test_a_pass_begins_only_when_the_columns_of_the_last_are_made() -> None:
    crew = certified()
    crew.decide(columns=2)
    crew.trainer_works()
    publish(crew)
    assert crew.logic.stage == "columns"
    (number,) = crew.tasks
    crew.finish(number)
    assert crew.said(TakeProposal) == [TakeProposal(1)]


# -- columns and extents ---------------------------------------------------------------------------


def test_the_trainer_is_lent_an_extent_before_any_is_granted() -> None:
    crew = Crew(writers=1)
    crew.everybody_comes()
    crew.finish_stage()
    assert [order.extent for order in crew.said(Lend)] == [0]


def test_all_cores_read() -> None:
    """The trainer has no order while rows are read, and so nothing to do."""
    crew = Crew(writers=4, cores=4, prepare_parts=9)
    crew.everybody_comes()
    assert len(crew.tasks) == 4 and not crew.said(Lend)


def test_columns_are_dealt_in_batches_and_committed_with_their_extent() -> None:
    crew = certified(writers=1, cores=1, extents=4)
    crew.decide(columns=5)
    ranges = []
    while crew.tasks:
        task = crew.tasks[0]
        ranges.append((task.start, task.stop))
        crew.finish(0)
        (commit,) = crew.said(Commit)
        assert (commit.extent, commit.count) == (task.extent, task.size)
    assert ranges == [(0, 2), (2, 4), (4, 5)]
    assert crew.logic.stage == "wait"


def test_what_did_not_fit_is_dealt_again() -> None:
    crew = certified(writers=1, cores=1, batch=4, extents=4)
    crew.decide(columns=4)
    crew.finish(0, stored=3)
    assert (crew.tasks[0].start, crew.tasks[0].stop) == (3, 4)


def test_columns_too_large_for_an_extent_are_dropped() -> None:
    crew = certified(writers=1, cores=1, batch=4)
    crew.decide(columns=4)
    extent = crew.tasks[0].extent
    crew.finish(0, stored=0)
    assert crew.logic.stage == "wait" and extent in crew.logic.extents.free


def full() -> Crew:
    """A crew with two columns left; the trainer holds all extents, and was asked for room."""
    crew = certified(writers=1, cores=1, batch=1, extents=2)
    crew.trainer_works()
    crew.decide(columns=3)
    assert [order.wanted for order in crew.said(MakeRoom)] == [1]  # the other one is its spare
    crew.finish(0)
    assert not crew.said(MakeRoom) and not crew.tasks  # asked once
    return crew


def test_room_that_the_trainer_makes_is_granted() -> None:
    crew = full()
    crew.trainer_works()
    assert crew.kinds() == ["columns"]


def test_the_trainer_is_asked_again_when_it_has_more_to_evict() -> None:
    crew = full()
    assert crew.trainer is not None
    while not crew.trainer.said or not isinstance(crew.trainer.said[0], Freed):
        crew.trainer.act()
        if isinstance(crew.trainer.said[0], AnchorTaken):
            crew.hear()
    crew.hear()  # it held nothing but its spare when it was asked, and has got a column since
    assert crew.said(MakeRoom) and crew.logic.stage == "columns"


def test_without_room_the_rest_of_the_columns_is_dropped() -> None:
    crew = full()
    assert crew.trainer is not None
    while crew.trainer.orders or crew.trainer.said:
        if crew.trainer.orders:
            crew.trainer.act(n_freed=0)
        else:
            crew.hear()
    assert crew.logic.stage == "wait" and not crew.tasks


def test_where_it_is_crowded_columns_leave_before_any_is_made() -> None:
    crew = certified(extents=4)
    crew.decide(columns=2, crowded=True)
    assert [order.wanted for order in crew.said(MakeRoom)] == [0] and not crew.tasks
    crew.kill("trainer")
    crew.come("trainer")
    assert crew.said(MakeRoom) and not crew.tasks  # the new one is asked
    crew.trainer_works()
    assert crew.kinds() == ["columns"]
    crew.finish(min(crew.tasks))
    assert not crew.said(MakeRoom)  # once


def test_room_that_the_trainer_needs_itself_is_not_granted() -> None:
    crew = full()
    crew.tell(Freed((), 1, crew.logic.trainer.room_order))
    assert crew.said(MakeRoom)  # it has one more since
    order = crew.logic.trainer.room_order
    crew.tell(Freed((1,), 0, order))
    assert [lend.extent for lend in crew.said(Lend)] == [1]
    assert crew.logic.stage == "wait"


def test_what_is_said_of_spares_before_a_lent_one_arrives_is_out_of_date() -> None:
    crew = waiting(extents=4)
    order = crew.logic.trainer.order
    assert [lend.extent for lend in _said(crew, Freed((), 0, order), Lend)] == [1]
    assert not _said(crew, Freed((), 0, order), Lend)
    assert _said(crew, Freed((), 0, order + 1), Lend)


def test_an_extent_that_the_trainer_does_not_hold_cannot_be_freed() -> None:
    crew = full()
    crew.trainer_works()
    with pytest.raises(LogicError, match="not the trainer's"):
        crew.logic.handle(Freed((crew.tasks[0].extent,), 1, 0))


def test_a_new_sample_is_drawn_when_the_trainer_has_dropped_all() -> None:
    crew = certified()
    crew.decide(columns=2)
    crew.run_on()
    crew.decide(columns=2, redraw=True, sample_parts=2)
    assert crew.said(DropAll) and not crew.tasks
    crew.trainer_works()
    assert set(crew.owner.values()) <= {"nobody", "trainer"}
    assert crew.kinds() == ["draw"] and not crew.said(SendAnchor)
    crew.finish_stage()
    assert crew.kinds() == ["sample"]  # one at a time: a spare was lent, the trainer is at work
    crew.finish_stage()
    assert crew.said(SendAnchor) and crew.kinds() == ["columns"]


# -- cores -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharing", "cores", "busy", "writers", "threads"),
    [
        (True, 4, True, 3, 1),
        (True, 4, False, 4, 1),
        (True, 1, True, 1, 1),  # either side can always work: a sum of 2
        (True, 1, False, 1, 1),
        (False, 4, True, 3, 1),
        (False, 4, False, 3, 1),
        (False, 1, True, 1, 1),
    ],
)
def test_cores_are_shared(
    sharing: bool, cores: int, busy: bool, writers: int, threads: int
) -> None:
    crew = Crew(writers=6, cores=cores, sharing=sharing, prepare_parts=1, margins_parts=9)
    crew.everybody_comes()
    crew.finish_stage()  # the trainer is lent an extent, which it has to handle
    if not busy:
        crew.trainer_works()
        rest(crew)
    assert (len(crew.tasks), crew.threads) == (writers, threads)


@pytest.mark.parametrize("sharing", [True, False])
def test_a_core_without_a_task_is_the_trainer_s(sharing: bool) -> None:
    crew = Crew(writers=4, cores=4, sharing=sharing)
    assert crew.said(Threads) == [Threads(4 if sharing else 1)]
    crew.everybody_comes()
    assert len(crew.tasks) == 2 and crew.threads == (2 if sharing else 1)


@pytest.mark.parametrize(
    ("sharing", "busy", "threads"), [(True, False, 4), (True, True, 3), (False, False, 1)]
)
def test_the_only_task_of_a_stage_uses_idle_cores(sharing: bool, busy: bool, threads: int) -> None:
    crew = Crew(writers=4, cores=4, sharing=sharing, prepare_parts=1, margins_parts=2)
    crew.everybody_comes()
    crew.finish_stage()
    assert {task.threads for task in crew.tasks.values()} == {1}
    if not busy:
        crew.trainer_works()
        rest(crew)
    while crew.kind != "certify":
        crew.finish_stage()
    (task,) = crew.tasks.values()
    assert task.threads == threads


def test_when_the_trainer_has_work_again_running_tasks_finish_and_others_wait() -> None:
    crew = certified(writers=2, cores=2, validate_parts=9)
    rest(crew)
    crew.decide(columns=9)
    assert crew.kinds() == ["columns"]  # the anchor made the trainer busy
    crew.trainer_works()
    rest(crew)
    assert len(crew.tasks) == 2 and crew.threads == 1
    first, second = sorted(crew.tasks)
    crew.finish(first)  # its commit makes the trainer busy: one token goes back
    assert sorted(crew.tasks) == [second] and crew.threads == 1
    crew.finish(second)
    assert len(crew.tasks) == 1


# -- deaths ----------------------------------------------------------------------------------------


def test_the_task_of_a_dead_writer_is_dealt_again() -> None:
    crew = certified(extents=4)
    crew.decide(columns=4)
    crew.trainer_works()
    rest(crew)
    lost = crew.tasks[0]
    out = crew.kill("writer", 0)
    assert Spawn("writer", 0, 1) in out and 0 not in crew.tasks
    assert lost.extent in crew.logic.extents.free
    crew.finish(1)
    assert (crew.tasks[1].start, crew.tasks[1].stop) == (lost.start, lost.stop)
    assert crew.tasks[1].serial != lost.serial
    assert crew.tell(Done(1, lost.serial)) == []  # what a dead one said is ignored


def test_an_extent_is_granted_again_only_after_the_death() -> None:
    crew = certified(extents=2, batch=1)
    crew.decide(columns=2)
    crew.trainer_works()
    assert len(crew.tasks) == 1  # one extent for writers: the second writer waits
    (number,) = crew.tasks
    extent = crew.tasks[number].extent
    crew.kill("writer", number)
    assert crew.tasks[1 - number].extent == extent


def test_a_new_trainer_gets_the_anchor_and_all_extents() -> None:
    crew = certified(writers=1, cores=1, extents=4)
    crew.decide(columns=4)
    crew.kill("trainer")
    extent = crew.tasks[0].extent
    crew.finish(0)
    assert not crew.said(Commit)  # there is no trainer to notify
    crew.come("trainer")
    (restore,) = crew.said(Restore)
    held = tuple(extent for extent, owner in crew.owner.items() if owner == "trainer")
    assert restore.pass_number == 0 and restore.extents == held and extent in held


def test_a_first_trainer_that_comes_late_gets_the_anchor_and_all_extents() -> None:
    crew = Crew()
    for number in range(2):
        crew.come("writer", number)
    while crew.tasks:
        crew.finish_stage()
    crew.decide(columns=2)
    crew.finish(0)
    crew.come("trainer")
    (restore,) = crew.said(Restore)
    assert restore.pass_number == 0 and restore.extents == (0,)


def test_a_dead_trainer_holds_no_slot_and_owes_no_room() -> None:
    crew = full()
    crew.kill("trainer")
    crew.come("trainer")
    assert crew.said(Restore) and crew.said(MakeRoom)  # asked again
    crew.run_on()
    assert crew.certified == [0, 1]


def test_a_trainer_that_dies_during_sampling_is_restored_afterwards() -> None:
    crew = certified()
    crew.decide(columns=2)
    crew.run_on()
    crew.decide(redraw=True, sample_parts=1, columns=1)
    crew.kill("trainer")
    assert crew.kinds() == ["draw"]
    crew.come("trainer")
    assert not crew.said(Restore)
    crew.finish_stage()
    crew.finish_stage()
    (restore,) = crew.said(Restore)
    assert restore.pass_number == 1 and restore.extents == ()


def test_a_trainer_that_comes_during_a_pass_is_restored_afterwards() -> None:
    crew = waiting(writers=1)
    publish(crew)
    crew.kill("trainer")
    crew.come("trainer")
    while crew.logic.stage != "decide":
        assert not crew.said(Restore)
        crew.finish_stage()
    crew.decide(columns=1)
    assert [restore.pass_number for restore in crew.said(Restore)] == [1]


def test_a_trainer_that_comes_is_restored_when_the_proposal_is_rejected() -> None:
    crew = waiting()
    publish(crew, last_word=True)
    crew.kill("trainer")
    crew.come("trainer")
    crew.finish_stage()
    crew.finish_stage(outcome="rejected")
    assert crew.logic.stage == "wait"  # a new trainer is to have its say
    assert [restore.pass_number for restore in crew.said(Restore)] == [0]


def test_a_proposal_dies_with_its_trainer() -> None:
    crew = waiting()
    publish(crew, worth=False)
    crew.kill("trainer")
    crew.come("trainer")
    crew.trainer_works()
    rest(crew)
    assert crew.said(Stalled)


def test_a_new_trainer_is_asked_for_room_though_the_dead_one_had_none() -> None:
    crew = full()
    crew.run_on(n_freed=0)
    crew.kill("trainer")
    crew.decide(columns=3)
    assert crew.logic.stage == "columns" and not crew.tasks
    crew.come("trainer")
    assert crew.said(MakeRoom)


def test_without_a_trainer_a_new_sample_is_drawn_at_once() -> None:
    crew = certified(extents=4)
    crew.decide(columns=2)
    crew.run_on()
    crew.kill("trainer")
    crew.decide(redraw=True)
    assert crew.kinds() == ["draw"]
    assert set(crew.owner.values()) == {"nobody"} and not crew.logic.extents.committed


def test_the_third_death_of_a_role_is_the_end() -> None:
    crew = Crew()
    crew.everybody_comes()
    crew.kill("writer", 0)
    crew.kill("writer", 1)
    crew.kill("trainer")
    assert crew.kill("writer", 0) == [Fail("writer")]


def test_deaths_are_forgotten_with_each_accepted_anchor() -> None:
    crew = waiting()
    for _ in range(4):
        crew.kill("writer", 0)
        crew.kill("trainer")
        crew.everybody_comes()
        crew.trainer_works()
        publish(crew)
        crew.kill("writer", 1)
        crew.run_on()
        crew.decide()
        crew.trainer_works()
    assert crew.certified == [0, 1, 2, 3, 4]


def test_an_exception_of_a_child_is_the_end() -> None:
    crew = Crew()
    crew.everybody_comes()
    assert crew.tell(Raised("writer 1")) == [Abort(Raised("writer 1"))]


# -- validation ------------------------------------------------------------------------------------


def test_validation_comes_after_the_columns_and_does_not_hold_up_a_pass() -> None:
    crew = certified(validate_parts=2)
    assert crew.said(Validate) and not crew.tasks
    crew.decide(columns=2)
    assert crew.kinds() == ["columns"]
    crew.trainer_works()
    crew.finish_stage()
    assert crew.kinds() == ["validate"]
    crew.trainer_works()
    publish(crew)
    assert crew.logic.stage == "margins"
    assert crew.kinds() == ["validate"]  # the one that runs is not taken away
    crew.finish(min(crew.tasks))
    assert crew.kinds() == ["margins"]


def test_validation_ends_in_scores() -> None:
    crew = waiting(validate_parts=2)
    crew.finish_stage()
    while crew.tasks and not crew.said(Scored):
        crew.finish(min(crew.tasks))
    assert crew.said(Scored) == [Scored(0)]


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


@pytest.mark.parametrize("started", [True, False])
def test_the_last_anchor_can_be_scored_before_the_end(started: bool) -> None:
    crew = waiting(writers=1, cores=1, validate_parts=2)
    publish(crew)
    if started:
        crew.finish(0)
        crew.run_on()
        assert crew.logic.pass_number == 1 and not crew.said(Validate)
    else:
        crew = certified(writers=1, cores=1, validate_parts=2)
    crew.decide(stop="tolerance", score_first=True)
    assert crew.kinds() == ["validate"]
    while crew.tasks and not crew.over:
        crew.finish(0)
    assert crew.last == [Scored(crew.logic.pass_number), Finish("tolerance")]


# -- faults of others ------------------------------------------------------------------------------


def test_unknown_serials_are_ignored() -> None:
    crew = Crew(cores=3)
    crew.everybody_comes()
    assert crew.tell(Done(0, 999)) == []
    assert crew.tell(Done(0, crew.tasks[1].serial)) == []


def test_impossible_events_are_refused() -> None:
    crew = certified()
    with pytest.raises(LogicError, match="ready twice"):
        crew.logic.handle(Ready("writer", 0))
    with pytest.raises(LogicError, match="ready twice"):
        crew.logic.handle(Ready("trainer", 0))
    crew.decide()
    with pytest.raises(LogicError, match="decided in stage"):
        crew.logic.handle(Decided())
    crew.trainer_works()
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
    crew = certified(writers=1, cores=3, extents=5)
    crew.decide(columns=6)
    check_invariants(crew.logic)
    damage(crew.logic)
    with pytest.raises(LogicError, match=words):
        check_invariants(crew.logic)


@pytest.mark.parametrize("field", ["writers", "cores", "batch", "extents", "price_parts"])
def test_settings_are_checked(field: str) -> None:
    good = dict.fromkeys(("writers", "cores", "batch"), 1) | {"extents": 2}
    good |= dict.fromkeys(("prepare_parts", "margins_parts", "price_parts"), 1)
    Settings(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{field} must be at least"):
        Settings(**good | {field: good[field] - 1})  # type: ignore[arg-type]


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


TestRuns = Runs.TestCase
TestRuns.settings = hypothesis_settings(
    max_examples=300 if THOROUGH else 100, stateful_step_count=60
)
