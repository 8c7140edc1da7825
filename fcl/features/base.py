"""What the solver asks of a family of features, and nothing more.

A family addresses its features by integer ids 0 .. n_features - 1 and knows nothing of solvers. It
prepares blocks of raw rows once; on prepared rows it makes columns, margins and prices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from fcl.checks import shown
from fcl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fcl.data.base import RowReader
    from fcl.data.prepared import PreparedRows

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: A family has fewer features than that: ids are int64, and sums of a few of them have to be as well.
FEATURES_LIMIT = 1 << 62
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
    """Columns of any values on one row block. values : float32 (c, n_rows), C-contiguous."""

    values: npt.NDArray[np.float32]
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


@dataclass(frozen=True)
class Prices:
    """What one pass over the data says of all features of a family, against residuals r.

    With g_j = sum_i r_i phi_ij, in the units of r (not multiplied by C), and penalty factors f_j.
    """

    ids: Ids  #: features of large |g_j| / f_j, not watched ones; the largest always among them
    gradients: Floats  #: their g_j
    largest: (
        float  #: an upper bound of |g_j| / f_j over the whole family, exact above the threshold
    )
    watched: Floats  #: g_j of the features that were asked for
    n_priced: int  #: features covered by ``largest``
    #: of each part, in their order, the sum of f_j max(0, (|g_j| + slack) / f_j - level)^2 over all its
    #: features; 0 without a level
    excess: Floats


def merge_prices(parts: Sequence[Prices]) -> Prices:
    """The prices of several parts of a family, in the order of the parts, as one."""
    ids = np.concatenate([p.ids for p in parts])
    order = np.argsort(ids, kind="stable")
    return Prices(
        ids=ids[order],
        gradients=np.concatenate([p.gradients for p in parts])[order],
        largest=max(p.largest for p in parts),
        watched=np.sum([p.watched for p in parts], axis=0),  # all but one term are 0
        n_priced=sum(p.n_priced for p in parts),
        excess=np.concatenate([p.excess for p in parts]),
    )


class ColumnMaker(Protocol):
    """Makes columns on prepared rows, in buffers of its own."""

    #: most columns that one call of :meth:`make` takes
    batch: int

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """The order in which these columns are cheapest to make."""

    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of these features, one entry a row block. Valid until the next call."""


class Pricer(Protocol):
    """Prices the whole family, in buffers of its own.

    The family falls into ``n_parts`` parts, which may be priced one by one (:func:`merge_prices`). No bit
    of the result depends on how they are grouped. Of a sampled family (:meth:`Family.drawn`) what a pass
    draws is priced, and what is watched; its pricer has a method ``draw(number)`` that says the pass.
    """

    #: :meth:`price` calls it now and then, with the share of its work that is done
    on_progress: Callable[[float], None]

    @property
    def n_parts(self) -> int:
        """Number of parts."""

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        """Price every feature of some parts (None: all) against the residuals (n_rows,).

        Candidates need not be reported where |g_j| / f_j <= threshold, and watched features are none: in
        the end game the cached features, at a slope of 1 give or take, would take all the places.
        Watched features of other parts get 0.

        level, slack : of :attr:`Prices.excess`; no level: it is not wanted.
        """

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """sum_i values_i phi_ij^2 of some features, in any order; those of other parts get 0."""

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        """Rows where each of some features is not 0: int64.  spare : float64 (n_rows,), overwritten."""


def no_progress(share: float) -> None:
    """Ignore progress: what ``on_progress`` of a new pricer does."""


@runtime_checkable
class BalancingPricer(Protocol):
    """A pricer that adds to ``Prices.largest`` what balancing the residuals to a sum of 0 may change.

    For families whose ``max_abs`` is not known beforehand. Without an intercept nothing is balanced.
    """

    balances: bool


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


class Family(Protocol):
    """A family of features, bound to the shape of the rows."""

    @property
    def n_features(self) -> int:
        """Number of features."""

    def drawn(self, number: int) -> range:
        """Features that pass ``number`` prices unasked: all, or as many as it samples of too many.

        Of a sampled family each pass draws others; the watched features are priced with them.
        """

    @property
    def n_price_parts(self) -> int:
        """Parts that its pricers fall into."""

    @property
    def max_abs(self) -> float:
        """An upper bound of |phi_j(x)| over all features and rows."""

    @property
    def least_factor(self) -> float:
        """A lower bound > 0 of the penalty factors of all features."""

    @property
    def binary(self) -> bool:
        """Whether all values are 0 or 1."""

    @property
    def step(self) -> float:
        """A step of which all values are exact multiples, -127 to 127 times; 0 for any values."""

    @property
    def name(self) -> str:
        """How it is called in messages."""

    @property
    def compared(self) -> bool:
        """Whether cached columns are held against their prices.

        They may be less exact than those were, or a user's class may make others each time.
        """

    @property
    def row_kind(self) -> str:
        """What raw rows are: ``"sequences"`` (uint8 codes), ``"numbers"`` or ``"sparse"``."""

    @property
    def record_key(self) -> object:
        """Equal (hashable) for families whose prepared records are the same; None: like no other's."""

    def penalty_factors(self, ids: Ids) -> Floats:
        """The factors f_j > 0 of some features in the penalty, float64 (k,)."""

    def most_block_rows(self) -> int:
        """Rows of the largest block that is convenient; a multiple of 64, at most 65,536."""

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The feature in words.

        names : of the columns of the rows, where they are known: for families that speak of columns.
        """

    def to_config(self) -> dict[str, Any]:
        """What :func:`fcl.features.family_from_config` makes the family from again."""

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

    def check_rows(self, rows: RowReader) -> None:
        """Raise InputError unless the rows have the shape that the family is bound to."""

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        """Shape of the uint8 record of a prepared block."""

    def prepare(self, raw: Any, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        """Fill the (zeroed) record of a block of raw rows; returns the side arrays."""

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        """Prepare block ``number`` of a set that holds some rows (increasing numbers) of another."""

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

    def pricer(self, prepared: PreparedRows, keep: int) -> Pricer:
        """A pricer that reports at least the ``keep`` largest violators where there are as many."""

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ColumnMaker:
        """A maker of columns with buffers of at most (about) so many bytes."""

    def scorer(self, ids: Ids, weights: Floats) -> Scorer:
        """The margins of a model, for prediction."""

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        """Bytes that passes allocate beside prepared rows and vectors over rows.

        scratch : prepared rows are in a scratch file.
        """

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        """Bytes beyond that which only the rows can tell: side arrays, unknown letters.

        pricers : how many there are.
        """


def column_bits(family: Family) -> int:
    """Bits of a value of a column on its way to the cache."""
    return 1 if family.binary else 8 if family.step else 32


def check_features(name: str, n_features: int) -> None:
    """Raise InputError unless so many features can be numbered."""
    if n_features >= FEATURES_LIMIT:
        raise InputError(
            f"{name}: {shown(n_features)} features, more than the 2^62 that can be numbered"
        )


def is_sampled(family: Family) -> bool:
    """Whether a pass prices no more than a part of the family."""
    return len(family.drawn(0)) < family.n_features
