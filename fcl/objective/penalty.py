"""The penalty on the weights: L1 norm or elastic net, with a factor for each feature.

    penalty(w) = sum_j f_j [ rho |w_j| + (1 - rho) w_j^2 / 2 ],    0 < rho <= 1, f_j > 0

With rho = 1 it is a weighted L1 norm, else an elastic net. The *slope* of a feature is the derivative of
the smooth part of the objective, in units of the coefficient of |w_j|:

    slope_j = (C g_j + (1 - rho) f_j w_j) / (rho f_j),    g_j = sum_i s_i loss'(m_i) phi_ij

At the optimum it is -sign(w_j) where w_j is not 0, and lies in [-1, 1] where w_j is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fcl.checks import up_to_one

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Penalty:
    """The penalty for one rho. Arrays are float64 (k,), one entry per feature; f are the factors."""

    l1_ratio: float = 1.0  #: rho

    def __post_init__(self) -> None:
        up_to_one("l1_ratio", self.l1_ratio)

    @property
    def pure_l1(self) -> bool:
        """Whether the penalty has no squares."""
        return self.l1_ratio == 1.0

    @property
    def formula(self) -> str:
        """The formula as text, for factors of 1."""
        if self.pure_l1:
            return "sum_j |w_j|"
        rho = self.l1_ratio
        return f"sum_j ({rho:.6g} |w_j| + {0.5 * (1.0 - rho):.6g} w_j^2)"

    def absolute(self, f: Floats) -> Floats:
        """Coefficients of |w_j|: rho f."""
        return self.l1_ratio * f

    def ridge(self, f: Floats) -> Floats:
        """Coefficients of w_j^2 / 2: (1 - rho) f."""
        return (1.0 - self.l1_ratio) * f

    def value(self, w: Floats, f: Floats) -> float:
        """The value of the penalty."""
        return math.fsum(f * np.abs(w) * (self.l1_ratio + 0.5 * (1.0 - self.l1_ratio) * np.abs(w)))

    def along(self, w: Floats, dw: Floats, f: Floats) -> tuple[float, float, float]:
        """Left, right and second derivative of the penalty at w in the direction dw."""
        zero = w == 0.0
        absolute, ridge = self.absolute(f), self.ridge(f)
        fixed = float((np.where(zero, 0.0, absolute * np.sign(w) + ridge * w) * dw).sum())
        kink = float((absolute[zero] * np.abs(dw[zero])).sum())
        return fixed - kink, fixed + kink, float((ridge * dw * dw).sum())

    def slopes(self, prices: Floats, w: Floats, f: Floats) -> Floats:
        """The slopes, where ``prices`` are C g_j."""
        return (prices + self.ridge(f) * w) / self.absolute(f)

    def violations(self, prices: Floats, w: Floats, f: Floats) -> Floats:
        """Distances of the slopes from their values at the optimum."""
        from fcl.kernels import descent

        out = np.empty(len(w))
        descent.violations(self.slopes(prices, w, f), w, out)
        return out

    def limit(self, C: float) -> float:
        """The largest |g_j| / f_j at which a weight of 0 meets its optimality condition."""
        return self.l1_ratio / C

    def least_C(self, largest: float) -> float:
        """The largest C at which the null model is optimal; largest : its max_j |g_j| / f_j."""
        return self.l1_ratio / largest if largest > 0.0 else math.inf

    def conjugate(self, C: float, excess: float) -> float:
        """The conjugate of the penalty at C g, which the dual subtracts; not for pure L1.

        excess : sum_j f_j max(0, |g_j| / f_j - limit)^2 over all features.
        """
        return C * C * excess / (2.0 * (1.0 - self.l1_ratio))
