"""Pricing: the gradients of all features of a family, as a map-reduce over row blocks.

    accumulate(request, rows, blocks) -> sums     in any process, over any row blocks
    merge(sums, sums)                             in any order
    scan(query) -> prices                         in one process: asks for sums, is given them

A scan is a generator. It yields requests, small and plain descriptions of the sums that it needs next, is
sent these sums over all row blocks, and returns the prices. A family whose sums fit into a table needs
one request for each of its parts; a search asks again and again, by what it has found. Nothing else
passes between the two, so no bit of the prices depends on who made which sums, in which order.

Sums of features with integer values are integers: the rows' numbers are multiples of a power of two
(:class:`RowVector`), and integers add up to the same in any order. Sums of real values are float64,
made block by block and added in the order of the blocks (:class:`BlockSums`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "BlockSums",
    "Collector",
    "Heap",
    "PriceQuery",
    "Pricer",
    "Prices",
    "RowVector",
    "Scan",
    "answer",
    "in_units",
    "merge_prices",
    "ones",
    "only_watched",
    "run",
    "sums_of",
]

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Sums of absolute values, in steps of the grid, stay below 2^GRID_BITS; two of them fit into an int64.
GRID_BITS = 61
#: The least step whose inverse is a float64.
LEAST_EXPONENT = -1022
#: Integers of this size stand for "more than any sum".
ENDLESS = 1 << 62
#: Rows whose numbers are converted at a time.
CHUNK = 1 << 14


# -- numbers of the rows ---------------------------------------------------------------------------


class RowVector:
    """A number for each row, truncated towards zero to a multiple of a step.

    Truncation keeps the sign and raises no absolute value. So truncated residuals stay in the domain of
    the dual, and are a dual point of their own: what is proved of them needs no term for an error.

    Parameters
    ----------
    values : float64 (n_rows,)
    step : float
        A power of two, or 0: the values as they are.
    units : int64 (n_rows,), optional
        Gets the values in steps: kernels that read them many times need not convert them each time.
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

    @classmethod
    def on_grid(
        cls,
        values: Floats,
        total: float,
        largest: float,
        units: npt.NDArray[np.int64] | None = None,
    ) -> RowVector:
        """The finest grid on which sums of value times feature fit into integers.

        total : sum of the absolute values.
        largest : largest absolute value of a feature; 0 if no sums are made in integers.
        """
        if largest == 0.0:
            return cls(values)
        exponent = math.frexp(total)[1] + math.frexp(largest)[1] - GRID_BITS
        return cls(values, 2.0 ** max(exponent, LEAST_EXPONENT), units)

    @property
    def inverse(self) -> float | None:
        """What kernels make steps of :meth:`raw` with: steps in 1; None: these are steps."""
        return 1.0 / self.step if self._units is None else None

    def raw(self, rows: slice) -> npt.NDArray[Any]:
        """The values of some rows, float64, or in steps, int64."""
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
        """Differs between vectors that differ."""
        found = hashlib.blake2b(np.ascontiguousarray(self.values).data, digest_size=16)
        return found.digest() + np.float64(self.step).tobytes()


class _Ones(RowVector):
    """A 1 for each row, without the memory."""

    def raw(self, rows: slice) -> Floats:
        return np.ones(rows.stop - rows.start)

    def __getitem__(self, rows: slice) -> Floats:
        return self.raw(rows)


def ones() -> RowVector:
    """A 1 for each row: with it, sums count rows."""
    return _Ones(np.empty(0), 1.0)


def in_units(sums: npt.NDArray[np.int64], step: float) -> Floats:
    """Sums that were made in steps."""
    return np.multiply(sums, step, dtype=np.float64)


# -- queries and prices ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PriceQuery:
    """What a pass asks of a family.

    parts : of the family, those that are priced.
    watched : features whose sums are wanted, and which are never candidates: in the end game the cached
        features, at a slope of about 1, would take all the places.
    threshold : features of |g_j| / f_j up to this need not be candidates.
    level : of :attr:`Prices.excess`; None: it is not wanted.
    imbalance : |sum_i r_i| if the residuals will be balanced to a sum of 0, else 0. Balancing changes
        g_j by no more than that times the largest |phi_ij|.
    number : of the pass; a sampled family draws its features by that.
    find : whether candidates are wanted; else the watched sums alone.
    power : of the feature's values in the watched sums; 0: rows count where it is not 0. 1 with ``find``.
    """

    parts: range
    watched: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    threshold: float = 0.0
    level: float | None = None
    imbalance: float = 0.0
    number: int = 0
    find: bool = True
    power: int = 1


