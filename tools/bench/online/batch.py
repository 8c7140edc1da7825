#!/usr/bin/env python3
"""Compare methods on the L1 ball by operations and by time: Figures 4 to 6 of the paper on projections.

    python tools/bench/online/batch.py synthetic [--rows 800]     n rows of n features: Figures 4 and 5
    python tools/bench/online/batch.py real [--cases 20news]      texts and k-mers: Figure 6

Projected gradient with a line search, or with steps along the mean gradient of all rows, of 25 %, of 100
rows and of one; exponentiated gradient with the same; coordinate descent on the penalised problem whose
optimum has the norm z; and Clarabel, an interior-point solver, on the ball itself (extra ``peers``). The
loss of a point of coordinate descent is that of its projection onto the ball, which is not timed.

An operation is a multiplication or an addition: 2 for each entry of the matrix that a margin or a
gradient reads, 8 for each weight of a projected vector, 2 log2(m) for a weight that moves in a heap of m,
10 for an exponential; of Clarabel those of the factors of its matrix, dense ones of as many entries.
Seconds are processor time on one core. Rates are the best of a grid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.online import project_l1_ball
from tools.bench import common
from tools.bench.online import cases, loops, picture
from tools.bench.online.ball import BATCHED, STREAMED, Stochastic, best_rate, radius_of
from tools.bench.online.baselines import Batch, Iterate, fixed_rates, gap_of, line_search

Floats = npt.NDArray[np.float64]
#: Shares of f(0) - f* (synthetic rows) or of f* (real rows) at which operations and seconds are noted.
LEVELS, REAL_LEVELS = (1e-1, 1e-2, 1e-3, 1e-4), (1.0, 0.3, 0.1, 0.03)
#: Least distance that is of interest, and operations for a weight of a whole vector.
LAST, WHOLE = 1e-6, 8.0


#: Most points of a drawn curve.
MOST_DRAWN = 150
#: Operations, seconds and distance from the optimum.
Point = tuple[float, float, float]


class Step(NamedTuple):
    """A point of a method, after so many operations and seconds; some methods only tell its loss."""

    operations: float
    seconds: float
    w: Floats | None
    value: float = np.nan


class Problem:
    """The mean loss of a case over the ball of radius z, and its optimum.

    C : weight of the losses in the penalised problem whose optimum has the norm z
    """

    def __init__(self, case: cases.Case, squared: bool, w: Floats, C: float) -> None:
        self.case, self.squared = case, squared
        dense = case.X.nnz > 0.5 * case.X.shape[0] * case.X.shape[1]
        self.mean = Batch(case.X.toarray() if dense else case.X, case.y, squared)
        self.z, self.C, self.p = float(np.abs(w).sum()), C, len(w)
        self.optimum, gradient = self.mean.value(w)
        self.gap = gap_of(w, gradient, self.z) / self.optimum
        self.first = self.mean.value(np.zeros(self.p))[0]
        self.entries = float(case.X.nnz)


# -- the methods ---------------------------------------------------------------------------------------


def timed(steps: Iterator[tuple[float, Floats]]) -> Iterator[Step]:
    """Add the processor time of the steps."""
    seconds = 0.0
    while True:
        begun = time.process_time()
        step = next(steps, None)
        seconds += time.process_time() - begun
        if step is None:
            return
        yield Step(step[0], seconds, step[1])


def whole(problem: Problem, iterates: Iterator[Iterate]) -> Iterator[Step]:
    """Steps of methods that read all rows and project all weights."""
    each = 4.0 * problem.entries + WHOLE * problem.p
    return timed((iterate.passes * each, iterate.w) for iterate in iterates)


def exponentiated(problem: Problem, rate: float) -> Iterator[Step]:
    """Exponentiated gradient with the gradient of all rows."""
    p, z = problem.p, problem.z
    each = 4.0 * problem.entries + (6.0 + 2.0 * loops.EXPONENTIAL) * p

    def steps() -> Iterator[tuple[float, Floats]]:
        both, t = np.full(2 * p, 0.5 / p), 0
        while True:
            w = z * (both[:p] - both[p:])
            yield t * each, w
            t += 1
            change = rate / np.sqrt(t) * problem.mean.value(w)[1]
            limit = loops.MOST_EXPONENT
            both *= np.exp(np.clip(np.concatenate([-change, change]), -limit, limit))
            both /= both.sum()

    return timed(steps())


def stochastic(problem: Problem, method: str, batch: int, rate: float) -> Iterator[Step]:
    """Steps along the mean gradients of batches of rows; a point for each quarter of a pass."""
    n, loss = len(problem.case.y), "squared" if problem.squared else "logistic"
    learner = Stochastic(problem.case, problem.z, method, rate, loss, batch)
    random = np.random.default_rng(1)
    operations = seconds = 0.0
    while True:
        yield Step(operations, seconds, learner.weights)
        for rows in np.array_split(random.permutation(n), 4):
            part = cases.Case("", problem.case.X[rows], problem.case.y[rows])
            matrix = part.matrix
            begun = time.process_time()
            learner.learn(matrix, part.y)
            seconds += time.process_time() - begun
            steps = -(-len(rows) // batch)
            moved = min(part.X.nnz, steps * problem.p)
            operations += 4.0 * part.X.nnz + learner.operations_of_a_weight() * moved
            yield Step(operations, seconds, learner.weights)


def descent(problem: Problem) -> Iterator[Step]:
    """Coordinate descent, cycle by cycle; its points are projected onto the ball."""
    y, n, squared = problem.case.y, len(problem.case.y), problem.squared
    X = problem.case.X.tocsc()
    matrix = (X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data)
    curvatures = np.asarray(X.multiply(X).sum(axis=0)).ravel() * (2.0 if squared else 0.25)
    w, operations, seconds = np.zeros(problem.p), 0.0, 0.0
    problem.mean.value(w)
    m = np.full(n, problem.mean.b)
    r = np.array([loops.slope_of(squared, *pair) for pair in zip(y, m, strict=True)])
    penalty = 1.0 / (problem.C * n)
    while True:
        yield Step(operations, seconds, project_l1_ball(w, problem.z))
        begun = time.process_time()
        operations += loops.sweep(*matrix, y, squared, curvatures, penalty, w, m, r)
        seconds += time.process_time() - begun


def cone_program(problem: Problem) -> tuple[Any, ...]:
    """The ball's problem for Clarabel: P, q, A, b and cones.

    Variables are w, its sizes u, the intercept, and the residuals (squared loss); or t with
    exp(-t) + exp(-y m - t) <= 1 and two bounds of these exponentials (logistic loss).
    """
    import clarabel
    from scipy import sparse

    X, y = problem.case.X, problem.case.y
    n, p = X.shape
    one, eye = sparse.csr_matrix(np.ones((n, 1))), sparse.identity(n, format="csr")
    empty = sparse.csr_matrix((n, n))
    if problem.squared:
        more = n
        P = sparse.block_diag([sparse.csc_matrix((2 * p + 1,) * 2), 2.0 / n * eye], format="csc")
        q = np.zeros(2 * p + 1 + n)
        blocks = [sparse.hstack([X, sparse.csr_matrix((n, p)), one, -eye])]
        sides, cones = [y], [clarabel.ZeroConeT(n)]
    else:
        more = 3 * n
        P = sparse.csc_matrix((2 * p + 1 + more,) * 2)
        q = np.concatenate([np.zeros(2 * p + 1), np.full(n, 1.0 / n), np.zeros(2 * n)])
        head = sparse.csr_matrix((n, 2 * p + 1))
        signed = sparse.diags(y)
        margins = sparse.hstack([signed @ X, sparse.csr_matrix((n, p)), signed @ one])
        blocks = [sparse.hstack([head, empty, eye, eye])]
        sides, cones = [np.ones(n)], [clarabel.NonnegativeConeT(n)]
        none = sparse.csr_matrix((n, 2 * p + 1 + more))
        places = np.arange(3 * n).reshape(3, n).T.ravel()  # the three rows of each cone
        for exponent, bound in ((head, [-eye, empty]), (margins, [empty, -eye])):
            rows = [sparse.hstack([exponent, eye, empty, empty]), none]
            rows.append(sparse.hstack([head, empty, *bound]))
            blocks.append(sparse.vstack(rows).tocsr()[places])
            sides.append(np.tile([0.0, 1.0, 0.0], n))
            cones += [clarabel.ExponentialConeT()] * n
    own, rest = sparse.identity(p), sparse.csr_matrix((p, 1 + more))
    blocks += [sparse.hstack([sign * own, -own, rest]) for sign in (1.0, -1.0)]
    total = np.concatenate([np.zeros(p), np.ones(p), np.zeros(1 + more)])
    blocks.append(sparse.csr_matrix(total))
    sides.append(np.concatenate([np.zeros(2 * p), [problem.z]]))
    cones.append(clarabel.NonnegativeConeT(2 * p + 1))
    return P, q, sparse.vstack(blocks).tocsc(), np.concatenate(sides), cones


def interior_point(problem: Problem, most: int) -> Iterator[Step]:
    """Clarabel's own objective after each iteration; its points are feasible only at the end."""
    import clarabel

    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads, settings.max_iter = False, 1, most
    found: list[tuple[float, float]] = []

    def note(info: Any) -> int:
        found.append((time.process_time() - begun, info.cost_primal))
        return 0

    begun = time.process_time()
    solver = clarabel.DefaultSolver(*cone_program(problem), settings)
    solver.set_termination_callback(note)
    solver.solve()
    factors = (2.0 * solver.get_info().linsolver.nnzL) ** 1.5 / 3.0
    for k, (seconds, value) in enumerate(found):
        yield Step((k + 1) * factors, seconds, None, value)


