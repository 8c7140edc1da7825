"""A Dask cluster of this machine for the tests of this folder, and rows that its workers can open."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from rows import acceptors, pyrimidines

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from fcl.drivers.cluster.connect import KEEP_WORKERS  # noqa: E402
from fcl.drivers.cluster.faults import GRACE, Fault  # noqa: E402

#: Seconds within which workers come and go.
PATIENCE = 30.0
#: Processes that stay until the interpreter ends.
KEPT = ("resource_tracker", "forkserver", "nursery")


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    """A cluster of three workers with one thread each."""
    before = set(psutil.Process().children(recursive=True))
    with (
        dask.config.set(KEEP_WORKERS),
        distributed.LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as found,
    ):
        with distributed.Client(found, set_as_default=False) as client:
            client.register_plugin(Fault("none", Path()))
        time.sleep(GRACE)
        yield found
    deadline = time.monotonic() + PATIENCE
    while left := _alive(set(psutil.Process().children(recursive=True)) - before):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def _alive(processes: set[psutil.Process]) -> list[str]:
    found = []
    for process in processes:
        try:
            command = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if command and not any(kept in command for kept in KEPT):
            found.append(command)
    return found


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """Workers are replaced while a test runs; the fixture ``cluster`` looks at the end."""


def scale(cluster: Any, client: Any, n: int) -> None:
    """Have n workers."""
    cluster.scale(n)
    if not _have(
        client, n, PATIENCE / 3.0
    ):  # the cluster does not notice workers that have retired
        cluster.scale(0)
        assert _have(client, 0, PATIENCE), client.nthreads()
        cluster.scale(n)
        assert _have(client, n, PATIENCE), client.nthreads()


def _have(client: Any, n: int, patience: float) -> bool:
    """Wait until there are n workers."""
    deadline = time.monotonic() + patience
    while len(client.nthreads()) != n:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _tasks_of_fcl(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("fcl_")]


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """A client of the cluster, with three workers; the test must leave no results on them."""
    with distributed.Client(cluster, set_as_default=False) as found:
        scale(cluster, found, 3)
        yield found
        if found.status != "running":
            return
        deadline = time.monotonic() + PATIENCE
        while left := found.run_on_scheduler(_tasks_of_fcl):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows of 24 letters with labels, counts, weights (some of them 0), and a table of numbers."""
    place = tmp_path_factory.mktemp("cluster") / "rows"
    place.mkdir()
    codes, y = acceptors(24, 2100)
    codes = codes.copy()
    codes[::9, 5] = 4  # unknown letters
    random = np.random.default_rng(0)
    weights = random.choice([0.0, 0.5, 1.0, 2.25], 2100)
    numbers = random.normal(size=(2100, 6)) + 0.5 * y[:, None] * np.arange(6)
    arrays = {
        "X": codes,
        "y": y,
        "counts": pyrimidines(2100),
        "weights": weights,
        "offset": random.normal(size=2100),
        "numbers": numbers,
    }
    for name, values in arrays.items():
        np.save(place / f"{name}.npy", values)
    return place
