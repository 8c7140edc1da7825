"""The trainer's side: the local problem on the cached columns, from anchor to anchor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.cache import LiveColumns, evict_order
from fcl.features.steps import rounded_to, useful_step
from fcl.objective.limits import largest_output
from fcl.solve.select import SAME_GRADIENT
from fcl.solve.state import Columns, Point, WorkingSet, is_active
from fcl.solve.trainer import Solved, StepResult, Trainer
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: Rounding of weights changes slopes by about this share of the target.
ROUNDED_SHARE = 0.01
#: Violation above which a step is not looked at again if its model held: the next pass, which is needed
#: anyway, computes the same gradients. Nearer to the optimum a step may leave more than its slope tells
#: (texts: 1.2 of a violation of 1.6, where 0.2 was foreseen), and a second step then saves a pass.
FAR = 5.0


class LocalProblem:
    """A row view, the working set over it, and the trainer that moves its weights.

    An anchor comes with the exact gradients of the cached columns; columns that enter later bring their
    gradients at the same anchor. The trainer's point starts at the anchor. When the next anchor arrives,
    the point is kept if the new local objective is lower there than at the new anchor.

    With K outputs, gradients and weights of columns are (columns, K).

    rounds : whether to round the weights of proposed points, see
    :meth:`fcl.features.base.Family.rounds_weights`.
    """

    def __init__(
        self,
        view: RowView,
        cache: LiveColumns,
        trainer: Trainer,
        factors: Callable[[Ids], Floats],
        rounds: bool = False,
    ) -> None:
        outputs = view.objective.outputs
        self.view, self.trainer = view, trainer
        self._rounds = rounds
        self._total_q: Any = math.inf
        self._target = 0.0
        self._step = 0.0  # of the weights of the last proposal; 0 if they were not rounded
        self.factors = factors  #: of features in the penalty
        self.working = WorkingSet(cache, outputs)
        self.anchor = Point.nothing(outputs)

    @property
    def cache(self) -> LiveColumns:
        return self.working.cache

    def change_view(self, view: RowView) -> None:
        """Switch to another row view; the cache must be empty."""
        assert not self.cache.n
        self.view = view
        self.trainer.columns_changed()
        self.trainer.resize(view.objective.n_rows)

    # -- anchors -------------------------------------------------------------------------------

    def move_anchor(
        self,
        point: Point,
        margins: Floats,
        gradients: Floats,
        exact: Floats | None,
        total_r: Any,
        total_q: Any,
    ) -> None:
        """Move to the next anchor.

        margins : float64 (n,), of all rows, without the intercept; or (K, n), with the intercepts.
        gradients, exact : of the cached columns, g_j and h_j over all rows at the anchor; h_j are used
            only by a sampled view.
        total_r, total_q : sums of residuals and curvatures over all rows, or (K,); total_q bounds the
            floor of the intercept, total_r is used only by a sampled view.
        """
        n, working = self.cache.n, self.working
        self.anchor, self._total_q = point, total_q
        self.trainer.chosen.clear()
        working.factor[:n] = self.factors(self.cache.ids)
        working.seen[:n] = True
        working.put("gradients", gradients)
        working.put("anchor_weights", point.weights_of(self.cache.ids))
        self.view.anchor(margins, point.intercept, total_r, total_q)
        self.view.correct(working, 0, exact)

    def return_to_anchor(self) -> None:
        self.working.put("weights", self.working.of("anchor_weights"))
        self.restart(self.anchor.free)

    def keep_point(self) -> bool:
        """Keep the trainer's point if it is better than the new anchor; else return to the anchor."""
        if self._step:
            self._snap()
        self.restart(self.free)
        if self.rise() < 0.0:
            return True
        self.return_to_anchor()
        return False

    @property
    def free(self) -> Floats:
        """Free coefficients of the trainer's point."""
        own = self.trainer.free  # some points list fixed intercepts after these
        return np.concatenate([own, self.anchor.free[len(own) :]])

    @property
    def margins(self) -> Floats:
        return self.trainer.margins

    def restart(self, free: Floats) -> None:
        """Start the trainer at its weights, with these free coefficients, from the anchor's margins."""
        self.trainer.start(self.view, self.working, self.anchor.free, free)

    def rise(self) -> float:
        """The local objective at the current point minus that of the anchor."""
        view, working, objective = self.view, self.working, self.view.objective
        delta = working.of("weights") - working.of("anchor_weights")
        moved = np.flatnonzero(is_active(delta))
        delta, factor = delta[moved], working.factor[moved]
        correction, floor = working.of("correction")[moved], working.of("floor")[moved]
        x = (self.free - self.anchor.free)[: objective.n_free]
        smooth = (
            objective.loss_sum(self.margins)
            - objective.loss_sum(view.margins, self.anchor.intercept)
            + float((correction * delta + 0.5 * floor * delta * delta).sum())
            + float(view.free_correction @ x + 0.5 * view.free_floor @ (x * x))
        )
        penalty = objective.penalty.value(working.of("weights")[moved], factor)
        penalty -= objective.penalty.value(working.of("anchor_weights")[moved], factor)
        return float(penalty + objective.C * smooth)

    # -- columns -------------------------------------------------------------------------------

    def has_equal(self, feature: int, nonzeros: int, hash_: int, gradient: Any) -> bool:
        """Whether a cached column makes a column of this count, hash and gradient redundant.

        It does if the two are equal and the cached one is not penalised more. With squares in the penalty
        no column is redundant, as a weight spreads over equal columns. Columns that differ only outside
        the sample, or by less than the cache rounds, look equal: then their gradients over all rows, at
        the anchor, must agree too.
        """
        equal = self.cache.find(nonzeros, hash_)
        if not len(equal) or not self.view.objective.penalty.pure_l1:
            return False
        if self.view.approximate:
            off = np.abs(gradient - self.working.of("gradients")[equal]).reshape(len(equal), -1)
            equal = equal[off.max(axis=1) <= SAME_GRADIENT * np.abs(gradient).max()]
        limits = self.view.objective.penalty.limits
        equal = equal[limits.alike(self.cache.ids[equal])]
        if not limits.alike(np.array([feature])).all():
            return False
        own = self.factors(np.array([feature]))
        return bool((self.factors(self.cache.ids[equal]) <= own).any())

    def change_room(self) -> None:
        self.working.change_room()
        self.trainer.inner.change_room(self.cache.max_columns)

    def entered(self, first: int, weights: Floats, gradients: Floats, exact: Floats | None) -> None:
        """Register the live columns from number ``first`` on, with their weights and gradients."""
        self.working.enter(first, self.factors(self.cache.ids[first:]), weights, gradients)
        self.view.correct(self.working, first, exact)
        self.trainer.columns_changed()

    def leaving_order(self) -> Columns:
        """Numbers of the columns that may be evicted, the most dispensable first.

        A column with a weight at the anchor is not dead, even if the trainer has since moved the weight
        to 0: on eviction the weight returns to the anchor's.
        """
        n, penalty, ids = self.cache.n, self.view.objective.penalty, self.cache.ids
        weights, factor = self._live, self.working.factor[:n]
        prices = self.view.objective.C * self.working.of("gradients")
        slopes = penalty.sizes(penalty.slopes(prices, weights, factor, ids))
        violations = penalty.violations(prices, weights, factor, ids)
        return evict_order(self.live_weights, slopes, violations, self.working.seen[:n])

    @property
    def _live(self) -> Floats:
        weights = self.working.of("weights")
        return np.where(weights != 0.0, weights, self.working.of("anchor_weights"))

    @property
    def live_weights(self) -> Floats:
        """The largest weight of each column, at the trainer's point or at the anchor; 0 if none."""
        return largest_output(np.abs(self._live))

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the columns not kept; their weights return to the anchor's and are frozen."""
        moved = is_active(self.working.of("weights") - self.working.of("anchor_weights"))
        leaving = np.flatnonzero(~keep & moved)
        if len(leaving):
            self.trainer.freeze(leaving)
            self.trainer.columns_changed()
        else:
            self.trainer.columns_left()
        self.working.evict(keep)

    def wanted(self, new: set[int]) -> npt.NDArray[np.bool_]:
        """Which columns to keep: all but new columns of weight 0 that did not violate last time."""
        keep, ids = np.ones(self.cache.n, bool), self.cache.ids
        columns, slopes = self.seen
        idle = (np.abs(slopes) <= 1.0) & (self.live_weights[columns] == 0.0)
        keep[columns[idle & np.isin(ids[columns], list(new))]] = False
        return keep

    @property
    def seen(self) -> tuple[Columns, Floats]:
        """Columns of the last step, and the sizes of their slopes before it."""
        return self.trainer.seen

    # -- the point -----------------------------------------------------------------------------

    def step(self, target: float) -> StepResult:
        """Take one step from the current point, unless its violation is at most ``target``."""
        self._target = target
        return self.trainer.step(target)

    def solve(self, target: float, max_steps: int) -> Solved:
        """Solve the local problem from the anchor, in at most ``max_steps`` steps."""
        self._target = target
        self.restart(self.anchor.free)
        trainer, decrease, sweeps, steps = self.trainer, 0.0, 0, 0
        while True:
            taken = trainer.step(target, steps < max_steps and not trainer.inner.cease())
            decrease += taken.decrease
            sweeps += taken.sweeps
            steps += taken.moved
            far = trainer.foresees and taken.violation > FAR
            last = steps == max_steps or (far and taken.foreseen <= target)
            if not taken.moved or (last and not trainer.is_hidden):
                return Solved(trainer.free, decrease, taken.violation, steps, sweeps)

    def point(self) -> Point:
        """The trainer's point: its weights, and the anchor's weights of features not cached.

        Of points of equal losses it is the one of the least penalty.
        """
        objective, (ids, weights) = self.view.objective, self.whole()
        weights = self._rounded(weights) if self._rounds else objective.centre(weights)
        free = objective.centre_free(self.free)
        anchor = self.anchor
        return Point.make(ids, weights, anchor.intercept, anchor.covariates).with_free(free)

    def whole(self) -> tuple[Ids, Floats]:
        """Ids and weights of all features of that point, in no order."""
        anchor, cached = self.anchor, self.cache.ids
        frozen = ~np.isin(anchor.ids, cached)
        ids = np.concatenate([anchor.ids[frozen], cached])
        return ids, np.concatenate([anchor.weights[frozen], self.working.of("weights")])

    def _rounded(self, weights: Floats) -> Floats:
        """Weights as multiples of a power of two, as coarse as is of use and does not matter.

        If all weights change by an amount e, prices change by about C e sum_i q_i times the share of the
        rows that a column has, since changes in both directions cancel. Slopes are prices divided by the
        coefficients of |w_j|.
        """
        scale = self.view.objective.C * self._total_q
        factors = self.working.factor[: self.cache.n]
        least = self.view.objective.penalty.absolute(factors).min(initial=1.0)
        allowed = ROUNDED_SHARE * self._target * float(least) / scale if scale > 0.0 else 0.0
        step = min(allowed, useful_step(weights))
        self._step = 2.0 ** math.floor(math.log2(step)) if step > 0.0 else 0.0
        return rounded_to(weights, self._step) if self._step else weights

    def _snap(self) -> None:
        """Return weights that differ from the anchor's by the rounding of a proposal alone to them."""
        n = self.cache.n
        weights, anchor = self.working.weights[:n], self.working.anchor_weights[:n]
        same = rounded_to(weights, self._step) == anchor
        weights[same] = anchor[same]
