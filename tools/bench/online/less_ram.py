#!/usr/bin/env python3
"""Online learning in 24 bits a weight, and compact models: loss against bits, speed, 10^9 weights.

    python tools/bench/online/less_ram.py bits            # loss against bits, a picture
    python tools/bench/online/less_ram.py rounding        # finished models: loss, bits a value
    python tools/bench/online/less_ram.py speed
    python tools/bench/online/less_ram.py huge --weights 1000000000   # 3 GB; killed and resumed

``bits`` learns a9a with all products of up to three columns, and 20 newsgroups (ten classes against
ten), by online gradient descent with a rate for each feature, or one for all; scores are progressive: of
each row before it is learnt. The rates are the best powers of 2 for float32 on the first tenth of the
rows. ``rounding``
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
from typing import Any, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array, load_npz

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.features.rows import RowChunk
from fcl.model.compact import margin_bound, mean_rise, packed_weights, round_weights
from fcl.online import Learner, OnlineOptions, make_learner
from fcl.online.methods import kind_of
from fcl.online.ogd import Ogd
from fcl.online.table import morris
from tools.bench import common
from tools.bench.online.picture import draw

Rows = tuple[RowChunk, np.ndarray]
Points = tuple[list[float], list[float]]
#: Bits behind the point that are tried, of finished models and of fixed grids.
BITS = (3, 5, 6, 7, 8, 9, 11, 13)
#: Steps of adaptive grids, relative to the rates and to the root mean square of the features, and bits
#: behind the point of the finest of them.
GAMMAS, FINEST = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0), 22


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


class Scores(NamedTuple):
    """Progressive validation: each row is predicted before it is learnt."""

    loss: float  #: mean logistic loss
    error: float  #: share of wrong labels
    auc_loss: float  #: 1 - area under the ROC curve


def learner(p: int, rate: float, method: str = "ogd", **options: Any) -> Learner:
    """A learner without penalty, unless the options have one."""
    return make_learner(method, p, OnlineOptions(**{"alpha": 0.0, "rate": rate, **options}))


def progressive(made: Learner, rows: Rows, passes: int = 1) -> Scores:
    """The scores of the last pass."""
    from sklearn.metrics import roc_auc_score

    chunk, y = rows
    n, margins = len(chunk), np.zeros(len(chunk))
    for _ in range(passes):
        margins = np.zeros(n)
        assert made.learn(chunk, y[:n], np.ones(n), margins) == n
        made.end_pass()
    loss = float(np.logaddexp(0.0, -y[:n] * margins).mean())
    error = float(np.mean((margins > 0.0) != (y[:n] > 0.0)))
    return Scores(loss, error, 1.0 - float(roc_auc_score(y[:n], margins)))


def best_rate(p: int, rows: Rows, **options: Any) -> float:
    """The best power of 2 for float32 on the first tenth of the rows."""
    chunk, y = rows
    some = first_rows(chunk, len(chunk) // 10), y
    rates = [2.0**k for k in range(-11, 9)]

    def loss(rate: float) -> float:
        return progressive(learner(p, rate, weights="float32", **options), some).loss

    return min(rates, key=loss)


def with_morris(made: Ogd) -> Ogd:
    """The learner with 8-bit counts."""
    made._up, made._events = morris()
    made.others = np.zeros(made.n_features, np.uint8)
    return made


def _mean(found: list[Scores]) -> Scores:
    return Scores(*np.mean(found, axis=0))


def _line(text: str, bits: float, found: list[Scores], full: Scores, clipped: int = 0) -> list[str]:
    mean = _mean(found)
    shares = [f"{100.0 * (own / of - 1.0):+.3f}" for own, of in zip(mean, full, strict=True)]
    extra = [100.0 * (one.loss / full.loss - 1.0) for one in found]
    spread = f"{min(extra):+.2f} to {max(extra):+.2f}" if len(extra) > 1 else ""
    return [text, f"{bits:.3g}", shares[0], spread, *shares[1:], f"{clipped:,}"]


def bits(args: argparse.Namespace) -> None:
    """Print loss, error rate and AucLoss against the bits of a weight and its count; draw the loss."""
    panels = {}
    for name, rows, p, n in (
        ("a9a, products", a9a(args.data / "a9a.gz"), 310_247, 2),
        ("20 newsgroups", newsgroups(args.data), 83_021, 4),
    ):
        panels[name] = _bits(name, rows, p, n, args.seeds)
    draw("less-ram", panels, "bits of a weight and its count", "progressive loss", logarithmic="")


def _bits(name: str, rows: Rows, p: int, n: int, seeds: int) -> dict[str, Points]:
    """Print the table of some rows, whose weights need n bits before the point; returns the curves."""
    chunk, _ = rows
    rate, single = best_rate(p, rows), best_rate(p, rows, rates="global")
    full = progressive(learner(p, rate, weights="float32"), rows)
    print(
        f"\n{name}: {len(chunk):,} rows, {p:,} columns, {len(np.unique(chunk.ids)):,} seen, "
        f"{len(chunk.ids) / len(chunk):.0f} a row; rate {rate:g}, one rate {single:g}; float32 and "
        f"uint32 counts: loss {full.loss:.5f}, error rate {full.error:.5f}, AucLoss {full.auc_loss:.5f}\n"
    )

    def runs(count: int = seeds, **options: Any) -> tuple[list[Scores], Learner]:
        own = {"rate": rate, **options}
        made = [learner(p, seed=seed, **own) for seed in range(count)]
        return [progressive(one, rows) for one in made], made[0]

    lines, grid = [], f"q{n}.{15 - n}"
    control, _ = runs(1, weights="float32", rate=single, rates="global")
    lines.append(_line("float32, one rate", 32, control, full))
    found, made = runs(weights=grid, rate=single, rates="global")
    lines.append(_line(f"{grid}, one rate", 16, found, full, made.clipped))
    lines.append(_line("float32 + uint32", 64, [full], full))
    counted = with_morris(cast("Ogd", learner(p, rate, weights="float32")))
    lines.append(_line("float32 + Morris", 40, [progressive(counted, rows)], full))
    curves: dict[str, Points] = {}
    for m in (*BITS, 15 - n) if 15 - n not in BITS else BITS:
        found, made = runs(weights=f"q{n}.{m}")
        lines.append(_line(f"q{n}.{m} + Morris", 9 + n + m, found, full, made.clipped))
        _add(curves, "fixed grid, 8-bit counts", 9 + n + m, found)
    size = float(np.sqrt(np.mean(np.square(chunk.values, dtype=np.float64))))
    for share in GAMMAS:
        gamma = share * size
        found, made = runs(weights=f"q{n}.{FINEST}", gamma=gamma)
        width = 8.0 + cast("Ogd", made).mean_bits
        text = f"gamma {gamma:.2g} + Morris"
        lines.append(_line(text, width, found, full, made.clipped))
        _add(curves, "adaptive grid, 8-bit counts", width, found)
    head = [
        "weights, counts",
        "bits",
        "loss, %",
        "over seeds",
        "error rate, %",
        "AucLoss, %",
        "clipped",
    ]
    print(common.table(head, lines))
    lines = []
    for method, alpha, power in (("ftrl", 1e-6, 0.5), ("truncated-gradient", 1e-7, 0.5)):
        own: dict[str, Any] = {"method": method, "alpha": alpha}
        if method != "ftrl":
            own |= {"power": power, "step": "explicit"}
        own["rate"] = best_rate(p, rows, **own)
        whole, made = runs(1, weights="float32", **own)
        width = 8 * kind_of(method, made.options).bytes_for(1, made.options)
        lines.append([*_line(f"{method}, float32", width, whole, whole[0])[:4], _active(made)])
        for weights in (grid, f"q{n}.{11 - n}", f"q{n}.{7 - n}"):
            found, made = runs(weights=weights, **own)
            width = 8 * kind_of(method, made.options).bytes_for(1, made.options)
            cells = _line(f"{method}, {weights}", width, found, whole[0])[:4]
            lines.append([*cells, _active(made)])
    print(common.table(["method, weights", "bits", "loss, %", "over seeds", "features"], lines))
    for label, loss in (
        ("float32, 32-bit counts", full.loss),
        ("float32, one rate", control[0].loss),
    ):
        curves[label] = ([14.0, 33.0], [loss] * 2)
    return curves


def _add(curves: dict[str, Points], label: str, size: float, found: list[Scores]) -> None:
    across, up = curves.setdefault(label, ([], []))
    across.append(size)
    up.append(_mean(found).loss)


def _active(made: Learner) -> str:
    return f"{len(made.point()[0]):,}"


# -- finished models -----------------------------------------------------------------------------


def rounding(args: argparse.Namespace) -> None:
    """Print loss and size of a rounded model on rows that it has not seen.

    The bound of the standard deviation is that of the first order, eps / 2 times the norm of the mean
    gradient of these rows: all rows share one rounding.
    """
    from sklearn.metrics import roc_auc_score

    p = 310_247
    train, (chunk, y) = a9a(args.data / "a9a.gz"), a9a(args.data / "a9a.t.gz")
    made = learner(p, best_rate(p, train))
    progressive(made, train, passes=3)
    w, n = made.arrays()[0].copy(), len(y)
    x = csr_array((chunk.values, chunk.ids, chunk.indptr), shape=(n, p), dtype=np.float64)
    margins = x @ w + made.intercept
    full = float(np.logaddexp(0.0, -y * margins).mean())
    whole = 1.0 - float(roc_auc_score(y, margins))
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
            rises, moves, areas = [], [], []
            for seed in seeds:
                v = round_weights(w, np.arange(p), m, how, seed)
                moves.append(float(np.abs(x @ (v - w)).max()))
                loss = float(np.logaddexp(0.0, -y * (x @ v + made.intercept)).mean())
                rises.append(loss - full)
                areas.append(1.0 - float(roc_auc_score(y, x @ v)))
            shares = np.unique(v, return_counts=True)[1] / p
            ideal = abs(float((shares * np.log2(shares)).sum()))
            size = 8 * len(packed_weights(v, m, "zstd")) / p
            is_random = how == "random"
            rise = f"{np.mean(rises):+.1e}"
            cells = (
                f"q2.{m} {how}",
                f"{100 * np.mean(rises) / full:+.4f}",
                f"{100 * (np.mean(areas) / whole - 1.0):+.4f}",
                f"{rise} ({np.std(rises, ddof=1):.1e})" if is_random else rise,
                f"{promise:.1e} ({eps / 2 * slope:.1e})" if is_random else "",
                f"{max(moves):.4f} ({bound:.4f})" if is_random else f"{max(moves):.4f}",
                f"{ideal:.2f} / {size:.2f}",
            )
            lines.append(cells)
    head = ["weights", "loss, %", "AucLoss, %", "rise (sd)", "bound of its mean (of its sd)"]
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
            small = learner(p, 0.1, weights=weights)
            small.learn(first_rows(chunk, 1), one, one, np.zeros(1))
            made, times = learner(p, 0.1, weights=weights), []
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
