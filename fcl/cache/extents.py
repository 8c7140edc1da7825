"""Live columns in an arena that others write to: extents, each in one hand at a time.

The arena is cut into extents of equal size. Writers fill extents that were granted to them and hand
them over; from then on the trainer alone moves what is inside. It drops columns, and where little of an
extent is live it moves the rest to the free end of another one, so that whole extents can be given back.
Columns that are dropped get the id DROPPED in the directory before their bytes are used again, and a
column that is moved is copied before the directory knows: whoever dies in the middle leaves a
directory in which every column that has an id can be read.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fcl.cache.columns import LiveColumns, Slots
from fcl.cache.store import Store

#: The id of a slot whose column was dropped: the slot may be given to another one.
DROPPED = -1


class ExtentCache(LiveColumns):
    """Live columns over extents that are handed over and given back.

    Parameters
    ----------
    store : Store
        Shared with the writers.
    extent_bytes : int
        Bytes of an extent, a multiple of 8; no column is larger.
    """

    def __init__(self, store: Store, extent_bytes: int) -> None:
        super().__init__(store)
        self.extent_bytes = extent_bytes
        self.n_extents = store.capacity // extent_bytes
        #: bytes in use from the beginning of each extent; -1: not ours
        self._ends = np.full(self.n_extents, -1, np.int64)
        self._live = np.zeros(self.n_extents, np.int64)  # bytes of live columns

    @property
    def used(self) -> int:
        """Bytes of live columns."""
        return int(self._live.sum())

    @property
    def held(self) -> npt.NDArray[np.intp]:
        """The extents in our hands."""
        return np.flatnonzero(self._ends >= 0)

    def take(self, extent: int, slots: Iterable[int]) -> None:
        """An extent with the columns in these slots is ours now; they are not live yet."""
        at = extent * self.extent_bytes
        ends = [int(self.store.first[s] + self.store.sizes[s]) - at for s in slots]
        self._ends[extent] = max(ends, default=0)
        self._live[extent] = 0

    def adopt(self, slot: int) -> None:
        """Make a column in one of our extents live, behind the last one."""
        self._slots[self.n] = slot
        self._live[self._extent(slot)] += self.store.sizes[slot]
        self.n += 1

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the live columns that are not kept; the order stays. Nothing moves."""
        slots = self.slots
        for slot in slots[~keep]:
            self._live[self._extent(int(slot))] -= self.store.sizes[slot]
            self.drop(int(slot))
        kept = slots[keep]
        self.n = len(kept)
        self._slots[: self.n] = kept

    def drop(self, slot: int) -> None:
        """A column of ours that is not live (any more) is not wanted."""
        self.store.ids[slot] = DROPPED

    def give_back(self, wanted: int, all_but: int = 0) -> list[int]:
        """Empty extents by moving what is live in them, and give them back.

        Stops at ``wanted`` extents, or when no extent can be emptied into the free ends of the others.
        ``all_but`` extents are kept empty, to move columns into later.
        """
        slots = self.slots
        extents = self.store.first[slots] // self.extent_bytes
        empty = [int(e) for e in self.held if self._live[e] == 0]
        for e in empty:
            self._ends[e] = 0
        by_fill = sorted(
            (int(e) for e in self.held if self._live[e] > 0), key=self._live.__getitem__
        )
        while len(empty) < wanted + all_but and by_fill:
            source = by_fill.pop(0)
            columns = slots[extents == source]
            places = self._places(columns, source, by_fill, empty)
            if places is None:
                break
            for slot, (into, at) in zip(columns, places, strict=True):
                self.store.move(int(slot), into * self.extent_bytes + at)
                size = int(self.store.sizes[slot])
                self._ends[into] = at + size
                self._live[into] += size
            used = {into for into, _ in places}
            empty = [e for e in empty if e not in used]
            by_fill.extend(sorted(used - set(by_fill)))
            self._ends[source] = self._live[source] = 0
            extents = self.store.first[slots] // self.extent_bytes
            empty.append(source)
        given = empty[: max(0, len(empty) - all_but)][:wanted]
        self._ends[given] = -1
        return given

    def give_back_all(self) -> list[int]:
        """Drop every column and give all extents back."""
        given = [int(e) for e in self.held]
        self.evict(np.zeros(self.n, bool))
        self._ends[:] = -1
        self._live[:] = 0
        self.n = 0
        return given

    def check(self) -> list[str]:
        """The invariants that do not hold (none, unless fcl has a bug)."""
        wrong = []
        first, sizes = self.store.first[self.slots], self.sizes
        extents = first // self.extent_bytes
        if len(np.unique(self.ids)) != self.n:
            wrong.append("a feature is cached twice")
        if (first + sizes > (extents + 1) * self.extent_bytes).any():
            wrong.append("a column crosses the end of its extent")
        order = np.argsort(first)
        if (first[order][:-1] + sizes[order][:-1] > first[order][1:]).any():
            wrong.append("two columns overlap")
        live = np.zeros(self.n_extents, np.int64)
        np.add.at(live, extents, sizes)
        if (live != self._live).any():
            wrong.append("live bytes of an extent are miscounted")
        if (self._ends[extents] < 0).any():
            wrong.append("a live column lies in an extent that is not ours")
        return wrong

    def _extent(self, slot: int) -> int:
        return int(self.store.first[slot]) // self.extent_bytes

    def _places(
        self, columns: Slots, source: int, others: list[int], empty: list[int]
    ) -> list[tuple[int, int]] | None:
        """(extent, byte in it) for each of the columns, outside ``source``; None if they do not fit.

        Empty extents are used up one at a time and only if what comes in leaves another one empty.
        """
        ends = {e: int(self._ends[e]) for e in [*others, *empty[:1]]}
        fullest_first = sorted(ends, key=ends.__getitem__, reverse=True)
        places = []
        for slot in columns:
            size = int(self.store.sizes[slot])
            into = next((e for e in fullest_first if ends[e] + size <= self.extent_bytes), None)
            if into is None:
                return None
            places.append((into, ends[into]))
            ends[into] += size
        return places
