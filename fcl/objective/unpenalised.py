"""Unpenalised covariates: columns z_i whose coefficients v are free, as the intercept is.

    P(w, v, b) = penalty(w) + C * sum_i s_i loss(y_i, m_i + b),    m = Phi w + Z v + o

Margins m include Z v. This module minimises over (b, v) with the weights fixed;
:mod:`fcl.objective.balance` makes residuals a point of the dual.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.objective.covariates import newton_step, total
from fcl.objective.problem import Objective

__all__ = ["Settled", "check_null", "settle"]

Floats = npt.NDArray[np.float64]

#: Maximum Newton steps over (b, v), and halvings of one step.
MOST_STEPS, MOST_HALVINGS = 100, 40
#: Largest slope, relative to the sum of its terms' sizes, at which (b, v) counts as settled.
SETTLED = 1e-15
#: A slope below this is settled, too, once a step no longer halves it: rounding is left.
ROUNDED = 1e-9
#: A Hessian is reused while a step lowers the largest slope to at most this share.
REUSED = 0.1
#: Share of the promised decrease that a step must have, and relative error of the objective.
SUFFICIENT, ROUNDING = 1e-4, 1e-14
#: Shares of the majoriser's curvatures that are tried in turn (see ``raise_curvatures``).
RAISED = (0.0, 1e-6, 1e-2, 1.0)
#: Share of the losses without covariates up to which a fit is exact.
EXACT = 1e-20
#: Losses that fall for ever on one side; the range of Z v, and the curvature relative to that of a
#: typical row, beyond which a minimum is taken to be at infinity.
ENDLESS, FURTHEST, FLAT = ("logistic", "poisson"), 25.0, 1e-9


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

    Adds Z dv to ``m``. Without a free intercept db is 0.

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
    nothing = np.zeros(1 + objective.n_covariates)
    pull = _Pull(nothing if slope is None else slope, nothing if floor is None else floor)
    newton = _Newton(objective, m, b, pull)
    start, before = newton.value, math.inf
    for _ in range(MOST_STEPS):
        left = newton.differentiate()
        if left <= SETTLED or (left <= ROUNDED and left > 0.5 * before):
            break
        if left > REUSED * before:
            newton.hessian = None
        if not newton.move():
            break
        before = left
    return Settled(newton.b + newton.x[0], newton.x[1:], max(0.0, start - newton.value))


class _Newton:
    """Newton's method with halved steps, whose Hessian is reused while it serves well."""

    def __init__(self, objective: Objective, m: Floats, b: float, pull: _Pull) -> None:
        assert objective.covariates is not None
        self.objective, self.covariates = objective, objective.covariates
        self.m, self.b, self._pull = m, b, pull
        self.x = np.zeros(1 + self.covariates.q)
        self.value = objective.loss_sum(m, b)
        self.hessian: Floats | None = None
        self._slopes = self.x
        self._free = np.arange(0 if objective.intercept else 1, len(self.x))
        self._blocks = list(objective.blocks())

    def differentiate(self) -> float:
        """Compute the slopes; returns the largest, relative to the sum of its terms' sizes."""

        def block(rows: slice) -> tuple[Floats, Floats]:
            r, _ = self._derivatives(rows)
            return self.covariates.sums(r, rows), self.covariates.sizes(r, rows)

        parts = zip(*self.objective.team.map(block, self._blocks), strict=True)
        g, sizes = (total(part) for part in parts)
        self._slopes = g + self._pull.slope + self._pull.floor * self.x
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.nan_to_num(np.abs(self._slopes) / sizes)
        return float(relative[self._free].max(initial=0.0))

    def curvatures(self, share: float) -> Floats:
        """The Hessian (1 + q, 1 + q), with a share of the majoriser's curvatures."""

        def block(rows: slice) -> Floats:
            _, q = self._derivatives(rows, share)
            return self.covariates.gram(q, rows)

        hessian = total(tuple(self.objective.team.map(block, self._blocks)))
        hessian[np.diag_indices_from(hessian)] += self._pull.floor
        return hessian

    def move(self) -> bool:
        """Take a step downhill, if there is one that rounding does not hide."""
        for share in RAISED if self.hessian is None else (None, *RAISED):
            if share is not None:
                self.hessian = self.curvatures(share)
            assert self.hessian is not None
            step, free = np.zeros(len(self.x)), self._free
            step[free], flat = newton_step(self.hessian[np.ix_(free, free)], self._slopes[free])
            if flat and share is not None and share < RAISED[-1]:
                continue  # such as a level whose rows have no loss: the majoriser bends there
            if self._search(step):
                return True
        return False

    def _search(self, step: Floats) -> bool:
        """Take the longest share 1, 1/2, 1/4 and so on of a step with sufficient decrease, if any."""
        promised, rounding = -float(self._slopes @ step), ROUNDING * abs(self.value)
        t = 1.0
        for _ in range(MOST_HALVINGS):
            x = self.x + t * step
            value = self._moved_loss(x[0], t * step[1:]) + self._pull.value(x)
            hidden = t == 1.0 and promised <= rounding and value <= self.value + rounding
            if value <= self.value - SUFFICIENT * t * promised or hidden:
                self.x, self.value = x, value
                for rows in self._blocks:
                    self.m[rows] += self.covariates.times(t * step[1:], rows)
                return True
            t *= 0.5
        return False

    def _moved_loss(self, db: float, dv: Floats) -> float:
        """The sum of the weighted losses at m + Z dv + b + db."""
        from fcl.kernels import losses

        of = self.objective

        def block(rows: slice) -> float:
            moved = self.m[rows] + self.covariates.times(dv, rows)
            kernel, y, s = of.loss.kernel, of.y[rows], of.s[rows]
            value: float = losses.weighted_loss(kernel, y, s, moved, self.b + db)
            return value

        return math.fsum(of.team.map(block, self._blocks))

    def _derivatives(self, rows: slice, share: float = 0.0) -> tuple[Floats, Floats]:
        """Residuals and curvatures of some rows; the latter with a share of the majoriser's."""
        from fcl.kernels import losses

        kernel, y, s = self.objective.loss.kernel, self.objective.y[rows], self.objective.s[rows]
        r, q = np.empty((2, len(y)))
        m, b = self.m[rows], self.b + self.x[0]
        losses.residuals_curvatures(kernel, y, s, m, b, r, q)
        if share:
            losses.raise_curvatures(kernel, y, s, m, b, share, q)
        return r, q


