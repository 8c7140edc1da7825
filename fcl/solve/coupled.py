"""The trainer of K outputs whose weights belong together, or whose loss couples them.

A step is a proximal Newton step, as in :mod:`fcl.solve.trainer`: a quadratic model of the local objective
in all K weights of each column, coordinate descent on it (:mod:`fcl.solve.coupled_model`), and a search
along the step on the local objective itself:

    C [ sum_i s_i loss(u_i) + <c, W - W_e> + 1/2 sum_j kappa_j |W_j. - W_e,j.|^2 + c_b . (b - b_e) + ... ]
        + penalty(W),        u_i = u_e,i + (W - W_e)' phi_i + (V - V_e) z_i

For softmax it takes a quarter of the time of class blocks, and less than half that of proximal steps with
one Gram matrix (both measured in docs/performance/rejected.md).

Weights, gradients and corrections have the shape (k, K); margins, residuals and curvatures (K, n). The
margins of K outputs include the intercepts, and so do those of the view.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fcl.solve.columns import column_moments
from fcl.solve.coupled_exact import exact_bytes, is_exact, minimise_exactly
from fcl.solve.coupled_model import RowHessians, minimise_model, model_bytes
from fcl.solve.damping import Damping
from fcl.solve.inner_descent import MAX_SWEEPS
from fcl.solve.line import Line, NormLine
from fcl.solve.state import Columns, LocalPoint, Step, is_active
from fcl.solve.trainer import NEAR, Trainer
from fcl.types import Floats

#: Maximum share of the curvatures that is added to them after cut steps.
MOST_RAISED = 1e6
#: Maximum sweeps of a step while slopes exceed twice their bound: the model is poor there.
FAR_SWEEPS = 60
#: Numbers that a step allocates for each column and output: the local point, the same without the columns
#: that stay, the model, the step, the terms of the search, and the iterates of an extrapolation.
COLUMN_NUMBERS = 36


class CoupledTrainer(Trainer):
    """Solves local problems of K outputs that are trained together."""

    undamped: ClassVar[Damping] = Damping(most=MOST_RAISED, careful_from=0.0)
    line_type: ClassVar[type[Line]] = NormLine

    @staticmethod
    def bytes_for(n_rows: int, n_columns: int, n_outputs: int, group: bool, q: int = 0) -> int:
        """Bytes of the buffers and of the allocations of a step, beyond those of a trainer of one output.

        n_columns : number of columns that may be active.  group : whether the penalty is the group norm.
        q : number of covariates.
        """
        model = model_bytes(n_rows, n_columns, n_outputs, group, q)
        return 4 * 8 * n_outputs * n_rows + max(model, exact_bytes(n_rows, n_columns, n_outputs, q))

    @staticmethod
    def column_bytes(n_outputs: int) -> int:
        """Bytes that a step allocates for each active column, except those of :meth:`bytes_for`."""
        return COLUMN_NUMBERS * 8 * n_outputs

    def _choose_columns(self) -> Columns:
        """Columns with a weight, or near a violation at the anchor."""
        working, objective = self._working, self._view.objective
        penalty, C = objective.penalty, objective.C
        weights, factor = working.of("weights"), working.factor[: working.cache.n]
        slopes = penalty.slopes(C * working.of("gradients"), weights, factor)
        return np.flatnonzero(is_active(weights) | (penalty.sizes(slopes) > self._near()))

    def _moments(self, columns: Columns) -> tuple[Floats, Floats]:
        q = None if self._view.complete else self._q  # models of all rows need no curvatures
        return column_moments(self._working, columns, self._r, q, self._team)

    def _violation(self, local: LocalPoint) -> float:
        objective, w = self._view.objective, local.weights
        penalty, factor = objective.penalty, self._working.factor[local.columns]
        self.seen = local.columns, penalty.sizes(local.gradients / local.absolute[:, None])
        prices = objective.C * (local.gradients - local.ridge[:, None] * w)
        return float(penalty.violations(prices, w, factor).max(initial=0.0))

    def _movable(self, local: LocalPoint, violation: float) -> LocalPoint:
        """Leave out features well within their bounds, which could not move by as much as others do."""
        near = 1.0 - NEAR * violation
        return local.take(np.flatnonzero(is_active(local.weights) | (self.seen[1] > near)))

    def _minimise(self, local: LocalPoint, tolerance: float, violation: float) -> Step:
        """Minimise the model at a point: exactly if that is cheap, else by coordinate descent.

        violation : at the point.
        """
        raised = self.damping.raised
        hessians = self._row_hessians().raised(raised)
        if is_exact(local, self.damping.careful):
            self._choose("whole Hessian")
            return minimise_exactly(local, hessians, raised, tolerance, self.inner.cease)
        most = MAX_SWEEPS if violation <= 1.0 else FAR_SWEEPS
        self._choose("sampled Hessian")
        # features well within their bounds could not move by as little as the others violate theirs
        near = 1.0 - NEAR * violation
        step = minimise_model(self.inner, local, hessians, raised, tolerance, near, most)
        self.damping = self.damping.with_care(self.damping.careful or step.sweeps >= most)
        return step

    def _goes_too_far(self, local: LocalPoint, gained: float) -> bool:
        # only a step by itself counts: with covariates, the first steps together may gain nearly the gap
        anchored = self._working.of("anchor_weights")[local.columns]
        return gained > self.most_decrease and bool((local.weights != anchored).any())

    def _row_hessians(self) -> RowHessians:
        """The Hessian at the current point; residuals and curvatures are in the buffers."""
        part = self._view.objective
        z = None if part.covariates is None else part.covariates.values
        if part.separate:
            return RowHessians(self._q, np.ones(part.n_rows), False, z)
        return RowHessians(part.loss.mean(self._m), part.s, True, z)
