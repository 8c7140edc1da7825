#!/usr/bin/env python3
"""How long jobs take on a Dask cluster: what this machine measures, and a model of larger ones.

    python tools/bench/scale.py measure --out scale.json         # tasks, transfer, pass and trainer
    python tools/bench/scale.py check --constants scale.json     # the model beside 1, 2 and 3 workers
    python tools/bench/scale.py table --constants scale.json     # 50 million to 10^10 rows
    python tools/bench/scale.py overhead                         # passes over 1,000 rows

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
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import fcl
from fcl.data.prepared import PreparedRows
from fcl.drivers.cluster import client as connections
from fcl.drivers.cluster import tasks
from fcl.drivers.cluster.passes import MOST_GROUPS
from fcl.drivers.cluster.rows import shard_blocks
from fcl.drivers.events import PassDone
from fcl.features.prices import PriceQuery

DATA = Path(__file__).resolve().parents[2] / "examples" / "celegans" / "train.zarr"
JOB: dict[str, Any] = {"C": 0.03, "tol": 1e-3, "memory": "4GiB", "warn": False}
#: Letters of a window, and of a pattern.
LENGTH, D = 141, 8
#: Rows of a block where the rows that ship with fcl should be several shards.
SMALL_BLOCKS = 4096
#: The parts of a pass of the inline driver that workers would do.
PHASES = ("pricing", "margins and search")


@dataclass(frozen=True)
class Constants:
    """What the model needs to know about a cluster and a job; times in seconds."""

    round_trip: float = 0.010  #: a round of one task
    client: float = 0.0005  #: each task of a round, at the client
    scheduler: float = 0.0005  #: each task of a round, at the scheduler
    own: float = 0.001  #: each task, at its worker
    bandwidth: float = 1.25e9  #: bytes a second in and out of a worker
    crowded: float = 1.0  #: factor of the time of work while all cores of this machine work
    price: float = 4e-7  #: both vectors of a pass, for each row on one core
    other: float = 1e-7  #: margins, search and residuals of a pass, for each row on one core
    table: float = 0.05  #: the sums of a shard, apart from its rows
    watch: float = 0.01  #: its sums of the features that are watched, apart from its rows
    add: float = 2e-10  #: each byte of sums that is added to others
    scan: float = 0.05  #: the scan of all sums, apart from adding them
    read: float = 1e-6  #: reading, for each row on one core
    trainer: float = 59.0  #: columns and descent of a whole job
    passes: int = 14
    rounds: float = 9.0  #: rounds of a pass, without that of the tables
    tasks: float = 12.0  #: tasks for each shard of a pass, without that of the tables
    block_rows: int = 65536


@dataclass(frozen=True)
class Times:
    """The time of a pass by its parts."""

    work: float  #: rows, tables and scans
    scheduling: float  #: rounds and tasks
    transfer: float  #: sums from worker to worker

    @property
    def total(self) -> float:
        """Seconds."""
        return self.work + self.scheduling + self.transfer


#: Bytes of the sums over any set of rows.
SUMS = (LENGTH - D + 1) * 4**D * 8


def simulate(n: int, workers: int, cores: int, of: Constants, machine: int | None = None) -> Times:
    """A pass over n rows.

    Each round ends when the core with most shards has finished. Each task goes through the client and
    then the scheduler, which work at the same time on machines of their own. A worker adds up the tables
    of its shards, in a chain for each core, and sends each group of parts to one task.

    machine : number of cores that client, scheduler and workers share; None if each worker has its own.
    """
    n_blocks = -(-n // of.block_rows)
    in_shard = shard_blocks(n_blocks)
    shards = -(-n_blocks // in_shard)
    workers = min(workers, shards)
    chains, groups = min(cores, -(-shards // workers)), min(workers, MOST_GROUPS)
    most: float = -(-shards // (workers * cores))  # shards of the busiest core
    slow, central = 1.0, max(of.client, of.scheduler)
    if machine is not None:
        most, central = max(most, shards / machine), of.client + of.scheduler
        slow = of.crowded if workers * cores > 1 else 1.0
    rows = min(most * in_shard * of.block_rows, n)
    sums = most * (of.table + of.watch) + (most - 1.0) * of.add * SUMS
    if workers > 1:  # of the chains of a worker, and then of all workers
        sums += of.add * SUMS * (chains / min(cores, groups) + workers / groups)
    work = slow * (rows * (of.price + of.other) + sums + of.scan / groups)
    tasks = (of.tasks + 1.0) * shards + (workers * groups if workers > 1 else 0) + groups
    scheduling = of.rounds * of.round_trip + tasks * central + (of.tasks + 1.0) * most * of.own
    received = SUMS * (workers - 1) / groups
    return Times(work, slow * scheduling, received / of.bandwidth)


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


@contextmanager
def apart(workers: int) -> Iterator[Any]:
    """A client whose scheduler and workers run in processes of their own, as on a cluster."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = os.path.join(folder, "scheduler.json")
        common = ["--scheduler-file", place, "--no-dashboard"]
        lines = [["scheduler", "--port", "0", "--dashboard-address", ":0"]]
        lines += [["worker", "--nthreads", "1", "--no-nanny"]] * workers
        for kind, *more in lines:
            line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *common, *more]
            process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        with Client(scheduler_file=place, set_as_default=False) as client:
            client.wait_for_workers(workers)
            yield client


