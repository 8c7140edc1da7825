"""Projected stochastic gradient on the L1 ball, by rows or batches of rows.

Source: Duchi, Shalev-Shwartz, Singer and Chandra, ICML 2008.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.errors import InputError
from fcl.online.base import Learner, LearntRows, Point
from fcl.options import OnlineOptions
from fcl.types import Floats

#: Entries of the heap at the start; it grows with the number of features that have a weight.
_CAPACITY = 1024
#: Columns of a saved table that describe the heap.
_OF_HEAP = 2


class BallLearner(Learner):
    """After each row, a gradient step and the projection onto {sum_j f_j |w_j| <= radius}.

    The heap of :mod:`fcl.kernels.ball_heap` holds the features with a weight; other features cost four
    bytes. Features with penalty factor 0 are free, those with an infinite one have no weight.

    With implicit steps, the default, the slope is that at the margin after the step, which no rate
    overshoots. The paper has explicit steps, with which the mean loss approaches that of the best point
    of the ball at the rate 1 / sqrt(rows), whatever the rows (Zinkevich 2003).

    The columns of a saved table are the key of a feature in the heap, signed, and its position there,
    counted from 1; or the weight of a free feature, and 0.
    """

    name = "ball"
    columns: ClassVar[int] = _OF_HEAP

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        if n_features >= 1 << 31:
            raise InputError(
                f"method ball has room for 2^31 features, got {n_features:,}; choose a smaller family"
            )
        super().__init__(
            0, options, factors
        )  # a table of its own takes the place of the base class's
        self.n_features = n_features
        self.state = np.zeros(kernels.ball_heap.BALL_STATES)
        self._place = np.full(n_features, -1, np.int32)
        self._ids, self._keys = np.zeros(_CAPACITY, np.int64), np.zeros(_CAPACITY)
        self._free_ids = (
            np.flatnonzero(self.factors == 0.0) if self.factors is not None else self._ids[:0]
        )
        self._place[self._free_ids] = -2 - np.arange(len(self._free_ids))
        self._free = np.zeros(len(self._free_ids))

    @classmethod
    def kind_for(cls, options: OnlineOptions) -> type[Learner]:
        """This class; raises InputError for options that the ball cannot follow."""
        if options.radius is None:
            raise InputError(
                "radius: method ball needs the largest L1 norm of the weights; set it to a number above 0"
            )
        if options.step == "adagrad":
            raise InputError(
                "step adagrad: method ball has implicit and explicit steps; choose one of them"
            )
        if options.weights != "float64":
            raise InputError(
                f"weights {options.weights}: method ball keeps its weights as float64; leave the option "
                "out"
            )
        options.check_method("ball")
        if options.batch == 1:
            return cls
        if options.step != "explicit":
            raise InputError(
                f"batch {options.batch}: a step of several rows is explicit; set step to explicit, or "
                "batch to 1"
            )
        return BatchBallLearner

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        """Bytes of the positions and of a heap with all features; less if few have a weight."""
        return n_features * (4 + 16)

    def arrays(self) -> list[np.ndarray]:
        return [self._place, self._ids, self._keys]

    @property
    def rule(self) -> kernels.ball_heap.BallRule:
        """The rule for the kernels, at the rate of the current pass."""
        o = self.options
        assert o.radius is not None
        return kernels.ball_heap.BallRule(
            self.rate, o.power, o.radius, o.step == "implicit", o.intercept
        )

    @property
    def ball(self) -> Any:
        """The state for the kernels, of type :class:`fcl.kernels.ball_heap.Ball`."""
        factors = self._free[:0] if self.factors is None else self.factors
        return kernels.ball_heap.Ball(
            self._place, self._ids, self._keys, self._free, factors, self.state
        )

    def _count(self) -> int:
        """Entries of the heap."""
        return int(self.state[kernels.ball_heap.COUNT])

    def _reserve(self, entries: int) -> None:
        """Make room in the heap for so many entries more."""
        least = min(self._count() + entries, self.n_features)
        if least > len(self._ids):
            capacity = min(max(least, 2 * len(self._ids)), self.n_features)
            self._ids, self._keys = np.resize(self._ids, capacity), np.resize(self._keys, capacity)

    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        self._reserve(len(rows.ids))
        return kernels.ball_heap.learn_ball(*rows, self.rule, self.batch, self.ball)

    @property
    def batch(self) -> Any:
        """None, for a step after each row."""
        return None

    def _settle(self, first: int, last: int, out: Floats) -> None:
        kernels.ball_heap.settle_ball(self.ball, first, last, out)

    def point(self) -> Point:
        """The features with a weight, their weights and the intercept; changes nothing."""
        ids = np.sort(np.concatenate([self._ids[: self._count()], self._free_ids]))
        weights = np.empty(len(ids))
        kernels.ball_heap.weights(self.ball, ids, weights)
        some = weights != 0.0
        return ids[some], weights[some], self.intercept

    # -- saving --------------------------------------------------------------------------------

    def _held(self) -> tuple[npt.NDArray[np.int64], np.ndarray]:
        """As of other learners; the table has the columns of the class's description."""
        count = self._count()
        ids = np.concatenate([self._ids[:count], self._free_ids])
        table = np.zeros((len(ids), _OF_HEAP))
        table[:, 0] = np.concatenate([self._keys[:count], self._free])
        table[:count, 1] = np.arange(1, count + 1)
        order = np.argsort(ids)
        return ids[order], table[order]

    def _fill(self, ids: npt.NDArray[np.int64], table: np.ndarray) -> None:
        count = int(np.count_nonzero(table[:, 1]))
        self._place[self._ids[: self._count()]] = -1
        self.state[:] = 0.0  # an empty heap, until it is filled
        self._reserve(count)
        order = np.argsort(table[:, 1], kind="stable")[len(ids) - count :]
        self._ids[:count], self._keys[:count] = ids[order], table[order, 0]
        self._place[ids[order]] = np.arange(count)
        self._free[:] = table[table[:, 1] == 0.0, 0]
        self.state[kernels.ball_heap.COUNT] = count

    def _fits(self, ids: Any, table: Any, state: Any) -> bool:
        """Whether a saved state describes a heap of features, and the free features beside it."""
        held = ids[table[:, 1] > 0.0]
        places = np.sort(table[table[:, 1] != 0.0, 1])
        keys = np.abs(table[np.argsort(table[:, 1], kind="stable"), 0])[len(ids) - len(held) :]
        nodes = np.arange(1, len(keys))
        return (
            table.dtype == np.float64
            and bool((np.diff(ids) > 0).all())
            and state[kernels.ball_heap.COUNT] == len(held)
            and np.array_equal(places, np.arange(1.0, len(held) + 1.0))
            and np.array_equal(ids[table[:, 1] == 0.0], self._free_ids)
            and bool((keys[(nodes - 1) // 4] <= keys[nodes]).all())
        )


class BatchBallLearner(BallLearner):
    """After each batch of rows, a step along their mean gradient and the projection onto the ball.

    Features of the rows of an incomplete batch cost 16 bytes more, others four bytes more. A saved table
    has two further columns: the sum of a feature's slopes over these rows, and its position among the
    features of the batch, counted from 1.
    """

    columns: ClassVar[int] = _OF_HEAP + 2

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self._batch_place = np.full(n_features, -1, np.int32)
        self._batch_ids, self._sums = np.zeros(_CAPACITY, np.int64), np.zeros(_CAPACITY)
        self._in_batch = np.zeros(1, np.int64)

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        """Bytes of heap and batch if both have all features."""
        return 2 * super().bytes_for(n_features, options)

    def arrays(self) -> list[np.ndarray]:
        return [*super().arrays(), self._batch_place, self._batch_ids, self._sums]

    @property
    def batch(self) -> Any:
        """The incomplete batch for the kernels, of type :class:`fcl.kernels.ball_heap.Batch`."""
        arrays = (self._batch_place, self._batch_ids, self._sums, self._in_batch)
        return kernels.ball_heap.Batch(self.options.batch, *arrays)

    def _reserve(self, entries: int) -> None:
        """Make room for so many entries more in the batch, and in the heap when it takes a step."""
        touched = int(self._in_batch[0])
        super()._reserve(touched + entries)
        least = min(touched + entries, self.n_features)
        if least > len(self._sums):
            capacity = min(max(least, 2 * len(self._sums)), self.n_features)
            self._batch_ids = np.resize(self._batch_ids, capacity)
            self._sums = np.resize(self._sums, capacity)

    def end_pass(self) -> None:
        """Take a step with the rows that are left, and end the pass."""
        kernels.ball_heap.take_step(self.batch, self.rule, self.ball)
        super().end_pass()

    # -- saving --------------------------------------------------------------------------------

    def _held(self) -> tuple[npt.NDArray[np.int64], np.ndarray]:
        of_heap, heap = super()._held()
        count = int(self._in_batch[0])
        touched = self._batch_ids[:count]
        ids = np.union1d(of_heap, touched)
        table = np.zeros((len(ids), self.columns))
        table[np.searchsorted(ids, of_heap), :_OF_HEAP] = heap
        at = np.searchsorted(ids, touched)
        table[at, _OF_HEAP], table[at, _OF_HEAP + 1] = self._sums[:count], np.arange(1, count + 1)
        return ids, table

    def _of_heap(self, ids: Any, table: Any) -> npt.NDArray[np.bool_]:
        """Which rows of a saved table describe the heap or a free feature."""
        return (table[:, 1] != 0.0) | np.isin(ids, self._free_ids)

    def _fits(self, ids: Any, table: Any, state: Any) -> bool:
        places, pending = table[:, _OF_HEAP + 1], state[kernels.online.PENDING]
        touched, of_heap = places[places != 0.0], self._of_heap(ids, table)
        return (
            np.array_equal(np.sort(touched), np.arange(1.0, len(touched) + 1.0))
            and bool((of_heap | (places != 0.0)).all() and (np.diff(ids) > 0).all())
            and pending % 1.0 == 0.0
            and (len(touched) == 0 or pending > 0.0)
            and pending < self.options.batch
            and super()._fits(ids[of_heap], table[of_heap, :_OF_HEAP], state)
        )

    def _fill(self, ids: npt.NDArray[np.int64], table: np.ndarray) -> None:
        of_heap, places = self._of_heap(ids, table), table[:, _OF_HEAP + 1]
        super()._fill(ids[of_heap], table[of_heap, :_OF_HEAP])
        self._batch_place[self._batch_ids[: self._in_batch[0]]] = -1
        self._in_batch[0] = 0
        touched = np.argsort(places, kind="stable")[np.count_nonzero(places == 0.0) :]
        count = len(touched)
        self._reserve(count)
        self._batch_ids[:count], self._sums[:count] = ids[touched], table[touched, _OF_HEAP]
        self._batch_place[ids[touched]] = np.arange(count)
        self._in_batch[0] = count
