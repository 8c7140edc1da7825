"""Prices products: sums all pairs of dense columns, and searches the tree of products otherwise.

The children of a product have one more column, whose number is at most the number of the product's
last column. If k more factors may follow, every feature below a product phi satisfies

    |g| <= U^k sum_i |r_i phi_i|,                                      and for columns that are >= 0
    |g| <= U^k max(sum over r_i > 0 of r_i phi_i, sum over r_i < 0 of |r_i| phi_i)

where U is the largest |x| of the columns that may follow, at least 1. The search skips a subtree whose
bound is too small to be of interest; ``largest`` includes the largest of these bounds, so that it is an
upper bound over the whole family, and exact if it is above the threshold. The sums of all children of a
product come from one pass over its rows.

Pairs of dense columns are summed a few rows at a time in tiles of a table, about as fast as one thread of
BLAS computes X' diag(r) X, but in a fixed order of summation, so that the result is the same, bit for
bit, on any number of cores. All sums are made block by block (:class:`fcl.features.prices.BlockSums`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl import kernels
from fcl.data.prepared import PreparedRows
from fcl.errors import InputError
from fcl.features.candidates import Collector
from fcl.features.generator.forms import SparseColumns
from fcl.features.prices import (
    BlockSums,
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    Scan,
    merge_prices,
    only_watched,
)
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.generator.family import GeneratedFamily
    from fcl.features.products.family import Products
    from fcl.kernels.products import ByRows, Parts

#: Approximate number of sums that are made together, in two float64 tables: block and total.
CELLS = 1 << 19
#: Largest number of products whose children are priced together. With small batches, candidates raise the
#: bound for the remaining products earlier.
BATCH = 512
#: Approximate number of entries of dense rows that are processed at a time.
PIECE_ENTRIES = 1 << 20
#: Bytes of rows in float64 that are processed at a time for pairs of dense columns: they fit in the
#: second-level cache.
PAIR_BYTES = 1 << 18
#: Bytes of row-ordered blocks that are kept, in addition to the largest block.
KEPT_BYTES = 1 << 25
#: Largest number of entries times products in one call of a kernel, which then takes about 0.1 s.
CALL_ENTRIES = 1 << 26
#: With a threshold of 0, the search uses this share of the largest |g| of a single column instead.
FIRST_SHARE = 0.5
#: Relative increase of bounds, to allow for rounding of the sums from which they are computed.
SLACK = 1e-8


def kernel_block(block: Any) -> tuple[kernels.products.Parts, int]:
    """The arrays of a block for kernels, and its number of rows.

    block : a dense array (n, m), or :class:`SparseColumns`.
    """
    if isinstance(block, SparseColumns):
        nothing = np.empty((0, 0), block.values.dtype)
        return kernels.products.Parts(nothing, *block.entries()), block.n_rows
    matrix = block.T
    if matrix.strides[1] != matrix.itemsize:  # rows that were not prepared
        matrix = np.ascontiguousarray(matrix)
    empty = np.empty(0, np.int64)
    parts = kernels.products.Parts(
        matrix, empty, empty, np.empty(0, np.uint16), np.empty(0, matrix.dtype)
    )
    return parts, matrix.shape[1]


def buffers(degree: int, n: int) -> kernels.products.Buffers:
    """Buffers of the kernels for products over n rows."""
    return kernels.products.Buffers(
        np.empty((degree, n), np.int32), np.empty((degree, n)), np.empty(degree, np.int64)
    )


def pricing_bytes(n_columns: int, degree: int, block_rows: int, dense: bool) -> int:
    """Bytes of a pricer, except those that depend on the entries of sparse rows."""
    cells = max(CELLS, n_columns)
    waiting = max(0, degree - 2) * cells * (8 * degree + 8)
    made = degree * block_rows * 12
    piece = 20 * max(PIECE_ENTRIES, n_columns) if dense else 0
    return 64 * cells + waiting + made + piece + KEPT_BYTES + 24 * n_columns


def pricing_extra(prepared: PreparedRows) -> int:
    """Bytes of the largest block of sparse rows in row order."""
    most = 0
    for number, _ in prepared.blocks():
        _, _, rows, values = prepared.sides(number)
        most = max(most, len(rows) * (4 + values.itemsize))
    return most


Tuples = npt.NDArray[np.integer]


@dataclass(frozen=True)
class Singles:
    """A request for g and sum_i |r_i x_ij| of every column; answered by float64 (2, columns)."""


@dataclass(frozen=True)
class PairRequest:
    """A request for g of the pairs of dense columns whose larger one is in ``first`` .. ``last`` - 1."""

    first: int
    last: int


@dataclass
class PairSums:
    """The answer to a request for :class:`PairRequest`, from which several parts are priced.

    last : pairs whose larger column is from here on are not in the query.
    first, stop : the larger columns of the pairs in ``sums`` are ``first`` .. ``stop`` - 1.
    sums : float64 (pairs,)
    """

    last: int
    first: int = 0
    stop: int = 0
    sums: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True)
class Children:
    """A request for g of some products times one more column; answered by float64 (1 or 2, k).

    tuples : int64, the products; those with equal first columns are adjacent.
    bounded : whether the sums of |terms|, which bound further products, are needed as well.
    """

    tuples: Tuples
    bounded: bool


@dataclass(frozen=True)
class Some:
    """A request for sum_i r_i phi_ij^power of some products.

    tuples : int64 (k, degree), the products, padded with -1.
    """

    tuples: Tuples
    power: int


class ProductPricer:
    """Prices the products exactly; see :class:`fcl.features.prices.Pricer`.

    With a threshold of 0, candidates may omit features whose |g| is below FIRST_SHARE times the largest
    |g| of a single column; ``largest`` is still exact.
    """

    def __init__(
        self, generator: Products, family: GeneratedFamily, prepared: PreparedRows, keep: int
    ) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self.n_parts = family.n_price_parts
        self._numbering = generator.numbering
        self._cuts = generator.cuts()
        self._degree = generator.degree
        self._columns = generator.columns_
        self._repeats = int(not generator.binary)
        self._kept: dict[int, ByRows] = {}
        self._kept_bytes = 0
        self._measure_columns()
        self._cells = max(CELLS, self._columns)

    def _measure_columns(self) -> None:
        """Find the signs and the largest |values| of the columns over all rows."""
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
                f"{power:.3g}, but columns hold at most {limit:.3g}; scale the columns"
            )
        self._max_abs = max(largest, largest**self._degree)
        #: by c, the bound U for products whose last column is c
        self._reach = np.maximum(1.0, np.maximum.accumulate(most))

    # -- sums ----------------------------------------------------------------------------------

    def accumulate(
        self, request: Any, rows: RowVector, blocks: range, progress: Progress
    ) -> BlockSums:
        makers: dict[type, Callable[[Any, int, RowVector], Floats]] = {
            Singles: self._make_singles,
            PairRequest: self._make_pairs,
            Children: self._make_children,
            Some: self._make_some,
        }
        make = makers[type(request)]
        sums = BlockSums()
        for number in blocks:
            sums.add(number, make(request, number, rows))
        return sums

    def merge(self, sums: BlockSums, more: BlockSums) -> BlockSums:
        return sums.merge(more)

    def _make_singles(self, request: Singles, number: int, rows: RowVector) -> Floats:
        out = np.zeros((2, self._columns))
        for some, _, by_rows in self._pieces(number):
            kernels.products.single_sums(by_rows, rows[some], *out)
        return out

    def _make_children(self, request: Children, number: int, rows: RowVector) -> Floats:
        tuples, bounded = request.tuples, request.bounded
        offsets = self._offsets(tuples[:, -1])
        out = np.zeros((1 + bounded, offsets[-1]))
        for some, parts, by_rows in self._pieces(number):
            r = rows[some]
            made = buffers(tuples.shape[1], len(r))
            step = max(1, CALL_ENTRIES // max(1, len(by_rows.columns) + len(r)))
            for at in range(0, len(tuples), step):
                few, starts = tuples[at : at + step], offsets[at : at + step]
                kernels.products.expand(
                    parts, by_rows, few, self._repeats, made, r, starts, bounded, out[0], out[-1]
                )
        return out

    def _make_pairs(self, request: PairRequest, number: int, rows: RowVector) -> Floats:
        first, last = request.first, request.last
        offsets = self._offsets(np.arange(first, last))
        out = np.zeros(offsets[-1])
        (matrix, *_), n = kernel_block(self._block(number))
        r = rows[self._prepared.rows_of(number)]
        step = max(16, PAIR_BYTES // (8 * last) // 4 * 4)
        for at in range(0, n, step):
            # copied first: columns that are multiples of 4 KiB apart evict each other from the cache
            part = np.ascontiguousarray(matrix[:last, at : at + step])
            x = np.ascontiguousarray(part.T, np.float64)
            kernels.products.pair_sums(
                x, r[at : at + step], first, last, self._repeats, offsets, out
            )
        return out

    def _make_some(self, request: Some, number: int, rows: RowVector) -> Floats:
        tuples, out = request.tuples, np.zeros(len(request.tuples))
        block, n = kernel_block(self._block(number))
        r = rows[self._prepared.rows_of(number)]
        made = buffers(self._degree, n)
        step = max(1, CALL_ENTRIES // (n * self._degree))
        for at in range(0, len(tuples), step):
            some = slice(at, at + step)
            kernels.products.product_sums(block, tuples[some], made, r, request.power, out[some])
        return out

    def _offsets(self, last: npt.NDArray[np.integer]) -> Ids:
        """The offsets of the children of products with these last columns, and the total number."""
        return np.concatenate([[0], np.cumsum(last.astype(np.int64) + self._repeats)])

    # -- prices --------------------------------------------------------------------------------

    def scan(self, query: PriceQuery, step: float) -> Scan:
        chosen, where = np.unique(query.watched, return_inverse=True)
        tuples = self._numbering.tuples(chosen)
        first, last = self._cuts[query.parts.start], self._cuts[query.parts.stop]
        own = (tuples[:, 0] >= first) & (tuples[:, 0] < last)
        watched = np.zeros(len(chosen))
        if own.any():
            sums = yield Some(tuples[own], query.power), 0.0, 0.0
            watched[own] = sums.total
        watched = watched[where]
        if not query.find:
            return only_watched(watched)
        singles = (yield Singles(), 0.0, 0.0).total
        prices = []
        pairs, floor = PairSums(last), 0.0
        if query.threshold == 0.0:
            floor = FIRST_SHARE * float(query.sizes(singles[0]).max(initial=0.0))
            query = replace(query, threshold=floor)
        for done, part in enumerate(query.parts):
            share = done / len(query.parts)
            prices.append((yield from self._scan_part(part, singles, query, share, pairs)))
        return replace(merge_prices(prices), watched=watched, omitted=floor)

    def _scan_part(
        self, part: int, singles: Floats, query: PriceQuery, share: float, pairs: PairSums
    ) -> Generator[Any, Any, Prices]:
        first, last = int(self._cuts[part]), int(self._cuts[part + 1])
        found = Collector(query, self._keep, searched=True, reach=self._max_abs)
        columns = np.arange(first, last)[:, None]
        g, sizes = singles[:, first:last]
        hits = found.observe(g)
        found.add(self._ids(columns[hits]), g[hits])
        if self._dense and self._degree == 2:
            yield from self._price_pairs(first, last, found, share, pairs)
        elif self._degree > 1:
            bounds = self._bounds(g, sizes, columns[:, 0], self._degree - 1)
            yield from self._search(columns, bounds, found, share)
        return found.prices(self._features(first, last), np.zeros(0))

    def _features(self, first: int, last: int) -> int:
        below = self._numbering.below()
        return int(below[last] - below[first])

    def _ids(self, tuples: npt.NDArray[np.integer]) -> Ids:
        """Ids of products that are given without padding."""
        padded = np.full((len(tuples), self._degree), -1, np.int64)
        padded[:, : tuples.shape[1]] = tuples
        return self._numbering.ids(padded)

    def _bounds(self, g: Floats, sizes: Floats, last: Ids, left: int) -> Floats:
        """Upper bounds on |g| of all products below the given ones, with up to ``left`` more factors."""
        bounds = sizes if self._signed else 0.5 * (sizes + np.abs(g))
        bounds = bounds * (1.0 + SLACK)
        if self._reach[-1] > 1.0:
            bounds *= self._reach[last] ** left
        return bounds

    # -- the tree ------------------------------------------------------------------------------

    def _search(
        self, tuples: Tuples, bounds: Floats, found: Collector, share: float
    ) -> Generator[Any, Any, None]:
        """Price all products below the given ones: depth first, those with the largest bounds first."""
        waiting = [(tuples, bounds)]
        while waiting:
            tuples, bounds = waiting.pop()
            # without repetition, no column can follow column 0
            inner = tuples[:, -1] + self._repeats > 0
            tuples, bounds = tuples[inner], bounds[inner]
            alive = bounds > found.edge
            found.skip(bounds[~alive])
            tuples, bounds = tuples[alive], bounds[alive]
            if not len(tuples):
                continue
            order = np.argsort(-bounds, kind="stable")
            room = np.cumsum(tuples[order, -1].astype(np.int64) + self._repeats)
            n = max(1, min(BATCH, int(np.searchsorted(room, self._cells, side="right"))))
            batch, rest = order[:n], order[n:]
            if len(rest):
                waiting.append((tuples[rest], bounds[rest]))
            below = yield from self._expand(tuples[batch], found, share)
            if below is not None:
                waiting.append(below)

    def _expand(
        self, tuples: Tuples, found: Collector, share: float
    ) -> Generator[Any, Any, tuple[Tuples, Floats] | None]:
        """Price the children of some products; returns the children to expand further, and bounds."""
        left = self._degree - tuples.shape[1] - 1
        # sort, so that products with equal first columns are adjacent
        tuples = np.ascontiguousarray(tuples[np.lexsort(tuples.T[::-1])], np.int64)
        offsets = self._offsets(tuples[:, -1])
        made = (yield Children(tuples, left > 0), share, share).total
        sums, sizes = made[0], made[-1]

        def children(cells: npt.NDArray[np.intp]) -> npt.NDArray[np.int64]:
            parent = np.searchsorted(offsets, cells, side="right") - 1
            return np.column_stack([tuples[parent], cells - offsets[parent]])

        hits = found.observe(sums)
        found.add(self._ids(children(hits)), sums[hits])
        if not left:
            return None
        met = np.flatnonzero(sizes)  # all products below the others are 0
        below = children(met)
        bounds = self._bounds(sums[met], sizes[met], below[:, -1], left)
        alive = bounds > found.edge
        found.skip(bounds[~alive])
        return below[alive].astype(np.int32), bounds[alive]

    # -- pairs of dense columns ----------------------------------------------------------------

    def _price_pairs(
        self, first: int, last: int, found: Collector, share: float, made: PairSums
    ) -> Generator[Any, Any, None]:
        at = first
        while at < last:
            if at >= made.stop:
                made.first, made.stop = at, self._pairs_until(at, last, made.last)
                made.sums = (yield PairRequest(at, made.stop), share, share).total
            stop = min(last, made.stop)
            offsets = self._offsets(np.arange(made.first, stop))
            done = int(offsets[at - made.first])
            sums = made.sums[done : offsets[-1]]
            hits = found.observe(sums)
            column = np.searchsorted(offsets, hits + done, side="right") - 1
            pairs = np.column_stack([column + made.first, hits + done - offsets[column]])
            found.add(self._ids(pairs), sums[hits])
            at = stop

    def _pairs_until(self, at: int, last: int, end: int) -> int:
        """The larger column before which to request pairs from ``at`` on: whole parts if they fit.

        Each request copies all rows, so a request for each part, of one column or two, would take most of
        a pass. Where a part is cut must not depend on the parts before it, so that a pass gives the
        same bits with any number of writers.

        last, end : the ends of the part of ``at`` and of all parts of the query.
        """
        offsets = self._offsets(np.arange(at, end))
        n = int(np.searchsorted(offsets, self._cells, side="right")) - 1
        stop = at + max(1, n)
        if stop < last:
            return stop
        return int(self._cuts[np.searchsorted(self._cuts, stop, side="right") - 1])

    # -- rows ----------------------------------------------------------------------------------

    def _block(self, number: int) -> object:
        return self._family.block(self._prepared, number)

    def _pieces(self, number: int) -> Iterator[tuple[slice, Parts, ByRows]]:
        """Pieces of the rows of a block: their rows, their arrays by columns, and by rows."""
        rows = self._prepared.rows_of(number)
        parts, n = kernel_block(self._block(number))
        step = max(64, PIECE_ENTRIES // self._columns // 64 * 64) if self._dense else max(1, n)
        for at in range(0, n, step):
            stop = min(n, at + step)
            piece = parts._replace(matrix=parts.matrix[:, at:stop]) if self._dense else parts
            where = slice(rows.start + at, rows.start + stop)
            yield where, piece, self._by_rows(where.start, piece, stop - at)

    def _by_rows(self, key: int, parts: Parts, n: int) -> ByRows:
        if key in self._kept:
            return self._kept[key]
        start = np.empty(n + 1, np.int64)
        kernels.products.count_rows(parts, start)
        n = int(start[-1])
        made = kernels.products.ByRows(
            start, np.empty(n, np.int32), np.empty(n, parts.values.dtype)
        )
        kernels.products.write_rows(parts, made)
        size = sum(array.nbytes for array in made)
        if self._kept_bytes + size <= KEPT_BYTES:
            self._kept[key] = made
            self._kept_bytes += size
        return made
