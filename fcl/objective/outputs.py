"""The objective of several outputs: classes, targets or labels that share rows and features.

    P(W, V) = penalty(W) + C * sum_i s_i loss(y_i, m_i),    m_ik = sum_j W_jk phi_ij + V_k . z_i + o_ik

Arrays over rows are float64 (K, n), C-contiguous, with a row for each output. z_i are covariates, or 1
for an intercept. Their coefficients V are stored flat, float64 (K q,), those of one output after those
of another. Margins include V_k . z_i and the offsets o, unlike the margins of
:class:`fcl.objective.Objective`, whose methods this module follows otherwise: sums over rows are computed
by row blocks and added in block order, and do not depend on the number of threads.

Two kinds of objective derive from :class:`Outputs`: :class:`SeparateOutputs`, a sum of losses of one
output each, and :class:`fcl.objective.softmax.SoftmaxOutputs`, whose loss couples the outputs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fcl.objective import balance
from fcl.objective.covariates import Covariates
from fcl.objective.losses import Loss
from fcl.objective.penalty import Penalty
from fcl.objective.problem import Balance, Objective, RowValues
from fcl.objective.unpenalised import UnpenalisedFit, fit_unpenalised
from fcl.parallel import SERIAL, Team
from fcl.types import Floats, Ids


@dataclass(frozen=True)
class OutputLineSums:
    """Sums over rows at margins m + beta dm."""

    value: float  #: sum s loss
    slope_beta: float  #: its first derivative in beta
    curve_beta: float  #: its second derivative in beta


@dataclass(frozen=True)
class Outputs(ABC):
    """The objective of several outputs on given rows.

    Parameters
    ----------
    y : float64
        Targets: (n,) class numbers 0 .. K - 1 of a loss that couples the outputs, else (K, n) with a row
        for each output, of -1 and +1 for labels.
    s : float64 (n,)
        Weights of the rows, > 0.
    C : float
        Factor of the sum of losses, > 0.
    intercept : bool
        Whether the K intercepts are free; otherwise they are 0. With covariates it is False, and free
        intercepts are the coefficients of their first column.
    offset : float64 (K, n), optional
        Offsets of the margins; None for zeros.
    covariates : Covariates, optional
        Unpenalised columns; None for none.
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

    first_row: ClassVar[int] = 0  #: as in Objective
    separate: ClassVar[bool]  #: whether the loss is a sum of losses of one output each
    has_constant: ClassVar[bool] = False  #: there is no intercept beside the margins

    @property
    def n_rows(self) -> int:
        return len(self.s)

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number K of outputs."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """(K,), the shape of the numbers of a row."""
        return (self.n_outputs,)

    @property
    def n_free(self) -> int:
        """Number of unpenalised coefficients: of covariates, or the intercepts."""
        return self.n_outputs * (
            int(self.intercept) if self.covariates is None else self.covariates.q
        )

    @property
    def n_flat(self) -> int:
        """Number of directions of the unpenalised coefficients along which no loss changes."""
        return 0

    @property
    def majoriser(self) -> float:
        """L such that L sum_i s_i |dm_i|^2 / 2 bounds the second-order term of any step."""
        return self.loss.most_curvature

    def rows_of(self, block: int) -> slice:
        """The rows of a block."""
        start = block * self.block_rows
        return slice(start, min(start + self.block_rows, self.n_rows))

    def blocks(self) -> Iterator[slice]:
        """The row blocks."""
        return map(self.rows_of, range(-(-self.n_rows // self.block_rows)))

    def each_block(
        self, function: Callable[..., Any], vectors: Sequence[Floats], *args: Any
    ) -> Iterator[Any]:
        """What a function of a block, of vectors (n,) there and of ``args`` returns for each block."""
        for rows in self.blocks():
            yield function(self, rows, *(vector[rows] for vector in vectors), *args)

    def take(self, rows: Ids, s: Floats) -> Outputs:
        """The objective over a sample of the rows, int64 (m,), with other weights s, float64 (m,)."""
        offset = None if self.offset is None else np.take(self.offset, rows, axis=1)
        covariates = self.covariates and self.covariates.take(rows)
        y = np.take(self.y, rows, axis=-1)
        return replace(self, y=y, s=s, offset=offset, covariates=covariates)

    # -- unpenalised columns -------------------------------------------------------------------

    def add_free(self, x: Floats, m: Floats) -> None:
        """Add the intercepts, or covariates times their coefficients, to margins, in place.

        x : float64 (n_free,), or (K,) without covariates.
        """
        if self.covariates is None:
            m += x[:, None]
            return
        for part, own, margins in zip(self.parts, x.reshape(self.n_outputs, -1), m, strict=True):
            part.add_free(own, margins)

    add_covariates = add_free

    def free_sums(self, r: Sequence[RowValues] | Floats) -> Floats:
        """sum_i r_ik z_i over the unpenalised columns of each output, float64 (n_free,)."""
        return np.concatenate([part.free_sums(r[k]) for k, part in enumerate(self.parts)])

    # -- primal --------------------------------------------------------------------------------

    @abstractmethod
    def loss_sum(self, m: Floats) -> float:
        """sum_i s_i loss(y_i, m_i); m : float64 (K, n)."""

    def value(self, penalty: float, m: Floats) -> float:
        """The objective, given the penalty of the weights."""
        return penalty + self.C * self.loss_sum(m)

    def residuals_curvatures(self, m: Floats, r: Floats, q: Floats) -> None:
        """Write r_ik = s_i dloss/dm_k and q_ik = s_i d2loss/dm_k2; all arrays float64 (K, n)."""
        blocks = list(self.blocks())
        self.team.map(lambda rows: self.residuals_curvatures_of(rows, m, r, q), blocks)

    @abstractmethod
    def residuals_curvatures_of(self, rows: slice, m: Floats, r: Floats, q: Floats) -> None:
        """Like :meth:`residuals_curvatures`, on one row block of arrays over all rows."""

    @abstractmethod
    def residuals(self, m: Floats, r: Floats) -> None:
        """Write only r_ik = s_i dloss/dm_k."""

    @abstractmethod
    def line_sums(self, m: Floats, dm: Floats, beta: float) -> OutputLineSums:
        """Value and derivatives of the losses at margins m + beta dm."""

    @abstractmethod
    def fit_unpenalised(
        self, m: Floats, slope: Floats | None = None, floor: Floats | None = None
    ) -> UnpenalisedFit:
        """Minimise sum s loss(m + X z) + slope . x + floor . x^2 / 2 over x, the free coefficients.

        Adds X z to the margins m, float64 (K, n), in place.

        slope, floor : float64 (n_free,), slopes and curvatures (>= 0) of further terms; by default 0. For
            a loss that is unchanged by a constant in all margins of a row, the mean of ``slope`` over the
            outputs is ignored while ``floor`` is 0.
        """

    # -- one output ----------------------------------------------------------------------------

    @property
    @abstractmethod
    def parts(self) -> tuple[Objective, ...]:
        """Each output as an objective of one output.

        They have the rows, weights, intercepts and covariates of the outputs. Where the losses
        are separate, they also have the losses and targets.
        """

    def _part(self, loss: Loss, y: Floats, offset: Floats | None) -> Objective:
        """The objective of one output by itself."""
        return Objective(
            loss,
            y,
            self.s,
            self.C,
            self.intercept,
            self.block_rows,
            self.team,
            Penalty(self.penalty.rho, self.penalty.limits),
            offset,
            self.covariates,
        )

    def centre(self, weights: Floats) -> Floats:
        """Weights (k, K) of the same model, up to the intercepts, with the least penalty."""
        return weights

    def centre_free(self, v: Floats) -> Floats:
        """A copy of the free coefficients of the same model, of mean 0 if there is a choice."""
        return v.copy()

    # -- dual ----------------------------------------------------------------------------------

    def residual_sum(self, r: Floats, loss: float) -> float:
        """An upper bound of the sum of an output's absolute residuals.

        r : float64 (K, n).  loss : an upper bound of the sum of the losses.
        """
        return max(math.fsum(float(np.abs(own[rows]).sum()) for rows in self.blocks()) for own in r)

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
        """Residuals, float64 (K, n), balanced against the covariates (:mod:`fcl.objective.balance`).

        r, q, m : float64 (K, n), residuals, curvatures and margins of one point.  step : of the grid on
        which residuals are priced; 0 for none.  on_grid : truncates the residuals of one output.
        """

    def slack(self, r: Sequence[RowValues], m: Floats) -> Floats | None:
        """What the remainders of balanced residuals may take from the bound, float64 (K,)."""
        if self.covariates is None:
            return None
        return np.array([balance.slack(part, r[k], m[k]) for k, part in enumerate(self.parts)])

    @abstractmethod
    def imbalance(self, r: Sequence[RowValues] | Floats) -> Floats:
        """Largest change of a constant column's price by balancing, float64 (K,).

        It is |sum_i r_ik|, or 0 without intercepts.
        """

    @abstractmethod
    def dual_bound(
        self,
        r: Sequence[RowValues] | Floats,
        largest: float | Floats,
        excess: float | Floats = math.inf,
        slack: Floats | None = None,
    ) -> float:
        """A lower bound of the optimum, from residuals and the prices of the whole family.

        Parameters
        ----------
        r : sequence of K RowValues, or float64 (K, n)
            Residuals.
        largest : float, or float64 (K,)
            Upper bound over all features of size(g~_j) / f_j, where g~_j are the prices of the balanced
            residuals; by output where losses and penalty are separate, so that each output is scaled by
            itself.
        excess : float, or float64 (K,)
            Upper bound of sum_j f_j max(0, size / f_j - limit)^2, where the limit is
            ``penalty.limit(C)``, and the sum is also over outputs unless the penalty is grouped; infinite
            if unknown. By output like ``largest``.
        slack : float64 (K,), optional
            What the remainder of a balance against covariates may take from each output's bound at its
            scale 1 (:mod:`fcl.objective.balance`); by default nothing.
        """


@dataclass(frozen=True)
class SeparateOutputs(Outputs):
    """Independent losses of one output each, with rows, features and perhaps a penalty in common."""

    separate: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int:
        return len(self.y)

    @cached_property
    def parts(self) -> tuple[Objective, ...]:
        """The objective of each output by itself."""
        offsets = [None] * self.n_outputs if self.offset is None else list(self.offset)
        return tuple(
            self._part(self.loss, y, offset) for y, offset in zip(self.y, offsets, strict=True)
        )

    def loss_sum(self, m: Floats) -> float:
        return math.fsum(part.loss_sum(m_k, 0.0) for part, m_k in zip(self.parts, m, strict=True))

    def residuals_curvatures_of(self, rows: slice, m: Floats, r: Floats, q: Floats) -> None:
        for k, part in enumerate(self.parts):
            part.residuals_curvatures_of(rows, m[k], r[k], q[k])

    def residuals(self, m: Floats, r: Floats) -> None:
        unused = np.empty(self.n_rows)
        for k, part in enumerate(self.parts):
            part.residuals_curvatures(m[k], r[k], unused)

    def line_sums(self, m: Floats, dm: Floats, beta: float) -> OutputLineSums:
        found = [part.line_sums(m[k], dm[k], beta, 0.0) for k, part in enumerate(self.parts)]
        return OutputLineSums(
            math.fsum(sums.value for sums in found),
            math.fsum(sums.slope_beta for sums in found),
            math.fsum(sums.curve_beta for sums in found),
        )

    def fit_unpenalised(
        self, m: Floats, slope: Floats | None = None, floor: Floats | None = None
    ) -> UnpenalisedFit:
        found, q = [], self.n_free // self.n_outputs
        for k, part in enumerate(self.parts):
            own = slice(k * q, (k + 1) * q)
            terms = None if slope is None else slope[own], None if floor is None else floor[own]
            found.append(fit_unpenalised(part, m[k], *terms))
        x = np.concatenate([fit.x for fit in found])
        return UnpenalisedFit(x, math.fsum(fit.decrease for fit in found))

    def balanced(
        self, r: Floats, q: Floats, m: Floats, step: float, on_grid: Callable[[Floats], RowValues]
    ) -> Floats:
        out = np.empty_like(r)
        for k, part in enumerate(self.parts):
            out[k] = balance.balanced(part, r[k], q[k], on_grid)
        return out

    def imbalance(self, r: Sequence[RowValues] | Floats) -> Floats:
        return np.array([part.imbalance(r[k]) for k, part in enumerate(self.parts)])

    def dual_bound(
        self,
        r: Sequence[RowValues] | Floats,
        largest: float | Floats,
        excess: float | Floats = math.inf,
        slack: Floats | None = None,
    ) -> float:
        """See :meth:`Outputs.dual_bound`.

        The dual is separable as well: with the L1 norm or the elastic net every output has its own scale,
        and the bound is the sum of the outputs' bounds. A grouped penalty joins the outputs' prices, and
        all outputs are scaled by the same number.
        """
        balances = [part.dual_balance(r[k]) for k, part in enumerate(self.parts)]
        scales = self._scales(r, largest, balances)
        lost = [0.0] * self.n_outputs if slack is None else slack.tolist()
        scaled = self._dual_values(r, balances, scales, lost)
        if self.penalty.pure_l1 or np.isinf(excess).any():
            return math.fsum(scaled)
        whole = self._dual_values(r, balances, [1.0] * self.n_outputs, lost)
        if np.ndim(excess):
            own = zip(scaled, whole, np.asarray(excess).tolist(), strict=True)
            return math.fsum(max(a, b - self.penalty.conjugate(self.C, c)) for a, b, c in own)
        penalty = self.penalty.conjugate(self.C, float(excess))
        return max(math.fsum(scaled), math.fsum(whole) - penalty)

    def _dual_values(
        self,
        r: Sequence[RowValues] | Floats,
        balances: list[Balance],
        scales: list[float],
        slack: list[float],
    ) -> list[float]:
        return [
            part.dual_value(r[k], balances[k], scales[k]) - scales[k] * slack[k]
            for k, part in enumerate(self.parts)
        ]

    def _scales(
        self, r: Sequence[RowValues] | Floats, largest: float | Floats, balances: list[Balance]
    ) -> list[float]:
        """The scale of each output's balanced residuals on which the bound is best; grouped: the same."""
        K = self.n_outputs
        rays = [(-1.0, 2.0)] * K  # best at 1
        if self.loss.conic:
            rays = [part.dual_ray(r[k], balances[k]) for k, part in enumerate(self.parts)]
        if self.penalty.grouped:
            linear, quadratic = (math.fsum(column) for column in zip(*rays, strict=True))
            rays = [(linear, quadratic)] * K
            largest = np.max(largest)
        found = []
        for (linear, quadratic), most in zip(rays, np.broadcast_to(largest, K), strict=True):
            best = max(0.0, -2.0 * linear / quadratic) if quadratic > 0.0 else 0.0
            limit = self.penalty.least_C(self.C * float(most) * (1.0 + 1e-12))
            found.append(min(best, limit))
        return found