def _array(size: int) -> np.ndarray:
    return np.zeros(size, np.uint8)


def _sums() -> list[np.ndarray]:
    return [np.zeros(4**D, np.int64) for _ in range(LENGTH - D + 1)]


def _length(found: Any, *more: Any) -> int:
    return len(found)


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
    n, repeat = 64, 30
    with apart(2) as client:
        cluster = connections.Cluster(client)
        held = [cluster.submit(_array, 8) for _ in range(8)]  # tasks wait for shards on workers

        def round_of(n: int) -> None:
            calls = [(held[k % len(held)], k) for k in range(n)]
            cluster.gather(cluster.submit_all(_length, calls))

        trip = timed(lambda: round_of(1))
        queue = psutil.Process(client.run_on_scheduler(os.getpid))
        others = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
        groups = [psutil.Process()], [queue], others
        before = list(map(_cpu, groups))
        for _ in range(repeat):
            round_of(n)
        each = [(_cpu(g) - old) / n / repeat for g, old in zip(groups, before, strict=True)]
        first, second = client.nthreads()
        rates = []
        for _ in range(5):
            made = client.submit(_sums, pure=False, workers=first)
            client.gather(client.submit(_length, made, pure=False, workers=first))
            start = time.perf_counter()
            client.gather(client.submit(_length, made, pure=False, workers=second))
            rates.append(SUMS / (time.perf_counter() - start - trip))
        del made
        cluster.release()
    rate = statistics.median(rates)
    sender, scheduler, own = each
    return replace(of, round_trip=trip, client=sender, scheduler=scheduler, own=own, bandwidth=rate)


def _cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


