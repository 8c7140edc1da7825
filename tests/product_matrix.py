"""All products of columns, computed one by one with numpy, and rows prepared for the family."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from fcl import open_data
from fcl.data.prepared import PreparedRows
from fcl.features import Products, bind_features
from fcl.features.generator import GeneratedFamily


def products_of(m: int, degree: int, repeats: bool) -> list[tuple[int, ...]]:
    """The columns of every product in the order of ids: by degree, then by the largest column."""
    choose = itertools.combinations_with_replacement if repeats else itertools.combinations
    return [
        product
        for k in range(1, degree + 1)
        for product in sorted(choose(range(m), k), key=lambda columns: columns[::-1])
    ]


def product_matrix(X: np.ndarray, degree: int, repeats: bool) -> np.ndarray:
    """The columns of all products, float64 (n, p)."""
    X = np.asarray(X, np.float64)
    every = products_of(X.shape[1], degree, repeats)
    return np.column_stack([X[:, list(columns)].prod(axis=1) for columns in every])


def divided(X: np.ndarray, spec: Products, sparse: bool = False) -> np.ndarray:
    """The columns that are multiplied: divided by what the family measures, if it does."""
    family = bind_features(spec, open_data(stored(X, sparse), y=None).rows)
    assert isinstance(family, GeneratedFamily)
    divisors = family.generator.divisors
    return X if divisors is None else X / divisors


def make_rows(seed: int, n: int, m: int, kind: str) -> np.ndarray:
    """Rows, float32 (n, m), with columns of every density, so that some products are always 0."""
    random = np.random.default_rng(seed)
    there = random.random((n, m)) < random.choice([0.02, 0.2, 0.5, 1.0], m)
    if kind == "binary":
        return there.astype(np.float32)
    if kind == "counts":
        return (there * random.integers(1, 6, (n, m))).astype(np.float32)
    values = random.random((n, m)) if kind == "small" else random.normal(size=(n, m))
    if kind == "large signed":
        values = values * 10.0 ** random.uniform(-2, 1, m)
    return (there * values).astype(np.float32)


def stored(X: np.ndarray, sparse: bool) -> Any:
    """The rows as a dense array, or as a CSR matrix."""
    if not sparse:
        return X
    from scipy.sparse import csr_matrix

    return csr_matrix(X)


def bound_rows(
    X: np.ndarray,
    spec: Products,
    sparse: bool = False,
    block_rows: int = 256,
    scratch: Path | None = None,
) -> tuple[GeneratedFamily, PreparedRows]:
    """The family over the rows, and their prepared form."""
    rows = open_data(stored(X, sparse), y=None).rows
    family = bind_features(spec, rows)
    assert isinstance(family, GeneratedFamily)
    prepared = PreparedRows(len(X), block_rows, family.record_shape(block_rows), scratch)
    for number, (_, _, raw) in enumerate(family.read_rows(rows, block_rows)):
        sides = family.prepare(raw, prepared.writable(number), prepared.block_rows)
        prepared.commit(number, sides)
    return family, prepared
