#!/usr/bin/env python3
"""Compare the bounds of several dual points at each pass of a real run: does any close the gap sooner?

    python tools/research/dual.py [--every 40] [--d 8] [--C 0.1] [--tol 1e-6]

The script computes three gaps at every anchor: from the residuals scaled into the dual feasible set,
which fcl certifies; from the best convex combination of this point with the best one so far, both
feasible, which costs no pricing; and from residuals extrapolated from the last five anchors, as in celer
(Massias, Gramfort and Salmon 2018), priced in a pass of their own. Logistic loss.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tools.bench import common
from tools.research.trainers import make_solver

if TYPE_CHECKING:
    from fcl.solve.passes import Passes

Floats = npt.NDArray[np.float64]
#: Anchors whose residuals are extrapolated.
ANCHORS = 5
#: Shares of the new point in the combination with the best one; 0 keeps the best one.
SHARES = np.append(np.arange(0.0, 1.0, 0.1), [0.95, 0.99, 1.0])


def largest(passes: Passes, r: Floats) -> float:
    """The largest |g_j| over all features at balanced residuals; restores the anchor's residuals."""
    own = passes.vectors.residuals.copy()
    passes.vectors.residuals[:] = r
    prices = passes.price(passes.dual_point(), np.empty(0, np.int64), 0.0, passes.parts)
    passes.vectors.residuals[:] = own
    return prices.largest


def feasible(y: Floats, r: Floats, C: float, largest: float) -> Floats:
    """Convert residuals to a dual feasible point a in [0, 1]: balanced, and scaled by the prices."""
    negative, positive = float(r[r < 0].sum()), float(r[r > 0].sum())
    balanced = np.where(
        r > 0, r * min(1.0, -negative / positive), r * min(1.0, -positive / negative)
    )
    most = C * largest * (1.0 + 1e-12)
    return np.asarray(-y * balanced * min(1.0, 1.0 / most))


def dual(a: Floats, C: float) -> float:
    """C sum of the entropies: the dual objective of the logistic loss with unit weights."""
    a = np.clip(a, 1e-300, 1.0 - 1e-16)
    return float(-C * (a * np.log(a) + (1.0 - a) * np.log1p(-a)).sum())


def extrapolated(residuals: list[Floats]) -> Floats:
    """Combine the last residuals with the weights that make the combined differences smallest."""
    steps = np.diff(residuals, axis=0)
    gram = steps @ steps.T
    gram[np.diag_indices_from(gram)] += 1e-12 * np.trace(gram)
    c = np.linalg.solve(gram, np.ones(len(gram)))
    return np.asarray((c / c.sum()) @ np.array(residuals[1:]))


def main() -> None:
    """Train in lock-step, compute the gaps at every anchor, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    common.add_data_options(parser, every=40)
    parser.add_argument("--d", type=int, default=8)
    parser.add_argument("--C", type=float, default=0.1)
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--memory", default="4GiB")
    args = parser.parse_args()
    common.pin(args.core)
    from fcl.drivers.job import make_job
    from fcl.drivers.warmup import warmup

    warmup(["sequences"])
    data = common.open_rows(common.windows_folder(args.data), args.every)
    job = make_job(data, f"kmers:d={args.d}", C=args.C, tol=args.tol, memory=args.memory)
    prepared = job.prepare(job.train, lambda share: None)
    solver = make_solver(job, prepared, args.tol)
    y, C, passes = solver.objective.y, args.C, solver.passes
    best: Floats | None = None
    last: list[Floats] = []
    rows: list[list[object]] = []
    while True:
        certified = solver.price()
        residuals = passes.vectors.residuals.copy()
        plain = feasible(y, residuals, C, largest(passes, residuals))
        if best is None:
            best, share = plain, 1.0
        else:
            values = [dual(best + s * (plain - best), C) for s in SHARES]
            share = float(SHARES[int(np.argmax(values))])
            best = best + share * (plain - best)
        last = [*last, residuals][-ANCHORS:]
        beyond = math.nan
        if len(last) >= 3:
            r = extrapolated(last)
            r = -y * np.clip(-y * r, 0.0, 1.0)
            beyond = dual(feasible(y, r, C, largest(passes, r)), C)
        value = certified.objective
        gaps = [1.0 - bound / value for bound in (dual(plain, C), dual(best, C), beyond)]
        rows.append(
            [
                len(rows),
                f"{certified.max_violation:.4f}",
                *("" if math.isnan(gap) else f"{gap:.2e}" for gap in gaps),
                f"{share:g}",
            ]
        )
        if certified.gap <= args.tol:
            break
        solver.admit()
        solver.train()
        solver.propose(solver.proposal())
    print(common.machine())
    print(
        f"{job.train.n:,} rows, d = {args.d} ({job.family.n_features:,} features), C = {C:g}, "
        f"tolerance {args.tol:g}\n"
    )
    header = ["pass", "largest slope", "gap", "combined", "extrapolated", "share of the new point"]
    print(common.table(header, rows))


if __name__ == "__main__":
    main()