class Tables:
    """The sums of some windows, as a worker makes and adds them.

    n : number of windows; a few show what the sums themselves take.
    """

    def __init__(self, folder: str, n: int) -> None:
        from fcl.features.spec import bind_features, parse_features

        data = fcl.open_data(folder)
        self.family: Any = bind_features(parse_features(f"kmers:d={D}"), data.rows)
        rows = PreparedRows(n, 64, self.family.record_shape(64))
        for start, _, raw in self.family.read_rows(data.rows, 64, None, 0, n):
            sides = tuple(self.family.prepare(raw, rows.writable(start // 64), 64))
            rows.commit(start // 64, sides)
        self.shard = tasks.Shard(self.family, rows, None)  # type: ignore[arg-type]
        with self.shard.pricer(8) as pricer:
            self.requests = [pricer.requests(PriceQuery(range(pricer.n_parts)))]
        self.vector, self.where = (
            np.random.default_rng(0).normal(size=n),
            tasks.Where(None, 2.0**-30),
        )

    def make(self) -> Any:
        """The task ``tables``."""
        return tasks.tables(self.shard, self.vector, self.where, self.requests, 8, None)

    def watch(self) -> Any:
        """The task ``watched``, with 20 features at each position."""
        step = self.family.n_features // (20 * len(self.requests[0]))
        ids = np.arange(0, self.family.n_features, step)
        query = PriceQuery(range(self.family.n_price_parts), ids, find=False, power=2)
        return tasks.watched(self.shard, self.vector, self.where, query, 8)


def _crowd(folder: str, n: int, ready: Any, done: Any) -> None:
    made = Tables(folder, n)
    made.make()
    ready.release()
    while not done.is_set():
        made.make()


def measure_tables(folder: str, of: Constants) -> Constants:
    """Measure the sums of a shard apart from its rows, and the slowdown by other cores."""
    few = Tables(folder, 64)
    table, watch = timed(few.make), timed(few.watch)
    sums = [few.make(), few.make()]
    two = timed(lambda: tasks.add_group(few.family, 64, 0, sums))
    n = 20_000
    many = Tables(folder, n)
    alone = timed(many.make)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Semaphore(0), context.Event()
    others = [
        context.Process(target=_crowd, args=(folder, n, ready, done), daemon=True)
        for _ in range((os.cpu_count() or 1) - 1)
    ]
    for process in others:
        process.start()
    for _ in others:
        ready.acquire()
    crowded = timed(many.make)
    done.set()
    for process in others:
        process.join()
    return replace(of, table=table, watch=watch, add=two / 2 / SUMS, crowded=crowded / alone)


def run(folder: Path | str, **options: Any) -> tuple[Any, list[float], Counter[str]]:
    """A job: its result, times of its passes, and its gathers and tasks if it has a client."""
    passes: list[float] = []
    counts: Counter[str] = Counter()
    kinds = {"gather": connections.Cluster.gather, "submit_all": connections.Cluster.submit_all}

    def counting(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any) -> Any:
            counts[name] += 1 if name == "gather" else len(args[1])
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


def every(step: int, folder: str) -> str:
    """Every ``step``-th row as arrays in a folder."""
    import zarr

    group: Any = zarr.open_group(DATA, mode="r")
    for name in ("X", "y"):
        np.save(os.path.join(folder, f"{name}.npy"), group[name][:][::step])
    return folder


def measure(args: argparse.Namespace) -> None:
    """The command ``measure``."""
    of = measure_cluster(Constants())
    with tempfile.TemporaryDirectory() as folder:
        small = every(16, folder)
        run(small)  # compiles, or loads kernels
        few, _, _ = run(small)
        of = measure_tables(small, of)
    many, _, _ = run(DATA)
    n = many.model.n_rows
    of = replace(
        of,
        read=many.seconds["read"] / n,
        trainer=sum(many.seconds.get(name, 0.0) for name in ("columns", "descent")),
        passes=many.passes,
    )
    less, more = ([r.seconds[name] / r.passes for name in PHASES] for r in (few, many))
    price, other = ((b - a) / (n - few.model.n_rows) for a, b in zip(less, more, strict=True))
    of = replace(of, price=price, other=other, scan=max(more[0] - price * n, 0.0))
    with local(2) as client:
        result, _, counts = run(DATA, client=client, block_rows=SMALL_BLOCKS)
    shards = _shards(n)
    # without what is done once, and without tables, which are one more round and task
    of = replace(
        of,
        rounds=counts["gather"] / result.passes - 1.0,
        tasks=counts["submit_all"] / result.passes / shards - 1.0,
    )
    _write(of, args.out)


def _shards(n: int) -> int:
    n_blocks = -(-n // SMALL_BLOCKS)
    return -(-n_blocks // shard_blocks(n_blocks))


def _write(of: Constants, path: str | None) -> None:
    text = json.dumps(asdict(of), indent=1)
    print(text)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if path is not None:
        Path(path).write_text(text + "\n", encoding="utf-8")


def pass_seconds(result: Any, passes: list[float]) -> float:
    """The mean time of a pass after the first, without the trainer."""
    trainer = result.seconds["columns"] + result.seconds["descent"]
    return float((passes[-1] - passes[0] - trainer) / (len(passes) - 1))


def overhead(args: argparse.Namespace) -> None:
    """The command ``overhead``."""
    print("| workers | a pass over 1,000 rows, median of 5 jobs | largest |")
    print("|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        few = every(394, folder)
        for workers in (1, 2, 3):
            with local(workers) as client:
                run(few, client=client, C=1.0)  # loads kernels
                found = [pass_seconds(*run(few, client=client, C=1.0)[:2]) for _ in range(5)]
            print(f"| {workers} | {statistics.median(found):.2f} s | {max(found):.2f} s |")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def check(args: argparse.Namespace) -> None:
    """The command ``check``."""
    of = replace(read_constants(args.constants), block_rows=SMALL_BLOCKS)
    cores = os.cpu_count() or 1
    print("| workers | shards | pass, measured | pass, model | same weights as inline |")
    print("|---|---|---|---|---|")
    run(DATA, block_rows=SMALL_BLOCKS, max_passes=1)
    alone, _, _ = run(DATA, block_rows=SMALL_BLOCKS)
    n = alone.model.n_rows
    price, other = (alone.seconds[name] / alone.passes / n for name in PHASES)
    of = replace(of, price=price - of.scan / n, other=other)  # rows in small blocks take longer
    for workers in (1, 2, 3):
        with local(workers) as client:
            run(DATA, block_rows=SMALL_BLOCKS, client=client, max_passes=1)  # loads kernels
            result, passes, _ = run(DATA, block_rows=SMALL_BLOCKS, client=client)
        same = np.array_equal(result.model.weights, alone.model.weights)
        seconds = pass_seconds(result, passes)
        model = simulate(n, workers, 1, of, cores).total
        print(
            f"| {workers} | {_shards(n)} | {seconds:.2f} s | {model:.2f} s | "
            f"{'yes' if same else 'NO'} |"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {cores} cores")


def read_constants(path: str | None) -> Constants:
    """The constants of a file, or the defaults."""
    if path is None:
        return Constants()
    return Constants(**json.loads(Path(path).read_text(encoding="utf-8")))


CLUSTERS = ((1, 2), (2, 4), (8, 1), (8, 4), (32, 4), (128, 4), (512, 4))


def table(args: argparse.Namespace) -> None:
    """The command ``table``."""
    of = read_constants(args.constants)
    for n in (50_000_000, 1_000_000_000, 10_000_000_000):
        print(f"\n{n:,} rows:\n")
        print("| workers x cores | pass | work | scheduling | transfer | efficiency | whole job |")
        print("|---|---|---|---|---|---|---|")
        alone = n * (of.price + of.other) + of.scan
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
        alone = (n * (of.price + of.other) + of.scan) / (workers * cores)
        if alone / simulate(n, workers, cores, of).total >= wanted:
            return f"{n / workers / cores / 1e6:.1f} million"
    return "never"


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for function, option in (
        (measure, "--out"),
        (check, "--constants"),
        (table, "--constants"),
        (overhead, None),
    ):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        if option is not None:
            command.add_argument(option, help="file of the constants")
        command.set_defaults(function=function)
    args = parser.parse_args()
    args.function(args)


if __name__ == "__main__":
    main()
