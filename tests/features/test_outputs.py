"""Prices of several outputs against those of each output alone, and against the explicit matrix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generators
import numpy as np
import pytest
from explicit import prepare
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from fcl import open_data
from fcl.features import bind_features, parse_features
from fcl.features.candidates import Collector
from fcl.features.generator import pricing
from fcl.features.outputs import price_each, run_several, sums_of_several
from fcl.features.prices import (
    BlockSums,
    PriceQuery,
    Prices,
    Progress,
    RowVector,
    Scan,
    merge_prices,
    only_watched,
    run,
    within,
)
from fcl.features.standardized import attach_scales, standardized
from fcl.features.support import SupportFamily

N, M, K = 300, 70, 5

# -- families that price several outputs together ---------------------------------------------------


def _table(dtype: Any = np.float64) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(N, M)) * (rng.random((N, M)) < 0.4)).astype(dtype)


class _AboveOfSeveral(generators.Above):
    """With products of several outputs of its own."""

    def gradients_of_several(self, first: int, last: int, block: Any, residuals: Any) -> np.ndarray:
        return np.stack([self.gradients(first, last, block, own) for own in residuals])


FAMILIES: dict[str, Any] = {
    "dense": "columns",
    "dense float32": "columns",
    "sparse": "columns",
    "fourier": "fourier:n=700",
    "fourier int8": "fourier:n=300,dtype=int8",
    "fourier laplace": "fourier:n=300,kernel=laplace",
    "fourier sampled": "fourier:per_pass=128",
    "columns only": generators.Tanh(),
    "gradients": generators.Above(),
    "gradients of several": _AboveOfSeveral(),
    "several families": "fourier:n=300 + columns * 0.5 + products:degree=2",
}


def _bound(kind: str) -> tuple[Any, Any]:
    """A family of the kind, and its prepared rows."""
    x: Any = _table(np.float32 if "float32" in kind else np.float64)
    data = open_data(csr_array(x) if kind == "sparse" else x, y=np.zeros(N))
    spec = FAMILIES[kind]
    family = bind_features(parse_features(spec) if isinstance(spec, str) else spec, data.rows)
    raw = next(iter(family.read_rows(data.rows, N)))[2]
    return family, prepare(family, raw, 128)


def _rows(family: Any, n: int = K) -> list[RowVector]:
    values = np.random.default_rng(1).normal(size=(n, N)) * np.arange(1.0, n + 1.0)[:, None]
    total = float(np.abs(values).sum(axis=1).max())
    step = RowVector.on_grid(values[0], total, family.integer_bound).step
    return [RowVector(own, step) for own in values]


def _same_bits(a: Prices, b: Prices) -> bool:
    arrays = ("ids", "gradients", "watched", "excess")
    numbers = ("largest", "n_priced", "reach", "n_visited")
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays) and all(
        getattr(a, name) == getattr(b, name) for name in numbers
    )


def _check(family: Any, pricer: Any, n: int = K, number: int = 3) -> None:
    """Outputs together have the prices of each output alone, and the shares of the work increase."""
    rows, blocks = _rows(family, n), range(3)
    drawn = getattr(family, "features_in_pass", lambda _: range(family.n_features))(number)
    watched = np.array([drawn[5], drawn[0], drawn[len(drawn) // 2]])
    if drawn.start:  # features that an earlier pass has drawn
        watched = np.append(watched, drawn.start - 7)
    query = PriceQuery(range(pricer.n_parts), watched, 3.0, 5.0, number=number)
    queries = [replace(query, imbalance=0.1 * k) for k in range(n)]
    shares: list[float] = []
    found = price_each(pricer, queries, rows, blocks, shares.append)
    assert shares == sorted(shares) and all(0.0 <= share <= 1.0 for share in shares)
    for k, (prices, asked, own) in enumerate(zip(found, queries, rows, strict=True)):
        alone = run(pricer, asked, own, blocks)
        its = np.isin(prices.ids, alone.ids)  # the others are candidates of other outputs
        of_own = replace(prices, ids=prices.ids[its], gradients=prices.gradients[its])
        assert _same_bits(of_own, alone)
        sums = sums_of_several(pricer, prices.ids, rows, blocks, 1)[:, k]
        np.testing.assert_allclose(prices.gradients, sums, rtol=1e-9, atol=1e-9)
    assert sum(len(prices.ids) for prices in found) > 0
    for power in (0, 1, 2):
        some = replace(query, find=False, power=power)
        sums = sums_of_several(pricer, watched, rows, blocks, power)
        each = [run(pricer, some, own, blocks).watched for own in rows]
        if number == 0 or not drawn.start:
            np.testing.assert_array_equal(sums, np.transpose(each))


@pytest.mark.parametrize("kind", FAMILIES)
def test_outputs_together_have_the_prices_of_each_alone(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "LEAST_ROOM", 1)  # several groups of parts, and of outputs
    monkeypatch.setattr(pricing, "PART_FEATURES", 256)
    family, prepared = _bound(kind)
    pricer = family.pricer(prepared, 20)
    for n in (1, 2, 3, K):
        _check(family, pricer, n)


@pytest.mark.parametrize("kind", ["dense", "sparse", "fourier", "columns only"])
@pytest.mark.parametrize("keep", [3, 1000])
def test_a_candidate_of_one_output_is_reported_by_all(
    kind: str, keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "RUN_FEATURES", 100)  # several runs of parts
    family, prepared = _bound(kind)
    pricer = family.pricer(prepared, keep)
    query = PriceQuery(range(pricer.n_parts), np.array([4]), 3.0)
    rows = _rows(family)
    found = price_each(pricer, [query] * K, rows, range(3))
    alone = [run(pricer, query, own, range(3)) for own in rows]
    listed = np.unique(np.concatenate([prices.ids for prices in alone]))
    assert len(listed) > max(len(prices.ids) for prices in alone)
    for prices, own in zip(found, alone, strict=True):
        np.testing.assert_array_equal(prices.ids, listed)
        assert prices.largest == own.largest and len(prices.excess) == pricer.n_parts


def test_standardised_and_chosen_features() -> None:
    family, prepared = _bound("several families")
    chosen = SupportFamily(family, np.arange(0, 400, 3))
    _check(chosen, chosen.pricer(prepared, 10))
    data = open_data(_table(), y=np.zeros(N))
    scaled = standardized(bind_features(parse_features("columns + fourier:n=100"), data.rows))
    attach_scales(scaled, np.empty((2, scaled.n_features)))
    rows = prepare(scaled, _table(), 128)
    pricer: Any = scaled.pricer(rows, 10)
    pricer.measure(np.ones(N), range(pricer.n_parts))
    _check(scaled, pricer)


def test_a_column_is_made_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound("columns only")
    made: list[int] = []
    right = generators.Tanh.columns

    def counted(self: Any, ids: Any, block: Any) -> np.ndarray:
        made.append(len(ids))
        return right(self, ids, block)

    monkeypatch.setattr(generators.Tanh, "columns", counted)
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts), threshold=3.0)
    price_each(pricer, [query] * K, _rows(family), range(3))
    assert sum(made) == 3 * M


def test_products_of_several_outputs_have_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound("gradients of several")
    monkeypatch.setattr(_AboveOfSeveral, "gradients_of_several", lambda *a: np.ones(3))
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts))
    with pytest.raises(Exception, match=r"several gradients\(.*expected float64 \(5, "):
        price_each(pricer, [query] * K, _rows(family), range(3))


# -- bounds on sizes, by a pricer that knows one output only ----------------------------------------

SIZE, N_PARTS, REACH = 8, 3, 1.5


class _MatrixPricer:
    """Prices the columns of a matrix (n, p) in blocks of SIZE rows and in parts.

    share : with a threshold of 0, omit candidates below this share of the largest |g_j| / f_j.
    """

    n_parts = N_PARTS

    def __init__(self, x: np.ndarray, factors: np.ndarray, keep: int, share: float) -> None:
        self.x, self.factors, self.keep, self.share = x, factors, keep, share

    def accumulate(
        self, request: int, rows: RowVector, blocks: range, report: Progress
    ) -> BlockSums:
        out = BlockSums()
        for number in blocks:
            some = slice(number * SIZE, min((number + 1) * SIZE, len(self.x)))
            out.add(number, rows[some] @ self.x[some] ** request)
        return out

    def merge(self, sums: BlockSums, more: BlockSums) -> BlockSums:
        return sums.merge(more)

    def scan(self, query: PriceQuery, step: float) -> Scan:
        g = (yield query.power, 0.0, 1.0).total
        cuts = np.linspace(0, len(g), N_PARTS + 1).astype(int)
        if not query.find:
            own = within(query.watched, cuts[query.parts.start], cuts[query.parts.stop])
            return only_watched(np.where(own, g[query.watched], 0.0))
        omitted = 0.0
        if query.threshold == 0.0:
            omitted = self.share * float((np.abs(g) / self.factors).max())
            query = replace(query, threshold=omitted)
        prices = []
        for part in query.parts:
            some = slice(cuts[part], cuts[part + 1])
            found = Collector(query, self.keep)
            prices.append(found.price_range(some.start, g[some], self.factors[some], REACH))
        return replace(merge_prices(prices), omitted=omitted)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_outputs=st.sampled_from([2, 5, 16]),
    group=st.booleans(),
    keep=st.sampled_from([1, 3, 20, 1000]),
    share=st.sampled_from([0.0, 0.5]),
    quantile=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_bounds_hold_with_cut_lists_and_balancing(
    seed: int, n_outputs: int, group: bool, keep: int, share: float, quantile: float
) -> None:
    """Whatever a pricer leaves out of its list, ``largest`` and ``excess`` bound the whole family."""
    rng = np.random.default_rng(seed)
    x, f = rng.uniform(-REACH, REACH, (21, 40)), rng.uniform(0.5, 2.0, 40)
    r = rng.normal(size=(n_outputs, 21)) * rng.uniform(0.3, 2.0, (n_outputs, 1))
    imbalance, watched = rng.uniform(0.0, 0.1, n_outputs), rng.permutation(40)[:6]
    g = x.T @ r.T
    reach = (REACH / f).max()  # what ``largest`` and ``excess`` of a group rely on
    each = (np.abs(g) + imbalance * REACH) / f[:, None]
    plain = np.linalg.norm(g, axis=1) if group else np.abs(g).max(axis=1)
    moved = np.linalg.norm(imbalance) * REACH / f
    sizes = plain / f + moved if group else each.max(axis=1)
    threshold = 0.0 if quantile == 0.0 else float(np.quantile(plain / f, quantile))
    level = float(np.quantile(sizes, 0.6))
    query = PriceQuery(range(N_PARTS), watched, threshold, level, imbalance)  # type: ignore[arg-type]
    rows = [RowVector(own) for own in r]
    pricer: Any = _MatrixPricer(x, f, keep, share)
    found = run_several(pricer, query, rows, range(3), keep, f.__getitem__, group)
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.watched, g[watched], rtol=1e-12, atol=1e-12)
    assert not set(found.ids) & set(watched) and (np.diff(found.ids) > 0).all()
    assert len(found.ids) <= keep * N_PARTS
    assert found.largest >= sizes.max() * (1.0 - 1e-12)
    assert (found.by_output >= each.max(axis=0) * (1.0 - 1e-12)).all()
    over = (sizes if group else each.T) - level
    exact = float((f * np.maximum(over, 0.0) ** 2).sum())
    assert exact * (1.0 - 1e-12) <= found.excess.sum() < np.inf
    if not group:
        assert found.excess.sum() == pytest.approx(exact, rel=1e-9)
    elif keep == 1000 and (threshold > 0.0 or share == 0.0):
        listed = set(np.flatnonzero(plain / f > threshold)) - set(watched)
        assert listed <= set(found.ids)
        most = float((plain / f).max()) + np.linalg.norm(imbalance) * reach
        assert found.largest <= max(most, threshold + np.linalg.norm(imbalance) * reach) * (
            1 + 1e-9
        )
