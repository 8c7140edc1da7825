"""The origins of features."""

from __future__ import annotations

from typing import Any

import numpy as np
from waves import Problem, Waves

from fcl.stagewise.settings import Settings
from fcl.stagewise.train import StagewiseRunOptions, train_stagewise


class Stored(Waves):
    """Returns one array again and again, which nobody may change."""

    def columns(self, ids: Any, block: Any) -> np.ndarray:
        key = (len(ids), int(ids[0]), np.asarray(block).tobytes())
        held = self.__dict__.setdefault("_held", {})
        if key not in held:
            held[key] = super().columns(ids, block).astype(np.float32)
            held["sum", *key] = held[key].sum(dtype=np.float64)
        assert held[key].sum(dtype=np.float64) == held["sum", *key]
        return held[key]


def test_features_far_from_0_in_float32() -> None:
    """Means of 50 times the deviation: their origin leaves the digits of float32 to the deviation."""
    problem = Problem(5000, seed=2)
    settings = Settings(block=8, visits=2, alpha=5.0, valid_fraction=0.0)
    near, far = (
        train_stagewise(
            problem.data(), features, settings, running=StagewiseRunOptions(cores=2)
        ).model
        for features in (Waves(16), Stored(16, 40.0))
    )
    found, expected = far.margins(problem.x), near.margins(problem.x)
    assert np.abs(found - expected).max() < 2e-4
