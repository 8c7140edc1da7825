"""The penalty on features by their ids, and its optimality conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fcl.features.prices import Prices
from fcl.objective import Penalty
from fcl.objective.limits import sizes
from fcl.solve.state import Point
from fcl.types import Floats, Ids


@dataclass(frozen=True)
class Conditions:
    """The optimality conditions of features of a family.

    Arguments ``gradients`` are g_j, float64 (k,), parallel to ids and weights; both are (k, K) with K
    outputs. Slopes are defined in :mod:`fcl.objective.penalty`: at an optimum |slope| <= 1 where the
    weight is 0.
    """

    penalty: Penalty
    C: float
    factors: Callable[[Ids], Floats]  #: penalty factors of features

    @property
    def limit(self) -> float:
        """The largest |g_j| / f_j at which a weight of 0 meets its optimality condition."""
        return self.penalty.limit(self.C)

    @property
    def ridge(self) -> float:
        """The coefficient of w_j^2 / 2 for a factor of 1, divided by C."""
        return float(self.penalty.ridge(np.ones(1))[0]) / self.C

    def largest(self, prices: Prices, watch: Ids) -> float:
        """The largest |g_j| / f_j in a direction in which a weight of 0 may move."""
        largest, limits = prices.largest, self.penalty.limits
        if limits.exact:
            ids = np.concatenate([prices.ids, watch])
            gradients = np.concatenate([prices.gradients, prices.watched])
            slopes = sizes(gradients, *limits.of(ids)) / self.factors(ids)
            largest = max(largest, float(slopes.max(initial=0.0)))
        return largest

    def value(self, point: Point) -> float:
        return self.penalty.value(point.weights, self.factors(point.ids))

    def slopes(self, ids: Ids, gradients: Floats, weights: Floats) -> Floats:
        """The sizes of the slopes of features with these weights, clamped by limits, float64 (k,)."""
        slopes = self.penalty.slopes(self.C * gradients, weights, self.factors(ids), ids)
        return self.penalty.sizes(slopes)

    def violations(self, ids: Ids, gradients: Floats, weights: Floats) -> Floats:
        """How far the slopes of features with these weights are from optimality, float64 (k,)."""
        return self.penalty.violations(self.C * gradients, weights, self.factors(ids), ids)
