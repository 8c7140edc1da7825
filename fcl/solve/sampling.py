"""The trainer's sample of rows: its size, and when and how a new one is drawn."""

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

#: Growth factor of a sample that has proved too small; larger factors overshoot.
GROWTH = 2
#: Share of the cache that the current columns may take up over a larger sample.
ROOM_SHARE = 0.8
#: Up to this many rows the cache is not considered: one that is too small evicts, and still converges.
FEW_ROWS = 1 << 16
#: A pass that leaves more of the gap than SLOW, and more of the objective than STEADY, belongs to the
#: final phase, in which the error of the sample dominates.
SLOW = 0.7
STEADY = 0.98
#: Minimum rows of the sample per cached column: with fewer the products of columns are mostly noise, with
#: more they take longer to read and more memory. For a trainer that never waits and leaves its anchor.
ROWS_A_COLUMN = 25
#: ... and for a trainer in lock-step with the passes.
LOCKED_ROWS_A_COLUMN = 12
#: SLOW in lock-step, where a pass is expensive: larger samples close more of the gap per pass.
LOCKED_SLOW = 0.45
#: Minimum passes before a sample is replaced by one of the same size. A trainer that does not wait
#: proposes its point before the last columns arrive; a new sample per pass would make them useless.
LEAST_AGE = 2
#: Share to which the objective falls before the rows that matter have changed and a new sample is due.
STALE = 0.7

#: Exclusive upper limit of sample seeds: a hash of seed and row has 64 bits.
MOST_SEEDS = 1 << 31


def seed_of_draw(seed: int, draws: int) -> int:
    """The seed of the sample number ``draws`` of a job."""
    return (seed + draws) % MOST_SEEDS


@dataclass(frozen=True)
class PassStats:
    """What a certified pass shows about the sample."""

    objective: float
    gap: float
    beta: float  #: share of the step to the proposed point
    decrease: float  #: of the objective on all rows
    promised: float  #: decrease that the trainer predicted
    n_cached: int
    cached_bytes: float


@dataclass(frozen=True)
class LastStep:
    """The step to the current anchor, as in :class:`PassStats`."""

    beta: float = 1.0
    decrease: float = 0.0
    promised: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SampleState:
    """What a checkpoint stores of the sample: its size, and what decides on the next sample."""

    most: int  #: rows that fitted in memory
    wanted: int
    drawn: int
    draws: int
    age: int
    objective: float
    last_gap: float
    last_objective: float
    pending: bool = False  #: whether to draw a new sample before making columns
    proximal: float = PROXIMAL  #: of the view
    step: LastStep = LastStep()
    origin: Point | None = (
        None  #: the anchor at which it was drawn; None: the draw cannot be repeated
    )


class SampleSize:
    """The size of the sample from pass to pass.

    The first sample is drawn by the curvatures of the null model. While the objective falls fast, the
    curvatures soon change, and a new sample is cheap because few columns have to be made again. Later the
    sample grows, up to all rows if the cache allows, whenever it predicted the last step badly, the gap
    hardly closes, or it has become small for the number of columns. A sample without room to grow is
    replaced by another of the same size, since the errors of two samples differ.

    Parameters
    ----------
    n_rows : int
        Number of all rows.
    most : int
        Rows that fit in memory; 0 if the trainer works on all rows without a sample.
    first : int
        Rows of the first sample.
    requested : bool
        Whether the user requested this size; then the number of columns alone is no reason to grow.
    cache_bytes : int
        Capacity of the cache.
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
        self.drawn = 0  #: rows of the latest sample
        self.draws = 0  #: samples requested so far
        self.age = 0  #: passes since the latest sample
        self._objective = self._last_gap = self._last_objective = np.inf

    def should_redraw(self, stats: PassStats) -> bool:
        """Decide whether to draw a new sample, of ``wanted`` rows; call once per pass."""
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
        """Raise ``wanted`` if there is room for enough rows to justify a new sample."""
        room = self._room(cached_bytes)
        wanted = min(GROWTH * self.wanted, room)
        if room == self._most <= 1.2 * wanted:
            wanted = self._most
        if wanted <= 1.2 * self.wanted and wanted < self._n_rows:
            return False
        self.wanted = wanted
        return True

    def _room(self, cached_bytes: float) -> int:
        """Rows over which the cache can hold the current columns and more; all if they are few."""
        if self._most <= FEW_ROWS:
            return self._most
        bytes_a_row = max(cached_bytes / max(self.drawn, 1), 1e-9)
        fit = ROOM_SHARE * self._cache_bytes / bytes_a_row
        return self._most if fit >= self._most else max(self.wanted, int(fit))

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, **more: Any) -> SampleState:
        """The state for :meth:`restore`. more : its other fields."""
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
        """Restore a :meth:`state`; returns False if its sample must not be drawn again.

        It must not if it does not fit in memory, or if the job requests another size.
        """
        self.wanted = min(max(state.wanted, self._first), self._most)
        self.drawn, self.draws, self.age = state.drawn, state.draws, state.age
        self._objective = state.objective
        self._last_gap, self._last_objective = state.last_gap, state.last_objective
        if not self.draws or (state.wanted == self.wanted and self.drawn <= self._most):
            return True
        # the next anchor is that of a new sample
        self.age, self._objective = 0, min(self._objective, self._last_objective)
        return False


class Sampler:
    """The sampled rows of a driver with a single process, in buffers allocated once.

    A sample is a function of the rows, the seed, its number and the anchor at which it was drawn. A
    checkpoint stores these, so a resumed run draws bitwise the same sample.

    Parameters
    ----------
    size : SampleSize
    most : int
        Rows that fit in memory.
    seed : int
        Seed of the job.
    """

    def __init__(self, size: SampleSize, most: int, seed: int) -> None:
        self.size = size
        self.most = most
        self.step = LastStep()
        #: whether to draw a new sample before making columns
        self.pending = False
        self._seed = seed
        self._origin: Point | None = None  # anchor of the draw; None: there is no sample yet
        self._rows = np.empty(most, np.int64)
        self._y, self._s = np.empty(most), np.empty(most)
        self._buffers = np.empty(most), np.empty(most), np.empty(most)  # of the view
        self._records = np.empty(0, np.uint8)

    @staticmethod
    def bytes_for(most: int, records: int) -> int:
        """Bytes of all buffers but the view's; ``records`` : bytes of the prepared rows."""
        return 3 * 8 * most + records

    def nothing(self, passes: Passes) -> RowView:
        """The view before the first sample, which has no rows."""
        return self._view(passes, 0)

    def draw(self, passes: Passes, origin: Point) -> tuple[RowView, PreparedRows]:
        """Draw a sample by the curvatures of the passes, which must be those at ``origin``."""
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
        chosen = PreparedRows(n, size, shape, records=self._records[: -(-n // size)])
        for number in range(chosen.n_blocks):
            family.select(prepared, self._rows[:n], chosen, number)
        return chosen

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, proximal: float) -> SampleState:
        """The state for :meth:`restore`. proximal : of the view."""
        return self.size.state(
            pending=self.pending, proximal=proximal, step=self.step, origin=self._origin
        )

    def restore(self, passes: Passes, state: SampleState) -> tuple[RowView, PreparedRows] | None:
        """Draw the sample of :meth:`state` again; None if there was none or it cannot be repeated.

        Overwrites all vectors of the passes except the anchor's margins.
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
