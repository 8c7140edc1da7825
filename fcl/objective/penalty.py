"""The penalty on the weights: L1 norm or elastic net, with a factor for each feature.

    penalty(w) = sum_j f_j [ rho |w_j| + (1 - rho) w_j^2 / 2 ],    0 < rho <= 1, f_j > 0

With rho = 1 it is a weighted L1 norm, else an elastic net. The *slope* of a feature is the derivative of
the smooth part of the objective, in units of the coefficient of |w_j|:

    slope_j = (C g_j + (1 - rho) f_j w_j) / (rho f_j),    g_j = sum_i s_i loss'(m_i) phi_ij

At the optimum it is -sign(w_j) where w_j is not 0, and lies in [-1, 1] where w_j is 0.

**Several outputs.** Weights W are then (k, K): a row for each feature, a column for each output. The L1
norm and the elastic net sum over all entries; a feature's violation and the *size* of its price are the
largest over its outputs. :class:`GroupPenalty` takes the Euclidean norm of each row instead, so that a
feature is in the model for all outputs or for none:

    penalty(W) = sum_j f_j [ rho |W_j| + (1 - rho) |W_j|^2 / 2 ]

At its optimum the slope of a row is -W_j / |W_j|, or has a norm of at most 1 where W_j is 0.

Weights may have limits (:mod:`fcl.objective.limits`), within which all points lie. Callers clamp the
slopes by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.checks import up_to_one
from fcl.objective.limits import UNLIMITED, Limits, by_output, largest_output, violations
from fcl.types import Floats, Ids


@dataclass(frozen=True)
class Penalty:
    """The penalty for one rho. Arrays are float64 (k,), one entry per feature; f are the factors.

    Weights, directions, prices and slopes may also be (k, K), with K outputs; f remains (k,).
    """

    rho: float = 1.0
    limits: Limits = UNLIMITED

    def __post_init__(self) -> None:
        up_to_one("l1_ratio", self.rho)

    @property
    def grouped(self) -> bool:
        return False

    @property
    def pure_l1(self) -> bool:
        return self.rho == 1.0

    @property
    def share_text(self) -> str:
        """The share of |w_j| in words."""
        return f"l1_ratio {self.rho:g}"

    def stored(self) -> dict[str, Any]:
        """The options of a job, without limits; see :func:`stored_penalty`."""
        return {"l1_ratio": self.rho, "group": self.grouped}

    def formula(self, n_outputs: int = 1) -> str:
        """The formula as text, for factors of 1."""
        at, w = ("j", "w_j") if n_outputs == 1 else ("jk", "W_jk")
        if self.pure_l1:
            return f"sum_{at} |{w}|"
        return f"sum_{at} ({self.rho:.6g} |{w}| + {0.5 * (1.0 - self.rho):.6g} {w}^2)"

    def absolute(self, f: Floats) -> Floats:
        """Coefficients of |w_j|: rho f."""
        return self.rho * f

    def ridge(self, f: Floats) -> Floats:
        """Coefficients of w_j^2 / 2: (1 - rho) f."""
        return (1.0 - self.rho) * f

    def value(self, w: Floats, f: Floats) -> float:
        f, size = by_output(f, w), np.abs(w)
        terms = f * size * (self.rho + 0.5 * (1.0 - self.rho) * size)
        return math.fsum(terms.ravel())

    def along(self, w: Floats, dw: Floats, f: Floats) -> tuple[float, float, float]:
        """Left, right and second derivative of the penalty at w in the direction dw."""
        zero = w == 0.0
        f = np.broadcast_to(by_output(f, w), w.shape)
        absolute, ridge = self.absolute(f), self.ridge(f)
        fixed = float((np.where(zero, 0.0, absolute * np.sign(w) + ridge * w) * dw).sum())
        kink = float((absolute[zero] * np.abs(dw[zero])).sum())
        return fixed - kink, fixed + kink, float((ridge * dw * dw).sum())

    def slopes(self, prices: Floats, w: Floats, f: Floats, ids: Ids | None = None) -> Floats:
        """The slopes, where ``prices`` are C g_j; with ``ids`` clamped by the limits of the features."""
        f = by_output(f, w)
        slopes = (prices + self.ridge(f) * w) / self.absolute(f)
        return slopes if ids is None else self.limits.clamp(ids, slopes, w)

    def violations(self, prices: Floats, w: Floats, f: Floats, ids: Ids | None = None) -> Floats:
        """Distances of the slopes from their values at the optimum, (k,); of outputs the largest."""
        return largest_output(violations(self.slopes(prices, w, f, ids), w))

    def sizes(self, prices: Floats) -> Floats:
        """The size of each feature's price, (k,): its absolute value, of outputs the largest."""
        return largest_output(np.abs(prices))

    def centre(self, w: Floats) -> Floats:
        """The constants, (k,), whose subtraction from the rows of w lowers the penalty most.

        For losses that do not feel a constant added to the margins of all outputs, such as softmax. The
        penalty of a row w - c is least at the median of w_1 .. w_K and z_0 .. z_K, with z_j = mean(w) +
        (K - 2 j) rho / (K (1 - rho)) (Li and Osher 2009, "A new median formula"); without squares at any
        number between the two middle weights, of which the nearest to 0 is chosen.

        w : float64 (k, K).
        """
        K = w.shape[1]
        if self.pure_l1:
            ordered = np.sort(w, axis=1)
            return np.clip(0.0, ordered[:, (K - 1) // 2], ordered[:, K // 2])
        steps = (K - 2.0 * np.arange(K + 1)) * (self.rho / (K * (1.0 - self.rho)))
        both = np.concatenate([w, w.mean(axis=1)[:, None] + steps], axis=1)
        return np.asarray(np.sort(both, axis=1)[:, K])

    def limit(self, C: float) -> float:
        """The largest |g_j| / f_j at which a weight of 0 meets its optimality condition."""
        return self.rho / C

    def least_C(self, largest: float) -> float:
        """The largest C at which the null model is optimal; largest : its max_j |g_j| / f_j."""
        return self.rho / largest if largest > 0.0 else math.inf

    def conjugate(self, C: float, excess: float) -> float:
        """The conjugate of the penalty at C g, which the dual subtracts; not for pure L1.

        excess : sum_j f_j max(0, |g_j| / f_j - limit)^2 over all features, and over their outputs.
        """
        return C * C * excess / (2.0 * (1.0 - self.rho))


@dataclass(frozen=True)
class GroupPenalty(Penalty):
    """The penalty on the norms of rows of weights (k, K); see the docstring of the module."""

    @property
    def grouped(self) -> bool:
        return True

    def formula(self, n_outputs: int = 1) -> str:
        if self.pure_l1:
            return "sum_j |W_j|_2"
        return f"sum_j ({self.rho:.6g} |W_j|_2 + {0.5 * (1.0 - self.rho):.6g} |W_j|_2^2)"

    def value(self, w: Floats, f: Floats) -> float:
        return Penalty(self.rho).value(self.sizes(w), f)

    def along(self, w: Floats, dw: Floats, f: Floats) -> tuple[float, float, float]:
        size, step = self.sizes(w), self.sizes(dw)
        zero = size == 0.0
        unit = w / np.where(zero, 1.0, size)[:, None]  # 0 where w is 0
        absolute, ridge = self.absolute(f), self.ridge(f)
        radial = (unit * dw).sum(axis=1)  # change of the norm
        fixed = float(((absolute + ridge * size) * radial).sum())
        kink = float((absolute[zero] * step[zero]).sum())
        # what turns a row bends its norm: |dw - radial unit|^2 / |w|
        turn = self.sizes(dw - radial[:, None] * unit) ** 2
        bent = float((absolute * np.where(zero, 0.0, turn / np.where(zero, 1.0, size))).sum())
        return fixed - kink, fixed + kink, bent + float((ridge * step * step).sum())

    def violations(self, prices: Floats, w: Floats, f: Floats, ids: Ids | None = None) -> Floats:
        size, slopes = self.sizes(w), self.slopes(prices, w, f)
        zero = size == 0.0
        unit = w / np.where(zero, 1.0, size)[:, None]
        away = self.sizes(slopes + unit)
        return np.where(zero, np.maximum(away - 1.0, 0.0), away)

    def sizes(self, prices: Floats) -> Floats:
        """The Euclidean norm of each row, (k,), without overflow or underflow."""
        largest = np.abs(prices).max(axis=1, initial=0.0)
        unit = prices / np.where(largest > 0.0, largest, 1.0)[:, None]
        return np.asarray(largest * np.sqrt((unit * unit).sum(axis=1)))

    def centre(self, w: Floats) -> Floats:
        return np.asarray(w.mean(axis=1))


def stored_penalty(options: Mapping[str, Any]) -> Penalty:
    """The penalty, without limits, of the options of a job or a model."""
    kind = GroupPenalty if options.get("group") else Penalty
    return kind(float(options.get("l1_ratio", 1.0)))
