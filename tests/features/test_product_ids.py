"""Ids of products: their order, their number, and the way back."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from product_matrix import bound_rows, products_of

from fcl import open_data
from fcl.errors import GeneratorError, InputError
from fcl.features import Products, bind_features, family_from_config
from fcl.features.generator.binding import probed_ids
from fcl.features.products.numbering import Numbering, count_products
from tests.windows import examples

#: Many columns; the last ones have the largest ids that are allowed.
LARGE = ((83_021, 3), (3_000_000_000, 1), (10_000_000, 2), (20_000, 4), (123, 9), (2, 64), (1, 64))


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize(
    ("m", "degree"), [(1, 1), (7, 1), (7, 2), (6, 3), (5, 5), (9, 4), (1, 6), (2, 7)]
)
def test_ids_number_all_products_in_order(m: int, degree: int, repeats: bool) -> None:
    if degree > m and not repeats:
        degree = m
    numbering = Numbering(m, degree, repeats)
    expected = products_of(m, degree, repeats)
    assert numbering.n_features == len(expected) == count_products(m, degree, repeats)
    ids = np.arange(len(expected))
    tuples = numbering.tuples(ids)
    assert [tuple(row[row >= 0][::-1].tolist()) for row in tuples] == expected
    assert (numbering.ids(tuples) == ids).all()
    below = [sum(columns[-1] < c for columns in expected) for c in range(m + 1)]
    assert numbering.below().tolist() == below


@examples(60)
@given(case=st.sampled_from(LARGE), repeats=st.booleans(), seed=st.integers(0, 1000))
def test_round_trip_up_to_the_largest_ids(case: tuple[int, int], repeats: bool, seed: int) -> None:
    m, degree = case
    if m > 2**31:  # tables and the list of all columns are not what is looked at here
        m = 2_000_000
    if not repeats:
        degree = min(degree, m)
    n = count_products(m, degree, repeats)
    assert n < 2**62
    numbering = Numbering(m, degree, repeats)
    assert numbering.n_features == n
    ids = np.random.default_rng(seed).integers(n, size=200)
    ids = np.unique(
        np.concatenate([ids, [0, n - 1], numbering.first[:-1], numbering.first[1:] - 1])
    )
    tuples = numbering.tuples(ids)
    assert (numbering.ids(tuples) == ids).all()
    assert tuples.max() == m - 1 and (tuples[:, 0] >= 0).all()
    steps = np.diff(tuples, axis=1)[tuples[:, 1:] >= 0]
    assert (steps <= 0).all() if repeats else (steps < 0).all()
    # one of them in exact arithmetic
    columns = [int(c) for c in tuples[len(ids) // 2] if c >= 0]
    k = len(columns)
    rank = sum(math.comb(c + (k - j - 1 if repeats else 0), k - j) for j, c in enumerate(columns))
    assert ids[len(ids) // 2] == count_products(m, k - 1, repeats) * (k > 1) + rank


def test_the_number_of_products_of_a9a() -> None:
    counts = [count_products(123, k, False) for k in (1, 2, 3)]
    assert np.diff([0, *counts]).tolist() == [123, 7_503, 302_621]
    assert counts[-1] == 310_247


def test_names() -> None:
    family, _ = bound_rows(np.ones((5, 20), np.float32), Products(3))
    names = {family.describe(j) for j in range(family.n_features)}
    assert len(names) == family.n_features == count_products(20, 3, True)
    assert {"x3", "x3 * x17", "x3^2", "x3^2 * x5", "x3 * x5^2", "x7^3", "x0 * x1 * x19"} <= names
    given = [f"c {letter}" for letter in "abcdefghijklmnopqrst"]
    theirs = {family.describe(j, given) for j in range(family.n_features)}
    assert len(theirs) == len(names)
    assert {"c d", "c d^2 * c f", "c a * c b * c t"} <= theirs and "x3" not in theirs


def test_booleans_are_binary() -> None:
    X = np.eye(6) > 0
    for rows, binary in ((X, True), (X.astype(np.uint8), False)):
        family = bind_features(Products(2), open_data(rows, y=None).rows)
        assert family.binary is binary
        assert family.n_features == (21 if binary else 27)
        assert family_from_config(family.to_config()).n_features == family.n_features


def test_a_second_fit_numbers_the_products_anew() -> None:
    products = Products(2)
    for m, degree, binary in ((4, 2, False), (9, 2, False), (9, 3, False), (9, 3, True)):
        products.degree, products.binary = degree, binary
        products.fit(np.zeros((5, m)))
        assert products.n_features == products.numbering.n_features
        assert products.cuts()[-1] == m
        last = products.numbering.tuples(np.array([products.n_features - 1]))[0]
        assert products.describe(products.n_features - 1).startswith(f"x{last[-1]}")
        assert last[0] == m - 1


@pytest.mark.parametrize("sparse", [False, True])
def test_more_factors_than_binary_columns(sparse: bool) -> None:
    """The message is for users, and does not blame a class. Columns that are not binary have powers."""
    X = scipy.sparse.csr_array(np.eye(20)) if sparse else np.eye(20)
    rows = open_data(X, y=None).rows
    says = (
        r"^products: degree is 21, larger than the number of binary columns, 20; lower degree to 20 or "
        r"less$"
    )
    with pytest.raises(InputError, match=says) as found:
        bind_features(Products(21, binary=True), rows)
    assert not isinstance(found.value, GeneratorError)
    for degree, binary in ((20, True), (21, False)):
        family = bind_features(Products(degree, binary=binary), rows)
        assert family.n_features == count_products(20, degree, not binary)


@pytest.mark.parametrize("m", [720, 745])  # 1.9e18 and 2.5e18, beyond 2^60 and 2^61
def test_features_are_looked_at_beyond_what_float64_counts(m: int) -> None:
    rows = open_data(np.random.default_rng(0).normal(size=(30, m)), y=None).rows
    family = bind_features(Products(8), rows)
    assert family.n_features == count_products(m, 8, True) > 2 ** (60 if m == 720 else 61)
    assert len(family.to_config()["probe"]) == 16


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 35, 2**53 + 1, 2**61 - 1, 2**62 - 1])
def test_features_that_are_looked_at(n: int) -> None:
    ids = probed_ids(n).tolist()
    assert ids[0] == 0 and ids[-1] == n - 1 and len(ids) == min(n, 16)
    assert ids == sorted({(n - 1) * k // 15 for k in range(16)})
