"""An S3 server and web servers in threads of this process, and data in them."""

from __future__ import annotations

import functools
import http.server
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fcl
from fcl.cli import COMMANDS
from fcl.data.sequences import SequenceReader
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


@pytest.fixture
def url(folder: Path, upload: Upload) -> str:
    """The URL of the folder in the bucket."""
    return upload(folder, "in/train.zarr")


@pytest.fixture
def data(url: str, server: S3Server) -> fcl.DataSet:
    return fcl.open_data(url, storage_options=server.options())


def codes(data: fcl.DataSet, block_rows: int = 700, keep: np.ndarray | None = None) -> np.ndarray:
    """All rows of sequences."""
    blocks = SequenceReader(data.rows, keep).iter_codes(block_rows)
    return np.concatenate([block for _, _, block in blocks])


def invoke(name: str, *arguments: str, code: int = 0) -> Result:
    """Run a command, which must end with a code."""
    result = CliRunner().invoke(import_module(COMMANDS[name][0]).command, list(arguments))
    assert result.exit_code == code, result.output
    return result


@contextmanager
def serving(handler: Any) -> Iterator[str]:
    """Run a web server; yields its host and port."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Site:
    """The files of a folder, at http://, and the requests for them."""

    def __init__(self, host: str, seen: list[str]) -> None:
        self.host, self.url, self.seen = host, f"http://{host}", seen


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The folder of the test as a site, which lists nothing."""
    monkeypatch.setenv("no_proxy", "*")
    seen: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def send_head(self) -> Any:  # of GET and HEAD
            seen.append(self.path)
            return super().send_head()

    with serving(functools.partial(Handler, directory=str(tmp_path))) as host:
        yield Site(host, seen)


@functools.cache
def toy_class() -> Any:
    """Files of a scheme that only fsspec knows, in the memory of the process; ``fails`` reads fail."""
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
    return Toy


@pytest.fixture
def toy() -> Iterator[str]:
    """The URL of a new folder of such files."""
    toy_class()
    yield f"toy://bucket{next(_numbers)}"
    toy_class().fails = 0
