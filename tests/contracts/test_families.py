"""Every family against its explicit matrix: prices, columns, margins, rows, sums, names, bytes."""

from __future__ import annotations

import json
import math
import tracemalloc
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explicit import objective_of, select_rows
from judge import Problem

from fcl.cache import ColumnCache
from fcl.errors import InputError
from fcl.features import family_from_config, parse_features, spell_features
from fcl.features.base import BitColumns, StepColumns
from fcl.features.prices import PriceQuery, Prices, RowVector, answer, grid_step, merge_prices, ones
from fcl.features.rows import CHUNK_IDS, RowChunk
from fcl.features.run import Joining, price_each, run, sums_of
from fcl.features.standardized import plain
from fcl.parallel import Team
from tests.columns import broken_invariants, read_back
from tests.families import CASES, Bound, bound, same_bits, values_of
from tests.pricing import Pricing
from tests.windows import INTERPRETED, RESIDUALS, THOROUGH, make_residuals

families = pytest.mark.parametrize("name", CASES)
#: A few rows, a single block, and three blocks of which the last is short.
SIZES = [3, 100] if INTERPRETED else [3, 100, 300]


def draws(n: int) -> pytest.MarkDecorator:
    """Run a test with n seeds; if THOROUGH, with more."""
    return pytest.mark.parametrize("seed", range(1 if INTERPRETED else 6 * n if THOROUGH else n))


def dice(name: str, seed: int) -> np.random.Generator:
    """Random numbers that differ from case to case."""
    return np.random.default_rng([*name.encode(), seed])


#: Classes of users without a method that lists the features of a row, and products of many columns.
NOT_LISTED = {
    "above", "above of several", "absolute", "binary families", "eight bits and tanh",
    "first letter", "hinges", "many families", "pairs", "products:degree=4, one at a time",
    "products:degree=4,scale=false of large signed", "quarters", "shares", "tanh", "tanh, parts",
}  # fmt: skip


def rounding(b: Bound, values: np.ndarray, power: int = 1) -> float:
    """The largest rounding error of the sums of values times features."""
    most = max(1.0, float(np.abs(b.phi).max()))
    return float(np.abs(values).sum()) * (1e-12 * most**power + 2.0 * b.case.error * most) + 1e-300


# -- prices ----------------------------------------------------------------------------------------


def check_prices(b: Bound, found: Prices, r: np.ndarray, query: PriceQuery) -> None:
    """Check what :class:`Prices` promises of the whole family."""
    g, slack = r @ b.phi, rounding(b, r)
    size, near = np.abs(g) / b.f, slack / b.f.min()
    change = query.imbalance * found.reach
    assert found.n_priced == len(g)
    reach = (np.abs(b.phi).max(axis=0) / b.f).max()
    assert found.reach >= reach * (1.0 - 1e-12) - 2.0 * b.case.error / b.f.min()
    np.testing.assert_allclose(found.watched, g[query.watched], rtol=0, atol=slack)
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=0, atol=slack)
    assert (np.diff(found.ids) > 0).all() and not np.isin(found.ids, query.watched).any()
    assert (size[found.ids] > query.threshold - near).all()
    moved = query.imbalance * np.abs(b.phi).max(axis=0) / b.f
    assert found.largest >= (size + moved).max() - near
    assert found.largest <= max(size.max(), query.threshold) + change + near

    if query.level is None:
        assert not found.excess.any()
        return
    if math.isinf(found.excess.sum()):  # of a search: every feature has a share
        assert query.level <= change
        return
    least, most = (np.maximum(size + more - query.level, 0.0) for more in (moved, change))
    allowed = 4.0 * slack * most.sum() + len(g) * slack * near + 1e-9 * float(b.f @ most**2)
    assert found.excess.sum() >= float(b.f @ least**2) - allowed
    assert found.excess.sum() <= float(b.f @ most**2) + allowed


def check_best(b: Bound, found: Prices, r: np.ndarray, query: PriceQuery, keep: int) -> None:
    """The candidates of a part are its ``keep`` largest features."""
    blocks = range(b.prepared.n_blocks)
    every = np.arange(len(b.f))
    counts = sums_of(b.family.pricer(b.prepared, 1), every, ones(), blocks, 0, query.parts)
    assert (counts[found.ids] > 0.0).all()
    size, near = np.abs(r @ b.phi) / b.f, rounding(b, r) / b.f.min()
    size[query.watched] = 0.0
    size[counts == 0.0] = 0.0
    best = np.argsort(-size)[: keep + 1]
    weakest = size[best[-1]] if len(best) > keep else 0.0
    bar = max(query.threshold, found.omitted, weakest) + 2.0 * near
    assert len(found.ids) <= keep
    assert np.isin(np.flatnonzero(size > bar), found.ids).all()