@dataclass(frozen=True)
class Prices:
    """What one pass over the data says of all features of a family, against residuals r.

    With g_j = sum_i r_i phi_ij, in the units of r (not multiplied by C), penalty factors f_j, and g~_j of
    the balanced residuals.
    """

    ids: Ids  #: features of large |g_j| / f_j, none of them watched; increasing
    gradients: Floats  #: their g_j
    #: an upper bound of |g_j| / f_j and |g~_j| / f_j over the whole family; the largest |g_j| / f_j where
    #: that is above the threshold and nothing is balanced
    largest: float
    watched: Floats  #: sums of the features that were asked for; 0 for those of other parts
    n_priced: int  #: features covered by ``largest``
    #: of each part, in their order, sum_j f_j max(0, |g~_j| / f_j - level)^2 over all its features, or
    #: more than that; 0 without a level
    excess: Floats
    reach: float = 0.0  #: the bound of |phi_ij| / f_j that these rely on
    n_visited: int = 0  #: features whose sum was made


def merge_prices(parts: Sequence[Prices]) -> Prices:
    """The prices of several parts of a family, in the order of the parts, as one."""
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
    )


def only_watched(sums: Floats) -> Prices:
    """What a scan returns that was asked for no candidates."""
    nothing = np.empty(0)
    return Prices(np.empty(0, np.int64), nothing, 0.0, sums, 0, nothing)


#: A scan yields requests, is sent sums, and returns prices.
Scan = Generator[Any, Any, Prices]
Progress = Callable[[float], None]


class Pricer(Protocol):
    """Prices a family; the page of this module has the contract.

    Requests, sums and prices are dataclasses of numbers and arrays, which another process can be sent.
    """

    @property
    def n_parts(self) -> int:
        """Parts of the family, which may be priced one by one (:func:`merge_prices`)."""

    def accumulate(self, request: Any, rows: RowVector, blocks: range, progress: Progress) -> Any:
        """Make the sums of a request over some row blocks.

        They may lie in buffers of the pricer, and are valid until its next call of this method.

        progress : called with the share of this that is done.
        """

    def merge(self, sums: Any, more: Any) -> Any:
        """The sums over the row blocks of both, which have none in common; ``sums`` is overwritten."""

    def scan(self, query: PriceQuery, step: float) -> Scan:
        """Price some parts.

        Yields (request, share of the work that comes before it, share with it).  step : of the rows'
        numbers, see :class:`RowVector`.
        """


def answer(scan: Scan, sums: Callable[[Any, float, float], Any]) -> Prices:
    """Answer the requests of a scan to its end; sums : makes those of what the scan yields."""
    try:
        request = next(scan)
        while True:
            request = scan.send(sums(*request))
    except StopIteration as end:
        found: Prices = end.value
        return found


def run(
    pricer: Pricer,
    query: PriceQuery,
    rows: RowVector,
    blocks: range,
    progress: Progress = lambda share: None,
) -> Prices:
    """Price in this process. blocks : all row blocks."""

    def sums(request: Any, begin: float, end: float) -> Any:
        progress(begin)
        return pricer.accumulate(
            request, rows, blocks, lambda share: progress(begin + share * (end - begin))
        )

    return answer(pricer.scan(query, rows.step), sums)


def sums_of(
    pricer: Pricer,
    ids: Ids,
    rows: RowVector,
    blocks: range,
    power: int = 2,
    parts: range | None = None,
) -> Floats:
    """sum_i rows_i phi_ij^power of some features, in any order; those of other parts get 0."""
    parts = range(pricer.n_parts) if parts is None else parts
    query = PriceQuery(parts, ids, find=False, power=power)
    return run(pricer, query, rows, blocks).watched


# -- sums ------------------------------------------------------------------------------------------


class BlockSums:
    """float64 sums over row blocks, added in the order of the blocks whatever order they come in.

    total : the sums over the first ``n`` blocks; nothing if n is 0.
    later : the sums over further blocks, by their number, until those between have come.
    """

    def __init__(self) -> None:
        self.total = np.empty(0)
        self.n = 0
        self.later: dict[int, Floats] = {}

    def add(self, number: int, sums: Floats) -> None:
        """The sums over another block, an array that is given away."""
        self.later[number] = sums
        while self.n in self.later:
            found = self.later.pop(self.n)
            if self.n:
                self.total += found
            else:
                self.total = found
            self.n += 1

    def merge(self, more: BlockSums) -> BlockSums:
        """The sums over the blocks of both."""
        first, other = (self, more) if self.n >= more.n else (more, self)
        for number, sums in other.later.items():
            first.add(number, sums)
        return first


# -- candidates ------------------------------------------------------------------------------------


