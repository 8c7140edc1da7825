"""The trainer of several outputs whose weights belong together, or whose loss couples them.

A step is a proximal Newton step, as in :mod:`fcl.solve.trainer`: a quadratic model of the local objective
in all K weights of each column, coordinate descent on it (:mod:`fcl.solve.coupled_model`), and a search
along the step on the local objective itself:

    C [ sum_i s_i loss(u_i) + <c, W - W_e> + 1/2 sum_j kappa_j |W_j. - W_e,j.|^2 + c_b . (b - b_e) + ... ]
        + penalty(W),        u_i = u_e,i + (W - W_e)' phi_i + (V - V_e) z_i

For softmax it takes a quarter of the time of class blocks, and less than half that of proximal steps with
one Gram matrix (both measured in docs/performance/rejected.md).

Weights, gradients and corrections have the shape (k, K); margins, residuals and curvatures (K, n). The
margins of several outputs include the intercepts, and so do those of the view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fcl.objective import ROUNDING, Outputs
from fcl.parallel import SERIAL, Team
from fcl.solve.coupled_exact import exact_bytes, is_exact, minimise_exactly
from fcl.solve.coupled_model import RowHessians, minimise_model, model_bytes
from fcl.solve.damping import Choices, Damping
from fcl.solve.inner import InnerModel
from fcl.solve.inner_descent import MAX_SWEEPS
from fcl.solve.line import Share, search_share
from fcl.solve.output_view import OutputView, output_moments
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet, is_active
from fcl.solve.trainer import (
    INNER_SHARE,
    INNER_TARGET,
    NEAR,
    RESTING,
    StepResult,
    TrainerState,
)
from fcl.solve.view import add_columns
from fcl.types import Floats

#: Maximum share of the curvatures that is added to them after cut steps.
MOST_RAISED = 1e6
#: Maximum sweeps of a step while slopes exceed twice their bound: the model is poor there.
FAR_SWEEPS = 60
#: Numbers that a step allocates for each column and output: the local point, the same without the columns
#: that stay, the model, the step, the terms of the search, and the iterates of an extrapolation.
COLUMN_NUMBERS = 36


def add_outputs(
    working: WorkingSet, columns: Columns, deltas: Floats, m: Floats, team: Team = SERIAL
) -> None:
    """Add cached columns times their deltas, (k, K), to the margins m, (K, n), in place."""
    for output, own in enumerate(m):
        changed = np.flatnonzero(deltas[:, output])
        moved = np.ascontiguousarray(deltas[changed, output])
        add_columns(working, columns[changed], moved, own, team)


def norm_rise(w: Floats, d: Floats, group: bool) -> Floats:
    """Changes of the norm of each feature's weights by a step d, without loss of digits.

    w, d : float64 (k, K).  group : whether the norm is the Euclidean norm instead of the L1 norm.
    """
    if not group:
        new = w + d
        rise = np.where(w * new > 0.0, np.sign(w) * d, np.abs(new) - np.abs(w))
        return np.asarray(rise.sum(axis=1))
    sizes = np.linalg.norm(w + d, axis=1) + np.linalg.norm(w, axis=1)
    change = ((2.0 * w + d) * d).sum(axis=1)
    return np.divide(change, sizes, out=np.zeros(len(w)), where=sizes > 0.0)


def norm_slope(w: Floats, d: Floats, group: bool) -> Floats:
    """Derivatives of the norm of each feature's weights along d; where they are 0, to the right."""
    if not group:
        return np.asarray(np.where(w != 0.0, np.sign(w) * d, np.abs(d)).sum(axis=1))
    size = np.linalg.norm(w, axis=1)
    right = np.linalg.norm(d, axis=1)
    return np.divide((w * d).sum(axis=1), size, out=right, where=size > 0.0)


@dataclass(frozen=True)
class CoupledLine:
    """The change of the local objective along a step d of the weights, float64 (k, K)."""

    objective: Outputs
    m: Floats  #: margins before the step
    dm: Floats  #: margins of the step
    local: LocalPoint
    d: Floats
    #: slope and curvature, along the step, of the linear and quadratic terms
    linear: float
    square: float

    def at(self, beta: float) -> tuple[float, float, float]:
        """Change, slope and curvature of the local objective at a share beta of the step."""
        part, local, w = self.objective, self.local, self.local.weights
        sums = part.line_sums(self.m, self.dm, beta)
        group, step = part.penalty.grouped, beta * self.d
        change = sums.value - local.loss + beta * self.linear + 0.5 * beta**2 * self.square
        change += float(local.absolute @ norm_rise(w, step, group))
        slope = sums.slope_beta + self.linear + beta * self.square
        slope += float(local.absolute @ norm_slope(w + step, self.d, group))
        return part.C * change, part.C * slope, part.C * (sums.curve_beta + self.square)


