"""Prices of the whole family against the explicit matrix."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fcl.features.kmers.pricing as module
from fcl.features import KmerFamily
from fcl.features.run import price_each
from fcl.kernels import kmers
from tests import brute
from tests.families import same_bits
from tests.pricing import Pricing
from tests.windows import (
    BLOCK_ROWS,
    INTERPRETED,
    MAX_D,
    MAX_ROWS,
    make_residuals,
    make_windows,
    prepare,
    tolerance,
)

#: Shares of unknown letters from which they are scanned as a fifth one: always, as chosen, never.
FIVE_LETTERS = (-1.0, module.FIVE_LETTERS_FROM, math.inf)


@pytest.mark.thin(4)
@pytest.mark.parametrize("unknown", ["none", "few", "one block"])
@pytest.mark.parametrize("five", FIVE_LETTERS)
@pytest.mark.parametrize(("d", "length"), [(3, 10), (7, 11), (8, 12)])  # a table, then trees
def test_how_the_work_is_divided_changes_no_bit(
    d: int, length: int, unknown: str, five: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scratch files, groups of positions, tables that two positions share, several outputs."""
    if INTERPRETED and (d > MAX_D or five != FIVE_LETTERS[0] or unknown != "few"):
        pytest.skip("too many cells, one by one")
    family = KmerFamily(d, length)
    codes = make_windows(5, MAX_ROWS, length, unknown)
    r = make_residuals(5, MAX_ROWS, "balanced")
    watch = np.random.default_rng(5).integers(family.n_features, size=40)
    monkeypatch.setattr(module, "FIVE_LETTERS_FROM", five)
    monkeypatch.setattr(module, "PAIR_LETTERS", ())
    in_memory = prepare(family, codes)
    expected = Pricing(family, in_memory, 20).price(r, watch, 1.0, None, 2.0, 0.5)
    monkeypatch.setattr("fcl.data.prepared.SMALL_FILE", 0)
    on_disk = prepare(family, codes, BLOCK_ROWS // 8, tmp_path)  # whose blocks are read in runs
    for group, pairs, prepared in (
        *((group, (), on_disk) for group in (1, 2, 3, 9, 100)),
        *((100, (d,), prepared) for prepared in (in_memory, on_disk)),
    ):
        monkeypatch.setattr(module, "GROUP_BYTES", group * 8 * 4**d)
        monkeypatch.setattr(module, "PAIR_LETTERS", pairs)
        monkeypatch.setattr(module, "PAIR_ROWS", 1)
        pricer = Pricing(family, prepared, 20)
        assert same_bits(pricer.price(r, watch, 1.0, None, 2.0, 0.5), expected)
        assert pricer.sums(r, watch).tobytes() == expected.watched.tobytes()
        query = pricer.query(watch, 1.0, None, 2.0, 0.5)
        rows = [pricer.on_grid(own) for own in (r, -r, r)]
        found = price_each(pricer.pricer, [query] * 3, rows, pricer.blocks)
        assert same_bits(found[0], expected) and same_bits(found[2], expected)
        assert (found[1].gradients == -expected.gradients).all()


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
