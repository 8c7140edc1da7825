"""Online gradient descent with a rate for each feature, over tables of a few bytes a weight."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.online.base import LearntRows
from fcl.online.table import morris
from fcl.online.vectors import VectorLearner, grid_of
from fcl.options import OnlineOptions
from fcl.types import Floats


class Ogd(VectorLearner):
    """The rate of a feature is ``rate`` / sqrt(its events), the rows in which its gradient was not 0.

    D. Golovin, D. Sculley, H. B. McMahan and M. Young, "Large-scale learning with less RAM via
    randomization", ICML 2013, algorithm 2: weights ``qN.M`` have randomised rounding, and events are
    counted in 8 bits; weights of float32 and float64 have exact counts.

    With ``gamma`` a weight is rounded to steps of gamma times its rate, so that a table of variable width
    needs few bits for rare features; this table has the width of the finest step. ``rates="global"`` is
    the control of the paper's Figure 2: all features have the rate ``rate`` / sqrt(row), and there are no
    counts and no penalty.

    ``others`` are the counts, uint8, or uint32 for exact counts; none with one rate for all features.
    """

    name = "ogd"

    @classmethod
    def kinds(cls, options: OnlineOptions) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        grid = grid_of(options)
        weights = np.dtype(options.weights) if grid is None else grid.dtype
        if options.rates == "global":
            return weights, None
        return weights, np.dtype(np.uint32 if grid is None else np.uint8)

    @classmethod
    def check_weights(cls, options: OnlineOptions) -> None:
        grid = grid_of(options)
        if options.rates == "global" and options.rho < 1.0:
            raise InputError(
                "penalty: with rates global weights are learnt without a penalty; leave it out, or "
                "choose rates feature"
            )
        if grid is None and options.gamma is not None:
            raise InputError(
                f"gamma: expected weights qN.M, whose rounding it sets, got {options.weights}; choose a "
                "grid such as q2.13, or leave gamma out"
            )
        if grid is not None and options.max_weight is not None:
            grid.steps_of(options.max_weight)

    @cached_property
    def _counters(self) -> tuple[npt.NDArray[np.uint64], Floats]:
        """The Morris counters of a grid."""
        return (np.empty(0, np.uint64), np.empty(0)) if self.grid is None else morris()

    @property
    def rule(self) -> kernels.tables.TableRule:
        """The rule for the kernels."""
        o, step = self.options, 0.0 if self.grid is None else self.grid.step
        gravity = o.alpha if len(self.others) else 0.0
        given = (self.rate, gravity, o.rho, o.intercept, step, self.largest, o.gamma or 0.0)
        return kernels.tables.TableRule(*given, o.seed)

    def facts(self) -> list[Fact]:
        """As of other learners, and the bits that a table of variable width would take."""
        facts = super().facts()
        if self.grid is None or self.options.gamma is None or not facts:
            return facts
        bits = f"{self.mean_bits:.3g} bits a weight in a table of variable width"
        return [*facts, Fact("precision", f"{bits}, {self.grid.bits} in this one", self.mean_bits)]

    @property
    def mean_bits(self) -> float:
        """Mean bits of a weight in a table of variable width, without its keys, by the current rates.

        A weight has its sign and the bits of the multiples of its step; a feature without events has the
        rate of the first.
        """
        if self.grid is None:
            return 8.0 * self.weights.itemsize
        coarse = self._coarse()
        seen = np.array([1]) if not len(self.others) else np.zeros(len(coarse), np.int64)
        for some in self._pieces() if len(self.others) else ():
            seen += np.bincount(self.others[some], minlength=len(seen))
        bits = 1.0 + np.ceil(np.log2(np.floor(self.largest / coarse) + 1.0))
        return float(bits @ seen / seen.sum()) if seen.sum() else 0.0

    def _coarse(self) -> Floats:
        """The step of weights at each level of a counter, in steps of the grid; (1,) without counts."""
        events = (
            np.maximum(self._counters[1], 1.0) if len(self.others) else np.array([self.rows + 1.0])
        )
        return np.array(
            [kernels.tables.coarseness(self.rule, self.rate / math.sqrt(count)) for count in events]
        )

    @property
    def clipped(self) -> int:
        """As :attr:`Learner.clipped`: with ``gamma``, weights at the last multiple of their steps."""
        if self.options.gamma is None:
            return super().clipped
        coarse, found = self._coarse(), 0
        most = np.floor(self.largest / coarse) * coarse
        for some in self._pieces():
            limits = most[self.others[some]] if len(self.others) else most
            found += int(np.count_nonzero(np.abs(self.weights[some]) >= limits))
        return found

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, *self._counters, self.weights, self.others, self.state)
        return kernels.tables.learn_table(*rows, self.rule, self.passes, *own)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        np.multiply(self.weights[first:last], 1.0 if self.grid is None else self.grid.step, out=out)
