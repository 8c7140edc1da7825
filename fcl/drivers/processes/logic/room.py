"""Room for columns: how extents move between the arena, the writers and the trainer."""

from __future__ import annotations

from collections.abc import Callable

from fcl.drivers.processes.logic.protocol import (
    Commit,
    Freed,
    Instruction,
    Lend,
    MakeRoom,
    WriterTask,
)
from fcl.drivers.processes.logic.stages import Stage
from fcl.drivers.processes.logic.state import Extents, Lane, TrainerSide, require


class Room:
    """Lends extents to the trainer, requests extents, and commits the extents that writers filled.

    Parameters
    ----------
    extents : Extents
    trainer : TrainerSide
    passes : Lane
        The lane whose columns need room.
    say : callable
        Receives the instructions.
    """

    def __init__(
        self,
        extents: Extents,
        trainer: TrainerSide,
        passes: Lane,
        say: Callable[[Instruction], None],
    ) -> None:
        self.extents = extents
        self.trainer = trainer
        self.crowded = False  #: whether columns have to be evicted before any is made
        self._passes = passes
        self._say = say

    @property
    def is_there(self) -> bool:
        """Whether a writer can be granted an extent."""
        return bool(self.extents.free) and not self.crowded

    def lend(self) -> None:
        """Lend the trainer an empty extent for compaction, unless it has one; writers come second.

        It does nothing while rows are read: there is no cache yet, and an order makes the trainer busy,
        which would take a core from the readers.
        """
        trainer = self.trainer
        if self._passes.stage == Stage.PREPARE:
            return
        if trainer.informed and not (trainer.spare or trainer.drop_order) and self.extents.free:
            trainer.spare, trainer.lend_order = 1, trainer.give()
            self._say(Lend(trainer.lend_order, self.extents.lend()))

    def request(self) -> None:
        """Request room from the trainer if columns wait, unless a request is still unanswered."""
        trainer, passes = self.trainer, self._passes
        wanted = len(passes.parts.waiting) if passes.stage == Stage.COLUMNS else 0
        if not wanted or not trainer.informed or trainer.room_order:
            return
        if self.extents.free:
            wanted = 0
        if self.crowded or (wanted and not trainer.refuses_room):
            trainer.room_order = trainer.give()
            self._say(MakeRoom(trainer.room_order, min(wanted, self.extents.n - 1)))

    def give_up(self) -> None:
        """Drop the waiting columns if neither the trainer nor a writer can free an extent."""
        hope = self.extents.free or self.extents.granted or not self.trainer.refuses_room
        if self._passes.stage == Stage.COLUMNS and not hope:
            self._passes.parts.drop_waiting()

    def freed(self, event: Freed) -> None:
        """Take back extents from the trainer, and note which orders it has answered."""
        trainer, extents = self.trainer, self.extents
        trainer.freed(event.spare, event.order)
        extents.release(event.extents)
        if trainer.drop_order and event.order >= trainer.drop_order:
            trainer.drop_order = 0
            kept = sorted(extents.committed)
            dropped = not kept and not event.spare
            require(dropped, f"extents {kept} kept although all had to be dropped")
        if trainer.room_order and event.order >= trainer.room_order:
            # lend first: an extent that goes back to the trainer is no room for writers, and counting it
            # as room could repeat the request forever
            self.lend()
            # when crowded, the request was for slots, and says nothing about extents
            if not extents.free and not self.crowded:
                trainer.denied = trainer.room_order
            trainer.room_order, self.crowded = 0, False

    def release_all(self) -> None:
        """Free all extents of a trainer that is absent or dead; its columns are obsolete."""
        self.extents.release(set(self.extents.committed))
        self.trainer.spare = 0

    def stored(self, task: WriterTask, stored: int) -> None:
        """Commit the extent into which a writer has put the first ``stored`` columns of its task.

        If ``stored`` is 0, the first column does not fit into an empty extent, and the whole task is
        dropped: each further column to try would cost a pass over the rows.
        """
        require(0 <= stored <= task.size, f"{stored} columns stored of {task}")
        if stored:
            self.extents.commit(task.extent)
            self.trainer.commit_order = order = self.trainer.give()
            if order:  # else a later Restore will name the extent
                self._say(Commit(order, task.extent, stored, task.pass_number))
        else:
            self.extents.give_back(task.extent)
        self._passes.parts.finish(task.serial, stored)
