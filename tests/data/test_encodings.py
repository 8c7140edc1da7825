"""Columns of tables and matrices in the layout of anndata: read from every container, or refused."""

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr

from fcl.data import open_data
from fcl.errors import InputError

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


def refusal(source, **keywords):
    with pytest.raises(InputError) as caught:
        open_data(source, **keywords)
    return str(caught.value)


@pytest.mark.parametrize("categories", [
    CATEGORIES, np.array([10, 20, 30]), np.array([1.5, 2, 9]), np.array([b"a", b"b", b"c"], "S1"),
])  # fmt: skip
def test_categorical_labels(tree_kind, write_tree, categories):
    if tree_kind == "zarr3-tree" and categories.dtype.kind == "S":
        pytest.skip("bytes of fixed length have no final specification in format 3")
    source = write_tree(tree_kind, tree(label=categorical(categories=categories)))
    dataset = open_data(source, x="X", y="obs/label")
    assert dataset.target_name == source.rpartition("/")[2] + ":obs/label"
    np.testing.assert_array_equal(dataset.target, categories[CODES])
    np.testing.assert_array_equal(dataset.rows.read(0, 6), X)
    inside = open_data(f"{source}::/obs", x="names", y="label")
    np.testing.assert_array_equal(inside.target, categories[CODES])


def test_labels_of_a_table_as_plain_arrays(tree_kind, write_tree):
    for values in (CATEGORIES[CODES], CODES > 0, CODES.astype(np.float64)):
        source = write_tree(tree_kind, tree(label={"": (values, {})}))
        np.testing.assert_array_equal(open_data(source, y="obs/label").target, values)


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
    np.testing.assert_array_equal(open_data(source, y="obs/label").target, CATEGORIES[CODES])
    inside = open_data(f"{source}::/obs", x="names", y="label")
    np.testing.assert_array_equal(inside.target, CATEGORIES[CODES])


def test_other_attributes_called_categories_do_not_matter(tree_kind, write_tree):
    source = write_tree(tree_kind, tree(label={"": (CODES, {"categories": "B cell, T cell"})}))
    np.testing.assert_array_equal(open_data(source, y="obs/label").target, CODES)


@pytest.mark.parametrize(("values", "kind"), [
    (CODES > 0, "nullable-boolean"), (CODES, "nullable-integer"),
    (CATEGORIES[CODES], "nullable-string-array"),
])  # fmt: skip
def test_nullable_columns(tree_kind, write_tree, values, kind):
    mask = np.zeros(6, bool)
    source = write_tree(tree_kind, tree(label=nullable(values, mask, kind)))
    np.testing.assert_array_equal(open_data(source, y="obs/label").target, values)
    mask[[3, 4]] = True
    source = write_tree(tree_kind, tree(label=nullable(values, mask, kind)))
    assert refusal(source, y="obs/label").endswith(
        ":obs/label: row 3 has no value (2 such rows of 6); drop these rows, or fill in their values"
    )


def test_weights_of_a_table(tree_kind, write_tree):
    weights = np.arange(6) + 1.0
    source = write_tree(tree_kind, tree(w=nullable(weights, weights < 0, "nullable-integer")))
    np.testing.assert_array_equal(open_data(source, y=None, weights="obs/w").weights, weights)


def test_missing_labels_are_named(tree_kind, write_tree):
    codes = np.array([0, 1, -1, 2, -1, 0], np.int8)
    source = write_tree(tree_kind, tree(label=categorical(codes)))
    assert refusal(source, y="obs/label") == (
        f"{source.rpartition('/')[2]}:obs/label: row 2 has no value (2 such rows of 6); drop these "
        "rows, or fill in their values"
    )


def test_codes_without_a_category(tree_kind, write_tree):
    for bad in (3, -2):
        codes = np.array([0, 1, 2, 2, bad, 0])
        message = refusal(write_tree(tree_kind, tree(label=categorical(codes))), y="obs/label")
        assert f"row 4 has the code {bad}, but there are 3 categories" in message
    codes = np.array([0, 1, 2, 2, 255, 0], np.uint8)
    message = refusal(write_tree(tree_kind, tree(label=categorical(codes))), y="obs/label")
    assert "row 4 has the code 255" in message
    message = refusal(write_tree(tree_kind, tree(label=categorical(codes / 2))), y="obs/label")
    assert "obs/label/codes has dtype float64; expected integers" in message


