"""Row views: the rows on which the trainer works.

The local objective of a view S of the rows, at an anchor (w_e, b_e):

    Q(w, b) = ||w||_1 + C [ sum_{i in S} (s_i / pi_i) loss(m_i) + c . (w - w_e) + c_b (b - b_e)
                            + 1/2 sum_j kappa_j (w_j - w_e,j)^2 + 1/2 kappa_b (b - b_e)^2 ]

c makes the gradient at the anchor exact; kappa floors the curvature of columns that the view hardly
sees, without which Q may be unbounded below. Whatever S is, a fixed point of the anchors is an optimum
of the whole problem; S sets the speed alone. With all rows c = 0 and kappa is next to nothing.
(The idea: DANE, Shamir, Srebro and Zhang 2014; sub-sampled Newton methods.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fcl.data.prepared import PreparedRows
from fcl.features.base import Family, Pricer
from fcl.objective import Objective
from fcl.solve.state import Anchor, Floats, Ids, WorkingSet

#: kappa of a complete view, for rows of weight 1: keeps a step finite where a column has no curvature
#: left. It scales with the weights, as the problem does.
LEAST_CURVATURE = 1e-12
#: Share of the exact diagonal that is added to the floor of a sampled view (mu at its start).
PROXIMAL = 0.02


@dataclass
class RowView:
    """Rows with the objective over them, weighted by s_i / pi_i, and corrections of the intercept."""

    rows: Ids | None  #: numbers of the rows; None for all
    prepared: PreparedRows
    objective: Objective
    margins: Floats  #: of the anchor at these rows, without the intercept
    proximal: float = PROXIMAL
    intercept_correction: float = 0.0
    intercept_floor: float = 0.0

    @property
    def least_curvature(self) -> float:
        """Floor of every curvature: tiny, and in the units of the weights."""
        return LEAST_CURVATURE * float(self.objective.s.mean())

    @property
    def complete(self) -> bool:
        """Whether the view is all rows, each with its own weight."""
        return self.rows is None

    @classmethod
    def all_rows(cls, prepared: PreparedRows, objective: Objective) -> RowView:
        """The view in which nothing needs correction."""
        return cls(None, prepared, objective, np.empty(objective.n_rows))

    @classmethod
    def sample(
        cls,
        family: Family,
        prepared: PreparedRows,
        objective: Objective,
        rows: Ids,
        inclusion: Floats,
    ) -> RowView:
        """Some rows, each in with probability ``inclusion`` (0 < pi <= 1, an entry a chosen row)."""
        part = replace(objective, y=objective.y[rows].copy(), s=objective.s[rows] / inclusion)
        return cls(rows, family.select(prepared, rows), part, np.empty(len(rows)))

    def anchor(
        self,
        anchor: Anchor,
        working: WorkingSet,
        pricer: Pricer,
        objective: Objective,
        residuals: Floats,
        curvatures: Floats,
    ) -> None:
        """Fit corrections and floors to an anchor; ``working.gradients`` are exact already.

        residuals, curvatures : float64 (n,), of all rows at the anchor; read for a sampled view alone.
        """
        if self.rows is None:
            self.margins[:] = anchor.margins
            n = working.cache.n
            working.correction[:n] = 0.0
            working.floor[:n] = self.least_curvature
            self.intercept_floor = self.least_curvature
            return
        self.margins[:] = anchor.margins[self.rows]
        view_r = np.empty(len(self.rows))
        view_q = np.empty(len(self.rows))
        self.objective.residuals_curvatures(self.margins, anchor.point.intercept, view_r, view_q)
        g, h = column_moments(working, np.arange(working.cache.n), view_r, view_q)
        exact = pricer.sums(curvatures, working.cache.ids)
        n = working.cache.n
        working.correction[:n] = working.gradients[:n] - g
        working.floor[:n] = (
            np.maximum(0.0, exact - h) + self.proximal * exact + self.least_curvature
        )
        total = float(curvatures.sum())
        self.intercept_correction = float(residuals.sum() - view_r.sum())
        self.intercept_floor = (
            max(0.0, total - float(view_q.sum())) + self.proximal * total + self.least_curvature
        )


def column_moments(
    working: WorkingSet, columns: npt.NDArray[np.intp], r: Floats, q: Floats
) -> tuple[Floats, Floats]:
    """sum_i r_i phi_ij and sum_i q_i phi_ij^2 of some cached columns over the rows of the view."""
    from fcl.kernels import columns as kernels

    g, h = np.empty(len(columns)), np.empty(len(columns))
    pieces = working.cache.pieces
    step = calls_of(working, columns)
    for at in range(0, len(columns), step):
        part = slice(at, at + step)
        kernels.moments_of(pieces, columns[part], r, q, g[part], h[part])
    return g, h


#: Entries that one kernel call reads at most, so that it lasts well below 100 ms.
ENTRIES_A_CALL = 20_000_000


def calls_of(working: WorkingSet, columns: npt.NDArray[np.intp]) -> int:
    """Columns that one kernel call takes."""
    if not len(columns):
        return 1
    mean = float(working.cache.nonzeros[columns].mean())
    return max(1, int(ENTRIES_A_CALL / max(1.0, mean)))
