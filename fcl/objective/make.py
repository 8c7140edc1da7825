"""Make the objective of several outputs that a loss needs."""

from __future__ import annotations

from typing import Any

from fcl.objective.losses import Loss
from fcl.objective.outputs import Outputs, SeparateOutputs
from fcl.objective.softmax import SoftmaxOutputs
from fcl.types import Floats


def make_outputs(
    loss: Loss, y: Floats, s: Floats, C: float, n_outputs: int, **rest: Any
) -> Outputs:
    """The objective of several outputs.

    Parameters
    ----------
    y : float64
        Class numbers (n,) if the loss couples outputs, else targets (K, n).
    n_outputs : int
        Number K of outputs.
    **rest
        Further fields of :class:`fcl.objective.Outputs`.
    """
    if loss.couples:
        return SoftmaxOutputs(loss, y, s, C, n_classes=n_outputs, **rest)
    if y.shape != (n_outputs, len(s)):
        raise ValueError(f"expected targets of shape {(n_outputs, len(s))}, got {y.shape}")
    return SeparateOutputs(loss, y, s, C, **rest)
