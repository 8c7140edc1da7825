"""k-mers anywhere in the window, against slow code on strings that is independent of fcl."""

from __future__ import annotations

import numpy as np
import pytest

import fcl
from fcl.features import BagFamily
from tests.bag_matrix import occurrences, patterns, reverse
from tests.families import same_bits, values_of
from tests.pricing import Pricing
from tests.rows import acceptors
from tests.windows import INTERPRETED, prepare


@pytest.mark.parametrize("wildcards", [False, True])
def test_all_patterns_of_both_strands_are_there_once(wildcards: bool) -> None:
    for d in range(1, 4 if INTERPRETED else 6):
        family = BagFamily(d, 20, strands="both", wildcards=wildcards)
        features = patterns(d, True, wildcards)
        assert family.n_features == len(features)
        for j in range(0, len(features), 7):
            assert {family.feature_id(p) for p in features[j]} == {j}
            assert family.describe(j) == f"{features[j][0]}, either strand"


@pytest.mark.skipif(INTERPRETED, reason="tables of millions of cells")
def test_long_words_by_hand() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (70, 40)).astype(np.uint8)
    codes[:, 9:21] = codes[0, 9:21]
    codes[::5, 21:33] = codes[0, 9:21]
    codes[::7, 15] = 4
    r = rng.normal(size=70)
    texts = ["".join("ACGTN"[c] for c in row) for row in codes]
    word = texts[1][9:21]
    counts = np.array([occurrences(word, text) for text in texts])
    assert set(counts) == {0, 1, 2}
    for value, wanted in (("count", counts), ("presence", np.minimum(counts, 1))):
        family = BagFamily(12, 40, value)
        pricer = Pricing(family, prepare(family, codes), 8)
        j = family.feature_id(word)
        found = pricer.price(r, np.array([j]), 1e9)
        assert found.watched[0] == pytest.approx(r @ wanted, abs=1e-12)
        assert family.describe(j) == f"{word} anywhere"
    wild = BagFamily(10, 40, strands="both", wildcards=True)
    pattern = word[:3] + "." + word[4:10]
    counts = np.array([occurrences(pattern, t) + occurrences(reverse(pattern), t) for t in texts])
    j = wild.feature_id(pattern)
    assert wild.feature_id(reverse(pattern)) == j
    found = Pricing(wild, prepare(wild, codes), 8).price(r, np.array([j]), 1e9)
    assert found.watched[0] == pytest.approx(r @ counts, abs=1e-12)
    there = BagFamily(10, 40, "presence", "both", True)
    found = Pricing(there, prepare(there, codes), 8).price(r, np.array([j]), 1e9)
    assert found.watched[0] == pytest.approx(r @ np.minimum(counts, 1), abs=1e-12)


@pytest.mark.parametrize("driver", ["inline", pytest.param("processes", marks=pytest.mark.slow)])
@pytest.mark.parametrize("length", [7, 25])
def test_validation_rows_have_any_length(length: int, driver: str) -> None:
    """Shorter rows are filled up, and longer ones are not cut: all their k-mers count."""
    rng = np.random.default_rng(length)
    y = np.where(np.arange(80) % 2, 1, -1)
    rows = [rng.integers(0, 4, (80, width)).astype(np.uint8) for width in (12, length)]
    for codes in rows:
        codes[y > 0, -3:] = 1
        codes[:5, -1] = 2
    data, valid = (fcl.open_data(codes, y=y) for codes in rows)
    family = "bag:d=2 + bag:d=3,strands=both"
    model = fcl.train(data, family, C=0.3, valid=valid, driver=driver).model
    score = fcl.average_precision(y, model.margins(valid))
    assert model.history.validation()[1][-1] == pytest.approx(score, rel=1e-12)
    alone = fcl.train(data, family, C=0.3, driver=driver).model
    np.testing.assert_allclose(alone.margins(valid), model.margins(valid), atol=1e-2)


@pytest.mark.skipif(INTERPRETED, reason="a search of thousands of patterns")
@pytest.mark.parametrize("strands", ["one", "both"])
def test_search_skips_what_cannot_count(strands: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real windows: few patterns are looked at, the result is that of all, with or without room."""
    codes, y = acceptors(30, 400)
    codes[::9, 4] = 4
    family = BagFamily(5, 30, "presence", strands, True)
    prepared = prepare(family, codes)
    r = np.where(y > 0, -0.6, 0.4) * np.linspace(0.5, 1.5, len(y))
    ids = np.arange(family.n_features)
    columns = family.column_maker(prepared, 1 << 20).make(ids)
    g = r @ np.concatenate([values_of(block) for block in columns], axis=1).T
    threshold = 0.5 * float(np.abs(g).max())
    watch = np.array([0, 17, family.n_features - 1])
    pricer = Pricing(family, prepared, 64)
    found = pricer.price(r, watch, threshold)
    wanted = np.setdiff1d(np.flatnonzero(np.abs(g) > threshold), watch)
    assert (found.ids == wanted).all() and len(wanted) > 3
    assert found.largest == pytest.approx(np.abs(g).max(), rel=1e-12)
    np.testing.assert_allclose(found.watched, g[watch], rtol=0, atol=1e-9)
    assert found.n_visited < (0.75 if strands == "both" else 0.5) * family.n_features
    monkeypatch.setattr("fcl.features.bag.search.PATH_ROOM", (1, 1))
    short = Pricing(family, prepared, 64)
    assert same_bits(short.price(r, watch, threshold), found)
    assert short.sums(r, ids).tobytes() == pricer.sums(r, ids).tobytes()
