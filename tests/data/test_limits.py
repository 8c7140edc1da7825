"""What a file announces is compared with what it holds and with the budget before memory is taken."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from numcodecs.fletcher32 import Fletcher32

import fcl
from fcl.data import open_data
from fcl.memory.allowance import MOST_PER_BYTE, SMALL, allow, budget, inflate, within

ZEROS = bytes(8 << 20)
ROWS, WIDTH = 40, 5
X = np.arange(ROWS * WIDTH, dtype=np.float64).reshape(ROWS, WIDTH)
Y = np.arange(ROWS) % 2


# -- the rule ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [0, 10**6, 10**8])
def test_a_file_explains_some_memory(stored: int) -> None:
    most = max(SMALL, MOST_PER_BYTE * stored)
    with within(1 << 50):
        allow("it needs", most, stored)
        with pytest.raises(fcl.InputError, match="damaged, or made to exhaust memory"):
            allow("it needs", most + 1, stored)


def test_the_budget_is_the_innermost_one() -> None:
    machine = budget()
    with within("2GiB"):
        with within(None):
            assert budget() == 2 << 30
        with within("1MiB"):
            allow("it needs", 1 << 20)
            with pytest.raises(fcl.InputError, match="it needs 1 MiB, but the memory budget") as e:
                allow("it needs", (1 << 20) + 1)
            assert e.value.smallest == (1 << 20) + 1  # type: ignore[attr-defined]
        assert budget() == 2 << 30
    assert budget() == machine
    with pytest.raises(fcl.InputError, match="but this machine has"):
        allow("it needs", 1 << 60)


@pytest.mark.parametrize(
    ("pack", "stream"),
    [
        (zlib.compress, zlib.decompressobj),
        (gzip.compress, lambda: zlib.decompressobj(31)),
        (bz2.compress, bz2.BZ2Decompressor),
        (lzma.compress, lzma.LZMADecompressor),
    ],
)
def test_streams_stop_at_the_limit(pack: Callable[[bytes], bytes], stream: Any) -> None:
    content = np.random.default_rng(0).bytes(5000)
    assert inflate(pack(content), 5000, stream) == content
    assert inflate(pack(content) + pack(content), 10_000, stream) == 2 * content
    for bad in (pack(content) + pack(b"x"), pack(ZEROS)):
        with pytest.raises(ValueError, match="holds more than 5,000 bytes"):
            inflate(bad, 5000, stream)
    with pytest.raises(ValueError, match="ends early"):
        inflate(pack(content)[:-9], 5000, stream)
    with pytest.raises(ValueError, match="no intact compressed stream"):
        inflate(b"other bytes", 5000, stream)


# -- chunks of Zarr ----------------------------------------------------------------------------------

#: codecs of formats 2 and 3, and a chunk that holds far more than it should
CODECS: dict[str, tuple[Any, Any, bytes]] = {
    "gzip": (numcodecs.GZip(1), zarr.codecs.GzipCodec(), gzip.compress(ZEROS)),
    "zlib": (numcodecs.Zlib(1), None, zlib.compress(ZEROS)),
    "bz2": (numcodecs.BZ2(1), None, bz2.compress(ZEROS)),
    "lzma": (numcodecs.LZMA(), None, lzma.compress(ZEROS)),
    "zstd": (numcodecs.Zstd(1), zarr.codecs.ZstdCodec(), numcodecs.Zstd(1).encode(ZEROS)),
    "lz4": (numcodecs.LZ4(), None, numcodecs.LZ4().encode(ZEROS)),
    "blosc": (numcodecs.Blosc(), zarr.codecs.BloscCodec(), numcodecs.Blosc().encode(ZEROS)),
}


def make_zarr(path: Path, codec: Any, zarr_format: int = 3, **options: Any) -> None:
    """Four chunks of X, of which the second is to be replaced."""
    group = zarr.open_group(path, mode="w", zarr_format=zarr_format)
    group.create_array("X", data=X, chunks=(10, WIDTH), compressors=codec, **options)
    group["y"] = Y
    assert (open_data(path).rows.read(0, ROWS) == X).all()


def refusal(path: Path) -> str:
    """The message for a data set whose X cannot be read."""
    data = open_data(path)
    with pytest.raises(fcl.InputError) as caught:
        data.rows.read(0, ROWS)
    return str(caught.value)


FULL = "d.zarr:X: chunk ({}, 0), rows {}, cannot be read: ValueError: it holds"


@pytest.mark.parametrize(
    ("zarr_format", "shards", "name"),
    [
        *((2, None, name) for name in CODECS),
        *(
            (3, shards, name)
            for name in ("gzip", "zstd", "blosc")
            for shards in (None, (20, WIDTH))
        ),
    ],
)
def test_chunks_of_zarr(tmp_path: Path, zarr_format: int, shards: Any, name: str) -> None:
    codec, bomb = CODECS[name][zarr_format - 2], CODECS[name][2]
    more = {"shards": shards} if shards else {}
    make_zarr(tmp_path / "d.zarr", codec, zarr_format, **more)
    if shards is not None:  # two chunks, and their places at the end with a checksum
        places = np.array([[0, len(bomb)], [0, len(bomb)]], "<u8").tobytes()
        bomb += bytes(numcodecs.CRC32C(location="end").encode(places))
    (tmp_path / "d.zarr" / ("X/1.0" if zarr_format == 2 else "X/c/1/0")).write_bytes(bomb)
    place = (2, "20-29") if shards else (1, "10-19")
    assert refusal(tmp_path / "d.zarr").startswith(FULL.format(*place))


@pytest.mark.skipif(shutil.which("zstd") is None, reason="needs the command zstd")
def test_zstd_frames_without_a_size(tmp_path: Path) -> None:
    path = tmp_path / "d.zarr"
    make_zarr(path, zarr.codecs.ZstdCodec())

    def stream(content: bytes) -> bytes:
        return subprocess.run(["zstd", "-c"], input=content, capture_output=True, check=True).stdout

    (path / "X/c/1/0").write_bytes(stream(X[10:20].tobytes()))
    assert (open_data(path).rows.read(0, ROWS) == X).all()
    (path / "X/c/1/0").write_bytes(stream(bytes(SMALL + (1 << 20))))
    assert "chunk (1, 0), rows 10-19, cannot be read" in refusal(path)


def test_other_programs_decode_as_before() -> None:
    """The limit holds where fcl reads, and nowhere else in the process."""
    with within("1MiB"):
        for codec, _, bomb in CODECS.values():
            assert bytes(codec.decode(bomb)) == ZEROS


# -- chunks of HDF5 ----------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"fletcher32": True}])
def test_chunks_of_hdf5(tmp_path: Path, options: dict[str, Any], monkeypatch: Any) -> None:
    from fcl.data import hdf5_chunks

    monkeypatch.setattr(hdf5_chunks, "SMALL", 1000)
    path = tmp_path / "d.h5"
    wide = np.random.default_rng(0).normal(size=(ROWS, 7))
    with h5py.File(path, "w") as file:
        made = file.create_dataset(
            "X", (ROWS, 7), "f8", chunks=(15, 4), compression="gzip", **options
        )
        made[:15], made[30:] = wide[:15], wide[30:]  # the chunks between were never written
        file["y"] = Y
    expected = wide.copy()
    expected[15:30] = 0.0
    rows = open_data(path).rows
    assert rows._deflated is not None  # type: ignore[attr-defined]
    for start, stop in ((0, ROWS), (3, 4), (14, 31), (39, 40)):
        assert (rows.read(start, stop) == expected[start:stop]).all()
    shutil.copy(path, tmp_path / "bad.h5")
    bomb: Any = zlib.compress(ZEROS)
    if "fletcher32" in options:
        bomb = bytes(Fletcher32().encode(bomb))
    with h5py.File(tmp_path / "bad.h5", "r+") as file:
        file["X"].id.write_direct_chunk((30, 4), bomb)
    message = refusal(tmp_path / "bad.h5")
    assert message.startswith(
        "bad.h5:X: chunk (2, 1), rows 30-39, cannot be read: ValueError: it holds"
    )


# -- announced shapes --------------------------------------------------------------------------------


def announced(path: Path, **arrays: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """A file of a few kilobytes with arrays of any shape, beside y: their shapes and chunks."""
    hdf5 = path.suffix == ".h5"
    with h5py.File(path, "w") if hdf5 else nullcontext(zarr.open_group(path, mode="w")) as group:
        make = group.create_dataset if hdf5 else group.create_array
        for name, (shape, chunks) in arrays.items():
            make(name, shape=shape, dtype="f8", chunks=chunks)
        group["y"] = np.arange(arrays["X"][0][0]) % 2


@pytest.mark.parametrize("name", ["d.h5", "d.zarr"])
@pytest.mark.parametrize("chunks", [(64, 10**8 // 64), (1, 10**8), (64, 10**8)])
def test_wide_rows(tmp_path: Path, name: str, chunks: tuple[int, ...]) -> None:
    if name == "d.h5" and math.prod(chunks) >= 1 << 32 and h5py.version.hdf5_version_tuple < (2,):
        pytest.skip("HDF5 before 2.0 writes no chunk of 4 GB")
    announced(tmp_path / name, X=((64, 10**8), chunks))
    data = open_data(tmp_path / name)
    with pytest.raises(
        fcl.InputError, match=f"{name}:X: reading .* needs .* but the memory budget is"
    ):
        fcl.train(data, "columns", C=1.0, memory="512MiB")
    with pytest.raises(fcl.InputError, match="but the memory budget is 256 MiB"):
        fcl.train_online(data, "columns", alpha=0.1, memory="256MiB")


@pytest.mark.parametrize("name", ["d.h5", "d.zarr"])
def test_a_long_target(tmp_path: Path, name: str) -> None:
    announced(tmp_path / name, X=((64, 3), (64, 3)), long=((10**9,), (1000,)))
    with within("64MiB"):
        open_data(tmp_path / name)
        with pytest.raises(fcl.InputError, match="long has 1,000,000,000 values"):
            open_data(tmp_path / name, weights="long")


@pytest.mark.parametrize("name", ["d.h5", "d.zarr"])
def test_one_long_text_among_short_ones(tmp_path: Path, name: str) -> None:
    texts = ["a"] * 5000 + ["b" * 100_000]
    if name == "d.h5":
        with h5py.File(tmp_path / name, "w") as file:
            file.create_dataset("X", data=np.zeros((5001, 2)))
            file.create_dataset("y", data=texts, dtype=h5py.string_dtype())
    else:
        group = zarr.open_group(tmp_path / name, mode="w")
        group["X"] = np.zeros((5001, 2))
        group["y"] = np.array(texts, np.dtypes.StringDType())
    with (
        within("1GiB"),
        pytest.raises(fcl.InputError, match="5,001 texts of up to 100,000 letters"),
    ):
        open_data(tmp_path / name)


def test_npy_rows_beyond_the_budget(tmp_path: Path) -> None:
    header = json.dumps({"descr": "<f8", "fortran_order": False, "shape": "S"})
    text = header.replace('"S"', f"(2, {10**9})").replace("false", "False").encode() + b"\n"
    with (tmp_path / "X.npy").open("wb") as file:
        file.write(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text)
        file.truncate(file.tell() + 16 * 10**9)
    rows = open_data(tmp_path, y=None).rows
    assert rows.shape == (2, 10**9) and math.prod(rows.shape) == 2 * 10**9
    with within("1GiB"), pytest.raises(fcl.InputError, match="X: reading 1 row of float64"):
        rows.read(0, 1)


# -- the memory itself -------------------------------------------------------------------------------

#: Runs fcl on each file with little memory left; prints the class of each error.
CHILD = """
import resource, sys
import numpy, h5py, zarr, numcodecs, sklearn.linear_model
import fcl
from fcl.memory.allowance import within
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (300 << 20),) * 2)
for path in sys.argv[1:]:
    try:
        with within("200MiB"):
            fcl.open_data(path).rows.read(0, 40)
        print("read")
    except BaseException as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_refused_in_little_memory(tmp_path: Path) -> None:
    """Chunks that hold a gigabyte are refused by a process that could not hold it."""
    paths = []
    for name in ("gzip.zarr", "none.zarr"):
        make_zarr(tmp_path / name, zarr.codecs.GzipCodec() if name == "gzip.zarr" else None)
        (tmp_path / name / "X/c/1/0").write_bytes(64 * gzip.compress(ZEROS))
        paths.append(tmp_path / name)
    with h5py.File(tmp_path / "d.h5", "w") as file:
        shape, chunks = (40, 50_000), (10, 50_000)
        made = file.create_dataset("X", shape, "f8", chunks=chunks, compression="gzip")
        file["y"] = Y
        pack = zlib.compressobj()
        head, part = pack.compress(b"") + pack.flush(zlib.Z_FULL_FLUSH), pack.compress(ZEROS)
        part += pack.flush(zlib.Z_FULL_FLUSH)  # which can be repeated
        made.id.write_direct_chunk((10, 0), head + 64 * part + pack.flush())
    paths.append(tmp_path / "d.h5")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, paths)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["InputError"] * len(paths), done.stderr


@pytest.mark.slow
def test_a_block_is_compared_with_the_budget(tmp_path: Path) -> None:
    """A file of a few KB announces 10^8 columns, in chunks that would fit."""
    with h5py.File(tmp_path / "d.h5", "w") as file:
        X = file.create_dataset("X", (20, 10**8), "f4", chunks=(1, 10**6), compression="gzip")
        X[0, :10] = 1.0
        file["y"] = np.arange(20) % 2
    with pytest.raises(fcl.InputError, match=r"20 rows need"):
        fcl.train(fcl.open_data(tmp_path / "d.h5"), "columns", C=0.01, memory="512MiB")
