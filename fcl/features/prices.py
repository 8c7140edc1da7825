"""Pricing: the gradients of all features of a family, as a map-reduce over row blocks.

    accumulate(request, rows, blocks) -> sums     in any process, over any row blocks
    merge(sums, sums)                             in any order
    scan(query) -> prices                         in one process: requests sums and receives them

A scan is a Python generator. It yields requests (small, plain descriptions of the sums that it needs
next), receives these sums over all row blocks, and returns the prices. A family whose sums fit in a table
needs at most one request per part; a tree search makes further requests that depend on its findings.
Nothing else passes between the scan and the processes that accumulate sums. Prices are therefore the
same, bit for bit, whichever process makes which sums, and in whatever order.

Sums of features with integer values are integers: the rows' numbers are multiples of a power of two
(:class:`RowVector`), and integer addition gives the same result in any order. Sums of real values are
float64, made block by block and added in the order of the blocks (:class:`BlockSums`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fcl.types import Floats, Ids

#: Sums of absolute values, in steps of the grid, stay below 2^GRID_BITS: two such sums fit in an int64.
GRID_BITS = 61
#: Exponent of the smallest step whose inverse is a float64.
LEAST_EXPONENT = -1022
#: Number of rows that are converted at a time.
CHUNK = 1 << 14


# -- numbers of the rows ---------------------------------------------------------------------------


def grid_step(total: float, largest: float) -> float:
    """The finest step on which sums of value times feature fit in int64; 0 if they are not integers.

    total : sum of the absolute values.  largest : absolute value of a feature, 0 if no sums are made in
    integers.
    """
    if largest == 0.0:
        return 0.0
    exponent = math.frexp(total)[1] + math.frexp(largest)[1] - GRID_BITS
    return float(2.0 ** max(exponent, LEAST_EXPONENT))


class RowVector:
    """A number for each row, truncated towards zero to a multiple of a step.

    Truncation keeps the sign and does not increase any absolute value. Truncated residuals therefore
    stay in the domain of the dual and are a dual point themselves, so that bounds derived from them need
    no error term.

    values : float64 (n_rows,)
    step : a power of two, or 0 to leave the values as they are.
    units : int64 (n_rows,), optional, buffer that receives the values in steps, so that kernels that read
        them many times need not convert them each time.
    """

    def __init__(
        self, values: Floats, step: float = 0.0, units: npt.NDArray[np.int64] | None = None
    ) -> None:
        self.values = values
        self.step = step
        self._units = units
        if units is not None:
            for at in range(0, len(values), CHUNK):
                units[at : at + CHUNK] = values[at : at + CHUNK] * (1.0 / step)

    @property
    def inverse(self) -> float | None:
        """The factor that converts :meth:`raw` to steps; None if :meth:`raw` is in steps already."""
        return 1.0 / self.step if self._units is None else None

    def raw(self, rows: slice) -> npt.NDArray[Any]:
        """The values of some rows: float64, or int64 in steps if there is a buffer for them."""
        return (self.values if self._units is None else self._units)[rows]

    def __getitem__(self, rows: slice) -> Floats:
        """The truncated values of some rows."""
        values = self.values[rows]
        return np.trunc(values * (1.0 / self.step)) * self.step if self.step else values

    def units(self, rows: slice) -> npt.NDArray[np.int64]:
        """The truncated values of some rows in steps."""
        if self._units is not None:
            return self._units[rows]
        return (self.raw(rows) * (1.0 / self.step)).astype(np.int64)

    def digest(self) -> bytes:
        """A hash of the values and the step."""
        found = hashlib.blake2b(np.ascontiguousarray(self.values).data, digest_size=16)
        return found.digest() + np.float64(self.step).tobytes()


class _Ones(RowVector):
    """A vector of ones that takes no memory."""

    def raw(self, rows: slice) -> Floats:
        return np.ones(rows.stop - rows.start)

    def __getitem__(self, rows: slice) -> Floats:
        return self.raw(rows)


def ones() -> RowVector:
    """A vector of ones; sums over it count rows."""
    return _Ones(np.empty(0), 1.0)


def in_units(sums: npt.NDArray[np.int64], step: float) -> Floats:
    """Convert sums in steps to float64."""
    return np.multiply(sums, step, dtype=np.float64)


# -- queries and prices ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Box:
    """Limits of all weights, and the ridge (1 - rho) / C of the penalty."""

    low: float
    high: float
    ridge: float


@dataclass(frozen=True)
class PriceQuery:
    """The question that a pass puts to a family.

    watched : int64 (k,), features whose sums are requested. They are never candidates: near the optimum
        the cached features, whose slope is about 1, would otherwise fill all the places.
    threshold : features with |g_j| / f_j up to this need not be candidates.
    level : level of :attr:`Prices.excess`; None if the excess is not needed.
    imbalance : |sum_i r_i| if the residuals will be balanced to a sum of 0, else 0. Balancing changes g_j
        by at most this times the largest |phi_ij|.
    number : number of the pass, which determines the features that a sampled family draws.
    find : whether to find candidates; if False, only the watched sums are made.
    power : power of the feature's values in the watched sums; 0 sums over the rows where the feature is
        not 0. Must be 1 with ``find``.
    n_outputs : number of outputs that are priced together, which share the memory for sums.
    side : 1 if weights cannot be below 0, so that only negative g_j count, -1 for the opposite, else 0.
    box : limits of all weights, one of them finite and not 0; only for families that visit every feature.
    """

    parts: range
    watched: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    threshold: float = 0.0
    level: float | None = None
    imbalance: float = 0.0
    number: int = 0
    find: bool = True
    power: int = 1
    n_outputs: int = 1
    side: int = 0
    box: Box | None = None

    def of_parts(self, parts: range) -> PriceQuery:
        """The same query about other parts."""
        return replace(self, parts=parts)

    @cached_property
    def known(self) -> Ids:
        """The watched features, distinct and increasing; made once for all parts."""
        return np.unique(self.watched)

    def sizes(self, sums: Floats) -> Floats:
        """|g_j|, or 0 for a sign that does not count."""
        return np.abs(sums) if self.side == 0 else np.maximum(-self.side * sums, 0.0)


@dataclass(frozen=True)
class Prices:
    """The result of one pass over the data for the features of a family, given residuals r.

    Sizes |g_j| are 0 for a sign that does not count (:attr:`PriceQuery.side`).

    Here g_j = sum_i r_i phi_ij, in the units of r (not multiplied by C); f_j are the penalty factors, and
    g~_j is g_j for the balanced residuals.
    """

    #: features with large |g_j| / f_j; a scan gives unwatched ones, increasing; polishing adds more
    ids: Ids
    gradients: Floats  #: g_j of these features
    #: upper bound on |g_j| / f_j and |g~_j| / f_j over all priced features; equal to the largest
    #: |g_j| / f_j if that is above the threshold and nothing is balanced
    largest: float
    watched: Floats  #: sums of the watched features; 0 for features of other parts
    n_priced: int  #: number of features that ``largest`` covers
    #: an upper bound, for each part in order, on sum_j f_j max(0, |g~_j| / f_j - level)^2 over all its
    #: features; 0 without a level
    excess: Floats
    reach: float = 0.0  #: the bound on |phi_ij| / f_j that ``largest`` and ``excess`` rely on
    n_visited: int = 0  #: number of features whose sums were made, for tests and benchmarks
    #: at a threshold of 0: features with |g_j| / f_j up to this may be missing among the candidates
    omitted: float = 0.0
    #: what weights with limits subtract from the bound, divided by C (:func:`fcl.objective.limits.cost`);
    #: where a limit is finite and not 0, a feature counts neither in ``largest`` nor in ``excess``
    cost: float = 0.0
    #: where features count for ``cost``: an upper bound on |g_j| / f_j and |g~_j| / f_j over all of them,
    #: whatever their limits
    widest: float = 0.0
    #: with K outputs, whose gradients and sums are (features, K): an upper bound on |g_jk| / f_j and
    #: |g~_jk| / f_j for each output
    by_output: Floats = field(default_factory=lambda: np.empty(0))


def merge_prices(parts: Sequence[Prices]) -> Prices:
    """Merge the prices of several parts of a family, given in the order of the parts."""
    ids = np.concatenate([p.ids for p in parts])
    order = np.argsort(ids, kind="stable")
    return Prices(
        ids=ids[order],
        gradients=np.concatenate([p.gradients for p in parts])[order],
        largest=max(p.largest for p in parts),
        watched=np.sum([p.watched for p in parts], axis=0),  # all but one term are 0
        n_priced=sum(p.n_priced for p in parts),
        excess=np.concatenate([p.excess for p in parts]),
        reach=max(p.reach for p in parts),
        n_visited=sum(p.n_visited for p in parts),
        omitted=max(p.omitted for p in parts),
        cost=math.fsum(p.cost for p in parts),
        widest=max(p.widest for p in parts),
    )


def only_watched(sums: Floats) -> Prices:
    """The prices that a scan returns when no candidates were requested."""
    nothing = np.empty(0)
    return Prices(np.empty(0, np.int64), nothing, 0.0, sums, 0, nothing)


#: A scan yields requests, receives sums, and returns prices.
Scan = Generator[Any, Any, Prices]
Found = TypeVar("Found")  #: what a scan returns


def within(ids: Ids, first: int, last: int) -> npt.NDArray[np.bool_]:
    """Whether features are in the range ``first`` .. ``last`` - 1."""
    found: npt.NDArray[np.bool_] = (ids >= first) & (ids < last)
    return found


Progress = Callable[[float], None]


def silent(share: float) -> None:
    """Report no progress."""


class Pricer(Protocol):
    """Prices a family; the docstring of this module describes the protocol.

    Requests, sums and prices consist of numbers and arrays, so that they can be sent to another process.

    A pricer whose requests do not depend on sums, and whose sums are integers, has two more methods, by
    which shards of the rows can be summed apart, each by a pricer over the shard. ``requests(query)``
    lists the requests of a scan, which a pricer over no rows can make. ``watched_units(query)`` is a scan
    that returns the sums of the watched features as integers, in steps; they add over shards.

    A pricer of outputs together, or on threads, also has a method ``price(queries, rows, blocks,
    progress)``. It returns the prices of each of K outputs, whose queries differ only in the imbalance.
    """

    @property
    def n_parts(self) -> int:
        """Number of parts of the family, which may be priced one by one (:func:`merge_prices`)."""

    def accumulate(self, request: Any, rows: RowVector, blocks: range, progress: Progress) -> Any:
        """Make the sums of a request over some row blocks.

        The sums may lie in buffers of the pricer; they are valid until the next call of this method.

        rows : the numbers of all rows, such as residuals.
        blocks : row blocks to sum over.
        progress : called with the completed share of this call, from 0 to 1.
        """

    def merge(self, sums: Any, more: Any) -> Any:
        """Add the sums over two disjoint sets of row blocks; ``sums`` may be overwritten."""

    def scan(self, query: PriceQuery, step: float) -> Scan:
        """Price some parts.

        Yields (request, share of the work done before it, share done after it).

        step : step of the rows' numbers, see :class:`RowVector`.
        """


def answer(scan: Generator[Any, Any, Found], sums: Callable[[Any, float, float], Any]) -> Found:
    """Run a scan to its end; ``sums`` makes the sums for each tuple that the scan yields."""
    try:
        request = next(scan)
        while True:
            request = scan.send(sums(*request))
    except StopIteration as end:
        found: Found = end.value
        return found


def relay(
    scan: Generator[Any, Any, Found],
    request: Callable[[Any, float, float], Any],
    sums: Callable[[Any], Any],
) -> Generator[Any, Any, Found]:
    """Run a scan inside another one, whose requests and sums have another form.

    request : makes the tuple to yield from the tuple that the inner scan yields.
    sums : makes the sums of the inner scan from those that were received.
    """
    received = None
    while True:
        try:
            wanted = scan.send(received)
        except StopIteration as end:
            found: Found = end.value
            return found
        received = sums((yield request(*wanted)))


# -- sums ------------------------------------------------------------------------------------------


class BlockSums:
    """float64 sums over row blocks, added in block order whatever the order in which they arrive.

    total : the sums over the first ``n`` blocks; empty if n is 0.
    later : the sums over later blocks, by block number, until the blocks before them have arrived.
    """

    def __init__(self) -> None:
        self.total = np.empty(0)
        self.n = 0
        self.later: dict[int, Floats] = {}

    def add(self, number: int, sums: Floats) -> None:
        """Add the sums over another block; takes ownership of the array."""
        self.later[number] = sums
        while self.n in self.later:
            found = self.later.pop(self.n)
            if self.n:
                self.total += found
            else:
                self.total = found
            self.n += 1

    def merge(self, more: BlockSums) -> BlockSums:
        """Add the sums over the blocks of ``more``; returns one of the two objects, updated in place."""
        first, other = (self, more) if self.n >= more.n else (more, self)
        for number, sums in other.later.items():
            first.add(number, sums)
        return first
