"""Features with limits of their own: a pass watches them, and bounds what they may gain by themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fcl.features.prices import PriceQuery, Prices
from fcl.features.run import MARGIN
from fcl.objective.limits import cost, sizes
from fcl.solve.conditions import Conditions
from fcl.types import Floats


def with_named(query: PriceQuery, conditions: Conditions) -> PriceQuery:
    """The query that also watches the features with limits of their own.

    Where the bound needs sums over all features, it lists those that count, as far as there is room:
    differences of sums would lose the others beside a feature that pulls at its limit with all its force.
    """
    named, threshold = conditions.penalty.limits.ids, query.threshold
    if query.level is not None:
        threshold = min(threshold, query.level * (1.0 - MARGIN))
    watched = np.append(query.watched, named[np.isin(named, query.watched, invert=True)])
    return replace(query, watched=watched, threshold=threshold)


def apart(
    prices: Prices, query: PriceQuery, caller: PriceQuery, conditions: Conditions, keep: int
) -> Prices:
    """The prices of the family, with the features that have limits of their own taken apart.

    ``largest`` and ``excess`` are then about the other features, and about the infinite limits of these;
    ``cost`` has what these subtract from the bound. The sums of features of other parts are 0, and change
    nothing.

    query : what :func:`with_named` made of ``caller``, the query of the pass.
    keep : most candidates of a part.
    """
    limits, n_watched = conditions.penalty.limits, len(caller.watched)
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
    full = len(prices.ids) >= keep
    both = full and query.box is not None
    other = float(others.size.max(initial=0.0)) if both else others.largest
    bar = max(query.threshold, prices.omitted) + change
    largest = max(min(prices.largest, max(bar, other)), own.largest)
    excess, total = prices.excess, prices.cost
    if query.level is not None:
        level, excess = query.level, np.zeros(len(query.parts))
        if bar <= level and not full:  # no other feature has an excess or a cost
            excess[0] = others.excess(level) + own.excess(level)
            total = others.cost(conditions) + own.cost(conditions)
        else:
            squares = counted.excess(level), own.excess(level)
            excess[0] = _replaced(math.fsum(prices.excess), *squares)
            total = _replaced(prices.cost, counted.cost(conditions), own.cost(conditions))
    else:
        total += own.cost(conditions)
    listed = np.abs(prices.gradients) / f[: len(prices.ids)] > caller.threshold
    new = found[found >= n_watched]
    relative = sizes(sums[new], *limits.of(ids[new])) / factors[new]
    new = new[relative > caller.threshold]
    return _within(
        replace(
            prices,
            ids=np.concatenate([prices.ids[listed], ids[new]]),
            gradients=np.concatenate([prices.gradients[listed], sums[new]]),
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
        return float(self.size[self.most == math.inf].max(initial=0.0))

    def excess(self, level: float) -> float:
        endless = self.most == math.inf
        return math.fsum(self.factors[endless] * np.maximum(self.size[endless] - level, 0.0) ** 2)

    def cost(self, conditions: Conditions) -> float:
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
