"""The outer loop's state: the anchor, what is proved of it, what is to be made next.

A few numbers and the weights of the anchor; everything else is rebuilt from them by a pass, so this is
what a checkpoint holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.features.base import Prices
from fcl.objective import ROUNDING, relative_gap
from fcl.solve.conditions import Conditions
from fcl.solve.select import Selection, select
from fcl.solve.state import Floats, Ids, Point

#: Features admitted after a pass: at least so many, or as many as are active.
LEAST_ADMITTED = 512
#: The trainer stops at this share of the largest violation over the family.
TRAIN_SHARE = 0.3


@dataclass(frozen=True)
class Certified:
    """What a pass proved of the anchor."""

    objective: float
    bound: float  #: the best over all passes
    gap: float  #: relative
    max_violation: float  #: upper bound of |slope_j| over the family
    n_priced: int

    def progressed(self, before: Certified | None) -> bool:
        """Whether the objective fell by more than rounding since, or the gap by 1 % of itself."""
        if before is None or self.objective < before.objective * (1.0 - ROUNDING):
            return True
        return self.bound - before.bound > 0.01 * (before.objective - before.bound)


class Outer:
    """Anchors and their certificates.

    Parameters
    ----------
    conditions : Conditions
        Of the problem.
    tol : float
        The relative gap that is wanted.
    n_features : int
        Of the family.
    point, objective
        The null model, and its value.
    """

    def __init__(
        self,
        conditions: Conditions,
        tol: float,
        n_features: int,
        point: Point,
        objective: float,
    ) -> None:
        self.conditions = conditions
        self.tol = tol
        self.n_features = n_features
        self.point = point
        self.objective = objective
        self.bound = -math.inf
        self.max_violation = math.inf
        self.C_min = math.nan  #: known after the first pricing
        self._priced = False  # whether max_violation is this anchor's
        self._gap = math.inf  # absolute, after the last pass
        self._sharpness = 1.0  # lowers the target of the trainer while the gap stands still

    def accept(self, point: Point, objective: float) -> None:
        """A new anchor, whose objective is not above that of the one before."""
        self.point, self.objective, self._priced = point, objective, False

    @property
    def threshold(self) -> float:
        """|g_j| / f_j below which the pricer need not report a feature."""
        # the first pass is of the null model: its exact maximum gives C_min
        return 0.0 if math.isnan(self.C_min) else self.conditions.limit

    def certify(self, prices: Prices, watch: Ids, bound: float) -> Certified:
        """A pass priced the anchor, with these features watched; the dual bound."""
        self.max_violation = self._largest_slope(prices, watch)
        if math.isnan(self.C_min):
            self.C_min = self.conditions.penalty.least_C(prices.largest)
        gap = self.objective - max(self.bound, bound)
        self._sharpness = 1.0 if gap < 0.9 * self._gap else max(0.3 * self._sharpness, 1e-6)
        self.bound, self._gap = max(self.bound, bound), gap
        self._priced = True
        return self.certified()

    def _largest_slope(self, prices: Prices, watch: Ids) -> float:
        """An upper bound of |slope_j| over the family, exact above 1; all weights are watched."""
        conditions = self.conditions
        if conditions.penalty.pure_l1:
            return prices.largest / conditions.limit
        candidates = conditions.slopes(prices.ids, prices.gradients, np.zeros(len(prices.ids)))
        watched = conditions.slopes(watch, prices.watched, self.point.weights_of(watch))
        # no other feature is above both the threshold and the candidates
        others = min(self.threshold, prices.largest) / conditions.limit
        return max(others, np.abs(candidates).max(initial=0.0), np.abs(watched).max(initial=0.0))

    def sharpen(self) -> None:
        """The trainer has nothing better to offer at its target: lower that."""
        self._sharpness = max(0.3 * self._sharpness, 1e-6)

    def certified(self) -> Certified:
        """What is proved of the anchor now.

        The bound holds for every point, so it certifies a newer anchor too; what that one violates is
        not known before it is priced.
        """
        return Certified(
            self.objective,
            self.bound,
            relative_gap(self.objective, self.bound),
            self.max_violation if self._priced else math.inf,
            self.n_features,
        )

    @property
    def gap(self) -> float:
        """The absolute gap after the last pass."""
        return self._gap

    def target(self) -> float:
        """Violation at which the trainer may stop.

        Scaling the residuals by t = 1 / (1 + delta) for a violation of delta costs the bound about
        delta * penalty + delta^2 * P, and tol * P is what may be lost. Not scaled, with squares in the
        penalty, they cost it (rho delta)^2 f_j / (2 (1 - rho)) for each feature. Less than 0.3 of the
        largest violation over the family is not worth the trainer's time before the next pass. Where a
        pass has brought the gap no further all the same, the target falls.
        """
        lose = 0.3 * self.tol * self.objective
        penalty = max(self.conditions.value(self.point), 1e-3 * self.objective)
        allowed = math.sqrt(0.1 * self.tol)
        if penalty > 0.0:
            allowed = min(allowed, lose / penalty)
        allowed = max(allowed, self._unscaled(lose))
        return self._sharpness * max(allowed, TRAIN_SHARE * (self.max_violation - 1.0))

    def _unscaled(self, lose: float) -> float:
        """The violation of all features with a weight that costs so much of the bound at t = 1."""
        penalty = self.conditions.penalty
        if penalty.pure_l1:
            return 0.0
        factors = self.conditions.factors(self.point.ids)
        cost = penalty.conjugate(1.0, float((penalty.l1_ratio**2 * factors).sum()))
        return math.sqrt(lose / cost) if cost > 0.0 else 0.0

    def frozen(self, cached: Ids) -> Point:
        """The anchor's weights whose columns are not cached."""
        out = ~np.isin(self.point.ids, cached)
        return Point(self.point.ids[out], self.point.weights[out], 0.0)

    def select(
        self, prices: Prices, frozen: Point, frozen_gradients: Floats, cached: Ids
    ) -> Selection:
        """The features to make columns of, by violation."""
        most = max(LEAST_ADMITTED, len(self.point.ids))
        tolerance = 0.1 * self.target()
        return select(prices, frozen_gradients, frozen, cached, self.conditions, most, tolerance)

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Numbers by name; with the point they make the same object again (:meth:`restore`)."""
        return {
            "objective": self.objective,
            "intercept": self.point.intercept,
            "bound": self.bound,
            "max_violation": self.max_violation,
            "C_min": self.C_min,
            "gap": self._gap,
            "sharpness": self._sharpness,
        }

    def restore(self, state: dict[str, Any], ids: Ids, weights: Floats) -> None:
        """Take up what :meth:`state` gave."""
        self.point = Point(ids, weights, float(state["intercept"]))
        self.objective = float(state["objective"])
        self.bound = float(state["bound"])
        self.max_violation = float(state["max_violation"])
        self.C_min = float(state["C_min"])
        self._gap = float(state["gap"])
        self._sharpness = float(state["sharpness"])
        self._priced = False
