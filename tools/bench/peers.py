#!/usr/bin/env python3
"""Compare fcl with other solvers of the same problem, on matrices that fit in memory.

    python tools/bench/peers.py celegans [--every 160] [--d 4] [--C 0.1] [--repeat 3] [--methods ...]
    python tools/bench/peers.py a9a | 20news | text | reviews | wide
    python tools/bench/peers.py products --C 10
    python tools/bench/peers.py text --before CHECKOUT --methods before,fcl,liblinear

Every run is a separate process that may use ``--cores`` threads. Before its clock starts, it solves a
tiny problem of the same types, so that everything is imported and compiled: this is ``warm``. ``load`` is
the time to read the files of the case and to convert them to the solver's input format, for fcl as for
the others; ``solve`` is the rest. Each solver's tolerance is tightened step by step until its objective,
recomputed here in float64, is within 1e-6 of the optimum, which fcl certifies first. The table has the
shortest ``solve`` that reached each level. A second line of fcl has the time at which its progress
reported such an objective, in the run of the tightest tolerance. ``from files`` is the total to within
1e-4: making the matrix (not needed where fcl makes the features itself), load and solve. The method
``before`` is the fcl of another checkout, run by the script of that checkout. Needs the extra ``peers``:
pip install -e '.[peers]'
"""

from __future__ import annotations

import argparse
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common
from tools.bench.cases import CASES, GENERATED, PRODUCTS, made, tiny

#: Relative distances from the optimum that are timed.
LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
TOLERANCES = (0.9, *(10.0 ** (-k / 2) for k in range(1, 19)))
#: Relative gap requested for the optimum, and the largest gap that is accepted.
OPTIMAL, GOOD_ENOUGH = 1e-8, 1e-7
#: If a run takes more seconds than this, the solver's tolerance is not tightened further.
LIMIT = 60.0
#: Seconds after which a run is killed, including its loading.
PATIENCE = 240.0
#: The level of the column ``from files``.
COMPARED = 1e-4
#: Vowpal Wabbit: 1 / passes over the rows, in place of tolerances.
PASSES = tuple(1.0 / 2**k for k in range(0, 10, 2))
#: Vowpal Wabbit: values of --l1, relative to the penalty of the mean loss.
VW_SHARES = (1.0, 1e-1, 1e-2, 1e-3)
Solution = tuple[npt.NDArray[np.float64], float]


# -- the solvers -----------------------------------------------------------------------------------


class Problem:
    """The files of a case, and the clock of a run."""

    def __init__(self, folder: Path, C: float, tol: float, d: int) -> None:
        self.folder, self.C, self.tol, self.d = folder, C, tol, d
        self.y = np.load(folder / "y.npy")
        self.warm = self.load = self.solve = 0.0
        self.gap: float | None = None  #: certified by fcl
        self.reported: list[tuple[float, float]] = []  #: seconds and objectives of fcl's progress
        self.since = time.perf_counter()

    @property
    def columns(self) -> int:
        """Number of columns, without reading the matrix."""
        with np.load(self.folder / "X.npz") as parts:
            return int(parts["shape"][1])

    def matrix(self) -> Any:
        """The matrix, CSR float64."""
        from scipy import sparse

        return sparse.load_npz(self.folder / "X.npz")

    def restart(self) -> None:
        """Start the clock, once everything is imported and compiled."""
        self.since = time.perf_counter()

    def begin(self) -> None:
        """End ``load``: the solver's input is in memory."""
        self.load = time.perf_counter() - self.since
        self.since = time.perf_counter()

    def end(self) -> None:
        """End ``solve``: the solution is found."""
        self.solve = time.perf_counter() - self.since

    def objective(self, X: Any, w: npt.NDArray[np.float64], b: float) -> float:
        """||w||_1 + C sum log(1 + exp(-y m)), without a penalty on the bias."""
        losses = np.logaddexp(0.0, -self.y * (X @ w + b))
        return float(np.abs(w).sum() + self.C * losses.sum())


def _fcl(problem: Problem, features: str, read: Callable[[], Any]) -> Solution:
    import fcl
    from fcl.drivers.events import PassDone

    data = fcl.open_data(read(), y=problem.y)

    def report(event: Any) -> None:
        if isinstance(event, PassDone):
            problem.reported.append((time.perf_counter() - problem.since, event.objective))

    problem.begin()
    result = fcl.train(data, features, C=problem.C, tol=problem.tol, memory="8GiB", progress=report)
    problem.end()
    problem.gap = result.certificate.gap
    w = np.zeros(problem.columns)
    w[result.model.ids] = result.model.weights
    return w, result.model.intercept


def fcl_features(problem: Problem) -> Solution:
    """fcl on the family itself: k-mers of windows or products of columns, if there are any."""
    for name, family in (("seq.npy", f"kmers:d={problem.d}"), ("columns.npy", PRODUCTS)):
        path = problem.folder / name
        if path.exists():
            return _fcl(problem, family, partial(np.load, path))
    return fcl_columns(problem)


