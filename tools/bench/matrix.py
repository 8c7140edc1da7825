#!/usr/bin/env python3
"""Compare fcl with liblinear and celer over a grid of data, C, losses, drivers and row views.

    python tools/bench/matrix.py                          one class of each data set, logistic, inline
    python tools/bench/matrix.py --data 20news --classes all --C 1 10
    python tools/bench/matrix.py --all [--jobs 2]         everything: hours

Every fit must converge to ``--tol`` within ``--limit`` seconds, and its objective may be at most a factor
of 1 + 1e-3 above that of the other solver: liblinear ``-s 6`` and ``-s 5`` with ``-B 1 -R`` for logistic
loss and squared hinge, celer's Lasso for the squared loss. Objectives are recomputed here from the
weights on the explicit matrix in float64, which also verifies the objective, bound and gap that fcl
reports. The objectives of the other solvers are kept in the temporary folder, so a second run only takes
fcl's time.

Faults: ``above`` (the objective, by more than 1e-3), ``unfinished``, ``stalled``, ``raised``, and, if
the report is false, ``objective``, ``bound`` or ``gap``. The exit code is 1 if there was a fault. Needs
the extra ``peers``: pip install -e '.[peers]'
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import multiprocessing
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common
from tools.bench.cases import NEWS, all_kmers

Floats = npt.NDArray[np.float64]

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
LOSSES = ("logistic", "squared_hinge", "squared")
DRIVERS = ("inline", "processes")
#: Share of the rows in a sampled row view.
SAMPLED = 0.25
#: How far an objective may exceed that of another solver (relative).
WORSE = 1e-3
#: How much rounding may change a sum over all rows (relative).
ROUNDING = 1e-9
#: Letters of a k-mer.
D = 3
#: Tolerances of the other solvers; the next one is tried if a run takes more than PATIENCE seconds.
PEER_TOLERANCES = (1e-5, 1e-3, 1e-2)
PATIENCE = 120.0


# -- data --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A data set with its classes."""

    rows: Any  #: the input of fcl
    X: Any  #: all features, CSR or dense float64
    label: npt.NDArray[np.int64]
    features: str = "columns"

    def target(self, number: int) -> Floats:
        """+1 for rows of a class, -1 for all others."""
        return np.where(self.label == number, 1.0, -1.0)


def a9a(every: int) -> Table:
    """Census income: 123 binary columns."""
    from sklearn.datasets import load_svmlight_file

    with gzip.open(source("a9a.gz")) as file:
        X, y = load_svmlight_file(file, n_features=123)
    X, y = X[::every], y[::every]
    return Table(X, X, np.where(y > 0.0, 0, 1))


def newsgroups(every: int) -> Table:
    """20 newsgroups: counts of 83,021 words, training rows only."""
    from scipy import sparse

    held = np.load(source("20news_is_test.npy")).astype(bool)
    X = sparse.load_npz(source("20news_counts.npz")).tocsr()[~held][::every]
    return Table(X, X.astype(np.float64), np.load(source("20news_y.npy"))[~held][::every])


def magic(every: int) -> Table:
    """MAGIC gamma telescope: 10 raw columns with scales from 0.02 to 300."""
    with gzip.open(source("magic04.data.gz"), "rt") as file:
        lines = [line.strip().split(",") for line in file if line.strip()][::every]
    X = np.array([line[:-1] for line in lines], np.float64)
    return Table(X, X, np.array([0 if line[-1] == "g" else 1 for line in lines]))


def mnist(every: int) -> Table:
    """MNIST: pixels of digits, 0 to 255."""
    with np.load(source("mnist.npz")) as stored:
        X, y = stored["train_x"][::every], stored["train_y"][::every]
    return Table(X, X.astype(np.float64), y.astype(np.int64))


