#!/usr/bin/env python3
"""Repeat the experiments of the paper on projections onto the L1 ball, with the data at hand.

    python tools/bench/online/ball.py batch [--rows 800]    passes to an accuracy: Figures 4 and 5
    python tools/bench/online/ball.py passes                objective against passes: Figure 6
    python tools/bench/online/ball.py stream                cumulative loss of one pass: Figure 8
    python tools/bench/online/ball.py rows                  time of a row: heap, tree, list, whole vector

Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008. The radius is always the norm of fcl's certified optimum of the penalised problem,
which is therefore the optimum of the ball, too. 20 newsgroups and k-mers of C. elegans take the place of
RCV1. Each method has the best rate of a grid, whose ends are extended until the best is inside. Times are
processor time on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
import fcl
from fcl.features.rows import RowChunk
from fcl.kernels.losses import LOGISTIC, SQUARED
from fcl.online import OnlineOptions
from fcl.online.ball import BallLearner
from tools.bench import common
from tools.bench.online import cases, loops, picture
from tools.bench.online.baselines import Batch, Iterate, fixed_rates, gap_of, line_search

Floats = npt.NDArray[np.float64]
LOSS = (LOGISTIC, 0.0)
#: Shares of f(0) - f* at which passes are counted.
LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)
#: Strength of the penalised problem that sets the radius: for the stream, for the others.
STREAMED, BATCHED = 1.0, 0.1


class Stochastic:
    """One pass after the other over shuffled rows, by the heap or by exponentiated gradient."""

    def __init__(
        self, case: cases.Case, z: float, method: str, rate: float, loss: str = "logistic"
    ) -> None:
        self.case, self.z, self.method, self.rate = case, z, method, rate
        self.code = (SQUARED, 0.0) if loss == "squared" else LOSS
        self.p = case.X.shape[1]
        step = "explicit" if method == "ball" else "implicit"
        options = OnlineOptions(alpha=0.0, radius=z, rate=rate, loss=loss, step=step)
        self.ball = BallLearner(self.p, options)
        if loss == "logistic":  # all begin with the log-odds of the classes
            share = float((case.y > 0.0).mean())
            self.ball.start_at(math.log(share / (1.0 - share)))
        self.eg = loops.make_eg(self.p) if method.startswith("EG") else None
        if self.eg is not None:
            self.eg[-1][loops.INTERCEPT] = self.ball.intercept

    def run(self, order: Any = None) -> float:
        """Learn all rows; returns the sum of the losses, each before its update."""
        case = (
            self.case if order is None else cases.Case("", self.case.X[order], self.case.y[order])
        )
        n = len(case.y)
        if self.eg is None:
            margins = np.zeros(n)
            self.ball.learn(RowChunk(*case.matrix), case.y, np.ones(n), margins)
            if self.code[0] == SQUARED:
                return float(((margins - case.y) ** 2).sum())
            return float(np.logaddexp(0.0, -case.y * margins).sum())
        power = 0.0 if self.method == "EG, constant rate" else 0.5
        given = (*case.matrix, case.y, 0, n, self.code, self.rate, 1.0, power, self.z)
        return float(loops.descend_eg(*given, *self.eg))

    @property
    def weights(self) -> Floats:
        """The weights, float64 (p,)."""
        if self.eg is not None:
            up, down, state = self.eg
            return np.asarray(self.z * (up - down) / state[loops.TOTAL])
        w = np.zeros(self.p)
        ids, found, _ = self.ball.point()
        w[ids] = found
        return w


def best_rate(
    start: float, cost: Callable[[float], float], factor: float = math.sqrt(10.0)
) -> float:
    """The rate of a grid with the least cost; its ends are extended until the best is inside."""
    costs = {k: cost(start * factor**k) for k in (-1, 0, 1)}
    while True:
        best = min(costs, key=lambda k: costs[k])
        if min(costs) < best < max(costs):
            return start * factor**best
        end = best - 1 if best == min(costs) else best + 1
        costs[end] = cost(start * factor**end)


# -- Figures 4 and 5 -----------------------------------------------------------------------------------


def synthetic(n: int, squared: bool) -> cases.Case:
    """The paper's rows: n of n features, half of the true weights 0, unit noise or 10 % flips."""
    from scipy import sparse

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n))
    truth = np.where(rng.random(n) < 0.5, rng.normal(size=n), 0.0)
    y = X @ truth + rng.normal(size=n)
    if not squared:
        y = np.sign(X @ truth) * np.where(rng.random(n) < 0.9, 1.0, -1.0)
    return cases.Case("", sparse.csr_matrix(X), y)


