"""Combines the rows, columns and prices of several families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows, SideArrays
from fcl.features.base import (
    BitColumns,
    ColumnMaker,
    Columns,
    DenseColumns,
    Family,
    ListedColumns,
    MeasuringPricer,
    StepColumns,
    empty_columns,
    value_type,
)
from fcl.features.prices import (
    PriceQuery,
    Pricer,
    Prices,
    Progress,
    RowVector,
    Scan,
    merge_prices,
    relay,
)
from fcl.features.run import price_each
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.concat.family import ConcatFamily

#: Records of members begin at multiples of this many bytes, which aligns them for any dtype.
ALIGN = 64


@dataclass(frozen=True)
class Slot:
    """A piece of the record: the family that prepares it, its range of bytes, and its shape."""

    owner: Family
    start: int
    stop: int
    shape: tuple[int, ...]


class PartRows(PreparedRows):
    """A member's part of prepared rows: its records and side arrays, for some row blocks.

    committed : the side arrays of the last committed block, while rows are being selected.
    """

    def __init__(
        self,
        whole: PreparedRows,
        slot: Slot,
        number: int,
        blocks: range | None = None,
        record: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        blocks = whole.numbers(blocks)
        first = blocks.start * whole.block_rows
        last = min(blocks.stop * whole.block_rows, whole.n_rows)
        # no records of its own: the methods below read the records of the whole set
        none = np.empty((0, *slot.shape), np.uint8)
        super().__init__(last - first, whole.block_rows, slot.shape, records=none)
        self._whole, self._slot, self._number, self._first = whole, slot, number, blocks.start
        self._record = record
        self.committed: SideArrays = ()

    @property
    def in_memory(self) -> bool:
        return self._whole.in_memory

    @property
    def at_hand(self) -> bool:
        return self._whole.at_hand

    def writable(self, block: int) -> npt.NDArray[np.uint8]:
        assert self._record is not None
        return self._record[self._slot.start : self._slot.stop].reshape(self._slot.shape)

    def commit(self, block: int, sides: Sequence[np.ndarray]) -> None:
        self.committed = tuple(sides)

    def read(
        self, block: int, part: slice = slice(None)
    ) -> tuple[npt.NDArray[np.uint8], SideArrays]:
        slot = self._slot
        record, _ = self._whole.read(block + self._first, self._bytes(part))
        return record[slot.start : slot.stop].reshape(slot.shape), self.sides(block)

    def reader(self) -> PreparedRows:
        whole, first = self._whole.reader(), self._first
        if whole is self._whole:
            return self
        return PartRows(whole, self._slot, self._number, range(first, first + self.n_blocks))

    def together(self, blocks: range, part: slice) -> list[range]:
        return self._whole.together(blocks, self._bytes(part))

    def _bytes(self, part: slice) -> slice:
        """The bytes of the whole record that hold a range of the first axis."""
        slot = self._slot
        first, stop, _ = part.indices(slot.shape[0])
        row = (slot.stop - slot.start) // slot.shape[0]
        return slice(slot.start + first * row, slot.start + stop * row)

    def sides(self, block: int) -> SideArrays:
        counts, *sides = self._whole.sides(block + self._first)
        first = int(counts[: self._number].sum())
        return tuple(sides[first : first + int(counts[self._number])])

    def close(self) -> None:
        """Do nothing: the whole set owns the rows."""


def joined_sides(sides: Sequence[SideArrays]) -> list[np.ndarray]:
    """Concatenate lists of side arrays, after an array with the length of each list."""
    return [np.array([len(some) for some in sides]), *(a for some in sides for a in some)]


# -- columns ---------------------------------------------------------------------------------------


class ConcatColumns(ColumnMaker):
    """Columns of several families: bits if all are binary, steps if all have one step, else numbers."""

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        # half for the columns that are returned, the rest for the buffers of the members
        super().__init__(family, prepared, buffer_bytes // 2)
        share = buffer_bytes // (2 * len(family.members))
        self._makers: list[ColumnMaker] = [
            member.column_maker(family.part(prepared, m), share)
            for m, member in enumerate(family.members)
        ]

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """Order by member, and within a member in the order that the member prefers."""
        family = self.family
        return np.concatenate(
            [own[self._makers[m].order(family.local(m, ids[own]))] for m, own in family.split(ids)]
            or [np.empty(0, np.intp)]
        )

    def make(self, ids: Ids) -> Sequence[Columns]:
        dtype = value_type(self.prepared.n_rows)
        out = [
            empty_columns(self.family, len(ids), rows.stop - rows.start, dtype)
            for _, rows in self.prepared.blocks()
        ]
        for m, own in self.family.split(ids):
            maker = self._makers[m]
            for at in range(0, len(own), maker.batch):
                some = own[at : at + maker.batch]
                made: Any = maker.make(self.family.local(m, ids[some]))
                for into, block in zip(out, made, strict=True):
                    if isinstance(into, BitColumns):
                        into.bits[some] = block.bits[:, : into.bits.shape[1]]
                    elif isinstance(into, StepColumns):
                        into.steps[some] = block.steps
                    else:
                        into.values[some] = _values(block)
        return out


def _values(columns: Columns) -> npt.NDArray[Any]:
    """Convert columns on a block to an array of values (c, n_rows)."""
    if isinstance(columns, DenseColumns):
        return columns.values
    if isinstance(columns, ListedColumns):
        return columns.dense()
    if isinstance(columns, StepColumns):
        return columns.step * columns.steps
    bits = np.ascontiguousarray(columns.bits).view(np.uint8)
    return np.unpackbits(bits, axis=1, count=columns.n_rows, bitorder="little")


# -- prices ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfMember:
    """A request of a member, or the sums that answer it."""

    member: int
    what: Any


def _of_member(
    m: int, begin: float, share: float, request: Any, first: float, last: float
) -> tuple[OfMember, float, float]:
    """What a scan of all members yields for the tuple that a member's scan yields."""
    return OfMember(m, request), begin + first * share, begin + last * share


