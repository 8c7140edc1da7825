"""Features with limits of their own: a pass watches them, and bounds what they may gain by themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fcl.features.prices import PriceQuery, Prices
from fcl.objective.limits import cost, sizes
from fcl.solve.conditions import Conditions
from fcl.types import Floats, Ids


def unwatched(conditions: Conditions, watch: Ids) -> Ids:
    """The features with limits of their own that a pass would not watch anyway."""
    named = conditions.penalty.limits.ids
    return named[np.isin(named, watch, invert=True)]


def apart(
    prices: Prices, query: PriceQuery, n_watched: int, conditions: Conditions, keep: int
) -> Prices:
    """The prices of the family, with the features that have limits of their own taken apart.

    ``largest`` and ``excess`` are then about the other features, and about the infinite limits of these;
    ``cost`` has what these subtract from the bound. The sums of features of other parts are 0, and change
    nothing.

    query : watches the features that the caller names, ``n_watched`` of them, and :func:`unwatched`.
    keep : most candidates of a part.
    """
    limits = conditions.penalty.limits
    ids, sums = query.watched, prices.watched
    factors = conditions.factors(ids)
    named = np.isin(ids, limits.ids)
    found = np.flatnonzero(named & (sums != 0.0))
    low, high = limits.of(ids[found])
    own = _Sides.of(sums[found], factors[found], low, high, query.imbalance * prices.reach)
    # as the pricer has counted them, or less
    low, high = np.broadcast_to(limits.low, low.shape), np.broadcast_to(limits.high, high.shape)
    counted = _Sides.of(sums[found], factors[found], low, high, 0.0)
    rest = np.concatenate([prices.gradients, sums[~named]])
    f = np.concatenate([conditions.factors(prices.ids), factors[~named]])
    low, high = np.full(len(rest), limits.low), np.full(len(rest), limits.high)
    change = query.imbalance * prices.reach
    others = _Sides.of(rest, f, low, high, change)
    # any other feature is below the threshold, or below a candidate of a full list: of any sign, if both
    # are listed
    full = query.box is not None and len(prices.ids) >= keep
    other = float(others.size.max(initial=0.0)) if full else others.largest
    bar = max(query.threshold, prices.omitted) + change
    largest = max(min(prices.largest, max(bar, other)), own.largest)
    excess = prices.excess
    total = _replaced(prices.cost, counted.cost(conditions), own.cost(conditions))
    if query.level is not None:
        squares = counted.excess(query.level), own.excess(query.level)
        excess = np.zeros(len(query.parts))
        excess[0] = _replaced(math.fsum(prices.excess), *squares)
    new = found[found >= n_watched]
    relative = sizes(sums[new], *limits.of(ids[new])) / factors[new]
    new = new[relative > query.threshold]
    return _within(
        replace(
            prices,
            ids=np.concatenate([prices.ids, ids[new]]),
            gradients=np.concatenate([prices.gradients, sums[new]]),
            watched=sums[:n_watched],
            largest=largest,
            excess=excess,
            cost=total,
            widest=max(prices.widest, prices.largest, float(own.size.max(initial=0.0))),
        ),
        conditions,
        keep * len(query.parts),
    )


@dataclass(frozen=True)
class _Sides:
    """Some features, once for each sign of a weight: |g_j| / f_j, 0 for the other sign, and the limit."""

    size: Floats
    factors: Floats
    most: Floats

    @classmethod
    def of(cls, sums: Floats, f: Floats, low: Floats, high: Floats, change: float) -> _Sides:
        """change : of |g_j| / f_j by balancing."""
        size = np.maximum(np.concatenate([-sums, sums]) / np.tile(f, 2) + change, 0.0)
        return cls(size, np.tile(f, 2), np.concatenate([high, -low]))

    @property
    def largest(self) -> float:
        """The largest size where a weight has no limit."""
        return float(self.size[self.most == math.inf].max(initial=0.0))

    def excess(self, level: float) -> float:
        """See :attr:`Prices.excess`."""
        endless = self.most == math.inf
        return math.fsum(self.factors[endless] * np.maximum(self.size[endless] - level, 0.0) ** 2)

    def cost(self, conditions: Conditions) -> float:
        """See :attr:`Prices.cost`."""
        some = self.most < math.inf
        over = self.size[some] - conditions.limit * (1.0 - 1e-12)
        return math.fsum(cost(over, self.factors[some], self.most[some], conditions.ridge))


def _replaced(total: float, before: float, after: float) -> float:
    """An upper bound of a sum after some of its terms are replaced by others."""
    return max(0.0, total - before) + 1e-14 * total + after


def _within(prices: Prices, conditions: Conditions, room: int) -> Prices:
    """The prices with the largest candidates, if there are too many."""
    if len(prices.ids) <= room:
        return prices
    size = np.abs(prices.gradients) / conditions.factors(prices.ids)
    kept: npt.NDArray[np.intp] = np.sort(np.argsort(-size, kind="stable")[:room])
    return replace(prices, ids=prices.ids[kept], gradients=prices.gradients[kept])
