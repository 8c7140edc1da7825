"""The rows of the trainer: how many its sample has, when another one is drawn, and what that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family
from fcl.solve.passes import Passes
from fcl.solve.sample import draw_rows
from fcl.solve.state import Point
from fcl.solve.view import PROXIMAL, RowView

__all__ = ["LastStep", "PassStats", "SampleSize", "SampleState", "Sampler", "seed_of_draw"]

#: A sample that has proved too small grows by this factor; larger ones overshoot what the columns need.
GROWTH = 2
#: Share of the cache that what is cached now may take over a larger sample.
ROOM_SHARE = 0.8
#: So many rows are few: a cache that is too small for them evicts, and converges.
FEW_ROWS = 1 << 16
#: A pass that leaves more of the gap than SLOW, and of the objective than STEADY, belongs to the end
#: game: there the sample's own error is what is left.
SLOW = 0.7
STEADY = 0.98
#: Rows of the sample for each cached column, at least: with fewer the columns' products are mostly noise,
#: with more they take longer to read. That is for a trainer that never waits, and continues far from its
#: anchor (2.1 M rows, C = 0.1, two writers: 85 s with 12, 65 to 70 s with 25 and with 50; where memory
#: is short 25 leave twice the room).
ROWS_A_COLUMN = 25
#: ... and for one that is in lock-step with the passes. 832,376 rows, C = 0.1, seconds of one core: 12.4
#: with 12, 13.9 with 20.
LOCKED_ROWS_A_COLUMN = 12
#: ... whose passes are dear: on 832,374 rows, C = 0.03, a sample of 65,000 closes half of the gap in
#: each, and one of 256,000 nine tenths.
LOCKED_SLOW = 0.45
#: Passes that a sample lives before it makes way for one of the same size. A trainer that does not wait
#: has proposed a point before its last columns were there: of a new sample in every pass these would
#: never have a say.
LEAST_AGE = 2
#: The objective has fallen so far since the sample was drawn that the rows that matter are others.
STALE = 0.7

#: Seeds of samples go up to here: a hash of seed and row is 64 bits.
MOST_SEEDS = 1 << 31


def seed_of_draw(seed: int, draws: int) -> int:
    """The seed of the sample that is drawn as number ``draws`` of a job."""
    return (seed + draws) % MOST_SEEDS


@dataclass(frozen=True)
class PassStats:
    """What a certified pass shows of the sample."""

    objective: float
    gap: float
    beta: float  #: step towards the proposed point
    decrease: float  #: of the objective on all rows
    promised: float  #: decrease that the trainer foretold
    n_cached: int
    cached_bytes: float


@dataclass(frozen=True)
class LastStep:
    """The step to the present anchor: what :class:`PassStats` tells of it."""

    beta: float = 1.0
    decrease: float = 0.0
    promised: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SampleState:
    """What a checkpoint saves of the sample: its size, and what decides on the next one."""

    most: int  #: rows that there was room for
    wanted: int
    drawn: int
    draws: int
    age: int
    objective: float
    last_gap: float
    last_objective: float
    pending: bool = False  #: a new sample is to be drawn before columns are made
    proximal: float = PROXIMAL  #: of the view
    step: LastStep = LastStep()
    origin: Point | None = (
        None  #: the anchor at which it was drawn; None: the draw cannot be repeated
    )


class SampleSize:
    """The size of the sample from pass to pass.

    The first sample goes by the curvatures of the null model. While the objective falls fast they soon
    are quite other ones, and there are few columns to be made again. Later the sample grows, to all rows
    if the cache allows, whenever it has foretold the last step badly, the gap hardly closes, or it has
    become small for the number of columns. One that has no room to grow is drawn anew instead: what one
    has wrong is right in another.

    Parameters
    ----------
    n_rows : int
        All rows.
    most : int
        Rows that there is room for; 0 if the trainer works on all rows without a sample.
    first : int
        Rows of the first sample.
    requested : bool
        Whether the user has asked for that size: then the number of columns alone is no reason to grow.
    cache_bytes : int
        Bytes of columns that the cache holds.
    locked : bool
        Whether the trainer is in lock-step with the passes.
    """

    def __init__(
        self,
        n_rows: int,
        most: int,
        first: int,
        cache_bytes: int,
        requested: bool = False,
        locked: bool = False,
    ) -> None:
        self._n_rows = n_rows
        self._most = most
        self._cache_bytes = cache_bytes
        self._rows_a_column = LOCKED_ROWS_A_COLUMN if locked else ROWS_A_COLUMN
        self._slow = LOCKED_SLOW if locked else SLOW
        self._requested = requested
        self._first = self.wanted = first
        self.drawn = 0  #: rows of the sample that was drawn last
        self.draws = 0  #: samples asked for so far
        self.age = 0  #: passes since one was
        self._objective = self._last_gap = self._last_objective = np.inf

    def should_redraw(self, stats: PassStats) -> bool:
        """Whether to draw a new sample, of ``wanted`` rows; to be asked once a pass."""
        if not self._most or self.drawn == self._n_rows:
            return False
        if self.draws == 0:
            self._objective = stats.objective
            return True
        self.age += 1
        bad = stats.beta < 0.5 or stats.decrease < 0.5 * stats.promised
        steady = stats.objective > STEADY * self._last_objective
        slow = steady and stats.gap > self._slow * self._last_gap
        self._last_gap, self._last_objective = stats.gap, stats.objective
        thin = not self._requested and self.drawn < self._rows_a_column * stats.n_cached
        redraw = (
            ((bad or slow or thin) and self._grow(stats.cached_bytes))
            or ((bad or slow) and self.age >= LEAST_AGE)
            or stats.objective < STALE * self._objective
        )
        if redraw:
            self.age, self._objective = 0, stats.objective
        return redraw

    def _grow(self, cached_bytes: float) -> bool:
        """Want more rows, if there is room for so many more that it is worth a new sample."""
        room = self._room(cached_bytes)
        wanted = min(GROWTH * self.wanted, room)
        if room == self._most <= 1.2 * wanted:
            wanted = self._most
        if wanted <= 1.2 * self.wanted and wanted < self._n_rows:
            return False
        self.wanted = wanted
        return True

    def _room(self, cached_bytes: float) -> int:
        """Rows over which the cache can hold what is cached now, and some more; all, if they are few."""
        if self._most <= FEW_ROWS:
            return self._most
        bytes_a_row = max(cached_bytes / max(self.drawn, 1), 1e-9)
        fit = ROOM_SHARE * self._cache_bytes / bytes_a_row
        return self._most if fit >= self._most else max(self.wanted, int(fit))

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, **more: Any) -> SampleState:
        """For :meth:`restore`. more : the other fields of the state."""
        return SampleState(
            most=self._most,
            wanted=self.wanted,
            drawn=self.drawn,
            draws=self.draws,
            age=self.age,
            objective=self._objective,
            last_gap=self._last_gap,
            last_objective=self._last_objective,
            **more,
        )

    def restore(self, state: SampleState) -> bool:
        """Take over what :meth:`state` gave; False if the sample it had is not to be drawn again.

        There is no room for it, or a size is asked for that it does not have.
        """
        self.wanted = min(max(state.wanted, self._first), self._most)
        self.drawn, self.draws, self.age = state.drawn, state.draws, state.age
        self._objective = state.objective
        self._last_gap, self._last_objective = state.last_gap, state.last_objective
        if not self.draws or (state.wanted == self.wanted and self.drawn <= self._most):
            return True
        # the next anchor is that of another one
        self.age, self._objective = 0, min(self._objective, self._last_objective)
        return False


class Sampler:
    """The sampled rows of a driver that works alone, in buffers that are made once.

    A sample is a function of the rows, the seed, its number and the anchor at which it was drawn: a
    checkpoint holds these, and it is drawn again with the same bits.

    Parameters
    ----------
    size : SampleSize
    most : int
        Rows that there is room for.
    seed : int
        Of the job.
    """

    def __init__(self, size: SampleSize, most: int, seed: int) -> None:
        self.size = size
        self.most = most
        self.step = LastStep()
        #: whether a new sample is to be drawn before columns are made
        self.pending = False
        self._seed = seed
        self._origin: Point | None = None  # anchor of the draw; None: there is no sample yet
        self._rows = np.empty(most, np.int64)
        self._y, self._s = np.empty(most), np.empty(most)
        self._buffers = np.empty(most), np.empty(most), np.empty(most)  # of the view
        self._records = np.empty(0, np.uint8)

    @staticmethod
    def bytes_for(most: int, records: int) -> int:
        """Bytes of the buffers beside those of the view; ``records`` of the prepared rows."""
        return 3 * 8 * most + records

    def nothing(self, passes: Passes) -> RowView:
        """The view before the first sample: no rows."""
        return self._view(passes, 0)

    def draw(self, passes: Passes, origin: Point) -> tuple[RowView, PreparedRows]:
        """Draw a sample by the curvatures of the passes, which are those at ``origin``."""
        self.size.draws += 1
        return self._draw(passes, origin)

    def _draw(self, passes: Passes, origin: Point) -> tuple[RowView, PreparedRows]:
        objective, size = passes.objective, self.size
        self._origin, self.pending = origin, False
        if size.wanted >= objective.n_rows:
            size.drawn = objective.n_rows
            verified = passes.family.name if passes.family.verifies_columns else ""
            return RowView.all_rows(objective, verified, self._buffers), passes.prepared
        n = draw_rows(
            objective,
            passes.vectors.curvatures,
            size.wanted,
            seed_of_draw(self._seed, size.draws),
            self._rows[: size.wanted],
            self._s,
        )
        np.take(objective.y, self._rows[:n], out=self._y[:n])
        size.drawn = n
        return self._view(passes, n), self._prepare(passes.family, passes.prepared, n)

    def _view(self, passes: Passes, n: int) -> RowView:
        y, s = self._y[:n], self._s[:n]
        return RowView.of_rows(replace(passes.objective, y=y, s=s), self._rows[:n], self._buffers)

    def _prepare(self, family: Family, prepared: PreparedRows, n: int) -> PreparedRows:
        size, shape = prepared.block_rows, prepared.record_shape
        if not len(self._records):
            self._records = np.empty((-(-self.most // size), *shape), np.uint8)
        chosen = PreparedRows.attach(n, size, shape, self._records[: -(-n // size)])
        for number in range(chosen.n_blocks):
            family.select(prepared, self._rows[:n], chosen, number)
        return chosen

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, proximal: float) -> SampleState:
        """For :meth:`restore`. proximal : of the view."""
        return self.size.state(
            pending=self.pending, proximal=proximal, step=self.step, origin=self._origin
        )

    def restore(self, passes: Passes, state: SampleState) -> tuple[RowView, PreparedRows] | None:
        """Draw the sample of :meth:`state` again; None if there was none, or its draw cannot be repeated.

        Overwrites the vectors of the passes but the anchor's margins.
        """
        fits = self.size.restore(state)
        self.step = state.step
        self.pending = state.pending or not fits
        origin = state.origin
        if origin is None or not fits:
            return None
        blocks = range(passes.prepared.n_blocks)
        passes.write_margins(origin, blocks)
        passes.vectors.anchor = 1 - passes.vectors.anchor
        passes.write_residuals(origin.intercept, blocks)
        passes.vectors.anchor = 1 - passes.vectors.anchor
        pending = self.pending
        drawn = self._draw(passes, origin)
        self.pending = pending
        return drawn
