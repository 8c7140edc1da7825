"""Batch methods on the L1 ball: projected gradient with a line search, and with rates that fall.

Duchi, Shalev-Shwartz, Singer and Chandra, *Efficient projections onto the l1-ball for learning in high
dimensions*, ICML 2008, section 7: "L1-Line" and "L1-Batch". :mod:`tools.bench.online.loops` has the
methods that take one row at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fcl.online.project import project_l1_ball

Floats = npt.NDArray[np.float64]


class Batch:
    """Mean logistic or squared loss of rows of any matrix, at the best intercept of each w.

    X : float64 (n, p), dense or CSR
    y : float64 (n,)
    squared : bool
    """

    def __init__(self, X: Any, y: Floats, squared: bool) -> None:
        self.X, self.y, self.squared = X, y, squared
        self.b = 0.0

    def value(self, w: Floats) -> tuple[float, Floats]:
        """Mean loss at w and its best intercept, and the gradient of it in w."""
        y, m = self.y, self.X @ w
        if self.squared:
            self.b = float(np.mean(y - m))
            r = 2.0 * (m + self.b - y)
            return float(np.mean((m + self.b - y) ** 2)), self.X.T @ r / len(y)
        for _ in range(100):  # Newton's steps for the intercept, which is one number
            p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
            step = float(np.clip((y * p).sum() / max((p * (1.0 - p)).sum(), 1e-12), -5.0, 5.0))
            self.b += step
            if abs(step) < 1e-14 * max(1.0, abs(self.b)):
                break
        p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
        value = float(np.mean(np.logaddexp(0.0, -y * (m + self.b))))
        return value, -(self.X.T @ (y * p)) / len(y)


class Iterate(NamedTuple):
    """A step of a batch method: mean loss, Frank-Wolfe gap, weights, passes over the rows so far."""

    value: float
    gap: float
    w: Floats
    passes: float


def gap_of(w: Floats, gradient: Floats, z: float) -> float:
    """An upper bound of f(w) - f* over the ball: <g, w> + z max |g| (Frank and Wolfe 1956).

    The gradient must be that at the best intercept.
    """
    return float(gradient @ w + z * np.abs(gradient).max())


def line_search(problem: Batch, z: float, p: int) -> Iterator[Iterate]:
    """Projected gradient; the step doubles, then halves until f lies below its quadratic model.

    A pass multiplies the matrix by w, and its transpose by the slopes.
    """
    w, alpha, passes = np.zeros(p), 1.0, 1.0
    value, gradient = problem.value(w)
    while True:
        yield Iterate(value, gap_of(w, gradient, z), w, passes)
        alpha *= 2.0
        while True:
            new = project_l1_ball(w - alpha * gradient, z)
            move = new - w
            found, slopes = problem.value(new)
            passes += 1.0
            model = value + gradient @ move + move @ move / (2.0 * alpha)
            if found <= model + 1e-15 * abs(value) or alpha < 1e-18:
                break
            alpha /= 2.0
        if found > value:  # rounding: the optimum is reached to the last digit
            return
        w, value, gradient = new, found, slopes


def fixed_rates(problem: Batch, z: float, p: int, rate: float) -> Iterator[Iterate]:
    """Projected gradient; step t has the length ``rate`` / sqrt(t)."""
    w, t = np.zeros(p), 0
    while True:
        value, gradient = problem.value(w)
        t += 1
        yield Iterate(value, gap_of(w, gradient, z), w, float(t))
        w = project_l1_ball(w - rate / math.sqrt(t) * gradient, z)
