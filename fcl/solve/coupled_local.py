"""The trainer's side with several outputs whose weights are trained together."""

from __future__ import annotations

import numpy as np

from fcl.solve.blocks import OutputSolver
from fcl.solve.coupled import CoupledTrainer
from fcl.solve.trainer import StepResult
from fcl.solve.view import RowView
from fcl.types import Floats


class CoupledSolver(OutputSolver):
    """Like :class:`fcl.solve.blocks.OutputSolver`, with steps in the weights of all outputs at once.

    The trainer is a :class:`fcl.solve.coupled.CoupledTrainer`.
    """

    trainer: CoupledTrainer

    def change_view(self, view: RowView) -> None:
        """Switch to another row view; the cache must be empty."""
        super().change_view(view)
        self._m = self.trainer.margins  # of the trainer's point

    def restart(self, free: Floats) -> None:
        super().restart(free)
        self.trainer.columns_changed()

    def step(self, target: float) -> StepResult:
        """Take one step from the current point, unless its violation is at most ``target``."""
        trainer, own = self.trainer, slice(self.view.objective.n_free)
        trainer.start(self.view, self.working, self.anchor.covariates[own], self.free[own])
        taken = trainer.step(target)
        self._free = np.concatenate([trainer.free, self.free[len(trainer.free) :]])
        self._seen = trainer.seen
        self._violations[:] = taken.violation
        return taken
