"""HDF5 files that this process has open already, or opens while fcl reads them, as notebooks do."""

import fcntl

import h5py
import numpy as np
import pytest

import fcl
from tests import by_name


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=np.arange(60.0).reshape(20, 3), chunks=(7, 3))
        file["y"] = np.arange(20) % 2
    return tmp_path / "rows.h5"


def is_locked(path):
    """Whether another process could not lock the file to write."""
    with path.open("r+b") as file:  # locks belong to openings, not to processes
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("locking", [None, False, True, "best-effort"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_user_has_it_open(path, mode, locking):
    with h5py.File(path, mode, locking=locking) as file:
        held = is_locked(path)
        if mode == "r+":
            file["X"][3, 1] = 77.0  # seen, though nothing was flushed
        expected = file["X"][:]
        data = fcl.open_data(path)
        np.testing.assert_array_equal(data.rows.read(0, 20), expected)
        assert is_locked(path) is held, "the user's lock stays"
    np.testing.assert_array_equal(data.rows.read(0, 20), expected)  # also after the user's closing


def test_the_user_opens_it_later(path):
    data = fcl.open_data(path)
    assert not is_locked(path), "others may write, as to any file that fcl reads"
    expected = by_name.train(data, "columns", C=0.1, warn=False).model
    with h5py.File(path, "r") as file:
        np.testing.assert_array_equal(data.rows.read(0, 20), file["X"][:])
        again = fcl.open_data(path)
        found = by_name.train(again, "columns", C=0.1, warn=False).model
        assert file["X"].shape == (20, 3)
    np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(again.rows.read(0, 20), data.rows.read(0, 20))
