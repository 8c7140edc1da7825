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

from fcl.checks import is_whole
from fcl.data.prepared import PreparedRows
from fcl.errors import BudgetError, InputError
from fcl.features.base import BitColumns, Columns, Floats, Ids, Prices

if TYPE_CHECKING:
    from fcl.data.base import RowReader
    from fcl.data.sequences import SequenceReader

LETTERS = "ACGT."
MAX_D = 12
#: Windows codes of up to so many letters get a table of margins; longer ones are matched one by one.
TABLE_LETTERS = 9


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
                raise InputError(f"kmers: {name} must be a whole number, got {value!r}")
            object.__setattr__(self, name, int(value))  # a number of numpy is none for JSON
        if not 1 <= self.d <= MAX_D:
            raise InputError(f"kmers: d must be from 1 to {MAX_D}, got {self.d}")

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
class Patterns:
    """Patterns as bit fields over window codes (see :mod:`fcl.kernels.kmers`), each int64 (k,)."""

    positions: npt.NDArray[np.int64]
    cares: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]

    def at(self, position: int, d: int, span: int) -> tuple[slice, Ids, Ids]:
        """Those at one position, for codes of the first ``span`` of d letters; sorted input."""
        lo, hi = np.searchsorted(self.positions, [position, position + 1])
        cut = 2 * (d - span)
        return slice(int(lo), int(hi)), self.cares[lo:hi] >> cut, self.values[lo:hi] >> cut


@dataclass(frozen=True)
class KmerBlock:
    """A prepared row block, as the kernels take it."""

    planes: npt.NDArray[np.uint8]
    unknown_start: npt.NDArray[np.int64]
    unknown_rows: npt.NDArray[np.int32]
    rows: slice

    @property
    def n_rows(self) -> int:
        return self.rows.stop - self.rows.start


