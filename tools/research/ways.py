"""Methods of minimising the trainer's inner model: the kept method, and the rejected ones.

Each method is a function of a :class:`State`; ``inner.py`` runs them on models of a real training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fcl.kernels import kernel
from fcl.kernels.descent import soft_threshold, violation
from fcl.parallel import SERIAL
from fcl.solve import inner_descent
from tools.bench import common

__all__ = ["WAYS", "Recorded", "Spent", "State"]

Floats = npt.NDArray[np.float64]


@dataclass
class Recorded:
    """One inner model, with the trainer's tolerance and the position of each column."""

    model: Any
    rows: int
    order: npt.NDArray[np.intp]
    tolerance: float
    positions: npt.NDArray[np.int64]
    b: Floats  #: at the start
    #: the columns without segments: column t has the rows entries[start[t] : stop[t]]
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    entries: npt.NDArray[np.int32]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Number of entries of each column."""
        return np.asarray(self.stop - self.start)


class Spent(Exception):
    """A method has used up its time."""


class State:
    """The vectors w, u and b of a method, as in the kernels, with a clock and a count of entries."""

    def __init__(self, recorded: Recorded, limit: float) -> None:
        self.recorded, self.model = recorded, recorded.model
        self.w = self.model.at.weights.copy()
        self.u = np.zeros(recorded.rows, np.float32)
        self.b = recorded.b.copy()
        self.met = np.zeros(len(self.w))
        self.read = 0
        self.deadline = time.perf_counter() + limit

    def sweep(self, columns: npt.NDArray[np.intp]) -> float:
        """Make one sweep of coordinate descent."""
        self.reads(columns)
        return float(self.model.sweep(columns, self.w, self.u, self.b, self.met))

    def reads(self, columns: npt.NDArray[np.intp]) -> None:
        """Count the entries of columns that are read; raises Spent if the time is over."""
        self.read += int(self.recorded.sizes[columns].sum())
        if time.perf_counter() > self.deadline:
            raise Spent

    def value(self) -> float:
        """The value of the model at this point."""
        return float(self.model.value(self.w, self.u, self.b))


# -- methods ---------------------------------------------------------------------------------------


def nested(state: State) -> None:
    """The kept method, in its own class."""
    recorded = state.recorded
    never = lambda: False  # noqa: E731
    descent = inner_descent.Descent(
        state.model, state.u, state.b, recorded.order, SERIAL, never, never
    )
    sweep = descent._sweep

    def counted(order: Any) -> float:
        state.reads(order.columns)
        return float(sweep(order))

    descent._sweep = counted  # type: ignore[method-assign]
    descent.run(recorded.tolerance)
    state.w, state.b = descent.w, descent.b


def plain_nested(state: State) -> None:
    """The kept method without momentum or extrapolation (nor a second thread, which no method has)."""
    with common.constants(inner_descent, MOMENTUM_ROWS=0, EXTRAPOLATE_ROWS=0):
        nested(state)


def cyclic(state: State) -> None:
    """Sweeps over all columns."""
    while state.sweep(state.recorded.order) > state.recorded.tolerance:
        pass


def interleaved(state: State) -> None:
    """The same with u and q side by side, so that an entry reads both from one cache line."""
    model, recorded = state.model, state.recorded
    vectors = np.stack([state.u, model.q], axis=1)
    at = model.at
    while True:
        state.reads(recorded.order)
        worst = _interleaved_sweep(
            at.absolute,
            recorded.order,
            recorded.start,
            recorded.stop,
            recorded.entries,
            model.unit,
            vectors,
            at.gradients,
            model.extra,
            model.curve,
            model.leans,
            at.weights,
            state.w,
            state.b,
        )
        if worst <= recorded.tolerance:
            break
    state.u[:] = vectors[:, 0]


def two_sets(state: State) -> None:
    """Sweep over all columns; then over the columns with a weight until they converge."""
    order, tolerance = state.recorded.order, state.recorded.tolerance
    while state.sweep(order) > tolerance:
        active = order[state.w[order] != 0.0]
        while state.sweep(active) > tolerance:
            pass


def shrinking(state: State) -> None:
    """Like liblinear: leave out columns at zero well inside the bounds, and check all at the end."""
    order, tolerance = state.recorded.order, state.recorded.tolerance
    while True:
        columns, largest = order, np.inf
        while True:
            before = state.w[columns] == 0.0
            worst = state.sweep(columns)
            if worst <= tolerance:
                break
            inside = _slopes(state, columns)
            rest = before & (inside < 1.0 - min(largest, 1.0))
            columns, largest = columns[~rest], worst
        if len(columns) == len(order) or state.sweep(order) <= tolerance:
            return


def _slopes(state: State, columns: npt.NDArray[np.intp]) -> Floats:
    """|slope| of columns as a share of their penalty; the extra reads for gradients are counted."""
    state.reads(columns)
    g = np.empty(len(columns))
    _gradients(*_columns(state, columns), state.u, g)
    model = state.model
    g = model.unit * g + model.at.gradients[columns] + model.leans[columns] @ state.b
    return np.asarray(np.abs(g) / model.at.absolute[columns])


def conjugate(state: State) -> None:
    """Nested sets; once the support no longer changes, conjugate gradients on it in its orthant."""
    order, tolerance = state.recorded.order, state.recorded.tolerance
    support = np.empty(0, np.intp)
    while state.sweep(order) > tolerance:
        while True:
            active = order[state.w[order] != 0.0]
            if state.sweep(active) <= tolerance:
                break
            now = order[state.w[order] != 0.0]
            if len(now) == len(support) and (np.sort(now) == np.sort(support)).all():
                _conjugate(state, now, tolerance)
            support = now


def _conjugate(state: State, columns: npt.NDArray[np.intp], tolerance: float) -> None:
    """Conjugate gradients with a diagonal preconditioner, up to the first change of sign."""
    model = state.model
    at, leans, extra = model.at, model.leans[columns], model.extra[columns]
    arrays = _columns(state, columns)
    sign = np.sign(state.w[columns])
    g = np.empty(len(columns))

    def gradient(u: Any, b: Floats, away: Floats, constant: Floats) -> Floats:
        state.reads(columns)
        _gradients(*arrays, u, g)
        return np.asarray(model.unit * g + extra * away + leans @ b + constant)

    linear = at.gradients[columns] + at.absolute[columns] * sign
    residual = -gradient(state.u, state.b, state.w[columns] - at.weights[columns], linear)
    diagonal = model.curve[columns]
    z = residual / diagonal
    p, rho = z.copy(), float(residual @ z)
    for _ in range(50):
        du = np.zeros_like(state.u)
        state.reads(columns)
        _add(*arrays, p, model.q, du)
        db = -(p @ leans)
        hp = gradient(du, db, p, np.zeros(len(p)))
        curvature = float(p @ hp)
        if not curvature > 0.0:
            return
        alpha = rho / curvature
        crossing = sign * p < 0.0
        most = float(np.min(-state.w[columns][crossing] / p[crossing], initial=np.inf))
        step = min(alpha, most)
        state.w[columns] += step * p
        if step == most:
            state.w[columns[crossing][np.argmin(-state.w[columns][crossing] / p[crossing])]] = 0.0
        state.u += np.float32(step) * du
        state.b += step * db
        residual -= step * hp
        if step < alpha or np.abs(residual / at.absolute[columns]).max() <= 0.5 * tolerance:
            return
        z = residual / diagonal
        p = z + float(residual @ z) / rho * p
        rho = float(residual @ z)


def bundles(size: int) -> Callable[[State], None]:
    """Bundles of columns: steps from the same state, and a line search along their sum."""

    def way(state: State) -> None:
        model, recorded = state.model, state.recorded
        dm = np.zeros(recorded.rows, np.float32)

        def sweep(columns: npt.NDArray[np.intp]) -> float:
            state.reads(columns)
            return float(
                _bundle_sweep(
                    *(columns, size, recorded.start, recorded.stop, recorded.entries),
                    *(model.unit, model.q),
                    *(state.u, dm, model.at.gradients, model.extra, model.curve, model.leans),
                    *(model.at.absolute, model.at.weights, state.w, state.b, np.zeros(size)),
                )
            )

        while sweep(recorded.order) > recorded.tolerance:
            while sweep(recorded.order[state.w[recorded.order] != 0.0]) > recorded.tolerance:
                pass

    return way


def blocks(state: State) -> None:
    """Solve for all columns of one position at a time, with their Gram matrix."""
    model, recorded = state.model, state.recorded
    grams: dict[int, tuple[npt.NDArray[np.intp], Floats]] = {}

    def sweep(columns: npt.NDArray[np.intp]) -> float:
        worst = 0.0
        for position in np.unique(recorded.positions[columns]):
            here = columns[recorded.positions[columns] == position]
            known = grams.get(int(position))
            if known is None or len(known[0]) != len(here) or (known[0] != here).any():
                state.reads(here)
                grams[int(position)] = here, _gram(state, here)
            gram = grams[int(position)][1]
            state.reads(here)
            arrays = _columns(state, here)
            g = np.empty(len(here))
            _gradients(*arrays, state.u, g)
            g *= model.unit
            g += model.at.gradients[here] + model.leans[here] @ state.b
            g += model.extra[here] * (state.w[here] - model.at.weights[here])
            new = state.w[here].copy()
            worst = max(
                worst,
                _solve_block(gram, g, model.at.absolute[here], new, 20, 0.1 * recorded.tolerance),
            )
            z = new - state.w[here]
            if z.any():
                state.reads(here[z != 0.0])
                _add(*_columns(state, here[z != 0.0]), z[z != 0.0], model.q, state.u)
                state.w[here] = new
                state.b -= z @ model.leans[here]
        return worst

    by_id = np.sort(recorded.order)
    while sweep(by_id) > recorded.tolerance:
        while True:
            active = by_id[state.w[by_id] != 0.0]
            if sweep(active) <= recorded.tolerance:
                break


def _gram(state: State, columns: npt.NDArray[np.intp]) -> Floats:
    """The Hessian of some columns with the intercept eliminated, including the added diagonal."""
    model, recorded = state.model, state.recorded
    dense = np.zeros((len(columns), recorded.rows), np.float32)
    for t, j in enumerate(columns):
        dense[t, recorded.entries[recorded.start[j] : recorded.stop[j]]] = 1.0
    gram = (model.unit * ((dense * model.q) @ dense.T)).astype(np.float64)
    gram[np.diag_indices_from(gram)] += model.extra[columns]
    gram -= model.leans[columns] @ model.leans[columns].T
    return np.asarray(gram)


def _columns(state: State, columns: npt.NDArray[np.intp]) -> tuple[Any, Any, Any]:
    recorded = state.recorded
    return recorded.start[columns], recorded.stop[columns], recorded.entries


@kernel
def _gradients(start: Any, stop: Any, entries: Any, u: Any, out: Any) -> None:
    """Sums of u over the entries of columns of ones."""
    numbers = entries.view(np.uint32)
    for t in range(start.shape[0]):
        g0 = g1 = g2 = g3 = 0.0
        e = start[t]
        while e + 4 <= stop[t]:
            g0 += u[numbers[e]]
            g1 += u[numbers[e + 1]]
            g2 += u[numbers[e + 2]]
            g3 += u[numbers[e + 3]]
            e += 4
        while e < stop[t]:
            g0 += u[numbers[e]]
            e += 1
        out[t] = (g0 + g1) + (g2 + g3)


@kernel
def _add(start: Any, stop: Any, entries: Any, z: Any, q: Any, u: Any) -> None:
    """u += q (sum of z_t times column t)."""
    numbers = entries.view(np.uint32)
    for t in range(start.shape[0]):
        step = np.float32(z[t])
        for e in range(start[t], stop[t]):
            u[numbers[e]] += q[numbers[e]] * step


@kernel
def _solve_block(gram: Any, g: Any, absolute: Any, w: Any, most: Any, tolerance: Any) -> Any:
    """Coordinate descent on a Gram matrix; updates w and g. Returns the violation of the first sweep."""
    first = 0.0
    for sweep in range(most):
        largest = 0.0
        for j in range(len(w)):
            largest = max(largest, violation(g[j] / absolute[j], w[j]))
            h = max(gram[j, j], 1e-300)
            new = soft_threshold(w[j] - g[j] / h, absolute[j] / h)
            z = new - w[j]
            if z != 0.0:
                w[j] = new
                for i in range(len(w)):
                    g[i] += gram[i, j] * z
        if sweep == 0:
            first = largest
        if largest <= tolerance:
            break
    return first


@kernel
def _interleaved_sweep(
    absolute: Any,
    order: Any,
    start: Any,
    stop: Any,
    rows: Any,
    unit: Any,
    vectors: Any,
    lin: Any,
    extra: Any,
    curve: Any,
    leans: Any,
    before: Any,
    w: Any,
    b: Any,
) -> Any:
    """:func:`fcl.kernels.descent.descent_sweep` of binary columns; vectors : float32 (n, 2), u and q."""
    largest = 0.0
    numbers = rows.view(np.uint32)
    for o in range(order.shape[0]):
        t = order[o]
        first = start[t]
        last = stop[t]
        gradient = lin[t] + extra[t] * (w[t] - before[t]) + leans[t, 0] * b[0]
        g0 = g1 = g2 = g3 = 0.0
        e = first
        while e + 4 <= last:
            g0 += vectors[numbers[e], 0]
            g1 += vectors[numbers[e + 1], 0]
            g2 += vectors[numbers[e + 2], 0]
            g3 += vectors[numbers[e + 3], 0]
            e += 4
        while e < last:
            g0 += vectors[numbers[e], 0]
            e += 1
        gradient += unit * ((g0 + g1) + (g2 + g3))
        largest = max(largest, violation(gradient / absolute[t], w[t]))
        h = curve[t]
        new = soft_threshold(w[t] - gradient / h, absolute[t] / h)
        z = new - w[t]
        if z != 0.0:
            w[t] = new
            step = np.float32(z)
            for e in range(first, last):
                i = numbers[e]
                vectors[i, 0] += vectors[i, 1] * step
            b[0] -= z * leans[t, 0]
    return largest


@kernel
def _bundle_sweep(
    order: Any,
    size: Any,
    start: Any,
    stop: Any,
    entries: Any,
    unit: Any,
    q: Any,
    u: Any,
    dm: Any,
    lin: Any,
    extra: Any,
    curve: Any,
    leans: Any,
    absolute: Any,
    before: Any,
    w: Any,
    b: Any,
    z: Any,
) -> Any:
    """A sweep by bundles: step beta = min(1, -promised / d'Hd) along their sum d. dm : zeros."""
    numbers = entries.view(np.uint32)
    largest = 0.0
    for first in range(0, order.shape[0], size):
        count = min(size, order.shape[0] - first)
        promised = 0.0
        square = 0.0
        leaning = 0.0
        for o in range(count):
            t = order[first + o]
            g = 0.0
            for e in range(start[t], stop[t]):
                g += u[numbers[e]]
            g = unit * g + lin[t] + extra[t] * (w[t] - before[t]) + leans[t, 0] * b[0]
            largest = max(largest, violation(g / absolute[t], w[t]))
            h = curve[t]
            z[o] = soft_threshold(w[t] - g / h, absolute[t] / h) - w[t]
            promised += g * z[o] + absolute[t] * (abs(w[t] + z[o]) - abs(w[t]))
            square += extra[t] * z[o] * z[o]
            leaning += leans[t, 0] * z[o]
            if z[o] != 0.0:
                for e in range(start[t], stop[t]):
                    dm[numbers[e]] += np.float32(z[o])
        # sum_i q_i dm_i^2 as the sum over columns of z_j sum_i q_i dm_i; the last loop clears dm
        for o in range(count):
            if z[o] != 0.0:
                t = order[first + o]
                part = 0.0
                for e in range(start[t], stop[t]):
                    i = numbers[e]
                    part += q[i] * dm[i]
                square += unit * part * z[o]
        square -= leaning * leaning
        beta = 1.0
        if square > 0.0:
            beta = min(1.0, -promised / square)
        for o in range(count):
            if z[o] != 0.0:
                t = order[first + o]
                step = np.float32(beta * z[o])
                w[t] += beta * z[o]
                for e in range(start[t], stop[t]):
                    i = numbers[e]
                    u[i] += q[i] * step
                    dm[i] = np.float32(0.0)
        b[0] -= beta * leaning
    return largest


WAYS: dict[str, tuple[str, Callable[[State], None]]] = {
    "nested": ("nested sets, accelerated (kept)", nested),
    "plain": ("the same without acceleration", plain_nested),
    "cyclic": ("all columns in every sweep", cyclic),
    "interleaved": ("the same, vectors interleaved", interleaved),
    "two": ("all, and those with a weight", two_sets),
    "shrinking": ("shrinking as in liblinear", shrinking),
    "conjugate": ("conjugate gradients on the settled support", conjugate),
    "bundles4": ("bundles of 4 with a line search", bundles(4)),
    "bundles32": ("bundles of 32 with a line search", bundles(32)),
    "blocks": ("blocks of a position, Gram matrices", blocks),
}
