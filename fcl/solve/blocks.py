"""The trainer's side with several outputs: the local problem, minimised output by output.

Outputs whose losses and penalties are separate share rows and columns only. The trainer of one output
solves the problem of each output in turn. :mod:`fcl.solve.coupled_local` trains other outputs together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.cache import LiveColumns, evict_order
from fcl.solve.output_view import OutputView, OutputWorking
from fcl.solve.select import SAME_GRADIENT
from fcl.solve.state import Columns, Point
from fcl.solve.trainer import Solved, StepResult
from fcl.solve.view import add_columns
from fcl.types import Floats, Ids

#: Most steps on an output before the next one has its turn.
STEPS_A_TURN = 2
#: Share of the violation at the beginning of a turn at which the turn ends.
TURN_SHARE = 0.1


class OutputSolver:
    """What :class:`fcl.solve.local.LocalSolver` is to one output, for several.

    Parameters are those of :class:`fcl.solve.local.LocalSolver`.
    """

    def __init__(
        self,
        view: OutputView,
        cache: LiveColumns,
        trainer: Any,
        factors: Callable[[Ids], Floats],
    ) -> None:
        K = view.objective.n_outputs
        self.factors = factors
        self.working = OutputWorking(cache, K)
        self.trainer = trainer
        self.anchor = Point(np.empty(0, np.int64), np.empty((0, K)), 0.0, np.zeros(K))
        self.free = np.zeros(K)  #: intercepts of the trainer's point
        self.change_view(view)

    @property
    def cache(self) -> LiveColumns:
        """The cached columns."""
        return self.working.cache

    def change_view(self, view: OutputView) -> None:
        """Switch to another row view; the cache must be empty."""
        assert not self.cache.n
        self.view = view
        self._m = np.empty_like(view.margins)  # of the trainer's point
        self._violations = np.full(view.objective.n_outputs, np.inf)
        self._slopes = np.empty(0)  # largest slope of each column, when its output had its turn
        self.trainer.columns_changed()
        self.trainer.resize(view.objective.n_rows)

    # -- anchors -------------------------------------------------------------------------------

    def move_anchor(
        self,
        point: Point,
        margins: Floats,
        gradients: Floats,
        exact: Floats | None,
        total_r: Floats,
        total_q: Floats,
    ) -> None:
        """Move to the next anchor; see :meth:`fcl.solve.local.LocalSolver.move_anchor`.

        margins : float64 (K, n), of all rows, with the intercepts.
        gradients, exact : float64 (cached columns, K).  total_r, total_q : float64 (K,).
        """
        n, working = self.cache.n, self.working
        self.anchor = point
        factor = self.factors(self.cache.ids)
        for part in working.outputs:
            part.factor[:n] = factor
            part.seen[:n] = True
        working.put("gradients", gradients)
        working.put("anchor_weights", point.weights_of(self.cache.ids))
        self.view.anchor(margins, total_r, total_q)
        self.view.correct(working, 0, exact)

    def return_to_anchor(self) -> None:
        """Restart the trainer at the anchor."""
        self.working.put("weights", self.working.of("anchor_weights"))
        self.free = self.anchor.covariates.copy()
        self._restart()

    def keep_point(self) -> bool:
        """Keep the trainer's point if it is better than the new anchor; else return to the anchor."""
        self._restart()
        if self.rise() < 0.0:
            return True
        self.return_to_anchor()
        return False

    def _restart(self) -> None:
        """Recompute the margins of the trainer's point from those of the anchor."""
        self._m[:] = self.view.margins
        self._m += (self.free - self.anchor.covariates)[:, None]
        n = self.cache.n
        for part, m in zip(self.working.outputs, self._m, strict=True):
            away = part.weights[:n] - part.anchor_weights[:n]
            moved = np.flatnonzero(away)
            add_columns(part, moved, away[moved], m, self.trainer.inner.team)
        self._violations[:] = np.inf

    def rise(self) -> float:
        """The local objective at the current point minus that of the anchor."""
        working, view = self.working, self.view
        objective, factor = view.objective, working.outputs[0].factor[: self.cache.n]
        smooth = objective.loss_sum(self._m) - objective.loss_sum(view.margins)
        n = self.cache.n
        for k, (part, own) in enumerate(zip(working.outputs, view.outputs, strict=True)):
            away = part.weights[:n] - part.anchor_weights[:n]
            smooth += float((part.correction[:n] * away + 0.5 * part.floor[:n] * away**2).sum())
            x = self.free[k : k + 1] - self.anchor.covariates[k : k + 1]
            if objective.intercept:
                smooth += float(own.free_correction @ x + 0.5 * own.free_floor @ (x * x))
        penalty = objective.penalty.value(working.of("weights"), factor)
        penalty -= objective.penalty.value(working.of("anchor_weights"), factor)
        return penalty + objective.C * smooth

    # -- columns -------------------------------------------------------------------------------

    def has_equal(self, feature: int, nonzeros: int, hash_: int, gradient: Floats) -> bool:
        """Whether a cached column makes a column of this count, hash and gradients redundant."""
        equal = self.cache.find(nonzeros, hash_)
        if not len(equal) or not self.view.objective.penalty.pure_l1:
            return False
        if self.view.approximate:
            others = np.stack([part.gradients[equal] for part in self.working.outputs], axis=1)
            near = np.abs(gradient - others).max(axis=1)
            equal = equal[near <= SAME_GRADIENT * np.abs(gradient).max()]
        own = self.factors(np.array([feature]))
        return bool((self.factors(self.cache.ids[equal]) <= own).any())

    def change_room(self) -> None:
        """Make room for as many columns as the cache has now."""
        for part in self.working.outputs:
            part.change_room()
        self.trainer.inner.change_room(self.cache.max_columns)

    def entered(self, first: int, weights: Floats, gradients: Floats, exact: Floats | None) -> None:
        """Register the live columns from number ``first`` on, with weights and gradients (., K)."""
        factors = self.factors(self.cache.ids[first:])
        for k, part in enumerate(self.working.outputs):
            part.enter(first, factors, weights[:, k], gradients[:, k])
        self.view.correct(self.working, first, exact)
        self.trainer.columns_changed()

    def leaving_order(self) -> Columns:
        """Numbers of the columns that may be evicted, the most dispensable first."""
        n, penalty = self.cache.n, self.view.objective.penalty
        factor = self.working.outputs[0].factor[:n]
        prices = self.view.objective.C * self.working.of("gradients")
        slopes = penalty.sizes(penalty.slopes(prices, self._live, factor, self.cache.ids))
        violations = penalty.violations(prices, self._live, factor, self.cache.ids)
        return evict_order(self.live_weights, slopes, violations, self.working.seen[:n])

    @property
    def _live(self) -> Floats:
        weights = self.working.of("weights")
        return np.where(weights != 0.0, weights, self.working.of("anchor_weights"))

    @property
    def live_weights(self) -> Floats:
        """The largest weight of each column, at the trainer's point or at the anchor; 0 if none."""
        found: Floats = np.abs(self._live).max(axis=1, initial=0.0)
        return found

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        """Drop the columns not kept; their weights return to the anchor's and are frozen."""
        n = self.cache.n
        for part, m in zip(self.working.outputs, self._m, strict=True):
            back = np.where(keep, 0.0, part.anchor_weights[:n] - part.weights[:n])
            leaving = np.flatnonzero(back)
            add_columns(part, leaving, back[leaving], m, self.trainer.inner.team)
            part.weights[leaving] = part.anchor_weights[leaving]
        self.trainer.columns_changed()
        if len(self._slopes) == n:
            self._slopes = self._slopes[keep]
        self.working.evict(keep)

    def wanted(self, new: set[int]) -> npt.NDArray[np.bool_]:
        """Which columns to keep: all but new columns of weight 0 that did not violate last time."""
        ids, n = self.cache.ids, self.cache.n
        keep = np.ones(n, bool)
        if len(self._slopes) == n:
            at_rest = (self._slopes <= 1.0) & (self.live_weights == 0.0)
            keep[at_rest & np.isin(ids, list(new))] = False
        return keep

    # -- the point -----------------------------------------------------------------------------

    def step(self, target: float) -> StepResult:
        """Give each output its turn, unless the violations are at most ``target``."""
        cached = self.cache.n
        self._slopes = np.zeros(cached)
        decrease, sweeps, moved = 0.0, 0, False
        for k in range(len(self._violations)):
            turn = self._turn(k, target)
            decrease, sweeps = decrease + turn.decrease, sweeps + turn.sweeps
            moved = moved or turn.moved
            if self.trainer.inner.cease():
                break
        return StepResult(moved, decrease, float(self._violations.max()), sweeps)

    def _turn(self, k: int, target: float) -> StepResult:
        """Take steps on the problem of an output; the violation is the one before them."""
        view, part = self.view, self.working.outputs[k]
        trainer, b = self.trainer, self.anchor.covariates[k : k + 1]
        if not view.objective.intercept:
            b = b[:0]
        view.focus(k, float(b.sum()))
        trainer.start(view.outputs[k], part, b, self.free[k : k + 1])
        first, decrease, sweeps, moved = -1.0, 0.0, 0, False
        goal = target
        for turn in range(STEPS_A_TURN + 1):
            taken = trainer.step(goal, turn < STEPS_A_TURN)
            decrease, sweeps = decrease + taken.decrease, sweeps + taken.sweeps
            if first < 0.0:
                first = taken.violation
                goal = max(target, TURN_SHARE * first)
                columns, slopes = trainer.seen
                self._slopes[columns] = np.maximum(self._slopes[columns], np.abs(slopes))
            if not taken.moved:
                break
            moved = True
        self._violations[k] = first
        self._m[k] = trainer.margins
        if view.objective.intercept:
            self.free[k] = trainer.free[0]
        return StepResult(moved, decrease, first, sweeps)

    def solve(self, target: float, max_steps: int) -> Solved:
        """Solve the local problem from the anchor, in at most ``max_steps`` steps."""
        self._restart()
        decrease, sweeps, steps = 0.0, 0, 0
        for _ in range(max_steps):
            taken = self.step(target)
            decrease, sweeps = decrease + taken.decrease, sweeps + taken.sweeps
            steps += taken.moved
            if not taken.moved or self.trainer.inner.cease():
                break
        return Solved(self.free, decrease, float(self._violations.max()), steps, sweeps)

    def point(self) -> Point:
        """The trainer's point: its weights, and the anchor's weights of features not cached.

        Of the points that the losses do not tell apart it is the one of the least penalty.
        """
        anchor, cached, objective = self.anchor, self.cache.ids, self.view.objective
        frozen = ~np.isin(anchor.ids, cached)
        ids = np.concatenate([anchor.ids[frozen], cached])
        weights = np.concatenate([anchor.weights[frozen], self.working.of("weights")])
        return Point.make(
            ids, objective.centre(weights), 0.0, objective.centre_intercepts(self.free)
        )
