"""HDF5 files that this process has open already, or opens while fcl reads them, as notebooks do."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import fcl


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HDF5_USE_FILE_LOCKING", raising=False)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=np.arange(60.0).reshape(20, 3), chunks=(7, 3))
        file["y"] = np.arange(20) % 2
    return tmp_path / "rows.h5"


def is_locked(path: Path) -> bool:
    """Whether another process could not lock the file to write."""
    descriptor = os.open(path, os.O_RDWR)  # locks belong to openings, not to processes
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def rows_of(data: fcl.DataSet) -> np.ndarray:
    return np.asarray(data.rows.read(0, 20))


@pytest.mark.parametrize("locking", [None, False, True, "best-effort"])
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_the_user_has_it_open(path: Path, mode: str, locking: Any) -> None:
    with h5py.File(path, mode, locking=locking) as file:
        held = is_locked(path)
        if mode == "r+":
            file["X"][3, 1] = 77.0  # seen, though nothing was flushed
        expected = file["X"][:]
        data = fcl.open_data(path)
        np.testing.assert_array_equal(rows_of(data), expected)
        assert is_locked(path) is held, "the user's lock stays"
    np.testing.assert_array_equal(rows_of(data), expected)  # also after the user has closed it


def test_the_user_opens_it_later(path: Path) -> None:
    data = fcl.open_data(path)
    assert not is_locked(path), "others may write, as to any file that fcl reads"
    with h5py.File(path, "r") as file:
        np.testing.assert_array_equal(rows_of(data), file["X"][:])
        again = fcl.open_data(path)
    np.testing.assert_array_equal(rows_of(again), rows_of(data))
    result = fcl.train(data, "columns", C=0.1, warn=False)
    with h5py.File(path, "r") as file:
        assert np.isfinite(result.model.margins(fcl.open_data(path))).all()
        assert file["X"].shape == (20, 3)


def test_training_while_the_file_is_open(path: Path) -> None:
    expected = fcl.train(fcl.open_data(path), "columns", C=0.1, warn=False).model
    with h5py.File(path, "r"):
        found = fcl.train(fcl.open_data(path), "columns", C=0.1, warn=False).model
    np.testing.assert_array_equal(found.weights, expected.weights)
