"""Zarr folders and arrays from a stranger: FIFOs, pickles, sizes, masks, names."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import h5py
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
    with pytest.raises(fcl.InputError, match=r"is a FIFO .*; expected a regular file|in no format"):
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


@pytest.mark.parametrize("how", ["array", "group", "storage", "virtual"])
def test_a_fifo_that_an_hdf5_file_leads_to_is_refused(tmp_path: Path, how: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "data.h5"
    with h5py.File(path, "w") as file:
        if how == "array":
            file["X"] = h5py.ExternalLink("pipe", "/X")
        elif how == "group":
            file["inner"] = h5py.ExternalLink("pipe", "/")
        elif how == "storage":
            file.create_dataset("X", (4, 2), "f8", external=[(str(tmp_path / "pipe"), 0, 64)])
        else:
            layout = h5py.VirtualLayout((4, 2), "f8")
            layout[:] = h5py.VirtualSource("pipe", "X", (4, 2))
            file.create_virtual_dataset("X", layout)
    with pytest.raises(fcl.InputError, match=r"pipe: is a FIFO"):
        fcl.open_data(path, x="inner/X" if how == "group" else "X", y=np.ones(4))


def test_a_link_to_another_hdf5_file_is_followed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["X"] = np.eye(4)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["X"] = h5py.ExternalLink("other.h5", "/X")
        file["y"] = np.ones(4)
    data = fcl.open_data(tmp_path / "data.h5", y="y")
    np.testing.assert_array_equal(data.rows.read(0, 4), np.eye(4))


def test_names_of_arrays_are_text(group: Path) -> None:
    with pytest.raises(fcl.InputError, match=r"x: expected the name of an array in .*, got 7"):
        fcl.open_data(group, x=7, y="y")  # type: ignore[arg-type]


class Code:
    """An object whose pickle runs code when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("place", ["filters", "compressor"])
def test_pickles_in_zarr_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Even if numcodecs would unpickle them."""
    pickles = pytest.importorskip("numcodecs.pickles")
    monkeypatch.setattr(pickles, "ALLOW_UNSAFE_PICKLE_DECODE", True, raising=False)
    monkeypatch.chdir(tmp_path)
    root = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=2)
    root.create_array("X", data=np.eye(4))
    root.create_array("y", data=np.array([0, 1, 0, 1]))
    page = tmp_path / "data.zarr/y/.zarray"
    metadata = json.loads(page.read_text()) | {"dtype": "|O", "fill_value": None}
    codecs = [{"id": "vlen-utf8"}, {"id": "pickle", "protocol": 5}]
    if place == "filters":
        metadata |= {"filters": codecs, "compressor": None}
    else:
        metadata |= {"filters": codecs[:1], "compressor": codecs[1]}
    page.write_text(json.dumps(metadata))
    (tmp_path / "data.zarr/y/0").write_bytes(pickle.dumps(Code()))
    with pytest.raises(fcl.InputError, match=r"data\.zarr:y is stored as pickles"):
        fcl.open_data("data.zarr", y="y")
    assert not os.path.exists("ran")


def test_a_target_that_no_memory_holds(tmp_path: Path) -> None:
    root = zarr.open_group(tmp_path / "data.zarr", mode="w")
    for name in ("X", "y"):
        shape = (10**13, 2)[: 1 + (name == "X")]
        root.create_array(name, shape=shape, chunks=(1000, 2)[: len(shape)], dtype="i1")
    with pytest.raises(
        fcl.InputError, match=r"y has 10,000,000,000,000 values, which need 72\.8 TiB"
    ):
        fcl.open_data(tmp_path / "data.zarr", y="y")


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("separator", ["/", "."])
def test_chunks_that_are_missing_are_counted(
    tmp_path: Path, zarr_format: int, separator: str
) -> None:
    root = zarr.open_group(tmp_path / "data.zarr", mode="w", zarr_format=zarr_format)
    kind = "default" if zarr_format == 3 else "v2"
    encoding = {"name": kind, "separator": separator}
    X = root.create_array("X", shape=(9, 4), chunks=(2, 2), dtype="f4", chunk_key_encoding=encoding)
    X[:5, :2] = 1.0
    (tmp_path / "data.zarr/X/notes.txt").touch()
    assert fcl.open_data(tmp_path / "data.zarr", y=None).rows.missing_chunks() == 10 - 3


def test_masked_arrays_are_refused() -> None:
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    masked = np.ma.masked_array(X, X == 1)
    with pytest.raises(fcl.InputError, match="X has masked values"):
        fcl.open_data(masked, y=y)
    with pytest.raises(fcl.InputError, match="y has masked values"):
        fcl.open_data(X, y=np.ma.masked_array(y, y == 1))
    assert type(fcl.open_data(np.ma.masked_array(X), y=y).rows.read(0, 4)) is np.ndarray


def test_a_name_in_hdf5_that_is_not_text(tmp_path: Path) -> None:
    """Bytes of a command line that are not UTF-8 are surrogates in Python."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = [[0.0, 1.0]]
    with pytest.raises(fcl.InputError, match="has no array"):
        fcl.open_data(tmp_path / "a.h5", y="\udcff\udcfe")