class Collector:
    """Collects the largest features of a part, the largest size and the excess, from arrays of sums.

    Of equal features the first by id are kept. Where features may be skipped by a bound, what matters
    is the ``edge``: nothing below it is of interest.

    Parameters
    ----------
    keep : int
        Candidates kept.
    searched : bool
        Whether features may be skipped. The excess of what is skipped is 0 unless the level is.
    reach : float
        Bound of |phi_ij| / f_j, where it is one for all features.
    """

    def __init__(
        self, query: PriceQuery, keep: int, *, searched: bool = False, reach: float = 0.0
    ) -> None:
        self._query, self._keep = query, keep
        self._known = np.unique(query.watched)
        self._bar = query.threshold  # candidates are above this
        self._level = math.inf if query.level is None else query.level
        self._least = self._level - query.imbalance * reach  # the sizes that have an excess
        self._endless = searched and self._least <= 0.0  # each feature has some, made or not
        if self._endless:
            self._least = math.inf
        self.reach = reach
        self.largest = 0.0
        self.excess = 0.0
        self.n_visited = 0
        self._ids, self._values, self._sizes = np.empty(0, np.int64), np.empty(0), np.empty(0)

    @property
    def edge(self) -> float:
        """The size up to which a feature is of no interest."""
        return min(self._bar, self._least)

    def look(
        self, sums: Floats, factors: Floats | float = 1.0, reach: Floats | float | None = None
    ) -> npt.NDArray[np.intp]:
        """Count features in; returns the places of those that may be candidates.

        factors : their penalty factors.  reach : of each, where it is not the same for all: largest
        |phi_ij|.
        """
        size = np.abs(sums) / factors
        self.n_visited += len(sums)
        if reach is not None:
            self.reach = max(self.reach, float(np.max(reach / factors, initial=0.0)))
        change = self._query.imbalance * (self.reach if reach is None else reach)
        balanced = size + change / factors
        self.largest = max(self.largest, float(balanced.max(initial=0.0)))
        if self._least < math.inf:
            above = balanced > self._level
            f = np.broadcast_to(factors, size.shape)[above]
            self.excess += float(np.sum((balanced[above] - self._level) ** 2 * f))
        return np.flatnonzero(size > self._bar)

    def skip(self, bounds: Floats) -> None:
        """Skip features of these bounds."""
        if len(bounds):
            change = self._query.imbalance * self.reach
            self.largest = max(self.largest, float(bounds.max()) + change)

    def add(self, ids: Ids, sums: Floats, factors: Floats | float = 1.0) -> None:
        """Keep the largest of some features that are not watched."""
        new = ~np.isin(ids, self._known)
        if not new.any():
            return
        self._ids = np.concatenate([self._ids, ids[new]])
        self._values = np.concatenate([self._values, sums[new]])
        self._sizes = np.concatenate([self._sizes, (np.abs(sums) / factors)[new]])
        if len(self._ids) >= self._keep:
            best = np.lexsort((self._ids, -self._sizes))[: self._keep]
            self._ids, self._values = self._ids[best], self._values[best]
            self._sizes = self._sizes[best]
            self._bar = max(self._bar, float(self._sizes[-1]))

    def prices(self, n_priced: int, watched: Floats) -> Prices:
        """What was collected."""
        order = np.argsort(self._ids)
        return Prices(
            ids=self._ids[order],
            gradients=self._values[order],
            largest=self.largest,
            watched=watched,
            n_priced=n_priced,
            excess=np.array([math.inf if self._endless else self.excess]),
            reach=self.reach,
            n_visited=self.n_visited,
        )


class Heap:
    """The same for kernels that walk a tree of integer sums (:mod:`fcl.kernels.candidates`)."""

    def __init__(self, keep: int) -> None:
        from fcl.kernels import candidates

        self._ids = np.empty(keep, np.int64)
        self._sums = np.empty(keep, np.int64)
        self._found = np.empty(candidates.FOUND)

    def arguments(
        self, query: PriceQuery, step: float, reach: float, known: Ids, known_sums: npt.NDArray[Any]
    ) -> tuple[Any, ...]:
        """Begin a part: what :func:`fcl.kernels.candidates.take` wants behind feature and sum.

        known : watched features of the part, by the numbers of the kernel, increasing.
        known_sums : int64, gets their sums.
        """
        self._found[:] = 0.0
        self._step, self._change = step, query.imbalance * reach
        self._reach, self._level = reach, query.level
        floor = math.inf if query.level is None else (query.level - self._change) / step
        self._endless = floor <= 0.0
        if self._endless:
            floor = math.inf
        threshold = int(min(query.threshold / step, ENDLESS)) if query.find else ENDLESS
        return (threshold, floor, known, known_sums, self._ids, self._sums, self._found)

    def prices(self, n_priced: int, n_watched: int) -> Prices:
        """What the kernel has found in the part, by its numbers, in no order; no watched sums."""
        from fcl.kernels import candidates

        found, step = self._found, self._step
        n = int(found[candidates.COUNT])
        largest = max(found[candidates.LARGEST], found[candidates.SKIPPED])
        excess = math.inf if self._endless else float(found[candidates.EXCESS]) * step * step
        return Prices(
            ids=self._ids[:n].copy(),
            gradients=in_units(self._sums[:n], step),
            largest=float(largest) * step + self._change,
            watched=np.zeros(n_watched),
            n_priced=n_priced,
            excess=np.array([excess]),
            reach=self._reach,
            n_visited=int(found[candidates.VISITED]),
        )
