"""Rows on the workers, as the client sees them: shards, vectors in pieces, the objective over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows, SideArrays
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.client import Cluster
from fcl.drivers.cluster.packed import Packed
from fcl.drivers.cluster.tasks import Where
from fcl.objective import Objective, SingleOutput, block_sums
from fcl.solve.passes import Vectors
from fcl.types import Ids

#: Blocks of a shard, at least and at most: one to eight million rows.
LEAST_BLOCKS, MOST_BLOCKS = 16, 128
#: Shards become larger, not more, from this number on: the scheduler needs a millisecond for each task.
FEW_SHARDS = 32
#: The numbers of a result without rows.
ALL = Where()
#: Sums that the objective remembers.
MOST_REMEMBERED = 64


def shard_blocks(n_blocks: int) -> int:
    """Row blocks of a shard, which depend only on the number of all row blocks."""
    return min(MOST_BLOCKS, max(LEAST_BLOCKS, -(-n_blocks // FEW_SHARDS)))


class Shards:
    """The shards of a set of rows.

    rows : selected rows, with targets and weights.
    like : loss and options; its rows are not used.
    """

    def __init__(
        self, cluster: Cluster, rows: Any, source: tasks.RowSource, family: Any, like: Objective
    ) -> None:
        self.cluster, self.family, self.block_rows = cluster, family, like.block_rows
        self.n_rows = rows.n
        size = self.block_rows * shard_blocks(-(-rows.n // self.block_rows))
        #: first row of each shard, and the end
        self.bounds = np.minimum(np.arange(-(-rows.n // size) + 1) * size, rows.n)
        like = replace(like, y=np.empty(0), s=np.empty(0), offset=None, covariates=None)
        literal = cluster.submit(tasks.identity, (source, family, like))
        mask = None
        if rows.keep is not None:
            mask = cluster.submit(tasks.unpack_mask, np.packbits(rows.keep), len(rows.keep))
        #: futures of the shards
        self.futures = [  # one by one: each message has targets and weights
            cluster.submit(tasks.prepare, literal, int(a), int(b - a), mask, packed)
            for a, b, packed in self._packed(rows)
        ]
        self.joined: Any = None  # future of all rows in one shard, once a task needs it

    def _packed(self, rows: Any) -> Iterator[tuple[int, int, list[Packed | None]]]:
        for a, b in zip(self.bounds[:-1], self.bounds[1:], strict=True):
            vectors = (rows.y, rows.s, rows.offset)
            yield a, b, [None if v is None else Packed.of(v[a:b]) for v in vectors]

    def __len__(self) -> int:
        return len(self.futures)

    def read(
        self, progress: Callable[[float], None]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Wait until all rows are read; returns checksums, and bytes of side arrays, of the blocks."""
        found = self.cluster.gather(self.each(tasks.describe), progress)
        checksums, sides = map(np.concatenate, zip(*found, strict=True))
        return checksums, sides

    def each(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Futures of a task for each shard; vectors among the arguments are cut alike."""
        calls = [
            (shard, *(self._piece(arg, k) for arg in args)) for k, shard in enumerate(self.futures)
        ]
        return self.cluster.submit_all(function, calls)

    def map(self, function: Callable[..., Any], *args: Any) -> Vector:
        """A vector whose pieces a task makes of each shard, as in :meth:`each`."""
        return Vector(self, self.each(function, *args))

    @staticmethod
    def _piece(arg: Any, k: int) -> Any:
        return arg.futures[k] if isinstance(arg, Vector) else arg

    def split(self, rows: Ids) -> Iterator[tuple[int, Ids]]:
        """The shards that have some of the rows (increasing), with the rows' numbers there."""
        ends = np.searchsorted(rows, self.bounds)
        for k in range(len(self)):
            own = rows[ends[k] : ends[k + 1]]
            if len(own):
                yield k, own - self.bounds[k]

    def all_rows(self) -> Any:
        """The future of all rows in one shard."""
        if self.joined is None:
            self.joined = self.cluster.submit(tasks.join, self.futures)
        return self.joined

    def picked(self, rows: Ids) -> GatheredRows:
        """Some rows, by increasing numbers, in this process."""
        calls = [(self.futures[k], own) for k, own in self.split(rows)]
        found = self.cluster.gather(self.cluster.submit_all(tasks.pick, calls))
        return GatheredRows(self.block_rows, [block for own in found for block in own])


class GatheredRows(PreparedRows):
    """Prepared rows in blocks of any sizes, from which a family selects.

    blocks : for each the number of rows, the record and the side arrays.
    """

    def __init__(
        self, block_rows: int, blocks: Sequence[tuple[int, npt.NDArray[np.uint8], SideArrays]]
    ) -> None:
        sizes = [n for n, _, _ in blocks]
        super().__init__(sum(sizes), block_rows, (0,), records=np.empty((0, 0), np.uint8))
        self.n_blocks, self._found = len(blocks), blocks
        self._starts = np.concatenate([[0], np.cumsum(sizes)])

    def rows_of(self, block: int) -> slice:
        return slice(int(self._starts[block]), int(self._starts[block + 1]))

    def find(self, rows: Ids) -> Iterator[tuple[int, npt.NDArray[np.intp], Ids]]:
        source = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(source).tolist():
            here = np.flatnonzero(source == number)
            yield number, here, rows[here] - self._starts[number]

    def read(
        self, block: int, part: slice = slice(None)
    ) -> tuple[npt.NDArray[np.uint8], SideArrays]:
        return self._found[block][1:]

    def sides(self, block: int) -> SideArrays:
        return self._found[block][2]


class Vector:
    """A vector over the rows in pieces on the workers, one for each shard.

    NumPy may convert it to an array (``np.asarray``, ``out[:] = vector``) and take rows from it, which
    sends numbers to this process.
    """

    def __init__(self, shards: Shards, futures: Sequence[Any], where: Where = ALL) -> None:
        self.shards, self.futures, self.where = shards, list(futures), where

    def at(self, row: int) -> Vector:
        """One of the vectors that the pieces hold as rows."""
        return Vector(self.shards, self.futures, replace(self.where, row=row))

    def on_grid(self, step: float) -> Vector:
        """The numbers truncated to multiples of a step; 0 leaves them as they are."""
        return Vector(self.shards, self.futures, replace(self.where, step=step))

    @property
    def step(self) -> float:
        """The step of the grid, or 0."""
        return self.where.step

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the numbers."""
        return self.futures[0].key, self.where

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        cluster = self.shards.cluster
        found: Any = cluster.gather([cluster.submit(tasks.whole, self.futures, self.where)])[0]
        return np.asarray(found, dtype)

    def take(self, rows: Ids, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
        """The numbers of some rows, increasing, as :func:`numpy.take` returns them."""
        cluster = self.shards.cluster
        calls = [(self.futures[k], self.where, own) for k, own in self.shards.split(rows)]
        pieces = cluster.submit_all(tasks.take, calls)
        found = np.concatenate(cluster.gather(pieces)) if pieces else np.empty(0)
        if out is None:
            return found
        out[:] = found
        return out


class ClusterVectors(Vectors):
    """The vectors of a pass; each is replaced, never overwritten."""

    def __init__(self) -> None:
        self.margins: list[Any] = [None, None]
        self.residuals: Any = None
        self.curvatures: Any = None
        self.units: Any = None
        self.anchor = 0
        self.loss = math.inf


@dataclass(frozen=True)
class ClusterObjective(SingleOutput):
    """The objective over rows on the workers; targets and weights are here, too."""

    shards: Any = field(default=None, compare=False)
    #: sums by blocks that later steps need, too: a round over the workers costs more than a sum
    known: dict[Any, list[Any]] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, objective: Objective, shards: Shards) -> ClusterObjective:
        """The same objective, over shards of its rows."""
        return cls(**vars(objective), shards=shards)

    def here(self) -> SingleOutput:
        return SingleOutput(
            **{each.name: getattr(self, each.name) for each in fields(SingleOutput)}
        )

    def over_blocks(
        self, function: Callable[..., Any], vectors: Sequence[Any], *args: Any
    ) -> list[Any]:
        wanted = (function, vectors, args)
        if self._name(wanted) not in self.known:
            more = []
            if function is block_sums.slopes:  # the loss at the same place is asked for next
                more.append((block_sums.loss, vectors, args))
            self.fetch([wanted, *more])
        return self.known[self._name(wanted)]

    def each_block(
        self, function: Callable[..., Any], vectors: Sequence[Any], *args: Any
    ) -> Iterator[Any]:
        self.known.pop(self._name((function, vectors, args)), None)  # they may be large
        found = self.over_blocks(function, vectors, *args)
        del self.known[self._name((function, vectors, args))]
        return iter(found)

    @staticmethod
    def _name(wanted: tuple[Callable[..., Any], Sequence[Any], tuple[Any, ...]]) -> Any:
        function, vectors, args = wanted
        return function.__name__, tuple(v.key for v in vectors), repr(args)

    def fetch(
        self, sums: Sequence[tuple[Callable[..., Any], Sequence[Any], tuple[Any, ...]]]
    ) -> None:
        """Make several sums in one round, and remember them."""
        shards, cluster = self.shards, self.shards.cluster
        while len(self.known) > MOST_REMEMBERED:
            del self.known[next(iter(self.known))]
        asked = [(function, [v.where for v in vectors], args) for function, vectors, args in sums]
        calls = [
            (shard, [[v.futures[k] for v in vectors] for _, vectors, _ in sums], asked)
            for k, shard in enumerate(shards.futures)
        ]
        found = cluster.gather(cluster.submit_all(tasks.block_sums, calls))
        for at, wanted in enumerate(sums):
            self.known[self._name(wanted)] = [part for own in found for part in own[at]]
