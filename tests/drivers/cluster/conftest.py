"""A Dask cluster of this machine for the tests of this folder, and rows that its workers can open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dask_cluster import client, cluster, cluster_of_threads  # noqa: F401
from rows import acceptors, pyrimidines


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """Workers are replaced while a test runs; the fixture ``cluster`` looks at the end."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 24 letters with labels, counts, weights (some of them 0), and a table of numbers."""
    place = tmp_path_factory.mktemp("cluster") / "rows"
    place.mkdir()
    codes, y = acceptors(24, 2100)
    codes = codes.copy()
    codes[::9, 5] = 4  # unknown letters
    random = np.random.default_rng(0)
    weights = random.choice([0.0, 0.5, 1.0, 2.25], 2100)
    numbers = random.normal(size=(2100, 6)) + 0.5 * y[:, None] * np.arange(6)
    arrays = {
        "X": codes,
        "y": y,
        "counts": pyrimidines(2100),
        "weights": weights,
        "offset": random.normal(size=2100),
        "numbers": numbers,
    }
    for name, values in arrays.items():
        np.save(place / f"{name}.npy", values)
    return place
