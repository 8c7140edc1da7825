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
- **Two threads**, where there are cores, each over half the columns by id from the same state: patterns
  at the same positions are in the same half, so that the sum of the two steps is nearly always as good as
  steps one after another (10.5 M entries: 9 ms a sweep instead of 14, and no more of them).

One-variable Newton with a line search, the scheme of Matsushima (2016), takes 31 times as long here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import BudgetError
from fcl.kernels import columns as column_kernels
from fcl.kernels import descent, losses
from fcl.objective import ROUNDING
from fcl.parallel import SERIAL, Team
from fcl.solve.state import Floats, WorkingSet
from fcl.solve.view import RowView, add_columns, column_moments

Columns = npt.NDArray[np.intp]
Singles = npt.NDArray[np.float32]

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
#: Sweeps that a step makes in any case: fewer are not worth gathering columns for.
LEAST_SWEEPS = 10
#: ... and how far the violation has to be down before a step may be cut short.
HURRIED = 0.3
#: Sweeps over the columns with a weight between two extrapolations.
EXTRAPOLATE_FROM = 5
#: Rows of the inner model up to which there is memory for that, and vectors over them that it takes.
EXTRAPOLATE_ROWS = 1 << 18
EXTRAPOLATE_VECTORS = EXTRAPOLATE_FROM + 8
#: Curvature of a row of the inner model, as a share of the largest, is taken for at least this.
LEAST_SINGLE = 1e-30
#: Inner tolerance, as a share of the violation before the step and of the one aimed at.
INNER_SHARE = 0.1
INNER_TARGET = 0.3
#: Parts in which columns are gathered, each in a region of its own: the most threads that help.
GATHER_PARTS = 4
#: Entries from which two threads sweep over half the columns each: some 4 ms of one.
LONG_SWEEP = 2_000_000
#: Entries that one call of the sweeping kernel reads at most, or one column.
ENTRIES_A_CALL = 10_000_000


@dataclass(frozen=True)
class Solved:
    """What a local solve reached."""

    intercept: float
    decrease: float  #: of the local objective, >= 0
    violation: float  #: largest over the columns worked on, at the last point
    steps: int
    sweeps: int


@dataclass(frozen=True)
class Taken:
    """What one step did."""

    moved: bool
    decrease: float  #: of the local objective, >= 0
    violation: float  #: largest over the columns worked on, before the step
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

    def __init__(
        self, local: _Local, extra: Floats, q: Singles, unit: float, curve_b: float
    ) -> None:
        self._local = local
        self._extra = extra
        self._q = q
        self._unit = unit
        self._curve_b = curve_b
        self._states: list[tuple[Floats, Singles, Floats]] = []

    def clear(self) -> None:
        """Begin anew: the set of columns has changed."""
        self._states = []

    def extrapolate(self, C: float, w: Floats, d: Floats, u: Singles, b: Floats) -> None:
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
            if self.value(C, new_w, new_u, new_b) < self.value(C, w, u, b):
                w[:], u[:], b[:] = new_w, new_u, new_b
                d[:] = w - self._local.weights
        self._states = []

    def value(self, C: float, w: Floats, u: Singles, b: Floats) -> float:
        """The model at a state; b : (d_b, sum of u)."""
        d = w - self._local.weights
        smooth = (
            float((self._local.gradients * d).sum())
            + 0.5 * float((self._extra * d * d).sum())
            + 0.5 * self._unit * float((u * u / self._q).sum(dtype=np.float64))
            + b[0] * (self._local.slope_b + b[1] + 0.5 * self._curve_b * b[0])
        )
        return float(np.abs(w).sum()) + C * smooth


