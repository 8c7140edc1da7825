"""Columns matched by name to those that a model reads: frames, stored data, tables, sparse rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import fcl
from fcl.data.column_map import ColumnMap, refuse_mapped
from fcl.data.columns import ColumnRecord, Variant
from fcl.data.sparse import SparseRows
from fcl.model.columns import difference, record_of
from fcl.model.explain import ExplainedOutput, iter_explanations
from fcl.model.variants import orientation
from fcl.report.measured import measure
from fcl.scoring.margins import BlockScorer
from tests.model.conftest import (
    FRAME,
    NAMES,
    RECORD,
    TURNED,
    Y,
    layout,
    read_back,
    record_header,
    stored,
    trained,
)

RNG = np.random.default_rng(7)
X = FRAME.to_numpy()


@pytest.mark.parametrize(
    "features", ["columns", "products:degree=2", "columns + products:degree=2"]
)
def test_columns_are_matched_by_name(features: str) -> None:
    model = trained(features, FRAME)
    known = model.column_names
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


def test_columns_without_names() -> None:
    model = trained("columns", X)
    assert model.column_names is None and "column_names" not in model.header()
    np.testing.assert_array_equal(
        BlockScorer(model).margins(X, layout(NAMES, 6), "t"), model.margins(X)
    )
    # sparse rows may have fewer columns, or more, as svmlight files have
    rows = SparseRows(np.array([0, 1, 3]), np.array([0, 2, 9], np.int32), np.array([2.0, 1, 5]), 10)
    scorer = BlockScorer(model)
    found = scorer.margins(rows, layout(None, 0, "sparse"), "t.svm")
    np.testing.assert_allclose(
        found, model.margins(np.array([[2.0, *[0] * 5], [0, 0, 1, 0, 0, 0]]))
    )
    assert scorer.notes[0].startswith("columns: ignored 1 entry beyond the 6 columns")


class Derived(fcl.Columns):
    """A class whose features might read any columns, although it inherits what Columns says of them."""

    name = "tests.model.test_columns:Derived"


def check_ways(model: fcl.Model, rows: Any, opened: fcl.DataSet, expected: np.ndarray) -> None:
    """Every way to score rows gives the margins of the model."""
    (explained,) = iter_explanations(ExplainedOutput.of(model), opened, 2)
    measured = measure(model, opened).predictions.margins
    columns = model.columns(rows) @ model.weights + model.intercept
    for found in (
        model.margins(rows), model.margins(opened), model.explain(rows).margins, columns,
        explained.margins,
    ):  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(measured.values, np.unique(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "features", ["columns", "products:degree=2", "columns + products:degree=2", "fourier:n=64"]
)
def test_frames_are_read_by_name(features: str, tmp_path: Path) -> None:
    trained(features, FRAME).save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")
    expected = model.margins(X)  # without names, by position
    wider = FRAME[TURNED].assign(text="a", more=1.0)
    opened = fcl.open_data(wider.drop(columns="text"), y=Y)
    np.testing.assert_array_equal(model.margins(wider), expected)
    np.testing.assert_array_equal(model.margins(opened), expected)
    check_ways(model, wider, opened, expected)
    offset = model.margins(wider.assign(o=np.arange(90.0)), offset="o")
    np.testing.assert_allclose(offset, expected + np.arange(90), rtol=1e-12)


def test_frames_without_any_column_of_the_model() -> None:
    empty = trained("columns", FRAME, 1e-6)
    assert empty.column_names == {}
    assert set(empty.margins(FRAME[TURNED])) == {empty.intercept}


def test_columns_that_features_read() -> None:
    """Columns without a weight may be missing, unless features can read any column."""
    model = trained("products:degree=2", FRAME, 0.1)
    tuples = model.family.generator.numbering.tuples(model.ids[model.weights != 0])
    read = set(tuples[tuples >= 0].tolist())
    assert model.column_names is not None and read == model.column_names.keys() < set(range(6))
    alone = FRAME[[NAMES[column] for column in sorted(read, reverse=True)]]
    np.testing.assert_array_equal(model.margins(alone), model.margins(X))
    other = trained(Derived(), FRAME, 0.1)
    assert other.column_names == dict(enumerate(NAMES))


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["q", "zip"]])
def test_stored_data_in_another_order_are_read_by_name(more: list[str], tmp_path: Path) -> None:
    model = trained("columns", FRAME)
    weights = {row.feature: row.weight for row in model.describe()}
    expected = model.intercept + FRAME[[*weights]].to_numpy() @ [*weights.values()]
    same, none = stored(tmp_path / "a.zarr", NAMES), stored(tmp_path / "b.zarr", None)
    mixed = stored(tmp_path / "c.zarr", [*TURNED[:3], *more, *TURNED[3:]])
    opened, train = fcl.open_data(mixed), fcl.open_data(FRAME, y=Y)
    for rows in (same, none):
        np.testing.assert_allclose(model.margins(rows), expected, rtol=1e-12)
    check_ways(model, mixed, opened, expected)
    estimator = fcl.FCLClassifier().fit(same)
    np.testing.assert_array_equal(estimator.predict(mixed), estimator.predict(same))
    for driver in ("inline", "processes:writers=1"):
        options: dict[str, Any] = {"C": 1.0, "driver": driver}
        first, second = (
            fcl.train(train, "columns", valid=rows, **options) for rows in (opened, train)
        )
        assert first.history[-1]["validation"] == second.history[-1]["validation"]
    # an initial model's weights move to the columns of the training rows, whatever their number
    for rows in (fcl.open_data(stored(tmp_path / "d.zarr", TURNED)), opened):
        again = fcl.train(rows, "columns", C=2.0, tol=2.0 * model.certificate.gap, initial=model)
        assert again.passes == 2


def test_facts_of_another_form_are_not_known(tmp_path: Path) -> None:
    for n, attribute in enumerate(({"first_id": 7, "scale": "x", "options": 3}, "text")):
        path = stored(tmp_path / f"{n}.zarr", NAMES)
        zarr.open_group(path, mode="a").attrs["fcl"] = attribute
        data = fcl.open_data(path)
        assert data.column_record.first_id is None
        refuse_mapped(data.rows, path)  # workers of a cluster read columns in their order


def test_the_difference_of_columns_names_one() -> None:
    renamed = ["q" if name == "height" else name for name in NAMES]
    message = difference(ColumnRecord(dict(enumerate(NAMES))), ColumnRecord(renamed))
    assert "'height' there, which is missing" in message


def test_a_certificate_needs_all_columns(tmp_path: Path) -> None:
    """Rows in another order have the same certificate; columns that the model does not read count."""
    model = trained("columns", FRAME, 0.05)
    assert 0 < model.n_active < 6
    expected = fcl.certify(model, fcl.open_data(FRAME, y=Y), C=1.0, top=6)
    frame, group = fcl.open_data(FRAME[TURNED], y=Y), fcl.open_data(stored(tmp_path / "a", TURNED))
    for data in (frame, group):
        found = fcl.certify(model, data, C=1.0, top=6)
        assert found.own_gap == pytest.approx(expected.own_gap, rel=1e-9)
        assert found.own_gap > 0.01  # the model is of another C
        names = {each.feature for each in found.violators}
        assert names == {each.feature for each in expected.violators} and "" not in names


def test_very_long_names(tmp_path: Path) -> None:
    """Names that differ after a million letters stay apart, and a model does not store them."""
    long = {name: name + "z" * (1 << 20) + name for name in NAMES}
    model = trained("columns", FRAME.rename(columns=long))
    model.save(tmp_path / "m.fcl")
    assert (tmp_path / "m.fcl").stat().st_size < 100_000
    order = FRAME[TURNED].rename(columns=long)
    np.testing.assert_array_equal(model.margins(order), model.margins(X))
    record = record_of(model.family, model.ids, ColumnRecord(list(long.values())))
    assert record.column_names == model.column_names


def test_columns_of_large_numbers() -> None:
    given = ColumnMap(3, np.array([2**31 - 5, 4]), np.array([0, 2]), n_given=2**31)
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


# -- the record in files ---------------------------------------------------------------------------


def test_a_record_is_kept_in_a_file() -> None:
    for record in (RECORD, ColumnRecord(), ColumnRecord(first_id=0), ColumnRecord({})):
        assert read_back(record_header(record)) == record
    # a model of an earlier version has no key "columns"
    old = record_header(RECORD)
    del old["columns"]
    found = read_back(old)
    assert found.names == RECORD.names and found.first_id is None and not found.categories
    assert found.variants_at([0]) == {0: Variant("A", "G", 0.5)}


@pytest.mark.parametrize(
    ("alleles", "expected"),
    [("AG", False), ("ag", False), ("Ga", True), ("0a", True), ("CT", None)],
)
def test_alleles_in_lower_case(alleles: str, expected: bool | None) -> None:
    wanted, given = (Variant(each[0], each[1]) for each in ("AG", alleles))
    assert orientation(wanted, given) is expected
