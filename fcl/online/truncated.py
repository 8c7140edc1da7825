"""Truncated gradient (Langford, Li and Zhang, "Sparse online learning via truncated gradient", 2008)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.errors import InputError
from fcl.online.base import Learner, LearntRows, Point, common_factor
from fcl.online.vectors import VectorLearner, grid_of
from fcl.options import OnlineOptions
from fcl.types import Floats

#: A table of float32 is flushed when the sum of truncations is this many times the median weight; it
#: would otherwise hold differences of large numbers.
MOST_SHRINK = 1024.0
#: Largest count, or weight of rows, that a table of float32 holds as a sum of truncations.
MOST_COUNT = float(1 << 20)


class TruncatedGradient(Learner):
    """Stochastic gradient steps, and every ``period`` rows a truncation of the small weights.

    A truncation takes eta alpha f_j times the weight of the rows since the last one off the size of each
    weight of at most ``theta``, or sets these weights to 0 (``truncation="round"``). A feature is
    truncated when a row has it, which gives the weights of truncating all features at once.
    ``truncation="subgradient"`` is the peer of the paper's experiments: it subtracts the same amount from
    every weight, across 0, and rounds weights up to ``theta`` to 0 in the model alone.
    """

    name = "truncated-gradient"
    _adaptive: ClassVar[bool] = False

    @classmethod
    def drops_zeros(cls, options: OnlineOptions) -> bool:
        return cls is TruncatedGradient and options.truncation != "subgradient"

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self._common = 1.0
        self._check_truncation()
        if options.rho < 1.0:
            self._common, self.factors = common_factor(self.factors)
            self._check_elastic_net()

    @classmethod
    def kind_for(cls, options: OnlineOptions) -> type[Learner]:
        if options.weights.startswith("q"):
            return GridTruncatedGradient
        if options.average:
            return AveragedTruncatedGradient
        return AdaptiveTruncatedGradient if options.step == "adagrad" else TruncatedGradient

    def _check_truncation(self) -> None:
        """Raise InputError for what rounding and sub-gradients cannot be combined with."""
        options = self.options
        if options.truncation != "soft" and options.theta == math.inf:
            advice = "; give 0 to keep all weights" * (options.truncation == "subgradient")
            raise InputError(
                f"theta: truncation {options.truncation} needs a finite number, got inf: the model has 0 "
                f"in place of weights up to it{advice}"
            )
        if options.truncation != "subgradient":
            return
        what = "step adagrad" if self._adaptive else "average" if options.average else ""
        if what:
            raise InputError(
                f"truncated-gradient: truncation subgradient cannot be combined with {what}; choose "
                "truncation soft, or leave the other out"
            )

    def _check_elastic_net(self) -> None:
        """Raise InputError for what the sums of an elastic net's truncations cannot represent."""
        options = self.options
        what = ""
        if self.factors is not None and len(np.unique(self.factors)) > 2:
            what = "penalty factors that differ"
        if options.truncation != "soft" or options.theta < np.inf:
            what = "theta, rounding or sub-gradients"
        if self._adaptive:
            what = "step adagrad"
        if options.average:
            what = "average"
        if what:
            raise InputError(
                f"truncated-gradient: the penalty elastic cannot be combined with {what}; use method "
                "ftrl, or the penalty l1"
            )

    @property
    def rule(self) -> kernels.online.TruncationRule:
        """The rule for the kernels, at the rate of the current pass."""
        o = self.options
        return kernels.online.TruncationRule(
            self.rate,
            o.power,
            o.alpha * self._common,
            o.rho,
            o.theta,
            o.period,
            o.step == "implicit",
            o.truncation == "round",
            o.truncation == "subgradient",
            o.intercept,
        )

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, self.table, self.state)
        return kernels.online.learn_truncated(*rows, self.rule, *own)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        kernels.online.settle_truncated(
            self.rule, self.factors, self.table, self.state, first, last, out
        )

    def point(self) -> Point:
        ids, weights, intercept = super().point()
        if self.options.truncation == "subgradient":
            kept = np.abs(weights) > self.options.theta
            ids, weights = ids[kept], weights[kept]
        return ids, weights, intercept

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        self.table[ids, 0] = weights

    def flush(self) -> None:
        if not self.state[kernels.online.SHRINK] and self.state[kernels.online.GROWTH] == 1.0:
            return
        sizes = self._settle_in_place()
        self.state[kernels.online.SHRINK] = 0.0
        self.state[kernels.online.GROWTH] = 1.0
        self.state[kernels.online.LIMIT] = self.limit(
            float(np.median(sizes)) if len(sizes) else math.nan
        )

    def _settle_in_place(self) -> Floats:
        """Write settled weights to the table; returns the sizes of those that are not 0."""
        sizes = [np.empty(0)]
        for some in self._pieces():
            out = self._settled(some)
            self._write(some, out)
            sizes.append(np.abs(out[out != 0.0]))
        return np.concatenate(sizes)

    def _write(self, some: slice, weights: Floats) -> None:
        self.table[some, 0] = weights
        self.table[some, 1] = 0.0

    def limit(self, median: float) -> float:
        if self.options.weights == "float64":
            return math.inf
        if self.options.truncation == "round":
            return MOST_COUNT
        if median > 0.0:
            return MOST_SHRINK * median
        # no weights yet: soon, and then less and less often
        before = float(self.state[kernels.online.LIMIT])
        return max(2.0 * before, MOST_SHRINK * self.options.alpha * self.options.rate)


