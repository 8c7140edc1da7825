"""Prices of several families: each by its own pricer, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import (
    BalancingPricer,
    Floats,
    Ids,
    MeasuringPricer,
    Pricer,
    Prices,
    merge_prices,
    no_progress,
)

if TYPE_CHECKING:
    from fcl.features.concat.family import ConcatFamily


class ConcatPricer:
    """Prices of several families, each by its own pricer.

    With a factor f a member's features have f_j = f h_j, h_j what it says itself: its thresholds and
    levels are f times as high, and what it gives comes divided by f.
    """

    def __init__(self, family: ConcatFamily, prepared: PreparedRows, keep: int) -> None:
        self._family = family
        self.on_progress: Callable[[float], None] = no_progress
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
    def reach(self) -> float:
        """The largest |value| of all features."""
        members = zip(self._pricers, self._family.members, strict=True)
        return max(getattr(pricer, "reach", member.max_abs) for pricer, member in members)

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
        n_parts, n_done = self.n_parts if parts is None else len(parts), 0

        def on_progress(share: float) -> None:
            self.on_progress((n_done + share * len(own_parts)) / n_parts)

        for m, own_parts in self._own_parts(parts):
            f = family.factors[m]
            self._pricers[m].on_progress = on_progress
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
            n_done += len(own_parts)
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

    def measure(self, s: Floats, parts: range) -> None:
        """See :class:`fcl.features.base.MeasuringPricer`."""
        for m, own_parts in self._own_parts(parts):
            pricer = self._pricers[m]
            assert isinstance(pricer, MeasuringPricer)
            pricer.measure(s, own_parts)

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
