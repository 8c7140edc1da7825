"""The interface between families of features and the solver.

A family addresses its features by integer ids 0 .. n_features - 1 and knows nothing of solvers. It
prepares each block of raw rows once; from prepared rows it computes columns, margins and prices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from fcl.errors import InputError
from fcl.features.prices import Pricer
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fcl.data.base import RowReader
    from fcl.data.prepared import PreparedRows
    from fcl.features.motif import Motif
    from fcl.features.rows import RowLister

#: A family has fewer features than this: ids are int64, and sums of a few ids must fit in int64 too.
FEATURES_LIMIT = 1 << 62
#: Columns are cached in float64 for at most this many rows. When scales differ by 10^6 and the penalty
#: is weak, rounding to float32 changes the problem so much that its solution violates the optimality
#: conditions of the original.
FINE_ROWS = 4096
#: The largest multiple of the step in a :class:`StepColumns`.
MOST_STEPS = np.iinfo(np.int8).max


@dataclass(frozen=True)
class BitColumns:
    """Binary columns on one row block, as bitmaps.

    bits : uint64 (c, >= ceil(n_rows / 64)); row i is bit i % 64 of word i // 64. Unused bits of the word
        of the last row are 0; further words hold arbitrary bits.
    """

    bits: npt.NDArray[np.uint64]
    n_rows: int


class BitBlocks(Sequence[BitColumns]):
    """Binary columns on all row blocks, in one array, which can be stored in one call.

    bits : uint64 (blocks, >= c, words), as in :class:`BitColumns`; the last block may need fewer words.
    c : number of columns.
    n_rows, block_rows : rows in all, and of each block but the last.
    """

    def __init__(self, bits: npt.NDArray[np.uint64], c: int, n_rows: int, block_rows: int) -> None:
        self.bits, self.n_rows, self.block_rows, self._c = bits, n_rows, block_rows, c

    def __len__(self) -> int:
        return len(self.bits)

    @overload
    def __getitem__(self, block: int) -> BitColumns: ...
    @overload
    def __getitem__(self, block: slice) -> Sequence[BitColumns]: ...
    def __getitem__(self, block: int | slice) -> BitColumns | Sequence[BitColumns]:
        if isinstance(block, slice):
            return [self[b] for b in range(len(self))[block]]
        first = range(len(self))[block] * self.block_rows  # a block beyond the last one ends a loop
        return BitColumns(self.bits[block, : self._c], min(self.block_rows, self.n_rows - first))


@dataclass(frozen=True)
class DenseColumns:
    """Columns of arbitrary values on one row block.

    values : float32 or float64 (c, n_rows), C-contiguous. The cache keeps the dtype.
    """

    values: np.ndarray
    n_rows: int


@dataclass(frozen=True)
class StepColumns:
    """Columns of small multiples of one step on one row block.

    steps : int8 (c, n_rows), C-contiguous, from -127 to 127; the values are ``step * steps``, which
    float32 represents exactly.
    """

    steps: npt.NDArray[np.int8]
    n_rows: int
    step: float


@dataclass(frozen=True)
class ListedColumns:
    """Columns of arbitrary values on one row block, as lists of their nonzeros.

    start : int64 (c + 1,); the nonzeros of column t are at ``start[t] : start[t + 1]``.
    rows : uint16 (entries,), increasing within a column.
    values : float32 or float64 (entries,). The cache keeps the dtype.
    """

    start: npt.NDArray[np.int64]
    rows: npt.NDArray[np.uint16]
    values: np.ndarray
    n_rows: int

    def dense(self) -> np.ndarray:
        """The values (c, n_rows), with the zeros."""
        k = len(self.start) - 1
        out = np.zeros((k, self.n_rows), self.values.dtype)
        out[np.repeat(np.arange(k), np.diff(self.start)), self.rows] = self.values
        return out


Columns = BitColumns | DenseColumns | StepColumns | ListedColumns


def value_type(n_rows: int) -> type[np.float32] | type[np.float64]:
    """The dtype in which columns of ``n_rows`` rows are made for the cache."""
    return np.float64 if n_rows <= FINE_ROWS else np.float32


def empty_columns(family: Family, k: int, n_rows: int, dtype: Any) -> Columns:
    """k columns of a family on one row block, to be filled; ``dtype`` is for arbitrary values."""
    if family.binary:
        return BitColumns(np.empty((k, -(-n_rows // 64)), np.uint64), n_rows)
    if family.step:
        return StepColumns(np.empty((k, n_rows), np.int8), n_rows, family.step)
    return DenseColumns(np.empty((k, n_rows), dtype), n_rows)


class ColumnMaker(ABC):
    """Makes the columns of a family from prepared rows, in its own buffers.

    batch : the largest number of columns that one call of :meth:`make` accepts.
    """

    def __init__(self, family: Any, prepared: PreparedRows, buffer_bytes: int) -> None:
        self.family, self.prepared = family, prepared
        each = max(1, column_bytes(family, prepared.n_rows))
        self.batch = max(1, min(1024, int(buffer_bytes // each)))

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """The order in which these columns are cheapest to make; by id unless overridden."""
        return np.argsort(ids, kind="stable")

    @abstractmethod
    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of at most ``batch`` features, in the order of ``ids``: one entry per row block.

        The result is valid until the next call.
        """