class AdaptiveTruncatedGradient(TruncatedGradient):
    """Truncated gradient with AdaGrad's rates (Duchi, Hazan and Singer 2011): one for each feature."""

    columns = 3
    _adaptive = True

    def limit(self, median: float) -> float:
        return math.inf if self.options.weights == "float64" else MOST_COUNT


class AveragedTruncatedGradient(TruncatedGradient):
    """Truncated gradient whose model is the mean of its iterates (theorem 3.2).

    The iterates are the weights before each row, and those after the last. The table also has the sum of
    a weight over them, and their number.
    """

    columns = 4

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        if options.weights != "float64" or options.step == "adagrad":
            wrong = "step adagrad" if options.step == "adagrad" else f"weights {options.weights}"
            raise InputError(
                f"truncated-gradient: average needs weights float64, and step implicit or explicit, got "
                f"{wrong}; leave one of them out"
            )
        super().__init__(n_features, options, factors)
        state = np.zeros(kernels.averaged.AVERAGED_STATES)
        state[: kernels.online.STATES] = self.state
        self.state = state

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, self.table, self.state)
        return kernels.averaged.learn_averaged(*rows, self.rule, *own)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        kernels.averaged.settle_averaged(
            self.rule, self.factors, self.table, self.state, first, last, out
        )

    @property
    def intercept(self) -> float:
        """The mean of the intercepts."""
        total = self.state[kernels.averaged.INTERCEPT_SUM] + self.state[kernels.online.INTERCEPT]
        return float(total / (self.rows + 1.0))

    def flush(self) -> None:
        kernels.averaged.flush_averaged(self.rule, self.factors, self.table, self.state)
        self.state[kernels.online.SHRINK] = self.state[kernels.averaged.TRUNCATIONS] = 0.0
        self.state[kernels.averaged.HISTORY :] = 0.0

    def is_state(self, state: np.ndarray) -> bool:
        if not super().is_state(state):
            return False
        n = state[kernels.averaged.TRUNCATIONS]
        if not (0.0 <= n < kernels.averaged.MOST_HISTORY and n % 1.0 == 0.0):
            return False
        for first in (
            kernels.averaged.HISTORY,
            kernels.averaged.HISTORY + kernels.averaged.MOST_HISTORY,
        ):
            if (np.diff(state[first : first + int(n)]) < 0.0).any():
                return False
        return True


class GridTruncatedGradient(VectorLearner, TruncatedGradient):
    """Truncated gradient over rounded weights (Golovin et al. 2013).

    A weight is truncated in float64, moved, and then rounded, when a row has its feature. ``others`` are
    the sums of truncations at the last one of a feature, float32: more memory than the weights take.
    """

    @classmethod
    def kinds(cls, options: OnlineOptions) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        grid = grid_of(options)
        assert grid is not None
        return grid.dtype, np.dtype(np.float32)

    @classmethod
    def check_weights(cls, options: OnlineOptions) -> None:
        wrong = "step adagrad" if options.step == "adagrad" else ""
        wrong = "average" if options.average else wrong
        wrong = "the penalty elastic" if options.rho < 1.0 else wrong
        wrong = "truncation subgradient" if options.truncation == "subgradient" else wrong
        if wrong:
            raise InputError(
                f"weights: truncated-gradient has {options.weights} only for the L1 norm, with steps "
                f"implicit or explicit and truncation soft or round, got {wrong}; choose float64 weights"
            )

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        own = (self.factors, self._room(rows), self.weights, self.others, self.state)
        return kernels.tables.learn_truncated_grid(*rows, self.rule, self.grid_rule, *own)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        own = (self.factors, self.weights, self.others, self.state)
        kernels.tables.settle_truncated_grid(self.rule, self.grid_rule, *own, first, last, out)

    def _write(self, some: slice, weights: Floats) -> None:
        kernels.tables.write_grid(self.grid_rule, self.rows, some.start, weights, self.weights)
        self.others[some] = 0.0
