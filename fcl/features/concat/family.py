"""The combined family: ids, rows and margins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import FEATURES_LIMIT, Family, Scorer, is_sampled
from fcl.features.concat.members import (
    ALIGN,
    ConcatColumns,
    ConcatPricer,
    PartRows,
    Slot,
    joined_sides,
)
from fcl.features.concat.rows import ConcatRows
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.features.motif import Motif

#: Approximate number of rows whose margins are summed at a time; members make their tables once per call.
SUM_ROWS = 1 << 20


@dataclass(frozen=True)
class ConcatFamily(Family):
    """Several families over the same rows, combined into one.

    factors : penalty factors of the members; they multiply the factors of the members' features.
    """

    members: tuple[Family, ...]
    factors: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.members or len(self.members) != len(self.factors):
            raise InputError(
                f"features: expected one factor for each of one or more families, got "
                f"{len(self.members)} families and {len(self.factors)} factors"
            )
        self._check_members()
        total = sum(int(m.n_features) for m in self.members)  # Python integers cannot overflow
        if total >= FEATURES_LIMIT:
            counts = ", ".join(f"{m.name} {m.n_features:,}" for m in self.members)
            raise InputError(
                f"features: expected fewer than 2^62 features together, got {total:,} ({counts}); omit a "
                "family, or make one smaller"
            )

    def _check_members(self) -> None:
        """Raise InputError for members that are sampled, or read different kinds of rows."""
        first = self.members[0]
        for family in self.members:
            if is_sampled(family):
                raise InputError(
                    f"features {family.name}: a sampled family cannot be combined with others, because "
                    "their certificate covers all features; give it a fixed number of features"
                )
            if family.row_kind != first.row_kind:
                raise InputError(
                    "features: the families of a model must read the same kind of rows, but "
                    f"{first.name} reads {first.row_kind} and {family.name} reads {family.row_kind}; "
                    "omit one of them"
                )

    # -- properties ----------------------------------------------------------------------------

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
    def integer_bound(self) -> float:
        return max(m.integer_bound for m in self.members)

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
    def visits_all(self) -> bool:
        return all(m.visits_all for m in self.members)

    @property
    def verifies_columns(self) -> bool:
        return any(m.verifies_columns for m in self.members)

    def user_class(self, feature: int) -> str:
        m, own = self._member_of(feature)
        return self.members[m].user_class(own)

    @property
    def row_kind(self) -> str:
        return self.members[0].row_kind

    @property
    def row_width(self) -> int:
        return self.members[0].row_width

    def resized(self, width: int) -> Family:
        members = tuple(member.resized(width) for member in self.members)
        if any(member.row_width != width for member in members):
            return self
        return ConcatFamily(members, self.factors)

    @property
    def quick_passes(self) -> bool:
        return all(member.quick_passes for member in self.members)

    def rounds_weights(self, n_rows: int) -> bool:
        # a small change of the weight of a large value would matter
        return self.binary and any(member.rounds_weights(n_rows) for member in self.members)

    def penalty_factors(self, ids: Ids) -> Floats:
        out = self.gathered(ids, lambda member, own: member.penalty_factors(own))
        for m, own in self.split(ids):
            out[own] *= self.factors[m]
        return out

    def most_block_rows(self) -> int:
        return min(m.most_block_rows() for m in self.members)

    def split(self, ids: Ids) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
        """Yield each member that has some of these features, with the indices of its features in ``ids``.

        Raises InputError for an id outside the family.
        """
        of = np.searchsorted(self.first_ids, self.checked_ids(ids), side="right") - 1
        for m in np.unique(of):
            yield int(m), np.flatnonzero(of == m)

    def gathered(self, ids: Ids, of: Callable[[Family, Ids], Floats]) -> Floats:
        """What a function of a member and ids of its features gives for some features, float64 (k,)."""
        out = np.empty(len(ids))
        for m, own in self.split(ids):
            out[own] = of(self.members[m], self.local(m, ids[own]))
        return out

    def changed(self, change: Callable[[Family], Family]) -> ConcatFamily:
        """The same with changed members."""
        return ConcatFamily(tuple(map(change, self.members)), self.factors)

    def local(self, m: int, ids: Ids) -> Ids:
        """Convert ids of a member's features to the member's own ids."""
        return np.asarray(ids, np.int64) - self.first_ids[m]

    @cached_property
    def _names(self) -> list[str]:
        """Names of the members in descriptions, numbered if several have the same name."""
        names = [str(m.to_config()["family"]).rpartition(":")[2] for m in self.members]
        met: Counter[str] = Counter()
        out = []
        for name in names:
            met[name] += 1
            out.append(f"{name} {met[name]}" if names.count(name) > 1 else name)
        return out

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The member's description, after the member's name if there are several members."""
        m, own = self._member_of(feature)
        text = self.members[m].describe(own, names)
        return f"{self._names[m]}: {text}" if len(self.members) > 1 else text

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        if len(self.members) == 1:
            return self.members[0].find(texts, names)
        out = np.full(len(texts), -1, np.int64)
        for m, member in enumerate(self.members):
            head = f"{self._names[m]}: "
            own = [at for at, text in enumerate(texts) if text.startswith(head)]
            if own:
                found = member.find([texts[at].removeprefix(head) for at in own], names)
                out[own] = np.where(found < 0, -1, found + self.first_ids[m])
        return out

    def columns_read(self, ids: Ids) -> Ids:
        parts = [
            self.members[m].columns_read(self.local(m, ids[own])) for m, own in self.split(ids)
        ]
        return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def motif(self, feature: int) -> Motif | None:
        m, own = self._member_of(feature)
        return self.members[m].motif(own)

    def _member_of(self, feature: int) -> tuple[int, int]:
        """The member that has a feature, and the feature's id in the member."""
        ids = np.array([feature])
        ((m, _),) = self.split(ids)
        return m, int(self.local(m, ids)[0])

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
        """Index of the record that each member reads; members with identical records share one."""
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

    def _slots(self, block_rows: int) -> list[Slot]:
        """The layout of the members' records, for blocks of ``block_rows`` rows."""
        slots: list[Slot] = []
        at = 0
        for member, slot in zip(self.members, self._slot_of, strict=True):
            if slot == len(slots):
                shape = member.record_shape(block_rows)
                stop = at + int(np.prod(shape))
                slots.append(Slot(member, at, stop, shape))
                at = -(-stop // ALIGN) * ALIGN
        return slots

    def part(self, prepared: PreparedRows, m: int, blocks: range | None = None) -> PreparedRows:
        """A member's part of the prepared rows."""
        number = self._slot_of[m]
        return PartRows(prepared, self._slots(prepared.block_rows)[number], number, blocks)

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (-(-self._slots(block_rows)[-1].stop // ALIGN) * ALIGN,)

    def prepare(
        self, raw: Any, record: npt.NDArray[np.uint8], block_rows: int
    ) -> Sequence[np.ndarray]:
        sides = []
        for slot in self._slots(block_rows):
            own = record[slot.start : slot.stop].reshape(slot.shape)
            sides.append(tuple(slot.owner.prepare(raw, own, block_rows)))
        return joined_sides(sides)

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        record = chosen.writable(number)
        sides = []
        sources = self._slots(prepared.block_rows)
        targets = self._slots(chosen.block_rows)
        for k, (source, target) in enumerate(zip(sources, targets, strict=True)):
            into = PartRows(chosen, target, k, record=record)
            source.owner.select(PartRows(prepared, source, k), rows, into, number)
            sides.append(into.committed)
        chosen.commit(number, joined_sides(sides))

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        blocks = prepared.numbers(blocks)
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

    @property
    def thread_safe(self) -> bool:
        return all(m.thread_safe for m in self.members)

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> ConcatPricer:
        return ConcatPricer(self, prepared, keep, team)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ConcatColumns:
        return ConcatColumns(self, prepared, buffer_bytes)

    def row_view(self) -> ConcatRows:
        return ConcatRows(self.n_features, [m.row_view() for m in self.members], self.first_ids)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        own = 8 * max(SUM_ROWS, block_rows)
        return own + sum(m.workspace_bytes(block_rows, scratch) for m in self.members)

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        members = enumerate(self.members)
        return sum(own.extra_bytes(self.part(prepared, m), pricers) for m, own in members)

    def most_side_bytes(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        slots = self._slots(64)
        counts = np.full(len(entries), 8 * len(slots), np.int64)  # of the side arrays of each
        return sum((slot.owner.most_side_bytes(entries) for slot in slots), counts)


class ConcatScorer:
    """Computes the margins of a model over several families on raw rows."""

    def __init__(self, scorers: Sequence[Scorer]) -> None:
        self._scorers = scorers

    def margins(self, rows: Any) -> Floats:
        """The margins of a block of raw rows, without the intercept: float64 (len(rows),)."""
        total = np.zeros(len(rows))
        for scorer in self._scorers:
            total += scorer.margins(rows)
        return total
