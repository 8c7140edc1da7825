"""The inner model with its whole Hessian, minimised exactly.

Coordinate descent takes as many sweeps as the columns are ill-conditioned: of columns of very different
scales, near-copies, or rows that are nearly interpolated it would take millions. Where the columns are
few enough, this makes their Hessian over all rows of the view in float64 and solves the quadratic with
its absolute values by an active set: Newton steps on the weights that are not 0, within the orthant of
their signs, until no other weight violates (feature-sign search, Lee, Battle, Raina and Ng 2006).
Columns are scaled to a unit diagonal, so their units do not matter.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

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
CHUNK_ENTRIES = 1 << 17
#: Chunks whose products are kept apart until they are added in order.
CHUNKS_AT_ONCE = 2
#: Eigenvalues of a unit diagonal up to this share of the largest, times their number, count as zero:
#: rounding hides them. Along their vectors weights move until one of them is 0.
FLAT = 3e-15
#: Slope along such a direction, as a share of the penalty's, that is worth a move.
FLAT_SLOPE = 1e-9
#: Sweeps of coordinate descent before the active set: cheap, and they find most of it.
FIRST_SWEEPS = 20
#: Newton steps that change no sign, those that let no weight leave, and active sets, at most: rounding
#: could make them cycle.
MOST_REFINEMENTS = 3
MOST_STEPS = 6
MOST_SETS = 300
#: Active sets that may follow one another without lowering the quadratic: near rounding they cycle.
MOST_IDLE_SETS = 5
#: Relative difference of values that are equal but for rounding.
ROUNDED = 1e-13
#: Relative error of the Newton systems that counts as solved.
SOLVED = 1e-13


class ExactModel:
    """Makes and minimises quadratic models of the local objective, with the intercept eliminated.

    Parameters
    ----------
    most : int
        Columns that there is memory for.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        #: whether to return what there is
        self.cease: Callable[[], bool] = lambda: False

    @staticmethod
    def bytes_for(columns: int) -> int:
        """Bytes of what a step makes: the Hessian, copies of parts of it, chunks of columns."""
        return 8 * (5 * columns**2 + CHUNKS_AT_ONCE * CHUNK_ENTRIES)

    def minimise(
        self,
        view: RowView,
        working: WorkingSet,
        at: LocalPoint,
        q: Floats,
        tolerance: float,
        begin: Floats | None = None,
    ) -> Step:
        """The step that minimises the model at a point.

        q : float64 (n_rows,), curvatures of the rows of the view.
        tolerance : violation up to which a weight of 0 stays out of the active set.
        begin : float64 (k,), a step near the one that is sought.
        """
        with one_blas_thread():
            return self._minimise(view, working, at, q, tolerance, begin)

    def _minimise(
        self,
        view: RowView,
        working: WorkingSet,
        at: LocalPoint,
        q: Floats,
        tolerance: float,
        begin: Floats | None,
    ) -> Step:
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
            hessian,
            gradients,
            at.absolute,
            at.weights,
            min(tolerance, 1e-6),
            len(at.columns) if at.ridge.any() else int(np.count_nonzero(q)),
            begin,
            self.cease,
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
        block_rows, team = view.objective.block_rows, view.objective.team
        size = min(block_rows, max(64, CHUNK_ENTRIES // max(k, 1) // 64 * 64))
        starts = [
            at
            for block in range(0, n, block_rows)
            for at in range(block, min(block + block_rows, n), size)
        ]

        def chunk(at: int) -> Floats:
            number, first = divmod(at, block_rows)
            last = min(at + size, (number + 1) * block_rows, n)
            part = np.empty((k, last - at))
            column_kernels.dense_rows(pieces, slots, number, first, part)
            part -= centre[:, None]
            part *= np.sqrt(q[at:last])
            product: Floats = part @ part.T
            return product

        hessian = np.zeros((k, k))
        for at in range(0, len(starts), CHUNKS_AT_ONCE):
            for product in team.map(chunk, starts[at : at + CHUNKS_AT_ONCE]):
                hessian += product
        return hessian


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> Any:
    """A context in which BLAS has one thread: the driver deals the cores."""
    return _blas().limit(limits=1)


def minimise_quadratic(
    hessian: Floats,
    gradients: Floats,
    absolute: Floats,
    start: Floats,
    tolerance: float,
    rank: int | None = None,
    begin: Floats | None = None,
    cease: Callable[[], bool] = lambda: False,
) -> tuple[Floats, int]:
    """Minimise gradients . d + d' hessian d / 2 + absolute . |start + d| over d.

    Parameters
    ----------
    hessian : float64 (k, k), positive semidefinite; overwritten.
    gradients, absolute, start : float64 (k,); absolute > 0.
    tolerance : violation, as a share of ``absolute``, up to which a weight of 0 stays 0.
    rank : upper bound of the rank of the Hessian: some minimum has no more weights beside 0.
    begin : float64 (k,), where the search begins; 0 by default.
    cease : asked once an active set; then the lowest point so far is returned.

    Returns
    -------
    The weights, float64 (k,), and how many active sets it took.
    """
    k = len(start)
    rank = k if rank is None else max(rank, 1)
    scale = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    # a column without curvature: its own weight alone can bound it
    scale = np.where(scale > 0.0, scale, 1.0)
    hessian /= scale
    hessian /= scale[:, None]
    g, a, origin = gradients / scale, absolute / scale, start * scale
    w = origin.copy() if begin is None else (start + begin) * scale
    slope = g + hessian @ (w - origin)  # of the smooth part at w

    def value() -> float:
        return 0.5 * float((g + slope) @ (w - origin)) + float(a @ np.abs(w))

    lowest, best = value(), w.copy()
    order = np.arange(k)
    for _ in range(FIRST_SWEEPS):
        if descent.gram_sweep(hessian, a, order, w, slope) <= tolerance:
            break
    swept, after = value(), w.copy()
    if np.count_nonzero(w) > rank:  # to take the surplus out one by one would take longer
        w[:] = best
        slope = g + hessian @ (w - origin)
    else:
        lowest, best = swept, after
    signs = np.sign(w)
    sets = idle = 0
    while sets < MOST_SETS and idle < MOST_IDLE_SETS and not cease():
        sets += 1
        settled = _settle(hessian, a, w, slope, signs)
        # sums of many updates drift
        slope = g + hessian @ (w - origin)
        found = value()
        idle = 0 if found < lowest else idle + 1
        if found <= lowest + ROUNDED * abs(lowest):  # of equals the later one is the more exact
            lowest, best = found, w.copy()
        out = np.flatnonzero(signs == 0.0)
        over = (np.abs(slope[out]) - a[out]) / a[out]
        worst = float(over.max(initial=0.0))
        if worst <= tolerance:
            if settled:
                break
            continue
        # the worst surely helps; of others near it most will stay
        enter = out[over > max(0.5 * worst, tolerance)]
        room = max(1, rank - int(np.count_nonzero(signs)))
        if len(enter) > room:
            enter = out[np.argsort(-over)[:room]]
        signs[enter] = -np.sign(slope[enter])
        if len(enter) > 1 and not _lowers(hessian, a, slope, signs, enter):
            signs[enter] = 0.0
            first = out[np.argmax(over)]
            signs[first] = -np.sign(slope[first])
    return (best if lowest <= swept + ROUNDED * abs(swept) else after) / scale, sets


def _lowers(hessian: Floats, a: Floats, slope: Floats, signs: Floats, enter: Columns) -> bool:
    """Whether the Newton step takes all entering weights the way of their signs."""
    active = np.flatnonzero(signs)
    step = _newton(hessian[np.ix_(active, active)], -(slope[active] + a[active] * signs[active]))
    entering = np.isin(active, enter)
    return step is not None and bool((step[entering] * signs[active][entering] >= 0.0).all())


def _newton(block: Floats, right: Floats) -> Floats | None:
    """The Newton step on the active weights; None where their columns depend on each other."""
    from scipy.linalg import cho_factor, cho_solve

    try:
        factor = cho_factor(block, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        return None
    if np.diag(factor[0]).min() ** 2 <= FLAT * len(right):
        return None
    step: Floats = cho_solve(factor, right, check_finite=False)
    return step


def _settle(hessian: Floats, a: Floats, w: Floats, slope: Floats, signs: Floats) -> bool:
    """Minimise over the active weights, in place; those that reach 0 on the way leave the set.

    Returns whether the minimum over the set was reached.
    """
    refinements = steps = 0
    known: tuple[Columns, Floats, Floats] | None = (
        None  # an active set, its eigenvalues and vectors
    )
    while True:
        active = np.flatnonzero(signs)
        if not len(active):
            return True
        block = hessian[np.ix_(active, active)]
        right = -(slope[active] + a[active] * signs[active])
        if np.abs(right).max() <= SOLVED * float((np.abs(slope[active]) + a[active]).max()):
            return True
        step = _newton(block, right)
        if step is None:
            if known is None or not np.array_equal(known[0], active):
                known = active, *np.linalg.eigh(block)
            _, values, vectors = known
            flat = values <= FLAT * len(active) * values[-1]
            if flat.any() and _leave_flats(vectors[:, flat], active, hessian, a, w, slope, signs):
                continue
            # where nothing ends a flat direction, least curvature that rounding cannot hide does
            right = -(slope[active] + a[active] * signs[active])
            along = vectors.T @ right
            moved = ~flat | (np.abs(along) > FLAT_SLOPE * a[active].min())
            values = np.maximum(values, FLAT * len(active) * values[-1])
            step = vectors[:, moved] @ (along[moved] / values[moved])
        beta, zeroed = _along(float(step @ (block @ step)), a[active], w[active], right, step)
        if beta <= 0.0:
            return True
        _move(hessian, active, beta * step, w, slope)
        before = signs[active]
        _sign(active, zeroed, w, signs)
        if zeroed < 0:
            steps += 1
            refinements += bool((signs[active] == before).all())
            if refinements >= MOST_REFINEMENTS or steps >= MOST_STEPS:
                return True


def _leave_flats(
    flats: Floats,
    active: Columns,
    hessian: Floats,
    a: Floats,
    w: Floats,
    slope: Floats,
    signs: Floats,
) -> bool:
    """Move along directions without curvature, while that is downhill, until weights are 0.

    flats : float64 (active, directions).  Returns whether a weight has left the set.
    """
    left = False
    flats = flats.copy()
    while flats.shape[1]:
        right = -(slope[active] + a[active] * signs[active])
        right[signs[active] == 0.0] = 0.0
        step = flats @ (flats.T @ right)
        if np.abs(step).max() <= FLAT_SLOPE * a[active].min():
            break
        step /= FLAT * np.abs(step).max()
        _, zeroed = _along(0.0, a[active], w[active], right, step)
        if zeroed < 0:
            break
        beta = -w[active[zeroed]] / step[zeroed]
        _move(hessian, active, beta * step, w, slope)
        _sign(active, zeroed, w, signs)
        left = True
        # a reflection, after which one direction alone moves it, which is left out
        normal = flats[zeroed].copy()
        pivot = int(np.argmax(np.abs(normal)))
        normal[pivot] += math.copysign(float(np.linalg.norm(normal)), float(normal[pivot]))
        normal /= np.linalg.norm(normal)
        flats -= np.outer(flats @ normal, 2.0 * normal)
        flats = np.delete(flats, pivot, axis=1)
        flats[zeroed] = 0.0
    return left


def _move(hessian: Floats, active: Columns, step: Floats, w: Floats, slope: Floats) -> None:
    w[active] += step
    slope += hessian[:, active] @ step


def _sign(active: Columns, zeroed: int, w: Floats, signs: Floats) -> None:
    if zeroed >= 0:
        w[active[zeroed]] = 0.0
    signs[active] = np.sign(w[active])


def _along(square: float, a: Floats, w: Floats, right: Floats, step: Floats) -> tuple[float, int]:
    """The minimum of the quadratic with its absolute values along a step.

    square : curvature along the step.  right : minus the slopes on this side of 0.  Returns the share of
    the step, and which weight is 0 there, or -1.
    """
    slope = -float(right @ step)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        crossings = np.where((step != 0.0) & (w != 0.0), -w / step, np.inf)
    for j in np.argsort(crossings):
        beta = float(crossings[j])
        if beta <= 0.0:
            continue
        if beta > 1.0 or slope + square * beta >= 0.0:
            break
        slope += 2.0 * a[j] * abs(step[j])
        if slope + square * beta >= 0.0:
            return beta, int(j)
    return (min(1.0, -slope / square) if square > 0.0 else 1.0), -1
