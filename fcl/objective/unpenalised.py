"""Unpenalised covariates: columns z_i whose coefficients v are free, as the intercept is.

    P(w, v, b) = penalty(w) + C * sum_i s_i loss(y_i, m_i + b),    m = Phi w + Z v + o

Margins m include Z v. This module minimises over (b, v) with the weights fixed, and balances residuals.

**The dual point.** The dual of P is finite only at vectors r with Z' r = 0, and sum r = 0 if the
intercept is free; below, A is Z with a column of ones for a free intercept. At the best (b, v) both hold
up to rounding, and up to the truncation of r to the grid of the prices. :func:`balanced` removes the
rest:

    r~_i = r_i - d_i (A x)_i,   A' D A x = A' r,   0 <= d_i <= distance of r_i from the ends of its domain

r~ is in the domain if |A x| <= 1 in every row. d_i is at most the curvature s_i loss'', so this is the
first-order effect of a Newton step of (b, v) on the residuals, and x is tiny after :func:`settle`. Where
|A x| > 1 there is no such point, and r~ = 0 proves the bound 0. No price changes by more than
sum_i |r~_i - r_i| times the largest value of its feature, which the prices of the pass account for.

**Rounding.** In floating point A' r~ is not 0 but about 1e-16 of its terms. Weak duality then gives

    P(w, v, b) >= D(r~) + C (A' r~) . (b, v)    for every point

so :func:`slack` lowers the bound by C * reach * sum_c |(A' r~)_c|. The bound holds for all models whose
intercept and coefficients, in standard deviations of the covariates, are at most ``reach`` in absolute
value: a thousand times the largest margin of the anchor and of the point tried last. (The balance of the
intercept alone, in :meth:`fcl.objective.Objective.dual_bound`, leaves the same rounding.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.objective.problem import Objective, RowValues

__all__ = ["Balanced", "Settled", "balanced", "check_finite", "settle", "slack"]

Floats = npt.NDArray[np.float64]

#: Maximum Newton steps over (b, v), and halvings of one step.
MOST_STEPS, MOST_HALVINGS = 100, 40
#: Largest slope, relative to the sum of its terms' sizes, at which (b, v) counts as settled.
SETTLED = 1e-15
#: A slope below this is settled, too, once a step no longer halves it: rounding is left.
ROUNDED = 1e-9
#: Shares of the majoriser's curvatures that are tried after a failed step (see ``raise_curvatures``).
RAISED = (0.0, 1e-2, 1.0)
#: Ridge that keeps the Hessian positive definite, relative to its diagonal.
RIDGE = 1e-13
#: Losses that fall for ever on one side; the range of Z v, and the curvature relative to that of a
#: typical row, beyond which a minimum is taken to be at infinity.
ENDLESS, FURTHEST, FLAT = ("logistic", "poisson"), 25.0, 1e-9
#: Multiple of the largest margin up to which coefficients are covered by the bound.
REACH = 1e3


@dataclass(frozen=True)
class Settled:
    """The result of :func:`settle`."""

    b: float
    dv: Floats  #: change of the coefficients, float64 (q,)
    decrease: float  #: of the minimised function, >= 0


@dataclass(frozen=True)
class _Pull:
    """The function slope . x + floor . x^2 / 2 of the change x of (b, v), added to the losses."""

    slope: Floats
    floor: Floats

    def value(self, x: Floats) -> float:
        return float(self.slope @ x + 0.5 * self.floor @ (x * x))


def settle(
    objective: Objective,
    m: Floats,
    b: float,
    slope: Floats | None = None,
    floor: Floats | None = None,
) -> Settled:
    """Minimise sum s loss(m + Z dv + db + b) + slope . x + floor . x^2 / 2 over x = (db, dv).

    Newton's method with halved steps; adds Z dv to ``m``. Without a free intercept db is 0.

    Parameters
    ----------
    objective : Objective
        With covariates.
    m : float64 (n,)
        Margins, changed in place.
    b : float
        The initial intercept.
    slope, floor : float64 (1 + q,), optional
        Slopes and curvatures (>= 0) of further terms, for db and for each covariate; by default 0.
    """
    covariates = objective.covariates
    assert covariates is not None
    k = 1 + covariates.q
    pull = _Pull(np.zeros(k) if slope is None else slope, np.zeros(k) if floor is None else floor)
    free = np.arange(0 if objective.intercept else 1, k)
    x, first = np.zeros(k), b
    start = value = objective.loss_sum(m, b)
    before, raised = math.inf, 0
    for _ in range(MOST_STEPS):
        g, sizes, hessian = _derivatives(objective, m, first + x[0], RAISED[raised])
        g += pull.slope + pull.floor * x
        hessian[np.diag_indices(k)] += pull.floor
        with np.errstate(divide="ignore", invalid="ignore"):
            left = float(np.nan_to_num(np.abs(g) / sizes)[free].max(initial=0.0))
        if left <= SETTLED or (left <= ROUNDED and left > 0.5 * before):
            break
        step = np.zeros(k)
        step[free] = _newton(hessian[np.ix_(free, free)], g[free])
        promised = float(-g @ step)
        t = 1.0
        for _ in range(MOST_HALVINGS):
            new = _moved_loss(objective, m, first + x[0] + t * step[0], t * step[1:])
            new += pull.value(x + t * step)
            rounding = 1e-14 * abs(value)
            if new <= value - 1e-4 * t * promised or (
                t == 1.0 and promised <= rounding >= new - value
            ):
                break
            t *= 0.5
        else:  # the curvatures were too small, or rounding is left
            raised += 1
            if raised == len(RAISED):
                break
            continue
        before, value, raised = left, new, max(0, raised - 1) if t == 1.0 else raised
        x += t * step
        _move(objective, m, t * step[1:])
    return Settled(first + x[0], x[1:], max(0.0, start - value))


def _derivatives(
    objective: Objective, m: Floats, b: float, raised: float
) -> tuple[Floats, Floats, Floats]:
    """Slopes (1 + q,), sums of the sizes of their terms (1 + q,), and Hessian (1 + q, 1 + q)."""
    from fcl.kernels import losses

    covariates, kernel = objective.covariates, objective.loss.kernel
    assert covariates is not None

    def block(rows: slice) -> tuple[Floats, Floats, Floats]:
        y, s = objective.y[rows], objective.s[rows]
        r, q = np.empty((2, len(y)))
        losses.residuals_curvatures(kernel, y, s, m[rows], b, r, q)
        if raised:
            losses.raise_curvatures(kernel, y, s, m[rows], b, raised, q)
        z = covariates.values[rows]
        return _with_ones(r, z), _with_ones(np.abs(r), np.abs(z)), _gram(q, z)

    parts = objective.team.map(block, list(objective.blocks()))
    slopes, sizes, grams = zip(*parts, strict=True)
    return _total(slopes), _total(sizes), _total(grams)


def _with_ones(r: Floats, z: Floats) -> Floats:
    """A' r for A = (1, Z)."""
    return np.concatenate([[r.sum()], r @ z])


