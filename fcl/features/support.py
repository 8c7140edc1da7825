"""A few chosen features of a family, as a family of their own: ids are indices into the chosen ids.

A refit trains on these features. It uses the rows, columns and sums of the whole family, and needs no
matrix of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import ColumnMaker, Columns, Family, Scorer
from fcl.features.candidates import Collector
from fcl.features.derived import DerivedFamily
from fcl.features.prices import PriceQuery, Pricer, Prices, Progress, RowVector, Scan, ones
from fcl.features.run import price_each, sums_of
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids

if TYPE_CHECKING:
    from fcl.features.motif import Motif

#: Smallest penalty factor, as a share of the mean square of the feature: of features without variance.
LEAST_VARIANCE = 1e-12


class SupportFamily(DerivedFamily):
    """The features ``chosen`` of a family, each with its variance as its penalty factor.

    A ridge penalty with these factors is one on sd_j w_j, which does not depend on the features' units.
    The first call of :meth:`pricer` measures the variances over the prepared rows.

    inner : it must price all its features in every pass, in the units of the data.
    chosen : int64 (k,), ids of at least one feature, strictly increasing.
    """

    def __init__(self, inner: Family, chosen: Ids) -> None:
        self.inner, self.chosen = inner, inner.checked_ids(chosen)
        self._factors: Floats | None = None
        self._largest = np.empty(0)  # upper bound on |value|, by feature

    # -- the features --------------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        return len(self.chosen)

    @property
    def n_price_parts(self) -> int:
        return 1

    def user_class(self, feature: int) -> str:
        return self.inner.user_class(int(self.chosen[feature]))

    def penalty_factors(self, ids: Ids) -> Floats:
        if self._factors is None:
            raise RuntimeError("the variances are not measured; call pricer() first")
        return self._factors[ids]

    def describe(self, feature: int, names: Sequence[str] | None = None) -> str:
        return self.inner.describe(int(self.chosen[feature]), names)

    def motif(self, feature: int) -> Motif | None:
        return self.inner.motif(int(self.chosen[feature]))

    # -- rows ----------------------------------------------------------------------------------

    def write_margins(
        self,
        prepared: PreparedRows,
        ids: Ids,
        weights: Floats,
        out: Floats,
        blocks: range | None = None,
    ) -> None:
        self.inner.write_margins(prepared, self.chosen[ids], weights, out, blocks)

    def scorer(self, ids: Ids, weights: Floats) -> Scorer:
        return self.inner.scorer(self.chosen[ids], weights)

    def workspace_bytes(self, block_rows: int, scratch: bool) -> int:
        return self.inner.workspace_bytes(block_rows, scratch) + 32 * self.n_features

    # -- prices and columns --------------------------------------------------------------------

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> Pricer:
        found = self.inner.pricer(prepared, keep, team)
        if self._factors is None:
            self._measure(found, prepared)
        return _SupportPricer(self, found, keep)

    def _measure(self, pricer: Pricer, prepared: PreparedRows) -> None:
        """Measure the variances, in the population form and without weights, and bound the values."""
        blocks, n = range(prepared.n_blocks), prepared.n_rows
        sums, squares = (sums_of(pricer, self.chosen, ones(), blocks, power) for power in (1, 2))
        least = np.where(squares > 0.0, LEAST_VARIANCE * squares / n, 1.0)
        self._factors = np.maximum(squares / n - (sums / n) ** 2, least)
        self._largest = np.sqrt(squares)

    def column_maker(self, prepared: PreparedRows, buffer_bytes: int) -> ColumnMaker:
        return _SupportColumns(self, self.inner.column_maker(prepared, buffer_bytes))

    @property
    def largest(self) -> Floats:
        """Upper bounds on |phi_ij|, float64 (k,): the roots of the sums of squares."""
        return self._largest


class _SupportColumns(ColumnMaker):
    """Makes the columns of the chosen features."""

    def __init__(self, family: SupportFamily, maker: ColumnMaker) -> None:
        self.family, self.prepared, self.batch = family, maker.prepared, maker.batch
        self._maker = maker

    def order(self, ids: Ids) -> npt.NDArray[np.intp]:
        return self._maker.order(self.family.chosen[ids])

    def make(self, ids: Ids) -> Sequence[Columns]:
        return self._maker.make(self.family.chosen[ids])


class _SupportPricer:
    """Prices the chosen features by the sums that the pricer of the whole family makes of watched ones.

    See :class:`fcl.features.prices.Pricer`.
    """

    n_parts = 1

    def __init__(self, family: SupportFamily, pricer: Pricer, keep: int) -> None:
        self._family, self._pricer, self._keep = family, pricer, keep

    def accumulate(self, request: Any, rows: RowVector, blocks: range, progress: Progress) -> Any:
        return self._pricer.accumulate(request, rows, blocks, progress)

    def merge(self, sums: Any, more: Any) -> Any:
        return self._pricer.merge(sums, more)

    def scan(self, query: PriceQuery, step: float) -> Scan:
        return self._prices(query, (yield from self._pricer.scan(self._query(query), step)))

    def price(
        self,
        queries: Sequence[PriceQuery],
        rows: Sequence[RowVector],
        blocks: range,
        progress: Progress,
    ) -> list[Prices]:
        """See :class:`fcl.features.prices.Pricer`."""
        asked = [self._query(query) for query in queries]
        found = price_each(self._pricer, asked, rows, blocks, progress)
        return [self._prices(query, one) for query, one in zip(queries, found, strict=True)]

    def _query(self, query: PriceQuery) -> PriceQuery:
        """The question to the pricer of the whole family."""
        chosen, parts = self._family.chosen, range(self._pricer.n_parts)
        watched = chosen if query.find else chosen[query.watched]
        return replace(query, parts=parts, watched=watched, find=False)

    def _prices(self, query: PriceQuery, found: Prices) -> Prices:
        if not query.find:
            return found
        family = self._family
        factors = family.penalty_factors(np.arange(family.n_features))
        return Collector(query, self._keep).price_range(0, found.watched, factors, family.largest)
