"""The losses by name; each has its own module."""

from __future__ import annotations

from dataclasses import fields

from fcl.checks import positive, shown
from fcl.errors import InputError
from fcl.numerals import read_number
from fcl.objective.losses.base import Loss
from fcl.objective.losses.hinge import Hinge
from fcl.objective.losses.huber import Huber
from fcl.objective.losses.logistic import Logistic
from fcl.objective.losses.poisson import Poisson
from fcl.objective.losses.softmax import Softmax
from fcl.objective.losses.squared import Squared
from fcl.objective.losses.squared_hinge import SquaredHinge

__all__ = ["COUPLED_LOSSES", "KINKED_LOSSES", "LOSSES", "Loss", "find_loss"]

#: The losses of a single output that fcl.train minimises.
LOSSES: dict[str, type[Loss]] = {
    kind.name: kind for kind in (Logistic, Squared, SquaredHinge, Huber, Poisson)
}
#: The losses that couple several outputs (:attr:`Loss.couples`).
COUPLED_LOSSES: dict[str, type[Loss]] = {Softmax.name: Softmax}
#: The losses that are not smooth (:attr:`Loss.smooth`), for online learners and certificates.
KINKED_LOSSES: dict[str, type[Loss]] = {Hinge.name: Hinge}


def find_loss(text: str) -> Loss:
    """Parse the text of a loss: ``logistic``, or ``NAME:OPTION=NUMBER`` such as ``huber:delta=2``.

    Raises InputError that lists the losses, or names the wrong option.
    """
    name, _, rest = text.partition(":") if isinstance(text, str) else ("", "", "")
    every = LOSSES | COUPLED_LOSSES | KINKED_LOSSES
    kind = every.get(name.replace("-", "_"))
    if kind is None:
        raise InputError(f"unknown loss {shown(text)}; expected one of {', '.join(every)}")
    known = {field.name for field in fields(kind)}
    options: dict[str, float] = {}
    for part in rest.split(",") if rest else ():
        option, _, value = part.partition("=")
        if option not in known or option in options:
            expected = f"{', '.join(known)}, once" if known else "no options"
            raise InputError(f"loss {shown(text)}: expected {expected}, got {shown(part)}")
        number = read_number(value)
        options[option] = positive(
            f"loss {shown(text)}: {option}", value if number is None else number
        )
    return kind(**options)
