"""Make the trainer's side for a view with one output or with several."""

from __future__ import annotations

from typing import Any

from fcl.cache import LiveColumns
from fcl.features.base import Family
from fcl.solve.blocks import OutputSolver
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.coupled_local import CoupledSolver
from fcl.solve.local import LocalSolver
from fcl.solve.trainer import Trainer
from fcl.solve.view import RowView


def make_local(
    view: RowView,
    cache: LiveColumns,
    trainer: Trainer,
    family: Family,
    n_rows: int,
) -> Any:
    """The trainer's side: a LocalSolver, or for a view with several outputs an OutputSolver.

    n_rows : of the whole problem.

    Outputs whose penalty or loss couples them are trained together (:mod:`fcl.solve.coupled`), others one
    after the other.
    """
    factors = family.penalty_factors
    objective = view.objective
    if not objective.outputs:
        # a limit need not be a multiple of the step
        rounds = family.rounds_weights(n_rows) and not objective.penalty.limits.exact
        return LocalSolver(view, cache, trainer, factors, rounds)
    if objective.coupled:
        together = CoupledTrainer(trainer.inner, objective.n_outputs)
        return CoupledSolver(view, cache, together, factors)
    return OutputSolver(view, cache, trainer, factors)
