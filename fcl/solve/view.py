"""Row views: the rows that the trainer works on.

The local objective of a view S of the rows, at an anchor (w_e, b_e):

    Q(w, b) = penalty(w) + C [ sum_{i in S} (s_i / pi_i) loss(m_i) + c . (w - w_e) + c_b (b - b_e)
                            + 1/2 sum_j kappa_j (w_j - w_e,j)^2 + 1/2 kappa_b (b - b_e)^2 ]

c makes the gradient at the anchor exact. kappa is a floor of the curvature of columns that the view
hardly sees; without it Q may be unbounded below. Whatever S is, a fixed point of the anchors is an
optimum of the whole problem; S affects only the speed. With all rows, c = 0 and kappa is negligible. (See
DANE, Shamir, Srebro and Zhang 2014, and sub-sampled Newton methods.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fcl import kernels
from fcl.errors import GeneratorError
from fcl.objective import SingleOutput
from fcl.objective.block_sums import EPSILON, margin_sizes
from fcl.parallel import SERIAL, Team, cut
from fcl.solve.state import Columns, WorkingSet
from fcl.types import Floats, Ids

#: kappa of a complete view, for rows of weight 1 and C <= 1: keeps a step finite where a column has no
#: curvature left. It scales with the sample weights, and stays negligible against the penalty.
LEAST_CURVATURE = 1e-12
#: Generous bound of the change of a scalar product by float32, relative to the norms of both vectors.
ROUNDED = 1e-5
#: Initial share of the exact diagonal that is added to the floor of a sampled view, and its bounds.
PROXIMAL = 0.02
LEAST_PROXIMAL, MOST_PROXIMAL = 1e-6, 10.0
#: Share of the intercept's curvature below which a sampled view is compensated; above it, the difference
#: is taken for sampling error.
MISSED = 0.5


#: The name of the user's class that computes a feature, given its id; empty for features of fcl.
Verified = Callable[[int], str]
#: Vectors of a view: margins, residuals and curvatures.
Buffers = tuple[Floats, Floats, Floats]


@dataclass
class RowView:
    """Rows, the objective over them with weights s_i / pi_i, and corrections of free coefficients."""

    rows: Ids | None  #: row numbers; None for all rows
    objective: SingleOutput
    margins: Floats  #: of the anchor at these rows, without the intercept
    proximal: float = PROXIMAL
    free_correction: Floats = field(init=False)  #: c_b, float64 (n_free,)
    free_floor: Floats = field(init=False)  #: kappa_b, float64 (n_free,)
    #: :meth:`fcl.features.base.Family.user_class` of a family whose cached columns may differ from the
    #: priced ones: by rounding, which is corrected, or by a fault of a user's class, which is an error
    verified: Verified | None = None
    noise: float = 0.0  #: norm of the rounding errors of the residuals at the anchor
    _total_q: float = 0.0  #: sum of the curvatures at the anchor over a sample
    #: residuals and curvatures at the anchor; empty if the view is not approximate
    _r: Floats = field(default_factory=lambda: np.empty(0))
    _q: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        self.free_correction, self.free_floor = np.zeros((2, self.objective.n_free))

    @property
    def least_curvature(self) -> float:
        """Floor of every curvature: tiny, in the units of the sample weights and of the loss."""
        least = LEAST_CURVATURE * min(float(self.objective.s.mean()), 1.0 / self.objective.C)
        # the curvature of a wide pinball loss is far below that of the logistic loss, 1/4
        return least * min(1.0, 4.0 * self.objective.loss.most_curvature)

    @property
    def complete(self) -> bool:
        """Whether the view consists of all rows, each with its own weight."""
        return self.rows is None

    @property
    def approximate(self) -> bool:
        """Whether cached columns are approximate: over a sample of rows, or with rounded values."""
        return self.verified is not None or not self.complete

    @classmethod
    def all_rows(
        cls,
        objective: SingleOutput,
        verified: Verified | None = None,
        buffers: Buffers | None = None,
    ) -> RowView:
        """The view of all rows, which corrects only rounding by the cache.

        verified : see the attribute.
        buffers : as for :meth:`of_rows`.
        """
        n = objective.n_rows
        margins = buffers[0][:n] if buffers else np.empty(n)
        if verified is None:
            return cls(None, objective, margins)
        r, q = (b[:n] for b in buffers[1:]) if buffers else (np.empty(n), np.empty(n))
        return cls(None, objective, margins, verified=verified, _r=r, _q=q)

    @classmethod
    def of_rows(cls, part: SingleOutput, rows: Ids, buffers: Buffers | None = None) -> RowView:
        """The view of a sample, given the objective over its rows with weights s_i / pi_i.

        buffers : vectors at least as long as the rows, used instead of new ones.
        """
        n = len(rows)
        m, r, q = (b[:n] for b in buffers) if buffers else (np.empty(n) for _ in range(3))
        return cls(rows, part, m, _r=r, _q=q)

    @staticmethod
    def bytes_for(n_rows: int, complete: bool, verified: bool = False) -> int:
        """Bytes of the vectors of a view of n_rows rows: margins, r and q if it corrects, and ones.

        A sample may grow to all rows.
        """
        return 8 * n_rows * (4 if verified else 1 if complete else 3)

    def trust(self, decrease: float, promised: float, beta: float) -> None:
        """Adapt the proximal weight to the success of the last step.

        decrease : of the objective over all rows.  promised : of Q.  beta : share of the step taken.
        """
        if promised <= 0.0 or self.complete:
            return
        ratio = decrease / promised
        if ratio < 0.25 or beta < 0.3:
            self.distrust()
        elif ratio > 0.75 and beta > 0.8:
            self.proximal = max(0.25 * self.proximal, LEAST_PROXIMAL)

    def distrust(self) -> bool:
        """Raise the proximal weight; returns whether it was below its bound."""
        before, self.proximal = self.proximal, min(4.0 * self.proximal, MOST_PROXIMAL)
        return self.proximal > before

    def anchor(self, margins: Floats, b: float, total_r: float, total_q: float) -> None:
        """Move to an anchor.

        margins : float64 (n,), of all rows, without the intercept b.
        total_r, total_q : sums of residuals and curvatures over all rows.
        """
        if self.rows is None:
            self.margins[:] = margins
        else:
            np.take(margins, self.rows, out=self.margins)
        if self.approximate:
            self.objective.residuals_curvatures(self.margins, self._r, self._q, b)
        if self.verified is not None:
            sizes = margin_sizes(self.objective, slice(None), self.margins, b)
            self.noise = EPSILON * norm(self._q * sizes)
        self.balance(total_r, total_q)

    def balance(self, total_r: float, total_q: float) -> None:
        """Correct the free coefficients, given the anchor's residuals and curvatures at these rows."""
        # the floor is tiny: the intercept may have to move far with almost no curvature (large targets
        # that are fitted well), or with none (squared hinge, all margins above 1)
        least = LEAST_CURVATURE * min(self.least_curvature, total_q or math.inf)
        if self.rows is None:
            self.free_floor[:] = least
            return
        self._total_q = float(self._q.sum())
        # over all rows the slopes of covariates are 0 at an anchor, and their columns have one scale
        exact = total_r if self.objective.covariates is None else 0.0
        self.free_correction = exact - self.objective.free_sums(self._r)
        # no proximal term: it would slow down steps along columns that nearly add up to a constant, for
        # which the intercept compensates (such as random Fourier features)
        seen = np.diag(self.objective.free_gram(self._q))
        self.free_floor = np.maximum(0.0, MISSED * total_q - seen) + least

    def correction_at(self, x: Floats) -> Floats:
        """Slopes of the corrections of the free coefficients, which differ by x from the anchor's."""
        return np.asarray(self.free_correction + self.free_floor * x)

    def correct(
        self,
        working: WorkingSet,
        first: int,
        exact: Floats | None,
        sums: tuple[Floats, Floats] | None = None,
    ) -> None:
        """Compute corrections and floors of the columns from number ``first`` on, at the anchor.

        Their ``working.gradients`` must be exact already.  exact : float64 (n - first,), curvatures
        sum_i q_i phi_ij^2 over all rows at the anchor; used only by a sample.  sums : their moments with
        residuals and curvatures of the view (:func:`column_moments`), if they are known.
        """
        some = slice(first, working.cache.n)
        if self.rows is None:
            working.floor[some] = self.least_curvature
            self._correct_rounding(working, first, sums)
            return
        assert exact is not None
        columns = np.arange(first, working.cache.n)
        g, h = sums or column_moments(working, columns, self._r, self._q, self.objective.team)
        working.correction[some] = working.gradients[some] - g
        working.curvatures[some] = h
        missed = np.maximum(0.0, exact - h) + self.proximal * exact
        left = self._share_left(working, columns, h)
        working.floor[some] = left * missed + self.least_curvature

    def _share_left(self, working: WorkingSet, columns: Columns, h: Floats) -> Floats:
        """Shares of the columns' curvatures that are left once a constant is eliminated.

        A floor of the whole curvature would let a column of 2,000 +- 10 make only a 40,000th of its step.
        Columns of zeros and ones keep their whole curvature: they are never that far from 0, and their
        few rows in a sample would give a poor estimate of the share.
        """
        left = np.ones(len(columns))
        if not self.objective.has_constant:
            return left
        valued = np.flatnonzero(working.cache.store.valued(working.cache.slots[columns]))
        if len(valued):
            of = columns[valued]
            cross_sums, _ = column_moments(working, of, self._q, self._q, self.objective.team)
            left[valued] -= np.minimum(
                cross_sums * cross_sums / np.maximum(self._total_q * h[valued], 1e-300), 1.0
            )
        return left

    def _correct_rounding(
        self, working: WorkingSet, first: int, sums: tuple[Floats, Floats] | None
    ) -> None:
        """Correct gradients at the anchor for the rounding of cached columns.

        Raises GeneratorError for a cached column of a user's class that is not the one that was priced.
        """
        some = slice(first, working.cache.n)
        working.correction[some] = 0.0
        if self.verified is None:
            return
        columns = np.arange(first, working.cache.n)
        team = self.objective.team
        g, h = sums or column_moments(working, columns, self._r, self._q, team)
        working.correction[some], working.curvatures[some] = working.gradients[some] - g, h
        rounded = ROUNDED * norm(self._r) + self.noise
        # few columns need their sum of phi_ij^2, of which h_j by the largest curvature is a lower bound
        least = h / max(float(self._q.max(initial=0.0)), 1e-300)
        wrong = np.flatnonzero(np.abs(working.correction[some]) > rounded * np.sqrt(least))
        if len(wrong):
            ones = np.ones(len(self._r))
            _, squares = column_moments(working, first + wrong, ones, ones, team)
            off = np.abs(working.correction[first + wrong])
            wrong = wrong[off > rounded * np.sqrt(squares)]
        for j in wrong.tolist():
            feature = int(working.cache.ids[first + j])
            if name := self.verified(feature):
                raise GeneratorError(
                    f"features {name}: feature {feature} has the gradient "
                    f"{working.gradients[first + j]:.9g} where it was priced, and {g[j]:.9g} by its "
                    "column in the cache, over all row blocks; columns() must give the same column each "
                    "time, with values within the range of float32, and gradients() must agree with it"
                )


