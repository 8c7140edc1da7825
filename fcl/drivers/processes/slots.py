"""The supervisor's table of directory slots: free, allotted to a task, or committed."""

from __future__ import annotations

import numpy as np

from fcl.cache.extents import DROPPED
from fcl.types import Ints

_FREE, _ALLOTTED, _COMMITTED = 0, 1, 2


class SlotBook:
    """Tracks which task or process owns each slot.

    ids : int64 (n_slots,), features of the shared directory; the trainer writes DROPPED into a slot that
        it releases.
    """

    def __init__(self, ids: Ints) -> None:
        self._ids = ids
        self._state = np.full(len(ids), _FREE, np.uint8)
        self._tasks: dict[int, Ints] = {}
        self._dropped = 0

    def committed(self) -> tuple[Ints, Ints]:
        """Slots of the columns committed to the trainer, and their features, int64 (k,) each."""
        ids = self._ids.copy()  # one copy: the trainer may release more slots at any moment
        self._reclaim(ids)
        slots = np.flatnonzero(self._state == _COMMITTED)
        return slots, ids[slots]

    @property
    def n_free(self) -> int:
        """Number of free slots."""
        self._reclaim(self._ids.copy())
        return int((self._state == _FREE).sum())

    def allot(self, serial: int, most: int) -> Ints:
        """Allot up to ``most`` free slots to the task of this serial."""
        self._reclaim(self._ids.copy())
        slots = np.flatnonzero(self._state == _FREE)[:most]
        self._state[slots] = _ALLOTTED
        self._tasks[serial] = slots
        return slots

    def settle(self, serial: int, n_used: int) -> Ints:
        """Commit and return the first slots of a task (none if its writer died); free the others."""
        slots = self._tasks.pop(serial, np.empty(0, np.int64))
        self._state[slots] = _FREE
        self._state[slots[:n_used]] = _COMMITTED
        return slots[:n_used]

    def clear(self) -> None:
        """Free all committed slots."""
        slots = self._state == _COMMITTED
        self._ids[slots] = DROPPED
        self._state[slots] = _FREE

    def _reclaim(self, ids: Ints) -> None:
        dropped = (self._state == _COMMITTED) & (ids == DROPPED)
        self._dropped += int(dropped.sum())
        self._state[dropped] = _FREE

    def count_dropped(self) -> int:
        """Number of columns that the trainer has released since the last call."""
        self._reclaim(self._ids.copy())
        count, self._dropped = self._dropped, 0
        return count