def check_null(objective: Objective, m: Floats, b: float, v: Floats, before: float) -> None:
    """Check the settled null model: covariates that explain everything leave no problem to solve.

    Where covariates separate classes, or a level of a category has no events, the loss of some rows
    falls for ever: margins leave the range in which float64 distinguishes the loss from 0, and a
    direction of the coefficients is left without curvature. Other losses always have a minimum, but if
    it is 0, only rounding is left, and relative gaps mean nothing.

    before : sum of the losses without any coefficient.

    Raises
    ------
    InputError
        No finite coefficients are optimal, or the covariates fit the targets exactly.
    """
    if objective.covariates is None:
        return
    _check_finite(objective, m, b, v)
    if before > 0.0 and objective.loss_sum(m, b) <= EXACT * before:
        raise InputError(
            "covariates: expected targets that they do not determine, but the covariates alone fit the "
            "targets exactly; leave out the covariate that contains the target, or use fewer covariates"
        )


def _check_finite(objective: Objective, m: Floats, b: float, v: Floats) -> None:
    """Raise InputError if no finite coefficients are optimal."""
    covariates, loss = objective.covariates, objective.loss
    if covariates is None or loss.name not in ENDLESS:
        return
    moved = [covariates.times(v, rows) for rows in objective.blocks()]
    if max(float(m.max()) for m in moved) - min(float(m.min()) for m in moved) <= FURTHEST:
        return
    nothing = np.zeros(1 + covariates.q)
    hessian = _Newton(objective, m, b, _Pull(nothing, nothing)).curvatures(0.0)
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
