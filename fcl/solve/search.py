"""The search along a proposed step, on the exact objective, from two vectors of margins alone.

    phi(beta) = min_b  penalty(w_e + beta (w' - w_e)) + C sum_i s_i loss(m_e + beta (m' - m_e) + b)

phi is convex, and its slope equals the partial derivative in beta at (beta, b*(beta)) (envelope theorem),
so the minimum is a root of a monotone function. beta = 1 is chosen whenever it is nearly as good: the
trainer's point keeps its exact zeros, and its margins need not be computed again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.objective import ROUNDING, LineSums
from fcl.solve.state import Anchor, Point
from fcl.types import Floats, Ids

MAX_BETA = 2.0
MAX_EVALUATIONS = 12
#: The search ends when a further step promises at most this share of the decrease so far.
GOOD_ENOUGH = 0.05


@dataclass(frozen=True)
class Found:
    """The best point found on the line."""

    beta: float
    intercept: float
    objective: float


@dataclass(frozen=True)
class _Sample:
    beta: float
    intercept: float
    value: float
    slope_left: float
    slope_right: float
    curve: float

    @property
    def slope(self) -> float:
        """The subgradient nearest to 0."""
        if self.slope_left <= 0.0 <= self.slope_right:
            return 0.0
        return self.slope_left if self.slope_left > 0.0 else self.slope_right


def search(
    objective: Any,
    anchor: Anchor,
    proposed: Point,
    step: Floats,
    factors: Callable[[Ids], Floats],
) -> Found:
    """Minimise over beta in [0, 2] and b; beta = 0 if no point is better than the anchor.

    If the values along the whole step differ by rounding alone they cannot decide, and the proposed point
    is accepted: the trainer chose it by gradients, which resolve far smaller differences.

    step : float64 (n,) or (K, n), m' - m_e with the covariates of the proposed point.
    factors : penalty factors by feature id.
    """
    ids = np.union1d(anchor.point.ids, proposed.ids)
    w = anchor.point.weights_of(ids)
    dw = proposed.weights_of(ids) - w
    f = factors(ids)
    most = objective.penalty.limits.longest(ids, w, dw, MAX_BETA)

    def sample(beta: float, guess: float) -> _Sample:
        if objective.has_constant:
            b, sums = _fit_intercept(objective, anchor.margins, step, beta, guess)
        else:
            b, sums = 0.0, objective.line_sums(anchor.margins, step, beta)
        at = w + beta * dw
        smooth = objective.C * sums.slope_beta
        left, right, square = objective.penalty.along(at, dw, f)
        curve = sums.curve_beta
        if objective.has_constant and sums.curve_b > 0.0:
            curve -= sums.cross * sums.cross / sums.curve_b
        return _Sample(
            beta,
            b,
            objective.penalty.value(at, f) + objective.C * sums.value,
            smooth + left,
            smooth + right,
            objective.C * max(curve, 0.0) + square,
        )

    start = anchor.objective
    best = sample(1.0, proposed.intercept)
    if max(abs(best.value - start), abs(best.slope)) <= ROUNDING * start:
        return Found(1.0, best.intercept, min(best.value, start))
    low, high = 0.0, most
    at = best
    for _ in range(MAX_EVALUATIONS):
        slope = at.slope
        decrease = start - best.value
        promise = slope * slope / (2.0 * at.curve) if at.curve > 0.0 else math.inf
        if at is best and decrease > 0.0 and promise <= GOOD_ENOUGH * decrease:
            break
        if slope == 0.0:
            break
        if slope > 0.0:
            high = at.beta
        else:
            low = at.beta
        newton = at.beta - slope / at.curve if at.curve > 0.0 else math.nan
        inside = low < newton < high
        beta = newton if inside else (0.5 * (low + high) if high < most else most)
        if (beta in (low, high) and beta != most) or high - low < 1e-6:
            break
        at = sample(beta, at.intercept)
        if at.value < best.value:
            best = at
        if beta == most and at.slope <= 0.0:
            break
    if best.value < start:
        return Found(best.beta, best.intercept, best.value)
    return Found(0.0, anchor.point.intercept, start)


def _fit_intercept(
    objective: Any, margins: Floats, step: Floats, beta: float, guess: float
) -> tuple[float, LineSums]:
    """The best b at a fixed beta, and all sums there.

    Takes Newton steps, each of which computes the sums as well; falls back to the bracketed search if
    they do not converge.
    """
    b = guess
    for _ in range(6):
        sums = objective.line_sums(margins, step, beta, b)
        if sums.curve_b <= 0.0:
            break
        move = -sums.slope_b / sums.curve_b
        if abs(move) <= 1e-9 * (1.0 + abs(b)):
            return b, sums
        if abs(move) > 2.0:
            break
        b += move
    b = objective.best_intercept(margins, b, dm=step, beta=beta)
    return b, objective.line_sums(margins, step, beta, b)
