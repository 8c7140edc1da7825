"""What the report measures on rows, against explicit columns; letters of single windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcl.data import open_data
from fcl.features.motif import Motif
from fcl.report import columns, measured
from fcl.report.measured import measure
from fcl.report.sections.rows import letter_contributions, window_text
from tests.report.conftest import Case, table_case

RNG = np.random.default_rng(6)


def test_margins_and_effects_of_letters(kmers: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "BLOCK_ROWS", 64)
    found = measure(kmers.model, kmers.data)
    weights, windows = kmers.data.weights, kmers.data.rows.read_all()
    mean = np.average(kmers.margins, weights=weights)
    assert found.letters is not None
    for position in range(windows.shape[1]):
        for letter in range(4):
            here = windows[:, position] == letter
            total = weights[here].sum()
            effect = np.average(kmers.margins[here], weights=weights[here]) - mean if total else 0.0
            assert found.letters.effects[position, letter, 0] == pytest.approx(effect, abs=1e-12)
            assert found.letters.weights[position, letter] == pytest.approx(total)
    assert found.letters.weights[4, :2].tolist() == [0.0, 0.0]  # the letters that do not occur


def test_columns_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    case = table_case()
    found = measure(case.model, case.data).features
    np.testing.assert_allclose(found.mean, case.columns.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.spread, case.columns.std(axis=0), atol=1e-12)
    contributions = case.columns * case.model.weights
    covariances = np.cov(contributions.T, contributions.sum(axis=1), ddof=0)[:-1, -1]
    np.testing.assert_allclose(found.share[:, 0], covariances / contributions.sum(axis=1).var())
    assert found.share.sum() == pytest.approx(1.0)
    nonzero = case.columns != 0
    assert np.array_equal(found.nonzero, nonzero.sum(axis=0)) and nonzero[:, 3].sum() == 100
    yes = case.data.target == "yes"
    np.testing.assert_allclose(found.positive, [yes[column].mean() for column in nonzero.T])
    # features 1 and 2 are the equal columns x1 and x3
    assert found.group[1] == found.group[2] and len(set(found.group.tolist())) == 3

    monkeypatch.setattr(columns, "MOST_FEATURES", 2)
    monkeypatch.setattr(columns, "MOST_VALUES", 100)
    few = measure(case.model, case.data).features
    assert few.indices.tolist() == [0, 3] and few.n_rows == 50
    np.testing.assert_allclose(few.mean, case.columns[::3][:, [0, 3]].mean(axis=0))


def test_training_rows_are_recognised(kmers: Case) -> None:
    assert not measure(kmers.model, kmers.data).is_training
    model = replace(kmers.model, fingerprint=kmers.data.fingerprint())
    assert measure(model, kmers.data).is_training


def test_a_bag_has_no_letters_at_places(bag: Case) -> None:
    longer = open_data(
        np.pad(bag.data.rows.read_all(), ((0, 0), (0, 9)), constant_values=4), y=bag.data.target
    )
    found = measure(bag.model, longer)
    assert found.letters is None
    assert found.predictions.extremes == measure(bag.model, bag.data).predictions.extremes


def test_contributions_of_letters(bag: Case) -> None:
    windows = bag.data.rows.read_all()
    motifs = [bag.model.family.motif(int(feature)) for feature in bag.model.ids]
    assert all(motif is not None and motif.both_strands for motif in motifs)
    for row in range(20):
        text = window_text(windows[row])
        own = bag.columns[row] * bag.model.weights
        pairs = [(m, v) for m, v in zip(motifs, own, strict=True) if m is not None and v]
        letters = letter_contributions(text, pairs)
        assert letters.sum() == pytest.approx(own.sum(), abs=1e-12)
        assert not letters[windows[row] == 4].any()  # unknown letters match only wildcards
    placed = [(Motif("A.G", 1), 0.5), (Motif("C", 0, 5), -0.25)]
    assert letter_contributions("CATG", placed).tolist() == [-0.25, 0.25, 0.0, 0.25]
    # AC, or GT on the other strand, occurs twice
    both = letter_contributions("ACNGT", [(Motif("AC", both_strands=True), 1.0)])
    assert both.tolist() == [0.25, 0.25, 0.0, 0.25, 0.25]


def test_hashes_of_columns() -> None:
    """Of 0/1 columns, hashes of the bare bits take columns that differ for equal once in two reports."""
    rng = np.random.default_rng(100)
    for _ in range(30):
        values = (rng.random((100, 2_000)) < 0.5).astype(np.float64)
        values[:, 1] = values[:, 0]
        sums = columns._ColumnSums(np.ones((2_000, 1)))
        for part in np.split(values, 2):
            sums.add(part, np.ones(50), np.ones(50))
        groups = sums.stats(np.arange(2_000), 100, 100.0).group
        assert groups[0] == groups[1] and len(np.unique(groups)) == 1_999


def test_columns_with_a_large_mean() -> None:
    values = np.stack([1.7e9 + RNG.normal(size=300), np.full(300, 0.1)], axis=1)
    sums = columns._ColumnSums(np.array([[1.0], [-2.0]]))
    for part in np.split(values, 3):
        sums.add(part, np.ones(100), np.ones(100))
    found = sums.stats(np.arange(2), 300, 300.0)
    np.testing.assert_allclose(found.spread, [values[:, 0].std(), 0.0], rtol=1e-6, atol=0.0)
    np.testing.assert_allclose(found.mean, values.mean(axis=0))


def test_the_sample_has_no_rows_of_weight_0(monkeypatch: pytest.MonkeyPatch) -> None:
    case = table_case()
    weights = np.where(np.arange(150) % 3 == 0, 0.0, 2.0)
    monkeypatch.setattr(columns, "MOST_ROWS", 50)
    monkeypatch.setattr(columns, "BLOCK_ROWS", 7)
    data = case.data.with_target(case.data.target, weights)
    found = measure(case.model, data).features
    assert found.n_rows == 50
    own = case.columns[weights > 0][::2]
    np.testing.assert_allclose(found.mean, own.mean(axis=0))