def norm(values: Floats) -> float:
    """The Euclidean norm; the squares of the numbers may overflow."""
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    return top * math.sqrt(float(np.square(values / top).sum()))


#: Number of blocks whose sums are held until they are added in order.
BLOCKS_AT_ONCE = 8


def column_moments(
    working: WorkingSet, columns: Columns, r: Floats, q: Floats, team: Team = SERIAL
) -> tuple[Floats, Floats]:
    """sum_i r_i phi_ij and sum_i q_i phi_ij^2 for some cached columns over the rows of the view."""
    slots = working.cache.slots[columns]
    pieces = working.cache.pieces
    k = len(columns)
    g, h = np.zeros(k), np.zeros(k)
    parts = np.empty((BLOCKS_AT_ONCE, 2, k))
    team = team.for_entries(int(working.cache.store.nonzeros[slots].sum()))
    n_blocks = -(-len(r) // pieces.block_rows)  # a sample has fewer than there is room for
    chunks = cut(range(k), -(-team.most // max(n_blocks, 1)))
    for at in range(0, n_blocks if k else 0, BLOCKS_AT_ONCE):
        blocks = range(at, min(at + BLOCKS_AT_ONCE, n_blocks))

        def block(part: tuple[int, range], at: int = at) -> None:
            b, some = part[0], slice(part[1].start, part[1].stop)
            sums = parts[b - at, :, some]
            kernels.columns.block_moments(pieces, slots[some], b, r, q, sums[0], sums[1])

        team.map(block, [(b, some) for b in blocks for some in chunks])
        for b in blocks:
            g += parts[b - at, 0]
            h += parts[b - at, 1]
    return g, h


def add_columns(
    working: WorkingSet,
    columns: Columns,
    deltas: Floats,
    m: Floats,
    team: Team = SERIAL,
) -> None:
    """Add cached columns times their deltas to margins over the rows of the view, in place."""
    if not len(columns):
        return
    slots = working.cache.slots[columns]
    pieces = working.cache.pieces

    def block(b: int) -> None:
        kernels.columns.add_block(pieces, slots, deltas, b, m)

    team = team.for_entries(int(working.cache.store.nonzeros[slots].sum()))
    team.map(block, range(working.cache.store.n_blocks))
