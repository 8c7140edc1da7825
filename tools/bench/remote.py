#!/usr/bin/env python3
"""Data in an object store: seconds to read it, and seconds of a whole job, beside the local disk.

An S3 server (moto, as in the tests) runs in a process of this machine, and waits before the first byte of
each answer, as stores do. It keeps its answers, since moto takes 30 ms of a processor to make one. The
windows are those of examples/celegans, repeated in random order. Runs of all kinds alternate; the medians
are printed. The server takes processor time of the same machine, which a real store does not.

    python tools/bench/remote.py
    python tools/bench/remote.py --rows 8323737 --driver processes dask --requests 16 --repeat 1
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import fcl
from fcl.convert.arrays import Store, StoreLayout
from fcl.data.sequences import SequenceReader
from fcl.drivers.events import Event, Prepared
from fcl.drivers.warmup import warmup
from tests.s3_server import CREDENTIALS, put_folder
from tools.bench import common

MB = 1e6


@contextmanager
def server(latency: float) -> Iterator[dict[str, str]]:
    """Run a server in a process of its own; gives the storage options."""
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


def make_data(folder: Path, n_rows: int, chunk_rows: int, sharded: bool) -> None:
    """Write windows with the layout of fcl convert, or with an object for each chunk."""
    source = fcl.open_data(common.ROOT / "examples" / "celegans" / "train.zarr")
    assert source.target is not None
    x, rng = source.rows.read_all(), np.random.default_rng(0)
    layout = StoreLayout(chunk_rows=chunk_rows)
    if not sharded:
        layout = StoreLayout(chunk_rows=chunk_rows, shard_bytes=1)
    with Store(folder, layout) as store:
        rows, target = store.array("X", x.dtype, x.shape[1]), store.column("y", np.dtype(np.int8))
        for start in range(0, n_rows, len(x)):
            some = rng.permutation(len(x))[: n_rows - start]
            rows.append(x[some])
            target.append(source.target[some].astype(np.int8))
        rows.finish()
        target.finish()


def read(source: str, **options: Any) -> None:
    """Read all rows in blocks, as a job does."""
    data = fcl.open_data(source, **options)
    for _ in SequenceReader(data.rows).iter_codes(65536):
        pass


def train(
    source: str, arguments: argparse.Namespace, driver: str, **options: Any
) -> dict[str, float]:
    """Train; returns the seconds of opening, reading, passes, the trainer with its columns, and all."""
    since = time.perf_counter()
    data = fcl.open_data(source, **options)
    opened = time.perf_counter() - since
    reading = 0.0

    def progress(event: Event) -> None:
        nonlocal reading
        if isinstance(event, Prepared):
            reading = event.seconds

    cluster: dict[str, Any] = {"dask": f"local:{arguments.workers}"} if driver == "dask" else {}
    result = fcl.train(
        data, "kmers:d=8,origin=70", C=arguments.C, memory=arguments.memory, driver=driver,
        tol=1e-2, progress=progress, **cluster,
    )  # fmt: skip
    assert result.converged
    spent = result.seconds
    found = {"open": opened, "read": reading}
    found["pass"] = spent["pricing"] + spent["margins and search"]
    found["trainer"] = spent["columns"] + spent.get("descent", 0.0)
    return found | {"all": time.perf_counter() - since}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and seconds of this process on all cores."""
    since, before = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - since, time.process_time() - before


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--chunk-rows", type=int, default=65_536, help="rows of an object")
    parser.add_argument("--sharded", action="store_true", help="the layout of fcl convert: 64 MiB")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds before the first byte")
    parser.add_argument("--requests", default="1,8,32", help="requests at once")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--C", type=float, default=0.03)
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument(
        "--driver", nargs="+", default=["inline"], choices=("inline", "processes", "dask")
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="of the driver dask, with a core each"
    )
    arguments = parser.parse_args()
    numbers = arguments.requests.split(",")
    print(common.machine())
    with tempfile.TemporaryDirectory() as made, server(arguments.latency) as options:
        folder = Path(made) / "train.zarr"
        make_data(folder, arguments.rows, arguments.chunk_rows, arguments.sharded)
        files = [file for file in (folder / "X").rglob("*") if file.is_file()]
        stored, size = sum(file.stat().st_size for file in files), arguments.rows * 141
        print(
            f"{arguments.rows:,} windows of 141 letters, {size / MB:,.0f} MB, stored as "
            f"{len(files) - 1:,} objects of {stored / MB / (len(files) - 1):.1f} MB; "
            f"{1000 * arguments.latency:.0f} ms before the first byte\n"
        )
        bucket = urllib.request.Request(f"{options['endpoint']}/bench", method="PUT")
        urllib.request.urlopen(bucket).close()
        url = "s3://bench/train.zarr"
        put_folder(folder, url, options)
        kinds: dict[str, tuple[str, dict[str, Any]]] = {"local disk": (str(folder), {})}
        for number in numbers:
            given = {"storage_options": options | {"requests": number}}
            kinds[f"store, {number} at once"] = (url, given)

        read(url, storage_options=options)  # the server keeps its answers
        reads: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
        for _ in range(arguments.repeat):
            for name, (source, given) in kinds.items():
                reads[name].append(timed(partial(read, source, **given)))
        print("| reading all rows | s | processor s | MB/s stored |\n|---|---|---|---|")
        for name, runs in reads.items():
            wall, cpu = (statistics.median(run[i] for run in runs) for i in (0, 1))
            print(f"| {name} | {wall:.2f} | {cpu:.2f} | {stored / MB / wall:,.0f} |")

        warmup({"sequences"})
        parts = ("open", "read", "pass", "trainer", "all")
        jobs: dict[tuple[str, str], list[dict[str, float]]] = {
            (name, driver): [] for name in kinds for driver in arguments.driver
        }
        for _ in range(arguments.repeat):
            for (name, driver), done in jobs.items():
                source, given = kinds[name]
                done.append(train(source, arguments, driver, **given))
        print("\n| job | driver | " + " | ".join(f"{part} s" for part in parts) + " |")
        print("|---" * (2 + len(parts)) + "|")
        for (name, driver), done in jobs.items():
            cells = (f"{statistics.median(run[part] for run in done):.2f}" for part in parts)
            print(f"| {name} | {driver} | " + " | ".join(cells) + " |")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"\npeak of this process: {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
