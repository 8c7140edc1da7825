"""A small model of real k-mers, made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fcl.features import KmerFamily
from fcl.model import Certificate, Model

LENGTH = 12


@pytest.fixture
def make_model() -> Callable[..., Model]:
    def make(**changes: Any) -> Model:
        family = KmerFamily(3, LENGTH, 0)
        values: dict[str, Any] = {
            "family": family,
            "ids": [3, 250, 999],
            "weights": [0.1, -2.5, 1 / 3],
            "support": [40, 2, 7],
            "intercept": -0.7,
            "loss": "logistic",
            "C": 0.1,
            "alpha": 0.1,
            "labels": (0, 1),
            "n_rows": 100,
            "sum_weights": 100.0,
            "fingerprint": "ab" * 32,
            "certificate": Certificate(12.5, 12.4, 0.008, 1.01, family.n_features, passes=3),
            "options": {"seed": 0, "memory": 1 << 30},
            "history": [{"number": 1, "gap": np.float64(0.1)}],
            "created": "2026-01-02T03:04:05+00:00",
            "fcl_version": "0.1",
        }
        return Model(**(values | changes))

    return make


@pytest.fixture
def model(make_model: Callable[..., Model]) -> Model:
    return make_model()


@pytest.fixture
def windows() -> np.ndarray:
    """Codes, 4 (unknown) among them."""
    return np.random.default_rng(5).integers(0, 5, (700, LENGTH), dtype=np.uint8)


@pytest.fixture
def brute_margins() -> Callable[[Model, np.ndarray], np.ndarray]:
    return _brute_margins


def _brute_margins(model: Model, windows: np.ndarray) -> np.ndarray:
    """Patterns matched letter by letter, from the definition of the ids."""
    margins = np.full(len(windows), model.intercept)
    for feature, weight in zip(model.ids.tolist(), model.weights.tolist(), strict=True):
        position, code = divmod(feature, 4 * 5**2)
        matches = np.ones(len(windows), dtype=bool)
        for i, digit in enumerate((code // 25, code // 5 % 5, code % 5)):
            if digit != 4:
                matches &= windows[:, position + i] == digit
        margins += weight * matches
    return margins
