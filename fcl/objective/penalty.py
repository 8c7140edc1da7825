"""The penalty of the weights: absolute values and squares, each feature with a factor of its own.

    penalty(w) = sum_j f_j [ rho |w_j| + (1 - rho) w_j^2 / 2 ],    0 < rho <= 1, f_j > 0

With rho = 1 it is the L1 norm, else the elastic net. The *slope* of a feature is that of everything
smooth, in units of the weight of |w_j|:

    slope_j = (C g_j + (1 - rho) f_j w_j) / (rho f_j),    g_j = sum_i s_i loss'(m_i) phi_ij

At the optimum it is -sign(w_j) where w_j is not 0, and within [-1, 1] where it is.
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
    """The penalty for one rho. Arrays are float64 (k,), an entry a feature; f are their factors."""

    l1_ratio: float = 1.0  #: rho

    def __post_init__(self) -> None:
        up_to_one("l1_ratio", self.l1_ratio)

    @property
    def pure_l1(self) -> bool:
        """Whether there are no squares."""
        return self.l1_ratio == 1.0

    @property
    def formula(self) -> str:
        """In words, for factors of 1."""
        if self.pure_l1:
            return "sum_j |w_j|"
        rho = self.l1_ratio
        return f"sum_j ({rho:.6g} |w_j| + {0.5 * (1.0 - rho):.6g} w_j^2)"

    def absolute(self, f: Floats) -> Floats:
        """What |w_j| is multiplied by: rho f."""
        return self.l1_ratio * f

    def ridge(self, f: Floats) -> Floats:
        """What w_j^2 / 2 is multiplied by: (1 - rho) f."""
        return (1.0 - self.l1_ratio) * f

    def value(self, w: Floats, f: Floats) -> float:
        """The penalty."""
        return math.fsum(f * np.abs(w) * (self.l1_ratio + 0.5 * (1.0 - self.l1_ratio) * np.abs(w)))

    def along(self, w: Floats, dw: Floats, f: Floats) -> tuple[float, float, float]:
        """Derivatives of the penalty at w in the direction dw: from the left, the right; the second."""
        zero = w == 0.0
        absolute, ridge = self.absolute(f), self.ridge(f)
        fixed = float((np.where(zero, 0.0, absolute * np.sign(w) + ridge * w) * dw).sum())
        kink = float((absolute[zero] * np.abs(dw[zero])).sum())
        return fixed - kink, fixed + kink, float((ridge * dw * dw).sum())

    def slopes(self, prices: Floats, w: Floats, f: Floats) -> Floats:
        """The slopes at C g_j = ``prices``."""
        return (prices + self.ridge(f) * w) / self.absolute(f)

    def violations(self, prices: Floats, w: Floats, f: Floats) -> Floats:
        """Distances of the slopes from what they are at the optimum."""
        from fcl.kernels import descent

        out = np.empty(len(w))
        descent.violations(self.slopes(prices, w, f), w, out)
        return out

    def limit(self, C: float) -> float:
        """The largest |g_j| / f_j at which a feature of weight 0 does not violate."""
        return self.l1_ratio / C

    def least_C(self, largest: float) -> float:
        """The C up to which the null model is optimal; largest : max_j |g_j| / f_j at that model."""
        return self.l1_ratio / largest if largest > 0.0 else math.inf

    def conjugate(self, C: float, excess: float) -> float:
        """The conjugate of the penalty at C g: what it takes from the dual objective. Not for pure L1.

        excess : sum_j f_j max(0, |g_j| / f_j - limit)^2 over all features.
        """
        return C * C * excess / (2.0 * (1.0 - self.l1_ratio))
