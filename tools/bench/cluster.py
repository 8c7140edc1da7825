"""Calls on a Dask cluster and on an object store, and a model of clusters larger than this machine.

The model simulates the rounds of tasks of a pass. Its constants are measured here (the case
``cluster-constants``, which writes scale.json); other cores, networks and schedulers have other ones.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import common
from tools.bench.common import EXAMPLE, median
from tools.bench.data import made
from tools.bench.runner import Clock, Figures, measured

DATA = EXAMPLE / "train.zarr"
JOB: dict[str, Any] = {"C": 0.03, "tol": 1e-3, "memory": "4GiB", "warn": False}
#: Letters of a window, and of a pattern; bytes of the sums over any set of rows.
LENGTH, D = 141, 8
SUMS = (LENGTH - D + 1) * 4**D * 8
#: Rows of a block where the rows that ship with fcl should be several shards.
SMALL_BLOCKS = 4096
#: The parts of a pass of the inline driver that workers would do.
PHASES = ("pricing", "margins and search")
CONSTANTS = Path(__file__).with_name("scale.json")


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


def shards_of(n: int, block_rows: int) -> tuple[int, int]:
    """Blocks of a shard, and number of shards."""
    from fcl.drivers.cluster.rows import shard_blocks

    n_blocks = -(-n // block_rows)
    in_shard = shard_blocks(n_blocks)
    return in_shard, -(-n_blocks // in_shard)


def simulate(
    n: int, workers: int, cores: int, of: Constants, machine: int | None = None
) -> Figures:
    """Seconds of a pass over n rows: in all, of work, scheduling and transfer.

    Each round ends when the core with most shards has finished. Each task goes through the client and
    then the scheduler, which work at the same time on machines of their own. A worker adds up the tables
    of its shards, in a chain for each core, and sends each group of parts to one task.

    machine : cores that client, scheduler and workers share; None if each worker has its own
    """
    from fcl.drivers.cluster.passes import MOST_GROUPS

    in_shard, shards = shards_of(n, of.block_rows)
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
    parts = {"work": work, "scheduling": slow * scheduling,
             "transfer": SUMS * (workers - 1) / groups / of.bandwidth}  # fmt: skip
    return {"pass": sum(parts.values()), **parts}


def read_constants(path: str = "") -> Constants:
    """The constants of a file."""
    return Constants(**json.loads(Path(path or CONSTANTS).read_text(encoding="utf-8")))


def model(rows: None, clock: Clock, n: int = 50_000_000, constants: str = "") -> list[Figures]:
    """Passes and whole jobs over n rows by the model; the trainer stays on one machine."""
    of, lines = read_constants(constants), []
    alone = n * (of.price + of.other) + of.scan
    for workers, cores in ((1, 2), (2, 4), (8, 1), (8, 4), (32, 4), (128, 4), (512, 4)):
        found = simulate(n, workers, cores, of)
        reading = n * of.read / (workers * cores)
        found["whole job"] = reading + of.passes * found["pass"] + of.trainer
        found["efficiency"] = alone / (workers * cores) / found["pass"]
        lines.append(found | {"line": f"{workers} x {cores}"})
    return lines


# -- what this machine measures ------------------------------------------------------------------------


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


@contextmanager
def apart(workers: int) -> Iterator[Any]:
    """A client whose scheduler and workers run in processes of their own, as on a cluster."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = os.path.join(folder, "scheduler.json")
        shared = ["--scheduler-file", place, "--no-dashboard"]
        lines = [["scheduler", "--port", "0", "--dashboard-address", ":0"]]
        lines += [["worker", "--nthreads", "1", "--no-nanny"]] * workers
        for kind, *more in lines:
            line = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *shared, *more]
            process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
            stack.callback(process.wait)
            stack.callback(process.kill)
        with Client(scheduler_file=place, set_as_default=False) as client:
            client.wait_for_workers(workers)
            yield client


def _array(size: int) -> Any:
    return np.zeros(size, np.uint8)


def _sums() -> list[Any]:
    return [np.zeros(4**D, np.int64) for _ in range(LENGTH - D + 1)]


def _length(found: Any, *more: Any) -> int:
    return len(found)


def timed(function: Callable[[], Any], repeat: int = 9) -> float:
    """The median seconds of a call, after one that is not counted."""
    function()
    return median([measured(Clock(), function)[1]["seconds"] for _ in range(repeat)])


