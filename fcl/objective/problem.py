"""The objective over rows: values, residuals, unpenalised coefficients, the dual bound.

    P(W, V) = penalty(W) + C * sum_i s_i loss(y_i, m_i),    m_ik = sum_j W_jk phi_ij + V_k . z_i + o_ik

z_i are covariates, or 1 for an intercept, and o are offsets. :class:`Objective` says what a training
needs of an objective. Three kinds derive from it: :class:`fcl.objective.single_output.SingleOutput`;
:class:`fcl.objective.outputs.SeparateOutputs`, a sum of losses of one output each; and
:class:`fcl.objective.softmax.SoftmaxOutputs`, whose loss couples the outputs.

Arrays over rows are float64 (n,), or with K outputs (K, n), C-contiguous. The coefficients V are stored
flat, float64 (n_free,), those of one output after those of another.

Sums over rows are computed by row blocks and added in block order, so they depend on the block size, but
not on the number of threads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from fcl.checks import positive
from fcl.errors import InputError
from fcl.objective.covariates import Covariates
from fcl.objective.losses import Loss
from fcl.objective.penalty import Penalty
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids


class RowValues(Protocol):
    """One number per row: an array, or an object that computes the numbers of some rows."""

    def __getitem__(self, rows: slice) -> Floats:
        """The numbers of a slice of the rows."""


#: Relative difference below which two values of the objective count as equal: about the rounding error
#: of a sum over a block of 65,536 rows.
ROUNDING = 1e-14


@dataclass(frozen=True)
class LineSums:
    """Sums over rows at margins m + beta dm + b, where b is one constant for all margins."""

    value: float  #: sum s loss
    slope_b: float  #: sum s loss'
    curve_b: float  #: sum s loss''
    slope_beta: float  #: sum s loss' dm, the derivative in beta
    curve_beta: float  #: sum s loss'' dm^2, the second derivative in beta
    cross: float  #: sum s loss'' dm


@dataclass(frozen=True)
class UnpenalisedFit:
    """The result of :meth:`Objective.fit_unpenalised`."""

    x: Floats  #: change of the coefficients, float64 (n_free,)
    decrease: float  #: of the minimised function, >= 0


@dataclass(frozen=True)
class Objective(ABC):
    """The objective on given rows.

    y : float64, targets (n,), -1 and +1 for two classes; with K outputs (K, n), or (n,) class numbers 0
        .. K - 1 of a loss that couples the outputs.
    s : float64 (n,), weights of the rows, > 0.
    C : factor of the sum of losses, > 0.
    intercept : whether each output has an intercept of its own. It is False with covariates: a free
        intercept is then the coefficient of their first column.
    offset : float64 (n,) or (K, n), offsets of the margins; None for zeros. Margins of a sample include
        them, so that it needs none.
    covariates : unpenalised columns; None for none.
    """

    loss: Loss
    y: Floats
    s: Floats
    C: float
    intercept: bool = True
    block_rows: int = 65536
    team: Team = field(default=SERIAL, compare=False)  #: threads that share the row blocks
    penalty: Penalty = field(default_factory=Penalty)
    offset: Floats | None = None
    covariates: Covariates | None = None
    first_row: int = 0  #: number of the first of these rows in the data

    separate: ClassVar[bool]  #: whether the loss is a sum of losses of one output each

    @property
    def n_rows(self) -> int:
        return len(self.s)

    @property
    @abstractmethod
    def outputs(self) -> tuple[int, ...]:
        """The shape of the numbers of a row: () for one output, (K,) for K."""

    @property
    def n_outputs(self) -> int:
        return math.prod(self.outputs)

    @property
    def coupled(self) -> bool:
        """Whether loss or penalty couples the outputs, which are then trained together."""
        return self.penalty.grouped or not self.separate

    @property
    def bounds_apart(self) -> bool:
        """Whether each of K outputs is scaled by itself in the dual bound."""
        return bool(self.outputs) and not self.coupled

    @property
    def intercept_apart(self) -> bool:
        """Whether margins leave out the intercept, which is then a number beside them."""
        return False

    @property
    def has_constant(self) -> bool:
        """Whether the search along a step fits a constant, which is added to the margins."""
        return False

    @property
    def n_free(self) -> int:
        """Number of unpenalised coefficients: of covariates, or the intercepts alone."""
        q = int(self.intercept) if self.covariates is None else self.covariates.q
        return self.n_outputs * q

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """Each output as an objective of one output.

        They have the rows, weights, intercepts and covariates; where the losses are separate, also the
        losses and targets.
        """

    @property
    def n_flat(self) -> int:
        """Number of directions of the unpenalised coefficients along which no loss changes."""
        return 0

    def class_counts(self) -> tuple[Floats, Ids]:
        """The labels in y, and how many rows each has; empty if a row has no single label."""
        return np.empty(0), np.empty(0, np.int64)

    # -- rows ----------------------------------------------------------------------------------

    def rows_of(self, block: int) -> slice:
        start = block * self.block_rows
        return slice(start, min(start + self.block_rows, self.n_rows))

    def blocks(self) -> Iterator[slice]:
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

    def here(self) -> Objective:
        """The same objective, whose sums this process makes."""
        return self

    def take(
        self, rows: Ids, s: Floats, y: Floats | None = None, z: Floats | None = None
    ) -> Objective:
        """The objective over a sample of the rows, int64 (m,), with other weights s, float64 (m,).

        y, z : buffers for targets (m,) and covariates (m, q), used instead of new ones.
        """
        targets = np.take(self.y, rows, axis=-1, out=y if self.y.ndim == 1 else None)
        covariates = self.covariates and self.covariates.take(rows, z)
        return replace(self.here(), y=targets, s=s, offset=None, covariates=covariates)

    # -- unpenalised columns -------------------------------------------------------------------

    @abstractmethod
    def add_covariates(self, v: Floats, m: Floats) -> None:
        """Add what a point lists as ``covariates``, times their columns, to margins, in place."""

    @abstractmethod
    def add_free(self, x: Floats, m: Floats) -> None:
        """Add the intercepts, or covariates times their coefficients, to margins, in place.

        x : float64 (n_free,).
        """

    @abstractmethod
    def free_sums(self, r: Any) -> Floats:
        """sum_i r_ik z_i over the unpenalised columns of each output, float64 (n_free,)."""

    @abstractmethod
    def fit_unpenalised(
        self,
        m: Floats,
        slope: Floats | None = None,
        floor: Floats | None = None,
        guess: float = 0.0,
    ) -> UnpenalisedFit:
        """Minimise sum s loss(m + X z) + slope . x + floor . x^2 / 2 over x, the free coefficients.

        Adds X z to the margins m in place.

        slope, floor : float64 (n_free,), slopes and curvatures (>= 0) of further terms; by default 0. For
            a loss that is unchanged by a constant in all margins of a row, the mean of ``slope`` over the
            outputs is ignored while ``floor`` is 0.
        guess : where the search for the best constant of one output begins.
        """

    def centre(self, weights: Floats) -> Floats:
        """Weights of the same model, up to the intercepts, with the least penalty."""
        return weights

    def centre_free(self, v: Floats) -> Floats:
        """A copy of the free coefficients of the same model, of mean 0 if there is a choice."""
        return v.copy()

    # -- primal --------------------------------------------------------------------------------
    # b is the intercept that margins leave out; it is 0 where they include it.

    @abstractmethod
    def loss_sum(self, m: Floats, b: float = 0.0) -> float:
        """sum_i s_i loss(y_i, m_i + b)."""

    def value(self, penalty: float, m: Floats, b: float = 0.0) -> float:
        return penalty + self.C * self.loss_sum(m, b)

    def residuals_curvatures(self, m: Floats, r: Floats, q: Floats, b: float = 0.0) -> None:
        """Write the residuals r = s_i dloss/dm and the curvatures q = s_i d2loss/dm2."""
        blocks = list(self.blocks())
        self.team.map(lambda rows: self.residuals_curvatures_of(rows, m, r, q, b), blocks)

    @abstractmethod
    def residuals_curvatures_of(
        self, rows: slice, m: Floats, r: Floats, q: Floats, b: float = 0.0
    ) -> None:
        """Like :meth:`residuals_curvatures`, on one row block of arrays over all rows."""

    @abstractmethod
    def line_sums(self, m: Floats, dm: Floats, beta: float, b: float = 0.0) -> LineSums:
        """Value and derivatives of the losses at margins m + beta dm + b."""

    @abstractmethod
    def totals(self, values: Floats) -> Any:
        """Sums of an array over the rows: a float, or float64 (K,)."""

    @abstractmethod
    def rounding(self, m: Floats, b: float, shift: float) -> tuple[float, float]:
        """What rounding of margins may add to the losses and to a price, apart from common factors.

        shift : added to the intercept later.
        """

    @abstractmethod
    def residual_errors(self, m: Floats, q: Floats, b: float) -> Iterator[Floats]:
        """Sizes of the rounding errors of each output's residuals, in units of EPSILON.

        m, q : margins and curvatures of one point.
        """

    # -- dual ----------------------------------------------------------------------------------

    @abstractmethod
    def residual_sum(self, r: Floats, loss: float) -> float:
        """An upper bound of the sum of an output's absolute residuals.

        loss : an upper bound of the sum of the losses.
        """

    @property
    def least_step(self) -> float:
        """Step of the finest grid on which :meth:`close` is exact; 0 if it has nothing to do."""
        return 0.0

    def close(self, rows: slice, r: Floats, step: float) -> None:  # noqa: B027, most need not close
        """Make residuals a point of the dual that stays one on the grid of the prices; see subclasses."""

    @abstractmethod
    def balanced(
        self, r: Floats, q: Floats, m: Floats, step: float, on_grid: Callable[[Floats], RowValues]
    ) -> Floats:
        """Residuals that are balanced against the covariates (:mod:`fcl.objective.balance`).

        r, q, m : residuals, curvatures and margins of one point.  step : of the grid on which residuals
        are priced; 0 for none.  on_grid : truncates the residuals of one output.
        """

    @abstractmethod
    def slack(self, r: Any, m: Floats) -> Any:
        """What the remainders of balanced residuals may take from the bound: a float, or float64 (K,)."""

    @abstractmethod
    def imbalance(self, r: Any) -> Any:
        """Largest change of a constant column's price by balancing: a float, or float64 (K,).

        It is |sum_i r_ik|, or 0 if there is no intercept beside covariates.
        """

    @abstractmethod
    def dual_bound(
        self,
        r: Any,
        largest: Any,
        excess: Any = math.inf,
        slack: Any = 0.0,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """A lower bound of the optimum, from residuals and the prices of the whole family.

        r : residuals.
        largest : float, or float64 (K,), upper bound over all features of size(g~_j) / f_j, where g~_j
            are the prices of the balanced residuals; by output where :attr:`bounds_apart` holds: each
            output is then scaled by itself.
        excess : float, or float64 (K,), upper bound of sum_j f_j max(0, size / f_j - limit)^2, where the
            limit is ``penalty.limit(C)``, and the sum is also over outputs unless the penalty is grouped;
            infinite if unknown. By output like ``largest``.
        slack : float, or float64 (K,), what the remainder of a balance against covariates may take from
            each output's bound at its scale 1 (:mod:`fcl.objective.balance`).
        cost : upper bound of what weights with limits subtract at scale 1, divided by C; they subtract no
            more at a smaller one. Of one output: limits of K outputs are signs, which cost nothing.
        widest : upper bound of size(g~_j) / f_j over all features, whatever their limits: at scales up to
            the limit that this gives, no weight subtracts anything.
        """


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

    C, alpha : exactly one of them, finite and > 0.
    sum_weights : sum of the user's sample weights.

    Returns C and alpha.
    Raises InputError: both or neither are given, or a number is out of range.
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
