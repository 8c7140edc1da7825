"""Missing chunks, and damage that is found late, or in many forms."""

import gc
import json
import logging
import os
import pickle
import re

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import SequenceReader, open_data
from fcl.errors import InputError
from tests.data.conftest import WRITERS, put, put_hdf5, put_zarr
from tests.data.test_refusals_storage import ARRAYS, CODES, flip, truncate


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.zarr"


def read_codes(dataset):
    return list(SequenceReader(dataset.rows).iter_codes(64))


def test_a_damaged_target_that_is_not_asked_for(path):
    put_zarr(path, ARRAYS, chunk_rows=100)
    (path / "y/c/1").write_bytes(b"damaged")
    assert open_data(path, y=None).n_rows == 400


def test_a_chunk_that_becomes_a_fifo(path):
    put_zarr(path, ARRAYS, chunk_rows=400)
    dataset = open_data(path)
    (path / "X/c/0/0").unlink()
    os.mkfifo(path / "X/c/0/0")
    with pytest.raises(InputError, match=r"X/c/0/0: is a FIFO"):
        dataset.rows.read(0, 4)


@pytest.mark.parametrize("change", [truncate, flip])
def test_hdf5_gzip(tmp_path, change):
    path = tmp_path / "data.h5"
    put_hdf5(path, ARRAYS, chunk_rows=100, compression="gzip")
    with h5py.File(path) as file:
        info = file["X"].id.get_chunk_info(2)
    content = bytearray(path.read_bytes())
    part = slice(info.byte_offset, info.byte_offset + info.size)
    content[part] = change(bytes(content[part])).ljust(info.size, b"\0")
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_codes(open_data(path))
    message = str(caught.value)
    assert message.startswith("data.h5:X: chunk (2, 0), rows 200-299, cannot be read: OSError: ")
    assert f"file {path}, {info.size} bytes at offset {info.byte_offset}." in message


def test_truncated_npy(tmp_path):
    """Before it is opened, and afterwards."""
    path = tmp_path / "X.npy"
    np.save(path, CODES)
    whole = path.stat().st_size
    dataset = open_data(path, y=None)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError) as caught:
        open_data(path, y=None)
    assert str(caught.value) == (
        f"X.npy is truncated: shape (400, 60) and dtype uint8 need {whole} bytes, {path} has "
        f"{whole - 1}. Write it again"
    )
    with pytest.raises(
        InputError, match=r"^X\.npy: .*X\.npy became shorter while it was being read$"
    ):
        read_codes(dataset)


@pytest.mark.parametrize("shards", [None, 2])
def test_missing_chunks_are_reported_once(path, caplog, shards):
    options = {"shards": shards} if shards else {}
    put_zarr(path, ARRAYS, chunk_rows=50, **options)
    (path / "X/c/1/0").unlink()
    (path / "X/c/3/0").unlink()
    with caplog.at_level(logging.WARNING, logger="fcl"):
        dataset = open_data(path)
        read_codes(dataset)
    assert [record.getMessage() for record in caplog.records] == [
        "data.zarr:X: 2 chunks were never written; their rows read as the fill value"
    ]
    assert not dataset.rows.read(150, 200).any()


def test_missing_hdf5_chunks(tmp_path, caplog):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("X", shape=(40, 3), dtype="u1", chunks=(10, 2))[:10] = 1
    open_data(tmp_path / "data.h5", y=None)
    assert "data.h5:X: 6 chunks were never written" in caplog.text


def test_whole_arrays_are_not_warned_about(tmp_path, caplog):
    for container in WRITERS:
        (tmp_path / container).mkdir()
        source, keywords = put(container, tmp_path / container, ARRAYS)
        open_data(source, **keywords)
    assert not caplog.records


def test_storage_that_fails_only_once(path, monkeypatch):
    put_zarr(path, ARRAYS, chunk_rows=100)
    rows = open_data(path).rows
    read = rows._read_cell
    failures = iter([OSError("stale file handle")])

    def fail_once(cell):
        for failure in failures:
            raise failure
        return read(cell)

    monkeypatch.setattr(rows, "_read_cell", fail_once)
    with pytest.raises(InputError, match="rows 0-99 could not be read: OSError: stale file handle"):
        rows.read(0, 100)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "[1", "[" * 3000, "3", "{}"])
@pytest.mark.parametrize("place", ["", "X", "y", "other"])
def test_metadata_of_zarr_made_by_hand(tmp_path, place, content, capfd):
    """One message that names the store, and nothing of zarr's own, for any damaged member."""
    group = zarr.open_group(tmp_path / "d", mode="w")
    for name in ("X", "y", "other"):
        group.create_array(name, data=np.arange(12.0)[:, None][:, : 1 if name == "X" else None])
    (tmp_path / "d" / "notes.txt").write_text("")
    (tmp_path / "d" / "folder").mkdir()
    (tmp_path / "d" / place / "zarr.json").write_text(content)
    with pytest.raises(InputError) as caught:
        open_data(tmp_path / "d", x="other" if place == "other" else "missing")
    assert "d" in str(caught.value) and len(str(caught.value)) < 500
    gc.collect()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("separator", ["/", "."])
def test_missing_chunks_are_counted(path, zarr_format, separator):
    root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    encoding = {"name": "default" if zarr_format == 3 else "v2", "separator": separator}
    X = root.create_array("X", shape=(9, 4), chunks=(2, 2), dtype="f4", chunk_key_encoding=encoding)
    X[:5, :2] = 1.0
    (path / "X/notes.txt").touch()
    assert open_data(path, y=None).rows.missing_chunks() == 10 - 3


class Code:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_pickles_in_zarr_are_refused(tmp_path, monkeypatch, place):
    """Even if numcodecs would unpickle them."""
    pickles = pytest.importorskip("numcodecs.pickles")
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    monkeypatch.chdir(tmp_path)
    put_zarr(tmp_path / "data.zarr", {"X": np.eye(4), "y": np.arange(4) % 2}, zarr_format=2)
    page = tmp_path / "data.zarr/y/.zarray"
    text, pickled = {"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}
    codecs = {
        "filters": {"filters": [text, pickled], "compressor": None},
        "compressor": {"filters": [text], "compressor": pickled},
    }[place]
    metadata = json.loads(page.read_text()) | {"dtype": "|O", "fill_value": None} | codecs
    page.write_text(json.dumps(metadata))
    (tmp_path / "data.zarr/y/0").write_bytes(pickle.dumps(Code()))
    with pytest.raises(InputError, match=r"data\.zarr:y is stored as pickles"):
        open_data("data.zarr", y="y")
    assert not os.path.exists("ran")


def test_hdf5_objects_whose_headers_are_damaged(tmp_path):
    """h5py raises KeyError for some of them; each is named, or the arrays are read."""
    path = tmp_path / "data.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["X"], file["y"] = CODES, np.arange(len(CODES)) % 2
        file.create_group("var")["a"] = np.zeros(3)
    content = path.read_bytes()
    starts = [at.start() for at in re.finditer(b"OHDR", content)]
    messages = {}
    for at in starts:
        (tmp_path / f"{at}.h5").write_bytes(content[: at + 9] + b"\xff" + content[at + 10 :])
        try:
            found = open_data(tmp_path / f"{at}.h5").rows.read(0, len(CODES))
        except InputError as error:
            messages[at] = str(error)
        else:
            np.testing.assert_array_equal(found, CODES)
    assert len(starts) == 5 and len(messages) >= 3
    assert all(f"{at}.h5" in text and "\n" not in text for at, text in messages.items())
