"""Bad input: each gets one message that names file and array."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import open_data
from fcl.errors import FclError, InputError

STORED = ["zarr2", "zarr3", "zarr3-sharded", "zarr3-zip", "hdf5", "npy-folder"]


def refusal(source, **keywords):
    with pytest.raises(InputError) as caught:
        open_data(source, **keywords)
    return str(caught.value)


def test_input_errors_are_value_errors_of_ours():
    assert issubclass(InputError, FclError)
    assert issubclass(InputError, ValueError)


# -- paths ---------------------------------------------------------------------------------------


def test_missing_path_suggests_the_nearest(tmp_path, store, arrays):
    store("zarr3", arrays)
    folder = tmp_path / "zarr3"
    assert refusal(folder / "date.zarr") == (
        f'{folder / "date.zarr"} does not exist; did you mean "{folder / "data.zarr"}"?'
    )
    assert refusal(tmp_path / "none" / "at all") == f"{tmp_path}/none/at all does not exist"


def test_unknown_formats(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.csv").write_text("1,2\n")
    (tmp_path / "file.doc").write_text("some words\n")
    np.savez(tmp_path / "data.npz", X=np.zeros(3))
    assert "folder is a folder with neither Zarr metadata nor .npy files" in refusal(
        tmp_path / "folder"
    )
    assert "file.doc is a file, in no format known to fcl; expected a Zarr" in refusal(
        tmp_path / "file.doc"
    )
    assert "file.csv is a table; convert it first: fcl convert" in refusal(tmp_path / "file.csv")
    assert refusal(tmp_path / "data.npz").endswith("store the arrays of an .npz with np.save")


@pytest.mark.parametrize("name", ["data.h5", "data.zip", "X.npy"])
@pytest.mark.parametrize("content", [b"", b"something else altogether"])
def test_files_that_are_not_what_they_are_called(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    message = refusal(tmp_path / name)
    assert str(tmp_path / name) in message
    assert "cannot be opened as HDF5" in message or "is not a readable" in message


def test_unreadable_file(tmp_path, monkeypatch):
    (tmp_path / "data.h5").write_bytes(b"x")

    def refuse(*args, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert refusal(tmp_path / "data.h5").endswith("data.h5 cannot be read: Permission denied")


def test_source_of_a_wrong_type():
    assert refusal(3) == (
        "the source is of type int; expected a path, a numpy array, a list of sequences, a sparse "
        "matrix or a data frame"
    )
    assert "rows of different lengths" in refusal([[1, 2], [3]])
    assert refusal("ACGTACGT").endswith(
        'does not exist; a sequence is given in a list: ["ACGTACGT"]'
    )


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "zarr3-zip", "hdf5"])
def test_missing_group(store, arrays, name):
    source, _ = store(name, arrays)
    message = refusal(f"{source}::/folds/two")
    in_zarr = r"/data\.zarr(\.zip)? holds no Zarr group at /folds/two"
    in_hdf5 = r"^data\.h5::/folds/two: /folds/two does not exist; expected a group"
    assert re.search(in_hdf5 if name == "hdf5" else in_zarr, message), message


def test_group_that_is_an_array(store, arrays):
    source, _ = store("zarr3", arrays)
    assert refusal(f"{source}::/X") == (
        "data.zarr::/X is a Zarr array itself; expected a group that holds X and y"
    )
    source, _ = store("hdf5", arrays)
    assert "data.h5::/X: /X is an array; expected a group" in refusal(f"{source}::/X")


def test_groups_in_formats_without_groups(store, arrays):
    source, _ = store("npy-folder", arrays)
    assert "has no groups, so ::/fold cannot be found" in refusal(f"{source}::/fold")


def test_zip_of_the_folder_instead_of_its_content(tmp_path, store, arrays):
    import shutil

    source, _ = store("zarr3", arrays)
    file = shutil.make_archive(str(tmp_path / "all"), "zip", tmp_path / "zarr3", "data.zarr")
    assert refusal(file).endswith("zip the content of the Zarr folder, not the folder")
    assert open_data(f"{file}::/data.zarr").n_rows == 50
    assert source


# -- arrays --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STORED)
def test_missing_array_lists_what_is_there(store, arrays, name):
    source, _ = store(name, arrays)
    file = os.path.basename(source)
    assert refusal(source, x="x") == (
        f'{file} has no array "x"; it holds "X", "weights", "y"; did you mean "X"?'
    )
    assert f'{file} has no array "labels"; it holds "X", "weights", "y"' in refusal(
        source, y="labels"
    )
    assert f'{file} has no array "weight"' in refusal(source, weights="weight")


def test_missing_array_lists_at_most_a_dozen(tmp_path):
    with h5py.File(tmp_path / "many.h5", "w") as file:
        for i in range(20):
            file[f"deep/a{i:02}"] = [1]
    message = refusal(tmp_path / "many.h5")
    assert '"deep/a11" and 8 more' in message


def test_target_beside_a_single_npy_file(store, arrays):
    source, _ = store("npy-file", {"X": arrays["X"]})
    assert refusal(source) == 'the folder of X.npy has no array "y"; it holds "X"'
    assert 'X.npy is one array, so it holds no "Z"' in refusal(source, x="Z")


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "hdf5"])
def test_group_instead_of_an_array(store, arrays, name):
    source, _ = store(f"{name}-group" if name != "zarr2" else name, arrays)
    source = str(source).partition("::")[0]
    if name == "zarr2":
        zarr.open_group(source, mode="a").create_group("folds")
    expected = f'"folds" in {os.path.basename(source)} is a group, expected an array'
    assert refusal(source, x="folds") == expected


def test_name_of_a_target_without_a_container(arrays):
    assert refusal(arrays["X"]) == (
        'y="y" is a name, but X is an array in memory; pass y as an array, or y=None for no target'
    )
    assert 'weights="w" is a name' in refusal(arrays["X"], y=None, weights="w")


@pytest.mark.parametrize("name", [*STORED, "memory"])
def test_lengths_that_differ(store, arrays, name):
    source, keywords = store(name, arrays | {"y": arrays["y"][:49]})
    prefix = "" if name == "memory" else f"{os.path.basename(source)}:"
    assert refusal(source, **keywords) == (
        f"{prefix}X has 50 rows, but {prefix}y has 49 values; they must agree"
    )
    keywords |= {"y": None, "weights": np.ones(51)}
    assert refusal(source, **keywords) == (
        f"{prefix}X has 50 rows, but weights has 51 values; they must agree"
    )


@pytest.mark.parametrize("name", [*STORED, "memory"])
@pytest.mark.parametrize("shape", [(3, 2, 2), ()])
def test_number_of_dimensions(store, arrays, name, shape):
    if shape == () and "sharded" in name:
        pytest.skip("a scalar has no shards")
    values = np.zeros(shape, dtype=np.uint8)
    if shape == () and name != "memory" and not name.startswith("npy"):
        path = store(name, {})[0] if name != "zarr3-zip" else pytest.skip("as in a folder")
        if name == "hdf5":
            with h5py.File(path, "w") as file:
                file["X"] = values
        else:
            zarr.open_group(path, mode="a").create_array("X", data=values)
        message = refusal(path, y=None)
    else:
        message = refusal(store(name, {"X": values})[0], y=None)
    assert f"X has {len(shape)} dimensions, shape {shape}; expected one or two" in message


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "hdf5-contiguous", "npy-folder", "memory"])
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)])
def test_empty_data(store, tmp_path, name, shape):
    values = np.zeros(shape, dtype=np.uint8)
    if name.startswith("zarr"):
        source = tmp_path / "data.zarr"
        group = zarr.open_group(source, mode="w", zarr_format=int(name[-1]))
        group.create_array("X", shape=shape, dtype="u1", chunks=tuple(max(1, n) for n in shape))
    else:
        source, _ = store(name, {"X": values})
    message = refusal(source, y=None)
    assert f"X is empty, shape {shape}; expected at least one row and one column" in message


def test_null_dataset(tmp_path):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = h5py.Empty("f")
    assert "data.h5:X is a null dataset" in refusal(tmp_path / "data.h5")


@pytest.mark.parametrize("name", ["zarr2", "zarr3", "hdf5", "memory"])
def test_empty_target(store, arrays, name):
    source, _ = store(name, {"X": arrays["X"]})
    assert refusal(source, y=np.zeros(0)) == (
        "y is empty, shape (0,); expected at least one row and one column"
    )


@pytest.mark.parametrize("name", ["zarr3", "hdf5", "npy-folder", "memory"])
def test_weights_with_columns(store, arrays, name):
    source, keywords = store(name, arrays | {"weights": np.ones((50, 2))})
    keywords["weights"] = keywords.get("weights", "weights")
    message = refusal(source, **keywords)
    assert "weights has shape (50, 2); expected one value per row, (n,)" in message


def test_python_objects(tmp_path):
    objects = np.array([{"a": 1}, None], dtype=object)
    np.save(tmp_path / "X.npy", objects, allow_pickle=True)
    assert "X.npy holds Python objects; expected numbers or text" in refusal(tmp_path / "X.npy")
    message = refusal(objects)
    assert message.startswith("X holds Python objects (NoneType, dict); expected numbers or text")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("X", shape=(3,), dtype=h5py.vlen_dtype(np.int32))
    assert "data.h5:X holds Python objects" in refusal(tmp_path / "data.h5")


@pytest.mark.parametrize("dtype", ["c16", "M8[s]", [("a", "i4"), ("b", "f4")]])
def test_dtypes_of_no_use(tmp_path, dtype):
    values = np.zeros(3, dtype=dtype)
    assert f"X has dtype {values.dtype}; expected numbers or text" in refusal(values)
    np.save(tmp_path / "X.npy", values)
    assert f"X.npy has dtype {values.dtype}" in refusal(tmp_path / "X.npy")


def test_weights_are_checked_on_opening(store, arrays):
    source, keywords = store("zarr3", arrays | {"weights": np.full(50, -1.0)})
    assert refusal(source, **keywords).startswith("data.zarr:weights: row 0 is -1.0; weights must")


# -- HDF5 locks ----------------------------------------------------------------------------------


def test_lock_is_put_into_words(store, arrays):
    source, _ = store("hdf5", arrays)
    code = (
        "import fcntl, sys; from fcl.data import open_data; from fcl.errors import InputError\n"
        "file = open(sys.argv[1], 'rb'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "try: open_data(sys.argv[1]); print('opened')\n"
        "except InputError as error: print(error)"
    )
    for setting, expected in [(None, "opened"), ("TRUE", "is locked by another process")]:
        env = os.environ | ({"HDF5_USE_FILE_LOCKING": setting} if setting else {})
        done = subprocess.run(
            [sys.executable, "-c", code, str(source)], env=env, capture_output=True, text=True
        )
        assert expected in done.stdout, done.stderr


def test_error_11_is_put_into_words(store, arrays, monkeypatch):
    source, _ = store("hdf5", arrays)

    def locked(*args, **keywords):
        raise BlockingIOError(
            errno.EAGAIN, "Unable to synchronously open file (unable to lock file, errno = 11)"
        )

    monkeypatch.setattr("h5py.File", locked)
    message = refusal(source)
    assert "data.h5 is locked by another process that has it open (errno 11)" in message
    assert "HDF5_USE_FILE_LOCKING=FALSE" in message


# -- sources that change -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*STORED, "npy-file"])
def test_source_that_changes(store, arrays, name):
    source, keywords = store(name, arrays)
    dataset = open_data(source, **keywords)
    dataset.check_unchanged()
    changed = {
        "zarr2": "X/.zarray",
        "zarr3": "X/zarr.json",
        "zarr3-sharded": "y/zarr.json",
        "npy-folder": "X.npy",
    }.get(name, "")
    file = Path(source) / changed
    status, content = file.stat(), file.read_bytes()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    if file.name.startswith((".z", "zarr.json")):  # written whenever its chunks are
        with pytest.raises(InputError, match=f"{file} changed .* new modification time, so"):
            dataset.check_unchanged()
    else:  # only touched
        dataset.check_unchanged()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        with pytest.raises(InputError, match=f"{file} changed .* and other content"):
            dataset.check_unchanged()
    file.unlink()
    with pytest.raises(InputError, match=f"{file} can no longer be read"):
        dataset.check_unchanged()


def test_a_length_that_is_true(tmp_path):
    """Python takes True for 1, and numpy reads the header."""
    file = tmp_path / "X.npy"
    np.save(file, np.zeros((60, 1), np.uint8))
    content = file.read_bytes()
    file.write_bytes(content.replace(b"(60, 1), }   ", b"(60, True), }"))
    assert file.stat().st_size == len(content) and file.read_bytes() != content
    assert "expected whole numbers as its shape, got (60, True)" in refusal(file)


def test_a_large_file_that_was_touched(tmp_path, caplog):
    """Its content is only sampled, so the user is warned; a change at either end is found."""
    file = tmp_path / "X.npy"
    np.save(file, np.zeros((100_000, 8), np.uint8))
    dataset = open_data(file, y=None)
    dataset.check_unchanged()
    assert not caplog.records
    os.utime(file, ns=(1, 1))
    dataset.check_unchanged()
    assert f"{file} has a new modification time" in caplog.text
    with file.open("r+b") as changed:
        changed.seek(-1, os.SEEK_END)
        changed.write(b"x")
    with pytest.raises(
        InputError, match="same size, but a new modification time and other content"
    ):
        dataset.check_unchanged()


def test_change_of_size_alone(store, arrays):
    source, _ = store("npy-file", arrays)
    dataset = open_data(source)
    status = source.stat()
    with source.open("ab") as file:
        file.write(b"x")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InputError, match=rf"was {status.st_size} bytes, is {status.st_size + 1}"):
        dataset.check_unchanged()


# -- sizes that files declare ----------------------------------------------------------------------


def test_text_wider_than_the_memory(tmp_path):
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file["X"] = np.zeros((1000, 2))
        file.create_dataset("y", (1000,), "S100000000", chunks=(1,))
    message = refusal(tmp_path / "wide.h5")
    assert message.startswith("wide.h5:y has 1,000 values, which need 93.2 GiB, but this machine")


def test_categories_that_were_never_written(tmp_path):
    group = zarr.open_group(tmp_path / "many.zarr", mode="w")
    group["X"] = np.zeros((2, 2))
    y = group.create_group("y", attributes={"encoding-type": "categorical"})
    y["codes"] = np.array([0, 1])
    y.create_array("categories", shape=(2**34,), dtype="i8", chunks=(1,))
    assert "many.zarr:y/categories has 17,179,869,184 values" in refusal(tmp_path / "many.zarr")


@pytest.mark.parametrize("where", ["rows", "columns"])
def test_chunks_larger_than_the_array(tmp_path, where):
    """A chunk is decoded as a whole, so that a plan must count all of it."""
    chunks = {"rows": (2**20, 2), "columns": (10, 2**21)}[where]
    group = zarr.open_group(tmp_path / "big.zarr", mode="w")
    group.create_array("X", shape=(10, 2), dtype="f8", chunks=chunks, fill_value=0)
    rows = open_data(tmp_path / "big.zarr", y=None).rows
    assert rows.chunk_bytes == 8 * chunks[0] * chunks[1]


def test_lists():
    data = open_data([[0.0, 1.0], [2.0, 3.0]], y=[0, 1])
    assert data.rows.read(0, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert data.target.tolist() == [0, 1]
    assert open_data(["ACGT", "AAAA"], y=None).rows.read(1, 2).tolist() == ["AAAA"]


@pytest.mark.parametrize(
    ("name", "out"),
    [("m.train.csv", "m.train.zarr"), ("m.test.csv.gz", "m.test.zarr"), ("m.csv", "m.zarr")],
)
def test_converted_files_keep_their_names_apart(name: str, out: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"a,b,y\n1,2,0\n3,4,1\n")
    assert f"fcl convert {tmp_path / name} {tmp_path / out}" in refusal(tmp_path / name)
