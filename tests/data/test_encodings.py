"""Columns of tables and matrices in the layout of anndata: read from every container."""

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import open_data

CODES = np.array([1, 0, 0, 2, 1, 0], np.int8)
CATEGORIES = np.array(["B cell", "T cell", "né"])
X = np.arange(12, dtype=np.float32).reshape(6, 2)


def tree(**columns):
    """A table ``obs`` beside a dense X."""
    table = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "names"}
    names = np.array([f"cell {i}" for i in range(6)])
    parts = {"X": (X, {"encoding-type": "array"}), "obs": (None, table), "obs/names": (names, {})}
    for name, column in columns.items():
        for part, (values, attributes) in column.items():
            parts[f"obs/{name}{part}"] = (values, attributes)
    return parts


def categorical(codes=CODES, categories=CATEGORIES, version="0.2.0", **attributes):
    group = {"encoding-type": "categorical", "encoding-version": version, "ordered": False}
    kind = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
    return {
        "": (None, group | attributes),
        "/codes": (codes, {}),
        "/categories": (categories, kind),
    }


def nullable(values, mask, kind="nullable-boolean", version="0.1.0"):
    group = {"encoding-type": kind, "encoding-version": version}
    return {"": (None, group), "/values": (values, {}), "/mask": (mask, {})}


def plain(values, **attributes):
    return {"": (values, attributes)}


KEPT = np.zeros(6, bool)
NUMBERS, LETTERS = np.array([1.5, 2, 9]), np.array([b"a", b"b", b"c"], "S1")
COLUMNS = {
    "texts": (categorical(), CATEGORIES[CODES]),
    "integers": (categorical(categories=np.array([10, 20, 30])), 10 * CODES + 10),
    "fractions": (categorical(categories=NUMBERS), NUMBERS[CODES]),
    "bytes": (categorical(categories=LETTERS), LETTERS[CODES]),
    "patched version": (categorical(version="0.2.7"), CATEGORIES[CODES]),
    "plain texts": (plain(CATEGORIES[CODES]), CATEGORIES[CODES]),
    "plain booleans": (plain(CODES > 0), CODES > 0),
    "plain fractions": (plain(CODES.astype(np.float64)), CODES),
    "an attribute of the same name": (plain(CODES, categories="B cell, T cell"), CODES),
    "nullable booleans": (nullable(CODES > 0, KEPT), CODES > 0),
    "nullable integers": (nullable(CODES, KEPT, "nullable-integer"), CODES),
    "nullable texts": (nullable(CATEGORIES[CODES], KEPT, "nullable-string-array"), CATEGORIES[CODES]),
}  # fmt: skip


def check_label(source, expected):
    """The column of the table, from the root and from the group of the table."""
    dataset = open_data(source, x="X", y="obs/label")
    assert dataset.target_name == source.rpartition("/")[2] + ":obs/label"
    np.testing.assert_array_equal(dataset.target, expected)
    np.testing.assert_array_equal(dataset.rows.read(0, 6), X)
    inside = open_data(f"{source}::/obs", x="names", y="label")
    np.testing.assert_array_equal(inside.target, expected)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", COLUMNS)
def test_labels_of_a_table(tree_kind, write_tree, name):
    if tree_kind == "zarr3-tree" and name == "bytes":
        pytest.skip("bytes of fixed length have no final specification in format 3")
    column, expected = COLUMNS[name]
    check_label(write_tree(tree_kind, tree(label=column)), expected)


@pytest.mark.parametrize("form", ["reference", "path"])
def test_categories_apart_as_in_old_files(tree_kind, write_tree, form):
    parts = tree(label={"": (CODES, {})})
    parts |= {"obs/__categories": (None, {}), "obs/__categories/label": (CATEGORIES, {})}
    source = write_tree(tree_kind, parts)
    if tree_kind.startswith("zarr"):
        zarr.open(source)["obs/label"].attrs["categories"] = "__categories/label"
    else:
        with h5py.File(source, "a") as file:
            target = file["obs/__categories/label"]
            file["obs/label"].attrs["categories"] = (
                target.ref if form == "reference" else "__categories/label"
            )
    check_label(source, CATEGORIES[CODES])


def test_weights_of_a_table(tree_kind, write_tree):
    weights = np.arange(6) + 1.0
    source = write_tree(tree_kind, tree(w=nullable(weights, weights < 0, "nullable-integer")))
    np.testing.assert_array_equal(open_data(source, y=None, weights="obs/w").weights, weights)
