"""Exact minimisation of the inner model, with its whole Hessian.

The worse the columns are conditioned, the more sweeps coordinate descent takes: with columns of very
different scales, near-copies, or nearly interpolated rows it would take millions. If there are few
columns, this module computes their Hessian over all rows of the view in float64 and minimises the
quadratic plus absolute values by an active-set method: Newton steps on the nonzero weights, within the
orthant of their signs, until no other weight violates (feature-sign search, Lee, Battle, Raina and Ng
2006). Columns are scaled to a unit diagonal, so their units do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.kernels import columns as column_kernels
from fcl.kernels import descent
from fcl.parallel import Team
from fcl.solve.elimination import Elimination
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.solve.view import RowView, column_moments
from fcl.types import Floats

#: Number of columns up to which a Hessian is computed.
MOST_COLUMNS = 1024
#: Entries of dense columns in memory at a time.
CHUNK_ENTRIES = 1 << 17
#: Number of chunks whose products are held until they are added in order.
CHUNKS_AT_ONCE = 2
#: Share of nonzeros in the columns up to which their Hessian is made of pairs of nonzeros: about 20 dense
#: products take the time of one sparse product.
SPARSE = 0.15
#: Dense products that take as long as reading an entry in a sweep.
PRODUCTS_AN_ENTRY = 20.0
#: Share of the diagonal that elimination must leave, so that the subtraction costs at most 3 digits.
LEAST_LEFT = 1e-3
#: Pivots of a matrix with unit diagonal up to this, times the number of columns, count as 0: rounding
#: hides them. Along the directions of zero curvature that they leave, weights move until one reaches 0.
FLAT = 3e-15
#: Pivots above this leave no doubt that the columns are independent.
CLEAR = 1e-8
#: Slope along such a direction, as a share of the penalty's, above which a move is worthwhile.
FLAT_SLOPE = 1e-9
#: Sweeps of coordinate descent before the active-set method: cheap, and they find most of the set.
FIRST_SWEEPS = 20
#: Maximum Newton steps that change no sign, Newton steps that bring no weight to 0, and active sets:
#: rounding could make them cycle.
MOST_REFINEMENTS = 3
MOST_STEPS = 6
MOST_SETS = 300
#: Maximum consecutive active sets that do not lower the quadratic: near rounding error they cycle.
MOST_IDLE_SETS = 5
#: Relative difference up to which two values differ only by rounding.
ROUNDED = 1e-13
#: Relative residual at which a Newton system counts as solved.
SOLVED = 1e-13


class ExactModel:
    """Builds and minimises quadratic models in which the free coefficients are eliminated.

    Parameters
    ----------
    most : int
        Number of columns that fit in memory.
    """

    def __init__(self, most: int) -> None:
        self.most = most

    @staticmethod
    def bytes_for(columns: int) -> int:
        """Bytes that a step allocates: the Hessian, its factors, and columns for it.

        :mod:`fcl.solve.clipped` holds up to three copies of its columns, each of up to two chunks, and
        about thirty vectors over the rows, which together take at most four more chunks.
        """
        return 8 * (8 * columns**2 + 10 * CHUNK_ENTRIES)

    def minimise(
        self,
        view: RowView,
        working: WorkingSet,
        at: LocalPoint,
        q: Floats,
        tolerance: float,
        cease: Callable[[], bool],
    ) -> Step:
        """The step that minimises the model at a point.

        q : float64 (n_rows,), curvatures of the rows of the view.
        tolerance : violation up to which a weight of 0 stays out of the active set.
        cease : whether to stop and return the best point so far.
        """
        free = Elimination.of(view.objective, q, at.slopes, view.free_floor)
        sums = self._sums(view, working, at.columns, q)
        cross = sums @ free.root
        coefs = cross @ free.root.T
        # floors retain a part of what is eliminated
        hessian = self._sparse_hessian(view, working, at.columns, q, sums, coefs)
        if hessian is None:
            hessian = self._hessian(view, working, at.columns, q, coefs)
        hessian += (coefs * view.free_floor) @ coefs.T
        diagonal = np.diag_indices_from(hessian)
        hessian[diagonal] += at.floor + at.ridge
        gradients, tolerance = at.gradients - coefs @ at.slopes, min(tolerance, 1e-6)
        if view.objective.penalty.limits.unlimited:
            rank = len(at.columns) if at.ridge.any() else int(np.count_nonzero(q))
            weights, sets = minimise_quadratic(
                hessian, gradients, at.absolute, at.weights, tolerance, rank, cease
            )
        else:
            limits = at.low, at.high
            weights, sets = minimise_in_box(
                hessian, gradients, at.absolute, *limits, at.weights, tolerance, cease
            )
        d = weights - at.weights
        return Step(d, free.step(free.start - d @ cross), sets)

    @staticmethod
    def work(working: WorkingSet, columns: Columns, n_rows: int) -> float:
        """Number of entries that sweeps read in about the time that :meth:`minimise` takes."""
        k = len(columns)
        filled = float(working.cache.store.nonzeros[working.cache.slots[columns]].sum())
        if filled <= SPARSE * k * n_rows:
            products = filled + 0.5 * filled * filled / max(n_rows, 1)
        else:
            products = n_rows * (k + k**2 / PRODUCTS_AN_ENTRY)
        return products + FIRST_SWEEPS * k**2 + k**3 / PRODUCTS_AN_ENTRY

    @staticmethod
    def _sums(view: RowView, working: WorkingSet, columns: Columns, q: Floats) -> Floats:
        """sum_i q_i phi_ij z_i over the unpenalised columns z, float64 (k, n_free)."""
        covariates, team = view.objective.covariates, view.objective.team
        if covariates is None:
            cross_sums, _ = column_moments(working, columns, q, q, team)
            return np.repeat(cross_sums[:, None], view.objective.n_free, axis=1)
        z = covariates.values
        return over_chunks(
            view, working, columns, lambda part, rows: part @ (z[rows] * q[rows, None]), team
        )

    @staticmethod
    def _sparse_hessian(
        view: RowView, working: WorkingSet, columns: Columns, q: Floats, sums: Floats, coefs: Floats
    ) -> Floats | None:
        """The Hessian of sparse columns, by the pairs of nonzeros in a row; None if others are faster.

        What elimination takes away is subtracted from sums over the rows, which loses digits of columns
        that are nearly combinations of the unpenalised ones; these are left to :meth:`_hessian`, too.

        sums, coefs : float64 (k, n_free).
        """
        k, part = len(columns), view.objective
        filled = working.cache.store.nonzeros[working.cache.slots[columns]].sum()
        if filled > SPARSE * k * part.n_rows:
            return None
        hessian = np.zeros((k, k))
        shape = max(64, CHUNK_ENTRIES // k // 64 * 64), k
        buffers = np.empty(shape, np.int32), np.empty(shape)
        slots, pieces = working.cache.slots[columns], working.cache.pieces
        for block in range(working.cache.store.n_blocks):
            column_kernels.add_sparse_gram(pieces, slots, block, q, *buffers, hessian)
        hessian += np.triu(hessian, 1).T
        whole = hessian.diagonal().copy()
        product = sums @ coefs.T
        hessian -= product
        hessian -= product.T
        hessian += coefs @ part.free_gram(q) @ coefs.T
        return hessian if (hessian.diagonal() >= LEAST_LEFT * whole).all() else None

    @staticmethod
    def _hessian(
        view: RowView, working: WorkingSet, columns: Columns, q: Floats, coefs: Floats
    ) -> Floats:
        """sum_i q_i (phi_ij - coefs_j z_i) (phi_ik - coefs_k z_i), float64 (k, k).

        coefs : float64 (k, n_free), of the projections of the columns on the unpenalised ones.
        """
        covariates = view.objective.covariates

        def chunk(part: Floats, rows: slice) -> Floats:
            if covariates is not None:
                part -= coefs @ covariates.values[rows].T
            elif coefs.shape[1]:
                part -= coefs
            part *= np.sqrt(q[rows])
            product: Floats = part @ part.T
            return product

        return over_chunks(view, working, columns, chunk, view.objective.team)


def over_chunks(
    view: RowView,
    working: WorkingSet,
    columns: Columns,
    term: Callable[[Floats, slice], Floats | float],
    team: Team,
) -> Floats:
    """The sum of a term over chunks of rows.

    term : of the dense columns of a chunk, float64 (k, rows), which it may overwrite, and its rows.
    """
    k, n = len(columns), view.objective.n_rows
    slots, pieces = working.cache.slots[columns], working.cache.pieces
    block_rows = view.objective.block_rows
    size = min(block_rows, max(64, CHUNK_ENTRIES // max(k, 1) // 64 * 64))
    starts = [
        at
        for block in range(0, n, block_rows)
        for at in range(block, min(block + block_rows, n), size)
    ]

    def chunk(at: int) -> Floats | float:
        number, first = divmod(at, block_rows)
        last = min(at + size, (number + 1) * block_rows, n)
        part = np.empty((k, last - at))
        column_kernels.dense_rows(pieces, slots, number, first, part)
        return term(part, slice(at, last))

    total: Any = 0.0
    for at in range(0, len(starts), CHUNKS_AT_ONCE):
        for product in team.map(chunk, starts[at : at + CHUNKS_AT_ONCE]):
            total += product
    return np.asarray(total)


def minimise_quadratic(
    hessian: Floats,
    gradients: Floats,
    absolute: Floats,
    start: Floats,
    tolerance: float,
    rank: int | None = None,
    cease: Callable[[], bool] = lambda: False,
) -> tuple[Floats, int]:
    """Minimise gradients . d + d' hessian d / 2 + absolute . |start + d| over d.

    Parameters
    ----------
    hessian : float64 (k, k), positive semidefinite; overwritten.
    gradients, absolute, start : float64 (k,); absolute > 0.
    tolerance : violation, as a share of ``absolute``, up to which a weight of 0 stays 0.
    rank : upper bound of the rank of the Hessian: some minimum has at most that many nonzero weights.
    cease : called before each active set; True ends the search with the lowest point so far.

    Returns
    -------
    The weights start + d, float64 (k,), and the number of active sets tried.
    """
    k = len(start)
    rank = k if rank is None else max(rank, 1)
    scale = _scaled(hessian)
    g, a, origin = gradients / scale, absolute / scale, start * scale
    w, slope = origin.copy(), g.copy()  # the slope of the smooth part at w
    endless = np.full(k, np.inf)

    def value() -> float:
        return 0.5 * float((g + slope) @ (w - origin)) + float(a @ np.abs(w))

    lowest, best = value(), w.copy()
    order = np.arange(k)
    for _ in range(FIRST_SWEEPS):
        if descent.gram_sweep(hessian, a, -endless, endless, order, w, slope) <= tolerance:
            break
    swept, after = value(), w.copy()
    if np.count_nonzero(w) > rank:  # removing the surplus one by one would take longer
        w[:] = best
        slope = g + hessian @ (w - origin)
    else:
        lowest, best = swept, after
    signs = np.sign(w)
    sets = idle = 0
    while sets < MOST_SETS and idle < MOST_IDLE_SETS and not cease():
        sets += 1
        active = ActiveSet(hessian, a, w, slope, signs)
        active.minimise()
        w[:] = signs[:] = 0.0
        w[active.indices], signs[active.indices] = active.w, active.signs
        # sums of many updates drift
        slope = g + hessian @ (w - origin)
        found = value()
        idle = 0 if found < lowest else idle + 1
        if found <= lowest + ROUNDED * abs(lowest):  # of equal points the later one is more exact
            lowest, best = found, w.copy()
        enter = entering(slope, a, np.flatnonzero(signs == 0.0), tolerance, rank)
        if not len(enter):
            break
        signs[enter] = -np.sign(slope[enter])
        if len(enter) > 1:
            active = ActiveSet(hessian, a, w, slope, signs)
            new = np.isin(active.indices, enter)
            if not takes_all(active.hessian, active.right(), active.signs, new):
                signs[enter[1:]] = 0.0
    return (best if lowest <= swept + ROUNDED * abs(swept) else after) / scale, sets


def _scaled(hessian: Floats) -> Floats:
    """Scale a Hessian to a unit diagonal, in place; returns the scales of the weights."""
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    # a column without curvature keeps its own scale
    scale = np.where(scale > 0.0, scale, 1.0)
    hessian /= scale
    hessian /= scale[:, None]
    return scale


def minimise_in_box(
    hessian: Floats,
    gradients: Floats,
    absolute: Floats,
    low: Floats,
    high: Floats,
    start: Floats,
    tolerance: float,
    cease: Callable[[], bool] = lambda: False,
) -> tuple[Floats, int]:
    """Minimise the same as :func:`minimise_quadratic` over weights from ``low`` to ``high``.

    Sweeps of coordinate descent find which weights are at 0 or at a limit; Newton steps move the others,
    until one of them gets there.
    """
    scale = _scaled(hessian)
    diagonal = np.diag_indices_from(hessian)
    hessian[diagonal] = np.maximum(hessian[diagonal], FLAT)  # a sweep divides by it
    g, a, origin = gradients / scale, absolute / scale, start * scale
    ends = low * scale, high * scale
    w, slope, order = origin.copy(), g.copy(), np.arange(len(start))

    def value() -> float:
        return 0.5 * float((g + slope) @ (w - origin)) + float(a @ np.abs(w))

    lowest, sets, idle = math.inf, 0, 0
    while sets < MOST_SETS and idle < MOST_IDLE_SETS and not cease():
        sets += 1
        for _ in range(FIRST_SWEEPS):
            violation = descent.gram_sweep(hessian, a, *ends, order, w, slope)
            if violation <= tolerance:
                break
        slope = g + hessian @ (w - origin)  # sums of many updates drift
        found = value()
        idle = 0 if found < lowest - ROUNDED * abs(lowest) else idle + 1
        lowest = min(lowest, found)
        if violation <= tolerance:
            break
        swept = w.copy()
        for _ in range(MOST_STEPS):
            free = np.flatnonzero((w != 0.0) & (w > ends[0]) & (w < ends[1]))
            if not len(free) or not _newton_inside(hessian, a, ends, free, w, slope):
                break
            slope = g + hessian @ (w - origin)
        slope = g + hessian @ (w - origin)
        if not value() <= found:  # columns depend on each other
            w[:] = swept
            slope = g + hessian @ (w - origin)
    out = np.where(w >= ends[1], high, w / scale)
    return np.where(w <= ends[0], low, out), sets


def _newton_inside(
    hessian: Floats, a: Floats, ends: tuple[Floats, Floats], free: Columns, w: Floats, slope: Floats
) -> bool:
    """Take a Newton step on some weights, in place, until one is 0 or at a limit; returns whether one is.

    Where the quadratic has no curvature, but a slope, weights move along it instead.

    free : weights that are neither.
    """
    own, longest = w[free], 1.0
    right = -(slope[free] + a[free] * np.sign(own))
    step, null_space = newton_step(_square(hessian, free), right)
    along = null_space @ (null_space.T @ right)
    if np.abs(along).max() > FLAT_SLOPE * a[free].min():
        step, longest = along, math.inf
    # the next place ahead of each weight: its limit, or 0
    towards = np.where(own > 0.0, np.where(step > 0.0, ends[1][free], 0.0), 0.0)
    towards = np.where(own < 0.0, np.where(step < 0.0, ends[0][free], 0.0), towards)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(step != 0.0, (towards - own) / step, math.inf)
    first = int(np.argmin(shares))
    share = min(longest, float(shares[first]))
    if not math.isfinite(share):
        return False
    w[free] = own + share * step
    ends_there = bool(shares[first] <= longest)
    if ends_there:
        w[free[first]] = towards[first]
    return ends_there


def entering(slope: Floats, a: Floats, out: Columns, tolerance: float, rank: int) -> Columns:
    """The weights of 0 that should become active together, the worst violator first.

    Making the worst violator active always helps, and most others near it will stay active.

    Parameters
    ----------
    slope, a : float64 (k,), slopes of the smooth part, and penalty coefficients above 0.
    out : weights that are 0; the other weights are active.
    tolerance : violation, as a share of ``a``, up to which a weight stays 0.
    rank : number of active weights beyond which weights enter one by one.
    """
    over = (np.abs(slope[out]) - a[out]) / a[out]
    worst_first = out[np.argsort(-over, kind="stable")]
    n_near = int((over > max(0.5 * float(over.max(initial=0.0)), tolerance)).sum())
    return worst_first[: min(n_near, max(1, rank - (len(slope) - len(out))))]


def takes_all(hessian: Floats, right: Floats, signs: Floats, new: npt.NDArray[np.bool_]) -> bool:
    """Whether a Newton step on the active weights moves the new ones in the direction of their signs."""
    step, null_space = newton_step(hessian, right)
    return not null_space.shape[1] and bool((step * signs >= 0.0)[new].all())


class ActiveSet:
    """The active weights and the quadratic over them, moved to its minimum within their orthant.

    Weights that reach 0 on the way leave the active set. The arrays passed in are not changed; slopes are
    stored for active weights only.

    Parameters
    ----------
    hessian : float64 (k, k).
    a, w, slope, signs : float64 (k,); weights whose sign is not 0 are active. An entering weight is 0 and
        has the sign that it is to take.
    """

    def __init__(self, hessian: Floats, a: Floats, w: Floats, slope: Floats, signs: Floats) -> None:
        self.indices = np.flatnonzero(signs)
        self.hessian = _square(hessian, self.indices)
        self.a, self.w = a[self.indices], w[self.indices]
        self.slope, self.signs = slope[self.indices], signs[self.indices]

    def minimise(self) -> None:
        """Move to the minimum."""
        refinements = steps = 0
        while len(self.indices):
            right = self.right()
            if np.abs(right).max() <= SOLVED * float((np.abs(self.slope) + self.a).max()):
                break
            step, null_space = newton_step(self.hessian, right)
            if null_space.shape[1]:
                if self.move_in_null_space(null_space):
                    continue
                along = null_space @ (null_space.T @ right)
                if np.abs(along).max() > FLAT_SLOPE * self.a.min():
                    # no weight bounds the move: bound it by the least curvature that rounding cannot
                    # hide, a share of the largest one, which is at most the number of columns
                    step += along / (FLAT * len(right) ** 2)
            square = float(step @ (self.hessian @ step))
            beta, zeroed = _along(square, self.a, self.w, right, step)
            if beta <= 0.0:
                break
            before = self.signs
            self._move(beta * step, zeroed)
            if zeroed >= 0:
                self._drop()
                continue
            steps += 1
            refinements += bool((self.signs == before).all())
            if refinements >= MOST_REFINEMENTS or steps >= MOST_STEPS:
                break

    def right(self) -> Floats:
        """Minus the slopes within the orthant; 0 for weights that have become 0."""
        return np.where(self.signs == 0.0, 0.0, -(self.slope + self.a * self.signs))

    def move_in_null_space(self, null_space: Floats, level: bool = False) -> bool:
        """Move along directions of zero curvature, as long as that is downhill, until weights are 0.

        null_space : float64 (active, directions), orthonormal.
        level : also move along directions in which the quadratic is level.
        Returns whether a weight has become 0.
        """
        left = False
        while null_space.shape[1]:
            right = self.right()
            step = null_space @ (null_space.T @ right)
            zeroed = -1
            if np.abs(step).max() > FLAT_SLOPE * self.a.min():
                step /= FLAT * np.abs(step).max()
                _, zeroed = _along(0.0, self.a, self.w, right, step)
            elif level:
                step = null_space[:, 0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    zeroed = int(np.argmin(np.where(self.w != 0.0, np.abs(self.w / step), np.inf)))
            if zeroed < 0:
                break
            self._move(-self.w[zeroed] / step[zeroed] * step, zeroed)
            left = True
            # reflect the basis so that only one direction moves this weight, and drop that direction
            normal = null_space[zeroed].copy()
            pivot = int(np.argmax(np.abs(normal)))
            normal[pivot] += math.copysign(float(np.linalg.norm(normal)), float(normal[pivot]))
            normal /= np.linalg.norm(normal)
            null_space -= np.outer(null_space @ normal, 2.0 * normal)
            null_space = np.delete(null_space, pivot, axis=1)
            null_space[zeroed] = 0.0
        if left:
            self._drop()
        return left

    def _move(self, step: Floats, zeroed: int) -> None:
        self.w = self.w + step
        self.slope = self.slope + self.hessian @ step
        if zeroed >= 0:
            self.w[zeroed] = 0.0
        self.signs = np.sign(self.w)

    def _drop(self) -> None:
        """Remove the weights that are 0 from the active set."""
        kept = np.flatnonzero(self.signs)
        self.hessian = _square(self.hessian, kept)
        self.indices, self.a, self.w = self.indices[kept], self.a[kept], self.w[kept]
        self.slope, self.signs = self.slope[kept], self.signs[kept]


def _square(matrix: Floats, some: Columns) -> Floats:
    """The entries of a matrix in some rows and the same columns; np.ix_ takes four times as long."""
    return matrix.take(some, axis=0).take(some, axis=1)


def newton_step(hessian: Floats, right: Floats) -> tuple[Floats, Floats]:
    """Solve hessian step = right by a Cholesky factorisation; columns may be dependent.

    The factorisation is pivoted, which takes longer, unless all columns are clearly independent.

    Returns
    -------
    The step, float64 (k,), with 0 for columns that depend on the others; and an orthonormal basis of the
    directions of zero curvature, float64 (k, directions).
    """
    from scipy.linalg import cho_solve, solve_triangular
    from scipy.linalg.lapack import dpotrf, dpstrf

    k = len(right)
    factor, failed = dpotrf(hessian, lower=1)
    if not failed and float(np.diag(factor).min(initial=1.0)) ** 2 > CLEAR:
        return cho_solve((factor, True), right, check_finite=False), np.empty((k, 0))
    factor, order, rank, _ = dpstrf(hessian, tol=FLAT * k, lower=1)
    basic, rest = order[:rank] - 1, order[rank:] - 1
    corner = factor[:rank, :rank]
    step = np.zeros(k)
    step[basic] = cho_solve((corner, True), right[basic], check_finite=False)
    if not len(rest):
        return step, np.empty((k, 0))
    null_space = np.zeros((k, len(rest)))
    null_space[rest, np.arange(len(rest))] = 1.0
    null_space[basic] = -solve_triangular(
        corner, factor[rank:, :rank].T, lower=True, trans="T", check_finite=False
    )
    return step, np.linalg.qr(null_space)[0]


def _along(square: float, a: Floats, w: Floats, right: Floats, step: Floats) -> tuple[float, int]:
    """The minimum of the quadratic plus absolute values along a step.

    square : curvature along the step.  right : minus the slopes within the orthant.  Returns the share of
    the step, and the index of the weight that becomes 0 there, or -1.
    """
    slope = -float(right @ step)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        crossings = np.where((step != 0.0) & (w != 0.0), -w / step, np.inf)
    for j in np.argsort(crossings):
        beta = float(crossings[j])
        if beta <= 0.0:
            continue
        if beta > 1.0 or slope + square * beta >= 0.0:
            break
        slope += 2.0 * a[j] * abs(step[j])
        if slope + square * beta >= 0.0:
            return beta, int(j)
    return (min(1.0, -slope / square) if square > 0.0 else 1.0), -1
