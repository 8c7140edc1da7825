"""What is no file inside a Zarr folder, and names of arrays that are no text."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

import fcl


@pytest.fixture
def group(tmp_path: Path) -> Path:
    path = tmp_path / "data.zarr"
    root = zarr.open_group(path, mode="w")
    root.create_array("X", data=np.eye(4))
    root.create_array("y", data=np.array([0, 1, 0, 1]))
    return path


@pytest.mark.parametrize("member", ["zarr.json", "y/zarr.json", "X/c/0/0"])
def test_a_fifo_in_a_zarr_folder_is_refused(group: Path, member: str) -> None:
    (group / member).unlink()
    os.mkfifo(group / member)
    with pytest.raises(fcl.InputError, match=r"is a FIFO .*; expected a regular file|of no format"):
        fcl.open_data(group, y="y").rows.read(0, 4)


def test_a_fifo_behind_a_link_to_a_folder_is_refused(group: Path, tmp_path: Path) -> None:
    (group / "y").rename(tmp_path / "elsewhere")
    (group / "y").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/c/0").unlink()
    os.mkfifo(tmp_path / "elsewhere/c/0")
    with pytest.raises(fcl.InputError, match=r"y/c/0: is a FIFO"):
        fcl.open_data(group, y="y")


def test_chunks_are_looked_at_when_they_are_read(group: Path) -> None:
    """A chunk of rows may lie where no array is opened from, or become a FIFO later."""
    data = fcl.open_data(group, y="y")
    (group / "X/c/0/0").unlink()
    os.mkfifo(group / "X/c/0/0")
    with pytest.raises(fcl.InputError, match=r"X/c/0/0: is a FIFO"):
        data.rows.read(0, 4)


def test_names_of_arrays_are_text(group: Path) -> None:
    with pytest.raises(fcl.InputError, match=r"x: expected the name of an array in .*, got 7"):
        fcl.open_data(group, x=7, y="y")  # type: ignore[arg-type]
