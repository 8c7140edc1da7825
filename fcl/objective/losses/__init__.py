"""The losses by name; each has its own module."""

from __future__ import annotations

from fcl.kinds import parse_kind
from fcl.objective.losses.base import Loss
from fcl.objective.losses.hinge import Hinge
from fcl.objective.losses.huber import Huber
from fcl.objective.losses.logistic import Logistic
from fcl.objective.losses.pinball import Pinball
from fcl.objective.losses.poisson import Poisson
from fcl.objective.losses.softmax import Softmax
from fcl.objective.losses.squared import Squared
from fcl.objective.losses.squared_hinge import SquaredHinge

__all__ = ["COUPLED_LOSSES", "KINKED_LOSSES", "LOSSES", "Loss", "find_loss"]

#: The losses of a single output that fcl.train minimises.
LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, Squared, SquaredHinge, Huber, Poisson, Pinball)
}
#: The losses that couple K outputs (:attr:`Loss.couples`).
COUPLED_LOSSES: dict[str, type[Loss]] = {Softmax.name: Softmax}
#: The losses that are not smooth (:attr:`Loss.smooth`), for online learners and certificates.
KINKED_LOSSES: dict[str, type[Loss]] = {Hinge.name: Hinge}


def find_loss(text: str) -> Loss:
    """Parse the text of a loss: ``logistic``, or ``NAME:OPTION=NUMBER`` such as ``huber:delta=2``.

    Raises InputError that lists the losses, or names the wrong option.
    """
    return parse_kind("loss", text, LOSSES | COUPLED_LOSSES | KINKED_LOSSES)
