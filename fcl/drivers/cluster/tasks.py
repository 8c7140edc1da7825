"""What workers do: pure functions of shards and vectors, each of which Dask may run again anywhere.

A shard is a run of row blocks. Blocks have the numbers of the shard here, from 0 on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data import open_data
from fcl.data.prepared import PreparedRows
from fcl.drivers.cluster.client import worker_address
from fcl.drivers.cluster.packed import Packed
from fcl.errors import InputError
from fcl.features.base import Family
from fcl.features.prices import PriceQuery, Prices, RowVector, answer, ones
from fcl.features.run import run
from fcl.objective import SingleOutput
from fcl.solve.margins import write_features
from fcl.solve.state import Point
from fcl.types import Floats, Ids

# -- data ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowSource:
    """How a worker opens the rows, and how it recognises them."""

    path: str
    x: str
    n_rows: int
    fingerprint: str  #: of the rows alone
    #: of an object store; those that the user has in the environment only must be there on workers, too
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, data: Any) -> RowSource:
        """Of the rows of a data set that has a ``source``."""
        path, x = data.source["source"], data.source["x"]
        options = tuple(sorted(data.source.get("storage_options", {}).items()))
        rows = open_data(path, x=x, y=None, storage_options=dict(options))
        return cls(path, x, rows.n_rows, rows.fingerprint(), options)

    def open(self) -> Any:
        """The data set, without target; InputError if it is not here or not the client's."""
        try:
            data = open_data(self.path, x=self.x, y=None, storage_options=dict(self.options))
        except InputError as error:
            raise InputError(
                f"sees no {self.path} ({error}); put the data where all workers see them under this name"
            ) from error
        if self not in _SEEN:
            if data.n_rows != self.n_rows or data.fingerprint() != self.fingerprint:
                raise InputError(
                    f"sees other data under {self.path}: expected {self.n_rows:,} rows as the client has "
                    f"them, got {data.n_rows:,} rows that differ; copy the data again"
                )
            _SEEN.add(self)
        return data


#: sources that this process has compared with the client's
_SEEN: set[RowSource] = set()


def check_source(source: RowSource) -> None:
    """Raise InputError unless this worker sees the rows that the client sees."""
    source.open()


def empty_rows(family: Family, block_rows: int) -> PreparedRows:
    """Prepared rows without rows."""
    return PreparedRows(0, block_rows, family.record_shape(block_rows))


class Shard:
    """Prepared rows of a run of blocks, and the objective over them.

    It also keeps pricers that are not in use, because some take long to make. Another process that
    receives the shard makes its own.
    """

    def __init__(self, family: Family, rows: PreparedRows, objective: SingleOutput) -> None:
        self.family, self.rows, self.objective = family, rows, objective
        self._pricers: list[tuple[int, Any]] = []

    def __getstate__(self) -> Any:
        return {**vars(self), "_pricers": []}

    def __sizeof__(self) -> int:
        """Bytes, by which Dask decides where tasks run."""
        whole = self.rows.n_blocks * int(np.prod(self.rows.record_shape))
        return whole + int(self.rows.side_bytes().sum()) + 16 * self.rows.n_rows

    @contextmanager
    def pricer(self, keep: int) -> Iterator[Any]:
        """A pricer over the rows that no other thread uses."""
        try:
            kept, pricer = self._pricers.pop()
        except IndexError:
            kept, pricer = keep, None
        if pricer is None or kept != keep:
            pricer = self.family.pricer(self.rows, keep)
        yield pricer
        self._pricers.append((keep, pricer))


def unpack_mask(packed: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.bool_]:
    """The mask of the rows that are used, from its bits."""
    return np.unpackbits(packed, count=n).astype(bool)


def prepare(
    shared: tuple[RowSource, Family, SingleOutput],
    first: int,
    n: int,
    keep: npt.NDArray[np.bool_] | None,
    vectors: Sequence[Packed | None],
) -> Shard:
    """Read and prepare the rows first .. first + n - 1 of those used.

    shared : what all shards need; the objective is without its rows.  vectors : targets, weights and
        offsets of these rows.
    """
    source, family, like = shared
    try:
        data = source.open()
    except InputError as error:  # on a worker that joined after all others were checked
        raise InputError(f"dask: worker {worker_address()}: {error}") from error
    size = like.block_rows
    rows = PreparedRows(n, size, family.record_shape(size))
    for start, _, raw in family.read_rows(data.rows, size, keep, first, first + n):
        number = (start - first) // size
        sides = tuple(family.prepare(raw, rows.writable(number), size))
        rows.commit(number, sides)
    data.check_unchanged()
    y, s, offset = (None if packed is None else packed.values() for packed in vectors)
    assert y is not None and s is not None
    return Shard(family, rows, _of_rows(like, y, s, offset, first))


