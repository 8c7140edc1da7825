"""Rows are the same data set in every container: values, blocks, names, targets, fingerprint."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from fcl.data import NumericReader, SequenceReader, SparseRows, open_data
from fcl.data.base import chunk_ranges
from fcl.errors import InputError
from tests.data.conftest import TREES, WRITERS, csr, csr_tree, make_arrays, put, put_tree

N = 50
ARRAYS = make_arrays()
CODES, SIGNS, WEIGHTS = ARRAYS["X"], ARRAYS["y"], ARRAYS["weights"]
RNG = np.random.default_rng(7)
TEXT = np.array(["".join("ACGTN"[code] for code in row) for row in CODES])
SPARSE = scipy.sparse.csr_matrix(RNG.integers(1, 100, (N, 23)) * (RNG.random((N, 23)) < 0.2))
NAMES = ["age", "dose", "é"]
LABELS = {
    "int8": np.array([0, 1], np.int8),
    "big-endian": np.array([3, 4], ">i4"),
    "float32": np.array([-1, 1], np.float32),
    "bool": np.array([False, True]),
    "bytes": np.array([b"no", b"yes"]),
    "text": np.array(["ja", "né"]),
    "variable text": np.array(["no", "yes"], object),
}
FORMS = {
    "fixed bytes": TEXT.astype("S"),
    "wide bytes": TEXT.astype("S20"),
    "fixed text": TEXT,
    "variable text": TEXT.astype(object),
    "letters": TEXT.astype("S").view("S1").reshape(N, -1),
    "letters as numbers": TEXT.astype("S").view(np.uint8).reshape(N, -1),
}
DTYPES = ("f4", "f8", ">f4", "i8", "?", "u1")


def swapped(dtype: str) -> Any:
    """The sparse rows, whose values have any byte order."""
    return csr(SPARSE.indptr, SPARSE.indices, SPARSE.data.astype(dtype), SPARSE.shape)


#: The arrays of each kind of rows; ``names`` are those of the columns.
KINDS: dict[str, dict[str, Any]] = {
    "codes": ARRAYS,
    "no target": {"X": CODES},
    "target as a column": {"X": CODES, "y": SIGNS[:, None]},
    "two targets": {"X": CODES, "y": RNG.normal(size=(N, 2))},
    **{f"labels, {k}": {"X": CODES, "y": pair[(SIGNS + 1) // 2]} for k, pair in LABELS.items()},
    **{f"sequences, {form}": {"X": X, "y": SIGNS} for form, X in FORMS.items()},
    **{f"numbers, {kind}": {"X": (CODES - 1.5).astype(kind)} for kind in DTYPES[1:5]},
    **{f"sparse, {dtype}": {"X": swapped(dtype), "y": SIGNS} for dtype in DTYPES},
    "sparse, wide ids": {
        "X": csr(SPARSE.indptr.astype("i8"), SPARSE.indices.astype("i8"), SPARSE.data, SPARSE.shape)
    },
    "sparse, no entries": {"X": scipy.sparse.csr_matrix((N, 3), dtype=np.float32)},
    "names": {"X": RNG.normal(size=(N, 3)), "names": NAMES} | {"y": SIGNS, "weights": WEIGHTS},
}


def put_anndata(kind: str, folder: Path, arrays: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    X, others = arrays["X"], {k: (v, {}) for k, v in arrays.items() if k not in ("X", "names")}
    tree = csr_tree(X) if hasattr(X, "indptr") else {"X": (X, {})}
    if "names" in arrays:
        index = {"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "gene"}
        tree |= {"var": (None, index), "var/gene": (np.array(arrays["names"]), {})}
    return put_tree(folder, kind, tree | others), {}


def fits(container: str, kind: str) -> bool:
    X = KINDS[kind]["X"]
    objects = any(getattr(v, "dtype", v) == np.dtype(object) for v in KINDS[kind].values())
    if kind == "names":
        return container in (*TREES, "pandas")
    if hasattr(X, "indptr"):
        return container in (*TREES, "memory")
    return container in WRITERS and not (objects and container.startswith("npy"))


#: One container of each format has rows of all kinds; the others only lay arrays out differently.
FORMATS = ("zarr2", "zarr3", "hdf5", "npy-folder", "memory", "h5ad", "zarr3-tree", "pandas")
OF_LAYOUTS = ("codes", "labels, variable text", "sequences, fixed text", "numbers, >f4", "sparse, f4",
              "sparse, wide ids", "names")  # fmt: skip
CASES = [
    (container, kind)
    for container in (*WRITERS, *TREES, "pandas")
    for kind in (KINDS if container in FORMATS else OF_LAYOUTS)
    if fits(container, kind)
]


def opened(container: str, kind: str, folder: Path) -> Any:
    """The data set in a container."""
    arrays = KINDS[kind]
    if container == "pandas":
        frame = pd.DataFrame(arrays["X"], columns=arrays["names"])
        source, keywords = frame.assign(y=SIGNS, weights=WEIGHTS), {}
    elif container in TREES:
        source, keywords = put_anndata(container, folder, arrays)
    else:
        source, keywords = put(container, folder, arrays)
    if "weights" in arrays:
        keywords.setdefault("weights", "weights")
    return open_data(source, **{"y": "y" if "y" in arrays else None} | keywords)


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, str, str]:
    """A data set, its container and the kind of its rows."""
    container, kind = request.param
    return opened(container, kind, tmp_path_factory.mktemp("data")), container, kind


@cache
def in_memory(kind: str) -> Any:
    """The data set without a container."""
    arrays = KINDS[kind]
    if kind == "names":
        return opened("pandas", kind, Path())
    return open_data(arrays["X"], y=arrays.get("y"), weights=arrays.get("weights"))


def values(block: Any) -> np.ndarray:
    """A block as an array; the entries of sparse rows are in the order of their columns."""
    if not isinstance(block, SparseRows):
        return np.asarray(block)
    dense = block.to_dense()
    canonical = scipy.sparse.csr_matrix(dense)
    assert (block.indptr.dtype, block.indices.dtype) == (np.int64, np.int32)
    assert block.nnz == canonical.nnz
    np.testing.assert_array_equal(block.indptr, canonical.indptr)
    np.testing.assert_array_equal(block.indices, canonical.indices)
    return dense


def whole(kind: str) -> np.ndarray:
    X = KINDS[kind]["X"]
    if hasattr(X, "indptr"):
        return scipy.sparse.csr_matrix((X.data, X.indices, X.indptr), X.shape).toarray()
    return X.astype("U") if X.dtype == object else X


@pytest.mark.thin(15)
def test_rows_of_every_range(case: Any) -> None:
    data, _, kind = case
    rows, expected = data.rows, whole(kind)
    assert (rows.shape, rows.dtype.kind) == (expected.shape, expected.dtype.kind)
    for start, stop in ((0, N), (0, 1), (6, 8), (13, 36), (49, 50), (20, 20)):
        block = rows.read(start, stop)
        assert block.shape == (stop - start, *expected.shape[1:])
        np.testing.assert_array_equal(values(block), expected[start:stop])
    for first, last in ((0, N), (5, 23)):
        chunks = list(chunk_ranges(rows, first, last))
        assert (chunks[0][0], chunks[-1][1]) == (first, last)
        assert all(start % rows.chunk_rows == 0 for start, _ in chunks[1:])
        found = np.concatenate([values(rows.read(*chunk)) for chunk in chunks])
        np.testing.assert_array_equal(found, expected[first:last])


@pytest.mark.thin(15)
def test_blocks_of_every_size(case: Any) -> None:
    data, _, kind = case
    numeric = not kind.startswith("sequences")
    expected = whole(kind) if numeric else CODES
    for keep in (None, np.arange(N) % 3 > 0):
        reader: Any = NumericReader(data.rows, keep) if numeric else SequenceReader(data.rows, keep)
        kept = expected if keep is None else expected[keep]
        assert reader.n_rows == len(kept)
        for size in (1, 8, 64):
            blocks = list((reader.iter_blocks if numeric else reader.iter_codes)(size))
            assert [start for start, _, _ in blocks] == list(range(0, len(kept), size))
            found = np.concatenate([values(block) for _, _, block in blocks])
            np.testing.assert_array_equal(found, kept)


@pytest.mark.thin(9)
def test_the_same_data_set(case: Any) -> None:
    """Also where another process opens it, and with a target and weights in memory."""
    data, container, kind = case
    arrays, found = KINDS[kind], [data]
    if data.source:
        given = {name: arrays.get(name) for name in ("y", "weights")}
        found.append(open_data(**pickle.loads(pickle.dumps(data.source)), **given))
    assert bool(data.source) == (container not in ("memory", "pandas"))
    y = arrays.get("y")
    for each in found:
        assert each.fingerprint() == in_memory(kind).fingerprint() == each.fingerprint()
        assert each.column_names == arrays.get("names")
        assert (each.target is None) == (y is None)
        if y is not None:
            shown = y.astype("U") if y.dtype == object else y
            np.testing.assert_array_equal(each.target, shown[:, 0] if y.shape == (N, 1) else shown)
            assert each.target.dtype.kind in "biufSU"
        np.testing.assert_array_equal(each.weights, arrays.get("weights"))
        each.check_unchanged()


@pytest.mark.parametrize("container", [*WRITERS, *TREES])
def test_names_and_chunks(container: str, tmp_path: Path) -> None:
    rows = opened(container, "codes", tmp_path).rows
    groups = {"zarr3-group": "folds/one/", "hdf5-group": "folds/one/"}
    files = {"zarr3-zip": "data.zarr.zip", "hdf5-group": "data.hdf5", "npy-file": "X.npy"}
    kinds = {"zarr": "data.zarr", "hdf5": "data.h5", "h5ad": "data.h5ad", "npy": "data"}
    file = files.get(container) or kinds.get(container[:4].rstrip("-"))
    place = f"{file}:{groups.get(container, '')}X"
    assert rows.name == {"npy-file": "X.npy", "memory": "X"}.get(container, place)
    whole = container in ("hdf5-contiguous", "memory", "h5ad") or container.startswith("npy")
    assert rows.chunk_rows == (N if whole else 21 if "sharded" in container else 7)
    assert rows.chunk_bytes == (0 if container == "memory" else rows.chunk_rows * 12)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("container", "kind"),
    [(name, "dense") for name in ("zarr2", "zarr3-sharded", "hdf5", "npy-folder")]
    + [(name, "sparse") for name in TREES],
)
def test_memory(container: str, kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Blocks are read within twice what the reader announces, which is a part of the rows."""
    monkeypatch.setattr("fcl.data.base.STEP_BYTES", 100_000)
    monkeypatch.setattr("fcl.data.sparse.BLOCK_BYTES", 100_000)
    X: Any = np.random.default_rng(0).normal(size=(10_000, 60)).astype(np.float32)
    chunks = {} if "npy" in container else {"chunk_rows": 500}
    if kind == "dense":
        source, _ = put(container, tmp_path, {"X": X}, **chunks)
    else:
        source = put_tree(tmp_path, container, csr_tree(scipy.sparse.csr_matrix(X)), 20_000)
    reader = NumericReader(open_data(source, y=None).rows)
    for _ in range(2):  # the first time, libraries keep what they load
        tracemalloc.start()
        try:
            sums = [block.data.nbytes for _, _, block in reader.iter_blocks(100)]
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    rows = reader.rows
    most = 2 * rows.reading_bytes + getattr(rows, "resident_bytes", 0) + 50_000
    assert peak < most < sum(sums) == X.size * 4


