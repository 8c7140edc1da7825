"""Softmax loss: classes, modelled by one margin each."""

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
class Softmax(Loss):
    """log sum_k exp(m_k) - m_y, for a row of class y = 0 .. K - 1 and its margins m.

    The probability of class k is exp(m_k) / sum_j exp(m_j). The Hessian diag(p) - p p' is at most 1/2.
    With a = u + e_y the conjugate is sum_k a_k log a_k on the simplex, and infinite elsewhere. With two
    classes it is the logistic loss at the margin m_1 - m_0.

    The metric is the log loss, in natural units: the mean of -log p_y. Unlike the accuracy it compares
    models where classes are rare, and changes with every step.
    """

    name: ClassVar[str] = "softmax"
    code: ClassVar[int] = -1
    formula: ClassVar[str] = "(log sum_k exp(m_ik) - m_i,y_i)"
    metric: ClassVar[str] = "log_loss"
    classifies: ClassVar[bool] = True
    couples: ClassVar[bool] = True
    most_curvature = 0.5

    @property
    def higher_is_better(self) -> bool:
        return False

    def domain(self, y: Floats) -> tuple[Any, Any]:
        raise NotImplementedError(
            "the domain of the dual is a simplex, not an interval for each row"
        )

    def score(self, y: Floats, s: Floats, margins: Floats) -> float:
        """The mean log loss; margins : float64 (K, n). NaN without rows."""
        if not len(y):
            return math.nan
        K, n = margins.shape
        work = np.empty((K + 3, kernels.softmax.TILE))
        rows = np.ascontiguousarray(margins, dtype=np.float64)
        total: float = kernels.softmax.weighted_loss(y, s, rows, np.zeros(K), 0, n, work)
        return total / math.fsum(s)

    def mean(self, margins: Floats) -> Floats:
        """The probabilities of the classes, float64 (K, n), of margins (K, n)."""
        p = np.exp(margins - margins.max(axis=0))
        p /= p.sum(axis=0)
        return np.asarray(p)

    def check_targets(self, y: Floats, name: str) -> None:
        wrong = (y < 0.0) | (y != np.floor(y))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"{name}: softmax loss needs class numbers 0, 1, 2 and so on, got {y[row]:g} in row {row}"
            )
