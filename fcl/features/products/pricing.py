"""Prices of all products: pairs of dense columns one by one, everything else by a search in their tree.

The children of a product are its products with one more column, which comes no later than its last. Where
k more factors may follow, every feature below a product phi has

    |g| <= U^k sum_i |r_i phi_i|,                                      and for columns that are >= 0
    |g| <= U^k max(sum over r_i > 0 of r_i phi_i, sum over r_i < 0 of |r_i| phi_i)

with U the largest |x| of the columns that may follow, at least 1. A subtree whose bound is no more than
what is looked for is not entered; the largest of such bounds counts in ``largest``, so that this is an
upper bound over the whole family, and exact where it is above the threshold. The sums of all children of
a product come from one reading of its rows.

Pairs of dense columns are summed a few rows at a time in tiles of a table, at the speed of one thread of
BLAS (20,000 rows of 300 columns: 0.61 s, X' diag(r) X by BLAS 0.66 s), and with its own order of
summation: the same bits on any number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.base import Floats, Ids, Prices, merge_prices, no_progress
from fcl.features.products.family import Parts, buffers, kernel_block

if TYPE_CHECKING:
    from fcl.features.generated.family import GeneratedFamily
    from fcl.features.products.family import Products

#: Sums that are made together, about; each in two tables of float64.
CELLS = 1 << 19
#: Products whose children are priced together, at most: the fewer, the sooner what is found bounds the
#: rest.
BATCH = 512
#: Entries of dense rows that are taken at a time, about.
PIECE_ENTRIES = 1 << 20
#: Rows of a piece for pairs of dense columns: in float64 they stay in the second-level cache.
PAIR_BYTES = 1 << 18
#: Bytes of rows in the form that sums are made from which are kept, beside the largest block.
KEPT_BYTES = 1 << 25
#: Entries of rows times products in one call of a kernel, at most: about 0.1 s.
CALL_ENTRIES = 1 << 26
#: With nothing to go by (a threshold of 0), the search is for this share of the largest single column.
FIRST_SHARE = 0.5
#: Bounds are raised by so much, for the rounding of the sums they are made of.
SLACK = 1e-8

#: A block by rows: where rows begin, columns, values.
ByRows = tuple[np.ndarray, np.ndarray, np.ndarray]


def pricing_bytes(n_columns: int, degree: int, block_rows: int, dense: bool) -> int:
    """Bytes of a pricer; of sparse rows without what depends on their entries."""
    cells = max(CELLS, n_columns)
    waiting = max(0, degree - 2) * cells * (8 * degree + 8)
    made = degree * block_rows * 12
    piece = 20 * max(PIECE_ENTRIES, n_columns) if dense else 0
    return 48 * cells + waiting + made + piece + KEPT_BYTES + 24 * n_columns


def pricing_extra(prepared: PreparedRows) -> int:
    """Bytes of the largest block of sparse rows by rows."""
    most = 0
    for number, _ in prepared.blocks():
        _, _, rows, values = prepared.sides(number)
        most = max(most, len(rows) * (4 + values.itemsize))
    return most


class ProductPricer:
    """Exact prices of the products; see :class:`fcl.features.base.Pricer`.

    With a threshold of 0, features below FIRST_SHARE of the largest |g| of a single column may be left
    out of the candidates; ``largest`` is exact then, too.

    max_abs : largest |value| over all features and rows.
    visited : features whose sum was made by the last call of :meth:`price`.
    """

    def __init__(
        self, generator: Products, family: GeneratedFamily, prepared: PreparedRows, keep: int
    ) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self.on_progress: Callable[[float], None] = no_progress
        self._numbering = generator.numbering
        self._cuts = generator.cuts()
        self._degree = generator.degree
        self._columns = generator.columns_
        self._repeats = int(not generator.binary)
        self._kept: dict[int, ByRows] = {}
        self._kept_bytes = 0
        self.visited = 0
        self._look_at_columns()
        cells = max(CELLS, self._columns)
        self._sums = np.empty(cells)
        self._sizes = np.empty(cells if self._degree > 2 else 0)

    @property
    def n_parts(self) -> int:
        """Parts of the family, by the largest column of the products."""
        return len(self._cuts) - 1

    def _look_at_columns(self) -> None:
        """Signs and sizes of the columns, from all rows."""
        most = np.zeros(self._columns)
        self._signed = self._dense = False
        for number, _ in self._prepared.blocks():
            (matrix, columns, start, _, values), n = kernel_block(self._block(number))
            if len(matrix):
                self._dense = True
                if n:
                    high, low = matrix.max(axis=1), matrix.min(axis=1)
                    self._signed |= bool((low < 0.0).any())
                    np.maximum(most, np.maximum(np.abs(high), np.abs(low)), out=most)
            elif len(values):
                self._signed |= bool(values.min() < 0.0)
                size = np.maximum.reduceat(np.abs(values), start[:-1])
                most[columns] = np.maximum(most[columns], size)
        largest = float(most.max(initial=0.0))
        with np.errstate(over="ignore"):
            power = float(np.float64(max(largest, 1.0)) ** self._degree)
        limit = float(np.finfo(np.float32).max)
        if power > limit:
            raise InputError(
                f"products: values up to {largest:.3g} have products of degree {self._degree} up to "
                f"{power:.3g}, more than the {limit:.3g} that columns hold; scale the columns"
            )
        self.max_abs = max(largest, largest**self._degree)
        #: the U of products whose last column is c
        self._reach = np.maximum(1.0, np.maximum.accumulate(most))

    # -- prices --------------------------------------------------------------------------------

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        """See :class:`fcl.features.base.Pricer`."""
        parts = range(self.n_parts) if parts is None else parts
        self.visited = 0
        singles, sizes = self._singles(residuals)
        floor = threshold
        if threshold == 0.0:
            floor = FIRST_SHARE * float(np.abs(singles).max(initial=0.0))
        limit = math.inf if level is None else level - slack
        known = np.unique(watch)
        pairs = self._dense and self._degree == 2
        priced = []
        for part in parts:
            first, last = int(self._cuts[part]), int(self._cuts[part + 1])
            found = _Found(self._keep, floor, limit, known)
            columns = np.arange(first, last)[:, None]
            g = singles[first:last]
            self.visited += last - first
            hits = found.look(g)
            found.add(self._ids(columns[hits]), g[hits])
            if pairs:
                self._price_pairs(first, last, residuals, found)
            elif self._degree > 1:
                bounds = self._bounds(g, sizes[first:last], columns[:, 0], self._degree - 1)
                self._search(columns, bounds, residuals, found)
            order = np.argsort(found.ids)
            priced.append(
                Prices(
                    found.ids[order],
                    found.values[order],
                    found.largest,
                    np.zeros(0),
                    self._features(first, last),
                    np.array([found.excess]),
                )
            )
            self.on_progress(len(priced) / len(parts))
        merged = merge_prices(priced)
        return replace(merged, watched=self._sums_of(watch, residuals, 1, parts))

    def _features(self, first: int, last: int) -> int:
        below = self._numbering.below()
        return int(below[last] - below[first])

    def _singles(self, residuals: Floats) -> tuple[Floats, Floats]:
        """g of every single column, and its sum_i |r_i x_ij|."""
        from fcl.kernels import products

        sums, sizes = np.zeros(self._columns), np.zeros(self._columns)
        for rows, _, by_rows in self._pieces():
            products.single_sums(*by_rows, residuals[rows], sums, sizes)
        return sums, sizes

    def _ids(self, tuples: npt.NDArray[np.integer]) -> Ids:
        """Ids of products, given without the places that none of them fills."""
        padded = np.full((len(tuples), self._degree), -1, np.int64)
        padded[:, : tuples.shape[1]] = tuples
        return self._numbering.ids(padded)

    def _bounds(self, g: Floats, sizes: Floats, last: Ids, left: int) -> Floats:
        """Upper bounds of |g| below products with so many factors left."""
        bounds = sizes if self._signed else 0.5 * (sizes + np.abs(g))
        bounds = bounds * (1.0 + SLACK)
        if self._reach[-1] > 1.0:
            bounds *= self._reach[last] ** left
        return bounds

    # -- the tree ------------------------------------------------------------------------------

    def _search(
        self, tuples: npt.NDArray[np.integer], bounds: Floats, residuals: Floats, found: _Found
    ) -> None:
        """Price what is below some products, those of the largest bounds first, depth first."""
        waiting = [(tuples, bounds)]
        while waiting:
            tuples, bounds = waiting.pop()
            # without repetition nothing follows the first column
            inner = tuples[:, -1] + self._repeats > 0
            tuples, bounds = tuples[inner], bounds[inner]
            alive = bounds > found.edge
            found.skip(bounds[~alive])
            tuples, bounds = tuples[alive], bounds[alive]
            if not len(tuples):
                continue
            order = np.argsort(-bounds, kind="stable")
            room = np.cumsum(tuples[order, -1].astype(np.int64) + self._repeats)
            n = max(1, min(BATCH, int(np.searchsorted(room, len(self._sums), side="right"))))
            batch, rest = order[:n], order[n:]
            if len(rest):
                waiting.append((tuples[rest], bounds[rest]))
            below = self._expand(tuples[batch], residuals, found)
            if below is not None:
                waiting.append(below)

    def _expand(
        self, tuples: npt.NDArray[np.integer], residuals: Floats, found: _Found
    ) -> tuple[npt.NDArray[np.integer], Floats] | None:
        """Price the children of some products; returns those below which there may be more."""
        from fcl.kernels import products

        depth = tuples.shape[1]
        left = self._degree - depth - 1
        # products that begin alike follow each other
        tuples = np.ascontiguousarray(tuples[np.lexsort(tuples.T[::-1])], np.int64)
        widths = tuples[:, -1] + self._repeats
        offsets = np.concatenate([[0], np.cumsum(widths)])
        cells = int(offsets[-1])
        sums, sizes = self._sums[:cells], self._sizes[: cells if left else 0]
        sums[:] = 0.0
        sizes[:] = 0.0
        self.visited += cells
        for rows, parts, by_rows in self._pieces():
            r = residuals[rows]
            made = buffers(depth, len(r))
            step = max(1, CALL_ENTRIES // max(1, len(by_rows[1]) + len(r)))
            for at in range(0, len(tuples), step):
                some = slice(at, at + step)
                products.expand(
                    *parts,
                    *by_rows,
                    tuples[some],
                    self._repeats,
                    *made,
                    r,
                    offsets[some],
                    left > 0,
                    sums,
                    sizes,
                )

        def children(cells: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
            parent = np.searchsorted(offsets, cells, side="right") - 1
            return np.column_stack([tuples[parent], cells - offsets[parent]])

        hits = found.look(sums)
        found.add(self._ids(children(hits)), sums[hits])
        if not left:
            return None
        met = np.flatnonzero(sizes)  # below the others everything is 0
        below = children(met)
        bounds = self._bounds(sums[met], sizes[met], below[:, -1], left)
        alive = bounds > found.edge
        found.skip(bounds[~alive])
        return below[alive].astype(np.int32), bounds[alive]

    # -- pairs of dense columns ----------------------------------------------------------------

    def _price_pairs(self, first: int, last: int, residuals: Floats, found: _Found) -> None:
        from fcl.kernels import products

        widths = np.arange(first, last) + self._repeats
        ends = np.cumsum(widths)
        at = first
        while at < last:
            done = int(ends[at - first] - widths[at - first])
            n = max(
                1, int(np.searchsorted(ends, done + len(self._sums), side="right")) - at + first
            )
            stop = min(last, at + n)
            offsets = np.concatenate([[0], np.cumsum(widths[at - first : stop - first])])
            sums = self._sums[: offsets[-1]]
            sums[:] = 0.0
            self.visited += len(sums)
            for x, r in self._dense_rows(stop, residuals):
                products.pair_sums(x, r, at, stop, self._repeats, offsets, sums)
            hits = found.look(sums)
            column = np.searchsorted(offsets, hits, side="right") - 1
            pairs = np.column_stack([column + at, hits - offsets[column]])
            found.add(self._ids(pairs), sums[hits])
            at = stop

    def _dense_rows(self, columns: int, residuals: Floats) -> Iterator[tuple[Floats, Floats]]:
        """The first columns of a few rows at a time, in float64, with their residuals."""
        step = max(16, PAIR_BYTES // (8 * columns) // 4 * 4)
        for number, rows in self._prepared.blocks():
            (matrix, *_), n = kernel_block(self._block(number))
            r = residuals[rows]
            for at in range(0, n, step):
                part = matrix[:columns, at : at + step]
                yield np.ascontiguousarray(part.T, np.float64), r[at : at + step]

    # -- some features -------------------------------------------------------------------------

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        """See :class:`fcl.features.base.Pricer`."""
        return self._sums_of(ids, values, 2, range(self.n_parts) if parts is None else parts)

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        """See :class:`fcl.features.base.Pricer`."""
        spare[:] = 1.0
        return np.rint(self._sums_of(ids, spare, 0, range(self.n_parts))).astype(np.int64)

    def _sums_of(self, ids: Ids, values: Floats, power: int, parts: range) -> Floats:
        """sum_i values_i phi_ij^power of the features of some parts, 0 of the others."""
        from fcl.kernels import products

        chosen, where = np.unique(ids, return_inverse=True)
        tuples = self._numbering.tuples(chosen)
        own = (tuples[:, 0] >= self._cuts[parts.start]) & (tuples[:, 0] < self._cuts[parts.stop])
        tuples = tuples[own]
        total, found = np.zeros(len(chosen)), np.zeros(len(tuples))
        for number, rows in self._prepared.blocks() if len(tuples) else ():
            block, n = kernel_block(self._block(number))
            made = buffers(self._degree, n)
            step = max(1, CALL_ENTRIES // (n * self._degree))
            for at in range(0, len(tuples), step):
                some = slice(at, at + step)
                products.product_sums(*block, tuples[some], *made, values[rows], power, found[some])
        total[own] = found
        return total[where]

    # -- rows ----------------------------------------------------------------------------------

    def _block(self, number: int) -> object:
        return self._family.block(self._prepared, number)

    def _pieces(self) -> Iterator[tuple[slice, Parts, ByRows]]:
        """Rows of a size that is convenient: which they are, as kernels get them, and by rows."""
        size = max(64, PIECE_ENTRIES // self._columns // 64 * 64)
        for number, rows in self._prepared.blocks():
            parts, n = kernel_block(self._block(number))
            step = size if self._dense else max(1, n)
            for at in range(0, n, step):
                stop = min(n, at + step)
                piece = (parts[0][:, at:stop], *parts[1:]) if self._dense else parts
                where = slice(rows.start + at, rows.start + stop)
                yield where, piece, self._by_rows(where.start, piece, stop - at)

    def _by_rows(self, key: int, parts: Parts, n: int) -> ByRows:
        from fcl.kernels import products

        if key in self._kept:
            return self._kept[key]
        start = np.empty(n + 1, np.int64)
        products.count_rows(*parts, start)
        columns = np.empty(start[-1], np.int32)
        values = np.empty(start[-1], parts[4].dtype)
        products.write_rows(*parts, start, np.empty(n, np.int64), columns, values)
        made = (start, columns, values)
        size = sum(array.nbytes for array in made)
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept[key] = made
            self._kept_bytes += size
        return made


class _Found:
    """What was found in a part: the largest candidates, and what has to be beaten.

    bar : |g| up to which no candidate is looked for: the threshold, or the least of the candidates when
        there are as many as are kept.
    largest : upper bound of |g| over all that was priced or skipped.
    excess : sum of max(0, |g| - limit)^2; inf where every product, made or not, would have its share.
    """

    def __init__(self, keep: int, floor: float, limit: float, known: Ids) -> None:
        self._keep, self._floor, self._known = keep, floor, known
        self._limit = limit if limit > 0.0 else math.inf
        self.excess = 0.0 if limit > 0.0 else math.inf
        self.ids = np.empty(0, np.int64)
        self.values = np.empty(0)
        self.bar = floor
        self.largest = 0.0

    @property
    def edge(self) -> float:
        """The bound up to which nothing below a product is of interest."""
        return min(self.bar, self._limit)

    def look(self, sums: Floats) -> npt.NDArray[np.intp]:
        """Take the sums of some features into account; returns which of them may be candidates."""
        size = np.abs(sums)
        self.largest = max(self.largest, float(size.max(initial=0.0)))
        if self._limit < math.inf:
            self.excess += float(np.sum((size[size > self._limit] - self._limit) ** 2))
        return np.flatnonzero(size > self.bar)

    def skip(self, bounds: Floats) -> None:
        """What is below products of these bounds will not be looked at."""
        self.largest = max(self.largest, float(bounds.max(initial=0.0)))

    def add(self, ids: Ids, values: Floats) -> None:
        """Keep the largest that are not known."""
        if not len(ids):
            return
        new = ~np.isin(ids, self._known)
        ids = np.concatenate([self.ids, ids[new]])
        values = np.concatenate([self.values, values[new]])
        if len(ids) >= self._keep:
            best = np.lexsort((ids, -np.abs(values)))[: self._keep]
            ids, values = ids[best], values[best]
            self.bar = max(self._floor, float(np.abs(values[-1])))
        self.ids, self.values = ids, values
