"""A precise solver for small problems, which shares no code with fcl.

A barrier method (Koh, Kim and Boyd, "An interior-point method for large-scale l1-regularized logistic
regression", 2007) comes near the optimum, whatever the scales of the columns. Newton steps within the
orthant of the nonzero weights complete the solution (feature-sign search, Lee et al. 2007). Columns are
centred and scaled first. Sums are computed in extended precision (``numpy.longdouble``, which is float64
on some machines), linear systems in float64, or in extended precision if they are small. The objective
and its dual bound come from :mod:`tests.judge`, on arrays in extended precision: a bound just below
the objective proves that the reference is right.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from threadpoolctl import threadpool_limits

from tests.judge import Problem, Solution

Long = np.longdouble
Real = Any  #: a number in extended precision, or a float
#: Relative gap at which the barrier method ends; the Newton steps do the rest.
NEAR = 1e-12
#: Factor by which the barrier shrinks from stage to stage.
SHRINK = 30.0
#: Most Newton steps of the barrier method, and of the orthant search.
MOST_BARRIER, MOST_NEWTON = 300, 600
#: Relative gap at which the optimum is accepted.
PROVED = 1e-11
#: Unknowns up to which the barrier method solves its systems in extended precision.
SMALL = 50
#: Unknowns up to which it does so if float64 was not enough; 784 unknowns take eight minutes.
FEW = 300


def extended(problem: Problem) -> Problem:
    """The same problem with its arrays in extended precision."""
    f = None if problem.factors is None else problem.factors.astype(Long)
    phi, y, s = (a.astype(Long) for a in (problem.phi, problem.y, problem.s))
    C: Real = Long(problem.C)
    return replace(problem, phi=phi, y=y, s=s, C=C, factors=f)


def solve(problem: Problem) -> Solution:
    """Solve a problem as precisely as possible; return the point, its objective and a dual bound.

    The objective is always the point's; the bound shows how near the optimum is.
    """
    exact = extended(problem)
    scaled = Scaled.make(exact)
    null = np.zeros(exact.phi.shape[1], Long), exact.null()[0]
    best = Solution(*null, exact.objective(*null), exact.bound(exact.residuals(*null)))
    with threadpool_limits(1), np.errstate(over="ignore", under="ignore"):
        # extended precision takes long, and is rarely needed
        for precise in (False, True)[: 1 + (len(scaled.kink) <= FEW)]:
            v, b = _finish(scaled, *_barrier(scaled, precise or len(scaled.kink) <= SMALL))
            point = scaled.weights(v, b)
            residuals = exact.residuals(*point), _projected(scaled, v, b)
            bound = max(best.bound, *map(exact.bound, residuals))
            found = Solution(*point, exact.objective(*point), bound)
            best = found if found.objective < best.objective else replace(best, bound=bound)
            if best.objective - best.bound <= PROVED * best.objective:
                break
    return best


@dataclass(frozen=True)
class Scaled:
    """A problem whose columns are centred and of length 1, without the constant ones.

    problem : the problem with scaled columns and, for the squared loss, centred targets.
    kink, ridge : the factors of |v_j| and of v_j^2 / 2 for each column.
    columns : the index of each column in the original problem.
    """

    problem: Problem
    kink: np.ndarray
    ridge: np.ndarray
    columns: np.ndarray
    means: np.ndarray
    lengths: np.ndarray
    shift: Real  #: of the targets
    n_columns: int

    @classmethod
    def make(cls, exact: Problem) -> Scaled:
        """Centre and scale; without an intercept nothing is centred."""
        phi, s, f = exact.phi, exact.s, exact.f
        share = s / s.sum()
        means = share @ phi if exact.intercept else np.zeros(phi.shape[1], Long)
        centred = phi - means
        lengths = np.sqrt(s @ centred**2)
        moving = lengths > 1e-16 * np.sqrt(s @ phi**2)
        columns = np.flatnonzero(moving)
        if exact.rho == 1.0:  # of equal columns, the one with the smallest factor is enough
            order = columns[np.argsort(f[columns], kind="stable")]
            _, first = np.unique(phi[:, order], axis=1, return_index=True)
            columns = np.sort(order[first])
        means, lengths = means[columns], lengths[columns]
        shift = Long(0.0)
        if exact.intercept and exact.loss == "squared":
            shift = share @ exact.y
        inner = replace(
            exact, phi=centred[:, columns] / lengths, y=exact.y - shift, factors=None, rho=1.0
        )
        kink = exact.rho * f[columns] / lengths
        ridge = (1.0 - exact.rho) * f[columns] / lengths**2
        return cls(inner, kink, ridge, columns, means, lengths, shift, phi.shape[1])

    def weights(self, v: np.ndarray, b: Real) -> tuple[np.ndarray, Real]:
        """The point in units of the original problem, in extended precision."""
        w = np.zeros(self.n_columns, Long)
        w[self.columns] = v / self.lengths
        return w, b + self.shift - w[self.columns] @ self.means

    def smooth(self, v: np.ndarray, b: Real) -> Real:
        """The smooth part of the objective: losses and squares of weights."""
        inner = self.problem
        losses = inner.C * (inner.s @ inner.losses(inner.margins(v, b)))
        return losses + 0.5 * (self.ridge @ v**2)

    def value(self, v: np.ndarray, b: Real) -> Real:
        """The objective."""
        return self.smooth(v, b) + self.kink @ np.abs(v)

    def slopes(self, v: np.ndarray, b: Real) -> tuple[np.ndarray, Real]:
        """Derivatives of the smooth part with respect to v and b."""
        r = self.problem.C * self.problem.residuals(v, b)
        return r @ self.problem.phi + self.ridge * v, r.sum() if self.problem.intercept else Long(0)

    def bends(self, v: np.ndarray, b: Real, some: np.ndarray, exact: bool) -> np.ndarray:
        """The Hessian of the smooth part in some weights, and in b if there is an intercept.

        exact : whether to use extended precision instead of float64.
        """
        inner = self.problem
        q = np.sqrt(inner.C * inner.s * inner.bends(inner.margins(v, b)))
        a = inner.phi[:, some]
        if inner.intercept:
            a = np.column_stack([a, np.ones(len(q), Long)])
        a = q[:, None] * a
        if not exact:
            a = a.astype(np.float64)
        bend = a.T @ a
        k = np.arange(len(some))
        bend[k, k] += self.ridge[some].astype(bend.dtype)
        return bend


def _solve_system(bend: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """-bend^-1 slope, in the precision of the matrix.

    The diagonal, scaled to 1, is increased as little as the Cholesky factorisation needs.
    """
    size = np.sqrt(np.maximum(np.diag(bend), 1e-290))
    scaled = bend / size / size[:, None]
    right = (slope / size).astype(bend.dtype)
    more = 8.0 * np.finfo(bend.dtype).eps
    while True:
        try:
            matrix = scaled + more * np.eye(len(size), dtype=bend.dtype)
            if bend.dtype == np.float64:
                return -cho_solve(cho_factor(matrix), right) / size
            return -_by_cholesky(matrix, right) / size
        except np.linalg.LinAlgError:
            more *= 100.0


def _by_cholesky(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a positive definite system in the precision of its arrays."""
    n = len(right)
    low = np.column_stack([matrix, right])  # the right-hand side is eliminated with the columns
    for k in range(n):
        if not low[k, k] > 0.0:
            raise np.linalg.LinAlgError
        low[k, k:] /= np.sqrt(low[k, k])
        low[k + 1 :, k + 1 :] -= np.outer(low[k, k + 1 : n], low[k, k + 1 :])
    out = np.zeros(n, matrix.dtype)
    for k in range(n - 1, -1, -1):
        out[k] = (low[k, n] - low[k, k + 1 : n] @ out[k + 1 :]) / low[k, k]
    return out


