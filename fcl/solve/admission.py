"""How columns enter the cache, and leave it to make room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.cache import ColumnCache, Rotation, StagedColumns, StagedPieces, fit_in_room
from fcl.data.prepared import PreparedRows
from fcl.features.base import column_bytes
from fcl.objective.limits import largest_output
from fcl.parallel import cut
from fcl.solve.passes import Passes
from fcl.solve.select import Selection
from fcl.solve.state import Columns, is_active
from fcl.types import Floats, Ids

#: Fewest columns that a thread makes: few share the codes of the letters at their positions.
LEAST_PIECE = 4


@dataclass(frozen=True)
class Newcomers:
    """Columns that may enter the cache, in order.

    ids, nonzeros : int64 (k,).  hashes : uint64 (k,).  weights, gradients : float64 (k,), or (k, K).
    """

    ids: Ids
    nonzeros: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    weights: Floats
    gradients: Floats


def admit_needed(local: Any, new: Newcomers, admit: Callable[[Columns], Columns]) -> Columns:
    """Admit the columns that no cached one makes redundant; returns their numbers among ``new``.

    local : LocalProblem.
    admit : appends the columns of these numbers to the cache; returns those for which there was room.
    """
    entered: list[int] = []

    def enter(some: Columns) -> None:
        some = admit(some)
        # the next ones are compared with these
        local.working.put("gradients", new.gradients[some], local.cache.n - len(some))
        entered.extend(some.tolist())

    # a frozen weight needs its own column; a new feature equal to a cached one does not
    needed = is_active(new.weights) | ~local.cache.familiar(new.hashes)
    enter(np.flatnonzero(needed))
    for t in np.flatnonzero(~needed).tolist():
        feature, nonzeros, hash_ = int(new.ids[t]), int(new.nonzeros[t]), int(new.hashes[t])
        if not local.has_equal(feature, nonzeros, hash_, new.gradients[t]):
            enter(np.array([t]))
    return np.array(entered, np.intp)


class Admission:
    """Makes the columns of features over the trainer's rows, and admits them to the cache.

    passes : over all rows.
    local : the trainer's side, over the same cache.
    staging : bytes for columns on their way to the cache.
    rows : rows of the trainer.
    """

    def __init__(
        self, passes: Passes, cache: ColumnCache, local: Any, staging: int, rows: PreparedRows
    ) -> None:
        self.passes, self.cache, self.local = passes, cache, local
        self._staging = staging
        self.change_rows(rows)
        #: called before each batch of columns that :meth:`admit` makes, with the share that is made; if
        #: it raises, the certificate of the anchor still holds, but the solver must not be used further
        self.between: Callable[[float], None] = lambda share: None

    def change_rows(self, rows: PreparedRows) -> None:
        """Make columns over other rows of the trainer from now on."""
        #: one for each thread, with buffers as large as what it was asked for
        self._makers = [
            self.passes.family.column_maker(rows if k == 0 else rows.reader(), self._staging)
            for k in range(self.passes.team.most)
        ]
        self._maker = self._makers[0]

    def admit(
        self, selection: Selection, curvatures: Callable[[Ids], Floats | None]
    ) -> tuple[int, bool]:
        """Admit features, as many as there is room for.

        Returns the number of columns that were evicted, and whether there was room for all.

        curvatures : returns the curvatures of features over all rows, or None.
        """
        cache, evicted = self.cache, 0
        if cache.grow(len(selection.ids) - (cache.max_columns - cache.n)):
            self.local.change_room()
        roomy = len(selection.ids) * cache.largest <= cache.free
        roomy = roomy and len(selection.ids) <= cache.max_columns - cache.n
        if not roomy:
            selection, evicted = self._make_room(selection)
        entered: list[int] = []
        first = cache.n
        for part, staged in self._staged(selection.ids):
            own = selection.take(part)
            new = Newcomers(staged.ids, staged.nonzeros, staged.hashes, own.weights, own.gradients)
            admit = partial(cache.admit_some, staged, team=self.passes.team)
            some = admit_needed(self.local, new, admit)
            entered += part[some].tolist()
        self.local.entered(
            first,
            selection.weights[entered],
            selection.gradients[entered],
            curvatures(selection.ids[entered]),
        )
        return evicted, roomy

    def admit_again(self, ids: Ids) -> npt.NDArray[np.intp]:
        """Admit features in this order, as far as there is room; returns their numbers among ``ids``."""
        kept: list[int] = []
        for at in range(0, len(ids), self._maker.batch):
            # a batch is in the order of the cache, which differs from the maker's
            order = self._maker.order(ids[at : at + self._maker.batch])
            some = ids[at : at + self._maker.batch][order]
            staged = self._made(some)
            which = self.cache.admit_some(staged, np.argsort(order, kind="stable"))
            kept += (at + order[which]).tolist()
        return np.array(kept, np.intp)

    def _staged(self, ids: Ids) -> Iterator[tuple[npt.NDArray[np.intp], StagedColumns]]:
        """Make the columns of features in batches; yields (indices into ids, measured columns)."""
        order = self._maker.order(ids)
        for at in range(0, len(ids), self._maker.batch):
            self.between(at / len(ids))
            part = order[at : at + self._maker.batch]
            yield part, self._made(ids[part])

    def _made(self, ids: Ids) -> StagedColumns:
        """The columns of at most a batch of features, each made and measured by some thread."""

        def piece(number: int) -> StagedColumns:
            own = ids[pieces[number].start : pieces[number].stop]
            return self.cache.measure(own, self._makers[number].make(own))

        n_bytes = column_bytes(self.passes.family, self._maker.prepared.n_rows) * len(ids)
        team = self.passes.team.for_entries(int(n_bytes))
        pieces = cut(range(len(ids)), min(team.most, len(ids) // LEAST_PIECE))
        made = team.map(piece, range(len(pieces)))
        return made[0] if len(made) == 1 else StagedPieces(made)

    def _make_room(self, selection: Selection) -> tuple[Selection, int]:
        """Evict for a selection that may not fit; returns the part to admit and the number evicted.

        Measures sizes first, so the columns are made twice: memory is short, not time. All dead columns
        may be evicted; of columns with a weight only as many as the rotation allows, and as the largest
        violation needs.
        """
        cache = self.cache
        sizes = np.empty(len(selection.ids), np.int64)
        for part, staged in self._staged(selection.ids):
            sizes[part] = staged.sizes
        n = cache.n
        room, slots = cache.free, cache.max_columns - n
        held, live = cache.sizes, self.local.live_weights
        rotation = Rotation(cache.capacity, cache.max_columns)
        keep = np.ones(n, bool)
        need = int(sizes.sum())
        for j in self.local.leaving_order():
            if room >= need and slots >= len(sizes):
                break
            size = int(held[j])
            if live[j] != 0.0:
                enough = room >= int(sizes[0]) and slots > 0
                if enough and not rotation.allows(size):
                    break
                rotation.count(size)
            keep[j] = False
            room += size
            slots += 1
        evicted = int(n - keep.sum())
        if evicted:
            self.local.evict(keep)
        curvatures = self._curvatures(selection.ids)
        chosen = np.flatnonzero(fit_in_room(selection.violations, curvatures, sizes, cache.free))
        chosen = chosen[: cache.max_columns - cache.n]  # the largest violation is the first
        return selection.take(chosen), evicted

    def _curvatures(self, ids: Ids) -> Floats:
        """Curvatures of features in the units of slopes; with K outputs the largest of each."""
        passes = self.passes
        curvatures = largest_output(passes.curvature_sums(ids))
        factors, penalty = passes.family.penalty_factors(ids), passes.objective.penalty
        scaled = passes.objective.C * curvatures + penalty.ridge(factors)
        return np.asarray(scaled / penalty.absolute(factors) ** 2)
