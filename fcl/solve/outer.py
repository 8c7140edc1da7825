"""The outer loop's state: the anchor, its certificate, and the choice of features to admit.

It consists of a few numbers and the weights of the anchor. A pass rebuilds everything else from them, so
this state is what a checkpoint holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.prices import Prices
from fcl.model.certificate import Certificate, Scope
from fcl.objective import ROUNDING, relative_gap
from fcl.solve.conditions import Conditions
from fcl.solve.select import Selection, select
from fcl.solve.state import Point
from fcl.types import Floats, Ids

#: Maximum features admitted after a pass: this number, or the number of active features if larger.
LEAST_ADMITTED = 512
#: They violate by more than this share of the trainer's target. A feature that violates less may still
#: enter the model once others have moved, and a column costs less than the pass that would find it.
ADMITTED_SHARE = 0.03
#: Share by which rounding may put an objective below its lower bound; more is an error.
CONTRADICTION = 1e-9
#: The trainer stops at this share of the largest violation over the family.
TRAIN_SHARE = 0.3
#: ... if passes only read lists of nonzeros: steps over these columns take little time. a9a takes 0.85 of
#: the time, 20 newsgroups 0.9; dense columns 1.2, k-mers of 20,000 windows 1.0 to 1.27, and lists with
#: the squared hinge up to 1.25.
LISTS_SHARE = 0.1
#: ... with K outputs that are trained together: a pass costs as much as a few steps.
COUPLED_SHARE = 0.05
#: ... and at most this share once the gap is below FINAL_GAP of the objective: then few columns are still
#: to come, and better weights on the present ones are worth more than the next pass.
FINAL_SHARE = 0.1
FINAL_GAP = 0.1
#: Multiple of the tolerance from which on the next pass is likely to be the last one.
NEAR_END = 30.0
_NOTHING: Ids = np.empty(0, np.int64)


@dataclass(frozen=True)
class Priced:
    """The features that a pass over a sampled family priced: drawn and watched features."""

    drawn: range
    watched: Ids

    @property
    def n(self) -> int:
        return len(self.drawn) + int((~self._fresh(self.watched)).sum())

    def cover(self, ids: Ids) -> bool:
        return bool((self._fresh(ids) | np.isin(ids, self.watched)).all())

    def _fresh(self, ids: Ids) -> npt.NDArray[np.bool_]:
        return (ids >= self.drawn.start) & (ids < self.drawn.stop)


class Certified(Certificate):
    """What a pass proved about the anchor.

    The bound is the best over all passes; for a sampled family, the last pass's. ``max_violation``
    is an upper bound, and ``passes`` is not set.
    """

    def progressed(self, before: Certified | None) -> bool:
        """Whether since ``before`` the objective fell by more than rounding, or the gap by 1 %.

        For a sampled family only the objective counts: bounds of two samples belong to two problems.
        """
        if before is None or self.objective < before.objective * (1.0 - ROUNDING):
            return True
        return self.scope is Scope.FAMILY and self.bound - before.bound > 0.01 * (
            before.objective - before.bound
        )


@dataclass(frozen=True)
class OuterState:
    """What a checkpoint stores of the outer loop; a resumed run recomputes bound and objective."""

    point: Point  #: the anchor
    best: Point | None  #: the anchor whose residuals gave the bound
    objective: float
    bound: float
    max_violation: float
    gap: float  #: absolute, after the last pass
    sharpness: float


class Outer:
    """Anchors and their certificates.

    conditions : of the problem.
    tol : the relative gap to reach.
    n_features : of the family; None if the family is sampled. Each pass over a sampled family certifies
        the problem restricted to the features that it priced, which include all features with a weight.
        Its bound holds for these features only, so the next pass starts without a bound.
    point, objective : the null model and its objective.
    train_share : the trainer stops at this share of the largest violation over the family.
    """

    def __init__(
        self,
        conditions: Conditions,
        tol: float,
        n_features: int | None,
        point: Point,
        objective: float,
        train_share: float = TRAIN_SHARE,
    ) -> None:
        self.conditions = conditions
        self.tol = tol
        self.train_share = train_share
        self.n_features = n_features
        self.point = point
        self.objective = objective
        self.bound = -math.inf
        self.best: Point | None = None  #: the anchor whose residuals gave the bound
        self.max_violation = math.inf
        self.reach = 0.0  #: bound of |phi_ij| / f_j that the last pass relied on
        #: known after the first pricing; infinite after :meth:`restore`, until it is computed again
        self.C_min = math.nan
        self._wanted = _NOTHING  # features to select, whatever their gradients
        self._priced = False  # whether max_violation belongs to this anchor
        self._last: Priced | None = None  # what the last pass over a sampled family priced
        self.gap = math.inf  #: absolute, after the last pass
        self._empty = objective  # the objective of the model without features
        self.sharpness = 1.0  #: factor on the trainer's target, lowered while the gap stands still
        #: |g_j| / f_j of the next point of a path: passes near the end report candidates down to it
        self.next_limit = math.inf

    def accept(self, point: Point, objective: float) -> None:
        """Accept a new anchor, whose objective must not exceed that of the current one."""
        self.point, self.objective, self._priced = point, objective, False

    @property
    def threshold(self) -> float:
        """|g_j| / f_j below which the pricer need not report a feature."""
        if math.isnan(self.C_min):  # the pass over the null model, whose exact maximum gives C_min
            return 0.0
        limit = self.conditions.limit
        near = self.gap <= NEAR_END * self.tol * self.objective
        return min(limit, self.next_limit) if near else limit

    def look_ahead(self, C: float) -> None:
        """Let the last passes report candidates for a larger C, at which the path will continue."""
        if self.conditions.penalty.pure_l1:
            self.next_limit = self.conditions.penalty.limit(C)

    @property
    def priced(self) -> bool:
        return self._priced

    def change_conditions(self, conditions: Conditions, objective: float) -> None:
        """Continue at the same anchor with another C, for which no bound is known yet.

        objective : of the anchor, with the new C.
        """
        self._empty *= conditions.C / self.conditions.C
        self.conditions, self.objective = conditions, objective
        self.bound, self.best, self.next_limit = -math.inf, None, math.inf
        self.max_violation = self.gap = math.inf
        self.sharpness, self._priced, self._wanted = 1.0, False, _NOTHING

    def certify(
        self, prices: Prices, watch: Ids, bound: float, drawn: range | None = None
    ) -> Certified:
        """Record the prices of the anchor, with these features watched, and the dual bound.

        drawn : for a sampled family, the features that the pass drew; the bound holds for the problem
            restricted to drawn and watched features.
        """
        if (drawn is None) != (self.n_features is not None):
            raise ValueError("expected drawn features for a sampled family, and only then")
        violation = self._largest_slope(prices, watch)
        self.reach = prices.reach
        if math.isnan(self.C_min):
            largest = self.conditions.largest(prices, watch)
            self.C_min = self.conditions.penalty.least_C(largest)
        if drawn is None:
            if bound > self.bound:
                self.best = self.point
            bound = max(self.bound, bound)
            reached = True
        else:
            # newly drawn features keep the gap up, which a lower target of the trainer cannot change
            reached = violation - 1.0 <= self.target()
        self._last = None if drawn is None else Priced(drawn, watch)
        gap = self._gap_to(bound)
        lower = reached and gap >= 0.9 * self.gap
        self.sharpness = max(0.3 * self.sharpness, 1e-6) if lower else 1.0
        self.bound, self.gap = bound, gap
        self.max_violation = violation
        self._priced, self._wanted = True, _NOTHING
        return self.certified()

    def _largest_slope(self, prices: Prices, watch: Ids) -> float:
        """An upper bound of |slope_j| over the family, exact above 1; ``watch`` has all weights."""
        conditions = self.conditions
        if conditions.penalty.pure_l1 and not conditions.penalty.limits.exact:
            return float(prices.largest / conditions.limit)
        none = np.zeros_like(prices.gradients)
        candidates = conditions.slopes(prices.ids, prices.gradients, none)
        watched = conditions.slopes(watch, prices.watched, self.point.weights_of(watch))
        # any other feature is below both the threshold and the largest price, or below a candidate
        others = self.threshold / conditions.limit
        if not conditions.penalty.limits.exact:
            others = min(others, prices.largest / conditions.limit)
        return float(np.concatenate([candidates, watched]).max(initial=others))

    @property
    def stands_still(self) -> bool:
        """Whether the gap is above the tolerance and has hardly closed despite two lower targets."""
        certified = self.certified()
        return self.sharpened and certified.scope is Scope.FAMILY and certified.gap > self.tol

    @property
    def sharpened(self) -> bool:
        """Whether the trainer's target was lowered twice since the gap last closed."""
        return self.sharpness < 0.1

    def raise_bound(self, bound: float, wanted: Ids = _NOTHING) -> Certified:
        """Adopt another bound of the whole problem if it is better.

        wanted : features that violate where this bound was proved, which are selected even if rounding
            hides their violations at the anchor.

        Raises InputError for a bound above the objective by more than rounding.
        """
        self._gap_to(bound)
        self._wanted = wanted
        bound = min(bound, self.objective)
        if bound > self.bound:
            self.bound, self.best = bound, self.point
        self.gap = self.objective - self.bound
        return self.certified()

    def _gap_to(self, bound: float) -> float:
        gap = self.objective - bound
        if -gap > CONTRADICTION * max(abs(self.objective), abs(bound)):
            raise InputError(
                f"the objective, {self.objective:.12g}, is below its lower bound, {bound:.12g}: "
                "columns(), margins() and gradients() of the features must agree with each other, and "
                "give the same values as before a checkpoint"
            )
        return gap

    def sharpen(self) -> None:
        """Lower the trainer's target, at which it found no better point."""
        self.sharpness = max(0.3 * self.sharpness, 1e-6)

    def certified(self) -> Certified:
        """The current certificate of the anchor.

        The bound holds for every point, so it certifies a newer anchor too, whose largest violation is
        unknown until it is priced. The bound of a sample holds for points in the features of that sample.
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

    def target(self) -> float:
        """Violation at which the trainer may stop.

        For a violation of delta, scaling the residuals by t = 1 / (1 + delta) lowers the bound by about
        delta * penalty + delta^2 * P, of an allowance of tol * P. With squares in the penalty, unscaled
        residuals lower it by (rho delta)^2 f_j / (2 (1 - rho)) per feature. Going below ``train_share``
        of the largest violation over the family is not worth the trainer's time before the next pass. If
        a pass does not narrow the gap, the target falls.
        """
        lose = 0.3 * self.tol * self.objective
        penalty = max(self.conditions.value(self.point), 1e-3 * self.objective)
        allowed = math.sqrt(0.1 * self.tol)
        if penalty > 0.0:
            allowed = min(allowed, lose / penalty)
        allowed = max(allowed, self._unscaled(lose))
        share = self.train_share
        if self.gap <= FINAL_GAP * self.objective:
            share = min(share, FINAL_SHARE)
        return self.sharpness * max(allowed, share * (self.max_violation - 1.0))

    def _unscaled(self, lose: float) -> float:
        """The violation that lowers the bound by ``lose`` at t = 1 if all weighted features have it."""
        penalty = self.conditions.penalty
        if penalty.pure_l1:
            return 0.0
        factors = self.conditions.factors(self.point.ids)
        cost = penalty.conjugate(1.0, float((penalty.rho**2 * factors).sum()))
        return math.sqrt(lose / cost) if cost > 0.0 else 0.0

    def frozen(self, cached: Ids) -> Point:
        """The anchor's weights of features whose columns are not cached."""
        out = ~np.isin(self.point.ids, cached)
        return Point(self.point.ids[out], self.point.weights[out], 0.0)

    @property
    def most_admitted(self) -> int:
        """Maximum number of features to admit at this anchor."""
        return max(LEAST_ADMITTED, len(self.point.ids))

    def select(
        self, prices: Prices, frozen: Point, frozen_gradients: Floats, cached: Ids
    ) -> Selection:
        """Select the features to make columns of, by violation."""
        tolerance = ADMITTED_SHARE * self.target()
        return select(
            prices,
            frozen_gradients,
            frozen,
            cached,
            self.conditions,
            self.most_admitted,
            tolerance,
            self._wanted,
        )

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self) -> OuterState:
        return OuterState(**{field.name: getattr(self, field.name) for field in fields(OuterState)})

    def restore(self, state: OuterState) -> None:
        """Restore a state, except for its bound.

        A checkpoint is not trusted: its numbers steer the run but prove nothing. The bound and ``C_min``
        are unknown until the point whose residuals gave the bound, and the null model, are priced again.
        The objective is the checkpoint's until the caller recomputes it.
        """
        for field in fields(state):
            setattr(self, field.name, getattr(state, field.name))
        self.bound, self.best, self.C_min = -math.inf, None, math.inf
        self._priced = False

    def confirm(self, value: float) -> None:
        """Check the recomputed objective of a restored anchor; the saved one may differ by rounding.

        Raises InputError if the objective is above that of the model without features, or not finite.
        """
        if not value <= self._empty * (1.0 + CONTRADICTION):
            raise InputError(
                f"the objective at the weights of the checkpoint is {value:.6g}, expected at most that "
                f"of the model without features, {self._empty:.6g}: the checkpoint belongs to other "
                "data, or was edited; start a new job"
            )
        if not value * (1.0 - 2.0 * ROUNDING) <= self.objective <= value:
            self.objective = value

    def prove(self, point: Point, bound: float, claimed: float) -> None:
        """Adopt a recomputed bound, but at most the bound that the checkpoint claims.

        Both come from the residuals at ``point``. The lower one is proved, and matches the bound that the
        run had before the checkpoint. A bound of NaN, at a forged point, proves nothing.
        """
        if not math.isnan(bound):
            self.bound, self.best = min(bound, claimed), point
