"""The list of features whose columns are to be made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from fcl.cache import Store
from fcl.cache.store import largest_column
from fcl.drivers.processes.layout import MOST_BATCH, Config
from fcl.drivers.processes.logic.protocol import WriterTask
from fcl.features.base import Family
from fcl.features.prices import Prices
from fcl.solve.outer import Outer
from fcl.types import Floats, Ids

#: If room is short, a group of the list has as many features as this share of the cache holds, and at
#: most GROUP. A group is sorted by id: columns of neighbouring features are cheaper to make together.
ROOM_SHARE = 0.125
GROUP = 8192


@dataclass(frozen=True)
class FeatureList:
    """Features with their numbers at the anchor, arrays of (n,) or (n, K)."""

    ids: Ids
    violations: Floats
    gradients: Floats
    curvatures: Floats
    weights: Floats

    def take(self, some: Ids | slice) -> FeatureList:
        """Some of the features."""
        return FeatureList(*(getattr(self, each.name)[some] for each in fields(self)))

    def rearrange(self, some: slice, order: Ids) -> None:
        """Change the order of some of the features, in place."""
        for each in fields(self):
            part = getattr(self, each.name)[some]
            part[:] = part[order]


class GradientTable:
    """Gradients and curvatures of priced and watched features at one anchor.

    ids : int64 (k,), in any order
    gradients, curvatures : float64 (k,), or (k, K) with K outputs
    """

    def __init__(self, ids: Ids, gradients: Floats, curvatures: Floats) -> None:
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._gradients = gradients[order]
        self._curvatures = curvatures[order]

    def gradients(self, ids: Ids) -> Floats:
        """Gradients of features; 0 for a feature that is not in the table."""
        return self._look_up(ids, self._gradients)

    def curvatures(self, ids: Ids) -> Floats:
        """Curvatures of features; 0 for a feature that is not in the table."""
        return self._look_up(ids, self._curvatures)

    def _look_up(self, ids: Ids, values: Floats) -> Floats:
        out = np.zeros((len(ids), *values.shape[1:]))
        if len(self._ids):
            at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
            here = self._ids[at] == ids
            out[here] = values[at[here]]
        return out


class WantedColumns:
    """Chooses the features of the list, and counts the columns that have been made.

    store : the cache, for the sizes of its columns.
    family : the family of the features.
    """

    def __init__(self, config: Config, store: Store, family: Family) -> None:
        self._config = config
        self._store = store
        kind = family.binary, family.step
        self._column_bytes = largest_column(config.n_view, config.block_rows, *kind)
        self.short = False  #: whether there may be too little room for all columns of the list
        #: features left out of the list, since too many have a weight or may get one
        self.withheld = 0
        self._unmade = 0  # columns of the list that are not stored yet
        self._list: FeatureList

    def choose(
        self,
        outer: Outer,
        prices: Prices,
        known: GradientTable,
        cached: tuple[Ids, Ids],
        recall: Ids,
        drop_cache: bool,
    ) -> int:
        """Choose the features of the list, and return its length.

        prices, known : at the anchor of ``outer``.
        cached : slots and features of the committed columns.
        recall : features whose columns should be made again, whatever their violation.
        drop_cache : whether all columns are about to be dropped; columns of features with a weight are
            then made again.
        """
        slots, cached_ids = cached
        there = np.empty(0, np.int64) if drop_cache else cached_ids
        frozen = outer.frozen(there)
        if drop_cache:
            # cached features without a weight compete again; one that was committed after the watched
            # features were listed may be among the prices already
            ids = np.setdiff1d(cached_ids, np.concatenate([frozen.ids, prices.ids]))
            prices = replace(
                prices,
                ids=np.concatenate([prices.ids, ids]),
                gradients=np.concatenate([prices.gradients, known.gradients(ids)]),
            )
        selection = outer.select(prices, frozen, known.gradients(frozen.ids), there)
        # columns cached before the rows changed, or before a checkpoint, are made again as well
        back = frozen.ids if drop_cache else recall
        back = back[~np.isin(back, selection.ids) & ~np.isin(back, there)]
        ids = np.concatenate([selection.ids, back])
        violations = np.concatenate([selection.violations, np.zeros(len(back))])
        listed = self._allowed(ids, np.union1d(outer.point.ids, there))
        ids, violations = ids[listed], violations[listed]
        n = len(ids)
        gradients, curvatures = known.gradients(ids), known.curvatures(ids)
        weights = outer.point.weights_of(ids)
        found = FeatureList(ids, violations, gradients, curvatures, weights)
        self._list = found.take(self._order(ids, slots, drop_cache))
        self._unmade = n
        return n

    def _allowed(self, ids: Ids, known: Ids) -> npt.NDArray[np.bool_]:
        """Which features to list: those with a weight, and as many others as there is room for.

        known : features of the anchor or the cache. Together with the listed ones they are all features
            that may have a weight at the next anchor.
        """
        new = ~np.isin(ids, known)
        withheld = new & (np.cumsum(new) > self._config.max_active - len(known))
        self.withheld = int(withheld.sum())
        return ~withheld

    def _order(self, ids: Ids, slots: Ids, drop_cache: bool) -> Ids:
        """By id, which is cheaper; groups of larger violations come first if room is short."""
        n = len(ids)
        sizes = self._store.sizes[slots]
        mean = float(sizes.mean()) if len(sizes) else 0.5 * self._column_bytes
        there = sizes[:0] if drop_cache else sizes
        free = self._store.capacity - float(there.sum())
        self.short = 2.0 * n * mean > free or n > self._config.max_columns - len(there)
        group = max(n, 1)
        if self.short:  # a group takes a part of the room, which the largest violations get
            room = min(self._store.capacity / max(mean, 8.0), self._config.max_columns)
            group = min(max(int(ROOM_SHARE * room), MOST_BATCH), GROUP)
        groups = np.arange(n) // group
        groups[:1] = -1  # the largest violation always enters
        return np.lexsort((ids, groups))

    def part(self, task: WriterTask) -> FeatureList:
        """The features of a task."""
        return self._list.take(slice(task.start, task.stop))

    def made(self, task: WriterTask, stored: Ids) -> FeatureList:
        """Note which columns of a task are stored, and return these; they come first in the list now."""
        rest = np.setdiff1d(np.arange(task.size), stored)
        self._list.rearrange(slice(task.start, task.stop), np.concatenate([stored, rest]))
        self._unmade -= len(stored)
        return self._list.take(slice(task.start, task.start + len(stored)))

    def too_many(self, n_free: int) -> int:
        """Columns to evict to make slots for the list: at most half of the directory in one round."""
        return min(max(0, self._unmade - n_free), self._config.max_columns // 2)
