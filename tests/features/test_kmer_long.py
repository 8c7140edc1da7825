"""Long patterns: all features that occur, listed row by row; all others must be 0."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fcl.features.kmers.pricing as module
from fcl.features import KmerFamily
from fcl.features.kmers.margins import TABLE_LETTERS
from fcl.features.kmers.pricing import MAX_FIVE_LETTERS
from tests import brute
from tests.pricing import Pricing
from tests.windows import INTERPRETED, make_residuals, make_windows, prepare, tolerance

pytestmark = pytest.mark.skipif(INTERPRETED, reason="millions of cells, one by one")

# (d, positions, rows): 2^(d-1) patterns a row and position are met by name
CASES = [(7, 3, 300), (8, 2, 300), (10, 2, 60), (12, 2, 20)]


def case(d: int, positions: int, n: int, unknown: str) -> tuple[KmerFamily, np.ndarray]:
    codes = make_windows(d, n, d + positions - 1, unknown)
    codes[n // 2 :, : d // 2] = codes[0, : d // 2]  # long patterns with more than one row
    return KmerFamily(d, d + positions - 1), codes


@pytest.mark.thin(3)
@pytest.mark.parametrize("five", [-1.0, math.inf])  # unknown as a fifth letter: always, never
@pytest.mark.parametrize("unknown", ["none", "few", "many"])
@pytest.mark.parametrize(("d", "positions", "n"), CASES)
def test_prices_of_long_patterns(
    d: int, positions: int, n: int, unknown: str, five: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if five < 0.0 and (d > MAX_FIVE_LETTERS or unknown == "none"):
        pytest.skip("never so")
    monkeypatch.setattr(module, "FIVE_LETTERS_FROM", five)
    family, codes = case(d, positions, n, unknown)
    r = make_residuals(d, n, "balanced")
    slack = tolerance(r)
    sums = brute.sums_by_pattern(codes, r, d)
    by_size = sorted(sums, key=lambda feature: -abs(sums[feature]))
    threshold = abs(sums[by_size[len(by_size) // 50]])
    watched = [*by_size[:40], *by_size[-40:], *by_size[:: len(by_size) // 40]]
    watch = np.array([family.feature_id(pattern, k) for k, pattern in watched])
    absent = np.random.default_rng(d).integers(family.n_features, size=30)

    keep = 60
    pricer = Pricing(family, prepare(family, codes, 64), keep)
    found = pricer.price(r, np.concatenate([watch, absent]), threshold)
    expected = [sums[feature] for feature in watched]
    np.testing.assert_allclose(found.watched[: len(watch)], expected, rtol=0, atol=slack)
    for j, g in zip(absent, found.watched[len(watch) :], strict=True):
        assert g == pytest.approx(sums.get(named(family, int(j)), 0.0), abs=slack)
    assert found.largest == pytest.approx(abs(sums[by_size[0]]), abs=slack)
    for j, g in zip(found.ids, found.gradients, strict=True):
        assert g == pytest.approx(sums.get(named(family, int(j)), 0.0), abs=slack)
    reported = set(found.ids.tolist())
    known = {*watched, *(named(family, int(j)) for j in absent)}
    for k in range(positions):
        # watched features are never candidates
        others = (f for f in by_size if f[0] == k and f not in known)
        here = [(abs(sums[f]), f[1]) for f in others][: keep + 1]
        weakest = here[-1][0]
        for size, pattern in here:
            if size > max(threshold, weakest) + slack:
                assert family.feature_id(pattern, k) in reported

    assert (pricer.sums(r, watch) == found.watched[: len(watch)]).all()


def named(family: KmerFamily, feature: int) -> tuple[int, str]:
    """(position, pattern) of a feature, read from its description."""
    pattern, _, place = family.describe(feature).partition(" at ")
    return int(place), pattern.ljust(family.d, ".")


@pytest.mark.parametrize("unknown", ["none", "many"])
@pytest.mark.parametrize(("d", "positions", "n"), [*CASES, (11, 1, 500)])
def test_margins_and_columns_of_long_patterns(
    d: int, positions: int, n: int, unknown: str, tmp_path: Path
) -> None:
    family, codes = case(d, positions, n, unknown)
    rng = np.random.default_rng(d)
    features = []
    for _ in range(40):  # patterns that match a row, and others, of all lengths
        k = int(rng.integers(positions))
        row = codes[rng.integers(n)]
        letters = [
            "ACGT"[row[k + t] % 4] if rng.random() < 0.6 or t == 0 else "." for t in range(d)
        ]
        features.append((k, "".join(letters)[: rng.integers(1, d + 1)]))
    features.append((positions - 1, "A" * d))
    assert d <= TABLE_LETTERS or len(features[-1][1]) > TABLE_LETTERS
    ids = np.unique([family.feature_id(pattern, k) for k, pattern in features])
    weights = rng.normal(size=len(ids))
    found = [named(family, int(j)) for j in ids]
    columns = np.array([brute.column(codes, pattern, k) for k, pattern in found])

    for prepared in (prepare(family, codes, 64), prepare(family, codes, 64, tmp_path)):
        out = np.empty(n)
        family.write_margins(prepared, ids, weights, out)
        np.testing.assert_allclose(out, weights @ columns, rtol=0, atol=tolerance(weights))
        assert family.scorer(ids, weights).margins(codes).tobytes() == out.tobytes()
        first = 0
        for block in family.column_maker(prepared, 1 << 20).make(ids):
            for j, words in enumerate(block.bits):
                bits = [int(words[i // 64]) >> i % 64 & 1 for i in range(block.n_rows)]
                assert bits == columns[j, first : first + block.n_rows].tolist()
            first += block.n_rows
