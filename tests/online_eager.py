"""Online learners written from their definitions, on dense rows: every weight is touched at every row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions


def slope(loss: str, y: float, m: float) -> float:
    if loss == "logistic":
        return float(-y * expit(-y * m))
    if loss == "squared":
        return 2.0 * (m - y)
    if loss == "squared_hinge":
        return -2.0 * y * max(0.0, 1.0 - y * m)
    return -y if y * m < 1.0 else 0.0


def loss_of(loss: str, y: float, m: float) -> float:
    h = max(0.0, 1.0 - y * m)
    return {
        "logistic": np.logaddexp(0.0, -y * m),
        "squared": (y - m) ** 2,
        "squared_hinge": h * h,
        "hinge": h,
    }[loss]


def implicit_slope(loss: str, y: float, m: float, q: float) -> float:
    """The root of r - loss'(m - q r), by bisection; of the hinge in closed form."""
    if q == 0.0:
        return slope(loss, y, m)
    if loss == "hinge":
        return -y * min(1.0, max(0.0, 1.0 - y * m) / q)
    r = slope(loss, y, m)
    if r == 0.0:
        return 0.0
    ends, precision = (min(0.0, r), max(0.0, r)), {"xtol": 1e-300, "maxiter": 5000}
    return float(brentq(lambda r: r - slope(loss, y, m - q * r), *ends, **precision))


def truncate(v: float, a: float, theta: float, rounding: bool) -> float:
    if rounding:
        return 0.0 if abs(v) <= theta else v
    if 0.0 <= v <= theta:
        return max(0.0, v - a)
    return min(0.0, v + a) if -theta <= v < 0.0 else v


@dataclass
class Eager:
    """Truncated gradient on dense rows; ``rows`` counts those of weight above 0."""

    options: OnlineOptions
    factors: np.ndarray
    w: np.ndarray
    b: float = 0.0
    rows: int = 0
    pending: float = 0.0
    squares: Any = None
    b_squares: float = 0.0
    passes: int = 0

    def learn(self, x: np.ndarray, y: float, s: float) -> float:
        """Learn a row; returns its margin before the update."""
        o = self.options
        m = 0.0
        for j in np.flatnonzero(x):
            m += self.w[j] * x[j]
        m += self.b
        if s == 0.0:
            return m
        rate = o.rate * o.decay**self.passes
        eta = rate / (self.rows + 1) ** o.power
        on = np.isfinite(self.factors)
        if o.step == "adagrad":
            d = s * slope(o.loss, y, m)
            self.squares = (0.0 if self.squares is None else self.squares) + (d * x * on) ** 2
            eta_j = np.divide(
                rate, np.sqrt(self.squares), out=np.zeros(len(x)), where=self.squares > 0
            )
            self.w = self.w - eta_j * d * x
            self.b_squares += d * d
            if o.intercept and self.b_squares:
                self.b -= rate / math.sqrt(self.b_squares) * d
        else:
            q = eta * s * (float(x @ x) + o.intercept)
            implicit = o.step == "implicit"
            r = implicit_slope(o.loss, y, m, q) if implicit else slope(o.loss, y, m)
            eta_j = np.full(len(x), eta)
            self.w = self.w - eta * s * r * x * on
            self.b -= eta * s * r * o.intercept
        self.rows += 1
        self.pending += s
        if self.rows % o.period == 0:
            f = np.where(on, self.factors, 0.0)
            a = eta_j * o.alpha * f * self.pending
            rho, rounding = o.l1_ratio, o.truncation == "round"
            self.w = np.array(
                [truncate(v, rho * c, o.theta, rounding) for v, c in zip(self.w, a, strict=True)]
            ) / (1.0 + (1.0 - rho) * a)
            self.pending = 0.0
        return m


def chunk_of(X: np.ndarray, dtype: Any = np.float64, ids: Any = np.int32) -> RowChunk:
    """Dense rows as a chunk of their nonzero values."""
    rows, columns = np.nonzero(X)
    indptr = np.searchsorted(rows, np.arange(len(X) + 1))
    return RowChunk(indptr, columns.astype(ids), X[rows, columns].astype(dtype))


def stream(seed: int, n: int, p: int, loss: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (n, p) with many zeros, targets and weights, some of them 0."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, p)) * (random.random((n, p)) < random.uniform(0.1, 0.8))
    y = X @ random.normal(size=p) + random.normal(size=n)
    if loss != "squared":
        y = np.where(y > 0, 1.0, -1.0)
    s = random.choice([0.0, 0.5, 1.0, 3.0], n, p=[0.1, 0.2, 0.6, 0.1])
    return X, y, s


def dense_point(learner: Any) -> tuple[np.ndarray, float]:
    ids, weights, b = learner.point()
    w = np.zeros(learner.n_features)
    w[ids] = weights
    return w, b