def _of_rows(
    like: SingleOutput, y: Floats, s: Floats, offset: Floats | None, first: int
) -> SingleOutput:
    return SingleOutput(
        like.loss,
        y,
        s,
        like.C,
        like.intercept,
        like.block_rows,
        penalty=like.penalty,
        offset=offset,
        first_row=first,
    )


def describe(shard: Shard) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    """Checksums, and bytes of the side arrays, of the blocks."""
    return shard.rows.checksums, shard.rows.side_bytes()


def join(shards: Sequence[Shard]) -> Shard:
    """All rows in one shard."""
    first = shards[0]
    n = sum(shard.rows.n_rows for shard in shards)
    size = first.rows.block_rows
    rows = PreparedRows(n, size, first.rows.record_shape)
    number = 0
    for shard in shards:
        for block in range(shard.rows.n_blocks):
            record, sides = shard.rows.read(block)
            rows.writable(number)[...] = record
            rows.commit(number, sides)
            number += 1
    y, s = (np.concatenate([getattr(x.objective, name) for x in shards]) for name in ("y", "s"))
    offsets = [own for shard in shards if (own := shard.objective.offset) is not None]
    offset = np.concatenate(offsets) if offsets else None
    return Shard(first.family, rows, _of_rows(first.objective, y, s, offset, 0))


