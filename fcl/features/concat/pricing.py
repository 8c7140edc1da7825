"""Prices several families, each with its own pricer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.base import MeasuringPricer
from fcl.features.prices import (
    Floats,
    PriceQuery,
    Pricer,
    Progress,
    RowVector,
    Scan,
    merge_prices,
)

if TYPE_CHECKING:
    from fcl.features.concat.family import ConcatFamily


@dataclass(frozen=True)
class OfMember:
    """A request of a member, or the sums that answer it."""

    member: int
    what: Any


class ConcatPricer:
    """Prices several families, each with its own pricer; see :class:`fcl.features.prices.Pricer`.

    The features of a member with factor f have penalty factors f_j = f h_j, where h_j are the member's
    own. So the member's threshold and level are multiplied by f, and its results are divided by f.
    """

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, keep: int) -> None:
        self._family = family
        self.n_parts = family.n_price_parts
        self._pricers: list[Pricer] = [
            member.pricer(family.part(prepared, m), keep) for m, member in enumerate(family.members)
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
            try:
                request, first, last = next(scan)
                while True:
                    sums = yield OfMember(m, request), begin + first * share, begin + last * share
                    request, first, last = scan.send(sums.what)
            except StopIteration as end:
                found = end.value
            watched = np.zeros(len(query.watched))
            watched[own] = found.watched
            f = self._family.factors[m]
            prices.append(
                replace(
                    found,
                    ids=found.ids + self._family.first_ids[m],
                    largest=found.largest / f,
                    watched=watched,
                    excess=found.excess / f,
                    reach=found.reach / f,
                )
            )
        return merge_prices(prices)

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
        )

    def measure(self, s: Floats, parts: range) -> None:
        """See :class:`fcl.features.base.MeasuringPricer`."""
        for m, own_parts in self._own_parts(parts):
            pricer = self._pricers[m]
            assert isinstance(pricer, MeasuringPricer)
            pricer.measure(s, own_parts)
