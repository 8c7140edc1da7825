"""Features with limits of their own: a pass watches them, and bounds what they may gain by themselves."""

from __future__ import annotations

import math
from dataclasses import replace

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
    prices: Prices, query: PriceQuery, n_watched: int, conditions: Conditions, room: int
) -> Prices:
    """The prices of the family, with the features that have limits of their own taken apart.

    ``largest`` and ``excess`` are then about the other features, and about the infinite limits of these;
    ``cost`` has what these subtract from the bound. The sums of features of other parts are 0, and change
    nothing.

    query : watches the features that the caller names, ``n_watched`` of them, and :func:`unwatched`.
    room : most candidates to return, of which there is at least one for each feature that violates.
    """
    limits, penalty = conditions.penalty.limits, conditions.penalty
    ids, sums = query.watched, prices.watched
    f = conditions.factors(ids)
    change = query.imbalance * prices.reach
    named = np.isin(ids, limits.ids)
    others = query.sizes(np.concatenate([prices.gradients, sums[~named]]))
    others /= np.concatenate([conditions.factors(prices.ids), f[~named]])
    # any other feature is below the threshold, or below a candidate
    bar = max(query.threshold, prices.omitted, float(others.max(initial=0.0)))
    found = np.flatnonzero(named & (sums != 0.0))
    low, high = limits.of(ids[found])
    own, f = sums[found], f[found]
    largest = min(prices.largest, bar + change)
    excess, total = prices.excess, 0.0
    if query.level is not None:
        excess = excess.copy()
        excess[0] -= _square(query.sizes(own) / f - query.level, f)
        excess[0] = max(0.0, excess[0]) + 1e-14 * float(prices.excess[0])
    for price, most in ((-own, high), (own, -low)):
        size = price / f + change
        infinite = most == math.inf
        largest = max(largest, float(size[infinite].max(initial=0.0)))
        if query.level is not None:
            excess[0] += _square(size[infinite] - query.level, f[infinite])
        over = size[~infinite] - conditions.limit
        ridge = (1.0 - penalty.l1_ratio) / conditions.C
        total += math.fsum(cost(over, f[~infinite], most[~infinite], ridge))
    new = found[found >= n_watched]
    pull = sizes(sums[new], *limits.of(ids[new])) / conditions.factors(ids[new])
    new = new[pull > query.threshold]
    return _within(
        replace(
            prices,
            ids=np.concatenate([prices.ids, ids[new]]),
            gradients=np.concatenate([prices.gradients, sums[new]]),
            watched=sums[:n_watched],
            largest=largest,
            excess=excess,
            cost=total,
        ),
        conditions,
        room,
    )


def _square(over: Floats, f: Floats) -> float:
    return math.fsum(f * np.maximum(over, 0.0) ** 2)


def _within(prices: Prices, conditions: Conditions, room: int) -> Prices:
    """The prices with the largest candidates, if there are too many."""
    if len(prices.ids) <= room:
        return prices
    size = np.abs(prices.gradients) / conditions.factors(prices.ids)
    kept: npt.NDArray[np.intp] = np.sort(np.argsort(-size, kind="stable")[:room])
    return replace(prices, ids=prices.ids[kept], gradients=prices.gradients[kept])
