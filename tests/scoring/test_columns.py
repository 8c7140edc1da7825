"""Columns of tables matched by name to those of a model, and sparse rows of other widths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fcl
from fcl.convert.contract import Layout
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.scoring.columns import ColumnMap, column_names
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


def test_names_that_contain_the_sign_of_a_product() -> None:
    """A description such as "age * a * b" is divided by what other features say of its columns."""
    names = ["age", "a * b", "b", "age * a"]
    data = fcl.open_data(pd.DataFrame(X[:, :4], columns=names), y=Y)
    model = fcl.train(data, "products:degree=2", C=0.1).model
    texts = [model.family.describe(i, names) for i in range(model.family.n_features)]
    some = [texts.index(text) for text in ("age", "age * a * b", "b")]
    for chosen, expected in ((some, {0: "age", 1: "a * b", 2: "b"}), (some[1:2], None)):
        ids = np.sort(chosen)
        ones = np.ones(len(ids), np.int64)
        few = replace(
            model, ids=ids, weights=ones * 1.0, support=ones, feature_names=[texts[i] for i in ids]
        )
        assert column_names(few) == expected


def test_columns_that_are_missing() -> None:
    model = trained("columns", FRAME)
    assert model.n_active == 6
    given = ["age", "a * b", "x=(1)", "colour=green"]
    with pytest.raises(
        InputError, match=r"t\.csv: the model reads the columns 'height', which the"
    ):
        BlockScorer(model).margins(X[:, :4], layout(given, 4), "t.csv")
    with pytest.raises(InputError, match="give --categorical colour, which has numbers here"):
        BlockScorer(model).margins(X, layout([*NAMES[:3], "colour", "more", "height"], 6), "t")
    # red and blue do not occur, so that their columns are 0
    scorer = BlockScorer(model)
    found = scorer.margins(X[:, [0, 1, 2, 3, 5]], layout([*given, "height"], 5), "t")
    zero = FRAME.assign(**{"colour=red": 0.0, "colour=blue": 0.0})
    np.testing.assert_allclose(found, model.margins(zero), rtol=1e-12)
    assert "columns: 2 values of categories do not occur, such as colour=red" in scorer.notes


def test_columns_of_large_numbers() -> None:
    given = ColumnMap(3, np.array([2**31 - 5, 4]), np.array([0, 2]))
    rows = SparseRows(
        np.array([0, 2, 5]),
        np.array([4, 2**31 - 5, 0, 3, 2**31 - 2], np.int32),
        np.arange(1.0, 6),
        0,
    )
    found = given.sparse(rows)
    assert found.indptr.tolist() == [0, 2, 2] and found.indices.tolist() == [2, 0]
    assert found.data.tolist() == [1.0, 2.0]
    nothing = ColumnMap(3, np.empty(0, np.int64), np.empty(0, np.int64)).sparse(rows)
    assert nothing.nnz == 0 and len(nothing) == 2


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
    (explained,) = scorer.explanations(rows, 9)
    np.testing.assert_allclose(explained.margins, found)
    assert scorer.notes[0].startswith("columns: 1 entries are beyond the 6 columns")


def test_models_that_do_not_fit() -> None:
    model = trained("columns", X)
    with pytest.raises(InputError, match=r"t\.fa has rows of sequences, but .* made for numbers"):
        BlockScorer(model).margins(np.zeros((1, 6), np.uint8), layout(None, 6, "codes"), "t.fa")
    with_offset = fcl.train(fcl.open_data(X, y=Y, offset=np.ones(90)), "columns", C=1.0).model
    with pytest.raises(InputError, match="trained with an offset, which these inputs lack"):
        BlockScorer(with_offset)
