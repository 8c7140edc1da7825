"""Other stores than S3: https, and schemes of fsspec."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fcl
from fcl.files.atomic import atomic_file, check_output
from fcl.store import clients
from tests.store.conftest import Site, codes, toy_class


def test_what_a_web_server_changes_is_noticed(site: Site, folder: Path) -> None:
    data = fcl.open_data(f"{site.url}/train.zarr")
    data.check_unchanged()
    meta = folder / "X" / "zarr.json"
    meta.write_text(meta.read_text() + "\n")
    with pytest.raises(fcl.InputError, match=r"X/zarr.json changed while it was being read"):
        data.check_unchanged()


def test_failures_of_fsspec(toy: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy_class()().put(str(folder), f"{toy}/train.zarr".removeprefix("toy:/"), recursive=True)
    toy_class().fails = 3  # passing
    data = fcl.open_data(f"{toy}/train.zarr", storage_options={"requests": 2})
    np.testing.assert_array_equal(codes(data), codes(fcl.open_data(folder)))
    with atomic_file(fcl.locate(f"{toy}/out")) as file:
        file.write(b"x")
    with pytest.raises(fcl.InputError, match="exists already"):
        check_output(fcl.locate(f"{toy}/out"), overwrite=False)
    monkeypatch.setattr(clients, "_FIRST_PAUSE", 0.001)
    toy_class().fails = 10**6
    with pytest.raises(fcl.StoreError, match=r"toy://bucket.*: the store failed: .*passing"):
        fcl.open_data(f"{toy}/train.zarr")


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, fcl; fcl.open_data; fcl.load_model; fcl.train; fcl.locate('s3://a/b');"
        "print([m for m in ('obstore', 'fsspec', 'zarr') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