def fcl_columns(problem: Problem) -> Solution:
    """fcl on the explicit matrix."""
    return _fcl(problem, "columns", problem.matrix)


def liblinear(problem: Problem) -> Solution:
    """LIBLINEAR -s 6 -B 1 -R: the bias is not penalised."""
    from liblinear.liblinearutil import parameter, train
    from liblinear.liblinearutil import problem as make_problem

    made = make_problem(problem.y, problem.matrix())  # a copy; the matrix itself is released
    problem.begin()
    model = train(made, parameter(f"-s 6 -c {problem.C} -e {problem.tol} -B 1 -R -q"))
    problem.end()
    w, b = model.get_decfun()
    return np.array(w), float(b)


def celer(problem: Problem) -> Solution:
    """celer's working sets; a column of large constants replaces the intercept."""
    from celer import LogisticRegression
    from scipy import sparse

    # With a constant of 1e3 the penalty is only a thousandth of |b|.
    constant = sparse.csc_matrix(np.full((len(problem.y), 1), 1e3))
    X = sparse.hstack([problem.matrix(), constant], format="csc")
    problem.begin()
    model = LogisticRegression(C=problem.C, tol=problem.tol, max_iter=1000, fit_intercept=False)
    model.fit(X, problem.y)
    problem.end()
    return model.coef_[0, :-1], 1e3 * float(model.coef_[0, -1])


def skglm(problem: Problem) -> Solution:
    """skglm's proximal Newton with working sets."""
    from skglm import SparseLogisticRegression

    X = problem.matrix().tocsc()
    n = len(problem.y)
    options = {"alpha": 1.0 / (n * problem.C), "fit_intercept": True, "max_iter": 1000}
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
    """Vowpal Wabbit: online truncated gradient in several passes over the rows; ``tol`` is 1 / passes.

    With adaptive rates its ``--l1`` has another unit, so several values are tried; the one with the best
    objective counts, with its time alone.
    """
    from vowpalwabbit import Workspace

    X = problem.matrix()
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
            Workspace(arg_list=options).finish()
            took = time.perf_counter() - begun
            w, b = read_vw(model.read_text(), X.shape[1])
            found.append((problem.objective(X, w, b), took, (w, b)))
    _, problem.solve, solution = min(found, key=lambda one: one[0])
    return solution


def write_vw(X: Any, y: npt.NDArray[np.float64], path: Path) -> None:
    """Write CSR rows as text, with the column numbers as feature names."""
    with path.open("w") as file:
        for i, label in enumerate(y):
            of_row = slice(X.indptr[i], X.indptr[i + 1])
            cells = zip(X.indices[of_row].tolist(), X.data[of_row].tolist(), strict=True)
            words = (f"{j}" if x == 1.0 else f"{j}:{x:.9g}" for j, x in cells)
            file.write(f"{label:g} | {' '.join(words)}\n")


def read_vw(text: str, columns: int) -> Solution:
    """Read the weights of a readable model, and apply the truncation that is still due."""
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


def solve(problem: Problem, method: str) -> Solution:
    """Solve with a method that is imported and compiled; exits if anything is compiled meanwhile."""
    from numba.core import event

    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tiny(Path(folder), problem.folder, problem.d)
        small = Problem(Path(folder), 1.0, 1e-3, problem.d)
        if method.startswith("fcl"):
            from fcl.drivers.warmup import warmup

            windows = method == "fcl" and (problem.folder / "seq.npy").exists()
            warmup(["sequences" if windows else "numbers"])
        METHODS[method](small)
    problem.warm = time.perf_counter() - begun
    with event.install_recorder("numba:compile") as compiled:
        problem.restart()
        solution = METHODS[method](problem)
    if compiled.buffer:
        names = sorted({str(e.data["dispatcher"]) for _, e in compiled.buffer})
        sys.exit(f"expected no compilation while the clock ran, but compiled {', '.join(names)}")
    return solution


def run_here(args: argparse.Namespace) -> None:
    """Make one run, and print its figures as JSON."""
    warnings.simplefilter("ignore")
    problem = Problem(args.folder, args.C, args.tol, args.d)
    w, b = solve(problem, args.run)
    figures = {
        "warm": problem.warm,
        "load": problem.load,
        "solve": problem.solve,
        "objective": problem.objective(problem.matrix(), w, b),
        "active": int(np.count_nonzero(w)),
        "gap": problem.gap,
        "reported": problem.reported,
    }
    print(json.dumps(figures))


# -- the comparison --------------------------------------------------------------------------------


def run(args: argparse.Namespace, folder: Path, method: str, tol: float) -> dict[str, Any]:
    """Make one run in a separate process."""
    script = __file__
    if method == "before":
        script, method = str(args.before / "tools" / "bench" / "peers.py"), "fcl"
    command = [sys.executable, script, args.case, "--run", method, "--folder", str(folder)]
    command += ["--C", str(args.C), "--tol", repr(tol), "--d", str(args.d)]
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(threads, str(args.cores))}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"solve": PATIENCE, "objective": math.inf, "active": 0}
    if done.returncode:
        sys.exit(f"{method} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def climb(
    args: argparse.Namespace, folder: Path, method: str, optimum: float, ladder: Sequence[float]
) -> list[dict[str, Any]]:
    """Tighten the tolerance until the last level is reached; return the figures of all runs."""
    found = []
    for tol in ladder:
        figures = run(args, folder, method, tol)
        figures |= {"method": method, "tol": tol, "away": figures["objective"] / optimum - 1.0}
        print(json.dumps(figures), file=sys.stderr, flush=True)
        found.append(figures)
        if figures["away"] <= LEVELS[-1] or figures["solve"] > LIMIT:
            break
    return found


