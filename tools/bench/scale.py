#!/usr/bin/env python3
"""How long jobs take on a Dask cluster: what this machine measures, and a model of larger ones.

    python tools/bench/scale.py measure --out scale.json         # tasks, transfer, pass and trainer
    python tools/bench/scale.py check --constants scale.json     # the model beside 1, 2 and 3 workers
    python tools/bench/scale.py table --constants scale.json     # 50 million to 10^10 rows

`measure` times tasks and transfers on workers of this machine, and a job of k-mers (d = 8) in one
process, on all rows and on a sixteenth of them, which separates the time of a row from the rest. `check`
runs the driver dask on the same rows in small blocks, so that there are several shards, and prints its
passes beside the model's, for the cores that this machine has. `table` needs no cluster: it simulates
the rounds of tasks of a pass. Other cores, networks and schedulers have other constants: edit the file.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fcl
from fcl.drivers.cluster import client as connections
from fcl.drivers.cluster.passes import MOST_GROUPS
from fcl.drivers.cluster.rows import shard_blocks
from fcl.drivers.events import PassDone

DATA = Path(__file__).resolve().parents[2] / "examples" / "celegans" / "train.zarr"
JOB: dict[str, Any] = {"C": 0.03, "tol": 1e-3, "memory": "4GiB", "warn": False}
#: Letters of a window, and of a pattern.
LENGTH, D = 141, 8


@dataclass(frozen=True)
class Constants:
    """What the model needs to know about a cluster and a job; times in seconds."""

    round_trip: float = 0.010  #: a round of one task
    task: float = 0.001  #: each further task of a round, at the scheduler
    bandwidth: float = 1.25e9  #: bytes a second in and out of a worker
    row: float = 5e-7  #: a pass, for each row on one core
    scan: float = 0.05  #: a pass on one core, apart from its rows
    read: float = 1e-6  #: reading, for each row on one core
    trainer: float = 59.0  #: columns and descent of a whole job
    passes: int = 14
    rounds: float = 12.0  #: rounds of a pass whose tasks are one for each shard
    block_rows: int = 65536


@dataclass(frozen=True)
class Times:
    """The time of a pass by its parts."""

    work: float
    scheduling: float
    transfer: float

    @property
    def total(self) -> float:
        """Seconds."""
        return self.work + self.scheduling + self.transfer


def simulate(n: int, workers: int, cores: int, of: Constants) -> Times:
    """A pass over n rows.

    Each round ends when the core with most shards has finished. Each shard sends the tables of all
    positions to the few tasks that add and scan them.
    """
    n_blocks = -(-n // of.block_rows)
    in_shard = shard_blocks(n_blocks)
    shards = -(-n_blocks // in_shard)
    all_cores = workers * cores
    most = -(-shards // all_cores) * in_shard * of.block_rows  # rows of the busiest core
    work = min(most, n) * of.row + of.scan / min(workers, MOST_GROUPS)
    groups = min(workers, MOST_GROUPS)
    tasks = of.rounds * shards + 2 * groups * (shards + 1)  # tables of residuals and of curvatures
    scheduling = (of.rounds + 4) * of.round_trip + tasks * of.task
    sums = (LENGTH - D + 1) * 4**D * 8
    received = sums * shards / groups * (1.0 - 1.0 / workers)
    return Times(work, scheduling, received / of.bandwidth)


def job_seconds(n: int, workers: int, cores: int, of: Constants) -> float:
    """A whole job, whose trainer stays on one machine."""
    reading = n * of.read / (workers * cores)
    return reading + of.passes * simulate(n, workers, cores, of).total + of.trainer


# -- what this machine measures --------------------------------------------------------------------


@contextmanager
def local(workers: int) -> Iterator[Any]:
    """A client of some workers with one thread each."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


