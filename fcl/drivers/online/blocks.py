"""The rows of a job in the order in which an online learner reads them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fcl.drivers.rows import Rows
from fcl.features.base import Family
from fcl.types import Ids

T = TypeVar("T")


@dataclass(frozen=True)
class RowBlock:
    """Raw rows, and the order in which to learn them.

    first : number of the block's first row among the selected rows.
    order : int64 (m,), rows of the block.
    """

    first: int
    raw: Any
    order: Ids

    @property
    def rows(self) -> Ids:
        """Numbers of the rows among the selected rows, in the order of learning."""
        return self.first + self.order


class Blocks:
    """Reads the selected rows block by block: blocks in random order, rows of a block permuted.

    The order of a pass depends only on ``seed`` and the number of the pass.

    shuffle : False: all rows in their own order.
    keep : whether to keep all blocks in memory for later passes.
    """

    def __init__(
        self,
        family: Family,
        rows: Rows,
        block_rows: int,
        seed: int = 0,
        shuffle: bool = True,
        keep: bool = False,
    ) -> None:
        self._family, self._rows, self._size = family, rows, block_rows
        self._seed, self._shuffle = seed, shuffle
        self._kept: dict[int, Any] | None = {} if keep else None

    def of_pass(self, number: int, done: int = 0) -> Iterator[RowBlock]:
        """Yield the blocks of a pass, without the first ``done`` rows of its order."""
        n, size = self._rows.n, self._size
        blocks = np.arange(-(-n // size))
        if self._shuffle:
            self._random(number).shuffle(blocks)
        for b in blocks.tolist():
            count = min(size, n - b * size)
            if done >= count:
                done -= count
                continue
            order = np.arange(count)
            if self._shuffle:
                self._random(number, b).shuffle(order)
            yield RowBlock(b * size, self._read(b), order[done:])
            done = 0

    def _random(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, 0x0B10C, *numbers])

    def _read(self, b: int) -> Any:
        if self._kept is not None and b in self._kept:
            return self._kept[b]
        rows, size = self._rows, self._size
        first, last = b * size, min((b + 1) * size, rows.n)
        found = self._family.read_rows(rows.data.rows, size, rows.keep, first, last)
        ((_, _, raw),) = found
        if self._kept is not None:
            self._kept[b] = raw
        return raw


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator, which a thread asks for the next item in the meantime.

    An exception of the iterator is raised here, in its turn.
    """
    waiting: queue.Queue[tuple[bool, Any]] = queue.Queue(1)
    ended = threading.Event()

    def put(item: tuple[bool, Any]) -> bool:
        while not ended.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
            put((False, None))
        except BaseException as error:
            put((False, error))

    thread = threading.Thread(target=read, name="fcl-reader", daemon=True)
    thread.start()
    try:
        while True:
            more, item = waiting.get()
            if not more:
                break
            yield item
            del item
        if item is not None:
            raise item
    finally:
        ended.set()
        thread.join()


def ahead(items: Iterator[T]) -> closing[Iterator[T]]:  # type: ignore[type-var]
    """:func:`read_ahead` as a context, at whose end the thread has ended."""
    return closing(read_ahead(items))  # type: ignore[type-var]


def row_number(keep: npt.NDArray[np.bool_] | None, number: int) -> int:
    """The number in the data set of a row, given its number among the selected rows."""
    return number if keep is None else int(np.flatnonzero(keep)[number])
