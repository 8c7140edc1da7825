"""Minimise a quadratic plus norms of groups of weights in float64.

    gradients . d + d' hessian d / 2 + sum_j absolute_j |start_j + d_j|

Sweeps over the groups, each minimised exactly, find which groups are 0; Newton steps on the others, where
the norm is smooth, converge however the groups are conditioned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve

from fcl.kernels.coupled_blocks import group_sweeps
from fcl.types import Floats, Ints

#: Maximum rounds of sweeps and a Newton step.
MOST_ROUNDS = 200
#: Rounds in a row that lower the value by no more than rounding before the search ends.
MOST_IDLE = 3
#: Maximum steps of one-dimensional searches.
MOST_SEARCHED = 60
#: Relative difference below which two values are equal.
ROUNDED = 1e-15
#: Least eigenvalue of a system that is solved, relative to its largest.
LEAST_CURVE = 1e-15
#: Least diagonal entry of a Cholesky factor, of a matrix with diagonal 1, with which a system is solved.
LEAST_PIVOT = 1e-4
#: Share of a Newton step below which groups that cut it short are set to 0: those that are below a share
#: of their own step, and those of which at most a share is left where it ends.
SHORT, TINY, VANISHED = 0.1, 1e-6, 1e-3
#: Most sweeps before a Newton step, which costs as much as dozens of them.
MOST_SWEEPS = 100


def minimise_groups(
    hessian: Floats,
    gradients: Floats,
    absolute: Floats,
    start: Floats,
    tolerance: float,
    cease: Callable[[], bool] = lambda: False,
) -> tuple[Floats, int]:
    """The weights start + d, float64 (k, K), and the number of rounds.

    hessian : float64 (k K, k K), positive semidefinite; overwritten.
    gradients : float64 (k K,).
    absolute : float64 (k,), above 0.
    start : float64 (k, K).
    """
    model = _Groups(hessian, gradients, absolute, start)
    value, idle, rounds = 0.0, 0, 0
    while rounds < MOST_ROUNDS and idle < MOST_IDLE and not cease():
        rounds += 1
        model.sweep(tolerance)
        if model.violation() <= tolerance:
            break
        model.newton()
        before, value = value, model.value()
        idle = idle + 1 if before - value <= ROUNDED * (abs(value) + model.size) else 0
    return model.w / model.scale[:, None], rounds


class _Groups:
    """The state of the search, over groups whose diagonals have mean 1."""

    def __init__(self, hessian: Floats, gradients: Floats, absolute: Floats, start: Floats) -> None:
        k, K = start.shape
        scale = np.sqrt(np.maximum(hessian.diagonal().reshape(k, K).mean(axis=1), 0.0))
        self.scale = np.where(scale > 0.0, scale, 1.0)
        every = np.repeat(self.scale, K)
        self.hessian = hessian
        self.hessian /= every
        self.hessian /= every[:, None]
        self.g, self.a = gradients / every, absolute / self.scale
        self.origin = start * self.scale[:, None]
        self.w = self.origin.copy()
        self.slope = self.g.reshape(k, K).copy()
        whole = self.hessian.reshape(k, K, k, K)
        blocks = np.stack([whole[j, :, j] for j in range(k)])
        self._curves, self._vectors = np.linalg.eigh(blocks)
        self._curves = np.maximum(self._curves, LEAST_CURVE)
        self.size = float(self.a @ np.linalg.norm(self.w, axis=1))

    def value(self) -> float:
        d = (self.w - self.origin).ravel()
        smooth = 0.5 * float((self.g + self.slope.ravel()) @ d)
        return smooth + float(self.a @ (np.linalg.norm(self.w, axis=1)))

    def violation(self) -> float:
        """The largest violation, as a share of the norm's coefficient."""
        sizes = np.linalg.norm(self.w, axis=1)
        pulled = self.slope + (self.a / np.where(sizes > 0.0, sizes, 1.0))[:, None] * self.w
        left = np.linalg.norm(pulled, axis=1)
        return float((np.where(sizes > 0.0, left, np.maximum(left - self.a, 0.0)) / self.a).max())

    def sweep(self, tolerance: float) -> None:
        """Minimise over each group in turn, until no group violates by more, or many times."""
        blocks = self._curves, self._vectors, self.a
        group_sweeps(self.hessian, *blocks, self.w, self.slope, MOST_SWEEPS, tolerance)

    def newton(self) -> None:
        """Take a Newton step on the groups that are not 0.

        Groups that would step past 0 cut it short. They become 0, and the others take another step.
        """
        active = np.flatnonzero(self.w.any(axis=1))
        while len(active):
            beta, step, short = self._newton(active)
            if beta == 0.0 and not short.any():
                break
            self.w[active] += beta * step
            self.w[active[short]] = 0.0
            d = (self.w - self.origin).ravel()  # sums of many updates drift
            self.slope = (self.g + self.hessian @ d).reshape(self.w.shape)
            if not short.any():
                break
            active = active[~short]

    def _newton(self, active: Ints) -> tuple[float, Floats, npt.NDArray[np.bool_]]:
        """The step of some groups, the share of it to take, and which groups cut it short."""
        K = self.w.shape[1]
        some = (active[:, None] * K + np.arange(K)).ravel()
        w, a = self.w[active], self.a[active]
        sizes = np.linalg.norm(w, axis=1)
        matrix = self.hessian.take(some, axis=0).take(some, axis=1)
        units = w / sizes[:, None]
        for t in range(len(active)):
            own = slice(t * K, (t + 1) * K)
            projector = np.eye(K) - np.outer(units[t], units[t])
            matrix[own, own] += a[t] / sizes[t] * projector
        right = -(self.slope[active] + a[:, None] * units).ravel()
        step = _solved(matrix, right).reshape(w.shape)
        square = float(step.ravel() @ (self.hessian[np.ix_(some, some)] @ step.ravel()))
        linear = float((self.slope[active] * step).sum())
        beta = _along(linear, square, a, w, step)
        short = sizes <= TINY * np.linalg.norm(step, axis=1)
        short |= np.linalg.norm(w + beta * step, axis=1) <= VANISHED * sizes
        return beta, step, short & (beta < SHORT)


def _solved(matrix: Floats, right: Floats) -> Floats:
    """The least solution of a positive semidefinite system."""
    scale = np.sqrt(np.maximum(matrix.diagonal(), 0.0))
    scale = np.where(scale > 0.0, scale, 1.0)
    matrix = matrix / scale / scale[:, None]
    right = right / scale
    with suppress(np.linalg.LinAlgError):
        triangle = np.linalg.cholesky(matrix)
        if triangle.diagonal().min() > LEAST_PIVOT:
            return np.asarray(cho_solve((triangle, True), right) / scale)
    curves, vectors = np.linalg.eigh(matrix)
    kept = curves > LEAST_CURVE * len(right) * curves[-1]
    along = vectors[:, kept].T @ right
    return np.asarray(vectors[:, kept] @ (along / curves[kept]) / scale)


def _along(linear: float, square: float, a: Floats, w: Floats, step: Floats) -> float:
    """The best share, at most 1, of a step along which the value is convex."""

    def slope(beta: float) -> float:
        new = w + beta * step
        sizes = np.linalg.norm(new, axis=1)
        moved = (new * step).sum(axis=1) / np.where(sizes > 0.0, sizes, 1.0)
        return linear + beta * square + float(a @ moved)

    if slope(1.0) <= 0.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(MOST_SEARCHED):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    return low