def test_text_counts_by_its_letters() -> None:
    texts = ("fixed bytes", "wide bytes", "fixed text", "variable text")
    assert len({in_memory(f"sequences, {form}").fingerprint() for form in texts}) == 1


CHANGES = [
    ("zarr2", "X/.zarray"), ("zarr3", "X/zarr.json"), ("zarr3-sharded", "y/zarr.json"),
    ("zarr3-zip", ""), ("hdf5", ""), ("npy-folder", "X.npy"), ("npy-file", ""), ("h5ad", ""),
    ("h5ad-chunked", ""), ("zarr2-tree", "X/.zattrs"), ("zarr2-tree", "X/data/.zarray"),
    ("zarr3-tree", "X/zarr.json"),
]  # fmt: skip


@pytest.mark.parametrize(("container", "member"), CHANGES)
def test_a_source_that_changes(container: str, member: str, tmp_path: Path) -> None:
    data = opened(container, "sparse, f4" if container in TREES else "codes", tmp_path)
    data.check_unchanged()
    file = Path(data.source["source"]) / member
    status, content = file.stat(), file.read_bytes()
    later = (status.st_atime_ns, status.st_mtime_ns + 1)
    os.utime(file, ns=later)
    metadata = file.name.startswith((".z", "zarr.json"))  # written whenever its chunks are
    if metadata:
        with pytest.raises(InputError, match=f"{file} changed while .* new modification time, so"):
            data.check_unchanged()
    else:
        data.check_unchanged()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(file, ns=later)
    how = "new modification time" if metadata else "and other content"
    with pytest.raises(InputError, match=f"{file} changed while it was being read.*{how}"):
        data.check_unchanged()
    file.unlink()
    with pytest.raises(InputError, match=f"{file} can no longer be read"):
        data.check_unchanged()
