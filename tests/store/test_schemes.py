"""Other stores than S3: https, schemes of fsspec, HDF5, and what is missing."""

from __future__ import annotations

import builtins
import functools
import http.server
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import fcl
from fcl.cli.convert import command
from fcl.data.sequences import SequenceReader
from fcl.store import clients
from tests.s3_server import S3Server
from tests.store.conftest import Upload


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """The files of a folder, at http://."""
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def codes(data: fcl.DataSet) -> np.ndarray:
    return np.concatenate([block for _, _, block in SequenceReader(data.rows).iter_codes(1000)])


def test_http(site: str, folder: Path, tmp_path: Path) -> None:
    """Such a server lists nothing, and answers for folders."""
    data = fcl.open_data(f"{site}/train.zarr")
    local = fcl.open_data(folder)
    np.testing.assert_array_equal(codes(data), codes(local))
    assert data.fingerprint() == local.fingerprint()
    data.check_unchanged()
    with pytest.raises(fcl.InputError, match='no array "Z"'):
        fcl.open_data(f"{site}/train.zarr", x="Z")
    with pytest.raises(fcl.InputError, match="does not exist"):
        fcl.open_data(f"{site}/none.zarr")
    model = fcl.train(data, "kmers:d=2", C=0.05, memory="1GiB").model
    model.save(tmp_path / "m.fcl")
    again = fcl.load_model(f"{site}/m.fcl")
    np.testing.assert_array_equal(again.margins(f"{site}/train.zarr"), model.margins(folder))
    meta = folder / "X" / "zarr.json"
    meta.write_text(meta.read_text() + "\n")
    with pytest.raises(fcl.InputError, match=r"X/zarr.json changed while it was being read"):
        data.check_unchanged()


@pytest.fixture
def toy(tmp_path: Path) -> str:
    """A scheme that only fsspec knows: the memory of the process."""
    import fsspec
    from fsspec.implementations.memory import MemoryFileSystem

    class Toy(MemoryFileSystem):
        protocol = "toy"
        store: dict[str, Any] = {}  # noqa: RUF012
        fails = 0

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return MemoryFileSystem._strip_protocol(path.replace("toy://", "memory://"))

        def cat_file(self, path: str, **kwargs: Any) -> Any:
            if Toy.fails:
                Toy.fails -= 1
                raise OSError(5, "passing")
            return super().cat_file(path, **kwargs)

    fsspec.register_implementation("toy", Toy, clobber=True)
    return "toy://bucket"


def test_fsspec(toy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fsspec

    files = fsspec.filesystem("toy")
    files.put(str(folder), "/bucket/train.zarr", recursive=True)
    type(files).fails = 3
    data = fcl.open_data(f"{toy}/train.zarr", storage_options={"requests": 2})
    np.testing.assert_array_equal(codes(data), codes(fcl.open_data(folder)))
    data.check_unchanged()
    model = fcl.train(data, "kmers:d=2", C=0.05, memory="1GiB").model
    model.save(fcl.locate(f"{toy}/out/m.fcl"))
    np.testing.assert_array_equal(fcl.load_model(f"{toy}/out/m.fcl").ids, model.ids)
    with pytest.raises(fcl.InputError, match="exists already"):
        model.save(f"{toy}/out/m.fcl")  # type: ignore[arg-type]
    with pytest.raises(fcl.InputError, match="does not exist"):
        fcl.open_data(f"{toy}/none.zarr")
    monkeypatch.setattr(clients, "_FIRST_PAUSE", 0.001)
    type(files).fails = 10**6
    with pytest.raises(fcl.StoreError, match=r"toy://bucket/.*: the store failed: .*passing"):
        fcl.open_data(f"{toy}/train.zarr")


def test_unknown_schemes() -> None:
    with pytest.raises(fcl.InputError, match="nosuch://a: fsspec cannot open it"):
        fcl.open_data("nosuch://a/b.zarr")


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("obstore", "gs://a/b.zarr", r"gs:// needs obstore .*pip install 'fcl\[cloud\]'"),
        (
            "fsspec",
            "nosuch://a/b.zarr",
            "obstore does not know nosuch://.*other schemes need fsspec",
        ),
    ],
)
def test_missing_packages(name: str, url: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(module: str, *args: Any, **kwargs: Any) -> Any:
        if module.partition(".")[0] == name:
            raise ImportError(f"No module named {name!r}")
        return real(module, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(fcl.InputError, match=words):
        fcl.open_data(url, storage_options={"requests": 3})


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, fcl; fcl.open_data; fcl.load_model; fcl.train; fcl.locate('s3://a/b');"
        "print([m for m in ('obstore', 'fsspec', 'zarr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_other_formats(
    tmp_path: Path, upload: Upload, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    import h5py

    (tmp_path / "a.fa").write_text(">a\nACGT\n")
    (tmp_path / "a.bin").write_bytes(b"\0" * 50)
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.open_group(store, mode="a").create_array("X", data=np.ones((3, 2)))
    with h5py.File(tmp_path / "my data.h5", "w") as file:
        file["X"] = np.random.default_rng(0).integers(0, 4, (50, 12)).astype(np.uint8)
        file["y"] = np.arange(50) % 2
    for name, words in (
        ("a.fa", r"a FASTA file; copy it to this machine, and convert it first: fcl convert a.fa"),
        ("a.bin", "in no format that fcl reads from a store"),
        ("a.zip", "copy it to this machine, or unzip it in the store"),
        ("my data.h5", "copy it to this machine, and convert it: "),
    ):
        found = upload(tmp_path / name, name)
        with pytest.raises(fcl.InputError, match=words) as raised:
            fcl.open_data(found, storage_options=server.options())
    _, _, line = str(raised.value).partition("convert it: fcl convert ")
    assert line == "'my data.h5' 'my data.zarr'"
    monkeypatch.chdir(tmp_path)
    command.main(shlex.split(line), standalone_mode=False)  # the line as it was given
    data = fcl.open_data(
        upload(tmp_path / "my data.zarr", "h5.zarr"), storage_options=server.options()
    )
    assert data.fingerprint() == fcl.open_data(tmp_path / "my data.h5").fingerprint()
