"""A judge of solutions: the objective, its dual and a solver on an explicit matrix, in plain numpy.

The judge neither imports nor copies code of fcl. Its formulas come from the definition of the problem

    P(w, b) = sum_j f_j (rho |w_j| + (1 - rho) w_j^2 / 2) + C sum_i s_i loss(y_i, m_i),  m = Phi w + b + o

with a dense float64 Phi, so that a mistake in fcl is not repeated. With theta free of sum (if there is
an intercept) every D(theta) = -C sum_i s_i [loss*(u_i) - u_i o_i] - penalty*(Phi' theta), with
u_i = theta_i / (C s_i), is a lower bound of P; the conjugate of the penalty is
sum_j max(0, |v_j| - rho f_j)^2 / (2 (1 - rho) f_j), and for rho = 1 it is 0 where no |v_j| is above f_j,
else infinite. With limits low <= w <= high it is the sum of the largest values of
-v_j w_j - f_j (rho |w_j| + (1 - rho) w_j^2 / 2) within them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from threadpoolctl import threadpool_limits

from tests import brute

#: The losses in most tests, and all losses.
LOSSES = ("logistic", "squared", "squared_hinge")
ALL_LOSSES = (*LOSSES, "huber:delta=2", "poisson", "pinball:tau=0.7,width=2")


def kmer_matrix(codes: np.ndarray, d: int) -> np.ndarray:
    """All positional k-mers of windows (n, L) of codes 0-3 (4 = unknown), float64 (n, p)."""
    return brute.matrix(codes, d).astype(np.float64)


def _log(y: np.ndarray) -> np.ndarray:
    """log y, or 0 if y = 0."""
    return np.asarray(np.log(np.where(y > 0.0, y, 1.0)))


def _above_tangent(d: np.ndarray) -> np.ndarray:
    """exp(d) - 1 - d, accurate for small d."""
    near = np.abs(d) < 1e-3
    some = np.where(near, d, 0.0)
    series = some**2 * (0.5 + some * (1 / 6 + some * (1 / 24 + some * (1 / 120 + some / 720))))
    far = np.minimum(d, 300.0)
    return np.where(near, series, np.expm1(far) - d)


def _exp(m: np.ndarray) -> np.ndarray:
    """exp with a bounded argument, larger than any margin at an optimum, to avoid overflow."""
    return np.exp(np.minimum(m, 300.0))


def _entropy(a: np.ndarray) -> np.ndarray:
    """a log a + (1 - a) log(1 - a) for a in [0, 1], in the precision of a (scipy stops at float64)."""
    inside = (a > 0.0) & (a < 1.0)
    some = np.where(inside, a, 0.5)
    return np.where(inside, some * np.log(some) + (1.0 - some) * np.log1p(-some), 0.0)


@dataclass(frozen=True)
class Solution:
    """A point, its objective and a lower bound on the optimum."""

    w: np.ndarray
    b: float
    objective: float
    bound: float


@dataclass(frozen=True)
class Problem:
    """The problem on an explicit matrix. phi (n, p), y (n,), s (n,), f (p,) all float64; s, f > 0."""

    phi: np.ndarray
    y: np.ndarray
    s: np.ndarray
    loss: str
    C: float
    intercept: bool = True
    rho: float = 1.0
    factors: np.ndarray | None = None  #: None: ones
    offset: np.ndarray | float = 0.0
    #: (n, q) unpenalised columns; b is then (k,), the intercept (if any) followed by their coefficients
    z: np.ndarray | None = None
    #: limits of the weights, for all or (p,), with low <= 0 <= high
    low: np.ndarray | float = -np.inf
    high: np.ndarray | float = np.inf

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The limits of every weight."""
        p = self.phi.shape[1]
        return np.broadcast_to(self.low, p), np.broadcast_to(self.high, p)

    @property
    def free(self) -> np.ndarray:
        """The columns without a penalty, (n, k): ones if there is an intercept, and z."""
        ones = np.ones((len(self.y), int(self.intercept)))
        return ones if self.z is None else np.column_stack([ones, self.z])

    @property
    def clip(self) -> tuple[float, float, float]:
        """Of Huber and pinball loss: the slope is ``bend`` (m - y), clipped to [low, high]."""
        kind, _, rest = self.loss.partition(":")
        given = {
            name: float(value) for name, _, value in (x.partition("=") for x in rest.split(","))
        }
        if kind == "huber":
            return 2.0, -2.0 * given["delta"], 2.0 * given["delta"]
        if kind == "pinball":
            return 1.0 / given["width"], -given["tau"], 1.0 - given["tau"]
        raise ValueError(f"the judge has no formula for {self.loss}")

    @property
    def f(self) -> np.ndarray:
        return np.ones(self.phi.shape[1]) if self.factors is None else self.factors

    # -- one point -----------------------------------------------------------------------------

    def losses(self, m: np.ndarray) -> np.ndarray:
        if self.loss == "squared":
            return (self.y - m) ** 2
        if self.loss == "logistic":
            return np.logaddexp(0.0, -self.y * m)
        if self.loss == "squared_hinge":
            return np.maximum(0.0, 1.0 - self.y * m) ** 2
        if self.loss == "poisson":
            return np.where(self.y > 0.0, self.y * _above_tangent(m - _log(self.y)), _exp(m))
        bend, low, high = self.clip
        away = m - self.y
        above, below = high * (away - high / bend / 2.0), low * (away - low / bend / 2.0)
        beyond = np.where(away > 0.0, above, below)
        curved = (low <= bend * away) & (bend * away <= high)
        return np.where(curved, bend / 2.0 * away**2, beyond)

    def slopes(self, m: np.ndarray) -> np.ndarray:
        if self.loss == "squared":
            return 2.0 * (m - self.y)
        if self.loss == "logistic":
            return -self.y * expit(-self.y * m)
        if self.loss == "squared_hinge":
            return -2.0 * self.y * np.maximum(0.0, 1.0 - self.y * m)
        if self.loss == "poisson":
            return _exp(m) - self.y
        bend, low, high = self.clip
        return np.clip(bend * (m - self.y), low, high)

    def bends(self, m: np.ndarray) -> np.ndarray:
        if self.loss == "squared":
            return np.full(len(m), 2.0)
        if self.loss == "logistic":
            return expit(m) * expit(-m)
        if self.loss == "squared_hinge":
            return 2.0 * (self.y * m < 1.0)
        if self.loss == "poisson":
            return _exp(m)
        bend, low, high = self.clip
        wanted = bend * (m - self.y)
        return bend * ((low <= wanted) & (wanted <= high))

    def margins(self, w: np.ndarray, b: Any) -> np.ndarray:
        return self.phi @ w + (b if self.z is None else self.free @ b) + self.offset

    def objective(self, w: np.ndarray, b: float) -> float:
        return self.penalty(w) + self.C * float(self.s @ self.losses(self.margins(w, b)))

    def penalty(self, w: np.ndarray) -> float:
        return float(self.f @ (self.rho * np.abs(w) + 0.5 * (1.0 - self.rho) * w**2))

    def residuals(self, w: np.ndarray, b: float) -> np.ndarray:
        return self.s * self.slopes(self.margins(w, b))

    def prices(self, w: np.ndarray, b: float) -> np.ndarray:
        """C g_j for every feature."""
        return self.C * (self.residuals(w, b) @ self.phi)

    def pulls(self, w: np.ndarray, b: float) -> np.ndarray:
        """Derivative of the smooth part of the objective, divided by the factor of |w_j|."""
        return (self.prices(w, b) + (1.0 - self.rho) * self.f * w) / (self.rho * self.f)

    def violations(self, w: np.ndarray, b: float) -> np.ndarray:
        """Slope of the penalised objective, over rho f, in the direction in which it falls fastest."""
        pull, (low, high) = self.pulls(w, b), self.ends
        up = -(pull + np.where(w >= 0.0, 1.0, -1.0))
        down = pull + np.where(w <= 0.0, -1.0, 1.0)
        return np.maximum(
            np.maximum(np.where(w < high, up, 0.0), np.where(w > low, down, 0.0)), 0.0
        )

    def largest(self, w: np.ndarray, b: float) -> float:
        """The largest pull, of which that beyond a limit does not count."""
        pull, (low, high) = self.pulls(w, b), self.ends
        pull = np.where(w >= high, np.maximum(pull, np.where(w > 0.0, -1.0, 0.0)), pull)
        pull = np.where(w <= low, np.minimum(pull, np.where(w < 0.0, 1.0, 0.0)), pull)
        return float(np.abs(pull).max(initial=0.0))

    # -- the dual ------------------------------------------------------------------------------

    def domain(self) -> tuple[np.ndarray, np.ndarray]:
        """The interval on which the conjugate of each row's loss is finite."""
        y, none = self.y, np.full(len(self.y), np.inf)
        low, high = {
            "squared": (-none, none),
            "logistic": (np.minimum(-y, 0.0), np.maximum(-y, 0.0)),
            "squared_hinge": (np.where(y > 0.0, -none, 0.0), np.where(y > 0.0, 0.0, none)),
            "poisson": (-y, none),
        }.get(self.loss, (None, None))
        if low is None or high is None:
            low, high = (np.full(len(y), end) for end in self.clip[1:])
        return low, high

    def conjugates(self, u: np.ndarray) -> np.ndarray:
        """loss* of each row, for u in its domain."""
        a = -self.y * u
        if self.loss == "logistic":
            return _entropy(np.clip(a, 0.0, 1.0))
        if self.loss == "squared_hinge":
            return a * a / 4.0 - a
        if self.loss == "poisson":
            v = np.maximum(self.y + u, 0.0)
            positive = (self.y > 0.0) & (v > 0.0)
            t = np.where(positive, u / np.where(self.y > 0.0, self.y, 1.0), 0.0)
            both = v * _above_tangent(-np.log1p(t)) + u * _log(self.y)
            # where only one of the two is above 0
            one = v * _log(v) - v - self.y * _log(self.y) + self.y
            return np.where(positive, both, one)
        bend = 2.0 if self.loss == "squared" else self.clip[0]
        return u * u / (2.0 * bend) + u * self.y

    def dual(self, theta: np.ndarray) -> float:
        """D(theta), which is -inf outside the domain; the caller ensures that theta is feasible."""
        u = theta / (self.C * self.s)
        low, high = self.domain()
        slack = 1e-12 * np.maximum(1.0, np.abs(u))
        if (u < low - slack).any() or (u > high + slack).any():
            return -np.inf
        u = np.clip(u, low, high)
        return float(-self.C * (self.s @ (self.conjugates(u) - u * self.offset)))

    def balance(self, r: np.ndarray) -> np.ndarray:
        """Residuals with sum 0, in the domain of the dual if r is."""
        if self.z is not None:
            # the first-order effect on r of a move of the coefficients that makes its sums 0
            a = self.free / np.sqrt(np.mean(self.free**2, axis=0))
            u, (low, high) = r / self.s, self.domain()
            room = self.s * np.minimum(2.0, np.minimum(u - low, high - u))
            for _ in range(3):
                r = r - room * (a @ np.linalg.lstsq((a.T * room) @ a, a.T @ r)[0])
            return r
        if not self.intercept:
            return r
        if self.loss == "squared":
            return r - self.s * (r.sum() / self.s.sum())
        up, down = r[r > 0].sum(), -r[r < 0].sum()
        if up == 0.0 or down == 0.0:
            return np.zeros_like(r)
        return np.where(r > 0, r * min(1.0, down / up), r * min(1.0, up / down))

    def bound(self, r: np.ndarray) -> float:
        """The best dual value on the ray of the balanced residuals, with exact prices of all columns."""
        theta = self.C * self.balance(r)
        v, (low, high) = theta @ self.phi, self.ends
        sides = ((-v, high), (v, -low))
        most = max(
            (pull / (self.rho * self.f))[end == np.inf].max(initial=0.0) for pull, end in sides
        )
        feasible = limit = 1.0 / most if most > 0.0 else 1e12
        if self.rho < 1.0:  # every t is feasible; the best is far below this
            limit = max(limit, 10.0)
        for end in self.domain():  # of the other side it is 0, or infinite
            out = (np.sign(end) == np.sign(theta)) & np.isfinite(end) & (theta != 0.0)
            most = self.C * self.s * end / np.where(out, theta, 1.0)
            limit = min(limit, most[out].min(initial=np.inf))

        def value(t: float) -> float:
            total = self.dual(t * theta)
            for pull, end in sides:
                above = np.maximum(t * pull - self.rho * self.f, 0.0)
                w = np.where(above > 0.0, end, 0.0)
                if self.rho == 1.0:
                    w[end == np.inf] = 0.0  # t is such that none of them pulls
                else:
                    w = np.minimum(w, above / ((1.0 - self.rho) * self.f))
                total -= float(w @ above - 0.5 * (1.0 - self.rho) * self.f @ w**2)
            return total

        inside = minimize_scalar(
            lambda t: -value(t), bounds=(0.0, limit), options={"xatol": 1e-13 * limit}
        )
        tried = [value(t) for t in (0.0, min(feasible, limit), min(1.0, limit), limit)]
        return max(-float(inside.fun), *tried)

    # -- the optimum ---------------------------------------------------------------------------

    def null(self) -> tuple[float, float]:
        """The best intercept of the null model, and the C at which the first weight appears."""
        b = 0.0
        if self.intercept:
            flat = np.zeros(self.phi.shape[1])
            low, high = -1.0, 1.0
            while self.residuals(flat, low).sum() > 0.0:
                low *= 2.0
            while self.residuals(flat, high).sum() < 0.0:
                high *= 2.0
            for _ in range(200):
                b = 0.5 * (low + high)
                if self.residuals(flat, b).sum() > 0.0:
                    high = b
                else:
                    low = b
        g = self.residuals(np.zeros(self.phi.shape[1]), b) @ self.phi
        lows, highs = self.ends
        g = np.where(g < 0.0, -g * (highs > 0.0), g * (lows < 0.0))
        largest = float((g / self.f).max())
        return b, self.rho / largest if largest > 0.0 else np.inf

    def solve(self, gap: float = 1e-10) -> Solution:
        """The optimum, to a relative gap of at most ``gap``; fails if the gap is not reached."""
        first = np.arange(self.phi.shape[1])
        signs = {-np.inf, 0.0, np.inf}
        alike = all(np.ndim(end) == 0 and end in signs for end in (self.low, self.high))
        if self.rho == 1.0 and self.factors is None and alike:  # of equal columns one is enough
            _, first = np.unique(self.phi, axis=1, return_index=True)
        small = replace(self, phi=self.phi[:, first])
        with threadpool_limits(1):  # small products: threads only get into each other's way
            w, b = small._descend() if self.z is None else small._zeros()
            w, b = small.polish(w, b)
        out = np.zeros(self.phi.shape[1])
        out[first] = w
        value, bound = self.objective(out, b), self.bound(self.residuals(out, b))
        assert value - bound <= gap * abs(value), f"the judge reached {(value - bound) / value:.1e}"
        return Solution(out, b, value, bound)

    def improved(self, w: np.ndarray, b: Any, gap: float = 1e-9) -> Solution:
        """The optimum, to a relative gap of at most ``gap``, from a point near it."""
        w, b = self.polish(w, b)
        value, bound = self.objective(w, b), self.bound(self.residuals(w, b))
        assert value - bound <= gap * abs(value), f"the judge reached {(value - bound) / value:.1e}"
        return Solution(w, b, value, bound)

    def _zeros(self) -> tuple[np.ndarray, Any]:
        b = np.zeros(self.free.shape[1])
        if self.loss.startswith(("huber", "pinball")):  # no row is flat at the least squares
            b = np.linalg.lstsq(self.free, self.y - self.offset)[0]
        return np.zeros(self.phi.shape[1]), b

    def _descend(self) -> tuple[np.ndarray, float]:
        """L-BFGS-B on w = w+ - w-, from the null model."""
        p = self.phi.shape[1]

        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            w, b = x[:p] - x[p : 2 * p], x[2 * p]
            r = self.C * self.residuals(w, b)
            kink, ridge = self.rho * self.f, (1.0 - self.rho) * self.f
            g = r @ self.phi + ridge * w
            slope_b = r.sum() if self.intercept else 0.0
            smooth = self.C * (self.s @ self.losses(self.margins(w, b))) + 0.5 * ridge @ w**2
            norm = kink @ (x[:p] + x[p : 2 * p])
            return norm + smooth, np.concatenate([kink + g, kink - g, [slope_b]])

        start = np.zeros(2 * p + 1)
        start[2 * p] = self.null()[0]
        found = minimize(
            value,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=[
                *((0.0, end) for end in self.ends[1]),
                *((0.0, -end) for end in self.ends[0]),
                (None, None),
            ],
            options={"maxiter": 400, "maxfun": 1000, "ftol": 1e-13, "gtol": 1e-9},
        )
        w = found.x[:p] - found.x[p : 2 * p]
        w[np.abs(self.prices(w, found.x[2 * p])) < 0.99 * self.rho * self.f] = 0.0
        return w, float(found.x[2 * p])

    def polish(self, w: np.ndarray, b: float) -> tuple[np.ndarray, float]:
        """Newton steps on the orthant of the nonzero weights; the worst violators join, ten at a time.

        (Feature-sign search, Lee, Battle, Raina and Ng 2007.)
        """
        low, high = self.ends
        sign = np.where((w <= low) | (w >= high), 0.0, np.sign(w))
        for _ in range(300):
            w, b, sign = self._settle(w, b, sign)
            price = self.prices(w, b)
            outside = np.where(sign == 0.0, self.violations(w, b), 0.0)
            join = np.argsort(-outside)[:10]
            join = join[outside[join] > 1e-11]
            if not len(join):
                break
            sign[join] = np.where(w == 0.0, -np.sign(price), np.sign(w))[join]
        return w, b

    def _settle(
        self, w: np.ndarray, b: float, sign: np.ndarray
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """The minimum on the orthant; a weight that reaches 0 or a limit is left out."""
        w, sign = w.copy(), sign.copy()
        low, high = self.ends
        value = self.objective(w, b)
        for _ in range(3000):
            on = np.flatnonzero(sign)
            m = self.margins(w, b)
            a = self.phi[:, on]
            a = np.column_stack([a, self.free])
            k = len(on)
            slope = self.C * ((self.s * self.slopes(m)) @ a)
            ridge = (1.0 - self.rho) * self.f[on]
            slope[:k] += self.rho * self.f[on] * sign[on] + ridge * w[on]
            if np.abs(slope).max(initial=0.0) <= 1e-13 * max(1.0, self.C * self.s.sum()):
                break
            bend = self.C * (a.T * (self.s * self.bends(m))) @ a
            bend[np.arange(k), np.arange(k)] += ridge
            # dependent columns make it singular: a little more lets them slide until one is 0
            more = 1e-10 * (np.diag(bend).max(initial=0.0) + 1e-12)
            step = -cho_solve(cho_factor(bend + more * np.eye(len(slope))), slope)
            dw = np.zeros_like(w)
            dw[on] = step[:k]
            db = step[k:]
            if self.z is None:
                db = step[k] if self.intercept else 0.0
            place = np.where(
                sign[on] * dw[on] < 0.0, 0.0, np.where(dw[on] > 0.0, high[on], low[on])
            )
            reach = np.full(k, np.inf)
            moving = dw[on] != 0.0
            reach[moving] = (place - w[on])[moving] / dw[on][moving]
            first = reach.min(initial=np.inf)
            t = min(1.0, first)
            new = self.objective(w + t * dw, b + t * db)
            tried = 0
            while new > value + 1e-15 * abs(value) and tried < 60 and t > 0.0:
                t *= 0.5
                tried += 1
                new = self.objective(w + t * dw, b + t * db)
            if tried == 60:
                break
            w, b, value = w + t * dw, b + t * db, new
            if t == first:
                gone = on[reach == first]
                w[gone] = place[reach == first]
                sign[gone] = 0.0
            elif t == 1.0 and np.abs(step).max() <= 1e-13 * (
                np.abs(w).max(initial=0.0) + np.abs(b).max(initial=0.0)
            ):
                break
        return w, b, sign


def confirm(
    problem: Problem, w: np.ndarray, b: float, claimed: Any, optimum: Solution | None = None
) -> None:
    """Assert the claims of a certificate; ``claimed`` has the fields of fcl's certificates.

    A claim may be weaker than the truth, but never stronger.
    """
    value = problem.objective(w, b)
    assert math.isclose(claimed.objective, value, rel_tol=2e-13)
    gap = max(0.0, claimed.objective - claimed.bound) / claimed.objective
    assert math.isclose(claimed.gap, gap, abs_tol=1e-14)
    largest = problem.largest(w, b)
    # a slope is over rho, and so is its rounding
    assert claimed.max_violation >= largest * (1.0 - 1e-11 / problem.rho)
    if optimum is not None:
        assert optimum.bound <= claimed.objective * (1.0 + 1e-12)
        assert claimed.bound <= optimum.objective * (1.0 + 1e-12)
        assert claimed.gap >= (value - optimum.objective) / value - 1e-12
