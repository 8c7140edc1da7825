"""An S3 server in threads of this process, and data in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.s3_server import CREDENTIALS, S3Server, put_folder, s3_server

Upload = Callable[[Path, str], str]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def running_server() -> Iterator[S3Server]:
    """A server for all tests of a process."""
    with s3_server() as server:
        yield server


@pytest.fixture(autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder for the key by which checkpoints with URLs are signed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


@pytest.fixture
def server(running_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server without faults, with credentials in the environment, and a new bucket."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    running_server.reset()
    running_server.make_bucket(f"bucket{next(_numbers)}")
    yield running_server
    running_server.reset()


@pytest.fixture
def upload(server: S3Server) -> Upload:
    """Put a local file or folder into the bucket; returns its URL."""

    def put(path: Path, name: str) -> str:
        url = f"s3://{server.bucket}/{name}"
        put_folder(path, url, server.options())
        return url

    return put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Zarr folder of 6,000 sequences of 20 letters in 12 chunks, whose letter 5 decides the label."""
    import zarr

    rng = np.random.default_rng(5)
    x = rng.integers(0, 4, (6000, 20)).astype(np.uint8)
    y = np.where((x[:, 5] == 2) ^ (rng.random(6000) < 0.1), 1, -1)
    group = zarr.open_group(tmp_path / "train.zarr", mode="w")
    group.create_array("X", data=x, chunks=(500, 20))
    group.create_array("y", data=y, chunks=(2000,))
    return tmp_path / "train.zarr"
