"""Calls on a Dask cluster and on an object store."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import common
from tools.bench.common import EXAMPLE
from tools.bench.data import made
from tools.bench.runner import Clock, Figures, measured

DATA = EXAMPLE / "train.zarr"
JOB: dict[str, Any] = {"C": 0.03, "tol": 1e-3, "memory": "4GiB"}


@contextmanager
def local(workers: int) -> Iterator[Any]:
    """A client of some workers with one thread each."""
    from distributed import Client, LocalCluster

    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, **quiet) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def run(folder: Path | str, **options: Any) -> tuple[Any, list[float]]:
    """A job: its result, and the times of its passes."""
    import fcl
    from fcl.run.events import PassDone

    passes: list[float] = []

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            passes.append(event.seconds)

    data = fcl.open_data(str(folder))
    return fcl.train(data, "kmers:d=8", progress=note, **{**JOB, **options}), passes


def some_rows(step: int) -> str:
    """A folder with every ``step``-th row of the example."""
    import zarr

    def write(to: Path) -> None:
        group: Any = zarr.open_group(DATA, mode="r")
        for name in ("X", "y"):
            np.save(to / f"{name}.npy", group[name][:][::step])

    return str(made(f"example-{step}", write))


def pass_seconds(result: Any, passes: list[float]) -> float:
    """The mean time of a pass after the first, without the trainer."""
    trainer = result.seconds["columns"] + result.seconds["descent"]
    return float((passes[-1] - passes[0] - trainer) / (len(passes) - 1))


def overhead(rows: None, clock: Clock, workers: int = 1) -> Figures:
    """A pass over 1,000 rows."""
    few = some_rows(394)
    with local(workers) as client:
        driver = f"dask:address={client.scheduler.address}"
        run(few, driver=driver, C=1.0)  # loads kernels
        with clock:
            result, passes = run(few, driver=driver, C=1.0)
    return {"pass": pass_seconds(result, passes)}


def fan_out(
    rows: None, clock: Clock, data: str = str(DATA), features: str = "kmers:d=5", workers: int = 1,
    points: int = 5, cv: int = 4, C_max: float | None = 0.05,
) -> Figures:  # fmt: skip
    """A cross-validated path and scores here (``workers=0``) or as whole jobs on local workers.

    ``for a job`` is the time of a path of the null models divided by its jobs.
    """
    import hashlib

    import fcl
    from fcl.drivers.cluster.connect import connected
    from fcl.scoring.cluster import ClusterPredictor, write_score_chunks

    opened = fcl.open_data(data)
    options: dict[str, Any] = {"cv": cv, "memory": "2GiB", "patience": None}
    client: Any
    with local(workers) if workers else nullcontext() as client:

        def path(**grid: Any) -> Any:
            driver = "inline" if client is None else fcl.Dask(client=client)
            return fcl.train_path(opened, features, driver=driver, **grid, **options)

        path(points=2, C_max=C_max)  # compiles and loads kernels
        _, null = measured(Clock(), lambda: path(alphas=[1.0]))
        with clock:
            found = path(points=points, C_max=C_max)
        chosen = found.chosen.model
        with tempfile.TemporaryDirectory() as folder:
            if client is None:
                _, scores = measured(Clock(), lambda: chosen.margins(opened))
            else:
                out = Path(folder, "scores.zarr")
                with connected(client) as cluster:
                    write = ClusterPredictor(chosen, opened, cluster), opened, out
                    score = partial(write_score_chunks, *write, "margin", False, None)
                    _, scores = measured(Clock(), score)
    bits = hashlib.sha256(found.oof.tobytes() + found.scores.folds.tobytes())
    for one in found.models:
        bits.update(one.ids.tobytes() + one.weights.tobytes())
    return {"for a job": null["seconds"] / (2 * cv + 2), "scores": scores["seconds"],
            "bits": bits.hexdigest()[:8]}  # fmt: skip


# -- object stores -------------------------------------------------------------------------------------


def stored_files(rows: int = 1_500_000, chunk_rows: int = 65_536, sharded: bool = False) -> Path:
    """Windows of the example in random order, as fcl convert stores them, or an object for a chunk."""
    import fcl
    from fcl.convert.arrays import ArrayStore, StoreLayout

    def write(to: Path) -> None:
        source = fcl.open_data(DATA)
        assert source.target is not None
        x, random = source.rows.read_all(), np.random.default_rng(0)
        own = {} if sharded else {"shard_bytes": 1}
        with ArrayStore(to / "train.zarr", StoreLayout(chunk_rows=chunk_rows, **own)) as store:
            out, y = store.array("X", x.dtype, x.shape[1]), store.column("y", np.dtype(np.int8))
            for start in range(0, rows, len(x)):
                some = random.permutation(len(x))[: rows - start]
                out.append(x[some])
                y.append(source.target[some].astype(np.int8))
            out.finish()
            y.finish()

    return made(f"stored-{rows}-{chunk_rows}-{sharded}", write) / "train.zarr"


@contextmanager
def server(latency: float) -> Iterator[dict[str, str]]:
    """Run an S3 server (moto) that waits before the first byte of each answer; gives its options."""
    from tests.s3_server import CREDENTIALS

    line = [sys.executable, str(common.ROOT / "tests" / "s3_server.py"), "--remember"]
    line += ["--latency", str(latency)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        endpoint = child.stdout.readline().strip()
        try:
            yield {"endpoint": endpoint, "region": "us-east-1"} | {
                name.lower().removeprefix("aws_").replace("default_", ""): value
                for name, value in CREDENTIALS.items()
            }
        finally:
            child.stdin.close()
            child.wait()


def remote(
    folder: Path, clock: Clock, requests: int = 0, latency: float = 0.1, driver: str = "inline",
    C: float = 0.03, memory: str = "4GiB", workers: int = 2,
) -> Figures:  # fmt: skip
    """Read all rows from a store with so many requests at once (0: the local disk), and train.

    The server takes processor time of the same machine, which a real store does not.
    """
    import fcl
    from fcl.data.sequences import SequenceReader
    from fcl.drivers.warmup import warmup
    from fcl.run.events import Prepared
    from tests.s3_server import put_folder

    files = [file for file in (folder / "X").rglob("*") if file.is_file()]
    stored, opening = sum(file.stat().st_size for file in files), []

    def note(event: Any) -> None:
        if isinstance(event, Prepared):
            opening.append(event.seconds)

    place: Any = server(latency) if requests else nullcontext({})
    with place as options:
        source, given = str(folder), dict[str, Any]()
        if requests:
            bucket = urllib.request.Request(f"{options['endpoint']}/bench", method="PUT")
            urllib.request.urlopen(bucket).close()
            source = "s3://bench/train.zarr"
            put_folder(folder, source, options)
            given = {"storage_options": {**options, "requests": requests}}

        def read() -> None:
            for _ in SequenceReader(fcl.open_data(source, **given).rows).iter_codes(65536):
                pass

        warmup({"sequences"})
        read()  # the server keeps its answers, since moto takes 30 ms of a processor to make one
        _, reading = measured(Clock(), read)
        with clock:
            result: Any = fcl.train(
                fcl.open_data(source, **given), "kmers:d=8,origin=70", C=C, memory=memory,
                driver=f"dask:address=local:{workers}" if driver == "dask" else driver,
                tol=1e-2, progress=note,
            )  # fmt: skip
    spent = result.seconds
    return {"reading": reading["seconds"], "MB/s": stored / 1e6 / reading["seconds"],
            "prepared": opening[-1], "pass": spent["pricing"] + spent["margins and search"],
            "trainer": spent["columns"] + spent.get("descent", 0.0)}  # fmt: skip
