"""Damaged and dangerous files: refused when they are opened, or when their rows are read."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import scipy.sparse
import zarr

import fcl
from fcl.data import SequenceReader
from tests.data.conftest import (
    Source,
    changed,
    check_command,
    csr_tree,
    in_hdf5,
    in_npy,
    in_tree,
    in_zarr,
    put_hdf5,
    put_zarr,
    short,
    source,
    stored,
    within,
)

# compressible, and more than a page of it, so that compressors do not just store it
CODES = np.tile(np.random.default_rng(3).integers(0, 4, (400, 1)), (1, 60)).astype(np.uint8)
ARRAYS = {"X": CODES, "y": np.repeat([1, 2], 200)}


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip(content: bytes, size: int | None = None) -> bytes:
    """Flip every bit at the beginning, by default of the first half: header and part of the data."""
    size = len(content) // 2 if size is None else size
    return bytes(255 - byte for byte in content[:size]) + content[size:]


@source
def zarr_of(
    folder: Path, chunk_rows: int = 100, y: np.ndarray = ARRAYS["y"], **options: Any
) -> Path:
    put_zarr(folder / "data.zarr", ARRAYS | {"y": y}, chunk_rows=chunk_rows, **options)
    return folder / "data.zarr"


@source
def zip_of(folder: Path, empty: str = "", **options: Any) -> Path:
    """A zip, of which one member is empty."""
    with zarr.storage.ZipStore(folder / "made.zip", mode="w") as store:
        put_zarr(store, ARRAYS, **options)
    whole, path = zipfile.ZipFile(folder / "made.zip"), folder / "data.zip"
    with whole, zipfile.ZipFile(path, "w") as target:
        for name in whole.namelist():
            target.writestr(name, b"" if name == empty else whole.read(name))
    return path


@source
def hdf5_of(folder: Path) -> Path:
    put_hdf5(folder / "data.h5", ARRAYS, chunk_rows=100)
    return folder / "data.h5"


def flip_in_chunk(content: bytes) -> bytes:
    """Change one byte of the rows 100-199, which are not compressed."""
    at = content.index(CODES[100:200].tobytes()) + 10
    return content[:at] + b"\xff" + content[at + 1 :]


def break_free_list(content: bytes) -> bytes:
    """Make the free list of the first heap of names begin outside the heap."""
    at = content.index(b"HEAP") + 16
    return content[:at] + b"\x07" + bytes(7) + content[at + 8 :]


def no_rows(content: bytes) -> bytes:
    """Metadata of Zarr with inner chunks of no rows."""
    metadata = json.loads(content)
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = [0, 60]
    return json.dumps(metadata).encode()


def no_attributes(content: bytes) -> bytes:
    return content.replace(b'"attributes": {}', b'"attributes": "x"')


def whole_number(content: bytes) -> bytes:
    """A header of npy with True for 1, which Python and numpy take."""
    return content.replace(b"(60, 1), }   ", b"(60, True), }")


@source
def named(folder: Path, whole: Source, **keywords: Any) -> Any:
    return whole(folder)[0], keywords


@source
def fifo(folder: Path, whole: Source, member: str, moved: str = "") -> Path:
    """A source with a FIFO in place of a member; ``moved`` becomes a link to where it is now."""
    path = Path(whole(folder)[0])
    if moved:
        (path / moved).rename(folder / "elsewhere")
        (path / moved).symlink_to(folder / "elsewhere")
    (path / member).unlink()
    os.mkfifo(path / member)
    return path


@source
def hdf5_with_pipe(folder: Path, write: Callable[[Any, Path], object]) -> Any:
    """An HDF5 file that leads to the FIFO ``pipe``."""
    os.mkfifo(folder / "pipe")
    return in_hdf5(lambda file: write(file, folder / "pipe"))(folder)


def virtual(file: Any, pipe: Path) -> None:
    layout = h5py.VirtualLayout((4, 2), "f8")
    layout[:] = h5py.VirtualSource("pipe", "X", (4, 2))
    file.create_virtual_dataset("X", layout)


def link(name: str, target: str) -> Callable[[Any, Path], object]:
    return lambda file, pipe: file.__setitem__(name, h5py.ExternalLink("pipe", target))


@source
def long_header(folder: Path, version: int, length: int) -> Path:
    """An npy file whose header is 4 GB long, without a block on the disk."""
    head = b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(2 * version, "little")
    (folder / "X.npy").write_bytes(head)
    os.truncate(folder / "X.npy", 1 << 32)
    return folder / "X.npy"


BLOSC: dict[int, Any] = {2: numcodecs.Blosc(), 3: zarr.codecs.BloscCodec()}
NOISE = np.random.default_rng(0).random(400)  # does not compress
MATRIX = scipy.sparse.random(60, 23, 0.2, "csr", np.float32, np.random.default_rng(3))
PIPE = r"^pipe: is a FIFO \(named pipe\); expected a regular file"
OPENING: dict[str, tuple[Source, str]] = {
    **{f"blosc of format {f} after {n} bytes": (  # numcodecs would return what lies in memory behind it
        changed(zarr_of(y=NOISE, zarr_format=f, compressors=BLOSC[f]), lambda c, n=n: c[:n],
            "y/1" if f == 2 else "y/c/1"),
        rf"^data\.zarr:y: chunk \(1,\), rows 100-199.* ends after {n} bytes;")
        for f in (2, 3) for n in (10, 99)},
    **{f"attributes, x={x}": (named(changed(zarr_of(), no_attributes, "y/zarr.json"), x=x),
        r'"y" in data\.zarr: expected an object of attributes, got') for x in ("X", "missing")},
    "target": (changed(zarr_of(), truncate, "y/c/1"),
        r"^data\.zarr:y: chunk \(1,\), rows 100-199, cannot be read: .*Zstd"),
    **{f"metadata in {member}": (changed(zarr_of(), truncate, member), r"data\.zarr.* cannot be opened")
        for member in ("zarr.json", "X/zarr.json")},
    "inner chunks without rows": (changed(zarr_of(50, shards=2), no_rows, "X/zarr.json"),
        r'data\.zarr:X" has chunks of shape \(0, 60\)'),
    "truncated HDF5": (changed(hdf5_of(), truncate), r"^data\.h5 cannot be opened as HDF5: .*truncated"),
    "names of HDF5": (
        within(changed(in_hdf5(lambda h: h.create_dataset("X", data=CODES)), break_free_list), "/a"),
        r"^data\.h5 cannot be read as HDF5: .*\. The file is damaged"),
    "length True": (changed(in_npy(np.zeros((60, 1), np.uint8)), whole_number),
        r"^X\.npy.*: expected whole numbers as its shape, got \(60, True\)"),
    "npy, long header 1": (long_header(1, 65_535), r"^X\.npy is not a readable \.npy file: .*65,?535"),
    "npy, long header 2": (long_header(2, 1 << 31),
        r"^X\.npy is not a readable \.npy file: .*a header of 2,147,483,648 bytes"),
    "fifo for the group": (fifo(stored("zarr3"), "zarr.json"), r"^data\.zarr is .*in no format"),
    "fifo for metadata": (fifo(stored("zarr3"), "y/zarr.json"),
        r"data\.zarr/y/zarr\.json: is a FIFO .*; expected a regular file"),
    "fifo behind a link": (fifo(stored("zarr3"), "y/c/0", moved="y"), r"data\.zarr/y/c/0: is a FIFO"),
    "hdf5, array in a fifo": (hdf5_with_pipe(link("X", "/X")), PIPE),
    "hdf5, group in a fifo": (named(hdf5_with_pipe(link("inner", "/")), x="inner/X"), PIPE),
    "hdf5, bytes in a fifo": (hdf5_with_pipe(
        lambda file, pipe: file.create_dataset("X", (4, 2), "f8", external=[(str(pipe), 0, 64)])), PIPE),
    "hdf5, virtual array of a fifo": (hdf5_with_pipe(virtual), PIPE),
}  # fmt: skip

ROWS_50 = r"^data\.zarr:X: chunk \(0, 0\), rows 0-49, cannot be read: .*file data\.zarr/X/c/0/0"
READING: dict[str, tuple[Source, str]] = {
    **{f"zstd, {change.__name__}": (
        changed(zarr_of(compressors=zarr.codecs.ZstdCodec()), change, "X/c/2/0"),
        r"^data\.zarr:X: chunk \(2, 0\), rows 200-299, cannot be read: .*file data\.zarr/X/c/2/0\. "
        "The file is damaged or incomplete") for change in (truncate, flip)},
    **{f"blosc, {change.__name__}": (
        changed(zarr_of(zarr_format=2, compressors=BLOSC[2]), change, "X/3.0"),
        r"^data\.zarr:X: chunk \(3, 0\), rows 300-399, cannot be read: .*file data\.zarr/X/3\.0\.")
        for change in (truncate, flip)},
    "no compression": (changed(zarr_of(compressors=None), truncate, "X/c/1/0"),
        r"^data\.zarr:X: chunk \(1, 0\), rows 100-199, cannot be read"),
    "chunks of columns": (changed(in_zarr(lambda g: [g.create_array("X", data=CODES, chunks=(150, 20)),
            g.create_array("y", data=ARRAYS["y"])]), truncate, "X/c/2/1"),
        r"^data\.zarr:X: chunk \(2, 1\), rows 300-399, cannot be read"),
    # four inner chunks of 50 rows a shard; the index at the end of the shard stays whole
    "inner chunk of a shard": (
        changed(zarr_of(50, shards=4), lambda content: flip(content, 20), "X/c/1/0"),
        r"^data\.zarr:X: chunk \(4, 0\), rows 200-249, cannot be read.*file data\.zarr/X/c/1/0 "
        r"\(shard \(1, 0\)\)\."),
    "index of a shard": (changed(zarr_of(50, shards=4), truncate, "X/c/0/0"), ROWS_50),
    "empty chunk": (changed(zarr_of(50), lambda content: b"", "X/c/0/0"), ROWS_50),
    "empty shard": (changed(zarr_of(50, shards=4), lambda content: b"", "X/c/0/0"), ROWS_50),
    "empty member of a zip": (zip_of("X/c/0/0", chunk_rows=50, shards=4),
        "^data.zip:X: .*X/c/0/0 is empty"),
    "member of a zip": (changed(zip_of(chunk_rows=100, compressors=None), flip_in_chunk),
        r"^data\.zip:X: chunk \(1, 0\), rows 100-199, cannot be read: BadZipFile.*member X/c/1/0 of "
        r"data\.zip\."),
    "sparse rows": (changed(in_tree("zarr3-tree", csr_tree(MATRIX) | {"y": (np.arange(60) % 2, {})}),
            lambda content: b"no longer what it was", "X/data/c/3"),
        r"^data\.zarr:X/data: chunk \(3,\), rows 21-27, cannot be read"),
    "fifo for a chunk": (fifo(stored("zarr3"), "X/c/5/0"), r"X/c/5/0: is a FIFO"),
    "fifo for the first chunk": (fifo(in_zarr(lambda g: [g.create_array("X", data=np.eye(4)),
            g.create_array("y", data=np.arange(4) % 2)]), "X/c/0/0"), r"data\.zarr/X/c/0/0: is a FIFO"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPENING)
def test_opening(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, keywords = OPENING[name][0](tmp_path)
    with pytest.raises(fcl.InputError) as caught:
        fcl.open_data(path, **keywords)
    found = short(caught.value, tmp_path)
    assert re.search(OPENING[name][1], found), found
    check_command(path, keywords, found, tmp_path)


@pytest.mark.parametrize("name", READING)
def test_reading(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once, in blocks, and by the command."""
    monkeypatch.chdir(tmp_path)
    path, keywords = READING[name][0](tmp_path)
    data = fcl.open_data(path, **keywords)
    reads = [lambda: data.rows.read(0, data.n_rows)]
    if data.rows.dtype == np.uint8:
        reads.append(lambda: list(SequenceReader(data.rows).iter_codes(64)))
    for read in reads:
        with pytest.raises(fcl.InputError) as caught:
            read()
        found = short(caught.value, tmp_path)
        assert re.search(READING[name][1], found), found
    check_command(path, {}, found, tmp_path)