@pytest.mark.thin(11)
@families
@draws(4)
def test_prices(name: str, seed: int) -> None:
    random = dice(name, seed)
    n, kind = int(random.choice(SIZES)), random.choice([*RESIDUALS, "zero"])
    keep, quantile = random.choice([1, 3, 10_000]), random.choice([0.0, 0.5, 0.9, 1.0, 1.5])
    level, imbalance = random.choice([-1.0, 0.3, 0.9]), random.choice([0.0, 1e-3, 0.2])
    r = np.zeros(n) if kind == "zero" else make_residuals(seed, n, kind)
    with bound(CASES[name], seed, n) as b:
        size = np.abs(r @ b.phi) / b.f
        pricing = Pricing(b.family, b.prepared, keep)
        rows, blocks, parts = pricing.on_grid(r), pricing.blocks, pricing.n_parts
        query = PriceQuery(
            range(parts),
            random.permutation(len(b.f))[: random.integers(6)],
            threshold=float(np.quantile(size, min(quantile, 1.0)) * max(quantile, 1.0))
            if quantile
            else 0.0,
            level=None if level < 0.0 else level * size.max(),
            imbalance=imbalance * size.max(),
        )
        found = run(pricing.pricer, query, rows, blocks)
        check_prices(b, found, r, query)
        part = int(random.integers(parts))
        own = query.of_parts(range(part, part + 1))
        check_best(b, run(pricing.pricer, own, rows, blocks), r, own, keep)

        # the parts that are priced together, and what was priced before, change no bit
        if not found.omitted:
            cut = int(random.integers(parts + 1))
            pieces = [range(cut), range(cut, parts)]
            alone = [run(pricing.pricer, query.of_parts(p), rows, blocks) for p in pieces if len(p)]
            assert same_bits(merge_prices(alone), found)
        run(pricing.pricer, query, RowVector(-r, rows.step), blocks)
        assert same_bits(run(pricing.pricer, query, rows, blocks), found)

        # nor who sums over which blocks of rows
        pricers = [b.family.pricer(b.prepared, keep) for _ in blocks]

        def summed(request: Any, begin: float, end: float) -> Any:
            sums = [
                pricers[number].accumulate(request, rows, range(number, number + 1), lambda _: None)
                for number in random.permutation(blocks)
            ]
            return reduce(pricers[0].merge, sums)

        assert same_bits(answer(pricers[0].scan(query, rows.step), summed), found)
        threaded = b.family.pricer(b.prepared, keep, Team(2))
        assert same_bits(run(threaded, query, rows, blocks), found)


