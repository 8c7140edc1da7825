#!/usr/bin/env python3
"""Projected gradient against exponentiated gradient on ten classes with a kernel (Figure 7 of the paper).

    python tools/bench/online/classes.py [--rows 60000] [--supports 2766] [--radius 100] [--passes 100]

Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008, section 7, on MNIST with pixels / 255:

    mean_i log(1 + sum_{c != y_i} exp(k(x_i, c) - k(x_i, y_i))),   k(x, c) = sum_s w_cs sigma_cs K(x_s, x)

with sigma_cs = +1 if support s is of class c, else -1, K = exp(-|x - x'|^2 / 25), w_c >= 0 and
sum_s w_cs <= z (equation 12). The supports are drawn with a seed, since the paper does not say how. Rates
are ``rate`` / sqrt(t), each the best of a grid on a tenth of the rows. A number beside each weight takes
what is left of z, so that exponentiated gradient, whose numbers have a fixed sum, sees the same set.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from fcl.online import project_l1_ball
from tools.bench import common
from tools.bench.online import picture
from tools.bench.online.ball import best_rate

Floats = npt.NDArray[Any]
#: Squared distances are divided by this.
WIDTH = 25.0


def kernel_of(rows: Floats, supports: Floats) -> Floats:
    """exp(-|x - x'|^2 / 25), float32 (rows, supports)."""
    out = np.empty((len(rows), len(supports)), np.float32)
    own = (supports**2).sum(axis=1)
    for first in range(0, len(rows), 4096):
        some = rows[first : first + 4096]
        square = (some**2).sum(axis=1)[:, None] + own - 2.0 * some @ supports.T
        out[first : first + 4096] = np.exp(-np.maximum(square, 0.0) / WIDTH)
    return out


class Problem:
    """The loss over the rows of a kernel matrix.

    K : float32 (rows, supports); y, of_supports : int64, classes from 0 to 9
    """

    def __init__(self, K: Floats, y: Floats, of_supports: Floats, z: float) -> None:
        self.K, self.y, self.z = K, y, z
        self.sigma = np.where(of_supports[:, None] == np.arange(10), 1.0, -1.0).astype(np.float32)

    def value(self, w: Floats, some: slice | Floats = slice(None)) -> tuple[float, Floats, float]:
        """Mean loss of some rows at w, (supports, 10), its gradient, and the share of errors."""
        K, y = self.K[some], self.y[some]
        scores = (K @ (self.sigma * w.astype(np.float32))).astype(np.float64)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        own = scores[np.arange(len(y)), y]
        wrong = float(np.mean(scores.argmax(axis=1) != y))
        scores[np.arange(len(y)), y] -= 1.0
        gradient = self.sigma * (K.T @ scores.astype(np.float32)) / len(y)
        return float(-np.log(np.maximum(own, 1e-300)).mean()), gradient.astype(np.float64), wrong


def run(
    problem: Problem, method: str, batches: int, rate: float, passes: int
) -> tuple[Floats, list[float]]:
    """Weights after ``passes`` passes of ``batches`` steps each, and the loss after each pass."""
    n, z = problem.K.shape[0], problem.z
    supports = problem.K.shape[1]
    # the last line is what is left of the sum
    w = (
        np.zeros((supports + 1, 10))
        if method == "ball"
        else np.full((supports + 1, 10), z / (supports + 1))
    )
    losses, t = [problem.value(w[:-1])[0]], 0
    rng = np.random.default_rng(1)
    for _ in range(passes):
        order = rng.permutation(n)
        for some in np.array_split(order, batches) if batches > 1 else [slice(None)]:
            gradient = problem.value(w[:-1], some)[1]
            t += 1
            step = rate / np.sqrt(t)
            if method == "ball":
                w[:-1] -= step * gradient
                for c in range(10):
                    w[:-1, c] = project_l1_ball(w[:-1, c], z, nonnegative=True)
            else:
                w[:-1] *= np.exp(np.clip(-step * gradient, -30.0, 30.0))
                w *= z / w.sum(axis=0)
        losses.append(problem.value(w[:-1])[0])
    return w[:-1], losses


def last_loss(problem: Problem, method: str, batches: int, passes: int, rate: float) -> float:
    """The loss after the last pass."""
    return run(problem, method, batches, rate, passes)[1][-1]


def main() -> None:
    """Make the kernel, choose rates, compare and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=60_000, help="default 60000")
    parser.add_argument("--supports", type=int, default=2766, help="default 2766")
    parser.add_argument("--radius", type=float, default=100.0, help="z (default 100)")
    parser.add_argument(
        "--passes", type=int, default=100, help="default 100; a quarter for 1 %% steps"
    )
    parser.add_argument("--no-plot", action="store_true", help="print alone")
    parser.add_argument("--core", type=int, help="core to run on (default: the last one)")
    args = parser.parse_args()
    common.pin(args.core)
    print(common.machine(), flush=True)
    stored = np.load(common.SHARED / "mnist.npz")
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(stored["train_x"]))
    pixels = stored["train_x"][chosen].astype(np.float32) / 255.0
    y = stored["train_y"][chosen].astype(np.int64)
    supports, classes = pixels[: args.supports], y[: args.supports]
    problem = Problem(
        kernel_of(pixels[: args.rows], supports), y[: args.rows], classes, args.radius
    )
    tests = kernel_of(stored["test_x"].astype(np.float32) / 255.0, supports)
    held = Problem(tests, stored["test_y"].astype(np.int64), classes, args.radius)
    tenth = Problem(
        problem.K[: args.rows // 10], problem.y[: args.rows // 10], classes, args.radius
    )
    panels: dict[str, dict[str, picture.Curve]] = {}
    table = []
    for batches, title in ((1, "all rows a step"), (100, "1 % of the rows a step")):
        panels[title] = {}
        for method in ("ball", "EG"):
            start = 100.0 if method == "ball" else 10.0
            passes = args.passes if batches == 1 else max(args.passes // 4, 1)
            rate = best_rate(start, partial(last_loss, tenth, method, batches, passes))
            w, losses = run(problem, method, batches, rate, passes)
            zeros = (w == 0.0).mean(axis=0)
            share = f"{zeros.min():.0%}-{zeros.max():.0%}"
            wrong = held.value(w)[2]
            some = [f"{losses[k]:.4f}" for k in sorted({1, passes // 2, passes})]
            table.append([title, method, f"{rate:.3g}", " / ".join(some), share, f"{wrong:.2%}"])
            print(*table[-1], sep="  ", flush=True)
            panels[title][method] = ([float(k) for k in range(len(losses))], losses)
    head = [
        "step",
        "method",
        "rate",
        "loss at 1, half, all passes",
        "zeros of a class",
        "test errors",
    ]
    print(common.table(head, table), flush=True)
    if not args.no_plot:
        picture.draw("ball-classes", panels, "passes", "mean loss", logarithmic="y")


if __name__ == "__main__":
    main()
