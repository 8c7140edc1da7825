"""The inner model with its whole Hessian, minimised exactly.

Coordinate descent takes as many sweeps as the columns are ill-conditioned: of columns of very different
scales, near-copies, or rows that are nearly interpolated it would take millions. Where the columns are
few enough, this makes their Hessian over all rows of the view in float64 and solves the quadratic with
its absolute values by an active set: Newton steps on the weights that are not 0, within the orthant of
their signs, until no other weight violates (feature-sign search, Lee, Battle, Raina and Ng 2006).
Columns are scaled to a unit diagonal, so their units do not matter.
"""

from __future__ import annotations

import math

import numpy as np

from fcl.kernels import columns as column_kernels
from fcl.kernels import descent
from fcl.solve.inner import Columns, LocalPoint, Step
from fcl.solve.state import Floats, WorkingSet
from fcl.solve.view import RowView, column_moments

__all__ = ["ExactModel", "minimise_quadratic"]

#: Columns up to which a Hessian is made.
MOST_COLUMNS = 1024
#: Entries of dense columns that are held at a time.
CHUNK_ENTRIES = 1 << 19
#: What is added to a unit diagonal, so that columns which depend on each other have a solution. Further
#: steps refine what it changes.
RIDGE = 1e-14
#: Sweeps of coordinate descent before the active set: cheap, and they find most of it.
FIRST_SWEEPS = 20
#: Newton steps on one active set, and active sets, at most: rounding could make them cycle.
MOST_REFINEMENTS = 5
MOST_SETS = 2000
#: Relative error of the Newton systems that counts as solved.
SOLVED = 1e-13


