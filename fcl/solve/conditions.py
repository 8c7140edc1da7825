"""The penalty on features by their ids, and the conditions that it sets for an optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fcl.objective import Penalty
from fcl.solve.state import Floats, Ids, Point

__all__ = ["Conditions"]


@dataclass(frozen=True)
class Conditions:
    """When features of a family are optimal. gradients are g_j, float64 (k,), as ids and weights.

    Slopes are those of :mod:`fcl.objective.penalty`: at most 1 in size where the weight is 0.
    """

    penalty: Penalty
    C: float
    factors: Callable[[Ids], Floats]  #: penalty factors of features

    @property
    def limit(self) -> float:
        """The largest |g_j| / f_j at which a feature of weight 0 does not violate."""
        return self.penalty.limit(self.C)

    def value(self, point: Point) -> float:
        """The penalty of a point."""
        return self.penalty.value(point.weights, self.factors(point.ids))

    def slopes(self, ids: Ids, gradients: Floats, weights: Floats) -> Floats:
        """The slopes of features with these weights."""
        return self.penalty.slopes(self.C * gradients, weights, self.factors(ids))

    def violations(self, ids: Ids, gradients: Floats, weights: Floats) -> Floats:
        """How far the slopes of features with these weights are from optimality."""
        return self.penalty.violations(self.C * gradients, weights, self.factors(ids))
