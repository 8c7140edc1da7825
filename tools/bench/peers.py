#!/usr/bin/env python3
"""fcl beside other solvers of the same problem, on matrices that fit in memory.

    python tools/bench/peers.py celegans [--every 160] [--d 4] [--C 0.1] [--repeat 3] [--methods ...]
    python tools/bench/peers.py a9a | 20news

Every run is a process of its own on the cores of ``--cores``; kernels are compiled before a clock starts.
Each solver's tolerance is tightened step by step until its objective, recomputed here in float64, is
within 1e-6 of the optimum (which fcl certifies to 1e-8 first); the table has the time of the first
tolerance that reached each level. ``load`` is reading the matrix and making what the solver wants of it;
its making from the files, whose time is told, comes before. fcl brings the rows into its form within its
time, and k-mers from windows need no matrix. ``from files`` is all of that to within 1e-4. Needs the
extra ``peers``:  pip install -e '.[peers]'
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common

FOLDER = Path(tempfile.gettempdir()) / "fcl-bench" / "peers"
#: Relative distances from the optimum that are timed.
LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
TOLERANCES = tuple(10.0 ** (-k / 2) for k in range(2, 19))
#: Seconds after which a solver is not asked for more.
LIMIT = 60.0
#: ... and after which a run is ended, its loading included.
PATIENCE = 240.0
#: The level to which the time from the files is told.
COMPARED = 1e-4
#: 1 / passes over the rows, for Vowpal Wabbit.
PASSES = tuple(1.0 / 2**k for k in range(0, 10, 2))
#: ... and its --l1, as shares of that of the mean loss.
VW_SHARES = (1.0, 1e-1, 1e-2, 1e-3)
Solution = tuple[npt.NDArray[np.float64], float]


# -- the cases -------------------------------------------------------------------------------------


def all_kmers(codes: npt.NDArray[np.uint8], d: int) -> Any:
    """All positional k-mers with wildcards of windows without unknown letters, as CSR float64."""
    from scipy import sparse

    n, length = codes.shape
    per_position = 4 * 5 ** (d - 1)
    columns = []
    for position in range(length - d + 1):
        for mask in range(2 ** (d - 1)):  # which of the letters behind the first are wildcards
            code = codes[:, position].astype(np.int32)
            for k in range(1, d):
                code = 5 * code + (4 if mask >> (k - 1) & 1 else codes[:, position + k])
            columns.append(position * per_position + code)
    indices = np.stack(columns, axis=1)
    indices.sort(axis=1)
    indptr = np.arange(n + 1, dtype=np.int64) * indices.shape[1]
    shape = (n, (length - d + 1) * per_position)
    return sparse.csr_matrix((np.ones(indices.size), indices.ravel(), indptr), shape)


def celegans(folder: Path, args: argparse.Namespace) -> None:
    """Windows, and all k-mers of them as a matrix."""
    codes, y = common.load(common.windows_folder(args.data), args.every)
    _save(folder, all_kmers(codes, args.d), y.astype(np.float64))
    np.save(folder / "seq.npy", codes)


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

    def objective(self, X: Any, w: npt.NDArray[np.float64], b: float) -> float:
        """||w||_1 + C sum log(1 + exp(-y m)), the bias not penalised."""
        losses = np.logaddexp(0.0, -self.y * (X @ w + b))
        return float(np.abs(w).sum() + self.C * losses.sum())


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


def vowpal_wabbit(problem: Problem) -> Solution:
    """Vowpal Wabbit: truncated gradient online, over the rows again and again; ``tol`` is 1 / passes.

    Its ``--l1`` is another unit under adaptive rates: several are tried, the best by the objective
    counts, with its time.
    """
    from scipy import sparse

    X: sparse.csr_matrix = problem.matrix()
    bits = max(18, int(X.shape[1]).bit_length())
    found: list[tuple[float, float, Solution]] = []
    with tempfile.TemporaryDirectory() as folder:
        rows, model = Path(folder) / "rows.vw", Path(folder) / "model.txt"
        write_vw(X, problem.y, rows)
        problem.begin()
        for share in VW_SHARES:
            l1 = share / (len(problem.y) * problem.C)
            options = ["--loss_function", "logistic", "--l1", repr(l1), "-b", str(bits)]
            options += ["--passes", str(round(1.0 / problem.tol)), "--holdout_off", "--cache", "-k"]
            options += ["--quiet", "--readable_model", str(model), "-d", str(rows)]
            begun = time.perf_counter()
            subprocess.run([sys.executable, "-m", "vowpalwabbit", *options], check=True)
            took = time.perf_counter() - begun
            w, b = read_vw(model.read_text(), X.shape[1])
            found.append((problem.objective(X, w, b), took, (w, b)))
    _, problem.solve, solution = min(found, key=lambda one: one[0])
    return solution


def write_vw(X: Any, y: npt.NDArray[np.float64], path: Path) -> None:
    """CSR rows as text; numbers of columns are taken as they are."""
    with path.open("w") as file:
        for i, label in enumerate(y):
            of_row = slice(X.indptr[i], X.indptr[i + 1])
            cells = zip(X.indices[of_row].tolist(), X.data[of_row].tolist(), strict=True)
            words = (f"{j}" if x == 1.0 else f"{j}:{x:.9g}" for j, x in cells)
            file.write(f"{label:g} | {' '.join(words)}\n")


def read_vw(text: str, columns: int) -> Solution:
    """Weights of a readable model, from which the truncation that is due has not been taken yet."""
    state = re.search(r"^l1_state (\S+)", text, re.MULTILINE)
    gravity = float(state.group(1)) if state else 0.0
    w, b = np.zeros(columns), 0.0
    for index, value in re.findall(r"^(\d+):([^:\s]+)", text, re.MULTILINE):
        truncated = np.sign(float(value)) * max(abs(float(value)) - gravity, 0.0)
        if int(index) < columns:
            w[int(index)] = truncated
        else:
            b = truncated
    return w, b


METHODS: dict[str, Callable[[Problem], Solution]] = {
    "fcl": fcl_features,
    "fcl-columns": fcl_columns,
    "liblinear": liblinear,
    "celer": celer,
    "skglm": skglm,
    "saga": saga,
    "vw": vowpal_wabbit,
}


def run_here(args: argparse.Namespace) -> None:
    """One run; prints its figures as JSON."""
    warnings.simplefilter("ignore")
    problem = Problem(args.folder, args.C, args.tol, args.d)
    w, b = METHODS[args.run](problem)
    figures = {
        "load": problem.load,
        "solve": problem.solve,
        "objective": problem.objective(problem.matrix(), w, b),
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
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"load": math.nan, "solve": PATIENCE, "objective": math.inf, "active": 0}
    if done.returncode:
        sys.exit(f"{method} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def climb(
    args: argparse.Namespace, folder: Path, method: str, optimum: float, ladder: Sequence[float]
) -> dict[str, Any]:
    """Tighten the tolerance until the last level is reached; seconds and tolerance by level."""
    reached: dict[float, tuple[float, float]] = {}
    figures: dict[str, Any] = {}
    for tol in ladder:
        figures = run(args, folder, method, tol)
        away = figures["objective"] / optimum - 1.0
        for level in LEVELS:
            if away <= level:
                reached.setdefault(level, (figures["solve"], tol))
        figures |= {"method": method, "tol": tol, "away": away}
        print(json.dumps(figures), file=sys.stderr, flush=True)
        if away <= LEVELS[-1] or figures["solve"] > LIMIT:
            break
    return {**figures, "reached": reached}


def ladder_of(method: str, before: Sequence[dict[str, Any]]) -> Sequence[float]:
    """Tolerances to try; once one has reached a level, in the runs before, those that did alone."""
    if before:
        return sorted({tol for _, tol in before[0]["reached"].values()}, reverse=True)
    return PASSES if method == "vw" else TOLERANCES


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
        begun = time.perf_counter()
        CASES[args.case](folder, args)
        np.save(folder / "made.npy", time.perf_counter() - begun)
    if args.cores == 1:
        common.pin(args.core)
    print(common.machine())
    optimum = run(args, folder, "fcl", 1e-8)["objective"]
    made = float(np.load(folder / "made.npy"))
    print(f"{key}, C = {args.C}: optimum {optimum:.8g}; the matrix took {made:.1f} s to make")
    names = [
        name for name in args.methods.split(",") if args.case == "celegans" or name != "fcl-columns"
    ]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(args.repeat):
        for name in names:
            if not any(r["solve"] > LIMIT for r in runs[name]):
                ladder = ladder_of(name, runs[name])
                if ladder:
                    runs[name].append(climb(args, folder, name, optimum, ladder))
    rows = []
    for name in names:
        found = runs[name]
        cells = []
        for level in LEVELS:
            times = [r["reached"][level][0] for r in found if level in r["reached"]]
            never = f"> {max(r['solve'] for r in found):.0f}"
            cells.append(common.spread(times) if len(times) == len(found) else never)
        last = found[-1]
        before = 0.0 if name == "fcl" and args.case == "celegans" else made
        whole = [
            before + r["load"] + r["reached"][COMPARED][0]
            for r in found
            if COMPARED in r["reached"]
        ]
        load = common.spread([r["load"] for r in found])
        rows.append(
            [
                name,
                load,
                *cells,
                common.spread(whole) if len(whole) == len(found) else "",
                f"{last['objective']:.7g}",
                last["active"],
                f"{last['tol']:g}",
            ]
        )
    header = ["solver", "load, s", *(f"within {level:g}, s" for level in LEVELS), "from files, s"]
    print(common.table([*header, "objective", "active", "its tolerance"], rows))


if __name__ == "__main__":
    main()
