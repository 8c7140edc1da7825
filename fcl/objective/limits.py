"""Limits on weights: l_j <= w_j <= u_j with l_j <= 0 <= u_j, for all features and for named ones.

A weight at a limit may only move inwards. There the optimality condition of its slope
(:mod:`fcl.objective.penalty`) is one-sided: at w_j = u_j > 0 no slope below -1 is a violation, and at
w_j = 0 with l_j = 0 no positive slope is one. In the dual, a feature with limits on both sides
constrains nothing. It subtracts from the bound

    max_w  -C g_j w - f_j [ rho |w| + (1 - rho) w^2 / 2 ]    over l_j <= w <= u_j

which is u_j (-C g_j - f_j)_+ - l_j (C g_j - f_j)_+ for rho = 1. Residuals are scaled down only for
features whose limit is infinite on the side to which their slope pulls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.types import Floats, Ids
from fcl.units import counted

#: Relative distance up to which a weight is moved to a limit: the rounding of a step that ends there.
NEAR = 1e-15

#: A limit beyond this is infinite: products with it would overflow.
ENDLESS = 1e100

#: Limits as models store them: low and high of all features, and (id, low, high) of named ones.
#: None is infinite.
Stored = tuple[float | None, float | None, Sequence[tuple[int, float | None, float | None]]]


@dataclass(frozen=True, eq=False)
class Limits:
    """Limits of the weights of a family.

    low, high : of all features but those with ``ids``.
    ids : int64 (k,), increasing.  lows, highs : float64 (k,), their limits.
    """

    low: float = -math.inf
    high: float = math.inf
    ids: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    lows: Floats = field(default_factory=lambda: np.empty(0))
    highs: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def from_stored(cls, stored: Stored | None) -> Limits:
        """The limits that a job stores."""
        if stored is None:
            return UNLIMITED
        low, high, features = stored
        named = sorted(features, key=lambda row: row[0])
        return cls(
            _end(low, -math.inf),
            _end(high, math.inf),
            np.array([id for id, _, _ in named], np.int64),
            np.array([_end(end, -math.inf) for _, end, _ in named], np.float64),
            np.array([_end(end, math.inf) for _, _, end in named], np.float64),
        )

    @property
    def unlimited(self) -> bool:
        """Whether no weight has a limit."""
        return self.low == -math.inf and self.high == math.inf and not len(self.ids)

    @property
    def text(self) -> str:
        """The limits in words; empty for none."""
        words = []
        if self.low != -math.inf or self.high != math.inf:
            low = "" if self.low == -math.inf else f"{self.low:g} <= "
            words.append(f"{low}w_j" + ("" if self.high == math.inf else f" <= {self.high:g}"))
        if len(self.ids):
            words.append(f"own limits of {counted(len(self.ids), 'feature')}")
        return ", ".join(words)

    @property
    def side(self) -> int:
        """The only sign of the weights of features without a name, 1 or -1; 0 for both."""
        return int(self.low == 0.0) - int(self.high == 0.0)

    @property
    def boxed(self) -> bool:
        """Whether features without a name have a finite limit other than 0."""
        return any(math.isfinite(end) and end != 0.0 for end in (self.low, self.high))

    @property
    def exact(self) -> bool:
        """Whether the bound subtracts a term for some features, besides what a sign excludes."""
        return self.boxed or len(self.ids) > 0

    def of(self, ids: Ids) -> tuple[Floats, Floats]:
        """The limits of some features, float64 (k,) each."""
        low, high = np.full(len(ids), self.low), np.full(len(ids), self.high)
        if len(self.ids):
            at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            own = self.ids[at] == ids
            low[own], high[own] = self.lows[at[own]], self.highs[at[own]]
        return low, high

    def within(self, ids: Ids, weights: Floats) -> Floats:
        """The weights of some features, moved into their limits; float64 (k,) or (k, K)."""
        if self.unlimited:
            return weights
        return inside(weights, *(by_output(end, weights) for end in self.of(ids)))

    def clamp(self, ids: Ids, slopes: Floats, weights: Floats) -> Floats:
        """The slopes of some features without what their limits allow; (k,) or (k, K)."""
        if self.unlimited:
            return slopes
        return clamped(slopes, weights, *(by_output(end, weights) for end in self.of(ids)))

    def reached(self, ids: Ids, weights: Floats) -> npt.NDArray[np.bool_]:
        """Whether the weights of some features are at a limit, bool (k,)."""
        low, high = self.of(ids)
        return np.asarray((weights <= low) | (weights >= high))

    def longest(self, ids: Ids, weights: Floats, step: Floats, most: float) -> float:
        """The largest multiple of a step that keeps the weights within their limits, at most ``most``.

        The whole step does.
        """
        if self.unlimited:
            return most
        low, high = (by_output(end, weights) for end in self.of(ids))
        end = np.where(step > 0.0, high, low)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(step != 0.0, (end - weights) / step, math.inf)
        return min(most, max(1.0, float(shares.min(initial=math.inf))))

    def alike(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Whether of features with equal columns one can take the weights of all, bool (k,)."""
        return np.isin(ids, self.ids, invert=True) & (not self.boxed)

    def restricted(self, ids: Ids) -> Limits:
        """The limits of some features by their indices in ``ids``."""
        if self.unlimited:
            return self
        return Limits(-math.inf, math.inf, np.arange(len(ids)), *self.of(ids))

    def stored(self) -> Stored | None:
        """The inverse of :meth:`from_stored`."""
        if self.unlimited:
            return None
        rows = zip(self.ids.tolist(), self.lows.tolist(), self.highs.tolist(), strict=True)
        named = tuple((id, _finite(low), _finite(high)) for id, low, high in rows)
        return _finite(self.low), _finite(self.high), named


