"""Faults of the driver ``dask``: workers are killed, restarted, retired or added, or the client closes.

Three small jobs run on a cluster of this machine: k-mers by rows, all rows or a sample, and columns by
features. Model, passes and certificate must have the bits of the inline driver, and the scheduler must
keep no tasks of fcl. New workers are spared, so that sometimes nothing is killed.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import fcl
from tools.fuzz.case import Case
from tools.fuzz.run import PATIENCE, ROOT, describe, until_empty

WORKERS = 3
#: Seconds of a run, after its workers are there.
LIMIT = 180.0 * PATIENCE
COMMON: dict[str, Any] = {"tol": 1e-3, "max_passes": 4, "block_rows": 64, "warn": False}
#: Name of a job -> features, options; ``x`` names the array of rows.
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("kmers:d=4", {"C": 0.5}),
    "sample": ("kmers:d=4", {"C": 1.0, "row_view": 600, "valid_fraction": 0.2}),
    "features": ("columns", {"C": 0.01, "x": "numbers"}),
}
_BY_ROWS = (
    "prepare_with start_margins margins subtract residuals block_sums tables watched add_group scan "
    "identity"
)
#: Kinds of tasks that each job has.
TASKS = {
    "rows": f"{_BY_ROWS} join".split(),
    "sample": f"{_BY_ROWS} pick take features".split(),
    "features": ["prepare_with", "margins", "residuals", "block_sums", "join", "whole", "price"],
}
OTHERS = ("restart", "retire", "fewer", "more", "close")


def run_case(case: Case) -> list[str]:
    """Run a job with a fault on the cluster of this process; return what is wrong."""
    choices = [
        (job, fault)
        for job, tasks in TASKS.items()
        for fault in (*(f"kill-{task}" for task in tasks), *OTHERS)
        if case.within in fault
    ]
    job, fault = case.rng.choice(choices)
    case.note(f"{job}: {fault}")
    case.group = f"cluster {fault.partition('-')[0]}"
    wrong = _run(case, job, fault)
    return wrong + _close() if case.chance(0.1) else wrong


@cache
def _cluster() -> Any:
    """A cluster of this machine, which lasts as long as this process."""
    import dask
    from distributed import LocalCluster

    from fcl.drivers.cluster.connect import KEEP_WORKERS

    logging.getLogger("fcl").setLevel(logging.ERROR)
    dask.config.set(KEEP_WORKERS)
    return LocalCluster(
        n_workers=WORKERS,
        threads_per_worker=1,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )


def _close() -> list[str]:
    """Close the cluster; return the processes that remain."""
    _cluster().close()
    _cluster.cache_clear()

    def find() -> list[str]:
        words = [describe(child.pid) for child in psutil.Process().children(recursive=True)]
        return [f"process: {each}" for each in words if "tracker" not in each]

    return until_empty(find)


@cache
def _rows(folder: Path) -> Path:
    """Write 2,100 windows of 24 letters, and a table of numbers."""
    import zarr

    group: Any = zarr.open_group(ROOT / "examples" / "celegans" / "train.zarr", mode="r")
    y = group["y"][:40_000]
    some = np.sort(np.concatenate([np.flatnonzero(y > 0)[:800], np.flatnonzero(y <= 0)[:1300]]))
    noise = np.random.default_rng(0).normal(size=(len(some), 6))
    arrays = {
        "X": group["X"][:40_000][some][:, 58:82],
        "y": y[some],
        "numbers": noise + 0.3 * y[some][:, None],
    }
    folder.mkdir(exist_ok=True)
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def _train(folder: Path, job: str, **options: Any) -> Any:
    features, own = JOBS[job]
    own = dict(own)
    data = fcl.open_data(folder, x=own.pop("x", "X"))
    return fcl.train(data, features, **{**COMMON, **own, **options})


@cache
def _expected(folder: Path, job: str) -> tuple[Any, ...]:
    return _bits(_train(folder, job))


def _bits(result: Any) -> tuple[Any, ...]:
    """All numbers of a run but times and memory; first those of its passes."""
    model = result.model
    names = ("objective", "bound", "gap", "max_violation", "active", "cached", "beta", "validation")
    history = [[str(entry.get(name)) for name in names] for entry in model.history]
    arrays = model.ids.tobytes(), model.weights.tobytes(), model.support.tobytes()
    return history, *arrays, model.intercept, model.certificate


def _tasks_of_fcl(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("fcl_")]


def _run(case: Case, job: str, fault: str) -> list[str]:
    """Train, resume if the client was closed, and judge the result."""
    from distributed import Client

    from fcl.errors import ClusterLost

    folder = _rows(case.stock / "windows")
    expected = _expected(folder, job)
    client = Client(_cluster(), set_as_default=False)
    try:
        _fill_up(client)
        begun = time.monotonic()
        saved = case.folder / "checkpoint"
        options = {"checkpoint": saved, "should_stop": lambda: time.monotonic() - begun > LIMIT}
        is_resumed = False
        try:
            progress = _arm(case, client, fault)
            result = _train(folder, job, client=client, progress=progress, **options)
        except ClusterLost:
            if fault != "close":
                raise
            is_resumed = True
            client = Client(_cluster(), set_as_default=False)
            result = _train(folder, job, client=client, resume=saved, **options)
        if time.monotonic() - begun > LIMIT:
            return ["hang"]
        tokens = list(case.folder.glob("fault-*"))
        case.outcome = "not met" if len(tokens) == case.figures.get("armed") else "met"
        found = _bits(result)
        if is_resumed:  # it has other passes
            found, expected = found[1:], expected[1:]
        wrong = [] if found == expected else ["other bits than the inline driver"]
        return wrong + _left(client)
    finally:
        with contextlib.suppress(Exception):
            client.close()


def _left(client: Any) -> list[str]:
    """Tasks that the scheduler keeps."""
    deadline = time.monotonic() + 20.0 * PATIENCE
    while left := client.run_on_scheduler(_tasks_of_fcl):
        if time.monotonic() > deadline:
            return [f"left: {left[:3]}"]
        time.sleep(0.1)
    return []


def _fill_up(client: Any) -> None:
    """Wait until all workers are there; those of earlier runs may be gone."""
    from fcl.drivers.cluster.faults import GRACE

    cluster = _cluster()
    cluster.scale(WORKERS)
    deadline = time.monotonic() + 10.0
    while len(client.nthreads()) != WORKERS:
        if time.monotonic() > deadline:  # the cluster does not notice workers that have retired
            cluster.scale(0)
            time.sleep(2.0)
            cluster.scale(WORKERS)
            deadline = time.monotonic() + 30.0 * PATIENCE
        time.sleep(0.1)
    time.sleep(GRACE)  # new workers are spared


def _arm(case: Case, client: Any, fault: str) -> Callable[[Any], None]:
    """Prepare the fault; returns the callback that may cause it."""
    from fcl.drivers.cluster.faults import Fault
    from fcl.run.events import PassDone

    if fault.startswith("kill-"):
        case.figures["armed"] = case.rng.choice((1, 1, 2))
        for k in range(case.figures["armed"]):
            (case.folder / f"fault-{k}").touch()
        client.register_plugin(Fault(fault.removeprefix("kill-"), case.folder, signal.SIGKILL))
        return lambda event: None
    at = case.rng.choice((0, 1, 2))
    acts: dict[str, Callable[[], Any]] = {
        "restart": lambda: client.restart_workers([next(iter(client.nthreads()))]),
        "retire": lambda: client.retire_workers([next(iter(client.nthreads()))]),
        "fewer": lambda: _cluster().scale(1),
        "more": lambda: _cluster().scale(WORKERS + 1),
        "close": client.close,
    }

    def act(event: Any) -> None:
        if isinstance(event, PassDone) and event.number == at:
            acts[fault]()

    return act