def curve(
    steps: Iterator[Iterate], optimum: float, most: float, last: float
) -> list[tuple[float, float]]:
    """Passes and distances from the optimum, until a distance of ``last`` or ``most`` passes."""
    found = []
    for step in steps:
        found.append((step.passes, step.value - optimum))
        if step.value - optimum <= last or step.passes >= most:
            break
    return found


def batch_of(
    squared: bool, args: argparse.Namespace
) -> tuple[str, dict[str, picture.Curve], list[Any]]:
    """Title, curves and lines of the table for one loss."""
    loss, n, most = "squared" if squared else "logistic", args.rows, args.passes
    case = synthetic(n, squared)
    X, y = case.X.toarray(), case.y
    problem = Batch(X, y, squared)
    first, gradient = problem.value(np.zeros(n))
    # the strength of the penalty: 5 % of the one at which all weights are 0
    C = 1.0 / (0.05 * np.abs(gradient).max() * n)
    model = fcl.train(fcl.open_data(X, y=y), "columns", C=C, loss=loss, tol=1e-9).model
    w = np.zeros(n)
    w[model.ids] = model.weights
    z = float(np.abs(w).sum())
    optimum, gradient = problem.value(w)
    span = first - optimum
    print(
        f"{loss}, n = {n}: z = {z:.4g}, {np.count_nonzero(w)} active, f(0) = {first:.6g}, "
        f"f* = {optimum:.8g} (gap of the ball {gap_of(w, gradient, z) / optimum:.1e} relative)",
        flush=True,
    )

    def batch_steps(rate: float, most: float) -> list[tuple[float, float]]:
        return curve(fixed_rates(problem, z, n, rate), optimum, most, 1e-6 * span)

    def stochastic(method: str, passes: int, rate: float) -> list[tuple[float, float]]:
        learner = Stochastic(case, z, method, rate, loss)
        found, rng = [(0.0, span)], np.random.default_rng(1)
        for k in range(passes):
            learner.run(rng.permutation(n))
            found.append((k + 1.0, problem.value(learner.weights)[0] - optimum))
        return found

    searched = curve(line_search(problem, z, n), optimum, most, 1e-6 * span)
    curves = {"line search": searched}
    start = 1.0 if squared else 10.0
    rate = best_rate(start, lambda rate: min(value for _, value in batch_steps(rate, 40)))
    curves[f"batch, rate {rate:.2g}"] = batch_steps(rate, most)

    def after_4(method: str, rate: float) -> float:
        return stochastic(method, 4, rate)[-1][1]

    passes = min(most, 20 if n > 1000 else 100)
    for method, label in (("ball", "one row at a time"), ("ball, implicit", "implicit, one row")):
        # a longer explicit step than 1 / (largest squared length of a row) makes the squared loss diverge
        rate = best_rate(0.1 / n if squared else 0.1, partial(after_4, method))
        curves[f"{label}, rate {rate:.2g}"] = stochastic(method, passes, rate)
    lines: list[Any] = []
    for name, found in curves.items():
        to = [next((f"{p:.0f}" for p, v in found if v <= level * span), "-") for level in LEVELS]
        lines.append([f"{loss}, {name}", *to, f"{min(v for _, v in found) / span:.1e}"])
    panel: dict[str, picture.Curve] = {
        name.split(",")[0]: ([p for p, _ in found], [max(v / span, 1e-7) for _, v in found])
        for name, found in curves.items()
    }
    return f"{loss} loss, n = {n}", panel, lines


def batch(args: argparse.Namespace) -> None:
    """Count the passes of line search, batch and stochastic steps to shares of f(0) - f*."""
    panels, table = {}, []
    for squared in (True, False):
        title, panels_of, lines = batch_of(squared, args)
        panels[title] = panels_of
        table += lines
    levels = [f"{level:.0e}" for level in LEVELS]
    print(
        common.table(["passes to (f - f*) / (f(0) - f*) <=", *levels, "least"], table), flush=True
    )
    if not args.no_plot:
        picture.draw(f"ball-batch-{args.rows}", panels, "passes", "(f - f*) / (f(0) - f*)")


# -- Figures 6 and 8 -----------------------------------------------------------------------------------


