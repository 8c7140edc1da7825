#!/usr/bin/env python3
"""fcl beside other solvers of the same problem, on matrices that fit in memory.

    python tools/bench/peers.py celegans [--every 160] [--d 4] [--C 0.1] [--repeat 3] [--methods ...]
    python tools/bench/peers.py a9a | 20news

Every run is a process of its own on the cores of ``--cores``; kernels are compiled before a clock starts.
Each solver's tolerance is tightened step by step until its objective, recomputed here in float64, is
within 1e-4 of the optimum (which fcl certifies to 1e-7 first); the table has the time of the first
tolerance that reached each level. ``load`` is reading files and making what the solver wants of them,
which does not count for peers. Needs the extra ``peers``:  pip install -e '.[peers]'
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

FOLDER = Path(tempfile.gettempdir()) / "fcl-bench" / "peers"
#: Relative distances from the optimum that are timed.
LEVELS = (1e-2, 1e-3, 1e-4)
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 19))
#: Seconds after which a solver is not asked for more.
LIMIT = 600.0
Solution = tuple[npt.NDArray[np.float64], float]


# -- the cases -------------------------------------------------------------------------------------


def celegans(folder: Path, args: argparse.Namespace) -> None:
    """Windows, and all k-mers of them as a matrix."""
    from scipy import sparse

    codes, y = common.load(common.windows_folder(args.data), args.every)
    n, length = codes.shape
    d, per_position = args.d, 4 * 5 ** (args.d - 1)
    columns = []
    for position in range(length - d + 1):
        for mask in range(2 ** (d - 1)):  # which of the letters behind the first are wildcards
            code = codes[:, position].astype(np.int64)
            for k in range(1, d):
                letter = codes[:, position + k].astype(np.int64)
                code = 5 * code + (4 if mask >> (k - 1) & 1 else letter)
            columns.append(position * per_position + code)
    indices = np.sort(np.stack(columns, axis=1), axis=1).astype(np.int32)
    indptr = np.arange(n + 1, dtype=np.int64) * indices.shape[1]
    shape = (n, (length - d + 1) * per_position)
    ones = np.ones(indices.size)
    sparse.save_npz(
        folder / "X.npz", sparse.csr_matrix((ones, indices.ravel(), indptr), shape), False
    )
    np.save(folder / "seq.npy", codes)
    np.save(folder / "y.npy", y.astype(np.float64))


def a9a(folder: Path, args: argparse.Namespace) -> None:
    """Census income, 123 binary columns."""
    from sklearn.datasets import load_svmlight_file

    with gzip.open(common.SHARED / "a9a.gz") as file:
        X, y = load_svmlight_file(file, n_features=123)
    _save(folder, X, y)


def newsgroups(folder: Path, args: argparse.Namespace) -> None:
    """Word counts, one group against the others."""
    from scipy import sparse

    held = np.load(common.SHARED / "20news_is_test.npy").astype(bool)
    X = sparse.load_npz(common.SHARED / "20news_counts.npz").tocsr()
    group = np.load(common.SHARED / "20news_y.npy")
    X, group = X[~held], group[~held]
    _save(folder, X, np.where(group == 0, 1.0, -1.0))


def _save(folder: Path, X: Any, y: npt.NDArray[np.float64]) -> None:
    from scipy import sparse

    X = sparse.csr_matrix(X, dtype=np.float64)
    X.sort_indices()
    sparse.save_npz(folder / "X.npz", X, False)
    np.save(folder / "y.npy", y)


CASES: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "celegans": celegans,
    "a9a": a9a,
    "20news": newsgroups,
}


# -- the solvers -----------------------------------------------------------------------------------


class Problem:
    """Files of a case, and the clock of a run."""

    def __init__(self, folder: Path, C: float, tol: float, d: int) -> None:
        self.folder, self.C, self.tol, self.d = folder, C, tol, d
        self.y = np.load(folder / "y.npy")
        self.load = self.solve = 0.0
        self._since = time.perf_counter()

    def matrix(self) -> Any:
        """CSR float64."""
        from scipy import sparse

        return sparse.load_npz(self.folder / "X.npz")

    def begin(self) -> None:
        """Everything is in memory as the solver wants it."""
        self.load = time.perf_counter() - self._since
        self._since = time.perf_counter()

    def end(self) -> None:
        """The solution is there."""
        self.solve = time.perf_counter() - self._since


def _fcl(problem: Problem, features: str, source: Any, size: int) -> Solution:
    import fcl
    from fcl.drivers.warmup import warmup

    warmup()
    problem._since = time.perf_counter()
    data = fcl.open_data(source(), y=problem.y)
    problem.begin()
    result = fcl.train(data, features, C=problem.C, tol=problem.tol, memory="8GiB")
    problem.end()
    w = np.zeros(size)
    w[result.model.ids] = result.model.weights
    return w, result.model.intercept


def fcl_features(problem: Problem) -> Solution:
    """fcl on the family itself; k-mers from the windows."""
    X = problem.matrix()
    if not (problem.folder / "seq.npy").exists():
        return _fcl(problem, "columns", lambda: X, X.shape[1])
    path = problem.folder / "seq.npy"
    return _fcl(problem, f"kmers:d={problem.d}", lambda: np.load(path), X.shape[1])


def fcl_columns(problem: Problem) -> Solution:
    """fcl on the explicit matrix."""
    X = problem.matrix()
    return _fcl(problem, "columns", lambda: X, X.shape[1])


def liblinear(problem: Problem) -> Solution:
    """LIBLINEAR -s 6 -B 1 -R: the bias is not penalised."""
    from liblinear.liblinearutil import parameter, train
    from liblinear.liblinearutil import problem as make_problem

    X = problem.matrix()
    made = make_problem(problem.y, X)
    problem.begin()
    model = train(made, parameter(f"-s 6 -c {problem.C} -e {problem.tol} -B 1 -R -q"))
    problem.end()
    w, b = model.get_decfun()
    return np.array(w), float(b)


def celer(problem: Problem) -> Solution:
    """celer's working sets; without an intercept here, for which a column of large ones stands in."""
    from celer import LogisticRegression
    from scipy import sparse

    # a constant of 1e3 has a penalty of a thousandth of |b|
    constant = sparse.csc_matrix(np.full((len(problem.y), 1), 1e3))
    X = sparse.hstack([problem.matrix(), constant], format="csc")
    problem.begin()
    model = LogisticRegression(C=problem.C, tol=problem.tol, max_iter=1000, fit_intercept=False)
    model.fit(X, problem.y)
    problem.end()
    return model.coef_[0, :-1], 1e3 * float(model.coef_[0, -1])


