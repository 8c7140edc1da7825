"""Collects candidates, the largest |g_j| / f_j and the excess, from sums that a pricer has made."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.features.prices import Box, PriceQuery, Prices, in_units, within
from fcl.objective.limits import cost
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.kernels.candidates import Wanted

#: An integer larger than any sum.
ENDLESS = 1 << 62


def largest(ids: Ids, sizes: Floats, keep: int) -> npt.NDArray[np.intp]:
    """Indices of the largest sizes, the largest first; of equal ones, those with the smaller ids."""
    near = np.arange(len(ids))
    if len(ids) > keep > 0:  # a sort of all would take longer than the search for a bound
        near = np.flatnonzero(sizes >= np.partition(sizes, len(ids) - keep)[len(ids) - keep])
    return near[np.lexsort((ids[near], -sizes[near]))[:keep]]


class Collector:
    """Collects the candidates of a part, the largest |g_j| / f_j and the excess, from arrays of sums.

    Ties are broken by id: the smaller ids are kept. A search may skip features whose bound is at most
    :attr:`edge`.

    searched : whether features may be skipped. Skipped features contribute no excess; a level so low that
        every feature has an excess makes the excess of the part infinite.
    reach : bound on |phi_ij| / f_j, if one bound holds for all features.
    """

    def __init__(
        self, query: PriceQuery, keep: int, *, searched: bool = False, reach: float = 0.0
    ) -> None:
        self._query, self._keep, self._searched = query, keep, searched
        self._bar = query.threshold  # candidates must be above this
        self._level = math.inf if query.level is None else query.level
        self._least = self._level - query.imbalance * reach  # larger |g_j| / f_j may have an excess
        self._endless = searched and self._least <= 0.0  # even skipped features have an excess
        if self._endless:
            self._least = math.inf
        self.reach = reach
        self.largest = 0.0
        self.excess = self.cost = self.widest = 0.0
        self.n_visited = 0
        self._ids, self._values, self._sizes = np.empty(0, np.int64), np.empty(0), np.empty(0)

    @property
    def edge(self) -> float:
        """Features with |g_j| / f_j up to this neither become candidates nor add to the excess."""
        return min(self._bar, self._least)

    def observe(
        self, sums: Floats, factors: Floats | float = 1.0, reach: Floats | float | None = None
    ) -> npt.NDArray[np.intp]:
        """Take the sums of some features into account; returns the indices of possible candidates.

        factors : penalty factors of the features.
        reach : bound on |phi_ij|, of each feature or of all; None: the ``reach`` of the collector, which
            a search must use, since it has skipped features by it.
        """
        assert reach is None or not self._searched
        size = self._query.sizes(sums) / factors
        self.n_visited += len(sums)
        if reach is not None:
            self.reach = max(self.reach, float(np.max(reach / factors, initial=0.0)))
        change = self._query.imbalance * (self.reach if reach is None else reach)
        if self._query.box is not None:
            self._observe_sides(sums, factors, change, self._query.box)
            return np.flatnonzero(size > self._bar)
        balanced = size + change / factors
        self.largest = max(self.largest, float(balanced.max(initial=0.0)))
        if self._least < math.inf:
            above = balanced > self._level
            f = np.broadcast_to(factors, size.shape)[above]
            self.excess += float(np.sum((balanced[above] - self._level) ** 2 * f))
        return np.flatnonzero(size > self._bar)

    def _observe_sides(
        self, sums: Floats, factors: Floats | float, change: Floats | float, box: Box
    ) -> None:
        """Take the sums into account where weights have limits: each sign by itself."""
        for price, most in ((-sums, box.high), (sums, -box.low)):
            size = (price + change) / factors
            self.widest = max(self.widest, float(size.max(initial=0.0)))
            over = np.maximum(size - self._level, 0.0)
            if most < math.inf:
                self.cost += math.fsum(cost(over, factors, most, box.ridge))
            else:
                self.largest = max(self.largest, float(size.max(initial=0.0)))
                self.excess += math.fsum(over**2 * factors)

    def skip(self, bounds: Floats) -> None:
        """Record the bounds of features that are skipped."""
        if len(bounds):
            change = self._query.imbalance * self.reach
            self.largest = max(self.largest, float(bounds.max()) + change)

    def add(self, ids: Ids, sums: Floats, factors: Floats | float = 1.0) -> None:
        """Add candidates except watched features, and keep the largest."""
        known = self._query.known
        new = np.searchsorted(known, ids) == np.searchsorted(known, ids, side="right")
        if not new.any():
            return
        self._ids = np.concatenate([self._ids, ids[new]])
        self._values = np.concatenate([self._values, sums[new]])
        self._sizes = np.concatenate([self._sizes, (np.abs(sums) / factors)[new]])
        if len(self._ids) >= self._keep:
            best = largest(self._ids, self._sizes, self._keep)
            self._ids, self._values = self._ids[best], self._values[best]
            self._sizes = self._sizes[best]
            self._bar = max(self._bar, float(self._sizes[-1]))

    def price_range(
        self,
        first: int,
        sums: Floats,
        factors: Floats | float = 1.0,
        reach: Floats | float | None = None,
    ) -> Prices:
        """The prices of the features from ``first`` on that have these sums; see :meth:`observe`."""
        hits = self.observe(sums, factors, reach)
        self.add(first + hits, sums[hits], factors if isinstance(factors, float) else factors[hits])
        ids = self._query.watched
        watched = np.zeros(len(ids))
        own = within(ids, first, first + len(sums))
        watched[own] = sums[ids[own] - first]
        return self.prices(len(sums), watched)

    def prices(self, n_priced: int, watched: Floats) -> Prices:
        """The prices of the features observed so far."""
        order = np.argsort(self._ids)
        return Prices(
            ids=self._ids[order],
            gradients=self._values[order],
            largest=self.largest,
            watched=watched,
            n_priced=n_priced,
            excess=np.array([math.inf if self._endless else self.excess]),
            reach=self.reach,
            n_visited=self.n_visited,
            cost=self.cost,
            widest=self.widest,
        )


class Heaps:
    """Collects the same as :class:`Collector`, in kernels that search trees of integer sums.

    The parts of a family that are priced one after another share the arrays.

    keep : number of candidates to keep in each part.
    reach : bound on |phi_ij|.
    """

    def __init__(
        self, query: PriceQuery, keep: int, step: float, reach: float, n_parts: int = 1
    ) -> None:
        self._step, self._reach, self._change = step, reach, query.imbalance * reach
        floor = math.inf if query.level is None else (query.level - self._change) / step
        self._endless = floor <= 0.0
        self._floor = math.inf if self._endless else floor
        self._threshold = int(min(query.threshold / step, ENDLESS)) if query.find else ENDLESS
        self._ids, self._sums = np.empty((2, n_parts, keep), np.int64)
        self._found = np.zeros((n_parts, kernels.candidates.FOUND))
        self._wanted, self._side = kernels.candidates.Wanted, query.side

    def wanted(self, part: int, known: Ids, known_sums: npt.NDArray[np.int64]) -> Wanted:
        """What a kernel gets to search a part; see :mod:`fcl.kernels.candidates`.

        part : from 0 to ``n_parts`` - 1.
        known : int64 (k,), the watched features of the part, increasing.
        known_sums : int64 (k,), overwritten with the sums of those that the kernel visits.
        """
        heap = self._ids[part], self._sums[part]
        return self._wanted(
            self._threshold,
            self._floor,
            known,
            known_sums,
            *heap,
            self._found[part],
            self._side,
        )

    def prices(self, n_priced: int) -> Prices:
        """The prices that the kernels found in all parts, without watched sums.

        n_priced : number of features of the parts.
        """
        found, step = self._found, self._step
        kept = np.arange(self._ids.shape[1]) < found[:, kernels.candidates.COUNT, None]
        ids, sums = self._ids[kept], self._sums[kept]
        order = np.argsort(ids, kind="stable")
        largest = found[:, [kernels.candidates.LARGEST, kernels.candidates.SKIPPED]].max(
            initial=0.0
        )
        excess = found[:, kernels.candidates.EXCESS] * step * step
        return Prices(
            ids=ids[order],
            gradients=in_units(sums[order], step),
            largest=float(largest) * step + self._change,
            watched=np.empty(0),
            n_priced=n_priced,
            excess=np.full(len(found), math.inf) if self._endless else excess,
            reach=self._reach,
            n_visited=int(found[:, kernels.candidates.VISITED].sum()),
        )
