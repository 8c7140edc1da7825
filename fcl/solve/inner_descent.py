"""Coordinate descent on the inner model of a step.

Sweeps run over nested sets: all columns; columns with a weight, until none of them violates; and among
these the *hot* columns, whose violation is near the largest, again and again between two sweeps over
the others. Each such round gains momentum from the last one; in small models the sweeps over hot
columns are extrapolated instead. Columns that depend little on each other, such as words, are swept
plainly first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.kernels import descent
from fcl.kernels.gather import GatheredColumns
from fcl.objective.limits import inside
from fcl.solve.state import Columns, LocalPoint
from fcl.types import Floats, Ids, Singles

#: Maximum sweeps of one step, over any set of columns.
MAX_SWEEPS = 1000
#: Hot columns have a violation above this share of the largest one among columns with a weight. Late
#: steps have few of them, and save most of their time by sweeping over these.
HOT = 0.1
#: Sweeps over the hot columns between two sweeps over all columns with a weight: enough for one
#: extrapolation. They end early when the largest violation has fallen to this share.
HOT_SWEEPS = 6
COOLED = 0.3
#: Minimum sweeps of a step: fewer are not worth gathering columns for.
LEAST_SWEEPS = 10
#: ... and the share to which the violation must fall before a request to hurry ends a step.
HURRIED = 0.3
#: Entries from which a sweep is two sweeps over half the columns each, side by side if there are threads,
#: but not over lists of nonzeros, and rounds of sweeps gain momentum; about 4 ms on one thread. Below,
#: sweeps over the hot columns are extrapolated instead.
LONG_SWEEP = 2_000_000
#: Rows of the sample up to which there is memory for two halves and for momentum, and the vectors
#: over them, in float64, that these need.
MOMENTUM_ROWS = 1 << 20
MOMENTUM_VECTORS = 10
#: Sweeps over one set of columns between two extrapolations.
EXTRAPOLATE_FROM = 5
#: Rows of the sample up to which there is memory for extrapolation, and the vectors that it needs.
EXTRAPOLATE_ROWS = 1 << 18
EXTRAPOLATE_VECTORS = EXTRAPOLATE_FROM + 8
#: Steps count as dependent if their products, each relative to the sizes of both, have an eigenvalue
#: below this share. Larger multiples of a step than MOST_SHARE would magnify its rounding errors.
DEPENDENT = 1e-5
MOST_SHARE = 10.0
#: From this many entries on, a step ends when a round of sweeps has lowered the model by less than LITTLE
#: of its whole decrease. Such a model is rough, and a new one at the next point gains more than the last
#: digits of this one. Sweeps always take at least about as long as the other parts of the step.
DEAR_SWEEP = 10_000_000
LITTLE = 0.02
#: From this many entries on, lists of nonzeros are swept plainly first, as long as each sweep gains at
#: most FAST of what the last one gained.
LEAST_PLAIN = 1_000_000
FAST = 0.75
#: A step over lists of nonzeros ends, however short it was, once a sweep gains at most ROUGH of the whole
#: decrease. If no column violated by more than CLOSE at first, the certificate depends on the last
#: violations. Then the largest one must have fallen to COOLED of the first, too.
ROUGH = 0.1
CLOSE = 1.0
#: Maximum entries that one call of the sweep kernel reads, unless a single column has more.
ENTRIES_A_CALL = 10_000_000


def is_enough(first: float, worst: float, gain: float, decrease: float) -> bool:
    """Whether a step over lists of nonzeros may leave the rest to the next one.

    first, worst : largest violations at the first and the last sweep.  gain : of the last sweep.
    decrease : of the model since the first.
    """
    fell = first > CLOSE or worst <= COOLED * first
    return fell and gain <= ROUGH * decrease


def is_over(inner: Any, sweeps: int, most: int, first: float, worst: float) -> bool:
    """Whether a step ends before it has converged.

    inner : InnerModel.  most : number of sweeps.  first, worst : as of :func:`is_enough`.
    """
    hurried = sweeps >= LEAST_SWEEPS and worst <= HURRIED * first and inner.hurry()
    return hurried or sweeps >= most or bool(inner.cease())


def extrapolation(iterates: Sequence[npt.NDArray[Any]]) -> Floats | None:
    """The coefficients of Anderson extrapolation for all iterates but the first; None without any.

    Near convergence, sweeps over one set of columns in one order are an affine map, and this combination
    of the last iterates is far nearer to its fixed point (Bertrand and Massias 2021).
    """
    steps = np.diff(iterates, axis=0)
    gram = np.einsum("ik,jk->ij", steps, steps)  # without BLAS, whose threads would only spin
    gram[np.diag_indices_from(gram)] += 1e-12 * max(float(np.trace(gram)), 1e-300)
    c = np.linalg.solve(gram, np.ones(len(gram)))
    total = float(c.sum())
    return c / total if total != 0.0 and np.isfinite(c).all() else None


@dataclass
class QuadraticModel:
    """The gathered model: k columns on a sample of the rows. See :mod:`fcl.kernels.descent`."""

    columns: GatheredColumns
    unit: float
    shared: Singles
    q: Singles
    at: LocalPoint
    extra: Floats
    curve: Floats
    cross: Floats
    ids: Ids

    def value(self, w: Floats, u: Singles, b: Floats) -> float:
        """The value of the model at a state."""
        d = w - self.at.weights
        smooth = (
            float((self.at.gradients * d).sum())
            + 0.5 * float((self.extra * d * d).sum())
            + 0.5 * self.unit * float((u * u / self.q).sum(dtype=np.float64))
            - 0.5 * float(b @ b)
        )
        return float((self.at.absolute * np.abs(w)).sum()) + smooth

    def shares(self, state: State, steps: list[State], signs: Floats) -> Floats:
        """The multiples of some steps that together lower the model most, if no weight changes its sign.

        signs : of the weights at the state; those of 0 stay 0.
        """
        w, u, b = state
        slopes = self.at.gradients + self.extra * (w - self.at.weights)
        slopes = np.where(signs != 0.0, slopes + self.at.absolute * signs, 0.0)
        scaled = [step[1] / self.q for step in steps]
        gram, slope = np.empty((len(steps), len(steps))), np.empty(len(steps))
        for i, (dw, _, db) in enumerate(steps):
            rows = self.unit * float((scaled[i] * u).sum(dtype=np.float64))
            slope[i] = float(slopes @ dw) + rows - float(b @ db)
            for j, other in enumerate(steps[: i + 1]):
                rows = self.unit * float((scaled[i] * other[1]).sum(dtype=np.float64))
                gram[i, j] = float((self.extra * dw) @ other[0]) + rows - float(db @ other[2])
                gram[j, i] = gram[i, j]
        size = np.sqrt(np.maximum(np.diag(gram), 1e-300))
        if not np.isfinite(gram).all():
            return np.zeros(len(steps))
        found = np.linalg.lstsq(gram / np.outer(size, size), -slope / size, DEPENDENT)[0]
        return np.asarray(found / size)

    def move(self, columns: Columns, steps: Floats, u: Singles, b: Floats) -> None:
        """Update u and b, in place, for steps of the weights of some columns."""
        descent.move(self.columns, columns, steps, self.shared, self.q, self.cross, u, b)


#: w, u and b.
State = tuple[Floats, Singles, Floats]


class SweepOrder:
    """Columns in the order in which a sweep visits them."""

    def __init__(self, model: QuadraticModel, columns: Columns) -> None:
        self.columns = columns
        self._model = model
        cuts = model.columns.cuts
        self._sizes = cuts[columns, -1] - cuts[columns, 0]
        self.entries = int(self._sizes.sum())

    @cached_property
    def calls(self) -> list[Columns]:
        """The columns split such that no call of a kernel takes much longer than 50 ms."""
        if self.entries <= ENTRIES_A_CALL:
            return [self.columns]
        ends = np.cumsum(self._sizes)
        cuts = np.searchsorted(ends, np.arange(ENTRIES_A_CALL, ends[-1], ENTRIES_A_CALL))
        return [part for part in np.split(self.columns, cuts) if len(part)]

    @cached_property
    def halves(self) -> list[SweepOrder]:
        """The first and the second half of the columns by id, with about equally many entries."""
        ids = self._model.ids[self.columns]
        by_id = np.argsort(ids, kind="stable")
        ends = np.cumsum(self._sizes[by_id])
        middle = ids[by_id[np.searchsorted(ends, ends[-1] // 2)]]
        first = ids <= middle
        return [SweepOrder(self._model, self.columns[half]) for half in (first, ~first)]


class Descent:
    """Coordinate descent on one model: its state, and the sets of columns that it sweeps over.

    The state is w (weights including steps), u (:mod:`fcl.kernels.descent`), and b (the step of the free
    coefficients, in the coordinates of their elimination).
    """

    def __init__(
        self,
        inner: Any,
        model: QuadraticModel,
        u: Singles,
        b: Floats,
        limit: float = math.inf,
        least: float = 0.0,
    ) -> None:
        self._inner, self._model = inner, model
        self._left = limit  # entries to read before the step is cut
        self._least = least  # ... and before it may leave the last digits of a long step
        self.w = model.at.weights.copy()
        self._u = u
        u[:] = 0.0
        self.b = b
        self._violations = np.zeros(len(self.w))
        self._has_room = len(u) <= MOMENTUM_ROWS
        self._extrapolated = len(u) <= EXTRAPOLATE_ROWS
        self._gains_momentum = False
        self._last: State | None = None  # the step of the last round
        self._iterates: list[State] = []
        self.sweeps = 0
        self.rough = False  #: whether the step may leave the last digits of its model
        self._first = 0.0
        self._ended = False

    @property
    def cut(self) -> bool:
        return self._left <= 0.0

    def run(self, order: Columns, tolerance: float) -> None:
        """Sweep until no column violates by more than the tolerance, or the step has to end."""
        everything = SweepOrder(self._model, order)
        self.rough = dear = everything.entries >= DEAR_SWEEP
        plain = self._inner.plain and everything.entries >= LEAST_PLAIN
        if plain and self._plainly(everything, tolerance):
            return
        self._gains_momentum = self._has_room and everything.entries >= LONG_SWEEP
        start = before = self._value() if dear else 0.0
        while not self._ended and self._sweep(everything) > tolerance:
            while not self._ended:
                begin = self._copy() if self._gains_momentum else None
                has_weight = order[self.w[order] != 0.0]
                worst = self._sweep(SweepOrder(self._model, has_weight))
                if worst <= tolerance:
                    break
                if dear:
                    value = self._value()
                    little = before - value <= LITTLE * (start - value)
                    self._ended |= little and self._least <= 0.0
                    before = value
                hot = has_weight[self._violations[has_weight] > HOT * worst]
                self._cool(SweepOrder(self._model, hot), max(tolerance, COOLED * worst))
                if begin is not None:
                    self._gain_momentum(begin)

    def _plainly(self, order: SweepOrder, tolerance: float) -> bool:
        """Sweep over the columns that may move while it converges fast; returns whether to end."""
        everything = order
        start = before = self._value()
        last = math.inf
        while not self._ended:
            worst = self._sweep(order)
            value = self._value()
            gain, before = before - value, value
            if is_enough(self._first, worst, gain, start - value):
                self.rough = True
                return True
            if worst <= tolerance:
                if order is everything:
                    return True
                order, last = everything, math.inf
                continue
            if gain > FAST * last:
                return False
            last, some = gain, order.columns
            moves = (self.w[some] != 0.0) | (self._violations[some] > 0.0)
            order = SweepOrder(self._model, some[moves])
        return True

    def _value(self) -> float:
        return self._model.value(self.w, self._u, self.b)

    def _copy(self) -> State:
        return self.w.copy(), self._u.copy(), self.b.copy()

    def _cool(self, hot: SweepOrder, enough: float) -> None:
        self._iterates = []
        for _ in range(HOT_SWEEPS):
            if self._ended or self._sweep(hot) <= enough:
                return
            if self._extrapolated and not self._gains_momentum:
                self._extrapolate()

    def _sweep(self, order: SweepOrder) -> float:
        long = self._has_room and order.entries >= LONG_SWEEP and not self._inner.plain
        worst = self._side_by_side(order) if long else self._serially(order, self._u, self.b)
        self.sweeps += 1
        self._left -= order.entries
        self._least -= order.entries
        self._first = self._first or worst
        self._ended = self.cut or is_over(self._inner, self.sweeps, MAX_SWEEPS, self._first, worst)
        return worst

    def _serially(self, order: SweepOrder, u: Singles, b: Floats) -> float:
        """Minimise over each column in turn, in place; returns the largest violation met."""
        model, at, found = self._model, self._model.at, []
        for part in order.calls:
            worst = descent.descent_sweep(
                at.absolute,
                part,
                model.columns,
                model.unit,
                model.shared,
                model.q,
                u,
                at.gradients,
                model.extra,
                model.curve,
                model.cross,
                at.weights,
                at.low,
                at.high,
                self.w,
                b,
                self._violations,
            )
            found.append(float(worst))
        return max(found)

    def _side_by_side(self, order: SweepOrder) -> float:
        """Sweep over both halves of the columns from the same state, and add their steps.

        Each half lowers the model, so half the sum does too. The whole sum nearly always does, because
        strongly coupled columns (patterns at the same positions) are in the same half.
        """
        model, w, u, b = self._model, self.w, self._u, self.b
        before = model.value(w, u, b)
        sides = [(half, u.copy(), b.copy()) for half in order.halves]
        w_before = w.copy()
        worst = max(self._inner.team.map(lambda side: self._serially(*side), sides))
        du = sum(side[1] for side in sides) - len(sides) * u
        db = sum(side[2] - b for side in sides)
        dw = w - w_before
        for share in (1.0, 1.0 / len(sides)):
            new_w, new_u, new_b = w_before + share * dw, u + share * du, b + share * db
            new_w = inside(new_w, model.at.low, model.at.high)
            if model.value(new_w, new_u, new_b) <= before:
                break
        w[:], u[:], b[:] = new_w, new_u, new_b
        return worst

    def _gain_momentum(self, begin: State) -> None:
        """Move on along the step of this round and that of the last one, as far as lowers the model most.

        Conjugate gradients with sweeps as their preconditioner, but for two things (locally optimal
        conjugate gradients, Knyazev 2001): sweeps over different columns are not one linear map, and a
        weight that would change its sign ends at 0, and one that would leave its limits at the limit. The
        model is evaluated without reading columns other than those of such weights, because the state is
        affine in w.

        begin : the state before this round.
        """
        model, now = self._model, (self.w, self._u, self.b)
        steps = [(now[0] - begin[0], now[1] - begin[1], now[2] - begin[2])]
        steps += [self._last] if self._last else []
        self._last = steps[0]
        signs = np.sign(self.w)
        shares = model.shares(now, steps, signs)
        if np.abs(shares).max() > MOST_SHARE:
            return
        w, u, b = self._copy()
        for share, (dw, du, db) in zip(shares, steps, strict=True):
            w += share * dw
            u += np.float32(share) * du
            b += share * db
        crossing = np.flatnonzero((w != 0.0) & (w * signs <= 0.0))
        model.move(crossing, -w[crossing], u, b)
        w[crossing] = 0.0
        within = inside(w, model.at.low, model.at.high)
        beyond = np.flatnonzero(within != w)
        model.move(beyond, within[beyond] - w[beyond], u, b)
        w = within
        if model.value(w, u, b) < model.value(*now):
            self.w[:], self._u[:], self.b[:] = w, u, b
            self._last = w - begin[0], u - begin[1], b - begin[2]

    def _extrapolate(self) -> None:
        """Take an extrapolated state if it lowers the model, which needs no column to be evaluated."""
        model, iterates = self._model, self._iterates
        iterates.append(self._copy())
        if len(iterates) <= EXTRAPOLATE_FROM:
            return
        c = extrapolation([state[0] for state in iterates])
        if c is not None:
            last = iterates[1:]
            w, u, b = (
                sum(x * state[part] for x, state in zip(c, last, strict=True)) for part in range(3)
            )
            allowed = ((w >= model.at.low) & (w <= model.at.high)).all()
            if allowed and model.value(w, u, b) < model.value(self.w, self._u, self.b):
                self.w[:], self._u[:], self.b[:] = w, u, b
        self._iterates = []
