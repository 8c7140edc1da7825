"""The same arrays in every container that fcl reads."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Arrays = dict[str, np.ndarray]
Stored = tuple[Any, dict[str, Any]]  # source and keywords of open_data


def put_zarr(
    store: Any,
    arrays: Arrays,
    *,
    zarr_format: int = 3,
    chunk_rows: int = 7,
    path: str = "",
    **options: Any,
) -> None:
    import zarr

    with warnings.catch_warnings():
        # Fixed-length text has no final specification in format 3.
        warnings.simplefilter("ignore")
        group = zarr.open_group(store, mode="a", path=path, zarr_format=zarr_format)
        for name, values in arrays.items():
            chunks = (chunk_rows, *values.shape[1:])
            extra = dict(options)
            if "shards" in extra:
                extra["shards"] = (extra["shards"] * chunk_rows, *values.shape[1:])
            data = values.astype(np.dtypes.StringDType()) if values.dtype == object else values
            group.create_array(name, data=data, chunks=chunks, **extra)


def put_hdf5(
    path: Path, arrays: Arrays, *, group: str = "/", chunk_rows: int | None = 7, **options: Any
) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            chunks = chunk_rows and (min(chunk_rows, len(values)), *values.shape[1:])
            data = values if values.dtype.kind != "U" else values.astype(object)
            file.require_group(group).create_dataset(name, data=data, chunks=chunks, **options)


def _zarr2(folder: Path, arrays: Arrays) -> Stored:
    put_zarr(folder / "data.zarr", arrays, zarr_format=2)
    return folder / "data.zarr", {}


def _zarr3(folder: Path, arrays: Arrays) -> Stored:
    put_zarr(folder / "data.zarr", arrays)
    return str(folder / "data.zarr"), {}


def _zarr3_group(folder: Path, arrays: Arrays) -> Stored:
    put_zarr(folder / "data.zarr", arrays, path="folds/one")
    return f"{folder}/data.zarr::/folds/one", {}


def _zarr3_sharded(folder: Path, arrays: Arrays) -> Stored:
    put_zarr(folder / "data.zarr", arrays, shards=3)
    return folder / "data.zarr", {}


def _zarr3_zip(folder: Path, arrays: Arrays) -> Stored:
    import zarr

    with zarr.storage.ZipStore(folder / "data.zarr.zip", mode="w") as store:
        put_zarr(store, arrays)
    return folder / "data.zarr.zip", {}


def _zarr2_consolidated(folder: Path, arrays: Arrays) -> Stored:
    import zarr

    put_zarr(folder / "data.zarr", arrays, zarr_format=2)
    zarr.consolidate_metadata(folder / "data.zarr", zarr_format=2)
    return folder / "data.zarr", {}


def _hdf5(folder: Path, arrays: Arrays) -> Stored:
    put_hdf5(folder / "data.h5", arrays, compression="gzip")
    return folder / "data.h5", {}


def _hdf5_contiguous(folder: Path, arrays: Arrays) -> Stored:
    put_hdf5(folder / "data.h5", arrays, chunk_rows=None)
    return folder / "data.h5", {}


def _hdf5_group(folder: Path, arrays: Arrays) -> Stored:
    put_hdf5(folder / "data.hdf5", arrays, group="/folds/one")
    return f"{folder}/data.hdf5::/folds/one", {}


def _npy_folder(folder: Path, arrays: Arrays) -> Stored:
    (folder / "data").mkdir()
    for name, values in arrays.items():
        np.save(folder / "data" / f"{name}.npy", values)
    return folder / "data", {}


def _npy_file(folder: Path, arrays: Arrays) -> Stored:
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder / "X.npy", {}


def _npy_fortran(folder: Path, arrays: Arrays) -> Stored:
    return _npy_folder(folder, {name: np.asfortranarray(v) for name, v in arrays.items()})


def _memory(folder: Path, arrays: Arrays) -> Stored:
    return arrays["X"], {"y": arrays.get("y"), "weights": arrays.get("weights")}


Writer = Callable[[Path, Arrays], Stored]

WRITERS: dict[str, Writer] = {
    "zarr2": _zarr2,
    "zarr2-consolidated": _zarr2_consolidated,
    "zarr3": _zarr3,
    "zarr3-group": _zarr3_group,
    "zarr3-sharded": _zarr3_sharded,
    "zarr3-zip": _zarr3_zip,
    "hdf5": _hdf5,
    "hdf5-contiguous": _hdf5_contiguous,
    "hdf5-group": _hdf5_group,
    "npy-folder": _npy_folder,
    "npy-fortran": _npy_fortran,
    "npy-file": _npy_file,
    "memory": _memory,
}


@pytest.fixture(params=list(WRITERS))
def container(request: pytest.FixtureRequest) -> str:
    """The name of each container in turn."""
    return request.param


@pytest.fixture
def store(tmp_path: Path) -> Callable[[str, Arrays], Stored]:
    """Write arrays in a container, by its name; returns source and keywords of ``open_data``."""

    def write(name: str, arrays: Arrays) -> Stored:
        folder = tmp_path / name
        folder.mkdir()
        source, keywords = WRITERS[name](folder, arrays)
        if "weights" in arrays:
            keywords.setdefault("weights", "weights")
        return source, keywords

    return write


@pytest.fixture
def write_zarr() -> Callable[..., None]:
    """``put_zarr``, for tests that choose codecs and chunks themselves."""
    return put_zarr


@pytest.fixture
def write_hdf5() -> Callable[..., None]:
    """``put_hdf5``, for tests that choose compression and chunks themselves."""
    return put_hdf5


@pytest.fixture
def arrays() -> Arrays:
    """50 sequences of 12 letters as codes, some unknown, with labels and weights."""
    rng = np.random.default_rng(20240501)
    return {
        "X": rng.integers(0, 5, (50, 12)).astype(np.uint8),
        "y": rng.permutation(np.repeat([-1, 1], 25)),
        "weights": rng.uniform(0.1, 2.0, 50),
    }


# -- groups that count as arrays, in the layout of anndata ----------------------------------------

Tree = dict[
    str, tuple[np.ndarray | None, dict[str, Any]]
]  # path: array or None for a group; attributes

TREES = ("h5ad", "h5ad-chunked", "zarr2-tree", "zarr3-tree")


def csr_tree(matrix: Any, path: str = "X", **attributes: Any) -> Tree:
    """A CSR matrix as a group; ``attributes`` replace those of the group, or remove them if None."""
    given = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": matrix.shape}
    parts = {f"{path}/{k}": (getattr(matrix, k), {}) for k in ("indptr", "indices", "data")}
    given |= {name.replace("_", "-"): value for name, value in attributes.items()}
    return {path: (None, {k: v for k, v in given.items() if v is not None}), **parts}


def _put_hdf5_tree(path: Path, tree: Tree, chunk_rows: int | None) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        for name, (values, attributes) in tree.items():
            if values is None:
                node = file.create_group(name)
            else:
                chunked = chunk_rows and values.size
                chunks = (min(chunk_rows, len(values)), *values.shape[1:]) if chunked else None
                data = values.astype(object) if values.dtype.kind == "U" else values
                node = file.create_dataset(name, data=data, chunks=chunks)
            for key, value in attributes.items():
                node.attrs[key] = value


def _put_zarr_tree(path: Path, tree: Tree, zarr_format: int, chunk_rows: int) -> None:
    import zarr

    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    for name, (values, attributes) in tree.items():
        if values is None:
            listed = {k: list(v) if isinstance(v, tuple) else v for k, v in attributes.items()}
            root.create_group(name, attributes=listed)
            continue
        text = values.dtype.kind in "UO"
        data = values.astype(np.dtypes.StringDType()) if text else values
        node = root.create_array(name, data=data, chunks=(chunk_rows, *values.shape[1:]))
        node.attrs.update(attributes)


def put_tree(folder: Path, kind: str, tree: Tree, chunk_rows: int = 7) -> str:
    """Write groups and arrays in one of TREES; returns the path of the file or folder."""
    if kind.startswith("h5ad"):
        path = folder / "data.h5ad"
        _put_hdf5_tree(path, tree, chunk_rows if kind == "h5ad-chunked" else None)
    else:
        path = folder / "data.zarr"
        _put_zarr_tree(path, tree, int(kind[4]), chunk_rows)
    return str(path)


@pytest.fixture(params=TREES)
def tree_kind(request: pytest.FixtureRequest) -> str:
    """Each way of storing groups in turn."""
    return request.param


@pytest.fixture
def write_tree(tmp_path: Path) -> Callable[..., str]:
    """``put_tree`` in a folder of the test, a new one each time: files may still be open."""
    numbers = itertools.count()

    def write(kind: str, tree: Tree, chunk_rows: int = 7) -> str:
        folder = tmp_path / f"tree{next(numbers)}"
        folder.mkdir()
        return put_tree(folder, kind, tree, chunk_rows)

    return write


@pytest.fixture
def as_tree() -> Callable[..., Tree]:
    """``csr_tree``."""
    return csr_tree
