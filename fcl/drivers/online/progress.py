"""Progressive validation: every row is predicted before it is learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from fcl import kernels
from fcl.types import Floats

#: Rows before the first line of progress; each line comes after twice as many.
FIRST_LINE = 1000


@dataclass
class Progressive:
    """Sums over the rows of a pass; plain numbers, so that a file can keep them exactly."""

    losses: float = 0.0  #: weighted, since the pass began
    weight: float = 0.0
    losses_before: float = 0.0  #: at the last event
    weight_before: float = 0.0
    targets: float = 0.0  #: sum of s y
    squares: float = 0.0  #: sum of s y^2
    next_line: int = FIRST_LINE  #: rows at the next event

    def add(self, loss: tuple[int, float, float], y: Floats, s: Floats, margins: Floats) -> None:
        """Add rows with their margins before they were learnt."""
        self.losses += kernels.online.sum_losses(loss, y, s, margins)
        self.weight += float(s.sum())
        self.targets += float(s @ y)
        self.squares += float(s @ (y * y))

    def mark(self) -> tuple[float, float]:
        """The mean loss of the pass, and since the last call."""
        mean = self.losses / self.weight if self.weight else math.nan
        since = self.weight - self.weight_before
        last = (self.losses - self.losses_before) / since if since else mean
        self.losses_before, self.weight_before = self.losses, self.weight
        return mean, last

    def to_dict(self) -> dict[str, float]:
        """The fields."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def constant_loss(loss: str, sums: Progressive) -> float:
    """The mean loss of the best constant margin over the rows, in closed form; NaN without rows."""
    if not sums.weight:
        return math.nan
    mean = sums.targets / sums.weight
    if loss == "squared":
        return max(0.0, sums.squares / sums.weight - mean * mean)
    p = 0.5 * (1.0 + mean)  # the share of the positive label
    if loss == "logistic":
        return float(-sum(q * math.log(q) for q in (p, 1.0 - p) if q > 0.0))
    if loss == "squared_hinge":
        return 4.0 * p * (1.0 - p)
    return 2.0 * min(p, 1.0 - p)
