"""Logistic loss: labels, modelled by their log-odds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl.objective.losses.base import Loss
from fcl.objective.metrics import average_precision, has_both_classes
from fcl.types import Floats


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y m)), with a second derivative of at most 1/4.

    With a = -y u in [0, 1] the conjugate is a log a + (1 - a) log(1 - a).
    """

    name: ClassVar[str] = "logistic"
    code: ClassVar[int] = 0
    formula: ClassVar[str] = "log(1 + exp(-y_i m_i))"
    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True
    most_curvature = 0.25

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s) if has_both_classes(y, s) else math.nan

    def mean(self, margins: Floats) -> Floats:
        # does not overflow at any margin
        small = np.exp(-np.abs(margins))
        return np.where(margins >= 0.0, 1.0, small) / (1.0 + small)
