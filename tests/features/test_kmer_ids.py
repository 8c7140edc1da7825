"""Ids, descriptions, options: against an enumeration of all patterns as strings."""

from __future__ import annotations

import numpy as np
import pytest

from fcl.data.memory import MemoryReader
from fcl.features import KmerFamily, Kmers, family_from_config
from tests import brute

SMALL = [(1, 1), (1, 5), (2, 2), (2, 6), (3, 5), (4, 5)]


@pytest.mark.parametrize(("d", "length"), SMALL)
def test_ids_count_patterns_position_by_position(d: int, length: int) -> None:
    family = KmerFamily(d, length)
    features = brute.family(d, length)
    assert family.n_features == len(features) == (length - d + 1) * 4 * 5 ** (d - 1)
    for j, (position, pattern) in enumerate(features):
        assert family.feature_id(pattern, position) == j
        assert family.describe(j) == f"{pattern.rstrip('.')} at {position}"


@pytest.mark.parametrize(("d", "length"), SMALL)
def test_bit_fields_hold_the_letters(d: int, length: int) -> None:
    family = KmerFamily(d, length)
    found = family.patterns(np.arange(family.n_features))
    for j, (position, pattern) in enumerate(brute.family(d, length)):
        care = "".join("00" if c == "." else "11" for c in pattern)
        value = "".join("00" if c == "." else f"{'ACGT'.index(c):02b}" for c in pattern)
        assert found.positions[j] == position
        assert (found.cares[j], found.values[j]) == (int(care, 2), int(value, 2))


@pytest.mark.parametrize("d", [8, 10, 12])
def test_long_patterns_come_back_from_their_ids(d: int) -> None:
    rng = np.random.default_rng(d)
    family = KmerFamily(d, 141, origin=70)
    for _ in range(200):
        pattern = rng.choice(list("ACGT")) + "".join(rng.choice(list("ACGT."), d - 1))
        position = int(rng.integers(family.n_positions))
        feature = family.feature_id(pattern, position)
        assert feature // (4 * 5 ** (d - 1)) == position
        assert family.describe(feature) == f"{pattern.rstrip('.')} at {position - 70:+d}"
    last = family.n_features - 1
    assert family.feature_id("T" + "." * (d - 1), 141 - d) == last
    assert family.feature_id("T", 141 - d) == last


def test_spelling_is_forgiving_and_positions_count_from_the_origin() -> None:
    family = KmerFamily(3, 9, origin=4)
    assert family.feature_id("u.a", 4) == family.feature_id("T.A", 4)
    assert family.describe(family.feature_id("A", 4)) == "A at +0"
    assert family.describe(family.feature_id("AC", 1)) == "AC at -3"


def test_the_family_is_made_again_from_its_description() -> None:
    family = KmerFamily(5, 30, 12)
    assert family_from_config(family.to_config()) == family
    rows = MemoryReader(np.zeros((3, 5), np.uint8), "X")
    assert Kmers(5, 2).bind(rows) == KmerFamily(5, 5, 2)
