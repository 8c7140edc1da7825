"""The trainer's side: the local problem on the cached columns, from anchor to anchor."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.cache import LiveColumns, evict_order
from fcl.features.steps import rounded_to, useful_step
from fcl.solve.select import SAME_GRADIENT
from fcl.solve.state import Columns, Point, WorkingSet
from fcl.solve.trainer import Solved, StepResult, Trainer
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: Rounding of weights changes slopes by about this share of the target.
ROUNDED_SHARE = 0.01


class LocalSolver:
    """A row view, the working set over it, and the trainer that moves its weights.

    An anchor comes with the exact gradients of the cached columns; columns that enter later bring their
    gradients at the same anchor. The trainer's point starts at the anchor. When the next anchor arrives,
    the point is kept if the new local objective is lower there than at the new anchor.

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
        self.view = view
        self.factors = factors  #: of features in the penalty
        self.working = WorkingSet(cache)
        self.trainer = trainer
        self.anchor = Point(np.empty(0, np.int64), np.empty(0), 0.0)
        self._rounds = rounds
        self._total_q = math.inf
        self._target = 0.0
        self._step = 0.0  # of the weights of the last proposal; 0 if they were not rounded

    @property
    def cache(self) -> LiveColumns:
        """The cached columns."""
        return self.working.cache

    def move_anchor(
        self,
        point: Point,
        margins: Floats,
        gradients: Floats,
        exact: Floats | None,
        total_r: float,
        total_q: float,
    ) -> None:
        """Move to the next anchor.

        margins : float64 (n,), of all rows, without the intercept.
        gradients, exact : float64 (cached columns,), g_j and h_j over all rows at the anchor; h_j are
            used only by a sampled view.
        total_r, total_q : sums of residuals and curvatures over all rows; total_q bounds the floor of
            the intercept, total_r is used only by a sampled view.
        """
        n = self.cache.n
        working = self.working
        self.anchor, self._total_q = point, total_q
        working.factor[:n] = self.factors(self.cache.ids)
        working.gradients[:n] = gradients
        working.seen[:n] = True
        working.anchor_weights[:n] = point.weights_of(self.cache.ids)
        self.view.anchor(margins, point.intercept, total_r, total_q)
        self.view.correct(working, 0, exact)

    def return_to_anchor(self) -> None:
        """Restart the trainer at the anchor."""
        n = self.cache.n
        self.working.weights[:n] = self.working.anchor_weights[:n]
        self.trainer.start(self.view, self.working, self.anchor.free, self.anchor.free)

    def keep_point(self) -> bool:
        """Keep the trainer's point if it is better than the new anchor; else return to the anchor."""
        if self._step:
            self._snap()
        self.trainer.start(self.view, self.working, self.anchor.free, self.trainer.free)
        if self.rise() < 0.0:
            return True
        self.return_to_anchor()
        return False

    def rise(self) -> float:
        """The local objective at the current point minus that of the anchor."""
        return self.trainer.rise()

    # -- columns -------------------------------------------------------------------------------

    def has_equal(self, feature: int, nonzeros: int, hash_: int, gradient: float) -> bool:
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
            others = self.working.gradients[equal]
            equal = equal[np.abs(gradient - others) <= SAME_GRADIENT * abs(gradient)]
        limits = self.view.objective.penalty.limits
        equal = equal[limits.alike(self.cache.ids[equal])]
        if not limits.alike(np.array([feature])).all():
            return False
        own = self.factors(np.array([feature]))
        return bool((self.factors(self.cache.ids[equal]) <= own).any())

    def change_room(self) -> None:
        """Make room for as many columns as the cache has now."""
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
        n = self.cache.n
        weights, factor = self.live_weights, self.working.factor[:n]
        objective = self.view.objective
        prices = objective.C * self.working.gradients[:n]
        slopes = objective.penalty.slopes(prices, weights, factor, self.cache.ids)
        violations = objective.penalty.violations(prices, weights, factor, self.cache.ids)
        return evict_order(weights, slopes, violations, self.working.seen[:n])

    @property
    def live_weights(self) -> Floats:
        """The trainer's weight of each column, or the anchor's weight where the trainer's is 0."""
        n = self.cache.n
        weights = self.working.weights[:n]
        return np.where(weights != 0.0, weights, self.working.anchor_weights[:n])

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the columns not kept; their weights return to the anchor's and are frozen."""
        n = self.cache.n
        moved = self.working.weights[:n] != self.working.anchor_weights[:n]
        leaving = np.flatnonzero(~keep & moved)
        if len(leaving):
            self.trainer.freeze(leaving)
            self.trainer.columns_changed()
        else:
            self.trainer.columns_left()
        self.working.evict(keep)

    def wanted(self, new: set[int]) -> npt.NDArray[np.bool_]:
        """Which columns to keep: all but new columns of weight 0 that did not violate last time."""
        keep = np.ones(self.cache.n, bool)
        columns, slopes = self.trainer.seen
        at_rest = np.abs(slopes) <= 1.0
        out = (self.working.weights[columns] == 0.0) & (self.working.anchor_weights[columns] == 0.0)
        candidates = columns[at_rest & out]
        ids = self.cache.ids
        keep[candidates[np.isin(ids[candidates], list(new))]] = False
        return keep

    def change_view(self, view: RowView) -> None:
        """Switch to another row view; the cache must be empty."""
        assert not self.cache.n
        self.view = view
        self.trainer.columns_changed()
        self.trainer.resize(view.objective.n_rows)

    # -- the point -----------------------------------------------------------------------------

    def step(self, target: float) -> StepResult:
        """Take one step from the current point, unless it is good enough (:meth:`Trainer.step`)."""
        self._target = target
        return self.trainer.step(target)

    def solve(self, target: float, max_steps: int) -> Solved:
        """Solve the local problem from the anchor, in at most ``max_steps`` steps."""
        self._target = target
        return self.trainer.solve(self.view, self.working, self.anchor.free, target, max_steps)

    def point(self) -> Point:
        """The trainer's point: its weights, and the anchor's weights of features not cached."""
        working, anchor, cached = self.working, self.anchor, self.cache.ids
        frozen = ~np.isin(anchor.ids, cached)
        weights = np.concatenate([anchor.weights[frozen], working.weights[: self.cache.n]])
        return Point.make(
            np.concatenate([anchor.ids[frozen], cached]),
            self._rounded(weights) if self._rounds else weights,
            anchor.intercept,
            anchor.covariates,
        ).with_free(self.trainer.free)

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
