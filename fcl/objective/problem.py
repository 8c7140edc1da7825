"""The objective over rows: values, residuals, the best intercept, the dual bound.

    P(w, b) = penalty(w) + C * sum_i s_i loss(y_i, m_i + b),    m = Phi w + o

With covariates m = Phi w + Z v + o and b = 0; :mod:`fcl.objective.unpenalised` minimises over v.
All margins that are passed to this module include the offsets o. Only the dual objective uses the offsets
by themselves: the conjugate of loss(y, m + o) is loss*(u) - u o.

Sums over rows are computed by row blocks and added in block order, so they depend on the block size, but
not on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from fcl import kernels
from fcl.checks import positive
from fcl.errors import InputError
from fcl.objective import block_sums
from fcl.objective.covariates import Covariates
from fcl.objective.losses import Loss
from fcl.objective.penalty import Penalty
from fcl.parallel import SERIAL, Team
from fcl.types import Floats


class RowValues(Protocol):
    """One number per row: an array, or an object that computes the numbers of some rows."""

    def __getitem__(self, rows: slice) -> Floats:
        """The numbers of a slice of the rows."""


#: Maximum steps of a one-dimensional search. Newton needs a dozen; where all rows are flat, an expansion
#: to margins of 1e300 takes 500 and bisection back from there twice as many.
MAX_STEPS = 1600
#: Relative difference below which two values of the objective count as equal: about the rounding error
#: of a sum over a block of 65,536 rows.
ROUNDING = 1e-14

#: How residuals are balanced: see :meth:`Objective.dual_balance`.
Balance = tuple[float, float, float]
#: The balance that makes all residuals 0.
NOTHING: Balance = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class LineSums:
    """Sums over rows at margins m + beta dm + b."""

    value: float  #: sum s loss
    slope_b: float  #: sum s loss'
    curve_b: float  #: sum s loss''
    slope_beta: float  #: sum s loss' dm
    curve_beta: float  #: sum s loss'' dm^2
    cross: float  #: sum s loss'' dm


@dataclass(frozen=True)
class Objective:
    """The objective on given rows.

    Parameters
    ----------
    y : float64 (n,)
        Targets, -1 or +1 for classification.
    s : float64 (n,)
        Weights of the rows, > 0.
    C : float
        Factor of the sum of losses, > 0.
    intercept : bool
        Whether b is free; otherwise it is 0. With covariates, b is 0, and a free intercept is the
        coefficient of their first column.
    """

    loss: Loss
    y: Floats
    s: Floats
    C: float
    intercept: bool = True
    block_rows: int = 65536
    team: Team = field(default=SERIAL, compare=False)  #: threads that share the row blocks
    penalty: Penalty = field(default_factory=Penalty)
    offset: Floats | None = None  #: float64 (n,), None for zeros
    covariates: Covariates | None = None  #: unpenalised columns, None for none
    first_row: int = 0  #: number of the first of these rows in the data

    @property
    def n_rows(self) -> int:
        return len(self.y)

    @property
    def n_outputs(self) -> int:
        """Number of outputs; see :class:`fcl.objective.outputs.Outputs` for more than one."""
        return 1

    @property
    def has_constant(self) -> bool:
        """Whether there is an intercept, alone or among the covariates."""
        return self.intercept or (self.covariates is not None and self.covariates.constant)

    outputs: ClassVar[tuple[int, ...]] = ()  #: (K,) with K outputs
    n_flat: ClassVar[int] = 0  #: directions of the unpenalised coefficients that change no loss

    @property
    def n_free(self) -> int:
        """Number of unpenalised coefficients: covariates, or the intercept alone."""
        return int(self.intercept) if self.covariates is None else self.covariates.q

    def rows_of(self, block: int) -> slice:
        """The rows of a block."""
        start = block * self.block_rows
        return slice(start, min(start + self.block_rows, self.n_rows))

    def blocks(self) -> Iterator[slice]:
        """The row blocks."""
        return map(self.rows_of, range(-(-self.n_rows // self.block_rows)))

    def over_blocks(
        self, function: Callable[..., Any], vectors: Sequence[Any], *args: Any
    ) -> list[Any]:
        """What a function of :mod:`fcl.objective.block_sums` returns for each row block, in order."""

        def block(rows: slice) -> Any:
            return function(self, rows, *(vector[rows] for vector in vectors), *args)

        return self.team.map(block, list(self.blocks()))

    def each_block(
        self, function: Callable[..., Any], vectors: Sequence[Any], *args: Any
    ) -> Iterator[Any]:
        """Like :meth:`over_blocks`, one block after the other, for results that are large together."""
        for rows in self.blocks():
            yield function(self, rows, *(vector[rows] for vector in vectors), *args)

    def over(self, y: Floats, s: Floats, covariates: Covariates | None) -> Objective:
        """The same objective over other rows, which are in this process."""
        return replace(self, y=y, s=s, covariates=covariates)

    # -- unpenalised columns -------------------------------------------------------------------

    def add_covariates(self, v: Floats, m: Floats) -> None:
        """Add covariates times their coefficients to margins, in place."""
        if self.covariates is not None and v.any():
            self.add_free(v, m)

    def add_free(self, x: Floats, m: Floats) -> None:
        """Add the intercept, or covariates times their coefficients, to margins, in place.

        x : float64 (n_free,).
        """
        covariates = self.covariates
        if covariates is None:
            m += x.sum()
            return

        def block(rows: slice) -> None:
            m[rows] += covariates.times(x, rows)

        self.team.map(block, list(self.blocks()))

    def free_sums(self, r: RowValues) -> Floats:
        """sum_i r_i z_i over the unpenalised columns, float64 (n_free,)."""
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

    # -- primal --------------------------------------------------------------------------------

    def loss_sum(self, m: Floats, b: float = 0.0) -> float:
        """sum_i s_i loss(y_i, m_i + b)."""
        return math.fsum(self.over_blocks(block_sums.loss, [m], b))

    def value(self, penalty: float, m: Floats, b: float) -> float:
        """The objective, given the penalty of the weights."""
        return penalty + self.C * self.loss_sum(m, b)

    def residuals_curvatures(self, m: Floats, r: Floats, q: Floats, b: float = 0.0) -> None:
        """Write r_i = s_i loss' and q_i = s_i loss''."""
        blocks = list(self.blocks())
        self.team.map(lambda rows: self.residuals_curvatures_of(rows, m, r, q, b), blocks)

    def residuals_curvatures_of(
        self, rows: slice, m: Floats, r: Floats, q: Floats, b: float = 0.0
    ) -> None:
        """Like :meth:`residuals_curvatures`, on one row block of vectors over all rows."""
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
        """Value and derivatives of the losses at margins m + beta dm + b."""
        parts = self.over_blocks(block_sums.line, [m, dm], beta, b)
        return LineSums(*block_sums.sum_columns(parts))

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
            reach = max(
                reach, 16.0 * block_sums.EPSILON * abs(b)
            )  # a shorter one would be rounded off
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

    # -- dual ----------------------------------------------------------------------------------

    def imbalance(self, r: RowValues) -> float:
        """Largest change of a constant column's price by balancing: |sum_i r_i|, 0 if b is fixed."""
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
        """A lower bound of the optimum, from residuals and the prices of the whole family.

        Balance the residuals to sum 0 if the intercept is free, and scale them by t such that
        |C g_j| <= rho f_j for every feature: this is a feasible point of the dual. The bound is the best
        dual value over such t. If the penalty has squares, every t is feasible, at a cost that is known
        for t = 1; the bound is then the better of the two values.

        Scaling down keeps residuals in the domain of the dual, an interval that contains 0. They are
        scaled up only where the domain is a cone. For other losses the value increases up to t = 1 near
        an optimum: its derivative there is -C sum_i r_i (m_i - o_i) = -C <w, g>, the L1 norm of w.

        Parameters
        ----------
        r : float64 (n,) or RowValues
            Residuals.
        largest : float
            Upper bound of |g~_j| / f_j over all features, where g~_j = sum_i r~_i phi_ij and r~ are the
            balanced residuals.
        excess : float
            Upper bound of sum_j f_j max(0, |g~_j| / f_j - limit)^2 over all features, where the limit is
            ``penalty.limit(C)``; infinite if unknown.
        slack : float
            What the remainder of a balance against covariates may take from the bound at t = 1
            (:mod:`fcl.objective.balance`).
        cost : float
            Upper bound of what weights with limits subtract at t = 1, divided by C; they subtract no more
            at a smaller t.
        widest : float
            Upper bound of |g~_j| / f_j over all features, whatever their limits: at t up to the limit
            that this gives, no weight subtracts anything.
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


def relative_gap(objective: float, bound: float) -> float:
    """max(0, P - D) / |P|; 0 where P is 0, infinite while P or D is unknown (infinite or NaN)."""
    if objective == 0.0:
        return 0.0
    gap = (objective - bound) / abs(objective)
    return math.inf if math.isnan(gap) else max(0.0, gap)


#: Sums of weights lie between this and its inverse, so that float64 can hold their squares.
LEAST_SUM = 1e-100


def resolve_C(C: float | None, alpha: float | None, sum_weights: float) -> tuple[float, float]:
    """Compute C from alpha or alpha from C, by C = 1 / (alpha * sum_weights).

    Parameters
    ----------
    C, alpha : float or None
        Exactly one of them, finite and > 0.
    sum_weights : float
        Sum of the user's sample weights.

    Returns
    -------
    tuple of float
        C and alpha.

    Raises
    ------
    InputError
        Both or neither are given, or a number is out of range.
    """
    if (C is None) == (alpha is None):
        raise InputError(
            "give either C (weight of the losses) or alpha (weight of the penalty), "
            + ("not both" if C is not None else "one of them")
        )
    name, value = ("C", C) if C is not None else ("alpha", alpha)
    value = positive(name, value)
    if not LEAST_SUM <= sum_weights <= 1.0 / LEAST_SUM:
        raise InputError(
            f"the sample weights add up to {sum_weights:g}, expected a sum from {LEAST_SUM:g} to "
            f"{1.0 / LEAST_SUM:g}; multiply all weights by a number that makes their sum about the "
            "number of rows"
        )
    product = value * sum_weights
    other = 1.0 / product if product > 0.0 else math.inf
    if not 0.0 < other < math.inf:
        raise InputError(
            f"{name} is {value:g} and the sample weights add up to {sum_weights:g}, so "
            f"{'alpha' if name == 'C' else 'C'} = 1 / ({name} * sum) is {other:g}, expected a finite "
            f"number above 0; {'raise' if other == math.inf else 'lower'} {name}, or multiply all "
            "weights by a number that makes their sum about the number of rows"
        )
    return (value, other) if C is not None else (other, value)
