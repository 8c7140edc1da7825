"""Calls of online learning: experiments of its papers, learners of other libraries, less memory.

Seconds are processor time on one core. Rates are the best of a grid, whose ends are extended until the
best is inside. The radius of a ball is the norm of fcl's certified optimum of the penalised problem,
which is therefore the optimum of the ball, too. An operation is a multiplication or an addition: 2 for
each entry of the matrix that a margin or a gradient reads, 8 for each weight of a projected vector, 2
log2(m) for a weight that moves in a heap of m, 10 for an exponential.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tools.bench import calls, common, peers
from tools.bench import online_baselines as baselines
from tools.bench.common import median
from tools.bench.data import Rows
from tools.bench.runner import Clock, Figures, in_turns, measured

Floats = npt.NDArray[np.float64]
#: The logistic loss, as the kernels take it.
LOSS = (0, 0.0)


def best_rate(
    start: float, cost: Callable[[float], float], factor: float = math.sqrt(10.0)
) -> float:
    """The rate of a grid with the least cost; its ends are extended until the best is inside."""
    costs = {k: cost(start * factor**k) for k in (-1, 0, 1)}
    while True:
        best = min(costs, key=lambda k: costs[k])
        if min(costs) < best < max(costs):
            return float(start * factor**best)
        end = best - 1 if best == min(costs) else best + 1
        costs[end] = cost(start * factor**end)


def matrix_of(X: Any) -> tuple[Any, Any, Any]:
    """indptr, ids and values of a CSR matrix, as loops over rows take them."""
    return X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data


def chunk_of(X: Any) -> Any:
    """The rows of a CSR matrix for a learner of fcl."""
    from fcl.features.rows import RowChunk

    return RowChunk(*matrix_of(X))


def dense(size: int, point: tuple[Any, ...]) -> Floats:
    """The weights of a learner as a full vector."""
    w = np.zeros(size)
    w[point[0]] = point[1]
    return w


def optimum_of(rows: Rows, C: float, tol: float, loss: str = "logistic") -> tuple[Floats, Any]:
    """Weights of fcl's certified optimum of the penalised problem, and the model."""
    import fcl

    model: Any = fcl.train(rows.open(), "columns", C=C, tol=tol, loss=loss).model
    return dense(rows.x.shape[1], (model.ids, model.weights)), model


# -- projections ---------------------------------------------------------------------------------------


def by_sorting(v: Floats, z: float) -> Floats:
    """Figure 1 of the paper, as it is usually written in numpy."""
    size = np.abs(v)
    if size.sum() <= z:
        return v
    down = np.sort(size)[::-1]
    excess = np.cumsum(down) - z
    last = np.flatnonzero(down * np.arange(1, len(v) + 1) > excess)[-1]
    return np.sign(v) * np.maximum(size - excess[last] / (last + 1), 0.0)


def as_printed(v: Floats, z: float) -> Floats:
    """Figure 2 of the paper, as printed."""
    size = np.abs(v)
    if size.sum() <= z:
        return v
    theta = baselines.threshold_as_printed(size.copy(), len(v), z)
    return np.sign(v) * np.maximum(size - theta, 0.0)


def vector(kind: str, n: int) -> tuple[Floats, float]:
    """A vector of n numbers of a kind, and the radius, which the name of the kind has."""
    random = np.random.default_rng(0)
    normal = random.normal(size=n)
    makers: dict[str, Callable[[], Any]] = {
        "normal": lambda: normal,
        "99 % zeros": lambda: np.where(random.random(n) < 0.01, normal, 0.0),
        "ties of 1/4": lambda: np.round(4.0 * normal) / 4.0,
        "1e8 + uniform": lambda: 1e8 + random.random(n),
        "sorted upwards": partial(np.sort, normal),
        "sorted downwards": partial(np.copy, np.sort(normal)[::-1]),
        "constant": lambda: np.ones(n),
        "geometric": lambda: np.exp(-30.0 * np.arange(n) / n),
        "one nonzero": lambda: np.eye(1, n)[0] * 5.0,
        "Cauchy": lambda: random.standard_cauchy(n),
    }
    name, _, radius = kind.partition("; z = ")
    return makers[name](), 0.1 * n if radius == "n/10" else float(radius)


