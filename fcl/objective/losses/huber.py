"""Huber loss: numeric targets with outliers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl.objective.losses.base import Loss
from fcl.types import Floats


@dataclass(frozen=True)
class Huber(Loss):
    """(y - m)^2 up to |y - m| = delta, and beyond that its tangents, delta (2 |y - m| - delta).

    Like the squared loss it has no factor 1/2: it is twice the loss of Huber (1964). Its slope lies in
    [-2 delta, 2 delta], which is the domain of the dual; there the conjugate is as for the squared loss,
    u^2 / 4 + u y.

    Parameters
    ----------
    delta : float
        In the units of the target, > 0; rows with |y - m| > delta are outliers.
    """

    name: ClassVar[str] = "huber"
    code: ClassVar[int] = 3
    formula: ClassVar[str] = "huber_delta(y_i - m_i)"
    metric: ClassVar[str] = "mae"
    metric_title: ClassVar[str] = "mean absolute error"
    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True
    most_curvature = 2.0

    delta: float = 1.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -2.0 * self.delta, 2.0 * self.delta

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average(np.abs(y - margins), weights=s))

    def mean(self, margins: Floats) -> Floats:
        return margins
