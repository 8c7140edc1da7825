"""Hinge loss: labels, separated by a margin of at least 1, as in support vector machines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fcl.objective.losses.base import Loss
from fcl.objective.metrics import average_precision, has_both_classes
from fcl.types import Floats


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y m), which has a kink at y m = 1. With a = -y u in [0, 1] the conjugate is -a."""

    name: ClassVar[str] = "hinge"
    code: ClassVar[int] = 5
    formula: ClassVar[str] = "max(0, 1 - y_i m_i)"
    metric: ClassVar[str] = "auprc"
    classifies: ClassVar[bool] = True
    smooth: ClassVar[bool] = False

    def domain(self, y: Floats) -> tuple[Any, Any]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        return average_precision(y, margins, s) if has_both_classes(y, s) else math.nan
