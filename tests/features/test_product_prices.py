"""Columns, margins and prices of products against the matrix of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from product_matrix import bound_rows, make_rows, stored

from fcl import open_data
from fcl.errors import InputError
from fcl.features import Products, bind_features
from tests.families import SINGLE, bound
from tests.pricing import Pricing
from tests.windows import BLOCK_ROWS, INTERPRETED, make_residuals

N_ROWS = 2 * BLOCK_ROWS + 37


@pytest.mark.parametrize("name", [name for name in SINGLE if name.startswith("products")])
@pytest.mark.parametrize(
    ("residuals", "scale"), [("balanced", 1.0), ("one sign", 1e-4), ("sparse", 1e4)]
)
def test_the_first_pass_finds_the_largest_of_all(name: str, residuals: str, scale: float) -> None:
    """A threshold of 0: C_min is exact, and candidates from half of the largest column are there."""
    with bound(SINGLE[name], 4, 300) as b:
        r = make_residuals(4, 300, residuals) * scale
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
