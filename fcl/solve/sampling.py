"""The trainer's sample of rows: its size, and when and how a new one is drawn.

Row i is drawn with probability pi_i = min(1, N (0.8 q_i / sum q + 0.2 s_i / sum s)): by its curvature at
the anchor, with a floor by weight, since flat rows may become curved. N is chosen such that the expected
number of rows is the requested one, less the variation of their number, although some rows are drawn for
certain. All rows of a rare class are drawn, and all rows if that many are requested. The draw of row i is
a hash of the seed and i.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.kernels import sampling as kernels
from fcl.objective import Objective
from fcl.solve.passes import Passes
from fcl.solve.state import Point
from fcl.solve.view import PROXIMAL, RowView
from fcl.types import Floats, Ids

#: Growth factor of a sample that has proved too small; larger factors overshoot.
GROWTH = 2
#: Share of the cache that the current columns may take up over a larger sample.
ROOM_SHARE = 0.8
#: Up to this many rows the cache is not considered: one that is too small evicts, and still converges.
FEW_ROWS = 1 << 16
#: A pass that leaves more of the objective than STEADY belongs to the final phase, in which the error of
#: the sample dominates. If it leaves more of the gap than RENEWED, another sample of the same size
#: follows: the next passes with the same one would close less and less of the gap, while the errors of
#: two samples differ. If it leaves more than SLOW, the sample should grow. DEAR_RENEWED replaces RENEWED
#: if the columns take DEAR_BYTES: the samples are then so large that the trainer leaves most of the gap.
STEADY = 0.98
RENEWED = 0.2
DEAR_RENEWED = 0.7
SLOW = 0.85
#: SLOW in lock-step, where a pass is expensive: larger samples close more of the gap per pass.
LOCKED_SLOW = 0.45
#: Minimum rows of the sample per cached column before the final phase: with fewer rows, products of
#: columns are mostly noise; more rows take more time and memory.
ROWS_A_COLUMN = 12
#: From this many bytes of columns on, making them again over a new sample takes as long as a pass or
#: a few steps. A sample that has ROWS_A_COLUMN rows for each column then no longer grows, since a
#: larger one would save less time than that, and is kept while passes close the gap (DEAR_RENEWED).
DEAR_BYTES = 1 << 29
#: Minimum passes before a sample that predicted a step badly is replaced by one of the same size. A
#: trainer that does not wait proposes its point before the last columns arrive; a new sample per pass
#: would make them useless.
LEAST_AGE = 2
#: A step that achieved more than this share of its promised decrease was predicted well by the sample.
#: While the gap is above OPEN of the objective, missing features then keep it open, not the errors of the
#: sample, and columns of DEAR_BYTES are not made again.
PREDICTED = 0.9
OPEN = 0.1
#: Share to which the objective falls before the rows that matter have changed and a new sample is due.
STALE = 0.7

#: Share of the expected sample that is drawn by curvature; the rest is drawn by weight.
BY_CURVATURE = 0.8
#: A class of at most this share of the sample is drawn as a whole.
RARE = 0.25
#: Maximum passes over the rows that search for N; each comes nearer, without exceeding it.
MOST_RESCALED = 8

#: Exclusive upper limit of sample seeds: a hash of seed and row has 64 bits.
MOST_SEEDS = 1 << 31


def seed_of_draw(seed: int, draws: int) -> int:
    """The seed of the sample number ``draws`` of a job."""
    return (seed + draws) % MOST_SEEDS


@dataclass(frozen=True)
class LastStep:
    """The step to the current anchor."""

    beta: float = 1.0  #: share of the step to the proposed point
    decrease: float = 0.0  #: of the objective on all rows
    promised: float = 0.0  #: decrease that the trainer predicted


@dataclass(frozen=True)
class SampledPass:
    """What a certified pass tells about the sample."""

    objective: float  #: of the anchor
    gap: float  #: of the anchor
    step: LastStep
    n_cached: int  #: columns in the cache
    cached_bytes: float  #: of these columns
    n_frozen: int = 0  #: features with a weight that are not cached


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
    #: the anchor at which it was drawn; None: the draw cannot be repeated
    origin: Point | None = None


#: the fields that belong to the size of the sample
_OF_SIZE = ("most", "wanted", "drawn", "draws", "age", "objective", "last_gap", "last_objective")


class SampleSize:
    """The size of the sample from pass to pass.

    The first sample is drawn by the curvatures of the null model. While the objective falls fast, the
    curvatures soon change, and a new sample is cheap because few columns have to be made again. Later the
    sample grows, up to all rows if the cache allows, whenever it predicted the last step badly, the gap
    hardly closes, or it has become small for the number of columns; but if these take DEAR_BYTES, only
    while it has fewer than ROWS_A_COLUMN rows for each. In the final phase, most passes replace it by
    another sample of the same size, since the errors of two samples differ; if the columns take
    DEAR_BYTES, only passes that close little of the gap do, and none that a missing feature explains.
    While weights are frozen, because their columns do not fit into the cache, these keep the gap open,
    not the errors of the sample: passes then exchange a part of the columns over the same rows.

    n_rows : number of all rows.
    most : rows that fit in memory; 0 if the trainer works on all rows without a sample.
    first : rows of the first sample.
    requested : whether the user requested this size; then the number of columns alone is no reason to
        grow.
    cache_bytes : capacity of the cache.
    locked : whether the trainer is in lock-step with the passes.
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
        self.most = most
        self._cache_bytes = cache_bytes
        self._slow = LOCKED_SLOW if locked else SLOW
        self._requested = requested
        self._first = self.wanted = first
        self.drawn = 0  #: rows of the latest sample
        self.draws = 0  #: samples requested so far
        self.age = 0  #: passes since the latest sample
        # the objective at the latest sample, and the last pass
        self.objective = self.last_gap = self.last_objective = np.inf

    def redraw_reason(self, now: SampledPass) -> str:
        """Why the trainer needs a new sample, of ``wanted`` rows, or an empty text.

        Call it once per certified pass. The first reason that holds counts:

        - ``first``: there is no sample yet.
        - ``larger``: the sample predicted the last step badly, the gap hardly closed, or the sample has
          become small for the number of columns; and there is room for a larger one.
        - ``mispredicted``: it predicted the last step badly, and there is no room.
        - ``renewed``: the errors of the sample keep the gap open; another sample has other errors.
        - ``stale``: the objective has fallen so far that the rows that matter have changed.
        """
        if not self.most or self.drawn == self._n_rows:
            return ""
        if self.draws == 0:
            self.objective = now.objective
            return "first"
        self.age += 1
        step, gap, objective = now.step, now.gap, now.objective
        bad = step.beta < 0.5 or step.decrease < 0.5 * step.promised
        steady = objective > STEADY * self.last_objective
        dear = now.cached_bytes >= DEAR_BYTES
        predicted = step.decrease > PREDICTED * step.promised
        kept = now.n_frozen > 0 or (dear and predicted and gap > OPEN * objective)
        final = steady and not kept
        left, before = gap, self.last_gap
        self.last_gap, self.last_objective = gap, objective
        thin = self.drawn < ROWS_A_COLUMN * now.n_cached
        small = thin and not steady and not self._requested
        grows = (bad or small or (final and left > self._slow * before)) and (thin or not dear)
        renewed = DEAR_RENEWED if dear else RENEWED
        if grows and self._grow(now.cached_bytes):
            reason = "larger"
        elif bad and self.age >= LEAST_AGE:
            reason = "mispredicted"
        elif final and left > renewed * before:
            reason = "renewed"
        elif objective < STALE * self.objective:
            reason = "stale"
        else:
            return ""
        self.age, self.objective = 0, objective
        return reason

    def change_objective(self, factor: float) -> None:
        """Scale the objective at the latest sample, and forget the last pass: C has changed."""
        self.objective *= factor
        self.last_gap = self.last_objective = np.inf

    def _grow(self, cached_bytes: float) -> bool:
        """Raise ``wanted`` if there is room for enough rows to justify a new sample."""
        room = self._room(cached_bytes)
        wanted = min(GROWTH * self.wanted, room)
        if room == self.most <= 1.2 * wanted:
            wanted = self.most
        if wanted <= 1.2 * self.wanted and wanted < self._n_rows:
            return False
        self.wanted = wanted
        return True

    def _room(self, cached_bytes: float) -> int:
        """Rows over which the cache can hold the current columns and more; all if they are few."""
        if self.most <= FEW_ROWS:
            return self.most
        bytes_a_row = max(cached_bytes / max(self.drawn, 1), 1e-9)
        fit = ROOM_SHARE * self._cache_bytes / bytes_a_row
        return self.most if fit >= self.most else max(self.wanted, int(fit))

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, **more: Any) -> SampleState:
        """The state for :meth:`restore`. more : its other fields."""
        return SampleState(**{name: getattr(self, name) for name in _OF_SIZE}, **more)

    def restore(self, state: SampleState) -> bool:
        """Restore a :meth:`state`; returns whether its sample may be drawn again.

        It may not if it does not fit in memory, or if the job requests another size.
        """
        self.wanted = min(max(state.wanted, self._first), self.most)
        for name in _OF_SIZE[2:]:
            setattr(self, name, getattr(state, name))
        if not self.draws or (state.wanted == self.wanted and self.drawn <= self.most):
            return True
        # a new sample is drawn at the next anchor
        self.age, self.objective = 0, min(self.objective, self.last_objective)
        return False


