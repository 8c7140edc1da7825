"""Unpenalised coefficients: an intercept, or covariates z_i, among which a free intercept has a column.

    P(w, v) = penalty(w) + C * sum_i s_i loss(y_i, m_i),    m = Phi w + Z v + o

Margins m include Z v. This module minimises over v with the weights fixed;
:mod:`fcl.objective.balance` makes residuals a point of the dual.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcl.errors import InputError
from fcl.objective.covariates import FLAT, Covariates, inverse_root
from fcl.objective.problem import UnpenalisedFit
from fcl.types import Floats

#: Maximum Newton steps over v, and halvings of one step.
MOST_STEPS, MOST_HALVINGS = 100, 40
#: Largest slope, relative to the sum of the residuals' sizes, at which v counts as converged.
CONVERGED = 1e-15
#: A slope below this counts as converged, too, once a step no longer halves it: rounding is left.
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
ENDLESS, FURTHEST, LEVEL = ("logistic", "poisson", "softmax"), 25.0, 1e-9


def descend(
    objective: Any, m: Floats, x: Floats, slope: Floats, floor: Floats, decrease: float
) -> UnpenalisedFit:
    """Minimise by Newton's method from coefficients x, whose margins are m.

    slope, floor : as for :meth:`Objective.fit_unpenalised`.
    decrease : that x has already brought.
    """
    newton = _Newton(objective, m, x, slope, floor)
    start = newton.value
    newton.run()
    return UnpenalisedFit(newton.x, max(0.0, decrease + start - newton.value))


class _Newton:
    """Newton's method with halved steps, whose Hessian is reused while it serves well."""

    def __init__(self, objective: Any, m: Floats, x: Floats, slope: Floats, floor: Floats) -> None:
        self.objective, self.m, self.x = objective, m, x
        self._slope, self._floor = slope, floor
        self.value = objective.loss_sum(m) + self._further_terms(x)

    def run(self) -> None:
        """Take steps until only rounding is left."""
        # residuals, later the margins of a step; curvatures
        r, q = np.empty((2, *self.m.shape))
        root, before = None, math.inf
        for _ in range(MOST_STEPS):
            self.objective.residuals_curvatures(self.m, r, q)
            slopes = self.objective.free_sums(r) + self._slope + self._floor * self.x
            size = float(np.abs(r).sum())
            left = float(np.abs(slopes).max()) / size if size > 0.0 else 0.0
            if left <= CONVERGED or (left <= ROUNDED and left > 0.5 * before):
                return
            root = self._move(slopes, root if left <= REUSED * before else None, r, q)
            if root is None:
                return
            before = left

    def _move(self, slopes: Floats, root: Floats | None, dm: Floats, q: Floats) -> Floats | None:
        """Take a step downhill; returns the root of its inverse Hessian, or None without a step."""
        for share in RAISED if root is None else (None, *RAISED):
            if share is not None:
                hessian = self.objective.free_hessian(self.m, q, share) + np.diag(self._floor)
                root = inverse_root(hessian, FLAT)
                rank = len(slopes) - self.objective.n_flat
                if root.shape[1] < rank and share < RAISED[-1]:
                    continue  # such as a level whose rows have no loss: the majoriser bends there
            assert root is not None
            step = -root @ (root.T @ slopes)
            dm[:] = 0.0
            self.objective.add_free(step, dm)
            if self._search(step, dm, -float(slopes @ step)):
                return root
        return None

    def _search(self, step: Floats, dm: Floats, promised: float) -> bool:
        """Take the longest share 1, 1/2, 1/4 and so on of a step with sufficient decrease, if any."""
        rounding, t = ROUNDING * abs(self.value), 1.0
        for _ in range(MOST_HALVINGS):
            x = self.x + t * step
            value = self.objective.line_sums(self.m, dm, t).value + self._further_terms(x)
            hidden = t == 1.0 and promised <= rounding and value <= self.value + rounding
            if value <= self.value - SUFFICIENT * t * promised or hidden:
                self.x, self.value = x, value
                self.m += t * dm
                return True
            t *= 0.5
        return False

    def _further_terms(self, x: Floats) -> float:
        return float(self._slope @ x + 0.5 * self._floor @ (x * x))


def check_null(objective: Any, m: Floats, v: Floats) -> None:
    """Check the null model: covariates that explain everything leave no problem to solve.

    Where covariates separate classes, or a level of a category has no events, the loss of some rows
    falls for ever: margins leave the range in which float64 distinguishes the loss from 0, and a
    direction of the coefficients is left without curvature. Other losses always have a minimum, but if
    it is 0, only rounding is left, and relative gaps mean nothing.

    Each output whose loss is separate is checked by itself.  m, v : margins and coefficients of the null
    model.

    Raises InputError: no finite coefficients are optimal, or the covariates fit the targets exactly.
    """
    if objective.outputs and objective.separate:
        for part, own, x in zip(objective.parts, m, v.reshape(len(m), -1), strict=True):
            check_null(part, own, x)
        return
    if objective.loss.classifies and np.ptp(objective.y) == 0.0:
        return  # one label alone, which the intercept explains
    moved = np.zeros_like(m)
    objective.add_free(v, moved)
    if objective.loss.name in ENDLESS and np.ptp(moved, axis=-1).max() > FURTHEST:
        _check_finite(objective, m)
    before = objective.loss_sum(m - moved)
    if before > 0.0 and objective.loss_sum(m) <= EXACT * before:
        raise InputError(
            "covariates: expected targets that they do not determine, but the covariates alone fit the "
            "targets exactly; leave out the covariate that contains the target, or use fewer covariates"
        )


def _check_finite(objective: Any, m: Floats) -> None:
    """Raise InputError if no finite coefficients are optimal."""
    covariates: Covariates = objective.covariates
    r, q = np.empty((2, *m.shape))
    objective.residuals_curvatures(m, r, q)
    values, vectors = np.linalg.eigh(objective.free_hessian(m, q, 0.0))
    level = (
        0.25 if objective.loss.classifies else float(np.average(objective.y, weights=objective.s))
    )
    if values[objective.n_flat] > LEVEL * level * math.fsum(objective.s):
        return  # an outlier of a covariate, for instance
    first = int(covariates.constant)
    sizes = np.linalg.norm(vectors[:, objective.n_flat].reshape(-1, covariates.q), axis=0)
    worst = int(sizes[first:].argmax())
    name = covariates.names[worst] if covariates.names else f"number {worst}"
    raise InputError(
        f"covariates: expected that some finite coefficients are optimal, but {name} separates rows "
        "perfectly (for instance a level whose rows all have one label, or counts of 0), or all but "
        "rows of tiny weight, or has an outlier; leave the covariate out, merge its levels, or clip it"
    )
