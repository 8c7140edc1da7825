"""Minimise a quadratic plus absolute values of the weights in float64, with its whole Hessian.

An active-set method: Newton steps on the nonzero weights, within the orthant of their signs, until no
other weight violates (feature-sign search, Lee, Battle, Raina and Ng 2006). With limits, Newton steps
within the box. Columns are scaled to a unit diagonal, so their units do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.kernels import descent
from fcl.solve.state import Columns
from fcl.types import Floats

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

    hessian : float64 (k, k), positive semidefinite; overwritten.
    gradients, absolute, start : float64 (k,); absolute > 0.

    Returns the weights start + d, float64 (k,), and the number of active sets tried.
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

    slope, a : float64 (k,), slopes of the smooth part, and penalty coefficients above 0.
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

    hessian : float64 (k, k).
    a, w, slope, signs : float64 (k,); weights whose sign is not 0 are active. An entering weight is 0
        and has the sign that it is to take.
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

    Returns the step, float64 (k,), with 0 for columns that depend on the others; and an orthonormal basis
        of the directions of zero curvature, float64 (k, directions).
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
