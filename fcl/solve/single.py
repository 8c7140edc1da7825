"""The trainer of one output: the models of its steps.

A step builds a quadratic model of the local objective, and runs coordinate descent on it.
What makes it fast (tools/research has measurements, and slower alternatives):

- **The Hessian of a sample of the rows.** The gradient is exact; the curvature comes from rows drawn
  with probability min(1, q_i / tau), weighted by its inverse (sub-sampled Newton, Roosta-Khorasani and
  Mahoney 2019). Skewed labels put half of sum q_i into 1 % of the rows, so 20,000 rows suffice, and the
  columns gathered on them fit the second-level cache. Dropping flat rows and keeping their
  curvature on the diagonal does not help: the diagonal slows the exchange between near-duplicates.
- **Sweeps are accelerated**, and run only on columns that can move: with a weight, or near a violation.
- **Two threads**, if there are cores, sweep over half the columns by id each, from the same state:
  patterns at the same positions are in the same half, so that the sum of the two steps is nearly always
  as good as sequential steps. Lists of nonzeros, such as words, are swept by one thread.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fcl.objective.limits import violations
from fcl.solve import clipped
from fcl.solve.damping import CUT
from fcl.solve.exact import MOST_COLUMNS, hessian_work, minimise_whole
from fcl.solve.inner import MOST_GROWN, InnerModel
from fcl.solve.inner_descent import MAX_SWEEPS
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.solve.trainer import Trainer
from fcl.solve.view import RowView
from fcl.types import Floats

#: Rows times columns squared, and rows, up to which a step uses the whole Hessian (milliseconds), unless
#: it is an early one.
CHEAP_HESSIAN = 5e7
CHEAP_ROWS = 1 << 16
#: Work (:func:`hessian_work`) up to which a step uses the whole Hessian of the columns that may move,
#: about 15 ms: sweeps over the sample take as long, or longer, and make more steps necessary.
CHEAP_WORK = 2e7
#: Violation above which a step is an early one if passes are quick: a sampled model, even if it has to be
#: made again, takes a fraction of the time of a whole Hessian that costs more than EARLY_SHARE of the two
#: limits above.
EARLY = 1.0
EARLY_SHARE = 0.1
#: Rows times columns squared up to which the trainer minimises the squared loss itself.
NARROW = 1.5e8
#: Rows times columns squared up to which it does so after coordinate descent has failed (seconds).
DEAR_HESSIAN = 2e11


class SingleTrainer(Trainer):
    """Solves local problems of one output.

    inner : see :class:`Trainer`.
    hessian_columns : number of columns whose whole Hessian fits in memory.
    quick_passes : see :attr:`fcl.features.base.Family.quick_passes`. If passes take longer, every step is
        worth as much care as the last ones.
    """

    def __init__(
        self,
        inner: InnerModel,
        hessian_columns: int = MOST_COLUMNS,
        quick_passes: bool = True,
    ) -> None:
        super().__init__(inner, ())
        self._hessian_columns = min(hessian_columns, inner.max_columns)
        self._early = EARLY if quick_passes else math.inf

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        return 4 * 8 * n_rows + InnerModel.bytes_for(n_rows, max_columns, entries, binary)

    def start(self, view: RowView, working: WorkingSet, anchor: Floats, free: Floats) -> None:
        super().start(view, working, anchor, free)
        n = working.cache.n
        if n and self._is_clipped(n) and self._is_cheap(n):
            # minimise directly again, until rounding spoils a step
            self.damping = replace(self.damping, raised=0.0)

    def _choose_columns(self) -> Columns:
        """All columns if the Hessian is cheap; else those with a weight, or near a violation."""
        working, objective = self._working, self._view.objective
        n = working.cache.n
        if self._is_cheap(n):
            return np.arange(n)
        prices, anchored = objective.C * working.gradients[:n], working.anchor_weights[:n]
        slopes = objective.penalty.slopes(prices, anchored, working.factor[:n], working.cache.ids)
        worst = violations(slopes, anchored).max(initial=0.0)
        near = np.abs(slopes) > self._near(worst)
        # the same columns in all steps from one anchor, so that a step can use the last one's model
        return np.flatnonzero((working.weights[:n] != 0.0) | (anchored != 0.0) | near)

    def _violation(self, local: LocalPoint) -> float:
        limits = self._view.objective.penalty.limits
        slopes = limits.clamp(local.ids, local.gradients / local.absolute, local.weights)
        self.seen = local.columns, slopes
        return float(violations(slopes, local.weights).max(initial=0.0))

    def _damp(self, beta: float) -> None:
        super()._damp(beta)
        if beta < CUT and self._view.objective.loss.clipped:
            self.damping = self.damping.with_care(False)

    def _is_cheap(self, k: int, share: float = 1.0) -> bool:
        """Whether the Hessian of k columns takes next to no time, or a share of it."""
        n = self._view.objective.n_rows
        small = n * k * k <= share * CHEAP_HESSIAN or self._is_clipped(k)
        return k <= self._hessian_columns and n <= CHEAP_ROWS and small

    def _is_clipped(self, k: int) -> bool:
        """Whether the trainer minimises a local problem of k columns directly, without a model.

        For the squared loss the two differ only by rounding.
        """
        objective = self._view.objective
        loss, n = objective.loss, objective.n_rows
        if objective.covariates is not None:  # the direct minimiser eliminates none
            return False
        # wide problems take many active sets, most of which coordinate descent finds faster
        narrow = not loss.unbounded or n * k * k <= NARROW
        return loss.clipped and narrow and n * k <= clipped.most_entries(n, k)

    def _minimise(self, local: LocalPoint, tolerance: float, violation: float) -> Step:
        """Minimise a small clipped problem itself; else a model of the local problem.

        The model has its whole Hessian if that is cheap; else coordinate descent works on sampled rows.
        """
        n, k = self._view.objective.n_rows, len(local.columns)
        early = violation > self._early
        share = EARLY_SHARE if early else 1.0
        if self._is_cheap(k, share):
            if self.damping.raised or not self._is_clipped(k):
                self._choose("whole Hessian")
                return minimise_whole(local, self._q, tolerance, self.inner.cease)
            self._choose("local problem itself")
            linear = self._linear(local)
            problem = clipped.ClippedProblem(local, self._m, linear, self._delta)
            return problem.minimise(tolerance, self.inner.cease, self.inner.hurry)
        some = np.flatnonzero(local.movable)
        fits = len(some) <= self._hessian_columns and n * len(some) ** 2 <= DEAR_HESSIAN
        # where the curvature jumps, the search would cut a step to the exact minimum short again
        loss = self._view.objective.loss
        fits = fits and not (0.0 < self.damping.raised < 1.0 and loss.clipped)
        work = hessian_work(self._working, local.columns[some], n) if fits else math.inf
        if not self.damping.careful and work > share * CHEAP_WORK:
            # sweeps that have taken as long as the whole Hessian would are unlikely to end soon
            self._choose("sampled Hessian")
            step = self.inner.minimise(local, self._q, tolerance, work)
            insufficient = step.cut or step.sweeps >= MAX_SWEEPS
            self.damping = self.damping.with_care(not early and insufficient)
            if not step.cut:
                return step
        elif not fits:
            self._choose("sampled Hessian")
            self.inner.grown = MOST_GROWN
            return self.inner.minimise(local, self._q, tolerance)
        self._choose("whole Hessian")
        part = minimise_whole(local.take(some), self._q, tolerance, self.inner.cease)
        d = np.zeros(k)
        d[some] = part.d
        return Step(d, part.x, part.sweeps)

    def _moments(self, columns: Columns) -> tuple[Floats, Floats]:
        if self.damping.raised:
            self._view.objective.raise_curvatures(self._m, self.damping.raised, self._q)
        return super()._moments(columns)

    def _knows(self) -> bool:
        view, working = self._view, self._working
        n = working.cache.n
        at_anchor = np.array_equal(self.free, self._anchor)
        at_anchor &= np.array_equal(working.weights[:n], working.anchor_weights[:n])
        return at_anchor and view.approximate and not self.damping.raised
