"""A judge of models of several outputs: certificates, in plain numpy.

Like :mod:`tests.judge` it neither imports nor copies code of fcl. Objective, slopes and solver are in
:mod:`tools.fuzz.general`. The problem is

    P(W, B) = sum_j f_j pen(W_j) + C sum_i s_i (log sum_k exp u_ik - u_i,y_i),    u = Phi W + Z B + o,

with pen(w) = rho |w| + (1 - rho) |w|_2^2 / 2, where |w| is the L1 norm or, if ``group``, the Euclidean
norm; Z is a column of ones, before covariates if there are any. For any A with rows in the simplex, with
sum_i s_i (A_i - Y_i) = 0 if there is an intercept, and V = S (A - Y),

    D(A) = C sum_i s_i (H(A_i) + <A_i - Y_i, o_i>) - sum_j pen_j*(C Phi_j' V)

is a lower bound of P. Here H is the entropy, and the conjugate of f pen is the sum over classes (group:
the value at the norm) of max(0, |v| - rho f)^2 / (2 (1 - rho) f); for rho = 1 it is 0 where no |v| is
above f, else infinite. Columns of targets or labels have losses of their own, and the same penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from judge import Problem
from scipy.special import entr

from tools.fuzz.general import General


@dataclass(frozen=True)
class ClassProblem:
    """Arrays have rows first: phi (n, p), offset (n, K); y (n,) are class numbers."""

    phi: np.ndarray
    y: np.ndarray
    s: np.ndarray
    K: int
    C: float
    f: np.ndarray
    rho: float = 1.0
    group: bool = False
    intercept: bool = True
    offset: np.ndarray | float = 0.0
    z: np.ndarray | None = None  #: covariates (n, q); B is then (1 + q, K)
    kind: str = "softmax"

    @property
    def free(self) -> np.ndarray:
        """The columns without a penalty."""
        ones = np.ones((len(self.y), int(self.intercept)))
        return ones if self.z is None else np.column_stack([ones, self.z])

    @property
    def hot(self) -> np.ndarray:
        return np.asarray(np.eye(self.K)[self.y.astype(int)])

    @cached_property
    def general(self) -> General:
        """The problem without its dual."""
        offset = np.broadcast_to(self.offset, self.hot.shape)
        arrays = self.phi, self.free, self.hot, self.s, offset, self.f
        return General(*arrays, self.kind, self.C, self.rho, self.group)

    def _all(self, b: np.ndarray) -> np.ndarray:
        """The coefficients (q, K) of the free columns; without covariates b has the intercepts (K,)."""
        return np.reshape(b, (-1, self.K))[: self.free.shape[1]]

    def margins(self, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.general.margins(W, self._all(b))

    def size(self, rows: np.ndarray) -> np.ndarray:
        """What the norm of the dual measures of the prices of each feature."""
        return self.general.size(rows)

    def objective(self, W: np.ndarray, b: np.ndarray) -> float:
        return float(self.general.objective(W, self._all(b)))

    def residuals(self, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.s[:, None] * self.general.slopes(self.margins(W, b))

    def solve(
        self, W: np.ndarray | None = None, b: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The optimum, found from a point; without covariates the second array is (K,)."""
        W = np.zeros((self.phi.shape[1], self.K)) if W is None else W
        B = np.zeros((self.free.shape[1], self.K)) if b is None else self._all(b)
        W, B = (found.astype(float) for found in self.general.better(W, B)[:2])
        return W, B if self.z is not None else B.sum(axis=0)

    # -- the certificate -----------------------------------------------------------------------

    def balanced(self, A: np.ndarray) -> np.ndarray:
        """A with the class sums of the labels: mass of heavy classes moves to light ones, row by row."""
        if not self.intercept:
            return A
        have, want = self.s @ A, self.s @ self.hot
        heavy = have > want
        out = A.copy()
        out[:, heavy] *= want[heavy] / have[heavy]
        lack = np.where(heavy, 0.0, want - have)
        freed = A.sum(axis=1) - out.sum(axis=1)
        return out + np.outer(freed, lack / lack.sum()) if lack.sum() > 0.0 else out

    def dual(self, A: np.ndarray) -> float:
        """D(A); -inf where it is not feasible."""
        assert A.min() >= -1e-15 and np.allclose(A.sum(axis=1), 1.0, atol=1e-13)
        V = self.s[:, None] * (A - self.hot)
        if self.intercept:
            assert np.abs(V.sum(axis=0)).max() <= 1e-11 * self.s.sum()
        v = self.C * (self.phi.T @ V)
        value = self.C * float(self.s @ entr(np.clip(A, 0.0, 1.0)).sum(axis=1))
        value += self.C * float((V * self.offset).sum())
        above = np.linalg.norm(v, axis=1, keepdims=True) if self.group else np.abs(v)
        above = np.maximum(above - self.rho * self.f[:, None], 0.0)
        if self.rho == 1.0:
            return value if above.max(initial=0.0) <= 1e-11 * self.f.max() else -np.inf
        return value - float((above**2 / (2.0 * (1.0 - self.rho) * self.f[:, None])).sum())

    def largest(self, V: np.ndarray) -> float:
        """max_j size(g_j) / f_j for residuals V."""
        return float((self.size(self.phi.T @ V) / self.f).max())

    def bound(self, R: np.ndarray) -> float:
        """The certificate of residuals: balanced, scaled to be feasible; with squares also unscaled."""
        A = self.balanced(self.hot + R / self.s[:, None])
        most = self.C * self.largest(self.s[:, None] * (A - self.hot)) / self.rho
        found = self.dual(self.hot + min(1.0, 1.0 / most) * (A - self.hot))
        return found if self.rho == 1.0 else max(found, self.dual(A))