def _array(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def _length(array: np.ndarray) -> int:
    return len(array)


def timed(function: Callable[[], Any], repeat: int = 9) -> float:
    """The median time of a call, after one that is not counted."""
    function()
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure_cluster(of: Constants) -> Constants:
    """Measure rounds of tasks, and the transfer between two workers."""
    with local(2) as client:
        cluster = connections.Cluster(client)

        def round_of(n: int) -> float:
            return timed(lambda: cluster.gather([cluster.submit(abs, -1) for _ in range(n)]))

        one, many = round_of(1), round_of(65)
        size = 64 << 20
        first, second = client.nthreads()
        rates = []
        for _ in range(5):
            made = client.submit(_array, size, pure=False, workers=first)
            client.gather(client.submit(_length, made, pure=False, workers=first))
            start = time.perf_counter()
            client.gather(client.submit(_length, made, pure=False, workers=second))
            rates.append(size / (time.perf_counter() - start - one))
        cluster.release()
    return replace(of, round_trip=one, task=(many - one) / 64, bandwidth=statistics.median(rates))


def seconds_of_passes(history: list[float]) -> float:
    """The median time from one pass to the next."""
    return statistics.median(np.diff(history)) if len(history) > 1 else history[0]


def run(folder: Path | str, **options: Any) -> tuple[Any, list[float], Counter[str]]:
    """A job: its result, times of its passes, and its gathers and tasks if it has a client."""
    passes: list[float] = []
    counts: Counter[str] = Counter()
    kinds = {"gather": connections.Cluster.gather, "submit": connections.Cluster.submit}

    def counting(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            counts[name] += 1
            return kinds[name](self, *args)  # type: ignore[operator]

        return method

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            passes.append(event.seconds)

    for name in kinds:
        setattr(connections.Cluster, name, counting(name))
    try:
        data = fcl.open_data(str(folder))
        result = fcl.train(data, f"kmers:d={D}", progress=note, **{**JOB, **options})
    finally:
        for name, method in kinds.items():
            setattr(connections.Cluster, name, method)
    return result, passes, counts


def sixteenth(folder: str) -> str:
    """Every sixteenth row as arrays in a folder."""
    import zarr

    group: Any = zarr.open_group(DATA, mode="r")
    for name in ("X", "y"):
        np.save(os.path.join(folder, f"{name}.npy"), group[name][:][::16])
    return folder


def measure(args: argparse.Namespace) -> None:
    """The command ``measure``."""
    of = measure_cluster(Constants())
    with tempfile.TemporaryDirectory() as folder:
        small = sixteenth(folder)
        run(small)  # compiles, or loads kernels
        few, _, _ = run(small)
    many, _, _ = run(DATA)
    n = many.model.n_rows
    of = replace(
        of,
        read=many.seconds["read"] / n,
        trainer=sum(many.seconds.get(name, 0.0) for name in ("columns", "descent")),
        passes=many.passes,
    )
    each = [_of_pass(result) for result in (few, many)]
    row = (each[1] - each[0]) / (n - few.model.n_rows)
    of = replace(of, row=row, scan=max(each[1] - row * n, 0.0))
    with local(2) as client:
        _, _, counts = run(DATA, client=client)
    of = replace(of, rounds=counts["gather"] / many.passes - 2)
    _write(of, args.out)


def _of_pass(result: Any) -> float:
    """Seconds of a pass of the inline driver: margins, search, prices."""
    spent = result.seconds["pricing"] + result.seconds.get("margins and search", 0.0)
    return float(spent / result.passes)


def _write(of: Constants, path: str | None) -> None:
    text = json.dumps(asdict(of), indent=1)
    print(text)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")


def check(args: argparse.Namespace) -> None:
    """The command ``check``."""
    block_rows = 4096  # several shards
    of = replace(read_constants(args.constants), block_rows=block_rows)
    cores = os.cpu_count() or 1
    print(
        "| workers | shards | pass, measured | pass, model | tasks a pass | same weights as inline |"
    )
    print("|---|---|---|---|---|---|")
    alone, _, _ = run(DATA, block_rows=block_rows)
    trainer = sum(alone.seconds.get(name, 0.0) for name in ("columns", "descent")) / alone.passes
    n = alone.model.n_rows
    n_blocks = -(-n // block_rows)
    shards = -(-n_blocks // shard_blocks(n_blocks))
    for workers in (1, 2, 3):
        with local(workers) as client:
            run(DATA, block_rows=block_rows, client=client, max_passes=1)  # loads kernels
            result, passes, counts = run(DATA, block_rows=block_rows, client=client)
        same = np.array_equal(result.model.weights, alone.model.weights)
        seconds = seconds_of_passes(passes) - trainer
        model = simulate(n, min(workers, cores), 1, of).total
        print(
            f"| {workers} | {shards} | {seconds:.2f} s | {model:.2f} s | "
            f"{counts['submit'] / result.passes:.0f} | {'yes' if same else 'NO'} |"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {cores} cores")


def read_constants(path: str | None) -> Constants:
    """The constants of a file, or the defaults."""
    if path is None:
        return Constants()
    return Constants(**json.loads(Path(path).read_text(encoding="utf-8")))


CLUSTERS = ((1, 2), (2, 4), (8, 4), (32, 4), (128, 4), (512, 4))


def table(args: argparse.Namespace) -> None:
    """The command ``table``."""
    of = read_constants(args.constants)
    for n in (50_000_000, 1_000_000_000, 10_000_000_000):
        print(f"\n{n:,} rows:\n")
        print("| workers x cores | pass | work | scheduling | transfer | efficiency | whole job |")
        print("|---|---|---|---|---|---|---|")
        alone = n * of.row + of.scan
        for workers, cores in CLUSTERS:
            t = simulate(n, workers, cores, of)
            efficiency = alone / (workers * cores) / t.total
            whole = job_seconds(n, workers, cores, of)
            print(
                f"| {workers} x {cores} | {t.total:.2f} s | {t.work:.2f} | {t.scheduling:.2f} | "
                f"{t.transfer:.2f} | {efficiency:.2f} | {whole / 60:.1f} min |"
            )
    print("\nRows a core at which a pass has an efficiency of 0.8:\n")
    print("| workers x cores | rows a core |")
    print("|---|---|")
    for workers, cores in CLUSTERS[1:]:
        print(f"| {workers} x {cores} | {rows_a_core(workers, cores, of)} |")


def rows_a_core(workers: int, cores: int, of: Constants, wanted: float = 0.8) -> str:
    """The fewest rows a core, in shards of equal number on each core, with an efficiency."""
    for millions in range(1, 129):
        n = millions * workers * cores * 16 * of.block_rows
        alone = (n * of.row + of.scan) / (workers * cores)
        if alone / simulate(n, workers, cores, of).total >= wanted:
            return f"{n / workers / cores / 1e6:.1f} million"
    return "never"


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for function, option in ((measure, "--out"), (check, "--constants"), (table, "--constants")):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        command.add_argument(option, help="file of the constants")
        command.set_defaults(function=function)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