def _barrier(scaled: Scaled, exact: bool) -> tuple[np.ndarray, Real]:
    """Find a point near the optimum: minimise t (P with u_j for |v_j|) - sum_j log(u_j^2 - v_j^2).

    exact : whether to solve systems in extended precision instead of float64.
    """
    p = len(scaled.kink)
    kink = scaled.kink
    v, b = np.zeros(p, Long), Long(scaled.problem.null()[0]) if p else Long(0)
    least = value = scaled.value(v, b)
    if p == 0 or value == 0.0:
        return v, b
    t = 2.0 * p / value
    u = 2.0 / (t * kink)

    def total(v: np.ndarray, u: np.ndarray, b: Real) -> Real:
        return t * (scaled.smooth(v, b) + kink @ u) - np.log((u - v) * (u + v)).sum()

    steps = 0
    while steps < MOST_BARRIER:
        now = total(v, u, b)
        for _ in range(40):
            steps += 1
            slope, slope_b = scaled.slopes(v, b)
            room = (u - v) * (u + v)
            slope_v, slope_u = t * slope + 2.0 * v / room, t * kink - 2.0 * u / room
            both, cross = 2.0 * (u * u + v * v) / room**2, -4.0 * u * v / room**2
            bend = scaled.bends(v, b, np.arange(p), exact)
            bend *= bend.dtype.type(t)
            bend[np.arange(p), np.arange(p)] += (2.0 / (u * u + v * v)).astype(bend.dtype)
            right = slope_v - cross / both * slope_u
            if scaled.problem.intercept:
                right = np.append(right, t * slope_b)
            if not (np.isfinite(bend).all() and np.isfinite(right).all()):
                return v, b  # overflow: return the point so far
            step = _solve_system(bend, right)
            dv, db = step[:p], step[p] if scaled.problem.intercept else 0.0
            du = -(slope_u + cross * dv) / both
            fall = -(slope_v @ dv + slope_u @ du + t * slope_b * db)
            if not fall > 1e-3:
                break
            beta = Long(1.0)
            for closing, gap in ((dv - du, u - v), (-dv - du, u + v)):
                shrinking = closing > 0.0
                beta = min(beta, 0.99 * (gap[shrinking] / closing[shrinking]).min(initial=np.inf))
            for _ in range(60):
                new = total(v + beta * dv, u + beta * du, b + beta * db)
                if new <= now - 0.01 * beta * fall:
                    break
                beta *= 0.5
            else:
                break
            v, u, b, now = v + beta * dv, u + beta * du, b + beta * db, new
        least = min(least, scaled.value(v, b))
        if 2.0 * p / t <= NEAR * least:
            break
        t *= SHRINK
        u = np.maximum(np.abs(v) + (u - np.abs(v)) / SHRINK, np.abs(v) * (1.0 + 1e-15) + 1e-300)
    slope, _ = scaled.slopes(v, b)
    off = (np.abs(slope) < 0.999 * kink) & (np.abs(v) < 10.0 / (t * kink))
    return np.where(off, 0.0, v), b