@dataclass(frozen=True)
class KmerFamily:
    """Positional k-mers of d letters over windows of ``length`` letters."""

    d: int
    length: int
    origin: int = 0

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

    @property
    def max_abs(self) -> float:
        return 1.0

    @property
    def binary(self) -> bool:
        return True

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

    def describe(self, feature: int) -> str:
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
        self, rows: RowReader, block_rows: int, keep: npt.NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[int, int, np.ndarray]]:
        return self._reader(rows, keep).iter_codes(block_rows)

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

    def block(self, prepared: PreparedRows, number: int) -> KmerBlock:
        """One prepared block; from a scratch file it is valid until the next is read."""
        record, (start, unknown) = prepared.read(number)
        return KmerBlock(record, start, unknown, prepared.rows_of(number))

    def select(
        self, prepared: PreparedRows, rows: Ids, block_rows: int | None = None
    ) -> PreparedRows:
        block_rows = block_rows or prepared.block_rows
        chosen = PreparedRows(len(rows), block_rows, self.record_shape(block_rows))
        raw = np.empty((block_rows, self.length), np.uint8)
        for number, into in chosen.blocks():
            wanted = rows[into]
            source = wanted // prepared.block_rows
            for b in np.unique(source):
                here = np.flatnonzero(source == b)
                block = self.block(prepared, int(b))
                raw[here] = self._letters(block, wanted[here] - block.rows.start)
            part = raw[: len(wanted)]
            chosen.commit(number, self.prepare(part, chosen.writable(number)))
        return chosen

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

    def write_margins(self, prepared: PreparedRows, ids: Ids, weights: Floats, out: Floats) -> None:
        scorer = KmerScorer(self, ids, weights)
        out[:] = 0.0
        if prepared.in_memory:  # one table at a time: it stays in the cache of the core
            for part in scorer.parts():
                for number, rows in prepared.blocks():
                    part.add(self.block(prepared, number), out[rows])
                part.table = np.empty(0)
        else:
            for number, rows in prepared.blocks():
                block = self.block(prepared, number)
                for part in scorer.parts():
                    part.add(block, out[rows])

    def scorer(self, ids: Ids, weights: Floats) -> KmerScorer:
        return KmerScorer(self, ids, weights)

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int) -> KmerPricer:
        return KmerPricer(self, prepared, keep)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> KmerColumns:
        return KmerColumns(self, prepared, buffer_bytes)

    @property
    def tables_in_group(self) -> int:
        """Positions that share one reading of a scratch file."""
        return min(self.n_positions, max(1, GROUP_BYTES // (8 * 4**self.d)))

    def five_letters(self, unknown: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Positions whose scan is cheaper with unknown as a fifth letter, given the windows that
        have unknown letters at each. With long patterns that table would be too large."""
        few = self.d <= MAX_FIVE_LETTERS
        return (unknown > FIVE_LETTERS_FROM * 5**self.d) & few

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        from fcl.kernels import kmers

        margin = 8 * 4 ** min(self.d, TABLE_LETTERS)
        cells = 8 * int(kmers.scan_size(self.d, 4))
        if scratch:
            cells += 8 * 4**self.d * (self.tables_in_group - 1)
            margin *= min(self.n_positions, MAX_KEPT_TABLES)
        return cells + margin + 8 * block_rows

    def extra_bytes(self, prepared: PreparedRows) -> int:
        from fcl.kernels import kmers

        unknown = unknown_counts(self, prepared)
        group = 1 if prepared.in_memory else self.tables_in_group
        items = 16 * int(np.sort(unknown)[-group:].sum())
        stack = 4 * (self.d + 1) * int(unknown.max(initial=0))
        five = 8 * int(kmers.scan_size(self.d, 5)) if self.five_letters(unknown).any() else 0
        return prepared.side_bytes() + items + stack + five


def unknown_counts(family: KmerFamily, prepared: PreparedRows) -> npt.NDArray[np.int64]:
    """Windows with unknown letters at each position, int64 (n_positions,)."""
    from fcl.kernels import kmers

    counts = np.zeros(family.n_positions, np.int64)
    masks = np.zeros(prepared.block_rows, np.uint32)
    rows = np.empty(prepared.block_rows, np.int32)
    for number, _ in prepared.blocks():
        start, unknown = prepared.sides(number)
        if not len(unknown):
            continue
        for k in range(len(counts)):
            n = kmers.unknown_windows(start, unknown, k, family.d, masks, rows)
            masks[rows[:n]] = 0
            counts[k] += n
    return counts


#: Bytes of tables of residuals that are filled in one reading of a scratch file.
GROUP_BYTES = 1 << 28
#: A position with more windows with unknown letters than this share of 5^d is scanned over five
#: letters. 208,094 windows, d = 8, 22 % of them with unknown letters: 0.6 s a pass instead of 2.0 s.
FIVE_LETTERS_FROM = 1 / 40
MAX_FIVE_LETTERS = 10
#: Tables of margins that a scorer keeps between blocks.
MAX_KEPT_TABLES = 256


class MarginPart:
    """The weights of the patterns at one position."""

    def __init__(
        self, family: KmerFamily, position: int, cares: Ids, values: Ids, weights: Floats
    ) -> None:
        every = int(np.bitwise_or.reduce(cares))
        trailing = 0
        while not every >> (2 * trailing) & 3:
            trailing += 1
        self.position = position
        self.span = family.d - trailing
        self.cares = cares >> (2 * trailing)
        self.values = values >> (2 * trailing)
        self.weights = weights
        # a table costs 4^span cells to make; few long patterns are matched faster one by one
        self.tabled = self.span <= TABLE_LETTERS
        self.table: Floats = np.empty(0)

    def add(self, block: KmerBlock, out: Floats) -> None:
        """Add the margins of a block of prepared rows, in place."""
        from fcl.kernels import kmers

        codes = np.empty(kmers.CHUNK, np.uint32)
        if self.tabled:
            if not len(self.table):
                self.table = np.empty(4**self.span)
                kmers.fold_table(self.cares, self.values, self.weights, self.span, self.table)
            kmers.add_margins(
                block.planes, self.position, self.span, block.n_rows, self.table, codes, out
            )
        else:
            kmers.add_patterns(
                block.planes,
                self.position,
                self.span,
                block.n_rows,
                self.cares,
                self.values,
                self.weights,
                codes,
                out,
            )
        if len(block.unknown_rows):
            kmers.mend_margins(
                block.planes,
                block.unknown_start,
                block.unknown_rows,
                self.position,
                self.span,
                self.cares,
                self.values,
                self.weights,
                np.zeros(block.n_rows, np.uint32),
                np.empty(block.n_rows, np.int32),
                out,
            )


class KmerScorer:
    """Margins of a model: one look-up a row and used position, however many weights there are.

    ids : int64 (k,), weights : float64 (k,); weights of 0 are left out.
    """

    def __init__(self, family: KmerFamily, ids: Ids, weights: Floats) -> None:
        self.family = family
        order = np.argsort(ids, kind="stable")
        order = order[weights[order] != 0.0]
        found = family.patterns(ids[order])
        weights = np.ascontiguousarray(weights[order], np.float64)
        self._parts = []
        for position in np.unique(found.positions):
            here, cares, values = found.at(int(position), family.d, family.d)
            self._parts.append(
                MarginPart(family, int(position), cares, values, weights[here].copy())
            )

    def parts(self) -> Iterator[MarginPart]:
        """The used positions in order; tables beyond a bound are not kept between calls."""
        for n, part in enumerate(self._parts):
            yield part
            if n >= MAX_KEPT_TABLES:
                part.table = np.empty(0)

    def margins(self, rows: np.ndarray) -> Floats:
        """rows : uint8 (m, L) codes 0-4; returns float64 (m,), without the intercept."""
        out = np.zeros(len(rows))
        record = np.zeros(self.family.record_shape(len(rows)), np.uint8)
        start, unknown = self.family.prepare(rows, record)
        block = KmerBlock(record, start, unknown, slice(0, len(rows)))
        for part in self.parts():
            part.add(block, out)
        return out


class KmerPricer:
    """Exact prices of all patterns: a table of residuals a position, then a pruned scan.

    The result has the same bits however positions are grouped, since every table is summed in the
    order of the rows and scanned by itself.

    Parameters
    ----------
    keep : int
        Candidates kept at each position (the largest there).
    """

    def __init__(self, family: KmerFamily, prepared: PreparedRows, keep: int) -> None:
        from fcl.kernels import kmers

        self.family = family
        self.prepared = prepared
        self.keep = keep
        self._scan_cells = int(kmers.scan_size(family.d, 4))
        n_cells = 4**family.d
        self._group = 1 if prepared.in_memory else family.tables_in_group
        try:
            # tables of a group one after another; behind the last, room for its scan
            self._cells = np.empty(self._group * n_cells + self._scan_cells - n_cells)
        except MemoryError as error:
            raise BudgetError(
                f"kmers:d={family.d}: the tables of one position need "
                f"{8 * self._scan_cells / 2**20:.0f} MiB, which could not be had; lower d"
            ) from error
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)
        self._flats = np.empty((2, 5**kmers.FLAT_LETTERS))
        self._heap_ids = np.empty(keep, np.int64)
        self._heap_values = np.empty(keep)
        self._unknown = unknown_counts(family, prepared)
        self._five = family.five_letters(self._unknown)
        size = int(kmers.scan_size(family.d, 5)) if self._five.any() else 0
        self._five_cells = np.empty(size)
        # a group may be any positions (:meth:`sums` leaves some out), so also those with the most
        most = int(np.sort(self._unknown)[-self._group :].sum())
        self._item_code = np.empty(most, np.uint32)
        self._item_mask = np.empty(most, np.uint32)
        self._item_value = np.empty(most)
        alone = int(self._unknown.max(initial=0))
        self._stack = np.empty(alone * (family.d + 1), np.int32)

    def price(self, residuals: Floats, watch: Ids, threshold: float) -> Prices:
        """See :class:`fcl.features.base.Pricer`."""
        family = self.family
        order = np.argsort(watch, kind="stable")
        watched = family.patterns(watch[order])
        sums = np.zeros(len(watch))
        found_ids: list[Ids] = []
        found_values: list[Floats] = []
        largest = 0.0
        for k, cells, items in self._tables(residuals, np.arange(family.n_positions)):
            self._watched_sums(k, cells, items, watched, sums)
            bound = self._scan(k, cells, items, threshold, found_ids, found_values)
            largest = max(largest, bound)
        gradients = np.empty(len(watch))
        gradients[order] = sums
        ids = np.concatenate(found_ids)
        canonical = np.argsort(ids)
        return Prices(
            ids=ids[canonical],
            gradients=np.concatenate(found_values)[canonical],
            largest=largest,
            watched=gradients,
            n_priced=family.n_features,
        )

    def sums(self, values: Floats, ids: Ids) -> Floats:
        """See :class:`fcl.features.base.Pricer`; the columns are binary, their own squares."""
        order = np.argsort(ids, kind="stable")
        watched = self.family.patterns(ids[order])
        sums = np.zeros(len(ids))
        for k, cells, items in self._tables(values, np.unique(watched.positions)):
            self._watched_sums(k, cells, items, watched, sums)
        out = np.empty(len(ids))
        out[order] = sums
        return out

    def _tables(self, values: Floats, positions: Ids) -> Iterator[tuple[int, Floats, slice]]:
        """Yield (position, cells, its items with unknown letters) for each position.

        The cells begin with the table of sums; a scan may overwrite what follows it.
        """
        from fcl.kernels import kmers

        d = self.family.d
        n_cells = 4**d
        for at in range(0, len(positions), self._group):
            group = [int(k) for k in positions[at : at + self._group]]
            room = np.concatenate([[0], np.cumsum(self._unknown[group])])
            used = room[:-1].copy()
            tables = self._cells[: len(group) * n_cells].reshape(len(group), n_cells)
            tables[:] = 0.0
            for number, rows in self.prepared.blocks():
                block = self.family.block(self.prepared, number)
                for t, k in enumerate(group):
                    part = values[rows]
                    kmers.add_to_table(
                        block.planes, k, d, block.n_rows, part, self._codes, tables[t]
                    )
                    if len(block.unknown_rows):
                        used[t] = kmers.take_unknown(
                            block.planes,
                            block.unknown_start,
                            block.unknown_rows,
                            k,
                            d,
                            part,
                            self._masks,
                            self._rows,
                            tables[t],
                            used[t],
                            self._item_code,
                            self._item_mask,
                            self._item_value,
                        )
            for t in range(len(group) - 1, -1, -1):  # from the end: a scan overwrites what follows
                cells = self._cells[t * n_cells : t * n_cells + self._scan_cells]
                yield group[t], cells, slice(int(room[t]), int(used[t]))

    def _watched_sums(
        self, k: int, cells: Floats, items: slice, watched: Patterns, sums: Floats
    ) -> None:
        from fcl.kernels import kmers

        here, cares, values = watched.at(k, self.family.d, self.family.d)
        if here.stop > here.start:
            kmers.pattern_sums(
                cells,
                items.stop - items.start,
                self._item_code[items],
                self._item_mask[items],
                self._item_value[items],
                cares,
                values,
                self.family.d,
                sums[here],
            )

    def _scan(
        self,
        k: int,
        cells: Floats,
        items: slice,
        threshold: float,
        found_ids: list[Ids],
        found_values: list[Floats],
    ) -> float:
        from fcl.kernels import kmers

        out = np.empty(4)
        radix, n_items = 4, items.stop - items.start
        code, mask = self._item_code[items], self._item_mask[items]
        value = self._item_value[items]
        if self._five[k]:
            kmers.five_letter_table(
                cells, self.family.d, n_items, code, mask, value, self._five_cells
            )
            cells, radix, n_items = self._five_cells, 5, 0
        kmers.scan_patterns(
            cells,
            self.family.d,
            radix,
            n_items,
            code,
            mask,
            value,
            self._stack,
            k * self.family.per_position,
            threshold,
            self._heap_ids,
            self._heap_values,
            self._flats,
            out,
        )
        kept = int(out[2])
        found_ids.append(self._heap_ids[:kept].copy())
        found_values.append(self._heap_values[:kept].copy())
        return float(max(out[0], out[1]))


class KmerColumns:
    """Columns of patterns as bitmaps."""

    def __init__(self, family: KmerFamily, prepared: PreparedRows, buffer_bytes: int) -> None:
        from fcl.kernels import kmers

        self.family = family
        self.prepared = prepared
        words = [-(-(rows.stop - rows.start) // 64) for _, rows in prepared.blocks()]
        self.batch = max(1, min(1024, buffer_bytes // (8 * sum(words))))
        self._bits = [np.empty((self.batch, w), np.uint64) for w in words]
        self._codes = np.empty(kmers.CHUNK, np.uint32)
        self._masks = np.zeros(prepared.block_rows, np.uint32)
        self._rows = np.empty(prepared.block_rows, np.int32)

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        """By position: the codes of a position are made once for all its patterns."""
        return np.argsort(ids, kind="stable")

    def make(self, ids: Ids) -> Sequence[Columns]:
        """The columns of at most ``batch`` features, in increasing order of their ids."""
        from fcl.kernels import kmers

        d = self.family.d
        found = self.family.patterns(ids)
        made = []
        for number, _ in self.prepared.blocks():
            block = self.family.block(self.prepared, number)
            bits = self._bits[number][: len(ids)]
            for k in np.unique(found.positions):
                here, cares, values = found.at(int(k), d, d)
                kmers.match_bits(
                    block.planes,
                    block.unknown_start,
                    block.unknown_rows,
                    int(k),
                    d,
                    block.n_rows,
                    cares,
                    values,
                    self._codes,
                    self._masks,
                    self._rows,
                    bits[here],
                )
            made.append(BitColumns(bits, block.n_rows))
        return made
