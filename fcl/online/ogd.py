"""Online gradient descent with a rate for each feature, over tables of two or three bytes a weight."""

from __future__ import annotations

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
    randomization", ICML 2013, algorithm 2: weights ``qN.M`` are int16 with randomised rounding, and
    events are counted in 8 bits; weights of float32 and float64 have exact counts.

    Attributes
    ----------
    grid : Grid or None
        Of the weights; None for float numbers.
    weights : int16, float32 or float64 (p,)
        In steps of the grid.
    counts : uint8, or uint32 for exact counts (p,)
    """

    name = "ogd"

    def __init__(
        self, n_features: int, options: OnlineOptions, factors: Floats | None = None
    ) -> None:
        super().__init__(n_features, options, factors)
        self.grid = _grid(options)
        kinds = _kinds(options)
        self.weights, self.counts = (anonymous(n_features, kind) for kind in kinds)
        self._up, self._events = np.empty(0, np.uint64), np.empty(0)
        if kinds[1] == np.uint8:
            self._up, self._events = morris()

    def new_table(self) -> np.ndarray:
        """Nothing: weights and counts are vectors, since prediction reads weights alone."""
        return np.zeros((0, self.columns), np.int16)

    @classmethod
    def check_weights(cls, options: OnlineOptions) -> None:
        _grid(options)

    @classmethod
    def bytes_for(cls, n_features: int, options: OnlineOptions) -> int:
        return n_features * sum(np.dtype(kind).itemsize for kind in _kinds(options))

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
        return TableRule(self.rate, o.alpha, o.l1_ratio, o.intercept, step, o.seed)

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
        if self.grid is not None:
            self.grid.check(float(np.abs(weights).max(initial=0.0)))
            weights = np.rint(weights / self.grid.step)
        self.weights[ids] = weights

    @property
    def clipped(self) -> int:
        """As :attr:`Learner.clipped`; a grid with a larger N would have room for these weights."""
        if self.grid is None:
            return 0
        return int(np.count_nonzero(np.abs(self.weights) == np.iinfo(np.int16).max))

    # -- saving --------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        """As :meth:`Learner.saved`; the columns of ``table`` are weights and counts."""
        touched = self._touched()
        table = np.column_stack([self.weights[touched], self.counts[touched]])
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
            found.append(
                first + np.flatnonzero((self.counts[some] != 0) | (self.weights[some] != 0))
            )
        return np.concatenate(found)

    def restore(self, saved: dict[str, Any]) -> None:
        ids, table, state = (np.asarray(saved[name]) for name in ("ids", "table", "state"))
        most = np.iinfo(_kinds(self.options)[1]).max
        fits = (
            self.is_state(state)
            and table.shape == (len(ids), 2)
            and ids.dtype.kind in "iu"
            and (not len(ids) or 0 <= ids.min() <= ids.max() < self.n_features)
            and np.isfinite(table).all()
            and (table[:, 0 if self.grid is not None else 1 :] % 1 == 0).all()
            and (table[:, 1] >= 0).all()
            and (self.grid is None or (np.abs(table[:, 0]) <= np.iinfo(np.int16).max).all())
            and (table[:, 1] <= most).all()
        )
        if not fits:
            raise InputError(
                f"the saved state is not one of {self.name} over {self.n_features:,} features with "
                f"{self.options.weights} weights; resume with the options of the first run"
            )
        self.state[:], self.passes = state, int(saved["passes"])
        for vector, column in ((self.weights, table[:, 0]), (self.counts, table[:, 1])):
            vector[:] = 0
            vector[ids] = column

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
    return np.dtype(np.float64 if options.weights.startswith("float") else np.float32)


def _kinds(options: OnlineOptions) -> tuple[Any, Any]:
    """The dtypes of weights and counts."""
    if options.weights.startswith("float"):
        return np.dtype(options.weights), np.uint32
    return np.int16, np.uint8
