"""Several families over the same rows, one behind the other, each with a factor in the penalty.

    penalty(w) = sum over members m of f_m penalty_m(w of m)

The ids of a member follow those of the members before it, and so do its parts for pricing. A column that
two members have is legal: of equal columns the optimum uses the one of the smallest factor alone (any of
them where factors are equal). It is also the first to be admitted, since candidates are ranked by
|g_j| / f_j, and the dearer one is then left out as an equal column that could do no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import positive
from fcl.data.prepared import PreparedRows, SideArrays
from fcl.errors import InputError
from fcl.features.base import (
    BalancingPricer,
    BitColumns,
    ColumnMaker,
    Columns,
    DenseColumns,
    Family,
    Floats,
    Ids,
    Pricer,
    Prices,
    Scorer,
    StepColumns,
    column_bits,
    is_sampled,
    merge_prices,
)

if TYPE_CHECKING:
    from fcl.data.base import RowReader

__all__ = ["Concat", "ConcatFamily"]

#: Records of members begin at multiples of this, for whatever numbers are in them.
ALIGN = 64
#: Rows whose margins are summed at a time, about: a member makes its tables once for them.
SUM_ROWS = 1 << 20


class Concat:
    """Several families over the same rows, not yet bound to them.

    Parameters
    ----------
    families : sequence
        Families (``Kmers(8)``, a generator, or their text), or pairs (family, factor) with the factor
        > 0 of its features in the penalty, by default 1. All take the same kind of rows. Another
        ``Concat`` among them stands for its members, their factors multiplied.
    """

    def __init__(self, families: Sequence[Any]) -> None:
        from fcl.features.registry import is_spec, parse_features

        if isinstance(families, str) or not isinstance(families, Sequence) or not families:
            raise InputError(
                "Concat: expected a list of families, or of pairs (family, factor), such as "
                f"[Kmers(8), (Columns(), 2.0)], got {families!r}"
            )
        self.members: tuple[tuple[Any, float], ...] = ()
        for given in families:
            spec, factor = given if isinstance(given, tuple) and len(given) == 2 else (given, 1.0)
            factor = positive("Concat: factor", factor)
            if isinstance(spec, str):
                spec = parse_features(spec)
            if isinstance(spec, Concat):
                self.members += tuple((s, factor * f) for s, f in spec.members)
            elif is_spec(spec):
                self.members += ((spec, factor),)
            else:
                raise InputError(
                    "Concat: expected a family such as Kmers(d=8), a Generator or their text, got "
                    f"{spec!r}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concat) and other.members == self.members

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Concat({list(self.members)!r})"

    def bind(self, rows: RowReader[Any], keep: npt.NDArray[np.bool_] | None = None) -> ConcatFamily:
        """The families over the rows of a data set, as one; keep : those that are trained on."""
        from fcl.features.registry import bind_features, spell_features

        bound = [bind_features(spec, rows, keep) for spec, _ in self.members]
        names = [spell_features(spec) for spec, _ in self.members]
        for family, name in zip(bound, names, strict=True):
            if is_sampled(family):
                raise InputError(
                    f"features {name}: a family that is sampled cannot be one of several, whose proof is "
                    "over all features; give it a number of features"
                )
            if family.row_kind != bound[0].row_kind:
                raise InputError(
                    f"{rows.name}: families of one model read the same kind of rows, but {names[0]} "
                    f"reads {bound[0].row_kind} and {name} reads {family.row_kind}; leave one of them "
                    "out"
                )
        return ConcatFamily(tuple(bound), tuple(factor for _, factor in self.members))


@dataclass(frozen=True)
class _Slot:
    """A piece of the record, and the families that read it."""

    owner: Family
    start: int
    stop: int
    shape: tuple[int, ...]


class _Part(PreparedRows):
    """A member's own part of prepared rows: its records and side arrays, of some row blocks.

    sides : gets what is committed, where rows are being chosen.
    """

    def __init__(
        self,
        whole: PreparedRows,
        slot: _Slot,
        number: int,
        blocks: range | None = None,
        record: npt.NDArray[np.uint8] | None = None,
    ) -> None:
        blocks = range(whole.n_blocks) if blocks is None else blocks
        first = blocks.start * whole.block_rows
        last = min(blocks.stop * whole.block_rows, whole.n_rows)
        self._describe(last - first, whole.block_rows, slot.shape)
        self._whole, self._slot, self._number, self._first = whole, slot, number, blocks.start
        self._record = record
        self.committed: SideArrays = ()

    @property
    def in_memory(self) -> bool:
        return self._whole.in_memory

    def writable(self, block: int) -> npt.NDArray[np.uint8]:
        assert self._record is not None
        return self._record[self._slot.start : self._slot.stop].reshape(self._slot.shape)

    def commit(self, block: int, sides: Sequence[np.ndarray]) -> None:
        self.committed = tuple(sides)

    def read(
        self, block: int, part: slice = slice(None)
    ) -> tuple[npt.NDArray[np.uint8], SideArrays]:
        slot = self._slot
        first, stop, _ = part.indices(slot.shape[0])
        row = (slot.stop - slot.start) // slot.shape[0]
        wanted = slice(slot.start + first * row, slot.start + stop * row)
        record, _ = self._whole.read(block + self._first, wanted)
        return record[slot.start : slot.stop].reshape(slot.shape), self.sides(block)

    def sides(self, block: int) -> SideArrays:
        counts, *sides = self._whole.sides(block + self._first)
        first = int(counts[: self._number].sum())
        return tuple(sides[first : first + int(counts[self._number])])

    def side_bytes(self) -> int:
        return sum(a.nbytes for b in range(self.n_blocks) for a in self.sides(b))

    def close(self) -> None:
        """The rows belong to the whole."""


@dataclass(frozen=True)
class ConcatFamily:
    """Families over the same rows as one; see :class:`fcl.features.base.Family`.

    factors : of the members in the penalty, beside those of their features.
    """

    members: tuple[Family, ...]
    factors: tuple[float, ...]

    # -- what it is ----------------------------------------------------------------------------

    @cached_property
    def first_ids(self) -> Ids:
        """The first id of each member, and the number of features."""
        return np.cumsum([0, *(m.n_features for m in self.members)])

    @cached_property
    def first_parts(self) -> Ids:
        """The first part of each member, and the number of parts."""
        return np.cumsum([0, *(m.n_price_parts for m in self.members)])

    @property
    def n_features(self) -> int:
        return int(self.first_ids[-1])

    @property
    def n_price_parts(self) -> int:
        return int(self.first_parts[-1])

    @property
    def max_abs(self) -> float:
        return max(m.max_abs for m in self.members)

    @property
    def least_factor(self) -> float:
        return min(f * m.least_factor for m, f in zip(self.members, self.factors, strict=True))

    @property
    def binary(self) -> bool:
        return all(m.binary for m in self.members)

    @property
    def step(self) -> float:
        steps = {m.step for m in self.members}
        return steps.pop() if len(steps) == 1 else 0.0

    @property
    def name(self) -> str:
        return " + ".join(m.name for m in self.members)

    @property
    def compared(self) -> bool:
        return any(m.compared for m in self.members)

    def drawn(self, number: int) -> range:
        return range(self.n_features)

    @property
    def row_kind(self) -> str:
        return self.members[0].row_kind

    @property
    def record_key(self) -> object:
        return None

    def penalty_factors(self, ids: Ids) -> Floats:
        out = np.empty(len(ids))
        for m, own in self.split(ids):
            out[own] = self.factors[m] * self.members[m].penalty_factors(self.local(m, ids[own]))
        return out

    def most_block_rows(self) -> int:
        return min(m.most_block_rows() for m in self.members)

    def split(self, ids: Ids) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """The members that have some of these features, and which of the ids are theirs.

        Raises InputError for an id outside the family.
        """
        ids = np.asarray(ids, np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.n_features):
            bad = ids[(ids < 0) | (ids >= self.n_features)][0]
            raise InputError(f"features: id {bad} is outside 0 .. {self.n_features - 1}")
        of = np.searchsorted(self.first_ids, ids, side="right") - 1
        for m in np.unique(of):
            yield int(m), np.flatnonzero(of == m)

    def local(self, m: int, ids: Ids) -> Ids:
        """Ids of a member's features, as the member counts them."""
        return np.asarray(ids, np.int64) - self.first_ids[m]

    @cached_property
    def _names(self) -> list[str]:
        """What members are called in descriptions; numbered where two have one name."""
        names = [str(m.to_config()["family"]).rpartition(":")[2] for m in self.members]
        met: Counter[str] = Counter()
        out = []
        for name in names:
            met[name] += 1
            out.append(f"{name} {met[name]}" if names.count(name) > 1 else name)
        return out

    def describe(self, feature: int) -> str:
        """As the member says, behind its name where there are several."""
        ids = np.array([feature])
        ((m, _),) = self.split(ids)
        text = self.members[m].describe(int(self.local(m, ids)[0]))
        return f"{self._names[m]}: {text}" if len(self.members) > 1 else text

    def to_config(self) -> dict[str, Any]:
        return {
            "family": "concat",
            "members": [m.to_config() for m in self.members],
            "factors": list(self.factors),
        }

    # -- rows ----------------------------------------------------------------------------------

    def read_rows(
        self,
        rows: RowReader[Any],
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        self.check_rows(rows)
        return self.members[0].read_rows(rows, block_rows, keep, first, last)

    def check_rows(self, rows: RowReader[Any]) -> None:
        for member in self.members:
            member.check_rows(rows)

    @cached_property
    def _slot_of(self) -> tuple[int, ...]:
        """Which record each member reads: members that prepare rows alike share one."""
        keys: list[object] = []
        out = []
        for member in self.members:
            key = member.record_key
            if key is None or key not in keys:
                keys.append(object() if key is None else key)
                out.append(len(keys) - 1)
            else:
                out.append(keys.index(key))
        return tuple(out)

    def _slots(self, block_rows: int) -> list[_Slot]:
        """The records side by side, for blocks of so many rows."""
        slots: list[_Slot] = []
        at = 0
        for member, slot in zip(self.members, self._slot_of, strict=True):
            if slot == len(slots):
                shape = member.record_shape(block_rows)
                stop = at + int(np.prod(shape))
                slots.append(_Slot(member, at, stop, shape))
                at = -(-stop // ALIGN) * ALIGN
        return slots

    def part(self, prepared: PreparedRows, m: int, blocks: range | None = None) -> PreparedRows:
        """Prepared rows as a member has them."""
        number = self._slot_of[m]
        return _Part(prepared, self._slots(prepared.block_rows)[number], number, blocks)

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (-(-self._slots(block_rows)[-1].stop // ALIGN) * ALIGN,)

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        sides = []
        for slot in self._slots(self._rows_of(record)):
            own = record[slot.start : slot.stop].reshape(slot.shape)
            sides.append(tuple(slot.owner.prepare(raw, own)))
        return _tagged(sides)

    def _rows_of(self, record: npt.NDArray[np.uint8]) -> int:
        """Rows of the blocks whose record it is, a multiple of 64: the most whose records fit."""
        low, high = 1, 1024
        while low < high:
            middle = (low + high + 1) // 2
            if self.record_shape(64 * middle)[0] <= len(record):
                low = middle
            else:
                high = middle - 1
        return 64 * low

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        record = chosen.writable(number)
        sides = []
        sources = self._slots(prepared.block_rows)
        targets = self._slots(chosen.block_rows)
        for k, (source, target) in enumerate(zip(sources, targets, strict=True)):
            into = _Part(chosen, target, k, record=record)
            source.owner.select(_Part(prepared, source, k), rows, into, number)
            sides.append(into.committed)
        chosen.commit(number, _tagged(sides))

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        blocks = range(prepared.n_blocks) if blocks is None else blocks
        size = max(1, SUM_ROWS // prepared.block_rows)
        used = list(self.split(ids))
        for at in range(blocks.start, blocks.stop, size):
            some = range(at, min(at + size, blocks.stop))
            rows = slice(at * prepared.block_rows, prepared.rows_of(some[-1]).stop)
            total = out[rows]
            total[:] = 0.0
            own_margins = np.empty(len(total))
            for m, own in used:
                part = self.part(prepared, m, some)
                local = self.local(m, ids[own])
                self.members[m].write_margins(part, local, weights[own], own_margins)
                total += own_margins

    def scorer(self, ids: Ids, weights: Floats) -> ConcatScorer:
        return ConcatScorer(
            [
                self.members[m].scorer(self.local(m, ids[own]), weights[own])
                for m, own in self.split(ids)
            ]
        )

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> ConcatPricer:
        return ConcatPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ConcatColumns:
        return ConcatColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        own = 8 * max(SUM_ROWS, block_rows)
        return own + sum(m.workspace_bytes(block_rows, scratch) for m in self.members)

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        total = prepared.side_bytes()
        for m, member in enumerate(self.members):
            part = self.part(prepared, m)
            total += member.extra_bytes(part, pricers) - part.side_bytes()
        return total


def _tagged(sides: Sequence[SideArrays]) -> list[np.ndarray]:
    """Side arrays one after another, and in front how many there are of each."""
    return [np.array([len(some) for some in sides]), *(a for some in sides for a in some)]


class ConcatScorer:
    """A model over several families, for raw rows."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers

    def margins(self, rows: Any) -> Floats:
        """The margins, without the intercept."""
        total = np.zeros(len(rows))
        for scorer in self._scorers:
            total += scorer.margins(rows)
        return total


class ConcatColumns:
    """Columns of several families: bits if all have bits, steps if all have the same, else float32."""

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        self._family, self._prepared = family, prepared
        column = prepared.n_rows * column_bits(family) / 8
        # half for what is handed out, the rest for the members' own
        self.batch = max(1, min(1024, int(buffer_bytes // 2 // max(1, column))))
        share = buffer_bytes // (2 * len(family.members))
        self._makers: list[ColumnMaker] = [
            member.column_maker(family.part(prepared, m), share)
            for m, member in enumerate(family.members)
        ]

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """By member, and there as it says."""
        family = self._family
        return np.concatenate(
            [own[self._makers[m].order(family.local(m, ids[own]))] for m, own in family.split(ids)]
            or [np.empty(0, np.intp)]
        )

    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of at most ``batch`` features, in the order of :meth:`order`."""
        binary, step = self._family.binary, self._family.step
        out: list[Any] = []
        for _, rows in self._prepared.blocks():
            n = rows.stop - rows.start
            out.append(
                BitColumns(np.empty((len(ids), -(-n // 64)), np.uint64), n)
                if binary
                else StepColumns(np.empty((len(ids), n), np.int8), n, step)
                if step
                else DenseColumns(np.empty((len(ids), n), np.float32), n)
            )
        for m, own in self._family.split(ids):
            maker = self._makers[m]
            for at in range(0, len(own), maker.batch):
                some = own[at : at + maker.batch]
                made = maker.make(self._family.local(m, ids[some]))
                for into, block in zip(out, made, strict=True):
                    if binary:
                        into.bits[some] = block.bits[:, : into.bits.shape[1]]  # type: ignore[union-attr]
                    elif step:
                        into.steps[some] = block.steps  # type: ignore[union-attr]
                    else:
                        into.values[some] = _values(block)
        return out


def _values(columns: Columns) -> npt.NDArray[Any]:
    """Values of columns on a block (c, n_rows)."""
    if isinstance(columns, DenseColumns):
        return columns.values
    if isinstance(columns, StepColumns):
        return columns.step * columns.steps
    bits = np.ascontiguousarray(columns.bits).view(np.uint8)
    return np.unpackbits(bits, axis=1, count=columns.n_rows, bitorder="little")


class ConcatPricer:
    """Prices of several families, each by its own pricer.

    With a factor f a member's features have f_j = f h_j, h_j what it says itself: its thresholds and
    levels are f times as high, and what it gives comes divided by f.
    """

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, keep: int) -> None:
        self._family = family
        self._pricers: list[Pricer] = [
            member.pricer(family.part(prepared, m), keep) for m, member in enumerate(family.members)
        ]

    @property
    def balances(self) -> bool:
        """See :class:`fcl.features.base.BalancingPricer`; of those members that have it."""
        return any(p.balances for p in self._pricers if isinstance(p, BalancingPricer))

    @balances.setter
    def balances(self, value: bool) -> None:
        for pricer in self._pricers:
            if isinstance(pricer, BalancingPricer):
                pricer.balances = value

    @property
    def n_parts(self) -> int:
        """The members' parts, one after another."""
        return self._family.n_price_parts

    def _own_parts(self, parts: range | None) -> Iterator[tuple[int, range]]:
        """Members that have some of these parts, and which of their own they are."""
        bounds = self._family.first_parts
        parts = range(self.n_parts) if parts is None else parts
        for m in range(len(self._pricers)):
            first, last = max(parts.start, bounds[m]), min(parts.stop, bounds[m + 1])
            if first < last:
                yield m, range(int(first - bounds[m]), int(last - bounds[m]))

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        """See :class:`fcl.features.base.Pricer`."""
        family = self._family
        of = dict(family.split(watch))
        prices = []
        for m, own_parts in self._own_parts(parts):
            f = family.factors[m]
            own = of.get(m, np.empty(0, np.intp))
            found = self._pricers[m].price(
                residuals,
                family.local(m, watch[own]),
                f * threshold,
                own_parts,
                None if level is None else f * level,
                slack,
            )
            watched = np.zeros(len(watch))
            watched[own] = found.watched
            prices.append(
                replace(
                    found,
                    ids=found.ids + family.first_ids[m],
                    largest=found.largest / f,
                    watched=watched,
                    excess=found.excess / f,
                )
            )
        return merge_prices(prices)

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """See :class:`fcl.features.base.Pricer`."""
        own_parts = dict(self._own_parts(parts))
        return self._of_members(
            ids,
            lambda m, local: self._pricers[m].sums(values, local, own_parts[m]),
            np.float64,
            own_parts,
        )

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        """See :class:`fcl.features.base.Pricer`."""
        return self._of_members(
            ids,
            lambda m, local: self._pricers[m].counts(local, spare),
            np.int64,
            range(len(self._pricers)),
        )

    def _of_members(
        self, ids: Ids, what: Callable[[int, Ids], npt.NDArray[Any]], dtype: Any, among: Any
    ) -> npt.NDArray[Any]:
        out = np.zeros(len(ids), dtype)
        for m, own in self._family.split(ids):
            if m in among:
                out[own] = what(m, self._family.local(m, ids[own]))
        return out