def skglm(problem: Problem) -> Solution:
    """skglm's proximal Newton with working sets."""
    from scipy import sparse
    from skglm import SparseLogisticRegression

    X = problem.matrix().tocsc()
    n = len(problem.y)
    options = {"alpha": 1.0 / (n * problem.C), "fit_intercept": True, "max_iter": 1000}
    warm = sparse.random(40, 20, 0.5, format="csc", random_state=0)
    SparseLogisticRegression(**options).fit(warm, np.tile([0, 1], 20))  # compiles
    problem.begin()
    model = SparseLogisticRegression(tol=problem.tol, **options).fit(X, problem.y)
    problem.end()
    return model.coef_.ravel(), float(np.ravel(model.intercept_)[0])


def saga(problem: Problem) -> Solution:
    """scikit-learn's SAGA."""
    from sklearn.linear_model import LogisticRegression

    X = problem.matrix()
    problem.begin()
    model = LogisticRegression(
        l1_ratio=1.0, C=problem.C, solver="saga", tol=problem.tol, max_iter=10000, random_state=0
    ).fit(X, problem.y)
    problem.end()
    return model.coef_[0], float(model.intercept_[0])


METHODS: dict[str, Callable[[Problem], Solution]] = {
    "fcl": fcl_features,
    "fcl-columns": fcl_columns,
    "liblinear": liblinear,
    "celer": celer,
    "skglm": skglm,
    "saga": saga,
}


