"""Prices of several outputs together against those of each output alone."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fcl.features.kmers.pricing as module
from fcl.features import KmerFamily
from fcl.features.kmers.lanes import LanePricer
from fcl.features.kmers.pricing import KmerPricer
from fcl.features.prices import PriceQuery, Prices, RowVector, run
from tests.windows import (
    INTERPRETED,
    MAX_ROWS,
    RESIDUALS,
    UNKNOWN,
    cases,
    examples,
    make_residuals,
    make_windows,
    prepare,
)

FIVE_LETTERS = (-1.0, module.FIVE_LETTERS_FROM, math.inf)


def same_bits(a: Prices, b: Prices) -> bool:
    arrays = ("ids", "gradients", "watched", "excess")
    numbers = ("largest", "n_priced", "reach", "n_visited")
    return all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in arrays) and all(
        getattr(a, name) == getattr(b, name) for name in numbers
    )


def make_rows(seed: int, n: int, K: int, kind: str, in_steps: bool) -> list[RowVector]:
    """Outputs on grids of their own, or on one grid and in steps."""
    values = [make_residuals(seed + k, n, kind) * (k + 1.0) for k in range(K)]
    totals = [float(np.abs(v).sum()) for v in values]
    if in_steps:
        step = RowVector.on_grid(values[0], max(totals), 1.0).step
        return [RowVector(v, step, np.empty(n, np.int64)) for v in values]
    return [RowVector.on_grid(v, t, 1.0) for v, t in zip(values, totals, strict=True)]


def check(
    pricer: LanePricer, alone: KmerPricer, queries: list[PriceQuery], rows: list[RowVector]
) -> None:
    shares: list[float] = []
    blocks = range(alone.prepared.n_blocks)
    found = pricer.price_several(queries, rows, blocks, shares.append)
    assert shares == sorted(shares) and all(0.0 <= share <= 1.0 for share in shares)
    assert len(found) == len(rows)
    for prices, query, own in zip(found, queries, rows, strict=True):
        assert same_bits(prices, run(alone, query, own, blocks))


@examples(90)
@given(
    case=cases(),
    K=st.integers(1, 9),
    kind=st.sampled_from(RESIDUALS),
    in_steps=st.booleans(),
    keep=st.sampled_from([1, 5, 40]),
    quantile=st.sampled_from([0.0, 0.5, 0.9, 1.0, 1.5]),
    level=st.sampled_from([None, 0.5, 2.0]),
    five=st.sampled_from(FIVE_LETTERS),
)
def test_outputs_together_have_the_prices_of_each_alone(
    case: tuple[KmerFamily, np.ndarray, int],
    K: int,
    kind: str,
    in_steps: bool,
    keep: int,
    quantile: float,
    level: float | None,
    five: float,
) -> None:
    family, codes, seed = case
    prepared = prepare(family, codes)
    rng = np.random.default_rng(seed)
    rows = make_rows(seed, len(codes), K, kind, in_steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIVE_LETTERS_FROM", five)
        pricer, alone = (kind(family, prepared, keep) for kind in (LanePricer, KmerPricer))
        threshold = (
            quantile
            * run(
                alone, PriceQuery(range(family.n_positions)), rows[0], range(prepared.n_blocks)
            ).largest
        )
        watched = rng.integers(family.n_features, size=20)
        cut = rng.integers(family.n_positions)
        for parts in (range(family.n_positions), range(cut, family.n_positions)):
            queries = [
                PriceQuery(parts, watched, threshold, level, imbalance)
                for imbalance in rng.uniform(0.0, 0.3, K).tolist()
            ]
            check(pricer, alone, queries, rows)
        sums = [PriceQuery(range(family.n_positions), watched, find=False, power=2)] * K
        check(pricer, alone, sums, rows)


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("d", [3, 7])  # the second walks a tree
def test_outputs_priced_from_a_scratch_file(d: int, unknown: str, tmp_path: Path) -> None:
    if INTERPRETED and (d > 3 or unknown != "few"):
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, 11)
    codes = make_windows(5, MAX_ROWS, family.length, unknown)
    prepared = prepare(family, codes, scratch=tmp_path)
    watched = np.random.default_rng(5).integers(family.n_features, size=40)
    queries = [PriceQuery(range(family.n_positions), watched, 1.0, 2.0, 0.5)] * 3
    rows = make_rows(5, MAX_ROWS, 3, "balanced", in_steps=True)
    pricer, alone = (kind(family, prepared, 20) for kind in (LanePricer, KmerPricer))
    check(pricer, alone, queries, rows)
