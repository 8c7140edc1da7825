#!/usr/bin/env python3
"""Products of columns: train on a9a, and count the products that each pass visits.

python tools/bench/products.py
python tools/bench/products.py --degree 4 --C 0.02 --form dense
"""

from __future__ import annotations

import argparse
import gzip
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

FORMS = ("sparse", "dense", "bool")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        type=Path,
        default=common.SHARED / "a9a.gz",
        help="binary columns in LIBSVM's text format, .gz (default: a9a.gz of the shared data)",
    )
    parser.add_argument("--degree", type=int, default=3, help="most factors (default 3)")
    parser.add_argument("--C", type=float, default=0.1, help="weight of the losses (default 0.1)")
    parser.add_argument("--tol", type=float, default=1e-3, help="relative gap (default 1e-3)")
    parser.add_argument("--memory", default="2GiB", help="budget (default 2GiB)")
    parser.add_argument("--form", choices=FORMS, default="sparse", help="form of the rows")
    parser.add_argument("--max-time", type=float, help="seconds after which to stop")
    parser.add_argument("--repeat", type=int, default=3, help="runs (default 3)")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    if not args.data.exists():
        sys.exit(f"{args.data} does not exist; name a gzipped file in LIBSVM's format with --data")
    common.pin(args.core)
    X, y = read_libsvm(args.data)
    train_once(args, X[:2000], y[:2000])  # compiles or loads the kernels
    runs = []
    for n in range(args.repeat):
        runs.append(train_once(args, X, y))
        print(f"run {n + 1}: {runs[-1]['seconds']:.2f} s", file=sys.stderr)
    report(args, X, runs)


def read_libsvm(path: Path) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int8]]:
    """Read binary columns (n, m) and labels (n,) from a gzipped file, whose columns count from 1."""
    labels, rows, columns = [], [], []
    with gzip.open(path, "rt") as lines:
        for i, line in enumerate(lines):
            label, *entries = line.split()
            labels.append(int(label))
            rows += [i] * len(entries)
            columns += [int(entry.partition(":")[0]) - 1 for entry in entries]
    X = np.zeros((len(labels), max(columns) + 1), np.bool_)
    X[rows, columns] = True
    return X, np.array(labels, np.int8)


def in_form(X: npt.NDArray[np.bool_], form: str) -> Any:
    """The matrix as booleans, float32, or sparse float32."""
    if form == "bool":
        return X
    dense = X.astype(np.float32)
    if form == "dense":
        return dense
    from scipy.sparse import csr_matrix

    return csr_matrix(dense)


def train_once(
    args: argparse.Namespace, X: npt.NDArray[np.bool_], y: npt.NDArray[np.int8]
) -> dict[str, Any]:
    """Train, and return the figures of the run and of each pass."""
    from fcl import open_data
    from fcl.drivers.train import train
    from fcl.features import Products
    from fcl.features.prices import PriceQuery, Scan
    from fcl.features.products.pricing import ProductPricer

    passes: list[tuple[float, float, int]] = []

    class Watched(ProductPricer):
        def scan(self, query: PriceQuery, step: float) -> Scan:
            start = time.perf_counter()
            prices = yield from super().scan(query, step)
            if query.find:
                seconds = time.perf_counter() - start
                passes.append((seconds, prices.largest, prices.n_visited))
            return prices

    from fcl.features.products import pricing

    data = open_data(in_form(X, args.form), y=y)
    start = time.perf_counter()
    with common.constants(pricing, ProductPricer=Watched), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a run stopped by --max-time says so below
        result = train(
            data,
            Products(degree=args.degree, binary=True),
            C=args.C,
            tol=args.tol,
            memory=args.memory,
            max_time=args.max_time,
        )
    return {
        "seconds": time.perf_counter() - start,
        "passes": passes,
        "certificate": result.certificate,
        "active": len(result.model.ids),
        "split": result.seconds,
        "peak": result.peak_memory,
        "message": result.message,
    }


def report(args: argparse.Namespace, X: npt.NDArray[np.bool_], runs: list[dict[str, Any]]) -> None:
    """Print medians, and the passes of the last run."""
    last = runs[-1]
    certificate = last["certificate"]
    total = certificate.n_priced
    print(common.machine())
    print(
        f"\n{X.shape[0]:,} rows of {X.shape[1]} binary columns ({args.form}), degree {args.degree} "
        f"({total:,} products), C = {args.C:g}, tolerance {args.tol:g}, one core; {len(runs)} runs: "
        "median (lowest-highest)\n"
    )
    shares = [visited / total for _, _, visited in last["passes"]]
    rows: list[tuple[str, str]] = [("time, s", common.spread([r["seconds"] for r in runs]))]
    for step in last["split"]:
        rows.append((f"of it {step}, s", common.spread([r["split"][step] for r in runs])))
    rows += [
        ("passes", str(len(shares) - 1)),
        ("objective", f"{certificate.objective:.5f}"),
        ("bound", f"{certificate.bound:.5f}"),
        ("relative gap", f"{certificate.gap:.2e}"),
        ("active features", f"{last['active']:,}"),
        ("peak memory, MiB", common.spread([r["peak"] / 2**20 for r in runs])),
        ("ended", last["message"]),
    ]
    print(common.table(("what", "figure"), rows))
    print()
    lines = [
        (n, f"{seconds:.3f}", f"{args.C * largest:.4f}", f"{visited:,}", f"{share:.2%}")
        for n, ((seconds, largest, visited), share) in enumerate(
            zip(last["passes"], shares, strict=True)
        )
    ]
    header = ("pass", "pricing, s", "C max abs(g)", "products visited", "of all")
    print(common.table(header, lines))


if __name__ == "__main__":
    main()