class ConcatPricer:
    """Prices several families, each with its own pricer; see :class:`fcl.features.prices.Pricer`.

    The features of a member with factor f have penalty factors f_j = f h_j, where h_j are the member's
    own. So the member's threshold and level are multiplied by f, and its results are divided by f.
    """

    def __init__(
        self, family: ConcatFamily, prepared: PreparedRows, keep: int, team: Team = SERIAL
    ) -> None:
        self._family = family
        self.n_parts = family.n_price_parts
        self._pricers: list[Pricer] = [
            member.pricer(family.part(prepared, m), keep, team)
            for m, member in enumerate(family.members)
        ]

    def accumulate(
        self, request: OfMember, rows: RowVector, blocks: range, progress: Progress
    ) -> OfMember:
        pricer = self._pricers[request.member]
        return replace(request, what=pricer.accumulate(request.what, rows, blocks, progress))

    def merge(self, sums: OfMember, more: OfMember) -> OfMember:
        return replace(sums, what=self._pricers[sums.member].merge(sums.what, more.what))

    def scan(self, query: PriceQuery, step: float) -> Scan:
        of = dict(self._family.split(query.watched))
        prices, done = [], 0
        for m, parts in self._own_parts(query.parts):
            own = of.get(m, np.empty(0, np.intp))
            begin, done = done / len(query.parts), done + len(parts)
            share = len(parts) / len(query.parts)
            scan = self._pricers[m].scan(self._query(m, query, parts, own), step)
            request = partial(_of_member, m, begin, share)
            found = yield from relay(scan, request, lambda sums: sums.what)
            prices.append(self._prices(m, found, query, own))
        return merge_prices(prices)

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`."""
        query, done = queries[0], 0
        of = dict(self._family.split(query.watched))
        prices: list[list[Prices]] = [[] for _ in rows]
        for m, parts in self._own_parts(query.parts):
            own = of.get(m, np.empty(0, np.intp))
            n, begin, done = len(query.parts), done, done + len(parts)

            def share(part: float, n: int = n, begin: int = begin, size: int = len(parts)) -> None:
                progress((begin + part * size) / n)

            asked = [self._query(m, each, parts, own) for each in queries]
            found = price_each(self._pricers[m], asked, rows, blocks, share)
            for output, one in zip(prices, found, strict=True):
                output.append(self._prices(m, one, query, own))
        return [merge_prices(output) for output in prices]

    def _prices(self, m: int, found: Prices, query: PriceQuery, own: Any) -> Prices:
        """The prices of a member in the terms of the whole; ``own`` of the watched features are its."""
        watched = np.zeros(len(query.watched))
        watched[own] = found.watched
        f = self._family.factors[m]
        return replace(
            found,
            ids=found.ids + self._family.first_ids[m],
            largest=found.largest / f,
            watched=watched,
            excess=found.excess / f,
            reach=found.reach / f,
            omitted=found.omitted / f,
            widest=found.widest / f,
        )

    def _own_parts(self, parts: range) -> Iterator[tuple[int, range]]:
        """Yield each member that has some of these parts, with the range of its own parts."""
        bounds = self._family.first_parts
        for m in range(len(self._pricers)):
            first, last = max(parts.start, bounds[m]), min(parts.stop, bounds[m + 1])
            if first < last:
                yield m, range(int(first - bounds[m]), int(last - bounds[m]))

    def _query(self, m: int, query: PriceQuery, parts: range, own: Any) -> PriceQuery:
        f = self._family.factors[m]
        return replace(
            query,
            parts=parts,
            watched=self._family.local(m, query.watched[own]),
            threshold=f * query.threshold,
            level=None if query.level is None else f * query.level,
            box=query.box and replace(query.box, ridge=f * query.box.ridge),
        )

    def measure(self, s: Floats, parts: range) -> None:
        """See :class:`fcl.features.base.MeasuringPricer`."""
        for m, own_parts in self._own_parts(parts):
            pricer = self._pricers[m]
            assert isinstance(pricer, MeasuringPricer)
            pricer.measure(s, own_parts)
