"""The supervisor's book of directory slots: which are free, allotted to a task, or committed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fcl.cache.extents import DROPPED

__all__ = ["SlotBook"]

Ints = npt.NDArray[np.int64]

_FREE, _ALLOTTED, _COMMITTED = 0, 1, 2


class SlotBook:
    """Who has which slot.

    ids : int64 (slots,), of the shared directory; the trainer writes DROPPED where it lets go.
    """

    def __init__(self, ids: Ints) -> None:
        self._ids = ids
        self._state = np.full(len(ids), _FREE, np.uint8)
        self._tasks: dict[int, Ints] = {}
        self._dropped = 0

    def committed(self) -> tuple[Ints, Ints]:
        """Slots of the columns that the trainer has, or will hear of, and their features.

        The directory is read once: the trainer may drop more at any moment.
        """
        ids = self._ids.copy()
        self._reclaim(ids)
        slots = np.flatnonzero(self._state == _COMMITTED)
        return slots, ids[slots]

    @property
    def n_free(self) -> int:
        """Number of slots that nobody has."""
        self._reclaim(self._ids.copy())
        return int((self._state == _FREE).sum())

    def allot(self, serial: int, most: int) -> Ints:
        """Up to so many free slots for a task."""
        self._reclaim(self._ids.copy())
        slots = np.flatnonzero(self._state == _FREE)[:most]
        self._state[slots] = _ALLOTTED
        self._tasks[serial] = slots
        return slots

    def settle(self, serial: int, used: Ints) -> None:
        """A task is over: it has used these of its slots; none if its writer died."""
        slots = self._tasks.pop(serial, np.empty(0, np.int64))
        self._state[slots] = _FREE
        self._state[used] = _COMMITTED

    def clear(self) -> None:
        """Nothing is committed any more."""
        slots = self._state == _COMMITTED
        self._ids[slots] = DROPPED
        self._state[slots] = _FREE

    def _reclaim(self, ids: Ints) -> None:
        dropped = (self._state == _COMMITTED) & (ids == DROPPED)
        self._dropped += int(dropped.sum())
        self._state[dropped] = _FREE

    def count_dropped(self) -> int:
        """Columns that the trainer let go since the last call."""
        self._reclaim(self._ids.copy())
        count, self._dropped = self._dropped, 0
        return count
