"""Good and bad feature classes for tests, in a module that other processes can import."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np

from fcl.features import Columns, Generator


class Tanh(Generator):
    """tanh(scale x_j): a good class, with only the required methods."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1]

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return np.tanh(self.scale * block[:, ids])


class Above(Tanh):
    """1[x_j > scale / 10 times the mean in the sample]: binary, with all optional methods."""

    binary = True

    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.cut_ = (0.1 * self.scale) * sample.mean(axis=0)

    def prepare(self, block: Any) -> np.ndarray:
        return (block > self.cut_).astype(np.uint8)

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids]

    def gradients(self, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        return residuals @ block[:, first:last].astype(np.float64)

    def largest(self, block: Any) -> float:
        return float(block.max())

    def margins(self, ids: Any, weights: Any, block: Any) -> np.ndarray:
        return block[:, ids].astype(np.float64) @ weights

    def describe(self, feature: int) -> str:
        return f"x{feature} > {self.cut_[feature]:.6g}"


class Sparse(Tanh):
    """|x_j| of sparse rows."""

    rows = "sparse"

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return np.abs(block[:, ids].toarray())


class Stored(Tanh):
    """Numbers as they are stored."""

    rows = "any"


class NoOptions(Generator):
    """A class without __init__."""

    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1]

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids]


# -- bad ones: what check_generator has to find ----------------------------------------------------


class LostOption(Tanh):
    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids]


class ChangedOption(Tanh):
    def __init__(self, scale: float = 1.0) -> None:
        self.scale = 2.0 * scale


class ArrayOption(Tanh):
    def __init__(self, scale: Any = None) -> None:
        self.scale = np.ones(3)


class NoNumber(Tanh):
    def fit(self, sample: Any) -> None:
        pass


class FractionalNumber(Tanh):
    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1] / 2


class RandomFit(Tanh):
    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.shift_ = np.random.default_rng().normal(size=self.n_features)

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] + self.shift_[ids]


class FailingFit(Tanh):
    def fit(self, sample: Any) -> None:
        raise ZeroDivisionError("no rows like that")


