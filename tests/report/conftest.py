"""Small models made by hand, their rows, and their explicit columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from bag_matrix import patterns

from fcl.data import DataSet, open_data
from fcl.features import BagFamily, KmerFamily, bind_features, parse_features
from fcl.model import Certificate, Model

LENGTH = 12


@dataclass(frozen=True)
class Case:
    """A model on data, with the columns of its features from their definition: float64 (n, k)."""

    model: Model
    data: DataSet
    columns: np.ndarray

    @property
    def margins(self) -> np.ndarray:
        return np.asarray(self.columns @ self.model.weights + self.model.intercept)


def make_model(family: Any, ids: list[int], weights: list[float], **changes: Any) -> Model:
    history = [
        {"event": "PassDone", "number": n, "seconds": 0.5 * n, "objective": 20.0 - n,
         "bound": None if n == 0 else 12.0, "gap": 10.0 ** -n, "active": n, "cached": 2 * n,
         "memory_bytes": 1 << 28, "evicted": 0, "validation": {"auprc": 0.5 + 0.1 * n, "n_rows": 9}}
        for n in range(4)
    ]  # fmt: skip
    values: dict[str, Any] = {
        "family": family,
        "ids": ids,
        "weights": weights,
        "support": [10] * len(ids),
        "intercept": -0.25,
        "loss": "logistic",
        "C": 0.1,
        "alpha": 0.1,
        "labels": ("no", "yes"),
        "n_rows": 100,
        "sum_weights": 100.0,
        "fingerprint": "ab" * 32,
        "certificate": Certificate(12.5, 12.4, 0.008, 1.01, family.n_features, passes=4),
        "options": {"features": "the family", "tol": 1e-3, "memory": 1 << 30, "seed": 0},
        "history": history,
    }
    return Model(**(values | changes))


def kmer_case() -> Case:
    """Patterns of letters at positions; rows with unknown letters, weights and an odd number."""
    rng = np.random.default_rng(1)
    windows = rng.integers(0, 5, (333, LENGTH), dtype=np.uint8)
    windows[:, 4] = rng.choice([2, 3], 333)
    family = KmerFamily(3, LENGTH, 5)
    chosen = [("G", 4), ("T", 4), ("AC", 2), ("A.C", 6), ("CAG", 0), ("G", 4), ("TTT", 9)][:5]
    ids = sorted(family.feature_id(*pattern) for pattern in chosen)
    columns = np.stack([_matches(family.motif(i), windows) for i in ids], axis=1)
    weights = np.array([1.5, -2.0, 0.7, 0.31, -0.9])
    y = np.where(columns @ weights + rng.normal(size=333) > 0.2, "yes", "no")
    data = open_data(windows, y=y, weights=rng.uniform(0.0, 2.0, 333).round(1))
    return Case(make_model(family, ids, weights.tolist()), data, columns)


def _matches(motif: Any, windows: np.ndarray) -> np.ndarray:
    found = np.ones(len(windows), bool)
    for i, letter in enumerate(motif.pattern):
        if letter != ".":
            found &= windows[:, motif.start + i] == "ACGT".index(letter)
    return found.astype(float)


def bag_case() -> Case:
    """Counts of patterns with wildcards on both strands."""
    import re

    rng = np.random.default_rng(2)
    windows = rng.integers(0, 5, (90, LENGTH), dtype=np.uint8)
    family = BagFamily(3, LENGTH, "count", "both", True)
    ids = [0, 5, 9, 21, 33]
    texts = ["".join("ACGTN"[code] for code in row) for row in windows]
    found = patterns(3, True, True)
    columns = np.array(
        [
            [sum(len(re.findall(f"(?={p})", text)) for p in found[i]) for i in ids]
            for text in texts
        ],
        float,
    )  # fmt: skip
    y = np.where(rng.random(90) < 0.5, "yes", "no")
    model = make_model(family, ids, [0.5, -0.2, 0.3, -0.4, 0.1])
    return Case(model, open_data(windows, y=y), columns)


def table_case(text: str = "columns", **changes: Any) -> Case:
    """Columns of a table, of which 1 and 3 are equal, or products of them."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 6))
    x[:, 3] = x[:, 1]
    x[::3, 4] = 0.0
    family = bind_features(parse_features(text), open_data(x, y=None).rows)
    ids = [0, 1, 3, 4] if text == "columns" else [0, 4, 9, 13]
    weights = np.array([1.0, -0.5, -0.25, 2.0])
    columns = x[:, ids] if text == "columns" else x
    if text != "columns":
        names = [family.describe(i) for i in ids]
        parts = [[int(part.partition("^")[0][1:]) for part in name.split(" * ")] for name in names]
        columns = np.stack(
            [
                np.prod([x[:, c] for c in part], axis=0) ** (2 if "^" in name else 1)
                for part, name in zip(parts, names, strict=True)
            ],
            axis=1,
        )
    y: Any = np.where(columns @ weights + rng.normal(size=150) > 0.0, "yes", "no")
    if changes.get("labels", 0) is None:
        y = columns @ weights + rng.normal(size=150)
    return Case(make_model(family, ids, weights.tolist(), **changes), open_data(x, y=y), columns)


@pytest.fixture(scope="session")
def kmers() -> Case:
    return kmer_case()


@pytest.fixture(scope="session")
def bag() -> Case:
    return bag_case()