@pytest.mark.thin(8)
@families
@draws(3)
def test_prices_of_several_outputs(name: str, seed: int) -> None:
    random = dice(name, seed)
    K, keep = int(random.choice([1, 2, 5])), random.choice([1, 3, 10_000])
    quantile = random.choice([0.0, 0.5, 0.95])
    in_units, grouped = random.random(2) < 0.5
    with bound(CASES[name], seed, 100) as b:
        pricer, blocks = b.family.pricer(b.prepared, keep), range(b.prepared.n_blocks)
        r = random.normal(size=(K, 100)) * random.uniform(0.5, 2.0, (K, 1))
        step = grid_step(float(np.abs(r).sum(axis=1).max()), b.family.integer_bound)
        units = in_units and step > 0.0
        rows = [RowVector(own, step, np.empty(100, np.int64) if units else None) for own in r]
        g = (r @ b.phi).T
        sizes = np.linalg.norm(g, axis=1) / b.f if grouped else np.abs(g).max(axis=1) / b.f
        query = PriceQuery(
            range(pricer.n_parts),
            random.permutation(len(b.f))[:4],
            float(np.quantile(sizes, quantile)) if quantile else 0.0,
            0.5 * float(sizes.max()),
        )
        queries = [replace(query, imbalance=0.01 * k) for k in range(K)]
        shares: list[float] = []
        found = price_each(pricer, queries, rows, blocks, shares.append)
        assert shares == sorted(shares) and all(0.0 <= share <= 1.0 for share in shares)
        for prices, asked, own in zip(found, queries, rows, strict=True):
            alone = run(pricer, asked, own, blocks)
            its = np.isin(prices.ids, alone.ids)  # the others are candidates of other outputs
            ids, gradients = prices.ids[its], prices.gradients[its]
            assert same_bits(replace(prices, ids=ids, gradients=gradients), alone)
            sums = own[:] @ b.phi[:, prices.ids]
            np.testing.assert_allclose(prices.gradients, sums, rtol=0, atol=rounding(b, own.values))

        # the candidates of all outputs together, with bounds by the largest output or by the norm
        change = np.array([asked.imbalance for asked in queries])
        several = replace(query, imbalance=change)  # type: ignore[arg-type]
        factors = b.family.penalty_factors
        joining = Joining(keep, keep, factors, grouped)
        both = run(pricer, several, rows, blocks, joining=joining)
        slack = max(rounding(b, own) for own in r)
        near = 2.0 * K * slack / b.f.min()
        np.testing.assert_allclose(both.gradients, g[both.ids], rtol=0, atol=slack)
        np.testing.assert_allclose(both.watched, g[query.watched], rtol=0, atol=slack)
        assert (np.diff(both.ids) > 0).all() and not np.isin(both.ids, query.watched).any()
        assert len(both.ids) <= keep * pricer.n_parts
        each = (np.abs(g) + np.outer(np.abs(b.phi).max(axis=0), change)) / b.f[:, None]
        over = np.linalg.norm(each, axis=1)[:, None] if grouped else each
        assert both.largest >= over.max() - near
        assert (both.by_output >= each.max(axis=0) - near).all()
        least = b.f @ np.maximum(over - query.level, 0.0) ** 2
        assert both.excess.sum() >= least.sum() * (1.0 - 1e-9) - near * slack * len(g)
        if grouped and keep > len(g) and query.threshold:
            unwatched = np.setdiff1d(np.flatnonzero(sizes > query.threshold + near), query.watched)
            assert np.isin(unwatched, both.ids).all()
            most = max(float(sizes.max()), query.threshold)
            assert both.largest <= most + np.linalg.norm(change) * both.reach + near
        if not grouped and np.isfinite(both.excess.sum()):
            wide = np.abs(g) / b.f[:, None] + change * both.reach
            most = float((b.f @ np.maximum(wide - query.level, 0.0) ** 2).sum())
            assert both.excess.sum() <= most * (1.0 + 1e-9) + near * len(g) * wide.max()


@pytest.mark.thin(3)
@families
@draws(2)
def test_sums_of_powers(name: str, seed: int) -> None:
    random = dice(name, seed)
    n = int(random.choice(SIZES))
    values = random.normal(size=n)
    with bound(CASES[name], seed, n) as b:
        pricing = Pricing(b.family, b.prepared, 3)
        ids = random.integers(len(b.f), size=50)  # in any order, some of them twice
        cut = int(random.integers(1, pricing.n_parts + 1))
        rows = pricing.on_grid(values, 2)
        for power in (1, 2):
            whole, *pieces = (
                sums_of(pricing.pricer, ids, rows, pricing.blocks, power, parts)
                for parts in (None, range(cut), range(cut, pricing.n_parts))
                if parts is None or len(parts)
            )
            exact = (values @ b.phi**power)[ids]
            np.testing.assert_allclose(whole, exact, rtol=0, atol=rounding(b, values, power))
            np.testing.assert_array_equal(sum(pieces), whole)  # a feature of another part adds 0
        exact = np.count_nonzero(b.phi, axis=0)[ids]
        assert pricing.counts(ids).tolist() == exact.tolist()
        both = np.stack([values, -2.0 * values])
        many = [pricing.on_grid(own, 2) for own in both]
        found = sums_of(pricing.pricer, ids, many, pricing.blocks)
        np.testing.assert_allclose(found[:, 1], -2.0 * found[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if not c.measured])
