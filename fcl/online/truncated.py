"""Truncated gradient (Langford, Li and Zhang, "Sparse online learning via truncated gradient", 2008)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.rows import RowChunk
from fcl.online.base import Floats, Learner, common_factor, settle_in_place
from fcl.online.options import OnlineOptions

if TYPE_CHECKING:
    from fcl.kernels.online import TruncationRule

__all__ = ["AdaptiveTruncatedGradient", "TruncatedGradient"]

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
    """

    name = "truncated-gradient"
    _adaptive: ClassVar[bool] = False

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self._common = 1.0
        if options.l1_ratio < 1.0:
            self._common, self.factors = common_factor(self.factors)
            self._check_elastic_net()

    @classmethod
    def kind_for(cls, options: OnlineOptions) -> type[Learner]:
        return AdaptiveTruncatedGradient if options.step == "adagrad" else TruncatedGradient

    def _check_elastic_net(self) -> None:
        """Raise InputError for what the sums of an elastic net's truncations cannot represent."""
        options = self.options
        what = ""
        if self.factors is not None and len(np.unique(self.factors)) > 2:
            what = "penalty factors that differ"
        if options.truncation == "round" or options.theta < np.inf:
            what = "theta or rounding"
        if self._adaptive:
            what = "step adagrad"
        if what:
            raise InputError(
                f"truncated-gradient: l1_ratio below 1 cannot be combined with {what}; use method ftrl, "
                "or l1_ratio 1"
            )

    @property
    def rule(self) -> TruncationRule:
        """The rule for the kernels, at the rate of the current pass."""
        from fcl.kernels.online import TruncationRule

        o = self.options
        return TruncationRule(
            self.rate,
            o.power,
            o.alpha * self._common,
            o.l1_ratio,
            o.theta,
            o.period,
            o.step == "implicit",
            o.truncation == "round",
            o.intercept,
        )

    def _learn(
        self, chunk: RowChunk, indptr: npt.NDArray[np.int64], y: Floats, s: Floats, margins: Floats
    ) -> tuple[int, int]:
        from fcl.kernels import online

        learn: Any = online.learn_adaptive if self._adaptive else online.learn_truncated
        loss, rule, factors = self.options.kernel_loss, self.rule, self.factors
        given = (indptr, chunk.ids, chunk.values, y, s, margins)
        done, why = learn(*given, loss, rule, factors, self.table, self.state)
        return int(done), int(why)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        from fcl.kernels import online

        online.settle_truncated(self.rule, self.factors, self.table, self.state, first, last, out)

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        self.table[ids, 0] = weights

    def flush(self) -> None:
        from fcl.kernels import online

        if not self.state[online.SHRINK] and self.state[online.GROWTH] == 1.0:
            return
        median = settle_in_place(self, self._write)
        self.state[online.SHRINK] = 0.0
        self.state[online.GROWTH] = 1.0
        self.state[online.LIMIT] = self.limit(median)

    def _write(self, some: slice, weights: Floats) -> None:
        self.table[some, 0] = weights
        self.table[some, 1] = 0.0

    def limit(self, median: float) -> float:
        from fcl.kernels import online

        if self.options.weights == "float64":
            return math.inf
        if self.options.truncation == "round":
            return MOST_COUNT
        if median > 0.0:
            return MOST_SHRINK * median
        # no weights yet: soon, and then less and less often
        before = float(self.state[online.LIMIT])
        return max(2.0 * before, MOST_SHRINK * self.options.alpha * self.options.rate)


class AdaptiveTruncatedGradient(TruncatedGradient):
    """Truncated gradient with AdaGrad's rates (Duchi, Hazan and Singer 2011): one for each feature."""

    columns = 3
    _adaptive = True

    def limit(self, median: float) -> float:
        return math.inf if self.options.weights == "float64" else MOST_COUNT
