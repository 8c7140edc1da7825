"""Make the objective that a loss needs, for any number of outputs."""

from __future__ import annotations

from typing import Any

from fcl.objective.losses import Loss
from fcl.objective.outputs import SeparateOutputs
from fcl.objective.problem import Objective
from fcl.objective.single_output import SingleOutput
from fcl.objective.softmax import SoftmaxOutputs
from fcl.types import Floats


def make_objective(
    loss: Loss, y: Floats, s: Floats, C: float, n_outputs: int = 1, **rest: Any
) -> Objective:
    """The objective of a loss.

    y : float64, class numbers (n,) if the loss couples outputs; else targets, (n,) for one output, or (K,
        n).
    n_outputs : number K of outputs.
    **rest : further fields of :class:`fcl.objective.Objective`.
    """
    if loss.couples:
        return SoftmaxOutputs(loss, y, s, C, n_classes=n_outputs, **rest)
    if n_outputs == 1:
        return SingleOutput(loss, y, s, C, **rest)
    if y.shape != (n_outputs, len(s)):
        raise ValueError(f"expected targets of shape {(n_outputs, len(s))}, got {y.shape}")
    return SeparateOutputs(loss, y, s, C, **rest)
