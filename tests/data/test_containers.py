"""One contract for all containers."""

import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import SequenceReader, open_data
from fcl.data.base import chunk_ranges
from fcl.errors import InputError
from tests.data.conftest import put_hdf5


@pytest.fixture
def dataset(container, store, arrays):
    source, keywords = store(container, arrays)
    return open_data(source, **keywords)


def test_holds_the_arrays(dataset, arrays):
    assert dataset.n_rows == 50
    assert dataset.rows.shape == (50, 12)
    assert dataset.rows.dtype == np.uint8
    np.testing.assert_array_equal(dataset.rows.read(0, 50), arrays["X"])
    np.testing.assert_array_equal(dataset.target, arrays["y"])
    np.testing.assert_array_equal(dataset.weights, arrays["weights"])
    assert dataset.weights.dtype == np.float64


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (6, 8), (13, 36), (49, 50), (20, 20)])
def test_reads_ranges(dataset, arrays, start, stop):
    block = dataset.rows.read(start, stop)
    assert block.shape == (stop - start, 12)
    np.testing.assert_array_equal(block, arrays["X"][start:stop])


def test_chunks_follow_the_storage(dataset, container, arrays):
    rows = dataset.rows
    chunks = list(chunk_ranges(rows))
    np.testing.assert_array_equal(np.concatenate([rows.read(*c) for c in chunks]), arrays["X"])
    assert all(start % rows.chunk_rows == 0 for start, _ in chunks)
    chunked = container.startswith("zarr") or container in ("hdf5", "hdf5-group")
    expected = 50 if not chunked else 21 if "sharded" in container else 7
    assert rows.chunk_rows == expected
    if container != "memory":
        assert rows.chunk_bytes == expected * 12


def test_chunks_of_a_range(dataset, arrays):
    chunks = list(chunk_ranges(dataset.rows, 5, 23))
    assert (chunks[0][0], chunks[-1][1]) == (5, 23)
    found = np.concatenate([dataset.rows.read(*c) for c in chunks])
    np.testing.assert_array_equal(found, arrays["X"][5:23])


def test_names_say_where_the_array_is(dataset, container):
    expected = {
        "zarr3-group": "data.zarr:folds/one/X",
        "zarr3-zip": "data.zarr.zip:X",
        "hdf5-group": "data.hdf5:folds/one/X",
        "npy-file": "X.npy",
        "memory": "X",
    }
    file = "data.zarr" if "zarr" in container else "data.h5" if "hdf5" in container else "data"
    assert dataset.rows.name == expected.get(container, f"{file}:X")


def test_without_target(container, store, arrays):
    source, _ = store(container, {"X": arrays["X"]})
    dataset = open_data(source, y=None)
    assert dataset.target is None
    assert dataset.weights is None
    dataset.check_unchanged()


def test_target_as_array_and_as_column(container, store, arrays):
    source, keywords = store(container, {"X": arrays["X"], "y": arrays["y"][:, None]})
    np.testing.assert_array_equal(open_data(source, **keywords).target, arrays["y"])
    given = open_data(source, y=arrays["y"][:, None])
    np.testing.assert_array_equal(given.target, arrays["y"])


LABELS = {
    "int8": np.array([0, 1], dtype=np.int8),
    "big-endian": np.array([3, 4], dtype=">i4"),
    "float32": np.array([-1, 1], dtype=np.float32),
    "bool": np.array([False, True]),
    "bytes": np.array([b"no", b"yes"]),
    "str": np.array(["ja", "né"]),
    "variable": np.array(["no", "yes"], dtype=object),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", list(LABELS))
def test_labels_of_any_dtype(container, store, arrays, labels):
    y = LABELS[labels][(arrays["y"] + 1) // 2]
    if container.startswith("npy") and labels == "variable":
        pytest.skip("a .npy file holds no text of variable length")
    source, keywords = store(container, {"X": arrays["X"], "y": y})
    target = open_data(source, **keywords).target
    assert target.dtype.kind in "biufSU"
    np.testing.assert_array_equal(target, y.astype("U") if y.dtype == object else y)


SEQUENCES = {
    "fixed bytes": lambda text: text.astype("S"),
    "fixed text": lambda text: text,
    "variable text": lambda text: text.astype(object),
    "letter matrix": lambda text: text.astype("S").view("S1").reshape(len(text), -1),
    "letters as numbers": lambda text: text.astype("S").view(np.uint8).reshape(len(text), -1),
}


@pytest.mark.parametrize("form", list(SEQUENCES))
def test_every_form_of_sequences(container, store, form):
    if container.startswith("npy") and form == "variable text":
        pytest.skip("a .npy file holds no text of variable length")
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 5, (30, 6))
    text = np.array(["".join("ACGTN"[c] for c in row) for row in codes])
    source, _ = store(container, {"X": SEQUENCES[form](text)})
    reader = SequenceReader(open_data(source, y=None).rows)
    assert (reader.n_rows, reader.length) == (30, 6)
    np.testing.assert_array_equal(np.concatenate([b for _, _, b in reader.iter_codes(8)]), codes)


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


def test_zarr_settings_of_the_caller_stay(store, arrays):
    source, _ = store("zarr3", arrays)
    with zarr.config.set({"async.concurrency": 5, "threading.max_workers": 3}):
        open_data(source).fingerprint()
        assert zarr.config.get("async.concurrency") == 5
        assert zarr.config.get("threading.max_workers") == 3


def test_large_shards_are_read_along_inner_chunks(store, arrays, monkeypatch):
    source, _ = store("zarr3-sharded", arrays)
    monkeypatch.setattr("fcl.data.zarr.MAX_SHARD_BYTES", 21 * 12 - 1)
    assert open_data(source).rows.chunk_rows == 7


@pytest.mark.parametrize("chunks", [(2**20, 2), (10, 2**21)])
def test_chunks_larger_than_the_array(tmp_path, chunks):
    """A chunk is decoded as a whole, so that a plan must count all of it."""
    group = zarr.open_group(tmp_path / "big.zarr", mode="w")
    group.create_array("X", shape=(10, 2), dtype="f8", chunks=chunks, fill_value=0)
    rows = open_data(tmp_path / "big.zarr", y=None).rows
    assert rows.chunk_bytes == 8 * chunks[0] * chunks[1]


def test_a_zip_of_the_folder_instead_of_its_content(tmp_path, store, arrays):
    store("zarr3", arrays)
    file = shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "zarr3", "data.zarr")
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


def test_masked_arrays_without_masked_values():
    data = open_data(np.ma.masked_array(np.eye(4)), y=np.arange(4) % 2)
    assert type(data.rows.read(0, 4)) is np.ndarray


def test_lists():
    data = open_data([[0.0, 1.0], [2.0, 3.0]], y=[0, 1])
    assert data.rows.read(0, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert data.target.tolist() == [0, 1]
    assert open_data(["ACGT", "AAAA"], y=None).rows.read(1, 2).tolist() == ["AAAA"]


def test_chunk_bytes_of_variable_text_cover_the_letters(store):
    text = np.array(["ACGT" * 5] * 30, dtype=object)
    source, _ = store("hdf5", {"X": text})
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