@runtime_checkable
class MeasuringPricer(Protocol):
    """A pricer of standardised features; it must measure their standard deviations before pricing."""

    def measure(self, s: Floats, parts: range) -> None:
        """Measure the standard deviations of the features of some parts over all rows.

        s : float64 (n_rows,), weights of the rows, above 0.
        """


class Scorer(Protocol):
    """A linear model in the family's features that predicts from raw rows."""

    def margins(self, rows: Any) -> Floats:
        """The margins of a block of raw rows, without the intercept: float64 (len(rows),)."""


class Family(ABC):
    """A family of features, bound to the shape of the rows.

    The defaults suit most families: all features are priced in every pass and have the same penalty,
    columns hold arbitrary values, and blocks have 65,536 rows.
    """

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features."""

    def features_in_pass(self, number: int) -> range:
        """The features that pass ``number`` prices: all of them, or a sample if there are too many.

        A sampled family draws new features in each pass. The pass also prices the watched features.
        """
        return range(self.n_features)

    @property
    @abstractmethod
    def n_price_parts(self) -> int:
        """Number of parts that can be priced separately."""

    @property
    def integer_bound(self) -> float:
        """Largest |phi_j(x)| of the features with integer sums; 0 if there are no such features."""
        return 0.0

    @property
    def binary(self) -> bool:
        """Whether all values are 0 or 1."""
        return False

    @property
    def step(self) -> float:
        """All values are multiples of this step, from -127 to 127 times; 0 for arbitrary values."""
        return 0.0

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the family in messages."""

    @property
    def lists_columns(self) -> bool:
        """Whether columns are lists of nonzeros with about as many entries as those of sparse rows."""
        return False

    @property
    def quick_passes(self) -> bool:
        """Whether a pass takes less time than a step of the trainer with a whole Hessian, in most cases.

        By default if it only reads lists of nonzeros, since other families compute features.
        """
        return self.lists_columns

    def rounds_weights(self, n_rows: int) -> bool:
        """Whether margins of so many rows take less time if all weights are multiples of a coarse step.

        The trainer then rounds weights as far as the gap allows. Values must be from -1 to 1.
        """
        return False

    @property
    def visits_all(self) -> bool:
        """Whether a pass makes the sum of every feature, and skips none by a bound."""
        return False

    @property
    def verifies_columns(self) -> bool:
        """Whether the trainer compares cached columns with their prices, and corrects the difference.

        Cached columns may be rounded, and a user's class may return different columns at each call.
        """
        return False

    @property
    def thread_safe(self) -> bool:
        """Whether several threads may make columns, margins and prices at a time."""
        return True

    def user_class(self, feature: int) -> str:
        """Name of the user's class that computes a feature; empty if fcl computes it."""
        return ""

    @property
    @abstractmethod
    def row_kind(self) -> str:
        """Kind of the raw rows: ``"sequences"`` (uint8 codes), ``"numbers"`` or ``"sparse"``."""

    @property
    @abstractmethod
    def row_width(self) -> int:
        """Letters, or columns, of the raw rows."""

    def resized(self, width: int) -> Family:
        """The same features of rows of another width; itself if the features depend on the width."""
        return self

    @property
    def any_width(self) -> bool:
        """Whether the same features exist for rows of another width."""
        return self.resized(self.row_width + 1).row_width != self.row_width

    @property
    def record_key(self) -> object:
        """A hashable key, equal for families that prepare identical records; None: shared with none."""
        return None

    def penalty_factors(self, ids: Ids) -> Floats:
        """The penalty factors f_j > 0 of some features, float64 (k,)."""
        return np.ones(len(ids))

    def most_block_rows(self) -> int:
        """The largest practical number of rows in a block: a multiple of 64, at most 65,536."""
        return 65536

    @abstractmethod
    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """A readable description of a feature.

        feature : id of the feature.
        names : names of the rows' columns, if they are known; for families whose features refer to
            columns.
        """

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        """The features with these descriptions, int64 (k,); -1 where no feature has one.

        texts, names : as :meth:`describe` returns and takes them.

        Raises InputError for a family that cannot be searched.
        """
        raise InputError(
            f"features {self.name}: expected a family whose features can be found by name: kmers, bag, "
            "columns, products, or one with few features"
        )

    def columns_read(self, ids: Ids) -> Ids:
        """The columns of the rows that some features read, int64, increasing; by default all columns."""
        return np.arange(self.row_width)

    def motif(self, feature: int) -> Motif | None:
        """The pattern of letters of a feature; None if the feature is something else."""
        return None

    @abstractmethod
    def to_config(self) -> dict[str, Any]:
        """The configuration from which :func:`fcl.features.family_from_config` restores the family."""

    @abstractmethod
    def read_rows(
        self,
        rows: RowReader,
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield blocks (start, stop, raw rows) of the kept rows ``first`` to ``last`` of a data set.

        Checks the rows as :meth:`check_rows` does; ``first`` must be the beginning of a block.
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

        raw : the raw rows, at most ``block_rows``.
        record : uint8, of shape ``record_shape(block_rows)``, overwritten.
        block_rows : rows of a full block, which determine the shape of the record.
        """

    def fill(
        self,
        prepared: PreparedRows,
        rows: RowReader,
        keep: npt.NDArray[np.bool_] | None = None,
        blocks: range | None = None,
    ) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Read the kept rows and prepare them; yields the number and side arrays of each block.

        The caller should delete the side arrays before it asks for the next block: they may be large.

        blocks : the blocks of ``prepared`` to fill; None: all.
        """
        size = prepared.block_rows
        first, last = 0, prepared.n_rows
        if blocks is not None:
            first, last = blocks.start * size, min(blocks.stop * size, last)
        for start, _, raw in self.read_rows(rows, size, keep, first, last):
            number = start // size
            sides = tuple(self.prepare(raw, prepared.writable(number), size))
            del raw
            prepared.commit(number, sides)
            yield number, sides
            del sides  # before the next block is read

    @abstractmethod
    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        """Prepare block ``number`` of ``chosen``, which holds the rows ``rows`` of ``prepared``.

        rows : int64, increasing.
        """

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

        The margins of a block are the same, bit for bit, whichever other blocks are requested with it.
        """

    @abstractmethod
    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        """A pricer that reports at least the ``keep`` largest violators, or all if there are fewer.

        team : threads that share its work; each needs its own tables (:meth:`workspace_bytes`).
        """

    @abstractmethod
    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ColumnMaker:
        """A column maker whose buffers take at most about ``buffer_bytes`` bytes."""

    @abstractmethod
    def scorer(self, ids: Ids, weights: Floats) -> Scorer:
        """A scorer that computes the margins of a model on raw rows, for prediction."""

    def row_view(self) -> RowLister:
        """A view that lists the nonzero features of raw rows, for learners that read row by row.

        Raises InputError for a family that cannot list them.
        """
        raise InputError(
            f"features {self.name}: this family cannot list the features of a row, which online learners "
            "need; use another family of fcl, with a number of features, or a class of your own with a "
            "method nonzeros"
        )

    @abstractmethod
    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        """Bytes that passes allocate in addition to prepared rows and vectors over rows.

        scratch : whether prepared rows are in a scratch file.
        """

    @abstractmethod
    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        """Further bytes that depend on the contents of the rows, besides the side arrays.

        pricers : number of pricers.
        """

    def most_side_bytes(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Upper bounds on the bytes of side arrays, as far as they are known before the rows are read.

        entries : numbers of entries of blocks of sparse rows.
        """
        return np.zeros(len(entries), np.int64)

    def checked_ids(self, ids: Ids) -> Ids:
        """Return ids as int64 (k,); raise InputError for an id outside the family."""
        ids = np.asarray(ids, np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.n_features):
            bad = ids[(ids < 0) | (ids >= self.n_features)][0]
            raise InputError(
                f"features {self.name}: id {bad} is outside 0 .. {self.n_features - 1}"
            )
        return ids


def column_bytes(family: Family, n_rows: int) -> float:
    """Bytes of one column of ``n_rows`` rows as a column maker returns it."""
    bits = 1 if family.binary else 8 if family.step else 8 * np.dtype(value_type(n_rows)).itemsize
    return n_rows * bits / 8


def is_sampled(family: Family) -> bool:
    """Whether each pass prices only a sample of the family."""
    return len(family.features_in_pass(0)) < family.n_features