class Trainer:
    """Solves local problems in buffers of its own, step by step.

    Parameters
    ----------
    n_rows : int
        Rows of the view.
    block_rows : int
        Rows a block.
    max_columns : int
        Room of the working set.
    entries : int
        Entries of gathered columns that the inner model may hold (4 bytes each, 8 with values).
    seed : int
        Of the order of coordinates and the sample of rows.
    binary : bool
        Whether all columns consist of zeros and ones.
    team : Team
        Threads for sums over columns and rows, and two for long sweeps.
    """

    def __init__(
        self,
        n_rows: int,
        max_columns: int,
        entries: int,
        seed: int = 0,
        binary: bool = True,
        block_rows: int = 65536,
        team: Team = SERIAL,
    ) -> None:
        self._buffers = [np.empty(n_rows) for _ in range(5)]
        self._single_buffers = [np.empty(n_rows, np.float32) for _ in range(2)]
        self._chosen_buffer = np.empty(n_rows, np.int32)
        self._wanted = np.empty((-(-n_rows // block_rows), -(-block_rows // 64)), np.uint64)
        self.resize(n_rows)
        self._entries = np.empty(entries, np.int32)
        self._values = np.empty(0 if binary else entries, np.float32)
        self._start = np.empty(max_columns, np.int64)
        self._stop = np.empty(max_columns, np.int64)
        self._block_rows = block_rows
        self._team = team
        #: asked between sweeps: whether a step should come to an end, after a few of them
        self.hurry: Callable[[], bool] = lambda: False
        self._seed = seed
        self._drawn = 0
        self._grown = 1.0
        # the local problem that is being solved
        self.intercept = 0.0  #: of the trainer's point
        self._anchor_b = 0.0
        #: columns worked on in the last step, and their gradients before it
        self.seen: tuple[Columns, Floats] = (np.empty(0, np.intp), np.empty(0))
        self._before = math.inf  # violation before the last step
        self._undo: tuple[Columns, Floats, float] | None = None

    def resize(self, n_rows: int) -> None:
        """Work on a view of so many rows from now on, at most as many as there is room for."""
        parts = [buffer[:n_rows] for buffer in self._buffers]
        self._r, self._q, self._dm, self._q_chosen = parts[:4]
        self._m = parts[4]  # margins with the intercept
        self._q_single, self._u_single = (buffer[:n_rows] for buffer in self._single_buffers)
        self._chosen = self._chosen_buffer[:n_rows]

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        """Bytes of the buffers."""
        states = 8 * EXTRAPOLATE_VECTORS * min(n_rows, EXTRAPOLATE_ROWS)
        rows = n_rows * (6 * 8 + 4) + -(-n_rows // 8)
        return rows + states + (4 if binary else 8) * entries + 16 * max_columns

    @property
    def counters(self) -> tuple[int, float]:
        """What the next steps depend on beside the point: samples drawn, growth of the sample."""
        return self._drawn, self._grown

    @counters.setter
    def counters(self, values: tuple[int, float]) -> None:
        self._drawn, self._grown = int(values[0]), float(values[1])

    def solve(
        self, view: RowView, working: WorkingSet, anchor_b: float, target: float, max_steps: int
    ) -> Solved:
        """Move ``working.weights`` downhill on the local objective of the view, from the anchor.

        anchor_b : intercept of the anchor.  target : largest violation at which to stop.
        """
        self.start(view, working, anchor_b, anchor_b)
        decrease, sweeps, steps = 0.0, 0, 0
        while True:
            taken = self.step(view, working, target, steps < max_steps)
            decrease += taken.decrease
            sweeps += taken.sweeps
            steps += taken.moved
            if not taken.moved:
                return Solved(self.intercept, decrease, taken.violation, steps, sweeps)

    def start(self, view: RowView, working: WorkingSet, anchor_b: float, b: float) -> None:
        """Take up a local problem at the weights of the working set and the intercept b.

        The margins are made anew from the anchor's and the weights.
        """
        n = working.cache.n
        np.add(view.margins, b, out=self._m)
        away = working.weights[:n] - working.anchor_weights[:n]
        moved = np.flatnonzero(away)
        add_columns(working, moved, away[moved], self._m, self._team)
        self.intercept, self._anchor_b = b, anchor_b
        self._before, self._undo = math.inf, None

    def rise(self, view: RowView, working: WorkingSet) -> float:
        """The local objective at the current point minus that of the anchor."""
        n = working.cache.n
        away = working.weights[:n] - working.anchor_weights[:n]
        moved = np.flatnonzero(away)
        away = away[moved]
        db = self.intercept - self._anchor_b
        floor = working.floor[moved]
        smooth = (
            view.objective.loss_sum(self._m, 0.0)
            - view.objective.loss_sum(view.margins, self._anchor_b)
            + float((working.correction[moved] * away + 0.5 * floor * away * away).sum())
            + view.intercept_correction * db
            + 0.5 * view.intercept_floor * db * db
        )
        penalty = math.fsum(np.abs(working.weights[moved]))
        penalty -= math.fsum(np.abs(working.anchor_weights[moved]))
        return penalty + view.objective.C * smooth

    def step(
        self, view: RowView, working: WorkingSet, target: float, may_move: bool = True
    ) -> Taken:
        """One step of proximal Newton, unless the violation is at most ``target`` already."""
        n = working.cache.n
        C = view.objective.C
        anchor_b = self._anchor_b
        columns = np.flatnonzero(
            (working.weights[:n] != 0.0) | (np.abs(C * working.gradients[:n]) > RESTING)
        )
        decrease = self._settle_intercept(view)
        local = self._localise(view, working, columns)
        self.seen = columns, local.gradients
        violation = self._violation(C, local)
        if self._undo is not None and violation >= self._before:
            undone, weights, b = self._undo
            self._return_to(working, undone, weights, b)
            return Taken(False, decrease, self._before, 0)
        if violation > 0.7 * self._before:
            self._grown = min(2.0 * self._grown, MOST_GROWN)
        elif violation < 0.3 * self._before:
            self._grown = max(0.5 * self._grown, 1.0)
        if violation <= target or not may_move:
            return Taken(False, decrease, violation, 0)
        tolerance = max(INNER_SHARE * violation, INNER_TARGET * target)
        step = self._inner(view, working, local, tolerance)
        taken = self._line_search(view, working, local, step, self.intercept - anchor_b)
        if taken is None:
            return Taken(False, decrease, violation, step.sweeps)
        beta, gained, seen = taken
        # what the values cannot judge, the violation has to
        self._undo = None if seen else (columns, local.weights, self.intercept)
        self._before = violation
        working.weights[columns] = local.weights + beta * step.d
        self.intercept += beta * step.db
        losses.combine(self._m, self._dm, beta, self._m)
        return Taken(True, decrease + gained, violation, step.sweeps)

    def freeze(self, working: WorkingSet, columns: Columns) -> None:
        """Return these columns to the anchor's weights, before they are evicted."""
        self._return_to(working, columns, working.anchor_weights[columns], self.intercept)
        self._undo = None

    def _return_to(self, working: WorkingSet, columns: Columns, weights: Floats, b: float) -> None:
        back = weights - working.weights[columns]
        changed = np.flatnonzero(back)
        add_columns(working, columns[changed], back[changed], self._m, self._team)
        self._m += b - self.intercept
        working.weights[columns] = weights
        self.intercept = b

    def columns_changed(self) -> None:
        """Columns have come or gone: the last step cannot be taken back, nor judged any more."""
        self._before, self._undo = math.inf, None

    # -- the local problem at the current point ------------------------------------------------

    def _settle_intercept(self, view: RowView) -> float:
        """Minimise over the intercept alone, to the last digits; moves the margins along.

        What is left of its slope would show as a violation of every dense column. Returns the decrease
        of the local objective.
        """
        objective = view.objective
        if not objective.intercept:
            return 0.0
        floor = view.intercept_floor
        slope = view.intercept_correction + floor * (self.intercept - self._anchor_b)
        move = objective.best_intercept(self._m, 0.0, slope, floor)
        if move == 0.0:
            return 0.0
        before = objective.loss_sum(self._m, 0.0)
        self._m += move
        self.intercept += move
        lower = before - objective.loss_sum(self._m, 0.0) - slope * move - 0.5 * floor * move * move
        return max(0.0, objective.C * lower)

    def _localise(self, view: RowView, working: WorkingSet, columns: Columns) -> _Local:
        objective = view.objective
        objective.residuals_curvatures(self._m, 0.0, self._r, self._q)
        g, h = column_moments(working, columns, self._r, self._q, self._team)
        weights = working.weights[columns]
        floor = working.floor[columns]
        g += working.correction[columns] + floor * (weights - working.anchor_weights[columns])
        slope_b = 0.0
        if objective.intercept:
            slope_b = (
                float(self._r.sum())
                + view.intercept_correction
                + view.intercept_floor * (self.intercept - self._anchor_b)
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
        slots = working.cache.slots[columns]
        # regions in proportion to what their columns hold
        held = np.concatenate([[0], np.cumsum(working.cache.store.nonzeros[slots] + 1)])
        cuts = np.searchsorted(held, np.linspace(0, held[-1], GATHER_PARTS + 1)[1:-1])
        cuts = np.concatenate([[0], cuts, [k]])
        room = (len(self._entries) * (held[cuts] / held[-1])).astype(np.int64)
        most = int(self._grown * max(LEAST_ROWS, ROWS_A_COLUMN * k))

        def part(p: int) -> bool:
            some = slice(cuts[p], cuts[p + 1])
            written = column_kernels.gather_chosen(
                working.cache.pieces,
                slots[some],
                self._chosen,
                self._wanted,
                self._q_chosen[:rows],
                room[p],
                room[p + 1],
                self._start[:k][some],
                self._stop[:k][some],
                self._entries,
                self._values,
                lean[some],
                h[some],
            )
            return bool(written == cuts[p + 1] - cuts[p])

        while True:
            rows = self._choose_rows(most)
            column_kernels.mark_rows(self._chosen, self._block_rows, self._wanted)
            if all(self._team.map(part, range(GATHER_PARTS))):
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
        q, u = self._q_single[:rows], self._u_single[:rows]
        u[:] = 0.0
        unit = float(self._q_chosen[:rows].max(initial=0.0)) or 1.0
        np.divide(self._q_chosen[:rows], unit, out=q, casting="same_kind")
        np.maximum(q, LEAST_SINGLE, out=q)
        total = float(self._q_chosen[:rows].sum())
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
        memory = _Extrapolation(local, extra, q, unit, curve_b)
        sweeps, first = 0, 0.0
        ids = working.cache.ids[local.columns]

        def sweep(order: Columns, u: Singles, b: Floats) -> float:
            worst = 0.0
            for some in self._calls(order):
                part = descent.descent_sweep(
                    view.objective.C,
                    some,
                    self._start[:k],
                    self._stop[:k],
                    self._entries,
                    self._values,
                    unit,
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
                worst = max(worst, part)
            return worst

        def side_by_side(order: Columns) -> float:
            """Both halves of the columns from the same state, and the sum of their steps.

            Each half lowers the model, so half the sum does too; the whole sum mostly does, for what
            is strongly coupled (patterns at the same positions) is in the same half.
            """
            before = memory.value(view.objective.C, w, u, b)
            sides = [(some, u.copy(), b.copy()) for some in self._halves(order, ids)]
            w_before = w.copy()
            worst = max(self._team.map(lambda side: sweep(*side), sides))
            du = sum(side[1] for side in sides) - len(sides) * u
            db = sum(side[2] - b for side in sides)
            dw = w - w_before
            for share in (1.0, 1.0 / len(sides)):
                new_w, new_u, new_b = w_before + share * dw, u + share * du, b + share * db
                if free:
                    new_b[0] = -(local.slope_b + new_b[1]) / curve_b
                if memory.value(view.objective.C, new_w, new_u, new_b) <= before:
                    break
            w[:], u[:], b[:] = new_w, new_u, new_b
            d[:] = w - local.weights
            return worst

        while sweeps < MAX_SWEEPS:
            wide = rows <= EXTRAPOLATE_ROWS and self._team.threads > 1
            if wide and int((self._stop[order] - self._start[order]).sum()) >= LONG_SWEEP:
                worst = side_by_side(order)
            else:
                worst = sweep(order, u, b)
            sweeps += 1
            first = first or worst
            if sweeps >= LEAST_SWEEPS and worst <= HURRIED * first and self.hurry():
                break
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

    def _halves(self, order: Columns, ids: npt.NDArray[np.int64]) -> list[Columns]:
        """The first and the second half of the columns by id, of about as many entries, in order."""
        by_id = order[np.argsort(ids[order], kind="stable")]
        entries = np.cumsum(self._stop[by_id] - self._start[by_id])
        middle = ids[by_id[np.searchsorted(entries, entries[-1] // 2)]]
        first = ids[order] <= middle
        return [order[first], order[~first]]

    def _calls(self, order: Columns) -> list[Columns]:
        """Cut a sweep so that no call of a kernel lasts much longer than 50 ms."""
        entries = np.cumsum(self._stop[order] - self._start[order])
        if not len(order) or entries[-1] <= ENTRIES_A_CALL:
            return [order]
        cuts = np.searchsorted(entries, np.arange(ENTRIES_A_CALL, entries[-1], ENTRIES_A_CALL))
        return [part for part in np.split(order, cuts) if len(part)]

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
        add_columns(working, columns[changed], d[changed], self._dm, self._team)
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
