"""k-mers without their position: how often a pattern occurs in a window, or whether it does.

Patterns have d letters, each A, C, G or T. With wildcards, every letter but the first may also be a
wildcard; trailing wildcards may extend beyond the end of the window, so the family includes all shorter
patterns, which may occur up to the end. An unknown letter in the data matches only a wildcard.

A feature stands for a pattern or, with ``strands="both"``, for a pattern and its reverse complement. Its
count is then the sum of the two counts (counted once if the two are the same), and it is present if
either is present.

With one strand, the id of a feature is its code: the letters as digits in base 4, or 5 with wildcards
(wildcard = 4), the first letter being the most significant. With both strands, ids number the *canonical*
patterns by increasing code: a canonical pattern's code is at most its reverse complement's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.checks import choice, flag, is_whole, shown, whole
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.bag.columns import BagColumns, BagScorer, code_slots, margin_bytes
from fcl.features.bag.pricing import MOST_PARTS, BagPricer, pricing_bytes
from fcl.features.bag.rows import BagRows
from fcl.features.bag.search import SearchPricer, lists
from fcl.features.kmers.columns import Patterns
from fcl.features.kmers.family import KmerFamily
from fcl.features.motif import Motif
from fcl.features.prices import Pricer
from fcl.features.threaded import PartsPricer, RowsPricer, on_threads
from fcl.features.windows import (
    WindowFamily,
    found_by,
    pattern_code,
    pattern_text,
    window_length,
    window_rows,
)
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.base import RowReader

MAX_D = 12
MAX_WILD_D = 10  #: with wildcards, tables have 5^d cells of 8 bytes
VALUES = ("count", "presence")
STRANDS = ("one", "both")
#: What :meth:`BagFamily.describe` says with one strand, and with both.
_ONE, _BOTH = re.compile("([A-Z.]+) anywhere"), re.compile("([A-Z.]+), either strand")


@dataclass(frozen=True)
class Bag:
    """k-mers anywhere in the window, not yet bound to a window length.

    Parameters
    ----------
    d : int
        Letters of a pattern: 1 to 12, or to 10 with wildcards.
    value : {"count", "presence"}
        Value of a feature: how often the pattern occurs, or 1 if it occurs at all. Presence with
        wildcards is priced by a search, whose lists take 20 bytes per occurrence of the most frequent
        letter (of either strand with ``strands="both"``).
    strands : {"one", "both"}
        Whether the reverse complement of a pattern counts as the same pattern.
    wildcards : bool
        Whether letters after the first may be wildcards. A count is a sum over positions, so one table
        prices all counts; presence is not, and needs the search.

    Examples
    --------
    >>> data = fcl.open_data(["ACGTA", "GACGT", "TTGTA", "TTGTC"], y=np.array([1, 1, 0, 0]))
    >>> model = fcl.train(data, fcl.Bag(d=2, value="presence"), C=10.0).model
    >>> [row.feature for row in model.describe()]
    ['AC anywhere', 'TG anywhere']
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

    def bind(self, rows: RowReader) -> BagFamily:
        """Bind the family to the windows of a data set."""
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
    takes_shorter = True

    def __post_init__(self) -> None:
        # options from a model file are not trusted: they are validated as a user's options are
        Bag(self.d, self.value, self.strands, self.wildcards)
        whole(f"bag: length of the windows (d = {self.d})", self.length, self.d)

    def resized(self, width: int) -> BagFamily:
        return self if width < self.d else replace(self, length=width)

    @property
    def radix(self) -> int:
        """Base of the codes: 5 with wildcards, else 4."""
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
        # sums over the number of letters m from the first to the last non-wildcard: all patterns, and
        # patterns that equal their reverse complement (if m is odd, the middle letter is then a wildcard)
        spans = range(2, self.d + 1)
        every = 4 + sum(16 * 5 ** (m - 2) for m in spans)
        own = sum(4 * 5 ** ((m - 2) // 2) for m in spans)
        return (every + own) // 2

    @property
    def visits_all(self) -> bool:
        return not self.searched

    @property
    def searched(self) -> bool:
        """Whether a search prices the patterns, in place of a table."""
        return self.binary and self.wildcards

    @property
    def n_price_parts(self) -> int:
        if self.searched:
            return 4 if self.d == 1 else 20
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
        """The codes of the reverse complements of features, int64 (k,); only for both strands."""
        return self.canonical()[1][ids].astype(np.int64)

    def canonical(self) -> npt.NDArray[np.int32]:
        """Codes of all features and of their reverse complements, int32 (2, n_features)."""
        return canonical_codes(self.d, self.radix)

    def patterns(self, codes: Ids) -> Patterns:
        """Bit fields of patterns given by their codes; all positions are 0."""
        if self.wildcards:
            return KmerFamily(self.d, self.d).patterns(codes)
        return Patterns(np.zeros_like(codes), np.full_like(codes, 4**self.d - 1), codes)

    def windows_of(self, ids: Ids) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Encode features as bit fields over windows (see :mod:`fcl.kernels.occurrences`).

        Returns the cares and the values, each uint32 (1, k), or (2, k) with both strands.
        """
        codes = self.codes(ids)
        code = np.stack([codes, self.others(ids)]) if self.both else codes[None]
        cares, values = np.zeros((2, *code.shape), np.uint32)
        for shift in range(0, 3 * self.d, 3):  # from the last letter backwards
            code, digit = np.divmod(code, 5)
            cares |= np.where(digit < 4, 7 << shift, 0).astype(np.uint32)
            values |= np.where(digit < 4, digit << shift, 0).astype(np.uint32)
        return cares, values

    def feature_id(self, pattern: str) -> int:
        """The id of a pattern such as ``"TT.AG"``; with wildcards it may have fewer than d letters."""
        code = pattern_code(self.name, pattern, self.d, self.radix)
        if not self.both:
            return code
        code = min(code, int(kernels.bags.reverse_complement(code, self.d, self.radix)))
        return int(np.searchsorted(self.canonical()[0], code))

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The pattern without trailing wildcards, and the strands on which it may occur."""
        pattern = self.motif(feature).pattern
        return pattern + (", either strand" if self.both else " anywhere")

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        return found_by(texts, _BOTH if self.both else _ONE, self.feature_id)

    def motif(self, feature: int) -> Motif:
        code = int(self.codes(np.array([feature]))[0])
        return Motif(pattern_text(code, self.d, self.radix), both_strands=self.both)

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
        for number in prepared.numbers(blocks):
            block = self.block(prepared, number)
            out[block.rows] = 0.0
            scorer.add(block, out[block.rows])

    def scorer(self, ids: Ids, weights: Floats) -> BagScorer:
        return BagScorer(self, ids, weights)

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        kind = SearchPricer if self.searched else BagPricer
        # every row adds to the one table of all parts; a search reads all rows for each part
        threaded = PartsPricer if self.searched else RowsPricer
        return on_threads(threaded, lambda rows: kind(self, rows, keep), prepared, team)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> BagColumns:
        return BagColumns(self, prepared, buffer_bytes)

    def row_view(self) -> BagRows:
        return BagRows(self)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        canonical = 8 * self.n_features if self.both else 0
        return (
            canonical
            + pricing_bytes(self)
            + margin_bytes(self)
            + code_slots(self).nbytes
            + 3 * window_rows(block_rows).nbytes  # of pricer, column maker and scorer
        )

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        return pricers * lists(self, prepared).nbytes if self.searched else 0


@lru_cache(maxsize=2)
def canonical_codes(d: int, radix: int) -> npt.NDArray[np.int32]:
    """The canonical codes, increasing, and the codes of their reverse complements: int32 (2, n)."""
    n = BagFamily(d, d, strands="both", wildcards=radix == 5).n_features
    out = np.empty((2, n), np.int32)
    found = kernels.bags.list_canonical(d, radix, out)
    assert found == n
    return out