def _gram(q: Floats, z: Floats) -> Floats:
    """A' Q A for A = (1, Z)."""
    k = 1 + z.shape[1]
    out, scaled = np.empty((k, k)), z * q[:, None]
    out[0, 0] = q.sum()
    out[0, 1:] = out[1:, 0] = scaled.sum(axis=0)
    out[1:, 1:] = z.T @ scaled
    return out


def _total(parts: tuple[Floats, ...]) -> Floats:
    """The sum of arrays, in order."""
    total: Floats = np.sum(parts, axis=0)
    return total


def _newton(hessian: Floats, g: Floats) -> Floats:
    """-hessian^-1 g, with a tiny ridge in the units of each coefficient."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    unit = hessian / scale / scale[:, None]
    for ridge in (RIDGE, 1e-10, 1e-6, 1.0):
        try:
            factor = cho_factor(unit + ridge * np.eye(len(g)))
        except LinAlgError:
            continue
        step: Floats = -cho_solve(factor, g / scale) / scale
        return step
    return np.asarray(-g / scale / scale)


def _moved_loss(objective: Objective, m: Floats, b: float, dv: Floats) -> float:
    """The sum of the weighted losses at m + Z dv + b."""
    from fcl.kernels import losses

    covariates, kernel = objective.covariates, objective.loss.kernel
    assert covariates is not None

    def block(rows: slice) -> float:
        moved = m[rows] + covariates.times(dv, rows)
        value: float = losses.weighted_loss(kernel, objective.y[rows], objective.s[rows], moved, b)
        return value

    return math.fsum(objective.team.map(block, list(objective.blocks())))


def _move(objective: Objective, m: Floats, dv: Floats) -> None:
    """Add Z dv to the margins."""
    covariates = objective.covariates
    assert covariates is not None
    for rows in objective.blocks():
        m[rows] += covariates.times(dv, rows)


def check_finite(objective: Objective, m: Floats, b: float, v: Floats) -> None:
    """Raise InputError if no finite coefficients are optimal, at the settled null model.

    Where covariates separate classes, or a level of a category has no events, the loss of some rows
    falls for ever: margins leave the range in which float64 distinguishes the loss from 0, and a
    direction of the coefficients is left without curvature. Other losses always have a minimum.
    """
    covariates, loss = objective.covariates, objective.loss
    if covariates is None or loss.name not in ENDLESS:
        return
    moved = [covariates.times(v, rows) for rows in objective.blocks()]
    if max(float(m.max()) for m in moved) - min(float(m.min()) for m in moved) <= FURTHEST:
        return
    _, _, hessian = _derivatives(objective, m, b, 0.0)
    first = 0 if objective.intercept else 1
    values, vectors = np.linalg.eigh(hessian[first:, first:])
    level = 0.25 if loss.classifies else float(np.average(objective.y, weights=objective.s))
    if values[0] > FLAT * level * math.fsum(objective.s):
        return  # an outlier of a covariate, for instance
    worst = int(np.abs(vectors[1 - first :, 0]).argmax())
    name = covariates.names[worst] if covariates.names else f"number {worst}"
    raise InputError(
        f"covariates: expected that some finite coefficients are optimal, but {name} separates rows "
        "perfectly (for instance a level whose rows all have one label, or counts of 0); leave the "
        "covariate out, or merge its levels"
    )


# -- the dual --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Balanced:
    """Residuals r~ with A' r~ = 0 up to rounding, computed from r where they are read."""

    objective: Objective
    residuals: RowValues
    curvatures: Floats
    x: Floats | None  #: float64 (1 + q,), 0 first without an intercept; None: r~ = 0

    def __getitem__(self, rows: slice) -> Floats:
        r, covariates = self.residuals[rows], self.objective.covariates
        assert covariates is not None
        if self.x is None:
            return np.zeros(len(r))
        moved = covariates.times(self.x[1:], rows) + self.x[0]
        return np.asarray(r - _room(self.objective, r, self.curvatures, rows) * moved)


