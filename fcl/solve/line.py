"""The search along a step of the trainer, on the local objective.

The trainer solves many local problems between two passes, so the search ends at the first share of a step
with sufficient decrease; :mod:`fcl.solve.search` finds the best share between two passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fcl.objective import ROUNDING, Objective
from fcl.solve.state import LocalPoint, Step
from fcl.types import Floats

#: Sufficient decrease of the search (0 < sigma < 1/2).
SIGMA = 0.01
#: Maximum points that the search evaluates.
MAX_EVALUATIONS = 60
#: Share of the last point that the search tries next if no other estimate exists.
SHRINK = 1e-2
#: Slope, as a share of the step's promise, at which the search ends. Where the second derivative jumps,
#: the search must end beyond the jump, so that the next model includes the rows that cut the step.
FLAT_SHARE = 0.1


@dataclass(frozen=True)
class Share:
    """The share of a step that a search accepts."""

    beta: float
    decrease: float  #: of the objective, >= 0
    seen: bool  #: whether rounding does not hide the decrease
    left: float  #: |slope| along the step after it, as a share of what the step promised


def norm_rise(w: Floats, d: Floats, group: bool) -> Floats:
    """Changes of the norm of each feature's weights by a step d, without loss of digits.

    w, d : float64 (k, K).  group : whether the norm is the Euclidean norm instead of the L1 norm.
    """
    if not group:
        new = w + d
        rise = np.where(w * new > 0.0, np.sign(w) * d, np.abs(new) - np.abs(w))
        return np.asarray(rise.sum(axis=1))
    sizes = np.linalg.norm(w + d, axis=1) + np.linalg.norm(w, axis=1)
    change = ((2.0 * w + d) * d).sum(axis=1)
    return np.divide(change, sizes, out=np.zeros(len(w)), where=sizes > 0.0)


def norm_slope(w: Floats, d: Floats, group: bool) -> Floats:
    """Derivatives of the norm of each feature's weights along d; where they are 0, to the right."""
    if not group:
        return np.asarray(np.where(w != 0.0, np.sign(w) * d, np.abs(d)).sum(axis=1))
    size = np.linalg.norm(w, axis=1)
    right = np.linalg.norm(d, axis=1)
    return np.divide((w * d).sum(axis=1), size, out=right, where=size > 0.0)


@dataclass(frozen=True)
class Line:
    """The change of the local objective along a step."""

    objective: Objective
    m: Floats  #: margins before the step
    dm: Floats  #: margins of the step
    local: LocalPoint
    step: Step
    #: slope and curvature, along the step, of the linear and quadratic terms
    linear: float
    square: float

    @cached_property
    def norm(self) -> float:
        """The penalty term sum_j absolute_j |w_j| before the step."""
        return math.fsum(self.local.absolute * np.abs(self.local.weights))

    @property
    def promised(self) -> float:
        """The change that the slopes alone predict, < 0 if the step leads downhill."""
        local, w, d = self.local, self.local.weights, self.step.d
        # term by term: a difference of sums would lose the small promises of the last steps
        rise = np.where(w * (w + d) > 0.0, np.sign(w) * d, np.abs(w + d) - np.abs(w))
        return float((local.gradients * d + local.absolute * rise).sum())

    def with_norm(self, smooth: float, beta: float) -> tuple[float, float]:
        """The change of smooth terms and of the norm at a share of the step, and the norm's slope."""
        absolute, new = self.local.absolute, self.local.weights + beta * self.step.d
        change = smooth + math.fsum(absolute * np.abs(new)) - self.norm
        return change, float((absolute * np.sign(new)) @ self.step.d)

    def at(self, beta: float) -> tuple[float, float, float]:
        """Change, slope and curvature of the local objective at a share beta of the step."""
        C, sums = self.objective.C, self.objective.line_sums(self.m, self.dm, beta)
        smooth = sums.value - self.local.loss + beta * self.linear + 0.5 * beta**2 * self.square
        change, kinked = self.with_norm(smooth, beta)
        slope = sums.slope_beta + self.linear + beta * self.square + kinked
        return C * change, C * slope, C * (sums.curve_beta + self.square)

    def search(self) -> Share | None:
        C, local = self.objective.C, self.local
        promised = self.promised + float(local.slopes @ self.step.x)
        return search_share(self.at, C * promised, ROUNDING * C * (local.loss + self.norm))


@dataclass(frozen=True)
class NormLine(Line):
    """The change along a step of the weights of K outputs, whose norms may be Euclidean ones."""

    @cached_property
    def norm(self) -> float:
        w = self.local.weights
        rise = norm_rise(np.zeros_like(w), w, self.objective.penalty.grouped)
        return float(self.local.absolute @ rise)

    @property
    def promised(self) -> float:
        local, d = self.local, self.step.d
        norms = norm_rise(local.weights, d, self.objective.penalty.grouped)
        return float((local.gradients * d).sum()) + float(local.absolute @ norms)

    def with_norm(self, smooth: float, beta: float) -> tuple[float, float]:
        absolute, w, group = self.local.absolute, self.local.weights, self.objective.penalty.grouped
        step = beta * self.step.d
        change = smooth + float(absolute @ norm_rise(w, step, group))
        return change, float(absolute @ norm_slope(w + step, self.step.d, group))


def search_share(
    at: Callable[[float], tuple[float, float, float]], promised: float, rounding: float
) -> Share | None:
    """Find a share beta of the step with sufficient decrease; 1 if the whole step has it.

    Returns None if there is no such share. A violation of v promises a decrease of the order v^2, so for
    v below 1e-8 rounding hides the decrease: then the whole step is accepted unless it raises the
    objective by more than rounding, and ``seen`` is False.

    at : change, slope and curvature of the objective at a share of the step.
    promised : change predicted by the slopes alone, < 0 if the step leads downhill.
    rounding : rounding error of the objective.
    """
    if not promised < 0.0:
        return None
    low, high, beta = 0.0, math.inf, 1.0
    best: Share | None = None
    for look in range(MAX_EVALUATIONS):
        change, slope, curve = at(beta)
        lowest = change < -rounding and abs(slope) <= SIGMA * -promised
        if change <= SIGMA * beta * promised or lowest:
            if best is None or -change > best.decrease:
                best = Share(beta, -change, -promised > rounding, abs(slope) / -promised)
            if beta == 1.0 or abs(slope) <= FLAT_SHARE * -promised:
                break
        elif -promised <= rounding and change <= rounding:
            return Share(beta, max(0.0, -change), False, abs(slope) / -promised)
        if slope < 0.0:
            low = beta
        else:
            high = beta
        if not math.isfinite(high) or high - low <= 1e-12 * high:
            break
        newton = beta - slope / curve if curve > 0.0 else math.nan
        if look % 3 < 2 and low < newton < high:
            beta = newton
        else:
            beta = math.sqrt(low * high) if low > 0.0 else SHRINK * high
    return best
