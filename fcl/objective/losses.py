"""The losses by name.

With target y (-1 or +1 for classification) and margin m:

    logistic        log(1 + exp(-y m))        |second derivative| <= 1/4
    squared         (y - m)^2                 = 2   (no 1/2: twice the usual least squares loss)
    squared_hinge   max(0, 1 - y m)^2         <= 2
"""

from __future__ import annotations

from dataclasses import dataclass

from fcl.errors import InputError


@dataclass(frozen=True)
class Loss:
    """A loss: its name, its code in the kernels, whether it wants labels.

    smooth : whether the second derivative is continuous. Where it jumps, a step that was cut has met the
        rows that cut it, and the next quadratic model has their curvature.
    """

    name: str
    code: int
    classifies: bool
    smooth: bool


LOSSES = {
    loss.name: loss
    for loss in (
        Loss("logistic", 0, True, True),
        Loss("squared", 1, False, True),
        Loss("squared_hinge", 2, True, False),
    )
}


def find_loss(name: str) -> Loss:
    """The loss of this name; raises InputError listing what there is."""
    try:
        return LOSSES[name.replace("-", "_")]
    except KeyError:
        raise InputError(f"unknown loss {name!r}; expected one of {', '.join(LOSSES)}") from None
