"""Small valid data sets in every format, and models and checkpoints trained on them."""

from __future__ import annotations

import json
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

#: Families for rows of each kind that train within milliseconds.
FAMILIES = {
    "numbers": ("columns", "products:degree=2", "fourier:n=20", "columns + fourier:n=10 * 2"),
    "letters": (
        "kmers:d=2",
        "bag:d=2",
        "bag:d=2,strands=both",
        "bag:d=2,value=presence,wildcards=true",
        "kmers:d=2 + bag:d=1 * 0.5",
    ),
}
#: Columns of the rows of each kind, so that models and data of all cases fit together.
WIDTHS = {"numbers": 6, "letters": 8}
LOSSES = ("logistic", "squared", "squared_hinge")
FORMATS = (
    "npy folder", "npy file", "zarr2", "zarr3", "zarr3 sharded", "zarr2 zip", "zarr3 zip",
    "zarr group", "hdf5", "hdf5 group",
)  # fmt: skip
SPARSE_FORMATS = ("h5ad", "zarr csr")


def arrays(numbers: np.random.Generator, kind: str, n: int = 60) -> Arrays:
    """Make rows of a kind, a target that one column explains, and sample weights."""
    shape = n, WIDTHS[kind]
    if kind == "letters":
        X = numbers.integers(0, 4, shape).astype(np.uint8)
        signal = (X[:, 1] == 2) - 0.5
    else:
        X = numbers.normal(size=shape).astype(np.float32)
        signal = X[:, 0]
    y = np.where(signal + 0.7 * numbers.normal(size=n) > 0, 1, -1)
    y[:2] = -1, 1
    return {"X": X, "y": y.astype(np.int8), "s": numbers.uniform(0.5, 2.0, n)}


def store(folder: Path, name: str, form: str, data: Arrays) -> str:
    """Write arrays in one of the formats; return the name to give as DATA."""
    path = folder / name
    if form == "npy folder":
        path.mkdir()
        for key, values in data.items():
            np.save(path / f"{key}.npy", values)
        return name
    if form == "npy file":
        path.mkdir()
        return f"{store(folder, f'{name}/d', 'npy folder', data)}/X.npy"
    if form.startswith("hdf5") or form == "h5ad":
        return _store_hdf5(folder, f"{name}.h5", form, data)
    return _store_zarr(folder, f"{name}.zarr", form, data)


def _csr(X: np.ndarray) -> tuple[Arrays, dict[str, Any]]:
    dense = np.where(np.abs(X) < 0.4, 0.0, X)
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    parts = {
        "indptr": indptr.astype(np.int32),
        "indices": columns.astype(np.int32),
        "data": dense[rows, columns].astype(np.float32),
    }
    shape = [int(size) for size in X.shape]
    return parts, {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}


def _store_hdf5(folder: Path, name: str, form: str, data: Arrays) -> str:
    import h5py

    with h5py.File(folder / name, "w") as file:
        group = file.create_group("/a/b") if form == "hdf5 group" else file
        for key, values in data.items():
            if form == "h5ad" and key == "X":
                parts, attributes = _csr(values)
                matrix = group.create_group("X")
                matrix.attrs.update(attributes)
                for part, content in parts.items():
                    matrix.create_dataset(part, data=content)
            else:
                group.create_dataset(key, data=values, chunks=True, compression="gzip")
    return f"{name}::/a/b" if form == "hdf5 group" else name


def _store_zarr(folder: Path, name: str, form: str, data: Arrays) -> str:
    import zarr

    version: Any = 2 if "2" in form else 3
    zipped = form.endswith("zip")
    place: Any = os.fspath(folder / name)
    if zipped:
        name += ".zip"
        place = zarr.storage.ZipStore(folder / name, mode="w")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _fill_zarr(zarr.open_group(place, mode="w", zarr_format=version), form, data)
    finally:
        if zipped:
            place.close()
    return f"{name}::/a" if form == "zarr group" else name


def _fill_zarr(root: Any, form: str, data: Arrays) -> None:
    group = root.create_group("a") if form == "zarr group" else root
    for key, values in data.items():
        if form == "zarr csr" and key == "X":
            parts, attributes = _csr(values)
            matrix = group.create_group("X", attributes=attributes)
            for part, content in parts.items():
                matrix.create_array(part, data=content, chunks=(32,))
            continue
        extra: dict[str, Any] = {"chunks": (16, *values.shape[1:])}
        if form == "zarr3 sharded":
            extra["shards"] = (32, *values.shape[1:])
        group.create_array(key, data=values, **extra)


def make_stock(folder: Path) -> None:
    """Make the data ``numbers`` and ``letters``, for each family a model and two checkpoints, and
    the files of :mod:`tools.fuzz.files`.

    This also loads all modules and kernels that the cases need. The import of scikit-learn sets
    environment variables, so it must come before the first case.
    """
    import fcl.estimators  # noqa: F401
    from tools.fuzz.files import make_files

    numbers = np.random.default_rng(0)
    for kind, specs in FAMILIES.items():
        source = store(folder, kind, "npy folder", arrays(numbers, kind))
        for place, spec in enumerate(specs):
            name, loss = f"{kind}{place}", LOSSES[place % 3]
            run(
                [
                    "train", source, "--features", spec, "--C", "1", "--loss", loss,
                    "--driver", "inline", "--tol", "1e-12", "--max-passes", "1",
                    "--out", f"{name}.fcl", "--checkpoint", f"{name}.ck",
                    "--checkpoint-every", "0.000001s",
                ],
                folder,
            )  # fmt: skip
    make_files(folder)
    for path in [*folder.rglob("*.fcl"), *folder.rglob("*.fcl-ckpt")]:
        if path.is_file():
            _make_constant(path, folder)


def run(words: list[str], folder: Path) -> None:
    """Run a command that must succeed; ``<`` and a name at the end are standard input."""
    from tools.fuzz.run import run_inside

    stdin = words[-1] if "<" in words else ""
    arguments = words[: words.index("<")] if stdin else words
    done = run_inside([*arguments, "--quiet"], folder, stdin)
    if done.code != 0:
        raise RuntimeError(f"cannot make the stock: {' '.join(words)}: {done.errors}")


def _make_constant(path: Path, folder: Path) -> None:
    """Replace times and paths in a header, so that a case damages the same bytes in every run."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members["header.json"].decode().replace(f"{os.path.realpath(folder)}/", "")
    header = json.loads(text.replace(f"{folder}/", ""))
    header["created"] = "2025-01-01T00:00:00+00:00"
    if "elapsed" in header:
        header["elapsed"] = 1.0
    for entry in header.get("history") or ():
        changing = ("seconds", "rows_per_second", "memory_bytes")
        entry.update({key: 1.0 for key in changing if key in entry})
    members["header.json"] = json.dumps(header).encode()
    write_zip(path, list(members.items()))


def write_zip(path: Path, members: list[tuple[str, bytes]], compress: bool = False) -> None:
    """Write a zip with valid checksums, whatever its members contain."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may occur twice on purpose
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.compress_type = method
                archive.writestr(info, content)