# -- curves --------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """When a run ends: passes over the matrix that its operations would make, seconds, distance."""

    passes: float
    seconds: float
    least: float


def curve(problem: Problem, steps: Iterator[Step], limits: Limits) -> list[Point]:
    """Operations, seconds and distances from the optimum."""
    found: list[Point] = []
    for step in steps:
        value = step.value if step.w is None else problem.mean.value(step.w)[0]
        found.append((step.operations, step.seconds, abs(value - problem.optimum)))
        over = step.operations >= limits.passes * 4.0 * problem.entries
        if found[-1][2] <= limits.least or over or step.seconds >= limits.seconds:
            break
    return found


def curves_of(
    problem: Problem, args: argparse.Namespace, least: float, start: float
) -> dict[str, list[Point]]:
    """The curves of all methods, whose names have their rates.

    start : rate of the first trial with the gradient of all rows
    """
    n, p, z = len(problem.case.y), problem.p, problem.z
    limits = Limits(args.passes, args.seconds, least)
    runs: dict[str, tuple[Callable[[float], Iterator[Step]], float]] = {
        "ball, all rows": (
            lambda rate: whole(problem, fixed_rates(problem.mean, z, p, rate)),
            start,
        ),
        "EG, all rows": (partial(exponentiated, problem), 10.0 * start / z),
    }
    for label, batch in (("25 %", -(-n // 4)), ("100 rows", 100), ("1 row", 1)):
        # the squared loss diverges at steps longer than 1 / (largest squared length of a row)
        short = 0.1 / n if problem.squared and batch == 1 else start / (10.0 if batch == 1 else 3.0)
        runs[f"ball, {label}"] = (partial(stochastic, problem, "ball", batch), short)
        runs[f"EG, {label}"] = (partial(stochastic, problem, "EG", batch), 10.0 * short / z)
    found = {"line search": curve(problem, whole(problem, line_search(problem.mean, z, p)), limits)}
    found["coordinate descent"] = curve(problem, descent(problem), limits)
    for name, (method, first) in runs.items():
        if name.split(", ")[1] in args.without:
            continue
        tuned = Limits(40.0 if "all" in name else args.tuned, args.seconds / 4.0, least)

        def cost(rate: float, method: Any = method, tuned: Limits = tuned) -> float:
            return curve(problem, method(rate), tuned)[-1][2]

        rate = best_rate(first, cost)
        found[f"{name}; rate {rate:.2g}"] = curve(problem, method(rate), limits)
        print(f"  {name}: rate {rate:.3g}", flush=True)
    if args.interior:
        steps = interior_point(problem, args.interior)
        found["interior point"] = curve(
            problem, steps, limits._replace(passes=np.inf, seconds=np.inf)
        )
    return found


def lines_of(
    title: str, curves: dict[str, list[Point]], unit: float, levels: Sequence[float]
) -> tuple[dict[str, picture.Curve], dict[str, picture.Curve], list[list[str]]]:
    """The panels by operations and by seconds, and the lines of the table."""
    lines = []
    for name, found in curves.items():
        # the first time after which the distance stays below a level, since some methods come back up
        cells = []
        for level in levels:
            above = [k for k, step in enumerate(found) if step[2] > level * unit]
            last = above[-1] + 1 if above else 0
            reached = last < len(found)
            cells.append(f"{found[last][0] / 1e9:.3g}, {found[last][1]:.2g}" if reached else "-")
        least = min(step[2] for step in found) / unit
        lines.append([title, name, *cells, f"{least:.1e}", f"{found[-1][0] / 1e9:.3g}"])
    panels: list[dict[str, picture.Curve]] = [{}, {}]
    for which in (0, 1):
        for name, found in curves.items():
            shown = found[1 :: -(-len(found) // MOST_DRAWN)]
            across = [max(step[which], 1e-9) for step in shown]
            up = [max(step[2] / unit, 0.1 * LAST) for step in shown]
            panels[which][name.split(";")[0]] = (across, up)
    return panels[0], panels[1], lines


def told(title: str, curves: dict[str, list[Point]], unit: float, *shown: Any) -> dict[str, Any]:
    """Print the table of a problem; returns its panels by operations and by seconds.

    shown : the levels, and the unit in words
    """
    levels, words = shown
    by_operations, by_seconds, lines = lines_of(title, curves, unit, levels)
    head = ["problem", f"10^9 operations, s to {words} <=", *(f"{level:g}" for level in levels)]
    print(common.table([*head, "least", "10^9 in total"], lines), flush=True)
    return {f"{title}: operations": by_operations, f"{title}: seconds": by_seconds}


def made(n: int, squared: bool) -> cases.Case:
    """The paper's rows: n of n features, half of the true weights 0, unit noise or 10 % flips."""
    from scipy import sparse

    random = np.random.default_rng(0)
    X = random.normal(size=(n, n))
    truth = np.where(random.random(n) < 0.5, random.normal(size=n), 0.0)
    y = X @ truth + random.normal(size=n)
    if not squared:
        y = np.sign(X @ truth) * np.where(random.random(n) < 0.9, 1.0, -1.0)
    return cases.Case("", sparse.csr_matrix(X), y)


def solved(case: cases.Case, squared: bool) -> Problem:
    """The problem at 5 % of the penalty at which all weights are 0; prints its optimum."""
    n, loss = len(case.y), "squared" if squared else "logistic"
    X = case.X.toarray()
    _, gradient = Batch(X, case.y, squared).value(np.zeros(n))
    C = 1.0 / (0.05 * np.abs(gradient).max() * n)
    begun = time.process_time()
    model = fcl.train(fcl.open_data(X, y=case.y), "columns", C=C, loss=loss, tol=1e-9).model
    taken = time.process_time() - begun
    w = np.zeros(n)
    w[model.ids] = model.weights
    problem = Problem(case, squared, w, C)
    print(
        f"{loss}, n = {n}: z = {problem.z:.4g}, {np.count_nonzero(w)} active, f(0) = "
        f"{problem.first:.6g}, f* = {problem.optimum:.8g} (gap of the ball {problem.gap:.1e}); fcl "
        f"took {taken:.2g} s to a gap of 1e-9",
        flush=True,
    )
    return problem


def synthetic(args: argparse.Namespace) -> None:
    """Squared and logistic loss on the paper's rows."""
    panels: dict[str, Any] = {}
    words = "(f - f*) / (f(0) - f*)"
    for squared in (True, False):
        problem = solved(made(args.rows, squared), squared)
        span = problem.first - problem.optimum
        curves = curves_of(problem, args, LAST * span, 1.0 if squared else 10.0)
        title = f"{'squared' if squared else 'logistic'}, n = {args.rows:,}"
        panels |= told(title, curves, span, LEVELS, words)
    if not args.no_plot:
        picture.draw(f"ball-batch-{args.rows}", panels, "operations, or seconds", words)


def real(args: argparse.Namespace) -> None:
    """Texts, and k-mers: the mean logistic loss at the radius of fcl's optimum."""
    panels: dict[str, Any] = {}
    words = "(f - f*) / f*"
    for name in args.cases.split(","):
        case = cases.load(name, args.every, unit_rows=True)
        C = STREAMED if name == "20news" else BATCHED
        problem = Problem(case, False, radius_of(case, C)[1], C)
        print(f"  f* = {problem.optimum:.8g}, gap of the ball {problem.gap:.1e}", flush=True)
        curves = curves_of(
            problem, args, LAST * problem.optimum, 100.0 if name == "20news" else 1.0
        )
        panels |= told(cases.TITLES[name], curves, problem.optimum, REAL_LEVELS, words)
    if not args.no_plot:
        picture.draw("ball-passes", panels, "operations, or seconds", words)


def main() -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=["synthetic", "real"])
    parser.add_argument("--rows", type=int, default=800, help="synthetic: default %(default)s")
    parser.add_argument("--cases", default="20news,celegans", help="real: default %(default)s")
    parser.add_argument("--every", type=int, default=160, help="every k-th window (default 160)")
    parser.add_argument("--passes", type=float, default=300.0, help="most passes (default 300)")
    parser.add_argument("--seconds", type=float, default=60.0, help="most seconds of a run (60)")
    parser.add_argument("--tuned", type=float, default=4.0, help="passes for a rate (default 4)")
    parser.add_argument(
        "--interior", type=int, default=100, help="most iterations of Clarabel; 0 leaves it out"
    )
    parser.add_argument("--without", default="", help="batches to leave out, such as '1 row'")
    parser.add_argument("--no-plot", action="store_true", help="print tables alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    print("small rows, to compile:", flush=True)
    few = argparse.Namespace(**{**vars(args), "passes": 1.0, "tuned": 1.0, "interior": 1})
    for squared in (True, False):
        curves_of(solved(made(60, squared), squared), few, 0.0, 1.0)
    {"synthetic": synthetic, "real": real}[args.command](args)


if __name__ == "__main__":
    main()
