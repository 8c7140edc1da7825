"""The search along a step of the trainer, on the local objective.

The trainer solves many local problems between two passes, so the search ends at the first share of a step
with sufficient decrease; :mod:`fcl.solve.search` finds the best share between two passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fcl.objective import SingleOutput
from fcl.solve.state import LocalPoint
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


@dataclass(frozen=True)
class Line:
    """The change of the local objective along a step d."""

    objective: SingleOutput
    m: Floats  #: margins before the step
    dm: Floats  #: margins of the step
    local: LocalPoint
    d: Floats
    #: slope and curvature, along the step, of the linear and quadratic terms
    linear: float
    square: float
    norm: float  #: penalty term sum_j absolute_j |w_j| before the step
    promised: float  #: change predicted by the slopes alone, < 0 if the step leads downhill
    rounding: float  #: rounding error of the objective

    def at(self, beta: float) -> tuple[float, float, float]:
        """Change, slope and curvature of the local objective at a share beta of the step."""
        C, absolute, d = self.objective.C, self.local.absolute, self.d
        sums = self.objective.line_sums(self.m, self.dm, beta, 0.0)
        smooth = sums.value - self.local.loss + beta * self.linear + 0.5 * beta**2 * self.square
        new = self.local.weights + beta * d
        change = smooth + math.fsum(absolute * np.abs(new)) - self.norm
        slope = sums.slope_beta + self.linear + beta * self.square
        slope += float((absolute * np.sign(new)) @ d)
        return C * change, C * slope, C * (sums.curve_beta + self.square)

    def search(self) -> Share | None:
        """See :func:`search_share`."""
        return search_share(self.at, self.promised, self.rounding)


def search_share(
    at: Callable[[float], tuple[float, float, float]], promised: float, rounding: float
) -> Share | None:
    """Find a share beta of the step with sufficient decrease; 1 if the whole step has it.

    Returns None if there is no such share. A violation of v promises a decrease of the order v^2, so for
    v below 1e-8 rounding hides the decrease: then the whole step is accepted unless it raises the
    objective by more than rounding, and ``seen`` is False.

    Parameters
    ----------
    at : callable
        Change, slope and curvature of the objective at a share of the step.
    promised : float
        Change predicted by the slopes alone, < 0 if the step leads downhill.
    rounding : float
        Rounding error of the objective.
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
