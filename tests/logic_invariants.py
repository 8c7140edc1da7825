"""Invariants of the decision logic between any two events."""

from __future__ import annotations

from collections import Counter

from fcl.drivers.processes.logic.machine import Logic
from fcl.drivers.processes.logic.protocol import BETWEEN_PASSES, Stage
from fcl.drivers.processes.logic.state import Activity, StageParts, TrainerSide, require

__all__ = ["check_invariants"]


def check_invariants(logic: Logic) -> None:
    """Raise LogicError if an invariant is broken; takes O(parts)."""
    if logic.finished:
        return
    for parts in (logic.passes.parts, logic.validation.parts):
        _check_parts(parts)
    extents = logic.extents
    held = sorted([*extents.free, *extents.granted, *extents.committed])
    expected = list(range(extents.n))
    require(held == expected, f"each of {extents.n} extents has one owner, got {held}")
    for writer in logic.writers:
        sound = writer.ready or writer.task is None
        require(sound, f"writer {writer.number} has a task, but is not ready")
    _check_trainer(logic.trainer)
    _check_tasks(logic)
    _check_passes(logic)
    _check_sharing(logic)


def _check_parts(parts: StageParts) -> None:
    ranges = [*parts.waiting, *parts.dealt.values(), *parts.done, *parts.dropped]
    times = Counter(part for one in ranges for part in one)
    wrong = {part: n for part, n in times.items() if n != 1 or not 0 <= part < parts.size}
    require(not wrong, f"parts held more than once, or unknown: {wrong}")
    require(len(times) == parts.size, f"{parts.size - len(times)} of {parts.size} parts are lost")


def _check_trainer(trainer: TrainerSide) -> None:
    if trainer.state == Activity.IDLE or not trainer.informed:
        trainer.require_answered()
    if not trainer.informed:
        at_work = trainer.state == Activity.BUSY or trainer.proposal is not None
        require(not at_work, "a trainer works that is not informed")
    absent = trainer.state == Activity.ABSENT
    require(not (absent and trainer.informed), "an absent trainer is informed")


def _check_tasks(logic: Logic) -> None:
    tasks = {w.number: w.task for w in logic.writers if w.task is not None}
    dealt = logic.passes.parts.dealt | logic.validation.parts.dealt
    held = {task.serial: range(task.start, task.stop) for task in tasks.values()}
    require(held == dealt, f"dealt parts {dealt} are not the tasks {held} of the writers")
    extents = {task.extent: n for n, task in tasks.items() if task.kind == Stage.COLUMNS}
    granted = logic.extents.granted
    require(
        granted == extents, f"granted extents {granted} differ from the extents of tasks {extents}"
    )


def _check_passes(logic: Logic) -> None:
    number, handed, stage = logic.pass_number, logic.handed, logic.stage
    first = logic.settings.first_pass + logic.starting
    before = handed is None if number == first else handed == number - 1
    if stage in BETWEEN_PASSES:
        require(handed == number, f"{stage} of pass {number}, anchor handed over: {handed}")
    elif stage in (Stage.DECIDE, Stage.SCORING, Stage.DROP, Stage.DRAW, Stage.SAMPLE):
        # a stalled pass has been handed over already
        require(before or handed == number, f"pass {number} follows the anchor {handed}")
    else:
        require(before, f"{stage} of pass {number}, anchor handed over: {handed}")
    validated = logic.validation.pass_number
    require(
        validated <= number and logic.validation.scored <= validated,
        f"validation of pass {validated} in pass {number}",
    )


def _check_sharing(logic: Logic) -> None:
    running, trainer = logic.busy_writers, logic.trainer
    require(running <= logic.settings.cores, f"{running} tasks on {logic.settings.cores} cores")
    threads = logic.tokens.threads(running)
    require(logic.threads == threads, f"the trainer has {logic.threads} threads, not {threads}")
    idle = logic.lane_with_work() and logic.next_writer()
    require(not idle, "a writer and a core are idle although there is work")
    if logic.stage in BETWEEN_PASSES:
        knows = trainer.informed or trainer.state == Activity.ABSENT
        require(knows, "a trainer waits for an anchor that it could be sent")
    waiting = logic.stage == Stage.COLUMNS and logic.passes.parts.waiting
    if waiting and not logic.has_room:
        hope = trainer.room_order or not trainer.informed or logic.extents.granted
        require(bool(hope), "columns wait for room that no process was asked to make")
    lends = logic.stage != Stage.PREPARE and trainer.informed
    if lends and not (trainer.spare or trainer.drop_order):
        require(not logic.extents.free, "the trainer has no spare extent although one is free")