def measure_cluster(of: Constants) -> Constants:
    """Measure rounds of tasks, and the transfer between two workers."""
    import psutil

    from fcl.drivers.cluster import client as connections

    def cpu(processes: list[Any]) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    n, repeat, rates = 64, 30, []
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
        before = list(map(cpu, groups))
        for _ in range(repeat):
            round_of(n)
        each = [(cpu(g) - old) / n / repeat for g, old in zip(groups, before, strict=True)]
        first, second = client.nthreads()
        for _ in range(5):
            sums = client.submit(_sums, pure=False, workers=first)
            client.gather(client.submit(_length, sums, pure=False, workers=first))
            start = time.perf_counter()
            client.gather(client.submit(_length, sums, pure=False, workers=second))
            rates.append(SUMS / (time.perf_counter() - start - trip))
        del sums
        cluster.release()
    sender, scheduler, own = each
    return replace(of, round_trip=trip, client=sender, scheduler=scheduler, own=own,
                   bandwidth=median(rates))  # fmt: skip


class Tables:
    """The sums of n windows, as a worker makes and adds them."""

    def __init__(self, folder: str, n: int) -> None:
        import fcl
        from fcl.data.prepared import PreparedRows
        from fcl.drivers.cluster import tasks
        from fcl.features.prices import PriceQuery
        from fcl.features.spec import bind_features, parse_features

        data = fcl.open_data(folder)
        self.tasks = tasks
        self.family: Any = bind_features(parse_features(f"kmers:d={D}"), data.rows)
        rows = PreparedRows(n, 64, self.family.record_shape(64))
        for start, _, raw in self.family.read_rows(data.rows, 64, None, 0, n):
            sides = tuple(self.family.prepare(raw, rows.writable(start // 64), 64))
            rows.commit(start // 64, sides)
        self.shard = tasks.Shard(self.family, rows, None)  # type: ignore[arg-type]
        with self.shard.pricer(8) as pricer:
            self.requests = [pricer.requests(PriceQuery(range(pricer.n_parts)))]
        step = self.family.n_features // (20 * len(self.requests[0]))
        ids = np.arange(0, self.family.n_features, step)  # 20 features at each position
        self.query = PriceQuery(range(self.family.n_price_parts), ids, find=False, power=2)
        self.vector = np.random.default_rng(0).normal(size=n)
        self.where = tasks.Where(None, 2.0**-30)

    def make(self) -> Any:
        """The task ``tables``."""
        return self.tasks.tables(self.shard, self.vector, self.where, self.requests, 8, None)

    def watch(self) -> Any:
        """The task ``watched``."""
        return self.tasks.watched(self.shard, self.vector, self.where, self.query, 8)


def _crowd(folder: str, n: int, ready: Any, done: Any) -> None:
    tables = Tables(folder, n)
    tables.make()
    ready.release()
    while not done.is_set():
        tables.make()


def measure_tables(folder: str, of: Constants) -> Constants:
    """Measure the sums of a shard apart from its rows, and the slowdown by other cores."""
    few = Tables(folder, 64)
    table, watch = timed(few.make), timed(few.watch)
    sums = [few.make(), few.make()]
    two = timed(lambda: few.tasks.add_group(few.family, 64, 0, sums))
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
    import fcl
    from fcl.drivers.cluster import client as connections
    from fcl.run.events import PassDone

    passes: list[float] = []
    counts: Counter[str] = Counter()

    def note(event: Any) -> None:
        if isinstance(event, PassDone):
            passes.append(event.seconds)

    def counting(name: str, method: Any) -> Callable[..., Any]:
        def counted(self: Any, *args: Any) -> Any:
            counts[name] += 1 if name == "gather" else len(args[1])
            return method(self, *args)

        return counted

    names = ("gather", "submit_all")
    kinds = {name: counting(name, getattr(connections.Cluster, name)) for name in names}
    with common.constants(connections.Cluster, **kinds):
        data = fcl.open_data(str(folder))
        result = fcl.train(data, f"kmers:d={D}", progress=note, **{**JOB, **options})
    return result, passes, counts


def some_rows(step: int) -> str:
    """A folder with every ``step``-th row of the example."""
    import zarr

    def write(to: Path) -> None:
        group: Any = zarr.open_group(DATA, mode="r")
        for name in ("X", "y"):
            np.save(to / f"{name}.npy", group[name][:][::step])

    return str(made(f"example-{step}", write))


def measure_constants(rows: None, clock: Clock, to: str = "") -> list[Figures]:
    """Measure the constants of the model, and write them to a file, by default scale.json."""
    of, small = measure_cluster(Constants()), some_rows(16)
    run(small)  # compiles, or loads kernels
    few, _, _ = run(small)
    of = measure_tables(small, of)
    with clock:
        many, _, _ = run(DATA)
    n = many.model.n_rows
    trainer = sum(many.seconds.get(name, 0.0) for name in ("columns", "descent"))
    of = replace(of, read=many.seconds["read"] / n, trainer=trainer, passes=many.passes)
    less, more = ([r.seconds[name] / r.passes for name in PHASES] for r in (few, many))
    price, other = ((b - a) / (n - few.model.n_rows) for a, b in zip(less, more, strict=True))
    of = replace(of, price=price, other=other, scan=max(more[0] - price * n, 0.0))
    with local(2) as client:
        result, _, counts = run(DATA, client=client, block_rows=SMALL_BLOCKS)
    _, shards = shards_of(n, SMALL_BLOCKS)
    # without what is done once, and without tables, which are one more round and task
    rounds = counts["gather"] / result.passes - 1.0
    of = replace(of, rounds=rounds, tasks=counts["submit_all"] / result.passes / shards - 1.0)
    Path(to or CONSTANTS).write_text(json.dumps(asdict(of), indent=1) + "\n", encoding="utf-8")
    return [{"line": name, "value": value} for name, value in asdict(of).items()]


def pass_seconds(result: Any, passes: list[float]) -> float:
    """The mean time of a pass after the first, without the trainer."""
    trainer = result.seconds["columns"] + result.seconds["descent"]
    return float((passes[-1] - passes[0] - trainer) / (len(passes) - 1))


def overhead(rows: None, clock: Clock, workers: int = 1) -> Figures:
    """A pass over 1,000 rows."""
    few = some_rows(394)
    with local(workers) as client:
        run(few, client=client, C=1.0)  # loads kernels
        with clock:
            result, passes, _ = run(few, client=client, C=1.0)
    return {"pass": pass_seconds(result, passes)}


def check(rows: None, clock: Clock, constants: str = "", workers: int = 1) -> Figures:
    """Passes on local workers beside the model's, in small blocks, so that there are several shards."""
    of = replace(read_constants(constants), block_rows=SMALL_BLOCKS)
    run(DATA, block_rows=SMALL_BLOCKS, max_passes=1)
    alone, _, _ = run(DATA, block_rows=SMALL_BLOCKS)
    n = alone.model.n_rows
    price, other = (alone.seconds[name] / alone.passes / n for name in PHASES)
    of = replace(of, price=price - of.scan / n, other=other)  # rows in small blocks take longer
    with local(workers) as client:
        run(DATA, block_rows=SMALL_BLOCKS, client=client, max_passes=1)  # loads kernels
        with clock:
            result, passes, _ = run(DATA, block_rows=SMALL_BLOCKS, client=client)
    same = np.array_equal(result.model.weights, alone.model.weights)
    found = simulate(n, workers, 1, of, os.cpu_count() or 1)["pass"]
    return {"pass": pass_seconds(result, passes), "model": found, "same weights": bool(same)}


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
    options: dict[str, Any] = {"cv": cv, "memory": "2GiB", "warn": False, "patience": None}
    client: Any
    with local(workers) if workers else nullcontext() as client:

        def path(**grid: Any) -> Any:
            return fcl.train_path(opened, features, client=client, **grid, **options)

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
        cluster: dict[str, Any] = {"dask": f"local:{workers}"} if driver == "dask" else {}
        with clock:
            result: Any = fcl.train(
                fcl.open_data(source, **given), "kmers:d=8,origin=70", C=C, memory=memory,
                driver=driver, tol=1e-2, progress=note, **cluster,
            )  # fmt: skip
    spent = result.seconds
    return {"reading": reading["seconds"], "MB/s": stored / 1e6 / reading["seconds"],
            "prepared": opening[-1], "pass": spent["pricing"] + spent["margins and search"],
            "trainer": spent["columns"] + spent.get("descent", 0.0)}  # fmt: skip
