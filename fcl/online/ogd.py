"""Online gradient descent with a rate for each feature, over tables of a few bytes a weight."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import shortened
from fcl.errors import InputError
from fcl.features.rows import RowChunk
from fcl.model import schema
from fcl.online.base import PIECE, Floats, Learner
from fcl.online.options import OnlineOptions
from fcl.online.table import Grid, anonymous, morris, read_pieces, write_pieces

if TYPE_CHECKING:
    from fcl.kernels.tables import TableRule

__all__ = ["Ogd"]

#: The header of a checkpoint.
_SAVED = schema.record(passes=schema.whole(), weights=schema.text)


class Ogd(Learner):
    """The rate of a feature is ``rate`` / sqrt(its events), the rows in which its gradient was not 0.

    D. Golovin, D. Sculley, H. B. McMahan and M. Young, "Large-scale learning with less RAM via
    randomization", ICML 2013, algorithm 2: weights ``qN.M`` have randomised rounding, and events are
    counted in 8 bits; weights of float32 and float64 have exact counts.

    With ``gamma`` a weight is rounded to steps of gamma times its rate, so that a table of variable width
    needs few bits for rare features; this table has the width of the finest step. ``rates="global"`` is
    the control of the paper's Figure 2: all features have the rate ``rate`` / sqrt(row), and there are no
    counts and no penalty.

    Attributes
    ----------
    grid : Grid or None
        Of the weights; None for float numbers.
    weights : int8, int16 or int32 in steps of the grid, or float32 or float64 (p,)
    counts : uint8, or uint32 for exact counts (p,); (0,) with one rate for all features
    """

    name = "ogd"

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self.grid = _grid(options)
        kinds = _kinds(options)
        self.weights = anonymous(n_features, kinds[0])
        self.counts = anonymous(n_features if self.has_counts else 0, kinds[1])
        self._up, self._events = np.empty(0, np.uint64), np.empty(0)
        if kinds[1] == np.uint8:
            self._up, self._events = morris()

    def new_table(self) -> np.ndarray:
        """Nothing: weights and counts are vectors, since prediction reads weights alone."""
        return np.zeros((0, self.columns), np.int8)

    @property
    def has_counts(self) -> bool:
        """Whether each feature has a rate of its own."""
        return self.options.rates == "feature"

    @classmethod
    def check_weights(cls, options: OnlineOptions) -> None:
        grid = _grid(options)
        if grid is None and options.gamma is not None:
            raise InputError(
                f"gamma: expected weights qN.M, whose rounding it sets, got {options.weights}; choose a "
                "grid such as q2.13, or leave gamma out"
            )
        if grid is not None and options.max_weight is not None:
            grid.steps_of(options.max_weight)

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        weights, counts = (np.dtype(kind).itemsize for kind in _kinds(options))
        return n_features * (weights + (counts if options.rates == "feature" else 0))

    @classmethod
    def saved_bytes_for(cls, options: OnlineOptions) -> int:
        return 8 + 2 * _saved_type(options).itemsize

    def arrays(self) -> list[np.ndarray]:
        return [self.weights, self.counts]

    @property
    def rule(self) -> TableRule:
        """The rule for the kernels."""
        from fcl.kernels.tables import TableRule

        o, step = self.options, 0.0 if self.grid is None else self.grid.step
        gravity = o.alpha if self.has_counts else 0.0
        given = (self.rate, gravity, o.l1_ratio, o.intercept, step, self.largest, o.gamma or 0.0)
        return TableRule(*given, o.seed)

    @property
    def largest(self) -> float:
        """The largest weight, in steps of the grid if there is one; infinite without a limit."""
        if self.options.max_weight is None:
            return math.inf if self.grid is None else float(self.grid.limit)
        if self.grid is None:
            return self.options.max_weight
        return float(self.grid.steps_of(self.options.max_weight))

    @property
    def mean_bits(self) -> float:
        """Mean bits of a weight in a table of variable width, without its keys, by the current rates.

        A weight has its sign and the bits of the multiples of its step; a feature without events has the
        rate of the first.
        """
        from fcl.kernels.tables import coarseness

        if self.grid is None:
            return 8.0 * self.weights.itemsize
        rates = self.rate / np.sqrt(np.maximum(self._events, 1.0))
        seen = np.zeros(len(rates), np.int64)
        if not self.has_counts:
            rates, seen = np.array([self.rate / math.sqrt(self.rows + 1.0)]), np.array([1])
        for first in range(0, len(self.counts), PIECE):
            seen += np.bincount(self.counts[first : first + PIECE], minlength=len(seen))
        coarse = np.array([coarseness(self.rule, rate) for rate in rates])
        bits = 1.0 + np.ceil(np.log2(np.floor(self.largest / coarse) + 1.0))
        return float(bits @ seen / seen.sum()) if seen.sum() else 0.0

    def _learn(
        self, chunk: RowChunk, indptr: npt.NDArray[np.int64], y: Floats, s: Floats, margins: Floats
    ) -> tuple[int, int]:
        from fcl.kernels.tables import learn_table

        given = (indptr, chunk.ids, chunk.values, y, s, margins, self.options.kernel_loss)
        own = (self.factors, self._up, self._events, self.weights, self.counts, self.state)
        done, why = learn_table(*given, self.rule, self.passes, *own)
        return int(done), int(why)

    def _settle(self, first: int, last: int, out: Floats) -> None:
        np.multiply(self.weights[first:last], 1.0 if self.grid is None else self.grid.step, out=out)

    def _put(self, ids: npt.NDArray[np.int64], weights: Floats) -> None:
        """Set weights; a grid gets the nearest numbers."""
        size = float(np.abs(weights).max(initial=0.0))
        if self.grid is not None:
            self.grid.check(size)
            weights = np.rint(weights / self.grid.step)
        if size > (self.options.max_weight or math.inf):
            raise InputError(
                f"initial: expected weights up to max_weight {self.options.max_weight:g}, got one of "
                f"size {size:g}; raise max_weight"
            )
        self.weights[ids] = weights

    @property
    def clipped(self) -> int:
        """As :attr:`Learner.clipped`; a grid with a larger N would have room for these weights.

        With ``gamma`` a coarse step may end below the range: its last multiple counts.
        """
        if math.isinf(self.largest):
            return 0
        if not self.options.gamma:
            return int(np.count_nonzero(np.abs(self.weights) == self.largest))
        return int(np.count_nonzero(2.0 * np.abs(self.weights) > self.largest))

    # -- saving --------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """As :meth:`Learner.saved`; the columns of ``table`` are weights and counts."""
        touched = self._touched()
        counts = self.counts[touched] if self.has_counts else np.zeros(len(touched), np.uint8)
        table = np.column_stack([self.weights[touched], counts])
        return {
            "state": self.state.copy(),
            "passes": self.passes,
            "ids": touched,
            "table": table.astype(_saved_type(self.options)),
        }

    def _touched(self) -> npt.NDArray[np.int64]:
        """Features with events or a weight, found piece by piece: a mask would take a byte for each."""
        found = [np.empty(0, np.int64)]
        for first in range(0, self.n_features, PIECE):
            some = slice(first, first + PIECE)
            touched = self.weights[some] != 0
            if self.has_counts:
                touched |= self.counts[some] != 0
            found.append(first + np.flatnonzero(touched))
        return np.concatenate(found)

    def restore(self, saved: dict[str, Any]) -> None:
        ids, table, state = (np.asarray(saved[name]) for name in ("ids", "table", "state"))
        most = np.iinfo(_kinds(self.options)[1]).max if self.has_counts else 0
        fits = (
            self.is_state(state)
            and table.shape == (len(ids), 2)
            and ids.dtype.kind in "iu"
            and (not len(ids) or 0 <= ids.min() <= ids.max() < self.n_features)
            and np.isfinite(table).all()
            and (table[:, 0 if self.grid is not None else 1 :] % 1 == 0).all()
            and (table[:, 1] >= 0).all()
            and (np.abs(table[:, 0]) <= self.largest).all()
            and (table[:, 1] <= most).all()
        )
        if not fits:
            raise InputError(
                f"the saved state is not one of {self.name} over {self.n_features:,} features with "
                f"{self.options.weights} weights; resume with the options of the first run"
            )
        self.state[:], self.passes = state, int(saved["passes"])
        self.weights[:], self.counts[:] = 0, 0
        self.weights[ids] = table[:, 0]
        if self.has_counts:
            self.counts[ids] = table[:, 1]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint in pieces, which takes little memory however large the table is."""
        header = {"passes": self.passes, "weights": self.options.weights}
        write_pieces(path, header, self._vectors)

    @property
    def _vectors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights, "counts": self.counts, "state": self.state}

    def load(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of :meth:`save`, in a learner that has learnt nothing.

        Raises InputError if it is of other options.
        """
        header = read_pieces(path, self._vectors, _SAVED)
        if header["weights"] != self.options.weights:
            raise InputError(
                f"{os.fspath(path)}: expected weights {self.options.weights}, got "
                f"{shortened(header['weights'])}; resume with the options of the first run"
            )
        if not self.is_state(self.state) or not np.isfinite(self.weights).all():
            raise InputError(f"{os.fspath(path)}: expected finite weights and sums; it is damaged")
        self.passes = header["passes"]


def _grid(options: OnlineOptions) -> Grid | None:
    return None if options.weights.startswith("float") else Grid.parse(options.weights)


def _saved_type(options: OnlineOptions) -> np.dtype[Any]:
    """The dtype of a saved table, which holds the numbers exactly."""
    grid = _grid(options)
    return np.dtype(np.float32 if grid is not None and grid.bits <= 24 else np.float64)


def _kinds(options: OnlineOptions) -> tuple[Any, Any]:
    """The dtypes of weights and counts."""
    grid = _grid(options)
    if grid is None:
        return np.dtype(options.weights), np.uint32
    return grid.dtype, np.uint8
