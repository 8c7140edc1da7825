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

from fcl import open_data
from fcl.features import Columns, bind_features, parse_features
from fcl.features.candidates import Collector
from fcl.features.generator import pricing
from fcl.features.outputs import price_each, run_several
from fcl.features.prices import (
    BlockSums,
    PriceQuery,
    Progress,
    RowVector,
    Scan,
    merge_prices,
    only_watched,
    run,
    within,
)
from tests.families import AboveOfSeveral

N, M, K = 300, 70, 5

# -- families that price several outputs together ---------------------------------------------------


def _table() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, M)) * (rng.random((N, M)) < 0.4)


def _bound(features: Any) -> tuple[Any, Any]:
    """A family, and its prepared rows."""
    x = _table()
    family = bind_features(features, open_data(x, y=np.zeros(N)).rows)
    return family, prepare(family, x, 128)


def _rows() -> list[RowVector]:
    values = np.random.default_rng(1).normal(size=(K, N)) * np.arange(1.0, K + 1.0)[:, None]
    return [RowVector(own) for own in values]


@pytest.mark.parametrize("number", [0, 3])
def test_a_pass_prices_what_it_draws_and_what_is_watched(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "LEAST_ROOM", 1)  # several groups of parts, and of outputs
    monkeypatch.setattr(pricing, "PART_FEATURES", 50)
    family, prepared = _bound(parse_features("fourier:per_pass=128"))
    drawn = family.features_in_pass(number)
    assert drawn == range(128 * number, 128 * (number + 1))
    watched = np.array([drawn[5], drawn[0], max(0, drawn.start - 7)])
    every = np.union1d(drawn, watched)
    made: Any = family.generator  # type: ignore[attr-defined]
    phi = made.columns(every, made.prepare(_table())).astype(np.float64)
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts), watched, 3.0, 5.0, number=number)
    rows = _rows()
    for found, own in zip(price_each(pricer, [query] * K, rows, range(3)), rows, strict=True):
        g = own.values @ phi
        size = np.abs(g)
        np.testing.assert_allclose(found.watched, g[np.searchsorted(every, watched)], atol=1e-9)
        np.testing.assert_allclose(found.gradients, g[np.searchsorted(every, found.ids)], atol=1e-9)
        assert found.n_priced == len(every) and found.largest >= size.max() * (1.0 - 1e-12)
        over = float(np.sum(np.maximum(size - 5.0, 0.0) ** 2))
        assert found.excess.sum() == pytest.approx(over, rel=1e-9)
        alone = run(pricer, query, own, range(3))
        assert set(alone.ids) <= set(found.ids) and alone.largest == found.largest
        sums = run(pricer, replace(query, find=False, power=2), own, range(3)).watched
        exact = (own.values @ phi**2)[np.searchsorted(every, watched)]
        np.testing.assert_allclose(sums, exact, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("keep", [3, 1000])
def test_a_candidate_of_one_output_is_reported_by_all(
    keep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing, "RUN_FEATURES", 30)  # several runs of parts
    monkeypatch.setattr(pricing, "LEAST_PART", 8)
    family, prepared = _bound(Columns())
    pricer = family.pricer(prepared, keep)
    query = PriceQuery(range(pricer.n_parts), np.array([4]), 3.0)
    rows = _rows()
    found = price_each(pricer, [query] * K, rows, range(3))
    alone = [run(pricer, query, own, range(3)) for own in rows]
    union = np.unique(np.concatenate([prices.ids for prices in alone]))
    assert len(union) > max(len(prices.ids) for prices in alone)
    for prices, own in zip(found, alone, strict=True):
        np.testing.assert_array_equal(prices.ids, union)
        assert prices.largest == own.largest and len(prices.excess) == pricer.n_parts


def test_a_column_is_made_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound(generators.Tanh())
    made: list[int] = []
    right = generators.Tanh.columns

    def counted(self: Any, ids: Any, block: Any) -> np.ndarray:
        made.append(len(ids))
        return right(self, ids, block)

    monkeypatch.setattr(generators.Tanh, "columns", counted)
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts), threshold=3.0)
    price_each(pricer, [query] * K, _rows(), range(3))
    assert sum(made) == 3 * M


def test_sums_of_several_outputs_have_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    family, prepared = _bound(AboveOfSeveral())
    monkeypatch.setattr(AboveOfSeveral, "gradients_of_several", lambda *a: np.ones(3))
    pricer = family.pricer(prepared, 20)
    query = PriceQuery(range(pricer.n_parts))
    with pytest.raises(Exception, match=r"several gradients\(.*expected float64 \(5, "):
        price_each(pricer, [query] * K, _rows(), range(3))


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
