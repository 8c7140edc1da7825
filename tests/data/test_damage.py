"""Damaged and missing chunks: named by array, grid index, rows and file."""

import gc
import json
import logging
import re
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

from fcl.data import SequenceReader, open_data
from fcl.errors import InputError

# Compressible, and more than a page of it, so that compressors do not just store it.
CODES = np.tile(np.random.default_rng(3).integers(0, 4, (400, 1)), (1, 60)).astype(np.uint8)
ARRAYS = {"X": CODES, "y": np.repeat([1, 2], 200)}


def truncate(content):
    return content[: len(content) // 2]


def flip(content):
    """Flip every bit of the first half: header and part of the data."""
    half = len(content) // 2
    return bytes(255 - byte for byte in content[:half]) + content[half:]


def damage(file, change):
    file.write_bytes(change(file.read_bytes()))


def refusal(dataset):
    with pytest.raises(InputError) as caught:
        for _ in SequenceReader(dataset.rows).iter_codes(64):
            pass
    return str(caught.value)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.zarr"


@pytest.mark.parametrize("change", [truncate, flip])
def test_zarr3_zstd(path, change, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100, compressors=zarr.codecs.ZstdCodec())
    damage(path / "X/c/2/0", change)
    message = refusal(open_data(path))
    assert message.startswith("data.zarr:X: chunk (2, 0), rows 200-299, cannot be read: ")
    assert f"file {path}/X/c/2/0. The file is damaged or incomplete" in message
    assert "\n" not in message


@pytest.mark.parametrize("change", [truncate, flip])
def test_zarr2_blosc(path, change, write_zarr):
    import numcodecs

    write_zarr(path, ARRAYS, chunk_rows=100, zarr_format=2, compressors=numcodecs.Blosc())
    damage(path / "X/3.0", change)
    message = refusal(open_data(path))
    assert message.startswith("data.zarr:X: chunk (3, 0), rows 300-399, cannot be read: ")
    assert f"file {path}/X/3.0." in message


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("size", [10, 99])
def test_blosc_chunks_that_did_not_compress(path, zarr_format, size, write_zarr):
    """numcodecs would return whatever lies in memory after a truncated one."""
    import numcodecs

    codec = numcodecs.Blosc() if zarr_format == 2 else zarr.codecs.BloscCodec()
    y = np.random.default_rng(0).random(400)
    options = {"zarr_format": zarr_format, "compressors": codec}
    write_zarr(path, ARRAYS | {"y": y}, chunk_rows=100, **options)
    damage(path / ("y/1" if zarr_format == 2 else "y/c/1"), lambda content: content[:size])
    with pytest.raises(
        InputError, match=rf"y: chunk \(1,\), rows 100-199.* ends after {size} bytes;"
    ):
        open_data(path)


@pytest.mark.parametrize("x", ["X", "missing"])
def test_attributes_that_are_no_object(path, x, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100)
    page = path / "y/zarr.json"
    page.write_text(page.read_text().replace('"attributes": {}', '"attributes": "x"'))
    with pytest.raises(
        InputError, match=r'"y" in data\.zarr: expected an object of attributes, got'
    ):
        open_data(path, x=x)


def test_zarr_without_compression(path, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100, compressors=None)
    damage(path / "X/c/1/0", truncate)
    assert "chunk (1, 0), rows 100-199" in refusal(open_data(path))


def test_zarr_chunk_in_columns(path):
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=CODES, chunks=(150, 20))
    damage(path / "X/c/2/1", truncate)
    message = refusal(open_data(path, y=None))
    assert "chunk (2, 1), rows 300-399, cannot be read" in message


def test_shard_names_the_inner_chunk_and_its_file(path, write_zarr):
    # Four inner chunks of 50 rows a shard; the index at the end of the shard stays whole.
    write_zarr(path, ARRAYS, chunk_rows=50, shards=4)

    def flip_start(content):
        return bytes(255 - byte for byte in content[:20]) + content[20:]

    damage(path / "X/c/1/0", flip_start)
    message = refusal(open_data(path))
    assert message.startswith("data.zarr:X: chunk (4, 0), rows 200-249, cannot be read")
    assert f"file {path}/X/c/1/0 (shard (1, 0))." in message


def test_shard_with_a_damaged_index(path, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=50, shards=4)
    damage(path / "X/c/0/0", truncate)
    assert "rows 0-49, cannot be read" in refusal(open_data(path))


@pytest.mark.parametrize("stored", [{}, {"shards": 4}])
def test_an_empty_object_is_no_missing_one(path, write_zarr, stored):
    write_zarr(path, ARRAYS, chunk_rows=50, **stored)
    damage(path / "X/c/0/0", lambda content: b"")
    message = refusal(open_data(path))
    assert "rows 0-49, cannot be read" in message and f"file {path}/X/c/0/0" in message
    (path / "X/c/0/0").unlink()  # a missing one holds the fill value
    assert not open_data(path).rows.read(0, 50).any()


def test_an_empty_member_of_a_zip(tmp_path, write_zarr):
    made, file = tmp_path / "made.zip", tmp_path / "data.zip"
    with zarr.storage.ZipStore(made, mode="w") as store:
        write_zarr(store, ARRAYS, chunk_rows=50, shards=4)
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            target.writestr(name, b"" if name == "X/c/0/0" else source.read(name))
    assert "X/c/0/0 is empty" in refusal(open_data(file))


