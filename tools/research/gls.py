#!/usr/bin/env python3
"""Compare proximal steps with one fixed Gram matrix with fcl's trainer, on a softmax lasso.

    python tools/research/gls.py [--rows 10000] [--columns 1000] [--C 0.03] [--limit 60]

The features are random cosines of digits, and the classes are the ten digits. A step minimises the L1
norm plus a quadratic that majorises the loss everywhere: half the Gram matrix of the columns for each
class (Agarwal et al., "Least squares revisited", ICML 2014, with an L1 norm). Only products of columns
with K vectors read the rows again. A search along the step and exact intercepts follow it. The steps get
the columns of the optimum for nothing; fcl has to find them among all, and its time includes a
certificate. Processor seconds of one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from fcl.kernels import kernel
from tools.bench import classes, common

Floats = npt.NDArray[np.float64]


@kernel
def lasso(gram: Floats, slope: Floats, w: Floats, scale: float, tolerance: float) -> None:
    """Minimise |w|_1 + scale / 2 (w - v)' gram (w - v) + slope'(w - v) from w = v, in place."""
    for _ in range(10_000):
        worst = 0.0
        for j in range(len(w)):
            curve = scale * gram[j, j]
            aim = w[j] - slope[j] / curve
            new = np.sign(aim) * max(abs(aim) - 1.0 / curve, 0.0)
            change = new - w[j]
            if change != 0.0:
                w[j] = new
                slope += (scale * change) * gram[j]
                worst = max(worst, abs(change) * curve)
        if worst <= tolerance:
            return


class Steps:
    """The point, its margins, and the steps; columns are centred, so that intercepts are separate."""

    def __init__(self, columns: Floats, y: npt.NDArray[np.int64], C: float) -> None:
        self.columns = columns - columns.mean(axis=0)
        self.gram, self.C = self.columns.T @ self.columns, C
        self.Y = np.eye(y.max() + 1)[y]
        self.w = np.zeros((columns.shape[1], self.Y.shape[1]))
        self.margins = np.tile(np.log(self.Y.mean(axis=0)), (len(y), 1))

    def objective(self, w: Floats, margins: Floats) -> float:
        losses = logsumexp(margins, axis=1).sum() - float((margins * self.Y).sum())
        return float(np.abs(w).sum()) + self.C * losses

    def step(self) -> float:
        """One step; returns the objective."""
        slope = self.C * (self.columns.T @ (softmax(self.margins, axis=1) - self.Y))
        new = self.w.copy()
        off = np.abs(slope[self.w != 0.0] + np.sign(self.w[self.w != 0.0]))
        tolerance = 0.1 * max(float(np.abs(slope).max()) - 1.0, off.max(initial=0.0))
        for k in range(new.shape[1]):
            some = new[:, k].copy()
            lasso(self.gram, slope[:, k].copy(), some, self.C / 2.0, tolerance)
            new[:, k] = some
        step = new - self.w
        moved = self.columns @ step
        best = minimize_scalar(
            lambda t: self.objective(self.w + t * step, self.margins + t * moved),
            bounds=(0.0, 8.0),
            method="bounded",
            options={"xatol": 1e-2},
        ).x
        self.w += best * step
        self.margins += best * moved
        self._settle()
        return self.objective(self.w, self.margins)

    def _settle(self) -> None:
        """Move the intercepts to their optimum, by Newton's method."""
        for _ in range(20):
            p = softmax(self.margins, axis=1)
            slope = (p - self.Y).sum(axis=0)
            if np.abs(slope).max() <= 1e-9 * len(p):
                return
            hessian = np.diag(p.sum(axis=0)) - p.T @ p
            self.margins -= np.linalg.lstsq(hessian, slope, rcond=None)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--C", type=float, default=0.03)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds")
    args = parser.parse_args()
    args.group = False
    print(common.machine())
    X, y = classes.mnist(args)
    w, b = classes.with_fcl(X, y, args, 1e-8)()  # compiles the kernels, too
    optimum = classes.objective(X, y, args, w, b)
    active = np.flatnonzero(np.abs(w).sum(axis=1))
    print(f"\noptimum {optimum:.6f}, {len(active)} of {X.shape[1]:,} columns\n", flush=True)
    for gap in (1e-2, 1e-3, 1e-5):
        seconds = timed(X, y, args, gap)
        print(f"fcl, all columns, certified gap {gap:g}: {seconds:.2f} s", flush=True)
    Steps(X[:100, active], np.arange(100) % 10, args.C).step()
    descend(X[:, active], y, args, optimum)


def timed(X: Any, y: Any, args: argparse.Namespace, gap: float) -> float:
    solve = classes.with_fcl(X, y, args, gap)
    since = time.process_time()
    solve()
    return time.process_time() - since


def descend(columns: Floats, y: Any, args: argparse.Namespace, optimum: float) -> None:
    since = time.process_time()
    steps, number, wanted = Steps(columns, y, args.C), 0, [1e-2, 1e-3, 1e-5]
    while wanted:
        value, number = steps.step(), number + 1
        spent = time.process_time() - since
        while wanted and value <= optimum * (1.0 + wanted[0]):
            above = f"{wanted.pop(0):g} above: {spent:.2f} s, {number} steps"
            print(f"one Gram matrix, columns of the optimum, {above}", flush=True)
        if spent > args.limit:
            print(f"after {spent:.0f} s and {number} steps: {value / optimum - 1.0:.1e} above")
            return


if __name__ == "__main__":
    main()
