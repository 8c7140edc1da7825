"""The contract of online learners.

A learner reads rows as lists of their features (:class:`fcl.features.rows.RowChunk`), in the order in
which they come, and knows no family, no file and no process. It learns the same, bit for bit, however the
rows are cut into chunks and calls, and whether or not its state was saved and restored in between.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import shown
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.features.rows import CHUNK_IDS, RowChunk
from fcl.options import OnlineOptions
from fcl.types import Floats

#: Features whose weights are computed in one call of a kernel.
PIECE = 1 << 22
#: Ids (int64, increasing) and weights (float64) of the features with a weight, and the intercept.
Point = tuple[npt.NDArray[np.int64], Floats, float]


class LearntRows(NamedTuple):
    """Rows to learn, as the first arguments of each method's kernel.

    indptr : of the rows of a chunk from some row on.
    ids, values : of the chunk.
    y, s, margins : of these rows, as of :meth:`Learner.learn`.
    loss : of :mod:`fcl.kernels`.
    """

    indptr: npt.NDArray[np.int64]
    ids: npt.NDArray[Any]
    values: npt.NDArray[Any]
    y: Floats
    s: Floats
    margins: Floats
    loss: Any


class Learner(ABC):
    """An online learner with a table of weights.

    A subclass sets ``name`` and ``columns``, and defines ``_learn`` and ``_settle``.

    n_features : number of features p; ids of chunks are below it.
    factors : float64 (p,), penalty factors, above 0; infinity excludes a feature. None: 1 for all.
    name : name of the method.
    columns : numbers that the table holds for each feature.
    table : (p, columns) of ``options.weights``
    state : float64 (STATES,), see :mod:`fcl.kernels.online`.
    passes : passes that :meth:`end_pass` has ended.
    """

    name: ClassVar[str]
    columns: ClassVar[int] = 2

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        self.n_features = n_features
        self.options = options
        self.factors = None if factors is None else np.ascontiguousarray(factors, np.float64)
        self.table = self.new_table()
        self.state = np.zeros(kernels.online.STATES)
        self.state[kernels.online.GROWTH] = 1.0
        self.state[kernels.online.LIMIT] = self.limit(math.nan)
        self.passes = 0
        #: whether the table has no room for the features of the next row
        self.is_full = False
        self._beside = np.empty(0)

    def new_table(self) -> np.ndarray:
        """The table before the first row."""
        return np.zeros((self.n_features, self.columns), self.options.weights)

    @classmethod
    def kind_for(cls, options: OnlineOptions) -> type[Learner]:
        """The class that learns with these options: this one, unless a method has several."""
        return cls

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        """Bytes of the table of a family, without penalty factors."""
        return n_features * cls.columns * np.dtype(options.weights).itemsize

    @classmethod
    def drops_zeros(cls, options: OnlineOptions) -> bool:
        """Whether a table may keep the weights that are not 0 alone (``options.most_nonzero``)."""
        return False

    @classmethod
    def settled_bytes_for(cls, n_features: int) -> int:
        """Bytes that :meth:`point` needs while it computes weights."""
        return 24 * min(n_features, PIECE)

    @classmethod
    def saved_bytes_for(cls, options: OnlineOptions) -> int:
        """Bytes of the state of a feature that was touched, as :meth:`saved` returns it, with its id."""
        return 8 + cls.columns * np.dtype(options.weights).itemsize

    @classmethod  # noqa: B027  (most methods take all dtypes)
    def check_weights(cls, options: OnlineOptions) -> None:
        """Raise InputError if a table of these weights is not one of the method."""

    def arrays(self) -> list[np.ndarray]:
        """The arrays that grow with the number of features."""
        return [self.table]

    # -- learning ------------------------------------------------------------------------------

    @abstractmethod
    def _learn(self, rows: LearntRows) -> tuple[int, int]:
        """Call the method's kernel; returns what it returns."""

    @abstractmethod
    def _settle(self, first: int, last: int, out: Floats) -> None:
        """Write the weights of the features ``first`` to ``last`` - 1 to ``out``."""

    def _pieces(self) -> Iterator[slice]:
        """All features, as many at a time as a call of a kernel takes."""
        for first in range(0, self.n_features, PIECE):
            yield slice(first, min(first + PIECE, self.n_features))

    def _settled(self, some: slice) -> Floats:
        """The weights of a piece."""
        out = np.empty(some.stop - some.start)
        self._settle(some.start, some.stop, out)
        return out

    def _room(self, rows: LearntRows) -> Floats:
        """Memory for a number for each feature of a row."""
        if len(rows.ids) > len(self._beside):
            self._beside = np.empty(max(len(rows.ids), CHUNK_IDS))
        return self._beside

    def learn(self, chunk: RowChunk, y: Floats, s: Floats, margins: Floats) -> int:
        """Learn the rows of a chunk, one after another.

        chunk : n rows.
        y : float64 (n,), targets; labels are -1 and +1.
        s : float64 (n,), sample weights, finite and at least 0. A row of weight 0 changes nothing.
        margins : float64 (n,), on entry the offsets; overwritten with the margins before each row's
            update, except those of rows of weight 0.

        Returns the number of rows learnt: n, or less if the margin of the next row is not finite, or
            absurdly large, or if the table has no room for its features (:attr:`is_full`). The state is
            then that before this row.
        """
        at, n, loss = 0, len(chunk), self.options.kernel_loss
        while at < n:
            own = (y[at:], s[at:], margins[at:], loss)
            done, why = self._learn(LearntRows(chunk.indptr[at:], chunk.ids, chunk.values, *own))
            at += int(done)
            if why == kernels.online.DIVERGED:
                break
            if why == kernels.online.REBASE:
                self.flush()
        return at

    def limit(self, median: float) -> float:
        """The sum of truncations at which to flush; median : size of the weights, or NaN."""
        return math.inf

    def flush(self) -> None:  # noqa: B027  (only lazy learners need it)
        """Bring all weights up to date; in exact arithmetic this changes nothing."""

    def end_pass(self) -> None:
        """End a pass over the rows: flush, and lower the rate if it decays."""
        self.flush()
        self.passes += 1

    def start_at(self, intercept: float) -> None:
        """Set the intercept before the first row."""
        if self.options.intercept:
            self.state[[kernels.online.INTERCEPT, kernels.online.START]] = intercept

    def start_from(
        self, ids: npt.NDArray[np.int64], weights: Floats, intercept: float = 0.0
    ) -> None:
        """Set weights and intercept before the first row.

        ids : int64 (k,), of features; other weights stay.
        weights : float64 (k,)

        Raises InputError: rows were learnt already, ids and weights do not fit the features, the method
            cannot start from weights, or its table cannot hold one.
        """
        ids, weights = np.asarray(ids), np.asarray(weights, np.float64)
        if self.rows:
            raise InputError(
                f"weights: expected a learner before its first row, got {self.rows:,} rows"
            )
        if ids.shape != weights.shape or ids.ndim != 1 or not np.isfinite(weights).all():
            raise InputError(
                f"weights: expected a finite weight for each id, got {shown(weights.shape)} for ids of "
                f"shape {shown(ids.shape)}"
            )
        if len(ids) and not self._are_features(ids):
            raise InputError(f"ids: expected integers from 0 to {self.n_features - 1:,}")
        if self.factors is not None and np.isinf(self.factors[ids[weights != 0.0]]).any():
            raise InputError(
                "weights: a feature with an infinite penalty factor must have weight 0"
            )
        self._put(ids, weights)
        self.start_at(intercept)

    def _are_features(self, ids: np.ndarray) -> bool:
        """Whether all ids, of any dtype, belong to features."""
        return ids.dtype.kind in "iu" and (
            not len(ids) or bool(0 <= ids.min() <= ids.max() < self.n_features)
        )

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        """Set the weights of some features before the first row."""
        raise InputError(
            f"initial: the method {self.name} starts from weights 0; choose ftrl, truncated-gradient "
            "or ogd"
        )

    @property
    def rate(self) -> float:
        """The rate of the current pass."""
        return self.options.rate * self.options.decay**self.passes

    # -- what was learnt -----------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows learnt so far, over all passes."""
        return int(self.state[0])

    @property
    def weight(self) -> float:
        """The sum of their sample weights."""
        return float(self.state[1])

    @property
    def intercept(self) -> float:
        """The intercept."""
        return float(self.state[kernels.online.INTERCEPT])

    @property
    def clipped(self) -> int:
        """Number of weights at an end of the range that the table can hold."""
        return 0

    def facts(self) -> list[Fact]:
        """What limits the table of weights, as data and in words; nothing without a limit."""
        return []

    def point(self) -> Point:
        """The features with a weight, their weights and the intercept; changes nothing."""
        ids, weights = [np.empty(0, np.int64)], [np.empty(0)]
        for some in self._pieces():
            out = self._settled(some)
            kept = np.flatnonzero(out)
            ids.append(some.start + kept)
            weights.append(out[kept])
        return np.concatenate(ids), np.concatenate(weights), self.intercept

    # -- saving --------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """What :meth:`restore` needs to continue with the same bits.

        Returns ``state`` (float64), ``passes`` (int), ``ids`` (int64 (k,), the features that were
            touched) and ``table`` ((k, columns), their rows of the table).
        """
        ids, table = self._held()
        return {"state": self.state.copy(), "passes": self.passes, "ids": ids, "table": table}

    def _held(self) -> tuple[npt.NDArray[np.int64], np.ndarray]:
        """The features that were touched, and their rows of the saved table."""
        touched = self._touched()
        return touched, self.table[touched]

    def _touched(self) -> npt.NDArray[np.int64]:
        """Features of which something is kept, piece by piece: a mask would take a byte for each."""
        found = [np.empty(0, np.int64)]
        for some in self._pieces():
            found.append(some.start + np.flatnonzero(self._is_touched(some)))
        return np.concatenate(found)

    def _is_touched(self, some: slice) -> npt.NDArray[np.bool_]:
        """Whether something is kept of each feature of a piece."""
        return np.any(self.table[some] != 0, axis=1)

    def is_state(self, state: np.ndarray) -> bool:
        """Whether a saved array can be ``state``: a whole number of rows, finite sums, none below 0."""
        if (
            state.shape != self.state.shape
            or not np.isfinite(np.delete(state, kernels.online.LIMIT)).all()
        ):
            return False
        sums = state[
            [
                kernels.online.WEIGHT,
                kernels.online.PENDING,
                kernels.online.SHRINK,
                kernels.online.LIMIT,
                kernels.online.SQUARES,
            ]
        ]
        rows = state[kernels.online.ROWS]
        return bool(
            (sums >= 0.0).all()
            and state[kernels.online.GROWTH] >= float(self.state[kernels.online.GROWTH] > 0.0)
            and 0.0 <= rows < 2.0**53
            and rows % 1.0 == 0.0
        )

    def restore(self, saved: dict[str, Any]) -> None:
        """Set the state from :meth:`saved`; raises InputError if it is not of this kind of learner."""
        ids, table, state = (np.asarray(saved[name]) for name in ("ids", "table", "state"))
        if not (
            self.is_state(state)
            and table.shape == (len(ids), self.columns)
            and table.dtype.kind == "f"
            and np.isfinite(table).all()
            and self._are_features(ids)
            and self._fits(ids, table, state)
        ):
            raise InputError(
                f"the saved state is not one of {self.name} over {self.n_features:,} features with "
                f"{self.options.weights} weights and these penalty factors; resume with the options of "
                "the first run"
            )
        self._fill(ids, table)
        self.state[:] = state
        self.passes = int(saved["passes"])

    def _fits(self, ids: Any, table: Any, state: Any) -> bool:
        """Whether a saved table of finite floats is one of this learner."""
        return bool(table.dtype == self.table.dtype)

    def _fill(self, ids: npt.NDArray[np.int64], table: np.ndarray) -> None:
        """Set what is kept of some features from a saved table, and keep nothing of all others."""
        self.table[:] = 0.0
        self.table[ids] = table


def common_factor(factors: Floats | None) -> tuple[float, Floats | None]:
    """Split factors into a number and the rest: None if all are equal, else factors.

    Excluded features keep their infinite factor.
    """
    if factors is None:
        return 1.0, None
    finite = factors[np.isfinite(factors)]
    if not len(finite) or (finite != finite[0]).any():
        return 1.0, factors
    rest = None if len(finite) == len(factors) else factors / finite[0]
    return float(finite[0]), rest
