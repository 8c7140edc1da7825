"""One-variable Newton with a line search: the trainer of Matsushima (2016), improved, for comparison.

Logistic loss and columns of zeros and ones.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.kernels import kernel
from fcl.kernels.bits import trailing_zeros
from fcl.kernels.columns import BITS, piece_moments
from fcl.kernels.descent import soft_threshold, violation
from fcl.kernels.losses import LOGISTIC, loss_value
from fcl.solve.line import SIGMA
from fcl.solve.state import Floats
from fcl.solve.trainer import RESTING, Solved

if TYPE_CHECKING:
    from fcl.solve.state import Floats, WorkingSet
    from fcl.solve.view import RowView

LOSS = LOGISTIC, 0.0  # code and parameter, which the logistic loss ignores


@kernel
def column_moments(pieces: Any, j: Any, rq: Any) -> Any:
    """Sums of r_i phi_ij and of q_i phi_ij^2 over all rows; rq : float64 (n_rows, 2)."""
    g = 0.0
    h = 0.0
    for b in range(pieces.kinds.shape[1]):
        first = b * pieces.block_rows
        stop = min(first + pieces.block_rows, pieces.n_rows)
        part = rq[first:stop]
        part_g, part_h = piece_moments(pieces, j, b, part[:, 0], part[:, 1], part)
        g += part_g
        h += part_h
    return g, h


@kernel
def column_rows(pieces: Any, j: Any, out: Any) -> Any:
    """Write the rows of a binary column; returns their count."""
    n: Any = 0
    for b in range(pieces.kinds.shape[1]):
        first = b * pieces.block_rows
        offset = pieces.first[j] + np.int64(pieces.offsets[j, b])
        count = np.int64(pieces.counts[j, b])
        if pieces.kinds[j, b] == BITS:
            stop = min(first + pieces.block_rows, pieces.n_rows)
            for w in range((stop - first + 63) >> 6):
                word = pieces.arena64[(offset >> 3) + w]
                while word != 0:
                    out[n] = first + 64 * w + np.int64(trailing_zeros(word))
                    n += 1
                    word &= word - np.uint64(1)
        else:
            rows = pieces.arena16[offset >> 1 : (offset >> 1) + count]
            for e in range(count):
                out[n + e] = first + rows[e]
            n += count
    return n


@kernel
def refresh(y: Any, s: Any, m: Any, u: Any, rq: Any) -> None:
    """Compute u_i = exp(y_i m_i) (with a clamped exponent), residuals and curvatures from margins."""
    for i in range(y.shape[0]):
        u[i] = math.exp(min(max(y[i] * m[i], -500.0), 500.0))
        p = 1.0 / (1.0 + u[i])
        rq[i, 0] = -s[i] * y[i] * p
        rq[i, 1] = s[i] * p * (1.0 - p)


@kernel
def move_intercept(
    y: Any, s: Any, m: Any, u: Any, rq: Any, slope: Any, floor: Any, most: Any
) -> Any:
    """Make one Newton step of at most ``most`` on the intercept; update all vectors. Returns the step."""
    total = slope
    curve = floor
    for i in range(y.shape[0]):
        total += rq[i, 0]
        curve += rq[i, 1]
    if not curve > 0.0:
        return 0.0
    z = min(max(-total / curve, -most), most)
    up = math.exp(z)
    down = math.exp(-z)
    for i in range(y.shape[0]):
        m[i] += z
        u[i] *= up if y[i] > 0.0 else down
        p = 1.0 / (1.0 + u[i])
        rq[i, 0] = -s[i] * y[i] * p
        rq[i, 1] = s[i] * p * (1.0 - p)
    return z


@kernel
def newton_sweep(
    pieces: Any,
    slots: Any,
    order: Any,
    C: Any,
    sigma: Any,
    y: Any,
    s: Any,
    m: Any,
    u: Any,
    rq: Any,
    w: Any,
    anchor_w: Any,
    correction: Any,
    floor: Any,
    gradients: Any,
    rows: Any,
    out: Any,
) -> None:
    """One sweep of one-variable Newton steps over binary columns, for the logistic loss.

    Exact first and second derivatives at the current margins, a step by soft threshold, and the first
    beta of 1, 1/2, 1/4, ... with
        P(w + beta delta) - P(w) <= sigma beta (C g delta + |w + delta| - |w|).
    The absolute third derivative is at most the second derivative, so the decrease is at least
        -(g z + h (e^|z| - 1 - |z|)),   z = beta delta;
    if this suffices, no row is read for the test. A step updates u = exp(y m) by one factor per label.

    slots : int64, the slots of the live columns.
    order : int64 (k,); gradients : float64 (k,), overwritten with C g of each column before its step.
    m, u, rq, w are updated after each step. rows : int32 (n_rows,), overwritten.
    out : float64 (3,), overwritten: largest violation found, decrease, number of exact line searches.
    """
    out[:] = 0.0
    for o in range(order.shape[0]):
        j = order[o]
        g, h = column_moments(pieces, slots[j], rq)
        g += correction[j] + floor[j] * (w[j] - anchor_w[j])
        gradients[o] = C * g
        out[0] = max(out[0], violation(C * g, w[j]))
        curve = h + floor[j]
        if not curve > 0.0:
            continue
        delta = soft_threshold(w[j] - g / curve, 1.0 / (C * curve)) - w[j]
        promised = C * g * delta + abs(w[j] + delta) - abs(w[j])
        if delta == 0.0 or not promised < 0.0:
            continue
        n = column_rows(pieces, slots[j], rows)
        linear = correction[j] + floor[j] * (w[j] - anchor_w[j])
        beta = 1.0
        taken = False
        for _ in range(30):
            z = beta * delta
            size = abs(z)
            penalty = abs(w[j] + z) - abs(w[j])
            square = 0.5 * floor[j] * z * z
            if size < 30.0:
                most = C * (g * z + h * (math.expm1(size) - size) + square) + penalty
                if most <= sigma * beta * promised:
                    taken = True
                    out[1] -= most
                    break
            change = linear * z + square
            for e in range(n):
                i = rows[e]
                change += s[i] * (loss_value(LOSS, y[i], m[i] + z) - loss_value(LOSS, y[i], m[i]))
            out[2] += 1.0
            change = C * change + penalty
            if change <= sigma * beta * promised:
                taken = True
                out[1] -= change
                break
            beta *= 0.5
        if not taken:
            continue
        z = beta * delta
        w[j] += z
        up = math.exp(min(max(z, -500.0), 500.0))
        down = 1.0 / up
        for e in range(n):
            i = rows[e]
            m[i] += z
            u[i] *= up if y[i] > 0.0 else down
            p = 1.0 / (1.0 + u[i])
            rq[i, 0] = -s[i] * y[i] * p
            rq[i, 1] = s[i] * p * (1.0 - p)


class OneVariableNewton:
    """The paper's trainer, improved, with the interface of :class:`fcl.solve.trainer.Trainer`.

    After a sweep over all columns that can move, columns at zero well inside the bounds are left out.
    Sweeps over the columns with a weight follow until they meet the tolerance, and then a sweep over all.
    The intercept takes a Newton step after every sweep, or after every ``intercept_every`` columns.
    """

    max_sweeps = 1000
    intercept_every: int | None = None
    deadline = math.inf  #: of time.perf_counter()

    def __init__(
        self, n_rows: int, max_columns: int, entries: int, seed: int = 0, binary: bool = True
    ) -> None:
        if not binary:
            raise ValueError("OneVariableNewton works on columns of zeros and ones")
        self._m, self._u, self._rq = np.empty(n_rows), np.empty(n_rows), np.empty((n_rows, 2))
        self._rows = np.empty(n_rows, np.int32)
        self._random = np.random.default_rng(seed)
        self._b = self._anchor_b = self._decrease = 0.0
        self.free = np.zeros(1)

    def solve(
        self, view: RowView, working: WorkingSet, anchor: Floats, target: float, max_steps: int
    ) -> Solved:
        """Like :meth:`fcl.solve.trainer.Trainer.solve`; ``max_steps`` is ignored."""
        n = working.cache.n
        if not view.objective.penalty.pure_l1 or (working.factor[:n] != 1.0).any():
            raise ValueError("OneVariableNewton is for the L1 norm, without factors")
        self._m[:] = view.margins
        self._m += anchor.sum()
        if (working.weights[:n] != working.anchor_weights[:n]).any():
            raise ValueError("the benchmark starts every local solve at the anchor")
        self._b = self._anchor_b = float(anchor.sum())
        self._decrease = 0.0
        self._settle(view)
        everything = np.flatnonzero(
            (working.weights[:n] != 0.0)
            | (np.abs(view.objective.C * working.gradients[:n]) > RESTING)
        )
        columns, active, full = everything, everything, True
        largest, worst, sweeps = math.inf, math.inf, 0
        while sweeps < self.max_sweeps and time.perf_counter() < self.deadline:
            order = self._random.permutation(active)
            worst, gradients = self._sweep(view, working, order)
            sweeps += 1
            if worst <= target:
                if full and len(columns) == len(everything):
                    break
                columns = active = everything
                full = True
            elif full:
                # shrinking as in liblinear: the margin is the violation of the previous sweep
                at_zero = working.weights[order] == 0.0
                rest = at_zero & (np.abs(gradients) < 1.0 - min(largest, 1.0))
                columns = np.sort(order[~rest])
                largest = worst
                active, full = columns[working.weights[columns] != 0.0], False
        self.free = np.array([self._b])
        return Solved(self.free, self._decrease, worst, sweeps, sweeps)

    def start(self, view: RowView, working: WorkingSet, anchor: Floats, free: Floats) -> None:
        """Do nothing: every local solve begins at the anchor."""

    def columns_changed(self) -> None:
        """Do nothing: the trainer stores nothing about the columns."""

    columns_left = columns_changed

    def _sweep(
        self, view: RowView, working: WorkingSet, order: npt.NDArray[np.intp]
    ) -> tuple[float, Floats]:
        """Sweep in a given order, with steps on the intercept; return the largest violation and C g."""
        objective = view.objective
        gradients, out = np.empty(len(order)), np.empty(3)
        worst = 0.0
        # calls are short, so that Python can handle signals in between
        step = self.intercept_every or 64
        for at in range(0, len(order), step):
            part = slice(at, at + step)
            newton_sweep(
                working.cache.pieces,
                working.cache.slots,
                order[part],
                objective.C,
                SIGMA,
                objective.y,
                objective.s,
                self._m,
                self._u,
                self._rq,
                working.weights,
                working.anchor_weights,
                working.correction,
                working.floor,
                gradients[part],
                self._rows,
                out,
            )
            worst = max(worst, out[0])
            self._decrease += out[1]
            if self.intercept_every and objective.intercept:
                self._b += move_intercept(
                    objective.y,
                    objective.s,
                    self._m,
                    self._u,
                    self._rq,
                    float(view.pull(np.array([self._b - self._anchor_b]))[0]),
                    float(view.free_floor[0]),
                    2.0,
                )
        self._settle(view)
        return worst, gradients

    def _settle(self, view: RowView) -> None:
        """Set the best intercept for these weights, and compute u, residuals and curvatures."""
        objective = view.objective
        if objective.intercept:
            away = self._b - self._anchor_b
            move = objective.best_intercept(
                self._m,
                0.0,
                float(view.pull(np.array([away]))[0]),
                float(view.free_floor[0]),
            )
            self._m += move
            self._b += move
        refresh(objective.y, objective.s, self._m, self._u, self._rq)


class OftenIntercept(OneVariableNewton):
    """OneVariableNewton with a Newton step on the intercept after every 64 columns."""

    intercept_every = 64
