#!/usr/bin/env python3
"""Softmax models of several classes with an L1 penalty: fcl beside other solvers, and fcl alone.

    python tools/bench/classes.py peers news|mnist|splice [--methods ...] [--repeat 3]
    python tools/bench/classes.py train news|mnist|splice [--driver inline processes] [--group]

``peers`` solves |W|_1 + C sum_i loss_i on one matrix that fits in memory, or with ``--group``
sum_j |W_j.|_2 + C sum_i loss_i, which of the others only adelie can. Every run is a process of its own,
which first solves a tiny problem of the same types; its clock leaves out loading. Each solver's tolerance
is tightened until its objective, recomputed here in float64, is within 1e-2 and 1e-3 of the optimum,
which fcl certifies first (``--optimal``). The table has the processor seconds of the shortest run that
reached each level. liblinear, one class against the others, solves another problem, and its time is an
orientation. adelie needs a NumPy below 2, so it runs in another environment: ``--adelie its/bin/python``.

``train`` trains on the families themselves (20 newsgroups; 60,000 digits and 50,000 random Fourier
features; k-mers of splice junctions) up to a certified gap. ``--classes 2 5 20`` trains on the labels
modulo these numbers, which shows what a class costs on the same rows.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

#: Relative distances from the optimum, and gaps, that are timed.
LEVELS = (1e-2, 1e-3)
#: Tolerances that a solver gets, one after the other.
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 15))
#: A solver's tolerance is not tightened further after a run of this many processor seconds.
LIMIT = 120.0
#: Features of the digits, of given number: the problem whose figures were measured.
COSINES = "fourier:n={},pca=50,standardise=true"
#: Default C of each case.
STRENGTHS = {"news": 0.1, "mnist": 0.03, "splice": 0.1}
Solution = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


# -- the cases -------------------------------------------------------------------------------------


def news(args: argparse.Namespace) -> tuple[Any, npt.NDArray[np.int64]]:
    """20 newsgroups: word counts of the training texts, CSR."""
    from scipy import sparse

    from tools.bench import common

    held = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    X = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr()[~held]
    return X.astype(np.float64), np.load(common.SHARED / "20news_y.npy")[~held].astype(np.int64)


def digits(n: int | None = None) -> tuple[Any, npt.NDArray[np.int64]]:
    """The first n training rows of MNIST, uint8."""
    from tools.bench import common

    with np.load(common.SHARED / "mnist.npz") as files:
        return files["train_x"][:n], files["train_y"][:n].astype(np.int64)


def mnist(args: argparse.Namespace) -> tuple[Any, npt.NDArray[np.int64]]:
    """Random cosines of the first digits, dense float64."""
    from fcl.features import bind_features, parse_features

    rows, y = digits(args.rows)
    features = parse_features(COSINES.format(args.columns))
    family: Any = bind_features(features, open_rows(rows, y).rows)
    generator = family.generator
    block = generator.prepare(rows.astype(np.float64))
    return generator.columns(np.arange(args.columns), block).astype(np.float64), y


def windows() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Codes of the splice junctions, 0 to 3 and 4 for ambiguous letters, and their classes."""
    from tools.bench import common

    lines = (common.SHARED / "uci_splice.csv").read_text().splitlines()
    fields = [line.split(",") for line in lines]
    codes = np.array([["ACGT".find(c) for c in row[-1].strip()] for row in fields[1:]])
    codes[codes < 0] = 4
    kinds = [row[0].strip() for row in fields[1:]]
    return codes.astype(np.uint8), np.unique(kinds, return_inverse=True)[1].astype(np.int64)


def splice(args: argparse.Namespace) -> tuple[Any, npt.NDArray[np.int64]]:
    """All k-mers with wildcards of the windows without ambiguous letters, CSR."""
    from tools.bench.cases import all_kmers

    codes, y = windows()
    known = (codes < 4).all(axis=1)
    return all_kmers(codes[known], args.d), y[known]


CASES = {"news": news, "mnist": mnist, "splice": splice}


def open_rows(rows: Any, y: npt.NDArray[np.int64]) -> Any:
    import fcl

    return fcl.open_data(rows, y=y.astype(str))


def objective(X: Any, y: npt.NDArray[np.int64], args: argparse.Namespace, w: Any, b: Any) -> float:
    """The penalty + C sum_i loss_i, in float64; w is (columns, K)."""
    from scipy.special import logsumexp

    m = np.asarray(X @ w) + b
    losses = logsumexp(m, axis=1) - m[np.arange(len(y)), y]
    penalty = np.linalg.norm(w, axis=1) if args.group else np.abs(w)
    return float(penalty.sum() + args.C * losses.sum())


