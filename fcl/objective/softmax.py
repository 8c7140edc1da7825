"""The softmax objective: K classes, whose probabilities share one loss.

    P(W, V) = penalty(W) + C * sum_i s_i ( log sum_k exp(m_ik) - m_i,y_i )

with the margins m_ik = sum_j W_jk phi_ij + V_k . z_i + o_ik.

**Residuals** are r_ik = s_i (p_ik - [y_i = k]), with the probabilities p. Each row of residuals sums to
0, so the prices of all features do, too: K - 1 outputs are enough, and the last one's prices are minus
the sum of theirs. The loss is unchanged by a constant added to all margins of a row.

**The dual.** With A_i = p_i, or any other distribution over the classes, and H(a) = -sum_k a_k log a_k,

    D(A) = C sum_i s_i ( H(A_i) + <A_i - Y_i, o_i> )

is a lower bound of P if sum_i s_i (A_i - Y_i) z_i' = 0, where z_i is 1 for intercepts, and the prices of
s_i (A_ik - Y_ik) violate the optimality condition of no feature. Where the penalty has squares, all
prices are allowed, and the penalty's conjugate is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np

from fcl import kernels
from fcl.objective.block_sums import EPSILON
from fcl.objective.class_covariates import balanced as balanced_covariates
from fcl.objective.class_covariates import free_hessian
from fcl.objective.class_intercepts import ClassSums, fit_class_intercepts
from fcl.objective.outputs import Outputs
from fcl.objective.problem import LineSums, RowValues, UnpenalisedFit
from fcl.objective.simplex import Balanced, balanced
from fcl.objective.single_output import SingleOutput
from fcl.objective.unpenalised import descend
from fcl.types import Floats, Ids

T = TypeVar("T")

#: Bits of a float64: sums of residuals of one row are exact on a grid of 2^-52 times its weight.
EXACT_BITS = 52
#: Number of rows whose probabilities are multiplied at a time.
CHUNK = 1024


@dataclass(frozen=True)
class SoftmaxOutputs(Outputs):
    """The softmax objective on given rows; y are class numbers, float64 (n,).

    n_classes : number K of classes, some of which may have no rows, as in a sample.
    """

    n_classes: int = 0

    separate: ClassVar[bool] = False

    @property
    def outputs(self) -> tuple[int, ...]:
        return (self.n_classes,)

    def class_counts(self) -> tuple[Floats, Ids]:
        K = self.n_classes
        codes = (self.y[rows].astype(np.int64) for rows in self.blocks())
        counts = sum((np.bincount(own, minlength=K) for own in codes), np.zeros(K, np.int64))
        return np.arange(float(K)), counts

    @property
    def counts(self) -> Floats:
        """Sum of the weights of each class, float64 (K,)."""
        found = np.zeros(self.n_classes)
        np.add.at(found, self.y.astype(np.int64), self.s)
        return found

    def centre(self, weights: Floats) -> Floats:
        """Weights (k, K) with the same probabilities, up to the intercepts, and the least penalty.

        The loss is unchanged by a constant added to a row of the weights;
        :meth:`fcl.objective.Penalty.centre` finds the best one. A constant c_j changes all margins of row
        i by c_j phi_ij, so the objective falls by exactly what the penalty falls by, apart from rounding.
        """
        return weights - self.penalty.centre(weights)[:, None]

    def centre_free(self, v: Floats) -> Floats:
        """The free coefficients with the same probabilities that have mean 0 over the classes."""
        if self.covariates is None:
            return v - v.mean() if len(v) else v.copy()
        return self._centred(v)

    def _centred(self, v: Floats) -> Floats:
        table = v.reshape(self.n_classes, -1)
        return np.asarray((table - table.mean(axis=0)).ravel())

    @property
    def n_flat(self) -> int:
        return self.n_free // self.n_classes

    # -- sums over rows ------------------------------------------------------------------------

    def work(self) -> Floats:
        return np.empty((self.n_classes + 3, kernels.softmax.TILE))

    @cached_property
    def _zeros(self) -> Floats:
        return np.zeros(self.n_classes)

    def _map(self, function: Callable[[slice], T]) -> list[T]:
        return self.team.map(function, list(self.blocks()))

    def _sums(self, kernel: Any, *arrays: Any, shape: tuple[int, ...]) -> list[tuple[Any, Floats]]:
        """What a kernel returns for each row block, and the sums that it writes, of this shape."""

        def block(rows: slice) -> tuple[Any, Floats]:
            out = np.empty(shape)
            place = rows.start, rows.stop, self.work()
            return kernel(self.y, self.s, *arrays, *place, *((out,) if shape else ())), out

        return self._map(block)

    def loss_sum(self, m: Floats, b: float = 0.0) -> float:
        found = self._sums(kernels.softmax.weighted_loss, m, self._zeros, shape=())
        return math.fsum(value for value, _ in found)

    def residuals_curvatures_of(
        self, rows: slice, m: Floats, r: Floats, q: Floats, b: float = 0.0
    ) -> None:
        kernels.softmax.residuals_curvatures(
            self.y, self.s, m, self._zeros, rows.start, rows.stop, self.work(), r, q
        )

    def line_sums(self, m: Floats, dm: Floats, beta: float, b: float = 0.0) -> LineSums:
        arrays = m, dm, beta, self._zeros
        found = [sums for _, sums in self._sums(kernels.softmax.line_sums, *arrays, shape=(3,))]
        value, slope, curve = map(math.fsum, zip(*found, strict=True))
        return LineSums(value, 0.0, 0.0, slope, curve, 0.0)

    def rounding(self, m: Floats, b: float, shift: float) -> tuple[float, float]:
        def block(rows: slice) -> tuple[float, float]:
            r, q = np.empty((2, *m[:, rows].shape))
            own = replace(self, y=self.y[rows], s=self.s[rows], offset=None, covariates=None)
            own.residuals_curvatures_of(slice(0, own.n_rows), m[:, rows].copy(), r, q)
            sizes, residuals = np.abs(m[:, rows]) + (abs(b) + abs(shift)), np.abs(r)
            value = float(((residuals + 0.5 * EPSILON * q * sizes) * sizes).sum())
            return value, float((q * sizes).sum()) + float(residuals.sum())

        values, slopes = map(math.fsum, zip(*self._map(block), strict=True))
        return values, slopes

    def residual_errors(self, m: Floats, q: Floats, b: float) -> Iterator[Floats]:
        # differences of a probability, which depends on all margins of the row, from 0 or 1
        largest = np.abs(m).max(axis=0)
        for own in q:
            yield own * largest + self.s

    def class_sums(self, m: Floats, shift: Floats) -> ClassSums:
        """Sums by class at margins m + shift_k."""

        found = self._sums(kernels.softmax.balances, m, shift, shape=(5, self.n_classes))
        parts = np.stack([sums for _, sums in found])
        balance, mass, curvature, absolute = (
            np.array([math.fsum(column) for column in parts[:, i].T]) for i in range(4)
        )
        value = math.fsum(value for value, _ in found)
        return ClassSums(value, balance, mass, curvature, absolute, parts[:, 4].max(axis=0))

    def joint_masses(self, m: Floats, shift: Floats, stride: int = 1) -> Floats:
        """sum_i s_i p_ij p_ik over every ``stride``-th chunk of rows, float64 (K, K)."""

        def block(rows: slice) -> Floats:
            out = np.zeros((self.n_classes, self.n_classes))
            for start in range(rows.start, rows.stop, CHUNK * stride):
                stop = min(start + CHUNK, rows.stop)
                p = np.empty((self.n_classes, stop - start))
                kernels.softmax.probabilities(self.s, m, shift, start, stop, self.work(), p)
                out += p @ p.T
            return out

        return np.sum(self._map(block), axis=0)

    def fit_unpenalised(
        self,
        m: Floats,
        slope: Floats | None = None,
        floor: Floats | None = None,
        guess: float = 0.0,
    ) -> UnpenalisedFit:
        x, none = np.zeros((2, self.n_free))
        slope, floor = none if slope is None else slope, none if floor is None else floor
        if self.intercept:
            return fit_class_intercepts(self, m, slope, floor)
        if self.covariates is None:
            return UnpenalisedFit(x, 0.0)
        decrease = 0.0
        if self.covariates.constant:  # this search finds the best constants from any distance
            own = slice(None, None, self.covariates.q)
            fit = fit_class_intercepts(self, m, slope[own], floor[own])
            x[own], decrease = fit.x, fit.decrease
        if not floor.any():
            slope = self._centred(slope)
        return descend(self, m, x, slope, floor, decrease)

    def free_hessian(self, m: Floats, q: Floats, share: float) -> Floats:
        """The Hessian of the losses in the coefficients of the covariates, float64 (n_free, n_free).

        q : not used.  share : see :meth:`fcl.objective.SingleOutput.free_hessian`.
        """
        return free_hessian(self, m, share)

    @cached_property
    def parts(self) -> tuple[SingleOutput, ...]:
        return (self._part(self.loss, self.y, None),) * self.n_classes

    # -- dual ----------------------------------------------------------------------------------

    def residual_sum(self, r: Floats, loss: float) -> float:
        """At most the losses: the residuals of other classes sum to s_i (1 - p_i,y_i) in each row.

        The bound does not depend on the residuals, so that the grid is known before any are written, and
        is the same in all processes that write some of them.
        """
        return min(loss * (1.0 + 1e-9), self._weight)

    @cached_property
    def _weight(self) -> float:
        return math.fsum(self.s)

    @cached_property
    def least_step(self) -> float:
        return float(2.0 ** (math.frexp(float(self.s.max()))[1] - EXACT_BITS))

    def close(self, rows: slice, r: Floats, step: float) -> None:
        """Make each row of residuals sum to 0 exactly, on a grid that all classes share.

        Residuals of other classes, which are positive, are truncated to the grid, and that of the own
        class is set to minus their sum. A_i = Y_i + r_i / s_i then remains in the simplex: no number is
        negative, and the sum of the others, which did not rise, is at most 1.
        :class:`fcl.features.prices.RowVector` with the same step changes nothing, so that the prices are
        those of this very A, and any K - 1 of them determine the last: no error term is needed.

        rows : the rows to close. Only the process that wrote their residuals may close them, before
            others read them.
        r : float64 (K, n), residuals, changed in place. No absolute value grows.
        step : of the grid, at least :attr:`least_step`.
        """
        kernels.softmax.close_rows(self.y, r, step, rows.start, rows.stop)

    def balanced(
        self, r: Floats, q: Floats, m: Floats, step: float, on_grid: Callable[[Floats], RowValues]
    ) -> Floats:
        if not step:  # the finest on which sums of a row are exact, once numbers may have doubled
            others = 0.5 * float(np.abs(r).sum(axis=0).max(initial=0.0))
            step = min(self.least_step, 2.0 ** (math.frexp(2.0 * others)[1] - EXACT_BITS))

        def close(found: Floats) -> None:
            self.team.map(lambda rows: self.close(rows, found, step), list(self.blocks()))

        return balanced_covariates(self, r, m, close)

    def imbalance(self, r: Sequence[RowValues] | Floats) -> Floats:
        if not self.intercept:
            return np.zeros(self.n_classes)
        return np.abs(self.free_sums(r))

    def dual_bound(
        self,
        r: Sequence[RowValues] | Floats,
        largest: float | Floats,
        excess: float | Floats = math.inf,
        slack: float | Floats = 0.0,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """See :meth:`Objective.dual_bound`; ``largest`` and ``excess`` are those of all classes together.

        Residuals of the own class are taken as minus the sum of the others (:meth:`close`); this makes
        the point A = Y + r / s, clipped to positive numbers, one of the simplex.
        :func:`fcl.objective.simplex.balanced` then balances the classes. A^t = Y + t (A - Y) is in the
        simplex for 0 <= t <= 1, and its prices are t times those of A, so that t = 1 / max_j C size_j /
        (rho f_j), if less than 1, makes it feasible. D is concave in t and rises up to t = 1 near an
        optimum, so that no search is needed.
        """
        balance = balanced(self.free_sums(r) if self.intercept else self._zeros, self.counts)
        limit = self.penalty.least_C(self.C * float(np.max(largest)) * (1.0 + 1e-12))
        lost, t = math.fsum(np.ravel(slack)), min(1.0, limit)
        scaled = self._dual_value(r, balance, t) - t * lost
        total = float(np.sum(excess))
        if self.penalty.pure_l1 or math.isinf(total):
            return scaled
        whole = self._dual_value(r, balance, 1.0) - lost
        return max(scaled, whole - self.penalty.conjugate(self.C, total))

    def _dual_value(self, r: Sequence[RowValues] | Floats, balance: Balanced, t: float) -> float:
        def block(rows: slice) -> float:
            part = np.stack([r[k][rows] for k in range(self.n_classes)])
            offset = np.empty((0, 0))
            if self.offset is not None:
                offset = np.ascontiguousarray(self.offset[:, rows])
            return kernels.softmax.entropy_sum(
                self.y[rows],
                self.s[rows],
                offset,
                part,
                balance.kept,
                balance.lost,
                balance.gained,
                t,
            )

        return self.C * math.fsum(self._map(block))