def cheapest(runs: Sequence[dict[str, Any]], level: float) -> dict[str, Any] | None:
    """The fastest run that came within a level of the optimum; None if no run did."""
    near = [r for r in runs if r["away"] <= level]
    return min(near, key=lambda r: float(r["solve"]), default=None)


def ladder_of(method: str, before: Sequence[list[dict[str, Any]]]) -> Sequence[float]:
    """The tolerances to try; after the first climb, those that reached a level first or fastest."""
    if not before:
        return PASSES if method == "vw" else TOLERANCES
    worth = set()
    for level in LEVELS:
        best = cheapest(before[0], level)
        if best is not None:
            first = next(r for r in before[0] if r["away"] <= level)
            worth |= {best["tol"], first["tol"]}
    return sorted(worth, reverse=True)


def optimum_of(args: argparse.Namespace, folder: Path) -> float:
    """The objective that fcl certifies; exits if its gap is too large for a comparison."""
    figures = run(args, folder, "fcl", OPTIMAL)
    gap = figures.get("gap", math.inf)
    if gap > GOOD_ENOUGH:
        sys.exit(f"expected a relative gap of at most {GOOD_ENOUGH:g}, but fcl certified {gap:.1e}")
    note = "" if gap <= OPTIMAL else f", requested {OPTIMAL:g}"
    print(
        f"{folder.name}, C = {args.C}: optimum {figures['objective']:.10g} (gap {gap:.1e}{note}); "
        f"the files took {np.load(folder / 'made.npy'):.1f} s to make\n"
    )
    return float(figures["objective"])


def row_of(name: str, climbs: list[list[dict[str, Any]]], before: float) -> list[object]:
    """The table row of a method; ``before`` is the time in seconds to make its files."""
    runs = [r for found in climbs for r in found]

    def cell(level: float, seconds: Callable[[dict[str, Any]], float]) -> str:
        best = [cheapest(found, level) for found in climbs]
        times = [seconds(r) for r in best if r is not None]
        return common.spread(times) if len(times) == len(best) else ""

    longest = f"> {max(r['solve'] for r in runs):.3g}"
    ended = [r for r in runs if "load" in r]  # the others were killed
    last = climbs[-1][-1]
    return [
        name,
        *(common.spread([r[part] for r in ended]) if ended else "" for part in ("warm", "load")),
        *(cell(level, lambda r: float(r["solve"])) or longest for level in LEVELS),
        cell(COMPARED, lambda r: before + float(r["load"]) + float(r["solve"])),
        f"{last['objective']:.8g}",
        last["active"],
        f"{last['tol']:g}",
    ]


def reports_of(climbs: list[list[dict[str, Any]]], optimum: float) -> list[list[dict[str, Any]]]:
    """The objectives that the last run of each climb reported, as if each were a run of its own."""
    return [
        [
            found[-1] | {"solve": seconds, "objective": value, "away": value / optimum - 1.0}
            for seconds, value in found[-1]["reported"]
        ]
        for found in climbs
    ]


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
    parser.add_argument("--before", type=Path, help="another checkout, for the method before")
    for name in ("run", "folder", "tol"):  # of one run
        kind = {"folder": Path, "tol": float}.get(name, str)
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_here(args)
        return
    if "before" in args.methods.split(",") and args.before is None:
        parser.error("the method before needs --before CHECKOUT")
    folder = made(args)
    if args.cores == 1:
        common.pin(args.core)
    print(common.machine())
    optimum = optimum_of(args, folder)
    names = [
        name for name in args.methods.split(",") if args.case in GENERATED or name != "fcl-columns"
    ]
    climbs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in names}
    for _ in range(args.repeat):
        for name in names:
            if not any(r["solve"] > LIMIT for found in climbs[name] for r in found):
                ladder = ladder_of(name, climbs[name])
                if ladder:
                    climbs[name].append(climb(args, folder, name, optimum, ladder))
    making = float(np.load(folder / "made.npy"))
    rows = []
    for name in names:
        own = name in {"fcl", "before"} and args.case in GENERATED
        rows.append(row_of(name, climbs[name], 0.0 if own else making))
        if name == "fcl":
            rows.append(row_of("... its progress", reports_of(climbs[name], optimum), making))
    header = ["solver", "warm, s", "load, s", *(f"within {level:g}, s" for level in LEVELS)]
    header += ["from files, s", "objective", "active", "its tolerance"]
    print(common.table(header, rows))


if __name__ == "__main__":
    main()
