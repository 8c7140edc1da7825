"""Problems of several outputs, or with covariates: objective, gradients, and a search for better points.

Like :mod:`tests.judge` this shares no code with fcl. The problem is

    P(W, B) = sum_j f_j pen(W_j) + C sum_i s_i loss(Y_i, M_i),    M = Phi W + Z B + O,

where pen(w) = rho |w| + (1 - rho) |w|_2^2 / 2 with the L1 norm or, if ``group``, the Euclidean norm; the
loss is softmax, or the sum over the outputs of a loss of one output. Z begins with a column of ones if
there is an intercept. All arrays may be in extended precision.

`better` looks for a point of lower objective than a given one, which refutes a bound that is too high. It
takes coordinate steps, which let weights join, and Newton steps on the nonzero ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tests.judge import Problem

Long = np.longdouble
Real = Any  #: a number in extended precision, or a float
#: Unknowns up to which systems are solved in extended precision.
SMALL = 100
#: Rounds of a coordinate pass and Newton steps; a round that gains less than `LEAST` is the last.
ROUNDS, NEWTON, LEAST = 40, 12, 1e-17


@dataclass(frozen=True)
class General:
    """Arrays have rows first: phi (n, p), z (n, q), y and offset (n, K); classes are one-hot."""

    phi: np.ndarray
    z: np.ndarray
    y: np.ndarray
    s: np.ndarray
    offset: np.ndarray
    f: np.ndarray
    loss: str
    C: Real = 1.0
    rho: float = 1.0
    group: bool = False

    @classmethod
    def of(cls, problem: Problem) -> General:
        """A problem of one output without limits of weights."""
        n = len(problem.y)
        offset = np.broadcast_to(problem.offset, n)[:, None]
        arrays = problem.phi, problem.free, problem.y[:, None], problem.s, offset, problem.f
        return cls(*arrays, problem.loss, problem.C, problem.rho)

    def extended(self) -> General:
        """The same problem in extended precision."""
        names = ("phi", "z", "y", "s", "offset", "f")
        arrays: dict[str, Any] = {name: getattr(self, name).astype(Long) for name in names}
        return replace(self, **arrays, C=Long(self.C))

    @property
    def K(self) -> int:
        return int(self.y.shape[1])

    def point(self, model: Any) -> tuple[np.ndarray, np.ndarray]:
        """The weights (p, K) and the unpenalised coefficients (q, K) of a model of fcl."""
        W = np.zeros((self.phi.shape[1], self.K), Long)
        W[model.ids] = np.reshape(model.weights, (-1, self.K))
        terms = [c for term in model.covariates for c in term.coefficients]
        B = np.vstack([np.reshape(model.intercept, (1, -1)), np.reshape(terms, (len(terms), -1))]
                      if terms else [np.reshape(model.intercept, (1, -1))])  # fmt: skip
        return W, B[-self.z.shape[1] :].astype(Long) if self.z.shape[1] else B[:0].astype(Long)

    # -- one point -----------------------------------------------------------------------------

    def margins(self, W: np.ndarray, B: np.ndarray) -> np.ndarray:
        return np.asarray(self.phi @ W + self.z @ B + self.offset)

    def _outputs(self) -> list[Problem]:
        """A problem of one output for each column, for its formulas of a row."""
        return [Problem(self.phi, y, self.s, self.loss, 1.0) for y in self.y.T]

    def losses(self, m: np.ndarray) -> np.ndarray:
        if self.loss == "softmax":
            beyond = m - (self.y * m).sum(axis=1, keepdims=True)
            others = np.logaddexp.reduce(np.where(self.y > 0.0, -np.inf, beyond), axis=1)
            return np.asarray(np.logaddexp(0.0, others))  # to the last digit of a small loss
        return np.sum([p.losses(u) for p, u in zip(self._outputs(), m.T, strict=True)], axis=0)

    def slopes(self, m: np.ndarray) -> np.ndarray:
        if self.loss == "softmax":
            return np.exp(m - np.logaddexp.reduce(m, axis=1)[:, None]) - self.y
        return np.column_stack([p.slopes(u) for p, u in zip(self._outputs(), m.T, strict=True)])

    def bends(self, m: np.ndarray) -> np.ndarray:
        """Second derivatives of the rows' losses, (n, K, K)."""
        eye = np.eye(self.K, dtype=m.dtype)
        if self.loss == "softmax":
            share = np.exp(m - np.logaddexp.reduce(m, axis=1)[:, None])
            return share[:, :, None] * (eye - share[:, None, :])
        own = np.column_stack([p.bends(u) for p, u in zip(self._outputs(), m.T, strict=True)])
        return own[:, :, None] * eye

    def size(self, rows: np.ndarray) -> np.ndarray:
        """What the penalty measures of derivatives of each feature: the dual norm."""
        if self.group:
            return np.sqrt((rows**2).sum(axis=1))
        return np.abs(rows).max(axis=1)

    def penalty(self, W: np.ndarray) -> Real:
        norm = np.sqrt((W**2).sum(axis=1)) if self.group else np.abs(W).sum(axis=1)
        return self.f @ (self.rho * norm + 0.5 * (1.0 - self.rho) * (W**2).sum(axis=1))

    def objective(self, W: np.ndarray, B: np.ndarray) -> Real:
        return self.penalty(W) + self.C * (self.s @ self.losses(self.margins(W, B)))

    def gradient(self, W: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of the smooth part with respect to W and B."""
        r = self.C * self.s[:, None] * self.slopes(self.margins(W, B))
        return self.phi.T @ r + (1.0 - self.rho) * self.f[:, None] * W, self.z.T @ r

    def pulls(self, W: np.ndarray, B: np.ndarray) -> np.ndarray:
        """The size of the derivative of each feature, divided by the factor of its norm."""
        return self.size(self.gradient(W, B)[0]) / (self.rho * self.f)

    def largest(self, W: np.ndarray, B: np.ndarray) -> float:
        """The largest size."""
        return float(np.abs(self.pulls(W, B)).max(initial=0.0))

    def rounding(self, W: np.ndarray, B: np.ndarray) -> tuple[float, float]:
        """See :func:`tools.fuzz.certify.rounding_of`."""
        eps = float(np.finfo(np.float64).eps)
        m = self.margins(W, B)
        off = np.abs(self.phi) @ np.abs(W) + np.abs(self.z) @ np.abs(B)
        off = eps * (off + np.abs(self.y) + np.abs(self.offset))
        slopes = np.abs(self.slopes(m))
        value = self.objective(W, B)
        objective = float(self.C * (self.s @ (slopes * off + off**2).sum(axis=1)))
        sizes = (np.abs(self.bends(m)) * off[:, None, :]).sum(axis=2) + eps * slopes
        sizes *= self.s[:, None]
        if self.loss == "softmax":  # fcl rounds residuals to a grid, so that they sum to 0 exactly
            sizes += 2.0 * eps * self.s.max()
        price = self.C * (np.abs(self.phi).T @ sizes)
        price = self.size(price) / (self.rho * self.f)
        return float(objective / value) if value else 0.0, float(price.max(initial=0.0))

    # -- better points -------------------------------------------------------------------------

    def null(self) -> tuple[np.ndarray, float]:
        """The best unpenalised coefficients without weights, and the least C that gives a weight."""
        W, B = (
            np.zeros((self.phi.shape[1], self.K), Long),
            np.zeros((self.z.shape[1], self.K), Long),
        )
        exact = replace(self.extended(), C=Long(1.0))
        for _ in range(200):
            W, new, _, moved = exact._newton(W, B, exact.objective(W, B))
            if not moved:
                break
            B = new
        slope = exact.gradient(W, B)[1]
        scale = (exact.s[:, None] * np.abs(exact.slopes(exact.margins(W, B)))).sum()
        if np.abs(slope).max(initial=0.0) > 1e-9 * (
            np.abs(exact.z).max(initial=0.0) * scale + 1e-300
        ):
            return B, np.inf  # rows that the covariates separate have no optimum
        largest = float((exact.size(exact.gradient(W, B)[0]) / exact.f).max())
        return B, self.rho / largest if largest > 0.0 else np.inf

    def better(self, W: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray, Real]:
        """A point whose objective is at most that of the given one, usually the optimum."""
        value = self.objective(W, B)
        for _ in range(ROUNDS):
            before = value
            W, value = self._descend(W, B, value)
            for _ in range(NEWTON):
                W, B, value, moved = self._newton(W, B, value)
                if not moved:
                    break
            if not before - value > LEAST * value:
                break
        return W, B, value

    def _descend(self, W: np.ndarray, B: np.ndarray, value: Real) -> tuple[np.ndarray, Real]:
        """One proximal step for each feature that is not at its optimum."""
        W, m = W.copy(), self.margins(W, B)
        smooth = self.C * (self.s @ self.losses(m))
        for j in range(len(W)):
            x, f = self.phi[:, j], self.f[j]
            g = self.C * ((self.s * x) @ self.slopes(m))
            if not W[j].any() and self.size(g[None])[0] <= self.rho * f:
                continue
            curve = np.abs(np.einsum("nkk->nk", self.bends(m))).max(axis=1)
            L = self.C * (self.s @ (x * x * curve)) + 1e-300
            old = self._of(W[j], f)
            for _ in range(40):
                step = W[j] - g / L
                norm = np.sqrt(step @ step) if self.group else np.abs(step)
                kept = np.maximum(1.0 - self.rho * f / L / np.maximum(norm, 1e-300), 0.0)
                new = kept * step / (1.0 + (1.0 - self.rho) * f / L)
                moved = m + x[:, None] * (new - W[j])
                then = self.C * (self.s @ self.losses(moved))
                if then + self._of(new, f) < smooth + old:
                    value += then + self._of(new, f) - smooth - old
                    W[j], m, smooth = new, moved, then
                    break
                L *= 4.0
        return W, self.objective(W, B)

    def _of(self, row: np.ndarray, f: Real) -> Real:
        """The penalty of one feature."""
        norm = np.sqrt(row @ row) if self.group else np.abs(row).sum()
        return f * (self.rho * norm + 0.5 * (1.0 - self.rho) * (row @ row))

    def _newton(
        self, W: np.ndarray, B: np.ndarray, value: Real
    ) -> tuple[np.ndarray, np.ndarray, Real, bool]:
        """A Newton step in the nonzero weights and in B; returns whether the objective fell."""
        on = np.repeat((W != 0.0).any(axis=1)[:, None], self.K, axis=1) if self.group else W != 0.0
        at, outputs = np.nonzero(on)
        q, K = self.z.shape[1], self.K
        columns = np.column_stack([self.phi[:, at], np.repeat(self.z, K, axis=1)])
        outputs = np.concatenate([outputs, np.tile(np.arange(K), q)])
        if not len(outputs):
            return W, B, value, False
        bends = self.bends(self.margins(W, B)) * (self.C * self.s)[:, None, None]
        if len(outputs) > SMALL:  # more digits would take seconds
            columns, bends = columns.astype(float), bends.astype(float)
        hessian = np.empty((len(outputs), len(outputs)), columns.dtype)
        for k in range(K):
            for other_k in range(K):
                mine, other = outputs == k, outputs == other_k
                part = (columns[:, mine].T * bends[:, k, other_k]) @ columns[:, other]
                hessian[np.ix_(mine, other)] = part
        g, h = self.gradient(W, B)
        n_on = len(at)
        own = np.arange(n_on)
        hessian[own, own] += (1.0 - self.rho) * self.f[at]
        if self.group:
            norms = np.sqrt((W**2).sum(axis=1))
            unit = W / np.maximum(norms, 1e-300)[:, None]
            for j in np.unique(at):
                mine = np.flatnonzero(at == j)
                turn = np.eye(K, dtype=W.dtype) - np.outer(unit[j], unit[j])
                hessian[np.ix_(mine, mine)] += self.rho * self.f[j] / norms[j] * turn
            kink = unit
        else:
            kink = np.sign(W)
        slope = np.concatenate([(g + self.rho * self.f[:, None] * kink)[on], h.reshape(-1)])
        if not (np.isfinite(hessian).all() and np.isfinite(slope).all()):
            return W, B, value, False
        step = _solve_system(hessian, slope)
        dW, dB = np.zeros_like(W), step[n_on:].reshape(q, K)
        dW[on] = step[:n_on]
        for halving in range(30):
            beta = Long(0.5) ** halving
            new = W + beta * dW
            if not self.group:
                new = np.where(new * W >= 0.0, new, 0.0)
            found = self.objective(new, B + beta * dB)
            if found < value:
                return new, B + beta * dB, found, True
        return W, B, value, False


def _solve_system(bend: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """-bend^-1 slope, in the precision of the matrix.

    The diagonal, scaled to 1, is increased as little as the Cholesky factorisation needs.
    """
    size = np.sqrt(np.maximum(np.diag(bend), 1e-290))
    scaled = bend / size / size[:, None]
    right = (slope / size).astype(bend.dtype)
    more = 8.0 * np.finfo(bend.dtype).eps
    while True:
        try:
            matrix = scaled + more * np.eye(len(size), dtype=bend.dtype)
            if bend.dtype == np.float64:
                return -cho_solve(cho_factor(matrix), right) / size
            return -_by_cholesky(matrix, right) / size
        except np.linalg.LinAlgError:
            more *= 100.0


def _by_cholesky(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a positive definite system in the precision of its arrays."""
    n = len(right)
    low = np.column_stack([matrix, right])  # the right-hand side is eliminated with the columns
    for k in range(n):
        if not low[k, k] > 0.0:
            raise np.linalg.LinAlgError
        low[k, k:] /= np.sqrt(low[k, k])
        low[k + 1 :, k + 1 :] -= np.outer(low[k, k + 1 : n], low[k, k + 1 :])
    out = np.zeros(n, matrix.dtype)
    for k in range(n - 1, -1, -1):
        out[k] = (low[k, n] - low[k, k + 1 : n] @ out[k + 1 :]) / low[k, k]
    return out
