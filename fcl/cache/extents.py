"""Live columns in an arena that processes share: each extent has one owner at a time.

The arena is divided into extents of equal size. A writer fills the extents that were granted to it and
transfers them to the trainer; from then on only the trainer moves columns in them. The trainer drops
columns, and moves the live columns of sparsely used extents to the free ends of others, so that it can
return whole extents. A dropped column gets the id DROPPED in the directory before its bytes are reused,
and a column is copied before the directory is updated. If a process dies at any point, every column that
has an id in the directory is therefore readable.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fcl.cache.columns import LiveColumns
from fcl.cache.store import Slots, Store

#: The id of a slot whose column was dropped; the slot may be reused.
DROPPED = -1


class ExtentCache(LiveColumns):
    """Live columns over extents whose ownership passes between writers and trainer.

    store : shared with the writers.
    extent_bytes : size of an extent in bytes: a multiple of 8, no smaller than the largest column.
    """

    def __init__(self, store: Store, extent_bytes: int) -> None:
        super().__init__(store)
        self.extent_bytes = extent_bytes
        self.n_extents = store.capacity // extent_bytes
        #: bytes in use at the beginning of each extent; -1: owned by another process
        self._ends = np.full(self.n_extents, -1, np.int64)
        self._waiting: set[int] = set()  # slots taken, but neither adopted nor dropped

    @property
    def used(self) -> int:
        return int(self.sizes.sum())

    @property
    def held(self) -> npt.NDArray[np.intp]:
        """The extents that this cache owns."""
        return np.flatnonzero(self._ends >= 0)

    def empty(self, extent: int) -> bool:
        """Whether an extent that this cache owns has no live column."""
        return not (self._extents(self.slots) == extent).any()

    def take(self, extent: int, slots: Slots) -> None:
        """Take ownership of an extent; the columns in these slots must be adopted or dropped."""
        store, at = self.store, extent * self.extent_bytes
        slots = slots[store.ids[slots] != DROPPED]  # by a previous trainer
        # a column without bytes must not lie in the next extent if this one is full
        store.first[slots[store.sizes[slots] == 0]] = at
        self._ends[extent] = (store.first[slots] + store.sizes[slots] - at).max(initial=0)
        self._waiting.update(slots.tolist())

    def adopt(self, slots: Slots) -> None:
        """Append columns of an owned extent to the live columns."""
        self._waiting.difference_update(slots.tolist())
        self._append(slots)

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the live columns that are not kept; the others keep their order and place."""
        slots = self.slots
        self.store.ids[slots[~keep]] = DROPPED
        self._keep(slots[keep])

    def drop(self, slot: int) -> None:
        """Discard a column that was not adopted."""
        self._waiting.discard(slot)
        self.store.ids[slot] = DROPPED

    def give_back(self, wanted: int, all_but: int = 0) -> list[int]:
        """Empty up to ``wanted`` extents by moving their live columns; returns these extents.

        Stops early when no extent can be emptied into the free ends of the others. Keeps ``all_but``
        further extents empty, to move columns into later. Leaves extents alone that hold columns which
        were neither adopted nor dropped.
        """
        slots = self.slots
        extents = self._extents(slots)
        columns = np.bincount(extents, minlength=self.n_extents)
        live = np.bincount(extents, self.sizes, self.n_extents)
        waiting = set(self._extents(np.array(sorted(self._waiting), np.int64)).tolist())
        held = self.held.tolist()
        empty = [e for e in held if columns[e] == 0 and e not in waiting]
        self._ends[empty] = 0
        filled = sorted(set(held).difference(empty), key=live.__getitem__)
        # each extent is a source only once: moves into an empty extent could otherwise repeat forever
        for source in [e for e in filled if e not in waiting]:
            if len(empty) >= wanted + all_but:
                break
            moving = slots[self._extents(slots) == source]
            others = [e for e in filled if e != source]
            places = self._places(moving, others, empty)
            if places is None:
                continue
            used = {into for into, _ in places}
            tight = self.store.sizes[moving].sum() == self._ends[source]
            if tight and used.isdisjoint(others):
                continue  # moving the same columns to another extent gains nothing
            for slot, (into, at) in zip(moving, places, strict=True):
                self.store.move(int(slot), into * self.extent_bytes + at)
                self._ends[into] = max(self._ends[into], at + int(self.store.sizes[slot]))
            self._ends[source] = 0
            filled = [*others, *sorted(used.difference(others))]
            empty = [*(e for e in empty if e not in used), source]
        given = empty[: max(0, len(empty) - all_but)][:wanted]
        self._ends[given] = -1
        return given

    def give_back_all(self) -> list[int]:
        """Drop every column; returns all extents."""
        given = self.held.tolist()
        self.evict(np.zeros(self.n, bool))
        for slot in sorted(self._waiting):
            self.drop(slot)
        self._ends[:] = -1
        return given

    def _extents(self, slots: Slots) -> Slots:
        return self.store.first[slots] // self.extent_bytes

    def _places(
        self, columns: Slots, others: list[int], empty: list[int]
    ) -> list[tuple[int, int]] | None:
        """Find (extent, byte inside it) for each of the columns; None if they do not fit.

        Uses at most one empty extent, since the move empties another one.
        """
        ends = {e: int(self._ends[e]) for e in [*others, *empty[:1]]}
        fullest_first = sorted(ends, key=ends.__getitem__, reverse=True)
        places = []
        for slot in columns:
            size = int(self.store.sizes[slot])
            into = next((e for e in fullest_first if ends[e] + size <= self.extent_bytes), None)
            if into is None:
                return None
            # a column without bytes must not lie after the last byte of its extent
            places.append((into, ends[into] if size else 0))
            ends[into] += size
        return places
