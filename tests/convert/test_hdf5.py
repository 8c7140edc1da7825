"""``fcl convert`` of HDF5 files, which copies arrays: the same data set as from the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from click.testing import CliRunner

import fcl
from fcl.cli.convert import command
from fcl.convert.hdf5 import copy_hdf5

h5py = pytest.importorskip("h5py")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Sparse rows, columns of a table, text, letters, and what fcl does not read."""
    from scipy.sparse import random_array

    rng = np.random.default_rng(0)
    matrix = random_array((2000, 30), density=0.2, format="csr", random_state=rng)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_group("X")
        x.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
        x.attrs["shape"] = matrix.shape
        for part in ("indptr", "indices", "data"):
            x.create_dataset(part, data=getattr(matrix, part), chunks=(300,), compression="gzip")
        label = file.create_group("obs/label")
        label.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0"})
        label["codes"] = rng.integers(0, 2, 2000).astype(np.int8)
        label["categories"] = np.array(["no", "yes"], object)
        file["obs/age"] = rng.normal(size=2000)
        file["var/_index"] = np.array([f"gene {i}" for i in range(30)], object)
        file["var"].attrs["_index"] = "_index"
        windows = file.create_group("windows")
        windows["X"] = np.array(list("ACGT"), "S1")[rng.integers(0, 4, (70, 9))]
        windows["texts"] = windows["X"][()].view("S9")[:, 0]
        windows["y"] = rng.integers(0, 2, 70).astype(">i4")
        file["uns/deep"] = np.zeros((2, 2, 2))
        file["uns/one"] = 3.0
    return tmp_path / "a.h5"


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("", {"y": "obs/label", "weights": None, "covariates": "obs/age,obs/label"}),
        ("::/windows", {"x": "texts"}),
    ],
)
def test_the_same_data_set(file: Path, tmp_path: Path, group: str, names: dict[str, Any]) -> None:
    lines = dict(copy_hdf5(f"{file}{group}", tmp_path / "a.zarr"))
    before = fcl.open_data(f"{file}{group}", **names)
    after = fcl.open_data(tmp_path / "a.zarr", **names)
    assert before.fingerprint() == after.fingerprint()
    if not group:
        assert after.column_names == [f"gene {i}" for i in range(30)]
        assert lines["arrays"].startswith("10 arrays") and "uns/deep, uns/one" in lines["left out"]
    else:
        assert "left out" not in lines


def test_long_numbers_become_float64(tmp_path: Path) -> None:
    """Zarr has no long double, which HDF5 and numpy have."""
    values = np.arange(12.0, dtype=np.longdouble).reshape(6, 2) / 3
    with h5py.File(tmp_path / "a.h5", "w") as target:
        target["X"] = values
        target["y"] = np.arange(6, dtype=np.longdouble)
    copy_hdf5(tmp_path / "a.h5", tmp_path / "a.zarr")
    found: Any = zarr.open_group(tmp_path / "a.zarr", mode="r")
    assert found["X"].dtype == found["y"].dtype == np.float64
    np.testing.assert_array_equal(found["X"][:], values.astype(np.float64))


def test_the_command(file: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "a.zarr")
    run = CliRunner().invoke
    result = run(command, [str(file), out])
    assert result.exit_code == 0 and "10 arrays" in result.output
    for arguments, words in (
        ([str(file), out], "exists already"),
        ([str(file), out, "--overwrite", "--length", "3"], "--length is not an option for HDF5"),
        ([str(file), str(tmp_path / "b.txt")], "a name that ends in .zarr"),
        ([f"{file}::/nothing", str(tmp_path / "b.zarr")], "/nothing does not exist"),
        ([str(tmp_path / "none.h5"), str(tmp_path / "b.zarr")], "none.h5"),
    ):
        result = run(command, arguments)
        assert result.exit_code == 2 and words in result.output, result.output
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "a.zarr"]
    assert run(command, [str(file), out, "--overwrite", "--quiet"]).output == ""
