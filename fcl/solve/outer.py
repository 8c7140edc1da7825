"""The outer loop's state: the anchor, what is proved of it, what is to be made next.

A few numbers and the weights of the anchor; everything else is rebuilt from them by a pass, so this is
what a checkpoint holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.prices import Prices
from fcl.model.certificate import Scope
from fcl.objective import ROUNDING, relative_gap
from fcl.solve.conditions import Conditions
from fcl.solve.select import Selection, select
from fcl.solve.state import Floats, Ids, Point

#: Features admitted after a pass: at least so many, or as many as are active.
LEAST_ADMITTED = 512
#: Share by which an objective may lie below its bound before rounding no longer explains it.
CONTRADICTION = 1e-9
#: The trainer stops at this share of the largest violation over the family.
TRAIN_SHARE = 0.3


@dataclass(frozen=True)
class Priced:
    """The features that a pass over a sampled family priced: drawn ones, and watched ones."""

    drawn: range
    watched: Ids

    @property
    def n(self) -> int:
        """Number of features."""
        return len(self.drawn) + int((~self._fresh(self.watched)).sum())

    def cover(self, ids: Ids) -> bool:
        """Whether the pass priced all these features."""
        return bool((self._fresh(ids) | np.isin(ids, self.watched)).all())

    def _fresh(self, ids: Ids) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (ids >= self.drawn.start) & (ids < self.drawn.stop)
        return found


@dataclass(frozen=True)
class Certified:
    """What a pass proved of the anchor, as ``scope`` says: over all features, or those it has priced."""

    objective: float
    bound: float  #: the best over all passes; of a sampled family that of the pass alone
    gap: float  #: relative
    max_violation: float  #: upper bound of |slope_j| over the family
    n_priced: int
    scope: Scope = Scope.FAMILY

    def progressed(self, before: Certified | None) -> bool:
        """Whether the objective fell by more than rounding since, or the gap by 1 % of itself.

        Bounds of two samples are of two problems, and say nothing of progress.
        """
        if before is None or self.objective < before.objective * (1.0 - ROUNDING):
            return True
        return self.scope is Scope.FAMILY and self.bound - before.bound > 0.01 * (
            before.objective - before.bound
        )


@dataclass(frozen=True)
class OuterState:
    """What a checkpoint saves of the outer loop; only the points can be proved again."""

    point: Point  #: the anchor
    best: Point | None  #: the anchor whose residuals gave the bound
    objective: float
    bound: float
    max_violation: float
    gap: float  #: absolute, after the last pass
    sharpness: float


class Outer:
    """Anchors and their certificates.

    Parameters
    ----------
    conditions : Conditions
        Of the problem.
    tol : float
        The relative gap that is wanted.
    n_features : int or None
        Of the family; None: it is sampled, and every pass proves something of the problem restricted to
        the features that it priced, which hold all with a weight. A bound holds for the
        features of its own pass only, so the next pass starts without one.
    point, objective
        The null model, and its value.
    """

    def __init__(
        self,
        conditions: Conditions,
        tol: float,
        n_features: int | None,
        point: Point,
        objective: float,
    ) -> None:
        self.conditions = conditions
        self.tol = tol
        self.n_features = n_features
        self.point = point
        self.objective = objective
        self.bound = -math.inf
        self.best: Point | None = None  #: the anchor whose residuals gave the bound
        self.max_violation = math.inf
        self.reach = 0.0  #: bound of |phi_ij| / f_j that the last pass relied on
        #: known after the first pricing; infinite if that was before a checkpoint, which proves nothing
        self.C_min = math.nan
        self._priced = False  # whether max_violation is this anchor's
        self._last: Priced | None = None  # of a sampled family: what the last pass priced
        self._gap = math.inf  # absolute, after the last pass
        self._empty = objective  # the objective of the model without features
        self._sharpness = 1.0  # lowers the target of the trainer while the gap stands still

    def accept(self, point: Point, objective: float) -> None:
        """A new anchor, whose objective is not above that of the one before."""
        self.point, self.objective, self._priced = point, objective, False

    @property
    def threshold(self) -> float:
        """|g_j| / f_j below which the pricer need not report a feature."""
        # the first pass is of the null model: its exact maximum gives C_min
        return 0.0 if math.isnan(self.C_min) else self.conditions.limit

    def certify(
        self, prices: Prices, watch: Ids, bound: float, drawn: range | None = None
    ) -> Certified:
        """A pass priced the anchor, with these features watched; the dual bound.

        drawn : of a sampled family, the features that the pass has drawn; the bound is of the problem
            with them and the watched ones.
        """
        if (drawn is None) != (self.n_features is not None):
            raise ValueError("a sampled family, and no other, has to say what was priced")
        violation = self._largest_slope(prices, watch)
        self.reach = prices.reach
        if math.isnan(self.C_min):
            self.C_min = self.conditions.penalty.least_C(prices.largest)
        if drawn is None:
            if bound > self.bound:
                self.best = self.point
            bound = max(self.bound, bound)
            standing = True
        else:
            # features drawn just now keep the gap up, which is no fault of the trainer
            standing = violation - 1.0 <= self.target()
        self._last = None if drawn is None else Priced(drawn, watch)
        gap = self._gap_to(bound)
        lower = standing and gap >= 0.9 * self._gap
        self._sharpness = max(0.3 * self._sharpness, 1e-6) if lower else 1.0
        self.bound, self._gap = bound, gap
        self.max_violation = violation
        self._priced = True
        return self.certified()

    def _largest_slope(self, prices: Prices, watch: Ids) -> float:
        """An upper bound of |slope_j| over the family, exact above 1; all weights are watched."""
        conditions = self.conditions
        if conditions.penalty.pure_l1:
            return float(prices.largest / conditions.limit)
        candidates = conditions.slopes(prices.ids, prices.gradients, np.zeros(len(prices.ids)))
        watched = conditions.slopes(watch, prices.watched, self.point.weights_of(watch))
        # no other feature is above both the threshold and the candidates
        others = min(self.threshold, prices.largest) / conditions.limit
        slopes = np.abs(np.concatenate([candidates, watched]))
        return float(max(others, slopes.max(initial=0.0)))

    @property
    def stands_still(self) -> bool:
        """Whether two passes in a row have hardly closed the gap, which is above the tolerance."""
        certified = self.certified()
        return (
            self._sharpness < 0.1 and certified.scope is Scope.FAMILY and certified.gap > self.tol
        )

    def raise_bound(self, bound: float) -> Certified:
        """Take another bound of the whole problem, if it is better.

        Raises InputError for a bound above the objective by more than rounding.
        """
        self._gap_to(bound)
        bound = min(bound, self.objective)
        if bound > self.bound:
            self.bound, self.best = bound, self.point
        self._gap = self.objective - self.bound
        return self.certified()

    def _gap_to(self, bound: float) -> float:
        gap = self.objective - bound
        if -gap > CONTRADICTION * max(abs(self.objective), abs(bound)):
            raise InputError(
                f"the objective, {self.objective:.12g}, is below its lower bound, {bound:.12g}: "
                "columns(), margins() and gradients() of the features must agree, and be the same as "
                "before a checkpoint"
            )
        return gap

    def sharpen(self) -> None:
        """The trainer has nothing better to offer at its target: lower that."""
        self._sharpness = max(0.3 * self._sharpness, 1e-6)

    def certified(self) -> Certified:
        """What is proved of the anchor now.

        The bound holds for every point, so it certifies a newer anchor too; what that one violates is
        not known before it is priced. A sample's bound holds for points in the features of that sample.
        """
        bound, n_priced, scope = self.bound, self.n_features, Scope.FAMILY
        if n_priced is None:
            last = self._last
            if last is None or not last.cover(self.point.ids):
                bound, n_priced = -math.inf, 0
                scope = Scope.NOTHING
            else:
                n_priced = last.n
                scope = Scope.SAMPLE if self._priced else Scope.SAMPLE_BEFORE
        return Certified(
            self.objective,
            bound,
            relative_gap(self.objective, bound),
            self.max_violation if self._priced else math.inf,
            n_priced,
            scope,
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
        largest violation over the family is not worth the trainer's time before the next pass. If a pass
        does not narrow the gap, the target falls.
        """
        lose = 0.3 * self.tol * self.objective
        penalty = max(self.conditions.value(self.point), 1e-3 * self.objective)
        allowed = math.sqrt(0.1 * self.tol)
        if penalty > 0.0:
            allowed = min(allowed, lose / penalty)
        allowed = max(allowed, self._unscaled(lose))
        return self._sharpness * max(allowed, TRAIN_SHARE * (self.max_violation - 1.0))

    def _unscaled(self, lose: float) -> float:
        """The violation of every feature with a weight that lowers the bound by ``lose`` at t = 1."""
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

    def state(self) -> OuterState:
        """For :meth:`restore`."""
        return OuterState(
            self.point,
            self.best,
            self.objective,
            self.bound,
            self.max_violation,
            self._gap,
            self._sharpness,
        )

    def restore(self, state: OuterState) -> None:
        """Restore a state, apart from what it claims to prove.

        A checkpoint may come from anywhere: its numbers choose the path but prove nothing. The bound and
        ``C_min`` are unknown until the point whose residuals gave the bound is priced again. The
        objective is what the checkpoint says until the caller has computed it anew.
        """
        self.point = state.point
        self.objective = state.objective
        self.bound, self.best, self.C_min = -math.inf, None, math.inf
        self.max_violation = state.max_violation
        self._gap = state.gap
        self._sharpness = state.sharpness
        self._priced = False

    def confirm(self, value: float) -> None:
        """Take the objective computed at a restored anchor; the saved one may differ by rounding.

        Raises InputError if the objective is above that of the model without features, or not finite.
        """
        if not value <= self._empty * (1.0 + CONTRADICTION):
            raise InputError(
                f"the objective at the weights of the checkpoint is {value:.6g}, expected at most that "
                f"of the model without features, {self._empty:.6g}: the checkpoint is of other data, or "
                "was changed by hand; start anew"
            )
        if not value * (1.0 - 2.0 * ROUNDING) <= self.objective <= value:
            self.objective = value

    def prove(self, point: Point, bound: float, claimed: float) -> None:
        """Take the bound that the residuals at a point prove; a checkpoint claimed one from them as well.

        The lower of the two is proved, and is the bound that the run had before the checkpoint.
        """
        self.bound, self.best = min(bound, claimed), point
