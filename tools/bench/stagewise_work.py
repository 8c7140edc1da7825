"""Where the time of a stagewise training goes, and its peak memory beside the plan."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import common
from tools.bench.stagewise_data import mnist, stagewise

#: Method -> the part of the work that it belongs to; what it calls may belong to another part.
WORK = {
    "fcl.stagewise.blocks:Block._made": "features",
    "fcl.stagewise.sums:_gram": "Gram matrix",
    "fcl.stagewise.sums:Sums.add": "sums over tiles",
    "fcl.stagewise.sums:Sums.exact": "sums over tiles",
    "fcl.stagewise.sums:Sweeper._tile": "products with K columns",
    "fcl.stagewise.sums:Update.apply": "products with K columns",
    "fcl.stagewise.learner:factorise": "Cholesky factor",
    "fcl.stagewise.learner:step": "solve",
    "fcl.stagewise.learner:Learner._measure": "losses and errors",
}


class Clock:
    """Processor seconds of each part of the work, over all threads; a part excludes those inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._lock, self._own = threading.Lock(), threading.local()

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, with its time added to a part."""

        def inner(*args: Any, **options: Any) -> Any:
            stack = self._own.__dict__.setdefault("stack", [])
            stack.append(0.0)
            since = time.thread_time()
            try:
                return function(*args, **options)
            finally:
                whole = time.thread_time() - since
                inside = stack.pop()
                if stack:
                    stack[-1] += whole
                with self._lock:
                    self.seconds[name] += whole - inside

        return inner


@contextmanager
def measured() -> Iterator[Clock]:
    """Time the parts of all trainings inside the ``with`` block."""
    from importlib import import_module

    clock, before = Clock(), []
    for path, name in WORK.items():
        module, _, attribute = path.partition(":")
        owner: Any = import_module(module)
        *outer, last = attribute.split(".")
        for part in outer:
            owner = getattr(owner, part)
        before.append((owner, last, getattr(owner, last)))
        setattr(owner, last, clock.timed(getattr(owner, last), name))
    try:
        yield clock
    finally:
        for owner, last, function in before:
            setattr(owner, last, function)


def sgemm_rate(p: int = 2048) -> float:
    """Flops a second of a product of float32 matrices on one thread: the best of six."""
    a = np.random.default_rng(0).random((p, p), np.float32)
    best = np.inf
    for _ in range(6):
        since = time.thread_time()
        a @ a[::-1]
        best = min(best, time.thread_time() - since)
    return float(2.0 * p**3 / best)


def profile(args: argparse.Namespace) -> None:
    """Print the processor seconds of each part of a training on MNIST, and rates beside sgemm's."""
    from threadpoolctl import threadpool_limits

    data = mnist(args.rows)
    options = {"cores": args.cores, "update": "ls", "block": 1024}
    stagewise(data, 1024, visits=1, **options)  # compiles, and reads pages
    with threadpool_limits(1):
        peak = [sgemm_rate()]
        before, since = time.process_time(), time.perf_counter()
        with measured() as clock:
            points = stagewise(data, args.features, visits=args.visits, **options)
        processor, seconds = time.process_time() - before, time.perf_counter() - since
        peak.append(sgemm_rate())
    found = clock.seconds
    found["reading, components, the rest"] = processor - sum(found.values())
    ordered = sorted(found.items(), key=lambda item: -item[1])
    lines = [[name, f"{value:.2f}", f"{value / processor:.0%}"] for name, value in ordered]
    print(f"\n{args.features:,} cosines, {args.visits} visits: {processor:.1f} processor s, "
          f"{seconds:.1f} s\n")  # fmt: skip
    print(common.table(["part", "processor, s", "share"], lines))
    n, (rows, tests, K) = args.features, (len(data.y), len(data.test_y), 10)
    gram = rows * n * 1024 / found["Gram matrix"]
    thin = 2 * n * args.visits * (rows * (2 * K + 1) + tests * K) / found["products with K columns"]
    blocks = -(-n // 1024)
    visits = [points[k * blocks - 1].processor for k in range(1, args.visits + 1)]
    took = np.diff([0.0, *visits])
    print(
        f"\nsgemm {peak[0] / 1e9:.0f} and {peak[1] / 1e9:.0f} Gflop/s before and after; Gram matrix "
        f"{gram / 1e9:.0f} ({gram / max(peak):.0%}); products with {K} columns {thin / 1e9:.0f}"
    )
    print(
        "processor seconds of each visit, the first with reading: "
        + ", ".join(f"{t:.1f}" for t in took)
    )


def memory(args: argparse.Namespace) -> None:
    """Train on generated rows by the command, and print its peak memory beside the plan."""
    with tempfile.TemporaryDirectory(prefix="fcl-bench-") as folder:
        _write_rows(Path(folder), args)
        command = [sys.executable, "-m", "fcl", "stagewise", folder, "--overwrite"]
        command += ["--features", f"fourier:n={args.features}", "--out", f"{folder}/model.fcl"]
        command += ["--update", args.update, "--visits", str(args.visits), "--memory", args.memory]
        command += ["--cores", str(args.cores)] if args.cores else []
        command += ["--certify"] if args.certify else []
        command += ["--max-time", args.max_time] if args.max_time else []
        plan = subprocess.run([*command, "--plan"], check=True, capture_output=True, text=True)
        print(plan.stdout, flush=True)
        since = time.perf_counter()
        done = subprocess.Popen(command, cwd=common.ROOT)
        _, status, used = os.wait4(done.pid, 0)
        seconds = time.perf_counter() - since
    if status:
        sys.exit(f"the command ended with the status {status}")
    total, budget = (
        int(line.split()[-1].replace(",", "")) for line in plan.stdout.splitlines()[-2:]
    )
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    header = ["rows", "features", "update", "seconds", "plan, MiB", "peak, MiB", "peak / plan"]
    figures = [f"{total / 2**20:,.0f}", f"{peak / 2**20:,.0f}", f"{peak / total:.2f}"]
    line = [f"{args.rows:,}", f"{args.features:,}", args.update, f"{seconds:.0f}", *figures]
    print(common.table(header, [line]))
    if peak > budget:
        sys.exit("the peak is above the budget")


def _write_rows(folder: Path, args: argparse.Namespace) -> None:
    """Rows of normal numbers, in classes that are neither linear nor quite predictable."""
    rng = np.random.default_rng(0)
    x = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (args.rows, args.inputs))
    y = np.empty(args.rows, np.int64)
    truth = rng.normal(size=(2, args.inputs, args.classes)).astype(np.float32)
    for first in range(0, args.rows, 1 << 16):
        some = slice(first, min(first + (1 << 16), args.rows))
        x[some] = rng.standard_normal((some.stop - first, args.inputs), np.float32)
        scores = np.tanh(x[some] @ truth[0]) + np.sin(x[some] @ truth[1])
        y[some] = (scores + 0.3 * rng.gumbel(size=scores.shape)).argmax(axis=1)
    np.save(folder / "y.npy", y)
