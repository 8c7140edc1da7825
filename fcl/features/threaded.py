"""Prices a family on several threads of a process, with the same bits as on one.

Each thread has its own pricer. Work is divided only where this changes no sum: by parts of the family, or
by row blocks if sums are integers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from fcl.data.prepared import PreparedRows
from fcl.features.prices import (
    PriceQuery,
    Pricer,
    Prices,
    Progress,
    RowVector,
    Scan,
    merge_prices,
)
from fcl.features.run import price_each, scan_in_turn
from fcl.parallel import Team, cut

#: Pieces of the parts for each thread: the last to end leaves the others idle for a piece at most.
PIECES_A_THREAD = 4
#: Pieces have an even number of parts: neighbouring positions of k-mers share the reading of the rows.
UNIT = 2


class Shares:
    """The progress of pieces of work, reported as a whole in the thread that made this object."""

    def __init__(self, progress: Progress, n: int) -> None:
        self._progress, self._done = progress, [0.0] * n
        self._owner = threading.get_ident()

    def of(self, piece: int) -> Progress:
        """The progress of a piece."""

        def report(share: float) -> None:
            self._done[piece] = share
            if threading.get_ident() == self._owner:
                self._progress(sum(self._done) / len(self._done))

        return report


class _ThreadedPricer:
    """Pricers of the same family and rows, one for each thread (:class:`fcl.features.prices.Pricer`)."""

    def __init__(self, make: Callable[[], Pricer], team: Team) -> None:
        self._make, self._team = make, team
        self._pricers = [make()]
        self.n_parts = self._pricers[0].n_parts

    def accumulate(self, request: Any, rows: RowVector, blocks: range, progress: Progress) -> Any:
        return self._pricers[0].accumulate(request, rows, blocks, progress)

    def merge(self, sums: Any, more: Any) -> Any:
        return self._pricers[0].merge(sums, more)

    def scan(self, query: PriceQuery, step: float) -> Scan:
        return self._pricers[0].scan(query, step)


class PartsPricer(_ThreadedPricer):
    """Prices the parts of a family side by side."""

    def __init__(self, make: Callable[[], Pricer], team: Team) -> None:
        super().__init__(make, team)
        self._lock = threading.Lock()
        self._idle = list(self._pricers)

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`."""
        pieces = cut(queries[0].parts, PIECES_A_THREAD * self._team.most, UNIT)
        shares = Shares(progress, len(pieces))

        def piece(number: int) -> list[Prices]:
            with self._lock:
                own = self._idle.pop() if self._idle else None
            if own is None:
                own = self._make()
            asked = [query.of_parts(pieces[number]) for query in queries]
            found = price_each(own, asked, rows, blocks, shares.of(number))
            self._idle.append(own)  # after an error it is not used again
            return found

        found = self._team.map(piece, range(len(pieces)))
        return [merge_prices(output) for output in zip(*found, strict=True)]


def on_threads(
    kind: type[_ThreadedPricer],
    make: Callable[[PreparedRows], Pricer],
    prepared: PreparedRows,
    team: Team,
) -> Pricer:
    """A pricer for each thread of a team; with one thread the pricer itself."""
    return make(prepared) if team.most == 1 else kind(lambda: make(prepared.reader()), team)


class RowsPricer(_ThreadedPricer):
    """Makes integer sums over ranges of row blocks side by side, and adds them."""

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`."""
        ranges = cut(blocks, self._team.most)
        while len(self._pricers) < len(ranges):
            self._pricers.append(self._make())
        first = self._pricers[0]

        def accumulate(own: RowVector, request: Any, progress: Progress) -> Any:
            shares = Shares(progress, len(ranges))

            def part(number: int) -> Any:
                pricer = self._pricers[number]
                return pricer.accumulate(request, own, ranges[number], shares.of(number))

            return reduce(first.merge, self._team.map(part, range(len(ranges))))

        return scan_in_turn(first, queries, rows, accumulate, progress)
