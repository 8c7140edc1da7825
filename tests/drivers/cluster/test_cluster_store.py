"""Workers read the rows from an object store: the same bits as from the local disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fcl
from tests.s3_server import CREDENTIALS, S3Server, put_folder, s3_server

from .runs import JOB, bits, train


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as found:
        found.make_bucket("rows")
        yield found


@pytest.mark.slow
def test_rows_in_a_store(folder: Path, server: S3Server, client: Any) -> None:
    url = "s3://rows/train"
    put_folder(folder, url, server.options())
    # the workers have started without these credentials
    keys = {name.lower(): CREDENTIALS[name] for name in CREDENTIALS if "KEY" in name}
    data = fcl.open_data(url, storage_options=server.options() | keys)
    found = fcl.train(data, "kmers:d=3", **JOB, warn=False, client=client)
    assert bits(found) == bits(train(folder, warn=False, driver="inline"))
    path = {"C_max": 0.5, "points": 2, "cv": 2, "memory": "1GiB", "block_rows": 64, "warn": False}
    on_cluster = fcl.train_path(data, "kmers:d=3", client=client, **path)
    here = fcl.train_path(fcl.open_data(folder), "kmers:d=3", **path)
    assert [point.C for point in on_cluster.points] == [point.C for point in here.points]
    assert on_cluster.chosen.model.weights.tobytes() == here.chosen.model.weights.tobytes()
