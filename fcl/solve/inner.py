"""The inner model of a step: a quadratic on a sample of the rows, and coordinate descent on it.

The columns of the step are gathered on the sampled rows, so that the data of a sweep fits the
second-level cache. Sweeps then run over nested sets: all columns; columns with a weight, until none of
them violates; and among these the *hot* columns, whose violation is near the largest, several times
between two sweeps over the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.errors import BudgetError
from fcl.kernels import columns as column_kernels
from fcl.kernels import descent
from fcl.parallel import SERIAL, Team
from fcl.solve.elimination import Elimination
from fcl.solve.sampling import MOST_SEEDS
from fcl.solve.state import Columns, Floats, Ids, LocalPoint, Step, WorkingSet
from fcl.solve.view import RowView

__all__ = ["Gathered", "InnerModel"]

Singles = npt.NDArray[np.float32]

#: Rows of the sample: at least, and per column.
LEAST_ROWS = 16384
ROWS_A_COLUMN = 8
#: The sample doubles, up to this factor, when a step hardly lowers the violation.
MOST_GROWN = 16.0
#: Share of the exact diagonal that the model keeps where the sample misses a column, and share that is
#: added to every diagonal. Larger values slow the exchange of weight between near-duplicates.
FLOOR = 0.5
DAMPING = 1e-3
#: Maximum sweeps of one step, over any set of columns.
MAX_SWEEPS = 1000
#: Hot columns have a violation above this share of the largest one among columns with a weight. Late
#: steps have few of them, and save most of their time by sweeping over these.
HOT = 0.1
#: Sweeps over the hot columns between two sweeps over all columns with a weight: enough for one
#: extrapolation. They end early when the largest violation has fallen to this share.
HOT_SWEEPS = 6
COOLED = 0.3
#: Minimum sweeps of a step: fewer are not worth gathering columns for.
LEAST_SWEEPS = 10
#: ... and the share to which the violation must fall before a request to hurry ends a step.
HURRIED = 0.3
#: Sweeps over one set of columns between two extrapolations.
EXTRAPOLATE_FROM = 5
#: Rows of the sample up to which extrapolation has memory, and vectors over them that it needs.
EXTRAPOLATE_ROWS = 1 << 18
EXTRAPOLATE_VECTORS = EXTRAPOLATE_FROM + 8
#: Lower bound of the curvature of a sampled row, as a share of the largest one.
LEAST_SINGLE = 1e-30
#: Parts in which columns are gathered, each into its own region: the most threads that help.
GATHER_PARTS = 4
#: Entries from which two threads sweep over half the columns each: about 4 ms on one thread.
LONG_SWEEP = 2_000_000
#: Maximum entries of columns that are multiplied by covariates at a time, unless a column has more.
ENTRIES_A_PRODUCT = 1 << 20
#: Maximum entries that one call of the sweep kernel reads, unless a single column has more.
ENTRIES_A_CALL = 10_000_000


@dataclass
class _Model:
    """The gathered model: k columns on a sample of the rows. See :mod:`fcl.kernels.descent`."""

    start: Ids
    stop: Ids
    entries: npt.NDArray[np.int32]
    values: Singles
    unit: float
    q: Singles
    at: LocalPoint
    extra: Floats
    curve: Floats
    leans: Floats
    ids: Ids

    def value(self, w: Floats, u: Singles, b: Floats) -> float:
        """The value of the model at a state."""
        d = w - self.at.weights
        smooth = (
            float((self.at.gradients * d).sum())
            + 0.5 * float((self.extra * d * d).sum())
            + 0.5 * self.unit * float((u * u / self.q).sum(dtype=np.float64))
            - 0.5 * float(b @ b)
        )
        return float((self.at.absolute * np.abs(w)).sum()) + smooth

    def sweep(self, order: Columns, w: Floats, u: Singles, b: Floats, violations: Floats) -> float:
        """Minimise over each column in turn, in place; returns the largest violation met."""
        largest: float = descent.descent_sweep(
            self.at.absolute,
            order,
            self.start,
            self.stop,
            self.entries,
            self.values,
            self.unit,
            self.q,
            u,
            self.at.gradients,
            self.extra,
            self.curve,
            self.leans,
            self.at.weights,
            w,
            b,
            violations,
        )
        return largest


class _Order:
    """Columns in the order in which a sweep visits them."""

    def __init__(self, model: _Model, columns: Columns) -> None:
        self.columns = columns
        self._model = model
        self._sizes = model.stop[columns] - model.start[columns]
        self.entries = int(self._sizes.sum())

    @cached_property
    def calls(self) -> list[Columns]:
        """The columns split such that no call of a kernel takes much longer than 50 ms."""
        if self.entries <= ENTRIES_A_CALL:
            return [self.columns]
        ends = np.cumsum(self._sizes)
        cuts = np.searchsorted(ends, np.arange(ENTRIES_A_CALL, ends[-1], ENTRIES_A_CALL))
        return [part for part in np.split(self.columns, cuts) if len(part)]

    @cached_property
    def halves(self) -> list[_Order]:
        """The first and the second half of the columns by id, with about equally many entries."""
        ids = self._model.ids[self.columns]
        by_id = np.argsort(ids, kind="stable")
        ends = np.cumsum(self._sizes[by_id])
        middle = ids[by_id[np.searchsorted(ends, ends[-1] // 2)]]
        first = ids <= middle
        return [_Order(self._model, self.columns[half]) for half in (first, ~first)]


class _Descent:
    """Coordinate descent on one model: its state, and the sets of columns that it sweeps over.

    The state is w (weights including steps), u (:mod:`fcl.kernels.descent`), and b (the step of the free
    coefficients, in the coordinates of their elimination).
    """

    def __init__(
        self,
        model: _Model,
        u: Singles,
        b: Floats,
        everything: Columns,
        team: Team,
        hurry: Callable[[], bool],
        cease: Callable[[], bool],
    ) -> None:
        self._model = model
        self._team = team
        self._hurry, self._cease = hurry, cease
        self._everything = everything
        self.w = model.at.weights.copy()
        self._u = u
        u[:] = 0.0
        self.b = b
        self._violations = np.zeros(len(self.w))
        self._small = len(u) <= EXTRAPOLATE_ROWS
        self._iterates: list[tuple[Floats, Singles, Floats]] = []
        self.sweeps = 0
        self._first = 0.0
        self._ended = False

    def run(self, tolerance: float) -> None:
        """Sweep until no column violates by more than the tolerance, or the step has to end."""
        everything = _Order(self._model, self._everything)
        while not self._ended and self._sweep(everything) > tolerance:
            while not self._ended:
                has_weight = self._everything[self.w[self._everything] != 0.0]
                worst = self._sweep(_Order(self._model, has_weight))
                if worst <= tolerance:
                    break
                hot = has_weight[self._violations[has_weight] > HOT * worst]
                self._cool(_Order(self._model, hot), max(tolerance, COOLED * worst))

    def _cool(self, hot: _Order, enough: float) -> None:
        self._iterates = []
        for _ in range(HOT_SWEEPS):
            if self._ended or self._sweep(hot) <= enough:
                return
            if self._small:
                self._extrapolate()

    def _sweep(self, order: _Order) -> float:
        long = self._small and self._team.threads > 1 and order.entries >= LONG_SWEEP
        worst = self._side_by_side(order) if long else self._serially(order, self._u, self.b)
        self.sweeps += 1
        self._first = self._first or worst
        hurried = self.sweeps >= LEAST_SWEEPS and worst <= HURRIED * self._first and self._hurry()
        self._ended = hurried or self.sweeps >= MAX_SWEEPS or self._cease()
        return worst

    def _serially(self, order: _Order, u: Singles, b: Floats) -> float:
        parts = [self._model.sweep(part, self.w, u, b, self._violations) for part in order.calls]
        return max(parts)

    def _side_by_side(self, order: _Order) -> float:
        """Sweep over both halves of the columns from the same state, and add their steps.

        Each half lowers the model, so half the sum does too. The whole sum nearly always does, because
        strongly coupled columns (patterns at the same positions) are in the same half.
        """
        model, w, u, b = self._model, self.w, self._u, self.b
        before = model.value(w, u, b)
        sides = [(half, u.copy(), b.copy()) for half in order.halves]
        w_before = w.copy()
        worst = max(self._team.map(lambda side: self._serially(*side), sides))
        du = sum(side[1] for side in sides) - len(sides) * u
        db = sum(side[2] - b for side in sides)
        dw = w - w_before
        for share in (1.0, 1.0 / len(sides)):
            new_w, new_u, new_b = w_before + share * dw, u + share * du, b + share * db
            if model.value(new_w, new_u, new_b) <= before:
                break
        w[:], u[:], b[:] = new_w, new_u, new_b
        return worst

    def _extrapolate(self) -> None:
        """Anderson extrapolation of sweeps over one set of columns in one order.

        Near convergence such sweeps are an affine map, and a combination of the last iterates with
        coefficients that add up to 1 is far nearer to its fixed point (Bertrand and Massias 2021). The
        state is affine in w, so the candidate is evaluated without reading a column; it is accepted only
        if it lowers the model.
        """
        model, iterates = self._model, self._iterates
        iterates.append((self.w.copy(), self._u.copy(), self.b.copy()))
        if len(iterates) <= EXTRAPOLATE_FROM:
            return
        steps = np.diff([state[0] for state in iterates], axis=0)
        gram = np.einsum("ik,jk->ij", steps, steps)  # without BLAS, whose threads would only spin
        gram[np.diag_indices_from(gram)] += 1e-12 * max(float(np.trace(gram)), 1e-300)
        c = np.linalg.solve(gram, np.ones(len(gram)))
        total = float(c.sum())
        if total != 0.0 and np.isfinite(c).all():
            c /= total
            last = iterates[1:]
            w, u, b = (
                sum(x * state[part] for x, state in zip(c, last, strict=True)) for part in range(3)
            )
            if model.value(w, u, b) < model.value(self.w, self._u, self.b):
                self.w[:], self._u[:], self.b[:] = w, u, b
        self._iterates = []


@dataclass(frozen=True)
class Gathered:
    """Columns gathered on the rows of a sample; see :func:`fcl.kernels.columns.gather_chosen`."""

    start: Ids
    stop: Ids
    entries: npt.NDArray[np.int32]
    values: Singles  #: empty if all columns consist of zeros and ones
    q: Floats  #: float64 (rows,), weights of the sampled rows

    def products(self, rows: npt.NDArray[Any], squared: bool = False) -> Floats:
        """sum_i phi_ij rows_i, or phi_ij^2, over the gathered columns, float64 (k, r).

        rows : float32 or float64 (rows, r).
        """
        from scipy.sparse import csr_array

        out = np.empty((len(self.start), rows.shape[1]))
        for columns in self._runs():
            some = slice(self.start[columns.start], self.stop[columns.stop - 1])
            valued = len(self.values) > 0
            values = self.values[some] if valued else np.ones(some.stop - some.start, np.float32)
            values = values * values if squared else values
            shape = columns.stop - columns.start, len(rows)
            if rows.dtype == np.float32 and len(values) == shape[0] * shape[1]:  # all dense
                out[columns] = values.reshape(shape) @ rows
                continue
            ends = np.append(self.start[columns], some.stop) - some.start
            out[columns] = csr_array((values, self.entries[some], ends), shape=shape) @ rows
        return out

    def _runs(self) -> Iterator[slice]:
        """Runs of columns that lie side by side, up to a number of entries."""
        first, k = 0, len(self.start)
        while first < k:
            last = first + 1
            while last < k and self.start[last] == self.stop[last - 1]:
                if self.stop[last] - self.start[first] > ENTRIES_A_PRODUCT:
                    break
                last += 1
            yield slice(first, last)
            first = last


class InnerModel:
    """Builds and minimises inner models in its own buffers.

    Parameters
    ----------
    n_rows : int
        Maximum rows of the view.
    max_columns : int
        Maximum columns of the working set.
    entries : int
        Room for entries of gathered columns (4 bytes each, 8 with values).
    seed : int
        Seeds the order of coordinates and the samples of rows; taken modulo ``MOST_SEEDS``.
    binary : bool
        Whether all columns consist of zeros and ones.
    block_rows : int
        Rows per block.
    team : Team
        Threads that gather columns; two of them share long sweeps.
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
        self.n_rows, self.max_columns, self.team = n_rows, max_columns, team
        self._q_buffer = np.empty(n_rows)
        self._single_buffers = [np.empty(n_rows, np.float32) for _ in range(2)]
        self._chosen_buffer = np.empty(n_rows, np.int32)
        self._wanted = np.empty((-(-n_rows // block_rows), -(-block_rows // 64)), np.uint64)
        self._entries = np.empty(entries, np.int32)
        self._values = np.empty(0 if binary else entries, np.float32)
        self._start = np.empty(max_columns, np.int64)
        self._stop = np.empty(max_columns, np.int64)
        self._block_rows = block_rows
        self._seed = seed % MOST_SEEDS
        self.drawn = 0  #: samples drawn so far
        self.grown = 1.0  #: factor on the number of sampled rows
        #: called between sweeps: whether a step should end after LEAST_SWEEPS
        self.hurry: Callable[[], bool] = lambda: False
        #: called between sweeps and steps: whether to end at once
        self.cease: Callable[[], bool] = lambda: False

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        """Bytes of the buffers."""
        iterates = 8 * EXTRAPOLATE_VECTORS * min(n_rows, EXTRAPOLATE_ROWS)
        rows = n_rows * (8 + 2 * 4 + 4) + -(-n_rows // 8)
        return rows + iterates + (4 if binary else 8) * entries + 16 * max_columns

    def judge(self, before: float, after: float) -> None:
        """Adapt the sample size to a step that took the largest violation from before to after."""
        if after > 0.7 * before:
            self.grown = min(2.0 * self.grown, MOST_GROWN)
        elif after < 0.3 * before:
            self.grown = max(0.5 * self.grown, 1.0)

    def minimise(
        self, view: RowView, working: WorkingSet, at: LocalPoint, q: Floats, tolerance: float
    ) -> Step:
        """The step that minimises the model at a point.

        q : float64 (n_rows,), curvatures of the rows of the view.  tolerance : violation of a column up
        to which the model counts as minimised.
        """
        k = len(at.columns)
        h, lean = np.empty(k), np.empty(k)
        rows = self.gather(working, at.columns, q, lean, h)
        q_chosen = self._q_buffer[:rows]
        single, u = (buffer[:rows] for buffer in self._single_buffers)
        unit = float(q_chosen.max(initial=0.0)) or 1.0
        np.divide(q_chosen, unit, out=single, casting="same_kind")
        np.maximum(single, LEAST_SINGLE, out=single)
        constant = view.objective.has_constant and rows > 0
        at, centres = self._centre(at, rows, lean, h) if constant else (at, np.zeros(k))
        free, leans = self._eliminate(view, k, rows, at.slopes, lean)
        # share of a column's curvature that is left once the free coefficients are eliminated: damping by
        # the whole curvature would slow down columns far from 0, such as 100 +- 1, for hundreds of steps
        along = np.einsum("ij,ij->i", leans, leans)
        left = np.maximum(1.0 - along / np.maximum(h, 1e-300), 0.0)
        extra = np.maximum(FLOOR * at.curvatures - h, 0.0)
        extra += DAMPING * left * (at.curvatures + at.floor)
        # both terms are quadratic already. Without the floor the model is too flat where the view misses
        # most of a column, and the line search has to cut the steps
        extra += at.floor + at.ridge
        model = _Model(
            self._start[:k],
            self._stop[:k],
            self._entries,
            self._values,
            unit,
            single,
            at,
            extra,
            # elimination leaves no curvature of a constant column
            np.maximum(np.maximum(h + extra - along, 1e-9 * (h + extra)), 1e-300),
            leans,
            working.cache.ids[at.columns],
        )
        order = self.order(k)
        state = _Descent(model, u, free.start, order, self.team, self.hurry, self.cease)
        state.run(tolerance)
        d = state.w - at.weights
        x = free.step(state.b)
        x[:1] -= float(centres @ d)
        return Step(d, x, state.sweeps)

    def _eliminate(
        self, view: RowView, k: int, rows: int, slopes: Floats, lean: Floats
    ) -> tuple[Elimination, Floats]:
        """The elimination on the sampled rows, and the leans of the gathered columns, (k, r).

        lean : float64 (k,), sums of the columns in the weights of the sample.
        """
        part, q = view.objective, self._q_buffer[:rows]
        covariates = part.covariates
        if covariates is not None:
            covariates = covariates.take(self.chosen(part.n_rows))
        # sums over the sample, as in the columns: otherwise a nearly constant column may have negative
        # curvature once the intercept is eliminated, and its steps are unbounded
        part = replace(part, y=part.y[:rows], covariates=covariates)
        free = Elimination.of(part, q, slopes, view.free_floor)
        if covariates is None:
            return free, lean[:, None] * free.root.sum(axis=0)
        columns = covariates.values @ free.root
        columns *= q[:, None]
        return free, self.gathered(k, rows).products(columns)

    def _centre(
        self, at: LocalPoint, rows: int, lean: Floats, h: Floats
    ) -> tuple[LocalPoint, Floats]:
        """The same point with centred columns, for which the constant compensates.

        The curvature of a column after elimination of the intercept is the difference of two sums; in
        float32 nothing is left of it for a column of 5,000 +- 1. Only columns with a value in every row
        of the sample are centred; others would become dense. Returns the point and the means.
        """
        whole = h.copy()
        centres = self.centre(rows, lean, h)
        left = np.divide(h, whole, out=np.ones(len(h)), where=whole > 0.0)
        gradients = at.gradients - centres * at.slopes[0]
        return replace(at, gradients=gradients, curvatures=at.curvatures * left), centres

    def centre(self, rows: int, lean: Floats, h: Floats) -> Floats:
        """Centre the gathered columns that have a value in every row of the sample; returns the means.

        Updates ``lean`` and ``h``, float64 (k,), of the sample.
        """
        k = len(h)
        centres = np.zeros(k)
        if len(self._values):
            column_kernels.centre(
                self._start[:k],
                self._stop[:k],
                rows,
                self._values,
                self._q_buffer[:rows],
                float(self._q_buffer[:rows].sum()),
                lean,
                h,
                centres,
            )
        return centres

    def gathered(self, k: int, rows: int) -> Gathered:
        """The first k gathered columns, as views of the buffers."""
        return Gathered(
            self._start[:k], self._stop[:k], self._entries, self._values, self._q_buffer[:rows]
        )

    def chosen(self, n_rows: int) -> Columns:
        """The rows of the last sample of a view of ``n_rows`` rows, increasing."""
        return np.flatnonzero(self._chosen_buffer[:n_rows] >= 0)

    def order(self, k: int) -> Columns:
        """A random order of k things, the same for the same seed and number of samples."""
        return np.random.default_rng([self._seed, self.drawn]).permutation(k)

    def _choose_rows(self, q: Floats, most: int) -> int:
        """Sample about ``most`` rows by their curvature; returns their number."""
        counts, sums = np.empty(descent.BINS), np.empty(descent.BINS)
        # relative to the largest, so that the sample does not depend on the unit of the weights
        unit = float(q.max(initial=0.0)) or 1.0
        descent.curvature_histogram(q, unit, counts, sums)
        # expected size of the sample for tau at the lower edge of each bin
        edges = descent.bin_edges()
        whole = np.cumsum(counts[::-1])[::-1]
        partly = (np.cumsum(sums) - sums) / edges
        fits = np.flatnonzero(whole + partly <= most)
        tau = 0.0  # all rows
        if counts.sum() > most:
            tau = unit * float(edges[fits[0] if len(fits) else -1])
        self.drawn += 1
        count: int = descent.choose_rows(
            q,
            tau,
            (self._seed << 32) + self.drawn,
            self._chosen_buffer[: len(q)],
            self._q_buffer,
        )
        return count

    def gather(
        self, working: WorkingSet, columns: Columns, q: Floats, lean: Floats, h: Floats
    ) -> int:
        """Gather the columns on a sample of as many rows as fit; returns the number of rows.

        Writes ``lean`` and ``h``, float64 (k,): sums of phi_ij and phi_ij^2 in the weights of the sample.
        """
        k = len(columns)
        chosen = self._chosen_buffer[: len(q)]
        slots = working.cache.slots[columns]
        # regions in proportion to the entries of their columns
        held = np.concatenate([[0], np.cumsum(working.cache.store.nonzeros[slots] + 1)])
        cuts = np.searchsorted(held, np.linspace(0, held[-1], GATHER_PARTS + 1)[1:-1])
        cuts = np.concatenate([[0], cuts, [k]])
        room = (len(self._entries) * (held[cuts] / held[-1])).astype(np.int64)
        most = int(self.grown * max(LEAST_ROWS, ROWS_A_COLUMN * k))

        def part(p: int) -> bool:
            some = slice(cuts[p], cuts[p + 1])
            written = column_kernels.gather_chosen(
                working.cache.pieces,
                slots[some],
                chosen,
                self._wanted,
                self._q_buffer[:rows],
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
            rows = self._choose_rows(q, most)
            column_kernels.mark_rows(chosen, self._block_rows, self._wanted)
            if all(self.team.map(part, range(GATHER_PARTS))):
                return rows
            most = min(most, rows) // 2
            if most < 1:
                raise BudgetError(
                    f"trainer: no room to gather {k} columns on a single row; raise the memory budget"
                )
