"""Sources that change while they are read, that are locked, or that the system does not give."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from fcl.data import open_data
from fcl.errors import FclError, InputError
from tests.data.conftest import WRITERS, Arrays, csr_tree, put, put_tree

Store = Callable[..., Any]
MATRIX = csr_tree(scipy.sparse.csr_matrix(np.eye(60)))


def test_input_errors_are_value_errors_of_ours() -> None:
    assert issubclass(InputError, FclError)
    assert issubclass(InputError, ValueError)


PERMISSION = PermissionError(errno.EACCES, "Permission denied")
LOCK = BlockingIOError(
    errno.EAGAIN, "Unable to synchronously open file (unable to lock file, errno = 11)"
)


@pytest.mark.parametrize(("target", "error", "message"), [
    ("pathlib.Path.open", PERMISSION, r"/data\.h5 cannot be read: Permission denied$"),
    ("h5py.File", LOCK, r"data\.h5 is locked by another process that has it open \(errno 11\).*"
     "HDF5_USE_FILE_LOCKING=FALSE"),
], ids=["permission", "lock"])  # fmt: skip
def test_errors_of_the_system(
    target: str, error: OSError, message: str, store: Store, arrays: Arrays, monkeypatch: Any
) -> None:
    source, _ = store("hdf5", arrays)

    def refuse(*args: Any, **keywords: Any) -> None:
        raise error

    monkeypatch.setattr(target, refuse)
    with pytest.raises(InputError, match=message):
        open_data(source)


@pytest.mark.parametrize(
    ("setting", "expected"), [("", "opened"), ("TRUE", "is locked by another process")]
)
def test_a_lock_of_another_process(
    setting: str, expected: str, store: Store, arrays: Arrays, monkeypatch: Any
) -> None:
    source, _ = store("hdf5", arrays)
    code = (
        "import fcntl, sys; from fcl.data import open_data; from fcl.errors import InputError\n"
        "file = open(sys.argv[1], 'rb'); fcntl.flock(file, fcntl.LOCK_EX)\n"
        "try: open_data(sys.argv[1]); print('opened')\n"
        "except InputError as error: print(error)"
    )
    if setting:
        monkeypatch.setenv("HDF5_USE_FILE_LOCKING", setting)
    line = [sys.executable, "-c", code, str(source)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert expected in done.stdout, done.stderr


@pytest.mark.parametrize(("kind", "member"), [
    ("zarr2", "X/.zarray"), ("zarr3", "X/zarr.json"), ("zarr3-sharded", "y/zarr.json"),
    ("zarr3-zip", ""), ("hdf5", ""), ("npy-folder", "X.npy"), ("npy-file", ""), ("h5ad", ""),
    ("h5ad-chunked", ""), ("zarr2-tree", "X/.zattrs"), ("zarr2-tree", "X/data/.zarray"),
    ("zarr3-tree", "X/zarr.json"),
])  # fmt: skip
def test_a_source_that_changes(kind: str, member: str, arrays: Arrays, tmp_path: Path) -> None:
    if kind in WRITERS:
        source, keywords = put(kind, tmp_path, arrays)
    else:
        source, keywords = put_tree(tmp_path, kind, MATRIX), {"y": None}
    dataset = open_data(source, **keywords)
    dataset.check_unchanged()
    file = Path(source) / member
    status, content = file.stat(), file.read_bytes()
    later = (status.st_atime_ns, status.st_mtime_ns + 1)
    os.utime(file, ns=later)
    metadata = file.name.startswith((".z", "zarr.json"))  # written whenever its chunks are
    if metadata:
        with pytest.raises(InputError, match=f"{file} changed while .* new modification time, so"):
            dataset.check_unchanged()
    else:
        dataset.check_unchanged()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(file, ns=later)
    how = "new modification time" if metadata else "and other content"
    with pytest.raises(InputError, match=f"{file} changed while it was being read.*{how}"):
        dataset.check_unchanged()
    file.unlink()
    with pytest.raises(InputError, match=f"{file} can no longer be read"):
        dataset.check_unchanged()


def test_a_large_file_that_was_touched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    words = "same size, but a new modification time and other content"
    with pytest.raises(InputError, match=words):
        dataset.check_unchanged()


def test_a_change_of_size_alone(store: Store, arrays: Arrays) -> None:
    source, _ = store("npy-file", arrays)
    dataset = open_data(source)
    status = source.stat()
    with source.open("ab") as file:
        file.write(b"x")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InputError, match=rf"was {status.st_size} bytes, is {status.st_size + 1}"):
        dataset.check_unchanged()
