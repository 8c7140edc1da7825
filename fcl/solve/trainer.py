"""The trainer: proximal Newton with inner coordinate descent on the cached columns of a row view.

One step (newGLMNET, Yuan, Ho and Lin 2012): a quadratic model of the local objective at the current
point, coordinate descent on the model, a line search on the local objective itself. What makes it fast
(208,094 windows of C. elegans, d = 8, C = 0.1, one core, relative gap 1e-3; tools/bench/trainers.py):

- **The Hessian of a sample of the rows.** The gradient is exact; the curvature comes from rows drawn
  with probability min(1, q_i / tau), weighted by its inverse (sub-sampled Newton, Roosta-Khorasani and
  Mahoney 2019). Skewed labels put half of sum q_i into 1 % of the rows, so 20,000 rows say nearly all,
  and the columns gathered on them fit the second-level cache. All rows instead take 3.1 times as long.
  Leaving flat rows out and keeping their curvature on the diagonal is no help: the diagonal slows just
  the swaps between near-duplicates.
- **The intercept eliminated** inside the sweeps, and settled by Newton between steps: the four letters
  of a position add up to a constant, so that alternating with it crawls.
- **Sweeps extrapolated**, and run only on columns that can move: with a weight, or near a violation.

One-variable Newton with a line search, the scheme of Matsushima (2016), takes 31 times as long here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import BudgetError
from fcl.kernels import columns as column_kernels
from fcl.kernels import descent, losses
from fcl.objective import ROUNDING
from fcl.solve.state import Floats, WorkingSet
from fcl.solve.view import RowView, calls_of, column_moments

Columns = npt.NDArray[np.intp]

#: Rows of the inner model: at least, and for each column worked on.
LEAST_ROWS = 16384
ROWS_A_COLUMN = 8
#: The sample doubles, up to this factor, when a step hardly lowers the violation.
MOST_GROWN = 16.0
#: Share of the exact diagonal that the model keeps where the sample misses a column, and the share
#: added to every diagonal. More of either slows the swaps between near-duplicates.
FLOOR = 0.5
DAMPING = 1e-3
#: Columns with weight 0 and |C g_j| below this at the anchor rest until the next pass.
RESTING = 0.8
#: Sufficient decrease of the line search (0 < sigma < 1/2).
SIGMA = 0.01
MAX_HALVINGS = 30
MAX_SWEEPS = 200
#: Sweeps over the columns with a weight between two extrapolations.
EXTRAPOLATE_FROM = 5
#: Rows of the inner model up to which there is memory for that, and vectors over them that it takes.
EXTRAPOLATE_ROWS = 1 << 18
EXTRAPOLATE_VECTORS = EXTRAPOLATE_FROM + 5
#: Inner tolerance, as a share of the violation before the step and of the one aimed at.
INNER_SHARE = 0.1
INNER_TARGET = 0.3


@dataclass(frozen=True)
class Solved:
    """What a local solve reached."""

    intercept: float
    decrease: float  #: of the local objective, >= 0
    violation: float  #: largest over the columns worked on, at the last point
    steps: int
    sweeps: int


@dataclass
class _Local:
    """The local problem at one point: the columns worked on, gradient and curvature of each."""

    columns: Columns
    weights: Floats
    gradients: Floats
    curvatures: Floats
    loss: float  #: sum of the weighted losses over the view
    slope_b: float  #: of the local objective, over C; 0 without an intercept


@dataclass
class _Step:
    """A step of the columns worked on, and of the intercept."""

    d: Floats
    db: float
    sweeps: int


class _Extrapolation:
    """Anderson extrapolation of sweeps over one set of columns in one order.

    Near the end such sweeps are an affine map, and a combination of the last iterates with
    coefficients that add up to 1 is far nearer to its fixed point (Bertrand and Massias 2021). The
    state (w, u, b) is affine in w, so the candidate is evaluated without touching a column; it is taken
    only where it lowers the model.
    """

    def __init__(self, local: _Local, extra: Floats, q: Floats, curve_b: float) -> None:
        self._local = local
        self._extra = extra
        self._q = q
        self._curve_b = curve_b
        self._states: list[tuple[Floats, Floats, Floats]] = []

    def clear(self) -> None:
        """Begin anew: the set of columns has changed."""
        self._states = []

    def extrapolate(self, C: float, w: Floats, d: Floats, u: Floats, b: Floats) -> None:
        """Take in the state after a sweep; every few sweeps move it, in place, if that is better."""
        self._states.append((w.copy(), u.copy(), b.copy()))
        if len(self._states) <= EXTRAPOLATE_FROM:
            return
        steps = np.diff([state[0] for state in self._states], axis=0)
        gram = np.einsum("ik,jk->ij", steps, steps)  # no BLAS: its threads would only spin
        gram[np.diag_indices_from(gram)] += 1e-12 * max(float(np.trace(gram)), 1e-300)
        c = np.linalg.solve(gram, np.ones(len(gram)))
        total = float(c.sum())
        if total != 0.0 and np.isfinite(c).all():
            c /= total
            last = self._states[1:]
            new_w, new_u, new_b = (
                sum(x * state[part] for x, state in zip(c, last, strict=True)) for part in range(3)
            )
            if self._value(C, new_w, new_u, new_b) < self._value(C, w, u, b):
                w[:], u[:], b[:] = new_w, new_u, new_b
                d[:] = w - self._local.weights
        self._states = []

    def _value(self, C: float, w: Floats, u: Floats, b: Floats) -> float:
        """The model at a state; b : (d_b, sum of u)."""
        d = w - self._local.weights
        smooth = (
            float((self._local.gradients * d).sum())
            + 0.5 * float((self._extra * d * d).sum())
            + 0.5 * float((u * u / self._q).sum())
            + b[0] * (self._local.slope_b + b[1] + 0.5 * self._curve_b * b[0])
        )
        return float(np.abs(w).sum()) + C * smooth


class Trainer:
    """Solves local problems in buffers of its own.

    Parameters
    ----------
    n_rows : int
        Rows of the view.
    max_columns : int
        Room of the working set.
    entries : int
        Entries of gathered columns that the inner model may hold (4 bytes each, 8 with values).
    seed : int
        Of the order of coordinates and the sample of rows.
    binary : bool
        Whether all columns consist of zeros and ones.
    """

    def __init__(
        self, n_rows: int, max_columns: int, entries: int, seed: int = 0, binary: bool = True
    ) -> None:
        self._r = np.empty(n_rows)
        self._q = np.empty(n_rows)
        self._m = np.empty(n_rows)  # margins with the intercept
        self._dm = np.empty(n_rows)
        self._chosen = np.empty(n_rows, np.int32)
        self._q_chosen = np.empty(n_rows)
        self._u = np.empty(n_rows)
        self._entries = np.empty(entries, np.int32)
        self._values = np.empty(0 if binary else entries, np.float32)
        self._start = np.empty(max_columns + 1, np.int64)
        self._seed = seed
        self._drawn = 0
        self._grown = 1.0

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        """Bytes of the buffers."""
        states = 8 * EXTRAPOLATE_VECTORS * min(n_rows, EXTRAPOLATE_ROWS)
        return n_rows * (6 * 8 + 4) + states + (4 if binary else 8) * entries + 8 * max_columns

    def solve(
        self, view: RowView, working: WorkingSet, anchor_b: float, target: float, max_steps: int
    ) -> Solved:
        """Move ``working.weights`` downhill on the local objective of the view.

        anchor_b : intercept of the anchor.  target : largest violation at which to stop.
        """
        n = working.cache.n
        C = view.objective.C
        self._m[:] = view.margins
        self._m += anchor_b
        away = working.weights[:n] - working.anchor_weights[:n]
        moved = np.flatnonzero(away)
        self._add(working, moved, away[moved], self._m)
        columns = np.flatnonzero(
            (working.weights[:n] != 0.0) | (np.abs(C * working.gradients[:n]) > RESTING)
        )
        b, decrease, sweeps, steps = anchor_b, 0.0, 0, 0
        before = math.inf
        undo: tuple[Floats, float] | None = None
        while True:
            b, settled = self._settle_intercept(view, b, anchor_b)
            decrease += settled
            local = self._localise(view, working, columns, b, anchor_b)
            violation = self._violation(C, local)
            if undo is not None and violation >= before:
                working.weights[columns], b = undo
                violation = before
                break
            if violation > 0.7 * before:
                self._grown = min(2.0 * self._grown, MOST_GROWN)
            elif violation < 0.3 * before:
                self._grown = max(0.5 * self._grown, 1.0)
            if violation <= target or steps == max_steps:
                break
            tolerance = max(INNER_SHARE * violation, INNER_TARGET * target)
            step = self._inner(view, working, local, tolerance)
            sweeps += step.sweeps
            taken = self._line_search(view, working, local, step, b - anchor_b)
            if taken is None:
                break
            beta, gained, seen = taken
            # what the values cannot judge, the violation has to
            undo = None if seen else (local.weights, b)
            steps += 1
            decrease += gained
            before = violation
            working.weights[columns] = local.weights + beta * step.d
            b += beta * step.db
            losses.combine(self._m, self._dm, beta, self._m)
        return Solved(b, decrease, violation, steps, sweeps)

    # -- the local problem at the current point ------------------------------------------------

    def _settle_intercept(self, view: RowView, b: float, anchor_b: float) -> tuple[float, float]:
        """Minimise over the intercept alone, to the last digits; moves the margins along.

        What is left of its slope would show as a violation of every dense column. Returns it and the
        decrease of the local objective.
        """
        objective = view.objective
        if not objective.intercept:
            return b, 0.0
        slope = view.intercept_correction + view.intercept_floor * (b - anchor_b)
        floor = view.intercept_floor
        move = objective.best_intercept(self._m, 0.0, slope, floor)
        if move == 0.0:
            return b, 0.0
        before = objective.loss_sum(self._m, 0.0)
        self._m += move
        lower = before - objective.loss_sum(self._m, 0.0) - slope * move - 0.5 * floor * move * move
        return b + move, max(0.0, objective.C * lower)

    def _localise(
        self, view: RowView, working: WorkingSet, columns: Columns, b: float, anchor_b: float
    ) -> _Local:
        objective = view.objective
        objective.residuals_curvatures(self._m, 0.0, self._r, self._q)
        g, h = column_moments(working, columns, self._r, self._q)
        weights = working.weights[columns]
        floor = working.floor[columns]
        g += working.correction[columns] + floor * (weights - working.anchor_weights[columns])
        slope_b = 0.0
        if objective.intercept:
            slope_b = (
                float(self._r.sum())
                + view.intercept_correction
                + view.intercept_floor * (b - anchor_b)
            )
        return _Local(
            columns,
            weights,
            g,
            h + floor,
            objective.loss_sum(self._m, 0.0),
            slope_b,
        )

    @staticmethod
    def _violation(C: float, local: _Local) -> float:
        out = np.empty(len(local.columns))
        largest: float = descent.violations(C, local.gradients, local.weights, out)
        return largest

    def _add(self, working: WorkingSet, columns: Columns, deltas: Floats, m: Floats) -> None:
        """Add columns times their deltas to margins."""
        pieces = working.cache.pieces
        step = calls_of(working, columns)
        for at in range(0, len(columns), step):
            part = slice(at, at + step)
            column_kernels.add_columns(pieces, columns[part], deltas[part], m)

    # -- the inner model -----------------------------------------------------------------------

    def _choose_rows(self, most: int) -> int:
        """Sample about ``most`` rows by their curvature; returns how many."""
        counts, sums = np.empty(descent.BINS), np.empty(descent.BINS)
        descent.curvature_histogram(self._q, counts, sums)
        # expected size of the sample for tau at the lower edge of each bin
        edges = descent.bin_edges()
        whole = np.cumsum(counts[::-1])[::-1]
        partly = (np.cumsum(sums) - sums) / edges
        fits = np.flatnonzero(whole + partly <= most)
        everything = counts[1:].sum() <= most or not len(fits)
        self._drawn += 1
        count: int = descent.choose_rows(
            self._q,
            0.0 if everything else float(edges[fits[0]]),
            (self._seed << 32) + self._drawn,
            self._chosen,
            self._q_chosen,
        )
        return count

    def _gather(self, working: WorkingSet, columns: Columns, lean: Floats, h: Floats) -> int:
        """Gather the columns on a sample of the rows, as many as fit; returns how many rows."""
        k = len(columns)
        most = int(self._grown * max(LEAST_ROWS, ROWS_A_COLUMN * k))
        while True:
            rows = self._choose_rows(most)
            if column_kernels.gather_chosen(
                working.cache.pieces,
                columns,
                self._chosen,
                self._q_chosen[:rows],
                self._start[: k + 1],
                self._entries,
                self._values,
                lean,
                h,
            ):
                return rows
            most = min(most, rows) // 2
            if most < 1:
                raise BudgetError(
                    f"trainer: no room to gather {k} columns on a single row; raise the memory budget"
                )

    def _inner(self, view: RowView, working: WorkingSet, local: _Local, tolerance: float) -> _Step:
        """Coordinate descent on the model: sweeps over all columns, then over those with a weight."""
        k = len(local.columns)
        h, lean = np.empty(k), np.empty(k)
        rows = self._gather(working, local.columns, lean, h)
        q, u = self._q_chosen[:rows], self._u[:rows]
        u[:] = 0.0
        total = float(q.sum())
        free = view.objective.intercept and rows > 0
        # share of a column's curvature that is left once the intercept follows: damping by the whole of
        # it would hold up columns far from 0, such as one of 100 +- 1, for hundreds of steps
        left = np.ones(k)
        if free:
            left -= np.minimum(lean * lean / np.maximum(total * h, 1e-300), 1.0)
        extra = np.maximum(FLOOR * local.curvatures - h, 0.0) + DAMPING * left * local.curvatures
        curve = np.maximum(h + extra, 1e-300)
        d = np.zeros(k)
        w = local.weights.copy()
        # of the sample, like the columns': otherwise a nearly constant column may get less than no
        # curvature once the intercept is eliminated, and its steps have no bound
        curve_b = total + view.intercept_floor if free else 1.0
        b = np.array([-local.slope_b / curve_b if free else 0.0, 0.0])
        random = np.random.default_rng([self._seed, self._drawn])
        everything = random.permutation(k)
        order, full = everything, True
        memory = _Extrapolation(local, extra, q, curve_b)
        sweeps = 0
        while sweeps < MAX_SWEEPS:
            worst = descent.descent_sweep(
                view.objective.C,
                order,
                self._start[: k + 1],
                self._entries,
                self._values,
                q,
                u,
                local.gradients,
                extra,
                curve,
                lean,
                w,
                d,
                free,
                local.slope_b,
                curve_b,
                b,
            )
            sweeps += 1
            if worst <= tolerance:
                if full:
                    break
                order, full = everything, True
                memory.clear()
            elif full:
                order, full = everything[w[everything] != 0.0], False
                memory.clear()
            elif rows <= EXTRAPOLATE_ROWS:
                memory.extrapolate(view.objective.C, w, d, u, b)
        return _Step(w - local.weights, float(b[0]), sweeps)

    # -- the line search -----------------------------------------------------------------------

    def _line_search(
        self, view: RowView, working: WorkingSet, local: _Local, step: _Step, away_b: float
    ) -> tuple[float, float, bool] | None:
        """The first beta of 1, 1/2, 1/4, ... with sufficient decrease of the local objective.

        Writes the margins of the step; returns (beta, decrease, True), or None if there is none. A
        violation of v promises a decrease of the order v^2, so from v = 1e-8 on the values show
        rounding alone: then the whole step is taken, unless it raises them by more, with False.
        """
        objective, columns = view.objective, local.columns
        C, d, db = objective.C, step.d, step.db
        self._dm[:] = db
        changed = np.flatnonzero(d)
        self._add(working, columns[changed], d[changed], self._dm)
        w = local.weights
        penalty = math.fsum(np.abs(w))
        # term by term: in a difference of sums what the last steps promise would drown
        rise = np.where(w * (w + d) > 0.0, np.sign(w) * d, np.abs(w + d) - np.abs(w))
        promised = float((C * local.gradients * d + rise).sum()) + C * local.slope_b * db
        if not promised < 0.0:
            return None
        away = w - working.anchor_weights[columns]
        floor = working.floor[columns]
        linear = (
            float(((working.correction[columns] + floor * away) * d).sum())
            + (view.intercept_correction + view.intercept_floor * away_b) * db
        )
        square = float((floor * d * d).sum()) + view.intercept_floor * db * db
        rounding = ROUNDING * (C * local.loss + penalty)
        beta = 1.0
        for _ in range(MAX_HALVINGS):
            loss = objective.line_sums(self._m, self._dm, beta, 0.0).value
            smooth = loss - local.loss + beta * linear + 0.5 * beta * beta * square
            change = C * smooth + math.fsum(np.abs(w + beta * d)) - penalty
            if change <= SIGMA * beta * promised:
                return beta, -change, -promised > rounding
            if -promised <= rounding and change <= rounding:
                return beta, max(0.0, -change), False
            beta *= 0.5
        return None
