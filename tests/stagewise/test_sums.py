"""Products with few columns, and the origins of features, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from waves import Problem, Waves

from fcl.stagewise.settings import Settings
from fcl.stagewise.sums import _crossed, _times
from fcl.stagewise.train import Running, train_stagewise


@pytest.mark.parametrize("K", [1, 10, 15, 16, 30, 31])
@pytest.mark.parametrize("p", [1, 15, 100])
@pytest.mark.parametrize("order", ["columns", "rows", "spaced"])
def test_products_with_few_columns(K: int, p: int, order: str) -> None:
    rng = np.random.default_rng(K * p)
    features = rng.normal(size=(500, p)).astype(np.float32)
    if order == "columns":
        features = np.asfortranarray(features)
    if order == "spaced":  # as Fourier features are
        wide = np.zeros((p, 516), np.float32)
        wide[:, :500] = features.T
        features = wide[:, :500].T
    columns = rng.normal(size=(500, K)).astype(np.float32)
    weights = rng.normal(size=(p, K)).astype(np.float32)
    exact = features.astype(np.float64)
    found = _crossed(features, columns), _times(features, weights)
    expected = exact.T @ columns, exact @ weights
    for product, wanted in zip(found, expected, strict=True):
        assert product.dtype == np.float32 and product.shape == wanted.shape
        assert np.abs(product - wanted).max() < 1e-4


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
        train_stagewise(problem.data(), features, settings, running=Running(cores=2)).model
        for features in (Waves(16), Stored(16, 40.0))
    )
    found, expected = far.margins(problem.x), near.margins(problem.x)
    assert np.abs(found - expected).max() < 2e-4
