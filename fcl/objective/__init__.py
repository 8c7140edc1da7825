"""The mathematics of the objective: losses, values, certificate, metrics. No I/O."""

from fcl.objective.covariates import Covariates
from fcl.objective.losses import LOSSES, Loss, find_loss
from fcl.objective.penalty import Penalty
from fcl.objective.problem import ROUNDING, LineSums, Objective, relative_gap, resolve_C

__all__ = [
    "LOSSES",
    "ROUNDING",
    "Covariates",
    "LineSums",
    "Loss",
    "Objective",
    "Penalty",
    "find_loss",
    "relative_gap",
    "resolve_C",
]
