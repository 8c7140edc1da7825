"""The objective of K outputs: classes, targets or labels that share rows and features.

Arrays over rows are float64 (K, n), C-contiguous, with a row for each output. Margins include the
unpenalised part V_k . z_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fcl.objective.losses import Loss
from fcl.objective.penalty import Penalty
from fcl.objective.problem import LineSums, Objective, RowValues, UnpenalisedFit
from fcl.objective.single_output import Balance, SingleOutput
from fcl.types import Floats


@dataclass(frozen=True)
class Outputs(Objective):
    """The objective of K outputs."""

    def _part(self, loss: Loss, y: Floats, offset: Floats | None) -> SingleOutput:
        """The objective of one output by itself."""
        return SingleOutput(
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

    def totals(self, values: Floats) -> Floats:
        return np.asarray(values.sum(axis=1))

    # -- unpenalised columns -------------------------------------------------------------------

    def add_covariates(self, v: Floats, m: Floats) -> None:
        self.add_free(v, m)

    def add_free(self, x: Floats, m: Floats) -> None:
        """See :meth:`Objective.add_free`; x may also be (K,) without covariates."""
        if self.covariates is None:
            m += x[:, None]
            return
        for part, own, margins in zip(self.parts, x.reshape(self.n_outputs, -1), m, strict=True):
            part.add_free(own, margins)

    def free_sums(self, r: Sequence[RowValues] | Floats) -> Floats:
        return np.concatenate([part.free_sums(r[k]) for k, part in enumerate(self.parts)])

    # -- dual ----------------------------------------------------------------------------------

    def residual_sum(self, r: Floats, loss: float) -> float:
        return max(math.fsum(float(np.abs(own[rows]).sum()) for rows in self.blocks()) for own in r)

    def slack(self, r: Sequence[RowValues], m: Floats) -> Floats:
        return np.array([part.slack(r[k], m[k]) for k, part in enumerate(self.parts)])


@dataclass(frozen=True)
class SeparateOutputs(Outputs):
    """Independent losses of one output each, with rows, features and perhaps a penalty in common."""

    separate: ClassVar[bool] = True

    @property
    def outputs(self) -> tuple[int, ...]:
        return (len(self.y),)

    @cached_property
    def parts(self) -> tuple[SingleOutput, ...]:
        """The objective of each output by itself."""
        offsets = [None] * self.n_outputs if self.offset is None else list(self.offset)
        return tuple(
            self._part(self.loss, y, offset) for y, offset in zip(self.y, offsets, strict=True)
        )

    def loss_sum(self, m: Floats, b: float = 0.0) -> float:
        return math.fsum(part.loss_sum(m_k, b) for part, m_k in zip(self.parts, m, strict=True))

    def residuals_curvatures_of(
        self, rows: slice, m: Floats, r: Floats, q: Floats, b: float = 0.0
    ) -> None:
        for k, part in enumerate(self.parts):
            part.residuals_curvatures_of(rows, m[k], r[k], q[k], b)

    def line_sums(self, m: Floats, dm: Floats, beta: float, b: float = 0.0) -> LineSums:
        found = [part.line_sums(m[k], dm[k], beta, b) for k, part in enumerate(self.parts)]
        return LineSums(*(math.fsum(column) for column in zip(*map(astuple, found), strict=True)))

    def rounding(self, m: Floats, b: float, shift: float) -> tuple[float, float]:
        found = [part.rounding(m[k], b, shift) for k, part in enumerate(self.parts)]
        values, slopes = map(math.fsum, zip(*found, strict=True))
        return values, slopes

    def residual_errors(self, m: Floats, q: Floats, b: float) -> Iterator[Floats]:
        for k, part in enumerate(self.parts):
            yield from part.residual_errors(m[k], q[k], b)

    def fit_unpenalised(
        self,
        m: Floats,
        slope: Floats | None = None,
        floor: Floats | None = None,
        guess: float = 0.0,
    ) -> UnpenalisedFit:
        found, q = [], self.n_free // self.n_outputs
        for k, part in enumerate(self.parts):
            own = slice(k * q, (k + 1) * q)
            terms = None if slope is None else slope[own], None if floor is None else floor[own]
            found.append(part.fit_unpenalised(m[k], *terms))
        x = np.concatenate([fit.x for fit in found])
        return UnpenalisedFit(x, math.fsum(fit.decrease for fit in found))

    def balanced(
        self, r: Floats, q: Floats, m: Floats, step: float, on_grid: Callable[[Floats], RowValues]
    ) -> Floats:
        out = np.empty_like(r)
        for k, part in enumerate(self.parts):
            out[k] = part.balanced(r[k], q[k], m[k], step, on_grid)
        return out

    def imbalance(self, r: Sequence[RowValues] | Floats) -> Floats:
        return np.array([part.imbalance(r[k]) for k, part in enumerate(self.parts)])

    def dual_bound(
        self,
        r: Sequence[RowValues] | Floats,
        largest: float | Floats,
        excess: float | Floats = math.inf,
        slack: float | Floats = 0.0,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """See :meth:`Objective.dual_bound`.

        The dual is separable as well: with the L1 norm or the elastic net every output has its own scale,
        and the bound is the sum of the outputs' bounds. A grouped penalty joins the outputs' prices, and
        all outputs are scaled by the same number.
        """
        balances = [part.dual_balance(r[k]) for k, part in enumerate(self.parts)]
        scales = self._scales(r, largest, balances)
        lost = np.broadcast_to(slack, self.n_outputs).tolist()
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
