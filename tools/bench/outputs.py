#!/usr/bin/env python3
"""The cost of several outputs: a pass over the data, and a whole run, against one output.

    python tools/bench/outputs.py price [--families fourier dense sparse kmers] [--K 1 2 5 10 20]
    python tools/bench/outputs.py train [--classes 2 5 20] [--tol 1e-2]

``price`` prices K random residual vectors together, on one core; the last columns are ratios to K = 1 and
to K single passes. ``train`` fits softmax models of K classes to the same rows, up to a certified gap.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import random as random_sparse
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

#: Rows of the priced data.
N = 1 << 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    one = commands.add_parser("price", help="cost of a pass")
    one.add_argument("--families", nargs="+", choices=list(DATA), default=list(DATA))
    one.add_argument("--K", type=int, nargs="+", default=[1, 2, 5, 10, 20])
    one.add_argument("--repeat", type=int, default=5, help="runs (default 5)")
    one.add_argument("--core", type=int, help="number of the core (default: the last)")
    whole = commands.add_parser("train", help="cost of a run")
    whole.add_argument("--classes", type=int, nargs="+", default=[2, 5, 20])
    whole.add_argument("--C", type=float, default=0.1)
    whole.add_argument("--tol", type=float, default=1e-2, help="relative gap (default 1e-2)")
    whole.add_argument("--rows", type=int, default=10_000, help="rows (default 10,000)")
    whole.add_argument("--features", default="fourier:n=5000", help="default fourier:n=5000")
    whole.add_argument("--repeat", type=int, default=3, help="runs (default 3)")
    args = parser.parse_args()
    print(common.machine(), flush=True)
    if args.what == "train":
        train(args)
    else:
        common.pin(args.core)
        with threadpool_limits(1):
            price(args)


# -- a pass ----------------------------------------------------------------------------------------


def _dense() -> Any:
    return np.random.default_rng(0).normal(size=(N, 784))


def _sparse() -> Any:
    return random_sparse(N, 80_000, 1e-3, "csr", random_state=0)


def _windows() -> Any:
    return np.random.default_rng(0).integers(0, 4, (N, 60)).astype(np.uint8)


def _inputs() -> Any:
    return np.random.default_rng(0).normal(size=(N, 50))


#: name -> family, and a function that makes the rows
DATA = {
    "fourier": ("fourier:n=4096", _inputs),
    "dense": ("columns", _dense),
    "sparse": ("columns", _sparse),
    "kmers": ("kmers:d=7", _windows),
}


def price(args: argparse.Namespace) -> None:
    """Print the seconds of a pass for each family and number of outputs."""
    print(f"\n{N:,} rows; median (lowest-highest) of {args.repeat} runs\n")
    lines: list[list[object]] = []
    for name in args.families:
        pass_of, first = _pass(name), 0.0
        for K in args.K:
            times = [pass_of(K) for _ in range(args.repeat + 1)][1:]  # the first one may compile
            middle = statistics.median(times)
            first = first or middle / min(args.K)
            seconds = f"{middle:.3f} ({min(times):.3f}-{max(times):.3f})"
            lines.append([name, K, seconds, f"{middle / first:.2f}", f"{middle / first / K:.2f}"])
    print(common.table(["family", "K", "seconds", "of K = 1", "of K passes"], lines))


def _pass(name: str) -> Any:
    """A function that prices K outputs, and returns the seconds that this took."""
    from fcl import open_data
    from fcl.data.prepared import PreparedRows
    from fcl.features import bind_features, parse_features
    from fcl.features.generator.trial import take
    from fcl.features.outputs import run_several
    from fcl.features.prices import PriceQuery, RowVector

    text, rows_of = DATA[name]
    data = open_data(rows_of(), y=np.zeros(N))
    family: Any = bind_features(parse_features(text), data.rows)
    size = 4096
    prepared = PreparedRows(N, size, family.record_shape(size))
    _, _, raw = next(iter(family.read_rows(data.rows, N)))
    for number, rows in prepared.blocks():
        block = take(raw, np.arange(rows.start, rows.stop))
        prepared.commit(number, family.prepare(block, prepared.writable(number), size))
    pricer = family.pricer(prepared, 1000)

    def seconds(K: int) -> float:
        values = np.random.default_rng(1).normal(size=(K, N))
        step = RowVector.on_grid(values[0], N * 5.0, family.integer_bound).step
        rows = [RowVector(own, step, np.empty(N, np.int64) if step else None) for own in values]
        query = PriceQuery(range(pricer.n_parts), threshold=6.0 * np.sqrt(N))
        since = time.perf_counter()
        run_several(
            pricer, query, rows, range(prepared.n_blocks), 1000, family.penalty_factors, False
        )
        return time.perf_counter() - since

    return seconds


# -- a run -----------------------------------------------------------------------------------------


def train(args: argparse.Namespace) -> None:
    """Print the seconds of whole runs on rows whose classes are those of a linear model with noise."""
    import fcl

    rng = np.random.default_rng(0)
    x = rng.normal(size=(args.rows, 20))
    scores = np.tanh(x @ rng.normal(size=(20, 40)))
    print(f"\n{args.rows:,} rows, {args.features}, C = {args.C:g}, gap {args.tol:g}\n")
    lines, first = [], 0.0
    for K in args.classes:
        noisy = scores @ rng.normal(size=(40, K)) + 2.0 * rng.gumbel(size=(args.rows, K))
        data = fcl.open_data(x, y=noisy.argmax(axis=1))
        times, result = [], None
        for _ in range(args.repeat + 1):
            since = time.perf_counter()
            result = fcl.train(
                data, args.features, C=args.C, loss="softmax" if K > 2 else "logistic", tol=args.tol
            )
            times.append(time.perf_counter() - since)
        assert result is not None
        middle = statistics.median(times[1:])  # the first run may compile
        first = first or middle
        row = [str(K), f"{middle:.2f} ({min(times[1:]):.2f}-{max(times[1:]):.2f})"]
        lines.append([*row, f"{middle / first:.2f}", f"{result.certificate.gap:.1e}"])
    print(common.table(["classes", "seconds", f"of {args.classes[0]}", "gap"], lines))


if __name__ == "__main__":
    main()