class ExactModel:
    """Makes and minimises quadratic models of the local objective, with the intercept eliminated.

    Parameters
    ----------
    max_columns : int
        Room of the working set.
    """

    def __init__(self, max_columns: int) -> None:
        self.most = min(max_columns, MOST_COLUMNS)

    @staticmethod
    def bytes_for(max_columns: int) -> int:
        """Bytes of what a step makes: the Hessian, copies of parts of it, two chunks of columns."""
        return 8 * (4 * min(max_columns, MOST_COLUMNS) ** 2 + 2 * CHUNK_ENTRIES)

    def minimise(
        self,
        view: RowView,
        working: WorkingSet,
        at: LocalPoint,
        q: Floats,
        tolerance: float,
    ) -> Step:
        """The step that minimises the model at a point.

        q : float64 (n_rows,), curvatures of the rows of the view.
        tolerance : violation up to which a weight of 0 stays out of the active set.
        """
        centre, curve_b = np.zeros(len(at.columns)), 1.0
        free = view.objective.intercept
        if free:
            lean, _ = column_moments(working, at.columns, q, q, view.objective.team)
            curve_b = max(math.fsum(q) + view.intercept_floor, 1e-300)
            centre = lean / curve_b
        hessian = self._hessian(view, working, at.columns, q, centre)
        gradients = at.gradients
        if free:
            # what the floor of the intercept leaves of the means, and the intercept's own slope
            hessian += view.intercept_floor * np.outer(centre, centre)
            gradients = gradients - centre * at.slope_b
        diagonal = np.diag_indices_from(hessian)
        hessian[diagonal] += at.floor + at.ridge
        weights, sets = minimise_quadratic(
            hessian, gradients, at.absolute, at.weights, 0.1 * tolerance
        )
        d = weights - at.weights
        db = -at.slope_b / curve_b - float(centre @ d) if free else 0.0
        return Step(d, db, sets)

    @staticmethod
    def _hessian(
        view: RowView, working: WorkingSet, columns: Columns, q: Floats, centre: Floats
    ) -> Floats:
        """sum_i q_i (phi_ij - centre_j) (phi_ik - centre_k), float64 (k, k)."""
        k, n = len(columns), len(q)
        slots, pieces = working.cache.slots[columns], working.cache.pieces
        hessian = np.zeros((k, k))
        size = min(view.objective.block_rows, max(64, CHUNK_ENTRIES // max(k, 1) // 64 * 64))
        buffer = np.empty(k * min(size, n))
        roots = np.sqrt(q)
        for start in range(0, n, view.objective.block_rows):
            stop = min(start + view.objective.block_rows, n)
            number = start // view.objective.block_rows
            for at in range(start, stop, size):
                rows = slice(at, min(at + size, stop))
                part = buffer[: k * (rows.stop - rows.start)].reshape(k, -1)
                column_kernels.dense_rows(pieces, slots, number, at - start, part)
                part -= centre[:, None]
                part *= roots[rows]
                hessian += part @ part.T
        return hessian


def minimise_quadratic(
    hessian: Floats, gradients: Floats, absolute: Floats, start: Floats, tolerance: float
) -> tuple[Floats, int]:
    """Minimise gradients . d + d' hessian d / 2 + absolute . |start + d| over d.

    Parameters
    ----------
    hessian : float64 (k, k), positive semidefinite; overwritten.
    gradients, absolute, start : float64 (k,); absolute > 0.
    tolerance : violation, as a share of ``absolute``, up to which a weight of 0 stays 0.

    Returns
    -------
    The weights, float64 (k,), and how many active sets it took.
    """
    k = len(start)
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    # a column without curvature: its own weight alone can bound it
    scale = np.where(scale > 0.0, scale, 1.0)
    hessian /= scale
    hessian /= scale[:, None]
    hessian[np.diag_indices_from(hessian)] += RIDGE
    g, a = gradients / scale, absolute / scale
    w = start * scale
    slope = g.copy()  # of the smooth part at w
    order = np.arange(k)
    for _ in range(FIRST_SWEEPS):
        if descent.gram_sweep(hessian, a, order, w, slope) <= tolerance:
            break
    signs = np.sign(w)
    sets = 0
    while sets < MOST_SETS:
        sets += 1
        settled = _settle(hessian, a, w, slope, signs)
        # sums of many updates drift
        slope = g + hessian @ (w - start * scale)
        out = np.flatnonzero(signs == 0.0)
        over = (np.abs(slope[out]) - a[out]) / a[out]
        worst = float(over.max(initial=0.0))
        if worst <= tolerance:
            if settled:
                break
            continue
        # the worst surely helps; of others near it most will stay
        enter = out[over > max(0.5 * worst, tolerance)]
        signs[enter] = -np.sign(slope[enter])
        if len(enter) > 1 and not _lowers(hessian, a, slope, signs, enter):
            signs[enter] = 0.0
            first = out[np.argmax(over)]
            signs[first] = -np.sign(slope[first])
    return w / scale, sets


def _lowers(hessian: Floats, a: Floats, slope: Floats, signs: Floats, enter: Columns) -> bool:
    """Whether the Newton step takes all entering weights the way of their signs."""
    active = np.flatnonzero(signs)
    step = _solve(hessian[np.ix_(active, active)], -(slope[active] + a[active] * signs[active]))
    entering = np.isin(active, enter)
    return bool((step[entering] * signs[active][entering] >= 0.0).all())


def _solve(matrix: Floats, right: Floats) -> Floats:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        solution: Floats = np.linalg.lstsq(matrix, right, rcond=None)[0]
        return solution


def _settle(hessian: Floats, a: Floats, w: Floats, slope: Floats, signs: Floats) -> bool:
    """Minimise over the active weights, in place; those that reach 0 on the way leave the set.

    Returns whether the minimum over the set was reached.
    """
    refinements = 0
    while True:
        active = np.flatnonzero(signs)
        if not len(active):
            return True
        block = hessian[np.ix_(active, active)]
        right = -(slope[active] + a[active] * signs[active])
        if np.abs(right).max() <= SOLVED * float((np.abs(slope[active]) + a[active]).max()):
            return True
        step = _solve(block, right)
        if not np.isfinite(step).all():
            return False
        beta, zeroed = _along(block, a[active], w[active], right, step)
        if beta <= 0.0 and zeroed < 0:
            return True
        w[active] += beta * step
        slope += hessian[:, active] @ (beta * step)
        if zeroed >= 0:
            w[active[zeroed]] = 0.0
            signs[active[zeroed]] = 0.0
        else:
            crossed = (w[active] != 0.0) & (np.sign(w[active]) != signs[active])
            signs[active] = np.where(w[active] == 0.0, 0.0, np.sign(w[active]))
            if not crossed.any() and beta == 1.0:
                refinements += 1
                if refinements >= MOST_REFINEMENTS:
                    return True


def _along(
    block: Floats, a: Floats, w: Floats, right: Floats, step: Floats
) -> tuple[float, int]:
    """The minimum of the quadratic with its absolute values along a step.

    right : minus the slopes on this side of 0.  Returns the share of the step, and which weight is 0 there,
    or -1.
    """
    square = float(step @ (block @ step))
    slope = -float(right @ step)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = np.where(step != 0.0, -w / step, np.inf)
    # a weight of 0 leaves at once if the step takes it against its sign, which its slope knows
    crossings[(w == 0.0)] = np.inf
    for j in np.argsort(crossings):
        beta = float(crossings[j])
        if beta <= 0.0:
            continue
        if beta > 1.0:
            break
        if slope + square * beta >= 0.0:
            break
        slope += 2.0 * a[j] * abs(step[j])
        if slope + square * beta >= 0.0:
            return beta, int(j)
    return (min(1.0, -slope / square) if square > 0.0 else 1.0), -1