def _finish(scaled: Scaled, v: np.ndarray, b: Real) -> tuple[np.ndarray, Real]:
    """Newton steps on the orthant of the nonzero weights; the worst violators join one by one."""
    kink = scaled.kink
    sign = np.sign(v)
    value = scaled.value(v, b)
    refused = np.zeros(len(v), bool)  # weights that joined but did not move
    exact = False  # steps in float64 as long as they make progress
    for _ in range(MOST_NEWTON):
        slope, slope_b = scaled.slopes(v, b)
        on = np.flatnonzero(sign)
        full = slope[on] + kink[on] * sign[on]
        if scaled.problem.intercept:
            full = np.append(full, slope_b)
        moved, fall = False, 0.0
        if len(full):
            step = _solve_system(scaled.bends(v, b, on, exact), full)
            fall = float(-(full @ step))
            dv = np.zeros(len(v), Long)
            dv[on] = step[: len(on)]
            db = step[len(on)] if scaled.problem.intercept else 0.0
            moved, v, b, value = _step(scaled, v, b, sign, dv, db, value)
        if not moved:
            refused |= (sign != 0.0) & (v == 0.0)
        sign = np.sign(v)
        if moved and fall > 1e-18 * float(value):
            continue
        if not exact:
            exact = True
            continue
        outside = np.where((sign == 0.0) & ~refused, np.abs(slope) / kink - 1.0, 0.0)
        worst = int(np.argmax(outside)) if len(outside) else 0
        if not len(outside) or outside[worst] <= 1e-16:
            break
        if moved:
            refused[:] = False
        sign[worst] = -np.sign(slope[worst])
    return v, b


def _projected(scaled: Scaled, v: np.ndarray, b: Real) -> np.ndarray:
    """Residuals that satisfy the conditions of all nonzero weights, for the dual bound.

    The residuals of the point itself satisfy the conditions up to rounding, which is too much if a column
    is long and its penalty small. The correction lies in the span of the columns, weighted by the
    curvatures.
    """
    inner, on = scaled.problem, np.flatnonzero(v)
    r = inner.C * inner.residuals(v, b)
    q = inner.C * inner.s * inner.bends(inner.margins(v, b))
    a = inner.phi[:, on]
    wanted = -(scaled.kink[on] * np.sign(v[on]) + scaled.ridge[on] * v[on])
    if inner.intercept:
        a = np.column_stack([a, np.ones(len(q), Long)])
        wanted = np.append(wanted, Long(0.0))
    bend = (a.T * q) @ a
    for _ in range(4 if len(wanted) else 0):
        r = r + q * (a @ _solve_system(bend, r @ a - wanted))
    return r / inner.C


def _step(
    scaled: Scaled,
    v: np.ndarray,
    b: Real,
    sign: np.ndarray,
    dv: np.ndarray,
    db: Real,
    value: Real,
) -> tuple[bool, np.ndarray, Real, Real]:
    """Move as far as the objective falls, within the orthant: weights that would leave it stop at 0."""
    closing = (sign * dv < 0.0) & (v != 0.0)
    reach = np.abs(v[closing] / dv[closing]).min(initial=np.inf)

    def at(beta: Real) -> tuple[np.ndarray, Real]:
        there = v + beta * dv
        return np.where(sign * there > 0.0, there, 0.0), b + beta * db

    betas = [Long(1.0), Long(0.5), Long(0.25)]
    betas += [min(Long(1.0), reach * (1.0 + 1e-18)) * Long(0.5) ** k for k in range(60)]
    for beta in betas:
        point = at(beta)
        new = scaled.value(*point)
        # setting a negligible weight to 0 may leave the objective unchanged
        if new < value or (new == value and (point[0] == 0.0).sum() > (v == 0.0).sum()):
            return True, *point, new
    return False, v, b, value
