"""Sources that change while they are read, that are locked, or that the system does not give."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from fcl.data import open_data
from fcl.errors import FclError, InputError
from tests.data.conftest import put

PERMISSION = PermissionError(errno.EACCES, "Permission denied")
LOCK = BlockingIOError(
    errno.EAGAIN, "Unable to synchronously open file (unable to lock file, errno = 11)"
)


@pytest.mark.parametrize(("target", "error", "message"), [
    ("pathlib.Path.open", PERMISSION, r"/data\.h5 cannot be read: Permission denied$"),
    ("h5py.File", LOCK, r"data\.h5 is locked by another process that has it open \(errno 11\).*"
     "HDF5_USE_FILE_LOCKING=FALSE"),
], ids=["permission", "lock"])  # fmt: skip
def test_errors_of_the_system(target, error, message, tmp_path, arrays, monkeypatch):
    source, _ = put("hdf5", tmp_path, arrays)

    def refuse(*args, **keywords):
        raise error

    monkeypatch.setattr(target, refuse)
    with pytest.raises(InputError, match=message) as caught:
        open_data(source)
    assert isinstance(caught.value, FclError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("setting", "expected"), [("", "opened"), ("TRUE", "is locked by another process")]
)
def test_a_lock_of_another_process(setting, expected, tmp_path, arrays, monkeypatch):
    source, _ = put("hdf5", tmp_path, arrays)
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
    words = "same size, but a new modification time and other content"
    with pytest.raises(InputError, match=words):
        dataset.check_unchanged()


def test_a_change_of_size_alone(tmp_path, arrays):
    source, _ = put("npy-file", tmp_path, arrays)
    dataset, status = open_data(source), source.stat()
    source.write_bytes(source.read_bytes() + b"x")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(InputError, match=rf"was {status.st_size} bytes, is {status.st_size + 1}"):
        dataset.check_unchanged()
