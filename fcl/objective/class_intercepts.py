"""The best intercepts of the softmax loss, to rounding error, from any distance.

Minimises F(x) = sum_i s_i loss_i(m_i + x) + slope . x + floor . x^2 / 2 over x, float64 (K,). Two kinds
of step are tried:

- Newton's. The Hessian is the Laplacian of a graph of the classes, with the weights w_jk = sum_i s_i p_ij
  p_ik: its diagonal is made of sums of positive numbers, so that it is accurate however rare a class is.
  The loss does not feel a constant, so one class keeps its intercept during a step, and x has mean 0 in
  the end.
- x_k += log(n_k / N_k), with the weights n of the classes and their expected sums N. It minimises the
  bound lse(m + x) <= lse(m) + sum_k p_k (exp(x_k) - 1) of all rows, so it never rises; from the model
  without features it is exact, and it crosses a thousand units of margins in one step (generalised
  iterative scaling; Darroch and Ratcliff 1972).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.objective.problem import UnpenalisedFit
from fcl.parallel import one_blas_thread
from fcl.types import Floats

#: Maximum number of steps, of halvings of one step, and of steps in a row that gain nothing.
MOST_STEPS, MOST_HALVINGS, MOST_IDLE = 200, 40, 4
#: Largest slope, relative to the sum of the residuals' sizes, at which x counts as converged.
CONVERGED = 1e-16
#: A slope below this counts as converged, too, once a step no longer halves it: rounding is left.
ROUNDED = 1e-14
#: Share of the residuals' sizes above which both kinds of step are compared.
FAR = 0.1
#: A Hessian is reused while a step lowers the largest slope to at most this share.
REUSED = 0.1
#: Share of the promised decrease that a step must have, and relative error of the sum of the losses.
SUFFICIENT, ROUNDING = 1e-4, 1e-14
#: Step of a class whose expected sum should be 0 or less.
DOWN = -4.0
#: Sum below which the logarithm of a sum of probabilities is estimated from the largest one.
TINY = 1e-290
#: Products of probabilities, and number of classes, up to which the Hessian covers all rows.
MOST_PRODUCTS, MOST_CLASSES = 4e9, 256


@dataclass(frozen=True)
class ClassSums:
    """Sums over rows by class, float64 (K,), and the sum of the losses."""

    value: float  #: sum s loss
    balance: Floats  #: sum r
    mass: Floats  #: sum s p
    curvature: Floats  #: sum s p (1 - p)
    absolute: Floats  #: sum |r|
    peak: Floats  #: largest margin of the class minus the largest one of the row, over all rows


def fit_class_intercepts(objective: Any, m: Floats, slope: Floats, floor: Floats) -> UnpenalisedFit:
    """Minimise F over x and add x to the margins m, float64 (K, n).

    objective : :class:`fcl.objective.softmax.SoftmaxOutputs`.
    slope, floor : float64 (K,); see :meth:`fcl.objective.Objective.fit_unpenalised`.
    """
    search = _Search(objective, m, slope, floor)
    before = search.value
    search.run()
    m += search.x[:, None]
    return UnpenalisedFit(search.x, max(0.0, before - search.value))


class _Search:
    """The state of the search: x, the sums there, and a Hessian that is reused while it serves."""

    def __init__(self, objective: Any, m: Floats, slope: Floats, floor: Floats) -> None:
        self.objective, self.m, self.floor = objective, m, floor
        self.free = not floor.any()  # whether a constant in x changes nothing
        self.slope = slope - slope.mean() if self.free else slope
        self.counts = objective.counts
        self._hessian: Floats | None = None
        self._go(np.zeros(len(slope)))

    def _sums(self, x: Floats) -> tuple[ClassSums, float]:
        at = self.objective.class_sums(self.m, x)
        with np.errstate(over="ignore", invalid="ignore"):  # a step that goes too far is rejected
            return at, at.value + float(self.slope @ x + 0.5 * (self.floor * x) @ x)

    def _go(self, x: Floats, found: tuple[ClassSums, float] | None = None) -> None:
        self.x = x
        self.at, self.value = found or self._sums(x)
        self.slopes = self.at.balance + self.slope + self.floor * x

    @property
    def _left(self) -> float:
        """The largest slope, relative to the sizes of the terms it is a sum of."""
        size = float(self.at.absolute.sum() + np.abs(self.slope).sum())
        return float(np.abs(self.slopes).max()) / size if size > 0.0 else 0.0

    def run(self) -> None:
        """Take steps until only rounding is left."""
        before, idle = math.inf, 0
        for _ in range(MOST_STEPS):
            left, value = self._left, self.value
            if left <= CONVERGED or (left <= ROUNDED and left > 0.5 * before):
                return
            if left > REUSED * before:
                self._hessian = None
            if not (self._far() if left > FAR else self._near() or self._far()):
                return
            gained = value - self.value > ROUNDING * abs(value) or self._left <= 0.5 * left
            idle = 0 if gained else idle + 1
            if idle >= MOST_IDLE:  # rounding of the sums hides the way
                return
            before = left

    def _near(self) -> bool:
        """Take a Newton step if it lowers F as it should; try a new Hessian after an old one."""
        old = self._hessian is not None
        step = self._newton()
        if step is not None and self._try(step, 1.0):
            return True
        self._hessian = None
        return old and self._near()

    def _far(self) -> bool:
        """Take the best of Newton's step, its safe part and the logarithmic one, or part of that."""
        newton, steps = self._newton(), [self._logarithmic()]
        if newton is not None:
            # loss and Hessian of softmax are self-concordant in the range of a step
            reach = float(np.ptp(newton))
            steps += [newton, newton * (math.log1p(reach) / reach)] if reach > 0.0 else []
        self._hessian = None
        found = [(self._sums(self._at(step)), step) for step in steps]
        best, step = min(found, key=lambda one: one[0][1])
        if best[1] < self.value:
            # where most probabilities are 0 or 1, F is nearly linear, and longer steps go on falling
            while (longer := self._sums(self._at(2.0 * step)))[1] < best[1]:
                best, step = longer, 2.0 * step
            self._go(self._at(step), best)
            return True
        return any(self._try(steps[0], 0.5**k) for k in range(1, MOST_HALVINGS))

    def _at(self, step: Floats) -> Floats:
        x = self.x + step
        return x - x.mean() if self.free else x

    def _try(self, step: Floats, t: float) -> bool:
        """Take t times a step if F decreases enough, or by less than rounding could hide."""
        promised = -t * float(self.slopes @ step)
        if promised <= 0.0:
            return False
        x = self._at(t * step)
        found = self._sums(x)
        rounding = ROUNDING * abs(self.value)
        hidden = promised <= rounding and found[1] <= self.value + rounding
        if not (found[1] <= self.value - SUFFICIENT * promised or hidden):
            return False
        self._go(x, found)
        return True

    def _logarithmic(self) -> Floats:
        """log(target / N), where the target is n_k, less the slope of the further terms."""
        target = self.counts - self.slope - self.floor * self.x
        mass = self.at.mass
        typical = math.log(float(self.counts.sum()) / self.objective.n_rows)
        known = np.log(np.where(mass > TINY, mass, 1.0))
        log_mass = np.where(mass > TINY, known, self.at.peak + typical)
        return np.where(target > 0.0, np.log(np.where(target > 0.0, target, 1.0)) - log_mass, DOWN)

    def _newton(self) -> Floats | None:
        """Newton's step; None if the Hessian is singular."""
        if self._hessian is None:
            self._hessian = self._make_hessian()
        hessian, diagonal = self._hessian, np.diag(self._hessian)
        kept = np.ones(len(diagonal), bool)
        kept[int(np.argmax(diagonal))] = not self.free
        if not (diagonal[kept] > 0.0).all():
            return None
        scale = 1.0 / np.sqrt(diagonal[kept])
        matrix = hessian[np.ix_(kept, kept)] * scale * scale[:, None]
        step = np.zeros(len(kept))
        try:
            # a Hessian of tiny numbers may give a step that overflows
            with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
                step[kept] = -scale * np.linalg.solve(matrix, scale * self.slopes[kept])
        except np.linalg.LinAlgError:
            return None
        return step if np.isfinite(step).all() else None

    def _make_hessian(self) -> Floats:
        """The Hessian of F, from all rows or, with many classes, from a share of them."""
        K, n = len(self.x), self.objective.n_rows
        stride = 1 if n * float(K * K) <= MOST_PRODUCTS else max(1, -(-K // MOST_CLASSES))
        with one_blas_thread():
            weights = self.objective.joint_masses(self.m, self.x, stride)
        np.fill_diagonal(weights, 0.0)
        if stride > 1:
            _complete(weights, self.at.curvature)
        return np.diag(weights.sum(axis=1) + self.floor) - weights


def _complete(weights: Floats, exact: Floats) -> None:
    """Scale the weights of a share of the rows, in place, to about the exact sums of the matrix's rows.

    A class without weights, whose rows all lie elsewhere, gets weights in proportion to the exact sums.
    """
    found = weights.sum(axis=1)
    scale = np.sqrt(np.divide(exact, found, out=np.zeros(len(exact)), where=found > 0.0))
    weights *= scale
    weights *= scale[:, None]
    absent = np.flatnonzero(found == 0.0)
    weights[absent] = exact[absent, None] * (exact / max(float(exact.sum()), TINY))
    weights[:, absent] = weights[absent].T
    np.fill_diagonal(weights, 0.0)
