"""What the solver asks of a family of features, and nothing more.

A family addresses its features by integer ids 0 .. n_features - 1 and knows nothing of solvers. It
prepares blocks of raw rows once; on prepared rows it makes columns, margins and prices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError
from fcl.features.prices import Floats, Ids, Pricer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fcl.data.base import RowReader
    from fcl.data.prepared import PreparedRows

__all__ = [
    "FEATURES_LIMIT",
    "MOST_STEPS",
    "BitColumns",
    "ColumnMaker",
    "Columns",
    "DenseColumns",
    "Family",
    "Floats",
    "Ids",
    "MeasuringPricer",
    "Pricer",
    "Scorer",
    "StepColumns",
    "check_features",
    "column_bytes",
    "is_sampled",
]

#: A family has fewer features than that: ids are int64, and sums of a few of them have to be as well.
FEATURES_LIMIT = 1 << 62
#: Most rows for which columns are cached in float64. Where scales differ by 10^6 and the penalty is weak,
#: rounding to float32 changes the problem so much that its solution violates the optimality conditions of
#: the original.
FINE_ROWS = 4096
#: Steps of the largest value of a :class:`StepColumns`.
MOST_STEPS = 127


@dataclass(frozen=True)
class BitColumns:
    """Binary columns on one row block, as bitmaps.

    bits : uint64 (c, >= ceil(n_rows / 64)); row i is bit i % 64 of word i // 64, further bits are 0.
    """

    bits: npt.NDArray[np.uint64]
    n_rows: int


@dataclass(frozen=True)
class DenseColumns:
    """Columns of any values on one row block.

    values : float32 or float64 (c, n_rows), C-contiguous. The cache keeps the dtype.
    """

    values: np.ndarray
    n_rows: int


@dataclass(frozen=True)
class StepColumns:
    """Columns of small multiples of one step on one row block.

    steps : int8 (c, n_rows), C-contiguous, from -127 to 127; values are ``step`` times them, which
    float32 holds exactly.
    """

    steps: npt.NDArray[np.int8]
    n_rows: int
    step: float


Columns = BitColumns | DenseColumns | StepColumns


def value_type(n_rows: int) -> type[np.float32] | type[np.float64]:
    """The type in which values of columns of so many rows are made for the cache."""
    return np.float64 if n_rows <= FINE_ROWS else np.float32


class ColumnMaker(ABC):
    """Makes columns from prepared rows, in its own buffers.

    batch : most columns that one call of :meth:`make` takes.
    """

    def __init__(self, buffer_bytes: int, column_bytes: float) -> None:
        self.batch = max(1, min(1024, int(buffer_bytes // max(1, column_bytes))))

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """The order in which these columns are cheapest to make: by id, unless a family has another."""
        return np.argsort(ids, kind="stable")

    @abstractmethod
    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of at most ``batch`` features, in that order, one entry a row block.

        Valid until the next call.
        """


@runtime_checkable
class MeasuringPricer(Protocol):
    """A pricer of standardised features, whose standard deviations it measures before anything else."""

    def measure(self, s: Floats, parts: range) -> None:
        """Measure the features of some parts over all rows.

        s : float64 (n_rows,), weights of the rows, above 0.
        """


class Scorer(Protocol):
    """A linear model in the family's features, ready for raw rows."""

    def margins(self, rows: Any) -> Floats:
        """The margins, without the intercept, of a block of raw rows."""


