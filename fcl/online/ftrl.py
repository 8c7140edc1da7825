"""Follow the regularised leader, with the penalty of all rows so far (McMahan 2011)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.online.base import Learner, LearntRows
from fcl.online.vectors import VectorLearner, grid_of
from fcl.options import OnlineOptions
from fcl.types import Floats


class Ftrl(Learner):
    """Before each row the weights minimise the linearised losses, a proximal term, and the penalty.

    H. B. McMahan, "Follow-the-regularized-leader and mirror descent", AISTATS 2011; with AdaGrad's rates.
    The penalty is alpha times the weight of all rows so far, kept as it is, where truncated gradient
    replaces the penalties of earlier rows by their subgradients: the models have fewer features.
    """

    name = "ftrl"

    @classmethod
    def kind_for(cls, options: OnlineOptions) -> type[Learner]:
        return GridFtrl if options.weights.startswith("q") else Ftrl

    @property
    def rule(self) -> kernels.online.FtrlRule:
        """The rule for the kernels."""
        o = self.options
        return kernels.online.FtrlRule(o.rate, o.alpha, o.rho, o.intercept)

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, self._room(rows), self.table, self.state)
        return kernels.online.learn_ftrl(*rows, self.rule, *own)

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        """Set weights as if each had seen one slope of size 1: its proximal term is centred at it."""
        self.table[ids, 0] = -weights / self.options.rate
        self.table[ids, 1] = weights != 0.0

    def _settle(self, first: int, last: int, out: Floats) -> None:
        kernels.online.settle_ftrl(
            self.rule, self.factors, self.table, self.state, first, last, out
        )


class GridFtrl(VectorLearner, Ftrl):
    """The regularised leader over rounded numbers (Golovin et al. 2013, footnote 4).

    ``weights`` are the linear terms, scaled to the weights without penalty, and ``others`` the sums of
    squared slopes as floating-point numbers of 16 bits, both rounded at random.
    """

    @classmethod
    def kinds(cls, options: OnlineOptions) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        grid = grid_of(options)
        assert grid is not None
        return grid.dtype, np.dtype(np.uint16)

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, self._room(rows), self.weights, self.others, self.state)
        return kernels.tables.learn_ftrl_grid(*rows, self.rule, self.grid_rule, *own)

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        VectorLearner._put(self, ids, -weights)
        self.others[ids[weights != 0.0]] = kernels.tables.encoded_square(1.0, np.uint64(0))

    def _settle(self, first: int, last: int, out: Floats) -> None:
        own = (self.factors, self.weights, self.others, self.state)
        kernels.tables.settle_ftrl_grid(self.rule, self.grid_rule, *own, first, last, out)
