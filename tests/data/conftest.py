"""The same arrays in every container that fcl reads."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fcl.data import SparseRowReader
from fcl.data.base import RowReader

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


Writer = Callable[..., Stored]  # of folder, arrays and options of the container


def _in_zarr(group: str = "", consolidated: bool = False, **options: Any) -> Writer:
    def write(folder: Path, arrays: Arrays, **more: Any) -> Stored:
        import zarr

        put_zarr(folder / "data.zarr", arrays, path=group, **options | more)
        if consolidated:
            zarr.consolidate_metadata(folder / "data.zarr", **options)
        return (f"{folder}/data.zarr::/{group}" if group else folder / "data.zarr"), {}

    return write


def _in_hdf5(name: str = "data.h5", group: str = "", **options: Any) -> Writer:
    def write(folder: Path, arrays: Arrays, **more: Any) -> Stored:
        put_hdf5(folder / name, arrays, group=group or "/", **options | more)
        return (f"{folder}/{name}::/{group}" if group else folder / name), {}

    return write


def _zarr3_zip(folder: Path, arrays: Arrays) -> Stored:
    import zarr

    with zarr.storage.ZipStore(folder / "data.zarr.zip", mode="w") as store:
        put_zarr(store, arrays)
    return str(folder / "data.zarr.zip"), {}


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


WRITERS: dict[str, Writer] = {
    "zarr2": _in_zarr(zarr_format=2),
    "zarr2-consolidated": _in_zarr(zarr_format=2, consolidated=True),
    "zarr3": _in_zarr(),
    "zarr3-group": _in_zarr("folds/one"),
    "zarr3-sharded": _in_zarr(shards=3),
    "zarr3-zip": _zarr3_zip,
    "hdf5": _in_hdf5(compression="gzip"),
    "hdf5-contiguous": _in_hdf5(chunk_rows=None),
    "hdf5-group": _in_hdf5("data.hdf5", "folds/one"),
    "npy-folder": _npy_folder,
    "npy-fortran": _npy_fortran,
    "npy-file": _npy_file,
    "memory": _memory,
}


def put(container: str, folder: Path, arrays: Arrays, **options: Any) -> Stored:
    """Write arrays in a container, by its name; returns source and keywords of ``open_data``."""
    source, keywords = WRITERS[container](folder, arrays, **options)
    if "weights" in arrays:
        keywords.setdefault("weights", "weights")
    return source, keywords


def make_arrays() -> Arrays:
    """50 sequences of 12 letters as codes, some unknown, with labels and weights."""
    rng = np.random.default_rng(20240501)
    return {
        "X": rng.integers(0, 5, (50, 12)).astype(np.uint8),
        "y": rng.permutation(np.repeat([-1, 1], 25)),
        "weights": rng.uniform(0.1, 2.0, 50),
    }


@pytest.fixture
def arrays() -> Arrays:
    """The arrays of :func:`make_arrays`."""
    return make_arrays()


# -- sources of cases: functions that write into a folder ------------------------------------------

Source = Callable[[Path], Stored]


def stored(container: str, **changed: np.ndarray | None) -> Source:
    """The arrays in a container, some of them replaced, or left out if None."""
    arrays = {name: v for name, v in (make_arrays() | changed).items() if v is not None}
    return lambda folder: put(container, folder, arrays)


def source(write: Callable[..., Any]) -> Callable[..., Source]:
    """A function that writes into a folder, as one that makes sources of its other arguments."""

    def given(*more: Any, **options: Any) -> Source:
        def make(folder: Path) -> Stored:
            found = write(folder, *more, **options)
            return found if isinstance(found, tuple) else (found, {})

        return make

    return given


@source
def in_hdf5(folder: Path, write: Callable[[Any], object]) -> Path:
    """An HDF5 file that a function fills."""
    import h5py

    with h5py.File(folder / "data.h5", "w") as file:
        write(file)
    return folder / "data.h5"


@source
def in_zarr(folder: Path, write: Callable[[Any], object], zarr_format: int = 3) -> Path:
    """A Zarr group that a function fills."""
    import zarr

    write(zarr.open_group(folder / "data.zarr", mode="w", zarr_format=zarr_format))
    return folder / "data.zarr"


@source
def in_file(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@source
def in_npy(folder: Path, values: Any) -> Path:
    np.save(folder / "X.npy", values, allow_pickle=True)
    return folder / "X.npy"


@source
def changed(folder: Path, whole: Source, change: Callable[[bytes], bytes], member: str = "") -> Any:
    """A source of which one file is changed: ``member`` of a folder, or the file itself."""
    path, keywords = whole(folder)
    file = Path(path) / member
    file.write_bytes(change(file.read_bytes()))
    return path, keywords


@source
def within(folder: Path, whole: Source, group: str) -> str:
    """A group of a source."""
    return f"{whole(folder)[0]}::{group}"


def short(error: Exception, folder: Path) -> str:
    """The message of an error, which is one line, without the folder of the test."""
    message = str(error).replace(f"{folder}/", "")
    assert "\n" not in message
    return message


# -- arrays that record how they are read ----------------------------------------------------------


class Chunked(RowReader):
    """An array in memory that behaves as if stored in chunks, and records what is read of it."""

    def __init__(self, array: np.ndarray, chunk_rows: int, name: str = "test.zarr:X") -> None:
        self.name, self.shape, self.dtype = name, array.shape, array.dtype
        self.array, self.chunk_rows = array, chunk_rows
        self.reads: list[tuple[int, int]] = []

    def read(self, start: int, stop: int) -> np.ndarray:
        assert 0 <= start < stop <= len(self.array)
        self.reads.append((start, stop))
        return self.array[start:stop]

    @property
    def decoded(self) -> list[int]:
        """The chunks of all reads, in their order."""
        size = self.chunk_rows
        return [i for a, b in self.reads for i in range(a // size, (b - 1) // size + 1)]


def chunked_matrix(
    matrix: Any, chunk_rows: int = 7, name: str = "test:X"
) -> tuple[SparseRowReader, list[Chunked]]:
    """A reader of a CSR matrix whose parts are stored in chunks, and the parts."""
    parts = [
        Chunked(getattr(matrix, part), chunk_rows, f"{name}/{part}")
        for part in ("indptr", "indices", "data")
    ]
    return SparseRowReader(name, matrix.shape, *parts), parts


def csr(indptr: Any, indices: Any, data: Any, shape: tuple[int, int]) -> SimpleNamespace:
    """An object with the parts of a CSR matrix, whatever they hold."""
    parts = {"indptr": np.array(indptr), "indices": np.array(indices), "data": np.array(data)}
    return SimpleNamespace(**parts, shape=shape)


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


in_tree = source(put_tree)


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


LINE = ("--features", "columns", "--C", "1", "--out", "m.fcl", "--driver", "inline", "--quiet")


def check_command(source: Any, roles: dict[str, str], message: str, folder: Path) -> None:
    """The command that trains on a source refuses it with the same message."""
    from click.testing import CliRunner

    from fcl.cli.train import command

    options = [f"--{role}={array}" for role, array in roles.items()]
    result = CliRunner().invoke(command, [str(source), *LINE, *options])
    line = " ".join(result.stderr.replace(f"{folder}/", "").split())
    shared = message.partition("but this machine")[0]  # the command has a budget instead
    assert result.exit_code == 2 and " ".join(shared.split()) in line, line
