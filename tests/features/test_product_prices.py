"""Columns, margins and prices of products against the matrix of all of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from product_matrix import KINDS, bound_rows, divided, make_rows, product_matrix, stored

from fcl import open_data
from fcl.errors import InputError
from fcl.features import Products, bind_features
from fcl.features.base import BitColumns
from fcl.features.prices import Prices, merge_prices
from fcl.features.products import pricing
from tests.pricing import Pricing
from tests.windows import BLOCK_ROWS, CHECKED, INTERPRETED, examples, make_residuals

A9A = Path(__file__).parents[2].parent / "shared" / "data" / "a9a.gz"
N_ROWS = 2 * BLOCK_ROWS + 37
#: Columns and degree: not many more than a hundred products where kernels are interpreted.
SHAPES = (
    ((4, 3), (6, 2), (9, 1)) if INTERPRETED else ((7, 3), (5, 4), (20, 2), (12, 3), (30, 1), (5, 5))
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, Products, bool, int]:
    m, degree = draw(st.sampled_from(SHAPES))
    kind = draw(st.sampled_from(KINDS))
    seed = draw(st.integers(0, 2**16))
    X = make_rows(seed, N_ROWS, m, kind)
    scale = False if kind == "binary" else draw(st.booleans())
    spec = Products(degree, binary=kind == "binary", scale=scale)
    return X, spec, draw(st.booleans()), seed


def slack_of(phi: np.ndarray, r: np.ndarray) -> np.ndarray:
    """How much rounding may change the sum of every feature."""
    return 1e-12 * (np.abs(r) @ np.abs(phi)) + 1e-300


def check_prices(
    found: Prices,
    g: np.ndarray,
    slack: np.ndarray,
    watch: np.ndarray,
    threshold: float,
    keep: int,
    part_of: np.ndarray,
) -> None:
    """Check the prices; part_of : the part of every feature."""
    size, most = np.abs(g), slack.max()
    assert found.largest >= size.max() - most
    if size.max() > threshold:
        assert found.largest <= size.max() + most
    else:
        assert found.largest <= threshold + most
    assert found.n_priced == len(g)
    np.testing.assert_array_less(np.abs(found.watched - g[watch]), slack[watch] + 1e-300)
    assert (np.diff(found.ids) > 0).all() and not np.isin(found.ids, watch).any()
    assert (np.abs(found.gradients - g[found.ids]) <= slack[found.ids]).all()
    assert (size[found.ids] >= threshold - most).all()
    size[watch] = 0.0
    reported = np.isin(np.arange(len(g)), found.ids)
    for part in np.unique(part_of):
        here = part_of == part
        ranked = np.sort(size[here])[::-1]
        weakest = ranked[keep - 1] if keep <= len(ranked) else 0.0
        must = here & (size > max(threshold, weakest) + 2.0 * most)
        assert reported[must].all()
        assert reported[here].sum() <= keep


@examples(120)
@given(
    case=cases(),
    residuals=st.sampled_from(["balanced", "one sign", "scales", "sparse", "ties"]),
    keep=st.sampled_from([1, 3, 20, 5000]),
    quantile=st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0, 1.5]),
    batch=st.sampled_from([1, 7, 512]),
    cells=st.sampled_from([1, 60, 1 << 16]),
    kept=st.sampled_from([0, 1 << 20]),
)
def test_prices_of_all_products(
    case: tuple[np.ndarray, Products, bool, int],
    residuals: str,
    keep: int,
    quantile: float,
    batch: int,
    cells: int,
    kept: int,
) -> None:
    X, spec, sparse, seed = case
    phi = product_matrix(divided(X, spec, sparse), spec.degree, not spec.binary)
    r = make_residuals(seed, len(X), residuals)
    g, slack = r @ phi, slack_of(phi, r)
    threshold = float(np.quantile(np.abs(g), min(quantile, 1.0)) * max(quantile, 1.0))
    if not threshold:
        return  # the other test's
    watch = np.random.default_rng(seed).integers(len(g), size=5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pricing, "BATCH", batch)
        patch.setattr(pricing, "CELLS", cells)
        patch.setattr(pricing, "KEPT_BYTES", kept)
        patch.setattr(pricing, "PIECE_ENTRIES", 700)
        family, prepared = bound_rows(X, spec, sparse, BLOCK_ROWS)
        pricer = Pricing(family, prepared, keep)
        found = pricer.price(r, watch, threshold)
        parts = [pricer.price(r, watch, threshold, range(k, k + 1)) for k in range(pricer.n_parts)]
    part_of = np.searchsorted(
        pricer.pricer._cuts, pricer.pricer._numbering.tuples(np.arange(len(g)))[:, 0], "right"
    )
    check_prices(found, g, slack, watch, threshold, keep, part_of)
    merged = merge_prices(parts)
    assert merged.ids.tolist() == found.ids.tolist()
    assert merged.gradients.tobytes() == found.gradients.tobytes()
    assert merged.watched.tobytes() == found.watched.tobytes()
    assert (merged.largest, merged.n_priced) == (found.largest, found.n_priced)


@examples(60)
@given(
    case=cases(),
    share=st.sampled_from([0.01, 0.3, 0.9, 1.1]),
    slack=st.sampled_from([0.0, 0.2, 1.0]),
    quantile=st.sampled_from([0.5, 0.99]),
)
def test_the_excess_is_that_of_all_products(
    case: tuple[np.ndarray, Products, bool, int], share: float, slack: float, quantile: float
) -> None:
    X, spec, sparse, seed = case
    phi = product_matrix(divided(X, spec, sparse), spec.degree, not spec.binary)
    r = make_residuals(seed, len(X), "balanced")
    size = np.abs(r @ phi)
    family, prepared = bound_rows(X, spec, sparse, BLOCK_ROWS)
    pricer = Pricing(family, prepared, 3)
    level = share * size.max()
    threshold = float(np.quantile(size, quantile))
    watch = np.arange(3)
    reach = float(np.abs(phi).max())
    found = pricer.price(r, watch, threshold, None, level, slack * level / reach)
    assert found.excess.shape == (pricer.n_parts,)
    true = np.sum(np.maximum(size + slack * level - level, 0.0) ** 2)
    assert found.excess.sum() >= true * (1.0 - 1e-9) - 1e-12
    if slack < 1.0:
        assert found.excess.sum() == pytest.approx(true, rel=1e-9, abs=1e-12 * level**2)
    plain = pricer.price(r, watch, threshold)
    assert plain.ids.tolist() == found.ids.tolist() and not plain.excess.any()


@examples(60)
@given(case=cases(), residuals=st.sampled_from(["balanced", "one sign", "sparse"]))
def test_the_first_pass_finds_the_largest_of_all(
    case: tuple[np.ndarray, Products, bool, int], residuals: str
) -> None:
    """A threshold of 0: C_min is exact, and candidates from half of the largest column are there."""
    X, spec, sparse, seed = case
    phi = product_matrix(divided(X, spec, sparse), spec.degree, not spec.binary)
    r = make_residuals(seed, len(X), residuals)
    g, slack = r @ phi, slack_of(phi, r)
    family, prepared = bound_rows(X, spec, sparse, BLOCK_ROWS)
    pricer = Pricing(family, prepared, 10_000)
    found = pricer.price(r, np.empty(0, np.int64), 0.0)
    assert found.reach == pytest.approx(np.abs(phi).max())
    size, most = np.abs(g), slack.max()
    assert found.largest == pytest.approx(size.max(), abs=2 * most)
    if size.max() > 0.0:
        assert size[found.ids].max() >= size.max() - most
    half = 0.5 * size[: X.shape[1]].max()
    assert np.isin(np.flatnonzero(size > half + 2 * most), found.ids).all()


@examples(40)
@given(case=cases())
def test_columns_margins_and_sums(case: tuple[np.ndarray, Products, bool, int]) -> None:
    X, spec, sparse, seed = case
    phi = product_matrix(divided(X, spec, sparse), spec.degree, not spec.binary)
    family, prepared = bound_rows(X, spec, sparse, BLOCK_ROWS)
    random = np.random.default_rng(seed)
    ids = np.unique(random.integers(family.n_features, size=40))
    blocks = family.column_maker(prepared, 1 << 20).make(ids)
    for block, (_, rows) in zip(blocks, prepared.blocks(), strict=True):
        if spec.binary:
            assert isinstance(block, BitColumns)
            bits = np.unpackbits(block.bits.view(np.uint8), axis=1, bitorder="little")
            assert (bits[:, : block.n_rows] == phi[rows][:, ids].T).all()
            assert not bits[:, block.n_rows :].any()
        else:
            np.testing.assert_allclose(block.values, phi[rows][:, ids].T, rtol=1e-6)
    made = family.generator.columns(ids, family.block(prepared, 0))
    np.testing.assert_allclose(made, phi[: len(made), ids], rtol=1e-14)

    weights = random.normal(size=len(ids))
    out = np.empty(len(X))
    family.write_margins(prepared, ids, weights, out)
    bound = np.abs(phi[:, ids]) @ np.abs(weights)
    assert (np.abs(out - phi[:, ids] @ weights) <= 1e-13 * bound).all()
    raw = next(iter(family.read_rows(open_data(stored(X, sparse), y=None).rows, len(X))))[2]
    np.testing.assert_allclose(family.scorer(ids, weights).margins(raw), out, rtol=0, atol=1e-13)

    pricer = Pricing(family, prepared, 3)
    some = random.permutation(np.concatenate([ids, ids[:3]]))
    values = random.random(len(X))
    np.testing.assert_allclose(pricer.sums(values, some), values @ phi[:, some] ** 2, rtol=1e-11)
    by_part = [pricer.sums(values, some, range(k, k + 1)) for k in range(pricer.n_parts)]
    np.testing.assert_array_equal(np.sum(by_part, axis=0), pricer.sums(values, some))
    counts = pricer.counts(some).astype(int)
    assert counts.tolist() == np.count_nonzero(phi[:, some], axis=0).tolist()


def test_rows_in_a_scratch_file(tmp_path: Path) -> None:
    X = make_rows(3, N_ROWS, 6, "counts")
    r = make_residuals(3, N_ROWS, "balanced")
    found = []
    for scratch in (None, tmp_path):
        family, prepared = bound_rows(X, Products(3), False, BLOCK_ROWS, scratch)
        found.append(Pricing(family, prepared, 5).price(r, np.arange(4), 1.0))
        prepared.close()
    assert found[0].ids.tolist() == found[1].ids.tolist()
    assert found[0].gradients.tobytes() == found[1].gradients.tobytes()
    assert found[0].largest == found[1].largest


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


def test_pairs_of_all_parts_are_summed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for the pairs of a pass, and the same bits as with a request for each part."""
    X = make_rows(3, N_ROWS, 12 if INTERPRETED else 40, "binary")
    monkeypatch.setattr("fcl.features.products.family.LEAST_PART", 8)
    family, prepared = bound_rows(X, Products(2, binary=True), False, BLOCK_ROWS)
    pricer, r = Pricing(family, prepared, 5), make_residuals(0, N_ROWS, "balanced")
    watch, requests = np.empty(0, np.int64), []
    make = pricing.ProductPricer._make_pairs

    def counting(self: Any, request: pricing.Pairs, number: int, rows: Any) -> Any:
        requests.append(request)
        return make(self, request, number, rows)

    monkeypatch.setattr(pricing.ProductPricer, "_make_pairs", counting)
    threshold = float(np.quantile(np.abs(r @ product_matrix(X, 2, False)), 0.5))
    whole = pricer.price(r, watch, threshold)
    assert len(set(requests)) == 1 and pricer.n_parts > 4
    parts = [pricer.price(r, watch, threshold, range(k, k + 1)) for k in range(pricer.n_parts)]
    assert len(set(requests)) > 4
    merged = merge_prices(parts)
    np.testing.assert_array_equal(merged.ids, whole.ids)
    np.testing.assert_array_equal(merged.gradients, whole.gradients)
    assert len(whole.ids) > 9 and merged.largest == whole.largest


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
