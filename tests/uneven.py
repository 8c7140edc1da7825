"""K-mers whose penalty factors differ by position: a family for tests.

Run as a script, it is the entry point of a child process that knows the family (instead of ``child.py``).
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from dataclasses import replace
from typing import Any

if __name__ == "__main__":
    sys.path[:] = json.loads(os.environ["FCL_CHILD_PATH"])

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.drivers.processes import child
from fcl.features import KmerFamily, Kmers, registry
from fcl.features.kmers.pricing import KmerPricer
from fcl.features.prices import PriceQuery, Scan, merge_prices
from fcl.parallel import SERIAL, Team


class UnevenFamily(KmerFamily):
    """The bound family, with factors from 0.5 at the first position to 2 at the last."""

    @property
    def by_position(self) -> np.ndarray:
        return np.geomspace(0.5, 2.0, self.n_positions)

    def penalty_factors(self, ids: np.ndarray) -> np.ndarray:
        return self.by_position[ids // self.per_position]

    def to_config(self) -> dict[str, Any]:
        return super().to_config() | {"family": "uneven"}

    def pricer(self, prepared: PreparedRows, keep: int, team: Team = SERIAL) -> UnevenPricer:
        return UnevenPricer(self, prepared, keep)


class UnevenPricer(KmerPricer):
    """A pricer with a separate threshold for each position."""

    def scan(self, query: PriceQuery, step: float) -> Scan:
        if not query.find:
            return (yield from super().scan(query, step))
        found = []
        for k in query.parts:
            f = float(self.family.by_position[k])  # type: ignore[attr-defined]
            level = None if query.level is None else query.level * f
            own = replace(query, parts=range(k, k + 1), threshold=query.threshold * f, level=level)
            part = yield from super().scan(own, step)
            found.append(
                replace(
                    part, largest=part.largest / f, excess=part.excess / f, reach=part.reach / f
                )
            )
        return merge_prices(found)


class UnevenKmers(Kmers):
    """The unbound family."""

    def bind(self, rows: Any) -> UnevenFamily:
        bound = super().bind(rows)
        return UnevenFamily(bound.d, bound.length, bound.origin)


registry.OWN["uneven"] = (UnevenKmers, UnevenFamily)

if __name__ == "__main__":
    runpy.run_path(str(child.__file__), run_name="__main__")
