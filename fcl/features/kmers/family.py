"""Positional k-mers with wildcards.

A feature is a pattern of d letters at one position of the window: the first letter is A, C, G or T, each
further one A, C, G, T or a wildcard (trailing ones may be wildcards, so all shorter patterns are
there too). A window of L letters has (L - d + 1) * 4 * 5^(d-1) of them. An unknown letter of the data
matches nothing but a wildcard.

Ids: ``position * 4 * 5^(d-1) + code``, code the letters as digits in base 5, wildcard = 4, the first
letter the most significant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.checks import is_whole, shown, whole
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import Floats, Ids, check_features
from fcl.features.kmers.columns import KmerColumns
from fcl.features.kmers.margins import KmerScorer, margin_table_bytes
from fcl.features.kmers.pricing import KmerPricer, pricing_bytes, unknown_bytes
from fcl.features.kmers.rows import SCRATCH_POSITIONS, KmerBlock, Patterns

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.data.sequences import SequenceReader

LETTERS = "ACGT."
MAX_D = 12
MOST_ORIGIN = 1 << 31


@dataclass(frozen=True)
class Kmers:
    """Positional k-mers with wildcards, not yet bound to a window length.

    Parameters
    ----------
    d : int
        Letters of a pattern, 1 to 12.
    origin : int
        Position of the window that descriptions count from (70 for a site in the middle of 141
        letters); it changes words only.
    """

    d: int
    origin: int = 0

    def __post_init__(self) -> None:
        for name in ("d", "origin"):
            value = getattr(self, name)
            if not is_whole(value):
                raise InputError(f"kmers: {name} must be a whole number, got {shown(value)}")
            object.__setattr__(self, name, int(value))  # a number of numpy is none for JSON
        if not 1 <= self.d <= MAX_D:
            raise InputError(f"kmers: d must be from 1 to {MAX_D}, got {shown(self.d)}")
        if abs(self.origin) > MOST_ORIGIN:
            raise InputError(
                f"kmers: origin must be at most {MOST_ORIGIN} from 0, got {shown(self.origin)}"
            )

    def bind(self, rows: RowReader) -> KmerFamily:
        """The family over the windows of a data set."""
        from fcl.data.sequences import SequenceReader

        length = SequenceReader(rows).length
        if length < self.d:
            raise InputError(
                f"{rows.name}: windows of {length} letters are shorter than d = {self.d}; "
                f"choose kmers:d={length} or less"
            )
        return KmerFamily(self.d, length, self.origin)


@dataclass(frozen=True)
class KmerFamily:
    """Positional k-mers of d letters over windows of ``length`` letters."""

    d: int
    length: int
    origin: int = 0

    def __post_init__(self) -> None:
        # a model file may say anything: its options are checked as a user's are
        Kmers(self.d, self.origin)
        whole(f"kmers: length of the windows (d = {self.d})", self.length, self.d)
        check_features("kmers", self.n_features)

    @property
    def n_positions(self) -> int:
        """Positions at which a pattern can begin."""
        return self.length - self.d + 1

    @property
    def per_position(self) -> int:
        """Patterns at one position."""
        return 4 * 5 ** (self.d - 1)

    @property
    def n_features(self) -> int:
        return self.n_positions * self.per_position

    def drawn(self, number: int) -> range:
        return range(self.n_features)

    @property
    def n_price_parts(self) -> int:
        return self.n_positions

    @property
    def integer_bound(self) -> float:
        return 1.0

    @property
    def binary(self) -> bool:
        return True

    @property
    def step(self) -> float:
        return 0.0

    @property
    def name(self) -> str:
        return "kmers"

    @property
    def compared(self) -> bool:
        return False

    @property
    def row_kind(self) -> str:
        return "sequences"

    @property
    def record_key(self) -> object:
        return ("letters", self.length)

    def penalty_factors(self, ids: Ids) -> Floats:
        return np.ones(len(ids))

    def most_block_rows(self) -> int:
        return 65536

    # -- ids -----------------------------------------------------------------------------------

    def patterns(self, ids: Ids) -> Patterns:
        """Positions and bit fields of features.

        ids : int64 (k,).  Raises InputError for an id outside the family.
        """
        ids = np.asarray(ids, np.int64)
        if len(ids) and (ids.min() < 0 or ids.max() >= self.n_features):
            bad = ids[(ids < 0) | (ids >= self.n_features)][0]
            raise InputError(
                f"kmers: feature id {bad} is outside 0 .. {self.n_features - 1} "
                f"(d = {self.d}, windows of {self.length})"
            )
        positions, code = np.divmod(ids, self.per_position)
        cares = np.zeros(len(ids), np.int64)
        values = np.zeros(len(ids), np.int64)
        for shift in range(0, 2 * self.d, 2):  # from the last letter backwards
            code, digit = np.divmod(code, 5)
            known = digit < 4
            cares |= np.where(known, 3, 0) << shift
            values |= np.where(known, digit, 0) << shift
        return Patterns(positions, cares, values)

    def feature_id(self, pattern: str, position: int) -> int:
        """The id of a pattern such as ``"TTT.AG"`` at a position (0-based, of the window).

        Shorter patterns than d are filled with wildcards behind.
        """
        padded = pattern.upper().replace("U", "T").ljust(self.d, ".")
        if len(padded) != self.d or any(c not in LETTERS for c in padded) or padded[0] == ".":
            raise InputError(
                f"kmers: expected at most {self.d} letters of ACGT or '.', the first not '.', "
                f"got {pattern!r}"
            )
        if not 0 <= position < self.n_positions:
            raise InputError(
                f"kmers: position must be from 0 to {self.n_positions - 1}, got {position}"
            )
        code = 0
        for letter in padded:
            code = code * 5 + LETTERS.index(letter)
        return position * self.per_position + code

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        """The pattern without trailing wildcards, and where its first letter stands."""
        position, code = divmod(int(feature), self.per_position)
        letters = ""
        for _ in range(self.d):
            code, digit = divmod(code, 5)
            letters = LETTERS[digit] + letters
        place = position - self.origin
        return (
            f"{letters.rstrip('.')} at {place:+d}"
            if self.origin
            else (f"{letters.rstrip('.')} at {place}")
        )

    def to_config(self) -> dict[str, Any]:
        return {"family": "kmers", "d": self.d, "length": self.length, "origin": self.origin}

    # -- rows ----------------------------------------------------------------------------------

    def read_rows(
        self,
        rows: RowReader,
        block_rows: int,
        keep: npt.NDArray[np.bool_] | None = None,
        first: int = 0,
        last: int | None = None,
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        return self._reader(rows, keep).iter_codes(block_rows, first, last)

    def check_rows(self, rows: RowReader) -> None:
        self._reader(rows, None)

    def _reader(self, rows: RowReader, keep: npt.NDArray[np.bool_] | None) -> SequenceReader:
        from fcl.data.sequences import SequenceReader

        reader = SequenceReader(rows, keep=keep)
        if reader.length != self.length:
            raise InputError(
                f"{rows.name}: windows of {reader.length} letters, but the features are made for "
                f"windows of {self.length}"
            )
        return reader

    def record_shape(self, block_rows: int) -> tuple[int, ...]:
        return (-(-self.length // 4), block_rows)

    def prepare(self, raw: np.ndarray, record: npt.NDArray[np.uint8]) -> Sequence[np.ndarray]:
        from fcl.kernels import kmers

        kmers.pack_planes(raw, record)
        start = np.zeros(self.length + 1, np.int64)
        unknown = np.empty(0, np.int32)
        if (raw > 3).any():
            kmers.list_unknown(raw, start, unknown)
            unknown = np.empty(int(start[-1]), np.int32)
            kmers.list_unknown(raw, start, unknown)
        return (start, unknown)

    def block(self, prepared: PreparedRows, number: int, letters: slice = slice(None)) -> KmerBlock:
        """One prepared block, of which these letters are wanted.

        From a scratch file it holds no others, and is valid until the next is read.
        """
        first, stop, _ = letters.indices(self.length)
        record, (start, unknown) = prepared.read(number, slice(first // 4, -(-stop // 4)))
        return KmerBlock(record, start, unknown, prepared.rows_of(number))

    def select(self, prepared: PreparedRows, rows: Ids, chosen: PreparedRows, number: int) -> None:
        wanted = rows[chosen.rows_of(number)]
        raw = np.empty((len(wanted), self.length), np.uint8)
        source = wanted // prepared.block_rows
        for b in np.unique(source):
            here = np.flatnonzero(source == b)
            block = self.block(prepared, int(b))
            raw[here] = self._letters(block, wanted[here] - block.rows.start)
        chosen.commit(number, self.prepare(raw, chosen.writable(number)))

    def _letters(self, block: KmerBlock, rows: Ids) -> npt.NDArray[np.uint8]:
        """Codes 0-4 (len(rows), L) of some rows of a prepared block."""
        planes = block.planes[:, rows].T
        letters = np.stack([planes >> s & 3 for s in (6, 4, 2, 0)], axis=2)
        codes = letters.reshape(len(rows), -1)[:, : self.length]
        lookup = np.full(block.n_rows, -1, np.int64)
        lookup[rows] = np.arange(len(rows))
        column = np.repeat(np.arange(self.length), np.diff(block.unknown_start))
        at = lookup[block.unknown_rows]
        codes[at[at >= 0], column[at >= 0]] = 4
        return codes

    # -- margins -------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        scorer = KmerScorer(self, ids, weights)
        blocks = range(prepared.n_blocks) if blocks is None else blocks
        for number in blocks:
            out[prepared.rows_of(number)] = 0.0
        # few tables at a time: they stay in the cache of the core
        for group in scorer.groups(1 if prepared.in_memory else SCRATCH_POSITIONS):
            letters = slice(group[0].position, group[-1].position + self.d)
            for number in blocks:
                block = self.block(prepared, number, letters)
                for part in group:
                    part.add(block, out[block.rows])

    def scorer(self, ids: Ids, weights: Floats) -> KmerScorer:
        return KmerScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> KmerPricer:
        return KmerPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> KmerColumns:
        return KmerColumns(self, prepared, buffer_bytes)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        return pricing_bytes(self, scratch) + margin_table_bytes(self, scratch) + 8 * block_rows

    def extra_bytes(self, prepared: PreparedRows, pricers: int = 1) -> int:
        return prepared.side_bytes() + pricers * unknown_bytes(self, prepared)
