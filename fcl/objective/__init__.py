"""The mathematics of the objective: losses, values, certificate, metrics. No I/O."""

from fcl.objective.covariates import Covariates
from fcl.objective.limits import Limits
from fcl.objective.losses import COUPLED_LOSSES, KINKED_LOSSES, LOSSES, Loss, find_loss
from fcl.objective.make import make_objective
from fcl.objective.outputs import SeparateOutputs
from fcl.objective.penalty import GroupPenalty, Penalty, stored_penalty
from fcl.objective.problem import ROUNDING, LineSums, Objective, relative_gap, resolve_C
from fcl.objective.single_output import SingleOutput
from fcl.objective.softmax import SoftmaxOutputs

__all__ = [
    "COUPLED_LOSSES",
    "KINKED_LOSSES",
    "LOSSES",
    "ROUNDING",
    "Covariates",
    "GroupPenalty",
    "Limits",
    "LineSums",
    "Loss",
    "Objective",
    "Penalty",
    "SeparateOutputs",
    "SingleOutput",
    "SoftmaxOutputs",
    "find_loss",
    "make_objective",
    "relative_gap",
    "resolve_C",
    "stored_penalty",
]
