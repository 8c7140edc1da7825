"""The trainer's side: the local problem on the cached columns, from one anchor to the next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.cache import LiveColumns, evict_order
from fcl.solve.select import SAME_GRADIENT
from fcl.solve.state import Floats, Ids, Point, WorkingSet
from fcl.solve.trainer import Solved, StepResult, Trainer
from fcl.solve.view import RowView

Numbers = npt.NDArray[np.intp]


class LocalSolver:
    """A row view, the working set over it, and the trainer that moves it.

    An anchor comes with exact gradients of what is cached; columns that come later bring theirs, at the
    same anchor. The point is the trainer's: it starts at the anchor, and when the next one arrives it is
    kept if it is better than that by the new local objective.
    """

    def __init__(
        self,
        view: RowView,
        cache: LiveColumns,
        trainer: Trainer,
        factors: Callable[[Ids], Floats],
    ) -> None:
        self.view = view
        self.factors = factors  #: of features in the penalty
        self.working = WorkingSet(cache)
        self.trainer = trainer
        self.anchor = Point(np.empty(0, np.int64), np.empty(0), 0.0)

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
            read for a sampled view alone.
        total_r, total_q : sums of residuals and curvatures over all rows; total_q bounds the floor of
            the intercept, total_r is read for a sampled view alone.
        """
        n = self.cache.n
        working = self.working
        self.anchor = point
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
        self.trainer.start(self.view, self.working, self.anchor.intercept, self.anchor.intercept)

    def keep_point(self) -> bool:
        """Keep the trainer's point if it is better than the new anchor; else return to the anchor."""
        self.trainer.start(self.view, self.working, self.anchor.intercept, self.trainer.intercept)
        if self.trainer.rise(self.view, self.working) < 0.0:
            return True
        self.return_to_anchor()
        return False

    # -- columns -------------------------------------------------------------------------------

    def has_equal(self, feature: int, nonzeros: int, hash_: int, gradient: float) -> bool:
        """Whether a cached column makes one of this count, hash and gradient superfluous.

        It does if it is equal and not penalised more. Squares in the penalty spread a weight over equal
        columns, so that each of them counts. On a sampled view columns that differ on other rows look
        equal, as do rounded ones that differ little: their gradients over all rows, at the anchor, have
        to agree too.
        """
        equal = self.cache.find(nonzeros, hash_)
        if not len(equal) or not self.view.objective.penalty.pure_l1:
            return False
        if self.view.approximate:
            others = self.working.gradients[equal]
            equal = equal[np.abs(gradient - others) <= SAME_GRADIENT * abs(gradient)]
        own = self.factors(np.array([feature]))
        return bool((self.factors(self.cache.ids[equal]) <= own).any())

    def entered(self, first: int, weights: Floats, gradients: Floats, exact: Floats | None) -> None:
        """The live columns from number ``first`` on are new, with these weights and gradients."""
        factors = self.factors(self.cache.ids[first:])
        for t, factor in enumerate(factors):
            self.working.reset(first + t, factor, float(weights[t]), float(gradients[t]))
        self.view.correct(self.working, first, exact)
        self.trainer.columns_changed()

    def leaving_order(self) -> Numbers:
        """Numbers of the columns that may be evicted, the most dispensable first.

        What has a weight at the anchor is not dead, even if the trainer has brought it to 0 since:
        without its column it would have that weight again.
        """
        n = self.cache.n
        weights, factor = self.live_weights, self.working.factor[:n]
        objective = self.view.objective
        prices = objective.C * self.working.gradients[:n]
        slopes = objective.penalty.slopes(prices, weights, factor)
        violations = objective.penalty.violations(prices, weights, factor)
        return evict_order(weights, slopes, violations, self.working.seen[:n])

    @property
    def live_weights(self) -> Floats:
        """Of each column the trainer's weight, or that at the anchor where that is 0."""
        n = self.cache.n
        weights = self.working.weights[:n]
        return np.where(weights != 0.0, weights, self.working.anchor_weights[:n])

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop columns; freeze their weights at the anchor, and discard what the trainer changed."""
        n = self.cache.n
        moved = self.working.weights[:n] != self.working.anchor_weights[:n]
        leaving = np.flatnonzero(~keep & moved)
        if len(leaving):
            self.trainer.freeze(self.working, leaving)
        self.trainer.columns_changed()
        self.working.evict(keep)

    def wanted(self, new: set[int]) -> npt.NDArray[np.bool_]:
        """Which columns to keep: all but new columns that did not violate in the last step."""
        keep = np.ones(self.cache.n, bool)
        columns, slopes = self.trainer.seen
        at_rest = np.abs(slopes) <= 1.0
        out = (self.working.weights[columns] == 0.0) & (self.working.anchor_weights[columns] == 0.0)
        candidates = columns[at_rest & out]
        ids = self.cache.ids
        keep[candidates[np.isin(ids[candidates], list(new))]] = False
        return keep

    def change_view(self, view: RowView) -> None:
        """Work on other rows; the cache must be empty."""
        assert not self.cache.n
        self.view = view
        self.trainer.columns_changed()
        self.trainer.resize(view.objective.n_rows)

    # -- the point -----------------------------------------------------------------------------

    def step(self, target: float) -> StepResult:
        """One step from the present point, unless the violation is at most ``target`` already."""
        return self.trainer.step(self.view, self.working, target)

    def solve(self, target: float, max_steps: int) -> Solved:
        """Solve the local problem from the anchor, in at most so many steps."""
        return self.trainer.solve(self.view, self.working, self.anchor.intercept, target, max_steps)

    def point(self) -> Point:
        """The trainer's point: its weights, and those of the anchor for what is not cached."""
        return self.working.point(self.anchor, self.trainer.intercept)
