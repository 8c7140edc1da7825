"""The cached columns: a bounded store, and the order of its live columns.

Live columns are numbered 0 .. n - 1 without gaps, in the order of admission, whichever slots of the store
they occupy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fcl.arrays import Arrays
from fcl.cache.store import (
    Slots,
    StagedColumns,
    Store,
    check_block_rows,
    directory,
    largest_column,
)
from fcl.errors import BudgetError
from fcl.features.base import Columns
from fcl.kernels.columns import Pieces
from fcl.parallel import SERIAL, Team

#: The directory grows by at least this part, so that it seldom does.
LEAST_GROWTH = 8


def _fitting(sizes: Slots, room: int) -> npt.NDArray[np.bool_]:
    """Which columns fit, if each enters that fits beside those before it."""
    fit = np.empty(len(sizes), bool)
    for i, size in enumerate(sizes.tolist()):
        fit[i] = size <= room
        room -= size if fit[i] else 0
    return fit


def live_slots(max_columns: int) -> Arrays:
    """The slots of the live columns."""
    return Arrays(("i8", max_columns, "slots"))


class LiveColumns(ABC):
    """The live columns of a store, as the trainer sees them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.n = 0
        self._slots = live_slots(store.max_columns).allocate()["slots"]
        self._hashes: set[int] = set()  # of the live columns, so that most are compared with none

    @property
    def slots(self) -> Slots:
        return self._slots[: self.n]

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self.store.ids[self.slots]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        return self.store.sizes[self.slots]

    @property
    def pieces(self) -> Pieces:
        """The arrays of the store as kernels take them, by slot."""
        return self.store.pieces

    @property
    def capacity(self) -> int:
        return self.store.capacity

    @property
    def max_columns(self) -> int:
        """Columns that the directory has room for."""
        return self.store.max_columns

    @property
    def n_rows(self) -> int:
        return self.store.n_rows

    def familiar(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which of these hashes belong to a live column or occur earlier in the list.

        Their columns may be equal to others.
        """
        _, first = np.unique(hashes, return_index=True)
        known = np.ones(len(hashes), bool)
        known[first] = [hash_ in self._hashes for hash_ in hashes[first].tolist()]
        return known

    def find(self, nonzeros: int, hash_: int) -> npt.NDArray[np.intp]:
        """Numbers of the live columns with this count of nonzeros and hash, taken to be equal."""
        if hash_ not in self._hashes:
            return np.empty(0, np.intp)
        slots = self.slots
        same = (self.store.hashes[slots] == np.uint64(hash_)) & (
            self.store.nonzeros[slots] == nonzeros
        )
        return np.flatnonzero(same)

    @abstractmethod
    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the live columns that are not kept; the others keep their order."""

    def _append(self, slots: Slots) -> None:
        n, self.n = self.n, self.n + len(slots)
        self._slots[n : self.n] = slots
        self._hashes.update(self.store.hashes[slots].tolist())

    def _keep(self, kept: Slots) -> None:
        self.n = len(kept)
        self._slots[: self.n] = kept
        self._hashes = set(self.store.hashes[kept].tolist())


class ColumnCache(LiveColumns):
    """A bounded set of columns over the rows of a view, in private memory.

    New columns follow the last one; eviction closes the gaps, so the arena never fragments.

    capacity : bytes of the arena.
    max_columns : columns that the directory has room for; its bytes (``directory_bytes``) are not in
        ``capacity``.
    n_rows, block_rows : rows of the view, and rows per block (at most 65,536).
    binary, step : of the family; they bound the bytes of a column.
    slot_bytes : bytes that a slot of the directory takes with all that belongs to its column outside the
        arena; 0: the directory cannot grow.

    Raises BudgetError: ``capacity`` is less than the largest column can need: the working set could
        become empty.
    """

    largest_column = staticmethod(largest_column)

    @staticmethod
    def directory_bytes(max_columns: int, n_rows: int, block_rows: int) -> int:
        """Bytes of the directory of the store, and of the list of its live columns."""
        store = directory(max_columns, -(-n_rows // block_rows))
        return store.nbytes + live_slots(max_columns).nbytes

    def __init__(
        self,
        capacity: int,
        max_columns: int,
        n_rows: int,
        block_rows: int,
        binary: bool = True,
        step: float = 0.0,
        slot_bytes: int = 0,
    ) -> None:
        check_block_rows(block_rows)
        need = largest_column(n_rows, block_rows, binary, step)
        if capacity < need or max_columns < 1:
            raise BudgetError(
                f"cache: expected room for a column of {n_rows} rows ({need} bytes), "
                f"got {capacity} bytes; raise the memory budget"
            )
        super().__init__(Store(capacity, max_columns, n_rows, block_rows))
        self.block_rows = block_rows
        self._binary, self._step = binary, step
        self.largest = need  #: upper bound of the bytes of a column
        self.used = 0  #: bytes in use, always at the beginning of the arena
        self._free = list(range(max_columns - 1, -1, -1))  # slots
        self._slot_bytes, self._least_slots, self._rows = slot_bytes, max_columns, n_rows

    @property
    def grows(self) -> bool:
        return self._slot_bytes > 0

    @property
    def free(self) -> int:
        return self.capacity - self.used

    @property
    def mean(self) -> int:
        """Mean bytes of the live columns; if no column is live, the bytes of the largest column."""
        return self.used // self.n if self.n else self.largest

    # -- changes -------------------------------------------------------------------------------

    def resize(self, n_rows: int, mean: int) -> bool:
        """Change the number of rows, at most to the initial one; the cache must be empty.

        mean : bytes of a column over the rows before. A directory that has grown gives slots back if the
        columns to come are larger; returns whether it did.
        """
        assert not self.n and n_rows <= self.n_rows
        mean = mean * n_rows // max(1, self._rows)
        self._rows = n_rows
        self.largest = largest_column(n_rows, self.block_rows, self._binary, self._step)
        slots = max(self._least_slots, min(self.max_columns, self._balance(mean)))
        return self._take_slots(slots)

    def grow(self, slots: int) -> bool:
        """Add slots to the directory, as many as needed or as free bytes of the arena allow.

        The directory is planned by a guess of the size of a column, before any is made. Where columns are
        smaller, slots would be short while bytes are left.
        """
        if not self._slot_bytes or slots < 1:
            return False
        most = max(self.max_columns, self._balance(self.mean))
        return self._take_slots(
            min(self.max_columns + max(slots, self.max_columns // LEAST_GROWTH), most)
        )

    def extend(self, slots: int) -> bool:
        """Give the directory at least so many slots, if the arena has bytes for them."""
        capacity = self.capacity - (slots - self.max_columns) * self._slot_bytes
        fits = slots > self.max_columns and capacity >= self.used + self.largest
        return fits and self._take_slots(slots)

    def _balance(self, mean: int) -> int:
        """Slots of a directory that is full when the arena is, if columns have this mean size."""
        total = self.capacity - self.largest + self.max_columns * self._slot_bytes
        return total // max(1, self._slot_bytes + mean)

    def _take_slots(self, slots: int) -> bool:
        """Change the number of slots, at the expense of the arena; fewer only if the cache is empty."""
        before = self.max_columns
        if slots == before:
            return False
        assert slots > before or not self.n
        capacity = self.capacity - (slots - before) * self._slot_bytes
        self.store.resize(slots, capacity, self.used)
        kept = self.slots.copy()
        self._slots = live_slots(slots).allocate()["slots"]
        self._slots[: self.n] = kept
        if slots > before:
            self._free[:0] = range(slots - 1, before - 1, -1)
        else:
            self._free = list(range(slots - 1, -1, -1))
        return True

    def measure(self, ids: npt.NDArray[np.int64], blocks: Sequence[Columns]) -> StagedColumns:
        """Count nonzeros of new columns, and compute their sizes and hashes, without storing them."""
        return self.store.measure(ids, blocks)

    def admit(self, staged: StagedColumns, t: int) -> bool:
        """Append a staged column; False if there is no room for it."""
        return len(self.admit_some(staged, np.array([t]))) > 0

    def admit_some(self, staged: StagedColumns, which: Slots, team: Team = SERIAL) -> Slots:
        """Append staged columns, in order, each if there is room for it; returns those appended.

        team : threads that store the pieces of staged columns.
        """
        sizes = staged.sizes[which]
        if sizes.sum() > self.free or len(which) > len(self._free):
            which = which[_fitting(sizes, self.free)][: len(self._free)]
            sizes = staged.sizes[which]
        slots = np.array([self._free.pop() for _ in which], np.intp)
        starts = self.used + np.cumsum(sizes) - sizes

        def write(part: tuple[StagedColumns, Slots, Slots]) -> None:
            piece, here, own = part
            self.store.write(slots[here], piece, own, starts[here])

        team.map(write, staged.split(which))
        self._append(slots)
        self.used += int(sizes.sum())
        return which

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the live columns that are not kept and close the gaps; the others keep their order."""
        slots = self.slots.copy()
        self._free.extend(int(slot) for slot in slots[~keep][::-1])
        kept = slots[keep]
        self._keep(kept)
        at = 0
        for slot in kept:  # in order, so that no column is overwritten before it moves
            self.store.move(int(slot), at)
            at += int(self.store.sizes[slot])
        self.used = at