class Family(ABC):
    """A family of features, bound to the shape of the rows.

    What most families have in common is here: all features are priced in every pass, under one penalty,
    from columns of any values in blocks of 65,536 rows.
    """

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features."""

    def features_in_pass(self, number: int) -> range:
        """The features that pass ``number`` prices: all of them, or a sample if they are too many.

        A sampled family draws other features in each pass. The pass prices watched features as well.
        """
        return range(self.n_features)

    @property
    @abstractmethod
    def n_price_parts(self) -> int:
        """Parts that its pricers fall into."""

    @property
    def integer_bound(self) -> float:
        """Largest |phi_j(x)| of the features with integer sums; 0 without such features."""
        return 0.0

    @property
    def binary(self) -> bool:
        """Whether all values are 0 or 1."""
        return False

    @property
    def step(self) -> float:
        """A step of which all values are exact multiples, -127 to 127 times; 0 for any values."""
        return 0.0

    @property
    @abstractmethod
    def name(self) -> str:
        """How it is called in messages."""

    @property
    def verifies_columns(self) -> bool:
        """Whether the trainer verifies cached columns against their prices.

        Cached columns may be rounded, and a user's class may return other columns at each call.
        """
        return False

    @property
    @abstractmethod
    def row_kind(self) -> str:
        """What raw rows are: ``"sequences"`` (uint8 codes), ``"numbers"`` or ``"sparse"``."""

    @property
    def record_key(self) -> object:
        """Equal (hashable) for families whose prepared records are the same; None: like no other's."""
        return None

    def penalty_factors(self, ids: Ids) -> Floats:
        """The factors f_j > 0 of some features in the penalty, float64 (k,)."""
        return np.ones(len(ids))

    def most_block_rows(self) -> int:
        """Rows of the largest block that is convenient; a multiple of 64, at most 65,536."""
        return 65536

    @abstractmethod
    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The feature in words.

        names : of the columns of the rows, where they are known: for families that speak of columns.
        """

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """What :func:`fcl.features.family_from_config` makes the family from again."""

    @abstractmethod
    def read_rows(
        self,
        rows: RowReader,
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        """Blocks (start, stop, raw rows) of the kept rows ``first`` to ``last`` of a data set.

        Checks as :meth:`check_rows`; ``first`` is where a block begins.
        """

    @abstractmethod
    def check_rows(self, rows: RowReader) -> None:
        """Raise InputError unless the rows have the shape that the family is bound to."""

    @abstractmethod
    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        """Shape of the uint8 record of a prepared block."""

    @abstractmethod
    def prepare(
        self, raw: Any, record: npt.NDArray[np.uint8], block_rows: int
    ) -> Sequence[np.ndarray]:
        """Fill the (zeroed) record of a block of raw rows; returns the side arrays.

        block_rows : of a full block, for which the record is made.
        """

    @abstractmethod
    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        """Prepare block ``number`` of a set that holds some rows (increasing numbers) of another."""

    @abstractmethod
    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        """Write the margins (n_rows,), without the intercept, of some row blocks (None: all) to ``out``.

        The bits of the result depend on the arguments alone, and not on which blocks go together.
        """

    @abstractmethod
    def pricer(self, prepared: PreparedRows, keep: int) -> Pricer:
        """A pricer that reports at least the ``keep`` largest violators where there are as many."""

    @abstractmethod
    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ColumnMaker:
        """A maker of columns with buffers of at most (about) so many bytes."""

    @abstractmethod
    def scorer(self, ids: Ids, weights: Floats) -> Scorer:
        """The margins of a model, for prediction."""

    @abstractmethod
    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        """Bytes that passes allocate beside prepared rows and vectors over rows.

        scratch : prepared rows are in a scratch file.
        """

    @abstractmethod
    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        """Bytes beyond that which only the rows can tell: side arrays, unknown letters.

        pricers : how many there are.
        """

    def checked_ids(self, ids: Ids) -> Ids:
        """Ids as int64 (k,); InputError for one outside the family."""
        ids = np.asarray(ids, np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.n_features):
            bad = ids[(ids < 0) | (ids >= self.n_features)][0]
            raise InputError(
                f"features {self.name}: id {bad} is outside 0 .. {self.n_features - 1}"
            )
        return ids


def column_bytes(family: Family, n_rows: int) -> float:
    """Bytes of one column of so many rows as a column maker returns it."""
    bits = 1 if family.binary else 8 if family.step else 8 * np.dtype(value_type(n_rows)).itemsize
    return n_rows * bits / 8


def check_features(name: str, n_features: int) -> None:
    """Raise InputError unless so many features can be numbered."""
    if n_features >= FEATURES_LIMIT:
        raise InputError(
            f"{name}: {shown(n_features)} features, more than the 2^62 that can be numbered"
        )


def is_sampled(family: Family) -> bool:
    """Whether a pass prices no more than a part of the family."""
    return len(family.features_in_pass(0)) < family.n_features
