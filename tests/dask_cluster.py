"""A Dask cluster of this machine, as fixtures that several rooms import."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from worker_faults import GRACE, Fault  # noqa: E402

from fcl.drivers.cluster.connect import KEEP_WORKERS  # noqa: E402

#: Seconds within which workers come and go.
PATIENCE = 30.0
#: Processes that stay until the interpreter ends.
KEPT = ("resource_tracker", "forkserver", "nursery")


@contextmanager
def own_cluster(workers: int = 1, threads: int = 1, **more: Any) -> Iterator[Any]:
    """A cluster that says nothing."""
    with distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
        **more,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of three workers with one thread each."""
    before = set(psutil.Process().children(recursive=True))
    with dask.config.set(KEEP_WORKERS), own_cluster(3, processes=True) as found:
        with distributed.Client(found, set_as_default=False) as client:
            client.register_plugin(Fault("none", Path()))
        time.sleep(GRACE)
        yield found
    deadline = time.monotonic() + PATIENCE
    while left := _alive(set(psutil.Process().children(recursive=True)) - before):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.fixture(scope="module")
def cluster_of_threads() -> Iterator[Any]:
    """Three workers that are threads of this process, which start at once."""
    with own_cluster(3, processes=False, protocol="tcp") as found:
        yield found


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


def scale(cluster: Any, client: Any, n: int) -> None:
    """Have n workers."""
    cluster.scale(n)
    if not _have(client, n, PATIENCE / 3.0):
        cluster.scale(0)  # the cluster does not notice workers that have retired
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
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client with three workers, which are processes in slow tests and threads in quick ones.

    The test must leave no results on them. Jobs that are withdrawn raise KeyboardInterrupt, which ends
    the loop of workers that are threads: tests of these are slow.
    """
    slow = request.node.get_closest_marker("slow")
    cluster = request.getfixturevalue("cluster" if slow else "cluster_of_threads")
    with distributed.Client(cluster, set_as_default=False) as found:
        scale(cluster, found, 3)
        yield found
        if found.status != "running":
            return
        deadline = time.monotonic() + PATIENCE
        while left := found.run_on_scheduler(_tasks_of_fcl):
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