def run_here(args: argparse.Namespace) -> None:
    """One run; prints its figures as JSON."""
    warnings.simplefilter("ignore")
    problem = Problem(args.folder, args.C, args.tol, args.d)
    w, b = METHODS[args.run](problem)
    margins = problem.matrix() @ w + b
    loss = float(np.logaddexp(0.0, -problem.y * margins).sum())
    figures = {
        "load": problem.load,
        "solve": problem.solve,
        "objective": float(np.abs(w).sum()) + args.C * loss,
        "active": int(np.count_nonzero(w)),
    }
    print(json.dumps(figures))


# -- the comparison --------------------------------------------------------------------------------


def run(args: argparse.Namespace, folder: Path, method: str, tol: float) -> dict[str, Any]:
    """One run in a process of its own."""
    command = [sys.executable, __file__, args.case, "--run", method, "--folder", str(folder)]
    command += ["--C", str(args.C), "--tol", repr(tol), "--d", str(args.d)]
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, str(args.cores))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{method} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def climb(args: argparse.Namespace, folder: Path, method: str, optimum: float) -> dict[str, Any]:
    """Tighten the tolerance until the last level is reached; seconds by level."""
    reached: dict[float, float] = {}
    figures: dict[str, Any] = {}
    for tol in TOLERANCES:
        figures = run(args, folder, method, tol)
        away = figures["objective"] / optimum - 1.0
        for level in LEVELS:
            if away <= level:
                reached.setdefault(level, figures["solve"])
        figures |= {"method": method, "tol": tol, "away": away}
        print(json.dumps(figures), file=sys.stderr, flush=True)
        if away <= LEVELS[-1] or figures["solve"] > LIMIT:
            break
    return {**figures, "reached": reached}


def main() -> None:
    """Make the case, find the optimum, run all methods in turn, print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("case", choices=list(CASES))
    common.add_data_options(parser, every=160)
    parser.add_argument("--d", type=int, default=4)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--cores", type=int, default=1, help="threads that every solver may use")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS))
    for name in ("run", "folder", "tol"):  # of one run
        kind = {"folder": Path, "tol": float}.get(name, str)
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_here(args)
        return
    key = f"{args.case}-{args.every}-{args.d}" if args.case == "celegans" else args.case
    folder = FOLDER / key
    if not (folder / "y.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        CASES[args.case](folder, args)
    if args.cores == 1:
        common.pin(args.core)
    print(common.machine())
    optimum = run(args, folder, "fcl", 1e-7)["objective"]
    print(f"{key}, C = {args.C}: optimum {optimum:.8g}")
    names = [
        name for name in args.methods.split(",") if args.case == "celegans" or name != "fcl-columns"
    ]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(args.repeat):
        for name in names:
            if not any(r["solve"] > LIMIT for r in runs[name]):
                runs[name].append(climb(args, folder, name, optimum))
    rows = []
    for name in names:
        found = runs[name]
        times = [
            common.spread([r["reached"][level] for r in found])
            if all(level in r["reached"] for r in found)
            else f"> {common.median([r['solve'] for r in found]):.0f}"
            for level in LEVELS
        ]
        last = found[-1]
        load = common.spread([r["load"] for r in found])
        rows.append(
            [name, load, *times, f"{last['objective']:.7g}", last["active"], f"{last['tol']:g}"]
        )
    levels = [f"within {level:g}, s" for level in LEVELS]
    print(
        common.table(["solver", "load, s", *levels, "objective", "active", "its tolerance"], rows)
    )


if __name__ == "__main__":
    main()
