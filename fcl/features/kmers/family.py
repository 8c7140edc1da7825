"""Positional k-mers with wildcards.

A feature is a pattern of d letters at one position of the window. The first letter is A, C, G or T; each
further letter is A, C, G, T or a wildcard. Trailing letters may be wildcards too, so the family includes
all shorter patterns. A window of L letters has (L - d + 1) * 4 * 5^(d-1) features. An unknown letter in
the data matches only a wildcard.

The id of a feature is ``position * 4 * 5^(d-1) + code``, where code has the letters as digits in base 5
(wildcard = 4), the first letter being the most significant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.checks import is_whole, shown, whole
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import FEATURES_LIMIT
from fcl.features.kmers.columns import KmerColumns, Patterns
from fcl.features.kmers.lanes import MAX_LANE_D, LanePricer, lane_item_bytes, lane_tables
from fcl.features.kmers.margins import KmerScorer, margin_table_bytes, shares_tables
from fcl.features.kmers.pricing import KmerPricer, pricing_bytes, unknown_bytes
from fcl.features.kmers.rows import KmerRows
from fcl.features.motif import Motif
from fcl.features.prices import Pricer
from fcl.features.threaded import PartsPricer, on_threads
from fcl.features.windows import (
    WindowFamily,
    found_by,
    pattern_code,
    pattern_text,
    window_buffers,
    window_length,
    window_rows,
)
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.data.base import RowReader

MAX_D = 12
_DESCRIPTION = re.compile(r"([A-Z.]+) at ([+-]?[0-9]{1,10})")
MOST_ORIGIN = 1 << 31


@dataclass(frozen=True)
class Kmers:
    """Positional k-mers with wildcards, not yet bound to a window length.

    Parameters
    ----------
    d : int
        Letters of a pattern, 1 to 12.
    origin : int
        Position in the window that descriptions use as 0 (70 for a site in the middle of 141 letters); it
        affects only descriptions.

    Examples
    --------
    >>> data = fcl.open_data(["ACGTA", "ACGTC", "TTGTA", "TTGTC"], y=np.array([1, 1, 0, 0]))
    >>> model = fcl.train(data, fcl.Kmers(d=2), C=10.0).model
    >>> model.family.n_features, [row.feature for row in model.describe(2)]
    (80, ['AC at 0', 'TT at 0'])
    """

    d: int
    origin: int = 0

    def __post_init__(self) -> None:
        for name in ("d", "origin"):
            value = getattr(self, name)
            if not is_whole(value):
                raise InputError(f"kmers: {name} must be a whole number, got {shown(value)}")
            object.__setattr__(self, name, int(value))  # NumPy integers are not JSON-serialisable
        if not 1 <= self.d <= MAX_D:
            raise InputError(f"kmers: d must be from 1 to {MAX_D}, got {shown(self.d)}")
        if abs(self.origin) > MOST_ORIGIN:
            raise InputError(
                f"kmers: origin must be at most {MOST_ORIGIN} from 0, got {shown(self.origin)}"
            )

    def bind(self, rows: RowReader) -> KmerFamily:
        """Bind the family to the windows of a data set."""
        return KmerFamily(self.d, window_length(rows, self.d, "kmers"), self.origin)


@dataclass(frozen=True)
class KmerFamily(WindowFamily):
    """Positional k-mers of d letters over windows of ``length`` letters."""

    d: int
    length: int
    origin: int = 0
    name = "kmers"
    binary = True
    integer_bound = 1.0

    def __post_init__(self) -> None:
        # options from a model file are not trusted: they are validated as a user's options are
        Kmers(self.d, self.origin)
        whole(f"kmers: length of the windows (d = {self.d})", self.length, self.d)
        if self.n_features >= FEATURES_LIMIT:
            raise InputError(
                f"kmers: expected fewer than 2^62 features, got {shown(self.n_features)}"
            )

    @property
    def per_position(self) -> int:
        """Number of patterns at one position."""
        return 4 * 5 ** (self.d - 1)

    @property
    def n_features(self) -> int:
        return self.n_positions * self.per_position

    @property
    def n_price_parts(self) -> int:
        return self.n_positions

    # -- ids -----------------------------------------------------------------------------------

    def patterns(self, ids: Ids) -> Patterns:
        """Positions and bit fields of features.

        Raises InputError for an id outside the family.

        ids : int64 (k,).
        """
        positions, code = np.divmod(self.checked_ids(ids), self.per_position)
        cares = np.zeros(len(ids), np.int64)
        values = np.zeros(len(ids), np.int64)
        for shift in range(0, 2 * self.d, 2):  # from the last letter backwards
            code, digit = np.divmod(code, 5)
            known = digit < 4
            cares |= np.where(known, 3, 0) << shift
            values |= np.where(known, digit, 0) << shift
        return Patterns(positions, cares, values)

    def feature_id(self, pattern: str, position: int) -> int:
        """The id of a pattern such as ``"TTT.AG"`` at a 0-based position in the window.

        Patterns of fewer than d letters are padded with wildcards at the end.
        """
        code = pattern_code(self.name, pattern, self.d, 5)
        if not 0 <= position < self.n_positions:
            raise InputError(
                f"kmers: position must be from 0 to {self.n_positions - 1}, got {position}"
            )
        return position * self.per_position + code

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The pattern without trailing wildcards, and the position of its first letter."""
        motif = self.motif(feature)
        where = f"{motif.position:+d}" if self.origin else str(motif.position)
        return f"{motif.pattern} at {where}"

    def find(self, texts: Sequence[str], names: Sequence[str] | None = None) -> Ids:
        return found_by(texts, _DESCRIPTION, self._found)

    def _found(self, pattern: str, position: str) -> int:
        return self.feature_id(pattern, int(position) + self.origin)

    def motif(self, feature: int) -> Motif:
        position, code = divmod(int(feature), self.per_position)
        return Motif(pattern_text(code, self.d, 5), position, self.origin)

    def to_config(self) -> dict[str, Any]:
        return {"family": "kmers", "d": self.d, "length": self.length, "origin": self.origin}

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        blocks = prepared.numbers(blocks)
        scorer = KmerScorer(self, ids, weights, len(blocks) * prepared.block_rows)
        buffers = window_buffers(prepared.block_rows)
        for number in blocks:
            out[prepared.rows_of(number)] = 0.0
        # one table at a time goes through as many blocks as possible, to stay in the caches of the core;
        # but a file, even a small one, is not read again for each table: that takes longer
        for group in scorer.groups(prepared.in_memory):
            letters = slice(group[0].position, max(part.stop for part in group))
            for some in self.together(prepared, blocks, letters):
                for part in group:
                    for number in some:
                        block = self.block(prepared, number, letters)
                        part.add(block, buffers, out[block.rows])

    def rounds_weights(self, n_rows: int) -> bool:
        return shares_tables(n_rows)

    def scorer(self, ids: Ids, weights: Floats) -> KmerScorer:
        return KmerScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        kind = LanePricer if self.d <= MAX_LANE_D else KmerPricer
        return on_threads(PartsPricer, lambda rows: kind(self, rows, keep), prepared, team)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> KmerColumns:
        return KmerColumns(self, prepared, buffer_bytes)

    def row_view(self) -> KmerRows:
        return KmerRows(self)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        pricing = pricing_bytes(self, scratch) + lane_tables(self).nbytes
        return pricing + margin_table_bytes(self, scratch) + window_rows(block_rows).nbytes

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        unknown = unknown_bytes(self, prepared) + lane_item_bytes(self, prepared)
        return pricers * unknown