def _room(objective: Objective, r: Floats, curvatures: Floats, rows: slice) -> Floats:
    """d_i: the curvature, but at most the distance of r_i from the ends of its domain."""
    low, high = objective.loss.domain(objective.y[rows])
    s = objective.s[rows]
    inside = np.minimum(r - s * low, s * high - r)
    return np.minimum(curvatures[rows], np.maximum(inside, 0.0))


def balanced(
    objective: Objective, residuals: RowValues, curvatures: Floats
) -> tuple[Balanced, float]:
    """The balanced residuals, and sum_i |r~_i - r_i|.

    curvatures : float64 (n,), of the same point as the residuals.
    """
    covariates = objective.covariates
    assert covariates is not None
    blocks = list(objective.blocks())
    free = np.arange(0 if objective.intercept else 1, 1 + covariates.q)

    def sums(rows: slice) -> tuple[Floats, Floats]:
        r, z = residuals[rows], covariates.values[rows]
        return _with_ones(r, z), _gram(_room(objective, r, curvatures, rows), z)

    parts = zip(*objective.team.map(sums, blocks), strict=True)
    imbalance, gram = (_total(part) for part in parts)
    x = np.zeros(1 + covariates.q)
    x[free] = -_newton(gram[np.ix_(free, free)], imbalance[free])

    def moves(rows: slice) -> tuple[float, float]:
        r = residuals[rows]
        moved = np.abs(covariates.times(x[1:], rows) + x[0])
        room = _room(objective, r, curvatures, rows)
        return float((room * moved).sum()), float(moved.max(initial=0.0))

    changes, largest = zip(*objective.team.map(moves, blocks), strict=True)
    if not objective.loss.unbounded and max(largest) > 1.0:
        changes = tuple(float(np.abs(residuals[rows]).sum()) for rows in blocks)
        return Balanced(objective, residuals, curvatures, None), math.fsum(changes)
    return Balanced(objective, residuals, curvatures, x), math.fsum(changes)


def slack(objective: Objective, r: RowValues, margins: Sequence[Floats]) -> float:
    """C * reach * sum_c |(A' r~)_c|: what rounding of balanced residuals r~ may take from the bound.

    margins : vectors of margins, each float64 (n,), from which ``reach`` follows.
    """
    covariates = objective.covariates
    assert covariates is not None
    parts = [_with_ones(r[rows], covariates.values[rows]) for rows in objective.blocks()]
    off = np.abs(_total(tuple(parts)))[0 if objective.intercept else 1 :]
    sizes = [float(np.abs(m[rows]).max()) for m in margins for rows in objective.blocks()]
    reach = REACH * (1.0 + max(sizes, default=0.0))
    return objective.C * reach * float(off.sum())
