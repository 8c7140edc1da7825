"""Prices of the whole family against the explicit matrix."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import uneven
from hypothesis import given
from hypothesis import strategies as st

import fcl.features.kmers.pricing as module
from fcl.features import KmerFamily
from fcl.features.prices import Prices, merge_prices
from fcl.kernels import kmers
from fcl.kernels import patterns as kernels
from tests import brute
from tests.pricing import Pricing
from tests.windows import (
    BLOCK_ROWS,
    INTERPRETED,
    MAX_D,
    MAX_ROWS,
    RESIDUALS,
    UNKNOWN,
    cases,
    examples,
    make_residuals,
    make_windows,
    prepare,
    tolerance,
)

#: Shares of unknown letters from which they are scanned as a fifth one: always, as chosen, never.
FIVE_LETTERS = (-1.0, module.FIVE_LETTERS_FROM, math.inf)


def check_prices(
    found: Prices,
    g: np.ndarray,
    watch: np.ndarray,
    family: KmerFamily,
    keep: int,
    threshold: float,
    slack: float,
) -> None:
    """Check the prices, given the true g of every feature and the tolerance for rounding."""
    everything = np.abs(g)
    assert found.largest >= everything.max() - slack
    if everything.max() > threshold + slack:
        assert found.largest <= everything.max() + slack
    else:
        assert found.largest <= threshold + slack
    # what is watched is no candidate
    size = everything.copy()
    size[watch] = 0.0
    assert not np.isin(found.ids, watch).any()
    assert found.n_priced == len(g) == family.n_features
    assert (np.diff(found.ids) > 0).all()
    np.testing.assert_allclose(found.gradients, g[found.ids], rtol=0, atol=slack)
    if size.max() > threshold + slack:
        assert size[found.ids].max() >= size.max() - slack
    assert (size[found.ids] > threshold - slack).all()
    reported = np.isin(np.arange(len(g)), found.ids)
    for k in range(family.n_positions):
        here = slice(k * family.per_position, (k + 1) * family.per_position)
        surely = int((size[here] > threshold + slack).sum())
        perhaps = int((size[here] > threshold - slack).sum())
        assert min(keep, surely) <= reported[here].sum() <= min(keep, perhaps)
        weakest_of_top = -np.partition(-size[here], keep - 1)[keep - 1] if keep < perhaps else 0.0
        must = (size[here] > threshold + slack) & (size[here] > weakest_of_top + slack)
        assert reported[here][must].all()


def same_bits(a: Prices, b: Prices) -> bool:
    return (
        a.ids.tolist() == b.ids.tolist()
        and a.gradients.tobytes() == b.gradients.tobytes()
        and a.watched.tobytes() == b.watched.tobytes()
        and np.float64(a.largest).tobytes() == np.float64(b.largest).tobytes()
        and a.excess.tobytes() == b.excess.tobytes()
    )


@examples(150)
@given(
    case=cases(),
    kind=st.sampled_from(RESIDUALS),
    keep=st.sampled_from([1, 2, 5, 40, 20_000]),
    quantile=st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0, 1.5]),
    five=st.sampled_from(FIVE_LETTERS),
)
def test_prices_of_all_features(
    case: tuple[KmerFamily, np.ndarray, int], kind: str, keep: int, quantile: float, five: float
) -> None:
    family, codes, seed = case
    r = make_residuals(seed, len(codes), kind)
    g = r @ brute.matrix(codes, family.d)
    threshold = float(np.quantile(np.abs(g), min(quantile, 1.0)) * max(quantile, 1.0))
    watch = np.random.default_rng(seed).integers(family.n_features, size=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIVE_LETTERS_FROM", five)
        pricer = Pricing(family, prepare(family, codes), keep)
    found = pricer.price(r, watch, threshold)
    check_prices(found, g, watch, family, keep, threshold, tolerance(r))
    np.testing.assert_allclose(found.watched, g[watch], rtol=0, atol=tolerance(r))

    # the buffers hold nothing over for the next call
    other = make_residuals(seed + 1, len(codes), "balanced")
    pricer.price(other, watch[:3], 0.0)
    assert same_bits(found, pricer.price(r, watch, threshold))


@examples(60)
@given(
    case=cases(),
    kind=st.sampled_from(RESIDUALS),
    keep=st.sampled_from([1, 40]),
    quantiles=st.tuples(*[st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0])] * 2),
    share=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 3.0]),
    five=st.sampled_from(FIVE_LETTERS),
    wrapped=st.booleans(),
)
def test_the_excess_over_a_level(
    case: tuple[KmerFamily, np.ndarray, int],
    kind: str,
    keep: int,
    quantiles: tuple[float, float],
    share: float,
    five: float,
    wrapped: bool,
) -> None:
    """Whatever the threshold prunes, and with a slack above the level itself."""
    family, codes, seed = case
    if wrapped:
        family = uneven.UnevenFamily(family.d, family.length)
    r = make_residuals(seed, len(codes), kind)
    g = np.abs(r @ brute.matrix(codes, family.d))
    f = family.penalty_factors(np.arange(len(g)))
    level, threshold = (float(np.quantile(g / f, q)) for q in quantiles)
    slack = share * level
    watch = np.random.default_rng(seed).integers(family.n_features, size=30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FIVE_LETTERS_FROM", five)
        pricer = Pricing(family, prepare(family, codes), keep)
    found = pricer.price(r, watch, threshold, None, level, slack)
    above = np.maximum((g + slack) / f - level, 0.0)
    expected = (f * above**2).reshape(family.n_positions, -1)
    rounding = (4.0 * tolerance(r) * (above + tolerance(r))).reshape(expected.shape)
    assert found.excess.shape == (family.n_positions,)
    # where every pattern has some, not all are looked at
    endless = (level * f <= slack).reshape(expected.shape)[:, 0]
    assert np.isinf(found.excess[endless]).all()
    difference = np.abs(found.excess - expected.sum(1))[~endless]
    assert (difference <= (rounding.sum(1) + 1e-11 * expected.sum(1))[~endless]).all()

    # parts have theirs, and nothing else of the prices is changed by it
    cut = family.n_positions // 2
    parts = [range(cut), range(cut, family.n_positions)]
    merged = merge_prices(
        [pricer.price(r, watch, threshold, p, level, slack) for p in parts if len(p)]
    )
    assert same_bits(found, merged)
    without = pricer.price(r, watch, threshold)
    assert (without.excess == 0.0).all()
    assert same_bits(replace(found, excess=without.excess, largest=without.largest), without)
    assert found.largest <= without.largest + slack / f.min() * (1.0 + 1e-12)
    assert found.largest >= ((g + slack) / f).max() - tolerance(r) / f.min()


@examples(80)
@given(case=cases(), kind=st.sampled_from(RESIDUALS), n_ids=st.integers(0, 50))
def test_sums_of_some_features(
    case: tuple[KmerFamily, np.ndarray, int], kind: str, n_ids: int
) -> None:
    family, codes, seed = case
    values = make_residuals(seed, len(codes), kind)
    ids = np.random.default_rng(seed).integers(family.n_features, size=n_ids)
    pricer = Pricing(family, prepare(family, codes), 3)
    found = pricer.sums(values, ids)
    features = brute.family(family.d, family.length)
    columns = np.array([brute.column(codes, features[j][1], features[j][0]) for j in ids])
    columns = columns.reshape(n_ids, len(codes))
    np.testing.assert_allclose(found, columns @ values, rtol=0, atol=tolerance(values))
    assert (pricer.sums(np.ones(len(codes)), ids) == columns.sum(axis=1)).all()


@pytest.mark.skipif(not INTERPRETED, reason="compiled kernels have their constants inside")
@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("five", FIVE_LETTERS)
@pytest.mark.parametrize("flat", [0, 1, 2])
def test_the_tree_of_short_patterns(
    unknown: str, five: float, flat: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "FLAT_LETTERS", flat)
    monkeypatch.setattr(module, "FIVE_LETTERS_FROM", five)
    family = KmerFamily(4, 6)
    codes = make_windows(10, 90, 6, unknown)
    r = make_residuals(10, 90, "balanced")
    g = r @ brute.matrix(codes, 4)
    for keep, threshold in ((3, 0.0), (30, float(np.quantile(np.abs(g), 0.9)))):
        found = Pricing(family, prepare(family, codes), keep).price(r, np.arange(3), threshold)
        check_prices(found, g, np.arange(3), family, keep, threshold, tolerance(r))


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize("five", FIVE_LETTERS)
@pytest.mark.parametrize(("d", "length"), [(3, 11), (7, 11)])  # the second walks a tree, with cells
def test_neither_scratch_file_nor_groups_of_positions_change_a_bit(
    d: int, length: int, unknown: str, five: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if INTERPRETED and (d > MAX_D or five != FIVE_LETTERS[0] or unknown != "few"):
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, length)
    codes = make_windows(5, MAX_ROWS, family.length, unknown)
    r = make_residuals(5, MAX_ROWS, "balanced")
    watch = np.random.default_rng(5).integers(family.n_features, size=40)
    monkeypatch.setattr(module, "FIVE_LETTERS_FROM", five)
    options = (None, 2.0, 0.5)  # all parts, a level and a slack
    expected = Pricing(family, prepare(family, codes), 20).price(r, watch, 1.0, *options)
    on_disk = prepare(family, codes, scratch=tmp_path)
    monkeypatch.setattr("fcl.data.prepared.SMALL_FILE", 0)
    for group in (1, 2, 3, 9, 100):
        monkeypatch.setattr(module, "GROUP_BYTES", group * 8 * 4**d)
        most = min(group, module.POSITIONS_IN_GROUP, family.n_positions)
        assert module.tables_in_group(family, at_hand=False) == most
        pricer = Pricing(family, on_disk, 20)
        assert same_bits(pricer.price(r, watch, 1.0, *options), expected)
        assert pricer.sums(r, watch).tobytes() == expected.watched.tobytes()


@pytest.mark.parametrize("unknown", UNKNOWN)
@pytest.mark.parametrize(("d", "length"), [(3, 10), (3, 11), (7, 12), (8, 12)])
@pytest.mark.parametrize("block_rows", [0, BLOCK_ROWS // 8, MAX_ROWS])  # 0: in memory
def test_a_table_that_two_positions_share_does_not_change_a_bit(
    d: int,
    length: int,
    unknown: str,
    block_rows: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a scratch file, the blocks are read in several runs, or in one."""
    if INTERPRETED and d > MAX_D:
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, length)
    codes = make_windows(5, MAX_ROWS, length, unknown)
    r = make_residuals(5, MAX_ROWS, "balanced")
    rng = np.random.default_rng(5)
    watch = rng.integers(family.n_features, size=40)
    scattered = family.per_position * np.array([0, 2, 3, family.n_positions - 1])
    monkeypatch.setattr(module, "PAIR_LETTERS", ())
    expected = Pricing(family, prepare(family, codes), 20)
    prices = expected.price(r, watch, 1.0, None, 2.0, 0.5)
    monkeypatch.setattr(module, "PAIR_LETTERS", (d,))
    filled = []
    marginals = kmers.take_marginals
    monkeypatch.setattr(kmers, "take_marginals", lambda *a: (filled.append(a), marginals(*a)))
    monkeypatch.setattr("fcl.data.prepared.SMALL_FILE", 0)
    place = (BLOCK_ROWS, None) if block_rows == 0 else (block_rows, tmp_path)
    prepared = prepare(family, codes, *place)
    if block_rows:
        runs = family.together(prepared, range(prepared.n_blocks), slice(0, d + 3))
        assert (len(runs) > 1) == (block_rows < MAX_ROWS)
    for rows, pairs in ((module.PAIR_ROWS, 0), (1, family.n_positions // 2)):
        monkeypatch.setattr(module, "PAIR_ROWS", rows)
        pricer = Pricing(family, prepared, 20)
        filled.clear()
        assert same_bits(pricer.price(r, watch, 1.0, None, 2.0, 0.5), prices)
        assert len(filled) == pairs
        # two of these positions are neighbours, and asked for together
        assert pricer.sums(r, scattered).tobytes() == expected.sums(r, scattered).tobytes()


def test_a_fill_that_failed_leaves_nothing_in_the_shared_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = KmerFamily(3, 8)
    prepared = prepare(family, make_windows(7, MAX_ROWS, 8, "few"))
    r = make_residuals(7, MAX_ROWS, "balanced")
    monkeypatch.setattr(module, "PAIR_LETTERS", (3,))
    monkeypatch.setattr(module, "PAIR_ROWS", 1)
    pricer = Pricing(family, prepared, 20)
    watch = np.arange(5)
    expected = pricer.price(r, watch, 1.0)
    add, calls = kmers.add_to_table, []

    def add_some(*arguments: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("the disk is gone")
        add(*arguments)

    monkeypatch.setattr(kmers, "add_to_table", add_some)
    with pytest.raises(OSError, match="gone"):
        pricer.price(r, watch, 1.0)
    assert same_bits(pricer.price(r, watch, 1.0), expected)


def test_sums_at_scattered_positions_have_room_for_all_their_unknown_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of neighbours only one or two have such windows, of positions 0, 4 and 8 all three
    family = KmerFamily(2, 10)
    codes = make_windows(6, MAX_ROWS, 10, "none")
    codes[:, [1, 5, 9]] = 4
    on_disk = prepare(family, codes, scratch=tmp_path)
    monkeypatch.setattr(module, "GROUP_BYTES", 3 * 8 * 4**2)
    pricer = Pricing(family, on_disk, 5)
    ids = np.array([family.feature_id(p, k) for k in (0, 4, 8) for p in ("A", "AC", "T.")])
    values = make_residuals(6, MAX_ROWS, "balanced")
    expected = values @ brute.matrix(codes, 2)[:, ids]
    np.testing.assert_allclose(pricer.sums(values, ids), expected, rtol=0, atol=tolerance(values))


def test_without_unknown_letters_blocks_do_not_change_a_bit() -> None:
    family = KmerFamily(3, 9)
    codes = make_windows(7, MAX_ROWS, family.length, "none")
    r = make_residuals(7, MAX_ROWS, "balanced")
    watch = np.arange(0, family.n_features, 7)
    whole = Pricing(family, prepare(family, codes, 1024), 9).price(r, watch, 0.5)
    for block_rows in (64, 128, BLOCK_ROWS):
        cut = Pricing(family, prepare(family, codes, block_rows), 9).price(r, watch, 0.5)
        assert same_bits(cut, whole)


def test_ties_are_settled_alike_every_time() -> None:
    # one letter everywhere and residuals of 1: all patterns that match have the same sum
    family = KmerFamily(3, 6)
    codes = np.zeros((130, 6), np.uint8)
    prices = [
        Pricing(family, prepare(family, codes, rows), 2).price(np.ones(130), np.arange(0), 0.0)
        for rows in (64, 64, 128, 192)
    ]
    assert all(same_bits(p, prices[0]) for p in prices)
    assert prices[0].gradients.tolist() == [130.0] * 8
    assert all(set(family.describe(int(j)).split()[0]) <= set("A.") for j in prices[0].ids)
    assert prices[0].largest == 130.0


def test_residuals_of_zero_price_nothing() -> None:
    family = KmerFamily(4, 8)
    codes = make_windows(8, 100, 8, "many")
    found = Pricing(family, prepare(family, codes), 5).price(np.zeros(100), np.arange(3), 0.0)
    assert found.largest == 0.0 and not len(found.ids) and not found.watched.any()


@pytest.mark.parametrize("threshold", [0.0, 3.0])
def test_windows_that_are_all_unknown_match_nothing(threshold: float) -> None:
    family = KmerFamily(3, 6)
    codes = make_windows(9, 200, 6, "all")
    r = make_residuals(9, 200, "balanced")
    found = Pricing(family, prepare(family, codes), 5).price(r, np.arange(10), threshold)
    assert found.largest <= threshold + tolerance(r)
    assert np.abs(found.gradients).max(initial=0.0) <= tolerance(r)
    assert np.abs(found.watched).max() <= tolerance(r)
