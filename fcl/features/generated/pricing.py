"""Prices of a generator's features, part by part, all against the same residuals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import Floats, Ids, Prices, merge_prices, no_progress
from fcl.features.generated.checked import checked_columns, checked_largest, checked_vector
from fcl.features.generated.stages import batches
from fcl.features.generator import overrides

if TYPE_CHECKING:
    from fcl.features.generated.family import GeneratedFamily

__all__ = ["PART_FEATURES", "GeneratedPricer", "parts_of", "pricing_bytes"]

#: Parts of a family for pricing: at most, and features of one at least (as many are reported of it).
MOST_PARTS = 128
LEAST_PART = 64
#: Features of a part at most, unless there would be more parts than that.
PART_FEATURES, PARTS_LIMIT = 1 << 20, 1 << 16


def parts_of(n_features: int) -> int:
    """Parts of a family of so many features."""
    few = min(MOST_PARTS, -(-n_features // LEAST_PART))
    return max(few, min(PARTS_LIMIT, -(-n_features // PART_FEATURES)))


def pricing_bytes(n_features: int, n_parts: int) -> int:
    """Bytes of the gradients of a group of parts, their sizes, and which are large."""
    part = -(-n_features // n_parts)
    return 25 * min(n_features, max(part, PART_FEATURES))


class GeneratedPricer:
    """Prices from the columns themselves, or by the generator's own way."""

    def __init__(self, family: GeneratedFamily, prepared: PreparedRows, keep: int) -> None:
        self._family, self._prepared, self._keep = family, prepared, keep
        self.on_progress: Callable[[float], None] = no_progress
        self.balances = True
        generator = family.generator
        self._drawn = family.drawn(0)
        self._fast = overrides(generator, "gradients")
        self._seen = 0.0  # the largest |value| of the features priced so far
        self._largest = np.full(prepared.n_blocks, -1.0)  # of each block, once asked for

    @property
    def n_parts(self) -> int:
        return self._family.n_price_parts

    def draw(self, number: int) -> None:
        """Pass ``number`` is priced next: a sampled family draws its features by that."""
        self._drawn = self._family.drawn(number)

    @property
    def reach(self) -> float:
        """The largest |value| of all features; of those priced here, where nothing else tells."""
        if self._fast:
            for number in np.flatnonzero(self._largest < 0.0):
                self._block_largest(int(number), self._family.block(self._prepared, int(number)))
            return float(self._largest.max())
        return self._seen

    def _block_largest(self, number: int, block: Any) -> float:
        if self._largest[number] < 0.0:
            self._largest[number] = checked_largest(self._family.generator, block, number)
        return float(self._largest[number])

    def _features(self, part: int) -> tuple[int, int]:
        """The features of a part, as places in what is drawn."""
        n, parts = len(self._drawn), self.n_parts
        return part * n // parts, (part + 1) * n // parts

    def _home(self, ids: Ids, first: int, last: int) -> npt.NDArray[np.bool_]:
        """Which features belong to these places, whichever pass draws them."""
        place = ids % len(self._drawn)
        found: npt.NDArray[np.bool_] = (place >= first) & (place < last)
        return found

    def price(
        self,
        residuals: Floats,
        watch: Ids,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        total = abs(float(residuals.sum())) if self.balances else 0.0
        prices = []
        parts = range(self.n_parts) if parts is None else parts
        for group in self._groups(parts):
            for part, g, most in self._gradients(group, residuals, parts):
                first, last = self._features(part)
                own = self._home(watch, first, last)
                first, last = first + self._drawn.start, last + self._drawn.start
                watched, reach = np.zeros(len(watch)), most
                fresh = own & (watch >= first) & (watch < last)
                watched[fresh] = g[watch[fresh] - first]
                other = np.flatnonzero(
                    own & ~fresh
                )  # of passes before, where the family is sampled
                if len(other):
                    other = other[np.argsort(watch[other], kind="stable")]
                    watched[other], value = self._from_columns(watch[other], residuals)
                    reach = np.maximum(most, value)
                size = np.concatenate([np.abs(g), np.abs(watched[other])])
                f = self._family.factors_of(first, last, watch[other])
                # balancing the residuals to a sum of 0 changes g_j by no more than |sum r| max |phi_j|
                change = total * reach
                largest = float(((size + change) / f).max(initial=0.0))
                excess = np.zeros(1)
                if level is not None:
                    above = np.maximum((size + (slack + change)) / f - level, 0.0)
                    excess[0] = np.sum(
                        above**2 * np.where(above > 0.0, f, 0.0)
                    )  # f may be infinite
                size = (size / f)[: last - first]
                size[watch[fresh] - first] = 0.0
                found = np.flatnonzero(size > threshold)
                if len(found) > self._keep:
                    found = found[np.argsort(-size[found], kind="stable")[: self._keep]]
                    found.sort()
                n_priced = last - first + len(other)
                prices.append(Prices(found + first, g[found], largest, watched, n_priced, excess))
        return merge_prices(prices)

    def _groups(self, parts: range) -> Iterator[range]:
        """Parts whose gradients are made together: each block is read once for all of them."""
        size = -(-len(self._drawn) // self.n_parts)
        at_once = max(1, PART_FEATURES // size)
        for at in range(parts.start, parts.stop, at_once):
            yield range(at, min(at + at_once, parts.stop))

    def _gradients(
        self, group: range, residuals: Floats, parts: range
    ) -> Sequence[tuple[int, Floats, Floats | float]]:
        """A group of the parts, g_j of their features, and the largest |value| of them (all, or each)."""
        places = [self._features(part) for part in group]
        g = [np.zeros(last - first) for first, last in places]
        most = np.zeros(len(places))
        start = self._drawn.start
        for number, rows in self._prepared.blocks():
            r = residuals[rows]
            block = self._family.block(self._prepared, number)
            for i, (first, last) in enumerate(places):
                features = first + start, last + start
                found, largest = self._block_gradients(*features, block, number, r)
                g[i] += found
                most[i] = max(most[i], largest)
                done = number + (i + 1) / len(group)  # blocks
                before = group.start - parts.start
                share = before + len(group) * done / self._prepared.n_blocks
                self.on_progress(share / len(parts))
        self._seen = max(self._seen, float(most.max()))
        return list(zip(group, g, most.tolist(), strict=True))

    def _block_gradients(
        self, first: int, last: int, block: Any, number: int, r: Floats
    ) -> tuple[Floats, float]:
        """sum_i r_i phi_ij over a block, and the largest |value| there."""
        generator = self._family.generator
        if not self._fast:
            return self._block_from_columns(np.arange(first, last), block, number, r)
        what = f"gradients(features {first} to {last - 1}) on row block {number}"
        arguments = (first, last, block, r)
        found = checked_vector(generator, what, generator.gradients, *arguments, n=last - first)
        return found, self._block_largest(number, block)

    def _from_columns(self, ids: Ids, residuals: Floats) -> tuple[Floats, float]:
        """g_j of any features (increasing) from their columns, and the largest |value| met."""
        g, most = np.zeros(len(ids)), 0.0
        for number, rows in self._prepared.blocks():
            block = self._family.block(self._prepared, number)
            found, largest = self._block_from_columns(ids, block, number, residuals[rows])
            g += found
            most = max(most, largest)
        return g, most

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

    def sums(self, values: Floats, ids: Ids, parts: range | None = None) -> Floats:
        own = np.ones(len(ids), bool)
        if parts is not None:
            first, last = self._features(parts.start)[0], self._features(parts.stop - 1)[1]
            own = self._home(ids, first, last)
        out = np.zeros(len(ids))
        out[own] = self._sums(ids[own], lambda columns, rows: values[rows] @ columns**2)
        return out

    def counts(self, ids: Ids, spare: Floats) -> Ids:
        found = self._sums(ids, lambda columns, rows: np.count_nonzero(columns, axis=0))
        return found.astype(np.int64)

    def _sums(self, ids: Ids, of: Callable[[Floats, slice], npt.NDArray[Any]]) -> Floats:
        """Sums over blocks of what ``of`` makes of the columns (n, k) and their rows."""
        chosen, where = np.unique(ids, return_inverse=True)
        total = np.zeros(len(chosen))
        for number, rows in self._prepared.blocks() if len(chosen) else ():
            n = rows.stop - rows.start
            block = self._family.block(self._prepared, number)
            for some in batches(len(chosen), n):
                columns = checked_columns(self._family.generator, chosen[some], block, number, n)
                total[some] += of(columns.astype(np.float64, copy=False), rows)
        return total[where]
