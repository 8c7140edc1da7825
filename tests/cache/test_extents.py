"""Columns in extents that change owners survive all moves, even if the trainer dies during a move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

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

from fcl.cache import ExtentCache, Store
from fcl.cache.extents import DROPPED
from fcl.cache.store import largest_column
from tests.columns import broken_invariants, make_phi, read_back, read_slots, stage
from tests.windows import examples

#: More moves than any call should make here; a call that makes more would never end.
MANY = 1000


class Killed(Exception):
    """The trainer dies here."""


class FragileStore(Store):
    """A store whose moves are counted, and may be interrupted."""

    moves_left = MANY
    watch: Callable[[], None] = staticmethod(lambda: None)

    def move(self, slot: int, into: int) -> None:
        if self.moves_left == 0:
            raise Killed
        self.moves_left -= 1
        first, half = int(self.first[slot]) // 8, int(self.sizes[slot]) // 16
        self.arena[into // 8 : into // 8 + half] = self.arena[first : first + half]
        self.watch()  # half copied
        super().move(slot, into)
        self.watch()


class ExtentMachine(RuleBasedStateMachine):
    """Writers that fill extents, and a trainer that may die, compared with a dict of dense columns."""

    @initialize(
        shape=st.sampled_from([(63, 64), (200, 64), (201, 128), (130, 256)]),
        extents=st.integers(1, 5),
        fits=st.integers(8, 32),
        slots=st.integers(4, 40),
        seed=st.integers(0, 2**31),
    )
    def start(self, shape: tuple[int, int], extents: int, fits: int, slots: int, seed: int) -> None:
        n_rows, block_rows = shape
        self.bytes = largest_column(n_rows, block_rows) * fits // 8 // 8 * 8
        self.store = FragileStore(extents * self.bytes + 5, slots, n_rows, block_rows)
        self.store.ids[:] = DROPPED
        self.store.arena[:] = 0xDEAD
        self.store.watch = self.all_that_has_an_id_can_be_read
        self.cache = ExtentCache(self.store, self.bytes)
        self.rng = np.random.default_rng(seed)
        self.free = set(range(extents))
        self.held: set[int] = set()
        self.dense: dict[int, np.ndarray] = {}  # by slot, of all that has an id
        self.ids: dict[int, int] = {}
        self.live: list[int] = []  # slots
        self.waiting: list[int] = []
        self.next_id = 0

    # -- writers -------------------------------------------------------------------------------

    @precondition(lambda self: self.free)
    @rule(n=st.integers(0, 8), junk=st.booleans())
    def fill_and_take(self, n: int, junk: bool) -> None:
        extent = min(self.free)
        store = self.store
        if junk:  # from a writer that died; it must do no harm
            store.arena[extent * self.bytes // 8 : (extent + 1) * self.bytes // 8] = 0xBAD
        phi = make_phi(self.rng, n, store.n_rows, True)
        staged = stage(store, self.next_id + np.arange(n), phi)
        at, end = extent * self.bytes, (extent + 1) * self.bytes
        slots = []
        for t, slot in zip(range(n), self.free_slots(), strict=False):
            if at + staged.sizes[t] > end:
                break
            store.write(np.array([slot]), staged, np.array([t]), np.array([at]))
            at += int(staged.sizes[t])
            slots.append(slot)
            self.ids[slot], self.dense[slot] = int(staged.ids[t]), phi[t]
        self.next_id += n
        self.free.remove(extent)
        self.held.add(extent)
        self.cache.take(extent, np.array(slots, np.int64))
        self.waiting += slots

    # -- the trainer ---------------------------------------------------------------------------

    @precondition(lambda self: self.waiting)
    @rule(share=st.sampled_from([0.0, 0.5, 1.0]), all_of_them=st.booleans())
    def adopt_or_drop(self, share: float, all_of_them: bool) -> None:
        n = len(self.waiting) if all_of_them else self.rng.integers(len(self.waiting)) + 1
        for slot in [self.waiting.pop(0) for _ in range(n)]:
            if self.rng.random() < share:
                self.cache.adopt(np.array([slot]))
                self.live.append(slot)
            else:
                self.cache.drop(slot)
                self.forget(slot)

    @precondition(lambda self: self.live)
    @rule(share=st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    def evict(self, share: float) -> None:
        keep = self.rng.random(len(self.live)) < share
        self.cache.evict(keep)
        for slot, stays in zip(self.live, keep, strict=True):
            if not stays:
                self.forget(slot)
        self.live = [s for s, stays in zip(self.live, keep, strict=True) if stays]

    @rule(wanted=st.integers(0, 6), spare=st.integers(0, 2))
    def give_back(self, wanted: int, spare: int) -> None:
        empty = self.held - self.extents_of(self.live + self.waiting)
        self.store.moves_left = MANY
        given = self.cache.give_back(wanted, spare)
        assert len(given) == len(set(given)) <= wanted
        assert self.held.issuperset(given)
        in_use = self.extents_of(self.live + self.waiting)
        empty_now = {e for e in self.cache.held.tolist() if self.cache.empty(e)}
        assert empty_now == self.held - set(given) - self.extents_of(self.live)
        assert in_use.isdisjoint(given)
        self.held -= set(given)
        self.free |= set(given)
        if given:
            assert len(self.held - in_use) >= spare
        assert len(given) >= min(wanted, len(empty) - spare)  # those that were empty at least

    @rule()
    def give_back_all(self) -> None:
        assert sorted(self.cache.give_back_all()) == sorted(self.held)
        for slot in self.live + self.waiting:
            self.forget(slot)
        self.free |= self.held
        self.held, self.live, self.waiting = set(), [], []

    @rule(share=st.sampled_from([0.5, 1.0]))
    def die(self, share: float) -> None:
        """Replace the trainer; its successor has only the directory and the list of extents."""
        self.cache = ExtentCache(self.store, self.bytes)
        named = np.flatnonzero(self.store.ids >= 0)
        self.live, self.waiting = [], []
        for extent in self.held:
            slots = named[self.store.first[named] // self.bytes == extent]
            dropped = self.free_slots()[:2]  # as far as the successor was told, they are there
            self.cache.take(extent, np.array([*dropped, *slots], np.int64))
            self.waiting += slots.tolist()
        assert sorted(self.waiting) == sorted(self.ids)
        self.adopt_or_drop_all(share)

    @rule(moves=st.integers(0, 5), share=st.sampled_from([0.5, 1.0]))
    def die_while_giving_back(self, moves: int, share: float) -> None:
        self.store.moves_left = moves
        with suppress(Killed):  # or after all moves, before the message that gives extents back
            self.cache.give_back(99)
        self.store.moves_left = MANY
        self.die(share)

    # -- books ---------------------------------------------------------------------------------

    def adopt_or_drop_all(self, share: float) -> None:
        if self.waiting:
            self.adopt_or_drop(share, True)

    def free_slots(self) -> list[int]:
        return np.flatnonzero(self.store.ids == DROPPED).tolist()

    def extents_of(self, slots: list[int]) -> set[int]:
        return set((self.store.first[slots] // self.bytes).tolist())

    def forget(self, slot: int) -> None:
        del self.ids[slot], self.dense[slot]

    @invariant()
    def all_that_has_an_id_can_be_read(self) -> None:
        store = self.store
        slots = np.flatnonzero(store.ids >= 0)
        assert dict(zip(slots.tolist(), store.ids[slots].tolist(), strict=True)) == self.ids
        read = read_slots(store, slots)
        assert all(
            (row == self.dense[s]).all() for s, row in zip(slots.tolist(), read, strict=True)
        )
        assert self.extents_of(slots.tolist()) <= self.held

    @invariant()
    def live_columns(self) -> None:
        cache = self.cache
        assert broken_invariants(cache) == []
        assert cache.slots.tolist() == self.live
        assert cache.ids.tolist() == [self.ids[slot] for slot in self.live]
        assert cache.held.tolist() == sorted(self.held)
        assert cache.used == cache.sizes.sum()
        if self.live:
            assert (read_back(cache) == np.array([self.dense[slot] for slot in self.live])).all()


@pytest.mark.slow
def test_columns_survive_whatever_happens_to_their_extents() -> None:
    run_state_machine_as_test(ExtentMachine, settings=examples(200))


# -- by example: columns of 8 bytes each, extents of 80 ----------------------------------------


def filled(*counts: int, slots: int = 64) -> tuple[FragileStore, ExtentCache, list[range]]:
    """A cache whose extents have the given numbers of live columns, and their slots."""
    store = FragileStore(80 * len(counts), slots, 64, 64)
    store.ids[:] = DROPPED
    cache, ranges, slot = ExtentCache(store, 80), [], 0
    for extent, count in enumerate(counts):
        phi = np.zeros((count, 64), np.float32)
        phi[np.arange(count), 3 * np.arange(count) + extent] = 1.0
        staged = stage(store, slot + np.arange(count), phi)
        own = np.arange(count)
        store.write(slot + own, staged, own, 80 * extent + 8 * own)
        ranges.append(range(slot, slot + count))
        cache.take(extent, np.array(ranges[-1], np.int64))
        cache.adopt(np.array(ranges[-1], np.int64))
        slot += count
    return store, cache, ranges


def keep_only(cache: ExtentCache, slots: list[int]) -> None:
    cache.evict(np.isin(cache.slots, slots))


def test_the_emptiest_is_moved_into_the_fullest() -> None:
    _, cache, _ = filled(3, 6, 4)
    before = read_back(cache)
    assert cache.give_back(1) == [0]
    assert (cache.store.first[:3] // 80).tolist() == [1, 1, 1]
    assert cache.give_back(1) == []  # 9 and 4 of 10 each
    assert broken_invariants(cache) == [] and (read_back(cache) == before).all()


@pytest.mark.parametrize("wanted", [2, 99])
def test_more_is_wanted_than_can_be_had(wanted: int) -> None:
    """One extent with columns and an empty one to move them into, to and fro."""
    store, cache, _ = filled(5, 0)
    store.moves_left = 100
    assert cache.give_back(wanted) == [1]
    assert store.moves_left == 100  # nothing would be gained by a move


def test_full_of_holes() -> None:
    """All ends are used up: only a spare extent allows the columns to be compacted."""
    _, cache, ranges = filled(10, 10, 10)
    keep_only(cache, [s for r in ranges for s in r[7:]])
    assert cache.give_back(1) == []
    _, cache, ranges = filled(10, 10, 10, 0)
    keep_only(cache, [s for r in ranges for s in r[7:]])
    before = read_back(cache)
    assert len(cache.give_back(3, all_but=1)) == 2
    assert cache.give_back(3, all_but=1) == []
    assert len(cache.held) == 2
    assert broken_invariants(cache) == [] and (read_back(cache) == before).all()


def test_a_spare_extent_stays() -> None:
    _, cache, _ = filled(0, 0, 10)
    assert cache.give_back(5, all_but=2) == []
    assert cache.give_back(5, all_but=1) == [0]
    assert cache.held.tolist() == [1, 2]


def test_what_was_neither_adopted_nor_dropped_stays_where_it_is() -> None:
    store, cache, _ = filled(2, 0)
    phi = np.eye(2, 64, dtype=np.float32)
    staged = stage(store, np.array([70, 71]), phi)
    assert cache.give_back(1) == [1]
    store.write(np.array([50, 51]), staged, np.arange(2), np.array([80, 88]))
    cache.take(1, np.array([50, 51]))
    assert cache.give_back(9) == [0]  # what was there is beside them now
    cache.take(0, np.empty(0, np.int64))
    cache.adopt(np.array([50]))
    assert cache.give_back(9, all_but=1) == []
    assert (read_slots(store, np.array([50, 51])) == phi).all()
    cache.drop(51)
    assert cache.give_back(1) == [0] and broken_invariants(cache) == []
    cache.take(0, np.empty(0, np.int64))
    assert cache.give_back_all() == [0, 1]
    assert (store.ids == DROPPED).all() and cache.n == 0


def test_give_back_all_drops_what_is_not_adopted_yet() -> None:
    store, cache, _ = filled(2)
    staged = stage(store, np.array([70]), np.ones((1, 64), np.float32))
    cache.give_back_all()
    store.write(np.array([9]), staged, np.array([0]), np.array([0]))
    cache.take(0, np.array([9]))
    assert cache.give_back_all() == [0]
    assert (store.ids == DROPPED).all()


def test_a_column_without_entries_at_the_end_of_a_full_extent() -> None:
    store, cache, _ = filled(9, 0)
    keep_only(cache, [])
    cache.give_back_all()
    phi = np.eye(11, 64, dtype=np.float32)
    phi[10] = 0.0
    staged = stage(store, np.arange(11), phi)
    assert staged.sizes.tolist() == [8] * 10 + [0]
    own = np.arange(11)
    store.write(own, staged, own, 80 + 8 * own)  # the last one at the end of the arena
    cache.take(1, np.arange(11))
    cache.adopt(np.arange(11))
    assert broken_invariants(cache) == []
    keep_only(cache, [10])
    assert not cache.empty(1) and cache.give_back(1) == []  # it takes no bytes, and is there
    cache.take(0, np.empty(0, np.int64))
    assert cache.give_back(1) == [0] and broken_invariants(cache) == []


def test_hashes_of_live_columns_and_repeated_ones_are_familiar() -> None:
    store, cache, _ = filled(3)
    held = store.hashes[cache.slots]
    new = np.array([7, 8, 7, 9], np.uint64)
    assert not np.isin(new, held).any()
    assert cache.familiar(np.concatenate([new, held[:1]])).tolist() == [0, 0, 1, 0, 1]
    cache.evict(np.array([False, True, True]))
    assert cache.familiar(held).tolist() == [0, 1, 1]
