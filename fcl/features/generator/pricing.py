"""Prices the features of a generator, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.candidates import Collector
from fcl.features.generator.checked import checked_columns, checked_largest, checked_vector
from fcl.features.generator.columns import batches
from fcl.features.generator.contract import overrides
from fcl.features.prices import (
    BlockSums,
    Floats,
    Ids,
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    Scan,
    merge_prices,
    scan_watched,
    within,
)

if TYPE_CHECKING:
    from fcl.features.generator.family import GeneratedFamily

__all__ = ["PART_FEATURES", "GeneratedPricer", "parts_of", "pricing_bytes"]

#: A family has one part for pricing per LEAST_PART features, but at most MOST_PARTS parts, ...
MOST_PARTS = 128
LEAST_PART = 64
#: ... unless parts would have more than PART_FEATURES features: then up to PARTS_LIMIT parts.
PART_FEATURES, PARTS_LIMIT = 1 << 20, 1 << 16


def parts_of(n_features: int) -> int:
    """Number of parts of a family of ``n_features`` features."""
    few = min(MOST_PARTS, -(-n_features // LEAST_PART))
    return max(few, min(PARTS_LIMIT, -(-n_features // PART_FEATURES)))


def pricing_bytes(n_features: int, n_parts: int) -> int:
    """Bytes of the gradients of a group of parts, for one block and in total, and of temporaries."""
    part = -(-n_features // n_parts)
    return 48 * min(n_features, max(part, PART_FEATURES))


@dataclass(frozen=True)
class Gradients:
    """A request for the sums of some ranges (first, last) of features, and the largest |value| in each.

    others : further features for each range, increasing; their sums follow the sums of all ranges.
    """

    ranges: list[tuple[int, int]]
    others: list[Ids]


@dataclass(frozen=True)
class Powers:
    """A request for sum_i v_i phi_ij^power, or for power 0 the sum of v_i over rows with phi_ij != 0.

    ids : features, increasing.
    """

    ids: Ids
    power: int


@dataclass
class GeneratedSums:
    """The answer to a :class:`Gradients` or :class:`Powers` request.

    sums : the sums for all features of the request, in its order.
    largest : the largest |value| in each range; empty for :class:`Powers`.
    """

    sums: BlockSums
    largest: Floats


class GeneratedPricer:
    """Prices features from their columns, or by the generator's own ``gradients``.

    See :class:`fcl.features.prices.Pricer`.
    """

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self.n_parts = family.n_price_parts
        self._fast = overrides(family.generator, "gradients")
        self._largest: dict[int, float] = {}  # bound on |value| by block, as far as it is known

    # -- sums ----------------------------------------------------------------------------------

    def accumulate(
        self, request: Gradients | Powers, rows: RowVector, blocks: range, progress: Progress
    ) -> GeneratedSums:
        n_ranges = 2 * len(request.ranges) if isinstance(request, Gradients) else 0
        found = GeneratedSums(BlockSums(), np.zeros(n_ranges))
        for number in blocks:
            some = self._prepared.rows_of(number)
            block = self._family.block(self._prepared, number)
            done = (number - blocks.start) / len(blocks)
            if isinstance(request, Powers):
                sums = self._block_powers(request, block, number, rows[some])
            else:
                parts = []
                for i, (first, last) in enumerate(request.ranges):
                    parts.append(self._block_gradients(first, last, block, number, rows[some]))
                    progress(done + (i + 1) / len(request.ranges) / len(blocks))
                for ids in request.others:
                    parts.append(self._block_from_columns(ids, block, number, rows[some]))
                sums = np.concatenate([part[0] for part in parts])
                np.maximum(found.largest, [part[1] for part in parts], out=found.largest)
            found.sums.add(number, sums)
        return found

    def merge(self, sums: GeneratedSums, more: GeneratedSums) -> GeneratedSums:
        return GeneratedSums(sums.sums.merge(more.sums), np.maximum(sums.largest, more.largest))

    def _block_gradients(
        self, first: int, last: int, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        """sum_i r_i phi_ij over a block, and the largest |value| (or a bound on it) there."""
        generator = self._family.generator
        if not self._fast:
            return self._block_from_columns(np.arange(first, last), block, number, r)
        what = f"gradients(features {first} to {last - 1}) on row block {number}"
        arguments = (first, last, block, r)
        found = checked_vector(generator, what, generator.gradients, *arguments, n=last - first)
        if number not in self._largest:
            self._largest[number] = checked_largest(generator, block, number)
        return found, self._largest[number]

    def _block_from_columns(
        self, ids: Ids, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        g, most, n = np.empty(len(ids)), 0.0, len(r)
        for some in batches(len(ids), n):
            columns = checked_columns(self._family.generator, ids[some], block, number, n)
            if columns.dtype == np.bool_:
                most = max(most, 1.0)
            else:
                most = max(most, float(columns.max()), -float(columns.min()))
            g[some] = r @ columns.astype(np.float64, copy=False)
        return g, most

    def _block_powers(self, request: Powers, block: Any, number: int, v: Floats) -> Floats:
        out, n = np.empty(len(request.ids)), len(v)
        for some in batches(len(request.ids), n):
            columns = checked_columns(self._family.generator, request.ids[some], block, number, n)
            # by columns, which stay in the processor's cache
            out[some] = [v @ _power(column, request.power) for column in columns.T]
        return out

    # -- prices --------------------------------------------------------------------------------

    def scan(self, query: PriceQuery, step: float) -> Scan:
        drawn = self._family.features_in_pass(query.number)
        if not query.find:
            return (yield from self._scan_watched(query, len(drawn)))
        prices, done = [], 0
        fresh = within(query.watched, drawn.start, drawn.stop)
        drawn_at = query.watched % len(drawn)
        for group in self._groups(query.parts, len(drawn)):
            places = [self._features(part, len(drawn)) for part in group]
            ranges = [(first + drawn.start, last + drawn.start) for first, last in places]
            # watched features that earlier passes have drawn, if the family is sampled
            homes = [within(drawn_at, *place) & ~fresh for place in places]
            others = [np.unique(query.watched[home]) for home in homes]
            share, done = done / len(query.parts), done + len(group)
            found = yield Gradients(ranges, others), share, done / len(query.parts)
            sizes = [last - first for first, last in ranges] + list(map(len, others))
            sums = np.split(found.sums.total, np.cumsum(sizes)[:-1])
            k = len(group)
            for i, (first, last) in enumerate(ranges):
                own = self._collect(first, last, sums[i], found.largest[i], query)
                if len(others[i]):
                    more = sums[k + i], found.largest[k + i]
                    own = self._with_others(own, others[i], *more, query)
                prices.append(own)
        return merge_prices(prices)

    def _collect(self, first: int, last: int, g: Floats, most: float, query: PriceQuery) -> Prices:
        """Prices of a range of features with sums ``g`` and largest |value| ``most``."""
        g, reach = self._scaled(first, last, g, most)
        f = self._family.factors_of(first, last)
        return Collector(query, self._keep).price_range(first, g, f, reach)

    def _with_others(
        self, prices: Prices, others: Ids, g: Floats, most: float, query: PriceQuery
    ) -> Prices:
        """Add the prices of watched features that earlier passes have drawn."""
        found = Collector(query, self._keep)
        found.observe(g, self._family.penalty_factors(others), most)
        watched = np.zeros(len(query.watched))
        own = np.isin(query.watched, others)
        watched[own] = g[np.searchsorted(others, query.watched[own])]
        more = merge_prices([prices, found.prices(len(g), watched)])
        return replace(more, excess=more.excess.sum(keepdims=True))

    def _scaled(
        self, first: int, last: int, g: Floats, most: float
    ) -> tuple[Floats, Floats | float]:
        """Sums and |value| bound of a range of features in the solver's units; may be overridden.

        The bound is one number, or an array with one per feature.
        """
        return g, most

    def _scan_watched(self, query: PriceQuery, n_drawn: int) -> Scan:
        first = self._features(query.parts.start, n_drawn)[0]
        last = self._features(query.parts.stop - 1, n_drawn)[1]
        own = within(query.watched % n_drawn, first, last)
        power = query.power
        return (
            yield from scan_watched(
                query,
                own,
                lambda ids: Powers(ids, power),
                lambda ids, found: self._scaled_powers(ids, found.sums.total, power),
            )
        )

    def _scaled_powers(self, ids: Ids, sums: Floats, power: int) -> Floats:
        return sums

    def _features(self, part: int, n_drawn: int) -> tuple[int, int]:
        """The range of features of a part, relative to the first feature that the pass draws."""
        return part * n_drawn // self.n_parts, (part + 1) * n_drawn // self.n_parts

    def _groups(self, parts: range, n_drawn: int) -> Iterator[range]:
        """Groups of parts whose gradients are made together, so that each block is read only once."""
        at_once = max(1, PART_FEATURES // -(-n_drawn // self.n_parts))
        for at in range(parts.start, parts.stop, at_once):
            yield range(at, min(at + at_once, parts.stop))


def _power(values: np.ndarray, power: int) -> np.ndarray:
    """The values to a power of 0, 1 or 2, where 0 to the power of 0 is 0."""
    if power == 0:
        return values != 0
    return values.astype(np.float64, copy=False) ** power