def test_zip_member(tmp_path, write_zarr):
    file = tmp_path / "data.zip"
    with zarr.storage.ZipStore(file, mode="w") as store:
        write_zarr(store, ARRAYS, chunk_rows=100, compressors=None)
    content = file.read_bytes()
    at = content.index(CODES[100:200].tobytes())
    file.write_bytes(content[: at + 10] + b"\xff" + content[at + 11 :])
    message = refusal(open_data(file))
    assert "data.zip:X: chunk (1, 0), rows 100-199, cannot be read: BadZipFile" in message
    assert f"member X/c/1/0 of {file}." in message


def test_damaged_target(path, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100)
    damage(path / "y/c/1", truncate)
    with pytest.raises(InputError, match=r"data.zarr:y: chunk \(1,\), rows 100-199, cannot be"):
        open_data(path)
    open_data(path, y=None)


@pytest.mark.parametrize("file", ["zarr.json", "X/zarr.json"])
def test_damaged_zarr_metadata(path, file, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100)
    damage(path / file, truncate)
    with pytest.raises(InputError, match=r"data\.zarr.* cannot be opened"):
        open_data(path)


def test_chunks_of_no_rows(path):
    group = zarr.create_group(path, zarr_format=3)
    group.create_array("X", data=CODES, chunks=(50, 60), shards=(100, 60))
    page = path / "X/zarr.json"
    metadata = json.loads(page.read_text())
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [0, 60]
    page.write_text(json.dumps(metadata))
    with pytest.raises(InputError, match=r"data.zarr:X\" has chunks of shape \(0, 60\)"):
        open_data(path, y=None)


@pytest.mark.parametrize("change", [truncate, flip])
def test_hdf5_gzip(tmp_path, change, write_hdf5):
    path = tmp_path / "data.h5"
    write_hdf5(path, ARRAYS, chunk_rows=100, compression="gzip")
    with h5py.File(path) as file:
        info = file["X"].id.get_chunk_info(2)
    content = bytearray(path.read_bytes())
    part = slice(info.byte_offset, info.byte_offset + info.size)
    content[part] = change(bytes(content[part])).ljust(info.size, b"\0")
    path.write_bytes(content)
    message = refusal(open_data(path))
    assert message.startswith("data.h5:X: chunk (2, 0), rows 200-299, cannot be read: OSError: ")
    assert f"file {path}, {info.size} bytes at offset {info.byte_offset}." in message


def test_truncated_hdf5(tmp_path, write_hdf5):
    path = tmp_path / "data.h5"
    write_hdf5(path, ARRAYS, chunk_rows=100)
    damage(path, truncate)
    with pytest.raises(InputError, match=r"data\.h5 cannot be opened as HDF5: .*truncated"):
        open_data(path)


def test_truncated_npy(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, CODES)
    whole = path.stat().st_size
    dataset = open_data(path, y=None)
    damage(path, lambda content: content[:-1])
    with pytest.raises(InputError) as caught:
        open_data(path, y=None)
    assert str(caught.value) == (
        f"X.npy is truncated: shape (400, 60) and dtype uint8 need {whole} bytes, {path} has "
        f"{whole - 1}. Write it again"
    )
    assert refusal(dataset) == f"X.npy: {path} became shorter while it was being read"


@pytest.mark.parametrize("shards", [None, 2])
def test_missing_chunks_are_reported_once(path, caplog, shards, write_zarr):
    options = {"shards": shards} if shards else {}
    write_zarr(path, ARRAYS, chunk_rows=50, **options)
    (path / "X/c/1/0").unlink()
    (path / "X/c/3/0").unlink()
    with caplog.at_level(logging.WARNING, logger="fcl"):
        dataset = open_data(path)
        list(SequenceReader(dataset.rows).iter_codes(64))
    assert [record.getMessage() for record in caplog.records] == [
        "data.zarr:X: 2 chunks were never written; their rows read as the fill value"
    ]
    assert not dataset.rows.read(150, 200).any()


def test_missing_hdf5_chunks(tmp_path, caplog):
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("X", shape=(40, 3), dtype="u1", chunks=(10, 2))[:10] = 1
    open_data(tmp_path / "data.h5", y=None)
    assert "data.h5:X: 6 chunks were never written" in caplog.text


def test_whole_arrays_are_not_warned_about(container, store, caplog):
    source, keywords = store(container, ARRAYS)
    open_data(source, **keywords)
    assert not caplog.records


def test_storage_that_fails_only_once(path, monkeypatch, write_zarr):
    write_zarr(path, ARRAYS, chunk_rows=100)
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


@pytest.mark.parametrize("content", ["", "[1", "[" * 3000, "3", "{}"])
@pytest.mark.parametrize("place", ["", "X", "y", "other"])
def test_metadata_of_zarr_made_by_hand(
    tmp_path: Path, place: str, content: str, capfd: pytest.CaptureFixture[str]
) -> None:
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


def test_hdf5_group_whose_table_of_names_is_damaged(tmp_path):
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=CODES)

    def break_free_list(content):
        """Make the free list of the first heap of names begin outside the heap."""
        at = content.index(b"HEAP") + 16
        return content[:at] + b"\x07" + bytes(7) + content[at + 8 :]

    damage(path, break_free_list)
    with pytest.raises(
        InputError, match=r"data\.h5 cannot be read as HDF5: .*\. The file is damaged"
    ):
        open_data(f"{path}::/a")


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