# -- the solvers -----------------------------------------------------------------------------------


def with_fcl(X: Any, y: Any, args: argparse.Namespace, tol: float) -> Callable[[], Solution]:
    import fcl

    data, K = open_rows(X, y), len(np.unique(y))

    def solve() -> Solution:
        model: Any = fcl.train(
            data, "columns", loss="softmax", C=args.C, tol=tol, memory="4GiB", group=args.group
        ).model
        w = np.zeros((X.shape[1], K))
        names = [str(label) for label in model.labels]
        order = [names.index(str(k)) for k in range(K)]
        w[model.ids] = model.weights[:, order]
        return w, np.asarray(model.intercept)[order]

    return solve


def with_saga(
    X: Any, y: Any, args: argparse.Namespace, tol: float, solver: str = "saga"
) -> Callable[[], Solution]:
    from sklearn.linear_model import LogisticRegression

    model: Any = LogisticRegression(
        l1_ratio=1.0, C=args.C, solver=solver, tol=tol, max_iter=100_000, random_state=0
    )

    def solve() -> Solution:
        model.fit(X, y)
        return model.coef_.T, model.intercept_

    return solve


def with_newton_cd(X: Any, y: Any, args: argparse.Namespace, tol: float) -> Callable[[], Solution]:
    return with_saga(X, y, args, tol, "newton-cd")


