"""Poisson loss: counts and rates, modelled by the logarithm of their mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl import kernels
from fcl.errors import InputError
from fcl.objective.losses.base import Loss
from fcl.types import Floats


@dataclass(frozen=True)
class Poisson(Loss):
    """Half the unit deviance, exp(m) - y m + y log y - y, of a target y >= 0 with the mean exp(m).

    The terms in y alone make its minimum 0, so that relative gaps are meaningful. For counts y with
    exposures E, pass the offset log E, or the target y / E with the sample weight E.

    With v = y + u the conjugate is v log v - v - y log y + y for v >= 0, else infinite. A residual over
    its weight is exp(m) - y >= -y, which lies in this domain. The domain is an interval that contains 0,
    so a residual stays in it when scaled by a number in [0, 1]: balancing, scaling and truncation towards
    0 give points of the dual. Scaling up a residual near -y would leave the domain.

    The second derivative exp(m) is unbounded. A Newton step upwards from m < log y is too long; one
    downwards from m > log y is too short (it lowers m by less than 1). Line searches shorten steps of the
    first kind, and so do curvatures that are raised to a share of y.
    """

    name: ClassVar[str] = "poisson"
    code: ClassVar[int] = 4
    formula: ClassVar[str] = "(exp(m_i) - y_i m_i + y_i log y_i - y_i)"
    metric: ClassVar[str] = "deviance"
    metric_title: ClassVar[str] = "mean deviance"

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -y, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        work = kernels.losses.workspace()
        total = kernels.losses.weighted_loss(self.kernel, y, s, margins, 0.0, work)
        return float(2.0 * total / math.fsum(s))

    def mean(self, margins: Floats) -> Floats:
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(margins))

    def check_targets(self, y: Floats, name: str) -> None:
        if (y < 0.0).any():
            row = int((y < 0.0).argmax())
            raise InputError(
                f"{name}: poisson loss needs targets of at least 0, got {y[row]:g} in row {row}; choose "
                "another loss, such as squared"
            )

    def check_training(self, y: Floats, name: str) -> None:
        if not y.any():
            raise InputError(
                f"{name}: all targets of training rows are 0, so no finite intercept is optimal; poisson "
                "loss needs at least one target above 0"
            )

    def intercept_step(self, slope: float, curvature: float) -> float:
        # exact if only the loss has a slope: curvature = sum s exp(m), slope = curvature - sum s y
        if curvature <= 0.0 or slope >= (1.0 - 1e-12) * curvature:
            return math.nan  # rounding leaves no correct digit
        return math.log1p(-slope / curvature)