def splice(every: int) -> Table:
    """UCI splice: positional k-mers of the windows without unknown letters."""
    import csv

    with source("uci_splice.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))[::every]
    codes = np.array([["ACGT".find(c) for c in line["sequence"].strip()] for line in lines])
    known = (codes >= 0).all(axis=1)
    label = np.array([["EI", "IE", "N"].index(line["label"].strip()) for line in lines])
    codes = codes[known].astype(np.uint8)
    return Table(codes, all_kmers(codes, D), label[known], f"kmers:d={D}")


class Source(NamedTuple):
    """The origin of a data set, and the part that is used by default."""

    read: Callable[[int], Table]
    files: Sequence[str]
    n_classes: int  #: 1 if there are two: one problem is then enough
    default_class: int = 0
    every: int = 1


DATA = {
    "a9a": Source(a9a, ["a9a.gz"], 1),
    "20news": Source(newsgroups, [f"20news_{name}" for name in NEWS], 20, default_class=15),
    "magic": Source(magic, ["magic04.data.gz"], 1),
    "mnist": Source(mnist, ["mnist.npz"], 10, every=10),
    "splice": Source(splice, ["uci_splice.csv"], 3),
}


def source(name: str) -> Path:
    """The path of a shared data file; exits if it is missing."""
    path = common.SHARED / name
    if not path.exists():
        sys.exit(f"expected {name} in shared/data beside the repository, but it is missing")
    return path


@cache
def read(data: str, every: int) -> Table:
    """Read a data set once."""
    return DATA[data].read(every)


# -- one fit -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One fit of the grid."""

    data: str
    every: int
    number: int  #: the positive class
    loss: str
    C: float
    driver: str = "inline"
    row_view: str = "all"  #: or "sampled"
    tol: float = 1e-3
    limit: float = 60.0

    @property
    def problem(self) -> str:
        """A name that all fits of the same problem share."""
        return f"{self.data}-{self.every}-{self.number}-{self.loss}-{self.C:g}"


@dataclass
class Fit:
    """The result of a fit, with its faults."""

    job: Job
    seconds: float
    objective: float  #: recomputed
    gap: float
    reason: str
    faults: list[str] = field(default_factory=list)


def objective(job: Job, w: Floats, b: float) -> float:
    """||w||_1 + C sum loss on the explicit matrix."""
    table = read(job.data, job.every)
    y = table.target(job.number)
    m = np.asarray(table.X @ w).ravel() + b
    if job.loss == "logistic":
        losses = np.logaddexp(0.0, -y * m)
    elif job.loss == "squared":
        losses = (y - m) ** 2
    else:
        losses = np.maximum(0.0, 1.0 - y * m) ** 2
    return math.fsum(np.abs(w)) + job.C * math.fsum(losses)


def fit(job: Job) -> Fit:
    """Train with fcl, recompute the objective, and check the reported certificate."""
    import fcl

    table = read(job.data, job.every)
    data = fcl.open_data(table.rows, y=table.target(job.number))
    row_view: Any = job.row_view
    if row_view == "sampled":
        row_view = max(64, round(SAMPLED * len(table.label)))
    begun = time.perf_counter()
    try:
        result = fcl.train(
            data,
            table.features,
            C=job.C,
            loss=job.loss,
            tol=job.tol,
            max_time=job.limit,
            driver=job.driver,
            row_view=row_view,
            warn=False,
        )
    except Exception as error:
        message = traceback.format_exception_only(error)[-1].strip()[:200]
        return Fit(job, time.perf_counter() - begun, math.inf, math.inf, message, ["raised"])
    seconds = time.perf_counter() - begun
    w = np.zeros(table.X.shape[1])
    w[result.model.ids] = result.model.weights
    value = objective(job, w, result.model.intercept)
    claimed = result.certificate
    faults = []
    if result.reason != "tolerance" or not claimed.gap <= job.tol:
        faults.append("stalled" if result.reason == "stalled" else "unfinished")
    if not abs(claimed.objective - value) <= ROUNDING * value:
        faults.append("objective")
    if not claimed.bound <= value * (1.0 + ROUNDING):
        faults.append("bound")
    if not abs(claimed.gap - max(0.0, 1.0 - claimed.bound / value)) <= ROUNDING:
        faults.append("gap")
    return Fit(job, seconds, value, claimed.gap, result.reason, faults)


def compare(found: Fit, bound_by: float) -> Fit:
    """Add the faults that the objective of another solver reveals."""
    if found.objective > bound_by * (1.0 + WORSE):
        found.faults.append("above")
    claimed_bound = found.objective * (1.0 - found.gap)
    if claimed_bound > bound_by * (1.0 + ROUNDING):
        found.faults.append("bound")
    return found


# -- the other solvers -------------------------------------------------------------------------------


def peer(job: Job, tol: float) -> tuple[Floats, float]:
    """Fit with another solver that does not penalise the intercept; weights and intercept."""
    table = read(job.data, job.every)
    y = table.target(job.number)
    if job.loss == "squared":
        from celer import Lasso

        model = Lasso(alpha=1.0 / (2.0 * len(y) * job.C), tol=tol, max_iter=200)
        X = table.X.tocsc() if hasattr(table.X, "tocsc") else np.asfortranarray(table.X)
        model.fit(X, y)
        return model.coef_, float(model.intercept_)
    from liblinear.liblinearutil import parameter, train
    from liblinear.liblinearutil import problem as make_problem
    from scipy import sparse

    made = make_problem(y, sparse.csr_matrix(table.X, dtype=np.float64))
    kind = 6 if job.loss == "logistic" else 5
    w, b = train(made, parameter(f"-s {kind} -c {job.C} -e {tol} -B 1 -R -q")).get_decfun()
    return np.array(w), float(b)


def peer_objective(job: Job) -> float:
    """The objective that another solver reaches in a separate process; infinite if it takes too long.

    It is cached in a file in the temporary folder.
    """
    path = common.derived(f"matrix-{job.problem}", *map(source, DATA[job.data].files))
    if path.exists():
        return float(path.read_text())
    value = math.inf
    for tol in PEER_TOLERANCES:
        command = [sys.executable, __file__, "--peer", json.dumps(asdict(job)), "--tol", repr(tol)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode:
            sys.exit(f"the other solver failed:\n{done.stderr[-2000:]}")
        value = float(done.stdout.split()[-1])
        break
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(repr(value))
    return value


# -- all of them -------------------------------------------------------------------------------------


def work(job: Job) -> tuple[Fit, float]:
    """One fit, and the objective of the other solver."""
    warnings.simplefilter("ignore")
    other = peer_objective(job)
    return compare(fit(job), other), other


def chosen(args: argparse.Namespace) -> Iterable[Job]:
    """The fits that the options select, cheap ones first."""
    for C in args.C:
        for data in args.data:
            of = DATA[data]
            if args.classes in {"all", "one"}:
                numbers = [of.default_class] if args.classes == "one" else list(range(of.n_classes))
            else:
                numbers = [int(number) for number in args.classes.split(",")]
            for number in numbers:
                for loss in args.loss:
                    for driver in args.driver:
                        for view in args.row_view:
                            every = args.every or of.every
                            job = data, every, number, loss, C, driver, view, args.tol, args.limit
                            yield Job(*job)


def line(found: Fit, other: float) -> list[object]:
    """The table row of a fit."""
    job = found.job
    return [
        job.data, job.number, job.loss, f"{job.C:g}", job.driver, job.row_view,
        f"{found.seconds:.1f}", f"{found.gap:.1e}", f"{found.objective:.8g}",
        f"{found.objective / other:.6f}" if other < math.inf else "",
        found.reason, ", ".join(found.faults),
    ]  # fmt: skip


HEADER = [
    "data", "class", "loss", "C", "driver", "rows", "time, s", "gap", "objective",
    "/ other's", "reason", "faults",
]  # fmt: skip


def main() -> None:
    """Run the fits and print a line for each; then print those with faults."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--classes", default="one", help="one, all, or numbers such as 9,12")
    parser.add_argument("--C", nargs="+", type=float, default=STRENGTHS)
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=["logistic"])
    parser.add_argument("--driver", nargs="+", choices=DRIVERS, default=["inline"])
    parser.add_argument("--row-view", nargs="+", choices=["all", "sampled"], default=["all"])
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--every", type=int, help="take every k-th row (default: mnist 10)")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a fit of fcl")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel fits")
    parser.add_argument("--all", action="store_true", help="all classes, losses, drivers, views")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        warnings.simplefilter("ignore")
        job = Job(**json.loads(args.peer))
        print(repr(objective(job, *peer(job, args.tol))))
        return
    if args.all:
        args.classes, args.loss, args.driver = "all", LOSSES, DRIVERS
        args.row_view = ["all", "sampled"]
    print(common.machine(), "\n", flush=True)
    done: list[tuple[Fit, float]] = []
    widths = [7, 5, 13, 5, 9, 7, 7, 8, 13, 10, 10, 1]

    def show(cells: Sequence[object]) -> None:
        print(" ".join(f"{cell!s:<{w}}" for cell, w in zip(cells, widths, strict=True)), flush=True)

    show(HEADER)
    for one in run(list(chosen(args)), args.jobs):
        done.append(one)
        show(line(*one))
    bad = [one for one in done if one[0].faults]
    counts = Counter(fault for found, _ in bad for fault in found.faults)
    listed = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    print(f"\n{len(done)} fits, {len(bad)} with faults{': ' + listed if listed else ''}")
    if bad:
        print(common.table(HEADER, [line(*one) for one in bad]))
    sys.exit(bool(bad))


def run(jobs: Sequence[Job], side_by_side: int) -> Iterable[tuple[Fit, float]]:
    """Run all fits, in this process or in several."""
    if side_by_side == 1:
        yield from map(work, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(side_by_side, mp_context=context) as pool:
        for future in as_completed([pool.submit(work, job) for job in jobs]):
            yield future.result()


if __name__ == "__main__":
    main()