def with_liblinear(X: Any, y: Any, args: argparse.Namespace, tol: float) -> Callable[[], Solution]:
    """One class against the others: another objective."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    one = LogisticRegression(l1_ratio=1.0, C=args.C, solver="liblinear", tol=tol, max_iter=10_000)
    model = OneVsRestClassifier(one)

    def solve() -> Solution:
        model.fit(X, y)
        w = np.stack([part.coef_[0] for part in model.estimators_], axis=1)
        return w, np.array([part.intercept_[0] for part in model.estimators_])

    return solve


def with_adelie(X: Any, y: Any, args: argparse.Namespace, tol: float) -> Callable[[], Solution]:
    """adelie's path from the null model down to C, with the group norm, which is its only one.

    Its loss is the mean over rows, divided by the number of classes.
    """
    import adelie
    from scipy import sparse

    n, K = X.shape[0], int(y.max()) + 1
    matrix: Any
    if sparse.issparse(X):
        matrix = adelie.matrix.sparse(sparse.csc_matrix(X, dtype=np.float64), method="naive")
    else:
        matrix = np.asfortranarray(X)
    glm = adelie.glm.multinomial(y=np.asfortranarray(np.eye(K)[y]))
    share = np.bincount(y, minlength=K) / n
    top = np.linalg.norm(np.asarray(X.T @ (np.eye(K)[y] - share)), axis=1).max() / (n * K)
    wanted = 1.0 / (args.C * n * K)
    path = np.geomspace(top, wanted, 20) if wanted < top else np.array([wanted])

    def solve() -> Solution:
        state = adelie.grpnet(
            matrix, glm, penalty=np.ones(X.shape[1]), lmda_path=path, tol=tol, irls_tol=tol,
            early_exit=False, progress_bar=False,
        )  # fmt: skip
        w = np.asarray(state.betas[-1].todense()).reshape(-1, K)
        return w, np.asarray(state.intercepts[-1])

    return solve


METHODS = {
    "fcl": with_fcl,
    "saga": with_saga,
    "newton-cd": with_newton_cd,
    "adelie": with_adelie,
    "liblinear": with_liblinear,
}


def run_here(args: argparse.Namespace) -> None:
    """Make one run on a saved matrix, and print its figures as JSON."""
    from scipy import sparse

    warnings.simplefilter("ignore")
    folder = args.folder
    y = np.load(folder / "y.npy")
    dense = (folder / "X.npy").exists()
    X = np.load(folder / "X.npy") if dense else sparse.load_npz(folder / "X.npz")
    tiny = np.random.default_rng(0).normal(size=(200, 8))
    K = int(y.max()) + 1
    few = tiny if dense else sparse.csr_matrix(tiny)
    METHODS[args.run](few, np.arange(200) % min(K, 20), args, 1e-2)()
    solve = METHODS[args.run](X, y, args, args.tol)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, busy = time.perf_counter(), time.process_time()
    w, b = solve()
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {
        "seconds": seconds,
        "busy": busy,
        "MiB": peak >> 10,
        "more MiB": (peak - before) >> 10,
    }
    figures["weights"] = int(np.count_nonzero(w))
    np.savez(folder / "solution.npz", w=w, b=b)
    print(json.dumps(figures))


# -- the comparison --------------------------------------------------------------------------------


def run(args: argparse.Namespace, method: str, tol: float, X: Any, y: Any) -> dict[str, Any]:
    """Make one run in a separate process, and compute its objective."""
    python = args.adelie if method == "adelie" else sys.executable
    command = [python, __file__, "peers", args.case, "--run", method, "--folder", str(args.folder)]
    command += ["--C", str(args.C), "--tol", repr(tol)] + ["--group"] * args.group
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, str(args.cores))}
    try:
        done = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=args.patience,
        )
    except subprocess.TimeoutExpired:
        return {"seconds": args.patience, "busy": args.patience, "objective": math.inf}
    if done.returncode:
        nothing = dict.fromkeys(("seconds", "busy", "objective"), math.inf)
        return {**nothing, "error": done.stderr[-300:]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    with np.load(args.folder / "solution.npz") as solution:
        figures["objective"] = objective(X, y, args, solution["w"], solution["b"])
    return figures


def climb(args: argparse.Namespace, method: str, optimum: float, X: Any, y: Any) -> list[Any]:
    """Tighten the tolerance until the last level is reached; returns the figures of all runs."""
    found = []
    for tol in TOLERANCES:
        figures = run(args, method, tol, X, y)
        figures |= {"method": method, "tol": tol, "away": figures["objective"] / optimum - 1.0}
        print(json.dumps(figures), file=sys.stderr, flush=True)
        found.append(figures)
        if figures["away"] <= LEVELS[-1] or figures["busy"] > LIMIT or method == "liblinear":
            break
    return found


def peers(args: argparse.Namespace) -> None:
    """Print seconds and memory of each solver at each level."""
    from scipy import sparse

    from tools.bench import common

    X, y = CASES[args.case](args)
    print(common.machine())
    with tempfile.TemporaryDirectory() as name:
        args.folder = Path(name)
        np.save(args.folder / "y.npy", y)
        if sparse.issparse(X):
            sparse.save_npz(args.folder / "X.npz", sparse.csr_matrix(X, dtype=np.float64), False)
        else:
            np.save(args.folder / "X.npy", X)
        optimum = run(args, "fcl", args.optimal, X, y)["objective"]
        if not math.isfinite(optimum):
            sys.exit(
                f"fcl did not certify a gap of {args.optimal:g} in time; raise --optimal or --patience"
            )
        print(f"\n{args.case}: {X.shape[0]:,} x {X.shape[1]:,}, {int(y.max()) + 1} classes, "
              f"C = {args.C}: optimum {optimum:.9g}\n")  # fmt: skip
        lines = []
        for method in args.methods:
            runs = [climb(args, method, optimum, X, y) for _ in range(args.repeat)]
            lines.append(_line(method, runs))
    header = ["solver", *(f"to {level:g}, s" for level in LEVELS)]
    print(common.table([*header, "peak, MiB", "weights", "last tolerance", "last distance"], lines))


def _line(method: str, climbs: list[list[dict[str, Any]]]) -> list[object]:
    from tools.bench import common

    def fastest(level: float) -> list[dict[str, Any]]:
        near = [[one for one in found if one["away"] <= level] for found in climbs]
        return [min(some, key=lambda one: float(one["busy"])) for some in near if some]

    cells: list[object] = [method]
    last = climbs[-1][-1]
    for level in LEVELS:
        best = fastest(level)
        full = len(best) == len(climbs)
        cells.append(common.spread([one["busy"] for one in best]) if full else "-")
    if method == "liblinear":
        cells[-1] = f"({last['busy']:.3g})"
    if not math.isfinite(last["objective"]):
        failed = "error" in last
        return [
            *cells,
            "-",
            "-",
            f"{last['tol']:g}",
            "failed" if failed else f"> {last['seconds']:g} s",
        ]
    return [*cells, last["MiB"], last["weights"], f"{last['tol']:g}", f"{last['away']:.1e}"]


# -- fcl alone -------------------------------------------------------------------------------------


def processor_seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def train_here(args: argparse.Namespace) -> None:
    """Train once, and print the figures as JSON."""
    import fcl
    from fcl.drivers.warmup import warmup

    warnings.simplefilter("ignore")
    features = args.features
    if args.case == "news":
        rows, y = news(args)
        features = features or "columns"
    elif args.case == "mnist":
        rows, y = digits(args.rows)
        features = features or COSINES.format(args.columns)
    else:
        rows, y = windows()
        features = features or f"kmers:d={args.d}"
    warmup()
    data = open_rows(rows, y % args.classes[0] if args.classes else y)
    begun, busy = time.perf_counter(), processor_seconds()
    result = fcl.train(
        data, features, loss="softmax", C=args.C, tol=args.tol, memory=args.memory,
        driver=args.driver[0], group=args.group,
    )  # fmt: skip
    seconds, history = time.perf_counter() - begun, result.model.history
    at = [min((e["seconds"] for e in history if e["gap"] <= gap), default=None) for gap in LEVELS]
    figures = {"seconds": seconds, "reached": at, "split": result.seconds, "passes": result.passes}
    figures["busy"] = processor_seconds() - busy
    figures |= {"gap": result.certificate.gap, "objective": result.certificate.objective}
    figures |= {"features": len(result.model.ids), "bytes": history[-1]["memory_bytes"]}
    print(json.dumps(figures))


def train(args: argparse.Namespace) -> None:
    """Print seconds to each gap, memory and split of runs of fcl."""
    from tools.bench import common

    print(common.machine() + "\n")
    lines: list[list[object]] = []
    for driver, classes in product(args.driver, args.classes or [None]):
        command = [sys.executable, __file__, "train", args.case, "--child", "--driver", driver]
        command += ["--classes", str(classes)] if classes else []
        for name in ("C", "tol", "rows", "columns", "d", "features", "memory"):
            if getattr(args, name) is not None:
                command += [f"--{name}", str(getattr(args, name))]
        command += ["--group"] if args.group else []
        runs = []
        for _ in range(args.repeat):
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(runs[-1]), file=sys.stderr)
        times = [[one["reached"][i] for one in runs] for i in range(len(LEVELS))]
        cells = ["-" if None in some else common.spread(some) for some in times]
        last, busy = runs[-1], common.spread([one["busy"] for one in runs])
        lines.append([
            driver, classes or "all", *cells, busy, last["passes"],
            f"{last['split'].get('pricing', math.nan):.3g}",
            last["bytes"] >> 20, last["features"], f"{last['objective']:.9g}", f"{last['gap']:.1e}",
        ])  # fmt: skip
    header = [
        "driver",
        "classes",
        *(f"to gap {gap:g}, s" for gap in LEVELS),
        "processor, s",
        "passes",
    ]
    header.append("pricing, s")
    print(common.table([*header, "peak, MiB", "features", "objective", "gap"], lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["peers", "train"])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("--C", type=float, help="default 0.1 (news, splice), 0.03 (mnist)")
    parser.add_argument("--repeat", type=int, default=1, help="runs (default 1)")
    parser.add_argument("--rows", type=int, help="digits (default 10,000, or all for train)")
    parser.add_argument("--columns", type=int, help="cosines (default 1,000, or 50,000 for train)")
    parser.add_argument("--d", type=int, help="letters of a k-mer (default 4, or 8 for train)")
    parser.add_argument("--tol", type=float, default=1e-3, help="gap of ``train`` (default 1e-3)")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["fcl", "saga"])
    parser.add_argument("--optimal", type=float, default=1e-6, help="gap of the optimum")
    parser.add_argument(
        "--patience", type=float, default=300.0, help="seconds after which a run is killed"
    )
    parser.add_argument("--cores", type=int, default=1, help="threads of each solver (default 1)")
    parser.add_argument("--adelie", default=sys.executable, help="python that has adelie")
    parser.add_argument("--driver", nargs="+", default=["inline"], help="inline, processes")
    parser.add_argument("--group", action="store_true", help="features in or out for all classes")
    parser.add_argument("--classes", type=int, nargs="+", help="``train`` on labels modulo these")
    parser.add_argument("--features", help="other features for ``train``")
    parser.add_argument("--memory", default="4GiB", help="budget (default 4GiB)")
    for name, kind in (("run", str), ("folder", Path)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    whole = args.what == "train"
    args.C = STRENGTHS[args.case] if args.C is None else args.C
    args.rows = args.rows or (60_000 if whole else 10_000)
    args.columns = args.columns or (50_000 if whole else 1_000)
    args.d = args.d or (8 if whole else 4)
    if args.run:
        run_here(args)
    elif args.child:
        train_here(args)
    else:
        (train if whole else peers)(args)


if __name__ == "__main__":
    main()