UNLIMITED = Limits()


def _end(value: float | None, infinite: float) -> float:
    return infinite if value is None or abs(value) >= ENDLESS else float(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def by_output(numbers: Floats, weights: Floats) -> Floats:
    """Numbers of features, (k,), in a shape that goes with weights (k,) or (k, K)."""
    return numbers if weights.ndim == 1 else numbers[:, None]


def largest_output(numbers: Floats) -> Floats:
    """The largest number of each feature over its outputs, (k,), of numbers >= 0, (k,) or (k, K)."""
    return np.asarray(numbers.max(axis=tuple(range(1, numbers.ndim)), initial=0.0))


def inside(weights: Floats, low: Floats, high: Floats) -> Floats:
    """Weights moved into their limits, and to a limit that they miss by rounding alone."""
    weights = np.where(weights <= low * (1.0 - NEAR), low, weights)
    return np.where(weights >= high * (1.0 - NEAR), high, weights)


def clamped(slopes: Floats, weights: Floats, low: Floats, high: Floats) -> Floats:
    """Slopes in which a pull beyond a limit counts as what the optimality condition asks for."""
    up, down = np.where(weights > 0.0, -1.0, 0.0), np.where(weights < 0.0, 1.0, 0.0)
    slopes = np.where(weights >= high, np.maximum(slopes, up), slopes)
    return np.where(weights <= low, np.minimum(slopes, down), slopes)


def violations(slopes: Floats, weights: Floats) -> Floats:
    """Distances of slopes from optimality: from -sign(weight), or from [-1, 1] where it is 0."""
    apart = np.abs(slopes + np.sign(weights))
    return np.asarray(np.where(weights == 0.0, np.maximum(apart - 1.0, 0.0), apart))


def sizes(prices: Floats, low: Any, high: Any) -> Floats:
    """How strongly prices pull a weight away from 0, where its limits let it move."""
    allowed = np.where(prices < 0.0, high > 0.0, low < 0.0)
    return np.asarray(np.abs(prices) * allowed)


def cost(over: Floats, f: Floats | float, most: Floats | float, ridge: float) -> Floats:
    """What a side of a feature subtracts from the bound, divided by C.

    over : |g_j| / f_j minus its limit.  f : penalty factors.  most : size of the weight's limit.
    ridge : (1 - rho) / C.
    """
    over = np.maximum(over, 0.0)
    weight = np.broadcast_to(most, over.shape)
    if ridge > 0.0:
        weight = np.minimum(weight, over / ridge)
    return np.where(over > 0.0, f * weight * (over - 0.5 * ridge * weight), 0.0)
