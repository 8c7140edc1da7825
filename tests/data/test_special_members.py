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
        fcl.open_data(group, y="y")


def test_names_of_arrays_are_text(group: Path) -> None:
    with pytest.raises(fcl.InputError, match=r"x: expected the name of an array in .*, got 7"):
        fcl.open_data(group, x=7, y="y")  # type: ignore[arg-type]
