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
from copy import copy
from typing import Any

import numpy as np

from fcl.errors import GeneratorError
from fcl.features.base import Family
from fcl.objective import Objective
from fcl.objective.block_sums import EPSILON
from fcl.solve.columns import column_moments
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


class RowView:
    """Rows, the objective over them with weights s_i / pi_i, and corrections of free coefficients.

    Arrays over rows are (n,), or (K, n) with K outputs; corrections of columns are in a working set.

    rows : int64 (n,) or None, row numbers; None for all rows.
    objective : over these rows.
    verified : :meth:`fcl.features.base.Family.user_class` of a family whose cached columns may differ
        from the priced ones: by rounding, which is corrected, or by a fault of a user's class, which is
        an error.
    buffers : tuple of float64, vectors with room for the numbers of all rows and outputs, used instead of
        new ones.
    """

    def __init__(
        self,
        rows: Ids | None,
        objective: Any,
        verified: Verified | None = None,
        buffers: Buffers | None = None,
    ) -> None:
        self.rows, self.objective, self.verified = rows, objective, verified
        self.proximal = PROXIMAL
        self.free_correction, self.free_floor = np.zeros((2, objective.n_free))  #: c_b, kappa_b
        self.noise: list[float] = []  #: norm of the rounding errors of each output's residuals

        def vector(number: int, n: int) -> Floats:
            shape = *objective.outputs, n
            return (
                buffers[number][: math.prod(shape)].reshape(shape) if buffers else np.empty(shape)
            )

        n = objective.n_rows
        #: of the anchor at these rows; without its intercept where the objective takes it apart
        self.margins = vector(0, n)
        # residuals and curvatures at the anchor; empty if the view is not approximate
        self._r, self._q = (vector(number, n if self.approximate else 0) for number in (1, 2))
        self._one = np.empty(0)  # the margins of the output whose turn it is

    @classmethod
    def all_rows(
        cls, objective: Objective, family: Family, buffers: Buffers | None = None
    ) -> RowView:
        """The view of all rows of an objective, for columns of a family."""
        verified: Verified | None = family.user_class if family.verifies_columns else None
        return cls(None, objective.here(), verified, buffers)

    @staticmethod
    def bytes_for(
        n_rows: int, complete: bool, verified: bool = False, outputs: tuple[int, ...] = ()
    ) -> int:
        """Bytes of the vectors of a view of n_rows rows: margins, r and q if it corrects, and ones.

        A sample may grow to all rows. With K outputs there are also the margins of the trainer's point,
        and those of one output.
        """
        more = sum(4 * K + 1 for K in outputs)
        return 8 * n_rows * ((4 if verified else 1 if complete else 3) + more)

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

    def of(self, free: Floats, k: int) -> Floats:
        """The part of free coefficients that belongs to output k, none if they are fixed."""
        q = self.objective.n_free // self.objective.n_outputs
        return free[k * q : (k + 1) * q]

    def focus(self, k: int, b: float) -> RowView:
        """The view of output k alone, whose margins leave out the intercept b of the anchor.

        All of these views have their margins in one vector, so only the last one is valid.
        """
        if not len(self._one):
            self._one = np.empty(self.objective.n_rows)
        part = copy(self)
        part.objective = self.objective.parts[k]
        part.margins = np.subtract(self.margins[k], b, out=self._one)
        part.free_correction = self.of(self.free_correction, k)
        part.free_floor = self.of(self.free_floor, k)
        part._r, part._q, part.noise = self._r[k], self._q[k], self.noise[k : k + 1]
        return part

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

    def anchor(self, margins: Floats, b: float, total_r: Any, total_q: Any) -> None:
        """Move to an anchor.

        margins : of all rows, without the intercept b if the objective takes it apart.
        total_r, total_q : sums of residuals and curvatures over all rows, or float64 (K,).
        """
        if self.rows is None:
            self.margins[:] = margins
        else:
            np.take(margins, self.rows, axis=-1, out=self.margins)
        if self.approximate:
            self.objective.residuals_curvatures(self.margins, self._r, self._q, b)
        if self.verified is not None:
            errors = self.objective.residual_errors(self.margins, self._q, b)
            self.noise = [EPSILON * norm(own) for own in errors]
        for k, (own_r, own_q) in enumerate(zip(np.ravel(total_r), np.ravel(total_q), strict=True)):
            self._balance(k, float(own_r), float(own_q))

    def _balance(self, k: int, total_r: float, total_q: float) -> None:
        """Correct the free coefficients of output k, given its residuals and curvatures at these rows."""
        floor, correction = self.of(self.free_floor, k), self.of(self.free_correction, k)
        # the floor is tiny: the intercept may have to move far with almost no curvature (large targets
        # that are fitted well), or with none (squared hinge, all margins above 1)
        least = LEAST_CURVATURE * min(self.least_curvature, total_q or math.inf)
        if self.rows is None:
            floor[:] = least
            return
        part, (r, q) = self.objective.parts[k], self._at_anchor(k)
        # over all rows the slopes of covariates are 0 at an anchor, and their columns have one scale
        exact = total_r if part.covariates is None else 0.0
        correction[:] = exact - part.free_sums(r)
        # no proximal term: it would slow down steps along columns that nearly add up to a constant, for
        # which the intercept compensates (such as random Fourier features)
        seen = np.diag(part.free_gram(q))
        floor[:] = np.maximum(0.0, MISSED * total_q - seen) + least

    def _at_anchor(self, k: int) -> tuple[Floats, Floats]:
        return np.atleast_2d(self._r)[k], np.atleast_2d(self._q)[k]

    def correction_at(self, x: Floats) -> Floats:
        """Slopes of the corrections of the free coefficients, which differ by x from the anchor's."""
        return np.asarray(self.free_correction + self.free_floor * x)

    def correct(self, working: WorkingSet, first: int, exact: Floats | None) -> None:
        """Compute corrections and floors of the columns from number ``first`` on, at the anchor.

        Their ``working.gradients`` must be exact already.  exact : curvatures sum_i q_i phi_ij^2 over all
        rows at the anchor, float64 (columns,) or (columns, K); used only by a sample.
        """
        columns, n_outputs = np.arange(first, working.cache.n), self.objective.n_outputs
        if self.approximate:
            sums = column_moments(working, columns, self._r, self._q, self.objective.team)
            g, h = (values.reshape(len(columns), n_outputs) for values in sums)
        new = slice(first, working.cache.n)
        for k, own in enumerate(working.parts):
            own.floor[new] = self.least_curvature
            if not self.approximate:
                own.correction[new] = 0.0
                continue
            g_k, h_k = g[:, k].copy(), h[:, k].copy()
            own.correction[new], own.curvatures[new] = own.gradients[new] - g_k, h_k
            if self.complete:
                self._check_rounding(k, own, first, g_k, h_k)
                continue
            assert exact is not None
            whole = exact.reshape(len(columns), n_outputs)[:, k].copy()
            missed = np.maximum(0.0, whole - h_k) + self.proximal * whole
            own.floor[new] += self._share_left(k, own, columns, h_k) * missed

    def _share_left(self, k: int, working: WorkingSet, columns: Columns, h: Floats) -> Floats:
        """Shares of the columns' curvatures that are left once a constant is eliminated.

        A floor of the whole curvature would let a column of 2,000 +- 10 make only a 40,000th of its step.
        Columns of zeros and ones keep their whole curvature: they are never that far from 0, and their
        few rows in a sample would give a poor estimate of the share.
        """
        left, part, (_, q) = np.ones(len(columns)), self.objective.parts[k], self._at_anchor(k)
        if not part.has_constant:
            return left
        valued = np.flatnonzero(working.cache.store.valued(working.cache.slots[columns]))
        if len(valued):
            cross_sums, _ = column_moments(working, columns[valued], q, q, part.team)
            left[valued] -= np.minimum(
                cross_sums * cross_sums / np.maximum(float(q.sum()) * h[valued], 1e-300), 1.0
            )
        return left

    def _check_rounding(
        self, k: int, working: WorkingSet, first: int, g: Floats, h: Floats
    ) -> None:
        """Check that rounding of the cached columns of output k explains their corrections.

        g, h : moments of the columns with residuals and curvatures of the view.

        Raises GeneratorError for a cached column of a user's class that is not the one that was priced.
        """
        assert self.verified is not None
        some, (r, q) = slice(first, working.cache.n), self._at_anchor(k)
        rounded = ROUNDED * norm(r) + self.noise[k]
        # few columns need their sum of phi_ij^2, of which h_j by the largest curvature is a lower bound
        least = h / max(float(q.max(initial=0.0)), 1e-300)
        wrong = np.flatnonzero(np.abs(working.correction[some]) > rounded * np.sqrt(least))
        if len(wrong):
            ones = np.ones(len(r))
            _, squares = column_moments(working, first + wrong, ones, ones, self.objective.team)
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
