"""What the report measures on rows, against explicit columns; letters of single windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fcl.data import open_data
from fcl.errors import InputError
from fcl.features.motif import Motif
from fcl.report import measured
from fcl.report.letters import letter_contributions, window_text
from fcl.report.measured import measure
from tests.report.conftest import Case, table_case


def test_margins_and_effects_of_letters(kmers: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "BLOCK_ROWS", 64)
    found = measure(kmers.model, kmers.data)
    np.testing.assert_allclose(found.margins, kmers.margins, atol=1e-12)
    assert np.array_equal(found.y > 0, kmers.data.target == "yes")
    weights, windows = kmers.data.weights, kmers.data.rows.read_all()
    mean = np.average(kmers.margins, weights=weights)
    assert found.letters is not None
    for position in range(windows.shape[1]):
        for letter in range(4):
            here = windows[:, position] == letter
            total = weights[here].sum()
            effect = np.average(kmers.margins[here], weights=weights[here]) - mean if total else 0.0
            assert found.letters.effects[position, letter] == pytest.approx(effect, abs=1e-12)
            assert found.letters.weights[position, letter] == pytest.approx(total)
    assert found.letters.weights[4, :2].tolist() == [0.0, 0.0]  # the letters that do not occur


def test_columns_of_features(monkeypatch: pytest.MonkeyPatch) -> None:
    case = table_case()
    found = measure(case.model, case.data).features
    contributions = case.columns * case.model.weights
    np.testing.assert_allclose(found.mean, contributions.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.spread, contributions.std(axis=0), atol=1e-12)
    nonzero = case.columns != 0
    assert np.array_equal(found.nonzero, nonzero.sum(axis=0)) and nonzero[:, 3].sum() == 100
    yes = case.data.target == "yes"
    np.testing.assert_allclose(found.positive, [yes[column].mean() for column in nonzero.T])
    # features 1 and 2 are the equal columns x1 and x3
    assert found.group[1] == found.group[2] and len(set(found.group.tolist())) == 3

    monkeypatch.setattr(measured, "MOST_FEATURES", 2)
    monkeypatch.setattr(measured, "MOST_VALUES", 100)
    monkeypatch.setattr(measured, "LEAST_ROWS", 10)
    few = measure(case.model, case.data).features
    assert few.indices.tolist() == [0, 3] and few.n_rows == 50
    np.testing.assert_allclose(few.mean, contributions[::3][:, [0, 3]].mean(axis=0))


def test_training_rows_are_recognised(kmers: Case) -> None:
    assert not measure(kmers.model, kmers.data).is_training
    model = replace(kmers.model, fingerprint=kmers.data.fingerprint())
    assert measure(model, kmers.data).is_training


def test_targets_that_do_not_fit(kmers: Case) -> None:
    windows = kmers.data.rows.read_all()
    with pytest.raises(InputError, match=r"expected a target .* got none"):
        measure(kmers.model, open_data(windows, y=None))
    other = np.where(np.arange(len(windows)) == 7, "maybe", "yes")
    with pytest.raises(InputError, match=r"'no' and 'yes', got .*'maybe'.* in row 7"):
        measure(kmers.model, open_data(windows, y=other))
    with pytest.raises(InputError, match="regression target must be"):
        measure(table_case(labels=None, loss="squared").model, open_data(windows, y=other))


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
