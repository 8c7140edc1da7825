"""Squared loss: numeric targets, modelled by their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl.objective.losses.base import Loss
from fcl.types import Floats


@dataclass(frozen=True)
class Squared(Loss):
    """(y - m)^2, without 1/2: twice the usual least squares loss. The conjugate is u^2 / 4 + u y."""

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 1
    formula: ClassVar[str] = "(y_i - m_i)^2"
    metric: ClassVar[str] = "mse"
    metric_title: ClassVar[str] = "mean squared error"
    clipped: ClassVar[bool] = True
    translates: ClassVar[bool] = True
    conic: ClassVar[bool] = True
    unbounded: ClassVar[bool] = True
    most_curvature = 2.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return -np.inf, np.inf

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return float(np.average((y - margins) ** 2, weights=s))

    def mean(self, margins: Floats) -> Floats:
        return margins