def project(
    rows: None, clock: Clock, kind: str = "normal; z = 100", method: str = "ball",
    sizes: str = "6 7", repeat: int = 5, scale: float = 1.0,
) -> Figures:  # fmt: skip
    """Nanoseconds of a projection for each number of vectors of 10^SIZE numbers, the least of calls.

    method : "ball", "simplex", "sorting", or "as printed"
    """
    from fcl.online import project_l1_ball, project_simplex

    methods = {"ball": project_l1_ball, "simplex": project_simplex, "sorting": by_sorting,
               "as printed": as_printed}  # fmt: skip
    call: Any = methods[method]
    assert method == "simplex" or np.allclose(
        call(np.arange(10.0), 3.0), by_sorting(np.arange(10.0), 3.0)
    )
    call(np.arange(10.0), 3.0)
    found: dict[float, float] = {}
    for power in map(float, str(sizes).split()):
        n = round(10.0**power)
        v, z = vector(kind, n)
        v, best, turns = scale * v, math.inf, max(1, 20_000 // n)
        for _ in range(repeat):
            since = time.process_time()
            with clock:
                for _ in range(turns):
                    call(v, z)
            best = min(best, (time.process_time() - since) / turns)
        found[power] = 1e9 * best / n
        if best > 10.0:  # longer vectors of this kind would take too long
            break
    curve = [[10.0**power for power in found], list(found.values())]
    return {**{f"10^{power:g}": ns for power, ns in found.items()}, "curve": curve,
            "panel": kind, "label": method}  # fmt: skip


# -- learners on the L1 ball ---------------------------------------------------------------------------


class Stochastic:
    """Learns rows, one or a batch at a time, by the heap or by exponentiated gradient (EG)."""

    def __init__(
        self, rows: Rows, z: float, method: str, rate: float, loss: str = "logistic", batch: int = 1
    ) -> None:
        from fcl.kernels.losses import LOGISTIC, SQUARED
        from fcl.online import OnlineOptions
        from fcl.online.ball import BallLearner

        self.z, self.method, self.rate, self.batch = z, method, rate, batch
        self.code = (SQUARED if loss == "squared" else LOGISTIC, 0.0)
        self.squared, self.p = loss == "squared", rows.x.shape[1]
        step = "implicit" if method == "ball, implicit" else "explicit"
        options = OnlineOptions(alpha=0.0, radius=z, rate=rate, loss=loss, step=step, batch=batch)
        self.ball = BallLearner.kind_for(options)(self.p, options)
        if loss == "logistic":  # all begin with the log-odds of the classes
            share = float((rows.y > 0.0).mean())
            self.ball.start_at(math.log(share / (1.0 - share)))
        self.eg = baselines.make_eg(self.p) if method.startswith("EG") else None
        if self.eg is not None:
            self.eg[-1][baselines.INTERCEPT] = self.ball.intercept

    def learn(self, X: Any, y: Floats) -> tuple[float, float]:
        """Learn rows; returns the sums of losses and of errors, each before its update."""
        n = len(y)
        if self.eg is not None:
            power = 0.0 if self.method == "EG, constant rate" else 0.5
            given = (*matrix_of(X), y, 0, n, self.code, self.rate, 1.0, power, self.z, self.batch)
            losses, errors = baselines.descend_eg(*given, *self.eg)
            return float(losses), float(errors)
        margins = np.zeros(n)
        self.ball.learn(chunk_of(X), y, np.ones(n), margins)
        self.ball.end_pass()
        errors = float(np.count_nonzero(y * margins <= 0.0))
        if self.squared:
            return float(((margins - y) ** 2).sum()), errors
        return float(np.logaddexp(0.0, -y * margins).sum()), errors

    def operations_of_a_weight(self) -> float:
        """Operations of a weight that a step changes, without those of the gradient."""
        if self.eg is not None:
            return 6.0 + baselines.EXPONENTIAL
        return 2.0 + 2.0 * math.log2(2.0 + len(self.ball.point()[0]))

    @property
    def weights(self) -> Floats:
        """The weights, float64 (p,)."""
        if self.eg is not None:
            up, down, _, state = self.eg
            return np.asarray(self.z * (up - down) / state[baselines.TOTAL])
        return dense(self.p, self.ball.point())


def ball_stream(
    rows: Rows, clock: Clock, C: float = 1.0, start: float = 30.0, radius: float = 0.0
) -> list[Figures]:
    """Figure 8: losses and errors of one pass, each before its update, at the best rates.

    The radius is that of the least loss of the ball, as in the paper; the search begins at ``radius``, or
    at the norm of the optimum at C.
    """

    def paid(z: float, method: str, rate: float) -> float:
        return Stochastic(rows, z, method, rate).learn(rows.x, rows.y)[0]

    first = radius or float(np.abs(optimum_of(rows, C, 1e-6)[0]).sum())
    if rows.is_few:
        return [{"loss": paid(first, method, start)} for method in ("ball, implicit", "EG")]
    rates = [start]  # of one radius after another

    def least(z: float) -> float:
        rates.append(best_rate(rates[-1], partial(paid, z, "ball")))
        return paid(z, "ball", rates[-1])

    z, lines = best_rate(first, least), []
    seen = np.unique(rows.x.indices).size
    for method in ("ball", "ball, implicit", "EG", "EG, constant rate"):
        begin = rates[-1] / (10.0 if "constant" in method else 1.0)
        rate = best_rate(begin, partial(paid, z, method))
        learner = Stochastic(rows, z, method, rate)
        (total, errors), own = measured(clock, partial(learner.learn, rows.x, rows.y))
        lines.append({
            "line": method, "z": z, "rate": rate, "loss": total, "errors": errors / len(rows.y),
            "left": np.count_nonzero(learner.weights) / seen,
            "us a row": 1e6 * own["processor"] / len(rows.y),
        })  # fmt: skip
    return lines


def row_times(
    rows: Rows, clock: Clock, z: float = 0.0, rate: float = 30.0, n: int = 4000
) -> Figures:
    """Microseconds of a row by heap, tree, list and whole vector, timed on the second half of 2 n rows.

    z : the radius; 0: the norm of the optimum at C = 1
    """
    from fcl.online import OnlineOptions
    from fcl.online.ball import BallLearner

    z = z or float(np.abs(optimum_of(rows, 1.0, 1e-6)[0]).sum())
    n = min(n, len(rows.y) // 2)
    X, y, p = rows.x[: 2 * n], rows.y[: 2 * n], rows.x.shape[1]
    given = (*matrix_of(X), y)
    learner = BallLearner(p, OnlineOptions(alpha=0.0, radius=z, rate=rate, step="explicit"))
    found: Figures = {}
    for some in (slice(0, n), slice(n, 2 * n)):
        work = partial(learner.learn, chunk_of(X[some]), y[some], np.ones(n), np.zeros(n))
        found["heap"] = 1e6 * measured(clock, work)[1]["processor"] / n
    tree, state = baselines.make_tree(p), np.zeros(baselines.STATES)
    state[baselines.ROOT] = p
    w, listed, members = np.zeros(p), np.zeros(p, np.uint8), np.zeros(p, np.int64)
    v, out = np.zeros(p), np.zeros(p)
    states = np.zeros(baselines.STATES), np.zeros(baselines.STATES)
    runs: list[tuple[str, Any, tuple[Any, ...], int]] = [
        ("tree", baselines.descend_tree, (tree, state), n),
        ("list", baselines.descend_list, (w, listed, members, states[0]), n),
        ("whole vector", baselines.descend_dense, (v, out, states[1]), min(n, 200)),
    ]
    for name, descend, arrays, count in runs:
        if name == "whole vector":  # too slow for the first half: it begins with the list's weights
            v[:], states[1][:] = w, states[0]
        else:
            descend(*given, 0, n, LOSS, rate, z, *arrays)
        work = partial(descend, *given, n, n + count, LOSS, rate, z, *arrays)
        found[name] = 1e6 * measured(clock, work)[1]["processor"] / count
    k = len(X.indices) / X.shape[0]
    ratio, active = found["tree"] / max(found["heap"], 1e-9), len(learner.point()[0])
    return found | {"k": k, "active": active, "tree / heap": ratio,
                    "heap, ns a feature": 1e3 * found["heap"] / k}  # fmt: skip


class Batch:
    """Mean logistic or squared loss of rows of any matrix, at the best intercept of each w.

    X : float64 (n, p), dense or CSR; y : float64 (n,); squared : bool
    """

    def __init__(self, X: Any, y: Floats, squared: bool) -> None:
        self.X, self.y, self.squared = X, y, squared
        self.b = 0.0

    def value(self, w: Floats) -> tuple[float, Floats]:
        """Mean loss at w and its best intercept, and the gradient of it in w."""
        y, m = self.y, self.X @ w
        if self.squared:
            self.b = float(np.mean(y - m))
            r = 2.0 * (m + self.b - y)
            return float(np.mean((m + self.b - y) ** 2)), self.X.T @ r / len(y)
        for _ in range(100):  # Newton's steps for the intercept, which is one number
            p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
            step = float(np.clip((y * p).sum() / max((p * (1.0 - p)).sum(), 1e-12), -5.0, 5.0))
            self.b += step
            if abs(step) < 1e-14 * max(1.0, abs(self.b)):
                break
        p = 1.0 / (1.0 + np.exp(np.minimum(y * (m + self.b), 700.0)))
        value = float(np.mean(np.logaddexp(0.0, -y * (m + self.b))))
        return value, -(self.X.T @ (y * p)) / len(y)


class Iterate(NamedTuple):
    """A step of a batch method: mean loss, Frank-Wolfe gap, weights, passes over the rows so far."""

    value: float
    gap: float
    w: Floats
    passes: float


def gap_of(w: Floats, gradient: Floats, z: float) -> float:
    """An upper bound of f(w) - f* over the ball: <g, w> + z max |g| (Frank and Wolfe 1956).

    The gradient must be that at the best intercept.
    """
    return float(gradient @ w + z * np.abs(gradient).max())


def line_search(problem: Batch, z: float, p: int) -> Iterator[Iterate]:
    """Projected gradient; the step doubles, then halves until f lies below its quadratic model.

    "L1-Line" of section 7 of the paper. A pass multiplies the matrix by w, and its transpose by the
    slopes.
    """
    from fcl.online import project_l1_ball

    w, alpha, passes = np.zeros(p), 1.0, 1.0
    value, gradient = problem.value(w)
    while True:
        yield Iterate(value, gap_of(w, gradient, z), w, passes)
        alpha *= 2.0
        while True:
            new = project_l1_ball(w - alpha * gradient, z)
            move = new - w
            found, slopes = problem.value(new)
            passes += 1.0
            model = value + gradient @ move + move @ move / (2.0 * alpha)
            if found <= model + 1e-15 * abs(value) or alpha < 1e-18:
                break
            alpha /= 2.0
        if found > value:  # rounding: the optimum is reached to the last digit
            return
        w, value, gradient = new, found, slopes


def fixed_rates(problem: Batch, z: float, p: int, rate: float) -> Iterator[Iterate]:
    """Projected gradient, "L1-Batch"; step t has the length ``rate`` / sqrt(t)."""
    from fcl.online import project_l1_ball

    w, t = np.zeros(p), 0
    while True:
        value, gradient = problem.value(w)
        t += 1
        yield Iterate(value, gap_of(w, gradient, z), w, float(t))
        w = project_l1_ball(w - rate / math.sqrt(t) * gradient, z)


class Step(NamedTuple):
    """A point of a method, after so many operations and seconds; some methods only tell its loss."""

    operations: float
    seconds: float
    w: Floats | None
    value: float = np.nan


class Problem:
    """The mean loss of rows over the ball of radius z, the norm of w, which is its optimum.

    C : weight of the losses in the penalised problem whose optimum has the norm z
    """

    def __init__(self, rows: Rows, squared: bool, w: Floats, C: float) -> None:
        self.rows, self.squared = rows, squared
        X = rows.x
        is_dense = X.nnz > 0.5 * X.shape[0] * X.shape[1]
        self.mean = Batch(X.toarray() if is_dense else X, rows.y, squared)
        self.z, self.C, self.p = float(np.abs(w).sum()), C, len(w)
        self.optimum = self.mean.value(w)[0]
        self.first = self.mean.value(np.zeros(self.p))[0]
        self.entries = float(X.nnz)


def timed(steps: Iterator[tuple[float, Floats]]) -> Iterator[Step]:
    """Add the processor time of the steps."""
    seconds = 0.0
    while True:
        begun = time.process_time()
        step = next(steps, None)
        seconds += time.process_time() - begun
        if step is None:
            return
        yield Step(step[0], seconds, step[1])


def whole(problem: Problem, iterates: Iterator[Iterate]) -> Iterator[Step]:
    """Steps of methods that read all rows and project all weights."""
    each = 4.0 * problem.entries + 8.0 * problem.p
    return timed((iterate.passes * each, iterate.w) for iterate in iterates)


def exponentiated(problem: Problem, rate: float) -> Iterator[Step]:
    """Exponentiated gradient with the gradient of all rows."""
    p, z = problem.p, problem.z
    each = 4.0 * problem.entries + (6.0 + 2.0 * baselines.EXPONENTIAL) * p

    def steps() -> Iterator[tuple[float, Floats]]:
        both, t = np.full(2 * p, 0.5 / p), 0
        while True:
            yield t * each, z * (both[:p] - both[p:])
            t += 1
            change = rate / np.sqrt(t) * problem.mean.value(z * (both[:p] - both[p:]))[1]
            limit = baselines.MOST_EXPONENT
            both *= np.exp(np.clip(np.concatenate([-change, change]), -limit, limit))
            both /= both.sum()

    return timed(steps())


def stochastic(problem: Problem, method: str, batch: int, rate: float) -> Iterator[Step]:
    """Steps along the mean gradients of batches of rows; a point for each quarter of a pass."""
    X, y = problem.rows.x, problem.rows.y
    loss = "squared" if problem.squared else "logistic"
    learner = Stochastic(problem.rows, problem.z, method, rate, loss, batch)
    random = np.random.default_rng(1)
    operations = seconds = 0.0
    while True:
        yield Step(operations, seconds, learner.weights)
        for some in np.array_split(random.permutation(len(y)), 4):
            part, labels = X[some], y[some]
            begun = time.process_time()
            learner.learn(part, labels)
            seconds += time.process_time() - begun
            moved = min(part.nnz, -(-len(some) // batch) * problem.p)
            operations += 4.0 * part.nnz + learner.operations_of_a_weight() * moved
            yield Step(operations, seconds, learner.weights)


def descent(problem: Problem) -> Iterator[Step]:
    """Coordinate descent on the penalised problem; its points are projected, which is not timed."""
    from fcl.online import project_l1_ball

    y, n, squared = problem.rows.y, len(problem.rows.y), problem.squared
    X = problem.rows.x.tocsc()
    curvatures = np.asarray(X.multiply(X).sum(axis=0)).ravel() * (2.0 if squared else 0.25)
    w, operations, seconds = np.zeros(problem.p), 0.0, 0.0
    problem.mean.value(w)
    m = np.full(n, problem.mean.b)
    r = np.array([baselines.slope_of(squared, *pair) for pair in zip(y, m, strict=True)])
    given = (*matrix_of(X), y, squared, curvatures, 1.0 / (problem.C * n))
    while True:
        yield Step(operations, seconds, project_l1_ball(w, problem.z))
        begun = time.process_time()
        operations += baselines.sweep(*given, w, m, r)
        seconds += time.process_time() - begun


def interior_point(problem: Problem, most: int) -> Iterator[Step]:
    """Clarabel's own objective after each iteration; its points are feasible only at the end."""
    given = problem.rows.x, problem.rows.y, problem.z, problem.squared, most
    return (Step(*point[:2], None, point[2]) for point in peers.interior_point(*given))


class Limits(NamedTuple):
    """When a run ends: passes over the matrix that its operations would make, seconds, distance."""

    passes: float
    seconds: float
    least: float


def curve(problem: Problem, steps: Iterator[Step], limits: Limits) -> list[tuple[float, ...]]:
    """Operations, seconds and distances from the optimum."""
    found: list[tuple[float, ...]] = []
    for step in steps:
        value = step.value if step.w is None else problem.mean.value(step.w)[0]
        found.append((step.operations, step.seconds, abs(value - problem.optimum)))
        over = step.operations >= limits.passes * 4.0 * problem.entries
        if found[-1][2] <= limits.least or over or step.seconds >= limits.seconds:
            break
    return found


def ball_curve(
    rows: Rows, clock: Clock, method: str = "line search", loss: str = "logistic", C: float = 0.0,
    start: float = 1.0, passes: float = 200.0, seconds: float = 30.0, tuned: float = 4.0,
    levels: str = "0.1 0.01 0.001 0.0001",
) -> Figures:  # fmt: skip
    """Figures 4 to 6: 10^9 operations, and seconds, after which a method stays below a level.

    Parameters
    ----------
    method : str
        "line search", "descent", "interior point", or "ball" or "EG" with rows of a step: "ball 100".
    C : float
        0: 5 % of the penalty at which all weights are 0. The levels are then shares of f(0) - f*,
        otherwise of f*.
    start : float
        The rate of the first trial with the gradient of all rows.
    """
    squared, n, p = loss == "squared", len(rows.y), rows.x.shape[1]
    unit_is_optimum = C > 0.0
    if not C:
        _, gradient = Batch(rows.x, rows.y, squared).value(np.zeros(p))
        C = 1.0 / (0.05 * np.abs(gradient).max() * n)
    tol = 1e-6 if unit_is_optimum else 1e-9
    problem = Problem(rows, squared, optimum_of(rows, C, tol, loss)[0], C)
    unit = problem.optimum if unit_is_optimum else problem.first - problem.optimum
    limits = Limits(1.0 if rows.is_few else passes, seconds, 1e-6 * unit)
    kind, _, number = method.partition(" ")
    rate = math.nan
    runs: Any
    if kind in ("ball", "EG"):
        batch = n if number == "all" else math.ceil(n / 4) if number == "25%" else int(number)
        first = start / (1.0 if number == "all" else 10.0 if batch == 1 else 3.0)
        if squared and batch == 1:
            # the squared loss diverges at steps longer than 1 / (largest squared length of a row)
            first = 0.1 / n
        first *= 10.0 / problem.z if kind == "EG" else 1.0
        if number != "all":
            runs = partial(stochastic, problem, kind, batch)
        elif kind == "EG":
            runs = partial(exponentiated, problem)
        else:
            runs = lambda rate: whole(problem, fixed_rates(problem.mean, problem.z, p, rate))  # noqa: E731
        few = limits._replace(passes=40.0 if number == "all" else tuned, seconds=seconds / 4.0)
        if not rows.is_few:
            rate = best_rate(first, lambda rate: curve(problem, runs(rate), few)[-1][2])
        steps = runs(first if rows.is_few else rate)
    elif kind == "interior":
        limits = limits._replace(passes=np.inf, seconds=np.inf)
        steps = interior_point(problem, 100)
    elif kind == "descent":
        steps = descent(problem)
    else:
        steps = whole(problem, line_search(problem.mean, problem.z, p))
    with clock:
        found = curve(problem, steps, limits)
    figures: Figures = {
        "rate": None if math.isnan(rate) else rate,
        "least": min(step[2] for step in found) / unit,
    }
    for level in map(float, str(levels).split()):
        # the first time after which the distance stays below a level, since some methods rise again
        above = [k for k, step in enumerate(found) if step[2] > level * unit]
        last = above[-1] + 1 if above else 0
        reached = f"{found[last][0] / 1e9:.3g}, {found[last][1]:.2g}" if last < len(found) else "-"
        figures[f"level {level:g}"] = reached
    shown = found[1 :: -(-len(found) // 150)]
    figures["curve"] = [[max(step[0], 1e-9) for step in shown],
                        [max(step[2] / unit, 1e-7) for step in shown]]  # fmt: skip
    return figures | {"label": method, "panel": f"{loss}, n = {n:,}"}


def kernel_classes(
    rows: Rows, clock: Clock, method: str = "ball", steps: int = 1, n: int = 20_000,
    supports: int = 2766, z: float = 100.0, passes: int = 100,
) -> Figures:  # fmt: skip
    """Figure 7: projected against exponentiated gradient on ten classes with a kernel.

    mean_i log(1 + sum_{c != y_i} exp(k(x_i, c) - k(x_i, y_i))), k(x, c) = sum_s w_cs sigma_cs K(x_s, x)

    with sigma_cs = +1 if support s is of class c, else -1, K = exp(-|x - x'|^2 / 25), w_c >= 0 and
    sum_s w_cs <= z (equation 12). The supports are drawn with a seed, since the paper does not say how.
    A number beside each weight takes what is left of z, so that EG, whose numbers have a fixed sum,
    sees the same set. steps : steps of a pass
    """
    from fcl.online import project_l1_ball

    n, supports = min(n, len(rows.y)), min(supports, len(rows.y) // 2)
    order = np.random.default_rng(0).permutation(len(rows.y))
    x, y = rows.x[order], rows.y[order].astype(np.int64)
    own = x[:supports]
    sigma = np.where(y[:supports, None] == np.arange(10), 1.0, -1.0).astype(np.float32)

    def kernel_of(part: Any) -> Any:
        out = np.empty((len(part), supports), np.float32)
        for first in range(0, len(part), 4096):
            some = part[first : first + 4096]
            square = (some**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2.0 * some @ own.T
            out[first : first + 4096] = np.exp(-np.maximum(square, 0.0) / 25.0)
        return out

    def value(K: Any, y: Any, w: Floats) -> tuple[float, Floats, float]:
        scores = (K @ (sigma * w.astype(np.float32))).astype(np.float64)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        right = scores[np.arange(len(y)), y]
        wrong = float(np.mean(scores.argmax(axis=1) != y))
        scores[np.arange(len(y)), y] -= 1.0
        gradient = sigma * (K.T @ scores.astype(np.float32)) / len(y)
        return float(-np.log(np.maximum(right, 1e-300)).mean()), gradient.astype(float), wrong

    def run(K: Any, y: Any, rate: float) -> tuple[Floats, list[float]]:
        # the last line of w is what is left of the sum
        w = np.full((supports + 1, 10), 0.0 if method == "ball" else z / (supports + 1))
        losses, t, random = [value(K, y, w[:-1])[0]], 0, np.random.default_rng(1)
        for _ in range(passes):
            parts: Any = [slice(None)]
            if steps > 1:
                parts = np.array_split(random.permutation(len(y)), min(steps, len(y)))
            for some in parts:
                gradient = value(K[some], y[some], w[:-1])[1]
                t += 1
                step = rate / np.sqrt(t)
                if method == "ball":
                    w[:-1] -= step * gradient
                    for c in range(10):
                        w[:-1, c] = project_l1_ball(w[:-1, c], z, nonnegative=True)
                else:
                    w[:-1] *= np.exp(np.clip(-step * gradient, -30.0, 30.0))
                    w *= z / w.sum(axis=0)
            losses.append(value(K, y, w[:-1])[0])
        return w[:-1], losses

    K, y = kernel_of(x[:n]), y[:n]
    tenth = n // 10
    start = 100.0 if method == "ball" else 10.0
    rate = best_rate(start, lambda rate: run(K[:tenth], y[:tenth], rate)[1][-1])
    with clock:
        w, losses = run(K, y, rate)
    zeros = (w == 0.0).mean(axis=0)
    wrong = value(kernel_of(rows.tests), rows.of_tests.astype(np.int64), w)[2]
    return {"rate": rate, "zeros": f"{zeros.min():.0%}-{zeros.max():.0%}", "test error": wrong,
            "losses": " / ".join(f"{losses[k]:.4f}" for k in sorted({1, passes // 2, passes})),
            "curve": [[float(k) for k in range(len(losses))], losses], "label": method,
            "panel": "all rows a step" if steps == 1 else f"{steps} steps a pass"}  # fmt: skip


# -- truncated gradient --------------------------------------------------------------------------------


def truncated(
    X: Any, y: Floats, passes: int, **options: Any
) -> Iterator[tuple[int, Floats, float]]:
    """Passes, weights and intercept of fcl's truncated gradient after each pass; ends if it diverges."""
    from fcl.online import OnlineOptions, make_learner

    p, n, rows = X.shape[1], len(y), chunk_of(X)
    learner = make_learner("truncated-gradient", p, OnlineOptions(**options))
    for number in range(1, passes + 1):
        if learner.learn(rows, y, np.ones(n), np.zeros(n)) < n:
            return
        learner.end_pass()
        point = learner.point()
        yield number, dense(p, point), float(point[2])


def area_of(X: Any, y: Floats, w: Floats, b: float) -> float:
    """Area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, np.clip(X @ w + b, -1e100, 1e100)))


def score(X: Any, y: Floats, w: Floats, b: float) -> tuple[float, float, float]:
    """Accuracy, or minus the squared error; area under the ROC curve; number of features."""
    margins = np.clip(X @ w + b, -1e100, 1e100)
    features, labels = float(np.count_nonzero(w)), len(np.unique(y))
    if labels > 2:
        return -float(np.mean((margins - y) ** 2)), math.nan, features
    area = area_of(X, y, w, b) if labels > 1 else math.nan
    return float(np.mean((margins > 0.0) == (y > 0.0))), area, features


def features_left(
    rows: Rows, clock: Clock, loss: str = "logistic", few: bool = False, folds: int = 10,
    unit: float = 1.0,
) -> list[Figures]:  # fmt: skip
    """Figure 1 of Langford, Li and Zhang (NIPS 2008): features left without a loss of accuracy.

    Truncated gradient with K = 1 and theta = inf, explicit steps of one rate within a pass. Rate, decay
    of the rate after a pass, gravity and number of passes are chosen by cross-validation: the fewest
    features whose accuracy is at most one point below the best one without gravity (numbers: squared
    loss at most 1 % above), or whose area under the ROC curve is not below it. few : an eighth of the
    parameters; unit : rows of length 1 allow larger steps, by this factor, and smaller gravities
    """
    numbers = (1, 3, 10)
    rates, decays = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001), (1.0, 0.5)
    gravities = (0.0, *np.logspace(-4.0, -0.5, 11).tolist())
    if few:
        rates, decays = (0.1, 0.01, 0.001), (0.5,)  # type: ignore[assignment]
        gravities = (0.0, *np.logspace(-4.0, -0.5, 6).tolist())
    grid = [tuple(unit * rate for rate in rates), decays, tuple(g / unit for g in gravities)]
    n, found = len(rows.y), dict[Any, list[Any]]()
    fold = np.random.default_rng(1).permutation(n) % folds

    def learnt(some: Any, rate: float, decay: float, gravity: float) -> Any:
        given = {"alpha": gravity, "loss": loss, "rate": rate, "power": 0.0, "decay": decay}
        given |= {"step": "explicit", "period": 1}
        return truncated(rows.x[some], rows.y[some], max(numbers), **given)

    with clock:
        for k, *own in itertools.product(range(folds), *grid):
            held = fold == k
            for passes, w, b in learnt(~held, *own):
                if passes in numbers:
                    scores = found.setdefault((*own, passes), [])
                    scores.append(score(rows.x[held], rows.y[held], w, b))
    mean = {key: np.mean(own, axis=0) for key, own in found.items() if len(own) == folds}
    free = max((key for key in mean if key[2] == 0.0), key=lambda key: mean[key][0])
    best = mean[free]
    lost = 0.01 * (-best[0] if np.isnan(best[1]) else 1.0)
    picked = {"without gravity": free}
    near = [key for key, own in mean.items() if own[0] >= best[0] - lost]
    picked["1 % lost"] = min(near, key=lambda key: (mean[key][2], -mean[key][0]))
    if equal := [key for key, own in mean.items() if own[1] >= best[1]]:
        picked["equal AUC"] = min(equal, key=lambda key: (mean[key][2], -mean[key][1]))
    lines: list[Figures] = []
    for name, (*own, passes) in picked.items():
        w, b = next(point[1:] for point in learnt(slice(None), *own) if point[0] == passes)
        quality, area, features = score(rows.tests, rows.of_tests, w, b)
        lines.append({"line": name, "active": features, "accuracy": quality, "area": area,
                      "no noise": int(np.count_nonzero(w[: rows.notes["informative"]])),
                      "left": features / (lines[0]["active"] if lines else features),
                      "chosen": ", ".join(f"{value:.3g}" for value in (*own, passes))})  # fmt: skip
    return lines


def sparse_models(rows: Rows, clock: Clock, passes: int = 10) -> list[Figures]:
    """Figure 2 of the same paper: ways to sparse models, by area under the ROC curve and features.

    Truncated gradient with theta = inf and theta = g, rounding every K = 10 rows, sub-gradients of
    gravity 1e-4 that are rounded at the end, and the batch Lasso. The rate is the best of the
    unpenalised model on a fifth of the training rows.
    """
    import fcl

    X, y, n = rows.x, rows.y, len(rows.y)
    cut = n * 4 // 5

    def last(X: Any, y: Floats, rate: float, **options: Any) -> tuple[Floats, float]:
        given = {"alpha": 0.0, "step": "explicit", "period": 10, "rate": rate, **options}
        return list(truncated(X, y, passes, **given))[-1][1:]

    def cost(rate: float) -> float:
        w, b = last(X[:cut], y[:cut], rate)
        return float(np.logaddexp(0.0, -y[cut:] * (X[cut:] @ w + b)).mean())

    rate = best_rate(0.1, cost)
    data, found = rows.open(), dict[str, list[Any]]()

    def note(method: str, w: Floats, b: float) -> None:
        active = np.flatnonzero(w)
        noise = int((active >= rows.notes["informative"]).sum())
        own = found.setdefault(method, [])
        own.append((len(active), area_of(rows.tests, rows.of_tests, w, b), noise))

    with clock:
        for g in np.logspace(-6, -1, 16):
            note("theta = inf", *last(X, y, rate, alpha=g))
            note("theta = g", *last(X, y, rate, alpha=g, theta=g))
            model: Any = fcl.train(data, "columns", C=1.0 / (g * n), tol=1e-6).model
            note("batch Lasso (fcl)", *calls.full_weights(model, X.shape[1]))
        for size in np.logspace(-4, 0.5, 16):
            note("rounding", *last(X, y, rate, truncation="round", theta=size))
            options = {"truncation": "subgradient", "theta": size, "alpha": 1e-4}
            note("sub-gradient, rounded at the end", *last(X, y, rate, **options))
    lines = []
    for method, values in found.items():
        most = max(values, key=lambda value: value[1])
        near = min(value for value in values if value[1] >= most[1] - 0.01)
        shown = sorted({value[:2] for value in values if value[0]})
        lines.append({"line": method, "area": most[1], "active": most[0], "within 0.01 of it": near[0],
                      "of them noise": near[2], "label": method, "panel": rows.notes["title"],
                      "curve": [[k for k, _ in shown], [area for _, area in shown]]})  # fmt: skip
    return lines


# -- dual cached loops ---------------------------------------------------------------------------------


def cached_loops(
    rows: Rows, clock: Clock, method: str = "fcl", part: int = 4, C: float = 0.1, steps: int = 64,
    ratio: int = 4, start: float = 0.01,
) -> Figures:  # fmt: skip
    """(P - P*) / P* against processor seconds: fcl, or loops with a cache of 1 / ``part`` of the rows.

    "fcl" and "DCL-SGD" minimise |w|_1 + C sum of logistic losses, "hinge" and "squared hinge" their own
    problems, with 1/2 |w|^2 and no intercept. "fcl, least memory" has the least budget that it accepts.
    The reader brings one row for ``ratio`` steps of the trainer. P* is fcl's optimum to a gap of 1e-6;
    of DCL it is the largest dual objective of this run and of one with all rows cached.
    """
    import fcl
    from fcl.drivers.events import PassDone
    from fcl.errors import BudgetError

    n, p = rows.x.shape
    if rows.is_few:
        steps = 1
    matrix = matrix_of(rows.x)
    found: Figures = {}
    points: list[tuple[float, float]] = []

    def watched(objective: Callable[[], float], train: Callable[[int], None], most: int) -> Any:
        """Seconds and objectives at n / 4 steps and each doubling; objectives are not timed."""
        taken, goal, seconds, own = 0, -(-n // 4), 0.0, []
        while taken < most * n:
            seconds += measured(clock, lambda now=goal - taken: train(now))[1]["processor"]  # type: ignore[misc]
            taken, goal = goal, min(2 * goal, most * n)
            own.append((seconds, objective()))
        return own

    if method.startswith("fcl"):
        memory: Any = "4GiB"
        if "least" in method:
            try:
                fcl.train(rows.open(), "columns", C=1.0, memory=1)
            except BudgetError as error:
                memory = error.smallest
        passes: list[Any] = []

        def note(event: Any) -> None:
            if isinstance(event, PassDone):
                points.append((time.process_time() - begun, event.objective))
                passes.append(event)

        fcl.train(rows.open(), "columns", C=0.1, tol=1e-2, memory=memory)  # compiles everything
        begun = time.process_time()
        with clock:
            fcl.train(
                rows.open(), "columns", C=C, tol=1e-6, memory=memory, max_time=600, progress=note
            )
        found = {"passes": len(passes), "most cached": max(e.cached for e in passes),
                 "evicted": sum(e.evicted for e in passes)}  # fmt: skip
        optimum = min(value for _, value in points)
    elif method == "DCL-SGD":
        optimum = optimum_of(rows, C, 1e-6)[1].certificate.objective
        problem = Batch(rows.x, rows.y, False)

        def descend(rate: float, most: int) -> Any:
            w, seen, cache = np.zeros(p), np.zeros(p), baselines.make_cache(n, n // part)

            def objective() -> float:
                own = baselines.settled(w, seen, cache)
                return float(np.abs(own).sum()) + C * n * problem.value(own)[0]

            given = (*matrix, rows.y, C, rate, ratio)
            return watched(objective, lambda k: baselines.train_l1(*given, k, w, seen, cache), most)

        found["rate"] = best_rate(start, lambda rate: descend(rate, min(steps, 8))[-1][1])
        points = descend(found["rate"], steps)
    else:
        squared = method == "squared hinge"
        norms = np.asarray(rows.x.multiply(rows.x).sum(axis=1)).ravel()

        def ascend(capacity: int, most: int) -> tuple[Any, float]:
            a, w, cache = np.zeros(n), np.zeros(p), baselines.make_cache(n, capacity)
            ends = rows.x, rows.y, C, squared, a, w
            given = (*matrix, rows.y, norms, C, squared, 1.0, ratio)
            own = watched(lambda: float(baselines.primal_and_dual(*ends)[0]),
                          lambda k: baselines.train_dual(*given, k, a, w, cache), most)  # fmt: skip
            return own, float(baselines.primal_and_dual(*ends)[1])

        _, best = ascend(n, 2 * steps)
        points, bound = ascend(n // part, steps)
        optimum = max(best, bound)
    away = [max((value - optimum) / optimum, 1e-7) for _, value in points]
    for level in (1e-1, 1e-3, 1e-6):
        near = [s for (s, _), a in zip(points, away, strict=True) if a <= level]
        found[f"away {level:g}"] = near[0] if near else "-"
    last = f"{away[-1]:.2g} at {points[-1][0]:.2g} s"
    return found | {"optimum": optimum, "end": last, "curve": [[s for s, _ in points], away],
                    "label": method if method.startswith("fcl") else f"{method}, cache 1/{part}",
                    "panel": f"{n:,} rows, C = {C:g}"}  # fmt: skip


# -- learners beside other libraries -------------------------------------------------------------------


def learner_of(rows: Rows, name: str, C: float, folder: Path) -> list[tuple[peers.Learn, float]]:
    """Learners of a name, of which the best counts, and the rate to begin with; 0: no choice."""
    from fcl.online import OnlineOptions, make_learner

    X, y = rows.x, rows.y
    if name.startswith("SGDClassifier"):
        rates = name.split()[1]
        return [(peers.online_sgd(X, y, C, rates), 0.0 if rates == "optimal" else 0.1)]
    if name == "vw --ftrl":
        return [(peers.online_vw(X, y, C, folder, True), 0.1)]
    if name == "vw --l1":
        return [(peers.online_vw(X, y, C, folder, False, s), 0.5) for s in (1.0, 0.1, 0.01)]
    if name == "river":
        return [(peers.online_river(X, y, C), 0.1)]
    method, _, step = name.partition(" ")
    chunk, ones = chunk_of(X), np.ones(len(y))
    odds = float(np.log((1.0 + np.sum(y > 0)) / (1.0 + np.sum(y < 0))))
    options: dict[str, Any] = {"step": step} if step else {}

    def learn(rate: float) -> tuple[Floats, float]:
        given = OnlineOptions(alpha=1.0 / (C * len(y)), rate=rate, **options)
        margins = np.zeros(len(y))
        begun = time.process_time()
        learner = make_learner(method, X.shape[1], given)
        learner.start_at(odds)
        learner.learn(chunk, y, ones, margins)
        learner.end_pass()
        point = learner.point()
        return dense(X.shape[1], point), time.process_time() - begun

    return [(learn, 0.3 if step == "implicit" else 0.1)]


def one_pass(
    rows: Rows, clock: Clock, learner: str = "ftrl", C: float = 0.1, repeat: int = 5,
    most_rows: int = 0,
) -> Figures:  # fmt: skip
    """One pass of an online learner at its best rate, that with the least objective after the pass.

    "train" is fcl's certified training to a gap of 1e-3. The intercept of every model is fitted before it
    is scored. most_rows : of river, which is slow; its rate is chosen on 1,000 rows
    """
    from scipy.optimize import minimize_scalar
    from sklearn.metrics import average_precision_score

    import fcl

    def fitted(w: Floats, own: Rows, C: float) -> tuple[float, float]:
        margins = own.x @ w
        found = minimize_scalar(lambda b: float(np.logaddexp(0.0, -own.y * (margins + b)).sum()))
        return float(found.x), float(np.abs(w).sum() + C * found.fun)

    n = len(rows.y)
    rate, count, times, w = math.nan, n, [], np.zeros(0)
    if learner == "train":
        w, own = measured(clock, lambda: optimum_of(rows, C, 1e-3)[0])
        times = [own["processor"]]
    else:
        few, few_C = rows, C
        if most_rows and most_rows < n:  # the same penalty for fewer rows
            rows_of = partial(Rows, tests=rows.tests, of_tests=rows.of_tests)
            few, few_C, count = rows_of(rows.x[:1000], rows.y[:1000]), C * n / 1000, most_rows
        with tempfile.TemporaryDirectory() as name:
            costs: dict[tuple[int, float], float] = {}
            choices = learner_of(few, learner, few_C, Path(name))
            for which, (learn, start) in enumerate(choices):

                def cost(rate: float, which: int = which, learn: Any = learn) -> float:
                    own = learn(rate)[0]
                    found = fitted(own, few, few_C)[1] if np.isfinite(own).all() else math.inf
                    costs[which, rate] = found
                    return found

                if start:
                    best_rate(start, cost)
            which, rate = min(costs, key=lambda key: costs[key]) if costs else (0, math.nan)
            learn = choices[which][0]
            if few is not rows:
                part = rows_of(rows.x[:count], rows.y[:count])
                learn, repeat = learner_of(part, learner, C * n / count, Path(name))[0][0], 1
            with clock:
                for _ in range(repeat):
                    w, seconds = learn(rate)
                    times.append(seconds)
    b, value = fitted(w, rows, C)
    best = optimum_of(rows, C, 1e-6)[1].certificate.objective
    standing = fcl.certify((w, b), rows.open(), C=C, top=0)
    found = {"rate": rate, "rows/s": count / median(times), "above optimum": value / best - 1.0,
             "own gap": standing.own_gap, "active": int(np.count_nonzero(w))}  # fmt: skip
    if rows.tests is not None:
        margins = rows.tests @ w + b
        found["test loss"] = float(np.logaddexp(0.0, -rows.of_tests * margins).mean())
        found["test error"] = float(np.mean((margins > 0) != (rows.of_tests > 0)))
        found["AUPRC"] = float(average_precision_score(rows.of_tests > 0, margins))
    point = [[found["rows/s"]], [max(found["above optimum"], 1e-4)]]
    return found | {"curve": point, "label": learner}


def which(
    rows: Rows, clock: Clock, method: str = "train", C: float = 0.1, rates: str = "0.0625",
    tol: float = 1e-3,
) -> Figures:  # fmt: skip
    """Certified training, or one pass of FTRL at the best of some rates, without its certificate."""
    import fcl
    from fcl.drivers.online.train import train_online

    data, few, rate = rows.open(), rows.few().open(), math.nan
    exact: Any = fcl.train(data, rows.features, C=C, tol=tol).model
    if method == "train":
        with clock:
            model: Any = fcl.train(data, rows.features, C=C, tol=tol).model
    else:
        learn = partial(train_online, features=rows.features, C=C, certify=False)
        learn(few, rate=0.01)
        found = {}
        for one in map(float, str(rates).split()):
            found[one] = measured(Clock(), lambda one=one: learn(data, rate=one).model)[0]  # type: ignore[misc]
        objectives = {one: fcl.certify(own, data, bound=exact, top=0).objective
                      for one, own in found.items()}  # fmt: skip
        rate = min(objectives, key=lambda one: objectives[one])
        with clock:
            model = learn(data, rate=rate).model
    certificate = fcl.certify(model, data, bound=exact, top=0).certificate
    above = certificate.objective / exact.certificate.bound - 1.0
    return {"rows/s": len(rows.y) / clock.processor, "above optimum": above, "rate": rate,
            "features": model.family.n_features, "active": len(model.ids),
            **calls.test_scores(model, rows)}  # fmt: skip


def svmlight_stream(rows: Rows, clock: Clock, method: str = "online", C: float = 0.1) -> Figures:
    """svmlight lines in a pipe: ``fcl online -``, or ``fcl convert`` and ``fcl train``.

    Seconds are those of all processes, with their start, and the choice of the rate counts.
    """
    import fcl

    n, p = rows.x.shape
    lines = []
    for i, label in enumerate(rows.y):
        row = rows.x[[i]]
        cells = zip(row.indices, row.data, strict=True)
        lines.append(" ".join([f"{label:g}", *(f"{j + 1}:{x:g}" for j, x in cells)]))
    text = ("\n".join(lines) + "\n").encode()
    with tempfile.TemporaryDirectory() as name:
        out = ["--features", "columns", "--quiet", "--overwrite", "--out", f"{name}/model.fcl"]
        Path(name, "rows.svm").write_bytes(text)
        with clock:
            if method == "online":
                alpha = repr(1.0 / (C * n))
                calls.run_command(
                    ["online", "-", "--columns", str(p), "--alpha", alpha, *out], stdin=text
                )
            else:
                files = [f"{name}/rows.svm", f"{name}/rows.zarr"]
                calls.run_command(["convert", *files, "--columns", str(p), "--quiet"])
                given = ["--driver", "inline", "--C", str(C), "--tol", "1e-3"]
                calls.run_command(["train", files[1], *given, *out])
        model: Any = fcl.load_model(f"{name}/model.fcl")
    w = dense(p, (model.ids, model.weights))
    objective = fcl.certify((w, model.intercept), rows.open(), C=C, top=0).objective
    best = optimum_of(rows, C, 1e-6)[1].certificate.bound
    return {
        "rows/s": n / clock.processor,
        "active": len(model.ids),
        "above optimum": objective / best - 1.0,
    }


def auto_rate(
    rows: Rows, clock: Clock, method: str = "ftrl", C: float = 0.1, repeat: int = 5
) -> Figures:
    """``--rate auto``: its objective beside a grid with steps of 2, and what the choice costs."""
    import fcl
    from fcl.drivers.online.job import Running, make_online_job
    from fcl.drivers.online.rates import choose_rate
    from fcl.drivers.online.train import train_online
    from fcl.parallel import one_blas_thread

    data = rows.open()
    best = optimum_of(rows, C, 1e-6)[1].certificate.bound
    job = make_online_job(data, "columns", Running(method), C=C)

    def learnt(rate: Any) -> tuple[float, float]:
        model = train_online(data, "columns", C=C, method=method, rate=rate, certify=False).model
        above = fcl.certify(model, data, C=C, top=0).objective / best - 1.0
        return above, float(model.options["rate"])

    def choose() -> None:
        with one_blas_thread():
            choose_rate(job)

    auto, chosen = learnt("auto")
    grid = min(learnt(2.0**k) for k in range(-8, 3))
    learn = partial(train_online, data, "columns", C=C, method=method, rate=chosen, certify=False)
    with clock:
        times = in_turns({"choice": choose, "pass": learn}, repeat)
    share = median(times["choice"]) / median(times["pass"])
    return {"auto": chosen, "grid": grid[1], "above, auto": auto, "above, grid": grid[0],
            "choice / pass": share}  # fmt: skip


# -- learning in less memory ---------------------------------------------------------------------------


def learner(p: int, rate: float, method: str = "ogd", **options: Any) -> Any:
    """A learner without penalty, unless the options have one."""
    from fcl.online import OnlineOptions, make_learner

    return make_learner(method, p, OnlineOptions(**{"alpha": 0.0, "rate": rate, **options}))


def progressive(made: Any, X: Any, y: Floats, passes: int = 1) -> Floats:
    """Mean loss, error rate, and 1 - area under the ROC curve of the last pass, before each update."""
    from sklearn.metrics import roc_auc_score

    from fcl.features.rows import RowChunk

    chunk, n = RowChunk(X.indptr.astype(np.int64), X.indices, X.data), len(y)
    for _ in range(passes):
        margins = np.zeros(n)
        assert made.learn(chunk, y, np.ones(n), margins) == n
        made.end_pass()
    error = float(np.mean((margins > 0.0) != (y > 0.0)))
    loss = float(np.logaddexp(0.0, -y * margins).mean())
    return np.array([loss, error, 1.0 - float(roc_auc_score(y, margins))])


def power_of_two(rows: Rows, **options: Any) -> float:
    """The best power of 2 for float32 on the first tenth of the rows."""
    few = len(rows.y) // 10
    X, y = rows.x[:few], rows.y[:few]

    def loss(rate: float) -> float:
        made = learner(X.shape[1], rate, weights="float32", **options)
        return float(progressive(made, X, y)[0])

    return min((2.0**k for k in range(-11, 9)), key=loss)


def bits(rows: Rows, clock: Clock, seeds: int = 5) -> list[Figures]:
    """Loss against the bits of a weight and its count, relative to float32 with exact counts.

    Fixed grids with 8-bit Morris counters, adaptive grids, one rate for all features, and other methods.
    """
    from fcl.online.methods import kind_of
    from fcl.online.table import morris

    p, n = rows.x.shape[1], rows.notes["before"]
    own, single = power_of_two(rows), power_of_two(rows, rates="global")

    def runs(count: int = seeds, **options: Any) -> tuple[Any, Any]:
        made = [learner(p, seed=seed, **{"rate": own, **options}) for seed in range(count)]
        with clock:
            return [progressive(one, rows.x, rows.y) for one in made], made[0]

    full = runs(1, weights="float32")[0][0]

    def line(text: str, width: float, found: Any, than: Any = full, **more: Any) -> Figures:
        extra = [100.0 * (scores / than - 1.0) for scores in found]
        mean, losses = np.mean(extra, axis=0), [scores[0] for scores in extra]
        spread = f"{min(losses):+.2f} to {max(losses):+.2f}" if len(losses) > 1 else ""
        values = zip(("loss, %", "error, %", "AUC loss, %"), mean, strict=True)
        shown = {name: f"{value:+.3f}" for name, value in values}
        return {"line": text, "bits": width, "over seeds": spread, **shown, **more}

    grid = f"q{n}.{15 - n}"
    counted = learner(p, own, weights="float32")
    counted._up, counted._events = morris()
    counted.others = np.zeros(p, np.uint8)
    scored = [progressive(counted, rows.x, rows.y)]
    lines = [line("float32, 32-bit counts", 64, [full], rate=own, loss=float(full[0]))]
    lines.append(line("float32, Morris", 40, scored))
    for text, width, weights in (("float32", 32, "float32"), (grid, 16, grid)):
        count = 1 if weights == "float32" else seeds
        found, _ = runs(count, weights=weights, rate=single, rates="global")
        lines.append(line(f"{text}, one rate", width, found, rate=single))
    panel, curves = rows.notes["title"], dict[str, list[tuple[float, float]]]()
    for m in sorted({3, 5, 6, 7, 8, 9, 11, 13, 15 - n}):
        found, made = runs(weights=f"q{n}.{m}")
        curves.setdefault("fixed grid", []).append((9 + n + m, float(np.mean(found, axis=0)[0])))
        lines.append(line(f"q{n}.{m}, Morris", 9 + n + m, found, clipped=int(made.clipped)))
    size = float(np.sqrt(np.mean(np.square(rows.x.data, dtype=np.float64))))
    for share in (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0):
        found, made = runs(weights=f"q{n}.22", gamma=share * size)
        width = 8.0 + cast("Any", made).mean_bits
        curves.setdefault("adaptive grid", []).append((width, float(np.mean(found, axis=0)[0])))
        lines.append(line(f"gamma {share:.2g}, Morris", width, found, clipped=int(made.clipped)))
    for line_of_curve, (label, points) in zip(lines, curves.items(), strict=False):
        curve = list(map(list, zip(*points, strict=True)))
        line_of_curve |= {"curve": curve, "label": label, "panel": panel}
    others: dict[str, dict[str, Any]] = {
        "ftrl": {"alpha": 1e-6},
        "truncated-gradient": {"alpha": 1e-7, "power": 0.5, "step": "explicit"},
    }
    for method, own_options in others.items():
        given = {"method": method, **own_options}
        given["rate"] = power_of_two(rows, **given)
        whole, _ = runs(1, weights="float32", **given)
        for weights in ("float32", grid, f"q{n}.{11 - n}", f"q{n}.{7 - n}"):
            found, made = runs(1 if weights == "float32" else seeds, weights=weights, **given)
            width = 8 * kind_of(method, made.options).bytes_for(1, made.options)
            active = len(made.point()[0])
            lines.append(line(f"{method}, {weights}", width, found, whole[0], active=active))
    return lines


def rounding(rows: Rows, clock: Clock, seeds: int = 10) -> list[Figures]:
    """Loss and size of rounded models on rows that they have not seen, after three passes.

    The bound of the standard deviation is that of the first order, eps / 2 times the norm of the mean
    gradient of these rows: all rows share one rounding.
    """
    from sklearn.metrics import roc_auc_score

    from fcl.model.compact import margin_bound, mean_rise, packed_weights, round_weights

    p, X, y = rows.x.shape[1], rows.tests.astype(np.float64), rows.of_tests
    made = learner(p, power_of_two(rows))
    progressive(made, rows.x, rows.y, passes=3)
    w, b, n = made.arrays()[0].copy(), made.intercept, len(y)
    margins = X @ w + b
    full, area = float(np.logaddexp(0.0, -y * margins).mean()), roc_auc_score(y, margins)
    squares = np.add.reduceat(X.data**2, X.indptr[:-1])
    slope = float(np.linalg.norm(X.T @ (-y / (1.0 + np.exp(y * margins)) / n)))
    lines: list[Figures] = []
    for m, how in itertools.product((3, 5, 6, 7, 8, 9, 11, 13), ("random", "nearest")):
        eps, rises, moves, areas = 2.0**-m, [], [], []
        for seed in range(seeds if how == "random" else 1):
            with clock:
                v = round_weights(w, np.arange(p), m, how, seed)
            moves.append(float(np.abs(X @ (v - w)).max()))
            rises.append(float(np.logaddexp(0.0, -y * (X @ v + b)).mean()) - full)
            areas.append(1.0 - float(roc_auc_score(y, X @ v)))
        shares = np.unique(v, return_counts=True)[1] / p
        found: Figures = {
            "line": f"q2.{m} {how}", "loss, %": f"{100 * np.mean(rises) / full:+.4f}",
            "AUC loss, %": f"{100 * (np.mean(areas) / (1.0 - area) - 1.0):+.4f}",
            "rise": f"{np.mean(rises):+.1e}", "largest move": max(moves),
            "bits": abs(float((shares * np.log2(shares)).sum())),
            "bits stored": 8 * len(packed_weights(v, m, "zstd")) / p,
        }  # fmt: skip
        if how == "random":
            promise = float(mean_rise(eps, float(squares.mean()), 0.25) or 0.0)
            found |= {
                "sd": f"{np.std(rises, ddof=1):.1e}",
                "bound of sd": f"{eps / 2 * slope:.1e}",
                "bound": f"{promise:.1e}",
                "bound of move": margin_bound(eps, squares.max(), n),
            }
        lines.append(found)
    return lines


def random_chunk(first: int, n: int, p: int, width: int = 100) -> tuple[Any, Any]:
    """Rows of random features, by their numbers; labels follow the parity of the first feature."""
    from fcl.features.rows import RowChunk

    ids = np.random.default_rng([7, first]).integers(0, p, (n, width))
    y = np.where(ids[:, 0] % 2, 1.0, -1.0)
    indptr = np.arange(n + 1, dtype=np.int64) * width
    return RowChunk(indptr, ids.ravel().astype(np.int32), np.ones(n * width, np.float32)), y


def updates(
    rows: None, clock: Clock, p: int = 1 << 22, weights: str = "q2.13", repeat: int = 5
) -> Figures:
    """Nanoseconds of processor time for an update: margin, count, step and rounding."""
    from fcl.online.ogd import Ogd

    chunk, y = random_chunk(0, 5000, p)
    one, y_of_one = random_chunk(0, 1, p)
    learner(p, 0.1, weights=weights).learn(one, y_of_one, np.ones(1), np.zeros(1))
    made, times = learner(p, 0.1, weights=weights), []
    for _ in range(repeat + 1):
        work = partial(made.learn, chunk, y, np.ones(len(y)), np.zeros(len(y)))
        times.append(1e9 * measured(clock, work)[1]["processor"] / len(chunk.ids))
    return {"MB": Ogd.bytes_for(p, made.options) / 1e6, "ns, first": times[0],
            "ns, later": median(times[1:])}  # fmt: skip


def huge(
    rows: None, clock: Clock, p: int = 10**9, n: int = 200_000, every: int = 50_000
) -> list[Figures]:
    """Learn 10^9 weights without interruption, and with a kill and a resumption; compare the tables."""
    context, lines = multiprocessing.get_context("spawn"), []
    common.MADE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=common.MADE) as folder:
        for name, kill in (("whole", 0), ("killed", n // 2 + every // 2), ("killed", 0)):
            ends = context.Pipe(duplex=False)
            given = (Path(folder, f"{name}.zip"), p, n, every, kill, ends[1])
            process = context.Process(target=learn_huge, args=given)
            with clock:
                process.start()
                ends[1].close()
                found = {} if kill else ends[0].recv()
                process.join()
            if kill:
                assert process.exitcode == -signal.SIGKILL
            else:
                lines.append({"line": "killed, resumed" if name == "killed" else name, **found})
    return lines


def learn_huge(state: Path, p: int, n: int, every: int, kill: int, out: Any) -> None:
    """Learn from the last checkpoint on; send the hash of the table, or kill this process in a row."""
    from fcl.online import OnlineOptions
    from fcl.online.ogd import Ogd

    made = Ogd(p, OnlineOptions(0.0, rate=0.1, weights="q2.13"))
    if state.exists():
        made.load(state)
    first, busy, block = made.rows, 0.0, 1000
    for at in range(first, n, block):
        chunk, y = random_chunk(at, block, p)
        before = time.perf_counter()
        made.learn(chunk, y, np.ones(block), np.zeros(block))
        busy += time.perf_counter() - before
        if kill and made.rows >= kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if made.rows % every == 0:
            made.save(state)
    digest = hashlib.sha256()
    for array in (made.weights, made.others, made.state):
        digest.update(array.view(np.uint8).data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    out.send({"bits": digest.hexdigest()[:8], "rows/s": (n - first) / busy, "from row": first,
              "peak": peak / common.MIB, "table, MB": Ogd.bytes_for(p, made.options) / 1e6,
              "touched": int(np.count_nonzero(made.others))})  # fmt: skip
