"""Prices the features of a generator, part by part."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fcl.data.prepared import PreparedRows, Readers
from fcl.features.candidates import Collector, largest
from fcl.features.generator.checked import (
    checked,
    checked_columns,
    checked_largest,
    checked_powers,
)
from fcl.features.generator.columns import STAGE_BYTES, batches
from fcl.features.generator.contract import overrides
from fcl.features.prices import (
    BlockSums,
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    Scan,
    answer,
    merge_prices,
    only_watched,
    relay,
    within,
)
from fcl.features.threaded import Shares
from fcl.parallel import SERIAL, Team, cut
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.generator.family import GeneratedFamily

#: A family has one part for pricing per LEAST_PART features, but at most MOST_PARTS parts, ...
MOST_PARTS = 128
LEAST_PART = 64
#: ... unless parts would have more than PART_FEATURES features: then up to PARTS_LIMIT parts.
PART_FEATURES, PARTS_LIMIT = 1 << 20, 1 << 16
#: Features of parts that are collected together.
RUN_FEATURES = 1 << 16
#: Outputs of small families have room for at least this many sums together.
LEAST_ROOM = 1 << 17


def parts_of(n_features: int) -> int:
    """Number of parts of a family of ``n_features`` features."""
    few = min(MOST_PARTS, -(-n_features // LEAST_PART))
    return max(few, min(PARTS_LIMIT, -(-n_features // PART_FEATURES)))


def _room(n_features: int, n_parts: int) -> int:
    """Number of sums that are made together: features of a group of parts times outputs."""
    part = -(-n_features // n_parts)
    return min(max(n_features, LEAST_ROOM), max(part, PART_FEATURES))


def pricing_bytes(n_features: int, n_parts: int) -> int:
    """Bytes of the gradients of a group of parts, for one block and in total, and of temporaries."""
    return 48 * _room(n_features, n_parts)


def _within(progress: Progress, blocks: range, some: range) -> Progress:
    """The progress of some of the blocks."""
    return lambda share: progress((some.start - blocks.start + share * len(some)) / len(blocks))


def _runs(ranges: list[tuple[int, int]]) -> Iterator[slice]:
    """Runs of parts whose features are collected together, up to a number of features."""
    first = 0
    for part in range(len(ranges)):
        if part + 1 == len(ranges) or ranges[part + 1][1] - ranges[first][0] > RUN_FEATURES:
            yield slice(first, part + 1)
            first = part + 1


@dataclass(frozen=True)
class Gradients:
    """A request for the sums of some ranges (first, last) of features, and the largest |value| in each.

    others : further features for each range, increasing, or an empty list; their sums follow the sums of
        all ranges.
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

    def __init__(
        self, family: GeneratedFamily, prepared: PreparedRows, keep: int, team: Team = SERIAL
    ) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self._team, self._readers = team, Readers(prepared)
        self.n_parts = family.n_price_parts
        self._fast = overrides(family.generator, "gradients")
        self._several = overrides(family.generator, "gradients_of_several")
        self._largest: dict[int, float] = {}  # bound on |value| by block, as far as it is known

    # -- sums ----------------------------------------------------------------------------------

    def accumulate(
        self, request: Gradients | Powers, rows: RowVector, blocks: range, progress: Progress
    ) -> GeneratedSums:
        return self._sums(request, [rows], blocks, progress)[0]

    def _sums(
        self,
        request: Gradients | Powers,
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[GeneratedSums]:
        """The sums of each output; a block is read, and a column made, once for all of them."""
        n_ranges = 0
        if isinstance(request, Gradients):
            n_ranges = len(request.ranges) + len(request.others)
        largest = np.zeros(n_ranges)
        found = [GeneratedSums(BlockSums(), largest) for _ in rows]
        # a block at a time on each thread; blocks that wait for their turn to be added take memory
        for some in cut(blocks, -(-len(blocks) // self._team.most)):
            sums = self._of_blocks(request, rows, some, _within(progress, blocks, some))
            for number, (own, most) in zip(some, sums, strict=True):
                np.maximum(largest, most, out=largest)
                for output, part in zip(found, own, strict=True):
                    output.sums.add(number, part)
        return found

    def _of_blocks(
        self,
        request: Gradients | Powers,
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[tuple[Floats, list[float]]]:
        """The sums of each output over each of some blocks, and the largest |value| in each range."""
        shares = Shares(progress, len(blocks))

        def of_block(number: int) -> tuple[Floats, list[float]]:
            with self._readers.one() as prepared:
                block = self._family.block(prepared, number)
                report = shares.of(number - blocks.start)
                found = self._of_block(request, rows, block, number, report)
                report(1.0)
                return found

        return self._team.map(of_block, blocks)

    def _of_block(
        self,
        request: Gradients | Powers,
        rows: Sequence[RowVector],
        block: Any,
        number: int,
        progress: Progress,
    ) -> tuple[Floats, list[float]]:
        here = self._prepared.rows_of(number)
        r = np.stack([own[here] for own in rows])
        if isinstance(request, Powers):
            return self._block_powers(request, block, number, r), []
        parts = []
        for some in self._together(request.ranges):
            (first, _), (_, last) = request.ranges[some][0], request.ranges[some][-1]
            g, most = self._block_gradients(first, last, block, number, r)
            parts.append((g, [most] * (some.stop - some.start)))
            progress(some.stop / len(request.ranges))
        for ids in request.others:
            g, most = self._block_from_columns(ids, block, number, r)
            parts.append((g, [most]))
        sums = np.concatenate([part[0] for part in parts], axis=1)
        return sums, [most for part in parts for most in part[1]]

    def _together(self, ranges: list[tuple[int, int]]) -> Iterator[slice]:
        """The runs of ranges whose sums one call of ``gradients`` makes."""
        if self._family.generator.separate:
            return _runs(ranges)
        return (slice(at, at + 1) for at in range(len(ranges)))

    def merge(self, sums: GeneratedSums, more: GeneratedSums) -> GeneratedSums:
        return GeneratedSums(sums.sums.merge(more.sums), np.maximum(sums.largest, more.largest))

    def _block_gradients(
        self, first: int, last: int, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        """sum_i r_ki phi_ij over a block (K, last - first), and a bound on |phi_ij| there."""
        generator = self._family.generator
        if not self._fast:
            return self._block_from_columns(np.arange(first, last), block, number, r)
        what = f"gradients(features {first} to {last - 1}) on row block {number}"
        place, n = (first, last, block), last - first
        if len(r) > 1 and self._several:
            function, shape = generator.gradients_of_several, (len(r), n)
            found = checked(generator, f"several {what}", function, *place, r, shape=shape)
        else:
            function = generator.gradients
            found = np.stack(
                [checked(generator, what, function, *place, own, shape=(n,)) for own in r]
            )
        if number not in self._largest:
            self._largest[number] = checked_largest(generator, block, number)
        return found, self._largest[number]

    def _block_from_columns(
        self, ids: Ids, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        g, most, n = np.empty((len(r), len(ids))), 0.0, r.shape[1]
        for some in batches(len(ids), n):
            columns = checked_columns(self._family.generator, ids[some], block, number, n)
            if columns.dtype == np.bool_:
                most = max(most, 1.0)
            else:
                most = max(most, float(columns.max()), -float(columns.min()))
            columns = columns.astype(np.float64, copy=False)
            # one output at a time: a product of matrices may round an output's sums in another way
            g[:, some] = [own @ columns for own in r]
        return g, most

    def _block_powers(self, request: Powers, block: Any, number: int, v: Floats) -> Floats:
        generator = self._family.generator
        found = checked_powers(generator, request.ids, block, number, request.power, v)
        if found is not None:
            return found
        out, n = np.empty((len(v), len(request.ids))), v.shape[1]
        for some in batches(len(request.ids), n):
            columns = checked_columns(generator, request.ids[some], block, number, n)
            # by columns, which stay in the processor's cache
            values = (_power(column, request.power) for column in columns.T)
            out[:, some] = np.transpose([[own @ value for own in v] for value in values])
        return out

    # -- prices --------------------------------------------------------------------------------

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`."""
        found: list[Prices] = []
        K = len(rows)
        most = self._most_outputs(len(self._family.features_in_pass(queries[0].number)))
        for at in range(0, K, most):
            some = rows[at : at + most]
            own = [replace(query, n_outputs=len(some)) for query in queries[at : at + most]]

            def sums(
                request: Any, begin: float, last: float, at: int = at, some: Any = some
            ) -> list[GeneratedSums]:
                def share(done: float) -> None:
                    progress((at + (begin + done * (last - begin)) * len(some)) / K)

                return self._sums(request, some, blocks, share)

            found += answer(self._scan(own), sums)
        return found

    def _most_outputs(self, n_drawn: int) -> int:
        """Number of outputs whose residuals and sums have room together."""
        by_sums = _room(n_drawn, self.n_parts) // -(-n_drawn // self.n_parts)
        by_rows = STAGE_BYTES // (8 * self._prepared.block_rows)
        return max(1, min(by_sums, by_rows))

    def scan(self, query: PriceQuery, step: float) -> Scan:
        scan = self._scan([query])
        return (yield from relay(scan, lambda *request: request, lambda sums: [sums]))[0]

    def _scan(self, queries: Sequence[PriceQuery]) -> Generator[Any, Any, list[Prices]]:
        """Like :meth:`scan`, for several outputs: receives the sums of each, returns the prices of each.

        A candidate of one output is reported by all of them.
        """
        query = queries[0]
        drawn = self._family.features_in_pass(query.number)
        if not query.find:
            return (yield from self._scan_watched(queries, len(drawn)))
        prices: list[list[Prices]] = [[] for _ in queries]
        done = 0
        fresh = within(query.watched, drawn.start, drawn.stop)
        drawn_at = query.watched % len(drawn)
        for group in self._groups(query.parts, len(drawn), query.n_outputs):
            places = [self._features(part, len(drawn)) for part in group]
            ranges = [(first + drawn.start, last + drawn.start) for first, last in places]
            # watched features that earlier passes have drawn, if the family is sampled
            homes = [] if fresh.all() else [within(drawn_at, *place) & ~fresh for place in places]
            others = [np.unique(query.watched[home]) for home in homes]
            request = Gradients(ranges, others)
            share, done = done / len(query.parts), done + len(group)
            sums = yield request, share, done / len(query.parts)
            for parts in _runs(ranges):
                found = [
                    self._prices_of(request, parts, *one) for one in zip(sums, queries, strict=True)
                ]
                ids = found[0].ids
                if len(found) > 1:
                    ids = np.unique(np.concatenate([own.ids for own in found]))
                for output, own, made in zip(prices, found, sums, strict=True):
                    g = self._scaled_powers(ids, made.sums.total[ids - ranges[0][0]], 1)
                    output.append(replace(own, ids=ids, gradients=g))
        return [merge_prices(own) for own in prices]

    def _prices_of(
        self, request: Gradients, parts: slice, found: GeneratedSums, query: PriceQuery
    ) -> Prices:
        """The prices of a run of parts of a request."""
        ranges, others = request.ranges[parts], request.others[parts]
        (start, _), (_, stop) = request.ranges[0], request.ranges[-1]
        first, last = ranges[0][0], ranges[-1][1]
        if query.level is None and not any(map(len, others)):  # by parts takes longer
            most = np.repeat(
                found.largest[: len(request.ranges)][parts], [b - a for a, b in ranges]
            )
            g = found.sums.total[first - start : last - start]
            own = self._collect(first, last, g, most, query, last - first + 1)  # all
            return replace(self._largest_of(own, ranges), excess=np.zeros(len(ranges)))
        prices = []
        ends = np.cumsum([stop - start, *map(len, request.others)])
        for part in range(len(request.ranges))[parts]:
            a, b = request.ranges[part]
            g = found.sums.total[a - start : b - start]
            own = self._collect(a, b, g, float(found.largest[part]), query, self._keep)
            if others and len(request.others[part]):
                g = found.sums.total[ends[part] : ends[part + 1]]
                largest = float(found.largest[len(request.ranges) + part])
                own = self._with_others(own, request.others[part], g, largest, query)
            prices.append(own)
        return merge_prices(prices)

    def _largest_of(self, prices: Prices, ranges: list[tuple[int, int]]) -> Prices:
        """Keep the largest candidates of each range, as many as a part may report."""
        ids, g = prices.ids, prices.gradients
        cuts = np.searchsorted(ids, [first for first, _ in ranges] + [ranges[-1][1]])
        if np.diff(cuts).max() <= self._keep:
            return prices
        size = np.abs(g) / self._family.penalty_factors(ids)
        chosen = []
        for first, last in pairwise(cuts.tolist()):
            best = largest(ids[first:last], size[first:last], self._keep)
            chosen.append(first + np.sort(best))
        kept = np.concatenate(chosen)
        return replace(prices, ids=ids[kept], gradients=g[kept])

    def _collect(
        self,
        first: int,
        last: int,
        g: Floats,
        most: Floats | float,
        query: PriceQuery,
        keep: int,
    ) -> Prices:
        """Prices of a range of features with sums ``g`` and largest |value| ``most``."""
        g, reach = self._scaled(first, last, g, most)
        f = self._family.factors_of(first, last)
        return Collector(query, keep).price_range(first, g, f, reach)

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
        self, first: int, last: int, g: Floats, most: Floats | float
    ) -> tuple[Floats, Floats | float]:
        """Sums and |value| bound of a range of features in the solver's units; may be overridden.

        The bound is one number, or an array with one per feature.
        """
        return g, most

    def _scan_watched(
        self, queries: Sequence[PriceQuery], n_drawn: int
    ) -> Generator[Any, Any, list[Prices]]:
        query = queries[0]
        first = self._features(query.parts.start, n_drawn)[0]
        last = self._features(query.parts.stop - 1, n_drawn)[1]
        own = within(query.watched % n_drawn, first, last)
        chosen, where = np.unique(query.watched[own], return_inverse=True)
        watched = np.zeros((len(queries), len(query.watched)))
        if len(chosen):
            sums = yield Powers(chosen, query.power), 0.0, 1.0
            for output, found in zip(watched, sums, strict=True):
                output[own] = self._scaled_powers(chosen, found.sums.total, query.power)[where]
        return list(map(only_watched, watched))

    def _scaled_powers(self, ids: Ids, sums: Floats, power: int) -> Floats:
        return sums

    def _features(self, part: int, n_drawn: int) -> tuple[int, int]:
        """The range of features of a part, relative to the first feature that the pass draws."""
        return part * n_drawn // self.n_parts, (part + 1) * n_drawn // self.n_parts

    def _groups(self, parts: range, n_drawn: int, n_outputs: int = 1) -> Iterator[range]:
        """Groups of parts whose gradients are made together, so that each block is read only once."""
        part = -(-n_drawn // self.n_parts)
        at_once = max(1, _room(n_drawn, self.n_parts) // (n_outputs * part))
        for at in range(parts.start, parts.stop, at_once):
            yield range(at, min(at + at_once, parts.stop))


def _power(values: np.ndarray, power: int) -> np.ndarray:
    """The values to a power of 0, 1 or 2, where 0 to the power of 0 is 0."""
    if power == 0:
        return values != 0
    return values.astype(np.float64, copy=False) ** power
