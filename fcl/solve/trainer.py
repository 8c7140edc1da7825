"""The trainer: proximal Newton steps on the local problem of a row view.

A step (newGLMNET, Yuan, Ho and Lin 2012) has three parts:

1. choose a quadratic model of the local objective at the current point,
2. minimise it,
3. search along the step on the local objective itself.

:mod:`fcl.solve.single` has the models of one output, :mod:`fcl.solve.coupled` those of K outputs that are
trained together. The intercepts and the coefficients of covariates are eliminated inside a step, and
minimised by Newton's method between steps: the indicators of the four letters at a position add up to a
constant, so alternating with the intercept converges very slowly.

Weights, gradients and corrections of columns are (k,), or (k, K) with K outputs; margins, residuals and
curvatures (n,) or (K, n).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fcl.objective.limits import by_output
from fcl.solve.columns import add_columns, column_moments
from fcl.solve.damping import Damping
from fcl.solve.inner import InnerModel
from fcl.solve.line import Line
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.solve.view import RowView
from fcl.types import Floats

#: Columns with weight 0 and |slope| below this at the anchor are skipped until the next pass.
RESTING = 0.8
#: Columns with weight 0 whose |slope| is below 1 by more than this multiple of the largest violation are
#: skipped, too: until the next pass, slopes change by about as much as violations fall.
NEAR = 3.0
#: A local problem whose steps are rough is settled by a step with at most this share of the whole
#: decrease since the anchor. A step divides what is left by five to ten, so little is left then, and the
#: next anchor, with new columns and exact gradients, gains more than another step.
SETTLED = 0.15
#: A rough step that gained at most this share of the losses leaves their curvatures nearly the same, so
#: the next one uses its model again. Gathering the columns takes a fifth of a step.
NEARLY_SAME = 2e-3
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


class Trainer(ABC):
    """Solves local problems step by step, in its own buffers.

    inner : minimises models by coordinate descent; the trainer has the same maximum numbers of rows and
        columns, and the same team of threads.
    outputs : (K,) with K outputs, () with one.
    """

    undamped: ClassVar[Damping] = Damping()
    line_type: ClassVar[type[Line]] = Line

    def __init__(self, inner: InnerModel, outputs: tuple[int, ...]) -> None:
        self._outputs = outputs
        self._buffers = [np.empty(math.prod(outputs) * inner.n_rows) for _ in range(4)]
        self.resize(inner.n_rows)
        self.inner = inner
        self._team = inner.team
        self.damping = self.undamped
        #: the models that were minimised since the last anchor, and how often
        self.chosen: Counter[str] = Counter()
        # the local problem that is being solved: rows, columns and
        self._view: RowView
        self._working: WorkingSet
        #: free coefficients of the trainer's point, and of the anchor
        self.free = self._anchor = np.empty(0)
        #: columns of the last step, and their slopes before it, or the sizes of these
        self.seen: tuple[Columns, Floats] = (np.empty(0, np.intp), np.empty(0))
        self._before = math.inf  # violation before the last step
        self._decrease = 0.0  # of the local objective since it was started
        self._drawn = 0  # samples drawn when it was started
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
        shape = *self._outputs, n_rows
        # residuals, curvatures, margins of a step, margins with the free coefficients
        self._r, self._q, self._dm, self._m = (
            buffer[: math.prod(shape)].reshape(shape) for buffer in self._buffers
        )

    @property
    def models(self) -> str:
        """What was chosen, such as ``sampled Hessian 2; raised whole Hessian 1``."""
        return "; ".join(f"{model} {count}" for model, count in self.chosen.items())

    def _choose(self, model: str) -> None:
        """Count a model; raised, if its curvatures were raised after a cut step."""
        self.chosen[f"raised {model}" if self.damping.raised else model] += 1

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
        careful = bool(state.careful)
        self.damping = replace(self.undamped, raised=state.raised, careful=careful)

    @property
    def margins(self) -> Floats:
        return self._m

    @property
    def is_hidden(self) -> bool:
        """Whether rounding hides the decrease of the last step, which another look has to confirm."""
        return self._undo is not None

    @property
    def _delta(self) -> Floats:
        return np.asarray(self.free - self._anchor)

    # -- the local problem ---------------------------------------------------------------------

    def start(self, view: RowView, working: WorkingSet, anchor: Floats, free: Floats) -> None:
        """Start a local problem at the weights of the working set and some free coefficients.

        Recomputes the margins from the anchor's margins and the change of the weights.
        """
        self._view, self._working = view, working
        objective = view.objective
        self.free, self._anchor = free[: objective.n_free], anchor[: objective.n_free]
        self._m[:] = view.margins
        if len(self.free):
            objective.add_free(self.free if objective.intercept_apart else self._delta, self._m)
        delta = working.of("weights") - working.of("anchor_weights")
        add_columns(working, np.arange(len(delta)), delta, self._m, self._team)
        self._before, self._undo = math.inf, None
        self._drawn = self.inner.drawn
        self.inner.forget()
        self._decrease, self._gains, self._settled, self._refused = 0.0, [], False, False

    def freeze(self, columns: Columns) -> None:
        """Return these columns to the anchor's weights, before they are evicted."""
        self._return_to(columns, self._working.of("anchor_weights")[columns], self.free)
        self._undo = None

    def _return_to(self, columns: Columns, weights: Floats, free: Floats) -> None:
        working = self._working
        back = weights - working.of("weights")[columns]
        add_columns(working, columns, back, self._m, self._team)
        if len(free):
            self._view.objective.add_free(free - self.free, self._m)
        working.weights[..., columns] = weights.T
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

    # -- a step --------------------------------------------------------------------------------

    def step(self, target: float, may_move: bool = True) -> StepResult:
        """Take one proximal Newton step.

        Takes none if the violation is at most ``target``, the local problem is settled, or the objective
        would fall by more than the gap.
        """
        if (self._settled or self._refused) and self._undo is None:
            return StepResult(False, 0.0, self._before, 0)  # without another look at the columns
        view, objective = self._view, self._view.objective
        # in one order from an anchor on, so that a step can use the model of the last one
        columns = self.inner.shuffled(self._choose_columns(), self._working.cache.n, self._drawn)
        decrease, sweeps = 0.0, 0
        if len(self.free) and not self._knows():
            # a remaining slope of the intercept would appear as a violation of every dense column
            slope = view.correction_at(self._delta)
            fit = objective.fit_unpenalised(self._m, slope, view.free_floor)
            self.free = self.free + fit.x
            decrease = objective.C * fit.decrease
        while True:
            local = self._localise(columns)
            violation = self._violation(local)
            if self._undo is not None and violation >= self._before:
                # rounding hid that the last step led uphill
                self._return_to(*self._undo)
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
            local = self._movable(local, violation)
            step = self._minimise(local, tolerance, violation)
            sweeps += step.sweeps
            found = self._line(local, step).search()
            if found is not None:
                break
            if self.inner.cease() or self.damping.exhausted:
                return StepResult(False, decrease, violation, sweeps)
            self.damping = self.damping.after_failure()
            self.inner.forget()
        beta, gained = found.beta, found.decrease
        if self._goes_too_far(local, gained):
            self._refused = True
            return StepResult(False, decrease, violation, sweeps)
        little = gained <= NEARLY_SAME * objective.C * local.loss
        if not (little and step.rough and beta == 1.0 and not self.damping.raised):
            self.inner.forget()
        self._damp(beta)
        # if rounding hides the decrease, the violation of the next step has to confirm it
        self._undo = None if found.seen else (local.columns, local.weights, self.free)
        self._before = violation
        self._gains = [*self._gains, gained] if step.rough else []
        self._decrease += gained
        self._settled = step.rough and beta == 1.0 and gained <= SETTLED * self._decrease
        if self._settled and len(self._gains) > 1:
            self.inner.judge(*self._gains)  # no further look follows
        self._move(local, step, beta)
        foreseen = found.left * violation if beta == 1.0 else math.inf
        return StepResult(True, decrease + gained, violation, sweeps, foreseen)

    def _move(self, local: LocalPoint, step: Step, beta: float) -> None:
        """Move by a share of a step, whose margins are in the buffer."""
        working, limits = self._working, self._view.objective.penalty.limits
        weights = limits.within(local.ids, local.weights + beta * step.d)
        working.weights[..., local.columns] = weights.T
        self.free = self.free + beta * step.x
        self._m += beta * self._dm

    @staticmethod
    def _near(violation: float = math.inf) -> float:
        """Size of a slope at the anchor up to which a column of weight 0 is skipped."""
        return max(RESTING, 1.0 - NEAR * violation)

    @abstractmethod
    def _choose_columns(self) -> Columns:
        """The columns of a step: those with a weight, or near a violation at the anchor."""

    @abstractmethod
    def _violation(self, local: LocalPoint) -> float:
        """The largest violation at a point; sets :attr:`seen`."""

    def _movable(self, local: LocalPoint, violation: float) -> LocalPoint:
        """The point in the columns that the model has."""
        return local

    @abstractmethod
    def _minimise(self, local: LocalPoint, tolerance: float, violation: float) -> Step:
        """Choose a model at a point, and minimise it.

        violation : at the point.
        """

    def _goes_too_far(self, local: LocalPoint, gained: float) -> bool:
        """Whether the objective would fall by more than the gap, from the anchor on.

        A sample is not reliable this far from the anchor. A first step is taken, since its rejection
        raises the proximal weight.
        """
        return self._decrease > 0.0 and self._decrease + gained > self.most_decrease

    def _damp(self, beta: float) -> None:
        """Update the damping after a step of which the search took the share ``beta``."""
        self.damping = self.damping.after(beta)

    # -- the local objective at the current point ----------------------------------------------

    def _knows(self) -> bool:
        """Whether gradients and curvatures are known: at the anchor, those that corrected the view."""
        return False

    def _moments(self, columns: Columns) -> tuple[Floats, Floats]:
        """Gradients and curvatures of the losses over the view; residuals are in the buffer."""
        return column_moments(self._working, columns, self._r, self._q, self._team)

    def _localise(self, columns: Columns) -> LocalPoint:
        """The local objective at the current point; writes residuals and curvatures to the buffers."""
        view, working = self._view, self._working
        objective = view.objective
        objective.residuals_curvatures(self._m, self._r, self._q)
        weights, floor = working.of("weights")[columns], working.of("floor")[columns]
        if self._knows():
            g, h = working.of("gradients")[columns], working.of("curvatures")[columns]
        else:
            g, h = self._moments(columns)
            g += self._corrections(columns, weights, floor)
        factor, penalty = working.factor[columns], objective.penalty
        ridge = penalty.ridge(factor) / objective.C
        low, high = penalty.limits.of(working.cache.ids[columns])
        return LocalPoint(
            view,
            working,
            columns,
            weights,
            g + by_output(ridge, weights) * weights,
            h,
            floor,
            penalty.absolute(factor) / objective.C,
            ridge,
            low,
            high,
            objective.loss_sum(self._m),
            objective.free_sums(self._r) + view.correction_at(self._delta),
        )

    def _corrections(self, columns: Columns, weights: Floats, floor: Floats) -> Floats:
        """Slopes of the terms that correct the view, in the weights of some columns."""
        working = self._working
        delta = weights - working.of("anchor_weights")[columns]
        return np.asarray(working.of("correction")[columns] + floor * delta)

    def _linear(self, local: LocalPoint) -> Floats:
        """Slopes of the linear and quadratic terms in the weights."""
        slopes = self._corrections(local.columns, local.weights, local.floor)
        return np.asarray(slopes + by_output(local.ridge, local.weights) * local.weights)

    def _line(self, local: LocalPoint, step: Step) -> Line:
        """The local objective along a step; writes the margins of the step."""
        view, d = self._view, step.d
        self._dm[:] = 0.0
        if len(step.x):
            view.objective.add_free(step.x, self._dm)
        add_columns(self._working, local.columns, d, self._dm, self._team)
        linear = float((self._linear(local) * d).sum())
        linear += float(view.correction_at(self._delta) @ step.x)
        square = float(((local.floor + by_output(local.ridge, d)) * d * d).sum())
        with np.errstate(over="ignore"):  # a step of infinite curvature has no length
            square += float(view.free_floor @ (step.x * step.x))
        return self.line_type(view.objective, self._m, self._dm, local, step, linear, square)
