"""The list of features whose columns are to be made, in shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fcl.cache import Store
from fcl.cache.store import largest_column
from fcl.drivers.processes.layout import MOST_BATCH, Layout
from fcl.features.base import Family
from fcl.features.prices import Prices
from fcl.solve.outer import Outer
from fcl.types import Floats, Ids

#: If room is short, a group of the list has as many features as this share of the cache holds, and at
#: most GROUP. A group is sorted by id: columns of neighbouring features are cheaper to make together.
ROOM_SHARE = 0.125
GROUP = 8192
#: Arrays of the list, each with one value per feature.
NAMES = ("ids", "violations", "gradients", "curvatures", "weights")


class GradientTable:
    """Gradients and curvatures of priced and watched features at one anchor.

    Parameters
    ----------
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

    Parameters
    ----------
    layout : Layout
        Of the shared memory that contains the list.
    store : Store
        The cache, for the sizes of its columns.
    n_rows : int
        Most rows of a column.
    family : Family
        The family of the features.
    """

    def __init__(self, layout: Layout, store: Store, n_rows: int, family: Family) -> None:
        self._layout = layout
        self._config = layout.config
        self._store = store
        block_rows = self._config.block_rows
        self._column_bytes = largest_column(n_rows, block_rows, family.binary, family.step)
        self.short = False  #: whether there may be too little room for all columns of the list
        #: features left out of the list, since too many have a weight or may get one
        self.withheld = 0
        self._unmade = 0  # columns of the list that are not stored yet

    def choose(
        self,
        outer: Outer,
        prices: Prices,
        known: GradientTable,
        cached: tuple[Ids, Ids],
        recall: Ids,
        drop_cache: bool,
    ) -> int:
        """Write the list of features, and return its length.

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
        columns = (
            ids,
            violations,
            known.gradients(ids),
            known.curvatures(ids),
            outer.point.weights_of(ids),
        )
        for name, values in zip(NAMES, columns, strict=True):
            self._layout.array(f"job_{name}")[:n] = values
        self._put_in_order(n, slots, drop_cache)
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

    def _put_in_order(self, n: int, slots: Ids, drop_cache: bool) -> None:
        """Sort by id, which is cheaper; groups of larger violations come first if room is short."""
        sizes = self._store.sizes[slots]
        mean = float(sizes.mean()) if len(sizes) else 0.5 * self._column_bytes
        there = sizes[:0] if drop_cache else sizes
        free = self._store.capacity - float(there.sum())
        self.short = 2.0 * n * mean > free or n > self._config.max_columns - len(there)
        group = max(n, 1)
        if (
            self.short
        ):  # a group takes a part of the room, so that the largest violations get the room
            room = min(self._store.capacity / max(mean, 8.0), self._config.max_columns)
            group = min(max(int(ROOM_SHARE * room), MOST_BATCH), GROUP)
        groups = np.arange(n) // group
        groups[:1] = -1  # the largest violation always enters
        self._rearrange(slice(n), np.lexsort((self._layout.array("job_ids")[:n], groups)))

    def _rearrange(self, some: slice, order: Ids) -> None:
        for name in NAMES:
            part = self._layout.array(f"job_{name}")[some]
            part[:] = part[order]

    def allot(self, start: int, slots: Ids) -> None:
        """Write the slots that a task may fill, from position ``start`` of the list on."""
        self._layout.array("job_slots")[start : start + len(slots)] = slots

    def made(self, start: int, stop: int, stored: int) -> Ids:
        """Note how many columns of [start, stop) a task has stored; return their slots.

        This part of the list is reordered: the stored columns first, in the order of storing, then the
        others.
        """
        self._rearrange(slice(start, stop), self._layout.array("job_order")[start:stop])
        self._unmade -= stored
        return self._layout.array("job_slots")[start : start + stored].copy()

    def too_many(self, n_free: int) -> int:
        """Columns to evict to make slots for the list: at most half of the directory in one round."""
        return min(max(0, self._unmade - n_free), self._config.max_columns // 2)