def test_bounds_are_below_the_optimum(name: str) -> None:
    """The certificate that follows from the prices of a pass, at the optimum and far from it."""
    with bound(CASES[name], 0, 100) as b:
        random = np.random.default_rng(0)
        some = np.sort(random.permutation(len(b.f))[:25])
        C = 3.0 * float(np.median(b.f)) / max(1.0, float(np.abs(b.phi).sum(axis=0).max()))
        y = np.where(b.phi[:, some] @ random.normal(size=len(some)) > 0.0, 1.0, -1.0)
        y[:2] = -1.0, 1.0
        problem = Problem(b.phi, y, np.ones(100), "logistic", 20.0 * C, factors=b.f)
        best = problem.solve(1e-7)
        objective = objective_of(problem)
        pricing = Pricing(b.family, b.prepared, 3)
        for noise in (0.0, 0.1, 1.0):
            w = best.w + noise * random.normal(size=len(b.f)) / len(b.f)
            m = problem.margins(w, 0.0)
            r = problem.residuals(w, objective.best_intercept(m))
            rows = pricing.on_grid(r)
            query = PriceQuery(range(pricing.n_parts), imbalance=objective.imbalance(rows[:]))
            prices = run(pricing.pricer, query, rows, pricing.blocks)
            bound_ = objective.dual_bound(rows[:], prices.largest)
            assert bound_ <= best.objective * (1.0 + 1e-12 + 10.0 * b.case.error)
            if not noise:
                assert bound_ >= best.objective * (1.0 - 1e-4 - 10.0 * b.case.error)


# -- columns ---------------------------------------------------------------------------------------


def check_columns(b: Bound, prepared: Any, rows: np.ndarray, ids: np.ndarray, room: int) -> None:
    """The columns of some rows, a batch at a time, and what a cache keeps of them."""
    family, n = b.family, len(rows)
    maker = family.column_maker(prepared, room)
    order = maker.order(ids)
    for at in range(0, len(ids), maker.batch):
        some = ids[order[at : at + maker.batch]]
        made = maker.make(some)
        assert all(isinstance(block, BitColumns) == family.binary for block in made)
        assert all(isinstance(block, StepColumns) == (family.step > 0.0) for block in made)
        found = np.concatenate([values_of(block) for block in made], axis=1)
        expected = b.phi[np.ix_(rows, some)].T
        digits = 1e-7 if found.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(found, expected, rtol=digits, atol=b.case.error)
        k, block_rows = len(some), prepared.block_rows
        cache = ColumnCache(k * 12 * (n + 600), k, n, block_rows, family.binary, family.step)
        staged = cache.measure(some, made)
        assert all(cache.admit(staged, t) for t in range(k))
        assert broken_invariants(cache) == []
        np.testing.assert_array_equal(read_back(cache), found)


