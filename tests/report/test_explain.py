"""Contributions of rows: exact, for every kind of family."""

from __future__ import annotations

import numpy as np
import pytest

from fcl.model import explain
from tests.report.conftest import Case, bag_case, kmer_case, table_case

CASES = {
    "kmers": kmer_case,
    "bag": bag_case,
    "columns": table_case,
    "products": lambda: table_case("products:degree=2"),
}


@pytest.mark.parametrize("name", CASES)
def test_contributions_add_up_to_the_margins(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "BLOCK_BYTES", 64 * 8 * 5)  # several blocks of 64 rows
    case = CASES[name]()
    model, data = case.model, case.data.with_offset(np.linspace(-1, 1, case.data.n_rows))
    expected = case.columns * model.weights
    whole = model.explain(data)
    np.testing.assert_allclose(whole.margins, case.margins + data.offset, rtol=0, atol=1e-12)
    assert not whole.others.any()
    placed = np.zeros_like(expected)
    np.put_along_axis(placed, whole.indices, whole.contributions, axis=1)
    np.testing.assert_allclose(placed, expected, rtol=1e-12)

    np.testing.assert_allclose(model.columns(data).toarray(), case.columns, rtol=1e-12)


def test_the_words_of_a_row(kmers: Case) -> None:
    explained = kmers.model.explain(kmers.data, top=3)
    row = int(np.argmax(np.abs(kmers.columns).sum(axis=1)))
    found = explained.row(row)
    sizes = [abs(c.contribution) for c in found]
    assert sizes == sorted(sizes, reverse=True)
    words = [kmers.model.family.describe(int(i)) for i in kmers.model.ids]
    for c in found:
        index = words.index(c.feature)
        assert (c.weight, c.value) == (kmers.model.weights[index], kmers.columns[row, index])
    frame = explained.to_dataframe()
    assert list(frame.columns) == ["row", "rank", "feature", "weight", "value", "contribution"]
    assert frame["rank"].min() == 1
    assert len(frame) == np.count_nonzero(explained.contributions)
    assert frame[frame.row == row].feature.tolist() == [c.feature for c in found]