def pick(shard: Shard, rows: Ids) -> list[tuple[int, np.ndarray, tuple[np.ndarray, ...]]]:
    """Some rows, by increasing numbers in the shard: (number of rows, record, side arrays) of blocks."""
    found = []
    for at in range(0, len(rows), shard.rows.block_rows):
        some = rows[at : at + shard.rows.block_rows]
        size = -(-len(some) // 64) * 64
        chosen = PreparedRows(len(some), size, shard.family.record_shape(size))
        shard.family.select(shard.rows, some, chosen, 0)
        found.append((len(some), *chosen.read(0)))
    return found


# -- vectors ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Where:
    """Which numbers of a task's result a vector is: a row of it, or all; on a grid with this step."""

    row: int | None = None
    step: float = 0.0

    def of(self, found: Floats) -> Floats:
        """The numbers, before they are truncated to the grid."""
        return found if self.row is None else found[self.row]

    def rows(self, found: Floats, units: bool = False) -> RowVector:
        """The numbers on their grid; units : whether to store them as integers, for many readings."""
        values = self.of(found)
        stored = np.empty(len(values), np.int64) if units and self.step else None
        return RowVector(values, self.step, stored)


def start_margins(shard: Shard) -> Floats:
    """Margins of the model without features."""
    offset = shard.objective.offset
    return np.zeros(shard.rows.n_rows) if offset is None else offset.copy()


def features(shard: Shard, point: Point) -> Floats:
    """Sums of weights times features."""
    out = np.empty(shard.rows.n_rows)
    write_features(shard.family, shard.rows, point, out)
    return out


def margins(shard: Shard, point: Point) -> Floats:
    """Margins of a point, with offsets and without its intercept."""
    out = features(shard, point)
    if shard.objective.offset is not None:
        out += shard.objective.offset
    return out


def subtract(m: Floats, start: Floats) -> Floats:
    """The difference of two vectors."""
    return m - start


def residuals(shard: Shard, m: Floats, b: float) -> Floats:
    """Residuals and curvatures, float64 (2, n)."""
    out = np.empty((2, len(m)))
    shard.objective.residuals_curvatures(m, out[0], out[1], b)
    return out


def take(found: Floats, where: Where, rows: Ids) -> Floats:
    """The numbers of some rows."""
    return where.of(found)[rows]


def whole(found: Sequence[Floats], where: Where) -> Floats:
    """The numbers of all rows."""
    return np.concatenate([where.of(own) for own in found])


#: A function of :mod:`fcl.objective.block_sums`, the vectors' places, and further arguments.
Sum = tuple[Callable[..., Any], Sequence[Where], tuple[Any, ...]]


def block_sums(shard: Shard, found: Sequence[Sequence[Floats]], sums: Sequence[Sum]) -> Any:
    """Several sums over the rows of each block: for each of them a list by blocks.

    found : for each sum the vectors of its places.
    """
    out = []
    for vectors, (function, places, args) in zip(found, sums, strict=True):
        values = [
            at.rows(own) if at.step else at.of(own) for own, at in zip(vectors, places, strict=True)
        ]
        out.append(shard.objective.over_blocks(function, values, *args))
    return out


# -- prices ----------------------------------------------------------------------------------------


def identity(value: Any) -> Any:
    """A value as a task of its own, which is sent once and not with each task that needs it."""
    return value


def _no_progress(share: float) -> None:
    pass


def _rows_of(found: Floats | None, where: Where) -> RowVector:
    return ones() if found is None else where.rows(found, units=True)


#: Sums for the scans of some groups of parts: for each group a list by its requests.
Sums = list[list[Any]]


def tables(
    shard: Shard,
    found: Floats | None,
    where: Where,
    requests: Sequence[Sequence[Any]],
    keep: int,
    before: Sums | None,
) -> Sums:
    """The sums over a shard that scans will request.

    found : None for a vector of ones.  requests : of each group.  before : sums of other shards to add.
    """
    rows, blocks = _rows_of(found, where), range(shard.rows.n_blocks)
    with shard.pricer(keep) as pricer:

        def make(request: Any, more: Any) -> Any:
            sums = pricer.accumulate(request, rows, blocks, _no_progress)
            if more is not None:
                sums = pricer.merge(sums, more)
            return copy.deepcopy(sums)  # out of the pricer's buffer

        return [
            list(map(make, asked, before[group] if before is not None else [None] * len(asked)))
            for group, asked in enumerate(requests)
        ]


def watched(shard: Shard, found: Floats | None, where: Where, query: PriceQuery, keep: int) -> Ids:
    """The sums of the watched features over a shard, in steps."""
    rows, blocks = _rows_of(found, where), range(shard.rows.n_blocks)
    with shard.pricer(keep) as pricer:
        units: Ids = answer(
            pricer.watched_units(query),
            lambda request, *shares: pricer.accumulate(request, rows, blocks, _no_progress),
        )
        return units


def _add(pricer: Any, found: Sequence[Any]) -> Any:
    """Add sums, which are the results of other tasks and must not change."""
    if len(found) == 1:
        return found[0]
    total = copy.deepcopy(found[0])
    for more in found[1:]:
        total = pricer.merge(total, more)
    return total


def add_group(family: Family, block_rows: int, group: int, found: Sequence[Sums]) -> Sums:
    """The sums of one group from several tables."""
    pricer = family.pricer(empty_rows(family, block_rows), 1)
    return [[_add(pricer, sums) for sums in zip(*(own[group] for own in found), strict=True)]]


def scan(
    family: Family,
    block_rows: int,
    query: PriceQuery,
    parts: range,
    keep: int,
    step: float,
    found: Sequence[Sums],
) -> tuple[Prices, int]:
    """The prices of one group of parts from its sums over several sets of rows, and their bytes."""
    pricer: Any = family.pricer(empty_rows(family, block_rows), keep)
    requested = zip(*(own[0] for own in found), strict=True)
    prices = answer(
        pricer.scan(query.of_parts(parts), step),
        lambda request, *shares: _add(pricer, next(requested)),
    )
    return prices, sum(size_of(own) for own in found)


def size_of(sums: Any) -> int:
    """Bytes of the arrays in a result."""
    if isinstance(sums, np.ndarray):
        return sums.nbytes
    if isinstance(sums, list | tuple):
        return sum(map(size_of, sums))
    return sum(map(size_of, vars(sums).values())) if hasattr(sums, "__dict__") else 0


def price(
    rows: Shard, found: Floats | None, where: Where, query: PriceQuery, parts: range, keep: int
) -> tuple[Prices, int]:
    """The prices of some parts, in a task that has all rows; and the bytes of the vector."""
    with rows.pricer(keep) as pricer:
        prices = run(
            pricer, query.of_parts(parts), _rows_of(found, where), range(rows.rows.n_blocks)
        )
    return prices, 0 if found is None else found.nbytes