class CoupledTrainer:
    """Solves local problems of several outputs step by step, in its own buffers.

    It has the methods of :class:`fcl.solve.trainer.Trainer`.

    Parameters
    ----------
    inner : InnerModel
        Gathers columns; the trainer has the same maximum numbers of rows and columns.
    n_outputs : int
        K.
    """

    def __init__(self, inner: InnerModel, n_outputs: int) -> None:
        self._buffers = [np.empty(n_outputs * inner.n_rows) for _ in range(4)]
        self._n_outputs = n_outputs
        self.resize(inner.n_rows)
        self.inner = inner
        self._team = inner.team
        self.damping = Damping(most=MOST_RAISED)
        self.chosen = Choices()
        #: free coefficients of the trainer's point, and of the anchor
        self.free = self._anchor = np.empty(0)
        #: columns of the last step, and their slopes before it, of the size that the penalty bounds by 1
        self.seen: tuple[Columns, Floats] = (np.empty(0, np.intp), np.empty(0))
        self._before = math.inf
        self._undo: tuple[Columns, Floats, Floats] | None = None
        #: absolute gap of the anchor: no point lowers the objective by more
        self.most_decrease = math.inf
        self.foresees = False  #: as of Trainer, but every step is looked at again

    def resize(self, n_rows: int) -> None:
        """Set the number of rows of the view, at most the size of the buffers."""
        shape = self._n_outputs, n_rows
        self._r, self._q, self._dm, self._m = (
            buffer[: shape[0] * n_rows].reshape(shape) for buffer in self._buffers
        )

    @staticmethod
    def bytes_for(n_rows: int, n_columns: int, n_outputs: int, group: bool, q: int = 0) -> int:
        """Bytes of the buffers and of the allocations of a step, beyond those of a trainer of one output.

        n_columns : number of columns that may be active.  group : whether the penalty is the group norm.
        q : number of covariates.
        """
        model = model_bytes(n_rows, n_columns, n_outputs, group, q)
        return 4 * 8 * n_outputs * n_rows + max(model, exact_bytes(n_rows, n_columns, n_outputs, q))

    @staticmethod
    def column_bytes(n_outputs: int) -> int:
        """Bytes that a step allocates for each active column, except those of :meth:`bytes_for`."""
        return COLUMN_NUMBERS * 8 * n_outputs

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
        self.damping = Damping(state.raised, bool(state.careful), MOST_RAISED)

    @property
    def margins(self) -> Floats:
        """Margins of the trainer's point, float64 (K, n), which its owner sets."""
        return self._m

    def start(self, view: OutputView, working: WorkingSet, anchor: Floats, free: Floats) -> None:
        """Start at the weights of the working set, at :attr:`margins` and at the coefficients ``free``.

        anchor, free : float64 (n_free,), free coefficients of the anchor and of the point.
        """
        self._view, self._working = view, working
        self.free, self._anchor = free, anchor

    @property
    def _delta(self) -> Floats:
        """The free coefficients minus the anchor's."""
        return np.asarray(self.free - self._anchor)

    def step(self, target: float, may_move: bool = True) -> StepResult:
        """Take one proximal Newton step.

        Takes none if the violation is at most ``target``, or if the objective would fall by more than the
        gap.
        """
        view, working = self._view, self._working
        objective = view.objective
        columns = self._columns()
        decrease = 0.0
        if len(self.free):
            slope = view.correction_at(self._delta)
            fit = objective.fit_unpenalised(self._m, slope, view.free_floor)
            self.free = self.free + fit.x
            decrease = objective.C * fit.decrease
        local, violation = self._look(columns)
        if self._undo is not None and violation >= self._before:
            # rounding hid that the last step led uphill
            self._return_to(*self._undo)
            self._undo = None
            return StepResult(False, decrease, self._before, 0)
        self.inner.judge(self._before, violation)
        if violation <= target or not may_move:
            return StepResult(False, decrease, violation, 0)
        tolerance = max(INNER_SHARE * violation, INNER_TARGET * target)
        # features well within their bounds could not move by as little as the others violate theirs
        near = 1.0 - NEAR * violation
        part = local.take(np.flatnonzero(is_active(local.weights) | (self.seen[1] > near)))
        hessians, sweeps = self._row_hessians(), 0
        while True:
            step = self._minimise(part, hessians, tolerance, violation)
            sweeps += step.sweeps
            found = self._search(part, step)
            if found is not None:
                break
            self.damping = self.damping.with_care()
            if self.inner.cease() or self.damping.exhausted:
                return StepResult(False, decrease, violation, sweeps)
            self.damping = self.damping.more()
        beta, gained = found.beta, found.decrease
        before = working.of("anchor_weights")[part.columns]
        if gained > self.most_decrease and (part.weights != before).any():
            return StepResult(False, decrease, violation, sweeps)
        self.damping = self.damping.after(beta)
        self._undo = None if found.seen else (part.columns, part.weights, self.free)
        self._before = violation
        self._set(part.columns, part.weights + beta * step.d)
        self.free = self.free + beta * step.x
        self._m += beta * self._dm
        return StepResult(True, decrease + gained, violation, sweeps)

    def _minimise(
        self, part: LocalPoint, hessians: RowHessians, tolerance: float, violation: float
    ) -> Step:
        """Minimise the model at a point: exactly if that is cheap, else by coordinate descent.

        violation : at the point.
        """
        view, working, raised = self._view, self._working, self.damping.raised
        if is_exact(view, len(part.columns), self.damping.careful):
            self.chosen.add("whole Hessian", self.damping)
            cease, hessians = self.inner.cease, hessians.raised(raised)
            return minimise_exactly(view, working, part, hessians, raised, tolerance, cease)
        most = MAX_SWEEPS if violation <= 1.0 else FAR_SWEEPS
        self.chosen.add("sampled Hessian", self.damping)
        step = minimise_model(
            self.inner,
            view,
            working,
            part,
            hessians.raised(raised),
            raised,
            tolerance,
            # features well within their bounds could not move by as little as the others violate theirs
            1.0 - NEAR * violation,
            most,
        )
        self.damping = self.damping.with_care(self.damping.careful or step.sweeps >= most)
        return step

    def _columns(self) -> Columns:
        """Columns with a weight, or near a violation at the anchor."""
        working, objective = self._working, self._view.objective
        penalty, C = objective.penalty, objective.C
        weights, factor = working.of("weights"), working.factor[: working.cache.n]
        slopes = penalty.slopes(C * working.of("gradients"), weights, factor)
        return np.flatnonzero(is_active(weights) | (penalty.sizes(slopes) > RESTING))

    def _look(self, columns: Columns) -> tuple[LocalPoint, float]:
        """The local objective at the current point, and its largest violation.

        Writes residuals and curvatures to the buffers.
        """
        view, working = self._view, self._working
        part = view.objective
        part.residuals_curvatures(self._m, self._r, self._q)
        g, h = output_moments(view, working, columns, self._r, None if view.complete else self._q)
        weights, floor = working.of("weights")[columns], working.of("floor")[columns]
        g += self._corrections(columns, weights, floor)
        factor, penalty = working.factor[columns], part.penalty
        ridge, absolute = penalty.ridge(factor) / part.C, penalty.absolute(factor) / part.C
        g += ridge[:, None] * weights
        slopes = view.correction_at(self._delta)
        if len(self.free):
            slopes = slopes + part.free_sums(self._r)
        self.seen = columns, penalty.sizes(g / absolute[:, None])
        prices = part.C * (g - ridge[:, None] * weights)
        violation = float(penalty.violations(prices, weights, factor).max(initial=0.0))
        loss = part.loss_sum(self._m)
        limits = penalty.limits.of(working.cache.ids[columns])
        local = LocalPoint(columns, weights, g, h, floor, absolute, ridge, *limits, loss, slopes)
        return local, violation

    def _row_hessians(self) -> RowHessians:
        """The Hessian at the current point; residuals and curvatures are in the buffers."""
        part = self._view.objective
        z = None if part.covariates is None else part.covariates.values
        if part.separate:
            return RowHessians(self._q, np.ones(part.n_rows), False, z)
        return RowHessians(part.loss.mean(self._m), part.s, True, z)

    def _search(self, local: LocalPoint, step: Step) -> Share | None:
        """Search along a step; writes the margins of the step."""
        view, working = self._view, self._working
        part = view.objective
        self._dm[:] = 0.0
        if len(step.x):
            part.add_free(step.x, self._dm)
        changed = np.flatnonzero(step.d.any(axis=1))
        add_outputs(working, local.columns[changed], step.d[changed], self._dm, self._team)
        d, ridge, floor = step.d, local.ridge[:, None], local.floor
        slopes = self._corrections(local.columns, local.weights, floor)
        slopes += ridge * local.weights
        linear = float((slopes * d).sum())
        square = float(((floor + ridge) * d * d).sum())
        if len(step.x):
            linear += float(view.correction_at(self._delta) @ step.x)
            with np.errstate(over="ignore"):  # a step of infinite curvature has no length
                square += float(view.free_floor @ (step.x * step.x))
        line = CoupledLine(part, self._m, self._dm, local, d, linear, square)
        norms = norm_rise(local.weights, d, part.penalty.grouped)
        promised = float((local.gradients * d).sum()) + float(local.absolute @ norms)
        promised += float(local.slopes @ step.x)
        sizes = norm_rise(np.zeros_like(d), local.weights, part.penalty.grouped)
        rounding = ROUNDING * part.C * (local.loss + float(local.absolute @ sizes))
        return search_share(line.at, part.C * promised, rounding)

    def _return_to(self, columns: Columns, weights: Floats, free: Floats) -> None:
        working = self._working
        back = weights - working.of("weights")[columns]
        add_outputs(working, columns, back, self._m, self._team)
        if len(free):
            self._view.objective.add_free(free - self.free, self._m)
        self._set(columns, weights)
        self.free = free

    def _set(self, columns: Columns, weights: Floats) -> None:
        self._working.weights[:, columns] = weights.T

    def _corrections(self, columns: Columns, weights: Floats, floor: Floats) -> Floats:
        """Slopes of the terms that correct the view, float64 (k, K)."""
        working = self._working
        delta = weights - working.of("anchor_weights")[columns]
        return np.asarray(working.of("correction")[columns] + floor * delta)

    def columns_changed(self) -> None:
        """Call after columns have entered or left: the last step can no longer be undone or judged."""
        self._before, self._undo = math.inf, None

    columns_left = columns_changed