class Sampler:
    """The sampled rows of a driver with a single process, in buffers allocated once.

    A sample is a function of the rows, the seed, its number and the anchor at which it was drawn. A
    checkpoint stores these, so a resumed run draws bitwise the same sample.

    most : rows that fit in memory.
    seed : seed of the job.
    n_outputs : number of outputs.
    """

    def __init__(self, size: SampleSize, most: int, seed: int, n_outputs: int = 1) -> None:
        self.size = size
        self.most = most
        self.step = LastStep()
        #: whether to draw a new sample before making columns
        self.pending = False
        self._seed = seed
        self._origin: Point | None = None  # anchor of the draw; None: there is no sample yet
        self._rows = np.empty(most, np.int64)
        self._y, self._s = np.empty(most), np.empty(most)
        m, r, q = np.empty((3, most * n_outputs))
        self._buffers = m, r, q  # of the view
        self._records = np.empty(0, np.uint8)
        self._z = np.empty((0, 0))  # covariates of the rows

    def nothing(self, passes: Passes) -> RowView:
        """The view before the first sample, which has no rows."""
        return self._view(passes, 0)

    def draw(self, passes: Passes, origin: Point) -> tuple[RowView, PreparedRows]:
        """Draw a sample by the curvatures of the passes, which must be computed at ``origin``."""
        self.size.draws += 1
        return self._draw(passes, origin)

    def _draw(self, passes: Passes, origin: Point) -> tuple[RowView, PreparedRows]:
        objective, size = passes.objective, self.size
        self._origin, self.pending = origin, False
        if size.wanted >= objective.n_rows:
            size.drawn = objective.n_rows
            view = RowView.all_rows(objective, passes.family, self._buffers)
            return view, passes.rows_here()
        n = draw_rows(
            objective,
            passes.vectors.curvatures,
            size.wanted,
            seed_of_draw(self._seed, size.draws),
            self._rows[: size.wanted],
            self._s,
        )
        size.drawn = n
        return self._view(passes, n), self._prepare(passes, n)

    def _view(self, passes: Passes, n: int) -> RowView:
        rows, covariates, z = self._rows[:n], passes.objective.covariates, None
        if covariates is not None:
            if self._z.shape[1] != covariates.q:
                self._z = np.empty((self.most, covariates.q))
            z = self._z[:n]
        part = passes.objective.take(rows, self._s[:n], self._y[:n], z)
        return RowView(rows, part, buffers=self._buffers)

    def _prepare(self, passes: Passes, n: int) -> PreparedRows:
        size = passes.objective.block_rows
        shape = passes.family.record_shape(size)
        if not len(self._records):
            self._records = np.empty((-(-self.most // size), *shape), np.uint8)
        chosen = PreparedRows(n, size, shape, records=self._records[: -(-n // size)])
        passes.select(self._rows[:n], chosen)
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
        blocks = passes.blocks
        passes.write_margins(origin, blocks)
        passes.objective.add_covariates(origin.covariates, passes.vectors.proposed)
        passes.vectors.anchor = 1 - passes.vectors.anchor
        passes.write_residuals(origin.intercept, blocks)
        passes.vectors.anchor = 1 - passes.vectors.anchor
        pending = self.pending
        drawn = self._draw(passes, origin)
        self.pending = pending
        return drawn


def draw_rows(
    objective: Objective,
    curvatures: Floats,
    size: int,
    seed: int,
    rows: Ids,
    weights: Floats,
) -> int:
    """Draw about ``size`` rows; writes their numbers and weights s_i / pi_i, returns their count.

    curvatures : float64 (n,) or (K, n), at the anchor.  rows, weights : buffers of the sample; rows that
    do not fit are dropped from its end.
    """
    rare = _rare_classes(objective, size)
    if objective.outputs:
        curvatures = curvatures.sum(axis=0)
    # the other rows share the room that the rare class leaves, less the variation of their number
    n_rare, total_q, total_s = 0, 0.0, 0.0
    for n, q, s in objective.each_block(_shares, [curvatures], rare):
        n_rare, total_q, total_s = n_rare + n, total_q + q, total_s + s
    room = min(size, len(rows)) - n_rare
    most = max(0.0, room - 4.0 * math.sqrt(max(room, 0)))
    by_q = BY_CURVATURE / total_q if total_q > 0.0 else 0.0
    by_s = (1.0 - BY_CURVATURE if by_q else 1.0) / total_s if total_s > 0.0 else 0.0
    scale = most
    for _ in range(MOST_RESCALED if size < objective.n_rows else 0):
        inclusion = Inclusion(scale, by_q, by_s, rare)
        expected = 0.0
        for part in objective.each_block(_expected, [curvatures], inclusion):
            expected += part
        if expected >= 0.95 * most or expected <= 0.0:
            break
        scale *= most / expected
    # otherwise rows of very small probability would be missing
    every = size >= objective.n_rows
    inclusion = Inclusion(scale, by_q, by_s, rare, every)
    n = 0
    for found, own in objective.each_block(_chosen, [curvatures], inclusion, seed):
        k = min(len(found), len(rows) - n)
        rows[n : n + k], weights[n : n + k] = found[:k], own[:k]
        n += k
    return n


@dataclass(frozen=True)
class Inclusion:
    """The probabilities with which rows are drawn: scale (by_q q_i + by_s s_i), at most 1.

    rare : classes whose rows are all drawn.  every : whether all rows are drawn.
    """

    scale: float
    by_q: float
    by_s: float
    rare: Floats
    every: bool = False

    def of(self, objective: Any, rows: slice, curvatures: Floats) -> Floats:
        """The probabilities of the rows of a block outside the rare classes."""
        s = objective.s[rows]
        if self.every:
            return np.ones(len(s))
        return np.minimum(1.0, self.scale * (self.by_q * curvatures + self.by_s * s))


def _is_rare(of: Any, rows: slice, rare: Floats) -> npt.NDArray[np.bool_]:
    if not len(rare):
        return np.zeros(rows.stop - rows.start, bool)
    return np.isin(of.y[rows], rare)


def _shares(of: Any, rows: slice, q: Floats, rare: Floats) -> tuple[int, float, float]:
    """The number of rare rows of a block, and the sums of q and s over its other rows."""
    others = ~_is_rare(of, rows, rare)
    return len(others) - int(others.sum()), float(q @ others), float(of.s[rows] @ others)


def _expected(of: Any, rows: slice, q: Floats, inclusion: Inclusion) -> float:
    """The expected number of rows that are drawn from a block beside rare ones."""
    return float(inclusion.of(of, rows, q) @ ~_is_rare(of, rows, inclusion.rare))


def _chosen(of: Any, rows: slice, q: Floats, inclusion: Inclusion, seed: int) -> tuple[Ids, Floats]:
    """The rows that are drawn from a block, by their numbers in the data, and their weights."""
    probability = inclusion.of(of, rows, q)
    probability[_is_rare(of, rows, inclusion.rare)] = 1.0
    chosen = np.empty(len(probability), np.bool_)
    start = of.first_row + rows.start
    kernels.choose_by(probability, (seed << 32) ^ start, chosen)
    found = np.flatnonzero(chosen)
    return found + start, of.s[rows][found] / probability[found]


def _rare_classes(objective: Objective, size: int) -> Floats:
    """The labels of classes that are small enough to be drawn as a whole.

    Small classes together, the smallest first, take up at most the share RARE of the sample.
    """
    labels, counts = objective.class_counts()
    order = np.argsort(counts, kind="stable")
    small = np.cumsum(counts[order]) <= RARE * size
    return labels[order[small & (np.arange(len(labels)) < len(labels) - 1)]]
