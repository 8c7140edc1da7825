"""What single containers do beyond the contract of tests/contracts/test_stored_rows.py."""

import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import open_data
from fcl.errors import InputError
from tests.data.conftest import put, put_hdf5


def test_memory_is_read_in_place_and_protected(arrays):
    rows = open_data(arrays["X"], y=None).rows
    block = rows.read(3, 9)
    assert np.shares_memory(block, arrays["X"])
    assert not block.flags.writeable
    assert arrays["X"].flags.writeable
    assert rows.chunk_bytes == 0


def test_single_npy_file_finds_columns_from_here_and_beside_it(tmp_path, monkeypatch, arrays):
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "reads.npy", arrays["X"])
    np.save(tmp_path / "data" / "beside.npy", arrays["y"])
    np.save(tmp_path / "here.npy", arrays["weights"])
    monkeypatch.chdir(tmp_path)
    dataset = open_data("data/reads.npy", y="beside", weights="here.npy")
    np.testing.assert_array_equal(dataset.target, arrays["y"])
    np.testing.assert_array_equal(dataset.weights, arrays["weights"])
    assert dataset.rows.name == "reads.npy"


def test_zarr_settings_of_the_caller_stay(tmp_path, arrays):
    source, _ = put("zarr3", tmp_path, arrays)
    with zarr.config.set({"async.concurrency": 5, "threading.max_workers": 3}):
        open_data(source).fingerprint()
        assert zarr.config.get("async.concurrency") == 5
        assert zarr.config.get("threading.max_workers") == 3


def test_large_shards_are_read_along_inner_chunks(tmp_path, arrays, monkeypatch):
    source, _ = put("zarr3-sharded", tmp_path, arrays)
    monkeypatch.setattr("fcl.data.zarr.MAX_SHARD_BYTES", 21 * 12 - 1)
    assert open_data(source).rows.chunk_rows == 7


@pytest.mark.parametrize("chunks", [(2**20, 2), (10, 2**21)])
def test_chunks_larger_than_the_array(tmp_path, chunks):
    """A chunk is decoded as a whole, so that a plan must count all of it."""
    group = zarr.open_group(tmp_path / "big.zarr", mode="w")
    group.create_array("X", shape=(10, 2), dtype="f8", chunks=chunks, fill_value=0)
    rows = open_data(tmp_path / "big.zarr", y=None).rows
    assert rows.chunk_bytes == 8 * chunks[0] * chunks[1]


def test_a_zip_of_the_folder_instead_of_its_content(tmp_path, arrays):
    put("zarr3", tmp_path, arrays)
    file = shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path, "data.zarr")
    with pytest.raises(InputError, match=r"zip the content of the Zarr folder, not the folder$"):
        open_data(file)
    assert open_data(f"{file}::/data.zarr").n_rows == 50


def test_a_link_to_another_hdf5_file_is_followed(tmp_path):
    put_hdf5(tmp_path / "other.h5", {"X": np.eye(4)})
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = h5py.ExternalLink("other.h5", "/X")
        file["y"] = np.ones(4)
    data = open_data(tmp_path / "data.h5", y="y")
    np.testing.assert_array_equal(data.rows.read(0, 4), np.eye(4))


def test_masked_arrays_without_masked_values_and_lists():
    data = open_data(np.ma.masked_array(np.eye(4)), y=np.arange(4) % 2)
    assert type(data.rows.read(0, 4)) is np.ndarray
    data = open_data([[0.0, 1.0], [2.0, 3.0]], y=[0, 1])
    assert data.rows.read(0, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert data.target.tolist() == [0, 1]
    assert open_data(["ACGT", "AAAA"], y=None).rows.read(1, 2).tolist() == ["AAAA"]


def test_chunk_bytes_of_variable_text_cover_the_letters(tmp_path):
    source, _ = put("hdf5", tmp_path, {"X": np.array(["ACGT" * 5] * 30, dtype=object)})
    assert open_data(source, y=None).rows.chunk_bytes >= 7 * 4 * 20


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("", {"zarr", "h5py", "numba", "sklearn"}),
        (
            "m = types.SimpleNamespace(indptr=np.array([0, 1]), indices=np.array([0]),\n"
            "    data=np.ones(1), shape=(1, 1))\n"
            "fcl.data.open_data(m, y=None).fingerprint()",
            {"scipy", "anndata"},
        ),
    ],
    ids=["import", "sparse rows"],
)
def test_modules_that_are_not_imported(code, modules):
    code = f"import sys, types, numpy as np, fcl.data\n{code}\nprint({modules} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
