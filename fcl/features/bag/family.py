"""k-mers without their position: how often a pattern occurs in a window, or whether it does.

A family of its own beside the positional one, whose ids, tables and binary columns are by position.

Patterns are words of d letters; with wildcards those of d letters of which the first is A, C, G or T and
each further one may be a wildcard (trailing ones too: all shorter patterns are there, and they occur up
to the window's end). An unknown letter of the data matches nothing but a wildcard.

A feature stands for a pattern, or with ``strands="both"`` for a pattern and its reverse complement: its
count is the sum of both (of one, if they are the same), its presence that of either.

Ids: one strand: the letters as digits in base 4 (with wildcards 5, wildcard = 4), the first letter the
most significant. Both strands: numbers of the *canonical* patterns, those whose code is the smaller of
the two, in increasing order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import choice, flag, is_whole, shown, whole
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.bag.columns import BagColumns, columns_bytes
from fcl.features.bag.margins import BagScorer, margin_bytes
from fcl.features.bag.pricing import MOST_PARTS, BagPricer, pricing_bytes
from fcl.features.base import Floats, Ids
from fcl.features.kmers.family import KmerFamily
from fcl.features.kmers.rows import Patterns
from fcl.features.windows import WindowFamily, pattern_code, pattern_text, window_length

if TYPE_CHECKING:
    from fcl.data.base import RowReader

MAX_D = 12
MAX_WILD_D = 10  #: with wildcards there are 5^d cells of 8 bytes
VALUES = ("count", "presence")
STRANDS = ("one", "both")


@dataclass(frozen=True)
class Bag:
    """k-mers anywhere in the window, not yet bound to a window length.

    Parameters
    ----------
    d : int
        Letters of a pattern: 1 to 12, with wildcards to 10.
    value : {"count", "presence"}
        How often it occurs, or 1 where it does at all; the latter without wildcards.
    strands : {"one", "both"}
        Whether the reverse complement of a pattern counts as the pattern.
    wildcards : bool
        Whether letters behind the first may be wildcards; for counts alone. Counts are sums over places,
        so that one table prices them all. Presence is none: a search for it took seconds a pass.
    """

    d: int
    value: str = "count"
    strands: str = "one"
    wildcards: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.d):
            raise InputError(f"bag: d must be a whole number, got {shown(self.d)}")
        object.__setattr__(self, "d", int(self.d))  # NumPy integers are not JSON-serialisable
        choice("bag: value", self.value, VALUES)
        choice("bag: strands", self.strands, STRANDS)
        object.__setattr__(self, "wildcards", flag("bag: wildcards", self.wildcards))
        most = MAX_WILD_D if self.wildcards else MAX_D
        if not 1 <= self.d <= most:
            raise InputError(
                f"bag: d must be from 1 to {most}{' with wildcards' * self.wildcards}, "
                f"got {shown(self.d)}"
            )
        if self.wildcards and self.value == "presence":
            raise InputError(
                "bag: value=presence takes no wildcards; take value=count with wildcards, or leave "
                "wildcards=true out"
            )

    def bind(self, rows: RowReader) -> BagFamily:
        """The family over the windows of a data set."""
        length = window_length(rows, self.d, "bag")
        return BagFamily(self.d, length, self.value, self.strands, self.wildcards)


@dataclass(frozen=True)
class BagFamily(WindowFamily):
    """k-mers of d letters anywhere in windows of ``length`` letters; see :class:`Bag`."""

    d: int
    length: int
    value: str = "count"
    strands: str = "one"
    wildcards: bool = False
    name = "bag"

    def __post_init__(self) -> None:
        # a model file may say anything: its options are checked as a user's are
        Bag(self.d, self.value, self.strands, self.wildcards)
        whole(f"bag: length of the windows (d = {self.d})", self.length, self.d)

    @property
    def radix(self) -> int:
        """Digits that a letter of a pattern may be."""
        return 5 if self.wildcards else 4

    @property
    def both(self) -> bool:
        """Whether a pattern and its reverse complement are one feature."""
        return self.strands == "both"

    @property
    def n_features(self) -> int:
        if not self.both:
            return 4 * self.radix ** (self.d - 1)
        if not self.wildcards:
            return (4**self.d + (0 if self.d % 2 else 2**self.d)) // 2
        # by letters from the first to the last that is no wildcard: all, and those that are their own
        # reverse complement (the middle one of an odd number is then a wildcard)
        spans = range(2, self.d + 1)
        every = 4 + sum(16 * 5 ** (m - 2) for m in spans)
        own = sum(4 * 5 ** ((m - 2) // 2) for m in spans)
        return (every + own) // 2

    @property
    def n_price_parts(self) -> int:
        return min(MOST_PARTS, self.n_features)

    @property
    def integer_bound(self) -> float:
        if self.binary:
            return 1.0
        if not self.wildcards:
            return float(self.n_positions)
        return float(self.length * (2 if self.both else 1))

    @property
    def binary(self) -> bool:
        return self.value == "presence"

    # -- ids -----------------------------------------------------------------------------------

    def codes(self, ids: Ids) -> Ids:
        """The codes of features, int64 (k,).

        Raises InputError for an id outside the family.
        """
        ids = self.checked_ids(ids)
        return self.canonical()[0][ids].astype(np.int64) if self.both else ids

    def others(self, ids: Ids) -> Ids:
        """The codes of the reverse complements of features of both strands, int64 (k,)."""
        return self.canonical()[1][ids].astype(np.int64)

    def canonical(self) -> npt.NDArray[np.int32]:
        """Codes of the features of both strands, and those of their reverse complements: (2, n)."""
        return canonical_codes(self.d, self.radix)

    def patterns(self, codes: Ids) -> Patterns:
        """Bit fields of patterns by their codes; all at position 0."""
        if self.wildcards:
            return KmerFamily(self.d, self.d).patterns(codes)
        return Patterns(np.zeros_like(codes), np.full_like(codes, 4**self.d - 1), codes)

    def feature_id(self, pattern: str) -> int:
        """The id of a pattern such as ``"TT.AG"``; shorter ones than d need wildcards."""
        from fcl.kernels import bags

        code = pattern_code(self.name, pattern, self.d, self.radix)
        if not self.both:
            return code
        code = min(code, int(bags.reverse_complement(code, self.d, self.radix)))
        return int(np.searchsorted(self.canonical()[0], code))

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The pattern without trailing wildcards, and on which strands it may be."""
        code = int(self.codes(np.array([feature]))[0])
        text = pattern_text(code, self.d, self.radix)
        return text + (", either strand" if self.both else " anywhere")

    def to_config(self) -> dict[str, Any]:
        own = asdict(self)
        return {"family": self.name, "length": own.pop("length"), **own}

    # -- margins, prices and columns ----------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        scorer = BagScorer(self, ids, weights)
        for number in range(prepared.n_blocks) if blocks is None else blocks:
            block = self.block(prepared, number)
            out[block.rows] = 0.0
            scorer.add(block, out[block.rows])

    def scorer(self, ids: Ids, weights: Floats) -> BagScorer:
        return BagScorer(self, ids, weights)

    def pricer(self, prepared: PreparedRows, keep: int) -> BagPricer:
        return BagPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> BagColumns:
        return BagColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        canonical = 8 * self.n_features if self.both else 0
        return (
            canonical
            + pricing_bytes(self)
            + margin_bytes(self)
            + columns_bytes(self)
            + 24 * block_rows
        )

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        return prepared.side_bytes()


@lru_cache(maxsize=2)
def canonical_codes(d: int, radix: int) -> npt.NDArray[np.int32]:
    """The codes that are not above that of their reverse complement, increasing; and the latter."""
    from fcl.kernels import bags

    n = BagFamily(d, d, strands="both", wildcards=radix == 5).n_features
    out = np.empty((2, n), np.int32)
    found = bags.list_canonical(d, radix, out)
    assert found == n
    return out