@pytest.mark.thin(3)
@families
@draws(2)
def test_columns(tmp_path: Path, name: str, seed: int) -> None:
    random = dice(name, seed)
    n, room = int(random.choice(SIZES)), random.choice([1, 1 << 20])
    folder = tmp_path if random.random() < 0.5 else None
    with bound(CASES[name], seed, n, 128, folder) as b:
        assert b.phi.max() <= 1.0 or not b.family.binary
        assert b.family.integer_bound == 0.0 or b.phi.max() <= b.family.integer_bound
        ids = random.permutation(len(b.f))[:20]
        check_columns(b, b.prepared, np.arange(n), ids, room)
        rows = np.sort(random.permutation(n)[: max(1, n // 3)])
        if not b.case.measured:  # those are scaled by their own deviations
            check_columns(b, select_rows(b.family, b.prepared, rows, 64), rows, ids, room)


# -- margins and rows ------------------------------------------------------------------------------


@pytest.mark.thin(4)
@families
@draws(2)
@pytest.mark.parametrize("steps", [False, True])
def test_margins(tmp_path: Path, name: str, seed: int, steps: bool) -> None:
    random = dice(name, seed)
    n, n_ids = int(random.choice(SIZES)), random.choice([0, 5, 60, 60])
    folder = tmp_path if random.random() < 0.5 else None
    with bound(CASES[name], seed, n, 128, folder) as b:
        ids = np.sort(random.permutation(len(b.f))[:n_ids])
        w = random.normal(size=len(ids)) * 10.0 ** random.uniform(-3, 3, len(ids))
        if steps:  # of which sums are exact
            w = np.round(w * 2.0**20) / 2.0**20
        whole, by_block = np.full((2, n), np.nan)
        b.family.write_margins(b.prepared, ids, w, whole)
        for number in reversed(range(b.prepared.n_blocks)):
            b.family.write_margins(b.prepared, ids, w, by_block, range(number, number + 1))
        assert whole.tobytes() == by_block.tobytes()
        expected = b.phi[:, ids] @ w
        allowed = rounding(b, w)
        assert (np.abs(whole - expected) <= allowed).all()
        predicted = b.family.scorer(ids, w).margins(b.raw)
        assert (np.abs(predicted - expected) <= allowed).all()


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if not case.measured])
def test_rows_as_lists(name: str) -> None:
    seed, n = 1, SIZES[-1]
    with bound(CASES[name], seed, n) as b:
        if name in NOT_LISTED or name.startswith("some of"):
            with pytest.raises(InputError, match=r"cannot list|at most 3 columns"):
                b.family.row_view()
            return
        view, p = b.family.row_view(), len(b.f)
        order = np.random.default_rng(seed).permutation(n)[: n // 2 + 1]
        for rows, chunks in (
            (np.arange(n), view.chunks(b.raw)),
            (order, view.chunks(b.raw, order)),
        ):
            found = []
            for chunk in chunks:
                assert chunk.ids.dtype == np.int32 and len(chunk.ids) <= CHUNK_IDS
                found.append(listed(chunk, p))
            np.testing.assert_allclose(
                np.concatenate(found), b.phi[rows], rtol=2e-7, atol=b.case.error
            )


def listed(chunk: RowChunk, p: int) -> np.ndarray:
    out = np.zeros((len(chunk), p))
    rows = np.repeat(np.arange(len(chunk)), np.diff(chunk.indptr))
    assert len(np.unique(rows * p + chunk.ids)) == len(chunk.ids)
    out[rows, chunk.ids] = chunk.values
    return out


# -- names, texts, penalty factors, bytes ----------------------------------------------------------


@pytest.mark.thin(2)
@families
def test_names_factors_and_configurations(name: str) -> None:
    with bound(CASES[name], 0, 100) as b:
        spec = b.case.spec()
        assert spell_features(parse_features(spell_features(spec))) == spell_features(spec)
        every = np.arange(len(b.f))
        np.testing.assert_allclose(b.family.penalty_factors(every), b.f, rtol=1e-9)
        names = [b.family.describe(int(j)) for j in every]
        assert len(set(names)) == len(names)
        for outside in (-1, len(b.f)):
            with pytest.raises(InputError, match=f"id {outside} is outside 0 .. {len(b.f) - 1}"):
                b.family.checked_ids(np.array([0, outside]))

        family = plain(getattr(b.family, "inner", b.family))
        config = json.loads(json.dumps(family.to_config(), allow_nan=False))
        again = family_from_config(config)
        assert again.to_config() == family.to_config()
        assert again.n_price_parts == family.n_price_parts
        ids = np.arange(family.n_features)
        w = np.linspace(-1.0, 1.0, len(ids))
        found = [some.scorer(ids, w).margins(b.raw) for some in (family, again)]
        assert found[0].tobytes() == found[1].tobytes()
        np.testing.assert_array_equal(again.penalty_factors(ids), family.penalty_factors(ids))
        texts = [family.describe(int(j)) for j in ids]
        assert [again.describe(int(j)) for j in ids] == texts
        assert family.find([*texts, "nothing"]).tolist() == [*ids, -1]


@pytest.mark.thin(5)
@families
@pytest.mark.parametrize("scratch", [False, True])
def test_passes_take_the_bytes_that_are_declared(name: str, scratch: bool, tmp_path: Path) -> None:
    with bound(CASES[name], 0, 300, 128, tmp_path if scratch else None) as b:
        r, ids = make_residuals(0, 300, "balanced"), np.arange(0, len(b.f), 3)
        out, w = np.empty(300), np.linspace(-1.0, 1.0, len(ids))
        bytes_ = []
        for _ in range(2):  # kernels may be compiled in the first
            tracemalloc.start()
            Pricing(b.family, b.prepared, 10).price(r, ids[:5], 0.1)
            b.family.write_margins(b.prepared, ids, w, out)
            bytes_.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        declared = b.family.workspace_bytes(128, scratch) + b.family.extra_bytes(b.prepared)
        assert bytes_[1] <= declared + (1 << 18)
