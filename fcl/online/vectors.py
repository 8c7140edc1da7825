"""Learners over a vector of weights and a vector of what else they keep, each of its own dtype.

Prediction reads weights alone, so that they are not interleaved. On a grid (``weights`` qN.M) weights are
rounded at random (Golovin, Sculley, McMahan and Young, "Large-scale learning with less RAM via
randomization", ICML 2013).
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import shortened
from fcl.errors import InputError
from fcl.facts import Fact
from fcl.files import schema
from fcl.online.base import Learner
from fcl.online.table import WeightGrid, anonymous, read_pieces, write_pieces
from fcl.options import OnlineOptions
from fcl.types import Floats
from fcl.units import counted

#: The header of a checkpoint.
_SAVED = schema.record(passes=schema.whole(), weights=schema.text)


class VectorLearner(Learner):
    """A learner with a vector of weights, and one of another dtype.

    grid : of the weights; None for float numbers.
    weights : int8, int16 or int32 in steps of the grid, or float32 or float64 (p,)
    others : (p,) or (0,), what else the learner keeps of a feature: numbers of at least 0.
    """

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self.grid = grid_of(options)
        weights, others = self.kinds(options)
        self.weights = anonymous(n_features, weights)
        self.others = anonymous(0, np.uint8) if others is None else anonymous(n_features, others)

    def new_table(self) -> np.ndarray:
        """Nothing: the vectors take its place."""
        return np.zeros((0, self.columns), np.int8)

    @classmethod
    @abstractmethod
    def kinds(cls, options: OnlineOptions) -> tuple[np.dtype[Any], np.dtype[Any] | None]:
        """The dtypes of both vectors; None for a second one without entries."""

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        return n_features * sum(kind.itemsize for kind in cls.kinds(options) if kind is not None)

    @classmethod
    def saved_bytes_for(cls, options: OnlineOptions) -> int:
        return 8 + 2 * _saved_type(options).itemsize

    def arrays(self) -> list[np.ndarray]:
        return [self.weights, self.others]

    @property
    def largest(self) -> float:
        """The largest weight, in steps of the grid if there is one; infinite without a limit."""
        if self.options.max_weight is None:
            return math.inf if self.grid is None else float(self.grid.limit)
        if self.grid is None:
            return self.options.max_weight
        return float(self.grid.steps_of(self.options.max_weight))

    @property
    def grid_rule(self) -> kernels.tables.GridRule:
        """The rule of the grid for the kernels."""
        assert self.grid is not None
        return kernels.tables.GridRule(self.grid.step, self.largest, self.options.seed, self.passes)

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
        """As :attr:`Learner.clipped`; a grid with a larger N would have room for these weights."""
        if math.isinf(self.largest):
            return 0
        return int(np.count_nonzero(np.abs(self.weights) == self.largest))

    def facts(self) -> list[Fact]:
        """The grid of the weights, and how many of them are at the ends of their range."""
        if math.isinf(self.largest):
            return []
        at_ends = counted(self.clipped, "weight")
        if self.grid is None:
            return [Fact("table", f"{at_ends} at +-{self.largest:g}", self.clipped)]
        grid, largest = self.grid, self.largest * self.grid.step
        words = f"{grid.text}, in steps of 2^-{grid.m}; {at_ends} at +-{largest:g}"
        if self.clipped and largest < grid.largest:
            words += ", the ends of the range: a larger max_weight has room for more"
        elif self.clipped and grid.m:
            finer = f"--table q{grid.n + 1}.{grid.m - 1}"
            words += f", the ends of the range: {finer} has room for more"
        return [Fact("table", words, self.clipped)]

    # -- saving --------------------------------------------------------------------------------

    def _held(self) -> tuple[npt.NDArray[np.int64], np.ndarray]:
        """As of other learners; the columns of the table are both vectors."""
        touched = self._touched()
        others = self.others[touched] if len(self.others) else np.zeros(len(touched), np.uint8)
        table = np.column_stack([self.weights[touched], others])
        return touched, table.astype(_saved_type(self.options))

    def _is_touched(self, some: slice) -> npt.NDArray[np.bool_]:
        touched: npt.NDArray[np.bool_] = self.weights[some] != 0
        if len(self.others):
            touched |= self.others[some] != 0
        return touched

    def _fits(self, ids: Any, table: Any, state: Any) -> bool:
        whole, most = self.others.dtype.kind == "u", 0.0
        if len(self.others):
            most = np.iinfo(self.others.dtype).max if whole else math.inf
        return bool(
            (self.grid is None or (table[:, 0] % 1 == 0).all())
            and (not whole or (table[:, 1] % 1 == 0).all())
            and (table[:, 1] >= 0).all()
            and (np.abs(table[:, 0]) <= self.largest).all()
            and (table[:, 1] <= most).all()
        )

    def _fill(self, ids: npt.NDArray[np.int64], table: np.ndarray) -> None:
        self.weights[:], self.others[:] = 0, 0
        self.weights[ids] = table[:, 0]
        if len(self.others):
            self.others[ids] = table[:, 1]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint in pieces, which takes little memory however large the table is."""
        header = {"passes": self.passes, "weights": self.options.weights}
        write_pieces(path, header, self._vectors)

    @property
    def _vectors(self) -> dict[str, np.ndarray]:
        return {"weights": self.weights, "counts": self.others, "state": self.state}

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


def grid_of(options: OnlineOptions) -> WeightGrid | None:
    """The grid of the weights; None for float numbers."""
    return None if options.weights.startswith("float") else WeightGrid.parse(options.weights)


def _saved_type(options: OnlineOptions) -> np.dtype[Any]:
    """The dtype of a saved table, which holds the numbers exactly."""
    grid = grid_of(options)
    return np.dtype(np.float32 if grid is not None and grid.bits <= 24 else np.float64)
