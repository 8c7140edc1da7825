"""How many rows the trainer's sample has, and when another one is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SampleSize", "Seen"]

#: A sample that has proved too small grows by this factor.
GROWTH = 4
#: Share of the cache that what is cached now may take over a larger sample.
ROOM_SHARE = 0.8
#: A pass that leaves more of the gap than SLOW, and of the objective than STEADY, belongs to the end
#: game: there the sample's own error is what is left.
SLOW = 0.7
STEADY = 0.98
#: Rows of the sample for each cached column, at least: with fewer the columns' products are mostly noise
#: (17,000 columns on 370,000 of 6.2 M rows: a minute in steps of a quarter of their length).
ROWS_A_COLUMN = 50
#: The objective has fallen so far since the sample was drawn that the rows that matter are others.
STALE = 0.7


@dataclass(frozen=True)
class Seen:
    """What a certified pass shows of the sample."""

    objective: float
    gap: float
    beta: float  #: step towards the proposed point
    decrease: float  #: of the objective on all rows
    promised: float  #: decrease that the trainer foretold
    n_cached: int
    cached_bytes: float


class SampleSize:
    """The size of the sample from pass to pass.

    The first sample goes by the curvatures of the null model. While the objective falls fast they soon
    are quite other ones, and there are few columns to be made again. Later the sample grows, to all rows
    if the cache allows, whenever it has foretold the last step badly, the gap hardly closes, or it has
    become small for the number of columns.

    Parameters
    ----------
    n_rows : int
        All rows.
    most : int
        Rows that there is room for; 0 if the trainer works on all rows without a sample.
    first : int
        Rows of the first sample.
    cache_bytes : int
        Bytes of columns that the cache holds.
    """

    def __init__(self, n_rows: int, most: int, first: int, cache_bytes: int) -> None:
        self._n_rows = n_rows
        self._most = most
        self._cache_bytes = cache_bytes
        self.wanted = first
        self.drawn = 0  #: rows of the sample that was drawn last
        self.draws = 0  #: samples asked for so far
        self._objective = self._last_gap = self._last_objective = np.inf

    def should_redraw(self, seen: Seen) -> bool:
        """Whether to draw a new sample, of ``wanted`` rows; to be asked once a pass."""
        if not self._most or self.drawn == self._n_rows:
            return False
        if self.draws == 0:
            self._objective = seen.objective
            return True
        bad = seen.beta < 0.5 or seen.decrease < 0.5 * seen.promised
        steady = seen.objective > STEADY * self._last_objective
        slow = steady and seen.gap > SLOW * self._last_gap
        self._last_gap, self._last_objective = seen.gap, seen.objective
        thin = self.drawn < ROWS_A_COLUMN * seen.n_cached
        if bad or slow or thin:
            wanted = min(GROWTH * self.wanted, self._room(seen.cached_bytes))
            if wanted > 1.2 * self.wanted:
                self.wanted, self._objective = wanted, seen.objective
                return True
        if seen.objective < STALE * self._objective:
            self._objective = seen.objective
            return True
        return False

    def _room(self, cached_bytes: float) -> int:
        """Rows over which the cache can hold what is cached now, and some more."""
        bytes_a_row = max(cached_bytes / max(self.drawn, 1), 1e-9)
        fit = ROOM_SHARE * self._cache_bytes / bytes_a_row
        return self._most if fit >= self._most else max(self.wanted, int(fit))
