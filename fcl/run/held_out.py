"""Scores on held-out rows, and early stopping: how long no pass had a lower held-out loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fcl.objective import find_loss
from fcl.options import TrainOptions
from fcl.solve.run_state import BestPass
from fcl.solve.state import Point
from fcl.types import Floats


@dataclass(frozen=True)
class HeldOutScores:
    """The scores of an anchor on the held-out rows.

    loss : mean loss; NaN without ``patience``, which alone needs it.
    """

    metric: float
    loss: float

    @classmethod
    def of(cls, options: TrainOptions, y: Floats, s: Floats, margins: Floats) -> HeldOutScores:
        """The scores of margins, float64 (n,) or (K, n)."""
        loss = math.nan
        if options.patience is not None:
            n_outputs = len(np.atleast_2d(margins))
            objective = options.objective(y, s, n_outputs=n_outputs)
            loss = objective.loss_sum(margins) / float(s.sum())
        return cls(find_loss(options.loss).score_outputs(y, s, margins), loss)


@dataclass
class Patience:
    """The rule that ends a run whose held-out loss no longer improves.

    most : passes without a lower loss after which the run ends; None: the rule does not apply.
    best : the pass with the lowest loss so far.
    """

    most: int | None
    best: BestPass | None = None

    def measured(self, number: int, loss: float, point: Point) -> None:
        """Compare the held-out loss at the anchor of a pass with the lowest one."""
        if self.most is None or math.isnan(loss):
            return
        if self.best is None or loss < self.best.loss:
            self.best = BestPass(number, loss, point)

    def ran_out(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Whether so many passes were scored after the best one; passes may be scored later, or never."""
        best = self.best
        if self.most is None or best is None:
            return False
        later = [each.get("validation") or {} for each in history[best.number + 1 :]]
        return sum(scores.get("loss") is not None for scores in later) >= self.most
