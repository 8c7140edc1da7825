#!/usr/bin/env python3
"""Fault injection for the driver dask: small real jobs on a cluster of this machine.

    python tools/faults_dask.py --runs 60
    python tools/faults_dask.py --runs 5 --only kill-scan

In each run workers are killed as they begin a task of some kind, or restarted, retired, removed and added
during a pass, or the client is closed, after which the job is resumed. Kinds of tasks, passes, and the
job (k-mers by rows, all rows or a sample; columns by features) are random. A run is wrong if its model,
passes or certificate differ by a bit from those of the inline driver. It hangs if it takes longer than
--patience. It leaves something behind if the scheduler still has tasks of fcl, or if at the end a worker
process is left. The exit code is 1 if any run is bad.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
from distributed import Client, LocalCluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fcl
from fcl.drivers.cluster.client import KEEP_WORKERS
from fcl.drivers.cluster.faults import Fault
from fcl.drivers.events import PassDone
from fcl.errors import ClusterLost

DATA = Path(__file__).resolve().parents[1] / "examples" / "celegans" / "train.zarr"
WORKERS = 3
COMMON: dict[str, Any] = {"tol": 1e-3, "max_passes": 4, "block_rows": 64, "warn": False}
#: Name of a job -> features, options; ``x`` names the array of rows.
JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "rows": ("kmers:d=4", {"C": 0.5}),
    "sample": ("kmers:d=4", {"C": 1.0, "row_view": 600, "valid_fraction": 0.2}),
    "features": ("columns", {"C": 0.01, "x": "numbers"}),
}
BY_ROWS = [
    "prepare_with",
    "start_margins",
    "margins",
    "subtract",
    "residuals",
    "block_sums",
    "tables",
    "scan",
    "identity",
]
#: Kinds of tasks that each job has.
KINDS = {
    "rows": [*BY_ROWS, "join"],
    "sample": [*BY_ROWS, "pick", "take", "features"],
    "features": ["prepare_with", "margins", "residuals", "block_sums", "join", "whole", "price"],
}
ACTS = ("restart", "retire", "fewer", "more", "close")


def make_rows(folder: Path) -> None:
    """Write 2,100 windows of 24 letters, and a table of numbers."""
    import zarr

    group: Any = zarr.open_group(DATA, mode="r")
    y = group["y"][:40_000]
    some = np.sort(np.concatenate([np.flatnonzero(y > 0)[:800], np.flatnonzero(y <= 0)[:1300]]))
    codes = group["X"][:40_000][some][:, 58:82]
    noise = np.random.default_rng(0).normal(size=(len(some), 6))
    arrays = {"X": codes, "y": y[some], "numbers": noise + 0.3 * y[some][:, None]}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)


def train(folder: Path, job: str, **options: Any) -> Any:
    """Train; see JOBS."""
    features, own = JOBS[job]
    own = dict(own)
    data = fcl.open_data(folder, x=own.pop("x", "X"))
    return fcl.train(data, features, **{**COMMON, **own, **options})


def bits(result: Any) -> tuple[Any, ...]:
    """All numbers of a run but times and memory."""
    model = result.model
    names = ("objective", "bound", "gap", "max_violation", "active", "cached", "beta", "validation")
    history = [[str(entry.get(name)) for name in names] for entry in model.history]
    arrays = model.ids.tobytes(), model.weights.tobytes(), model.support.tobytes()
    return *arrays, model.intercept, history, model.certificate


@dataclass
class Campaign:
    """Runs on one cluster."""

    cluster: Any
    folder: Path
    patience: float
    random: random.Random
    expected: dict[str, Any] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)

    def run(self, number: int, only: str) -> None:
        """Make one run and print its result."""
        job, fault = self._draw(only)
        if job not in self.expected:
            self.expected[job] = bits(train(self.folder, job))
        start = time.monotonic()
        what = self._outcome(number, job, fault, start)
        self.found[what] += 1
        print(
            f"{number:3} {job:9} {fault:20} {time.monotonic() - start:6.1f} s  {what}", flush=True
        )

    def _draw(self, only: str) -> tuple[str, str]:
        while True:
            job = self.random.choice(list(JOBS))
            kinds = [f"kill-{kind}" for kind in KINDS[job]]
            fault = self.random.choice(kinds + list(ACTS))
            if only in fault:
                return job, fault

    def _outcome(self, number: int, job: str, fault: str, start: float) -> str:
        place = self.folder / f"run-{number}"
        place.mkdir()

        def late() -> bool:
            return time.monotonic() - start > self.patience

        client = Client(self.cluster, set_as_default=False)
        try:
            self._fill_up(client)
            progress = self._arm(client, fault, place)
            options: dict[str, Any] = {"checkpoint": place / "checkpoint", "should_stop": late}
            try:
                result = train(self.folder, job, client=client, progress=progress, **options)
            except ClusterLost:
                if fault != "close":
                    raise
                with Client(self.cluster, set_as_default=False) as other:
                    saved = place / "checkpoint"
                    resumed = {**options, "resume": saved, "client": other}
                    result = train(self.folder, job, **resumed)
                    if late():
                        return "hang"
                    return self._judge(result, job, other, resumed=True)
            if late():
                return "hang"
            return self._judge(result, job, client)
        except KeyboardInterrupt:
            return "hang"
        except Exception as error:
            return f"error {error!r:.120}"
        finally:
            with contextlib.suppress(Exception):
                client.close()

    def _judge(self, result: Any, job: str, client: Any, resumed: bool = False) -> str:
        ours, theirs = bits(result), self.expected[job]
        if ours[:4] != theirs[:4] or ours[5] != theirs[5] or (not resumed and ours != theirs):
            return "wrong"
        deadline = time.monotonic() + 20.0
        while left := client.run_on_scheduler(_tasks_of_fcl):
            if time.monotonic() > deadline:
                return f"left {left[:3]}"
            time.sleep(0.1)
        return "good"

    def _fill_up(self, client: Any) -> None:
        """Have all workers, and no faults of earlier runs."""
        self.cluster.scale(WORKERS)
        deadline = time.monotonic() + 60.0
        while len(client.nthreads()) != WORKERS:
            if time.monotonic() > deadline:  # the cluster does not notice workers that have retired
                self.cluster.scale(0)
                time.sleep(2.0)
                self.cluster.scale(WORKERS)
                deadline += 60.0
            time.sleep(0.1)

    def _arm(self, client: Any, fault: str, place: Path) -> Callable[[Any], None]:
        """Prepare a fault; returns the callback that may cause it."""
        if fault.startswith("kill-"):
            for k in range(self.random.choice((1, 1, 2))):
                (place / f"fault-{k}").touch()
            client.register_plugin(Fault(fault.removeprefix("kill-"), place, signal.SIGKILL))
            return lambda event: None
        at = self.random.choice((0, 1, 2))

        def act(event: Any) -> None:
            if not isinstance(event, PassDone) or event.number != at:
                return
            one = [next(iter(client.nthreads()))]
            match fault:
                case "restart":
                    client.restart_workers(one)
                case "retire":
                    client.retire_workers(one)
                case "fewer":
                    self.cluster.scale(1)
                case "more":
                    self.cluster.scale(WORKERS + 1)
                case "close":
                    client.close()

        return act


def _tasks_of_fcl(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if str(key).startswith("fcl_")]


@contextlib.contextmanager
def small_cluster() -> Iterator[Any]:
    """A cluster of this machine."""
    with (
        dask.config.set(KEEP_WORKERS),
        LocalCluster(
            n_workers=WORKERS,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--patience", type=float, default=180.0, help="seconds of a run (180)")
    args = parser.parse_args()
    logging.getLogger("fcl").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_rows(folder)
        with small_cluster() as cluster:
            campaign = Campaign(cluster, folder, args.patience, random.Random(args.seed))
            for number in range(args.runs):
                campaign.run(number, args.only)
    time.sleep(1.0)
    left = [
        process
        for process in psutil.Process().children(recursive=True)
        if "tracker" not in " ".join(process.cmdline())
    ]
    print(dict(campaign.found), f"{len(left)} processes left")
    sys.exit(int(set(campaign.found) != {"good"} or bool(left)))


if __name__ == "__main__":
    main()
