"""Pinball loss: numeric targets, modelled by a quantile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fcl.errors import InputError
from fcl.objective.losses.base import Loss
from fcl.types import Floats

#: The largest |target|; squares of margins must not overflow.
MOST_TARGET = 1e150


@dataclass(frozen=True)
class Pinball(Loss):
    """The loss of quantile regression, max(tau u, (tau - 1) u) of u = y - m, smoothed over a width.

    It is the Moreau envelope of the pinball loss: u^2 / (2 width) for -(1 - tau) width <= u <= tau width,
    and beyond that its tangents, tau u - tau^2 width / 2 above and (tau - 1) u - (1 - tau)^2 width / 2
    below. It lies below the pinball loss, by at most max(tau, 1 - tau)^2 width / 2. The slope lies in
    [-tau, 1 - tau], which is the domain of the dual; there the conjugate is width u^2 / 2 + u y. (Koenker
    and Bassett 1978; Chen 2007, "A finite smoothing algorithm for quantile regression", smooths alike.)

    The metric is the mean of the pinball loss without smoothing.

    Parameters
    ----------
    tau : float
        The quantile, 0 < tau < 1: the share of the targets below the prediction.
    width : float
        Length of the interval of residuals over which the slope changes, in the units of the target, > 0.
    """

    name: ClassVar[str] = "pinball"
    code: ClassVar[int] = 6
    formula: ClassVar[str] = "pinball_tau,width(y_i - m_i)"
    metric: ClassVar[str] = "pinball"
    metric_title: ClassVar[str] = "mean pinball loss"
    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True

    tau: float = field(default=0.5, metadata={"below": 1.0})
    width: float = 0.1

    @property
    def quantile(self) -> float:
        return self.tau

    @property
    def most_curvature(self) -> float:
        return 1.0 / self.width

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -self.tau, 1.0 - self.tau

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        u = y - margins
        return float(np.average(np.maximum(self.tau * u, (self.tau - 1.0) * u), weights=s))

    def mean(self, margins: Floats) -> Floats:
        return margins

    def check_training(self, y: Floats, name: str) -> None:
        largest = float(np.abs(y).max())
        if largest > MOST_TARGET:
            raise InputError(
                f"{name}: pinball loss needs targets of at most {MOST_TARGET:g} in size, got "
                f"{largest:g}; scale the target"
            )
        # half of the targets may be outliers of any size
        size = float(np.median(np.abs(y[y != 0.0]))) if y.any() else 0.0
        least = max(size * np.finfo(np.float64).eps, np.finfo(np.float64).tiny)
        if self.width < least:
            raise InputError(
                f"loss {self.text}: expected a width of at least the rounding of {name}, {least:.1g}, "
                f"got {self.width:g}; give a tenth of the spread of the residuals"
            )
