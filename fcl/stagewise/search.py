"""The search along a step for the factor that lowers the objective most.

A step of ``gls`` minimises a quadratic that is above the loss wherever the probabilities are, so it is
short where they are near 0 and 1. The objective along the step needs the margins alone, not the features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fcl.parallel import Team
from fcl.stagewise.blocks import Part
from fcl.stagewise.links import Link
from fcl.types import Floats

#: The largest factor of a step.
MOST = 8.0
#: The search ends at a slope of at most this share of the slope at 0, or after so many slopes.
TOLERANCE, MOST_SLOPES = 0.1, 8


class ObjectiveLine:
    """The objective at ``margins + t * direction``, for t from 0 to MOST.

    direction : float64 (n, K)
    slope, curvature : first and second derivative of the penalty with respect to t, at 0.
    """

    def __init__(
        self, part: Part, direction: Floats, slope: float, curvature: float, link: Link, team: Team
    ) -> None:
        self._part, self._direction, self._link, self._team = part, direction, link, team
        self._slope, self._curvature = slope, curvature

    def slope(self, t: float) -> float:
        """The derivative of the objective with respect to t; the same bits for any number of threads."""
        part, direction = self._part, self._direction

        def work(tile: int) -> float:
            rows = part.prepared.rows_of(tile)
            margins = part.margins[rows] + t * direction[rows]
            gradient = self._link.gradient(margins, part.targets.rows(rows))
            return float(part.s[rows] @ np.einsum("ij,ij->i", gradient, direction[rows]))

        return sum(self._team.map(work, self._tiles), self._slope + t * self._curvature)

    def move(self, t: float) -> None:
        """Add t * direction to the margins."""

        def work(tile: int) -> None:
            rows = self._part.prepared.rows_of(tile)
            self._part.margins[rows] += t * self._direction[rows]

        self._team.map(work, self._tiles)

    @property
    def _tiles(self) -> range:
        return range(self._part.prepared.n_blocks)


def best_factor(slope: Callable[[float], float], at_0: float) -> float:
    """A factor in (0, MOST] that is at most the minimiser of a convex function, and close to it.

    The function falls from 0 to there, so its value never rises. The factor is 1 if all factors tried
    were too large: a step that minimises a majoriser never rises. By the Illinois rule: Dowell and
    Jarratt, "A modified regula falsi method", BIT 11 (1971).

    slope : the derivative of the function, which increases.
    at_0 : the derivative at 0, below 0.
    """
    low, slope_low, high, slope_high = 0.0, at_0, np.inf, np.inf
    t = 1.0
    for _ in range(MOST_SLOPES):
        found = slope(t)
        if found <= 0.0:
            # an end that stays twice counts half, so that the other end moves too
            low, slope_low, slope_high = t, found, 0.5 * slope_high
            if found >= TOLERANCE * at_0 or t == MOST:
                break
        else:
            high, slope_high, slope_low = t, found, 0.5 * slope_low
        t = _next(low, slope_low, high, slope_high, at_0)
    return low or 1.0


def _next(low: float, slope_low: float, high: float, slope_high: float, at_0: float) -> float:
    """Where a line through two slopes is 0: between the ends, or beyond the first one, up to MOST."""
    if np.isfinite(high):
        return low + (high - low) * slope_low / (slope_low - slope_high)
    beyond = low * at_0 / (at_0 - slope_low) if slope_low > at_0 else MOST
    return min(MOST, max(beyond, 1.25 * low))
