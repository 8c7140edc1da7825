"""The inner model of a step: a quadratic on a sample of the rows.

The columns of the step are gathered on the sampled rows, so that the data of a sweep fits the
second-level cache. :mod:`fcl.solve.inner_descent` then minimises the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fcl.arrays import Arrays
from fcl.errors import BudgetError
from fcl.kernels import gather as gather_kernels
from fcl.kernels import sampling
from fcl.kernels.gather import GatheredColumns
from fcl.kernels.sampling import SampledRows, most_segments
from fcl.parallel import SERIAL, Team
from fcl.solve.elimination import elimination
from fcl.solve.gathered import Gathered
from fcl.solve.inner_descent import (
    EXTRAPOLATE_ROWS,
    EXTRAPOLATE_VECTORS,
    MOMENTUM_ROWS,
    MOMENTUM_VECTORS,
    Descent,
    QuadraticModel,
)
from fcl.solve.sampling import MOST_SEEDS
from fcl.solve.state import Columns, LocalPoint, Step, WorkingSet
from fcl.solve.view import RowView
from fcl.types import Floats, Ids

#: Lists of nonzeros that are gathered in the order of their sweeps; fewer stay in a processor's cache.
SHUFFLED_FROM = 1024
#: Rows of the sample: at least, and per column that may move. Beyond MANY_ROWS half as many per column
#: are enough: steps lower the objective as much, and take little more than half the time. With a quarter
#: they lower it less.
LEAST_ROWS = 16384
ROWS_A_COLUMN = 8
MANY_ROWS = 32768
#: The sample doubles, up to this factor, when a step hardly lowers the violation.
MOST_GROWN = 16.0
#: Share of the exact diagonal that the model keeps where the sample misses a column, and share that is
#: added to every diagonal. Larger values slow the exchange of weight between near-duplicates.
FLOOR = 0.5
DAMPING = 1e-3
#: Lower bound of the curvature of a sampled row, as a share of the largest one.
LEAST_SINGLE = 1e-30
#: Share of nonzeros above which zeros are gathered too, so that the column can be centred.
FULL = 0.9
#: Parts in which columns are gathered, each into its own region by one thread.
GATHER_PARTS = 2
#: Readings of all entries of the columns that take as long as the parts of a step other than sweeps.
OTHER_READS = 2.0
#: Share of the room that a sample of rows is expected to fill, since some rows are fuller than others.
FILLED = 0.85
#: Rows up to which a sample is not limited by the room for cuts, however many columns there are.
MOST_SAMPLED = 1 << 20
#: Least share of its rows that a sample without enough room keeps.
LEAST_KEPT = 0.1


def _reserved_cuts(n_rows: int) -> int:
    """Cuts that are reserved for each column, for a view of so many rows.

    If all columns are gathered, so many rows can be sampled; fewer columns may have more cuts.
    """
    return 1 + most_segments(min(n_rows, MOST_SAMPLED))


def buffers(n_rows: int, entries: int, binary: bool, block_rows: int) -> Arrays:
    """The buffers of the inner model: a sample, numbers of its rows, and gathered columns.

    found, held : rows and values of one column, for each part of the columns.
    """
    words, parts, valued = (
        (-(-n_rows // block_rows), -(-block_rows // 64)),
        GATHER_PARTS,
        not binary,
    )
    return Arrays(
        ("u8", words, "wanted"),
        ("i4", words, "before"),
        ("u2", n_rows, "inside"),
        ("u4", n_rows, "codes"),
        ("f8", n_rows, "q"),
        ("f4", (2, n_rows), "singles"),
        ("u2", entries, "entries"),
        ("f4", entries * valued, "values"),
        ("u2", (parts, n_rows), "found"),
        ("f4", (parts, n_rows * valued), "held"),
    )


@dataclass(frozen=True)
class _GatheredModel:
    """A model with its columns gathered, which serves at all points of nearly the same curvatures."""

    model: QuadraticModel
    root: Floats  #: of the elimination
    centres: Floats  #: float64 (k,), means of the columns that are centred, else 0
    grown: float  #: the factor on the number of its rows

    def serves(self, ids: Ids, grown: float) -> bool:
        """Whether it has exactly these columns, and enough rows."""
        return self.grown >= grown and np.array_equal(self.model.ids, ids)

    def moved_to(self, point: LocalPoint) -> QuadraticModel:
        """The model with the gradients at another point."""
        gradients = point.gradients
        if self.centres.any():
            gradients = gradients - self.centres * point.slopes[0]
        return replace(self.model, at=replace(point, gradients=gradients))


class InnerModel:
    """Builds and minimises inner models in its own buffers.

    n_rows : maximum rows of the view.
    max_columns : maximum columns of the working set.
    entries : room for entries of gathered columns (2 bytes each, 6 with values).
    seed : seeds the order of coordinates and the samples of rows; taken modulo ``MOST_SEEDS``.
    binary : whether all columns consist of zeros and ones.
    block_rows : rows per block.
    team : threads that gather columns; two of them share long sweeps, unless these are plain.
    plain : whether columns are lists of nonzeros, such as words, most of which depend little on each
        other, but as much across halves as within. Then plain sweeps are tried first, and none is cut in
        halves.
    """

    def __init__(
        self,
        n_rows: int,
        max_columns: int,
        entries: int,
        seed: int = 0,
        binary: bool = True,
        block_rows: int = 65536,
        team: Team = SERIAL,
        plain: bool = False,
    ) -> None:
        self.n_rows, self.max_columns, self.team = n_rows, max_columns, team
        self.plain = plain
        made, segments = (
            buffers(n_rows, entries, binary, block_rows).allocate(),
            most_segments(n_rows),
        )
        self._singles, self._rows, self._values, self._found, self._held = (
            made.pop(name) for name in ("singles", "entries", "values", "found", "held")
        )
        self._sample = self._buffers = SampledRows(
            firsts=np.empty(segments + 1, np.int64), shared=np.empty(segments), **made
        )
        self._cuts = np.empty(max_columns * _reserved_cuts(n_rows), np.int64)
        self._block_rows = block_rows
        self._seed = seed % MOST_SEEDS
        self._kept: _GatheredModel | None = None
        self.drawn = 0  #: samples drawn so far
        self.grown = 1.0  #: factor on the number of sampled rows
        #: called between sweeps: whether a step should end after LEAST_SWEEPS
        self.hurry: Callable[[], bool] = lambda: False
        #: called between sweeps and steps: whether to end at once
        self.cease: Callable[[], bool] = lambda: False

    @staticmethod
    def bytes_for(n_rows: int, max_columns: int, entries: int, binary: bool = True) -> int:
        """Bytes of the buffers."""
        iterates = 8 * EXTRAPOLATE_VECTORS * min(n_rows, EXTRAPOLATE_ROWS)
        iterates = max(iterates, 8 * MOMENTUM_VECTORS * min(n_rows, MOMENTUM_ROWS))
        cuts = 8 * _reserved_cuts(n_rows) * max_columns
        return buffers(n_rows, entries, binary, 64).nbytes + iterates + cuts

    def change_room(self, max_columns: int) -> None:
        self.forget()
        self.max_columns = max_columns
        self._cuts = np.empty(max_columns * _reserved_cuts(self.n_rows), np.int64)

    def judge(self, before: float, after: float) -> None:
        """Adapt the sample size to a step.

        before, after : largest violations before and after it, or the gains of the last step and of it.
        """
        if after > 0.7 * before:
            self.grown = min(2.0 * self.grown, MOST_GROWN)
        elif after < 0.3 * before:
            self.grown = max(0.5 * self.grown, 1.0)

    def minimise(
        self,
        at: LocalPoint,
        q: Floats,
        tolerance: float,
        limit: float = math.inf,
    ) -> Step:
        """The step that minimises the model at a point.

        The last model serves again, with new gradients, if it has the same columns and enough rows, until
        :meth:`forget` is called.

        q : float64 (n_rows,), curvatures of the rows of the view.
        tolerance : violation of a column up to which the model counts as minimised.
        limit : number of entries that sweeps may read.
        """
        ids = at.ids
        if self._kept is None or not self._kept.serves(ids, self.grown):
            self.forget()
            self._kept = self._build(at, q, ids)
        model, root = self._kept.moved_to(at), self._kept.root
        least = OTHER_READS * float(at.working.cache.store.nonzeros[at.slots].sum())
        u = self._singles[1, : len(model.q)]
        state = Descent(self, model, u, -(at.slopes @ root), limit, least)
        state.run(self.order(len(ids)), tolerance)
        d = state.w - at.weights
        x = root @ state.b
        x[:1] -= float(self._kept.centres @ d)
        return Step(d, x, state.sweeps, state.cut, state.rough)

    def forget(self) -> None:
        """Build the next model anew: the view, its columns or their curvatures are others."""
        self._kept = None

    def _build(self, at: LocalPoint, q: Floats, ids: Ids) -> _GatheredModel:
        """Gather the columns of a point, and build the model at their curvatures."""
        k = len(ids)
        h, cross_sums = np.empty(k), np.empty(k)
        wanted = ROWS_A_COLUMN * int(at.movable.sum())
        wanted = max(LEAST_ROWS, min(wanted, MANY_ROWS), wanted // 2)
        rows = self.gather(at.working, at.columns, q, cross_sums, h, wanted)
        gathered = self.gathered(k)
        single = self._singles[0, :rows]
        unit = float(gathered.q.max(initial=0.0)) or 1.0
        np.divide(gathered.q, unit, out=single, casting="same_kind")
        np.maximum(single, LEAST_SINGLE, out=single)
        whole, centres = h.copy(), np.zeros(k)
        if at.view.objective.has_constant and rows > 0:
            centres = self.centre(cross_sums, h)
        curvatures = at.curvatures * np.divide(h, whole, out=np.ones(k), where=whole > 0.0)
        root, cross = self._eliminate(at.view, gathered, cross_sums)
        # share of a column's curvature that is left once the free coefficients are eliminated: damping by
        # the whole curvature would slow down columns far from 0, such as 100 +- 1, for hundreds of steps
        along = np.einsum("ij,ij->i", cross, cross)
        left = np.maximum(1.0 - along / np.maximum(h, 1e-300), 0.0)
        extra = np.maximum(FLOOR * curvatures - h, 0.0)
        extra += DAMPING * left * (curvatures + at.floor)
        # both terms are quadratic already. Without the floor the model is too flat where the view misses
        # most of a column, and the line search has to cut the steps
        extra += at.floor + at.ridge
        model = QuadraticModel(
            gathered.columns,
            unit,
            np.where(self._sample.shared > 0.0, single[self._sample.firsts[:-1]], np.float32(0.0)),
            single,
            at,
            extra,
            # elimination leaves no curvature of a constant column
            np.maximum(np.maximum(h + extra - along, 1e-9 * (h + extra)), 1e-300),
            cross,
            ids,
        )
        return _GatheredModel(model, root, centres, self.grown)

    def _eliminate(
        self, view: RowView, gathered: Gathered, cross_sums: Floats
    ) -> tuple[Floats, Floats]:
        """The root of the elimination on the sampled rows, and the columns' cross terms, (k, r).

        cross_sums : float64 (k,), sums of the columns in the weights of the sample.
        """
        part, q = view.objective, gathered.q
        covariates = part.covariates
        if covariates is not None:
            covariates = covariates.take(self.chosen(part.n_rows))
        # sums over the sample, as in the columns: otherwise a nearly constant column may have negative
        # curvature once the intercept is eliminated, and its steps are unbounded
        part = replace(part, y=part.y[: len(q)], covariates=covariates)
        root = elimination(part, q, view.free_floor)
        if covariates is None:
            return root, cross_sums[:, None] * root.sum(axis=0)
        columns = covariates.values @ root
        columns *= q[:, None]
        return root, gathered.products(columns)

    def centre(self, cross_sums: Floats, h: Floats) -> Floats:
        """Centre the gathered columns that have a value in every row of the sample; returns the means.

        The constant compensates. The curvature of a column after elimination of the intercept is the
        difference of two sums; in float32 nothing is left of it for a column of 5,000 +- 1. Other columns
        are not centred, since they would become dense. Updates ``cross_sums`` and ``h``, float64 (k,), of
        the sample.
        """
        centres = np.zeros(len(h))
        if len(self._values):
            columns, q = self._columns(len(h)), self._sample.q
            gather_kernels.centre(columns, q, float(q.sum()), cross_sums, h, centres)
        return centres

    def gathered(self, k: int) -> Gathered:
        """The first k gathered columns, as views of the buffers."""
        return Gathered(self._columns(k), self._sample.q)

    def _columns(self, k: int) -> GatheredColumns:
        firsts = self._sample.firsts
        cuts = self._cuts[: k * len(firsts)].reshape(k, len(firsts))
        return GatheredColumns(cuts, self._rows, self._values, firsts)

    def chosen(self, n_rows: int) -> Columns:
        """The rows of the last sample of a view of ``n_rows`` rows, by their numbers in the sample."""
        bits = np.unpackbits(self._sample.wanted.view(np.uint8), axis=1, bitorder="little")
        rows = np.flatnonzero(bits[:, : self._block_rows].ravel()[:n_rows])
        codes = self._sample.codes
        by_number = np.empty_like(rows)
        segment, place = codes // sampling.SEGMENT_ROWS, codes % sampling.SEGMENT_ROWS
        by_number[self._sample.firsts[segment] + place] = rows
        return by_number

    def order(self, k: int) -> Columns:
        """The order of sweeps over k gathered columns: random, unless they are gathered so."""
        return np.arange(k) if self._is_shuffled(k) else self._random(k, self.drawn)

    def _is_shuffled(self, k: int) -> bool:
        return self.plain and k >= SHUFFLED_FROM

    def shuffled(self, columns: Columns, n: int, drawn: int) -> Columns:
        """Some of n columns; many lists of nonzeros in a random order, as sweeps then take half the time.

        drawn : number of samples; the order is the same for the same one and seed.
        """
        if not self._is_shuffled(len(columns)):
            return columns
        return columns[np.argsort(self._random(n, drawn)[columns])]

    def _random(self, n: int, drawn: int) -> Columns:
        return np.random.default_rng([self._seed, drawn]).permutation(n)

    def _choose_rows(self, q: Floats, most: int) -> int:
        """Sample about ``most`` rows by their curvature; returns their number."""
        counts, sums = np.empty(sampling.BINS), np.empty(sampling.BINS)
        # relative to the largest, so that the sample does not depend on the unit of the weights
        unit = float(q.max(initial=0.0)) or 1.0
        sampling.curvature_histogram(q, unit, counts, sums)
        # expected size of the sample for tau at the lower edge of each bin
        edges = sampling.bin_edges()
        whole = np.cumsum(counts[::-1])[::-1]
        partly = (np.cumsum(sums) - sums) / edges
        fits = np.flatnonzero(whole + partly <= most)
        tau = 0.0  # all rows
        if counts.sum() > most:
            tau = unit * float(edges[fits[0] if len(fits) else -1])
        self.drawn += 1
        room, seed = self._buffers, (self._seed << 32) + self.drawn
        rows, segments = sampling.choose_rows(q, tau, seed, self._block_rows, *room)
        self._sample = room._replace(
            inside=room.inside[:rows],
            codes=room.codes[:rows],
            firsts=room.firsts[: segments + 1],
            shared=room.shared[:segments],
            q=room.q[:rows],
        )
        return int(rows)

    def gather(
        self,
        working: WorkingSet,
        columns: Columns,
        q: Floats,
        cross_sums: Floats,
        h: Floats,
        wanted: int,
    ) -> int:
        """Gather the columns on a sample of the rows, within the room; returns the number of rows.

        Writes ``cross_sums`` and ``h``, float64 (k,): sums q_i phi_ij and q_i phi_ij^2 over the sample.

        wanted : rows of the sample, before it grows.
        """
        k = len(columns)
        slots = working.cache.slots[columns]
        nonzeros = working.cache.store.nonzeros[slots]
        full = nonzeros > FULL * len(q)
        held = np.concatenate([[0], np.cumsum(nonzeros + 1)])
        # parts with about equally many entries
        cuts = np.searchsorted(held, np.linspace(0, held[-1], GATHER_PARTS + 1)[1:-1])
        cuts = np.concatenate([[0], cuts, [k]])
        fits = FILLED * len(self._rows) * len(q) / held[-1]
        # the sample may have as many segments as there is room for their cuts
        segments = len(self._cuts) // max(k, 1) - sampling.KINDS
        if len(q) >= segments * sampling.SEGMENT_ROWS:
            fits = min(fits, FILLED * segments * sampling.SEGMENT_ROWS)
        most = int(min(self.grown * wanted, max(fits, 1.0)))

        def part(p: int, room: npt.NDArray[np.int64]) -> float:
            """Gather a part of the columns; returns the share of their nonzeros that it came to."""
            some = slice(cuts[p], cuts[p + 1])
            columns = self._columns(k)
            written = gather_kernels.gather_columns(
                working.cache.pieces,
                slots[some],
                full[some],
                self._sample,
                self._found[p],
                self._held[p],
                room[p],
                room[p + 1],
                columns._replace(cuts=columns.cuts[some]),
                cross_sums[some],
                h[some],
            )
            begin, at, end = held[[cuts[p], cuts[p] + written, cuts[p + 1]]]
            return float(at - begin) / float(end - begin) if at < end else 1.0

        while True:
            rows = self._choose_rows(q, most)
            # regions no larger than the parts may need, so that they lie on few pages
            most_entries = np.where(full, rows, np.minimum(nonzeros, rows))
            room = np.concatenate([[0], np.cumsum(most_entries)])[cuts]
            if room[-1] > len(self._rows):
                room = (len(self._rows) * (held[cuts] / held[-1])).astype(np.int64)
            team = self.team.for_entries(int(held[-1]))
            share = min(team.map(partial(part, room=room), range(GATHER_PARTS)))
            if share == 1.0:
                return rows
            most = int(FILLED * max(share, LEAST_KEPT) * min(most, rows))
            if most < 1:
                raise BudgetError(
                    f"trainer: no room to gather {k} columns on a single row; raise the memory budget"
                )
