"""The local problem of K outputs whose losses and penalties are separate, minimised output by output.

These outputs share rows and columns only. The trainer of one output solves the problem of each in turn.
:mod:`fcl.solve.coupled` trains other outputs together.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.cache import LiveColumns
from fcl.solve.columns import add_columns
from fcl.solve.local import LocalProblem
from fcl.solve.state import Columns
from fcl.solve.trainer import Solved, StepResult, Trainer
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: Most steps on an output before the next one has its turn.
STEPS_A_TURN = 2
#: Share of the violation at the beginning of a turn at which the turn ends.
TURN_SHARE = 0.1


class SeparateProblem(LocalProblem):
    """The local problem of K outputs; parameters as of :class:`fcl.solve.local.LocalProblem`."""

    def __init__(
        self,
        view: RowView,
        cache: LiveColumns,
        trainer: Trainer,
        factors: Callable[[Ids], Floats],
    ) -> None:
        super().__init__(view, cache, trainer, factors)
        self._free = self.anchor.covariates
        self.change_view(view)

    def change_view(self, view: RowView) -> None:
        """Switch to another row view; the cache must be empty."""
        super().change_view(view)
        self._m = np.empty_like(view.margins)  # of the trainer's point
        self._violations = np.full(view.objective.n_outputs, np.inf)
        # largest slope of each column, when its output had its turn
        self._seen: tuple[Columns, Floats] = (np.empty(0, np.intp), np.empty(0))

    @property
    def free(self) -> Floats:
        return self._free

    @property
    def margins(self) -> Floats:
        return self._m

    @property
    def seen(self) -> tuple[Columns, Floats]:
        return self._seen

    def restart(self, free: Floats) -> None:
        objective, working = self.view.objective, self.working
        self._free = free.copy()
        self._m[:] = self.view.margins
        objective.add_free(self.free - self.anchor.covariates, self._m)
        self._add(working.of("weights") - working.of("anchor_weights"))
        self._violations[:] = np.inf

    def _add(self, delta: Floats) -> None:
        """Add columns times the change of their weights, (columns, K), to the margins."""
        columns = np.arange(len(delta))
        add_columns(self.working, columns, delta, self._m, self.trainer.inner.team)

    def evict(self, keep: npt.NDArray[np.bool_]) -> None:
        anchored, weights = self.working.of("anchor_weights"), self.working.of("weights")
        self._add(np.where(keep[:, None], 0.0, anchored - weights))
        self.working.put("weights", np.where(keep[:, None], weights, anchored))
        self.trainer.columns_changed()
        self._seen = np.empty(0, np.intp), np.empty(0)  # numbers of columns have changed
        self.working.evict(keep)

    # -- the point -----------------------------------------------------------------------------

    def step(self, target: float) -> StepResult:
        """Give each output its turn, unless the violations are at most ``target``."""
        self._seen = np.arange(self.cache.n), np.zeros(self.cache.n)
        decrease, sweeps, moved = 0.0, 0, False
        for k in range(len(self._violations)):
            turn = self._turn(k, target)
            decrease, sweeps = decrease + turn.decrease, sweeps + turn.sweeps
            moved = moved or turn.moved
            if self.trainer.inner.cease():
                break
        return StepResult(moved, decrease, float(self._violations.max()), sweeps)

    def _turn(self, k: int, target: float) -> StepResult:
        """Take steps on the problem of an output; the violation is the one before them."""
        view, part = self.view, self.working.parts[k]
        trainer, b = self.trainer, view.of(self.anchor.covariates, k)
        own = view.focus(k, float(b.sum()) if view.objective.intercept else 0.0)
        trainer.start(own, part, b, view.of(self.free, k))
        first, decrease, sweeps, moved = -1.0, 0.0, 0, False
        goal = target
        for turn in range(STEPS_A_TURN + 1):
            taken = trainer.step(goal, turn < STEPS_A_TURN)
            decrease, sweeps = decrease + taken.decrease, sweeps + taken.sweeps
            if first < 0.0:
                first = taken.violation
                goal = max(target, TURN_SHARE * first)
                (columns, slopes), every = trainer.seen, self._seen[1]
                every[columns] = np.maximum(every[columns], np.abs(slopes))
            if not taken.moved:
                break
            moved = True
        self._violations[k] = first
        self._m[k] = trainer.margins
        view.of(self.free, k)[:] = trainer.free
        return StepResult(moved, decrease, first, sweeps)

    def solve(self, target: float, max_steps: int) -> Solved:
        self.restart(self.free)
        decrease, sweeps, steps = 0.0, 0, 0
        for _ in range(max_steps):
            taken = self.step(target)
            decrease, sweeps = decrease + taken.decrease, sweeps + taken.sweeps
            steps += taken.moved
            if not taken.moved or self.trainer.inner.cease():
                break
        return Solved(self.free, decrease, float(self._violations.max()), steps, sweeps)
