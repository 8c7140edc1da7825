"""The objective of one output.

Margins leave out the intercept b, unless it is the coefficient of a covariate: then b is 0. All margins
include the offsets o. Only the dual objective uses the offsets by themselves: the conjugate of
loss(y, m + o) is loss*(u) - u o.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fcl import kernels
from fcl.objective import block_sums
from fcl.objective.balance import balanced, slack
from fcl.objective.problem import LineSums, Objective, RowValues, UnpenalisedFit
from fcl.objective.unpenalised import descend
from fcl.types import Floats, Ids

#: Maximum steps of a one-dimensional search. Newton needs a dozen; where all rows are flat, an expansion
#: to margins of 1e300 takes 500 and bisection back from there twice as many.
MAX_STEPS = 1600

#: How residuals are balanced: see :meth:`SingleOutput.dual_balance`.
Balance = tuple[float, float, float]
#: The balance that makes all residuals 0.
NOTHING: Balance = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class SingleOutput(Objective):
    """The objective of one output; y are targets (n,), -1 or +1 for classification."""

    separate: ClassVar[bool] = True

    @property
    def outputs(self) -> tuple[int, ...]:
        return ()

    @property
    def parts(self) -> tuple[SingleOutput, ...]:
        return (self,)

    @property
    def intercept_apart(self) -> bool:
        return self.covariates is None

    @property
    def has_constant(self) -> bool:
        return self.intercept or (self.covariates is not None and self.covariates.constant)

    def class_counts(self) -> tuple[Floats, Ids]:
        if not self.loss.classifies:
            return super().class_counts()
        positive = sum(int((self.y[rows] > 0).sum()) for rows in self.blocks())
        return np.array([-1.0, 1.0]), np.array([self.n_rows - positive, positive])

    # -- unpenalised columns -------------------------------------------------------------------

    def add_covariates(self, v: Floats, m: Floats) -> None:
        if self.covariates is not None and v.any():
            self.add_free(v, m)

    def add_free(self, x: Floats, m: Floats) -> None:
        covariates = self.covariates
        if covariates is None:
            m += x.sum()
            return

        def block(rows: slice) -> None:
            m[rows] += covariates.times(x, rows)

        self.team.map(block, list(self.blocks()))

    def free_sums(self, r: RowValues) -> Floats:
        covariates = self.covariates
        if covariates is None:
            total = math.fsum(float(r[rows].sum()) for rows in self.blocks())
            return np.full(self.n_free, total)
        parts = self.team.map(lambda rows: covariates.sums(r[rows], rows), list(self.blocks()))
        return np.asarray(np.sum(parts, axis=0))

    def free_gram(self, q: Floats) -> Floats:
        """sum_i q_i z_i z_i' over the unpenalised columns, float64 (n_free, n_free)."""
        covariates = self.covariates
        if covariates is None:
            return np.full((self.n_free, self.n_free), float(q.sum()))
        parts = self.team.map(lambda rows: covariates.gram(q[rows], rows), list(self.blocks()))
        return np.asarray(np.sum(parts, axis=0))

    def free_hessian(self, m: Floats, q: Floats, share: float) -> Floats:
        """The Hessian of the losses in the unpenalised coefficients, float64 (n_free, n_free).

        q : float64 (n,), curvatures at the margins m.  share : of the majoriser's curvatures, to which q
        is raised first, in place.
        """
        if share:
            self.raise_curvatures(m, share, q)
        return self.free_gram(q)

    def fit_unpenalised(
        self,
        m: Floats,
        slope: Floats | None = None,
        floor: Floats | None = None,
        guess: float = 0.0,
    ) -> UnpenalisedFit:
        x = np.zeros(self.n_free)
        slope, floor = x if slope is None else slope, x if floor is None else floor
        decrease = 0.0
        if self.has_constant:  # this search finds the best constant from any distance
            own, curve = float(slope[0]), float(floor[0])
            move = self.best_intercept(m, guess, own, curve)
            if move:
                before = self.loss_sum(m)
                m += move
                x = np.append(move, x[1:])
                decrease = before - self.loss_sum(m) - (own + 0.5 * curve * move) * move
        if self.covariates is not None:
            return descend(self, m, x, slope, floor, decrease)
        return UnpenalisedFit(x, max(0.0, decrease))

    def best_intercept(
        self,
        m: Floats,
        guess: float = 0.0,
        slope: float = 0.0,
        floor: float = 0.0,
        dm: Floats | None = None,
        beta: float = 0.0,
    ) -> float:
        """The b that minimises sum s loss(m + b) + slope * b + floor * b^2 / 2, to rounding error.

        If ``dm`` is given, the margins are m + beta * dm. Takes Newton steps in a bracket of the root
        of the derivative; where a step leaves the bracket, bisects it, or expands its open end.
        """
        if not self.has_constant:
            return 0.0

        def slopes(b: float) -> list[float]:
            if dm is None:
                return block_sums.sum_columns(self.over_blocks(block_sums.slopes, [m], b))
            parts = self.over_blocks(block_sums.slopes_along, [m, dm], b, beta)
            return block_sums.sum_columns(parts)

        low, high = -math.inf, math.inf
        b, best, smallest = guess, guess, math.inf
        reach = 1.0
        for _ in range(MAX_STEPS):
            total, curve, absolute = slopes(b)
            total += slope + floor * b
            curve += floor
            if abs(total) < smallest:
                smallest, best = abs(total), b
            if abs(total) <= 4e-16 * absolute:
                break
            if total > 0.0:
                high = b
            else:
                low = b
            # a shorter one would be rounded off
            reach = max(reach, 16.0 * block_sums.EPSILON * abs(b))
            step = b + self.loss.intercept_step(total, curve)
            if not low < step < high:
                if math.isinf(low):
                    step, reach = high - reach, 4.0 * reach
                elif math.isinf(high):
                    step, reach = low + reach, 4.0 * reach
                else:
                    step = 0.5 * (low + high)
            if step == b or not low < step < high:
                break
            b = step
        return best

    # -- primal --------------------------------------------------------------------------------

    def loss_sum(self, m: Floats, b: float = 0.0) -> float:
        return math.fsum(self.over_blocks(block_sums.loss, [m], b))

    def residuals_curvatures_of(
        self, rows: slice, m: Floats, r: Floats, q: Floats, b: float = 0.0
    ) -> None:
        kernels.losses.residuals_curvatures(
            self.loss.kernel, self.y[rows], self.s[rows], m[rows], b, r[rows], q[rows]
        )

    def raise_curvatures(self, m: Floats, share: float, q: Floats) -> None:
        """Raise curvatures, in place, to at least a share of the curvatures of the loss's majoriser."""

        def block(rows: slice) -> None:
            kernels.losses.raise_curvatures(
                self.loss.kernel, self.y[rows], self.s[rows], m[rows], 0.0, share, q[rows]
            )

        self.team.map(block, list(self.blocks()))

    def line_sums(self, m: Floats, dm: Floats, beta: float, b: float = 0.0) -> LineSums:
        parts = self.over_blocks(block_sums.line, [m, dm], beta, b)
        return LineSums(*block_sums.sum_columns(parts))

    def totals(self, values: Floats) -> float:
        return math.fsum(self.over_blocks(block_sums.total, [values]))

    def rounding(self, m: Floats, b: float, shift: float) -> tuple[float, float]:
        parts = self.over_blocks(block_sums.rounding, [m], b, shift)
        values, slopes = block_sums.sum_columns(parts)
        return values, slopes

    def residual_errors(self, m: Floats, q: Floats, b: float) -> Iterator[Floats]:
        yield q * block_sums.margin_sizes(self, slice(None), m, b)

    # -- dual ----------------------------------------------------------------------------------

    def residual_sum(self, r: Floats, loss: float) -> float:
        return sum(map(abs, self.sides(r)))

    def balanced(
        self, r: Floats, q: Floats, m: Floats, step: float, on_grid: Callable[[Floats], RowValues]
    ) -> Floats:
        return balanced(self, r, q, on_grid)

    def slack(self, r: RowValues, m: Floats) -> float:
        return 0.0 if self.covariates is None else slack(self, r, m)

    def imbalance(self, r: RowValues) -> float:
        return abs(sum(self.sides(r))) if self.intercept else 0.0

    def sides(self, r: RowValues) -> list[float]:
        """Sum of the negative residuals and sum of the positive residuals."""
        return block_sums.sum_columns(self.over_blocks(block_sums.sides, [r]))

    def offset_of(self, rows: slice) -> Floats:
        """The offsets of a block; empty for zeros."""
        return np.empty(0) if self.offset is None else self.offset[rows]

    def dual_bound(
        self,
        r: RowValues,
        largest: float,
        excess: float = math.inf,
        slack: float = 0.0,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """See :meth:`Objective.dual_bound`.

        Balance the residuals to sum 0 if the intercept is free, and scale them by t such that
        |C g_j| <= rho f_j for every feature: this is a feasible point of the dual. The bound is the best
        dual value over such t. If the penalty has squares, every t is feasible, at a cost that is known
        for t = 1; the bound is then the better of the two values.

        Scaling down keeps residuals in the domain of the dual, an interval that contains 0. They are
        scaled up only where the domain is a cone. For other losses the value increases up to t = 1 near
        an optimum: its derivative there is -C sum_i r_i (m_i - o_i) = -C <w, g>, the L1 norm of w.
        """
        balance = self.dual_balance(r)
        if balance == NOTHING:
            return 0.0  # the dual value at 0
        limit = self.penalty.least_C(self.C * largest * (1.0 + 1e-12))
        t = 1.0
        if self.loss.conic:
            linear, quadratic = self.dual_ray(r, balance)
            t = max(0.0, -2.0 * linear / quadratic) if quadratic > 0.0 else 0.0
        if self.penalty.limits.exact:
            t = min(t, 1.0)

        def smooth(t: float, cost: float = self.C * cost) -> float:
            return self.dual_value(r, balance, t) - t * slack - cost

        scaled = smooth(min(t, limit))
        if cost > 0.0:  # of wide limits, scaling leaves more
            scaled = max(scaled, smooth(min(t, self.penalty.least_C(self.C * widest)), 0.0))
        if self.penalty.pure_l1 or math.isinf(excess):
            return scaled
        return max(scaled, smooth(1.0) - self.penalty.conjugate(self.C, excess))

    def dual_balance(self, r: RowValues) -> Balance:
        """Shift and scales by which residuals r become balanced, as the dual needs it.

        Returns (shift, scale of the negative residuals, scale of the positive ones): r~_i = scale r_i -
        shift s_i; ``NOTHING`` if there is nothing to balance residuals of a single sign with.
        """
        if not self.intercept:
            return 0.0, 1.0, 1.0
        negative, positive = self.sides(r)
        if self.loss.unbounded:
            return (positive + negative) / math.fsum(self.s), 1.0, 1.0
        if negative == 0.0 or positive == 0.0:
            return NOTHING
        if positive > -negative:
            return 0.0, 1.0, -negative / positive
        return 0.0, positive / -negative, 1.0

    def dual_ray(self, r: RowValues, balance: Balance) -> tuple[float, float]:
        """sum r~ (y - o) and sum r~^2 / s of the balanced residuals r~."""
        parts = self.over_blocks(block_sums.ray, [r], balance)
        linear, quadratic = block_sums.sum_columns(parts)
        return linear, quadratic

    def dual_value(self, r: RowValues, balance: Balance, t: float) -> float:
        """The dual objective at t times the balanced residuals, apart from the penalty's conjugate."""
        return -self.C * math.fsum(self.over_blocks(block_sums.conjugate, [r], balance, t))
