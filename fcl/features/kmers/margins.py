"""Margins of a model of positional k-mers: which tables are made, and which patterns are matched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fcl import kernels
from fcl.features.kmers.parts import TABLE_LETTERS, MarginPart, Pair, SharedTable
from fcl.features.steps import common_step
from fcl.features.windows import buffers_for
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.kmers.family import KmerFamily

#: Most patterns at a position that are matched one by one, by the letters they span (0 to TABLE_LETTERS):
#: a look-up takes longer if its table is larger than the first-level cache of the core, above all if the
#: tables of other positions have displaced it since the last block of rows. In a pass one position goes
#: through all blocks, unless they are in a large scratch file, and its table stays in the caches.
MOST_MATCHED = (4, 4, 4, 4, 4, 4, 4, 16, 32, 48)
MOST_MATCHED_IN_PASS = (4, 4, 4, 4, 4, 4, 4, 6, 8, 12)
#: Number of tables of margins that a scorer keeps between blocks of raw rows.
MAX_KEPT_TABLES = 256
#: At most so many neighbouring positions share one reading of the rows, so that their letters are a few
#: planes of each record.
POSITIONS_IN_GROUP = 4
#: Fewest rows of a pass for which neighbouring positions share a table: making it takes longer.
SHARED_ROWS = 1 << 17
#: Times in patterns that are matched: of a look-up in a table that positions share; of making a cell of
#: it, times the number of rows; and of the first of some matched patterns.
LOOKUP_PATTERNS = 8.0
MAKING_PATTERNS = 4.0
MATCHING_PATTERNS = 6.0
#: Most letters that patterns of several positions span if they are matched together: the codes of more
#: letters would need more than four planes of the prepared rows.
MATCHED_LETTERS = 13
#: Sums of absolute weights stay below this number of steps in the tables that positions share: int32.
MOST_SHARED_STEPS = 2.0**31
#: Sums of float64 are exact below this number of steps.
EXACT_STEPS = 2.0**53


def margin_table_bytes(family: KmerFamily, scratch: bool) -> int:
    """Bytes of the tables of one group of positions, which are in memory at the same time."""
    letters = min(family.length, TABLE_LETTERS)
    making = 4 * 4 ** max(min(family.d, TABLE_LETTERS), letters - 1)  # beside a shared table
    if scratch:
        return _group_bytes(family) + making
    own, two = 8 * 4 ** min(family.d, TABLE_LETTERS), 16 * 4 ** min(family.d, TABLE_LETTERS - 1)
    return max(own, two, 4 * 4**letters + making)


def _group_bytes(family: KmerFamily) -> int:
    """Most bytes of the tables that share one reading of a scratch file."""
    own = 8 * 4 ** min(family.d, TABLE_LETTERS)
    return max(own, 4 * 4 ** min(family.length, TABLE_LETTERS)) + (POSITIONS_IN_GROUP - 1) * own


def shares_tables(n_rows: int) -> bool:
    """Whether neighbouring positions share tables in a pass over so many rows."""
    return n_rows >= SHARED_ROWS


Parts = Sequence[MarginPart | Pair | SharedTable]


def exact_step(weights: Floats) -> float:
    """The step of which all weights are multiples if their sums are exact; else 0, as without weights."""
    step = common_step(weights)
    return step if 0.0 < float(np.abs(weights).sum()) < EXACT_STEPS * step else 0.0


class _Model:
    """The patterns of a model, sorted by position, with their weights.

    spans : int64 (k,), letters from the position of each pattern to the last that it cares for.
    positions, starts, longest : of each position with patterns: the position, its first pattern, and the
        largest span. ``starts`` ends with the number of patterns.
    """

    def __init__(self, family: KmerFamily, ids: Ids, weights: Floats) -> None:
        order = np.argsort(ids, kind="stable")
        order = order[weights[order] != 0.0]
        self.d = family.d
        self.found = family.patterns(ids[order])
        self.weights = np.ascontiguousarray(weights[order], np.float64)
        last = self.found.cares & -self.found.cares  # a bit of the last letter
        self.spans = family.d - (np.frexp(last.astype(np.float64))[1] - 1) // 2
        positions, starts = np.unique(self.found.positions, return_index=True)
        self.positions: list[int] = positions.tolist()
        self.starts: list[int] = [*starts.tolist(), len(self.weights)]
        self.longest: list[int] = np.maximum.reduceat(self.spans, starts).tolist()

    def part(self, t: int, some: slice | Ids, span: int, tabled: bool = False) -> MarginPart:
        """Some patterns of the t-th position, which care for ``span`` letters at most."""
        unused = 2 * (self.d - span)
        fields = self.found.cares[some] >> unused, self.found.values[some] >> unused
        return MarginPart(self.positions[t], span, *fields, self.weights[some], tabled)

    def apart(self, t: int, most_matched: Sequence[int]) -> MarginPart:
        """All patterns of the t-th position."""
        some, span = slice(*self.starts[t : t + 2]), self.longest[t]
        tabled = span <= TABLE_LETTERS and some.stop - some.start > most_matched[span]
        return self.part(t, some, span, tabled)

    def pairs(self, most_matched: Sequence[int]) -> Iterator[MarginPart | Pair]:
        """The parts of all positions; neighbours whose tables fit in the cache together are joined."""
        parts = [self.apart(t, most_matched) for t in range(len(self.positions))]
        at = 0
        while at < len(parts):
            if at + 1 < len(parts) and Pair.fits(*parts[at : at + 2]):
                yield Pair(*parts[at : at + 2])
                at += 1
            else:
                yield parts[at]
            at += 1

    def shared(self, step: float, n_rows: int) -> list[MarginPart | SharedTable]:
        """Tables that positions share, and the patterns that are in none of them, by position."""
        out: list[MarginPart | SharedTable] = []
        matched, at = [np.empty(0, np.int64)], 0
        totals = np.add.reduceat(np.abs(self.weights), self.starts[:-1]) / step
        stops, letters = self._tables(totals, n_rows)
        while at < len(stops):
            if stops[at] > at:
                table, longer = self._table(range(at, stops[at]), letters[at], step)
                out.append(table)
                matched += longer
            elif totals[at] < MOST_SHARED_STEPS:
                matched.append(np.arange(*self.starts[at : at + 2]))
            else:
                out.append(self.apart(at, MOST_MATCHED_IN_PASS))
            at = max(at + 1, stops[at])
        out += self._matched(np.concatenate(matched))
        return sorted(out, key=lambda part: part.position)

    def _tables(self, totals: Floats, n_rows: int) -> tuple[list[int], list[int]]:
        """Where a table that begins at each position ends, and its letters; see ``choose_tables``.

        totals : float64 (positions,), the sums of absolute weights in steps.
        """
        n, d, counts = len(self.positions), self.d, np.diff(self.starts)
        cells = np.repeat(np.arange(n) * (d + 1), counts) + self.spans
        sizes = np.bincount(cells, minlength=n * (d + 1)).reshape(n, d + 1)
        longer = counts[:, None] - np.cumsum(sizes, axis=1)
        making = MAKING_PATTERNS / n_rows * 4.0 ** np.arange(TABLE_LETTERS + 1)
        # patterns of so many positions are matched together, and share this time
        extra = MATCHING_PATTERNS / (MATCHED_LETTERS + 1 - d)
        stops, letters = np.empty((2, n), np.int64)
        positions, costs = np.array(self.positions), LOOKUP_PATTERNS + making
        kernels.margins.choose_tables(
            positions, longer, totals, MOST_SHARED_STEPS, costs, extra, stops, letters
        )
        return stops.tolist(), letters.tolist()

    def _table(self, places: range, letters: int, step: float) -> tuple[SharedTable, list[Ids]]:
        """A table of so many letters that positions share, and the patterns that reach further."""
        parts, longer = [], []
        stop = self.positions[places.start] + letters
        for t in places:
            room, ends = stop - self.positions[t], self.starts[t : t + 2]
            if self.longest[t] <= room:
                parts.append(self.part(t, slice(*ends), self.longest[t]))
                continue
            own = np.arange(*ends)
            beyond = self.spans[own] > room
            longer.append(own[beyond])
            own = own[~beyond]
            if len(own):
                parts.append(self.part(t, own, int(self.spans[own].max())))
        return SharedTable(parts, step), longer

    def _matched(self, some: Ids) -> Iterator[MarginPart]:
        """Patterns in groups of so few letters that they are matched together."""
        positions = self.found.positions[some]
        ends = positions + self.spans[some]
        at = 0
        while at < len(some):
            position = int(positions[at])
            beyond = np.flatnonzero(ends[at:] > position + MATCHED_LETTERS)
            group = slice(at, at + int(beyond[0]) if len(beyond) else len(some))
            span = int(ends[group].max()) - position
            left = 2 * (span - self.d - (positions[group] - position))
            fields = self.found.cares[some[group]], self.found.values[some[group]]
            cares, values = (x << np.maximum(left, 0) >> np.maximum(-left, 0) for x in fields)
            yield MarginPart(position, span, cares, values, self.weights[some[group]])
            at = group.stop


class KmerScorer:
    """Computes the margins of a model: one table look-up per row and position with many patterns.

    Few patterns, and patterns of more than TABLE_LETTERS letters, are matched one by one instead. If sums
    of the weights are exact, several positions share a look-up.

    ids : int64 (k,).
    weights : float64 (k,); weights of 0 are ignored.
    n_rows : number of rows of a pass, in which each position usually goes through all blocks before the
        next one; 0 if raw rows come in blocks.
    """

    def __init__(self, family: KmerFamily, ids: Ids, weights: Floats, n_rows: int = 0) -> None:
        self.family = family
        model = _Model(family, ids, weights)
        step = exact_step(model.weights) if shares_tables(n_rows) else 0.0
        self._parts: Parts
        if step:
            self._parts = model.shared(step, n_rows)
        else:
            self._parts = [*model.pairs(MOST_MATCHED_IN_PASS if n_rows else MOST_MATCHED)]

    def groups(self, in_memory: bool) -> Iterator[Parts]:
        """Yield the parts in order, in groups that share one reading of the blocks.

        With rows in memory these are single parts, else parts of neighbouring positions. The tables of a
        group are discarded when the next group is requested.
        """
        at = 0
        while at < len(self._parts):
            group = self._parts[at : at + (1 if in_memory else self._n_together(at))]
            yield group
            for part in group:
                part.forget()
            at += len(group)

    def _n_together(self, at: int) -> int:
        """Number of parts, from the given one on, that share one reading of a scratch file."""
        last, room = self._parts[at].position + POSITIONS_IN_GROUP, _group_bytes(self.family)
        for n, part in enumerate(self._parts[at:]):
            room -= part.table_bytes
            if n and (part.position >= last or room < 0):
                return n
        return len(self._parts) - at

    def margins(self, rows: np.ndarray) -> Floats:
        """The margins of raw rows, uint8 (m, L) codes 0-4, without the intercept: float64 (m,)."""
        out = np.zeros(len(rows))
        block = self.family.block_of(rows)
        buffers = buffers_for(block)
        n_tables = 0
        for part in self._parts:
            part.add(block, buffers, out)
            n_tables += 2 if isinstance(part, Pair) else 1
            if n_tables > MAX_KEPT_TABLES:
                part.forget()
        return out
