#!/usr/bin/env python3
"""A wide sparse table out of core: fcl from a file within a budget, and liblinear in memory.

    python tools/bench/wide.py [--rows 847000] [--columns 359000] [--C 0.02] [--memory 4GiB]
    python tools/bench/wide.py --methods liblinear --patience 600
    python tools/bench/wide.py --rows 8000000 --columns 500000 --values f4 --C 0.005 \\
        --memory 8GiB --max-time 1h --methods fcl

Each row has a thousandth of the columns, at uniformly random places, with normal values; the labels
follow a planted model of 1,000 columns. The table is written once, in parts, as a CSR matrix in Zarr
(uncompressed, 12 bytes an entry, 8 with ``--values f4``). fcl runs as a command, and its seconds are
from the start of the command, with reading. Its peak is of the private anonymous memory of all
processes and of every shared segment once, as ``memory.py`` reads them from /proc five times a second:
pages of the scratch file are not in it, but only a block of each process is ever mapped. liblinear gets
the matrix in memory, and its seconds are of its solver alone; it is killed after ``--patience``
seconds. Its peak is its resident set. Its objective is recomputed here. Needs Linux and the extra
``peers``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common, jobs, memory

PART_ROWS = 1 << 15
PLANTED, SIZE = 1_000, 4.0


def make(rows: int, columns: int, values: str) -> Path:
    """Write the table and its labels once, part by part."""
    import zarr

    folder = common.MADE / f"wide-{rows}-{columns}-{values}"
    if (folder / "complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    weights = np.zeros(columns)
    weights[random.choice(columns, PLANTED, replace=False)] = random.normal(0.0, SIZE, PLANTED)
    each = columns // 1_000
    group = zarr.open_group(folder / "table.zarr", mode="w")
    matrix = group.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
    matrix.attrs["shape"] = [rows, columns]
    size, chunk = (rows * each,), (PART_ROWS * each // 16,)
    indices = matrix.create_array("indices", shape=size, chunks=chunk, dtype="i4", compressors=None)
    data = matrix.create_array("data", shape=size, chunks=chunk, dtype=values, compressors=None)
    matrix.create_array("indptr", data=each * np.arange(rows + 1, dtype=np.int64))
    y = np.empty(rows)
    for first in range(0, rows, PART_ROWS):
        n = min(PART_ROWS, rows - first)
        # one column of each stratum of a thousand, so that no row has a column twice
        places = random.integers(0, 1_000, (n, each), dtype=np.int32)
        places += 1_000 * np.arange(each, dtype=np.int32)
        normal = random.normal(size=(n, each))
        margins = (normal * weights[places]).sum(axis=1)
        y[first : first + n] = np.where(random.random(n) < 1.0 / (1.0 + np.exp(-margins)), 1, -1)
        own = slice(first * each, (first + n) * each)
        indices[own], data[own] = places.ravel(), normal.ravel()
    group.create_array("y", data=y)
    (folder / "complete").touch()
    return folder


def load(folder: Path) -> tuple[Any, npt.NDArray[np.float64]]:
    """The matrix in memory, CSR float64, and the labels."""
    import zarr
    from scipy import sparse

    group: Any = zarr.open_group(folder / "table.zarr", mode="r")
    parts = [group["X"][name][:] for name in ("data", "indices", "indptr")]
    return sparse.csr_matrix(tuple(parts), group["X"].attrs["shape"]), group["y"][:]


def objective(X: Any, y: Any, C: float, w: Any, b: float) -> float:
    """||w||_1 + C sum log(1 + exp(-y m))."""
    return float(np.abs(w).sum() + C * np.logaddexp(0.0, -y * (X @ w + b)).sum())


def liblinear(folder: Path, C: float, tol: float) -> None:
    """LIBLINEAR -s 6 -B 1 -R in this process; prints its figures."""
    from liblinear.liblinearutil import parameter, problem, train

    X, y = load(folder)
    made = problem(y, X)
    begun = time.perf_counter()
    w, b = train(made, parameter(f"-s 6 -c {C} -e {tol} -B 1 -R -q")).get_decfun()
    took = time.perf_counter() - begun
    w = np.array(w)
    figures = {"tol": tol, "seconds": took, "objective": objective(X, y, C, w, b)}
    figures["active"] = int(np.count_nonzero(w))
    figures["peak_MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print("liblinear", json.dumps(figures), flush=True)


def main() -> None:
    """Make the table, run the methods in turn, print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=847_000)
    parser.add_argument("--columns", type=int, default=359_000)
    parser.add_argument("--values", choices=("f4", "f8"), default="f8", help="type of the values")
    parser.add_argument("--C", type=float, default=0.02)
    parser.add_argument("--tol", default="1e-3")
    parser.add_argument("--memory", default="4GiB")
    parser.add_argument("--max-time", default="15m", help="time limit of fcl (default 15m)")
    parser.add_argument("--methods", default="fcl,liblinear")
    parser.add_argument("--driver", default="processes", help="of fcl")
    parser.add_argument("--tolerances", default="0.01", help="of liblinear")
    parser.add_argument(
        "--patience", type=float, default=600.0, help="seconds of each liblinear run"
    )
    args = parser.parse_args()
    args.nice, args.work = 0, common.MADE / "memory"
    args.work.mkdir(parents=True, exist_ok=True)
    print(common.machine())
    folder = make(args.rows, args.columns, args.values)
    if "fcl" in args.methods.split(","):
        jobs.warm()
        options = [str(folder / "table.zarr"), "--x", "X", "--y", "y", "--features", "columns"]
        options += ["--tol", args.tol, "--driver", args.driver]
        run = memory.run(args, "wide", args.memory, options)
        shown = ("elapsed", "read", "passes", "gap", "active", "reason", "problems")
        figures = {name: run[name] for name in shown} | {"objective": run["objectives"][-1]}
        figures |= {f"{name}_MiB": run[name] >> 20 for name in ("peak", "own_peak")}
        print("fcl", json.dumps(figures), flush=True)
    if "liblinear" in args.methods.split(","):
        for tol in map(float, args.tolerances.split(",")):
            process = multiprocessing.Process(target=liblinear, args=(folder, args.C, tol))
            process.start()
            process.join(args.patience)
            if process.is_alive():
                process.kill()
                print(f"liblinear: tolerance {tol:g} killed after {args.patience:g} s", flush=True)
            process.join()


if __name__ == "__main__":
    main()
