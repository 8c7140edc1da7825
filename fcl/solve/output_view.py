"""The rows that the trainer works on, and its data on the cached columns, with several outputs."""

from __future__ import annotations

import numpy as np

from fcl.objective.block_sums import EPSILON, margin_sizes
from fcl.objective.outputs import Outputs
from fcl.solve.exact import SPARSE, over_chunks
from fcl.solve.state import Columns, WorkingSet
from fcl.solve.view import RowView, Verified, column_moments, norm
from fcl.types import Floats, Ids


class OutputView:
    """The rows that the trainer works on, with several outputs.

    rows : int64, row numbers; None for all rows.
    objective : over these rows, with weights s_i / pi_i.
    """

    def __init__(
        self,
        rows: Ids | None,
        objective: Outputs,
        verified: Verified | None = None,
    ) -> None:
        K, n = objective.n_outputs, objective.n_rows
        self.rows, self.verified, self._objective = rows, verified, objective
        self.margins = np.empty((K, n))  #: of the anchor, with its intercepts
        # of the anchor; a view of all rows without rounded values needs neither
        self._r, self._q = np.empty((2, K, n if self.approximate else 0))
        self._one = np.empty(n)  # the margins of the output whose turn it is
        self.outputs = [self._view(k) for k in range(K)]  #: one view for each output

    def _view(self, k: int) -> RowView:
        part, buffers = self._objective.parts[k], (self._one, self._r[k], self._q[k])
        if self.rows is None:
            return RowView.all_rows(part, self.verified, buffers)
        return RowView.of_rows(part, self.rows, buffers)

    @staticmethod
    def bytes_for(n_rows: int, n_outputs: int) -> int:
        """Bytes of the margins of the anchor and of the trainer's point, and of the views' vectors."""
        return 8 * n_rows * (4 * n_outputs + 1)

    @property
    def objective(self) -> Outputs:
        """The objective over these rows; on assignment the outputs' views change theirs, too."""
        return self._objective

    @objective.setter
    def objective(self, objective: Outputs) -> None:
        self._objective = objective
        for view, part in zip(self.outputs, objective.parts, strict=True):
            view.objective = part

    @property
    def complete(self) -> bool:
        """Whether the view consists of all rows, each with its own weight."""
        return self.rows is None

    @property
    def approximate(self) -> bool:
        """Whether cached columns are approximate: over a sample of rows, or with rounded values."""
        return self.verified is not None or not self.complete

    @property
    def proximal(self) -> float:
        """The proximal weight of a sample, the same for all outputs."""
        return self.outputs[0].proximal

    @proximal.setter
    def proximal(self, value: float) -> None:
        for view in self.outputs:
            view.proximal = value

    @property
    def free_floor(self) -> Floats:
        """Floors of the intercepts' curvatures, float64 (n_free,)."""
        return np.concatenate([view.free_floor for view in self.outputs])

    def correction_at(self, x: Floats) -> Floats:
        """Slopes of the corrections of the intercepts, which differ by x from the anchor's, (n_free,)."""
        correction = np.concatenate([view.free_correction for view in self.outputs])
        return np.asarray(correction + self.free_floor * x)

    def trust(self, decrease: float, promised: float, beta: float) -> None:
        """Adapt the proximal weight to the success of the last step."""
        self.outputs[0].trust(decrease, promised, beta)
        self.proximal = self.outputs[0].proximal

    def distrust(self) -> bool:
        """Raise the proximal weight; returns whether it was below its bound."""
        raised = self.outputs[0].distrust()
        self.proximal = self.outputs[0].proximal
        return raised

    def anchor(self, margins: Floats, b: float, total_r: Floats, total_q: Floats) -> None:
        """Move to an anchor.

        margins : float64 (K, n), of all rows, with the intercepts.  b : 0, no intercept is left out.
        total_r, total_q : float64 (K,), sums of residuals and curvatures over all rows.
        """
        if self.rows is None:
            self.margins[:] = margins
        else:
            np.take(margins, self.rows, axis=1, out=self.margins)
        if self.approximate:
            self.objective.residuals_curvatures(self.margins, self._r, self._q)
        if self.verified is not None:
            self._estimate_noise()
        for k, view in enumerate(self.outputs):
            view.balance(float(total_r[k]), float(total_q[k]))

    def _estimate_noise(self) -> None:
        """Estimate the rounding errors of the residuals of each output at the anchor."""
        objective, every = self.objective, slice(None)
        largest = np.abs(self.margins).max(axis=0)
        for view, q, m in zip(self.outputs, self._q, self.margins, strict=True):
            if objective.separate:
                errors = q * margin_sizes(view.objective, every, m, 0.0)
            else:  # differences of a probability, which depends on all margins of the row, from 0 or 1
                errors = q * largest + objective.s
            view.noise = EPSILON * norm(errors)

    def focus(self, k: int, b: float) -> None:
        """Give the view of output k its margins, which leave out the intercept b of the anchor.

        All views write to one vector, so only the view that was focused last has its margins.
        """
        np.subtract(self.margins[k], b, out=self.outputs[k].margins)

    def correct(self, working: WorkingSet, first: int, exact: Floats | None) -> None:
        """Compute corrections and floors of the columns from number ``first`` on, at the anchor.

        exact : float64 (columns, K), curvatures over all rows; used only by a sample.
        """
        if self.approximate:
            columns = np.arange(first, working.cache.n)
            g, h = output_moments(self, working, columns, self._r, self._q)
        for k, view in enumerate(self.outputs):
            sums = (g[:, k].copy(), h[:, k].copy()) if self.approximate else None
            own = None if exact is None else exact[:, k].copy()
            view.correct(working.parts[k], first, own, sums)


def output_moments(
    view: OutputView, working: WorkingSet, columns: Columns, r: Floats, q: Floats | None
) -> tuple[Floats, Floats]:
    """sum_i r_ki phi_ij and sum_i q_ki phi_ij^2 of some cached columns, float64 (k, K).

    r, q : float64 (K, n); without q the second sums are 0.
    """
    n, k = view.objective.n_rows, len(columns)
    filled = int(working.cache.store.nonzeros[working.cache.slots[columns]].sum())
    team = view.objective.team
    if filled <= SPARSE * k * n:
        g, h = np.zeros((2, k, len(r)))
        for output, own in enumerate(r):
            weights = own if q is None else q[output]
            g[:, output], h[:, output] = column_moments(working, columns, own, weights, team)
        return g, h

    def chunk(part: Floats, rows: slice) -> Floats:
        sums = np.zeros((2, k, len(r)))
        sums[0] = part @ r[:, rows].T
        if q is not None:
            part *= part
            sums[1] = part @ q[:, rows].T
        return sums

    g, h = over_chunks(view.outputs[0], working, columns, chunk, team)
    return g, h
