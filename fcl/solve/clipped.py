"""Exact minimisation of the local problem of a loss that is quadratic between jumps of its curvature.

The squared loss, the squared hinge, the Huber and the pinball loss have the slope c (m - y), where c is
the largest second derivative, clipped to the domain of the dual: rows inside the domain are curved, all
others are flat. A quadratic model at a point sees only the rows that are curved there, and its minimum
may lie far beyond the jumps of other rows: where most rows are flat, a line search cuts steps towards it
to almost nothing. This module minimises the objective itself instead. Every Newton step on the nonzero
weights ends where the objective is lowest along it; the sorted jumps of rows and sign changes of weights
give this place exactly (finite Newton method, Keerthi and DeCoste 2005, with an active set of weights as
in :mod:`fcl.solve.exact`). Each step lowers the objective, except for rounding, and a whole step that
changes neither the curved rows nor the signs ends at the minimum over the active weights. Coordinate
descent on quadratic models comes near the minimum first; if no row is ever flat, the one quadratic is
minimised instead.

A point with as many weights as curved rows interpolates these, and a search from there may exchange them
one by one in thousands of steps. A search that does not end soon therefore begins anew without weights,
and follows the minima at falling penalties, as a path does, down to those that meet the trainer's
tolerance; the next local problem goes on from there. On 700 rows of 900 counts (squared hinge, gap 1e-4)
this takes 10 instead of 35 processor seconds for C = 100, and 10 for C = 1,000, where the gap was 0.63
after 40; C = 1 and 10 take half as long again.

Residuals are computed from margins minus targets, which are updated step by step. Recomputed margins of
nearly interpolated rows would lose their residuals to rounding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fcl.kernels import columns as column_kernels
from fcl.kernels import descent
from fcl.objective.limits import clamped, inside, violations
from fcl.solve.columns import CHUNK_ENTRIES
from fcl.solve.quadratic import (
    FIRST_SWEEPS,
    FLAT_SLOPE,
    ActiveSet,
    entering,
    minimise_in_box,
    minimise_quadratic,
    newton_step,
    takes_all,
)
from fcl.solve.state import Columns, LocalPoint, Step
from fcl.types import Floats

#: Rows times columns up to which this module is used, if there are more than a quarter as many columns as
#: rows, which they may interpolate; else up to a quarter of it, since sampled models end sooner. It holds
#: at most three copies of the columns.
MOST_ENTRIES = 8 * CHUNK_ENTRIES
#: Maximum steps, and maximum consecutive steps whose decrease is within the objective's rounding.
MOST_STEPS = 2000
MOST_IDLE_STEPS = 12
#: Steps after which a request to hurry ends the search, and after which it begins anew.
LEAST_STEPS = FEW_STEPS = 100
#: Maximum number of models in :meth:`ClippedProblem._approach`, and the smallest relative decrease of the
#: objective after which another model is worthwhile.
MOST_MODELS, WORTH = 50, 1e-4
#: Violation at which the sweeps over a model end.
ROUGH = 1e-2
#: Curvature of a scaled column, and of the intercept, where no row is curved.
LEAST_CURVATURE = 1e-9
#: Violation up to which a penalty that still falls is settled, and the factor by which it falls.
NEAR, FALL = 0.1, 2.0
#: Slope of a nonzero weight, as a multiple of its penalty, that shows a minimum at higher penalties.
HIGHER = 1.2
#: A tolerance above WIDE is met by higher penalties; any other is tightened to TIGHT, since rounding may
#: hide violations while values still differ.
WIDE, TIGHT = 0.5, 1e-6
#: Error of a sum by rounding, as a share of the sum of its terms' sizes.
ROUNDED = 4 * np.finfo(float).eps
#: Slope of an active weight, as a share of the tolerance, up to which it counts as settled.
AT_REST = 0.1


def most_entries(n_rows: int, columns: int) -> int:
    """Rows times columns up to which this module is used."""
    return MOST_ENTRIES if 4 * columns > n_rows else MOST_ENTRIES // 4


class ClippedProblem:
    """The local objective over the weights of some columns, and over the intercept, which comes last.

    Columns are centred if there is an intercept, and scaled such that the Hessian has a unit diagonal
    when all rows are curved.

    margins : float64 (n_rows,), at the point ``at``.
    linear : float64 (k,), slopes of the terms in the weights at the point: corrections, floors and ridge.
    delta : float64 (n_free,), the intercept at the point minus the anchor's.
    """

    def __init__(
        self,
        at: LocalPoint,
        margins: Floats,
        linear: Floats,
        delta: Floats,
    ) -> None:
        view, objective = at.view, at.view.objective
        self.s = objective.s
        #: second derivative of a curved row
        self.curvature = objective.loss.most_curvature
        #: margins minus targets
        self.beyond = margins - objective.y
        self.low, self.high = (
            np.broadcast_to(end, len(self.s)) for end in objective.loss.domain(objective.y)
        )
        k, free = len(at.columns), objective.intercept
        phi = _dense(at)
        self.centre = phi @ self.s / self.s.sum() if free else np.zeros(k)
        phi -= self.centre[:, None]
        square = self.curvature * np.einsum("ji,i,ji->j", phi, self.s, phi) + at.floor + at.ridge
        self.scale = np.sqrt(np.where(square > 0.0, square, 1.0))
        phi /= self.scale[:, None]
        scale_b = float(np.sqrt(self.curvature * self.s.sum() + view.free_floor.sum()))
        intercept_slopes = (
            np.append(-self.centre / self.scale, 1.0 / scale_b) if free else np.empty(0)
        )
        self.free = np.zeros(k + free, bool)
        self.free[k:] = True
        self.phi = np.vstack([phi, np.full((1, len(self.s)), 1.0 / scale_b)]) if free else phi
        self.scale_b = scale_b
        self.a = self.penalties = np.append(at.absolute / self.scale, np.zeros(int(free)))
        #: penalty coefficients that slopes are compared with
        self.unit = np.where(self.free, self.a.max(), self.a)
        self.weights = at.weights
        self.start = np.append(at.weights * self.scale, np.zeros(int(free)))
        endless = np.full(int(free), np.inf)
        self.ends = (
            np.append(at.low * self.scale, -endless),
            np.append(at.high * self.scale, endless),
        )
        self.limits = at.low, at.high
        self.limited = not objective.penalty.limits.unlimited
        self.w = self.start.copy()
        self.linear = np.append(linear / self.scale, np.zeros(int(free)))
        self.extra = np.diag(np.append((at.floor + at.ridge) / self.scale**2, np.zeros(int(free))))
        if free:
            self.linear += float(view.correction_at(delta)[0]) * intercept_slopes
            self.extra += float(view.free_floor[0]) * np.outer(intercept_slopes, intercept_slopes)
        #: number of active weights beyond which their columns depend on each other; floors over all rows
        #: are within rounding
        self.rank = k + free if at.ridge.any() or not view.complete else len(self.s)
        self.ridge_at_start = 0.5 * float(at.ridge @ at.weights**2)
        self.signs = np.where(self._at_limit, 0.0, np.sign(self.w))
        #: the Hessian of all weights, if no row is ever flat
        self._whole: Floats | None = None
        if objective.loss.unbounded:
            self._whole = self.phi @ (self.phi * (self.curvature * self.s)).T + self.extra
        self._update()

    @property
    def _at_limit(self) -> npt.NDArray[np.bool_]:
        """Whether weights are at a limit, where they stay until their slopes pull them inside."""
        return (self.w <= self.ends[0]) | (self.w >= self.ends[1])

    def minimise(
        self, tolerance: float, cease: Callable[[], bool], hurry: Callable[[], bool]
    ) -> Step:
        """The step to the minimum, or to a point that violates by at most the tolerance if that is wide.

        cease : called before each step; True ends the search.  hurry : the same, after LEAST_STEPS.
        """
        tight = min(tolerance, TIGHT)
        higher = self.signs != 0.0
        higher &= np.abs(self.slope) > HIGHER * self.a
        if self._whole is not None:
            self._minimise_quadratic(self._whole, tight, cease)
            steps, _ = self._settle(tight, MOST_STEPS, cease, hurry)
        elif higher.any():
            steps = self._follow(tolerance, cease, hurry)
        else:
            before = self.w
            self._approach(cease)
            self._thin_out(before)
            steps, settled = self._settle(tight, FEW_STEPS, cease, hurry)
            if not (settled or cease() or hurry()):
                self._move(1.0, np.where(self.free, 0.0, -self.w))
                steps += self._follow(tolerance, cease, hurry)
        k = len(self.scale)
        # scaling rounds: weights that are 0 here must be 0 in their own units too
        d = np.where(self.w[:k] == 0.0, -self.weights, (self.w[:k] - self.start[:k]) / self.scale)
        for end, limit in zip(self.ends, self.limits, strict=True):
            d = np.where(self.w[:k] == end[:k], limit - self.weights, d)
        return Step(d, self.w[k:] / self.scale_b - float(self.centre @ d), steps)

    def _follow(
        self, tolerance: float, cease: Callable[[], bool], hurry: Callable[[], bool]
    ) -> int:
        """Go from minimum to minimum at penalties that fall from the largest slope on; returns the steps.

        Ends at penalties that meet the tolerance if that is wide, else at the local problem's.
        """
        share = float((np.abs(self.slope) / self.unit)[~self.free].max(initial=1.0))
        end = 1.0 + tolerance if tolerance > WIDE else 1.0
        steps = 0
        while not steps or share > end:
            share = max(share / FALL, end)
            self._penalise(share)
            near = min(tolerance, TIGHT) if share == 1.0 else NEAR
            more, _ = self._settle(near, MOST_STEPS - steps, cease, hurry)
            steps += max(more, 1)
        self._penalise(1.0)
        return steps

    def _penalise(self, share: float) -> None:
        """Set the penalties to a multiple of the local problem's."""
        self.a = share * self.penalties
        self.unit = np.where(self.free, self.a.max(), self.a)
        self._update()

    def _settle(
        self,
        tolerance: float,
        most: int,
        cease: Callable[[], bool],
        hurry: Callable[[], bool],
    ) -> tuple[int, bool]:
        """Take Newton steps until no weight of 0 violates; returns their number, and if none does."""
        steps = idle = 0
        settled = False
        rounding = np.finfo(float).eps * self.value  # of the sums from which the steps begin
        while steps < most and idle < MOST_IDLE_STEPS:
            if cease() or (steps >= LEAST_STEPS and hurry()):
                break
            active = np.flatnonzero(self.free | (self.signs != 0.0))
            right = -(self.slope + self.a * self.signs)[active]
            if settled or (np.abs(right) <= AT_REST * tolerance * self.unit[active]).all():
                if not self._enter(tolerance):
                    return steps, True
                settled = False
                continue
            steps += 1
            step = np.zeros(len(self.w))
            step[active], null_space = newton_step(self._hessian(active), right)
            if null_space.shape[1]:
                along = null_space @ (null_space.T @ right)
                # slopes are sums over the rows
                sizes = np.abs(self.phi[active]) @ (self.s * np.abs(self.row_slopes))
                noise = FLAT_SLOPE * self.unit[active] + ROUNDED * sizes
                if (np.abs(along) > noise).any():
                    step[active] = along
            step = self._allowed(step)
            beta, lower, ended = self._lowest(step)
            if beta <= 0.0:  # rounding of the slopes; weights of 0 may still violate
                settled = True
                continue
            rows, signs = self.curved, self.signs
            self._move(beta, step, ended)
            if lower > rounding:
                idle = 0
            elif ended is None:
                # a weight that became 0 or reached a limit is progress, even if rounding hides its gain
                idle += 1
            settled = (
                abs(beta - 1.0) < 1e-6
                and bool((rows == self.curved).all())
                and bool((signs == self.signs).all())
            )
        return steps, idle >= MOST_IDLE_STEPS

    def _minimise_quadratic(
        self, hessian: Floats, tolerance: float, cease: Callable[[], bool]
    ) -> None:
        """Move to the minimum of a quadratic objective, up to the rounding of its Hessian.

        The intercept stays; columns are centred, so a later Newton step moves it independently.
        """
        k = len(self.scale)
        terms = hessian[:k, :k].copy(), self.slope[:k], self.a[:k]
        if self.limited:
            ends = self.ends[0][:k], self.ends[1][:k]
            weights, _ = minimise_in_box(*terms, *ends, self.w[:k], tolerance, cease)
        else:
            weights, _ = minimise_quadratic(*terms, self.w[:k], tolerance, cease=cease)
        self._move(1.0, np.append(weights - self.w[:k], np.zeros(len(self.w) - k)))

    def _approach(self, cease: Callable[[], bool]) -> None:
        """Come near the minimum by coordinate descent on models of the curved rows.

        An active set that starts far away takes a step for each weight that enters or leaves.
        """
        k, free = len(self.scale), bool(self.free.any())
        order, every = np.arange(k), np.arange(len(self.w))
        ends = self.ends[0][:k], self.ends[1][:k]
        for _ in range(MOST_MODELS):
            if cease():
                break
            hessian, slope = self._hessian(every), self.slope.copy()
            if free:  # eliminate the intercept
                curvature = hessian[k, k] + LEAST_CURVATURE
                share = hessian[k, :k] / curvature
                slope[:k] -= share * slope[k]
                hessian = hessian[:k, :k] - np.outer(share, hessian[k, :k])
            # a column without curved rows moves until some are curved
            hessian[order, order] += LEAST_CURVATURE
            w, slope = self.w[:k].copy(), slope[:k].copy()
            for _ in range(FIRST_SWEEPS):
                if descent.gram_sweep(hessian, self.a[:k], *ends, order, w, slope) <= ROUGH:
                    break
            step = w - self.w[:k]
            if free:
                step = np.append(step, -self.slope[k] / curvature - share @ step)
            beta, lower, ended = self._lowest(step)
            if beta <= 0.0:
                break
            self._move(beta, step, ended)
            if lower < WORTH * self.value:
                break

    def _thin_out(self, before: Floats) -> None:
        """Remove the weights of columns that depend on others, as far as no margin changes.

        Sweeps over more columns than rows leave most weights nonzero, and Newton steps would remove them
        one by one. If a ridge leaves no column dependent, the weights ``before`` come back instead.
        """
        active = np.flatnonzero(self.signs)
        if len(active) <= len(self.s) or self.limited:  # flat moves would have to end at limits
            return
        part = self.phi[active]
        gram = part @ part.T + self.extra[np.ix_(active, active)]
        left = ActiveSet(gram, *(x[active] for x in (self.a, self.w, self.slope, self.signs)))
        left.move_in_null_space(newton_step(left.hessian, left.right())[1], level=True)
        w = before
        if len(left.indices) <= len(self.s):
            w = self.w.copy()
            w[active] = 0.0
            w[active[left.indices]] = left.w
        self._move(1.0, w - self.w)

    def _move(self, beta: float, step: Floats, ended: tuple[int, float] | None = None) -> None:
        """Take a share of a step; ``ended`` : the weight that ends at 0 or at a limit, and this place."""
        self.w = self.w + beta * step
        if self.limited:
            self.w = inside(self.w, *self.ends)
        if ended is not None:
            self.w[ended[0]] = ended[1]
        self.beyond = self.beyond + beta * (step @ self.phi)
        self.signs = np.where(self.free | self._at_limit, 0.0, np.sign(self.w))
        self._update()

    def _update(self) -> None:
        """Update the set of curved rows, the slopes of the smooth part, and the local objective."""
        slopes = self.curvature * self.beyond
        self.curved = (slopes > self.low) & (slopes < self.high)
        self.row_slopes = slopes = np.clip(slopes, self.low, self.high)
        d = self.w - self.start
        pulled = self.extra @ d
        self.slope = self.phi @ (self.s * slopes) + self.linear + pulled
        #: the local objective at w
        self.value = self.ridge_at_start + float(
            self.s @ (slopes * (self.beyond - 0.5 / self.curvature * slopes))
            + self.a @ np.abs(self.w)
            + d @ (self.linear + 0.5 * pulled)
        )

    def _hessian(self, active: Columns) -> Floats:
        """The Hessian over the active weights: of the curved rows, ridge and floors."""
        if self._whole is not None:
            return self._whole[np.ix_(active, active)]
        part = self.phi[np.ix_(active, np.flatnonzero(self.curved))]
        part *= np.sqrt(self.curvature * self.s[self.curved])
        return part @ part.T + self.extra[np.ix_(active, active)]

    def _enter(self, tolerance: float) -> bool:
        """Give signs to violating weights of 0; returns whether there are any."""
        out = np.flatnonzero(~self.free & (self.signs == 0.0))
        enter = entering(
            self._slopes_at_0() if self.limited else self.slope, self.a, out, tolerance, self.rank
        )
        if not len(enter):
            return False
        self.signs = self.signs.copy()
        self.signs[enter] = np.where(self.w != 0.0, np.sign(self.w), -np.sign(self.slope))[enter]
        if len(enter) > 1:
            active = np.flatnonzero(self.free | (self.signs != 0.0))
            right = -(self.slope + self.a * self.signs)[active]
            new = np.isin(active, enter)
            inwards = np.where(self._at_limit & (self.w != 0.0), -self.signs, self.signs)
            if not takes_all(self._hessian(active), right, inwards[active], new):
                self.signs[enter[1:]] = 0.0
        return True

    def _slopes_at_0(self) -> Floats:
        """Slopes for :func:`entering`, as of weights of 0, whose violations are the same."""
        k = len(self.scale)
        slopes = clamped(self.slope[:k] / self.a[:k], self.w[:k], *(end[:k] for end in self.ends))
        return np.append((violations(slopes, self.w[:k]) + 1.0) * self.a[:k], self.slope[k:])

    def _allowed(self, step: Floats) -> Floats:
        """A step without the moves of weights beyond the limits at which they are."""
        if not self.limited:
            return step
        low, high = self.ends
        beyond = ((self.w <= low) & (step < 0.0)) | ((self.w >= high) & (step > 0.0))
        return np.where(beyond, 0.0, step)

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _lowest(self, step: Floats) -> tuple[float, float, tuple[int, float] | None]:
        """Find where the objective is lowest along a step.

        Returns the share of the step, the decrease of the objective there, and the weight that becomes 0
        there, or ends at a limit, with this place.
        """
        dm = step @ self.phi
        rows = np.flatnonzero(dm)
        slopes, change = self.curvature * self.beyond[rows], self.curvature * dm[rows]
        low, high = self.low[rows], self.high[rows]
        begin = np.where(change > 0.0, low - slopes, high - slopes) / change
        end = np.where(change > 0.0, high - slopes, low - slopes) / change
        curve = self.curvature * self.s[rows] * dm[rows] ** 2
        moving = (step != 0.0) & (self.w != 0.0)
        crossing = np.full(len(step), np.inf)
        crossing[moving] = -self.w[moving] / step[moving]
        kink = 2.0 * self.a * np.abs(step)
        slope = float(self.slope @ step) + float(
            (self.a * np.where(self.w != 0.0, np.sign(self.w) * step, np.abs(step))).sum()
        )
        if not slope < 0.0:
            return 0.0, 0.0, None
        # places where the slope or the curvature jumps, in order
        places = np.concatenate([begin, end, crossing])
        curves = np.concatenate([curve, -curve, np.zeros(len(step))])
        kinks = np.concatenate([np.zeros(2 * len(rows)), kink])
        ends = np.where(step > 0.0, self.ends[1], self.ends[0])
        if self.limited:  # at a limit, the objective rises without end
            places = np.append(places, np.where(step != 0.0, (ends - self.w) / step, np.inf))
            curves = np.append(curves, np.zeros(len(step)))
            kinks = np.append(kinks, np.full(len(step), np.inf))
        order = np.flatnonzero((places > 0.0) & np.isfinite(places))
        order = order[np.argsort(places[order], kind="stable")]
        first = float(step @ (self.extra @ step)) + float(curve[(begin <= 0.0) & (end > 0.0)].sum())
        curves = np.maximum(first + np.append(0.0, np.cumsum(curves[order])), 0.0)
        places = np.append(0.0, places[order])
        risen = np.append(0.0, np.cumsum(curves[:-1] * np.diff(places)))
        after = slope + risen + np.append(0.0, np.cumsum(kinks[order]))
        last = int(np.argmax(after >= 0.0)) if (after >= 0.0).any() else len(after)
        # the minimum is at the kink where the slope turns positive, or before it
        here, curvature = after[last - 1], curves[last - 1]
        widths = np.diff(places[:last])
        fallen = -float(((after[: last - 1] + 0.5 * curves[: last - 1] * widths) * widths).sum())
        width = -here / curvature if curvature > 0.0 else np.inf
        if last < len(after) and places[last - 1] + width >= places[last]:
            beta, weight = float(places[last]), int(order[last - 1]) - 2 * len(rows)
            left = beta - places[last - 1]
            ended = None
            if weight >= 0:
                at_limit, weight = divmod(weight, len(step))
                ended = weight, float(ends[weight]) if at_limit else 0.0
            return beta, fallen - (here + 0.5 * curvature * left) * left, ended
        if not np.isfinite(width):
            return 0.0, 0.0, None
        beta = float(places[last - 1] + width)
        return beta, fallen - 0.5 * here * width, None


def _dense(at: LocalPoint) -> Floats:
    """The columns, float64 (columns, n_rows)."""
    objective, slots = at.view.objective, at.slots
    phi = np.empty((len(slots), objective.n_rows))
    for number, rows in enumerate(objective.blocks()):
        part = np.empty((len(slots), rows.stop - rows.start))
        column_kernels.dense_rows(at.working.cache.pieces, slots, number, 0, part)
        phi[:, rows] = part
    return phi
