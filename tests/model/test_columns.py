"""Columns matched by name to those that a model reads: frames, stored data, tables, sparse rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fcl
from fcl.convert.contract import Layout
from fcl.data.column_map import ColumnMap, refuse_mapped
from fcl.data.columns import ColumnRecord, KnownVariants, Variant
from fcl.data.sparse import SparseRows
from fcl.errors import InputError
from fcl.model import schema
from fcl.model.column_file import COLUMN_KEYS, record_from_header, record_to_header
from fcl.model.columns import difference, matched, record_of
from fcl.model.explain import iter_explanations
from fcl.model.variants import orientation
from fcl.report.measured import measure
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


def test_columns_that_are_missing() -> None:
    model = trained("columns", FRAME)
    assert model.n_active == 6
    given = ["age", "a * b", "x=(1)", "colour=green"]
    with pytest.raises(
        InputError,
        match=r"t\.csv: the model reads the columns 'colour=red', 'colour=blue', 'height', which the",
    ):
        BlockScorer(model).margins(X[:, :4], layout(given, 4), "t.csv")


def test_columns_without_names() -> None:
    model = trained("columns", X)
    assert model.column_names is None and "column_names" not in model.header()
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
    assert scorer.notes[0].startswith("columns: ignored 1 entry beyond the 6 columns")


def test_models_that_do_not_fit() -> None:
    model = trained("columns", X)
    with pytest.raises(InputError, match=r"t\.fa has rows of sequences, but .* made for numbers"):
        BlockScorer(model).margins(np.zeros((1, 6), np.uint8), layout(None, 6, "codes"), "t.fa")
    with_offset = fcl.train(fcl.open_data(X, y=Y, offset=np.ones(90)), "columns", C=1.0).model
    with pytest.raises(InputError, match="trained with an offset, which these inputs lack"):
        BlockScorer(with_offset)


MIXED = ["colour=red", "height", "age", "colour=blue", "x=(1)", "a * b"]


class Derived(fcl.Columns):
    """A class whose features might read any columns, although it inherits what Columns says of them."""

    name = "tests.model.test_columns:Derived"


def stored(folder: Path, names: list[str] | None) -> str:
    """FRAME as Zarr data in the layout of anndata, with its columns in the order of ``names``."""
    import zarr

    group = zarr.open_group(folder, mode="w", zarr_format=2)
    group.create_array(
        "X", data=X if names is None else FRAME.assign(q=9.0, zip=-3.0)[names].to_numpy()
    )
    group.create_array("y", data=Y.astype(np.int64))
    if names is not None:
        var = group.create_group("var", attributes={"_index": "_index"})
        var.create_array("_index", data=np.array(names, "U"))
    return str(folder)


@pytest.mark.parametrize(
    "features", ["columns", "products:degree=2", "columns + products:degree=2", "fourier:n=64"]
)
def test_frames_are_read_by_name(features: str, tmp_path: Path) -> None:
    """Every way to score a frame in another order, with more columns, gives the margins of the model."""
    trained(features, FRAME).save(tmp_path / "m.fcl")
    model = fcl.load_model(tmp_path / "m.fcl")
    expected = model.margins(X)  # without names, by position
    wider = FRAME[MIXED].assign(text="a", more=1.0)
    np.testing.assert_array_equal(model.margins(wider), expected)
    opened = fcl.open_data(wider.drop(columns="text"), y=Y)
    np.testing.assert_array_equal(model.margins(opened), expected)
    np.testing.assert_allclose(model.explain(wider).margins, expected, rtol=1e-12, atol=1e-12)
    (explained,) = iter_explanations(model, opened, 2)
    np.testing.assert_allclose(explained.margins, expected, rtol=1e-12, atol=1e-12)
    columns = model.columns(wider) @ model.weights + model.intercept
    np.testing.assert_allclose(columns, expected, rtol=1e-12, atol=1e-12)
    measured = measure(model, opened).predictions.margins.values
    np.testing.assert_allclose(measured, np.unique(expected), rtol=1e-12, atol=1e-12)
    offset = model.margins(wider.assign(o=np.arange(90.0)), offset="o")
    np.testing.assert_allclose(offset, expected + np.arange(90), rtol=1e-12)
    with pytest.raises(InputError, match="data frame: the model reads the columns 'age', which"):
        model.margins(FRAME.drop(columns="age"))


def test_frames_without_any_column_of_the_model() -> None:
    model = trained("columns", FRAME)
    with pytest.raises(InputError, match=r"the model reads the columns 'age', .* and 1 more"):
        model.margins(FRAME.rename(columns=str.upper))
    empty = fcl.train(fcl.open_data(FRAME, y=Y), "columns", C=1e-6).model
    assert empty.column_names == {}
    assert set(empty.margins(FRAME[MIXED])) == {empty.intercept}


def test_columns_that_features_read() -> None:
    """Columns without a weight may be missing, unless features can read any column."""
    model = fcl.train(fcl.open_data(FRAME, y=Y), "products:degree=2", C=0.1).model
    tuples = model.family.generator.numbering.tuples(model.ids[model.weights != 0])
    read = set(tuples[tuples >= 0].tolist())
    assert model.column_names is not None and read == model.column_names.keys() < set(range(6))
    alone = FRAME[[NAMES[column] for column in sorted(read, reverse=True)]]
    np.testing.assert_array_equal(model.margins(alone), model.margins(X))
    other = fcl.train(fcl.open_data(FRAME, y=Y), Derived(), C=0.1).model
    assert other.column_names == dict(enumerate(NAMES))


def margins_of(model: fcl.Model) -> np.ndarray:
    """Margins of X from the weights alone."""
    weights = {row.feature: row.weight for row in model.describe()}
    margins: np.ndarray = model.intercept + FRAME[[*weights]].to_numpy() @ [*weights.values()]
    return margins


@pytest.mark.parametrize("more", [[], ["q", "zip"]])
def test_stored_data_in_another_order_are_read_by_name(more: list[str], tmp_path: Path) -> None:
    """Every way to score them gives the same margins; so do validation rows of each driver."""
    model = trained("columns", FRAME)
    expected = margins_of(model)
    same, none = stored(tmp_path / "a.zarr", NAMES), stored(tmp_path / "b.zarr", None)
    mixed = stored(tmp_path / "c.zarr", [*MIXED[:3], *more, *MIXED[3:]])
    opened, train = fcl.open_data(mixed), fcl.open_data(FRAME, y=Y)
    for rows in (same, none, mixed, opened):
        np.testing.assert_allclose(model.margins(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(model.explain(opened).margins, expected, rtol=1e-12)
    columns = model.columns(mixed) @ model.weights + model.intercept
    np.testing.assert_allclose(columns, expected, rtol=1e-12)
    measured = measure(model, opened).predictions.margins.values
    np.testing.assert_allclose(measured, np.unique(expected), rtol=1e-12)
    (explained,) = iter_explanations(model, opened, 1)
    np.testing.assert_allclose(explained.margins, expected, rtol=1e-12)
    estimator = fcl.FCLClassifier().fit(same)
    np.testing.assert_array_equal(estimator.predict(mixed), estimator.predict(same))
    for driver in ("inline", "processes"):
        results = [
            fcl.train(train, "columns", C=1.0, valid=rows, driver=driver, writers=1)
            for rows in (opened, train)
        ]
        first, second = (result.history[-1]["validation"] for result in results)
        assert first == second
    # an initial model's weights move to the columns of the training rows, whatever their number
    for rows in (fcl.open_data(stored(tmp_path / "d.zarr", MIXED)), opened):
        again = fcl.train(rows, "columns", C=2.0, tol=2.0 * model.certificate.gap, initial=model)
        assert again.passes == 2
    products = fcl.train(train, "products", C=1.0).model
    seven = fcl.open_data(stored(tmp_path / "e.zarr", [*MIXED, "q"]))
    message = r"initial: expected a model of the same features; .* is \d+ here, \d+ in the model"
    with pytest.raises(InputError, match=message):
        fcl.train(seven, "products", C=1.0, initial=products)


def test_stored_data_without_a_column(tmp_path: Path) -> None:
    model = trained("columns", FRAME)
    renamed = ["q" if name == "height" else name for name in NAMES]
    message = difference(ColumnRecord(dict(enumerate(NAMES))), ColumnRecord(renamed))
    assert "'height' there, which is missing" in message
    lacking = stored(tmp_path / "a.zarr", NAMES[:5])
    with pytest.raises(InputError, match=r"a\.zarr: the model reads the columns 'height', which"):
        model.margins(lacking)
    twice = FRAME.to_numpy()
    data = fcl.open_data(twice, y=None)
    data.column_record = ColumnRecord(["height", "age", *NAMES[1:4], "age"])
    with pytest.raises(InputError, match="several columns are called 'age'; rename them"):
        model.margins(data)


def test_a_certificate_needs_all_columns(tmp_path: Path) -> None:
    """Rows in another order have the same certificate; columns that the model does not read count."""
    model = fcl.train(fcl.open_data(FRAME, y=Y), "columns", C=0.05).model
    assert 0 < model.n_active < 6
    expected = fcl.certify(model, fcl.open_data(FRAME, y=Y), C=1.0, top=6)
    for data in (
        fcl.open_data(FRAME[MIXED], y=Y),
        fcl.open_data(stored(tmp_path / "a.zarr", MIXED)),
    ):
        found = fcl.certify(model, data, C=1.0, top=6)
        assert found.own_gap == pytest.approx(expected.own_gap, rel=1e-9)
        assert found.own_gap > 0.01  # the model is of another C
        names = {each.feature for each in found.violators}
        assert names == {each.feature for each in expected.violators} and "" not in names
    read = list((model.column_names or {}).values())
    for frame in (FRAME[read], FRAME.assign(more=1.0)):
        with pytest.raises(
            InputError, match="expected all columns of the training data and no others"
        ):
            fcl.certify(model, fcl.open_data(frame, y=Y))


def test_a_job_is_not_resumed_on_other_columns(tmp_path: Path) -> None:
    data = fcl.open_data(stored(tmp_path / "a.zarr", NAMES))
    fcl.train(data, "columns", C=1.0, checkpoint=tmp_path / "c")
    other = fcl.open_data(stored(tmp_path / "b.zarr", MIXED))
    with pytest.raises(InputError, match="its features had other columns"):
        fcl.train(other, "columns", C=1.0, resume=tmp_path / "c")


def test_very_long_names(tmp_path: Path) -> None:
    """Names that differ after a million letters stay apart, and a model does not store them."""
    long = {name: name + "z" * (1 << 20) + name for name in NAMES}
    model = trained("columns", FRAME.rename(columns=long))
    model.save(tmp_path / "m.fcl")
    assert (tmp_path / "m.fcl").stat().st_size < 100_000
    order = FRAME[MIXED].rename(columns=long)
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

RECORD = ColumnRecord(
    {0: "rs1", 4: "c=2"},
    first_id=1,
    variants=KnownVariants({0: Variant("A", "G", 0.5, "X", 7), 4: Variant("C", "0", 1.5)}),
    means={"rs1": 0.25},
    categories={"c": ["2", "u"]},
    offset="obs/o",
)


def header_of(record: ColumnRecord) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(json.dumps(record_to_header(record)))
    return header


def read_back(header: dict[str, Any]) -> ColumnRecord:
    return record_from_header(schema.record(**COLUMN_KEYS)("", header))


def test_a_record_is_kept_in_a_file() -> None:
    for record in (RECORD, ColumnRecord(), ColumnRecord(first_id=0), ColumnRecord({})):
        assert read_back(header_of(record)) == record
    # a model of an earlier version has no key "columns"
    old = header_of(RECORD)
    del old["columns"]
    found = read_back(old)
    assert found.names == RECORD.names and found.first_id is None and not found.categories
    assert found.variants_at([0]) == {0: Variant("A", "G", 0.5)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("first_id", 2),
        ("first_id", "0"),
        ("first_id", True),
        ("scale", 0),
        ("scale", None),
        ("places", [[0, "1", 0]]),
        ("places", [[0, 1, 5]]),
        ("places", {"0": "1"}),
        ("means", [["a", None]]),
        ("means", [["a"]]),
        ("categories", [["a", "b"]]),
        ("categories", [["a", [1]]]),
        ("offset", 3),
    ],
)
def test_a_wrong_record_in_a_file_is_refused(key: str, value: Any) -> None:
    header = header_of(RECORD)
    header["columns"][key] = value
    with pytest.raises(schema.Mismatch, match=f"columns.{key}"):
        read_back(header)


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ({"means": [1]}, "expected means in the attribute fcl"),
        ({"means": {"a": "x"}}, "expected means"),
        ({"categories": {"a": "xy"}}, "expected categories"),
        ({"filled": {"a": 0.5}}, "expected filled"),
        ({"first_id": 7, "scale": "x", "options": 3}, ""),
        ("text", ""),
    ],
)
def test_attributes_of_another_form(attribute: Any, message: str, tmp_path: Path) -> None:
    """Facts of another form are refused, or not known."""
    import zarr

    path = stored(tmp_path / "a.zarr", NAMES)
    zarr.open_group(path, mode="a").attrs["fcl"] = attribute
    if message:
        with pytest.raises(InputError, match=message):
            fcl.open_data(path)
        return
    assert fcl.open_data(path).column_record.first_id is None


def test_workers_of_a_cluster_do_not_turn_columns(tmp_path: Path) -> None:
    data = matched(fcl.open_data(stored(tmp_path / "a.zarr", MIXED)), ColumnRecord(NAMES), 6)
    with pytest.raises(InputError, match=r"a\.zarr: expected the columns of the training data in"):
        refuse_mapped(data.rows, data.name)
    refuse_mapped(fcl.open_data(X, y=None).rows, "X")


@pytest.mark.parametrize(
    ("alleles", "expected"),
    [("AG", False), ("ag", False), ("Ga", True), ("0a", True), ("CT", None)],
)
def test_alleles_in_lower_case(alleles: str, expected: bool | None) -> None:
    wanted, given = (Variant(each[0], each[1]) for each in ("AG", alleles))
    assert orientation(wanted, given) is expected
