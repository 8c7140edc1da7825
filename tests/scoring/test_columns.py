"""Columns of tables matched by name to those of a model, and sparse rows of other widths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from fcl.scoring.columns import column_names

import fcl
from fcl.convert.contract import Layout
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.scoring.margins import BlockScorer

RNG = np.random.default_rng(6)
NAMES = ["age", "a * b", "x=(1)", "colour=red", "colour=blue", "height"]
X = RNG.normal(size=(90, 6))
FRAME = pd.DataFrame(X, columns=NAMES)
Y = X[:, 0] + X[:, 1] * X[:, 3] - X[:, 4] ** 2 + X[:, 2] > 0


def trained(features: str, data: Any) -> fcl.Model:
    return fcl.train(fcl.open_data(data, y=Y), features, C=2.0).model


def layout(names: list[str] | None, width: int, kind: Any = "dense") -> Layout:
    return Layout(kind, np.dtype(np.float64), width, names)


@pytest.mark.parametrize(
    "features", ["columns", "products:degree=2", "columns + products:degree=2"]
)
def test_columns_are_matched_by_name(features: str) -> None:
    model = trained(features, FRAME)
    known = column_names(model)
    assert known and all(NAMES[column] == name for column, name in known.items())
    order = RNG.permutation(8)
    names = [[*NAMES, "more", "zip"][i] for i in order]
    mixed = np.column_stack([X, RNG.normal(size=(90, 2))])[:, order]
    scorer = BlockScorer(model)
    found = scorer.margins(mixed, layout(names, 8), "t.csv")
    np.testing.assert_allclose(found, model.margins(FRAME), rtol=1e-12)
    assert scorer.notes == [f"columns: {len(known)} read, by name; {8 - len(known)} more ignored"]
    rows, columns = np.nonzero(mixed)
    indptr = np.searchsorted(rows, np.arange(91))
    sparse = SparseRows(indptr, columns.astype(np.int32), mixed[rows, columns], 0)
    again = BlockScorer(model).margins(sparse, layout(names, 0, "sparse"), "t.csv")
    np.testing.assert_allclose(again, found, rtol=1e-12)


def test_columns_that_are_missing() -> None:
    model = trained("columns", FRAME)
    assert model.n_active == 6
    given = ["age", "a * b", "x=(1)", "colour=green"]
    with pytest.raises(
        InputError, match=r"t\.csv: the model reads the columns 'height', which the"
    ):
        BlockScorer(model).margins(X[:, :4], layout(given, 4), "t.csv")
    # red and blue do not occur, so that their columns are 0
    scorer = BlockScorer(model)
    found = scorer.margins(X[:, [0, 1, 2, 3, 5]], layout([*given, "height"], 5), "t")
    zero = FRAME.assign(**{"colour=red": 0.0, "colour=blue": 0.0})
    np.testing.assert_allclose(found, model.margins(zero), rtol=1e-12)
    assert "columns: 2 values of categories do not occur, such as colour=red" in scorer.notes


def test_columns_without_names() -> None:
    model = trained("columns", X)
    assert column_names(model) is None
    np.testing.assert_array_equal(
        BlockScorer(model).margins(X, layout(NAMES, 6), "t"), model.margins(X)
    )
    with pytest.raises(InputError, match=r"t has 5 columns, but the model has no names .* with 6;"):
        BlockScorer(model).margins(X[:, :5], layout(NAMES[:5], 5), "t")
    # sparse rows may have fewer columns, or more, as svmlight files have
    rows = SparseRows(np.array([0, 1, 3]), np.array([0, 2, 9], np.int32), np.array([2.0, 1, 5]), 10)
    scorer = BlockScorer(model)
    found = scorer.margins(rows, layout(None, 0, "sparse"), "t.svm")
    np.testing.assert_allclose(
        found, model.margins(np.array([[2.0, *[0] * 5], [0, 0, 1, 0, 0, 0]]))
    )
    assert scorer.notes[0].startswith("columns: 1 entries are beyond the 6 columns")


def test_models_that_do_not_fit() -> None:
    model = trained("columns", X)
    with pytest.raises(InputError, match=r"t\.fa has rows of sequences, but .* made for numbers"):
        BlockScorer(model).margins(np.zeros((1, 6), np.uint8), layout(None, 6, "codes"), "t.fa")
    with_offset = fcl.train(fcl.open_data(X, y=Y, offset=np.ones(90)), "columns", C=1.0).model
    with pytest.raises(InputError, match="trained with an offset, which these inputs lack"):
        BlockScorer(with_offset)