def test_no_category_at_all(tree_kind, write_tree):
    parts = categorical(np.full(6, -1, np.int8), np.empty(0, np.int64))
    message = refusal(write_tree(tree_kind, tree(label=parts)), y="obs/label")
    assert "row 0 has no value (6 such rows of 6)" in message


def test_lengths_that_differ(tree_kind, write_tree):
    message = refusal(write_tree(tree_kind, tree(label=categorical(CODES[:5]))), y="obs/label")
    assert "X has 6 rows, but" in message
    assert "obs/label has 5 values; they must agree" in message
    short = nullable(CODES, np.zeros(5, bool))
    message = refusal(write_tree(tree_kind, tree(label=short)), y="obs/label")
    assert "obs/label/mask has shape (5,); expected (6,), like the values" in message


def test_incomplete_groups(tree_kind, write_tree, as_tree):
    parts = categorical()
    del parts["/codes"]
    assert 'has no array "obs/label/codes"' in refusal(
        write_tree(tree_kind, tree(label=parts)), y="obs/label"
    )
    matrix = as_tree(scipy.sparse.csr_matrix(X))
    del matrix["X/indptr"]
    assert 'has no array "X/indptr"' in refusal(write_tree(tree_kind, matrix), y=None)


def test_columns_instead_of_rows(tree_kind, write_tree, as_tree):
    parts = as_tree(scipy.sparse.csc_matrix(X), encoding_type="csc_matrix")
    message = refusal(write_tree(tree_kind, parts), y=None)
    assert message.startswith('"X" in data.')
    assert "is stored by columns (csc_matrix), but fcl reads ranges of rows; store it by" in message
    assert "adata.X = adata.X.tocsr()" in message


@pytest.mark.parametrize("shape", [None, 7, (6.5, 2), "6, 2"])
def test_invalid_shape(tree_kind, write_tree, as_tree, shape):
    message = refusal(
        write_tree(tree_kind, as_tree(scipy.sparse.csr_matrix(X), shape=shape)), y=None
    )
    assert "is a csr_matrix whose attribute shape is" in message
    assert "expected two integers" in message


def test_newer_layouts(tree_kind, write_tree, as_tree):
    parts = as_tree(scipy.sparse.csr_matrix(X), encoding_version="0.2.0")
    expected = '"X" in data.* has encoding-version 0.2.0; expected 0.1.*. It was written by a newer'
    start, _, end = expected.partition("data.*")
    message = refusal(write_tree(tree_kind, parts), y=None)
    assert message.startswith(start)
    assert end in message
    for column in (categorical(version="1.0.0"), nullable(CODES, CODES < 0, version="1.0.0")):
        message = refusal(write_tree(tree_kind, tree(label=column)), y="obs/label")
        assert "has encoding-version 1.0.0; expected 0." in message
    patched = categorical(version="0.2.7")
    assert open_data(write_tree(tree_kind, tree(label=patched)), y="obs/label").n_rows == 6


def test_groups_of_another_kind(tree_kind, write_tree, as_tree):
    parts = tree(label=categorical())
    parts |= as_tree(scipy.sparse.csr_matrix(X), "sparse")
    source = write_tree(tree_kind, parts)
    file = source.rpartition("/")[2]
    assert refusal(source, y="obs") == (
        f'"obs" in {file} is a dataframe, expected an array; a column of it is named obs/NAME'
    )
    assert refusal(source, x="obs", y=None).startswith(f'"obs" in {file} is a dataframe, expected')
    assert refusal(source, x="obs/label", y=None) == (
        f'"obs/label" in {file} is a categorical, expected an array'
    )
    assert refusal(source, y="sparse") == (
        f'"sparse" in {file} is a csr_matrix, expected an array, one value per row'
    )


def test_what_is_there_is_listed_by_the_names_to_give(tree_kind, write_tree, as_tree):
    parts = tree(label=categorical(), flag=nullable(CODES > 0, CODES > 5))
    parts |= as_tree(scipy.sparse.csr_matrix(X), "counts")
    source = write_tree(tree_kind, parts)
    assert refusal(source, y="label") == (
        f'{source.rpartition("/")[2]} has no array "label"; it holds "X", "counts", "obs/flag", '
        '"obs/label", "obs/names"; did you mean "obs/label"?'
    )
