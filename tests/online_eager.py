"""Online learners written from their definitions, on dense rows: every weight is touched at every row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from fcl.features.rows import RowChunk
from fcl.online import OnlineOptions

LOSSES = ("logistic", "squared", "squared_hinge", "hinge")


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


def soft(v: np.ndarray, by: Any) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - by, 0.0)


def on_ball(v: np.ndarray, radius: float, a: np.ndarray) -> np.ndarray:
    """The nearest w with sum a |w| <= radius, by bisection on the shift."""
    low, high = 0.0, float((np.abs(v) / np.where(a > 0.0, a, np.inf)).max(initial=0.0))
    if a @ np.abs(v) <= radius:
        return v
    for _ in range(100):
        middle = 0.5 * (low + high)
        if a @ np.abs(soft(v, middle * a)) > radius:
            low = middle
        else:
            high = middle
    return soft(v, high * a)


class Eager:
    """A learner of dense rows; ``rows`` counts those of weight above 0, ``weight`` adds these up.

    A subclass updates w and b by ``step``, which gets a row, its target and weight, and its margin.
    """

    def __init__(self, options: OnlineOptions, factors: np.ndarray, w: Any = None) -> None:
        self.options, self.factors = options, factors
        self.on = np.isfinite(factors)
        self.w = np.zeros(len(factors)) if w is None else np.array(w)
        self.b, self.rows, self.weight, self.passes = 0.0, 0, 0.0, 0
        self.prepare()

    def prepare(self) -> None:
        """Make what else the learner keeps."""

    def step(self, x: np.ndarray, y: float, s: float, m: float) -> None:
        raise NotImplementedError

    def learn(self, x: np.ndarray, y: float, s: float) -> float:
        """Learn a row; returns its margin before the update."""
        m = 0.0
        for j in np.flatnonzero(x):
            m += self.w[j] * x[j]
        m += self.b
        if s > 0.0:
            self.rows += 1
            self.weight += s
            self.step(x, y, s, m)
        return m

    def end_pass(self) -> None:
        self.passes += 1

    def point(self) -> tuple[np.ndarray, float]:
        return self.w, self.b

    @property
    def rate(self) -> float:
        o = self.options
        return o.rate * o.decay**self.passes / (self.rows / o.batch) ** o.power

    def slope(self, x: np.ndarray, y: float, s: float, m: float) -> float:
        """The slope at the margin before the step, or after it."""
        o = self.options
        if o.step == "implicit":
            return implicit_slope(o.loss, y, m, self.rate * s * (float(x @ x) + o.intercept))
        return slope(o.loss, y, m)


class Truncated(Eager):
    """Truncated gradient (Langford, Li and Zhang 2008), equations 4 to 6, and the mean of theorem 3.2."""

    def prepare(self) -> None:
        self.pending, self.squares, self.b_squares = 0.0, np.zeros(len(self.w)), 0.0
        self.total, self.b_total = np.zeros(len(self.w)), 0.0

    def step(self, x: np.ndarray, y: float, s: float, m: float) -> None:
        o = self.options
        self.total, self.b_total = self.total + self.w, self.b_total + self.b
        before = self.w
        if o.step == "adagrad":
            rate = o.rate * o.decay**self.passes
            d = s * slope(o.loss, y, m)
            self.squares = self.squares + (d * x * self.on) ** 2
            eta = np.divide(rate, np.sqrt(self.squares), out=0.0 * x, where=self.squares > 0)
            self.w = self.w - eta * d * x
            self.b_squares += d * d
            if self.b_squares:
                self.b -= o.intercept * rate / math.sqrt(self.b_squares) * d
        else:
            r = self.slope(x, y, s, m)
            eta = np.full(len(x), self.rate)
            self.w = self.w - self.rate * s * r * x * self.on
            self.b -= self.rate * s * r * o.intercept
        self.pending += s
        if self.rows % o.period == 0:
            self.truncate(
                eta * o.alpha * np.where(self.on, self.factors, 0.0) * self.pending, before
            )
            self.pending = 0.0

    def truncate(self, a: np.ndarray, before: np.ndarray) -> None:
        o = self.options
        small = np.abs(self.w) <= o.theta
        if o.truncation == "subgradient":
            self.w = self.w - a * np.sign(before)
        elif o.truncation == "round":
            self.w = np.where(small, 0.0, self.w)
        else:
            self.w = np.where(small, soft(self.w, o.l1_ratio * a), self.w)
            self.w = self.w / (1.0 + (1.0 - o.l1_ratio) * a)

    def point(self) -> tuple[np.ndarray, float]:
        o, n = self.options, self.rows + 1
        if o.average:
            return (self.total + self.w) / n, (self.b_total + self.b) / n
        if o.truncation == "subgradient":
            return np.where(np.abs(self.w) > o.theta, self.w, 0.0), self.b
        return self.w, self.b


class Leader(Eager):
    """The regularised leader (McMahan 2011): the minimiser of slopes, proximal terms and penalty."""

    def prepare(self) -> None:
        self.squares = (self.w != 0.0).astype(float)
        self.sigmas = np.sqrt(self.squares) / self.options.rate
        self.linear, self.b_squares = -self.sigmas * self.w, 0.0

    def step(self, x: np.ndarray, y: float, s: float, m: float) -> None:
        o = self.options
        d = s * slope(o.loss, y, m)
        new = np.sqrt(self.squares + (d * x) ** 2) - np.sqrt(self.squares)
        self.squares = self.squares + (d * x) ** 2
        self.sigmas, self.linear = (
            self.sigmas + new / o.rate,
            self.linear + d * x - new / o.rate * self.w,
        )
        penalty = self.weight * o.alpha * np.where(self.on, self.factors, 0.0)
        curvature = self.sigmas + (1.0 - o.l1_ratio) * penalty
        w = -soft(self.linear, o.l1_ratio * penalty)
        self.w = np.divide(w, curvature, out=0.0 * w, where=self.on & (self.sigmas > 0.0))
        self.b_squares += d * d
        if self.b_squares:
            self.b -= o.intercept * o.rate / math.sqrt(self.b_squares) * d


class Descent(Eager):
    """Gradient descent with a rate for each feature (Golovin et al. 2013), or with one for all."""

    def prepare(self) -> None:
        self.counts, self.events = np.zeros(len(self.w)), 0

    def step(self, x: np.ndarray, y: float, s: float, m: float) -> None:
        o = self.options
        rate = o.rate * o.decay**self.passes
        d = s * slope(o.loss, y, m)
        moved = (d * x != 0.0) & self.on
        self.counts += moved
        count = np.where(moved, self.counts, 1.0) if o.rates == "feature" else float(self.rows)
        w = self.w - rate / np.sqrt(count) * d * x * self.on
        if o.rates == "feature":
            f = np.where(self.on, self.factors, 0.0)
            due = rate / np.sqrt(count) * o.alpha * f * (self.weight - s) / count
            w = np.where(moved, soft(w, o.l1_ratio * due) / (1.0 + (1.0 - o.l1_ratio) * due), w)
        self.w = w if o.max_weight is None else np.clip(w, -o.max_weight, o.max_weight)
        self.events += d != 0.0
        if d:
            events = self.events if o.rates == "feature" else self.rows
            self.b -= o.intercept * rate / math.sqrt(events) * d


class Ball(Eager):
    """Projected gradient on the L1 ball (Duchi et al. 2008), of rows or of batches."""

    def prepare(self) -> None:
        self.batch: list[tuple[np.ndarray, float]] = []

    def step(self, x: np.ndarray, y: float, s: float, m: float) -> None:
        self.batch.append((x, s * self.slope(x, y, s, m)))
        if len(self.batch) == self.options.batch:
            self.project()

    def project(self) -> None:
        o, X = self.options, np.array([x for x, _ in self.batch])
        r = np.array([d for _, d in self.batch])
        self.b -= self.rate * r.mean() * o.intercept
        w = self.w - self.rate * (r @ X) / len(r) * self.on
        self.w = on_ball(w, float(o.radius or 0.0), np.where(self.on, self.factors, 0.0))
        self.batch = []

    def end_pass(self) -> None:
        if self.batch:
            self.project()
        super().end_pass()


METHODS: dict[str, type[Eager]] = {
    "truncated-gradient": Truncated,
    "ftrl": Leader,
    "ogd": Descent,
    "ball": Ball,
}


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
