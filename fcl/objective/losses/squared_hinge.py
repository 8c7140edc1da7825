"""Squared hinge loss: labels, separated by a margin of at least 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl.objective.losses.base import Loss
from fcl.objective.metrics import average_precision, has_both_classes
from fcl.types import Floats


@dataclass(frozen=True)
class SquaredHinge(Loss):
    """max(0, 1 - y m)^2. With a = -y u >= 0 the conjugate is a^2 / 4 - a."""

    name: ClassVar[str] = "squared_hinge"
    code: ClassVar[int] = 2
    formula: ClassVar[str] = "max(0, 1 - y_i m_i)^2"
    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True
    clipped: ClassVar[bool] = True
    conic: ClassVar[bool] = True
    most_curvature = 2.0

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.where(y > 0.0, -np.inf, 0.0), np.where(y > 0.0, 0.0, np.inf)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s) if has_both_classes(y, s) else math.nan