@dataclass(frozen=True)
class TargetProblem(ClassProblem):
    """Several numeric targets, or labels -1 and 1: y (n, K), with the squared or the logistic loss."""

    kind: str = "squared"

    @property
    def hot(self) -> np.ndarray:
        return self.y

    def one(self, k: int) -> Problem:
        """The problem of one output."""
        offset = np.broadcast_to(self.offset, self.y.shape)[:, k]
        return Problem(
            *(self.phi, self.y[:, k], self.s, self.kind, self.C, self.intercept), offset=offset
        )

    def bound(self, R: np.ndarray) -> float:
        V = np.column_stack([self.one(k).balance(R[:, k]) for k in range(self.K)])
        t = 1.0
        if self.rho == 1.0:
            t = min(1.0, 1.0 / (self.C * self.largest(V)))
        value = sum(self.one(k).dual(t * self.C * V[:, k]) for k in range(self.K))
        v = t * self.C * (self.phi.T @ V)
        above = np.linalg.norm(v, axis=1, keepdims=True) if self.group else np.abs(v)
        above = np.maximum(above - self.rho * self.f[:, None], 0.0)
        if self.rho == 1.0:
            return value
        return value - float((above**2 / (2.0 * (1.0 - self.rho) * self.f[:, None])).sum())


def confirm(problem: ClassProblem, W: np.ndarray, b: np.ndarray, claimed: Any, tol: float) -> None:
    """Assert the claims of a certificate of a gap of ``tol``, and that the point has it."""
    value = problem.objective(W, b)
    assert math.isclose(claimed.objective, value, rel_tol=1e-10)
    assert math.isclose(claimed.gap, 1.0 - claimed.bound / value, abs_tol=1e-10)
    assert claimed.gap <= tol
    best = problem.objective(*problem.solve(W, b))
    assert value <= best * (1.0 + tol)
    assert claimed.bound <= min(best, value) * (1.0 + 1e-12)
    if problem.z is not None:
        return  # the judge cannot balance against covariates
    # the judge's bound is of the last point alone, fcl's the best over all passes
    judged = problem.bound(problem.residuals(W, b))
    assert value - judged <= 10.0 * tol * value
    assert judged <= best * (1.0 + 1e-12)
