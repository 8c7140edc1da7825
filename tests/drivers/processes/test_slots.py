"""Accounting of directory slots: no slot is lost or assigned twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fcl.cache.extents import DROPPED
from fcl.drivers.processes.slots import SlotBook
from tests.windows import examples


class BookMachine(RuleBasedStateMachine):
    """Tasks that use some of their slots or die, and a trainer that drops columns."""

    @initialize(n=st.integers(1, 12))
    def start(self, n: int) -> None:
        self.ids = np.full(n, 7, np.int64)  # whatever was there before
        self.book = SlotBook(self.ids)
        self.tasks: dict[int, list[int]] = {}
        self.committed: set[int] = set()
        self.serial = 0
        self.dropped = 0

    @rule(most=st.integers(0, 6))
    def deal(self, most: int) -> None:
        slots = self.book.allot(self.serial, most).tolist()
        free = len(self.ids) - len(self.committed) - sum(map(len, self.tasks.values()))
        assert len(slots) == min(most, free) == len(set(slots))
        taken = self.committed | {s for held in self.tasks.values() for s in held}
        assert not taken & set(slots)
        self.tasks[self.serial] = slots
        self.serial += 1

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), alive=st.booleans())
    def end(self, data: st.DataObject, alive: bool) -> None:
        serial = data.draw(st.sampled_from(sorted(self.tasks)))
        slots = self.tasks.pop(serial)
        used = slots[: data.draw(st.integers(0, len(slots)))] if alive else []
        self.ids[used] = 100 + serial
        assert self.book.settle(serial, len(used)).tolist() == used
        self.committed |= set(used)

    @precondition(lambda self: self.committed)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(sorted(self.committed)))
        self.ids[slot] = DROPPED
        self.committed.discard(slot)
        self.dropped += 1

    @rule()
    def count(self) -> None:
        assert self.book.count_dropped() == self.dropped
        self.dropped = 0

    @rule()
    def clear(self) -> None:
        self.count()
        self.book.clear()
        assert (self.ids[list(self.committed)] == DROPPED).all()
        self.committed = set()

    @invariant()
    def right(self) -> None:
        slots, ids = self.book.committed()
        assert set(slots.tolist()) == self.committed
        assert (ids == self.ids[slots]).all() and (ids >= 0).all()


@pytest.mark.slow
def test_slots_are_never_lost_nor_given_twice() -> None:
    run_state_machine_as_test(BookMachine, settings=examples(150))
