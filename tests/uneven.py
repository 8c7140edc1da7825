"""K-mers whose penalty factors differ by position: a family for tests.

Run as a file it is the entry of a child process that knows the family (in place of ``child.py``).
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any

if __name__ == "__main__":
    sys.path[:] = json.loads(os.environ["FCL_CHILD_PATH"])

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.processes import child
from fcl.features import KmerFamily, Kmers, registry
from fcl.features.base import Prices, merge_prices
from fcl.features.kmers.pricing import KmerPricer


class UnevenFamily(KmerFamily):
    """Factors from 0.5 at the first position to 2 at the last."""

    @property
    def by_position(self) -> np.ndarray:
        return np.geomspace(0.5, 2.0, self.n_positions)

    @property
    def least_factor(self) -> float:
        return 0.5

    def penalty_factors(self, ids: np.ndarray) -> np.ndarray:
        return self.by_position[ids // self.per_position]

    def to_config(self) -> dict[str, Any]:
        return super().to_config() | {"family": "uneven"}

    def pricer(self, prepared: PreparedRows, keep: int) -> UnevenPricer:
        return UnevenPricer(self, prepared, keep)


class UnevenPricer(KmerPricer):
    """Each position with thresholds of its own."""

    def price(
        self,
        residuals: np.ndarray,
        watch: np.ndarray,
        threshold: float,
        parts: range | None = None,
        level: float | None = None,
        slack: float = 0.0,
    ) -> Prices:
        found = []
        for k in range(self.n_parts) if parts is None else parts:
            f = float(self.family.by_position[k])  # type: ignore[attr-defined]
            scaled = None if level is None else level * f
            part = super().price(residuals, watch, threshold * f, range(k, k + 1), scaled, slack)
            found.append(
                Prices(
                    part.ids,
                    part.gradients,
                    part.largest / f,
                    part.watched,
                    part.n_priced,
                    part.excess / f,
                )
            )
        return merge_prices(found)


class UnevenKmers(Kmers):
    """The family, not yet bound."""

    def bind(self, rows: Any) -> UnevenFamily:
        bound = super().bind(rows)
        return UnevenFamily(bound.d, bound.length, bound.origin)


registry._OWN["uneven"] = (UnevenKmers, UnevenFamily)

if __name__ == "__main__":
    runpy.run_path(str(child.__file__), run_name="__main__")
