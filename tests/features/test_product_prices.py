"""Columns, margins and prices of products against the matrix of all of them."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from product_matrix import bound_rows, make_rows, stored

from fcl import open_data
from fcl.errors import InputError
from fcl.features import Products, bind_features
from tests.families import SINGLE, bound
from tests.pricing import Pricing
from tests.windows import BLOCK_ROWS, CHECKED, INTERPRETED, make_residuals

A9A = Path(__file__).parents[2].parent / "shared" / "data" / "a9a.gz"
N_ROWS = 2 * BLOCK_ROWS + 37


@pytest.mark.parametrize("name", [name for name in SINGLE if name.startswith("products")])
@pytest.mark.parametrize("residuals", ["balanced", "one sign", "sparse"])
def test_the_first_pass_finds_the_largest_of_all(name: str, residuals: str) -> None:
    """A threshold of 0: C_min is exact, and candidates from half of the largest column are there."""
    with bound(SINGLE[name], 4, 300) as b:
        r = make_residuals(4, 300, residuals)
        size = np.abs(r @ b.phi)
        slack = 1e-12 * float((np.abs(r) @ np.abs(b.phi)).max())
        found = Pricing(b.family, b.prepared, 10_000).price(r, np.empty(0, np.int64), 0.0)
        assert found.reach == pytest.approx(np.abs(b.phi).max())
        assert found.largest == pytest.approx(size.max(), abs=2 * slack)
        assert size[found.ids].max() >= size.max() - slack
        half = 0.5 * size[: b.source.shape[1]].max()
        assert np.isin(np.flatnonzero(size > half + 2 * slack), found.ids).all()


@pytest.mark.parametrize("sparse", [False, True])
def test_a_value_that_is_not_binary_is_named(sparse: bool) -> None:
    X = make_rows(1, N_ROWS, 5, "binary")
    X[BLOCK_ROWS + 3, 2] = 2.0
    with pytest.raises(InputError, match=rf"row {BLOCK_ROWS + 3}, column 2 is 2\.0.*binary"):
        bound_rows(X, Products(2, binary=True), sparse, BLOCK_ROWS)
    # rows that are left out are neither counted nor looked at
    rows = open_data(stored(X, sparse), y=None).rows
    good = np.minimum(X, 1.0)
    family = bind_features(Products(2, binary=True), open_data(stored(good, sparse), y=None).rows)
    keep = np.arange(len(X)) >= 10
    with pytest.raises(InputError, match=f"row {BLOCK_ROWS + 3}, column 2"):
        list(family.read_rows(rows, BLOCK_ROWS, keep))
    keep[BLOCK_ROWS + 3] = False
    assert len(list(family.read_rows(rows, BLOCK_ROWS, keep))) > 1


def test_rare_columns_are_not_searched() -> None:
    """Products that cannot reach the threshold are never made, but count as priced."""
    random = np.random.default_rng(0)
    m = 12 if INTERPRETED else 60
    X = (random.random((N_ROWS, m)) < 0.02).astype(np.float32)
    X[:, :4] = random.random((N_ROWS, 4)) < 0.5
    family, prepared = bound_rows(X, Products(4, binary=True), True, BLOCK_ROWS)
    pricer = Pricing(family, prepared, 64)
    r = make_residuals(0, N_ROWS, "balanced")
    found = pricer.price(r, np.empty(0, np.int64), float(np.abs(r).sum() / 20.0))
    assert found.n_priced == family.n_features
    assert m <= found.n_visited < 0.2 * family.n_features


@pytest.mark.skipif(INTERPRETED or CHECKED, reason="thousands of rows")
def test_census_to_degree_three() -> None:
    """All 310,247 products of every fifth row of a9a, each against its sum by numpy."""
    if not A9A.exists():
        pytest.skip(f"{A9A.name} is not here: it comes with the shared data, not with a clone")
    rows, columns, y = [], [], []
    with gzip.open(A9A, "rt") as lines:
        for i, line in enumerate(lines):
            label, *entries = line.split()
            y.append(float(label))
            rows += [i] * len(entries)
            columns += [int(entry.partition(":")[0]) - 1 for entry in entries]
    X = np.zeros((len(y), 123), np.bool_)
    X[rows, columns] = True
    X, y = X[::5].copy(), y[::5]
    r = np.where(np.array(y) > 0, -1.0, 1.0 / 3.0)
    r -= r.mean()
    family, prepared = bound_rows(X, Products(3), False, 65536)
    assert family.n_features == 310_247
    g = np.zeros(family.n_features)
    dense = X.astype(np.float64)
    g[:123] = r @ dense
    at, third = 123, 123 + 7_503
    # pairs a < b in the order of b; triples go by their largest column, then by the pair below it
    pairs = [(a, b) for b in range(123) for a in range(b)]
    table = np.empty((len(pairs), 123))
    for start in range(0, len(pairs), 500):
        some = pairs[start : start + 500]
        both = np.stack([dense[:, a] * dense[:, b] for a, b in some])
        g[at + start : at + start + len(some)] = both @ r
        table[start : start + len(some)] = (both * r) @ dense
    for c in range(2, 123):
        n = c * (c - 1) // 2
        g[third : third + n] = table[:n, c]
        third += n
    assert third == len(g)
    pricer = Pricing(family, prepared, 64)
    size = np.abs(g)
    first = pricer.price(r, np.empty(0, np.int64), 0.0)
    assert first.largest == pytest.approx(size.max(), rel=1e-9)
    assert first.n_visited < 0.1 * len(g)
    threshold = float(np.sort(size)[-2000])
    found = pricer.price(r, np.empty(0, np.int64), threshold)
    assert found.largest == pytest.approx(size.max(), rel=1e-9)
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=1e-9, atol=1e-9)
    # of no part all are cut off that are above the weakest that it kept
    assert set(np.argsort(-size)[:64]) <= set(found.ids.tolist())
    assert found.n_visited < 0.5 * len(g)
