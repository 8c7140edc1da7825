"""The choice of features to make columns of after a pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.features.prices import Prices
from fcl.objective.limits import largest_output
from fcl.solve.conditions import Conditions
from fcl.solve.state import Point
from fcl.types import Floats, Ids

#: Relative difference of gradients up to which their columns count as equal.
SAME_GRADIENT = 1e-10


@dataclass(frozen=True)
class Selection:
    """Features to admit, by decreasing violation, each with its current gradient and weight."""

    ids: Ids
    violations: Floats  #: |slope_j| - 1 for weight 0, |slope_j + sign w_j| for a frozen weight
    gradients: Floats  #: (k, K) with K outputs, as the weights
    weights: Floats

    def take(self, which: npt.NDArray[np.intp]) -> Selection:
        return Selection(
            self.ids[which], self.violations[which], self.gradients[which], self.weights[which]
        )


def select(
    prices: Prices,
    frozen_gradients: Floats,
    frozen: Point,
    cached: Ids,
    conditions: Conditions,
    most: int,
    tolerance: float,
    wanted: Ids,
) -> Selection:
    """Select new and frozen features by violation, the largest first.

    Among new features with the same gradient and factor only the first is selected, because their columns
    are most likely equal (a letter that is the same in every window gives many such columns). If they
    differ after all, the next pass can still select the others. Squares in the penalty spread a weight
    over equal columns; then all of them are selected.

    prices : candidates of the pass, with their gradients.
    frozen, frozen_gradients : the anchor's weights of features that are not cached, and their g_j,
        float64 (len(frozen.ids),).
    cached : int64 (n,), ids of the cached features.
    most : maximum number of features.
    tolerance : features that violate by at most this are not selected.
    wanted : int64, candidates that count as violating by as much as the largest violation.
    """
    new = ~np.isin(prices.ids, cached) & ~np.isin(prices.ids, frozen.ids)
    ids, gradients = prices.ids[new], prices.gradients[new]
    if conditions.penalty.pure_l1:
        sizes = conditions.penalty.sizes(gradients)
        first = _first_of_equals(ids, gradients, sizes, conditions.factors(ids))
        every = np.isin(ids, wanted) | ~conditions.penalty.limits.alike(ids)
        first = np.union1d(first, np.flatnonzero(every))
        ids, gradients = ids[first], gradients[first]
    weights = np.zeros_like(gradients)
    violations = conditions.violations(ids, gradients, weights)
    frozen_violations = conditions.violations(frozen.ids, frozen_gradients, frozen.weights)
    ids = np.concatenate([ids, frozen.ids])
    gradients = np.concatenate([gradients, frozen_gradients])
    weights = np.concatenate([weights, frozen.weights])
    violations = np.concatenate([violations, frozen_violations])
    violations[np.isin(ids, wanted)] = max(violations.max(initial=0.0), 2.0 * tolerance)
    order = np.lexsort((ids, -violations))
    order = order[violations[order] > tolerance][:most]
    return Selection(ids[order], violations[order], gradients[order], weights[order])


def _first_of_equals(
    ids: Ids, gradients: Floats, sizes: Floats, factors: Floats
) -> npt.NDArray[np.intp]:
    """Indices of the first feature of each run of equal gradients and factors."""
    order = np.lexsort((ids, -sizes, factors))
    sizes, factors = sizes[order], factors[order]
    away = largest_output(np.abs(np.diff(gradients[order], axis=0)))
    near = np.zeros(len(ids), bool)
    near[1:] = (away <= SAME_GRADIENT * sizes[:-1]) & (factors[:-1] == factors[1:])
    return order[~near]
