"""What cannot be opened: one message, which names file and array."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import fcl
from tests.data.conftest import (
    TREES,
    check_command,
    csr_tree,
    in_file,
    in_hdf5,
    in_npy,
    in_tree,
    in_zarr,
    make_arrays,
    short,
    stored,
    within,
)
from tests.data.test_encodings import CATEGORIES, CODES, X, categorical, nullable, tree

STORED = ["zarr2", "zarr3", "zarr3-sharded", "zarr3-zip", "hdf5", "npy-folder"]
ARRAYS = make_arrays()
FRAME = pd.DataFrame({"age": [30, 40, 50], "dose": np.array([0.5, 0.25, 1.0], np.float32)})
OBJECTS = np.array([{"a": 1}, None], dtype=object)
CSR, CSC = scipy.sparse.csr_matrix(X), scipy.sparse.csc_matrix(X)
#: name -> source (a value, or a function that writes it), keywords, message in which FILE: is the name of
#: the file and a colon, or nothing for data in memory
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {}


def add(name: str, source: Any, message: str, **keywords: Any) -> None:
    assert name not in CASES
    CASES[name] = (source, keywords, message)


# -- paths -----------------------------------------------------------------------------------------


def folder_of(folder: Path) -> Any:
    (folder / "folder").mkdir()
    return folder / "folder", {}


def beside_data(folder: Path) -> Any:
    stored("zarr3")(folder)
    return folder / "date.zarr", {}


def npz(folder: Path) -> Any:
    np.savez(folder / "data.npz", X=np.zeros(3))
    return folder / "data.npz", {}


add("missing path", beside_data, r'^date\.zarr does not exist; did you mean "data\.zarr"\?$')
add("missing folder", lambda f: (f / "none/at all", {}), r"^none/at all does not exist$")
add("sequence", "ACGTACGT", r'does not exist; a sequence is given in a list: \["ACGTACGT"\]$')
add("number", 3, r"^the source is of type int; expected a path, a numpy array, a list of sequences, a "
    "sparse matrix or a data frame$")  # fmt: skip
add("ragged list", [[1, 2], [3]], "^the list holds rows of different lengths")
add("folder", folder_of, "^folder is a folder with neither Zarr metadata nor .npy files")
add("words", in_file("file.doc", b"some words\n"),
    r"^file\.doc is a file, in no format known to fcl; expected a Zarr")  # fmt: skip
add("npz", npz, r"^data\.npz is .*store the arrays of an \.npz with np\.save$")
for kind in ("data.h5", "data.zip", "X.npy"):
    for text in (b"", b"something else altogether"):
        add(f"{kind} of {len(text)} bytes", in_file(kind, text),
            rf"^{re.escape(kind)} (cannot be opened as HDF5|is not a readable)")  # fmt: skip
for kind, out in {"m.train.csv": "m.train", "m.test.csv.gz": "m.test", "m.csv": "m"}.items():
    add(f"table {kind}", in_file(kind, b"a,b,y\n1,2,0\n3,4,1\n"),
        rf"^{kind} is a table; convert it first: fcl convert {kind} {out}\.zarr")  # fmt: skip

# -- groups ----------------------------------------------------------------------------------------

for kind in ("zarr2", "zarr3", "zarr3-zip"):
    add(f"missing group, {kind}", within(stored(kind), "/folds/two"),
        r"^data\.zarr(\.zip)? holds no Zarr group at /folds/two")  # fmt: skip
add("missing group, hdf5", within(stored("hdf5"), "/folds/two"),
    r"^data\.h5::/folds/two: /folds/two does not exist; expected a group")  # fmt: skip
add("array for a group, zarr3", within(stored("zarr3"), "/X"),
    r"^data\.zarr::/X is a Zarr array itself; expected a group that holds X and y$")  # fmt: skip
add("array for a group, hdf5", within(stored("hdf5"), "/X"),
    r"^data\.h5::/X: /X is an array; expected a group")  # fmt: skip
add("group of a folder", within(stored("npy-folder"), "/fold"),
    "^data .*has no groups, so ::/fold cannot be found")  # fmt: skip
for kind in ("zarr3-group", "hdf5-group"):
    add(f"group for an array, {kind}", lambda f, kind=kind: (
        str(stored(kind)(f)[0]).partition("::")[0], {}),
        r'^"folds" in FILE is a group, expected an array$', x="folds")  # fmt: skip
add("group for an array, zarr2", in_zarr(lambda g: g.create_group("folds"), 2),
    r'^"folds" in FILE is a group, expected an array$', x="folds")  # fmt: skip

# -- names of arrays -------------------------------------------------------------------------------

HELD = 'it holds "X", "weights", "y"'
for kind in STORED:
    add(f"missing x, {kind}", stored(kind), rf'^FILE has no array "x"; {HELD}; did you mean "X"\?$',
        x="x")  # fmt: skip
    add(f"missing y, {kind}", stored(kind), f'^FILE has no array "labels"; {HELD}$', y="labels")
    add(f"missing weights, {kind}", stored(kind), '^FILE has no array "weight"; it holds',
        weights="weight")  # fmt: skip
add("many arrays", in_hdf5(lambda f: [f.create_dataset(f"deep/a{i:02}", data=[1]) for i in range(20)]),
    r'^data\.h5 has no array "X"; it holds "deep/a00", .*"deep/a11" and 8 more')  # fmt: skip
add("missing y beside X.npy", in_npy(ARRAYS["X"]),
    r'^the folder of X\.npy has no array "y"; it holds "X"$')  # fmt: skip
add("missing x in X.npy", in_npy(ARRAYS["X"]), r'^X\.npy is one array, so it holds no "Z"', x="Z")
add("name of y in memory", ARRAYS["X"], '^y="y" is a name, but X is an array in memory; pass y as an '
    "array, or y=None for no target$")  # fmt: skip
add("name of weights in memory", ARRAYS["X"], '^weights="w" is a name, but X is an array in memory',
    y=None, weights="w")  # fmt: skip
add("number for a name", stored("zarr3"),
    r"^x: expected the name of an array in data\.zarr, got 7", x=7)  # fmt: skip
add("name that is no text", stored("hdf5"), r"^data\.h5 has no array ", y="\udcff\udcfe")
add(
    "missing column",
    FRAME,
    "^y: the data frame has no column 'label'; it has age, dose$",
    y="label",
)
add("text column", FRAME.assign(colour=["red", "blue", "red"]),
    "^column 'colour' of the data frame holds text, 'red' in row 0; expected numbers")  # fmt: skip
add(
    "columns of one name",
    FRAME.rename(columns={"dose": "age"}),
    "several columns 'age'; rename them",
)

# -- shapes and dtypes -----------------------------------------------------------------------------

for kind in (*STORED, "memory"):
    add(f"short y, {kind}", stored(kind, y=ARRAYS["y"][:49]),
        "^FILE:X has 50 rows, but FILE:y has 49 values; they must agree$")  # fmt: skip
    add(f"long weights, {kind}", stored(kind), "^FILE:X has 50 rows, but weights has 51 values; they "
        "must agree$", y=None, weights=np.ones(51))  # fmt: skip
    add(f"three dimensions, {kind}", stored(kind, X=np.zeros((3, 2, 2), np.uint8)),
        r"^FILE:X has 3 dimensions, shape \(3, 2, 2\); expected one or two", y=None)  # fmt: skip
NOTHING = np.array(0, np.uint8)
for kind, source in {
    "zarr2": in_zarr(lambda g: g.create_array("X", data=NOTHING), 2),
    "zarr3": in_zarr(lambda g: g.create_array("X", data=NOTHING)),
    "hdf5": in_hdf5(lambda f: f.create_dataset("X", data=NOTHING)),
    "npy-folder": stored("npy-folder", X=NOTHING),
    "memory": NOTHING,
}.items():
    add(f"no dimension, {kind}", source, r"^FILE:X has 0 dimensions, shape \(\); expected one or two",
        y=None)  # fmt: skip
for shape in ((0, 5), (5, 0), (0,)):
    values = np.zeros(shape, np.uint8)
    chunks = tuple(max(1, n) for n in shape)

    def empty(group: Any, shape: Any = shape, chunks: Any = chunks) -> None:
        group.create_array("X", shape=shape, dtype="u1", chunks=chunks)

    for kind, source in {
        "zarr2": in_zarr(empty, 2),
        "zarr3": in_zarr(empty),
        "hdf5": stored("hdf5-contiguous", X=values),
        "npy-folder": stored("npy-folder", X=values),
        "memory": values,
    }.items():
        add(f"empty {shape}, {kind}", source, rf"^FILE:X is empty, shape {re.escape(str(shape))}; "
            "expected at least one row and one column", y=None)  # fmt: skip
add("null dataset", in_hdf5(lambda f: f.create_dataset("X", data=h5py.Empty("f"))),
    r"^data\.h5:X is a null dataset")  # fmt: skip
for kind in ("zarr2", "zarr3", "hdf5", "memory"):
    add(f"empty y, {kind}", stored(kind),
        r"^y is empty, shape \(0,\); expected at least one row and one column$",
        y=np.zeros(0))  # fmt: skip
for kind in ("zarr3", "hdf5", "npy-folder", "memory"):
    add(f"weights with columns, {kind}", stored(kind, weights=np.ones((50, 2))),
        r"^FILE:weights has shape \(50, 2\); expected one value per row, \(n,\)")  # fmt: skip
add("negative weights", stored("zarr3", weights=np.full(50, -1.0)),
    r"^data\.zarr:weights: row 0 is -1\.0; weights must")  # fmt: skip
add("objects, npy", in_npy(OBJECTS), r"^X\.npy holds Python objects; expected numbers or text")
add("objects, memory", OBJECTS,
    r"^X holds Python objects \(NoneType, dict\); expected numbers or text")  # fmt: skip
add("objects, hdf5", in_hdf5(lambda f: f.create_dataset("X", (3,), h5py.vlen_dtype(np.int32))),
    r"^data\.h5:X holds Python objects")  # fmt: skip
for dtype in ("c16", "M8[s]", [("a", "i4"), ("b", "f4")]):
    values = np.zeros(3, dtype)
    says = re.escape(f" has dtype {values.dtype}; expected numbers or text")
    add(f"dtype {dtype}, memory", values, f"^X{says}")
    add(f"dtype {dtype}, npy", in_npy(values), rf"^X\.npy{says}")
masked = np.ma.masked_array(np.eye(4), np.eye(4) == 1)
add("masked X", masked, "^X has masked values", y=np.array([0, 1, 0, 1]))
add("masked y", np.eye(4), "^y has masked values", y=masked[:, 0])

# -- columns of tables and sparse rows, in the layout of anndata -----------------------------------


def at(values: Any, row: int, value: float) -> np.ndarray:
    """A copy with another value in a row."""
    found = np.array(values)
    found[row] = value
    return found


GAPS = np.isin(np.arange(6), (3, 4))
NONE = r"row {} has no value \({} such rows of 6\); drop these rows, or fill in their values$"
LABELS: dict[str, tuple[dict[str, Any], str]] = {
    "gap in booleans": (nullable(CODES > 0, GAPS), NONE.format(3, 2)),
    "gap in integers": (
        nullable(CODES, GAPS, "nullable-integer"), NONE.format(3, 2)),
    "gap in texts": (
        nullable(CATEGORIES[CODES], GAPS, "nullable-string-array"), NONE.format(3, 2)),
    "gap in categories": (
        categorical(np.array([0, 1, -1, 2, -1, 0], np.int8)), NONE.format(2, 2)),
    "no category": (
        categorical(np.full(6, -1, np.int8), np.empty(0, np.int64)), NONE.format(0, 6)),
    "code 3": (categorical(at(CODES, 4, 3)), "row 4 has the code 3, but there are 3 categories"),
    "code -2": (categorical(at(CODES, 4, -2)), "row 4 has the code -2, but there are 3 categories"),
    "code 255": (categorical(at(CODES.astype(np.uint8), 4, 255)), "row 4 has the code 255"),
}  # fmt: skip
TREE_CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    name: (tree(label=column), {"y": "obs/label"}, f"^FILE:obs/label: {message}")
    for name, (column, message) in LABELS.items()
}
VERSION = r"has encoding-version 1\.0\.0; expected 0\."
ON_LABEL = {"y": "obs/label"}
TABLES = tree(label=categorical()) | csr_tree(CSR, "sparse")
SEVERAL = tree(label=categorical(), flag=nullable(CODES > 0, CODES > 5)) | csr_tree(CSR, "counts")
TREE_CASES |= {
    "fractions as codes": (tree(label=categorical(CODES / 2)), ON_LABEL,
        "^FILE:obs/label/codes has dtype float64; expected integers"),
    "few codes": (tree(label=categorical(CODES[:5])), ON_LABEL,
        "^FILE:X has 6 rows, but FILE:obs/label has 5 values; they must agree$"),
    "few flags": (tree(label=nullable(CODES, np.zeros(5, bool))), ON_LABEL,
        r"^FILE:obs/label/mask has shape \(5,\); expected \(6,\), like the values"),
    "no codes": (
        {k: v for k, v in tree(label=categorical()).items() if k != "obs/label/codes"}, ON_LABEL,
        '^FILE has no array "obs/label/codes"'),
    "no indptr": ({k: v for k, v in csr_tree(CSR).items() if k != "X/indptr"}, {},
        '^FILE has no array "X/indptr"'),
    "by columns": (csr_tree(CSC, encoding_type="csc_matrix"), {},
        r'^"X" in FILE is stored by columns \(csc_matrix\), but fcl reads ranges of rows; store it by '
        r".*adata\.X = adata\.X\.tocsr\(\)"),
    **{f"shape {shape}": (csr_tree(CSR, shape=shape), {},
        '^"X" in FILE is a csr_matrix whose attribute shape is .*expected two integers')
        for shape in (None, 7, (6.5, 2), "6, 2")},
    "newer sparse rows": (csr_tree(CSR, encoding_version="0.2.0"), {},
        r'^"X" in FILE has encoding-version 0\.2\.0; expected 0\.1\.\*\. It was written by a newer'),
    "newer categories": (tree(label=categorical(version="1.0.0")), ON_LABEL, VERSION),
    "newer gaps": (tree(label=nullable(CODES, CODES < 0, version="1.0.0")), ON_LABEL, VERSION),
    "table as y": (TABLES, {"y": "obs"},
        '^"obs" in FILE is a dataframe, expected an array; a column of it is named obs/NAME$'),
    "table as x": (TABLES, {"x": "obs"}, '^"obs" in FILE is a dataframe, expected'),
    "categories as x": (TABLES, {"x": "obs/label"},
        '^"obs/label" in FILE is a categorical, expected an array$'),
    "sparse rows as y": (TABLES, {"y": "sparse"},
        '^"sparse" in FILE is a csr_matrix, expected an array, one value per row$'),
    "column without its table": (SEVERAL, {"y": "label"},
        '^FILE has no array "label"; it holds "X", "counts", "obs/flag", "obs/label", "obs/names"; did '
        r'you mean "obs/label"\?$'),
}  # fmt: skip
for name, (parts, keywords, message) in TREE_CASES.items():
    for kind in TREES:
        add(f"{name}, {kind}", in_tree(kind, parts), message, **keywords)

# -- sizes that files declare ----------------------------------------------------------------------


def wide_text(file: Any) -> None:
    file["X"] = np.zeros((1000, 2))
    file.create_dataset("y", (1000,), "S100000000", chunks=(1,))


def many_categories(group: Any) -> None:
    group["X"] = np.zeros((2, 2))
    y = group.create_group("y", attributes={"encoding-type": "categorical"})
    y["codes"] = np.array([0, 1])
    y.create_array("categories", shape=(2**34,), dtype="i8", chunks=(1,))


def many_rows(group: Any) -> None:
    group.create_array("X", shape=(10**13, 2), chunks=(1000, 2), dtype="i1")
    group.create_array("y", shape=(10**13,), chunks=(1000,), dtype="i1")


add("wide text", in_hdf5(wide_text, "wide.h5"),
    r"^wide\.h5:y has 1,000 values, which need 93\.2 GiB, but this machine")  # fmt: skip
add("categories never written", in_zarr(many_categories),
    r"^data\.zarr:y/categories has 17,179,869,184 values")  # fmt: skip
add("y beyond the memory", in_zarr(many_rows),
    r"^data\.zarr:y has 10,000,000,000,000 values, which need 72\.8 TiB")  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_opening(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python; and by the command, if it can be given the same."""
    monkeypatch.chdir(tmp_path)
    given, keywords, message = CASES[name]
    source, more = given(tmp_path) if callable(given) else (given, {})
    keywords = more | keywords
    path = isinstance(source, str | os.PathLike)
    file = re.escape(os.path.basename(str(source).partition("::")[0])) if path else ""
    message = message.replace("FILE:", f"{file}:" if file else "").replace("FILE", file)
    with pytest.raises(fcl.InputError) as caught:
        fcl.open_data(source, **keywords)
    found = short(caught.value, tmp_path)
    assert re.search(message, found), found
    if path and all(isinstance(value, str) and value.isascii() for value in keywords.values()):
        check_command(source, keywords, found, tmp_path)