class Transposed(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return super().columns(ids, block).T


class Complex(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return super().columns(ids, block) + 0j


class AList(Tanh):
    def columns(self, ids: Any, block: Any) -> Any:
        return super().columns(ids, block).tolist()


class NotFinite(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.log(block[:, ids])


class NotBinary(Tanh):
    binary = True


class Quarters(Tanh):
    """x_j rounded to quarters, from -31.75 to 31.75: a good class with a step."""

    step = 0.25

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return np.clip(np.rint(4.0 * self.scale * block[:, ids]), -127, 127) / 4.0


class NoSteps(Tanh):
    step = 0.25


class TooManySteps(Quarters):
    step = 0.0078125


class RoundedStep(Quarters):
    step = 0.1


class BothSteps(Quarters):
    binary = True


class Raises(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        raise KeyError("table")


class Writes(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        block -= 1.0
        return block[:, ids]


class Centered(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] - block[:, ids].mean(axis=0)


class ScaledByBlock(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] / np.abs(block[:, ids]).max(axis=0)


class PreparesCentered(Tanh):
    def prepare(self, block: Any) -> np.ndarray:
        return block - block.mean(axis=0)


class SignsOfCentered(Tanh):
    binary = True

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] > block[:, ids].mean(axis=0)


class SparseByBlock(Tanh):
    rows = "sparse"

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids].toarray() / block[:, ids].sum(axis=0)


class AtACut(Tanh):
    """1[value > cut] with cuts at the values of one row, whose result depends on rounding."""

    binary = True

    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.n_rows_ = len(sample)
        self.cut_ = np.array(sample[4])

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] > self.cut_[ids] * (1.0 + 1e-15 * (len(block) < self.n_rows_))


class SlightlyWrongMargins(Above):
    def margins(self, ids: Any, weights: Any, block: Any) -> np.ndarray:
        return 1.0005 * super().margins(ids, weights, block)


class RanksFeatures(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids] * (1.0 + np.arange(len(ids)))


class Counting(Tanh):
    calls = 0

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        type(self).calls += 1
        return super().columns(ids, block) + 0.01 * self.calls


class ByProcess(Tanh):
    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return super().columns(ids, block) * (1.0 + hash("fcl") % 97)


class Float32Gradients(Above):
    def gradients(self, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        return residuals.astype(np.float32) @ block[:, first:last].astype(np.float32)


class NoLargest(Tanh):
    def gradients(self, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        return residuals @ self.columns(np.arange(first, last), block)


class SmallLargest(NoLargest):
    def largest(self, block: Any) -> float:
        return 0.01


class WrongMargins(Above):
    def margins(self, ids: Any, weights: Any, block: Any) -> np.ndarray:
        return super().margins(ids, np.abs(weights), block)


class PreparesRanks(Above):
    binary = False

    def prepare(self, block: Any) -> np.ndarray:
        return np.argsort(np.argsort(block, axis=0), axis=0).astype(np.uint8)


class PreparesFewer(Above):
    def prepare(self, block: Any) -> np.ndarray:
        made = super().prepare(block)
        return made[:, (made != made[0]).any(axis=0)] if len(made) > 1 else made[:, :1]


class SameWords(Tanh):
    def describe(self, feature: int) -> str:
        return "a feature"


class NoWords(Tanh):
    def describe(self, feature: int) -> str:
        return ""


class Forgets(Above):
    def fit(self, sample: Any) -> None:
        super().fit(sample)
        self.cut = self.cut_
        del self.cut_

    def prepare(self, block: Any) -> np.ndarray:
        return (block > getattr(self, "cut", 0.3)).astype(np.uint8)

    def describe(self, feature: int) -> str:
        return f"x{feature}"


# -- bad ones that begin well: for the drivers -----------------------------------------------------


class Later(Tanh):
    """Fails as ``how`` says in the column of feature 0, on blocks whose first value is ``mark``.

    If ``after`` names a file, it fails only once that file exists.
    """

    def __init__(self, how: str = "", mark: float = 0.0, after: str = "") -> None:
        self.how, self.mark, self.after = how, mark, after

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        made = np.asarray(block[:, ids], np.float64)
        if ids[0] or block[0, 0] != self.mark or (self.after and not os.path.exists(self.after)):
            return made
        if self.how == "shape":
            return made[:-1]
        if self.how == "dtype":
            return made.astype(str)
        if self.how == "nan":
            made[3, 0] = np.nan
        if self.how == "huge":
            made[3, 0] = 1e200
        if self.how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.how == "raise":
            raise RuntimeError("the table is gone")
        return made


#: A value at which some classes fail.
RARE = -7.0


class Rare(Tanh):
    """Fails as ``how`` says if a value is ``RARE``."""

    def __init__(self, how: str) -> None:
        self.how = how

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return self.wrong(block[:, ids])

    def wrong(self, values: np.ndarray) -> np.ndarray:
        if self.how == "raise" and (values == RARE).any():
            raise KeyError("no such")
        return np.where(values == RARE, np.nan, values)


class RareSparse(Rare):
    rows = "sparse"

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return self.wrong(block[:, ids].toarray())


class RarePrepared(Rare):
    def prepare(self, block: Any) -> np.ndarray:
        return self.wrong(block)

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        return block[:, ids]


class Unsteady(Generator):
    """Makes another column for a feature at each call; if ``sly``, only on blocks of few rows."""

    def __init__(self, binary: bool = False, sly: bool = True) -> None:
        self.binary, self.sly = binary, sly

    def fit(self, sample: Any) -> None:
        self.n_features = sample.shape[1]
        self.n_sample_ = len(sample)

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        made = np.array(block[:, ids])
        # the sly class is consistent on the large blocks that are checked before the start
        if not self.sly or len(block) < self.n_sample_ // 2:
            made += np.random.default_rng().normal(size=made.shape)
        return made > 0.0 if self.binary else made


# -- real and binary features of every scale: for random problems ------------------------------------


class Hinges(Generator):
    """max(0, x_j - c) for k cuts c of each column, evenly spaced over its range in the sample."""

    def __init__(self, k: int = 5) -> None:
        self.k = k

    def fit(self, sample: Any) -> None:
        self.low_ = sample.min(axis=0).astype(np.float64)
        self.width_ = sample.max(axis=0).astype(np.float64) - self.low_
        self.n_features = self.k * sample.shape[1]

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        j, q = ids // self.k, ids % self.k
        cut = self.low_[j] + self.width_[j] * (q + 0.5) / self.k
        return np.maximum(0.0, block[:, j].astype(np.float64) - cut)


class Pairs(Generator):
    """1[x_i > t and x_j > t] for all pairs of columns: i < j and j < i are equal features."""

    binary = True

    def __init__(self, t: float = 0.5) -> None:
        self.t = t

    def fit(self, sample: Any) -> None:
        self.n_columns_ = sample.shape[1]
        self.n_features = sample.shape[1] ** 2

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        above = block > self.t
        return above[:, ids // self.n_columns_] & above[:, ids % self.n_columns_]


class Listed(Hinges):
    """The hinges, with their nonzero features listed row by row.

    fault : what is wrong with the list; empty: nothing.
    """

    def __init__(self, k: int = 5, fault: str = "") -> None:
        super().__init__(k)
        self.fault = fault

    def nonzeros(self, block: Any) -> Any:
        made = self.columns(np.arange(self.n_features), block)
        rows, ids = np.nonzero(made)
        values = made[rows, ids]
        indptr = np.searchsorted(rows, np.arange(len(made) + 1))
        if self.fault == "values":
            values = 1.001 * values
        if self.fault == "missing":
            ids = ids.copy()
            ids[ids == ids[-1]] = self.n_features
        if self.fault == "twice":
            ids = np.zeros_like(ids)
        if self.fault == "short":
            indptr = indptr[:-1]
        return indptr, ids, values


class OwnColumns(Columns):
    """The columns of the rows, by a class of the user."""

    name = ""
