#!/usr/bin/env python3
"""Online learning in 24 bits a weight, and compact models: loss against bits, speed, 10^9 weights.

    python tools/bench/online/less_ram.py bits            # loss against bits, a picture
    python tools/bench/online/less_ram.py rounding        # finished models: loss, bits a value
    python tools/bench/online/less_ram.py speed
    python tools/bench/online/less_ram.py huge --weights 1000000000   # 3 GB; killed and resumed

``bits`` learns a9a with all products of up to three columns, and 20 newsgroups (ten classes against
ten), by online gradient descent with a rate for each feature; losses are progressive: of each row before
it is learnt. The rate is the best power of 2 for float32 on the first tenth of the rows. ``rounding``
rounds the weights of three passes over a9a. ``huge`` learns rows of 100 random features each, saves the
table at intervals, kills itself, resumes, and compares the table with that of an uninterrupted run.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy.sparse import csr_array, load_npz

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.features.rows import RowChunk
from fcl.model.compact import margin_bound, mean_rise, packed_weights, round_weights
from fcl.online import OnlineOptions
from fcl.online.ogd import Ogd
from fcl.online.table import morris
from tools.bench import common
from tools.bench.online.picture import draw

Rows = tuple[RowChunk, np.ndarray]
#: Bits behind the point that are tried.
BITS = (3, 5, 6, 7, 8, 9, 11, 13)


# -- data ----------------------------------------------------------------------------------------


def a9a(path: Path, p: int = 123) -> Rows:
    """Products of one, two and three of the binary columns; numbered by their columns."""
    with gzip.open(path, "rt") as file:
        lines = [line.split() for line in file]
    y = np.array([float(line[0]) for line in lines])
    ids, counts = [], []
    for line in lines:
        own = np.array([int(cell.split(":")[0]) - 1 for cell in line[1:]])
        two, three = (np.array(list(combinations(own, k))).T for k in (2, 3))
        pairs = two[1] * (two[1] - 1) // 2 + two[0]
        triples = three[2] * (three[2] - 1) * (three[2] - 2) // 6
        triples += three[1] * (three[1] - 1) // 2 + three[0]
        ids.append(np.concatenate([own, p + pairs, p + p * (p - 1) // 2 + triples]))
        counts.append(len(ids[-1]))
    every = np.concatenate(ids).astype(np.int32)
    return _chunk(np.cumsum([0, *counts]), every, np.ones(len(every), np.float32)), y


def newsgroups(folder: Path) -> Rows:
    """Logarithms of word counts, of unit length; the first ten classes against the others."""
    counts = csr_array(load_npz(folder / "20news_counts.npz"))
    train = np.flatnonzero(~np.load(folder / "20news_is_test.npy").astype(bool))
    order = np.random.default_rng(0).permutation(train)
    x = csr_array(counts[order], dtype=np.float64)
    x.data = np.log1p(x.data)
    norms = np.sqrt(np.add.reduceat(np.append(x.data**2, 0.0), x.indptr[:-1]))
    x.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(x.indptr))
    y = np.where(np.load(folder / "20news_y.npy")[order] < 10, 1.0, -1.0)
    return _chunk(x.indptr, x.indices.astype(np.int32), x.data.astype(np.float32)), y


def _chunk(indptr: np.ndarray, ids: np.ndarray, values: np.ndarray) -> RowChunk:
    return RowChunk(np.asarray(indptr, np.int64), ids, values)


def first_rows(chunk: RowChunk, n: int) -> RowChunk:
    """The first n rows."""
    return RowChunk(chunk.indptr[: n + 1], chunk.ids, chunk.values)


# -- loss against bits ---------------------------------------------------------------------------


def learner(p: int, weights: str, rate: float, seed: int = 0, m: int | None = None) -> Ogd:
    """A learner; m : bits behind the point in place of those of the grid."""
    made = Ogd(p, OnlineOptions(0.0, rate=rate, weights=weights, seed=seed))
    if m is not None:
        made.grid = SimpleNamespace(step=2.0**-m)  # type: ignore[assignment]
    return made


def progressive(made: Ogd, rows: Rows, passes: int = 1) -> float:
    """Mean loss of each row before it is learnt."""
    chunk, y = rows
    n, total = len(chunk), 0.0
    for _ in range(passes):
        margins = np.zeros(n)
        done = made.learn(chunk, y[:n], np.ones(n), margins)
        assert done == n
        made.end_pass()
        total += float(np.logaddexp(0.0, -y[:n] * margins).mean())
    return total / passes


def best_rate(p: int, rows: Rows) -> float:
    """The best power of 2 for float32 on the first tenth of the rows."""
    chunk, y = rows
    some = first_rows(chunk, len(chunk) // 10), y
    rates = [2.0**k for k in range(-9, 9)]
    return min(rates, key=lambda rate: progressive(learner(p, "float32", rate), some))


def with_morris(made: Ogd) -> Ogd:
    """The learner with 8-bit counts."""
    made._up, made._events = morris()
    made.others = np.zeros(made.n_features, np.uint8)
    return made


def bits(args: argparse.Namespace) -> None:
    """Print and draw the loss against the bits of a weight and its count."""
    panels = {}
    for name, rows, p, grids in (
        ("a9a, products", a9a(args.data / "a9a.gz"), 310_247, ("q2.13", "q4.11", "q6.9")),
        (
            "20 newsgroups",
            newsgroups(args.data),
            83_021,
            ("q2.13", "q3.12", "q4.11", "q5.10", "q6.9"),
        ),
    ):
        chunk, _ = rows
        rate = best_rate(p, rows)
        full = progressive(learner(p, "float32", rate), rows)
        print(
            f"\n{name}: {len(chunk):,} rows, {p:,} columns, {len(np.unique(chunk.ids)):,} seen, "
            f"{len(chunk.ids) / len(chunk):.0f} a row; rate {rate:g}; float32 + uint32 (64 bits): "
            f"{full:.5f}\n"
        )
        counted = with_morris(learner(p, "float32", rate))
        lines = [_line("float32 + Morris", 40, [progressive(counted, rows)], 0, full)]
        for grid in grids:
            made = [learner(p, grid, rate, seed) for seed in range(args.seeds)]
            losses = [progressive(one, rows) for one in made]
            lines.append(_line(f"{grid} + Morris", 24, losses, made[0].clipped, full))
        across, up = [], []
        for m in BITS:
            made = [learner(p, "q2.13", rate, seed, m) for seed in range(args.seeds)]
            losses = [progressive(one, rows) for one in made]
            largest = float(np.abs(made[0].weights).max()) * 2.0**-m
            size = 1 + max(1, int(np.ceil(np.log2(largest + 2.0**-m)))) + m + 8
            lines.append(_line(f"m = {m} + Morris", size, losses, made[0].clipped, full))
            across.append(m)
            up.append(float(np.mean(losses)))
        panels[name] = {
            "randomised rounding, 8-bit counts": (across, up),
            "float32, 32-bit counts": (across, [full] * len(across)),
        }
        head = ["weights, counts", "bits", "loss, %", "over seeds", "clipped"]
        print(common.table(head, lines))
    draw("less-ram", panels, "bits behind the point", "progressive loss", logarithmic="")


def _line(
    text: str, size: int, found: list[float], clipped: int, full: float
) -> tuple[str, str, str, str, str]:
    extra = [100.0 * (loss / full - 1.0) for loss in found]
    spread = f"{min(extra):+.3f} to {max(extra):+.3f}" if len(extra) > 1 else ""
    return text, str(size), f"{np.mean(extra):+.3f}", spread, f"{clipped:,}"


# -- finished models -----------------------------------------------------------------------------


def rounding(args: argparse.Namespace) -> None:
    """Print loss and size of a rounded model on rows that it has not seen.

    The bound of the standard deviation is that of the first order, eps / 2 times the norm of the mean
    gradient of these rows: all rows share one rounding.
    """
    p = 310_247
    train, (chunk, y) = a9a(args.data / "a9a.gz"), a9a(args.data / "a9a.t.gz")
    made = learner(p, "float64", best_rate(p, train))
    progressive(made, train, passes=3)
    w, n = np.array(made.weights), len(y)
    x = csr_array((chunk.values, chunk.ids, chunk.indptr), shape=(n, p), dtype=np.float64)
    margins = x @ w + made.intercept
    full = float(np.logaddexp(0.0, -y * margins).mean())
    squares = np.add.reduceat(x.data**2, x.indptr[:-1])
    print(
        f"\n{np.count_nonzero(w):,} of {p:,} weights, |w| up to {np.abs(w).max():.3f}; {n:,} unseen "
        f"rows, mean |x|^2 {squares.mean():.0f}, loss {full:.5f}\n"
    )
    slopes = -y / (1.0 + np.exp(y * margins)) / n
    slope = float(np.linalg.norm(x.T @ slopes))
    lines = []
    for m in BITS:
        eps = 2.0**-m
        promise = float(mean_rise(eps, float(squares.mean()), 0.25) or 0.0)
        bound = margin_bound(eps, float(squares.max()), n)
        for how, seeds in (("random", range(args.seeds)), ("nearest", (0,))):
            rises, moves = [], []
            for seed in seeds:
                v = round_weights(w, np.arange(p), m, how, seed)
                moves.append(float(np.abs(x @ (v - w)).max()))
                loss = float(np.logaddexp(0.0, -y * (x @ v + made.intercept)).mean())
                rises.append(loss - full)
            shares = np.unique(v, return_counts=True)[1] / p
            ideal = abs(float((shares * np.log2(shares)).sum()))
            size = 8 * len(packed_weights(v, m, "zstd")) / p
            is_random = how == "random"
            rise = f"{np.mean(rises):+.1e}"
            cells = (
                f"q2.{m} {how}",
                f"{100 * np.mean(rises) / full:+.4f}",
                f"{rise} ({np.std(rises, ddof=1):.1e})" if is_random else rise,
                f"{promise:.1e} ({eps / 2 * slope:.1e})" if is_random else "",
                f"{max(moves):.4f} ({bound:.4f})" if is_random else f"{max(moves):.4f}",
                f"{ideal:.2f} / {size:.2f}",
            )
            lines.append(cells)
    head = ["weights", "loss, %", "rise (sd)", "bound of its mean (of its sd)"]
    head += ["largest move (bound)", "bits: ideal / stored"]
    print(common.table(head, lines))


# -- speed ---------------------------------------------------------------------------------------


def speed(args: argparse.Namespace) -> None:
    """Print nanoseconds of processor time for an update: margin, count, step and rounding."""
    random, lines = np.random.default_rng(0), []
    rows, width = 5_000, 100
    for p in (1 << 14, 1 << 22, args.largest):
        ids = random.integers(0, p, rows * width, dtype=np.int64)
        chunk = _chunk(
            np.arange(rows + 1) * width, ids.astype(np.int32), np.ones(len(ids), np.float32)
        )
        y = np.where(random.random(rows) < 0.5, 1.0, -1.0)
        for weights in ("float32", "q2.13"):
            one = np.ones(1)  # a row for which the kernel is compiled
            learner(p, weights, 0.1).learn(first_rows(chunk, 1), one, one, np.zeros(1))
            made, times = learner(p, weights, 0.1), []
            for _ in range(args.repeat + 1):
                before = time.process_time()
                made.learn(chunk, y, np.ones(rows), np.zeros(rows))
                times.append(1e9 * (time.process_time() - before) / len(ids))
            size = Ogd.bytes_for(p, made.options) / 1e6
            median = float(np.median(times[1:]))
            lines.append((f"{p:,}", weights, f"{size:,.0f}", f"{times[0]:.0f}", f"{median:.1f}"))
    print(common.table(["weights", "table", "MB", "ns, first touch", "ns, touched"], lines))


# -- 10^9 weights --------------------------------------------------------------------------------


def huge(args: argparse.Namespace) -> None:
    """Learn without interruption, and with a kill and a resumption; compare the tables."""
    common.MADE.mkdir(exist_ok=True)
    given = [sys.executable, __file__, "child", "--weights", str(args.weights)]
    given += ["--rows", str(args.rows), "--every", str(args.every)]
    found = []
    for name, kill in (("whole", 0), ("killed", args.rows // 2 + args.every // 2), ("killed", 0)):
        path = common.MADE / f"less-ram-{name}.zip"
        ran = subprocess.run(
            [*given, "--state", str(path), "--kill", str(kill)], stdout=subprocess.PIPE, check=False
        )
        if kill:
            assert ran.returncode == -signal.SIGKILL
            print(f"killed in row {kill:,}; checkpoint {path.stat().st_size / 1e6:,.0f} MB")
            continue
        report = json.loads(ran.stdout.splitlines()[-1])
        found.append(report["hash"])
        print(
            f"{name}: rows {report['first']:,} to {args.rows:,}, {report['rate']:,.0f} rows/s while "
            f"learning, peak memory {report['peak'] / 1e9:.2f} GB, table {report['table'] / 1e9:.2f} GB, "
            f"touched {report['touched']:,}, hash {report['hash'][:16]}"
        )
        path.unlink()
    print("same bits" if found[0] == found[1] else "THE TABLES DIFFER")


def rows_of(first: int, n: int, p: int, width: int = 100) -> tuple[RowChunk, np.ndarray]:
    """Rows of random features, by their numbers; labels follow the parity of the first feature."""
    ids = np.random.default_rng([7, first]).integers(0, p, (n, width))
    y = np.where(ids[:, 0] % 2, 1.0, -1.0)
    return _chunk(np.arange(n + 1) * width, ids.ravel(), np.ones(n * width, np.float32)), y


def child(args: argparse.Namespace) -> None:
    """Learn from the last checkpoint on; print the hash of the table as JSON."""
    import resource

    made = Ogd(args.weights, OnlineOptions(0.0, rate=0.1, weights="q2.13"))
    if args.state.exists():
        made.load(args.state)
    first, busy, block = made.rows, 0.0, 1000
    for at in range(first, args.rows, block):
        chunk, y = rows_of(at, block, args.weights)
        before = time.perf_counter()
        made.learn(chunk, y, np.ones(block), np.zeros(block))
        busy += time.perf_counter() - before
        if args.kill and made.rows >= args.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if made.rows % args.every == 0:
            made.save(args.state)
    digest = hashlib.sha256()
    for vector in (made.weights, made.others, made.state):
        digest.update(vector.view(np.uint8).data)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = {
        "hash": digest.hexdigest(),
        "rate": (args.rows - first) / busy,
        "peak": peak,
        "table": Ogd.bytes_for(args.weights, made.options),
        "touched": int(np.count_nonzero(made.others)),
        "first": first,
    }
    print(json.dumps(report))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=common.SHARED)
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("bits").add_argument("--seeds", type=int, default=5)
    commands.add_parser("rounding").add_argument("--seeds", type=int, default=10)
    fast = commands.add_parser("speed")
    fast.add_argument("--largest", type=int, default=1 << 28)
    fast.add_argument("--repeat", type=int, default=5)
    for name in ("huge", "child"):
        large = commands.add_parser(name)
        large.add_argument("--weights", type=int, default=10**9)
        large.add_argument("--rows", type=int, default=200_000)
        large.add_argument("--every", type=int, default=50_000, help="rows between checkpoints")
    large.add_argument("--state", type=Path)
    large.add_argument("--kill", type=int, default=0, help="row in which to kill this process")
    args = parser.parse_args()
    if args.what != "child":
        print(common.machine(), flush=True)
    {"bits": bits, "rounding": rounding, "speed": speed, "huge": huge, "child": child}[args.what](
        args
    )


if __name__ == "__main__":
    main()
