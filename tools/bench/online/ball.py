#!/usr/bin/env python3
"""Repeat the experiments of the paper on projections onto the L1 ball, with the data at hand.

    python tools/bench/online/ball.py stream    cumulative loss and errors of one pass: Figure 8
    python tools/bench/online/ball.py rows      time of a row: heap, tree, list, whole vector

Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008; :mod:`tools.bench.online.batch` has Figures 4 to 6. The radius is the norm of
fcl's certified optimum of the penalised problem, which is therefore the optimum of the ball, too, or a
multiple of it. 20 newsgroups, pairs of its words, and k-mers of C. elegans take the place of RCV1. Each
method has the best rate of a grid, whose ends are extended until the best is inside. Times are processor
time on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.features.rows import RowChunk
from fcl.kernels.losses import LOGISTIC, SQUARED
from fcl.online import OnlineOptions
from fcl.online.ball import BallLearner
from tools.bench import common
from tools.bench.online import cases, loops
from tools.bench.online.baselines import Batch

Floats = npt.NDArray[np.float64]
LOSS = (LOGISTIC, 0.0)
#: Strength of the penalised problem that sets the radius: for the stream, for the others.
STREAMED, BATCHED = 1.0, 0.1
#: Radius and rate that the searches for pairs of words begin with.
FIRST_OF_PAIRS = (1e5, 100.0)


class Stochastic:
    """Learns rows, one or a batch at a time, by the heap or by exponentiated gradient (EG)."""

    def __init__(
        self,
        case: cases.Case,
        z: float,
        method: str,
        rate: float,
        loss: str = "logistic",
        batch: int = 1,
    ) -> None:
        self.case, self.z, self.method, self.rate = case, z, method, rate
        self.code = (SQUARED, 0.0) if loss == "squared" else LOSS
        self.p, self.batch = case.X.shape[1], batch
        step = "implicit" if method == "ball, implicit" else "explicit"
        options = OnlineOptions(alpha=0.0, radius=z, rate=rate, loss=loss, step=step, batch=batch)
        self.ball = BallLearner.kind_for(options)(self.p, options)
        if loss == "logistic":  # all begin with the log-odds of the classes
            share = float((case.y > 0.0).mean())
            self.ball.start_at(math.log(share / (1.0 - share)))
        self.eg = loops.make_eg(self.p) if method.startswith("EG") else None
        if self.eg is not None:
            self.eg[-1][loops.INTERCEPT] = self.ball.intercept

    def learn(self, matrix: tuple[Any, ...], y: Floats) -> tuple[float, float]:
        """Learn rows; returns the sums of losses and of errors, each before its update.

        matrix : indptr, ids and values
        """
        n = len(y)
        if self.eg is not None:
            power = 0.0 if self.method == "EG, constant rate" else 0.5
            given = (*matrix, y, 0, n, self.code, self.rate, 1.0, power, self.z, self.batch)
            losses, errors = loops.descend_eg(*given, *self.eg)
            return float(losses), float(errors)
        margins = np.zeros(n)
        self.ball.learn(RowChunk(*matrix), y, np.ones(n), margins)
        self.ball.end_pass()
        errors = float(np.count_nonzero(y * margins <= 0.0))
        if self.code[0] == SQUARED:
            return float(((margins - y) ** 2).sum()), errors
        return float(np.logaddexp(0.0, -y * margins).sum()), errors

    def operations_of_a_weight(self) -> float:
        """Operations of a weight that a step changes, without those of the gradient."""
        if self.eg is not None:
            return 6.0 + loops.EXPONENTIAL
        return 2.0 + 2.0 * math.log2(2.0 + len(self.ball.point()[0]))

    @property
    def weights(self) -> Floats:
        """The weights, float64 (p,)."""
        if self.eg is not None:
            up, down, _, state = self.eg
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


# -- Figure 8 -----------------------------------------------------------------------------------


def radius_of(case: cases.Case, C: float) -> tuple[float, Floats]:
    """The norm of fcl's optimum at strength C, and its weights."""
    w, _, model = case.optimum(C, 1e-6)
    z = float(np.abs(w).sum())
    print(
        f"{case.name}: C = {C:g}, z = {z:.4g}, {len(model.ids)} active of {case.X.shape[1]:,}",
        flush=True,
    )
    return z, w


def cumulative(case: cases.Case, z: float, method: str, rate: float) -> float:
    """The sum of the losses of one pass, each before the update."""
    return Stochastic(case, z, method, rate).learn(case.matrix, case.y)[0]


def stream(args: argparse.Namespace) -> None:
    """Print losses and errors of one pass at the best rates, and the nonzeros among seen features."""
    table = []
    for name in args.cases.split(","):
        case = cases.load(name, args.every, unit_rows=True)
        if name in cases.GROUPS:
            print(f"{case.name}: {case.X.shape[1]:,} features, {case.X.nnz:,} entries", flush=True)
            first_z, start = FIRST_OF_PAIRS
        else:
            first_z, w = radius_of(case, STREAMED)
            start = 0.1 if name == "celegans" else 30.0
            least = len(case.y) * Batch(case.X, case.y, False).value(w)[0]
            print(f"  the best fixed weights of the ball pay {least:.1f} over all rows", flush=True)
        seen, matrix = np.unique(case.X.indices).size, case.matrix
        rates = [start]  # of one radius after another

        def paid(z: float, case: cases.Case = case, rates: list[float] = rates) -> float:
            rates.append(best_rate(rates[-1], partial(cumulative, case, z, "ball")))
            loss = cumulative(case, z, "ball", rates[-1])
            print(f"  z = {z:.4g}: rate {rates[-1]:.3g} pays {loss:.1f}", flush=True)
            return loss

        z = best_rate(first_z, paid)  # as in the paper, the radius of the least loss
        start = rates[-1]
        for method in ("ball", "ball, implicit", "EG", "EG, constant rate"):
            first = start / (10.0 if "constant" in method else 1.0)
            rate = best_rate(first, partial(cumulative, case, z, method))
            learner = Stochastic(case, z, method, rate)
            begun = time.process_time()
            total, errors = learner.learn(matrix, case.y)
            row = 1e6 * (time.process_time() - begun) / len(case.y)
            active = np.count_nonzero(learner.weights)
            share = "100 %" if method.startswith("EG") else f"{active / seen:.1%}"
            cells = [f"{z:.3g}", f"{rate:.3g}", f"{total:.1f}", f"{errors / len(case.y):.2%}"]
            table.append([cases.TITLES[name], method, *cells, share, f"{row:.1f}"])
    head = ["rows", "method", "z", "rate", "cumulative loss", "errors", "nonzero of seen features"]
    print(common.table([*head, "us a row"], table), flush=True)


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
        n = min(len(case.y) // 2, 10_000)
        table.append(time_rows(case, z, 0.1 if name == "celegans" else 30.0, n))
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


COMMANDS = {"stream": stream, "rows": rows}


def main() -> None:
    """Run one experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--cases", default=",".join(cases.TITLES), help="default %(default)s")
    parser.add_argument("--every", type=int, default=160, help="every k-th window (default 160)")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    COMMANDS[args.command](args)


if __name__ == "__main__":
    main()