def radius_of(case: cases.Case, C: float) -> tuple[float, Floats]:
    """The norm of fcl's optimum at strength C, and its weights."""
    w, _, model = case.optimum(C, 1e-6)
    z = float(np.abs(w).sum())
    print(
        f"{case.name}: C = {C:g}, z = {z:.4g}, {len(model.ids)} active of {case.X.shape[1]:,}",
        flush=True,
    )
    return z, w


def passes_of(case: cases.Case, args: argparse.Namespace) -> dict[str, picture.Curve]:
    """The curves of one case."""
    z, w = radius_of(case, STREAMED if case.name == "20news" else BATCHED)
    problem = Batch(case.X, case.y, False)
    optimum, gradient = problem.value(w)
    gap = gap_of(w, gradient, z)
    print(f"  f* = {optimum:.8g}, gap of the ball {gap / optimum:.1e} relative", flush=True)

    def after(method: str, rate: float, count: int) -> list[tuple[float, float]]:
        learner = Stochastic(case, z, method, rate)
        found, rng = [], np.random.default_rng(1)
        for k in range(count):
            learner.run(rng.permutation(len(case.y)))
            found.append((k + 1.0, problem.value(learner.weights)[0] - optimum))
        return found

    def first_pass(method: str, rate: float) -> float:
        return after(method, rate, 1)[-1][1]

    curves = {"line search": curve(line_search(problem, z, len(w)), optimum, args.passes, 0.0)}
    for method, label in (
        ("ball", "one row at a time"),
        ("ball, implicit", "one row at a time, implicit"),
        ("EG", "one row at a time, EG"),
    ):
        start = 10.0 if case.name == "20news" else 0.1
        rate = best_rate(start, partial(first_pass, method))
        curves[label] = after(method, rate, args.passes)
        print(f"  {label}: rate {rate:.3g}", flush=True)
    for label, values in curves.items():
        line = "  ".join(f"{p:.0f}: {v / optimum:.2e}" for p, v in values)
        print(f"  {label}, passes: (f - f*) / f*   {line}", flush=True)
    return {
        label: ([p for p, _ in values], [max(v / optimum, 1e-6) for _, v in values])
        for label, values in curves.items()
    }


def passes(args: argparse.Namespace) -> None:
    """Draw the mean loss after each pass at the same radius: line search, the heap and EG."""
    names = args.cases.split(",")
    panels = {
        cases.TITLES[name]: passes_of(cases.load(name, args.every, unit_rows=True), args)
        for name in names
    }
    if not args.no_plot:
        picture.draw("ball-passes", panels, "passes", "(f - f*) / f*", logarithmic="y")


def cumulative(case: cases.Case, z: float, method: str, rate: float) -> float:
    """The sum of the losses of one pass, each before the update."""
    return Stochastic(case, z, method, rate).run()


def stream(args: argparse.Namespace) -> None:
    """Print cumulative losses of one pass at the best rates, and the nonzeros among seen features."""
    table = []
    for name in args.cases.split(","):
        case = cases.load(name, args.every, unit_rows=True)
        z, w = radius_of(case, STREAMED)
        least = len(case.y) * Batch(case.X, case.y, False).value(w)[0]
        print(f"  the best fixed weights of the ball pay {least:.1f} over all rows", flush=True)
        seen = np.unique(case.X.indices).size
        for method in ("ball", "ball, implicit", "EG", "EG, constant rate"):
            start = {"20news": 30.0, "celegans": 0.1}[name] / (
                10.0 if "constant" in method else 1.0
            )
            rate = best_rate(start, partial(cumulative, case, z, method))
            learner = Stochastic(case, z, method, rate)
            begun = time.process_time()
            total = learner.run()
            row = 1e6 * (time.process_time() - begun) / len(case.y)
            active = np.count_nonzero(learner.weights)
            share = "100 %" if method.startswith("EG") else f"{active / seen:.1%}"
            table.append(
                [cases.TITLES[name], method, f"{rate:.3g}", f"{total:.1f}", share, f"{row:.1f}"]
            )
    head = ["rows", "method", "rate", "cumulative loss", "nonzero of seen features", "us a row"]
    print(common.table(head, table), flush=True)


# -- time of a row -------------------------------------------------------------------------------------


