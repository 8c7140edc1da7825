"""The steps of a pass with several outputs, which share rows, features and the columns made of them.

Margins, residuals and curvatures are float64 (K, n), prices (features, K). Margins of the anchor contain
the unpenalised part; those of a proposed point do not until it is fitted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family
from fcl.features.outputs import run_several, sums_of_several
from fcl.features.prices import Prices, RowVector, grid_step
from fcl.objective import Objective, Outputs
from fcl.objective.block_sums import EPSILON
from fcl.solve.passes import KEEP_PER_GROUP, DualPoint, Passes, Vectors
from fcl.solve.state import Point
from fcl.types import Floats, Ids


def make_passes(
    objective: Objective | Outputs,
    family: Family,
    prepared: PreparedRows,
    vectors: Vectors,
    keep: int = KEEP_PER_GROUP,
    most_threads: int = 1,
) -> Passes:
    """The steps of a pass for an objective of one output or of several; see :class:`Passes`."""
    kind = OutputPasses if isinstance(objective, Outputs) else Passes
    return kind(objective, family, prepared, vectors, keep, most_threads)


def local_passes(
    objective: Objective | Outputs, family: Family, prepared: PreparedRows, most_threads: int = 1
) -> Passes:
    """The steps of a pass with vectors in the memory of this process."""
    vectors = Vectors(objective.n_rows, n_outputs=objective.n_outputs)
    return make_passes(objective, family, prepared, vectors, most_threads=most_threads)


class OutputPasses(Passes):
    """The steps of a pass with several outputs."""

    objective: Outputs

    def fit_unpenalised(self, margins: Floats, guess: float, v: Floats) -> tuple[float, Floats]:
        """The best free coefficients, whose part is added to the margins; the search starts at v."""
        objective, moved = self.objective, self.vectors.residuals
        moved[:] = margins
        objective.add_free(v, moved)
        if objective.n_free:
            v = v + objective.fit_unpenalised(moved).x
        objective.add_free(v, margins)
        return 0.0, v

    def value(self, point: Point, margins: Floats) -> float:
        """The objective at a point with these margins."""
        return self.objective.value(self.conditions.value(point), margins)

    def write_residuals(self, b: float, blocks: range, loss: float = math.inf) -> None:
        """Step C: residuals, closed on their grid, and curvatures at the anchor, on some row blocks."""
        vectors, objective = self.vectors, self.objective
        vectors.loss = loss

        def block(number: int) -> None:
            rows = objective.rows_of(number)
            objective.residuals_curvatures_of(
                rows, vectors.accepted, vectors.residuals, vectors.curvatures
            )
            if objective.least_step and objective.covariates is None:  # else once they are balanced
                step = max(self._grid_step(), objective.least_step)
                objective.close(rows, vectors.residuals, step)

        objective.team.map(block, blocks)

    def _grid_step(self) -> float:
        return self._step_for(self._residual_sum(self.vectors.residuals))

    def _residual_sum(self, residuals: Floats) -> float:
        return self.objective.residual_sum(residuals, self.vectors.loss)

    def _step_for(self, total: float) -> float:
        step = grid_step(total, self.family.integer_bound)
        return max(step, self.objective.least_step) if step else 0.0

    def dual_point(self) -> DualPoint:
        """The residuals that are now in the vectors, truncated to their grids."""
        vectors, objective = self.vectors, self.objective
        residuals, step = vectors.residuals, self._grid_step()
        if objective.covariates is not None:
            total = 2.0 * self._residual_sum(residuals)  # room for the change by balancing
            step = self._step_for(total)
            residuals = objective.balanced(
                residuals,
                vectors.curvatures,
                vectors.accepted,
                step,
                lambda r: RowVector(r, step),
            )
            step = max(step, self._step_for(max(total, self._residual_sum(residuals))))
        units = vectors.units if step else [None] * len(vectors.units)
        rows = [RowVector(r, step, own) for r, own in zip(residuals, units, strict=True)]
        return DualPoint(rows, objective.imbalance(rows))

    def price(
        self, dual: DualPoint, watch: Ids, threshold: float, parts: range, number: int = 0
    ) -> Prices:
        """Step D: prices of some parts of the family at a dual point."""
        query = self._query(watch, threshold, parts, dual.imbalance, number)
        return run_several(
            self.pricer,
            query,
            dual.residuals,
            self._blocks,
            self.listed,
            self.family.penalty_factors,
            self.objective.penalty.grouped,
            self.on_progress,
            self.keep * len(parts),
        )

    def curvature_sums(self, ids: Ids, parts: range | None = None) -> Floats:
        """sum_i q_ik phi_ij^2 over all rows for some features, (k, K); 0 outside ``parts``."""
        bound = self.family.integer_bound**2
        rows = [
            RowVector.on_grid(q, _total(self.objective, q), bound) for q in self.vectors.curvatures
        ]
        return sums_of_several(self.pricer, ids, rows, self._blocks, parts=parts)

    def gradients(self, ids: Ids) -> Floats:
        """g_jk of some features at the residuals in the vectors."""
        rows = self.dual_point().residuals
        return sums_of_several(self.pricer, ids, rows, self._blocks, power=1)

    def bound(
        self,
        dual: DualPoint,
        largest: float,
        excess: float,
        by_output: Floats | None = None,
        cost: float = 0.0,
        widest: float = math.inf,
    ) -> float:
        """The dual bound; outputs that only share features are scaled separately.

        cost, widest : not used, since limits of K outputs are signs, which cost nothing.
        """
        objective = self.objective
        separate = objective.separate and not objective.penalty.grouped
        of = by_output if separate and by_output is not None else largest
        slack = objective.slack(dual.residuals, self.vectors.accepted)
        return objective.dual_bound(dual.residuals, of, excess, slack)

    def _rounded(self, point: Point, shift: float, reach: float) -> tuple[float, float]:
        """Estimated largest change of the objective, and of any slope, by rounding of the margins."""
        vectors, objective = self.vectors, self.objective
        self.write_residuals(0.0, self._blocks)
        n = min(objective.n_rows, objective.block_rows)
        values = slopes = 0.0
        for r, q, m in zip(vectors.residuals, vectors.curvatures, vectors.accepted, strict=True):
            for rows in objective.blocks():
                sizes, residuals = np.abs(m[rows]) + abs(shift), np.abs(r[rows])
                values += float((residuals + 0.5 * EPSILON * q[rows] * sizes) @ sizes)
                slopes += float(q[rows] @ sizes) + float(residuals.sum())
        scale = EPSILON * objective.C * math.sqrt(n)
        return scale * values, scale * slopes * reach / objective.penalty.rho

    def totals(self) -> Any:
        """Sums of residuals and curvatures over all rows, float64 (K,) each."""
        return self.vectors.residuals.sum(axis=1), self.vectors.curvatures.sum(axis=1)


def _total(objective: Outputs, values: Floats) -> float:
    """Sum of the sizes of the numbers of one output."""
    return math.fsum(float(np.abs(values[rows]).sum()) for rows in objective.blocks())
