"""Other stores than S3: https, and schemes of fsspec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fcl
from fcl.store import clients
from tests.store.conftest import Site, codes


def test_http(site: Site, folder: Path, tmp_path: Path) -> None:
    """Such a server lists nothing, and answers for folders."""
    data = fcl.open_data(f"{site.url}/train.zarr")
    local = fcl.open_data(folder)
    np.testing.assert_array_equal(codes(data), codes(local))
    assert data.fingerprint() == local.fingerprint()
    data.check_unchanged()
    with pytest.raises(fcl.InputError, match='no array "Z"'):
        fcl.open_data(f"{site.url}/train.zarr", x="Z")
    with pytest.raises(fcl.InputError, match="does not exist"):
        fcl.open_data(f"{site.url}/none.zarr")
    model = fcl.train(data, "kmers:d=2", C=0.05, memory="1GiB").model
    model.save(tmp_path / "m.fcl")
    again = fcl.load_model(f"{site.url}/m.fcl")
    np.testing.assert_array_equal(again.margins(f"{site.url}/train.zarr"), model.margins(folder))
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


def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, fcl; fcl.open_data; fcl.load_model; fcl.train; fcl.locate('s3://a/b');"
        "print([m for m in ('obstore', 'fsspec', 'zarr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
