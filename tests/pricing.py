"""Pricers with their prepared rows, called in one process or split among several."""

from __future__ import annotations

from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.prices import PriceQuery, Prices, RowVector, grid_step, ones
from fcl.features.run import run, sums_of


class Pricing:
    """A pricer of a family, bound to prepared rows."""

    def __init__(self, family: Any, prepared: PreparedRows, keep: int) -> None:
        self.family = family
        self.pricer = family.pricer(prepared, keep)
        self.blocks = range(prepared.n_blocks)
        self.n_parts: int = self.pricer.n_parts

    def on_grid(self, values: np.ndarray, power: int = 1) -> RowVector:
        total = float(np.abs(values).sum())
        return RowVector(values, grid_step(total, self.family.integer_bound**power))

    def query(
        self,
        watch: np.ndarray,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        imbalance: float = 0.0,
    ) -> PriceQuery:
        parts = range(self.n_parts) if parts is None else parts
        return PriceQuery(parts, watch, threshold, level, imbalance)

    def price(self, residuals: np.ndarray, *query: Any, **more: Any) -> Prices:
        asked = self.query(*query, **more)
        return run(self.pricer, asked, self.on_grid(residuals), self.blocks)

    def sums(self, values: np.ndarray, ids: np.ndarray, parts: range | None = None) -> np.ndarray:
        return sums_of(self.pricer, ids, self.on_grid(values, 2), self.blocks, parts=parts)

    def counts(self, ids: np.ndarray) -> np.ndarray:
        return sums_of(self.pricer, ids, ones(), self.blocks, power=0)
