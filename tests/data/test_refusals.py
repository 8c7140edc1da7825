"""What cannot be opened: one message, which names file and array."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import fcl
from tests.data.conftest import (
    TREES,
    Source,
    check_command,
    csr_tree,
    in_file,
    in_hdf5,
    in_npy,
    in_tree,
    in_zarr,
    make_arrays,
    short,
    source,
    stored,
    within,
)
from tests.data.test_encodings import CATEGORIES, CODES, X, categorical, nullable, tree

STORED = ["zarr2", "zarr3", "zarr3-sharded", "zarr3-zip", "hdf5", "npy-folder"]
ALL = [*STORED, "memory"]
ARRAYS = make_arrays()
FRAME = pd.DataFrame({"age": [30, 40, 50], "dose": np.array([0.5, 0.25, 1.0], np.float32)})
OBJECTS = np.array([{"a": 1}, None], dtype=object)
CSR, CSC = scipy.sparse.csr_matrix(X), scipy.sparse.csc_matrix(X)
NOTHING = np.array(0, np.uint8)
MASKED = np.ma.masked_array(np.eye(4), np.eye(4) == 1)
HELD = 'it holds "X", "weights", "y"'
#: source (a value, or a function that writes it), keywords, and a message in which FILE: is the name of
#: the file and a colon, or nothing for data in memory
Case = tuple[Any, dict[str, Any], str]


def each(
    name: str,
    kinds: Iterable[str],
    message: str,
    arrays: Any = MappingProxyType({}),
    **keywords: Any,
) -> dict[str, Case]:
    """A case for each container; ``arrays`` replace those of the source."""
    return {f"{name}, {kind}": (stored(kind, **arrays), keywords, message) for kind in kinds}


@source
def folder_of(folder: Path) -> Path:
    (folder / "folder").mkdir()
    return folder / "folder"


@source
def beside(folder: Path, whole: Source, name: str) -> Path:
    whole(folder)
    return folder / name


@source
def npz(folder: Path) -> Path:
    np.savez(folder / "data.npz", X=np.zeros(3))
    return folder / "data.npz"


@source
def root_of(folder: Path, whole: Source) -> str:
    """The file of a container whose arrays are in a group."""
    return str(whole(folder)[0]).partition("::")[0]


def in_all(values: np.ndarray) -> dict[str, Any]:
    """X of any shape in containers without compression."""
    chunks = tuple(max(1, n) for n in values.shape)

    def write(group: Any) -> None:
        group.create_array("X", shape=values.shape, dtype="u1", chunks=chunks)

    kinds = {"hdf5": "hdf5-contiguous", "npy": "npy-folder", "memory": "memory"}
    return {name: stored(kind, X=values, y=None, weights=None) for name, kind in kinds.items()} | {
        "zarr2": in_zarr(write, 2), "zarr3": in_zarr(write)}  # fmt: skip


PATHS: dict[str, Case] = {
    "missing path": (beside(stored("zarr3"), "date.zarr"), {},
        r'^date\.zarr does not exist; did you mean "data\.zarr"\?$'),
    "missing folder": (lambda f: (f / "none/at all", {}), {}, "^none/at all does not exist$"),
    "sequence": ("ACGTACGT", {}, r'does not exist; a sequence is given in a list: \["ACGTACGT"\]$'),
    "number": (3, {}, "^the source is of type int; expected a path, a numpy array, a list of sequences, "
        "a sparse matrix or a data frame$"),
    "ragged list": ([[1, 2], [3]], {}, "^the list holds rows of different lengths"),
    "folder": (folder_of(), {}, r"^folder is a folder with neither Zarr metadata nor \.npy files"),
    "words": (in_file("file.doc", b"some words\n"), {},
        r"^file\.doc is a file, in no format known to fcl; expected a Zarr"),
    "npz": (npz(), {}, r"^data\.npz is .*store the arrays of an \.npz with np\.save$"),
    **{f"{name} of {len(text)} bytes": (in_file(name, text), {},
        "^FILE (cannot be opened as HDF5|is not a readable)")
        for name in ("data.h5", "data.zip", "X.npy") for text in (b"", b"something else altogether")},
    **{f"table {name}": (in_file(name, b"a,b,y\n1,2,0\n3,4,1\n"), {},
        rf"^FILE is a table; convert it first: fcl convert {name} {out}\.zarr")
        for name, out in {"m.train.csv": "m.train", "m.test.csv.gz": "m.test", "m.csv": "m"}.items()},
    **{f"missing group, {kind}": (within(stored(kind), "/folds/two"), {},
        "^FILE holds no Zarr group at /folds/two") for kind in ("zarr2", "zarr3", "zarr3-zip")},
    "missing group, hdf5": (within(stored("hdf5"), "/folds/two"), {},
        "^FILE::/folds/two: /folds/two does not exist; expected a group"),
    "array for a group, zarr3": (within(stored("zarr3"), "/X"), {},
        "^FILE::/X is a Zarr array itself; expected a group that holds X and y$"),
    "array for a group, hdf5": (within(stored("hdf5"), "/X"), {},
        "^FILE::/X: /X is an array; expected a group"),
    "group of a folder": (within(stored("npy-folder"), "/fold"), {},
        "^FILE .*has no groups, so ::/fold cannot be found"),
    **{f"group for an array, {kind}": (whole, {"x": "folds"},
        '^"folds" in FILE is a group, expected an array$') for kind, whole in (
            ("zarr3", root_of(stored("zarr3-group"))), ("hdf5", root_of(stored("hdf5-group"))),
            ("zarr2", in_zarr(lambda g: g.create_group("folds"), 2)))},
}  # fmt: skip
NAMES: dict[str, Case] = {
    **each("missing x", STORED, rf'^FILE has no array "x"; {HELD}; did you mean "X"\?$', x="x"),
    **each("missing y", STORED, f'^FILE has no array "labels"; {HELD}$', y="labels"),
    **each("missing weights", STORED, '^FILE has no array "weight"; it holds', weights="weight"),
    "many arrays": (
        in_hdf5(lambda f: [f.create_dataset(f"deep/a{i:02}", data=[1]) for i in range(20)]), {},
        '^FILE has no array "X"; it holds "deep/a00", .*"deep/a11" and 8 more'),
    "missing y beside X.npy": (in_npy(ARRAYS["X"]), {},
        '^the folder of FILE has no array "y"; it holds "X"$'),
    "missing x in X.npy": (in_npy(ARRAYS["X"]), {"x": "Z"}, '^FILE is one array, so it holds no "Z"'),
    "name of y in memory": (ARRAYS["X"], {},
        '^y="y" is a name, but X is an array in memory; pass y as an array, or y=None for no target$'),
    "name of weights in memory": (ARRAYS["X"], {"y": None, "weights": "w"},
        '^weights="w" is a name, but X is an array in memory'),
    "number for a name": (stored("zarr3"), {"x": 7}, "^x: expected the name of an array in FILE, got 7"),
    "name that is no text": (stored("hdf5"), {"y": "\udcff"}, '^FILE has no array "\udcff"; it holds'),
    "missing column": (FRAME, {"y": "label"},
        "^y: the data frame has no column 'label'; it has age, dose$"),
    "text column": (FRAME.assign(colour=["red", "blue", "red"]), {},
        "^column 'colour' of the data frame holds text, 'red' in row 0; expected numbers: encode"),
    "columns of one name": (FRAME.rename(columns={"dose": "age"}), {},
        "several columns 'age'; rename them"),
}  # fmt: skip
SHAPES: dict[str, Case] = {
    **each("short y", ALL, "^FILE:X has 50 rows, but FILE:y has 49 values; they must agree$",
        {"y": ARRAYS["y"][:49]}),
    **each("long weights", ALL, "^FILE:X has 50 rows, but weights has 51 values; they must agree$",
        y=None, weights=np.ones(51)),
    **each("three dimensions", ALL, r"^FILE:X has 3 dimensions, shape \(3, 2, 2\); expected one or two",
        {"X": np.zeros((3, 2, 2), np.uint8)}, y=None),
    **{f"no dimension, {kind}": (whole, {"y": None},
        r"^FILE:X has 0 dimensions, shape \(\); expected one or two")
        for kind, whole in (in_all(NOTHING) | {
            "hdf5": in_hdf5(lambda f: f.create_dataset("X", data=NOTHING))}).items()},
    **{f"empty {shape}, {kind}": (whole, {"y": None},
        rf"^FILE:X is empty, shape {re.escape(str(shape))}; expected at least one row and one column")
        for shape in ((0, 5), (5, 0), (0,))
        for kind, whole in in_all(np.zeros(shape, np.uint8)).items()},
    "null dataset": (in_hdf5(lambda f: f.create_dataset("X", data=h5py.Empty("f"))), {},
        "^FILE:X is a null dataset"),
    **each("empty y", ("zarr2", "zarr3", "hdf5", "memory"),
        r"^y is empty, shape \(0,\); expected at least one row and one column$", y=np.zeros(0)),
    **each("weights with columns", ("zarr3", "hdf5", "npy-folder", "memory"),
        r"^FILE:weights has shape \(50, 2\); expected one value per row, \(n,\)",
        {"weights": np.ones((50, 2))}),
    **each("negative weights", ("zarr3",), r"^FILE:weights: row 0 is -1\.0; weights must",
        {"weights": np.full(50, -1.0)}),
    "objects, npy": (in_npy(OBJECTS), {}, "^FILE holds Python objects; expected numbers or text"),
    "objects, memory": (OBJECTS, {},
        r"^X holds Python objects \(NoneType, dict\); expected numbers or text"),
    "objects, hdf5": (in_hdf5(lambda f: f.create_dataset("X", (3,), h5py.vlen_dtype(np.int32))), {},
        "^FILE:X holds Python objects"),
    **{f"dtype {dtype}, {kind}": (put_in(np.zeros(3, dtype)), {},
        rf"^{name} has dtype {re.escape(str(np.dtype(dtype)))}; expected numbers or text")
        for dtype in ("c16", "M8[s]", [("a", "i4"), ("b", "f4")])
        for kind, name, put_in in (("npy", r"X\.npy", in_npy), ("memory", "X", np.asarray))},
    "masked X": (MASKED, {"y": np.array([0, 1, 0, 1])}, "^X has masked values"),
    "masked y": (np.eye(4), {"y": MASKED[:, 0]}, "^y has masked values"),
}  # fmt: skip

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
    "gap in integers": (nullable(CODES, GAPS, "nullable-integer"), NONE.format(3, 2)),
    "gap in texts": (nullable(CATEGORIES[CODES], GAPS, "nullable-string-array"), NONE.format(3, 2)),
    "gap in categories": (categorical(np.array([0, 1, -1, 2, -1, 0], np.int8)), NONE.format(2, 2)),
    "no category": (categorical(np.full(6, -1, np.int8), np.empty(0, np.int64)), NONE.format(0, 6)),
    "code 3": (categorical(at(CODES, 4, 3)), "row 4 has the code 3, but there are 3 categories"),
    "code -2": (categorical(at(CODES, 4, -2)), "row 4 has the code -2, but there are 3 categories"),
    "code 255": (categorical(at(CODES.astype(np.uint8), 4, 255)), "row 4 has the code 255"),
}  # fmt: skip
TREE_CASES: dict[str, Case] = {
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


SIZES: dict[str, Case] = {
    "wide text": (in_hdf5(wide_text), {},
        r"^FILE:y has 1,000 values, which need 93\.2 GiB, but this machine"),
    "categories never written": (in_zarr(many_categories), {},
        "^FILE:y/categories has 17,179,869,184 values"),
    "y beyond the memory": (in_zarr(many_rows), {},
        r"^FILE:y has 10,000,000,000,000 values, which need 72\.8 TiB"),
}  # fmt: skip
CASES = PATHS | NAMES | SHAPES | SIZES
CASES |= {
    f"{name}, {kind}": (in_tree(kind, parts), keywords, message)
    for name, (parts, keywords, message) in TREE_CASES.items()
    for kind in TREES
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CASES)
def test_opening(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Python; and by the command, if it can be given the same."""
    monkeypatch.chdir(tmp_path)
    given, keywords, message = CASES[name]
    place, more = given(tmp_path) if callable(given) else (given, {})
    keywords = more | keywords
    path = isinstance(place, str | os.PathLike)
    file = re.escape(os.path.basename(str(place).partition("::")[0])) if path else ""
    message = message.replace("FILE:", f"{file}:" if file else "").replace("FILE", file)
    with pytest.raises(fcl.InputError) as caught:
        fcl.open_data(place, **keywords)
    found = short(caught.value, tmp_path)
    assert re.search(message, found), found
    plain = all(isinstance(value, str) and value.isascii() for value in keywords.values())
    if path and plain and "convert it first" not in found:  # which the command does by itself
        check_command(place, keywords, found, tmp_path)