def random_rows(n: int, p: int, k: int) -> cases.Case:
    """Rows of k random features of p with normal values, and random labels."""
    from scipy import sparse

    rng = np.random.default_rng(2)
    ids = np.sort(rng.integers(0, p // k, (n, k)) + np.arange(k) * (p // k), axis=1)
    values = rng.normal(size=n * k) / math.sqrt(k)
    X = sparse.csr_matrix((values, ids.ravel(), np.arange(0, n * k + 1, k)), (n, p))
    return cases.Case(f"random, p = {p:,}, k = {k}", X, rng.choice([-1.0, 1.0], n))


def time_rows(case: cases.Case, z: float, rate: float, n: int) -> list[str]:
    """Microseconds of a row by heap, tree, list and whole vector, timed on the second half."""
    X, y, p = case.X[: 2 * n], case.y[: 2 * n], case.X.shape[1]
    given = (*cases.Case("", X, y).matrix, y)
    taken = []
    learner = BallLearner(p, OnlineOptions(alpha=0.0, radius=z, rate=rate, step="explicit"))
    halves = [cases.Case("", X[:n], y[:n]), cases.Case("", X[n:], y[n:])]
    for half in halves:
        chunk = RowChunk(*half.matrix)
        begun = time.process_time()
        learner.learn(chunk, half.y, np.ones(len(half.y)), np.zeros(len(half.y)))
        taken.append(time.process_time() - begun)
    times = [taken[-1] / len(halves[1].y)]
    active = len(learner.point()[0])
    tree, state = loops.make_tree(p), np.zeros(loops.STATES)
    state[loops.ROOT] = p
    w, listed, members = np.zeros(p), np.zeros(p, np.uint8), np.zeros(p, np.int64)
    v, out = np.zeros(p), np.zeros(p)
    runs: list[tuple[Any, tuple[Any, ...], int]] = [
        (loops.descend_tree, (tree, state), n),
        (loops.descend_list, (w, listed, members, np.zeros(loops.STATES)), n),
        (loops.descend_dense, (v, out, np.zeros(loops.STATES)), min(n, 200)),
    ]
    for descend, arrays, rows in runs:
        last = n + rows
        first = n
        if (
            rows < n
        ):  # the whole vector is too slow for the first half: it begins with the list's weights
            v[:], arrays[-1][:] = w, runs[1][1][-1]
        else:
            descend(*given, 0, n, LOSS, rate, z, *arrays)
        begun = time.process_time()
        descend(*given, first, last, LOSS, rate, z, *arrays)
        times.append((time.process_time() - begun) / rows)
    heap, by_tree, *_ = times
    found = [f"{1e6 * t:.1f}" for t in times]
    k = len(X.indices) / X.shape[0]
    return [
        case.name,
        f"{k:.0f}",
        f"{active:,}",
        *found,
        f"{by_tree / heap:.1f}",
        f"{1e9 * heap / k:.0f}",
    ]


def rows(args: argparse.Namespace) -> None:
    """Print the time of a row by heap, tree, list and whole vector."""
    warm = random_rows(20, 100, 5)
    time_rows(warm, 1.0, 0.1, 5)
    table = []
    for p, k, z, n in (
        (1_000_000, 100, 5.0, 4000),
        (1_000_000, 100, 20.0, 4000),
        (2_000_000, 1000, 20.0, 1000),
    ):
        table.append(time_rows(random_rows(2 * n, p, k), z, 1.0, n))
        print(*table[-1], sep="  ", flush=True)
    for name in args.cases.split(","):
        case = cases.load(name, args.every, unit_rows=True)
        z, _ = radius_of(case, STREAMED)
        n = len(case.y) // 2 if name == "20news" else min(len(case.y) // 2, 10_000)
        table.append(time_rows(case, z, 30.0 if name == "20news" else 0.1, n))
    head = [
        "rows",
        "k",
        "active",
        "heap, us",
        "tree",
        "list",
        "whole vector",
        "tree / heap",
        "heap, ns a feature",
    ]
    print(common.table(head, table), flush=True)


COMMANDS = {"batch": batch, "passes": passes, "stream": stream, "rows": rows}


def main() -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument(
        "--rows", type=int, default=800, help="batch: rows and features (default 800)"
    )
    parser.add_argument(
        "--passes", type=int, default=0, help="most passes (batch: 300, passes: 10)"
    )
    parser.add_argument("--cases", default="20news,celegans", help="default %(default)s")
    parser.add_argument("--every", type=int, default=160, help="every k-th window (default 160)")
    parser.add_argument("--no-plot", action="store_true", help="print tables alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    args.passes = args.passes or {"batch": 300}.get(args.command, 10)
    common.pin(args.core)
    print(common.machine(), flush=True)
    COMMANDS[args.command](args)


if __name__ == "__main__":
    main()
