"""The trainer: proximal Newton with inner coordinate descent on the cached columns of a row view.

One step (newGLMNET, Yuan, Ho and Lin 2012) builds a quadratic model of the local objective at the current
point, runs coordinate descent on the model, and searches along the step on the local objective itself.
What makes it fast (tools/research has measurements, and slower alternatives):

- **The Hessian of a sample of the rows.** The gradient is exact; the curvature comes from rows drawn
  with probability min(1, q_i / tau), weighted by its inverse (sub-sampled Newton, Roosta-Khorasani and
  Mahoney 2019). Skewed labels put half of sum q_i into 1 % of the rows, so 20,000 rows suffice, and the
  columns gathered on them fit the second-level cache. Dropping flat rows and keeping their
  curvature on the diagonal does not help: the diagonal slows the exchange between near-duplicates.
- **Intercept and covariates are eliminated** inside the sweeps, and minimised by Newton's method between
  steps: the indicators of the four letters at a position add up to a constant, so alternating with the
  intercept converges very slowly.
- **Sweeps are accelerated**, and run only on columns that can move: with a weight, or near a violation.
- **Two threads**, if there are cores, sweep over half the columns by id each, from the same state:
  patterns at the same positions are in the same half, so that the sum of the two steps is nearly always
  as good as sequential steps. Lists of nonzeros, such as words, are swept by one thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fcl.kernels import descent, losses
from fcl.objective import ROUNDING
from fcl.objective.unpenalised import fit_unpenalised
from fcl.solve import clipped
from fcl.solve.columns import add_columns, column_moments
from fcl.solve.damping import CUT, Choices, Damping
from fcl.solve.exact import MOST_COLUMNS, ExactModel
from fcl.solve.inner import MOST_GROWN, InnerModel
from fcl.solve.inner_descent import MAX_SWEEPS
from fcl.solve.line import Line
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.solve.view import RowView
from fcl.types import Floats

#: Columns with weight 0 and |slope| below this at the anchor are skipped until the next pass.
RESTING = 0.8
#: So are those whose |slope| is below 1 by more than this multiple of the largest violation: until the
#: next pass, slopes change by about as much as violations fall.
NEAR = 3.0
#: Rows times columns squared, and rows, up to which a step uses the whole Hessian (milliseconds), unless
#: it is an early one.
CHEAP_HESSIAN = 5e7
CHEAP_ROWS = 1 << 16
#: Work (:meth:`ExactModel.work`) up to which a step uses the whole Hessian of the columns that may move,
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
#: A local problem whose steps are rough is settled by a step with at most this share of the whole
#: decrease since the anchor. A step divides what is left by five to ten, so little is left then, and the
#: next anchor, with new columns and exact gradients, gains more than another step.
SETTLED = 0.15
#: A rough step that gained at most this share of the losses leaves their curvatures nearly the same, so
#: the next one uses its model again. Gathering the columns takes a fifth of a step.
NEARLY_SAME = 2e-3
#: Violation above which a step is not looked at again if its model held: the next pass, which is needed
#: anyway, computes the same gradients. Nearer to the optimum a step may leave more than its slope tells
#: (texts: 1.2 of a violation of 1.6, where 0.2 was foreseen), and a second step then saves a pass.
FAR = 5.0
#: Inner tolerance, as a share of the violation before the step, and of the target.
INNER_SHARE = 0.1
INNER_TARGET = 0.3


@dataclass(frozen=True)
class Solved:
    """The result of a local solve."""

    free: Floats  #: the free coefficients, float64 (n_free,)
    decrease: float  #: of the local objective, >= 0
    violation: float  #: largest over the columns of the step, at the last point that was looked at
    steps: int
    sweeps: int


@dataclass(frozen=True)
class TrainerState:
    """What a checkpoint stores of the trainer besides its point."""

    drawn: int = 0
    grown: float = 1.0
    raised: float = 0.0
    careful: int = 0


@dataclass(frozen=True)
class StepResult:
    """The result of one step."""

    moved: bool
    decrease: float  #: of the local objective, >= 0
    #: largest over the columns of the step, before the step; of the last look at them if it takes none
    violation: float
    sweeps: int
    #: violation after a whole step, if it fell as the slope along the step did; infinite after a share
    foreseen: float = math.inf


class Trainer:
    """Solves local problems step by step, in its own buffers.

    Parameters
    ----------
    inner : InnerModel
        Minimises models by coordinate descent; the trainer has the same maximum numbers of rows and
        columns, and the same team of threads.
    hessian_columns : int
        Number of columns whose whole Hessian fits in memory.
    quick_passes : bool
        See :attr:`fcl.features.base.Family.quick_passes`. If passes take longer, every step is worth as
        much care as the last ones.
    """

    def __init__(
        self,
        inner: InnerModel,
        hessian_columns: int = MOST_COLUMNS,
        quick_passes: bool = True,
    ) -> None:
        self._buffers = [np.empty(inner.n_rows) for _ in range(4)]
        self.resize(inner.n_rows)
        self.inner = inner
        self._exact = ExactModel(min(hessian_columns, inner.max_columns))
        self.damping = Damping()
        self.chosen = Choices()
        self._early = EARLY if quick_passes else math.inf
        self._team = inner.team
        # the local problem that is being solved: rows, columns and
        self._view: RowView
        self._working: WorkingSet
        #: free coefficients of the trainer's point, and of the anchor
        self.free = self._anchor = np.empty(0)
        #: columns of the last step, and their slopes before it
        self.seen: tuple[Columns, Floats] = (np.empty(0, np.intp), np.empty(0))
        self._before = math.inf  # violation before the last step
        self._decrease = 0.0  # of the local objective since it was started
        self._gains: list[float] = []  # of rough steps on the same columns, one after the other
        self._settled = False
        self._undo: tuple[Columns, Floats, Floats] | None = None
        #: absolute gap of the anchor: no point lowers the objective by more
        self.most_decrease = math.inf
        #: whether a pass, which only reads lists of nonzeros, takes less time than another look
        self.foresees = False
        self._refused = False  # whether a step promised more than that

    def resize(self, n_rows: int) -> None:
        """Set the number of rows of the view, at most the size of the buffers."""
        # residuals, curvatures, margins of a step, margins with the intercept
        self._r, self._q, self._dm, self._m = (buffer[:n_rows] for buffer in self._buffers)

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        """Bytes of the buffers."""
        return 4 * 8 * n_rows + InnerModel.bytes_for(n_rows, max_columns, entries, binary)

    @property
    def state(self) -> TrainerState:
        """The state, besides the point, that the next steps depend on."""
        damping = self.damping
        return TrainerState(
            self.inner.drawn, self.inner.grown, damping.raised, int(damping.careful)
        )

    @state.setter
    def state(self, state: TrainerState) -> None:
        self.inner.drawn, self.inner.grown = state.drawn, state.grown
        self.damping = Damping(state.raised, bool(state.careful))

    def solve(
        self, view: RowView, working: WorkingSet, anchor: Floats, target: float, max_steps: int
    ) -> Solved:
        """Move ``working.weights`` downhill on the local objective of the view, from the anchor.

        anchor : free coefficients of the anchor.  target : largest violation at which to stop.
        """
        self.start(view, working, anchor, anchor)
        decrease, sweeps, steps = 0.0, 0, 0
        while True:
            may_move = steps < max_steps and not self.inner.cease()
            taken = self.step(target, may_move)
            decrease += taken.decrease
            sweeps += taken.sweeps
            steps += taken.moved
            far = self.foresees and taken.violation > FAR
            last = steps == max_steps or (far and taken.foreseen <= target)
            # a step whose decrease rounding hides needs another look at the columns, to confirm it
            if not taken.moved or (last and self._undo is None):
                return Solved(self.free, decrease, taken.violation, steps, sweeps)

    def start(self, view: RowView, working: WorkingSet, anchor: Floats, free: Floats) -> None:
        """Start a local problem at the weights of the working set and some free coefficients.

        Recomputes the margins from the anchor's margins and the change of the weights.
        """
        self._view, self._working = view, working
        n = working.cache.n
        objective = view.objective
        self.free, self._anchor = free[: objective.n_free], anchor[: objective.n_free]
        self._m[:] = view.margins
        # margins of the anchor contain its covariates, but not its intercept
        objective.add_free(self.free if objective.intercept else self._delta, self._m)
        delta = working.weights[:n] - working.anchor_weights[:n]
        add_columns(working, np.arange(n), delta, self._m, self._team)
        if n and self._is_clipped(n) and self._is_cheap(n):
            # minimise directly again, until rounding spoils a step
            self.damping = Damping(0.0, self.damping.careful)
        self._before, self._undo = math.inf, None
        self.inner.forget()
        self._decrease, self._gains, self._settled, self._refused = 0.0, [], False, False

    @property
    def margins(self) -> Floats:
        """Margins of the trainer's point, with its free coefficients."""
        return self._m

    @property
    def _delta(self) -> Floats:
        """The free coefficients minus the anchor's."""
        return np.asarray(self.free - self._anchor)

    def rise(self) -> float:
        """The local objective at the current point minus that of the anchor."""
        view, working = self._view, self._working
        n = working.cache.n
        delta = working.weights[:n] - working.anchor_weights[:n]
        moved = np.flatnonzero(delta)
        delta = delta[moved]
        factor, of = working.factor[moved], view.objective.penalty
        x = self._delta
        start = float(self._anchor.sum()) if view.objective.intercept else 0.0
        floor = working.floor[moved]
        smooth = (
            view.objective.loss_sum(self._m, 0.0)
            - view.objective.loss_sum(view.margins, start)
            + float((working.correction[moved] * delta + 0.5 * floor * delta * delta).sum())
            + float(view.free_correction @ x + 0.5 * view.free_floor @ (x * x))
        )
        penalty = of.value(working.weights[moved], factor)
        penalty -= of.value(working.anchor_weights[moved], factor)
        return penalty + view.objective.C * smooth

    def step(self, target: float, may_move: bool = True) -> StepResult:
        """Take one proximal Newton step.

        Takes none if the violation is at most ``target``, the local problem is settled, or the objective
        would fall by more than the gap.
        """
        if (self._settled or self._refused) and self._undo is None:
            return StepResult(False, 0.0, self._before, 0)  # without another look at the columns
        view, working = self._view, self._working
        n = working.cache.n
        weights, penalty = working.weights[:n], view.objective.penalty
        columns = np.arange(n)
        if not self._is_cheap(n):
            prices, anchored = view.objective.C * working.gradients[:n], working.anchor_weights[:n]
            slopes = penalty.slopes(prices, anchored, working.factor[:n], working.cache.ids)
            worst = descent.violations(slopes, anchored, np.empty(n))
            near = np.abs(slopes) > max(RESTING, 1.0 - NEAR * worst)
            # the same columns in all steps from one anchor, so that a step can use the last one's model
            columns = np.flatnonzero((weights != 0.0) | (anchored != 0.0) | near)
        decrease, sweeps = 0.0, 0
        if not self._knows():
            # a remaining slope of the intercept would appear as a violation of every dense column
            slope = view.correction_at(self._delta)
            fit = fit_unpenalised(view.objective, self._m, slope, view.free_floor)
            self.free = self.free + fit.x
            decrease = view.objective.C * fit.decrease
        while True:
            local = self._localise(columns)
            ids, slopes = working.cache.ids[columns], local.gradients / local.absolute
            slopes = penalty.limits.clamp(ids, slopes, local.weights)
            self.seen = columns, slopes
            violation = float(descent.violations(slopes, local.weights, np.empty(len(columns))))
            if self._undo is not None and violation >= self._before:
                undone, old, free = self._undo
                self._return_to(undone, old, free)
                self._undo, self._gains = None, []
                self.inner.forget()
                if self.damping.careful:
                    return StepResult(False, decrease, self._before, sweeps)
                self.damping = self.damping.with_care()
                continue
            if not self._gains:
                self.inner.judge(self._before, violation)
            elif len(self._gains) > 1:  # of many columns, the largest violation is mostly noise
                self.inner.judge(*self._gains)
                del self._gains[0]
            if violation <= target or self._settled or self._refused or not may_move:
                return StepResult(False, decrease, violation, sweeps)
            tolerance = max(INNER_SHARE * violation, INNER_TARGET * target)
            step = self._minimise(local, tolerance, violation > self._early)
            sweeps += step.sweeps
            found = self._line(local, step).search()
            if found is not None:
                break
            if self.inner.cease() or self.damping.exhausted:
                return StepResult(False, decrease, violation, sweeps)
            self.damping = self.damping.after_failure()
            self.inner.forget()
        beta, gained = found.beta, found.decrease
        if self._decrease > 0.0 and self._decrease + gained > self.most_decrease:
            # a sample is not reliable this far from the anchor; a first step is taken, since its
            # rejection raises the proximal weight
            self._refused = True
            return StepResult(False, decrease, violation, sweeps)
        little = gained <= NEARLY_SAME * view.objective.C * local.loss
        if not (little and step.rough and beta == 1.0 and not self.damping.raised):
            self.inner.forget()
        self.damping = self.damping.after(beta)
        if beta < CUT and view.objective.loss.clipped:
            self.damping = self.damping.with_care(False)
        # if rounding hides the decrease, the violation of the next step has to confirm it
        self._undo = None if found.seen else (columns, local.weights, self.free)
        self._before = violation
        self._gains = [*self._gains, gained] if step.rough else []
        self._decrease += gained
        self._settled = step.rough and beta == 1.0 and gained <= SETTLED * self._decrease
        if self._settled and len(self._gains) > 1:
            self.inner.judge(*self._gains)  # no further look follows
        working.weights[columns] = penalty.limits.within(ids, local.weights + beta * step.d)
        self.free = self.free + beta * step.x
        losses.combine(self._m, self._dm, beta, self._m)
        foreseen = found.left * violation if beta == 1.0 else math.inf
        return StepResult(True, decrease + gained, violation, sweeps, foreseen)

    def _is_cheap(self, k: int, share: float = 1.0) -> bool:
        """Whether the Hessian of k columns takes next to no time, or a share of it."""
        n = self._view.objective.n_rows
        small = n * k * k <= share * CHEAP_HESSIAN or self._is_clipped(k)
        return k <= self._exact.most and n <= CHEAP_ROWS and small

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
        return loss.clipped and narrow and n * k <= clipped.MOST_ENTRIES

    def _minimise(self, local: LocalPoint, tolerance: float, early: bool) -> Step:
        """Minimise a small clipped problem itself; else a model of the local problem.

        The model has its whole Hessian if that is cheap; else coordinate descent works on sampled rows.
        """
        view, working = self._view, self._working
        n, k = view.objective.n_rows, len(local.columns)
        share = EARLY_SHARE if early else 1.0
        if self._is_cheap(k, share):
            if self.damping.raised or not self._is_clipped(k):
                self.chosen.add("whole Hessian", self.damping)
                cease = self.inner.cease
                return self._exact.minimise(view, working, local, self._q, tolerance, cease)
            self.chosen.add("local problem itself", self.damping)
            linear = self._linear(local)
            problem = clipped.ClippedProblem(view, working, local, self._m, linear, self._delta)
            # the tolerance is tight, since rounding may hide violations while values still differ
            return problem.minimise(min(tolerance, 1e-6), self.inner.cease, self.inner.hurry)
        some = np.flatnonzero(local.movable)
        fits = len(some) <= self._exact.most and n * len(some) ** 2 <= DEAR_HESSIAN
        # where the curvature jumps, the search would cut a step to the exact minimum short again
        fits = fits and not (0.0 < self.damping.raised < 1.0 and view.objective.loss.clipped)
        work = self._exact.work(working, local.columns[some], n) if fits else math.inf
        if not self.damping.careful and work > share * CHEAP_WORK:
            # sweeps that have taken as long as the whole Hessian would are unlikely to end soon
            self.chosen.add("sampled Hessian", self.damping)
            step = self.inner.minimise(view, working, local, self._q, tolerance, work)
            insufficient = step.cut or step.sweeps >= MAX_SWEEPS
            self.damping = self.damping.with_care(not early and insufficient)
            if not step.cut:
                return step
        elif not fits:
            self.chosen.add("sampled Hessian", self.damping)
            self.inner.grown = MOST_GROWN
            return self.inner.minimise(view, working, local, self._q, tolerance)
        self.chosen.add("whole Hessian", self.damping)
        part = self._exact.minimise(
            view, working, local.take(some), self._q, tolerance, self.inner.cease
        )
        d = np.zeros(k)
        d[some] = part.d
        return Step(d, part.x, part.sweeps)

    def freeze(self, columns: Columns) -> None:
        """Return these columns to the anchor's weights, before they are evicted."""
        self._return_to(columns, self._working.anchor_weights[columns], self.free)
        self._undo = None

    def _return_to(self, columns: Columns, weights: Floats, free: Floats) -> None:
        working = self._working
        back = weights - working.weights[columns]
        add_columns(working, columns, back, self._m, self._team)
        self._view.objective.add_free(free - self.free, self._m)
        working.weights[columns] = weights
        self.free = free

    def columns_changed(self) -> None:
        """Call after columns have entered, or columns with another weight than the anchor's have left."""
        self.columns_left()
        self._settled = False

    def columns_left(self) -> None:
        """Call after other columns have left: the last step can no longer be undone or judged."""
        self._before, self._undo = math.inf, None
        self._gains = []
        self.seen = np.empty(0, np.intp), np.empty(0)  # numbers of columns have changed
        self.inner.forget()

    # -- the local problem at the current point ------------------------------------------------

    def _knows(self) -> bool:
        """Whether gradients and curvatures are known: at the anchor, those that corrected the view."""
        view, working = self._view, self._working
        n = working.cache.n
        at_anchor = np.array_equal(self.free, self._anchor)
        at_anchor &= np.array_equal(working.weights[:n], working.anchor_weights[:n])
        return at_anchor and view.approximate and not self.damping.raised

    def _localise(self, columns: Columns) -> LocalPoint:
        """The local objective at the current point; writes residuals and curvatures to the buffers."""
        view, working = self._view, self._working
        objective = view.objective
        objective.residuals_curvatures(self._m, self._r, self._q)
        if self.damping.raised:
            objective.raise_curvatures(self._m, self.damping.raised, self._q)
        weights, floor = working.weights[columns], working.floor[columns]
        if self._knows():
            g, h = working.gradients[columns], working.curvatures[columns]
        else:
            g, h = column_moments(working, columns, self._r, self._q, self._team)
            g += working.correction[columns] + floor * (weights - working.anchor_weights[columns])
        factor, penalty = working.factor[columns], objective.penalty
        ridge = penalty.ridge(factor) / objective.C
        low, high = penalty.limits.of(working.cache.ids[columns])
        return LocalPoint(
            columns,
            weights,
            g + ridge * weights,
            h,
            floor,
            penalty.absolute(factor) / objective.C,
            ridge,
            low,
            high,
            objective.loss_sum(self._m, 0.0),
            objective.free_sums(self._r) + view.correction_at(self._delta),
        )

    def _linear(self, local: LocalPoint) -> Floats:
        """Slopes of the linear and quadratic terms in the weights."""
        working = self._working
        delta = local.weights - working.anchor_weights[local.columns]
        corrections = working.correction[local.columns]
        return np.asarray(corrections + local.floor * delta + local.ridge * local.weights)

    def _line(self, local: LocalPoint, step: Step) -> Line:
        """The local objective along a step; writes the margins of the step."""
        view, working = self._view, self._working
        self._dm[:] = 0.0
        view.objective.add_free(step.x, self._dm)
        add_columns(working, local.columns, step.d, self._dm, self._team)
        C, d, w = view.objective.C, step.d, local.weights
        # term by term: a difference of sums would lose the small promises of the last steps
        rise = np.where(w * (w + d) > 0.0, np.sign(w) * d, np.abs(w + d) - np.abs(w))
        promised = float((local.gradients * d + local.absolute * rise).sum())
        promised += float(local.slopes @ step.x)
        norm = math.fsum(local.absolute * np.abs(w))
        return Line(
            view.objective,
            self._m,
            self._dm,
            local,
            d,
            float((self._linear(local) * d).sum())
            + float(view.correction_at(self._delta) @ step.x),
            float(((local.floor + local.ridge) * d * d).sum())
            + float(view.free_floor @ (step.x * step.x)),
            norm,
            C * promised,
            ROUNDING * C * (local.loss + norm),
        )
